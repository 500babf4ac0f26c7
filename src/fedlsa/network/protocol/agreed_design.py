"""What all sites make features of: columns in one order, and the levels of categories, agreed before a run.

Each site describes its own. The coordinator joins them, matched by name, and sends the same back to all: it is part of
the orders for sums, whose digests label the sites' masks, so that sites that were told different designs have no sum.
A site holds what comes back against its own table before it uses it (`chosen`).
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import repeat
from typing import Self

import msgspec
import numpy as np

from ...errors import MessageError, SiteDataError
from ...fitting.design import MAX_LEVELS, agree_levels
from ...fitting.formulas import kind_of
from ...fitting.rows import Columns
from ...fitting.run_plan import POWER, PlanNumbers
from ...fitting.sums import Summary
from ...fitting.tasks import Regression, Task
from .codec import Struct, printable

MAX_LENGTH = 200  # characters of a level


class AgreedDesign(Struct, frozen=True, eq=True):
    """columns : of the features or states, in the order of the coefficients; levels : of each categorical column."""

    columns: tuple[str, ...]
    levels: tuple[tuple[str, tuple[str | int | float | bool, ...]], ...] = ()

    def text(self) -> str:
        """JSON, for files: one text for one design."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """What `text` wrote, read strictly: anything else is a MessageError."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise MessageError(f"'design' must be columns and levels as this version has them: {error}") from None

    def check(self) -> None:
        if not self.columns or len({*self.columns}) < len(self.columns):
            raise MessageError("'design' must name columns, each once")
        if len({column for column, _ in self.levels}) < len(self.levels):
            raise MessageError("'design' must have the levels of different columns")
        for value in (*self.columns, *(v for column, listed in self.levels for v in (column, *listed))):
            if (isinstance(value, str) and len(value) > MAX_LENGTH) or (
                isinstance(value, float) and not math.isfinite(value)
            ):
                raise MessageError(f"'design' must have names of at most {MAX_LENGTH} characters, and finite levels")
        for column, listed in self.levels:
            if not 0 < len(listed) <= MAX_LEVELS or len({*listed}) < len(listed) or len({*map(kind_of, listed)}) > 1:
                rule = f"must have 1 to {MAX_LEVELS} levels, of one kind and different"
                raise MessageError(f"{printable(column)!r} {rule}; it has {len(listed)}")

    @classmethod
    def of(cls, own: Columns) -> Self:
        """What a site has by itself."""
        return cls(own.state, own.levels)

    def chosen(self, own: Columns, task: Task) -> Columns:
        """The columns of a site as the run reads them; own : as its table has them. Others are a MessageError."""
        free = isinstance(task, Regression) and task.columns is None and task.formula is None  # else it has an order
        if self.columns != own.state and not (free and sorted(self.columns) == sorted(own.state)):
            raise MessageError("'design' must have the columns that this site has; it has others")
        agreed = dict(self.levels)
        if [column for column, _ in self.levels] != [column for column, _ in own.levels]:
            raise MessageError("'design' must have levels of the columns that are categories here; it has others")
        for column, levels in own.levels:
            known = {(type(level), level) for level in agreed[column]}  # for 1, 1.0 and True are one to Python
            if any((type(level), level) not in known for level in levels):
                raise MessageError(f"'design' must have all levels of {column!r} that this site has; one is missing")
        return replace(own, state=self.columns, levels=self.levels)


def common_design(described: Sequence[AgreedDesign], sites: Sequence[str]) -> AgreedDesign:
    """The design of all sites, in the first one's order; columns that do not fit together are a SiteDataError."""
    first = described[0]
    for description, site in zip(described, sites, strict=True):
        for mine, other, lacks, has in ((first, description, site, sites[0]), (description, first, sites[0], site)):
            for column in (c for c in mine.columns if c not in other.columns):
                rule = f"{lacks} lacks the column {printable(column)!r} that {has} has"
                raise SiteDataError(f"{rule}; add it there, or name the columns of the task")
    return AgreedDesign(first.columns, agree_levels({s: dict(d.levels) for s, d in zip(sites, described, strict=True)}))


def look_alikes(design: AgreedDesign) -> list[str]:
    """Levels that differ in case, spaces or the writing of a letter alone, and count as two: a sentence each."""
    out = []
    for column, levels in design.levels:
        first_spelling: dict[str, str] = {}
        for level in (x for x in levels if isinstance(x, str)):
            other = first_spelling.setdefault(" ".join(unicodedata.normalize("NFKC", level).casefold().split()), level)
            if other != level:
                pair = f"{ascii(other)[:80]} and {ascii(level)[:80]}"
                out.append(f"{printable(column)!r} has the levels {pair}, which look alike and count as two")
    return out


# The sums that sites send before the first round, as exact fractions, and what the server reads of them.
#
# Coordinates: sum_c w_c (1, mean_c, mean square_c) of every column. Sums of exact fractions lose nothing, so that the
# pooled variance, a small difference of large numbers, is as exact as the sites' own means and scatters.
# Plan: sum_c w_c l_c, sum_c L_c^p and sum_c w_c^2 s_c of the three numbers of each site (run_plan.py), and how many
# have l_c <= 0. The p-th root of sum_c L_c^p is at least the largest L_c, and at most N^(1/p) times it.

DITHER = Fraction(1, 2**32)  # of what is told: far below what a scale or a plan needs, far above the last bits


def scale_sums(summary: Summary, weight: float, dither: Iterator[Fraction] | None = None) -> list[Fraction]:
    """(2 k + 3,): w, w mean and w mean square of the k features and the target.

    dither : numbers within 1. Exact sums with weights that differ in their last bits would tell one site's means there;
        so each mean moves by DITHER of its deviation, and each variance by DITHER of itself
    """
    w, blur = Fraction(weight), dither or repeat(Fraction(0))
    deviation = [Fraction(s) for s in np.sqrt(summary.scatter / summary.n).tolist()]
    mean = [Fraction(m) + DITHER * next(blur) * s for m, s in zip(summary.mean.tolist(), deviation, strict=True)]
    scatter = [Fraction(s) / summary.n * (1 + DITHER * next(blur)) for s in summary.scatter.tolist()]
    return [w, *(w * m for m in mean), *(w * (s + m * m) for m, s in zip(mean, scatter, strict=True))]


def pooled_summary(sums: Sequence[int]) -> Summary:
    """The weighted mean and variance of every column over all sites, from integers in any unit, as of one row.

    `largest` is the root mean square, which is what a scatter of rounding errors is compared with.
    """
    k, left = divmod(len(sums) - 1, 2)
    total = sums[0]
    if left or k < 1 or total <= 0:
        raise MessageError("the sums of all sites must be those of columns with positive weights; they are not")
    mean = [Fraction(s, total) for s in sums[1 : k + 1]]
    square = [Fraction(s, total) for s in sums[k + 1 :]]
    variance = [e - m * m for e, m in zip(square, mean, strict=True)]
    if any(float(v) < -1e-9 * float(e) for v, e in zip(variance, square, strict=True)):
        raise MessageError("the sums of all sites must have mean squares above squared means; they have not")
    scatter = np.array([float(max(v, Fraction(0))) for v in variance])
    largest = np.sqrt([max(float(e), 0.0) for e in square])
    return Summary(1, np.array([float(m) for m in mean]), scatter, largest)


def plan_sums(
    weight: float, lowest: float, highest: float, noise: float, dither: Iterator[Fraction] | None = None
) -> list[Fraction]:
    """(4,): w l, L^p, w^2 s and whether l <= 0, of a site; dither : as in `scale_sums`."""
    w, blur = Fraction(weight), dither or repeat(Fraction(0))
    exact = [w * Fraction(lowest), Fraction(max(highest, 0.0)) ** POWER, w * w * Fraction(noise)]
    return [*(x * (1 + DITHER * next(blur)) for x in exact), Fraction(lowest <= 0)]


def plan_numbers(sums: Sequence[float]) -> PlanNumbers:
    """The numbers of run_plan.py from the sums over all sites."""
    if len(sums) != 4 or sums[1] < 0 or sums[2] < 0:
        raise MessageError("the sums of all sites must have positive eigenvalues and noise; they have not")
    return PlanNumbers(sums[0], sums[1] ** (1 / POWER), sums[2], round(sums[3]))

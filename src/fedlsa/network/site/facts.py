"""What a site finds in its data before a run: that they can be used, sums of columns, three numbers to plan by.

With B = (A(z), -b(z)) = u w^T, w = (v, -y), one pass over the rows gives the means A_c, b_c and W = E[|u|^2 w w^T], and
these the trace of the noise anywhere:  Tr Cov(A(z) theta - b(z)) = h^T W h - |A_c theta - b_c|^2  with h = (theta, 1)
and A_c, b_c without the ridge, which is no noise. What of it may leave, and how, orders.py decides.
"""

from __future__ import annotations

import hmac
import itertools
import json
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...checks import Floats
from ...errors import MessageError, NetworkError, PolicyError
from ...fitting.design import Levels, level_counts
from ...fitting.formulas import kind_of, parse_formula
from ...fitting.reading import first_pass, read_scaled
from ...fitting.rows import Columns, FeatureScale, Piece, feature_count, integers_error, read_observations
from ...fitting.rows import coefficient_names as fitted_names
from ...fitting.run_plan import RowSizes, Scalars, noise_form, noise_products, row_sizes
from ...fitting.sums import Summary, Systems, null_space, original_scale
from ...fitting.tables import DataTable, MissingRows, listed
from ...fitting.tasks import Regression, Task, shared_intercept
from ...theory import tuning
from ...theory.linear import symkron, triangle
from .. import disk
from ..folder.config import SiteFolder
from ..protocol.agreed_design import AgreedDesign
from ..protocol.client import LocalSteps
from ..protocol.codec import printable
from ..protocol.run_settings import RunTerms
from .limits import TableFacts, check_table, refused
from .policy import Policy
from .site_data import SiteData, Steps, check_scale, clear_prepared, prepare_steps, scale_to_json, site_columns

Words = NDArray[np.uint64]
SECRET_BYTES = 32
MAX_COUNTED_VALUES = 10_000  # different values, beyond which a column's rare ones are not counted
MOMENTS = 32  # dimensions up to which noise moments are shared: the exact planner reads no larger ones


@dataclass(frozen=True, eq=False)
class TableView:
    """A table as a task reads it: its columns, the names of the coefficients, sums, and what the policy asks of it.

    summary, system : of one site, without the ridge; of rows less their means where the intercept is the site's own
    means : (k + 1,) of features and target, from which that intercept follows. They stay here
    """

    columns: Columns
    names: tuple[str, ...]
    summary: Summary
    system: Systems
    means: Floats
    facts: TableFacts
    digest: str  # another one where any row has changed, in whatever order they come
    rows: Words  # a hash of each, sorted
    dropped: int  # rows that lack a value and are left out, which nobody but the site's own person is told


class SharedMoments(NamedTuple):
    """A_c : (d, d), b_c : (d,), noise_map : as in theory/problem_moments.py; for sites that share them."""

    A: Floats
    b: Floats
    noise_map: Floats


def coefficient_names(task: Task, columns: Columns) -> tuple[str, ...]:
    """Of the coefficients of features that are made of these columns."""
    return tuple(printable(name) for name in fitted_names(task, columns, feature_count(task, columns)))


def view(site: DataTable, task: Task, design: AgreedDesign | None = None, key: int = 0) -> TableView:
    """Read every row once, as a run would; design : what all sites agreed on, else the columns as this table has them;
    key : of the hashes of rows"""
    columns = site_columns(site, task, design)
    coded = columns if design is not None else replace(columns, levels=_with_bases(task, columns.levels))
    counts, missing = _Rarity(key), MissingRows(site.sites)
    watched = counts.watch(read_observations(site, task, coded, missing))
    found, integers, _ = first_pass(watched, task, coded, site.sites)
    if integers:
        raise integers_error(site.name, columns.state[0])
    sums = found if task.own is None else found.within()
    summary = sums.summary()
    system = sums.systems(original_scale(len(summary.mean) - 1, shared_intercept(task)), 0.0)
    names = coefficient_names(task, coded)
    rarest = counts.rarest((*names[: len(summary.mean) - 1], columns.reward), summary.n)
    found_levels = level_counts(site, task) if design is None else {}  # those of a design are no news
    levels = tuple((c, len(count), min(count.values(), default=0)) for c, count in found_levels.items())
    leverage = 0.0
    if task.formula is not None and parse_formula(task.formula).calculates:
        leverage = row_sizes(lambda: (piece for _, piece in read_observations(site, task, coded))).leverage
    facts = TableFacts(summary.n, columns.all, rarest, levels, leverage)
    rows, dropped = np.sort(np.concatenate(counts.rows)), int(missing.incomplete[0])
    digest, means = f"{counts.checksum:016x}", found.mean[0]
    return TableView(columns, names, summary, system, means, facts, digest, rows, dropped)


def _with_bases(task: Task, levels: Levels) -> Levels:
    """A site's own levels, and those that the formula itself names: a reference level that other sites have."""
    if task.formula is None:
        return levels
    factors = [f for f in parse_formula(task.formula).factors.values() if f.contrast is not None]
    bases = [(f.columns[0], base) for f in factors if f.contrast and (base := f.contrast[1].get("base")) is not None]
    return tuple(
        (c, tuple(dict.fromkeys([*own, *(b for column, b in bases if column == c and kind_of(b) == kind_of(own[0]))])))
        for c, own in levels
    )


def check(site: DataTable, task: Task) -> list[str]:
    """Read every row once, as a run would; what was found, in plain words. Data that cannot be used: SiteDataError."""
    table_view = view(site, task)
    columns, summary, d = table_view.columns, table_view.summary, table_view.system.b.shape[1]
    lines = [f"{site.name}: {summary.n:,} rows, all of them read; every value that the task needs is there and finite."]
    if table_view.dropped:
        lines.append(f"{table_view.dropped:,} more rows lack a value that the task needs, and are left out.")
    if task.formula is not None:
        lines.append(f"Formula {printable(task.formula)}; columns {listed(columns.all)}.")
    elif isinstance(task, Regression):
        lines.append(f"Target {columns.reward!r}; features {listed(columns.state)}.")
    else:
        lines.append(
            f"State {listed(columns.state)}; next state {listed(columns.next_state)}; reward {columns.reward!r}; "
            f"ends of episodes in {listed([c for c in (columns.terminated, columns.truncated) if c])}."
        )
        if columns.importance is not None:
            lines.append(f"Importance weights in {columns.importance!r}.")
    lines.append(f"{d} coefficients: {listed(table_view.names)}.")
    if task.own is not None:
        lines.append("The intercept is this site's own: it stays here, and stands in the site's results alone.")
    for column, levels in columns.levels:
        fewest = next(rows for name, _, rows in table_view.facts.levels if name == column)
        shown = printable(listed([str(level) for level in levels]), 500)
        lines.append(f"Levels of {column!r} that would leave: {shown} (the rarest has {fewest:,} rows).")
    constant = summary.scatter[:-1] <= (1e-12 * np.maximum(summary.largest[:-1], 1e-300)) ** 2 * summary.n
    if constant.any():
        same = [n for n, c in zip(table_view.names, constant, strict=False) if c]
        lines.append(f"Note: {listed(same)} never varies here; other sites must vary it.")
    elif len(null_space(table_view.system.A[0] + task.ridge * np.eye(d))):
        lines.append("Note: these rows alone do not determine all coefficients; those of the other sites must help.")
    return lines


def measure(
    site: DataTable,
    task: Task,
    scale: FeatureScale,
    share_moments: bool = False,
    design: AgreedDesign | None = None,
    local: str = "rows",
) -> tuple[Scalars, SharedMoments | None]:
    """The three scalars, in the run's coordinates, and the moments where the site shares them and d <= MOMENTS.

    local : what steps use, "rows" or "means", which have no noise
    """
    columns, ridge, d = site_columns(site, task, design), task.ridge, scale.dim
    check_scale(task, columns, scale)
    W = np.zeros((d + 1, d + 1))

    def weigh(p: Piece) -> Piece:
        W[:] += noise_products(p)
        return p

    bare = Systems.of(map(weigh, read_scaled(site, task, columns, scale)), site.sites, 0.0)
    A, b = bare.A[0] + ridge * np.eye(d), bare.b[0]
    noise = noise_form(W / bare.n[0], bare.A[0], b)[None] if local == "rows" else None
    scalars = Scalars(*(float(x[0]) for x in Scalars.of(A[None], b[None], noise)))
    if not share_moments or d > MOMENTS:
        return scalars, None
    return scalars, SharedMoments(A, b, _noise_map(read_scaled(site, task, columns, scale), bare))


def _noise_map(pieces: Iterable[Piece], means: Systems) -> Floats:
    """The map svec(h h^T) -> svec(Cov(A(z) theta - b(z))) of theory/problem_moments.py, from rows piece by piece."""
    d = means.b.shape[1]
    (i, j), (k, q) = triangle(d), triangle(d + 1)
    total = np.zeros((len(i), len(k)))
    step = max(1, tuning.CACHED_OUTCOMES // (len(i) + len(k)))
    for p in pieces:
        for start in range(0, len(p.y), step):
            part = slice(start, start + step)
            u, w = p.u[part].T, np.vstack([p.v[part].T, -p.y[part]])
            total += (u[i] * u[j]) @ (w[k] * w[q]).T
    mean = np.column_stack([means.A[0], -means.b[0]])
    return np.where(k == q, 1.0, 2.0) * (total / means.n[0]) - symkron(mean)


def _hashes(words: Words, seed: int) -> Words:
    """A hash of each row of words (n, k)."""
    factors = np.random.default_rng(seed).integers(2**63, size=words.shape[1], dtype=np.uint64) * 2 + 1
    with np.errstate(over="ignore"):
        mixed = (words * factors).sum(axis=1, dtype=np.uint64)
        for shift, factor in ((31, 0x7FB5D329728EA185), (27, 0x81DADEF4BC2DD44D)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray(mixed ^ (mixed >> np.uint64(33)), np.uint64)


def changed_rows(before: Words, now: Words) -> tuple[int, int]:
    """How many rows are gone and how many are new, by the hashes of the rows of two tables."""
    _, where = np.unique(np.concatenate([before, now]), return_inverse=True)
    more = np.bincount(where, np.repeat([-1.0, 1.0], [len(before), len(now)]))
    return int(-more[more < 0].sum()), int(more[more > 0].sum())


class _Rarity:
    """Counts the values of each column, as long as they are few, and hashes rows; key : without which nobody can tell
    from a hash whether a row is in the table."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.tallies: list[Counter[float] | None] = []  # None: of many values
        self.checksum = 0
        self.rows: list[Words] = []

    def watch(self, pieces: Iterable[tuple[Floats, Piece]]) -> Iterator[tuple[Floats, Piece]]:
        for x, piece in pieces:
            values = np.column_stack([x, piece.y])
            self.tallies = self.tallies or [Counter() for _ in range(values.shape[1])]
            for j, tally in enumerate(self.tallies):
                if tally is not None:
                    pair = np.unique(values[:, j], return_counts=True)
                    found, count = (x[: MAX_COUNTED_VALUES + 1].tolist() for x in pair)
                    tally.update(dict(zip(found, count, strict=True)))
                    self.tallies[j] = tally if len(tally) <= MAX_COUNTED_VALUES else None
            row_words = values if piece.v is piece.u else np.column_stack([values, piece.u, piece.v])
            row_words = np.ascontiguousarray(row_words)
            total = _hashes(row_words.view(np.uint64), row_words.shape[1]).sum(dtype=np.uint64)
            self.checksum = (self.checksum + int(total)) % 2**64
            self.rows.append(_hashes(row_words.view(np.uint32).astype(np.uint64), self.key))
            yield x, piece

    def rarest(self, names: tuple[str, ...], rows: int) -> tuple[str, int]:
        """The column with the fewest rows of another value than its most common one, and their number; those that never
        vary, or have many values, do not count."""
        common = [0 if tally is None else max(tally.values()) for tally in self.tallies]
        off = rows - np.array([*common[: len(names) - 1], common[-1]])  # without the intercept
        off[off == 0] = rows
        j = int(np.argmin(off))
        return names[j], int(off[j])


# The site's table as runs read it: looked at once, made ready for local steps, and drawn from in secret.
#
# Rows are drawn from the site's secret and the label of the order. So the same order has the same answer, also after a
# crash, and no two orders draw the same rows: a coordinator cannot look at one sample of rows twice.


@dataclass
class SiteTable:
    """What has been read of the table, until its file changes; secret : of the site, from which rows are drawn."""

    site: SiteFolder
    data: SiteData
    secret: bytes
    stamp: list[str | int] = field(default_factory=list)  # of the data, as they were read last
    viewed: dict[str, TableView] = field(default_factory=dict)  # by the design, "" for the table's own
    prepared: dict[str, tuple[Steps, RowSizes]] = field(default_factory=dict)  # of the latest run, by its key

    def view(self, design: AgreedDesign | None = None) -> TableView:
        """The table as the task reads it by itself, or with the columns and levels that all sites agreed on."""
        self._forget_changed()
        if "" not in self.viewed:
            key = int.from_bytes(hmac.digest(self.secret, b"rows", "sha256"), "big")
            self.viewed[""] = view(self.data.opened, self.site.task, key=key)
        if design is None or design == AgreedDesign.of(self.viewed[""].columns):
            return self.viewed[""]
        if design.text() not in self.viewed:
            self.viewed = {"": self.viewed[""], design.text(): view(self.data.opened, self.site.task, design)}
        return self.viewed[design.text()]

    def designed(self, policy: Policy, design: AgreedDesign, first: str | None, sites: int) -> TableView:
        """The table by the design of an order, held against the policy like the table's own; first : the design that
        the run began with, None where this is it; sites : how many there are"""
        if first not in (None, design.text()):
            raise MessageError("'design' must be the one that the run began with; it is another")
        most = policy.most_levels * sites  # each of which would be a column of all rows
        if any(len(levels) > most for _, levels in design.levels):
            raise refused("most_levels", f"a category has more than {most} levels of {sites} sites together")
        table_view = self.view(design)
        check_table(policy, table_view.facts)
        return table_view

    def prepare(self, terms: RunTerms, scale: FeatureScale, design: AgreedDesign) -> tuple[Steps, RowSizes]:
        """Local steps in the run's coordinates, and what the policy asks of the rows."""
        self._forget_changed()
        key = json.dumps([terms.local, terms.coding.row_clip, scale_to_json(scale), design.text()])
        if key not in self.prepared:
            how = self.site.folder, terms.local, terms.coding.row_clip, design
            self.prepared = {key: prepare_steps(self.data, self.site.task, scale, *how)}
        return self.prepared[key]

    def forget_prepared(self) -> None:
        """Remove what was made ready, when a run is over: as much as the table, and as confidential."""
        self.prepared = {}
        clear_prepared(self.site.folder)

    def check_unchanged(self, stamp: list[str | int], digest: str) -> None:
        """Refuse to go on with a run on another table than it began with: answers would differ by what changed."""
        same = self.data.path is not None and self.data.stamp() == stamp
        if not same and self.view().digest != digest:
            raise PolicyError("the table of this site has changed since the run began")

    def _forget_changed(self) -> None:
        """Forget what was read of a file that has changed since."""
        if self.data.stamp() != self.stamp:
            self.data, self.stamp = replace(self.data), self.data.stamp()
            self.viewed, self.prepared = {}, {}

    def dither(self, label: str) -> Iterator[Fraction]:
        """Numbers within 1, from the site's secret and an order's label: they blur the last bits of exact sums."""
        for k in itertools.count():
            found = hmac.digest(self.secret, f"dither {k} {label}".encode(), "sha256")
            yield Fraction(int.from_bytes(found, "big"), 2**255) - 1

    def drawing(self, steps: Steps, b: Floats | float = 0.0) -> LocalSteps:
        """Local steps on rows that the site's secret and the order's label choose; b : (d,), added to all b(z)."""

        def local(theta: Floats, xi: Floats, eta: float, count: int, label: bytes) -> Floats:
            seed = int.from_bytes(hmac.digest(self.secret, label, "sha256")[:8], "big")
            return steps(theta, xi + b, eta, count, 0, seed, 0)

        return local


def draws_secret(folder: Path) -> bytes:
    """The secret from which a site draws its rows; made at first, of mode 600."""
    path = folder / "draws.secret"
    if not path.exists():
        disk.create(path, secrets.token_bytes(SECRET_BYTES), secret=True)
    content = disk.check_secret(path, "the site's secret for draws").read_bytes()
    if len(content) != SECRET_BYTES:
        raise NetworkError(f"the site's secret for draws {path} is damaged; remove it, and a new one is made")
    return content

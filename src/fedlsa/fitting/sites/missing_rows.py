"""Rows that lack a value which a task needs: counted over all sites and refused, or left out and counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...errors import SiteDataError
from .arrays import ColumnBlock
from .conversion import is_missing, row_number

SHOWN = 6  # sites, and columns of a site, that an error names


@dataclass(eq=False)
class MissingRows:
    """What is missing at a site: of how many rows some lack a value, in how many rows which column, and where first.

    columns : by name, in how many rows, and the first of them, from 1
    """

    site: str
    rows: int = 0
    incomplete: int = 0
    columns: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, block: ColumnBlock) -> NDArray[np.bool_] | None:
        """Count a block; (n,) which of its rows lack nothing, None for all."""
        n = block.values.shape[1]
        self.rows += n
        holes = {c: np.isnan(block[c]) for c in block.place} if block.holes else {}
        holes |= {c: is_missing(v) for c, v in block.labels.items()}
        lacking = np.zeros(n, np.bool_)
        for column, hole in holes.items():
            if hole.any():
                count, first = self.columns.get(column, (0, row_number(block.rows, int(np.argmax(hole)))))
                self.columns[column] = count + int(hole.sum()), first
                lacking |= hole
        self.incomplete += int(lacking.sum())
        return ~lacking if lacking.any() else None

    def __str__(self) -> str:
        most = sorted(self.columns.items(), key=lambda item: -item[1][0])
        listed = [f"{c!r} {count:,}, first in row {first:,}" for c, (count, first) in most[:SHOWN]]
        listed += [f"{len(most) - SHOWN} more columns"] if len(most) > SHOWN else []
        return f"{self.site} in {self.incomplete:,} of {self.rows:,} rows ({'; '.join(listed)})"


class MissingValuesError(SiteDataError):
    """Some rows of a site lack a value."""


def complete(blocks: Iterable[ColumnBlock], found: MissingRows, drop: bool) -> Iterator[ColumnBlock]:
    """The blocks without the rows that lack a value, which are counted in `found`.

    Unless they are to be dropped, the first such row ends the blocks: the rest is read to count, and is an error.
    """
    kept = 0
    for block in blocks:
        whole = found.add(block)
        if found.incomplete and not drop:
            continue
        if whole is None:
            kept += block.values.shape[1]
            yield block
        elif whole.any():
            kept += int(whole.sum())
            at = np.flatnonzero(whole)
            rows = block.rows + at if isinstance(block.rows, int) else block.rows[at]
            labels = {c: v[at] for c, v in block.labels.items()}
            yield ColumnBlock(block.place, np.ascontiguousarray(block.values[:, at]), labels, rows)
    if found.incomplete and not drop:
        raise MissingValuesError(missing_values([found], 1, ""))
    if found.incomplete and not kept:
        raise SiteDataError(f"{found.site} must have a row without a missing value; values are missing at {found}")


def missing_values(found: Sequence[MissingRows], sites: int, instead: str) -> str:
    """The sentence on the sites where values are missing, of so many in all; instead : what can be done."""
    listed = [*map(str, found[:SHOWN]), *([f"{len(found) - SHOWN} more sites"] if len(found) > SHOWN else [])]
    have = "has" if len(found) == 1 else "have"
    what = f"{len(found):,} of {sites:,} sites {have} missing values: " if sites > 1 else "values are missing at "
    return what + ", ".join(listed) + instead

"""Files that hold the rows of many sites, which a column tells apart, or the names of folders (firm=3/part.parquet).

A first pass over that column finds the sites, and in which row groups of which files each has rows. Where sites share
few row groups, each reads its own. Else rows are read once and split in memory; where they do not fit, they are read
once for as many sites as do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import checks
from ...errors import SiteDataError
from .arrays import NUMBERS, ROWS, Arrays, ColumnBlock, blocks, piece_rows
from .conversion import labels_from_arrow
from .site_files import FileSite, fixed_value
from .site_names import in_order, parts_of, site_labels, unlabelled_rows

LABEL = 64  # bytes that a label in memory may take
READ_AGAIN = 1.5  # times that rows may be read on average before they are rather split in memory


class SitePlace(NamedTuple):
    """Where a site has rows: in groups of a file (None: in all), whose first row is `start` of all files' rows."""

    file: FileSite
    start: int
    groups: list[int] | None


@dataclass(frozen=True, eq=False)
class SplitFiles:
    """Files with the rows of all sites; places : where each has some; counts : how many.

    read : rows that all sites would read, each on its own
    memory : bytes that rows may take when they are read once and split
    held : rows that are split, until all sites have had theirs
    """

    split_by: str
    columns: tuple[str, ...]
    categories: frozenset[str]
    places: dict[str, list[SitePlace]]
    counts: dict[str, int]
    read: int
    memory: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    held: dict[tuple[Any, ...], _SplitRows] = field(default_factory=dict)

    def pieces(self, name: str, columns: Sequence[str], size: int, labels: Sequence[str]) -> Iterator[ColumnBlock]:
        """The rows of one site, at most `size` at a time."""
        together = self._together(name, 8 * (len(columns) + 2) + LABEL * len(labels))
        if len(together) == 1:
            yield from self._apart(name, columns, size, labels)
            return
        key = (tuple(columns), tuple(labels), together)
        with self.lock:
            for other in [k for k in self.held if k[:2] != key[:2]]:  # of a pass that is over
                del self.held[other]
            if key not in self.held:
                self.held[key] = self._split_rows(together, columns, labels)
            found = self.held[key]
        part = found.parts[name]
        step = piece_rows(len(columns), NUMBERS)
        for at in range(0, len(part), step):
            some = part[at : at + step]
            yield from found.table.block(name, some, found.rows[some], columns, size, labels)
        with self.lock:
            found.taken.add(name)
            if len(found.taken) == len(together):
                self.held.pop(key, None)

    def _together(self, name: str, row: int) -> tuple[str, ...]:
        """The sites that are read together with this one: all, or neighbours that fit into half of the memory, for the
        next ones are read before these are done; row : bytes."""
        total = sum(self.counts.values())
        if self.read <= READ_AGAIN * total:
            return (name,)
        room = self.memory if total * row <= self.memory else self.memory / 2
        together: list[str] = []
        taken = 0
        for site, count in self.counts.items():
            if together and taken + count * row > room:
                if name in together:
                    break
                together, taken = [], 0
            together.append(site)
            taken += count * row
        return tuple(together)

    def _apart(self, name: str, columns: Sequence[str], size: int, labels: Sequence[str]) -> Iterator[ColumnBlock]:
        """A site's rows from the groups that hold them."""
        for numbers, beside, _, rows in self._rows((name,), columns, labels):
            yield from blocks(name, columns, numbers, size, rows, beside)

    def _rows(
        self, names: Sequence[str], columns: Sequence[str], labels: Sequence[str]
    ) -> Iterator[tuple[list[NDArray[Any]], dict[str, NDArray[Any]], NDArray[np.int64], NDArray[np.int64]]]:
        """Rows of some sites, batch by batch: numbers, labels, whose they are, and where they stand in all files."""
        number = {name: k for k, name in enumerate(names)}
        chosen: dict[int, tuple[FileSite, set[int] | None]] = {}
        for file, start, groups in (place for name in names for place in self.places[name]):
            before = chosen.get(start, (file, set()))[1]
            chosen[start] = file, None if groups is None or before is None else before | set(groups)
        for start, (file, wanted) in sorted(chosen.items(), key=lambda item: item[0]):
            fixed = self.split_by in file.fixed
            texts = () if fixed else (self.split_by,)
            groups = None if wanted is None else sorted(wanted)
            for at, batch in file.located(columns, labels, texts, groups):
                numbers, beside = file.decoded(batch, columns, labels, at)
                if fixed:
                    labelled = np.full(len(batch), fixed_value(file.fixed[self.split_by]), object)
                else:
                    labelled = labels_from_arrow(batch.column(self.split_by))
                found, codes = site_labels(labelled)
                sites = np.array([number.get(name, -1) for name in found], np.int64)[codes]
                here = np.flatnonzero(sites >= 0)
                if len(here):
                    own = {c: v[here] for c, v in beside.items()}
                    yield [v[here] for v in numbers], own, sites[here], start + at + here

    def _split_rows(self, names: Sequence[str], columns: Sequence[str], labels: Sequence[str]) -> _SplitRows:
        """The rows of some sites in memory."""
        total = sum(self.counts[name] for name in names)
        values = {c: np.empty(total) for c in columns}
        texts: dict[str, list[NDArray[Any]]] = {c: [] for c in labels}
        sites, rows = np.empty(total, np.int64), np.empty(total, np.int64)
        at = 0
        for numbers, beside, whose, where in self._rows(names, columns, labels):
            here = slice(at, at + len(where))
            for c, v in zip(columns, numbers, strict=True):
                values[c][here] = v
            for c, v in beside.items():
                texts[c].append(v)
            sites[here], rows[here] = whose, where
            at += len(where)
        joined = {c: _joined(some) for c, some in texts.items()}
        table = Arrays("the files", {self.split_by: rows, **values, **joined}, values, joined)
        return _SplitRows(table, rows, parts_of(names, sites))


def _joined(labels: list[NDArray[Any]]) -> NDArray[Any]:
    """Labels of several batches; of several kinds they stay what they are, as objects."""
    same = len({v.dtype.kind for v in labels}) == 1
    return np.concatenate(labels if same else [v.astype(object) for v in labels])


@dataclass(frozen=True, eq=False)
class _SplitRows:
    """Rows of some sites in memory, where they stand in the files, and which are whose; taken : sites that are done."""

    table: Arrays
    rows: NDArray[np.int64]
    parts: dict[str, NDArray[np.int64]]
    taken: set[str] = field(default_factory=set)


@dataclass(frozen=True, eq=False)
class FilePart:
    """The rows of one site in files of many."""

    name: str
    files: SplitFiles

    @property
    def columns(self) -> tuple[str, ...]:
        return self.files.columns

    @property
    def rows(self) -> int:
        return self.files.counts[self.name]

    @property
    def split_by(self) -> str:
        return self.files.split_by

    @property
    def categories(self) -> frozenset[str]:
        return self.files.categories

    def pieces(self, columns: Sequence[str], rows: int = ROWS, labels: Sequence[str] = ()) -> Iterator[ColumnBlock]:
        """The columns, at most `rows` rows at a time."""
        return self.files.pieces(self.name, columns, rows, labels)


def split_files(files: Sequence[FileSite], split_by: str, memory: float) -> list[FilePart]:
    """The sites in files of many, in the order of their names; split_by : a column, or the key of folders."""
    places: dict[str, list[SitePlace]] = {}
    counts: dict[str, int] = {}
    start = read = 0
    first = files[0]
    for file in files:
        for column in (c for c in (split_by, *first.columns) if c not in file.columns):
            lacks = f"that {first.name} has" if column != split_by else "which is to say what site a row is of"
            hint = checks.did_you_mean(column, file.columns)
            raise SiteDataError(f"{file.name} has no column {column!r}, {lacks}{hint}")
        size = 0
        for site, (count, groups) in _sites_in(file, split_by).items():
            counts[site] = counts.get(site, 0) + count
            places.setdefault(site, []).append(SitePlace(file, start, groups))
            size += count
        for some in places.values():
            if some[-1].file is file:
                read += sum(file.groups[g] for g in some[-1].groups) if some[-1].groups is not None else size
        start += size
    ordered = {site: counts[site] for site in in_order(counts)}
    whole = SplitFiles(split_by, first.columns, first.categories, places, ordered, read, memory)
    return [FilePart(site, whole) for site in ordered]


def _sites_in(file: FileSite, split_by: str) -> dict[str, tuple[int, list[int] | None]]:
    """The sites in a file: how many rows each has, and in which row groups; None for a file without groups."""
    counts: dict[str, int] = {}
    groups: dict[str, dict[int, None]] = {}
    rows = lacking = first = 0
    for group, labels in _labels_of(file, split_by):
        names, codes = site_labels(labels)
        missing = codes < 0
        first = first if lacking or not missing.any() else rows + int(np.argmax(missing)) + 1
        lacking, rows = lacking + int(missing.sum()), rows + len(codes)
        for site, count in zip(names, np.bincount(codes[~missing], minlength=len(names)).tolist(), strict=True):
            counts[site] = counts.get(site, 0) + count
            groups.setdefault(site, {})[group] = None
    if lacking:
        raise unlabelled_rows(file.name, split_by, lacking, rows, first)
    if not rows:
        raise SiteDataError(f"{file.name} must have at least one row; it has none")
    apart = bool(file.groups) and split_by not in file.fixed
    return {site: (count, list(groups[site]) if apart else None) for site, count in counts.items()}


def _labels_of(file: FileSite, split_by: str) -> Iterator[tuple[int, NDArray[Any]]]:
    """The labels of a file's rows, row group by row group."""
    if split_by in file.fixed:
        label = fixed_value(file.fixed[split_by])
        for _, batch in file.located((), ()):
            yield 0, np.full(len(batch), label, object)
        return
    for group in range(max(len(file.groups), 1)):
        for _, batch in file.located((), (), (split_by,), [group] if file.groups else None):
            yield group, labels_from_arrow(batch.column(split_by))

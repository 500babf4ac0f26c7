"""Files that hold the rows of many sites, which a column tells apart, or the names of folders (firm=3/part.parquet).

A first pass over that column finds the sites, and in which row groups of which files each has rows. Where sites share
row groups, rows are read once and split in memory, if they take at most half of what the fit may use; else every site
reads the groups that it has rows in. So a file that does not fit into memory should be sorted by site, or be a folder
with a file for each: then nothing is read twice.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..errors import SiteDataError
from .arrays import NUMBERS, ROWS, Arrays, ColumnBlock, blocks, piece_rows
from .conversion import labels_from_arrow, name_of
from .site_files import KINDS, FileSite, fixed_value, open_file

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
    """

    split_by: str
    columns: tuple[str, ...]
    categories: frozenset[str]
    places: dict[str, list[SitePlace]]
    counts: dict[str, int]
    read: int
    memory: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    held: dict[tuple[Any, ...], _Held] = field(default_factory=dict)

    def pieces(self, name: str, columns: Sequence[str], rows: int, labels: Sequence[str]) -> Iterator[ColumnBlock]:
        """The rows of one site, at most `rows` at a time."""
        total = sum(self.counts.values())
        size = total * (8 * (len(columns) + 2) + LABEL * len(labels))
        if self.read <= READ_AGAIN * total or size > self.memory:
            yield from self._apart(name, columns, rows, labels)
            return
        found = self._all(columns, labels)
        part = found.parts[name]
        step = piece_rows(len(columns), NUMBERS)
        for at in range(0, len(part), step):
            some = part[at : at + step]
            yield from found.table.block(name, some, some, columns, rows, labels)
        with self.lock:
            found.taken.add(name)
            if len(found.taken) == len(self.counts):
                self.held.clear()

    def _apart(self, name: str, columns: Sequence[str], rows: int, labels: Sequence[str]) -> Iterator[ColumnBlock]:
        """A site's rows from the groups that hold them."""
        for file, start, groups in self.places[name]:
            for at, batch in file.located(columns, labels, self._texts(file), groups):
                numbers, beside = file.decoded(batch, columns, labels, at)
                here = np.arange(len(batch))
                if self.split_by not in file.fixed:
                    names, codes = site_labels(labels_from_arrow(batch.column(self.split_by)))
                    here = np.flatnonzero(codes == (names.index(name) if name in names else len(names)))
                    numbers, beside = [v[here] for v in numbers], {c: v[here] for c, v in beside.items()}
                if len(here):
                    yield from blocks(name, columns, numbers, rows, start + at + here, beside)

    def _all(self, columns: Sequence[str], labels: Sequence[str]) -> _Held:
        """The rows of all sites, read once; kept until every site has had its own."""
        key = (tuple(columns), tuple(labels))
        with self.lock:
            if key in self.held:
                return self.held[key]
            self.held.clear()
            total, number = sum(self.counts.values()), {name: k for k, name in enumerate(self.counts)}
            values = {c: np.empty(total) for c in columns}
            texts: dict[str, list[NDArray[Any]]] = {c: [] for c in labels}
            sites = np.empty(total, np.int32)
            files = sorted({p.start: p.file for some in self.places.values() for p in some}.items())
            for start, file in files:
                for at, batch in file.located(columns, labels, self._texts(file)):
                    numbers, beside = file.decoded(batch, columns, labels, at)
                    here = slice(start + at, start + at + len(batch))
                    for c, v in zip(columns, numbers, strict=True):
                        values[c][here] = v
                    for c, v in beside.items():
                        texts[c].append(v)
                    names, codes = site_labels(labels_from_arrow(batch.column(self.split_by)))
                    sites[here] = np.array([number[name] for name in names], np.int32)[codes]
            joined = {c: _joined(some) for c, some in texts.items()}
            order = np.argsort(sites, kind="stable")
            cuts = np.searchsorted(sites[order], np.arange(len(number) + 1))
            parts = {name: order[a:b] for name, a, b in zip(number, cuts, cuts[1:], strict=False)}
            table = Arrays("the files", {self.split_by: sites, **values, **joined}, values, joined)
            self.held[key] = found = _Held(table, parts)
            return found

    def _texts(self, file: FileSite) -> tuple[str, ...]:
        return () if self.split_by in file.fixed else (self.split_by,)


def _joined(labels: list[NDArray[Any]]) -> NDArray[Any]:
    """Labels of several batches; of several kinds they stay what they are, as objects."""
    same = len({v.dtype.kind for v in labels}) == 1
    return np.concatenate(labels if same else [v.astype(object) for v in labels])


@dataclass(frozen=True, eq=False)
class _Held:
    """Rows of all sites in memory, and which are whose; taken : sites that have read theirs."""

    table: Arrays
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


def files_of(path: Path) -> dict[str, Path]:
    """The Parquet and CSV files in a folder and below, by their path in it; hidden ones are left out."""
    found = {}
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path)
        hidden = any(part.startswith((".", "_")) for part in inside.parts)
        if not hidden and file.name.lower().endswith(tuple(KINDS)) and file.is_file():
            found[inside.as_posix()] = file
    if not found:
        raise SiteDataError(f"{path} must hold files that end in {', '.join(KINDS)}; it holds none")
    return found


def open_partitioned(name: str, path: Path) -> FileSite:
    """A file with the values that folders give its rows: firm=3/part.parquet is of firm 3."""
    found = (re.fullmatch(r"([^=]+)=(.*)", part) for part in Path(name).parts[:-1])
    return open_file(name, path, {match[1]: unquote(match[2]) for match in found if match})


def split_files(files: Sequence[FileSite], split_by: str, memory: float) -> dict[str, FilePart]:
    """The sites in files of many, by name; split_by : the column, or the folders' key, that tells them apart."""
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
    whole = SplitFiles(split_by, first.columns, first.categories, places, counts, read, memory)
    return {site: FilePart(site, whole) for site in counts}


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


def site_labels(values: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """The sites' names in a column of any labels, and which of them each row has : (n,), -1 where there is no label."""
    import pandas as pd

    codes, found = pd.factorize(values)
    names = [name_of(label) for label in pd.Index(found)]
    distinct = {name: k for k, name in enumerate(dict.fromkeys(names))}  # 1, 1.0 and "1" are one site
    return list(distinct), np.array([*(distinct[name] for name in names), -1], np.int64)[codes]


def unlabelled_rows(table: str, column: str, lacking: int, rows: int, first: int) -> SiteDataError:
    """The error for rows of no site."""
    return SiteDataError(
        f"{table}: column {column!r} must say of every row what site it is of; {lacking:,} of {rows:,} rows have no "
        f"value, the first is row {first:,}"
    )

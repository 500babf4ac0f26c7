"""Parquet files of sites, read in pieces: wanted columns alone, and never a whole row group at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import Floats
from ..errors import SiteDataError
from .numbers import ROWS, from_arrow

BUFFER = 2**18  # bytes per column that are read at a time


@dataclass(frozen=True, eq=False)
class ParquetSite:
    """A site in a Parquet file."""

    name: str
    path: Path
    columns: tuple[str, ...]
    rows: int | None

    def pieces(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[dict[str, Floats]]:
        """The columns, at most `rows` rows at a time."""
        from pyarrow import ArrowException

        start = 0
        try:
            with _opened(self.path) as file:
                # sites are read in threads of their own, which a second layer of threads would only disturb
                for batch in file.iter_batches(rows, columns=list(columns), use_threads=False):
                    if len(batch):
                        yield {c: from_arrow(self.name, c, batch.column(c), start) for c in columns}
                    start += len(batch)
        except (OSError, ArrowException) as error:
            raise unreadable(self.name, "a Parquet file", error) from error


def open_parquet(name: str, path: Path) -> ParquetSite:
    """The site in a Parquet file, of which only the footer is read."""
    from pyarrow import ArrowException

    try:
        with _opened(path) as file:
            columns, rows = tuple(file.schema_arrow.names), file.metadata.num_rows
    except (OSError, ArrowException) as error:
        raise unreadable(name, "a Parquet file", error) from error
    return ParquetSite(name, path, columns, rows)


def unreadable(name: str, what: str, error: Exception) -> SiteDataError:
    """The error for a file that is not what its name says, with the first line of the reason."""
    reason = (str(error).splitlines() or [""])[0].rstrip(". ")
    return SiteDataError(f"{name} cannot be read as {what}: {reason[:200] or type(error).__name__}")


def _opened(path: Path) -> Any:
    from pyarrow.parquet import ParquetFile

    return ParquetFile(path, pre_buffer=False, buffer_size=BUFFER)

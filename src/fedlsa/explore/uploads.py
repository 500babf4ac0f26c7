"""Files of sites: those named on the command line, and those that the reader gives to the page."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import FedLSAError, SiteDataError
from ..files import write
from ..fitting import columns_of
from ..fitting.table_files import text_columns_of

SUFFIXES = (".csv", ".parquet")
MAX_UPLOAD_BYTES = 64 * 2**20  # bytes of one upload
MAX_NAME_LETTERS = 60  # letters of its name, and of its ending
_named: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sites:
    """files : one per site; columns : those that all have; trouble : one line about a file that cannot be used.

    texts : columns of text among them; complete : whether no site has other columns
    """

    files: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    trouble: str = ""
    texts: tuple[str, ...] = ()
    complete: bool = True


def name_files(files: Sequence[str]) -> None:
    """The files of the command line; the page reads no others, save those that its reader uploads."""
    global _named
    whole = tuple(str(Path(f).absolute()) for f in files)
    for file in whole:
        columns_of(file)  # complain now, not on the page
    _named = whole


def sites(owner: str, uploads: Sequence[Any]) -> Sites:
    """The uploaded files if there are any, else those of the command line; never an error."""
    try:
        files = _stored(owner, uploads) if uploads else _named
        shared = [columns_of(f) for f in files]
        texts = {name for f in files for name in text_columns_of(f)}
    except FedLSAError as error:
        return Sites(trouble=str(error))
    except Exception as error:  # whatever a file's bytes can do to a reader of files
        return Sites(trouble=f"the file cannot be read: {type(error).__name__}")
    first = shared[0] if shared else []
    common = tuple(name for name in first if all(name in names for names in shared))
    if files and not common:
        return Sites(trouble="the files must have columns in common; got none")
    complete = all(set(names) == set(common) for names in shared)
    return Sites(files, common, texts=tuple(name for name in common if name in texts), complete=complete)


def forget() -> None:
    """Delete what was uploaded."""
    if _folder.cache_info().currsize:
        _folder().cleanup()
        _folder.cache_clear()


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where uploads are kept, made with the first; it goes with the process."""
    made = tempfile.TemporaryDirectory(prefix="fedlsa-explore-", ignore_cleanup_errors=True)
    atexit.register(made.cleanup)
    return made


def _stored(owner: str, uploads: Sequence[Any]) -> tuple[str, ...]:
    """Uploads under names of their own in a folder that goes with the process."""
    folder = Path(_folder().name) / sha256(owner.encode()).hexdigest()[:16]  # the browser chose the owner's name
    folder.mkdir(exist_ok=True)
    files = []
    for upload in uploads:
        name = _plain(str(upload.name))
        if Path(name).suffix.lower() not in SUFFIXES:
            raise SiteDataError(f"{name} must be a CSV or Parquet file, by its name's ending; got another kind")
        if len(upload.contents) > MAX_UPLOAD_BYTES:
            size = f"{MAX_UPLOAD_BYTES // 2**20} MB; name it on the command line instead"
            raise SiteDataError(f"{name} must have at most {size}; got {len(upload.contents) / 2**20:.0f} MB")
        path = folder / name
        if str(path) in files:
            raise SiteDataError(f"files must have different names, one per site; got {name} twice")
        if not path.exists() or path.read_bytes() != upload.contents:  # else it keeps its time, and its answers
            path.unlink(missing_ok=True)  # also a link, which must not lead the upload elsewhere
            write(path, upload.contents, "the upload")
        files.append(str(path))
    return tuple(files)


def _plain(name: str) -> str:
    """A file's own name, without folders, on one line, and short."""
    own = Path(name.replace("\\", "/")).name
    shown = Path("".join(letter if letter.isprintable() else "_" for letter in own))
    return shown.stem[:MAX_NAME_LETTERS] + shown.suffix[:MAX_NAME_LETTERS] or "a file without a name"

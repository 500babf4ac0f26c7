"""Files of sites: those named on the command line, and sets of those that a reader drops on the page, each named by a
random word: few, bounded in bytes, and forgotten when nobody has asked for them during half a day."""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from .. import fitting
from ..errors import ArgumentError, FedLSAError, SiteDataError
from ..files import write
from .page_settings import PageSettings, Stamps, column_name, column_term, join_names, split_names, stamps

SUFFIXES = (".csv", ".parquet")
MAX_UPLOAD_BYTES = 64 * 2**20  # bytes of one upload
MAX_SET_BYTES = 512 * 2**20
MAX_FILES, MAX_SETS = 200, 16
FORGOTTEN_AFTER = 12 * 3600.0  # seconds in which nobody asks for a set
MAX_NAME_LETTERS = 60  # letters of a file's name, and of its ending


@dataclass(frozen=True)
class Sites:
    """files : one per site; columns : those that all have, texts those of text; trouble : one line about a file that
    cannot be used; complete : whether no site has other columns"""

    files: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    trouble: str = ""
    texts: tuple[str, ...] = ()
    complete: bool = True

    def explaining(self, target: str) -> list[str]:
        """The columns that may explain the target, as terms of a setting."""
        return [column_term(name, name in self.texts) for name in self.columns if name != target]

    @property
    def targets(self) -> list[str]:
        """The columns that may be explained: those of numbers."""
        return [name for name in self.columns if name not in self.texts]

    def settle(self, s: PageSettings) -> PageSettings:
        """The settings with columns that are there: by default the last of numbers, explained by all others."""
        if not self.targets or s.task != "regression":
            return s
        target = s.target if s.target in self.targets else self.targets[-1]
        offered = self.explaining(target)
        chosen = [term for term in split_names(s.columns) if term in offered]
        chosen = chosen or [term for term in offered if not column_name(term)[1]]
        everything = self.complete and not self.texts and chosen == offered
        return replace(s, target=target, columns="" if everything else join_names(chosen))


@dataclass(eq=False)
class UploadSet:
    """Files that were dropped together, and when somebody asked for them last."""

    folder: tempfile.TemporaryDirectory[str]
    files: dict[str, int] = field(default_factory=dict)  # and their bytes
    used: float = 0.0


class Uploads:
    """All files that the page may read: those of the command line (named), and what is uploaded."""

    def __init__(self, named: Sequence[str] = ()) -> None:
        self.named = tuple(str(Path(f).absolute()) for f in named)
        for file in self.named:
            fitting.columns_of(file)  # complain now, not on the page
        self._sets: OrderedDict[str, UploadSet] = OrderedDict()  # the one that was used last comes last
        self._lock = threading.Lock()

    def store(self, name: str, file: str, contents: bytes) -> None:
        """Keep a file in the set of that name."""
        if not re.fullmatch(r"[a-z0-9]{16,64}", name):
            raise ArgumentError("files must be a set of 16 to 64 small letters and digits; got another name")
        plain = _plain(file)
        if Path(plain).suffix.lower() not in SUFFIXES:
            raise SiteDataError(f"{plain} must be a CSV or Parquet file, by its name's ending; got another kind")
        with self._lock:
            kept = self._sets.get(name) or UploadSet(
                tempfile.TemporaryDirectory(prefix="fedlsa-explore-", ignore_cleanup_errors=True)
            )
            self._sets[name] = kept
            path = str(Path(kept.folder.name) / plain)
            if path in kept.files:
                raise SiteDataError(f"files must have different names, one per site; got {plain} twice")
            if len(kept.files) >= MAX_FILES or sum(kept.files.values()) + len(contents) > MAX_SET_BYTES:
                most = f"{MAX_FILES} files and {MAX_SET_BYTES // 2**20} MB; name them on the command line instead"
                raise SiteDataError(f"files must be at most {most}; got more")
            kept.files[path] = len(contents)
            write(Path(path), contents, "the upload")
            self._keep(name)

    def _keep(self, name: str) -> None:
        """A set is used now; those that nobody uses, and the oldest of too many, are deleted."""
        self._sets[name].used = time.monotonic()
        self._sets.move_to_end(name)
        for other, kept in list(self._sets.items()):
            if len(self._sets) > MAX_SETS or time.monotonic() - kept.used > FORGOTTEN_AFTER:
                del self._sets[other]
                kept.folder.cleanup()

    def sites(self, name: str = "") -> Sites:
        """The files of a set if there is one of that name, else those of the command line; never an error."""
        with self._lock:
            if name in self._sets:
                self._keep(name)
            files = tuple(self._sets[name].files) if name in self._sets else self.named
        return _sites(files, stamps(files))

    def forget(self) -> None:
        """Delete what was uploaded."""
        with self._lock:
            for kept in self._sets.values():
                kept.folder.cleanup()
            self._sets.clear()


@lru_cache(maxsize=MAX_SETS)
def _sites(files: tuple[str, ...], changed: Stamps) -> Sites:
    """What is known of files; changed : when they were."""
    try:
        shared = [fitting.columns_of(f) for f in files]
        texts = {name for f in files for name in fitting.table_files.text_columns_of(f)}
    except FedLSAError as error:
        return Sites(files, trouble=str(error))
    except Exception as error:  # whatever a file's bytes can do to a reader of files
        return Sites(files, trouble=f"the file cannot be read: {type(error).__name__}")
    first = shared[0] if shared else []
    common = tuple(name for name in first if all(name in names for names in shared))
    if files and not common:
        return Sites(files, trouble="the files must have columns in common; got none")
    complete = all(set(names) == set(common) for names in shared)
    return Sites(files, common, texts=tuple(name for name in common if name in texts), complete=complete)


def _plain(name: str) -> str:
    """A file's own name, without folders, on one line, and short."""
    own = Path(name.replace("\\", "/")).name
    shown = Path("".join(letter if letter.isprintable() else "_" for letter in own))
    return shown.stem[:MAX_NAME_LETTERS] + shown.suffix[:MAX_NAME_LETTERS] or "a file without a name"

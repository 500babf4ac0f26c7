"""Files are written whole or not at all: under a temporary name beside the target, to the disk, and then renamed.

What stands at the path is respected: a symbolic link stays one, and its target is written (another hard link keeps the
old content); a device or a pipe is written to; a file keeps its permissions, and one that may not be written is
refused, as `cp` does. A writer holds a lock on its temporary file, so that the next one knows what a killed one has
left, and removes it.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import io
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .errors import ResultFileError

try:
    import fcntl
except ImportError:  # Windows knows neither these locks nor these permissions
    fcntl = None  # type: ignore[assignment]

OPEN_FILES = ("/dev/fd/", "/dev/std", "/proc/self/fd/")  # names of what a process has open: added to, never replaced
LINE_BREAKS = re.compile(r"[\r\n]+")
LETTERS = 60  # of the target's name in that of its temporary file, which has at most 255 bytes
HEX, PART = "[0-9a-f]" * 8, ".part"  # after the name stands a number that is drawn


def write(target: Path, content: bytes | memoryview, what: str, *, mode: int | None = None) -> None:
    """Write a file, to the disk; an error leaves what was there before, and nothing else.

    what : names the file in the error that is raised where the system refuses
    mode : its permissions; by default those of the file before, and of a new one what the system gives
    """
    try:
        try:
            before = os.stat(target)
        except FileNotFoundError:
            before = None
        if os.path.abspath(target).startswith(OPEN_FILES) or (before and not stat.S_ISREG(before.st_mode)):
            with _closing(os.open(target, os.O_WRONLY | os.O_APPEND)) as file:  # refuses a folder
                _write_all(file, content)
        else:
            _replace(Path(os.path.realpath(target)), content, before, mode)
    except (OSError, ValueError) as error:  # of values, a name with a zero byte
        raise ResultFileError(f"cannot write {what} {target}: {reason(error)}") from error


def remove(target: Path) -> None:
    """Remove a file, if it is there, and what killed writers of it have left."""
    target.unlink(missing_ok=True)
    _remove_strays(target)


def as_bytes(name: str, save: Callable[[Path], object]) -> bytes:
    """What `save` writes to a file of that name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        save(path)
        return path.read_bytes()


def csv_bytes(rows: Iterable[Iterable[object]], command: str | None = None) -> bytes:
    """A table, headings first, as CSV; before it a comment with the command that makes it."""
    text = io.StringIO()
    if command:
        text.write(f"# {LINE_BREAKS.sub(' ', command)}\n")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "surrogateescape")


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    with contextlib.suppress(OSError), _closing(os.open(path, os.O_RDONLY)) as folder:
        os.fsync(folder)


def reason(error: BaseException) -> str:
    """What went wrong, on one line."""
    return getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__


def _replace(target: Path, content: bytes | memoryview, before: os.stat_result | None, mode: int | None) -> None:
    if before is not None:
        os.close(os.open(target, os.O_WRONLY))  # refused where the file itself may not be written
    if fcntl is None:
        Path(part := f"{_stem(target)}{secrets.token_hex(4)}{PART}").write_bytes(content)
        os.replace(part, target)
        return
    private = before is not None or mode is not None  # closed to others until it has its own permissions
    _remove_strays(target)
    with _new_part(target, 0o600 if private else 0o666) as (file, part):
        if before is not None:
            mode = stat.S_IMODE(before.st_mode) if mode is None else mode
            try:
                os.fchown(file, before.st_uid, before.st_gid)
            except OSError:  # only root may give files away; others may keep a group of theirs
                try:
                    os.fchown(file, -1, before.st_gid)
                except OSError:  # what that group might do, another one may not
                    mode &= ~stat.S_IRWXG
        if mode is not None:
            os.fchmod(file, mode)
        _write_all(file, content)
        os.fsync(file)
        os.replace(part, target)
    sync_folder(target.parent)


def _write_all(file: int, content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


@contextlib.contextmanager
def _new_part(target: Path, mode: int) -> Iterator[tuple[int, str]]:
    """A temporary file, open and locked, and its name, under which nothing is left in the end."""
    if not target.name:
        raise IsADirectoryError(None, "it names a folder")
    while True:
        part = f"{_stem(target)}{secrets.token_hex(4)}{PART}"
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            lock(file)
            if os.fstat(file).st_nlink:  # else another writer took it for a killed one's before it was locked
                yield file, part
                return
        finally:
            with contextlib.suppress(OSError):
                os.unlink(part)
            os.close(file)


def _remove_strays(target: Path) -> None:
    """Remove temporary files of the same target that nobody writes any more."""
    for part in glob.iglob(f"{glob.escape(_stem(target))}{HEX}{PART}") if fcntl else ():
        with contextlib.suppress(OSError), _closing(os.open(part, os.O_RDONLY | os.O_NONBLOCK)) as file:
            if lock(file, wait=False):
                os.unlink(part)


def _stem(target: Path) -> str:
    return str(target.with_name(f".{target.name[:LETTERS]}."))


def lock(file: int, *, wait: bool = True, shared: bool = False) -> bool:
    """Whether the file is now ours until it is closed: not where another has it, or the system knows no locks.

    shared : with others who share it; one that is not is refused by them, and they by it
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _closing(file: int) -> Iterator[int]:
    try:
        yield file
    finally:
        os.close(file)

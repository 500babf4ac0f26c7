"""A log whose entries hold together: each line carries the hash of the one before it, so none can be changed,
taken out or put in between without every later hash being another.

An entry is one line of JSON: number, time, what the caller says, `before` (the hash of the previous entry) and `hash`
(SHA-256 of the rest). When `append` returns, the entry is on the disk. A line that a power cut left half written was
never acted on; the next entry takes its place. What a chain cannot show by itself is that its end was cut off: keep the
head (number and hash) elsewhere and give it to `verify`.

A file that has grown beyond SEGMENT_BYTES gets a number (ledger.jsonl -> ledger.000001.jsonl); the chain goes on in a
new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..errors import ArgumentError, NetworkError
from ..files import reason, sync_folder

ORIGIN = "0" * 64  # stands before the first entry
OWN = ("number", "time", "before", "hash")  # what the chain itself writes
MAX_ENTRY_BYTES = 65536
SEGMENT_BYTES = 64 * 2**20  # a day of rounds with a hundred sites, about
LOCK_SUFFIX = ".lock"  # a file of its own, since the log itself is renamed when it has grown


@dataclass(frozen=True)
class ChainHead:
    """The last entry: how many there are, and its hash. Whoever holds it can tell that nothing before it changed."""

    number: int = 0
    hash: str = ORIGIN

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"

    @classmethod
    def from_text(cls, text: str) -> ChainHead:
        """The head that `str` wrote."""
        number, _, digest = text.strip().partition(":")
        if not number.isdecimal() or len(digest) != len(ORIGIN) or set(digest) - set("0123456789abcdef"):
            raise ArgumentError(f"a head must be NUMBER:HASH with 64 hexadecimal digits; got {text[:80]!r}")
        return cls(int(number), digest)


def append(path: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Add an entry at the end, to the disk, and return it with its number, time and hash.

    Processes may append to the same file: one waits for the other. A disk that refuses is a NetworkError, and the
    file is as it was.
    """
    taken = [name for name in OWN if name in entry]
    if taken:
        raise ArgumentError(
            f"an entry must not have the fields {', '.join(OWN)}, which the chain gives; got {taken[0]}"
        )
    import fcntl

    try:
        with path.with_name(path.name + LOCK_SUFFIX).open("a") as lock:
            os.fchmod(lock.fileno(), 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            return _append(path, entry)
    except OSError as error:
        raise NetworkError(f"cannot write to the log {path}: {reason(error)}") from error


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """All entries, oldest first, each checked against the one before it; a flaw is a NetworkError that names it."""
    last = ChainHead()
    for part in (*_segments(path), path):
        for line in _lines(part):
            entry = _parse(line, part)
            if entry["number"] != last.number + 1 or entry["before"] != last.hash:
                raise NetworkError(f"{part}: entry {last.number + 1} is missing, changed or out of place")
            last = ChainHead(entry["number"], entry["hash"])
            yield entry


def last(path: Path, count: int) -> list[dict[str, Any]]:
    """The last entries, at most so many and at most 1 MiB of them, oldest first; only their own hashes are checked."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - 16 * MAX_ENTRY_BYTES)
            file.seek(start)
            lines = file.read(16 * MAX_ENTRY_BYTES).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NetworkError(f"cannot read the log {path}: {reason(error)}") from error
    whole = lines[1 if start else 0 : -1]  # the first may begin before, the last may not be at its end
    return [_parse(line, path) for line in whole[-count:]]


def verify(path: Path, kept: ChainHead | None = None) -> ChainHead:
    """Read the whole chain and return its head; kept : a head from before, which it must still hold.

    No file is an empty chain, whose head has number 0.
    """
    last, known = ChainHead(), kept is None or kept == ChainHead()
    for entry in entries(path):
        last = ChainHead(entry["number"], entry["hash"])
        known = known or last == kept
    if not known and kept is not None:
        what = "its end was cut off" if last.number < kept.number else "it was written anew"
        raise NetworkError(f"{path} does not hold entry {kept.number} as it was: {what}")
    return last


def _append(path: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    with path.open("a+b") as file:
        os.fchmod(file.fileno(), 0o600)
        head, end = _tail(file, path)
        if head is None:  # an empty file: the chain goes on from the last numbered one, if there is one
            head = _tail_of(before[-1]) if (before := _segments(path)) else ChainHead()
        full = {**entry, "number": head.number + 1, "time": round(time.time(), 3), "before": head.hash}
        full["hash"] = _digest(full)
        line = _text(full) + b"\n"
        if len(line) > MAX_ENTRY_BYTES:
            raise ArgumentError(f"an entry must have at most {MAX_ENTRY_BYTES} bytes; got {len(line)}")
        file.truncate(end)  # a line that was cut short
        try:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file.fileno(), end)
            raise
    if end == 0:
        sync_folder(path.parent)
    if end + len(line) > SEGMENT_BYTES:
        path.rename(path.with_name(f"{path.stem}.{len(_segments(path)) + 1:06d}{path.suffix}"))
        sync_folder(path.parent)
    return full


def _segments(path: Path) -> list[Path]:
    """The numbered files of a chain that has outgrown one, oldest first."""
    return sorted(path.parent.glob(f"{path.stem}.{'[0-9]' * 6}{path.suffix}"))


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines; one at the end that was cut short is left out."""
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_ENTRY_BYTES + 1):
                if line.endswith(b"\n"):
                    yield line
                elif len(line) > MAX_ENTRY_BYTES:
                    raise NetworkError(f"{path} is damaged: a line has more than {MAX_ENTRY_BYTES} bytes")
    except FileNotFoundError:
        return
    except OSError as error:
        raise NetworkError(f"cannot read the log {path}: {reason(error)}") from error


def _tail(file: IO[bytes], path: Path) -> tuple[ChainHead | None, int]:
    """The head of a file and the place after its last whole line; None where there is no whole line."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - 2 * MAX_ENTRY_BYTES)
    file.seek(start)
    whole, newline, _ = file.read(size - start).rpartition(b"\n")
    if not newline:
        if size > MAX_ENTRY_BYTES:
            raise NetworkError(f"{path} is damaged: its last line has more than {MAX_ENTRY_BYTES} bytes")
        return None, 0
    entry = _parse(whole[whole.rfind(b"\n") + 1 :], path)
    return ChainHead(entry["number"], entry["hash"]), start + len(whole) + 1


def _tail_of(path: Path) -> ChainHead:
    with path.open("rb") as file:
        return _tail(file, path)[0] or ChainHead()


def _parse(line: bytes, path: Path) -> dict[str, Any]:
    """An entry whose hash is its own."""
    try:
        entry = json.loads(line)
        good = type(entry) is dict and type(entry["number"]) is int and entry["hash"] == _digest(entry)
        good = good and type(entry["before"]) is str and type(entry["time"]) is float
    except (ValueError, KeyError, RecursionError):
        good = False
    if not good:
        shown = line[:60].decode("ascii", "replace").strip()
        raise NetworkError(f"{path} is damaged or was changed by hand: a line is not as it was written ({shown!r}...)")
    return entry


def _digest(entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text({name: value for name, value in entry.items() if name != "hash"})).hexdigest()


def _text(entry: Mapping[str, Any]) -> bytes:
    """One way to write an entry: sorted, ASCII, without spaces, no NaN."""
    try:
        return json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"an entry must hold plain JSON; got {reason(error)}") from None

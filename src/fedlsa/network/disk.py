"""What a coordinator or a site keeps on its disk: files that survive a power cut, files that only their owner may read,
and one database.

Files are written whole and synced, folder included, before we go on. A secret has mode 600 from its first byte, and is
refused when it has become open. What changes as runs go on is in the database: SQLite in the folder, of mode 600,
written to the disk in whole transactions (WAL, synchronous=FULL). A process that only reads opens it read-only, and no
writer waits for it.

chain    entries that hold together: each has the hash of the one before it, so none can be changed, taken out or put
         in between without every later hash being another. What a chain cannot show by itself is that its end was cut
         off: keep the head (number and hash) elsewhere and give it to `verify`.
kept     values by run and name: states, and what was agreed
events   what happened in a run, for the display; the oldest of very many are deleted
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import show
from ..errors import ArgumentError, FedLSAError, NetworkError
from ..files import reason, sync_folder, write

SECRET = 0o600  # only its owner reads and writes it
OTHERS = 0o077  # what a group and everybody else may do
CHECKED = os.name == "posix"  # elsewhere modes mean little
STORE = "store.db"
FORMAT = 1  # of the tables; 0 is a database without any
TABLES = f"""
begin immediate;
create table if not exists chain (number integer primary key, time real, entry text, before text, hash text);
create table if not exists kept (run text, name text, value blob, primary key (run, name));
create table if not exists events (number integer primary key autoincrement, run text, kind text, content text);
create index if not exists events_of_run on events (run, number);
pragma user_version = {FORMAT};
commit;
"""
PATIENCE = 30.0  # seconds that a writer waits for another one
AT_ONCE = 500  # rows that are read under one lock
MOST_EVENTS = 100_000  # of a run
ORIGIN = "0" * 64  # stands before the first entry
OWN = ("number", "time", "before", "hash")  # what the chain itself gives to an entry


@contextlib.contextmanager
def trying_to(do: str) -> Iterator[None]:
    """Within it, what the system refuses is a NetworkError that says what could not be done; do : in words."""
    try:
        yield
    except OSError as error:
        raise NetworkError(f"cannot {do}: {reason(error)}") from error


def create(path: Path, content: bytes, *, secret: bool) -> None:
    """Write a new file, to the disk; a secret has mode 600 before it holds anything. One that exists is an error."""
    with trying_to(f"write {path}"):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET if secret else 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def folder(path: Path) -> Path:
    """A new folder of mode 700; those above it are made if need be."""
    with trying_to(f"make the folder {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    return path


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill; when the block ends well it gets its name, `target`, which is missing or empty."""
    part = folder(target.with_name(f".{target.name}.{secrets.token_hex(4)}.part"))
    try:
        with trying_to(f"make the folder {target}"):
            yield part
            if target.is_dir():
                target.rmdir()  # refuses when something has come into it meanwhile
            os.rename(part, target)
            sync_folder(target.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def is_new(target: Path) -> bool:
    """Whether a folder of this name is missing or empty."""
    with trying_to(f"read the folder {target}"):
        return not target.exists() or (target.is_dir() and not any(target.iterdir()))


def check_secret(path: Path, what: str) -> Path:
    """A secret that exists and that only its owner may read."""
    with trying_to(f"read {what} {path}"):
        mode = path.stat().st_mode
    if CHECKED and mode & OTHERS:
        rule = f"{what} {path} must be closed to others (mode 600); got mode {mode & 0o777:o}"
        raise NetworkError(f"{rule}. Close it (chmod 600), and make a new one if somebody may have read it")
    return path


def write_json(path: Path, content: dict[str, Any], what: str) -> None:
    """Write a JSON object, whole or not at all; what : names the file in errors."""
    write(path, (json.dumps(content, indent=1) + "\n").encode(), what)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is no file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise NetworkError(f"cannot read {path}: {reason(error)}") from error
    if not isinstance(found, dict):
        raise NetworkError(f"{path} must hold a JSON object; got {show(found)}")
    return found


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


class Database:
    """The database of a folder, opened when it is first used; threads and processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / STORE
        self._lock = threading.RLock()
        self._open: sqlite3.Connection | None = None
        self._writes = False
        self._staged: dict[tuple[str, str], bytes] = {}

    # the chain

    def append(self, entry: Mapping[str, Any], after: ChainHead | None = None) -> dict[str, Any]:
        """Add an entry and what is staged, to the disk, and return it with its number, time and hash.

        after : the head on which it must follow, for who knows the chain
        """
        with self.transaction() as db:
            last = db.execute("select * from chain order by number desc limit 1").fetchone()
            head = ChainHead() if last is None else _head(self._checked(last))
            if after not in (None, head):
                raise NetworkError(f"{self.path} does not end with entry {after} as it did: it was changed meanwhile")
            full = {**entry, "number": head.number + 1, "time": round(time.time(), 3), "before": head.hash}
            full["hash"] = _digest(full)
            content = _text({name: value for name, value in full.items() if name not in OWN}).decode()
            row = full["number"], full["time"], content, full["before"], full["hash"]
            db.execute("insert into chain values (?, ?, ?, ?, ?)", row)
            for key, value in self._staged.items():
                self.put(*key, value)
        self._staged.clear()
        return full

    def entries(self, after: ChainHead = ChainHead()) -> Iterator[dict[str, Any]]:
        """All entries, oldest first, each checked against the one before it; a flaw is a NetworkError that names it."""
        select = "select * from chain where number > ? order by number limit ?"
        while rows := self._rows(select, after.number, AT_ONCE):
            for entry in map(self._checked, rows):
                if entry["number"] != after.number + 1 or entry["before"] != after.hash:
                    raise NetworkError(f"{self.path}: entry {after.number + 1} is missing, changed or out of place")
                after = _head(entry)
                yield entry

    def last(self, count: int) -> list[dict[str, Any]]:
        """The last entries, oldest first; only their own hashes are checked."""
        rows = self._rows("select * from chain order by number desc limit ?", count)
        return [self._checked(row) for row in rows[::-1]]

    def verify(self, kept: ChainHead | None = None) -> ChainHead:
        """Read the whole chain and return its head; kept : a head from before, which it must still hold."""
        last, known = ChainHead(), kept is None or kept == ChainHead()
        for entry in self.entries():
            last = _head(entry)
            known = known or last == kept
        if not known and kept is not None:
            what = "its end was cut off" if last.number < kept.number else "it was written anew"
            raise NetworkError(f"{self.path} does not hold entry {kept.number} as it was: {what}")
        return last

    # values by name; run : of which they are, "" of none

    def get(self, run: str, name: str) -> bytes | None:
        """A value, as it was last put or staged; None where there is none."""
        if (run, name) in self._staged:
            return self._staged[run, name]
        rows = self._rows("select value from kept where run = ? and name = ?", run, name)
        return rows[0][0] if rows else None

    def put(self, run: str, name: str, value: bytes) -> None:
        """Keep a value, to the disk."""
        with self.transaction() as db:
            db.execute("replace into kept values (?, ?, ?)", (run, name, value))

    def stage(self, run: str, name: str, value: bytes) -> None:
        """Keep a value together with the next entry of the chain: in one transaction."""
        self._staged[run, name] = value

    def get_json(self, run: str, name: str) -> Any:
        """A value that `put_json` wrote; None where there is none, and a ValueError where it is damaged."""
        value = self.get(run, name)
        return None if value is None else json.loads(value)

    def put_json(self, run: str, name: str, content: Any) -> None:
        self.put(run, name, json.dumps(content).encode())

    def forget(self, run: str) -> None:
        """Remove all values and events of a run."""
        self._staged = {key: value for key, value in self._staged.items() if key[0] != run}
        with self.transaction() as db:
            for table in ("kept", "events"):
                db.execute(f"delete from {table} where run = ?", (run,))

    # events

    def add_event(self, run: str, event: Mapping[str, Any]) -> None:
        """Add what happened in a run; of very many the oldest go, but for plans."""
        with self.transaction() as db:
            insert = "insert into events (run, kind, content) values (?, ?, ?)"
            added = db.execute(insert, (run, event["event"], json.dumps(event)))
            if (added.lastrowid or 0) % AT_ONCE == 0:
                oldest = "select number from events where run = ? order by number desc limit 1 offset ?"
                delete = f"delete from events where run = ? and number <= ({oldest}) and kind != 'planned'"
                db.execute(delete, (run, run, MOST_EVENTS))

    def events(self, run: str, after: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """(number, event) of a run, those after a number."""
        select = "select number, content from events where run = ? and number > ? order by number limit ?"
        while rows := self._rows(select, run, after, AT_ONCE):
            for after, content in rows:
                yield after, json.loads(content)

    def last_event(self, run: str) -> dict[str, Any] | None:
        """The newest event of a run."""
        rows = self._rows("select content from events where run = ? order by number desc limit 1", run)
        return json.loads(rows[0][0]) if rows else None

    # the database

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """What is written within it is on the disk when it ends, or nothing is; one within another is part of it."""
        with self._guarded("write to") as db:
            if db.in_transaction:
                yield db
                return
            db.execute("begin immediate")
            with db:  # which commits, or rolls back
                yield db

    def _rows(self, select: str, *values: Any) -> list[Any]:
        with self._guarded("read") as db:
            return [] if db is None else db.execute(select, values).fetchall()

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[Any]:
        """The connection, for one thread at a time; what goes wrong with the file is an error that says what to do.

        None where it is to be read and there is none yet
        """
        with self._lock:
            try:
                yield self._connection(what != "read")
            except (sqlite3.OperationalError, OSError) as error:
                cause = error if isinstance(error, OSError) else OSError(str(error))
                raise NetworkError(f"cannot {what} {self.path}: {reason(error)}") from cause
            except (sqlite3.DatabaseError, UnicodeError) as error:
                do = "put it back from a backup, or put it aside (rename it)"
                raise NetworkError(f"{self.path} is damaged ({reason(error)}): {do}") from None

    def _connection(self, write: bool) -> sqlite3.Connection | None:
        if self._open is not None and (self._writes or not write):
            return self._open
        if write:
            with contextlib.suppress(FileExistsError):  # made here, so that it is closed to others from its first byte
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
                sync_folder(self.path.parent)
        elif not self.path.exists():
            return None
        where = f"{self.path.absolute().as_uri()}?mode={'rw' if write else 'ro'}"
        db = sqlite3.connect(where, PATIENCE, isolation_level=None, check_same_thread=False, uri=True)
        weakref.finalize(self, db.close)
        db.execute("pragma synchronous = full")
        found = db.execute("pragma user_version").fetchone()[0]
        if found == 0:
            if not write:  # another process is making it
                return None
            db.executescript(TABLES)
        elif found != FORMAT:
            raise NetworkError(f"{self.path} must have format {FORMAT}; got {found}, of another version of fedlsa")
        with contextlib.suppress(sqlite3.OperationalError):  # another process does so now, or this one only reads
            db.execute("pragma journal_mode = wal")
        self._open, self._writes = db, write
        return db

    def _checked(self, row: tuple[int, float, str, str, str]) -> dict[str, Any]:
        """An entry whose hash is its own."""
        number, when, content, before, digest = row
        try:
            entry = {**json.loads(content), "number": number, "time": when, "before": before, "hash": digest}
            good = _digest(entry) == digest
        except (ValueError, TypeError, RecursionError, FedLSAError):
            good = False
        if not good:
            flaw = f"entry {number} is not as it was written"
            raise NetworkError(f"{self.path} is damaged or was changed by hand: {flaw}")
        return entry


def _head(entry: Mapping[str, Any]) -> ChainHead:
    return ChainHead(entry["number"], entry["hash"])


def place_of(entry: Mapping[str, Any]) -> str:
    """Number and time of an entry, for people."""
    return f"{entry['number']:>7}  {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(entry['time']))} UTC"


def _digest(entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text({name: value for name, value in entry.items() if name != "hash"})).hexdigest()


def _text(entry: Mapping[str, Any]) -> bytes:
    """One way to write an entry: sorted, ASCII, without spaces, no NaN."""
    try:
        return json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"an entry must hold plain JSON; got {reason(error)}") from None

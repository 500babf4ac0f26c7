"""What programs of a network share: one process per folder, free ports, logs that stay small, versions of each side."""

from __future__ import annotations

import ctypes
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from ..errors import NetworkError
from ..files import lock
from ..installation import __version__
from .disk import trying_to
from .protocol.codec import VERSION, printable

OWN_PORTS = range(20_000, 32_000)  # below those that systems give to connections (Linux 32768 and up, others 49152)


@contextmanager
def only_one(path: Path, refusal: str, folder: Path | None = None) -> Iterator[None]:
    """Hold a lock on a file while the block lasts, so that two processes never do the same to one folder.

    refusal : what is said where another process holds it; folder : named there, where the lock lies elsewhere
    """
    import fcntl

    with trying_to(f"write {path}"):
        file = path.open("a+")
    with file:
        while not lock(file.fileno(), wait=False):
            if not lock(file.fileno(), wait=False, shared=True):
                file.seek(0)
                holder = file.read().strip()
                raise NetworkError(f"{refusal}, by the process {holder or 'that holds ' + str(path)}")
            fcntl.flock(file, fcntl.LOCK_UN)  # nobody holds it: somebody looked (is_held), which takes no time
            time.sleep(0.001)
        file.truncate(0)
        file.write(f"{os.getpid()} on {socket.gethostname()}{'' if folder is None else f', in {folder}'}")
        file.flush()
        yield


def is_held(path: Path) -> bool:
    """Whether a living process of this machine holds the lock of `only_one`."""
    try:
        with path.open("r") as file:
            return not lock(file.fileno(), wait=False, shared=True)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def until_ended(each_time: Callable[[], None]) -> None:
    """Wait for Ctrl-C, SIGTERM or SIGHUP; each_time : called twice a second meanwhile."""
    with suppress(KeyboardInterrupt), interrupted_by_signals():
        while True:
            time.sleep(0.5)
            each_time()


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP do what Ctrl-C does; only the first of them, so that tidying up comes to its end."""
    meant = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP] if current_thread() is main_thread() else []
    before = {n: old for n in meant if (old := signal.getsignal(n)) not in (None, signal.SIG_IGN)}  # nohup's SIGHUP

    def interrupt(*_: object) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def free_port() -> int:
    """A port of loopback that nobody listens on now, and that no system gives away by itself before it is used.

    A port that was asked of the system could be given to anybody's connection in the meantime, or while a process
    that serves at it is started again.
    """
    for port in secrets.SystemRandom().sample(OWN_PORTS, 100):
        with socket.socket() as s, suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise NetworkError(f"no port of 127.0.0.1 is free: 100 of {OWN_PORTS[0]} to {OWN_PORTS[-1]} were tried")


def give_memory_back() -> None:
    """Hand memory that was freed to the system, where the C library can: else it keeps what thousands of handshakes
    had needed."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


LOG_BYTES = 5 * 2**20
OLD_LOGS = 4  # kept beside the one that is written
MAX_LINE = 2000  # characters of one entry; more is cut


class _OneLine(logging.Formatter):
    """What others wrote stays on its line: no control characters reach a terminal, and no line can be forged."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), MAX_LINE)


class _PrivateFile(RotatingFileHandler):
    """A rotated file of mode 600, whose disk may be full: logging must not stop a run."""

    def _open(self):  # type: ignore[no-untyped-def]
        return open(self.baseFilename, self.mode, encoding="utf-8", opener=lambda p, flags: os.open(p, flags, 0o600))

    def handleError(self, record: logging.LogRecord) -> None:
        """The line is lost."""


def rotating(path: Path) -> logging.Logger:
    """A logger that writes to this file, at most LOG_BYTES of it and OLD_LOGS older ones; the same one each time."""
    with trying_to(f"write the log {path}"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        logger = logging.getLogger(f"fedlsa.file.{str(path.resolve()).replace('.', '_')}")
        if not logger.handlers:
            handler = _PrivateFile(path, maxBytes=LOG_BYTES, backupCount=OLD_LOGS, encoding="utf-8")
            handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
            logger.propagate = False
    return logger


def reporting(path: Path, say: Callable[[str], None]) -> Callable[[str], None]:
    """What writes a line to a log of `rotating` and says it; a full disk or a closed terminal stops nothing."""
    log = rotating(path)

    def report(line: str) -> None:
        log.info(line)
        with suppress(OSError):  # what others wrote commands no terminal; our own tracebacks have lines
            say("\n".join(printable(part, MAX_LINE) for part in line.split("\n")))

    return report


# Which protocol and which program each side has: told when a site joins, and kept with every run.
#
# Two sides speak the same protocol or not at all; the refusal says which of them is to be upgraded. Programs of
# different versions may speak the same protocol, so that one side can be upgraded before the other, also during a run.

PROTOCOL, PROGRAM = "fedlsa-protocol", "fedlsa-program"  # metadata of a stream
OTHER = {"site": "coordinator", "coordinator": "site"}


def greeting() -> tuple[tuple[str, str], ...]:
    """What each side says of itself when a stream begins."""
    return (PROTOCOL, str(VERSION)), (PROGRAM, __version__)


def mismatch(received: Mapping[str, Any], who: str) -> str | None:
    """Why the two sides cannot speak with each other, or None; received : what the other says, who : a site or
    coordinator. A side that says nothing is older than the first that does."""
    version_told = str(received.get(PROTOCOL, "0"))[:12]
    theirs = int(version_told) if version_told.isascii() and version_told.isdecimal() else 0
    if theirs == VERSION:
        return None
    of = f"fedlsa {printable(received.get(PROGRAM, 'of an older version'), 40)}, protocol {theirs or 'unknown'}"
    older = who if theirs < VERSION else OTHER[who]
    both = f"the {who} has {of}, the {OTHER[who]} fedlsa {__version__}, protocol {VERSION}"
    return f"{both}: upgrade the {older}; what is stored stays"


def stamp() -> dict[str, Any]:
    """What a run's folder keeps of the program that began it."""
    return {"protocol": VERSION, "program": __version__}


def check_stamp(run: str, kept: Mapping[str, Any] | None) -> None:
    """Refuse to go on with a run that was begun with another protocol; kept : its stamp, None where there is none."""
    told = kept or {}
    if told.get("protocol") == VERSION:
        return
    old = printable(told.get("program", "an older version"), 40)
    protocol = printable(told.get("protocol", "unknown"), 12)
    both = f"by fedlsa {old} (protocol {protocol}), and this is fedlsa {__version__} (protocol {VERSION})"
    what = "finish it with that version, or start a new run; its files stay"
    raise NetworkError(f"the run {run} was begun {both}: {what}")

"""Processes of this machine: one per folder, started and ended by their own ids; and free ports."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, current_thread, main_thread

from ..errors import NetworkError
from ..files import reason

OWN_PORTS = range(20_000, 32_000)  # below those that systems give to connections (Linux 32768 and up, others 49152)


@contextmanager
def only_one(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock on a file while the block lasts, so that two processes never do the same to one folder.

    refusal : what is said where another process holds it
    """
    import fcntl

    try:
        file = path.open("a+")
    except OSError as error:
        raise NetworkError(f"cannot write {path}: {reason(error)}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip()
            raise NetworkError(f"{refusal}, by the process {holder or 'that holds ' + str(path)}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def is_held(path: Path) -> bool:
    """Whether a living process of this machine holds the lock of `only_one`."""
    import fcntl

    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def until_ended(each_time: Callable[[], None], seconds: float = 0.5) -> None:
    """Wait for Ctrl-C or SIGTERM; each_time : called every so many seconds meanwhile."""
    ended = Event()
    if current_thread() is main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
    while not ended.wait(seconds):
        each_time()


@dataclass
class Child:
    """A process with a log of its own; nobody starts it again unless asked."""

    command: Sequence[str]
    log: Path
    env: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The id of the running process."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    def start(self) -> None:
        """Start it, in a process group of its own so that a terminal's Ctrl-C reaches only us."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.env,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9, by its own id."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def end(self, patience: float = 10.0) -> int | None:
        """End it by its own id, first politely, then for certain; its exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


def free_port(host: str = "127.0.0.1") -> int:
    """A port of loopback that nobody listens on now, and that no system gives away by itself before it is used.

    A port that was asked of the system could be given to anybody's connection in the meantime, or while a process
    that serves at it is started again.
    """
    for port in secrets.SystemRandom().sample(OWN_PORTS, 100):
        with socket.socket() as s, suppress(OSError):
            s.bind((host, port))
            return port
    raise NetworkError(f"no port of {host} is free: 100 of {OWN_PORTS[0]} to {OWN_PORTS[-1]} were tried")


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host

"""Bytes between FLARE's processes and ours, over a Unix socket on one machine.

FLARE's processes only pass messages on. Keys, data, policy and runs stay in our own processes, which may belong to
another account: who takes over a FLARE process, or its server, holds sealed messages and nothing else. A message is a
short JSON head, a line feed and a body; nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from ....errors import MessageError, NetworkError
from ....files import reason
from ...protocol.records import printable

SOCKET = "FEDLSA_SOCKET"  # the coordinator's socket in the environment, a site's in its privacy.json
TASK = "fedlsa"  # the one task that passes, and the one entry of its content
MAX_MESSAGE = 16 * 2**20
MAX_PATH = 107  # bytes of a socket's name, by the operating system
SILENCE = 10.0  # seconds that a caller may be connected without a word
REFUSED = b""  # in the place of an answer: the order was not signed by the coordinator, or cannot be answered


def clear_socket(path: Path) -> None:
    """Make the place of a socket free: one that a killed process left is removed, and nothing else."""
    if len(os.fsencode(path)) > MAX_PATH:
        raise NetworkError(f"a socket's path must have at most {MAX_PATH} bytes; got {path}")
    if not path.parent.is_dir():
        raise NetworkError(f"a socket's folder must exist; {path.parent} does not")
    if path.is_socket():
        path.unlink(missing_ok=True)
    elif path.exists():
        raise NetworkError(f"{path} must be a socket or a new name; it is something else")


@contextlib.contextmanager
def listening(path: Path) -> Iterator[Listener]:
    """A socket that this account and its group can reach."""
    clear_socket(path)
    mask = os.umask(0o117)
    try:
        listener = Listener(str(path), "AF_UNIX", backlog=8)
    except OSError as error:
        raise NetworkError(f"cannot listen on {path}: {reason(error)}") from error
    finally:
        os.umask(mask)
    with listener:
        yield listener


def connect(path: str | Path) -> Connection:
    """A connection to who listens there; OSError when nobody does."""
    return Client(str(path), "AF_UNIX")


def send(link: Connection, head: dict[str, Any], body: bytes = b"") -> None:
    """Send a message."""
    link.send_bytes(json.dumps(head).encode() + b"\n" + body)


def receive(link: Connection) -> tuple[dict[str, Any], bytes]:
    """The next message; EOFError when the other side is gone."""
    head, _, body = link.recv_bytes(MAX_MESSAGE).partition(b"\n")
    try:
        content = json.loads(head)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise MessageError("a message over the socket must begin with a JSON object; it does not")
    return content, body


@dataclass
class RelaySite:
    """A site's end: sealed orders in, sealed answers out, one at a time, as its FLARE executor brings them."""

    path: Path
    answer: Callable[[bytes], bytes]
    say: Callable[[str], None] = print
    _ended: bool = False

    def __post_init__(self) -> None:
        clear_socket(self.path)  # what is wrong with it is said now, and not by a thread

    def run(self) -> None:
        """Take part until `stop` is called."""
        with listening(self.path) as listener:
            while not self._ended:
                with contextlib.suppress(OSError, EOFError), listener.accept() as link:
                    if link.poll(SILENCE):  # who says nothing, or goes away, costs ten seconds and no more
                        self._answer(link)

    def stop(self) -> None:
        """Leave; an answer that is being computed is not waited for."""
        self._ended = True
        with contextlib.suppress(OSError):
            connect(self.path).close()  # wakes the listener

    def _answer(self, link: Connection) -> None:
        order = link.recv_bytes(MAX_MESSAGE)
        try:
            reply = self.answer(order)
        except Exception as error:  # one order that cannot be answered must not end the site
            self.say(f"an order was not answered: {type(error).__name__}: {printable(error)}")
            reply = REFUSED
        link.send_bytes(reply)

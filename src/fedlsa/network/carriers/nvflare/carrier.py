"""The carrier (present, ask) whose messages a FLARE job passes on: the coordinator's end of the socket."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import queue
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ....errors import MessageError
from .relay import REFUSED, listening, receive, send

FRESH = 10.0  # seconds for which the last word about who is there counts
LOOK = 0.2  # seconds between looks for a job that was started anew


class FlareCarrier:
    """Bytes to sites and back through one job, the expected one; a job that replaces it is given the orders again."""

    def __init__(self, path: Path) -> None:
        self._answers: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._pending: dict[str, int] = {}  # site -> the number of the question that it has not answered
        self._numbers = itertools.count(1)
        self._link: Connection | None = None
        self._here: tuple[str, ...] = ()
        self._heard, self._job = -math.inf, ""
        self._sending, self._ending = threading.Lock(), threading.Lock()  # a link is closed under both
        self._closing = contextlib.ExitStack()
        self._listener = self._closing.enter_context(listening(path))
        threading.Thread(target=self._accept, daemon=True).start()

    def present(self) -> tuple[str, ...]:
        """The sites that the job reaches."""
        return self._here if self.silence() < FRESH else ()

    def expect(self, job: str) -> None:
        """Listen to this job alone: one that its dead server left behind may still speak."""
        if job != self._job:
            self._job, self._link, self._heard = job, None, -math.inf

    def silence(self) -> float:
        """Seconds since the job said a word."""
        return time.monotonic() - self._heard

    def ask(self, orders: Mapping[str, bytes], deadline: float) -> Iterator[tuple[str, bytes]]:
        """Send orders; answers within `deadline` seconds, once per site, also through a job that was started anew."""
        end, ask = time.monotonic() + deadline, next(self._numbers)
        told: Connection | None = None
        self._answers, left = queue.SimpleQueue(), dict(orders)
        self._pending = dict.fromkeys(left, ask)
        while left and (remaining := end - time.monotonic()) > 0:
            link = self._link
            if link is not None and link is not told:
                told = link
                for site, order in left.items():
                    self._send(link, site, ask, remaining, order)
            with contextlib.suppress(queue.Empty):
                site, answer = self._answers.get(timeout=min(LOOK, remaining))
                del left[site]
                yield site, answer
        self._pending = {}

    def close(self) -> None:
        """Close the socket; the job looks for it until it is there again."""
        self._closing.close()
        link = self._link
        with self._ending:
            if link is not None and not link.closed:
                _hang_up(link)

    def _send(self, link: Connection, site: str, ask: int, seconds: float, order: bytes) -> None:
        with self._sending, contextlib.suppress(OSError):
            send(link, {"site": site, "ask": ask, "seconds": math.ceil(seconds)}, order)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link = self._listener.accept()
                threading.Thread(target=self._listen, args=(link,), daemon=True).start()

    def _listen(self, link: Connection) -> None:
        try:
            with contextlib.suppress(OSError, EOFError, MessageError, KeyError, TypeError, ValueError):
                while True:
                    self._hear(link, *receive(link))
        finally:
            _hang_up(link)  # an order that nobody takes is waited for no longer
            with self._sending, self._ending:
                link.close()
            if self._link is link:
                self._link, self._heard = None, -math.inf

    def _hear(self, link: Connection, head: dict[str, Any], body: bytes) -> None:
        if head.get("job") != self._job:
            return
        if "here" in head:
            self._here = tuple(sorted(map(str, head["here"])))
            self._link, self._heard = link, time.monotonic()
        elif body != REFUSED and self._pending.get(head["site"]) == head["ask"]:
            del self._pending[head["site"]]  # nothing is kept that nobody waits for
            self._answers.put((head["site"], body))


def _hang_up(link: Connection) -> None:
    """End a connection for both sides and for all that wait on it here; who reads from it closes it, once."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(link.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)

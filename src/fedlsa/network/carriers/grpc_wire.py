"""What both sides of the gRPC carrier agree on: names, frames, limits and logs; what is counted of a stream."""

from __future__ import annotations

import os
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..protocol.records import MAX_BYTES

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # a line for every stranger's handshake would fill the journal
import grpc as grpc  # others take it from here, so that this stands before it

FRAME = struct.Struct(">Q")  # the number of an order
SERVICE, METHOD = "fedlsa.Site", "Join"
COORDINATOR, INSTANCE, KNOWN = "fedlsa-coordinator", "fedlsa-instance", "fedlsa-known"  # metadata of a stream
LIMITS = (
    ("grpc.max_receive_message_length", MAX_BYTES + FRAME.size),
    ("grpc.max_send_message_length", MAX_BYTES + FRAME.size),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.per_message_decompression", 0),  # a small message could become a large one: nothing is unpacked
)
SERVER_LIMITS = (
    *LIMITS,
    ("grpc.so_reuseport", 0),  # a second coordinator on this port is refused
    ("grpc.server_handshake_timeout_ms", 5_000),  # who is silent longer is closed
    ("grpc.max_connection_idle_ms", 15_000),  # who holds no stream
    ("grpc.max_concurrent_streams", 2),  # of a connection: a site has one
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_metadata_size", 8_192),
    ("grpc.absolute_max_metadata_size", 16_384),
)


@dataclass
class SiteTraffic:
    """What a site's streams have carried since this process began, for people and for /metrics."""

    present: bool = False
    since: float = 0.0  # when the stream was opened, or closed: seconds since 1970
    peer: str = ""
    streams: int = 0
    answers: int = 0
    dropped: int = 0  # late, unasked, repeated or misformed messages
    bytes_up: int = 0
    bytes_down: int = 0
    alarms: int = 0  # how often a replaced process of this site came back


def same_certificate(one: bytes, other: bytes) -> bool:
    """Whether two PEM texts hold the same certificate."""
    try:
        return ssl.PEM_cert_to_DER_cert(one.decode()) == ssl.PEM_cert_to_DER_cert(other.decode())
    except ValueError:
        return False


MAX_LINES = 20  # about one subject, in a minute
WINDOW_SECONDS = 60.0


@dataclass
class LimitedLog:
    """A log that nobody can fill: so many lines a minute about each subject, and then how many were left out.

    Subjects are few: names of sites, and one for all strangers.
    """

    write: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _windows: dict[str, tuple[float, int]] = field(default_factory=dict)  # subject -> (its beginning, lines in it)

    def say(self, subject: str, text: str) -> None:
        """Write a line, unless too many were written about this subject."""
        now = self.clock()
        began, count = self._windows.get(subject, (now, 0))
        if now - began >= WINDOW_SECONDS:
            if count > MAX_LINES:
                self.write(f"{subject}: {count - MAX_LINES} more lines within a minute were left out")
            began, count = now, 0
        self._windows[subject] = began, count + 1
        if count < MAX_LINES:
            self.write(text)

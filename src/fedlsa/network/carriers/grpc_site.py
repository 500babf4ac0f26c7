"""A site's side of the gRPC carrier: one stream outwards, opened again after growing pauses, and answers one by one.

Only the newest order waits: a site that was slow does not answer what nobody waits for any more. No proxy is used,
whatever the environment says, unless one is given.
"""

from __future__ import annotations

import os
import queue
import random
import secrets
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...errors import FedLSAError
from ...files import reason
from ..folder.config import SiteFolder
from ..processes import bracketed, greeting, mismatch
from ..protocol.codec import MAX_BYTES, printable
from . import Responder

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


FIRST_PAUSE, MAX_PAUSE = 0.2, 10.0  # seconds before a stream is opened again: they double
STEADY = 10.0  # seconds: after a stream that lived this long the pause is short again
CONNECT_SECONDS = 10.0  # in which a connection must be made
NOT_APPROVED = "it is not approved yet, or was revoked, or the clock of one of the two machines is wrong"
CLOCK_HINT = "certificates are valid between two dates: check the clocks of both machines"
CLOCK_CODES = (9, 10)  # OpenSSL's numbers for a certificate that is not valid yet, and for one that has expired
CLIENT_LIMITS = (
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new stream is a new connection, and its pauses are ours
    ("grpc.min_reconnect_backoff_ms", round(1000 * CONNECT_SECONDS)),
)

Replies = queue.SimpleQueue[bytes | None]


@dataclass
class SiteLink:
    """A site's connection.

    keys : whose files are read: its key, its certificate, and the authority that it trusts
    accept : told the coordinator's identity and whether it follows on the one this site knew; says why not, or None
    last : the identity of the coordinator this site was with last
    """

    host: str
    port: int
    keys: SiteFolder
    answer: Responder
    say: Callable[[str], None] = print
    proxy: str | None = None
    last: Callable[[], str] = lambda: ""
    accept: Callable[[str, bool], str | None] = lambda identity, known: None
    connected: bool = False
    _stop: threading.Event = field(default_factory=threading.Event)
    _there: threading.Event = field(default_factory=threading.Event)
    _orders: deque[tuple[bytes, Replies]] = field(default_factory=lambda: deque(maxlen=1))
    _call: Any = None
    _useful: bool = False  # whether the stream brought an order

    def __post_init__(self) -> None:
        self.log, self.target = LimitedLog(self.say), f"{bracketed(self.host)}:{self.port}"

    def run(self) -> None:
        """Take part until `stop` is called."""
        pause, instance = FIRST_PAUSE, secrets.token_hex(8)
        threading.Thread(target=self._work, name="answers", daemon=True).start()
        while not self._stop.is_set():
            began, self._useful = time.monotonic(), False
            try:
                why = self._stream(instance)
            except FedLSAError as error:  # files that cannot be read now
                why = str(error)
            self.connected = False
            if self._useful or time.monotonic() - began > STEADY:
                pause = FIRST_PAUSE
            if not self._stop.is_set():
                self.log.say("the coordinator", f"not connected to {self.target}: {why}; trying again in {pause:.2g} s")
            self._stop.wait(pause * random.uniform(0.75, 1.25))  # sites do not all return at the same moment
            pause = min(2 * pause, MAX_PAUSE)

    def stop(self) -> None:
        """Leave; an answer that is being computed is not waited for."""
        self._stop.set()
        self._there.set()
        if (call := self._call) is not None:
            call.cancel()

    def _stream(self, instance: str) -> str:
        """One stream, until it ends; why it ended."""
        try:
            key, certificate, ca = (p.read_bytes() for p in (self.keys.key, self.keys.certificate, self.keys.ca))
        except OSError as error:
            return f"cannot read the site's keys: {reason(error)}"
        proxy = [("grpc.enable_http_proxy", 0)] if self.proxy is None else [("grpc.http_proxy", self.proxy)]
        options = [*LIMITS, *proxy, *CLIENT_LIMITS]
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        replies: Replies = queue.SimpleQueue()
        with grpc.secure_channel(self.target, credentials, options=options) as channel:
            call = channel.stream_stream(f"/{SERVICE}/{METHOD}")
            metadata = ((INSTANCE, instance), (COORDINATOR, self.last()), *greeting())
            self._call = stream = call(iter(replies.get, None), metadata=metadata)
            if self._stop.is_set():  # told while it connected
                stream.cancel()
            try:
                received = dict(stream.initial_metadata())
                if COORDINATOR in received:
                    identity, known = str(received[COORDINATOR]), received.get(KNOWN) == "1"
                    why = mismatch(received, "coordinator") or self.accept(identity, known)
                    if why is not None:
                        stream.cancel()
                        return why
                    self.connected = True
                    self.log.say("the coordinator", f"connected to the coordinator at {self.target}")
                for frame in stream:
                    self._useful = True
                    self._orders.append((frame, replies))
                    self._there.set()
                return "the stream ended"
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.UNAVAILABLE and not self.connected and self.proxy is None:
                    return self._diagnosis()
                self._useful &= error.code() != grpc.StatusCode.ALREADY_EXISTS  # two places do not chase each other
                return f"{error.code().name.lower()}: {printable(error.details() or '', 300)}"
            finally:
                self._call = None
                replies.put(None)

    def _work(self) -> None:
        """Answer the newest order, one at a time."""
        while not self._stop.is_set():
            self._there.wait()
            self._there.clear()
            try:
                frame, replies = self._orders.pop()
            except IndexError:
                continue
            try:
                replies.put(frame[: FRAME.size] + self.answer(frame[FRAME.size :]))
            except Exception as error:  # one order that cannot be answered must not end the site
                self.log.say("an order", f"an order was not answered: {type(error).__name__}: {error}")

    def _diagnosis(self) -> str:
        """Why no connection was made: a plain handshake says it better than gRPC."""
        try:
            context = ssl.create_default_context(cafile=str(self.keys.ca))
            context.load_cert_chain(self.keys.certificate, self.keys.key)
            context.set_alpn_protocols(["h2"])
            with (
                socket.create_connection((self.host, self.port), CONNECT_SECONDS) as plain,
                context.wrap_socket(plain, server_hostname=self.host) as secure,
            ):
                if secure.recv(1):  # with TLS 1.3 the server's refusal comes after the handshake
                    return "the coordinator accepts this site's certificate, but gives no stream"
                return f"the coordinator does not let this site's certificate in: {NOT_APPROVED}"
        except ssl.SSLCertVerificationError as error:
            hint = f" ({CLOCK_HINT})" if error.verify_code in CLOCK_CODES else ""
            return f"the coordinator's certificate is refused: {error.verify_message}{hint}"
        except ssl.SSLError:
            return f"the coordinator does not let this site's certificate in: {NOT_APPROVED}"
        except OSError as error:  # nobody listens there, no route, no such name
            return reason(error)

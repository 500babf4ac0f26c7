"""The coordinator's carrier over gRPC with mutual TLS: every site holds one stream, which it opened itself.

Nobody passes the handshake without a certificate that is trusted now. Who a stream belongs to is the common name of its
certificate, and the certificate must be, byte for byte, the one that was approved for that name; when that file is
replaced or removed the stream is closed. A newer stream of a name takes the place of the older one.

A frame is the number of an order (8 bytes) and the order, or its answer. What was not asked for, was answered already
or came too late is dropped and counted, so a site can make the coordinator hold no more than one message at a time.
"""

from __future__ import annotations

import asyncio
import queue
import secrets
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...errors import FedLSAError, MessageError, NetworkError
from ...files import reason
from ..processes import give_memory_back, greeting, mismatch
from ..protocol.codec import MAX_BYTES
from .grpc_site import (
    COORDINATOR,
    FRAME,
    INSTANCE,
    KNOWN,
    METHOD,
    SERVER_LIMITS,
    SERVICE,
    LimitedLog,
    grpc,
    same_certificate,
)

MAX_SECONDS = 20.0  # in which a server must have begun or ended


class LoopThread:
    """An event loop in a thread of its own, for callers that are ordinary functions; runs until `end`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return not self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine, which runs in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(MAX_SECONDS)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the loop, soon; nothing is done once the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def end(self) -> None:
        self.call(self._loop.stop)
        self._thread.join(MAX_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


MAX_UNASKED = 100  # messages that nobody asked for, after which a stream is closed and its site waits
PENALTY = 10.0  # seconds for which such a site is not let in
PINS_POLL = 1.0  # seconds between looks at the server's own and the approved certificates
TRIM_SECONDS = 10.0  # after which the memory of strangers' handshakes is given back
Identity = tuple[bytes, bytes, bytes]  # the server's key and certificate, and the certificates that are trusted; PEM


@dataclass(eq=False)
class _Stream:
    """One site's open stream; lives in the server's event loop alone."""

    site: str
    instance: str
    certificate: bytes
    peer: str
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    why: tuple[Any, str] = (grpc.StatusCode.UNAVAILABLE, "the coordinator ends")
    sent: int = 0  # the number of the order that was sent last
    unanswered: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_UNASKED))  # numbers of orders sent
    unasked: int = 0

    def end(self, code: Any, why: str) -> None:
        """Close it; the site reads why."""
        self.why = code, why
        self.over.set()


@dataclass(frozen=True)
class _Question:
    """An order that waits for its answer."""

    number: int
    order: bytes
    answers: queue.SimpleQueue[tuple[str, bytes]]


class GrpcCarrier:
    """Serves sites at an address until it is closed.

    identity_files : what they say now; looked at every second, so that who is approved can join at once
    pinned : the certificate (PEM) approved for a site; None where it is not listed, was revoked or has expired
    knows : whether this coordinator follows on one of that identity, which sites ask when they return
    connections : the most that are open at once, those without a handshake included
    alarm : told (site, text) when one key speaks from two places
    """

    def __init__(
        self,
        address: str,
        identity_files: Callable[[], Identity],
        pinned: Callable[[str], bytes | None],
        *,
        identity: str = "",
        knows: Callable[[str], bool] = lambda identity: True,
        connections: int = 4096,
        say: Callable[[str], None] = print,
        alarm: Callable[[str, str], None] = lambda site, text: None,
    ) -> None:
        self.address, self.port = address, 0
        self._identity, self._knows = identity or secrets.token_hex(8), knows
        self._pinned, self._alarm, self._log = pinned, alarm, LimitedLog(say)
        self._streams: dict[str, _Stream] = {}
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)  # site -> what its streams have carried
        self._replaced: dict[str, list[str]] = {}  # site -> instances that another one took the place of
        self._barred: dict[str, float] = {}  # site -> until when
        self._questions: dict[str, _Question] = {}
        self._number = secrets.randbits(48) + 1  # answers to an earlier process have other numbers
        self._loop = LoopThread("grpc")
        self._trimmed = time.monotonic()
        self._files, self._read, self._changed = identity_files, identity_files(), False
        self._options = (*SERVER_LIMITS, ("grpc.max_allowed_incoming_connections", connections))
        try:
            self._server = self._loop.run(self._start())
        except RuntimeError as error:
            self._loop.end()
            rule = "the port must be free, and the address one of this machine's"
            raise NetworkError(f"cannot listen at {address}: {rule} ({error})") from None

    def present(self) -> tuple[str, ...]:
        return tuple(sorted(self._streams))

    def ask(self, orders: Mapping[str, bytes], deadline: float) -> Iterator[tuple[str, bytes]]:
        """Send orders; (site, answer) as they come, each site at most once; who returns in time is asked again."""
        answers: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        questions = {}
        for site, order in orders.items():
            if len(order) > MAX_BYTES:
                raise MessageError(f"an order must have at most {MAX_BYTES} bytes; got {len(order)} for {site}")
            self._number += 1
            questions[site] = _Question(self._number, bytes(order), answers)
        end, left = time.monotonic() + deadline, len(questions)
        self._loop.call(self._open, questions)
        try:
            with suppress(queue.Empty):
                while left and (rest := end - time.monotonic()) > 0:
                    yield answers.get(timeout=rest)
                    left -= 1
        finally:
            self._loop.call(self._withdraw, questions)

    def close(self) -> None:
        if self._loop.alive:
            self._loop.run(self._stop())
            self._loop.end()

    # in the server's event loop

    async def _start(self) -> Any:
        server = grpc.aio.server(options=self._options)
        handler = grpc.stream_stream_rpc_method_handler(self._join)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        first = self._configuration()
        credentials = grpc.dynamic_ssl_server_credentials(first, self._newer, require_client_authentication=True)
        self.port = server.add_secure_port(self.address, credentials)
        await server.start()
        self._watcher = asyncio.create_task(self._watch_pins())
        return server

    def _configuration(self) -> Any:
        key, certificate, trusted = self._read
        return grpc.ssl_server_certificate_configuration([(key, certificate)], trusted)

    def _newer(self) -> Any:
        """Asked by gRPC before every handshake, in threads of its own; None where nothing has changed."""
        changed, self._changed = self._changed, False
        return self._configuration() if changed else None

    async def _stop(self) -> None:
        self._watcher.cancel()
        for stream in self._streams.values():
            stream.over.set()
        await self._server.stop(0.5)

    def _open(self, questions: Mapping[str, _Question]) -> None:
        self._questions.update(questions)
        for site in questions.keys() & self._streams.keys():
            self._streams[site].wake.set()

    def _withdraw(self, questions: Mapping[str, _Question]) -> None:
        for site, question in questions.items():
            if self._questions.get(site) is question:
                del self._questions[site]

    async def _join(self, _requests: Any, context: Any) -> None:
        """A site's stream, from its beginning to its end."""
        stream = await self._admit(context)
        known = self._knows(str(dict(context.invocation_metadata() or ()).get(COORDINATOR, ""))[:64])
        await context.send_initial_metadata(((COORDINATOR, self._identity), (KNOWN, str(int(known))), *greeting()))
        self._enter(stream)
        coroutines = [self._send(stream, context), self._listen(stream, context), stream.over.wait()]
        tasks = [asyncio.ensure_future(part) for part in coroutines]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            if self._streams.get(stream.site) is stream:
                del self._streams[stream.site]
                self._log.say(stream.site, f"{stream.site} has gone")
            await asyncio.gather(*tasks, return_exceptions=True)  # what a broken stream raises is its end, not news
        await context.abort(*stream.why)

    async def _admit(self, context: Any) -> _Stream:
        """Whose stream this is, by its certificate; who is not approved is told so and named in the log."""
        shown = context.auth_context()
        names, certificates = shown.get("x509_common_name", []), shown.get("x509_pem_cert", [])
        site = names[0].decode("utf-8", "replace")[:64] if len(names) == 1 else ""
        certificate = certificates[0] if len(certificates) == 1 else b""
        received = dict(context.invocation_metadata() or ())
        if why := self._objection(site, certificate) or mismatch(received, "site"):
            self._log.say("refused", f"refused {context.peer()}: {site!r}: {why}")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        return _Stream(site, str(received.get(INSTANCE, ""))[:64], certificate, context.peer())

    def _objection(self, site: str, certificate: bytes) -> str | None:
        try:
            pinned = self._pinned(site) if site else None
        except (OSError, FedLSAError) as error:
            return f"the coordinator cannot read what is approved: {reason(error)}"
        if pinned is None:
            return "no site of this name is approved here: it is not listed, not enrolled yet, or was revoked"
        if not same_certificate(pinned, certificate):
            return "another certificate is approved for this site: the coordinator must be sent the newest one"
        if time.monotonic() < self._barred.get(site, 0.0):
            return "it sent too much that nobody had asked for: try again later"
        return None

    def _enter(self, stream: _Stream) -> None:
        """The stream is its site's from now on."""
        site, peer, before = stream.site, stream.peer, self._streams.get(stream.site)
        replaced = self._replaced.setdefault(site, [])
        if stream.instance in replaced:  # a process that had died would not return: both are alive
            replaced.remove(stream.instance)
            self.counts[site]["alarms"] += 1
            other = "elsewhere" if before is None else before.peer
            text = f"one key speaks from two places: {site} from {other} and {peer}; revoke it if one is not yours"
            self._log.say(site, text)
            asyncio.get_running_loop().run_in_executor(None, self._alarm, site, text)  # it writes to the disk
        if before is not None:
            if before.instance != stream.instance:
                replaced[:] = [*(i for i in replaced if i != before.instance), before.instance][-16:]
            before.end(grpc.StatusCode.ALREADY_EXISTS, f"a newer stream of {site} came from {peer}")
        self._streams[site] = stream
        self.counts[site]["streams"] += 1
        self._log.say(site, f"{site} is here, from {peer}")
        stream.wake.set()  # it may have returned within a round

    async def _send(self, stream: _Stream, context: Any) -> None:
        while True:
            await stream.wake.wait()
            stream.wake.clear()
            question = self._questions.get(stream.site)
            if question is not None and question.number != stream.sent:
                stream.sent = question.number
                stream.unanswered.append(question.number)
                self.counts[stream.site]["bytes_down"] += len(question.order)
                await context.write(FRAME.pack(question.number) + question.order)

    async def _listen(self, stream: _Stream, context: Any) -> None:
        counts_here = self.counts[stream.site]
        while (message := await context.read()) is not grpc.aio.EOF:
            counts_here["bytes_up"] += len(message)
            question = self._questions.get(stream.site)
            number = int.from_bytes(message[: FRAME.size], "big")  # 0, which is never asked, in an empty one
            if question is not None and number == question.number and number in stream.unanswered:
                del self._questions[stream.site]
                stream.unanswered.remove(question.number)
                counts_here["answers"] += 1
                question.answers.put((stream.site, message[FRAME.size :]))
                continue
            counts_here["dropped"] += 1
            if number in stream.unanswered:  # it was asked for, and came too late
                stream.unanswered.remove(number)
                continue
            stream.unasked += 1
            if stream.unasked > MAX_UNASKED:
                self._barred[stream.site] = time.monotonic() + PENALTY
                self._log.say(stream.site, f"{stream.site} sends what nobody asked for: shut out for {PENALTY:g} s")
                stream.end(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much that nobody asked for")
                return

    async def _watch_pins(self) -> None:
        """Take over certificates that have changed, and close streams whose own is no longer the approved one."""
        while True:
            await asyncio.sleep(PINS_POLL)
            streams = list(self._streams.values())
            with suppress(OSError, FedLSAError):  # a disk that cannot be read now says nothing
                for stream in await asyncio.to_thread(self._check_files, streams):
                    self._log.say(stream.site, f"{stream.site}: its certificate is no longer approved; closed")
                    stream.end(grpc.StatusCode.PERMISSION_DENIED, "this certificate is no longer approved")

    def _check_files(self, streams: list[_Stream]) -> list[_Stream]:
        """Read the files again; those of the streams that are to be closed."""
        if time.monotonic() > self._trimmed + TRIM_SECONDS:
            self._trimmed = time.monotonic()
            give_memory_back()
        read = self._files()
        if read != self._read:
            self._read, self._changed = read, True
        pinned = [self._pinned(stream.site) for stream in streams]
        return [s for s, p in zip(streams, pinned, strict=True) if p is None or not same_certificate(p, s.certificate)]

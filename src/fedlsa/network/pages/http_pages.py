"""A small web server that shows and never takes: GET of a fixed list of paths, everything else is refused.

Who can reach it cannot stop it: a request has 16 KiB and ten seconds, an answer ten seconds, and where too many are
connected the oldest is let go. A page of another site in the same browser cannot read it: the Host header must be an
address by its number or localhost, so that no other name can be made to mean this machine (DNS rebinding),
and nothing is granted to other origins. Whatever is shown was put together beforehand; nothing of a request is used.
"""

from __future__ import annotations

import io
import ipaddress
import json
import logging
import socket
import socketserver
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, NamedTuple

from ... import checks
from ...errors import NetworkError
from ...files import reason
from ...installation import __version__
from ..protocol.codec import VERSION

LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 32
MAX_REQUEST_BYTES = 16384
REQUEST_SECONDS = 10.0  # to send a request, and to take its answer
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
JSON_KIND, METRICS_KIND = "application/json", "text/plain; version=0.0.4; charset=utf-8"
SHARED_FILES = ("page.css", "page.js", "mark.svg")
FRESH = 0.5  # seconds for which an answer is given again, however many look
log = logging.getLogger(__name__)


class PagePlace(NamedTuple):
    """Where a page is shown. port : None leaves it to the program; address : loopback, unless others may read it."""

    port: int | None = None
    address: str = LOOPBACK


class Shown(NamedTuple):
    """An answer: its content, of what kind it is, and the code of HTTP."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    code: int = 200


class Page:
    """A running server of a page; port : where it listens, on `address`."""

    def __init__(self, routes: Mapping[str, Callable[[], Shown]], port: int, address: str) -> None:
        checks.integer("port", port, at_least=0, at_most=65535)
        try:
            self._server = _ReadOnlyServer((address, port), routes)
        except (OSError, ValueError) as error:
            raise NetworkError(f"cannot show a page at {address}, port {port}: {reason(error)}") from error
        self.address, self.port = address, int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True, name="page")
        self._thread.start()

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        seen = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(self.address, self.address)
        return f"http://[{seen}]:{self.port}/" if ":" in seen else f"http://{seen}:{self.port}/"

    def close(self) -> None:
        """Stop; those who are connected are let go."""
        self._server.shutdown()
        self._server.server_close()
        self._server.let_go(0)
        self._thread.join(REQUEST_SECONDS)


class PageState(ABC):
    """What a page, /health and /metrics say; safe to be asked by many threads. alive : whether its program still works

    FILES : of static/, the page itself first
    """

    FILES: tuple[str, ...]

    def __init__(self, alive: Callable[[], bool]) -> None:
        self.alive = alive
        self._guard = threading.Lock()
        self._last: tuple[float, dict[str, Any]] | None = None

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """What is shown, as plain values; among them why a person should look, certificates and the latest run."""

    @abstractmethod
    def _families(self, now: dict[str, Any]) -> Families:
        """The content as metrics."""

    def content(self) -> dict[str, Any]:
        """What the page shows; put together at most every FRESH seconds."""
        with self._guard:
            if self._last is None or time.monotonic() - self._last[0] > FRESH:
                now, alive = self._content(), self.alive()
                now |= {"now": time.time(), "version": __version__, "protocol": VERSION}
                now["status"] = "dead" if not alive else "degraded" if now["why"] else "ok"
                self._last = time.monotonic(), now
            return self._last[1]

    def state(self) -> Shown:
        """For the page."""
        return Shown(json.dumps(self.content(), allow_nan=False).encode(), JSON_KIND)

    def health(self) -> Shown:
        """For monitors: 503 when the program no longer works."""
        now = self.content()
        told = {name: now[name] for name in ("status", "version", "protocol", "why")}
        told |= {"run": now["latest"], "expiring": now["certificates"]}
        return Shown(json.dumps(told).encode() + b"\n", JSON_KIND, 503 if now["status"] == "dead" else 200)

    def metrics(self) -> Shown:
        """For Prometheus."""
        return Shown(exposition(self._families(self.content())).encode(), METRICS_KIND)

    def show(self, port: int, address: str = LOOPBACK) -> Page:
        """Show it at http://127.0.0.1:port/, with /health and /metrics; port 0 takes a free one.

        address : to listen on, loopback by default: whoever can reach the page can read it
        """
        routes = {f"/{name}": static(name) for name in (*self.FILES[1:], *SHARED_FILES)}
        routes |= {"/": static(self.FILES[0]), "/favicon.ico": static("mark.svg")}
        routes |= {"/state.json": self.state, "/health": self.health, "/metrics": self.metrics}
        return Page(routes, port, address)


def announce(start: Callable[[], Page], say: Callable[[str], None]) -> Page | None:
    """Start a page and say where it is; a port that is taken is a pity, and no reason not to take part."""
    try:
        page = start()
    except NetworkError as error:
        say(f"WARNING: {error}")
        return None
    say(f"the page: {page.url}")
    return page


def static(name: str) -> Callable[[], Shown]:
    """A file of static/, read once; the sections of a page get what all pages have around them."""
    text, (role, kind) = _read(name), name.split(".")
    if kind == "html":
        whole = _read("page.html").replace("/ROLE.js", f"/{role}.js").replace("ROLE", role.title())
        text = whole.replace("SECTIONS", text)
    shown = Shown(text.encode(), KINDS[kind])
    return lambda: shown


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")


class _ReadOnlyServer(ThreadingHTTPServer):
    """One thread for each connection, and at most MAX_CONNECTIONS of them."""

    daemon_threads, block_on_close = True, False
    request_queue_size = 64

    def __init__(self, place: tuple[str, int], routes: Mapping[str, Callable[[], Shown]]) -> None:
        self.routes = dict(routes)
        self.connected: dict[Any, None] = {}  # sockets, the oldest first
        self.guard = threading.Lock()
        if ipaddress.ip_address(place[0]).version == 6:
            self.address_family = socket.AF_INET6
        super().__init__(place, _ReadOnlyHandler)

    def server_bind(self) -> None:
        """Without asking a name server for our own name, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "fedlsa", int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection; where there are too many, the oldest is let go."""
        self.let_go(MAX_CONNECTIONS - 1)
        with self.guard:
            self.connected[request] = None
        super().process_request(request, client_address)

    def let_go(self, most: int) -> None:
        """Close connections, the oldest first, until at most so many are left."""
        with self.guard:
            old = list(self.connected)[: max(0, len(self.connected) - most)]
            for request in old:
                del self.connected[request]
        for request in old:
            try:
                request.shutdown(socket.SHUT_RDWR)  # its thread wakes up and ends
            except OSError:
                continue

    def shutdown_request(self, request: Any) -> None:
        """The end of a connection."""
        with self.guard:
            self.connected.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is no news."""


class _ReadOnlyHandler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _ReadOnlyServer
    server_version, sys_version = "fedlsa", ""
    protocol_version = "HTTP/1.0"  # one request, then the connection is closed

    def setup(self) -> None:
        """Read the whole request first: bounded in bytes and in time, however slowly it comes."""
        super().setup()
        end, got = time.monotonic() + REQUEST_SECONDS, b""
        while b"\r\n\r\n" not in got and b"\n\n" not in got:
            left = end - time.monotonic()
            if left <= 0 or len(got) > MAX_REQUEST_BYTES:
                got = b""
                break
            self.connection.settimeout(left)
            try:
                part = self.connection.recv(4096)
            except OSError:
                part = b""
            if not part:
                got = b""  # half a request is none
                break
            got += part
        self.rfile = io.BytesIO(got)
        self.connection.settimeout(REQUEST_SECONDS)

    def do_GET(self) -> None:
        """One of the routes, or a refusal."""
        if not self._named_rightly():
            self.send_error(421, "the Host header must be an address by its number, or localhost")
            return
        route = self.server.routes.get(self.path)
        if route is None:
            self.send_error(404, "there is no such page")
            return
        try:
            shown = route()
        except Exception:
            log.exception("a page could not be made")
            self.send_error(500, "the page could not be made; the log says why")
            return
        self._send(shown)

    do_HEAD = do_GET

    def _named_rightly(self) -> bool:
        given = self.headers.get_all("Host") or []
        if len(given) != 1:
            return False
        name = given[0].strip().lower()
        before, _, port = name.rpartition(":")
        host = before if before and port.isdecimal() else name
        try:
            ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        except ValueError:
            return host == "localhost"
        return True

    def _send(self, shown: Shown) -> None:
        self.send_response_only(shown.code)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", shown.kind)
        self.send_header("Content-Length", str(len(shown.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(shown.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """A refusal in a line of text, in which nothing of the request stands."""
        known = code in (404, 421, 500)
        text = message if known and message else "only GET, of the pages that are there"
        self._send(Shown(f"{text}\n".encode(), code=code))

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not written down: whoever can reach the page could fill the disk."""


# Prometheus' text format (version 0.0.4), written by hand: a name, a sentence, and samples with labels. Families whose
# names end in _total are counters, all others gauges.

Samples = float | None | Sequence[tuple[Mapping[str, str], float | None]]
Families = Iterable[tuple[str, str, Samples]]


def exposition(families: Families) -> str:
    """The families as a monitor reads them; samples without a value, and families without samples, are left out."""
    lines = []
    for name, text, given in families:
        pairs = given if isinstance(given, Sequence) else [({}, given)]
        samples = [(labels, float(value)) for labels, value in pairs if value is not None]
        if samples:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {_escaped(text)}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            inside = ",".join(f'{label}="{_escaped(said)}"' for label, said in labels.items())
            lines.append(f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

"""A small web server for our pages: a fixed list of paths, GET alone unless a path takes uploads, the rest is refused.

Who can reach it cannot stop it: a request has 16 KiB and ten seconds, an upload as many bytes as its path allows and
two minutes, an answer must be taken within ten seconds, and where too many are connected the oldest is let go.
A page of another site in the same browser cannot use it: the Host header must be an address by its number or
localhost, so that no other name can be made to mean this machine (DNS rebinding); what another page asks (Origin,
Sec-Fetch-Site) is refused, save that a link may lead here; nothing is granted to other origins.
With a token every request must show it: once in the link, then in a cookie.
An answer in parts is sent as its parts come; who asks and goes away ends it.
"""

from __future__ import annotations

import hmac
import io
import ipaddress
import logging
import select
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Generator, Mapping
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 32
MAX_REQUEST_BYTES = 16384
MAX_FIELDS = 200  # of a query
REQUEST_SECONDS = 10.0  # to send a request, and to take its answer, or a part of it
UPLOAD_SECONDS = 120.0
MAX_UPLOADS = 2  # at a time: they are kept in memory until they are whole
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
JSON_KIND, JSON_LINES_KIND = "application/json", "application/x-ndjson"
Parts = Generator[bytes, None, None]
log = logging.getLogger(__name__)


class Shown(NamedTuple):
    """An answer: its content, of what kind it is, the code of HTTP, and more headers.

    body : a generator is sent part by part; an empty part only asks whether anybody still listens
    """

    body: bytes | Parts
    kind: str = "text/plain; charset=utf-8"
    code: int = 200
    headers: Mapping[str, str] = {}


class PageRequest(NamedTuple):
    """What a request asks, beside its path: the query, by name, and what was uploaded."""

    query: Mapping[str, str]
    body: bytes = b""


class QueryRoute(NamedTuple):
    """A path whose answer depends on its query. upload_bytes : how much may be sent there; 0: it is asked by GET."""

    answer: Callable[[PageRequest], Shown]
    upload_bytes: int = 0


Routes = Mapping[str, Callable[[], Shown] | QueryRoute]


class Page:
    """A running server of a page; port : where it listens, on `address`; an OSError or ValueError: it cannot.

    token : what every request must show, where not only this machine can reach it
    headers : instead of those of HEADERS
    """

    def __init__(
        self,
        routes: Routes,
        port: int = 0,
        address: str = LOOPBACK,
        token: str = "",
        headers: Mapping[str, str] = HEADERS,
    ) -> None:
        self._server = _PageServer((address, port), routes, token, headers)
        self.address, self.port, self.token = address, int(self._server.server_address[1]), token
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True, name="page")
        self._thread.start()

    @property
    def url(self) -> str:
        """Where a browser finds it, on this machine if it listens to all."""
        named = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(self.address, self.address)
        return f"http://[{named}]:{self.port}/" if ":" in named else f"http://{named}:{self.port}/"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._server.let_go(0)
        self._thread.join(REQUEST_SECONDS)


class _PageServer(ThreadingHTTPServer):
    """One thread for each connection, and at most MAX_CONNECTIONS of them."""

    daemon_threads, block_on_close = True, False
    request_queue_size = 64

    def __init__(self, place: tuple[str, int], routes: Routes, token: str, headers: Mapping[str, str]) -> None:
        self.routes, self.token, self.headers = dict(routes), token, headers
        self.connected: dict[Any, None] = {}  # sockets, the oldest first
        self.guard, self.uploads = threading.Lock(), threading.BoundedSemaphore(MAX_UPLOADS)
        if ":" in place[0]:
            self.address_family = socket.AF_INET6
        super().__init__(place, _Handler)

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
        with self.guard:
            self.connected.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _PageServer
    server_version, sys_version = "fedlsa", ""
    protocol_version = "HTTP/1.0"  # one request, then the connection is closed

    def setup(self) -> None:
        """Read the head of the request first: bounded in bytes and in time, however slowly it comes."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end, got = time.monotonic() + REQUEST_SECONDS, b""
        while b"\r\n\r\n" not in got and b"\n\n" not in got:
            part = b"" if len(got) > MAX_REQUEST_BYTES else self._received(4096, end)
            if not part:
                got = b""  # half a request is none
                break
            got += part
        self.rfile = io.BytesIO(got)
        self.connection.settimeout(REQUEST_SECONDS)

    def _received(self, most: int, end: float) -> bytes:
        """What comes next; nothing where it ends, or the time does."""
        left = end - time.monotonic()
        if left <= 0:
            return b""
        self.connection.settimeout(left)
        try:
            return self.connection.recv(most)
        except OSError:
            return b""

    def do_GET(self) -> None:
        """One of the routes, or a refusal."""
        path, mark, query = self.path.partition("?")
        if not self._named_rightly():
            return self.send_error(421, "the Host header must be an address by its number, or localhost")
        if not self._asked_by_us(path):
            return self.send_error(403, "this page answers to itself alone")
        try:
            named = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_FIELDS))
        except ValueError:
            return self.send_error(404, "there is no such page")
        if self.server.token and not self._has_cookie():
            return self._let_in(path, named)
        route = self.server.routes.get(path)
        takes = route.upload_bytes if isinstance(route, QueryRoute) else 0
        if route is None or (mark and not isinstance(route, QueryRoute)):
            return self.send_error(404, "there is no such page")
        if bool(takes) != (self.command == "POST"):
            return self.send_error(501)
        if not isinstance(route, QueryRoute):
            return self._answer(route)
        if not takes:
            return self._answer(lambda: route.answer(PageRequest(named)))
        if not self.server.uploads.acquire(blocking=False):
            return self.send_error(503, "too many uploads at a time; try again")
        try:
            self._take(route, named)
        finally:
            self.server.uploads.release()

    do_HEAD = do_POST = do_GET

    def _take(self, route: QueryRoute, named: Mapping[str, str]) -> None:
        """An upload, bounded in bytes and in time."""
        told = self.headers.get("Content-Length", "")
        if not told.isascii() or not told.isdecimal() or len(told) > 12:
            return self.send_error(411, "an upload must say its length")
        size = int(told)
        if size > route.upload_bytes:
            return self.send_error(413, f"an upload must have at most {route.upload_bytes // 2**20} MB")
        end, got = time.monotonic() + UPLOAD_SECONDS, bytearray(self.rfile.read(size))
        while len(got) < size:
            part = self._received(min(2**20, size - len(got)), end)
            if not part:
                return None  # nobody is there who could be told
            got += part
        self.connection.settimeout(REQUEST_SECONDS)
        return self._answer(lambda: route.answer(PageRequest(named, bytes(got))))

    def _answer(self, route: Callable[[], Shown]) -> None:
        try:
            shown = route()
        except Exception:
            log.exception("a page could not be made")
            self.send_error(500, "the page could not be made; the log says why")
            return
        self._send(shown)

    def _named_rightly(self) -> bool:
        """Whether the Host header names this machine in a way that nobody else decides; with a token any name does."""
        given = self.headers.get_all("Host") or []
        if len(given) != 1:
            return False
        name = given[0].strip().lower()
        before, _, port = name.rpartition(":")
        host = before if before and port.isdecimal() else name
        try:
            ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        except ValueError:
            return host == "localhost" or bool(self.server.token)
        return True

    def _asked_by_us(self, path: str) -> bool:
        """Whether the request comes from this page, a person or a program; another page's link may lead to /."""
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "none")
        if origin is not None and origin not in (f"http://{self.headers['Host']}", f"https://{self.headers['Host']}"):
            return False
        leads = self.headers.get("Sec-Fetch-Mode") == "navigate" and self.headers.get("Sec-Fetch-Dest") == "document"
        return site in ("none", "same-origin") or (leads and path == "/" and self.command == "GET")

    @property
    def _cookie(self) -> str:
        """The name of the cookie: programs on other ports of this machine have others."""
        return f"fedlsa-{self.server.server_port}"

    def _has_cookie(self) -> bool:
        try:
            held = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return held is not None and self._is_token(held.value)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.server.token.encode())

    def _let_in(self, path: str, named: dict[str, str]) -> None:
        """Who shows the token in a link gets it as a cookie, and the address without it."""
        if path != "/" or self.command != "GET" or not self._is_token(named.pop("token", "")):
            return self.send_error(403, "open the link that the program has printed: it holds a token")
        kept = f"{self._cookie}={self.server.token}; HttpOnly; SameSite=Lax; Path=/"
        return self._send(Shown(b"", code=303, headers={"Location": f"/?{urlencode(named)}", "Set-Cookie": kept}))

    def _send(self, shown: Shown) -> None:
        self.send_response_only(shown.code)
        for name, value in {**self.server.headers, **shown.headers, "Content-Type": shown.kind}.items():
            self.send_header(name, value)
        if isinstance(shown.body, bytes):
            self.send_header("Content-Length", str(len(shown.body)))
        self.end_headers()
        if isinstance(shown.body, bytes):
            if self.command != "HEAD":
                self.wfile.write(shown.body)
            return
        try:
            for part in shown.body if self.command != "HEAD" else ():
                if self._has_left():
                    break
                self.wfile.write(part)
        finally:
            shown.body.close()  # whatever it still waits for is given up

    def _has_left(self) -> bool:
        """Whether who asked has closed the connection."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """A refusal in a line of text, in which nothing of the request stands."""
        known = code in (403, 404, 411, 413, 421, 500, 503)
        text = message if known and message else "only GET, of the pages that are there"
        self._send(Shown(f"{text}\n".encode(), code=code))

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not written down: whoever can reach the page could fill the disk."""

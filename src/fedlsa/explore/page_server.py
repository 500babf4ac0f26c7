"""The page served from the user's machine: on loopback unless told otherwise, with nothing fetched from elsewhere."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.metadata
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from .. import checks
from ..errors import ArgumentError, MissingExtraError
from ..files import reason, write
from .page_settings import PageSettings
from .pool import SESSION, Pool

NOTEBOOK, STYLE, HEAD = (Path(__file__).with_name(name) for name in ("notebook.py", "explore.css", "page_head.html"))
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# the page's own files, and nothing from another host: no fonts, no scripts, no pictures
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' ws: wss: blob: data:; worker-src 'self' blob:"
)


def serve(
    settings: PageSettings,
    files: Sequence[str] = (),
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
) -> None:
    """Serve the page until interrupted; port 0 takes a free one, settings and files are what it opens with."""
    # marimo looks for plugins among all installed packages whenever a cell runs; what is installed stays
    importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)  # type: ignore[assignment]
    try:
        import marimo
        import uvicorn
    except ImportError:
        raise MissingExtraError("the explorer needs marimo: pip install 'fedlsa[explore]'") from None
    from . import open_page, page_panels, uploads  # noqa: F401  the page is made of the second

    uploads.name_files(files)
    listening = _listen(host, port)
    named, query = f"[{host}]" if ":" in host else host, settings.address()
    link = f"http://{named}:{listening.getsockname()[1]}/" + (f"?{query}" if query else "")
    folder = tempfile.TemporaryDirectory(prefix="fedlsa-explore-", ignore_cleanup_errors=True)
    copy_notebook(Path(folder.name) / NOTEBOOK.name)
    builder = marimo.create_asgi_app(quiet=True).with_app(path="", root=f"{folder.name}/{NOTEBOOK.name}")
    pool = open_page.common_pool()  # its processes start while the page loads
    server = uvicorn.Server(
        uvicorn.Config(
            Guard(builder.build(), host, pool),
            log_level="warning",
            ws_max_size=2**27,
            ws_per_message_deflate=host not in LOOPBACK,  # to pack a picture takes longer than to send it
            timeout_graceful_shutdown=1,
        )
    )
    print(f"fedlsa explore: {link}  (Ctrl-C ends it)", flush=True)
    if host not in LOOPBACK:
        print("whoever can reach this machine can use the page, and upload files to it", flush=True)
    if browser:
        threading.Timer(0.5, webbrowser.open, (link,)).start()
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it, it tidies up
    gc.freeze()  # what is loaded stays: to look through all of it now and then would keep an answer waiting
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        pool.close()
        uploads.forget()
        folder.cleanup()


def leave() -> None:
    """End the process after the page: threads of pages that are still open would keep it for ever."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def copy_notebook(path: Path) -> None:
    """Write the page as a notebook of the user's own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for file, content in notebook_files(path).items():
        write(file, content, "the notebook")


def notebook_files(path: Path) -> dict[Path, bytes]:
    """The notebook, and its style sheet and its head, with all scripts, that lie beside it."""
    checks.choice(f"the suffix of {str(path)!r}", path.suffix, (".py",))
    files = {}
    for source in (NOTEBOOK, STYLE, HEAD):
        text = source.read_text(encoding="utf-8")
        if source is HEAD:
            for name in re.findall(r'<script src="(.+)">', text):
                script = (HEAD.parent / name).read_text(encoding="utf-8")
                text = text.replace(f'<script src="{name}">', f"<script>\n{script}")
        files[path if source is NOTEBOOK else path.with_name(source.name)] = text.encode()
    return files


def _listen(host: str, port: int) -> socket.socket:
    if not host:  # would be every address of the machine
        raise ArgumentError(f"host must be an address or a name, such as 127.0.0.1; got {host!r}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(128)  # a port that another has bound without listening is found out here
    except (OSError, ValueError, TypeError) as error:
        sock.close()
        got = f"{checks.show(f'{host}:{port}')} ({reason(error)})"
        raise ArgumentError(f"host and port must be free to listen on; got {got}") from None
    return sock


async def _say(send: Any, status: int, text: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": text})


class Guard:
    """What stands before the page: forbids it outside hosts, and on loopback refuses pages of others that pose as it.

    A page elsewhere could let its own name point at this machine and then read the answers; it would still send its
    own name along, which is refused here. pool : hears which pages come and go.
    """

    def __init__(self, app: Any, host: str, pool: Pool | None = None) -> None:
        self.app, self.alone, self.pool = app, host in LOOPBACK, pool

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket") and self.alone and not self._at_home(scope):
            if scope["type"] == "http":
                await _say(send, 403, b"this page answers to localhost alone\n")
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "http" and (b"sec-fetch-dest", b"image") in scope["headers"] and scope["path"] == "/":
            # while cells run the page's icon has no address, so the browser asks for the page as a picture, which
            # would be made in vain while an answer waits
            await _say(send, 404, b"the page is no picture\n")
            return

        async def answer(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"content-security-policy", POLICY.encode())]
            await send(message)

        if self.pool is None or scope["type"] != "websocket":
            await self.app(scope, receive, answer)
            return
        session = parse_qs(scope.get("query_string", b"").decode("latin-1")).get(SESSION, [""])[0]
        self.pool.connect(session)
        try:
            await self.app(scope, receive, answer)
        finally:
            self.pool.disconnect(session)  # a page that is closed or loaded anew wants no answers

    def _at_home(self, scope: Any) -> bool:
        """Whether the request names this machine's loopback, and comes from this page if it comes from a page."""
        headers = {k: v.decode("latin-1") for k, v in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        named = not host or host.rsplit(":", 1)[0].strip("[]") in LOOPBACK or host.strip("[]") in LOOPBACK
        return named and (origin is None or origin in (f"http://{host}", f"https://{host}"))

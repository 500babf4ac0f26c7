"""The public gate: passes on what a site may ask of the SuperLink, POST /v1/fleet/..., and nothing else.

Flower answers control, fleet and runtime requests on one port, and without a log-in: whoever reaches that port can
submit a run. So the SuperLink listens on loopback alone, and the world sees this gate. It speaks TLS, refuses
everything that is not on the list with 403, and logs it. Who a site is, the SuperLink itself checks by the
site's signature, so before that no more is held than the limits below allow.
The coordinator runs this page as a file of its own: it must not import the rest of fedlsa.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import sys
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

FLEET = ("activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages", "push-messages", "get-run")
MESSAGE_OBJECTS = ("get-fab", "push-object", "pull-object", "confirm-message-received")
UNSIGNED = ("register-node", "unregister-node")  # how sites come and go where there are no keys: with --insecure only
MAX_BYTES = 16 * 2**20  # of one request, as in proxy/: moments of 1400 features (8 d^2 bytes), all else is far smaller
MAX_BYTES_AT_ONCE = 256 * 2**20  # bytes of all requests that are being read or passed on
PATIENCE, MIN_SPEED = 30.0, 64 * 2**10  # seconds in which a request must arrive, and bytes per second on top of them
HOP_BY_HOP = {
    "connection", "keep-alive", "te", "trailer", "trailers", "transfer-encoding", "upgrade", "host", "content-length",
    "proxy-authenticate", "proxy-authorization", "expect", "forwarded", "x-forwarded-for",
}  # fmt: skip

log = logging.getLogger("fedlsa.gate")


def create(
    inner: str,
    verify: Any,
    *,
    unsigned: bool = False,
    most: int = MAX_BYTES,
    at_once: int = MAX_BYTES_AT_ONCE,
    patience: float = PATIENCE,
) -> Any:
    """The application. inner : the SuperLink's address with its scheme; verify : how its certificate is checked."""
    names = (*FLEET, *MESSAGE_OBJECTS, *(UNSIGNED if unsigned else ()))
    allowed = frozenset(f"/v1/fleet/{name}".encode() for name in names)
    client = httpx.AsyncClient(base_url=inner, verify=verify, timeout=60.0, follow_redirects=False, trust_env=False)
    held = 0  # bytes of all requests together

    def refuse(request: Request, status: int, why: str) -> Response:
        who = request.client.host if request.client else "?"
        log.warning("refused %s: %s %.200r: %s", who, request.method, request.scope.get("raw_path", b""), why)
        return Response(why + "\n", status, {"connection": "close"}, "text/plain")  # what is not read yet stays unread

    async def forward_request(request: Request) -> Response:
        nonlocal held
        # The path as it came on the wire: nothing encoded, doubled or climbing can equal an entry of the list.
        path = request.scope.get("raw_path", b"")
        if request.method != "POST" or path not in allowed or request.scope.get("query_string"):
            return refuse(request, 403, "only sites' requests pass this gate")
        headers = [(k, v) for k, v in request.scope["headers"] if k.decode("latin-1").lower() not in HOP_BY_HOP]
        if not all(part.isascii() for pair in headers for part in pair):
            return refuse(request, 400, "headers must be ASCII")
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return refuse(request, 400, "Content-Length must be a number")
        if len(length) > 12 or int(length) > most:
            return refuse(request, 413, f"a request must have at most {most} bytes")
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(patience + int(length) / MIN_SPEED):
                    async for part in request.stream():
                        if len(body) + len(part) > most:
                            return refuse(request, 413, f"a request must have at most {most} bytes")
                        if held + len(part) > at_once:
                            return refuse(request, 503, "too much is arriving at once; try again")
                        held += len(part)
                        body += part
            except ClientDisconnect:
                return Response(status_code=400)
            except TimeoutError:
                return refuse(request, 408, "a request must arrive without long pauses")
            return await passed(path.decode("ascii"), bytes(body), headers)
        finally:
            held -= len(body)

    async def passed(path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> Response:
        try:
            answer = await client.post(path, content=body, headers=headers)
        except httpx.HTTPError as error:  # the SuperLink is away; sites try again after 502
            log.warning("no answer from the SuperLink: %s", type(error).__name__)
            return Response("the coordinator is starting or away\n", 502, media_type="text/plain")
        dropped = HOP_BY_HOP | {"content-encoding", "server", "date"}
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in dropped}
        return Response(answer.content, answer.status_code, kept)

    every = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"]
    return Starlette(routes=[Route("/{path:path}", forward_request, methods=every)])


def main() -> None:
    """Run the gate until the process is ended.

    Its argument is a JSON object: host and port to listen on; inner, the SuperLink's host:port on loopback; tls, the
    files ca, certificate and key, or null for plain text without keys.
    """
    given = json.loads(sys.argv[1])
    tls = given["tls"]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    scheme, verify = ("http", True) if tls is None else ("https", ssl.create_default_context(cafile=tls["ca"]))
    app = create(f"{scheme}://{given['inner']}", verify, unsigned=tls is None)
    files = {} if tls is None else {"ssl_certfile": tls["certificate"], "ssl_keyfile": tls["key"]}
    uvicorn.run(
        app,
        host=given["host"],
        port=given["port"],
        access_log=False,
        server_header=False,
        limit_concurrency=1024,
        timeout_keep_alive=10,  # a site asks every few seconds; who does not, connects again
        **files,
    )


if __name__ == "__main__":
    main()

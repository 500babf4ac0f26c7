"""The gate on its own: what passes, what does not, and that nothing of a refused request reaches the inside."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest

pytest.importorskip("starlette")

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

import fedlsa as fl
from fedlsa.errors import NetworkError
from fedlsa.network import gate
from fedlsa.network.coordinator.commands import listening
from fedlsa.network.folder import setup
from fedlsa.network.folder.config import Network


class Caller:
    """Sends requests to the gate with exactly the path that is given."""

    build = httpx.AsyncClient

    def __init__(self, app):
        self.app = app

    def request(self, method, path, **options):
        async def send():
            async with self.build(transport=httpx.ASGITransport(self.app)) as client:
                return await client.request(method, f"http://gate{path}", **options)

        return asyncio.run(send())

    def post(self, path, **options):
        return self.request("POST", path, **options)


@pytest.fixture
def inside(monkeypatch):
    """(caller, seen): one who calls at the gate before an inside that notes what reaches it."""
    seen = []

    async def note(request):
        seen.append((request.method, request.url.path, await request.body(), dict(request.headers)))
        return Response(b"answer", 202, {"x-kept": "yes", "connection": "close"})

    app = Starlette(routes=[Route("/{path:path}", note, methods=["GET", "POST", "PUT"])])

    def client(**options):
        options.pop("verify")
        return Caller.build(transport=httpx.ASGITransport(app), **options)

    monkeypatch.setattr(httpx, "AsyncClient", client)
    return Caller(gate.create("http://inside", True, most=1000, at_once=1500)), seen


@pytest.mark.parametrize("name", [*gate.FLEET, *gate.MESSAGE_OBJECTS])
def test_what_a_site_asks_passes_with_body_and_signature(inside, name):
    caller, seen = inside
    answer = caller.post(f"/v1/fleet/{name}", content=b"body", headers={"flwr-signature": "s", "x-forwarded-for": "me"})
    assert (answer.status_code, answer.content, answer.headers["x-kept"]) == (202, b"answer", "yes")
    [(method, path, body, headers)] = seen
    assert (method, path, body) == ("POST", f"/v1/fleet/{name}", b"body")
    assert headers["flwr-signature"] == "s"
    assert "x-forwarded-for" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/", "/docs", "/openapi.json", "/health", "/v1/control/start-run", "/v1/runtime/acquire-task", "/v1/fleet",
        "/v1/fleet/", "/v1/fleet/register-node", "/v1/fleet/unregister-node", "/v1/fleet/get-run/",
        "//v1/fleet/get-run", "/v1/fleet/%67et-run", "/v1/fleet/..%2fcontrol/start-run", "/V1/fleet/get-run",
        "/v1/fleet/get-run?x=1", "/v1/fleet/get-run%00", "/v1//fleet/get-run",
    ],
)  # fmt: skip
def test_everything_else_is_refused_and_reaches_nobody(inside, path):
    caller, seen = inside
    assert caller.post(path, content=b"body").status_code == 403
    assert not seen


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_post_passes(inside, method):
    caller, seen = inside
    assert caller.request(method, "/v1/fleet/pull-messages").status_code == 403
    assert not seen


def test_a_request_that_is_too_long_is_refused(inside):
    caller, seen = inside
    assert caller.post("/v1/fleet/push-object", content=b"x" * 1001).status_code == 413
    assert caller.post("/v1/fleet/push-object", content=b"x" * 1000).status_code == 202
    assert len(seen) == 1


def test_a_request_that_announces_too_much_is_refused_before_it_is_read(inside):
    caller, seen = inside

    async def never():
        raise AssertionError("the body was read")
        yield b""

    for length, status in (("1001", 413), ("9" * 30, 413), ("-1", 400), ("x", 400)):
        answer = caller.post("/v1/fleet/push-object", content=never(), headers={"content-length": length})
        assert (answer.status_code, answer.headers["connection"]) == (status, "close")
    assert not seen


def test_a_request_that_does_not_arrive_is_refused(inside):
    _, seen = inside

    async def never():
        yield b"begun"
        await asyncio.Event().wait()

    caller = Caller(gate.create("http://inside", True, patience=0.05))
    assert caller.post("/v1/fleet/push-object", content=never()).status_code == 408
    assert not seen


def test_all_requests_together_hold_no_more_than_is_allowed_and_give_it_back(inside):
    caller, seen = inside

    async def three():
        full, release = asyncio.Event(), asyncio.Event()

        async def large():
            yield b"x" * 1000
            full.set()
            await release.wait()

        async def later():
            await full.wait()
            yield b"x" * 501

        async with Caller.build(transport=httpx.ASGITransport(caller.app), base_url="http://gate") as client:
            first = asyncio.create_task(client.post("/v1/fleet/push-object", content=large()))
            refused = await client.post("/v1/fleet/push-object", content=later())
            release.set()
            return (await first).status_code, refused.status_code

    assert asyncio.run(three()) == (202, 503)
    for _ in range(3):
        assert caller.post("/v1/fleet/push-object", content=b"x" * 1000).status_code == 202
    assert len(seen) == 4


def test_a_header_outside_ascii_is_refused_and_breaks_nothing(inside):
    caller, seen = inside
    assert caller.post("/v1/fleet/get-run", headers=[(b"x-name", b"caf\xe9")]).status_code == 400
    assert not seen


def test_the_proxies_and_the_gate_allow_the_same_size():
    network = Network(Path("net"), "a", ("s",), fl.Regression("y"))
    size = re.search(r"client_max_body_size (\d+)m;", setup.render("nginx.conf", network))
    other = re.search(r"max_size (\d+)MB", setup.render("Caddyfile", network))
    assert int(size[1]) * 2**20 == int(other[1]) * 2**20 == gate.MAX_BYTES


def test_sites_are_told_to_try_again_while_the_inside_is_away():
    caller = Caller(gate.create("http://127.0.0.1:9", True))
    assert caller.post("/v1/fleet/pull-messages").status_code == 502


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("::1", "::1"),
        ("10.1.2.3", "0.0.0.0"), ("fl.example.org", "0.0.0.0"), ("2001:db8::1", "::"),
    ],
)  # fmt: skip
def test_loopback_listens_on_loopback_and_plain_text_nowhere_else(host, address):
    assert listening(host) == address
    if address in ("0.0.0.0", "::"):
        with pytest.raises(NetworkError, match="must be a loopback address"):
            listening(host, insecure=True)
    else:
        assert listening(host, insecure=True) == address

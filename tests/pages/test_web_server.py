"""The server of our pages: what it answers, and what whoever reaches its port, or another page, can try."""

import contextlib
import http.client
import socket
import threading
import time

import pytest

from fedlsa.pages import web_server
from fedlsa.pages.web_server import Page, QueryRoute, Shown

TOKEN = "a-token-of-many-letters"


class Stream:
    """An answer that comes in parts, until it is told to end; whether it was closed."""

    def __init__(self):
        self.go, self.closed = threading.Event(), threading.Event()

    def __call__(self, asked):
        def parts():
            try:
                yield b"first\n"
                while not self.go.wait(0.02):
                    yield b""
                yield b"last\n"
            finally:
                self.closed.set()

        return Shown(parts(), web_server.JSON_LINES_KIND)


@pytest.fixture
def stream():
    return Stream()


def routes(stream):
    return {
        "/": lambda: Shown(b"<p>hello</p>", web_server.KINDS["html"]),
        "/echo": QueryRoute(lambda asked: Shown(repr(dict(asked.query)).encode())),
        "/upload": QueryRoute(lambda asked: Shown(str(len(asked.body)).encode()), upload_bytes=2**20),
        "/stream": QueryRoute(stream),
    }


@pytest.fixture
def page(stream):
    shown = Page(routes(stream))
    yield shown
    shown.close()


@pytest.fixture
def guarded(stream):
    shown = Page(routes(stream), token=TOKEN)
    yield shown
    shown.close()


def ask(page, path="/", method="GET", body=None, **headers):
    """(code, headers, body); names of headers with _ for -."""
    link = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
    named = {"Host": f"127.0.0.1:{page.port}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    try:
        link.request(method, path, body, named)
        answer = link.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        link.close()


def test_a_path_answers_its_query_and_others_have_none(page):
    assert ask(page, "/echo?a=1&b=x%20y&c=")[2] == b"{'a': '1', 'b': 'x y', 'c': ''}"
    assert ask(page, "/")[2] == b"<p>hello</p>"
    assert ask(page, "/?a=1")[0] == ask(page, "/nothing")[0] == 404
    assert ask(page, "/echo?" + "&".join(["a=1"] * 201))[0] == 404


@pytest.mark.parametrize(
    "name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "evil.example:127.0.0.1"]
)
def test_a_name_that_somebody_else_made_mean_this_machine_is_refused(page, name):
    """DNS rebinding: the page of an attacker whose name now has the address 127.0.0.1."""
    for path, method in (("/", "GET"), ("/echo?a=1", "GET"), ("/upload", "POST")):
        assert ask(page, path, method, Host=name)[0] == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://localhost:8888"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"},
    ],
)
def test_what_another_page_asks_is_refused(page, headers):
    for path, method in (("/", "GET"), ("/echo?a=1", "GET"), ("/upload", "POST"), ("/stream", "GET")):
        code, _, body = ask(page, path, method, **headers)
        assert (code, body) == (403, b"this page answers to itself alone\n")


def test_a_link_on_another_page_leads_to_the_page_and_to_nothing_else(page):
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert ask(page, "/", **link)[0] == 200
    assert ask(page, "/echo?a=1", **link)[0] == ask(page, "/upload", "POST", b"x", **link)[0] == 403
    own = {"Sec_Fetch_Site": "same-origin", "Origin": f"http://127.0.0.1:{page.port}"}
    assert ask(page, "/upload", "POST", b"xyz", **own)[2] == b"3"


def test_without_the_token_nothing_is_answered_and_with_it_a_cookie_is_given(guarded):
    paths = ("/", "/echo?a=1", "/?token=", "/?token=another", f"/echo?token={TOKEN}", "/?token=%ff")
    assert {ask(guarded, path)[0] for path in paths} == {403}
    assert ask(guarded, "/upload", "POST", b"x")[0] == 403
    name = f"fedlsa-{guarded.port}"
    for cookie in (
        f"{name}=",
        f"{name}=another",
        f"{name}={TOKEN}x",
        f"other={TOKEN}",
        "\x80=;",
        f"{name}={TOKEN[:-1]}",
    ):
        assert ask(guarded, "/echo", Cookie=cookie.encode("latin-1"))[0] == 403
    code, headers, _ = ask(guarded, f"/?a=1&token={TOKEN}")
    assert (code, headers["Location"]) == (303, "/?a=1")  # the address that is copied does not hold it
    assert "HttpOnly" in headers["Set-Cookie"]
    assert ask(guarded, "/echo?a=1", Cookie=headers["Set-Cookie"].split(";")[0])[2] == b"{'a': '1'}"
    assert (
        ask(guarded, "/", Cookie=f"{name}={TOKEN}", Host="lab.example")[0] == 200
    )  # whoever holds it may use any name
    assert ask(guarded, "/", Cookie=f"{name}={TOKEN}", Origin="http://evil.example")[0] == 403


def test_an_upload_is_bounded_before_it_is_read(page):
    assert ask(page, "/upload", "POST", bytes(2**20))[2] == str(2**20).encode()
    assert ask(page, "/upload", "POST", None, Content_Length=str(2**20 + 1))[0] == 413
    for told in ("-1", "1e3", "many", "9" * 5000, "²"):
        assert ask(page, "/upload", "POST", None, Content_Length=told.encode("latin-1"))[0] in (411, 501)
    assert ask(page, "/upload", "GET")[0] == ask(page, "/echo", "POST", b"x")[0] == 501


def test_an_upload_that_stops_half_way_has_its_time(page, monkeypatch):
    monkeypatch.setattr(web_server, "UPLOAD_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", page.port), timeout=30) as link:
        link.sendall(b"POST /upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nhalf")
        assert link.recv(100) == b""
    assert ask(page, "/upload", "POST", b"whole")[2] == b"5"


def test_many_uploads_at_a_time_are_refused_and_do_not_fill_the_memory(page):
    links = [socket.create_connection(("127.0.0.1", page.port), timeout=30) for _ in range(web_server.MAX_UPLOADS)]
    for link in links:
        link.sendall(b"POST /upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n")
    end = time.monotonic() + 30
    while ask(page, "/upload", "POST", b"one more")[0] != 503:
        assert time.monotonic() < end
    assert ask(page)[0] == 200
    for link in links:
        link.close()


def test_an_answer_in_parts_comes_as_it_is_made(page, stream):
    link = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
    link.request("GET", "/stream")
    answer = link.getresponse()
    assert answer.readline() == b"first\n"
    assert not stream.closed.is_set()
    stream.go.set()
    assert answer.read() == b"last\n"
    assert stream.closed.wait(30)
    link.close()


def test_who_goes_away_ends_what_was_asked(page, stream):
    with socket.create_connection(("127.0.0.1", page.port), timeout=30) as link:
        link.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in link.recv(1000)
    assert stream.closed.wait(30)


def test_more_connections_than_places_let_the_oldest_go_and_keep_nobody_out(page, stream):
    with contextlib.ExitStack() as open_links:
        for _ in range(3 * web_server.MAX_CONNECTIONS):
            link = open_links.enter_context(socket.create_connection(("127.0.0.1", page.port), timeout=30))
            link.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ask(page)[0] == 200
        assert len(page._server.connected) <= web_server.MAX_CONNECTIONS
    stream.go.set()


def test_headers_can_be_others_and_a_port_that_is_taken_is_an_error(stream):
    shown = Page(routes(stream), headers=web_server.HEADERS | {"Content-Security-Policy": "default-src 'self'"})
    headers = ask(shown)[1]
    assert headers["Content-Security-Policy"] == "default-src 'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    with pytest.raises(OSError, match="in use"):
        Page(routes(stream), shown.port)
    shown.close()

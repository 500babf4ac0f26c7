"""The page is served to this machine alone, and everything that can be wrong with the command is one line."""

import asyncio
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedlsa import pages
from fedlsa.cli import main
from fedlsa.errors import ArgumentError, MissingExtraError, UnknownNameError
from fedlsa.explore import page_server
from fedlsa.explore.page_settings import PageSettings

CONTROLS = page_server.HEAD.with_name("controls.js")
RING = "agents=2&rounds=3&local_steps=2"


async def hello(scope, receive, send):
    """A page that answers everybody."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
        await send({"type": "http.response.body", "body": b"hello"})
    elif scope["type"] == "websocket":
        await send({"type": "websocket.accept"})


def answered(served, kind="http", **headers):
    """What a guarded page says to a request with these headers."""
    said = []

    async def send(message):
        said.append(message)

    scope = {"type": kind, "path": "/", "headers": [(k.encode(), v.encode()) for k, v in headers.items()]}
    asyncio.run(page_server.Guard(hello, served)(scope, None, send))
    return said


def let_in(said):
    return said[0]["type"] == "websocket.accept" or said[0].get("status") == 200


def test_names_of_this_machine_are_let_in():
    for name in ("127.0.0.1:8123", "localhost:8123", "localhost", "127.0.0.1", "[::1]:8123", "[::1]"):
        for served in page_server.LOOPBACK:
            assert let_in(answered(served, host=name)), name
            assert let_in(answered(served, "websocket", host=name, origin=f"http://{name}")), name


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8123"},
        {"host": "localhost.evil.example:8123"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "evil.example:127.0.0.1"},
        {"host": "127.0.0.1@evil.example"},
        {"host": "192.168.1.5:8123"},
        {"host": "localhost:8123", "origin": "http://evil.example"},
        {"host": "localhost:8123", "origin": "https://evil.example:8123"},
        {"host": "localhost:8123", "origin": "https://localhost.evil.example"},
        {"host": "localhost:8123", "origin": "http://evil.example://localhost"},
        {"host": "localhost:8123", "origin": "http://localhost:8888"},
        {"host": "localhost:8123", "origin": "localhost:8123"},
        {"host": "localhost:8123", "origin": ""},
        {"host": "localhost:8123", "origin": "null"},
        {"host": "localhost:8123", "origin": "file://"},
        {"host": "evil.example", "origin": "http://localhost:8123"},
    ],
)
def test_pages_of_others_are_refused(headers):
    said = answered("127.0.0.1", **headers)
    assert said[0]["status"] == 403
    assert b"hello" not in said[1]["body"]
    assert answered("127.0.0.1", "websocket", **headers) == [{"type": "websocket.close", "code": 1008}]


def test_the_page_is_not_made_as_a_picture():
    asked = {"host": "localhost", "sec-fetch-dest": "image"}
    assert answered("127.0.0.1", **asked)[0]["status"] == 404
    assert let_in(answered("127.0.0.1", **{**asked, "sec-fetch-dest": "document"}))


def test_every_answer_forbids_the_browser_to_fetch_from_elsewhere():
    for host in ("127.0.0.1", "0.0.0.0"):
        headers = dict(answered(host, host="localhost")[0]["headers"])
        assert headers[b"x-own"] == b"1"
        policy = headers[b"content-security-policy"].decode()
        assert "default-src 'self'" in policy
        assert "http" not in policy
        assert "data:" not in policy.split("script-src")[1].split(";")[0]


def test_a_host_that_the_user_chose_answers_to_every_name():
    for headers in ({"host": "lab.example:80"}, {"host": "lab.example", "origin": "http://lab.example"}):
        assert let_in(answered("0.0.0.0", **headers))
        assert let_in(answered("192.168.1.5", "websocket", **headers))


def test_what_is_no_request_passes_untouched():
    assert answered("127.0.0.1", "lifespan") == []


def test_a_port_that_is_taken_is_one_line():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(
            ArgumentError, match=rf"^host and port must be free to listen on; got '127.0.0.1:{port}' \("
        ):
            page_server._listen("127.0.0.1", port)


def test_a_port_is_taken_once():
    with page_server._listen("127.0.0.1", 0) as first, pytest.raises(ArgumentError, match=r"in use"):
        page_server._listen("127.0.0.1", first.getsockname()[1])


@pytest.mark.parametrize("host", ["256.1.1.1", "a" * 300, "no such host", "198.51.100.7", "", "fe80::zz", "x\0y"])
def test_a_host_that_cannot_be_listened_on_is_one_line(host):
    with pytest.raises(ArgumentError, match=r"^host.* must be .*; got ") as caught:
        page_server._listen(host, 0)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_the_page_becomes_a_notebook_of_ones_own(tmp_path):
    page_server.copy_notebook(tmp_path / "new" / "mine.py")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["explore.css", "mine.py", "page_head.html"]
    text = (tmp_path / "new" / "mine.py").read_text(encoding="utf-8")
    compile(text, "mine.py", "exec")
    assert text == page_server.NOTEBOOK.read_text(encoding="utf-8")
    assert (tmp_path / "new" / "explore.css").read_text() == page_server.STYLE.read_text()
    head = (tmp_path / "new" / "page_head.html").read_text(encoding="utf-8")
    assert all(script in head for script in (*pages.scripts("scene").values(), CONTROLS.read_text("utf-8")))
    assert "src=" not in head
    with pytest.raises(UnknownNameError, match=r"the suffix of 'mine\.txt' must be '\.py'"):
        page_server.copy_notebook(Path("mine.txt"))


@pytest.mark.parametrize("mode", ["edit", "run"])
def test_a_notebook_that_is_edited_brings_its_scripts_which_marimo_leaves_out(mode, monkeypatch):
    marimo = pytest.importorskip("marimo", reason="marimo is not installed")
    from fedlsa.explore import controls

    monkeypatch.setattr(marimo, "app_meta", lambda: SimpleNamespace(mode=mode))
    texts = [b64decode(text).decode() for text in re.findall(r"base64,([^\"]+)", controls.scripts().text)]
    every = [*pages.scripts("scene").values(), CONTROLS.read_text("utf-8")]
    assert texts == (every if mode == "edit" else [])


@pytest.mark.parametrize("library", ["marimo", "uvicorn"])
def test_a_page_without_its_libraries_says_what_to_install(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedlsa\[explore\]'"):
        page_server.serve(PageSettings(), browser=False)


@pytest.fixture
def fedlsa(capsys, tmp_path, monkeypatch):
    """Run `fedlsa explore` in an empty folder: its exit code, what it printed, what it complained of."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = main(["explore", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("nonsense", "settings must be an address of the page"),
        ("agents=0", "the setting agents must be a positive integer and at most 200; got 0"),
        ("step_size=fast", "the setting step_size must be a number; got 'fast'"),
        ("colour=red", "names must be of the page's settings; got 'colour'"),
        ("--port 70000", "--port must be less than or equal to 65535; got '70000'"),
        ("--port -1", "--port must be greater than or equal to 0; got '-1'"),
        ("--port many", "'many'"),
        ("--host ''", "host must be an address or a name"),
        ("--host no.such.host.invalid", "must be free to listen on"),
        ("--file nowhere.csv", "nowhere.csv"),
        ("--file .", "must be a file; it is a folder"),
        ("--save error.jpg", "the suffix of 'error.jpg' must be one of"),
        ("--save error", "the suffix of 'error' must be one of"),
        ("--agents --save error.csv", "the suffix of 'error.csv' must be one of"),
        ("--agents --simulated --save a.png", "--simulated must stand without --agents"),
        ("--agents", "--agents must stand with --save"),
        ("--simulated", "--simulated must stand with --save"),
        ("problem=files --save a.png", "files must hold one file per site"),
        ("problem=files --file nowhere.csv --save a.png", "target must be the column"),
        ("'problem=files&target=y' --file nowhere.csv --save a.png", "nowhere.csv"),
        ("--file nowhere.csv --save a.png", "--file must stand with the setting problem=files; got problem=ring"),
        ("sampling=markov --save a.png", "observations must be independent"),
        ("--copy mine.txt", "the suffix of 'mine.txt' must be '.py'"),
        ("--copy mine.py --save a.png", "--copy must stand without --save; got both"),
        ("--save taken/below/error.png", "--save cannot write"),
        ("--copy taken/below/mine.py", "cannot write"),
        ("--colour red", "--colour"),
        ("a=1 b=2", "b=2"),
    ],
)
def test_a_wrong_option_is_one_line(fedlsa, arguments, complaint):
    Path("taken").write_text("a file where a folder would have to be")
    code, out, err = fedlsa(*shlex.split(arguments), "--no-browser")
    assert (code, out) == (2, "")
    assert complaint.lower() in err.lower()
    assert err.startswith("fedlsa: ")
    assert err.count("\n") == 1
    assert [p.name for p in Path().iterdir()] == ["taken"]


@pytest.mark.parametrize("arguments", [("--save", "error.csv"), ("--copy", "error.py"), ("--copy", "new.py")])
def test_nothing_is_overwritten_without_force(fedlsa, arguments):
    names = ("error.csv", "error.py", "page_head.html")
    for name in names:
        Path(name).write_text("mine")
    code, out, err = fedlsa(RING, *arguments)
    assert (code, out) == (2, "")
    assert "exists; --force replaces it" in err
    assert [Path(name).read_text() for name in names] == ["mine"] * 3
    assert not Path("new.py").exists()
    code, out, err = fedlsa(RING, *arguments, "--force")
    assert (code, err) == (0, "")
    assert Path(arguments[1]).read_text() != "mine"
    assert f"saved {arguments[1]}" in out


def test_pictures_can_be_saved_without_the_libraries_of_the_page(fedlsa, monkeypatch):
    for library in ("marimo", "uvicorn"):
        monkeypatch.setitem(sys.modules, library, None)
    assert fedlsa(RING, "--save", "error.csv", "--save", "error.svg")[0] == 0
    assert fedlsa(RING, "--save", "agents.svg", "--agents")[0] == 0
    code, out, err = fedlsa()
    assert (code, out) == (2, "")
    assert "pip install 'fedlsa[explore]'" in err


def test_the_page_ends_when_told_to_although_a_page_is_open_and_leaves_nothing_behind(tmp_path):
    client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")
    pytest.importorskip("marimo", reason="marimo is not installed")
    command = [sys.executable, "-c", "import sys; from fedlsa.cli import main; sys.exit(main())"]
    command += ["explore", "agents=2", "--no-browser"]
    page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)})
    try:
        line = page.stdout.readline()
        port = int(re.fullmatch(r"fedlsa explore: http://127\.0\.0\.1:(\d+)/\?agents=2  \(Ctrl-C ends it\)\n", line)[1])
        address = f"ws://127.0.0.1:{port}/ws?session_id=s_tests1"
        with pytest.raises(Exception, match=r"403"):
            client.connect(address, origin="http://evil.example")
        with client.connect(address, origin=f"http://127.0.0.1:{port}") as open_page:
            while "ends at" not in str(open_page.recv(timeout=60)):  # the curves and what is said of them
                pass
            page.send_signal(signal.SIGTERM)  # what Ctrl-C does, and more: it would end without tidying up
            assert page.wait(timeout=60) == 0
    finally:
        page.kill()
        page.wait()
        page.stdout.close()
    assert not list(tmp_path.glob("fedlsa-explore-*"))


def test_the_pool_hears_which_pages_come_and_go():
    heard = []

    class Listener:
        def connect(self, session):
            heard.append(("connect", session))

        def disconnect(self, session):
            heard.append(("disconnect", session))

    async def app(scope, receive, send):
        heard.append("served")
        raise RuntimeError("the page fails")

    guard = page_server.Guard(app, "127.0.0.1", Listener())
    scope = {"type": "websocket", "query_string": b"agents=3&session_id=s_1", "headers": [(b"host", b"localhost")]}
    with pytest.raises(RuntimeError):
        asyncio.run(guard(scope, None, None))
    assert heard == [("connect", "s_1"), "served", ("disconnect", "s_1")]


def test_other_commands_do_without_the_libraries_of_the_page(tmp_path):
    code = (
        "import sys; from fedlsa.cli import main; "
        "main(['--help']); main(['explore', '--help']); "
        "main(['simulate', '--agents', '2', '--rounds', '2', '--local-steps', '2', '--seeds', '1', '--quiet']); "
        "held = {m.split('.')[0] for m in sys.modules} & {'marimo', 'uvicorn', 'starlette'}; "
        "print('held:', held)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-1] == "held: set()"
    assert "explore" in done.stdout

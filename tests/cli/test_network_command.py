"""`fedlsa network` parses, calls one function and prints; wrong input gets one line, and danger is said loudly."""

import json
import sys
from pathlib import Path

import pytest
from refusals import refused

from fedlsa.errors import ArgumentError
from fedlsa.network.coordinator import commands, runs
from fedlsa.network.coordinator import commands as coordinator
from fedlsa.network.folder.config import Network
from fedlsa.network.protocol.run_settings import StartOptions
from fedlsa.network.site import join as joining


@pytest.fixture
def called(monkeypatch):
    """What the functions behind the commands were called with."""
    calls = []

    def note(name, answer):
        def stub(*arguments, **named):
            named.pop("say", None)
            calls.append((name, *map(str, arguments[:1]), *arguments[1:], named))
            return answer

        return stub

    for name, answer in (("run", type("Run", (), {"name": "trial"})), ("status", "two lines\nof it"), ("stop", "ends"),
                         ("outcome", {"theta": 1})):  # fmt: skip
        monkeypatch.setattr(coordinator, name, note(name, answer))
    monkeypatch.setattr(runs, "summary", lambda content: list(content))
    monkeypatch.setattr(commands, "serve", note("serve", None))
    monkeypatch.setattr(joining, "join", note("join", None))
    return calls


def test_serve_shows_a_page_unless_told_not_to(fedlsa, net, called):
    assert fedlsa("network", "serve", net) == (0, "", "")
    assert fedlsa("network", "serve", net, "--no-page") == (0, "", "")
    assert fedlsa("network", "serve", net, "--page-port", 8000, "--page-address", "0.0.0.0") == (0, "", "")
    assert [(name, folder, given["page"]) for name, folder, given in called] == [
        ("serve", "net", (None, "127.0.0.1")),
        ("serve", "net", None),
        ("serve", "net", (8000, "0.0.0.0")),
    ]


def test_warnings_go_to_standard_error(fedlsa, net, monkeypatch):
    monkeypatch.setattr(commands, "serve", lambda folder, say, **how: say("WARNING: the certificate ends soon"))
    assert fedlsa("network", "serve", net) == (0, "", "fedlsa: WARNING: the certificate ends soon\n")


def test_run_passes_every_option_on(fedlsa, net, called):
    words = ["--method", "scaffnew", "--step-size", 0.1, "--local-steps", 50, "--rounds", 20, "--seed", 3]
    words += ["--local", "means", "--weight", "samples", "--min-sites", 3, "--deadline", 30, "--participants", "3"]
    words += ["--clip", 2, "--trim", 1, "--quantise", 16, "--noise", 0.5, "--patience", 4, "--absence", "freeze"]
    assert fedlsa("network", "run", net, *words, "--name", "trial", "--detach") == (0, "", "")
    asked = StartOptions(
        method="scaffnew", step_size=0.1, local_steps=50, rounds=20, seed=3, local="means", weight="samples",
        min_sites=3, deadline=30, participants=3, clip=2, trim=1, quantise=16, noise=0.5, patience=4, absence="freeze",
        name="trial",
    )  # fmt: skip
    assert fedlsa("network", "run", net, "--epsilon", 0.02) == (0, "theta\n", "")
    assert called == [
        ("run", "net", asked, {"detach": True}),
        ("run", "net", StartOptions(epsilon=0.02), {"detach": False}),
        ("outcome", "net", "trial", {}),
    ]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "--epsilon alone, or --step-size, --local-steps and --rounds together, must be given; got none"),
        (["--step-size", "0.1"], "must be given; got --step-size"),
        (["--epsilon", "0.1", "--noise", "1"], "--noise must come with clip"),
        (["--epsilon", "0.1", "--quantise", "9"], "--quantise must be 8 or 16 bits; got 9"),
        (["--epsilon", "0.1", "--min-sites", "5"], "--min-sites must be"),
        (["--epsilon", "0.1", "--trim", "2"], "--min-sites must be above twice trim (4)"),
        (["--epsilon", "0.1", "--method", "scafflas"], "did you mean 'scafflsa'?"),
        (["--epsilon", "0.1", "--participation", "half"], "--participation must be a share"),
        (["--epsilon", "0.1", "--participants", "9"], "--participants must be a positive integer and at most 4; got 9"),
        (["--epsilon", "0.1", "--seed", "-1"], "--seed must be"),
        (["--epsilon", "0.1", "--name", "a/b"], "--name must be made of letters"),
        (["--epsilon", "nan"], "--epsilon must be"),
    ],
)
def test_run_refuses_what_cannot_be_run(fedlsa, net, called, words, complaint):
    refused(fedlsa("network", "run", net, *words), complaint)
    assert called == []


def test_status_stop_and_result_print_what_they_are_told(fedlsa, net, called, tmp_path):
    assert fedlsa("network", "status", net) == (0, "two lines\nof it\n", "")
    assert fedlsa("network", "stop", net, "trial") == (0, "ends\n", "")
    assert fedlsa("network", "result", net, "--out", "deep/r.json") == (0, "theta\nsaved deep/r.json\n", "")
    assert [c[:-1] for c in called] == [("status", "net", None), ("stop", "net", "trial"), ("outcome", "net", None)]
    made = "fedlsa network result net --out deep/r.json"
    assert json.loads((tmp_path / "deep" / "r.json").read_text()) == {"theta": 1, "command": made}
    refused(fedlsa("network", "result", net, "--out", "r.txt"), "'.json'")
    (tmp_path / "r.json").write_text("")
    refused(fedlsa("network", "result", net, "--out", "r.json"), "r.json exists; --force replaces it")


@pytest.mark.parametrize("command", ["serve", "run", "status", "stop", "result", "renew", "revoke", "remove-site"])
def test_a_folder_that_is_no_network_is_named(fedlsa, command):
    more = {"run": ["--epsilon", 1], "revoke": ["site-1"], "remove-site": ["site-1"]}.get(command, [])
    refused(fedlsa("network", command, "nowhere", *more), "nowhere is not a network's folder")


def test_join_passes_on_what_was_given(fedlsa, net, called):
    assert fedlsa("network", "join", "s", "--data", "d.csv", "--proxy", "http://p:1", "--yes") == (0, "", "")
    name, folder, given = called[0]
    assert (name, folder) == ("join", "s")
    assert given.pop("agree")() is True
    assert given.pop("page") == (None, "127.0.0.1")
    assert {k: str(v) for k, v in given.items() if v is not None} == {"data": "d.csv", "proxy": "http://p:1"}
    refused(fedlsa("network", "join", "s"), "--data or --loader must be given, one of them; got neither")
    refused(fedlsa("network", "join", "s", "--data", "d.csv", "--loader", "m:f"), "got both")


def test_join_asks_unless_told_and_says_so_where_nobody_can_answer(fedlsa, net, called, monkeypatch):
    assert fedlsa("network", "join", "b", "--data", "d.csv")[0] == 0
    agree = called[0][-1]["agree"]
    with pytest.raises(ArgumentError, match="--yes must be given"):
        agree()
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    for answer in (True, False):
        monkeypatch.setattr("typer.confirm", lambda text, default, answer=answer: answer)
        assert agree() is answer


def test_join_names_a_folder_that_is_none_and_one_without_a_certificate(fedlsa, net):
    refused(fedlsa("network", "join", "nowhere", "--data", "d.csv"), "nowhere is not a site's folder")
    assert fedlsa("network", "enrol", Network.load(net).bundle("site-1"), "--folder", "s")[0] == 0
    Path("s/site-1.pem").unlink()
    refused(
        fedlsa("network", "join", "s", "--data", "d.csv"), "site-1 has no certificate: fedlsa network enrol s makes"
    )


def test_help_names_every_command(fedlsa):
    code, out, _ = fedlsa("network", "--help")
    assert code == 0
    for command in (
        "init",
        "serve",
        "run",
        "status",
        "stop",
        "result",
        "join",
        "demo",
        "enrol",
        "approve",
        "revoke",
        "renew",
    ):
        assert f" {command} " in out

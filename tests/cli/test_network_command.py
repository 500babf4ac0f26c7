"""`fedlsa network` parses, calls one function and prints; wrong input gets one line, and danger is said loudly."""

import shutil
import stat
import sys

import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.network.coordinator import commands as coordinator
from fedlsa.network.coordinator import serving
from fedlsa.network.folder import setup
from fedlsa.network.folder.config import Bundle, Network
from fedlsa.network.protocol.run_settings import StartOptions
from fedlsa.network.site import join as joining

pytest.importorskip("cryptography")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A network of four sites that nobody changes."""
    return setup.init(tmp_path_factory.mktemp("made") / "net", 4, "127.0.0.1", task=fl.Regression("charges"))


@pytest.fixture
def net(made, fedlsa, tmp_path):
    """The name of a copy of it in the folder where commands run."""
    shutil.copytree(made.folder, tmp_path / "net")
    return "net"


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

    for name, answer in (("start", None), ("status", "two lines\nof it"), ("stop", "ends"),
                         ("result", "theta")):  # fmt: skip
        monkeypatch.setattr(coordinator, name, note(name, answer))
    monkeypatch.setattr(serving, "serve", note("serve", None))
    monkeypatch.setattr(joining, "join", note("join", None))
    return calls


def refused(ran, *words):
    """The command ended with code 2 and one line that holds all words; nothing was printed."""
    code, out, err = ran
    assert (code, out) == (2, "")
    assert err.startswith("fedlsa: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_init_makes_the_folder_and_says_how_to_go_on(fedlsa):
    words = ["--site", "lisbon", "--site", "oslo", "--host", "fl.example.org", "--port", 7000, "--inner-port", 7100]
    code, out, err = fedlsa("network", "init", "deep/net", *words)
    assert (code, err) == (0, "")
    assert "a regression of the column 'y' on all others" in out
    assert "it holds a private key" in out
    assert "fedlsa network serve deep/net" in out
    made = Network.load("deep/net")
    assert (made.sites, made.port, made.inner_port, made.task) == (("lisbon", "oslo"), 7000, 7100, fl.Regression("y"))
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("words", "task"),
    [
        (["--target", "t"], fl.Regression("t")),
        (["--target", "t", "--features", "a,b", "--no-intercept", "--ridge", "0.5"],
         fl.Regression("t", ["a", "b"], intercept=False, ridge=0.5)),
        (["--no-standardise"], fl.Regression("y", standardise=False)),
        (["--discount", "0.9"], fl.Value(0.9)),
        (["--discount", "0.9", "--trace", "0.5", "--features", "OneHot(5)", "--state", "x,z", "--next-state", "u,w",
          "--reward", "gain", "--intercept"],
         fl.Value(0.9, 0.5, state=["x", "z"], next_state=["u", "w"], reward="gain", intercept=True,
                  features=fl.problems.features.OneHot(5))),
    ],
)  # fmt: skip
def test_init_takes_a_task(fedlsa, words, task):
    code, out, err = fedlsa("network", "init", "net", "--sites", 2, "--host", "localhost", *words)
    assert (code, err) == (0, "")
    assert "column 'y' on all others" not in out
    assert Network.load("net").task == task


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--host", "a"], "--sites or --site must be given, one of them; got neither"),
        (["--host", "a", "--sites", "2", "--site", "x"], "got both"),
        (["--host", "a:9", "--sites", "2"], "--host must be an IP address or a host name"),
        (["--sites", "2"], "Missing option '--host'"),
        (["--host", "a", "--sites", "0"], "--sites must be a positive integer and at most 1000; got 0"),
        (["--host", "a", "--site", "a_b"], "must be made of letters, digits and dashes"),
        (["--host", "a", "--site", "x", "--site", "x"], "--sites must have each name once; got 'x' twice"),
        (["--host", "a", "--sites", "2", "--port", "70000"], "--port must be"),
        (["--host", "a", "--sites", "2", "--inner-port", "9092"], "--inner-port must differ from port"),
        (["--host", "a", "--sites", "2", "--trace", "0.5"], "which needs --discount; got 0.5"),
        (["--host", "a", "--sites", "2", "--discount", "0.5", "--ridge", "1"], "--ridge must not be given"),
        (["--host", "a", "--sites", "2", "--discount", "1"], "--discount must be"),
    ],
)
def test_init_refuses_what_makes_no_network(fedlsa, tmp_path, words, complaint):
    refused(fedlsa("network", "init", "net", *words), complaint)
    assert list(tmp_path.iterdir()) == []


def test_init_overwrites_nothing(fedlsa, net):
    refused(fedlsa("network", "init", net, "--sites", 2, "--host", "localhost"), "must be new or empty", "'net'")


def test_serve_shows_a_page_unless_told_not_to(fedlsa, net, called):
    assert fedlsa("network", "serve", net) == (0, "", "")
    assert fedlsa("network", "serve", net, "--no-page") == (0, "", "")
    assert called == [("serve", "net", {"page": True}), ("serve", "net", {"page": False})]


def test_warnings_go_to_standard_error(fedlsa, net, monkeypatch):
    monkeypatch.setattr(serving, "serve", lambda folder, say, **how: say("WARNING: the certificate ends soon"))
    assert fedlsa("network", "serve", net) == (0, "", "fedlsa: WARNING: the certificate ends soon\n")


def test_start_passes_every_option_on(fedlsa, net, called):
    words = ["--method", "scaffnew", "--step-size", 0.1, "--local-steps", 50, "--rounds", 20, "--seed", 3]
    words += ["--local", "means", "--weight", "samples", "--min-sites", 3, "--deadline", 30, "--participants", "3"]
    words += ["--clip", 2, "--trim", 1, "--quantise", 16, "--noise", 0.5, "--patience", 4, "--policy", "freeze"]
    assert fedlsa("network", "start", net, *words, "--name", "trial", "--detach") == (0, "", "")
    asked = StartOptions(
        method="scaffnew", step_size=0.1, local_steps=50, rounds=20, seed=3, local="means", weight="samples",
        min_sites=3, deadline=30, participants=3, clip=2, trim=1, quantise=16, noise=0.5, patience=4, policy="freeze",
        name="trial",
    )  # fmt: skip
    assert fedlsa("network", "start", net, "--epsilon", 0.02)[0] == 0
    assert called == [
        ("start", "net", asked, {"detach": True}),
        ("start", "net", StartOptions(epsilon=0.02), {"detach": False}),
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
        (
            ["--epsilon", "0.1", "--participants", "9"],
            "--participants must be a positive integer and at most 4; got 9",
        ),
        (["--epsilon", "0.1", "--seed", "-1"], "--seed must be"),
        (["--epsilon", "0.1", "--name", "a/b"], "--name must be made of letters"),
        (["--epsilon", "nan"], "--epsilon must be"),
    ],
)
def test_start_refuses_what_cannot_be_run(fedlsa, net, called, words, complaint):
    refused(fedlsa("network", "start", net, *words), complaint)
    assert called == []


def test_status_stop_and_result_print_what_they_are_told(fedlsa, net, called, tmp_path):
    assert fedlsa("network", "status", net) == (0, "two lines\nof it\n", "")
    assert fedlsa("network", "stop", net, "--name", "trial") == (0, "ends\n", "")
    assert fedlsa("network", "result", net, "--out", "deep/r.json") == (0, "theta\nsaved deep/r.json\n", "")
    assert [c[:-1] for c in called] == [("status", "net", None), ("stop", "net", "trial"), ("result", "net", None)]
    assert (tmp_path / "deep").is_dir()
    refused(fedlsa("network", "result", net, "--out", "r.txt"), "'.json'")
    (tmp_path / "r.json").write_text("")
    refused(fedlsa("network", "result", net, "--out", "r.json"), "r.json exists; --force replaces it")


@pytest.mark.parametrize(
    "command", ["serve", "start", "status", "stop", "result", "renew", "rotate-key", "remove-site"]
)
def test_a_folder_that_is_no_network_is_named(fedlsa, command):
    more = {"start": ["--epsilon", 1], "rotate-key": ["site-1"], "remove-site": ["site-1"]}.get(command, [])
    refused(fedlsa("network", command, "nowhere", *more), "nowhere is not a network's folder")


def test_join_passes_on_what_was_given(fedlsa, net, called):
    assert fedlsa("network", "join", "s", "--data", "d.csv", "--proxy", "http://p:1", "--yes") == (0, "", "")
    name, folder, given = called[0]
    assert (name, folder) == ("join", "s")
    assert given.pop("agree")() is True
    assert {k: v and str(v) for k, v in given.items()} == {"data": "d.csv", "loader": None, "proxy": "http://p:1"}
    refused(fedlsa("network", "join", "s"), "--data or --loader must be given, one of them; got neither")
    refused(fedlsa("network", "join", "s", "--data", "d.csv", "--loader", "m:f"), "got both")


def test_join_asks_unless_told_and_says_so_where_nobody_can_answer(fedlsa, net, called, monkeypatch):
    assert fedlsa("network", "join", "b.zip", "--data", "d.csv")[0] == 0
    agree = called[0][-1]["agree"]
    with pytest.raises(ArgumentError, match="--yes must be given"):
        agree()
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    for answer in (True, False):
        monkeypatch.setattr("typer.confirm", lambda text, default, answer=answer: answer)
        assert agree() is answer


def test_join_names_a_folder_that_is_none_and_one_without_a_certificate(fedlsa, net):
    refused(fedlsa("network", "join", "nowhere", "--data", "d.csv"), "nowhere is not a site's folder")
    assert fedlsa("network", "request", Network.load(net).bundle("site-1"), "--folder", "s")[0] == 0
    refused(fedlsa("network", "join", "s", "--data", "d.csv"), "has no certificate yet")


def test_keys_sites_and_certificates_change_from_the_command_line(fedlsa, net):
    made = Network.load(net)
    key, certificate = made.public_key("site-2").read_bytes(), made.certificate.read_bytes()
    code, out, err = fedlsa("network", "rotate-key", net, "site-2")
    assert (code, err) == (0, "")
    assert "send it net/bundles/site-2.zip, and restart serve" in out
    assert made.public_key("site-2").read_bytes() != key
    assert fedlsa("network", "renew", net)[0] == 0
    assert made.certificate.read_bytes() != certificate
    assert fedlsa("network", "add-site", net, "oslo")[0] == 0
    assert fedlsa("network", "remove-site", net, "site-1")[0] == 0
    assert Network.load(net).sites == ("site-2", "site-3", "site-4", "oslo")
    assert Bundle.open(made.bundle("oslo")).task == fl.Regression("charges")
    refused(fedlsa("network", "rotate-key", net, "site-1"), "site must be one of")
    refused(fedlsa("network", "add-site", net, "a b"), "letters, digits and dashes")


def test_a_missing_extra_is_one_line(fedlsa, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    refused(fedlsa("network", "init", "net", "--sites", 1, "--host", "a"), "pip install 'fedlsa[network]'")


def test_help_names_every_command(fedlsa):
    code, out, _ = fedlsa("network", "--help")
    assert code == 0
    for command in ("init", "serve", "start", "status", "stop", "result", "join", "demo", "rotate-key", "renew"):
        assert f" {command} " in out

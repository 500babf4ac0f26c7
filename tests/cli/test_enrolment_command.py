"""`fedlsa network` makes networks and brings sites in; wrong input gets one line; a person compares fingerprints."""

import io
import shutil
import stat
import sys

import pytest

import fedlsa as fl
from fedlsa.network.folder import certificates, enrolment, setup
from fedlsa.network.folder.config import Network, SiteFolder


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
def asked(net, tmp_path):
    """The fingerprint of the first site, which has made its keys and its request."""
    site = enrolment.request("net/bundles/site-1.zip", "site-1")
    return certificates.fingerprint(site.request.read_bytes())


def refused(ran, *words):
    """The command ended with code 2 and one line that holds all words; nothing was printed."""
    code, out, err = ran
    assert (code, out) == (2, "")
    assert err.startswith("fedlsa: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_init_makes_the_folder_and_says_how_to_go_on(fedlsa):
    words = ["--site", "lisbon", "--site", "oslo", "--host", "fl.example.org", "--port", 7000, "--page-port", 7100]
    code, out, err = fedlsa("network", "init", "deep/net", *words)
    assert (code, err) == (0, "")
    assert "a regression of the column 'y' on all others" in out
    assert "it holds no secret" in out
    made = Network.load("deep/net")
    assert (
        f"the network's fingerprint, to be read to every site over the telephone: {certificates.grouped(made.id)}"
        in out
    )
    for line in ("request lisbon.zip", "approve deep/net lisbon.csr", "serve deep/net"):
        assert f"fedlsa network {line}\n" in out
    assert (made.sites, made.port, made.page_port, made.task) == (("lisbon", "oslo"), 7000, 7100, fl.Regression("y"))
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("words", "task"),
    [
        (["--target", "t"], fl.Regression("t")),
        (["--target", "t", "--columns", "a,b", "--no-intercept", "--ridge", "0.5"],
         fl.Regression("t", ["a", "b"], intercept=False, ridge=0.5)),
        (["--no-standardise"], fl.Regression("y", standardise=False)),
        (["--target", "log(y) ~ a + C(b)", "--offset", "o", "--missing", "drop"],
         fl.Regression("log(y) ~ a + C(b)", offset="o", missing="drop")),
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
        (["--host", "a", "--sites", "2", "--page-port", "9092"], "--page-port must differ from port"),
        (["--host", "a", "--sites", "2", "--row-weights", "w"], "--row-weights must not be given on a network"),
        (["--host", "a", "--sites", "2", "--target", "y ~ eval(x)"], "the functions of a formula are"),
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


def test_a_site_comes_in_by_the_commands_to_the_letter(fedlsa, net, tmp_path):
    shutil.copy("net/bundles/site-1.zip", "site-1.zip")
    code, out, err = fedlsa("network", "request", "site-1.zip")
    assert (code, err) == (0, "")
    site, network = SiteFolder.load("site-1"), Network.load(net)
    fingerprint = certificates.fingerprint(site.request.read_bytes())
    assert f"your fingerprint, which you read to them:           {fingerprint}\n" in out
    assert f"they read to you:  {certificates.grouped(network.id)}\n" in out
    assert "send this file, and nothing else, to the coordinator: site-1/site-1.csr\n" in out
    assert "fedlsa network install site-1 site-1.pem\n" in out
    code, out, err = fedlsa("network", "approve", net, "site-1/site-1.csr", "--fingerprint", fingerprint)
    assert (code, err) == (0, "")
    assert "send it net/sites/site-1.pem, which is no secret" in out
    shutil.copy("net/sites/site-1.pem", "site-1.pem")
    code, out, err = fedlsa("network", "install", "site-1", "site-1.pem")
    assert (code, err) == (0, "")
    assert "read and edit what may leave this site: site-1/policy.toml\n" in out
    assert "fedlsa network join site-1 --data FILE.parquet\n" in out
    site.check_certificate()


def test_approve_shows_the_fingerprint_and_asks_a_person(fedlsa, net, asked, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for typed in ("n\n", "\n", "x\nn\n"):
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        code, out, err = fedlsa("network", "approve", net, "site-1/site-1.csr")
        assert code == 2
        assert asked in out
        assert "a request of site-1" in out
        assert "telephone the site" in out
        assert "not approved: site-1 has no new certificate" in err
        assert not Network.load(net).site_certificate("site-1").exists()
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    code, out, _ = fedlsa("network", "approve", net, "site-1/site-1.csr")
    assert code == 0
    assert "approved site-1 until" in out
    assert Network.load(net).site_certificate("site-1").is_file()


def test_approve_refuses_without_a_person_and_with_a_wrong_fingerprint(fedlsa, net, asked, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    words = ("network", "approve", net, "site-1/site-1.csr")
    refused(fedlsa(*words), "--fingerprint must be given where nobody can be asked; got no terminal")
    wrong = "0000" + asked[4:] if asked[:4] != "0000" else "1" + asked[1:]
    refused(fedlsa(*words, "--fingerprint", wrong), "--fingerprint must be that of the request", wrong)
    assert not Network.load(net).site_certificate("site-1").exists()
    assert fedlsa(*words, "--fingerprint", asked)[0] == 0
    refused(fedlsa(*words, "--fingerprint", asked), "site-1 has a certificate already", "--renew replaces it")
    assert fedlsa(*words, "--fingerprint", asked, "--renew")[0] == 0


def test_a_revoked_site_comes_back_with_new_keys(fedlsa, net, asked):
    words = ("network", "approve", net, "site-1/site-1.csr", "--fingerprint")
    assert fedlsa(*words, asked)[0] == 0
    code, out, err = fedlsa("network", "revoke", net, "site-1")
    assert (code, err) == (0, "")
    assert "refused from now on" in out
    refused(fedlsa("network", "revoke", net, "site-1"), "has no certificate")
    refused(fedlsa(*words, asked), "the site must make new ones (fedlsa network request FOLDER --new-key)")
    code, out, err = fedlsa("network", "request", "site-1", "--new-key")
    assert (code, err) == (0, "")
    fresh = certificates.fingerprint(SiteFolder.load("site-1").request.read_bytes())
    assert fresh in out
    assert fedlsa(*words, fresh)[0] == 0
    assert fedlsa("network", "install", "site-1", "net/sites/site-1.pem")[0] == 0
    SiteFolder.load("site-1").check_certificate()


def test_what_is_no_bundle_request_certificate_or_folder_is_named(fedlsa, net, asked, tmp_path):
    (tmp_path / "junk").write_bytes(b"\x1b[2J junk")
    refused(fedlsa("network", "request", "none.zip"), "there is no bundle none.zip")
    refused(fedlsa("network", "request", "junk"), "junk is not a bundle, or is damaged")
    refused(fedlsa("network", "request", "net"), "net is not a site's folder")
    refused(
        fedlsa("network", "request", "net/bundles/site-2.zip", "--folder", "site-1"), "another site, network or task"
    )
    for name, what in (("none", "cannot read the request none"), ("junk", "no request"), ("net", "is not a file")):
        refused(fedlsa("network", "approve", net, name, "--fingerprint", asked), what)
    for name, what in (("none", "cannot read the certificate none"), ("junk", "no request or certificate")):
        refused(fedlsa("network", "install", "site-1", name), what)
    refused(fedlsa("network", "install", net, "net/server.pem"), "net is not a site's folder")
    refused(fedlsa("network", "install", "site-1", "net/server.pem"), "the subject must hold")
    refused(fedlsa("network", "approve", "nowhere", "junk"), "nowhere is not a network's folder")


def test_sites_and_certificates_change_from_the_command_line(fedlsa, net):
    made = Network.load(net)
    certificate = made.certificate.read_bytes()
    assert fedlsa("network", "renew", net)[0] == 0
    assert made.certificate.read_bytes() != certificate
    code, out, err = fedlsa("network", "add-site", net, "oslo")
    assert (code, err) == (0, "")
    assert "send it net/bundles/oslo.zip, and approve its request" in out
    assert fedlsa("network", "remove-site", net, "site-1")[0] == 0
    assert Network.load(net).sites == ("site-2", "site-3", "site-4", "oslo")
    assert enrolment.request(made.bundle("oslo")).task == fl.Regression("charges")
    refused(fedlsa("network", "revoke", net, "site-1"), "site must be one of")
    refused(fedlsa("network", "add-site", net, "a b"), "letters, digits and dashes")


def test_the_readmes_hold_the_commands_that_work(fedlsa, net, asked, commands):
    """Every command line of both pages, with its names, is one that the program knows."""
    import re
    import shlex

    texts = [Network.load(net).folder / "README.md", SiteFolder.load("site-1").folder / "README.md"]
    lines = {line for path in texts for line in re.findall(r"fedlsa network [^`\n]+", path.read_text())}
    seen = set()
    for line in lines:
        words = shlex.split(line)[1:]
        seen.add(words[1])
        assert {word for word in words if word.startswith("--")} <= commands[f"network {words[1]}"].keys(), line
    site = {"request", "install", "join"}
    assert seen >= site | {
        "approve",
        "revoke",
        "renew",
        "add-site",
        "remove-site",
        "serve",
        "start",
        "status",
        "result",
    }

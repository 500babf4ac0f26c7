"""How sites come into a network: their keys never leave, and what is not theirs is refused."""

import os
import shutil
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.x509.oid import NameOID

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError, NetworkError
from fedlsa.network.coordinator import commands
from fedlsa.network.folder import certificates, config, setup
from fedlsa.network.folder.config import Network, SiteFolder

PEM = serialization.Encoding.PEM


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A network of three sites that nobody changes, and its first site, which has made its keys."""
    root = tmp_path_factory.mktemp("made")
    network = setup.init(root / "net", 3, "fl.example.org", task=fl.Regression("charges"))
    setup.enrol_site(network.bundle("site-1"), root / "site-1")
    return root


@pytest.fixture
def world(made, tmp_path):
    """A copy of it that a test may change: the network and the site."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return Network.load(tmp_path / "net"), SiteFolder.load(tmp_path / "site-1")


def fingerprint(site):
    return certificates.fingerprint(site.certificate.read_bytes())


def approve(network, site, **how):
    """The certificate that counts from now on."""
    setup.approve(network.folder, site.certificate, fingerprint(site), **how)
    return network.site_certificate(certificates.identity(site.certificate.read_bytes()).name)


def raw(key):
    return key.public_key().public_bytes_raw()


def files(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_words_around_a_certificate_do_not_come_into_the_network(world):
    """Beyond ASCII they ended every run; without a last line break the next site's certificate was not read."""
    network, site = world
    pem = site.certificate.read_bytes()
    site.certificate.write_bytes(b"caf\xe9\n" + pem.rstrip())
    assert approve(network, site).read_bytes() == pem


def test_a_certificate_holds_names_and_the_two_keys_that_the_site_made_and_allows_a_client_alone(world):
    network, site = world
    path = approve(network, site)
    site.check_certificate()
    pem = site.certificate.read_bytes()
    assert pem == path.read_bytes()
    assert certificates.public_key(pem) == certificates.private_key(site.key.read_bytes()).public_key()
    assert certificates.identity(pem).mask == raw(certificates.mask_key(site.mask_key.read_bytes()))
    assert certificates.fingerprint(pem) == fingerprint(site)
    found = x509.load_pem_x509_certificate(pem)
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["site-1"]
    mask = certificates.identity(pem).mask.hex()
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"urn:fedlsa:mask:{mask}"]
    assert abs(found.not_valid_after_utc - datetime.now(UTC) - timedelta(days=825)) < timedelta(minutes=30)
    assert found.serial_number.bit_length() > 100  # drawn at random
    assert sorted(p.name for p in network.folder.rglob("*.key")) == ["ca.key", "server.key", "signing.key"]


def test_a_fingerprint_shows_128_bits_in_groups_and_depends_on_keys_name_and_network(world):
    _, site = world
    asked = certificates.identity(site.certificate.read_bytes())
    groups = asked.fingerprint.split(" ")
    assert [len(group) for group in groups] == [4] * 8
    int("".join(groups), 16)
    other = certificates.private_key(certificates.new_key()).public_key()
    for changed in ({"name": "site-2"}, {"network": "0" * 32}, {"key": other}, {"mask": b"\1" * 32}):
        assert asked._replace(**changed).fingerprint != asked.fingerprint


def test_a_certificate_is_approved_for_the_fingerprint_that_the_site_reads_and_for_no_other(world):
    network, site = world
    right = fingerprint(site)
    wrong = right[:-1] + ("0" if right[-1] != "0" else "1")
    for given in (wrong, right[:-5], right[:4], "", " ", right + " 0000", 7, None):
        with pytest.raises(ArgumentError, match="fingerprint must be that of the certificate") as refused:
            setup.approve(network.folder, site.certificate, given)
        if given != right + " 0000":
            assert right not in str(refused.value)  # nobody copies it from here
        assert not network.site_certificate("site-1").exists()
    written_otherwise = right.upper().replace(" ", ":") + "\n"
    assert setup.approve(network.folder, site.certificate, written_otherwise).name == "site-1"
    assert network.site_certificate("site-1").is_file()


MASK = "urn:fedlsa:mask:" + raw(X25519PrivateKey.generate()).hex()
KEY = ec.generate_private_key(ec.SECP256R1())


def forged(
    network, name="site-1", sans=None, key=KEY, digest=hashes.SHA256, subject=None, extensions=None, days=825, by=None
):
    """A certificate that is ours but for what is given; by : who signs it, if not itself, as (subject, key)."""
    entries = (
        [(NameOID.ORGANIZATION_NAME, network), (NameOID.COMMON_NAME, name)] if subject is None else subject(network)
    )
    named, now = x509.Name([x509.NameAttribute(oid, value) for oid, value in entries]), datetime.now(UTC)
    issuer, signer = (named, key) if by is None else by
    built = x509.CertificateBuilder().subject_name(named).issuer_name(issuer).public_key(key.public_key())
    built = built.serial_number(7).not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days))
    uses = [*certificates.CRITICAL, certificates.CLIENT] if extensions is None else extensions
    names = [x509.DNSName(name), x509.UniformResourceIdentifier(MASK)] if sans is None else sans
    for extension in (*uses, x509.SubjectKeyIdentifier.from_public_key(key.public_key())):
        built = built.add_extension(extension, critical=False)
    if names:
        built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return built.sign(signer, digest()).public_bytes(PEM)


URI, DNS = x509.UniformResourceIdentifier, x509.DNSName
ALONE, USAGE = certificates.CRITICAL[1], certificates.CRITICAL[0]
SERVER = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
ALL_USES = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH, x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
SIGNER = x509.BasicConstraints(ca=True, path_length=None)
FORGED = {
    "a name that is no site's": ({"name": "site-9"}, "must be .*site-1"),
    "a name that is a path": ({"name": "../site-1", "sans": [DNS("site-1"), URI(MASK)]}, "letters, digits and dashes"),
    "a name for the terminal": ({"name": "\x1b[2Jx", "sans": [DNS("site-1"), URI(MASK)]}, r"got '\\x1b\[2Jx'"),
    "the coordinator's name": ({"name": "fedlsa coordinator", "sans": [DNS("a"), URI(MASK)]}, "letters, digits and"),
    "two names": (
        {"subject": lambda n: [(NameOID.ORGANIZATION_NAME, n), *[(NameOID.COMMON_NAME, f"site-{c}") for c in (1, 2)]]},
        "subject must hold",
    ),
    "no name": ({"subject": lambda n: []}, "subject must hold"),
    "another network": ({"subject": lambda n: [(NameOID.ORGANIZATION_NAME, "0" * 32), (NameOID.COMMON_NAME, "site-1")]},
                        "is for network 0{32}; this is"),
    "a network that is none": (
        {"subject": lambda n: [(NameOID.ORGANIZATION_NAME, "x\n"), (NameOID.COMMON_NAME, "site-1")]},
        "network's id must have 32",
    ),
    "an authority": ({"extensions": [SIGNER, USAGE, certificates.CLIENT]}, "client of TLS and nothing else; got Basic"),
    "the uses of a server": ({"extensions": [ALONE, USAGE, SERVER]}, "client of TLS and nothing else"),
    "both uses": ({"extensions": [ALONE, USAGE, ALL_USES]}, "client of TLS and nothing else"),
    "any use": ({"extensions": [ALONE, USAGE]}, "client of TLS and nothing else"),
    "an extension too many": ({"extensions": [ALONE, USAGE, certificates.CLIENT, x509.OCSPNoCheck()]}, "nothing else"),
    "ten years": ({"days": 3650}, "at most 825 days"),
    "somebody else's signature": ({"by": (x509.Name([]), ec.generate_private_key(ec.SECP256R1()))}, "its own key"),
    "no names": ({"sans": []}, "no certificate of a site"),
    "the name of the host": ({"sans": [DNS("site-1"), DNS("fl.example.org"), URI(MASK)]}, "and nothing else"),
    "the name of another site": ({"sans": [DNS("site-2"), URI(MASK)]}, "and nothing else"),
    "an address": ({"sans": [x509.RFC822Name("a@b.org"), URI(MASK)]}, "and nothing else"),
    "no key for masks": ({"sans": [DNS("site-1")]}, "key for masks must be one"),
    "two keys for masks": ({"sans": [DNS("site-1"), URI(MASK), URI(MASK)]}, "key for masks must be one"),
    "two keys for masks and no name": ({"sans": [URI(MASK), URI(MASK)]}, "key for masks must be one"),
    "a key for masks without its name": ({"sans": [DNS("site-1"), URI(MASK[16:])]}, "and nothing else"),
    "another URI": ({"sans": [DNS("site-1"), URI("https://example.org/")]}, "key for masks must be one urn"),
    "a short key for masks": ({"sans": [DNS("site-1"), URI(MASK[:-2])]}, "64 hexadecimal digits"),
    "a key for masks that is no number": ({"sans": [DNS("site-1"), URI(MASK[:-1] + "g")]}, "64 hexadecimal digits"),
    "a key for masks of low order": ({"sans": [DNS("site-1"), URI(MASK[:16] + "0" * 64)]}, "point of full order"),
    "P-384": ({"key": ec.generate_private_key(ec.SECP384R1())}, "ECDSA P-256; got SECP384R1"),
    "RSA": ({"key": rsa.generate_private_key(65537, 2048)}, "ECDSA P-256; got"),
    "another digest": ({"digest": hashes.SHA384}, "signed with SHA-256; its signature"),
}  # fmt: skip


def written(der):
    """A certificate in PEM."""
    return ssl.DER_cert_to_PEM_cert(bytes(der)).encode()


def refused(network, path, what):
    """Neither shown to a person nor approved, and nothing changes."""
    before = files(network.folder)
    with pytest.raises(FedLSAError, match=what):
        setup.read_certificate(network, path)
    with pytest.raises(FedLSAError, match=what):
        setup.approve(network.folder, path, "0" * 32)
    assert files(network.folder) == before


@pytest.mark.parametrize("attack", FORGED)
def test_a_forged_certificate_is_refused(attack, world, tmp_path):
    network, _ = world
    changes, what = FORGED[attack]
    path = tmp_path / "forged.pem"
    path.write_bytes(forged(network.id, **changes))
    refused(network, path, what)


def test_a_certificate_without_forgery_passes(world, tmp_path):
    network, _ = world
    path = tmp_path / "forged.pem"
    path.write_bytes(forged(network.id))
    asked, _ = setup.read_certificate(network, path)
    assert (asked.name, asked.network, asked.key, asked.mask.hex()) == (
        "site-1",
        network.id,
        KEY.public_key(),
        MASK[16:],
    )


def test_a_certificate_that_is_damaged_huge_or_none_is_refused(world, tmp_path):
    network, site = world
    content, path = site.certificate.read_bytes(), tmp_path / "r.pem"
    der = bytearray(x509.load_pem_x509_certificate(content).public_bytes(serialization.Encoding.DER))
    place = der.index(b"urn:fedlsa:mask:") + 16
    der[place : place + 64] = MASK[16:].encode()  # somebody else's key for masks, with the site's signature
    for wrong, what in (
        (written(der), "no certificate of a site, signed with its own key"),
        (content[:-60], "no certificate"),
        (b"", "no certificate"),
        (b"-----BEGIN CERTIFICATE-----\n\xff", "no certificate"),
        (content + b"\n" * 2**14, "at most 16384 bytes"),
        (b"\0" * 10**7, "at most 1048576 bytes"),
        (network.certificate.read_bytes(), "subject must hold"),
        (site.key.read_bytes(), "no certificate"),
        (content + content, "got several"),
    ):
        path.write_bytes(wrong)
        refused(network, path, what)
    refused(network, tmp_path / "nowhere.pem", "cannot read")
    refused(network, tmp_path, "is not a file")
    os.mkfifo(tmp_path / "pipe")
    refused(network, tmp_path / "pipe", "is not a file")


def test_a_turned_bit_never_changes_what_a_certificate_says(world):
    _, site = world
    pem = site.certificate.read_bytes()
    read, asked = x509.load_pem_x509_certificate(pem), certificates.identity(pem)
    der = read.public_bytes(serialization.Encoding.DER)
    signed = der.index(read.tbs_certificate_bytes) + len(read.tbs_certificate_bytes)
    for place in range(len(der)):
        for bit in (0, 5, 7):
            turned = bytearray(der)
            turned[place] ^= 1 << bit
            try:
                said = certificates.identity(written(turned))
            except FedLSAError:
                continue
            assert place >= signed  # how many bits of the signature's last byte count, which readers may overlook
            assert said == asked


def test_an_exchanged_bundle_is_noticed_by_both_sides(world, tmp_path):
    """The attack: a network of the attacker's own, for the same host, sent in the place of the true bundle."""
    network, _ = world
    evil = setup.init(tmp_path / "evil", 3, "fl.example.org", task=fl.Regression("charges"))
    victim = setup.enrol_site(evil.bundle("site-1"), tmp_path / "victim")
    assert victim.network != network.id  # the fingerprint that the coordinator would read
    refused(network, victim.certificate, "Was the bundle exchanged on its way")
    passed_on = setup.enrol_site(network.bundle("site-1"), tmp_path / "attacker")
    with pytest.raises(ArgumentError, match="fingerprint must be"):
        setup.approve(network.folder, passed_on.certificate, fingerprint(victim))


def renewed(site):
    """A new certificate for the same keys, as if the old one were about to end."""
    keys = site.key.read_bytes(), site.mask_key.read_bytes()
    site.certificate.write_bytes(certificates.certify_site(site.name, site.network, *keys))
    return site


def test_a_certificate_is_replaced_on_request_alone_and_the_old_one_is_on_record(world):
    network, site = world
    first = approve(network, site).read_bytes()
    renewed(site)
    with pytest.raises(NetworkError, match=r"has a certificate already.*--renew"):
        approve(network, site)
    assert network.site_certificate("site-1").read_bytes() == first
    second = approve(network, site, renew=True).read_bytes()  # the same keys, new dates
    assert second != first
    assert certificates.fingerprint(second) == certificates.fingerprint(first)
    (record,) = network.revoked.iterdir()
    assert record.read_bytes() == first
    assert record.name.startswith(f"site-1-{datetime.now(UTC):%Y-%m-}")
    assert record.name.endswith("-replaced.pem")


def test_a_certificate_that_is_good_for_a_month_stays_and_another_one_is_made_anew(world):
    _, site = world
    first = site.certificate.read_bytes()
    setup.enrol_site(site.folder)
    assert site.certificate.read_bytes() == first
    for wrong in (b"", b"damaged", certificates.certify_site("site-1", "0" * 32, site.key.read_bytes(),
                                                             site.mask_key.read_bytes())):  # fmt: skip
        site.certificate.write_bytes(wrong)
        setup.enrol_site(site.folder)
        site.check_certificate()
    ending(site.certificate, 20)
    before = certificates.expires(site.certificate.read_bytes())
    setup.enrol_site(site.folder)
    assert certificates.expires(site.certificate.read_bytes()) - before > timedelta(days=800)


def test_new_keys_take_the_place_of_the_old_ones_and_nothing_else_changes(world):
    network, site = world
    approve(network, site)
    site.policy.write_text("# ours\n")
    site.state.mkdir()
    (site.state / "run.npz").write_bytes(b"xi")
    old = {path: path.read_bytes() for path in (site.key, site.mask_key, site.certificate)}
    asked_before = fingerprint(site)
    setup.enrol_site(site.folder, new_key=True)
    site.check_certificate()
    again = fingerprint(site)
    assert again != asked_before
    setup.enrol_site(site.folder)
    assert fingerprint(site) == again  # what was sent stays valid
    approve(network, site, renew=True)
    assert all(path.read_bytes() != content for path, content in old.items())
    assert site.key.stat().st_mode & 0o777 == site.mask_key.stat().st_mode & 0o777 == 0o600
    assert site.policy.read_text() == "# ours\n"
    assert (site.state / "run.npz").read_bytes() == b"xi"


@pytest.mark.parametrize("step", [1, 2, 3])
def test_new_keys_that_were_interrupted_are_refused_until_the_site_enrols_again(step, world, monkeypatch):
    _, site = world
    real, calls = setup.files.write, []

    def interrupted(path, *rest, **more):
        calls.append(path)
        if len(calls) == step:
            raise NetworkError("the power is off")
        real(path, *rest, **more)

    monkeypatch.setattr(setup.files, "write", interrupted)
    with pytest.raises(NetworkError, match="the power is off"):
        setup.enrol_site(site.folder, new_key=True)
    monkeypatch.undo()
    if step > 1:
        with pytest.raises(NetworkError, match="for other keys"):
            site.check_certificate()
    setup.enrol_site(site.folder)
    site.check_certificate()


def test_a_revoked_site_is_out_and_its_keys_never_come_back(world):
    network, site = world
    with pytest.raises(NetworkError, match="has no certificate that could be revoked"):
        setup.revoke(network.folder, "site-1")
    certificate = approve(network, site).read_bytes()
    setup.revoke(network.folder, "site-1")
    assert not network.site_certificate("site-1").exists()
    (record,) = network.revoked.iterdir()
    assert record.read_bytes() == certificate
    for how in ({}, {"renew": True}):
        with pytest.raises(NetworkError, match="must make new ones"):
            approve(network, site, **how)
    mask = site.mask_key.read_bytes()
    half = certificates.certify_site("site-1", network.id, certificates.new_key(), mask)  # one key new, the other not
    site.certificate.write_bytes(half)
    with pytest.raises(NetworkError, match="must make new ones"):
        approve(network, site)
    setup.enrol_site(site.folder, new_key=True)
    assert approve(network, site).read_bytes() == site.certificate.read_bytes()


def test_a_damaged_certificate_can_be_revoked_and_a_damaged_record_stops_approvals(world):
    network, site = world
    approve(network, site).write_bytes(b"damaged")
    setup.revoke(network.folder, "site-1")
    assert not network.site_certificate("site-1").exists()
    with pytest.raises(NetworkError, match=r"cannot compare the certificate with .*-revoked\.pem"):
        approve(network, site)


def test_no_two_sites_share_a_key(world):
    network, site = world
    approve(network, site)
    keys = site.key.read_bytes(), site.mask_key.read_bytes()
    site.certificate.write_bytes(certificates.certify_site("site-2", network.id, *keys))
    with pytest.raises(NetworkError, match=r"is that of .*site-1\.pem"):
        approve(network, site)


def test_a_site_does_not_join_with_a_certificate_that_is_not_its_own(world, tmp_path):
    network, site = world
    second = setup.enrol(network, network.bundle("site-2"), tmp_path / "site-2")
    for wrong, what in (
        (second.certificate.read_bytes(), "must be for site-1"),
        (forged(network.id), "for other keys"),
        (network.certificate.read_bytes(), "subject must hold"),
        (b"", "no certificate"),
    ):
        site.certificate.write_bytes(wrong)
        with pytest.raises(NetworkError, match=what):
            site.check_certificate()
    site.certificate.unlink()
    with pytest.raises(NetworkError, match=r"has no certificate: fedlsa network enrol .*site-1 makes one"):
        site.check_certificate()


def test_a_site_cannot_take_another_name_by_a_file_of_two_parts(world, tmp_path):
    """The attack: its own certificate beside one in which it calls itself site-1."""
    network, _ = world
    second = setup.enrol(network, network.bundle("site-2"), tmp_path / "site-2")
    keys = second.key.read_bytes(), second.mask_key.read_bytes()
    claim, true = certificates.certify_site("site-1", network.id, *keys), second.certificate.read_bytes()
    certificates.check_site(true, network.id, "site-2")
    for read in (certificates.public_key, certificates.identity, certificates.fingerprint):
        for forged_file in (claim + true, true + claim, true + true):
            with pytest.raises(NetworkError, match="got several"):
                read(forged_file)


def test_expiry_is_warned_of_a_month_before(world, monkeypatch):
    network, site = world
    approve(network, site)

    def warned(now):
        clock = type("Clock", (datetime,), {"now": classmethod(lambda cls, zone=None: now)})
        monkeypatch.setattr(config, "datetime", clock)
        return "\n".join([*config.certificate_warnings(network), *config.certificate_warnings(site)])

    for path in (network.certificate, site.certificate, network.ca):
        end = certificates.expires(path.read_bytes())
        assert f"{path} end" not in warned(end - timedelta(days=30, seconds=1))
        assert f"{path} ends on {end:%Y-%m-%d}, in 29 days" in warned(end - timedelta(days=29, hours=1))
        assert f"{path} ended on {end:%Y-%m-%d}" in warned(end + timedelta(seconds=1))


def ending(path, days):
    """The same certificate, but one that ends so many days from now."""
    moved = datetime.now(UTC) - timedelta(days=825 - days)
    old = certificates.identity(path.read_bytes())

    class Clock(datetime):
        @classmethod
        def now(cls, zone=None):
            return moved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "datetime", Clock)
        keys = [certificates.new_key(), certificates.new_mask_key()]
        if (path.parent / "site.key").exists():
            keys = [(path.parent / name).read_bytes() for name in setup.KEYS]
        path.write_bytes(certificates.certify_site(old.name, old.network, *keys))


def test_a_program_that_goes_on_warns_when_it_starts_and_once_a_day(world):
    network, site = world
    approve(network, site)
    said, now = [], [5.0]
    warn = config.warn_daily(network, said.append, lambda: now[0])
    warn()
    assert said == []
    ending(network.site_certificate("site-1"), 20)
    network.site_certificate("site-2").write_bytes(b"damaged")
    for seconds, count in ((1, 0), (86398, 0), (2, 2), (10, 2), (86400, 4)):
        now[0] += seconds
        warn()
        assert len(said) == count
    assert said[0].startswith(f"WARNING: the certificate {network.site_certificate('site-1')} ends on")
    assert "site-2.pem: a certificate is damaged" in said[1]
    assert config.certificate_warnings(site) == []
    site.certificate.write_bytes(network.site_certificate("site-1").read_bytes())
    assert "in 19 days" in config.certificate_warnings(site)[0]
    assert "site-1.pem ends on" in (told := commands.status(network.folder))
    assert "not approved yet: site-3 (fedlsa network approve)" in told


@pytest.mark.parametrize(("moved", "what"), [(-2, "clock says"), (826, "clock says")])
def test_a_clock_that_is_wrong_is_named(moved, what, world, monkeypatch):
    network, site = world

    class Clock(datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime.now(zone) + timedelta(days=moved)

    monkeypatch.setattr(certificates, "datetime", Clock)
    for refuses in (site.check_certificate, lambda: approve(network, site)):
        with pytest.raises(NetworkError, match=what):
            refuses()


def handshake(network, client, host="fl.example.org"):
    """What the server, or who poses as it, reads of a client after the handshake; or the error that ended it."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(network.certificate, network.key)
    if isinstance(network, Network):
        pinned = commands.PinnedCertificates(network.folder)
        served.load_verify_locations(cadata=pinned.identity_files()[2].decode())
    served.verify_mode = ssl.CERT_REQUIRED
    here, there = socket.socketpair()
    for end in (here, there):
        end.settimeout(60)
    out = []

    def answer():
        try:
            with served.wrap_socket(there, server_side=True) as talk:
                out.append((talk.getpeercert(binary_form=True), talk.recv(5)))
        except (ssl.SSLError, OSError) as error:
            out.append(error)
            there.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=host) as talk:
            talk.send(b"hello")
            talk.recv(1)
    except (ssl.SSLError, OSError):
        here.close()
    thread.join()
    return out[0]


def test_mutual_tls_lets_the_sites_in_and_nobody_else(world, tmp_path):
    network, site = world
    approve(network, site)

    def client(ca, *pair):
        out = ssl.create_default_context(cafile=str(ca))
        if pair:
            out.load_cert_chain(*pair)
        return out

    seen, said = handshake(network, client(site.ca, site.certificate, site.key))
    assert said == b"hello"
    assert seen == ssl.PEM_cert_to_DER_cert(network.site_certificate("site-1").read_text())
    assert isinstance(handshake(network, client(site.ca)), ssl.SSLError)  # without a certificate
    other = setup.init(tmp_path / "other", 1, "localhost")
    stranger = setup.enrol(other, other.bundle("site-1"), tmp_path / "stranger")
    assert isinstance(handshake(network, client(site.ca, stranger.certificate, stranger.key)), ssl.SSLError)
    # the site's own, of another coordinator: the site ends it
    assert isinstance(handshake(other, client(site.ca, site.certificate, site.key)), OSError)
    # who is approved cannot approve others: the same name with another key, and another name, signed by the site
    own = x509.load_pem_x509_certificate(site.certificate.read_bytes()).subject
    by, thief = (own, certificates.private_key(site.key.read_bytes())), ec.generate_private_key(ec.SECP256R1())
    for name in ("site-1", "site-2"):
        for how in ({"by": by}, {"by": by, "extensions": [SIGNER, certificates.CLIENT]}, {}):
            (tmp_path / "f.pem").write_bytes(forged(network.id, name, key=thief, **how))
            form = PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            (tmp_path / "f.key").write_bytes(thief.private_bytes(*form))
            assert isinstance(handshake(network, client(site.ca, tmp_path / "f.pem", tmp_path / "f.key")), ssl.SSLError)
    # a server's certificate is no client's
    assert isinstance(handshake(network, client(site.ca, network.certificate, network.key)), ssl.SSLError)


def test_a_site_with_the_name_of_the_host_cannot_pose_as_the_coordinator(tmp_path):
    network = setup.init(tmp_path / "net", ["localhost", "victim"], "localhost")
    evil, victim = (setup.enrol(network, network.bundle(name), tmp_path / name) for name in network.sites)
    client = ssl.create_default_context(cafile=str(victim.ca))
    client.load_cert_chain(victim.certificate, victim.key)
    assert handshake(network, client, "localhost")[1] == b"hello"
    assert isinstance(handshake(evil, client, "localhost"), OSError)  # its certificate is for clients alone


def test_keys_that_are_damaged_or_of_another_kind_are_named(world):
    _, site = world
    key, mask = site.key.read_bytes(), site.mask_key.read_bytes()
    for read, content, what in (
        (certificates.private_key, b"x", "private key is damaged"),
        (certificates.private_key, mask, "must be of ECDSA P-256; got"),
        (certificates.mask_key, key, "must be of X25519"),
        (certificates.public_key, b"-----BEGIN PUBLIC KEY-----\nx", "damaged"),
        (certificates.public_key, b"", "damaged"),
    ):
        with pytest.raises(NetworkError, match=what):
            read(content)

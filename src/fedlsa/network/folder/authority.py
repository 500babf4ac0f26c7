"""The network's authority, which lasts ten years and signs the certificates of the coordinator and of its sites.

Those last 825 days. They are for one use each: a server, or a client of TLS.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from ...errors import NetworkError
from .certificates import PEM, SiteIdentity, alternative_names, named, private_key, public_key

AUTHORITY_DAYS, CERTIFICATE_DAYS = 3653, 825
SKEW = timedelta(hours=1)  # clocks of sites may be behind


def new_authority(key: bytes) -> bytes:
    """A new authority's certificate, signed with its own key."""
    signer = private_key(key)
    name = named("fedlsa network authority")
    only = [_uses(key_cert_sign=True, crl_sign=True), x509.BasicConstraints(ca=True, path_length=0)]
    return _issue(name, signer.public_key(), name, signer, datetime.now(UTC) + timedelta(days=AUTHORITY_DAYS), only, [])


def server(ca: bytes, ca_key: bytes, host: str, key: bytes) -> bytes:
    """A certificate for the coordinator's key: for the host, localhost and 127.0.0.1."""
    names: list[x509.GeneralName] = []
    for entry in dict.fromkeys((host, "localhost", "127.0.0.1")):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(entry)))
        except ValueError:
            names.append(x509.DNSName(entry))
    public = private_key(key).public_key()
    return _leaf(ca, ca_key, named("fedlsa coordinator"), public, x509.SubjectAlternativeName(names), server=True)


def site(ca: bytes, ca_key: bytes, asked: SiteIdentity) -> bytes:
    """A certificate for a site; its dates and its serial number are ours, the two public keys are the site's."""
    names = alternative_names(asked.name, asked.mask)
    return _leaf(ca, ca_key, named(asked.name, asked.network), asked.key, names, server=False)


def _leaf(
    ca: bytes,
    ca_key: bytes,
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    names: x509.SubjectAlternativeName,
    *,
    server: bool,
) -> bytes:
    """A certificate from the authority, for a server or a client of TLS."""
    signer, now = private_key(ca_key), datetime.now(UTC)
    if public_key(ca) != signer.public_key():
        raise NetworkError("ca.key is not the key of ca.pem")
    parent = x509.load_pem_x509_certificate(ca)
    if parent.not_valid_after_utc <= now:
        raise NetworkError("the authority itself has expired: make a new network with fedlsa network init")
    use = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    only = [_uses(digital_signature=True), x509.BasicConstraints(ca=False, path_length=None)]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    end = min(now + timedelta(days=CERTIFICATE_DAYS), parent.not_valid_after_utc)
    return _issue(subject, key, parent.subject, signer, end, only, [x509.ExtendedKeyUsage([use]), names, issuer])


def _issue(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    end: datetime,
    critical: list[x509.ExtensionType],
    other: list[x509.ExtensionType],
) -> bytes:
    """A certificate for a public key, signed; critical, other : extensions."""
    built = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(key)
    built = built.serial_number(x509.random_serial_number())
    built = built.not_valid_before(datetime.now(UTC) - SKEW).not_valid_after(end)
    for extension in critical:
        built = built.add_extension(extension, critical=True)
    for extension in (x509.SubjectKeyIdentifier.from_public_key(key), *other):
        built = built.add_extension(extension, critical=False)
    return built.sign(signer, hashes.SHA256()).public_bytes(PEM)


def _uses(**allowed: bool) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{use: allowed.get(use, False) for use in every})

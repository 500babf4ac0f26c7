"""Keys and certificates: an authority of the network's own, a server certificate from it, a key pair per site.

The authority lasts ten years and signs nothing but the coordinator's certificate, which lasts 825 days. Both are ECDSA
P-256. Sites have ECDSA P-384 keys in OpenSSH's format, which is what Flower's SuperNode reads.
"""

from __future__ import annotations

import hashlib
import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ...errors import NetworkError
from .config import host_kind

AUTHORITY_DAYS, SERVER_DAYS = 3653, 825
SKEW = timedelta(hours=1)  # clocks of sites may be behind


def authority() -> tuple[bytes, bytes]:
    """A new authority: its certificate and its private key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("fedlsa network authority")
    only = [_uses(key_cert_sign=True, crl_sign=True), x509.BasicConstraints(ca=True, path_length=0)]
    return _issue(name, key, name, key, datetime.now(UTC) + timedelta(days=AUTHORITY_DAYS), only, [])


def server(ca: bytes, ca_key: bytes, host: str) -> tuple[bytes, bytes]:
    """A new certificate for the coordinator and its private key, in PEM: for the host, localhost and 127.0.0.1."""
    try:
        parent = x509.load_pem_x509_certificate(ca)
        signer = serialization.load_pem_private_key(ca_key, None)
    except (ValueError, TypeError) as error:
        raise NetworkError(f"the authority's certificate or key is damaged: {error}") from error
    if not isinstance(signer, ec.EllipticCurvePrivateKey) or parent.public_key() != signer.public_key():
        raise NetworkError("ca.key is not the key of ca.pem")
    now = datetime.now(UTC)
    if parent.not_valid_after_utc <= now:
        raise NetworkError("the authority itself has expired: make a new network with fedlsa network init")
    names: list[x509.GeneralName] = []
    for entry in dict.fromkeys((host, "localhost", "127.0.0.1")):
        address = host_kind(entry) == "ip"
        names.append(x509.IPAddress(ipaddress.ip_address(entry)) if address else x509.DNSName(entry))
    only = [_uses(digital_signature=True), x509.BasicConstraints(ca=False, path_length=None)]
    also = [
        x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectAlternativeName(names),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
    ]
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + timedelta(days=SERVER_DAYS), parent.not_valid_after_utc)
    return _issue(_name("fedlsa coordinator"), key, parent.subject, signer, end, only, also)


def site(name: str) -> tuple[bytes, bytes]:
    """A site's private key and public key, in OpenSSH's format; the name is the public key's comment."""
    key = ec.generate_private_key(ec.SECP384R1())
    kind = serialization.PrivateFormat.OpenSSH
    secret = key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return secret, public + f" {name}\n".encode()


def fingerprint(content: bytes) -> str:
    """Sixteen hexadecimal digits that tell public keys or certificates apart, to be read over the telephone."""
    return hashlib.sha256(content.strip()).hexdigest()[:16]


def expires(certificate: bytes) -> datetime:
    """When a certificate ends."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _issue(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    end: datetime,
    critical: list[x509.ExtensionType],
    other: list[x509.ExtensionType],
) -> tuple[bytes, bytes]:
    """A certificate for a key, signed, and the key, both in PEM; critical, other : extensions."""
    built = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(key.public_key())
    built = built.serial_number(x509.random_serial_number())
    built = built.not_valid_before(datetime.now(UTC) - SKEW).not_valid_after(end)
    for extension in critical:
        built = built.add_extension(extension, critical=True)
    for extension in (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), *other):
        built = built.add_extension(extension, critical=False)
    certificate = built.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return certificate, key.private_bytes(*form)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, common)])


def _uses(**allowed: bool) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{use: allowed.get(use, False) for use in every})

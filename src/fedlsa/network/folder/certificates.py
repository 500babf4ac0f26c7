"""Keys and certificates, and what they say.

Keys for TLS and signatures are ECDSA P-256. A site makes two pairs of keys itself: one of these, and an X25519 pair for
masks. Its certificate, which it signs itself, names site and network and holds both public keys; it counts once the
coordinator has approved it, and nobody else signs anything. The network's id is a digest of the public keys of its
authority and of its coordinator's signatures: other keys would be another network.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ... import checks
from ...errors import FedLSAError, NetworkError
from ...files import reason
from ..protocol.run_settings import plain_name

WARNED = timedelta(days=30)  # before a certificate ends
MASK = "urn:fedlsa:mask:"  # and the X25519 public key in hexadecimal digits
DIGITS = 32  # of a fingerprint, 128 bits: nobody finds other keys with the same ones
HEX = set("0123456789abcdef")
MAX_BYTES = 2**14  # of a certificate; ours have one thousand
PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
PUBLIC = serialization.PublicFormat.SubjectPublicKeyInfo


class SiteIdentity(NamedTuple):
    """Who a site is, by its certificate."""

    name: str
    network: str
    key: ec.EllipticCurvePublicKey
    mask: bytes

    @property
    def fingerprint(self) -> str:
        """A digest of all of it, to be read over the telephone: eight groups of four hexadecimal digits."""
        who = f"{self.name} {self.network} ".encode()
        return grouped(hashlib.sha256(who + self.key.public_bytes(DER, PUBLIC) + self.mask).hexdigest()[:DIGITS])


def grouped(digits: str) -> str:
    """Hexadecimal digits in groups of four."""
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def network_id(ca: bytes, signing: bytes) -> str:
    """The id of the network of an authority (certificate) and a coordinator (public key of its signatures)."""
    keys = b"".join(public_key(pem).public_bytes(DER, PUBLIC) for pem in (ca, signing))
    return hashlib.sha256(keys).hexdigest()[:DIGITS]


def new_key() -> bytes:
    """A new private key for TLS and signatures, in PEM."""
    return _private_pem(ec.generate_private_key(ec.SECP256R1()))


def new_mask_key() -> bytes:
    return _private_pem(X25519PrivateKey.generate())


def _private_pem(key: ec.EllipticCurvePrivateKey | X25519PrivateKey) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def public_pem(key: bytes) -> bytes:
    return private_key(key).public_key().public_bytes(PEM, PUBLIC)


def private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """A private key for TLS and signatures, read."""
    key = _private(pem)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise NetworkError(f"a private key must be of ECDSA P-256; got {type(key).__name__}")
    return key


def mask_key(pem: bytes) -> X25519PrivateKey:
    """A private key for masks, read."""
    key = _private(pem)
    if not isinstance(key, X25519PrivateKey):
        raise NetworkError(f"a key for masks must be of X25519; got {type(key).__name__}")
    return key


def _private(pem: bytes) -> object:
    try:
        return serialization.load_pem_private_key(pem, None)
    except Exception as error:  # damaged bytes raise errors of many kinds
        raise NetworkError(f"a private key is damaged: {reason(error)}") from None


def _only_one(pem: bytes) -> None:
    if pem.count(b"-----BEGIN") > 1:  # one would be looked at, and another one used
        raise NetworkError("a file must hold one certificate or one key; got several")


def public_key(pem: bytes) -> ec.EllipticCurvePublicKey:
    """The public key of a certificate, or one that stands alone (signing.pem)."""
    _only_one(pem)
    try:
        standalone = b"BEGIN PUBLIC KEY" in pem
        key = serialization.load_pem_public_key(pem) if standalone else x509.load_pem_x509_certificate(pem).public_key()
    except Exception as error:  # damaged bytes raise errors of many kinds
        raise NetworkError(f"a certificate or public key is damaged: {reason(error)}") from None
    return _p256(key)


def _p256(key: object) -> ec.EllipticCurvePublicKey:
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise NetworkError(f"a public key must be of ECDSA P-256; got {getattr(key, 'curve', key).__class__.__name__}")
    return key


def fingerprint(pem: bytes) -> str:
    """The fingerprint of a site's certificate; those of the same keys have the same."""
    return identity(pem).fingerprint


@functools.lru_cache(maxsize=1024)  # every order of a run comes with those of all sites; errors are not kept
def identity(pem: bytes) -> SiteIdentity:
    """Who a certificate is for; one that says anything else than ours do is refused.

    It must be signed with its own key, which shows that the site has it.
    """
    if len(pem) > MAX_BYTES:
        raise NetworkError(f"a certificate must have at most {MAX_BYTES} bytes; got {len(pem)}")
    _only_one(pem)
    try:
        found = x509.load_pem_x509_certificate(pem)
        key = _p256(found.public_key())
        out = _from_names(found.subject, found.extensions, key)
        expected = {type(e): e for e in (*CRITICAL, CLIENT, names_of(out.name, out.mask), _key_id(key))}
        if {type(e.value): e.value for e in found.extensions} != expected:
            named = ", ".join(type(e.value).__name__ for e in found.extensions) or "none"
            raise NetworkError(f"the certificate must allow a client of TLS and nothing else; got {named}")
        if not isinstance(found.signature_hash_algorithm, hashes.SHA256):
            raise NetworkError("the certificate must be signed with SHA-256; its signature is of another kind")
        found.verify_directly_issued_by(found)
    except FedLSAError:
        raise
    except Exception as error:  # hostile bytes raise errors of many kinds
        raise NetworkError(f"this is no certificate of a site, signed with its own key: {reason(error)}") from None
    if found.not_valid_after_utc - found.not_valid_before_utc > SITE_LIFE:
        raise NetworkError(f"the certificate of a site must hold for at most {CERTIFICATE_DAYS} days; got more")
    return out


def _from_names(subject: x509.Name, extensions: x509.Extensions, key: ec.EllipticCurvePublicKey) -> SiteIdentity:
    entries = [(attribute.oid, str(attribute.value)) for attribute in subject]
    if [oid for oid, _ in entries] != [NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME]:
        raise NetworkError("the subject must hold the network's id and the site's name, and nothing else")
    (_, network), (_, name) = entries
    plain_name("the site's name", name)
    if len(network) != DIGITS or set(network) - HEX:
        raise NetworkError(f"the network's id must have {DIGITS} hexadecimal digits; got {checks.show(network)}")
    sans = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = sans.get_values_for_type(x509.UniformResourceIdentifier)
    digits = found[0].removeprefix(MASK) if len(found) == 1 else ""
    if len(digits) != 64 or set(digits) - HEX:
        raise NetworkError(f"the key for masks must be one {MASK} and 64 hexadecimal digits; got {str(found)[:99]}")
    mask = bytes.fromhex(digits)
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(mask))
    except ValueError:  # a point of low order, with which everybody agrees on zero
        raise NetworkError(f"the key for masks must be a point of full order; got {digits}") from None
    return SiteIdentity(name, network, key, mask)


def names_of(name: str, mask: bytes) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.DNSName(name), x509.UniformResourceIdentifier(MASK + mask.hex())])


def named(common: str, network: str | None = None) -> x509.Name:
    known = [] if network is None else [x509.NameAttribute(NameOID.ORGANIZATION_NAME, network)]
    return x509.Name([*known, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def check_site(pem: bytes, network: str, name: str) -> SiteIdentity:
    """Whose certificate it is, once it is known to be for this name of this network, and good today."""
    found = identity(pem)
    if (found.name, found.network) != (name, network):
        rule = f"the certificate must be for {name} of network {network}"
        raise NetworkError(f"{rule}; got {found.name} of {found.network}")
    (start, end), now = _dates(pem), datetime.now(UTC)
    if not start <= now <= end:
        holds = f"the certificate of {name} holds from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
        raise NetworkError(f"{holds}; this machine's clock says {now:%Y-%m-%d %H:%M}")
    return found


@functools.lru_cache(maxsize=1024)  # asked for every other site in every round
def _dates(pem: bytes) -> tuple[datetime, datetime]:
    try:
        read = x509.load_pem_x509_certificate(pem)
    except Exception as error:  # damaged bytes raise errors of many kinds
        raise NetworkError(f"a certificate is damaged: {reason(error)}") from None
    return read.not_valid_before_utc, read.not_valid_after_utc


def expires(pem: bytes) -> datetime:
    return _dates(pem)[1]


# The network's authority lasts ten years, and signs certificates of the coordinator's TLS server. These, and those that
# sites sign themselves, last 825 days.


def new_authority(key: bytes) -> bytes:
    """A new authority's certificate, signed with its own key."""
    signer, name = private_key(key), named("fedlsa network authority")
    uses = [_uses(key_cert_sign=True, crl_sign=True), x509.BasicConstraints(ca=True, path_length=0)]
    end = datetime.now(UTC) + timedelta(days=AUTHORITY_DAYS)
    return _issue(name, signer.public_key(), name, signer, end, uses, [_key_id(signer.public_key())])


def certify_server(ca: bytes, ca_key: bytes, host: str, key: bytes) -> bytes:
    """A certificate for the coordinator's key: for the host, localhost and 127.0.0.1."""
    names: list[x509.GeneralName] = []
    for entry in dict.fromkeys((host, "localhost", "127.0.0.1")):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(entry)))
        except ValueError:
            names.append(x509.DNSName(entry))
    signer, public = private_key(ca_key), private_key(key).public_key()
    if public_key(ca) != signer.public_key():
        raise NetworkError("ca.key is not the key of ca.pem")
    parent, now = x509.load_pem_x509_certificate(ca), datetime.now(UTC)
    if parent.not_valid_after_utc <= now:
        raise NetworkError("the authority itself has expired: make a new network with fedlsa network init")
    end = min(now + timedelta(days=CERTIFICATE_DAYS), parent.not_valid_after_utc)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    other = [x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), x509.SubjectAlternativeName(names), issuer]
    return _issue(named("fedlsa coordinator"), public, parent.subject, signer, end, CRITICAL, [*other, _key_id(public)])


def certify_site(name: str, network: str, key: bytes, mask: bytes) -> bytes:
    """A site's certificate, signed by itself; key, mask : its private keys."""
    signer, subject = private_key(key), named(name, network)
    other = [CLIENT, names_of(name, mask_key(mask).public_key().public_bytes_raw()), _key_id(signer.public_key())]
    end = datetime.now(UTC) + timedelta(days=CERTIFICATE_DAYS)
    return _issue(subject, signer.public_key(), subject, signer, end, CRITICAL, other)


def _issue(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    end: datetime,
    critical: Sequence[x509.ExtensionType],
    other: Sequence[x509.ExtensionType],
) -> bytes:
    """A certificate for a public key, signed; critical, other : extensions."""
    built = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(key)
    built = built.serial_number(x509.random_serial_number())
    built = built.not_valid_before(datetime.now(UTC) - SKEW).not_valid_after(end)
    for extension in (*critical, *other):
        built = built.add_extension(extension, critical=extension in critical)
    return built.sign(signer, hashes.SHA256()).public_bytes(PEM)


def _key_id(key: ec.EllipticCurvePublicKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key)


def _uses(**allowed: bool) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{use: allowed.get(use, False) for use in every})


AUTHORITY_DAYS, CERTIFICATE_DAYS = 3653, 825
SKEW = timedelta(hours=1)  # clocks of others may be behind
SITE_LIFE = timedelta(days=CERTIFICATE_DAYS) + SKEW + timedelta(minutes=1)
CRITICAL = (_uses(digital_signature=True), x509.BasicConstraints(ca=False, path_length=None))
CLIENT = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])

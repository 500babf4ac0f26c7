"""How a site comes into a network: it makes its keys and a request, a person approves, it installs its certificate.

Private keys are made where they are used and never leave. Of a request nothing is taken over but the two public keys.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ... import checks
from ...errors import ArgumentError, FedLSAError, NetworkError
from ...files import reason
from .. import audit, disk
from ..site import policy
from . import authority, bundles, certificates, pages
from .certificates import SiteIdentity
from .config import Network, SiteFolder

KEYS = "site.key", "mask.key"
NEXT = "next"  # folder of new keys whose certificate has not come yet


def request(bundle: Path | str, folder: Path | str | None = None, *, new_key: bool = False) -> SiteFolder:
    """Unpack a bundle, make the site's keys, and write its request, NAME.csr. All at once or nothing.

    bundle : or the site's folder, to ask again; folder : by default named as the bundle, beside it
    new_key : new keys; the old ones are used until the new certificate is installed. State, policy and ledger stay.
    """
    path = checks.path("bundle", bundle)
    target = path if path.is_dir() else path.with_suffix("") if folder is None else checks.path("folder", folder)
    if not path.is_dir():
        content = bundles.read(path)
        site = SiteFolder.from_bundle(content, target.absolute(), path)
        if disk.is_new(target):
            _unpack(content, site)
        else:
            bundles.check_same(path, content, target)
    site = SiteFolder.load(target)
    if new_key and not (target / NEXT).exists():
        with disk.new_folder(target / NEXT) as part:
            _make_keys(part)
    _write_request(site)
    return site


def _unpack(content: Mapping[str, bytes], site: SiteFolder) -> None:
    """A new folder: what the bundle says, and the site's own keys, policy, service file and README."""
    texts = {name: pages.render(template, site) for name, template in pages.SITE_PAGES.items()}
    texts["policy.toml"] = policy.template(site.task)
    with disk.new_folder(site.folder) as part:
        for name in bundles.UNPACKED:
            disk.create(part / name, content[name], secret=False)
        for name, text in texts.items():
            disk.create(part / name, text.encode(), secret=False)
        _make_keys(part)


def _make_keys(folder: Path) -> None:
    for name, content in zip(KEYS, (certificates.new_key(), certificates.new_mask_key()), strict=True):
        disk.create(folder / name, content, secret=True)


def _keys(site: SiteFolder) -> Path:
    """The folder of the newest keys."""
    return site.folder / NEXT if (site.folder / NEXT).exists() else site.folder


def _read_keys(folder: Path) -> tuple[bytes, bytes]:
    key, mask = (disk.check_secret(folder / name, "the site's key").read_bytes() for name in KEYS)
    return key, mask


def _write_request(site: SiteFolder) -> None:
    """A request for the newest keys; one that is there already stays as it is."""
    keys = _read_keys(_keys(site))
    try:
        certificates.check_own(certificates.identity(site.request.read_bytes()), *keys)
    except (OSError, FedLSAError):
        content = certificates.request(site.name, site.network, *keys)
        disk.replace(site.request, content, secret=False)


def read_request(network: Network, path: Path | str) -> SiteIdentity:
    """Who asks: a request of one of the network's sites, properly signed. Whether it is theirs a person must know."""
    file = checks.path("request", path)
    asked = certificates.identity(_small_file(file, "request"))
    checks.choice("the site's name in the request", asked.name, network.sites)
    if asked.network != network.id:
        raise NetworkError(
            f"{file} is a request to network {asked.network}; this is {network.id}. "
            "Was the bundle exchanged on its way? Send it again"
        )
    return asked


def _small_file(path: Path, what: str) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise NetworkError(f"the {what} {path} is not a file")
        with open(path, "rb") as file:
            content = file.read(certificates.MAX_BYTES + 1)
    except OSError as error:
        raise NetworkError(f"cannot read the {what} {path}: {reason(error)}") from None
    if len(content) > certificates.MAX_BYTES:
        raise NetworkError(f"the {what} {path} must have at most {certificates.MAX_BYTES} bytes; got more")
    return content


def approve(folder: Path | str, path: Path | str, fingerprint: str, *, renew: bool = False) -> Path:
    """Give a site a certificate for the keys in its request; the file to be sent back, which counts from now on.

    fingerprint : as the site reads it to you; renew : replace the certificate that the site has
    """
    network = Network.load(folder)
    asked = read_request(network, path)
    given = "".join(str(fingerprint).lower().replace(":", " ").replace("-", " ").split())
    if given != asked.fingerprint.replace(" ", ""):
        raise ArgumentError(  # what it should be is not said here, lest it be copied
            f"fingerprint must be that of the request; got {checks.show(fingerprint)}. "
            f"If {asked.name} read it to you like this, the request is not the site's: do not approve it"
        )
    target = network.site_certificate(asked.name)
    if target.exists() and not renew:
        raise NetworkError(f"{asked.name} has a certificate already, {target}; --renew replaces it")
    _refuse_known_keys(network, asked)
    ca_key = disk.check_secret(network.ca_key, "the authority's key").read_bytes()
    content = authority.site(network.ca.read_bytes(), ca_key, asked)
    put_on_record(network, asked.name, "replaced")
    audit.note(network.folder, "approved", site=asked.name, text=asked.fingerprint)
    disk.replace(target, content, secret=False)
    return target


def _refuse_known_keys(network: Network, asked: SiteIdentity) -> None:
    """Keys that were revoked never come back, and no two sites share one."""
    others = [network.site_certificate(name) for name in network.sites if name != asked.name]
    for file in (*sorted(network.revoked.glob("*-revoked.pem")), *(p for p in others if p.exists())):
        try:
            known = certificates.identity(_small_file(file, "certificate"))
        except FedLSAError as error:
            raise NetworkError(f"cannot compare the request with {file}: {error}") from None
        if known.key == asked.key or known.mask == asked.mask:
            raise NetworkError(
                f"a key in the request of {asked.name} is that of {file}: the site must make new ones "
                "(fedlsa network request FOLDER --new-key)"
            )


def put_on_record(network: Network, name: str, why: str) -> None:
    """Copy a site's certificate, if it has one, to revoked/, under name, date and digest; why : revoked or replaced."""
    path = network.site_certificate(name)
    if path.exists():
        content = path.read_bytes()  # a damaged one is put on record as well
        digest = hashlib.sha256(content).hexdigest()[:16]
        audit.note(network.folder, why, site=name, text=f"the certificate with the digest {digest}")
        disk.replace(network.revoked / f"{name}-{datetime.now(UTC):%Y-%m-%d}-{digest}-{why}.pem", content, secret=False)


def revoke(folder: Path | str, name: str) -> Network:
    """Take a site's certificate away; the coordinator refuses it at once, and its keys for ever."""
    network = Network.load(folder)
    checks.choice("site", name, network.sites)
    if not network.site_certificate(name).exists():
        raise NetworkError(f"{name} has no certificate that could be revoked")
    put_on_record(network, name, "revoked")
    network.site_certificate(name).unlink()
    return network


def install(folder: Path | str, path: Path | str) -> SiteFolder:
    """Put the certificate that the coordinator sent beside the site's keys, once it is known to be for them."""
    site, file = SiteFolder.load(folder), checks.path("certificate", path)
    content = _small_file(file, "certificate")
    found = certificates.check_site(content, site.ca.read_bytes(), site.network, site.name)
    keys = _read_keys(_keys(site))
    certificates.check_own(found, *keys)
    if _keys(site) != site.folder:
        for name, secret in zip(
            KEYS, keys, strict=True
        ):  # interrupted here, keys and certificate differ: install again
            disk.replace(site.folder / name, secret, secret=True)
    disk.replace(site.certificate, content, secret=False)
    shutil.rmtree(site.folder / NEXT, ignore_errors=True)
    return site

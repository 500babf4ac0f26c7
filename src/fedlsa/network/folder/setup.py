"""What is done to folders, all at once or not at all: a coordinator makes its own, approves and revokes sites, adds and
removes them, renews its certificate; a site makes its own from a bundle, with keys and a certificate.

Private keys are made where they are used and never leave. A bundle is data: the site's own program writes README,
service file and policy, so whoever sends a bundle can neither have commands started nor loosen a policy.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from cryptography import x509

from ... import checks, files
from ...errors import ArgumentError, FedLSAError, NetworkError
from ...fitting import Regression
from ...fitting.tasks import Task
from ...installation import __version__
from .. import audit, disk
from ..protocol.codec import printable
from ..protocol.run_settings import plain_name
from ..site import policy
from . import certificates
from .certificates import PEM, SiteIdentity
from .config import PORT, Network, SiteFolder, parse, read_file, site_names, task_text

MAX_SITES = 1000  # of one network


def init(
    folder: Path | str,
    sites: int | Sequence[str],
    host: str,
    port: int = PORT,
    *,
    task: Task | None = None,
    page_port: int | None = None,
) -> Network:
    """Make a network's folder: authority, server certificate, signing key, a bundle per site, service, README.

    No bundle holds a secret: sites make their own keys.

    sites : a count (site-1, site-2, ...) or names; host : the address by which sites reach the coordinator
    task : what is estimated, by default the regression of the column "y" on all others
    page_port : of the coordinator's page, on loopback; by default the next one
    """
    target = checks.path("folder", folder)
    if isinstance(sites, int) or not checks.is_sequence(sites):
        sites = [f"site-{c}" for c in range(1, checks.integer("sites", sites, at_least=1, at_most=MAX_SITES) + 1)]
    checks.integer("port", port, at_least=1, at_most=65535)
    page = (port + 1 if port < 65535 else port - 1) if page_port is None else page_port
    network = Network(target, "", host, site_names(sites), Regression("y") if task is None else task, port, page)
    task_text(network.task)  # complains about features that are code, before anything is made
    if not disk.is_new(target):
        raise ArgumentError(f"the folder must be new or empty, for nothing is overwritten; got {str(target)!r}")
    with disk.new_folder(target) as part:
        _write(replace(network, folder=part), final=target.absolute())
    return Network.load(target)


def _write(network: Network, final: Path) -> None:
    """All files of a new network, in a folder that will be called `final`."""
    ca_key, key, signing_key = (certificates.new_key() for _ in range(3))
    ca, signing = certificates.new_authority(ca_key), certificates.public_pem(signing_key)
    certificate = certificates.certify_server(ca, ca_key, network.host, key)
    network = replace(network, id=certificates.network_id(ca, signing))
    for path, content in ((network.ca, ca), (network.certificate, certificate), (network.signing_public, signing)):
        disk.create(path, content, secret=False)
    for path, content in ((network.ca_key, ca_key), (network.key, key), (network.signing_key, signing_key)):
        disk.create(path, content, secret=True)
    for name in ("sites", "bundles", "revoked", "runs"):
        disk.folder(network.folder / name)
    for site in network.sites:
        _write_bundle(network, site)
    for name, text in pages(replace(network, folder=final)).items():
        disk.create(network.folder / name, text.encode(), secret=False)
    disk.create(network.folder / network.FILE, network.text().encode(), secret=False)


def _write_bundle(network: Network, site: str) -> None:
    """What a site is sent: its site.toml, with the two public keys by which it knows the coordinator."""
    at_site = SiteFolder(Path(site), site, network.id, network.host, network.port, network.task)
    keys = {"ca": network.ca.read_text("ascii"), "signing": network.signing_public.read_text("ascii")}
    files.write(network.bundle(site), at_site.text(**keys).encode(), "the file")


def add_site(folder: Path | str, site: str) -> Path:
    """Add a site, with the next number; its bundle. Runs that were started before go on without it."""
    network = Network.load(folder)
    plain_name("site", site)
    larger = replace(network, sites=(*network.sites, site))
    if len(larger.sites) > MAX_SITES:
        raise ArgumentError(f"a network must have at most {MAX_SITES} sites; got {len(larger.sites)}")
    _write_bundle(larger, site)
    audit.note(network.folder, "site added", site=site)
    files.write(network.folder / network.FILE, larger.text().encode(), "the file")
    return network.bundle(site)


def remove_site(folder: Path | str, site: str) -> Network:
    """Take a site off the list; its certificate is revoked. The last one stays."""
    network = Network.load(folder)
    checks.choice("site", site, network.sites)
    if len(network.sites) == 1:
        raise ArgumentError(f"a network must keep one site; got its last one, {site!r}")
    smaller = replace(network, sites=tuple(s for s in network.sites if s != site))
    _put_on_record(network, site, "revoked")
    audit.note(network.folder, "site removed", site=site)
    files.write(network.folder / network.FILE, smaller.text().encode(), "the file")
    network.site_certificate(site).unlink(missing_ok=True)
    network.bundle(site).unlink(missing_ok=True)
    return smaller


def renew(folder: Path | str) -> Network:
    """A new server certificate, and a new key for it, from the same authority; sites need nothing new."""
    network = Network.load(folder)
    ca_key = disk.check_secret(network.ca_key, "the authority's key").read_bytes()
    key = certificates.new_key()
    certificate = certificates.certify_server(network.ca.read_bytes(), ca_key, network.host, key)
    audit.note(network.folder, "server certificate renewed")
    files.write(network.key, key, "the file", mode=disk.SECRET)  # interrupted here, the two do not match: renew again
    files.write(network.certificate, certificate, "the file")
    return network


def read_certificate(network: Network, path: Path | str) -> tuple[SiteIdentity, bytes]:
    """Who asks to be approved, and the certificate itself: of one of the network's sites, made for this network and
    good today. Whether it is theirs a person must know."""
    file = checks.path("certificate", path)
    content = read_file(file)
    asked = certificates.identity(content)
    checks.choice("the site's name in the certificate", asked.name, network.sites)
    if asked.network != network.id:
        other = f"{file} is for network {asked.network}; this is {network.id}"
        raise NetworkError(f"{other}. Was the bundle exchanged on its way? Send it again")
    return certificates.check_site(content, network.id, asked.name), content


def approve(folder: Path | str, path: Path | str, fingerprint: str, *, renew: bool = False) -> SiteIdentity:
    """Let a site in with the certificate that it has sent, which counts from now on; nothing is sent back.

    fingerprint : as the site reads it to you; renew : replace the certificate that the site has
    """
    network = Network.load(folder)
    asked, content = read_certificate(network, path)
    if policy.plain_fingerprint(fingerprint) != policy.plain_fingerprint(asked.fingerprint):
        raise ArgumentError(  # what it should be is not said here, lest it be copied
            f"fingerprint must be that of the certificate; got {checks.show(fingerprint)}. "
            f"If {asked.name} read it to you like this, the certificate is not the site's: do not approve it"
        )
    target = network.site_certificate(asked.name)
    if target.exists() and not renew:
        raise NetworkError(f"{asked.name} has a certificate already, {target}; --renew replaces it")
    _refuse_known_keys(network, asked)
    _put_on_record(network, asked.name, "replaced")
    audit.note(network.folder, "approved", site=asked.name, text=asked.fingerprint)
    files.write(target, x509.load_pem_x509_certificate(content).public_bytes(PEM), "the file")  # and no words around it
    return asked


def _refuse_known_keys(network: Network, asked: SiteIdentity) -> None:
    """Keys that were revoked never come back, and no two sites share one."""
    others = [network.site_certificate(name) for name in network.sites if name != asked.name]
    for file in (*sorted(network.revoked.glob("*-revoked.pem")), *(p for p in others if p.exists())):
        try:
            known = certificates.identity(read_file(file))
        except FedLSAError as error:
            raise NetworkError(f"cannot compare the certificate with {file}: {error}") from None
        if known.key == asked.key or known.mask == asked.mask:
            known_key = f"a key in the certificate of {asked.name} is that of {file}"
            raise NetworkError(f"{known_key}: the site must make new ones (fedlsa network enrol FOLDER --new-key)")


def _put_on_record(network: Network, name: str, why: str) -> None:
    """Copy a site's certificate, if it has one, to revoked/, under name, date and digest; why : revoked or replaced."""
    path = network.site_certificate(name)
    if path.exists():
        content = path.read_bytes()  # a damaged one is put on record as well
        digest = hashlib.sha256(content).hexdigest()[:16]
        audit.note(network.folder, why, site=name, text=f"the certificate with the digest {digest}")
        files.write(network.revoked / f"{name}-{datetime.now(UTC):%Y-%m-%d}-{digest}-{why}.pem", content, "the file")


def revoke(folder: Path | str, name: str) -> Network:
    """Take a site's certificate away; the coordinator refuses it at once, and its keys for ever."""
    network = Network.load(folder)
    checks.choice("site", name, network.sites)
    if not network.site_certificate(name).exists():
        raise NetworkError(f"{name} has no certificate that could be revoked")
    _put_on_record(network, name, "revoked")
    network.site_certificate(name).unlink()
    return network


def enrol(network: Network, bundle: Path | str, folder: Path | str) -> SiteFolder:
    """Both sides of an enrolment in one call, where coordinator and site are on one machine."""
    site = enrol_site(bundle, folder)
    approve(network.folder, site.certificate, certificates.fingerprint(site.certificate.read_bytes()))
    return site


# How a site comes into a network: it makes its keys and its certificate, and a person at the coordinator approves it.

KEYS = "site.key", "mask.key"
SERVICE_USER = "fedlsa"  # of the units that root makes: no service of ours runs as root


def enrol_site(bundle: Path | str, folder: Path | str | None = None, *, new_key: bool = False) -> SiteFolder:
    """Make a site's folder from its bundle: keys, and the certificate NAME.pem for the coordinator to approve.

    bundle : or the site's folder, to renew its certificate when that is needed
    folder : by default named as the bundle, beside it
    new_key : replace the keys; the site is let in again when the new certificate is approved
    """
    path = checks.path("bundle", bundle)
    target = path if path.is_dir() else path.with_suffix("") if folder is None else checks.path("folder", folder)
    if not path.is_dir():
        entries = parse(read_file(path), str(path))
        site = SiteFolder.from_entries(target.absolute(), entries, str(path))
        keys = {name: str(entries.get(entry, "")).encode() for name, entry in FROM_BUNDLE.items()}
        site.check_id(keys["ca.pem"], keys["signing.pem"], path)
        if disk.is_new(target):
            _make(site, keys)
        elif SiteFolder.load(target).text() != site.text():
            raise NetworkError(f"{path} is for another site, network or task than {target}; --folder names another one")
    site = SiteFolder.load(target)
    if new_key:
        for name, content in _new_keys().items():  # interrupted between the two, the certificate below is missing
            files.write(site.folder / name, content, "the file", mode=disk.SECRET)
    _certify(site)
    return site


FROM_BUNDLE = {"ca.pem": "ca", "signing.pem": "signing"}  # file: entry


def _make(site: SiteFolder, keys: Mapping[str, bytes]) -> None:
    """A new folder: what the bundle says, and the site's own keys, policy, service file and README."""
    texts = pages(site) | {SiteFolder.FILE: site.text(), "policy.toml": policy.template(site.task)}
    with disk.new_folder(site.folder) as part:
        for name, content in {**keys, **{name: text.encode() for name, text in texts.items()}}.items():
            disk.create(part / name, content, secret=False)
        for name, content in _new_keys().items():
            disk.create(part / name, content, secret=True)


def _new_keys() -> dict[str, bytes]:
    return dict(zip(KEYS, (certificates.new_key(), certificates.new_mask_key()), strict=True))


def _certify(site: SiteFolder) -> None:
    """A certificate for the site's keys; one that is good for 30 days more stays as it is."""
    keys = read_file(site.key), read_file(site.mask_key)
    try:
        site.check_certificate()
        if certificates.expires(read_file(site.certificate)) - datetime.now(UTC) > certificates.WARNED:
            return
    except FedLSAError:  # missing, of other keys, or of another clock
        pass
    files.write(site.certificate, certificates.certify_site(site.name, site.network, *keys), "the file")


# Texts for people and service managers, from templates/: READMEs of both roles, systemd units.


class _Page(Template):
    delimiter = "%"  # shells have uses of their own for the dollar


def pages(of: Network | SiteFolder) -> dict[str, str]:
    """README and service file of a folder, which has its final name already: (name, text)."""
    values: dict[str, Any] = {"host": of.host, "port": of.port, "version": __version__, "task": _task(of.task)}
    folder, words = str(of.folder), [_word(str(of.folder))]
    if not folder.isprintable():  # a line break would begin another entry of the unit
        raise ArgumentError(f"the folder's name must have no control characters; got {folder!r}")
    if isinstance(of, Network):
        role, verb, template, network = "coordinator", "serve", "coordinator.md", of.id
        values |= {"page_port": of.page_port, "sites": ", ".join(of.sites)}
    else:
        role, verb, template, network = f"site {of.name}", "join", "site.md", of.network
        values["name"] = of.name
        words += ["--data", '"@DATA@"', "--yes", "--page-port", "9094"]
    values |= {"folder": shlex.quote(folder), "network": certificates.grouped(network)}
    readme = _render(template, values)
    sibling = Path(sys.executable).with_name("fedlsa")
    program = str(sibling) if sibling.is_file() else shutil.which("fedlsa") or "@FEDLSA@"
    command = " ".join([_word(program), "network", verb, *words])
    values |= {"role": role, "command": command, "user": service_user(), "writable": _word(folder)}
    values |= {"working_directory": _escaped(folder), "cache": _word(f"NUMBA_CACHE_DIR={of.folder / 'cache'}")}
    return {"README.md": readme, of.SERVICE: _render("fedlsa.service", values)}


def service_user() -> str:
    """Who runs the services of a folder: who makes it, but never root."""
    try:
        return SERVICE_USER if os.geteuid() == 0 else getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return SERVICE_USER


def _render(template: str, values: Mapping[str, Any]) -> str:
    text = resources.files(__package__).joinpath("templates", template).read_text(encoding="utf-8")
    return _Page(text).substitute(values)


def _escaped(text: str) -> str:
    """Text in a unit, where a percent sign would begin a specifier."""
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """One word of a command line or a list in a unit."""
    quoted = _escaped(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def _task(task: Task) -> str:
    if isinstance(task, Regression):
        by = "all other columns" if task.columns is None else ", ".join(f"`{printable(n)}`" for n in task.columns)
        model = f"a linear model of the column `{printable(task.target)}` by {by}"
        if task.formula is not None:
            model = f"the linear model `{printable(task.formula)}`"
        own = " Each site has an intercept of its own, which stays there." if task.own is not None else ""
        return f"The task: {model}.{own}"
    return f"The task: the value function of the logged policy, discount {task.discount:g}, trace {task.trace:g}."

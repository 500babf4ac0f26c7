"""Make and change the coordinator's folder: authority, keys, bundles, texts; all at once or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ... import checks, files
from ...errors import ArgumentError
from ...fitting import Regression
from ...fitting.tasks import Task
from .. import audit, disk
from ..protocol.run_settings import plain_name
from .config import PORT, Network, SiteFolder, site_names, task_text

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
    """Make a network's folder: authority, server certificate, signing key, a bundle per site, services, README.

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
    task = Regression("y") if task is None else task
    network = Network(target, "", host, site_names(sites), task, port, page)
    task_text(network.task)  # complains about features that are code, before anything is made
    if not disk.is_new(target):
        raise ArgumentError(f"the folder must be new or empty, for nothing is overwritten; got {str(target)!r}")
    with disk.new_folder(target) as part:
        _write(replace(network, folder=part), final=target.absolute())
    return Network.load(target)


def _write(network: Network, final: Path) -> None:
    """All files of a new network, in a folder that will be called `final`."""
    from . import certificates, enrolment

    ca_key, key, signing_key = (certificates.new_key() for _ in range(3))
    ca, signing = certificates.new_authority(ca_key), certificates.public_pem(signing_key)
    certificate = certificates.certify_server(ca, ca_key, network.host, key)
    network = replace(network, id=certificates.network_id(ca, signing))
    for path, content in ((network.ca, ca), (network.certificate, certificate), (network.signing_public, signing)):
        disk.create(path, content, secret=False)
    for path, content in ((network.ca_key, ca_key), (network.key, key), (network.signing_key, signing_key)):
        disk.create(path, content, secret=True)
    for name in ("sites", "bundles", "revoked", "systemd", "runs"):
        disk.folder(network.folder / name)
    for site in network.sites:
        _write_bundle(network, site)
    for name, template in enrolment.COORDINATOR_PAGES.items():
        text = enrolment.render(template, replace(network, folder=final))
        disk.create(network.folder / name, text.encode(), secret=False)
    disk.create(network.folder / network.FILE, network.text().encode(), secret=False)


def _write_bundle(network: Network, site: str) -> None:
    from . import enrolment

    at_site = SiteFolder(Path(site), site, network.id, network.host, network.port, network.task)
    content = {"site.toml": at_site.text().encode(), "README.md": enrolment.render("site.md", at_site).encode()}
    content |= {"ca.pem": network.ca.read_bytes(), "signing.pem": network.signing_public.read_bytes()}
    files.write(network.bundle(site), enrolment.pack_bundle(content), "the file")


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
    from .enrolment import put_on_record

    network = Network.load(folder)
    checks.choice("site", site, network.sites)
    if len(network.sites) == 1:
        raise ArgumentError(f"a network must keep one site; got its last one, {site!r}")
    smaller = replace(network, sites=tuple(s for s in network.sites if s != site))
    put_on_record(network, site, "revoked")
    audit.note(network.folder, "site removed", site=site)
    files.write(network.folder / network.FILE, smaller.text().encode(), "the file")
    network.site_certificate(site).unlink(missing_ok=True)
    network.bundle(site).unlink(missing_ok=True)
    return smaller


def renew(folder: Path | str) -> Network:
    """A new server certificate, and a new key for it, from the same authority; sites need nothing new."""
    from . import certificates

    network = Network.load(folder)
    ca_key = disk.check_secret(network.ca_key, "the authority's key").read_bytes()
    key = certificates.new_key()
    certificate = certificates.certify_server(network.ca.read_bytes(), ca_key, network.host, key)
    audit.note(network.folder, "server certificate renewed")
    files.write(network.key, key, "the file", mode=disk.SECRET)  # interrupted here, the two do not match: renew again
    files.write(network.certificate, certificate, "the file")
    return network


def enrol(network: Network, bundle: Path | str, folder: Path | str) -> SiteFolder:
    """Request, approval and installation in one call, where coordinator and site are on one machine."""
    from . import enrolment

    site = enrolment.request(bundle, folder)
    asked = enrolment.read_request(network, site.request)
    enrolment.install(site.folder, enrolment.approve(network.folder, site.request, asked.fingerprint))
    return site

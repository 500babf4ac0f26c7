"""Make and change the coordinator's folder: keys, certificates, bundles, texts; all at once or not at all.

The texts come from templates/: READMEs of both roles, systemd units, rules for nginx and Caddy, which let POST below
/v1/fleet/ through and nothing else, over TLS that is checked against the network's authority.
"""

from __future__ import annotations

import contextlib
import getpass
import secrets
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Any

from ... import checks
from ...errors import ArgumentError, MissingExtraError
from ...fit import Regression
from ...fit.tasks import Task
from .. import disk
from ..processes import bracketed
from ..protocol.run_settings import plain_name
from . import bundles
from .config import PORT, Bundle, Network, host_kind, site_names, task_text

MAX_SITES = 1000  # of one network
COORDINATOR_PAGES = {
    "README.md": "coordinator.md",
    "systemd/fedlsa-coordinator.service": "coordinator.service",
    "proxy/nginx.conf": "nginx.conf",
    "proxy/Caddyfile": "Caddyfile",
}  # path in the coordinator's folder: template
SITE_PAGES = {"README.md": "site.md", "fedlsa-site.service": "site.service"}


def _certificates() -> Any:
    """The module, or which extra is missing, before any work."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise MissingExtraError("a network needs Flower and cryptography: pip install 'fedlsa[flower]'") from None
    from . import certificates

    return certificates


def init(
    folder: Path | str,
    sites: int | Sequence[str],
    host: str,
    port: int = PORT,
    *,
    task: Task | None = None,
    inner_port: int | None = None,
) -> Network:
    """Make a network's folder: authority, server certificate, a key pair and a bundle per site, services, README.

    sites : a count (site-1, site-2, ...) or names; host : the address by which sites reach the coordinator
    task : what is estimated, by default the regression of the column "y" on all others
    inner_port : of the SuperLink, on loopback; by default the next one
    """
    _certificates()
    target = checks.path("folder", folder)
    if isinstance(sites, int) or not checks.is_sequence(sites):
        sites = [f"site-{c}" for c in range(1, checks.integer("sites", sites, at_least=1, at_most=MAX_SITES) + 1)]
    checks.integer("port", port, at_least=1, at_most=65535)
    inner = (port + 1 if port < 65535 else port - 1) if inner_port is None else inner_port
    task = Regression("y") if task is None else task
    network = Network(target, host, site_names(sites), task, port, inner)
    task_text(network.task)  # complains about features that are code, before anything is made
    if not disk.is_new(target):
        raise ArgumentError(f"the folder must be new or empty, for nothing is overwritten; got {str(target)!r}")
    with disk.new_folder(target) as part:
        _write(replace(network, folder=part), final=target.absolute())
    return Network.load(target)


def _write(network: Network, final: Path) -> None:
    """All files of a new network, in a folder that will be called `final`."""
    ca, ca_key = _certificates().authority()
    certificate, key = _certificates().server(ca, ca_key, network.host)
    for path, content in ((network.ca, ca), (network.certificate, certificate)):
        disk.create(path, content, secret=False)
    secret = secrets.token_hex(32).encode()  # both of Flower's processes read the file's bytes as they are
    for path, content in ((network.ca_key, ca_key), (network.key, key), (network.secret, secret)):
        disk.create(path, content, secret=True)
    for name in ("sites", "bundles", "revoked", "systemd", "proxy", "runs"):
        disk.folder(network.folder / name)
    for site in network.sites:
        _new_key(network, site)
    for name, template in COORDINATOR_PAGES.items():
        text = render(template, replace(network, folder=final))
        disk.create(network.folder / name, text.encode(), secret=False)
    disk.create(network.folder / network.FILE, network.text().encode(), secret=False)


def _new_key(network: Network, site: str) -> None:
    """A key pair and a bundle for a site, in the place of those that it may have; the old key is put on record."""
    secret, public = _certificates().site(site)
    _revoke(network, site)
    toml = Bundle(network.folder, site, network.host, network.port, network.task).text()
    content = {"site.toml": toml.encode(), "site.key": secret, "ca.pem": network.ca.read_bytes()}
    content |= {name: render(template, network, site).encode() for name, template in SITE_PAGES.items()}
    disk.replace(network.bundle(site), bundles.pack(content), secret=True)
    disk.replace(network.public_key(site), public, secret=False)


def _revoke(network: Network, site: str) -> None:
    """Keep a copy of a site's public key among those that the SuperLink must forget."""
    old = network.public_key(site)
    if old.is_file():
        content = old.read_bytes()
        name = f"{site}-{_certificates().fingerprint(content)}.pub"
        disk.replace(network.folder / "revoked" / name, content, secret=False)


def rotate_key(folder: Path | str, site: str) -> Path:
    """Give a site a new key pair; its new bundle. The old key is refused once `serve` has started again."""
    _certificates()
    network = Network.load(folder)
    checks.choice("site", site, network.sites)
    _new_key(network, site)
    return network.bundle(site)


def add_site(folder: Path | str, site: str) -> Path:
    """Add a site, with the next number; its bundle. Runs that were started before go on without it."""
    _certificates()
    network = Network.load(folder)
    plain_name("site", site)
    larger = replace(network, sites=(*network.sites, site))
    if len(larger.sites) > MAX_SITES:
        raise ArgumentError(f"a network must have at most {MAX_SITES} sites; got {len(larger.sites)}")
    _new_key(larger, site)
    disk.replace(network.folder / network.FILE, larger.text().encode(), secret=False)
    return network.bundle(site)


def remove_site(folder: Path | str, site: str) -> Network:
    """Take a site off the list; its key is refused once `serve` has started again. The last one stays."""
    network = Network.load(folder)
    checks.choice("site", site, network.sites)
    if len(network.sites) == 1:
        raise ArgumentError(f"a network must keep one site; got its last one, {site!r}")
    smaller = replace(network, sites=tuple(s for s in network.sites if s != site))
    _revoke(network, site)
    disk.replace(network.folder / network.FILE, smaller.text().encode(), secret=False)
    network.public_key(site).unlink(missing_ok=True)
    network.bundle(site).unlink(missing_ok=True)
    return smaller


def renew(folder: Path | str) -> Network:
    """A new server certificate, and a new key for it, from the same authority; sites need nothing new."""
    _certificates()
    network = Network.load(folder)
    ca_key = disk.check_secret(network.ca_key, "the authority's key").read_bytes()
    certificate, key = _certificates().server(network.ca.read_bytes(), ca_key, network.host)
    disk.replace(network.key, key, secret=True)  # interrupted here, the two do not match: renew again
    disk.replace(network.certificate, certificate, secret=False)
    return network


class _Page(Template):
    delimiter = "%"  # nginx has uses of its own for the dollar


def render(template: str, network: Network, site: str = "") -> str:
    """A text for a network, whose folder has its final name already; site : for whom it is."""
    folder = str(network.folder)
    values = {name: str(getattr(network, name)) for name in ("host", "port", "inner_port", "ca", "certificate", "key")}
    values |= {"version": metadata.version("fedlsa"), "task": _task(network), "site": site}
    values |= {"sites": "\n".join(f"| {c} | {name} | bundles/{name}.zip |" for c, name in enumerate(network.sites))}
    values |= {"folder": shlex.quote(folder), "bracketed_host": bracketed(network.host)}
    # clients that call an address by its number name no server, so Caddy is told which one is meant
    values["default_sni"] = f"\n\tdefault_sni {network.host}" if host_kind(network.host) == "ip" else ""
    if template.endswith(".service"):
        beside = Path(sys.executable).with_name("fedlsa")
        command = str(beside) if beside.is_file() else shutil.which("fedlsa")
        program = "@FEDLSA@" if command is None else str(Path(command).absolute())
        values |= {"program": _word(program), "folder": _word(folder), "working_directory": _plain(folder)}
        values |= {"cache": _word(f"NUMBA_CACHE_DIR={network.folder / 'cache'}"), "user": "@USER@"}
        with contextlib.suppress(OSError, KeyError, ImportError):
            values["user"] = getpass.getuser()
    text = resources.files(__package__).joinpath("templates", template).read_text(encoding="utf-8")
    return _Page(text).substitute(values)


def _plain(text: str) -> str:
    """Text in a unit, where a percent sign would begin a specifier."""
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """One word of a command line or a list in a unit."""
    quoted = _plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def _task(network: Network) -> str:
    task = network.task
    if isinstance(task, Regression):
        by = "all other columns" if task.features is None else ", ".join(f"`{n}`" for n in task.features)
        return f"The task: a linear model of the column `{task.target}` by {by}."
    return f"The task: the value function of the logged policy, discount {task.discount:g}, trace {task.trace:g}."

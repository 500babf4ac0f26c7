"""How a site comes into a network: it makes its keys and its certificate, and a person at the coordinator approves it.

Private keys are made where they are used and never leave. A bundle is data: the site's own program writes README,
service file and policy, so whoever sends a bundle can neither have commands started nor loosen a policy.
"""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from ... import checks, files
from ...errors import ArgumentError, FedLSAError, NetworkError
from ...fitting import Regression
from ...fitting.tasks import Task
from ...installation import __version__
from .. import disk
from ..protocol.codec import printable
from ..site import policy
from . import certificates
from .config import Network, SiteFolder, parse, read_file

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
        if task.formula is not None:
            return f"The task: the linear model `{printable(task.formula)}`."
        by = "all other columns" if task.columns is None else ", ".join(f"`{printable(n)}`" for n in task.columns)
        return f"The task: a linear model of the column `{printable(task.target)}` by {by}."
    return f"The task: the value function of the logged policy, discount {task.discount:g}, trace {task.trace:g}."

"""The commands `fedlsa network ...` with which networks are made and sites come, change their keys, and go."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ArgumentError, NetworkError
from ..fitting import Regression
from ..network.folder.config import PORT, Network
from .options import App, Given, argument, option, switch, takes
from .outputs import check_writable
from .task_options import REGRESSION_TASK, VALUE_TASK, chosen_task

INIT_EXAMPLES = (
    "fedlsa network init net --sites lyon,oslo,turin --host fl.example.org --target charges",
    "fedlsa network init net --sites 4 --host 192.0.2.7 --discount 0.95 --features 'OneHot(64)'",
)
ENROL_EXAMPLES = ("fedlsa network enrol lyon.toml", "fedlsa network enrol lyon --new-key")
APPROVE_EXAMPLES = (
    "fedlsa network approve net lyon.pem oslo.pem turin.pem",
    "fedlsa network approve net lyon.pem --fingerprint '3f2a 90c1 77de 0b54 a1e8 6c03 d95b 42f7' --renew",
)
Folder = Annotated[Path, argument("What fedlsa network init made.", "DIR")]
Site = Annotated[str, argument("Its name.", "SITE")]
KEYS_PANEL, SITE_PANEL = "The coordinator: a network and its sites", "A site"  # of the help
network = App(no_args_is_help=True)


def _setup() -> Any:
    """The module behind these commands, or which extra is missing."""
    from ..network.folder import setup

    return setup


@network.command(examples=INIT_EXAMPLES, rich_help_panel=KEYS_PANEL)
@takes(regression=REGRESSION_TASK, value=VALUE_TASK)
def init(
    regression: Given,
    value: Given,
    folder: Path = argument("A new folder.", "DIR"),
    host: str = option("Address or name by which sites reach the coordinator.", ...),
    sites: str = option("Their names, lyon,oslo,turin; or how many: site-1, site-2, ...", ...),
    port: int = option("That sites reach.", PORT),
    page_port: int | None = option("Of the coordinator's page, on loopback only.", shown="the next one"),
) -> None:
    """Make a network: the coordinator's keys, a bundle without secrets for each site, a README, a service."""
    task = chosen_task(regression, value)
    check_writable("the folder", folder)
    counted = len(sites) < 9 and sites.strip().lstrip("+-").isdecimal()
    named = int(sites) if counted else [name.strip() for name in sites.split(",")]
    setup = _setup()
    made = setup.init(folder, named, host, port, task=task or Regression("y"), page_port=page_port)
    if task is None:
        print("the task: a regression of the column 'y' on all others; --target or --discount choose another")
    print(f"made {folder} for {len(made.sites)} site{'s' * (len(made.sites) > 1)}: {', '.join(made.sites)}")
    _name_service_user(made)
    first, here = made.sites[0], shlex.quote(str(folder))
    print(f"send each site its bundle, {folder / 'bundles'}/NAME.toml; it holds no secret")
    print("telephone each site, and read it the network's fingerprint:")
    print(f"  {setup.certificates.grouped(made.id)}")
    print(f"at a site:              fedlsa network enrol {first}.toml")
    print(f"approve what it sends:  fedlsa network approve {here} {first}.pem")
    print(f"estimate:               fedlsa network run {here}")
    print(f"more: {folder / 'README.md'}")


def _name_service_user(of: Any) -> None:
    user = _setup().service_user()
    if user == _setup().SERVICE_USER:
        print(
            f"its service, {of.SERVICE}, runs as the user {user} and never as root: make that user, and the folder its"
        )


@network.command(examples=ENROL_EXAMPLES, rich_help_panel=SITE_PANEL)
def enrol(
    bundle: Path = argument("What the coordinator sent; or the site's folder, to see or renew.", "BUNDLE"),
    folder: Path | None = option("Where the site keeps keys, policy and state.", shown="the bundle's name, here"),
    new_key: bool = switch("--new-key", "Make new keys; policy, ledger and state stay."),
) -> None:
    """At a site: make its keys, which never leave, and its certificate, which the coordinator approves."""
    setup = _setup()
    here = Path(bundle.stem) if folder is None and bundle.is_file() else folder
    site = setup.enrol_site(bundle, here, new_key=new_key)
    certificate = site.certificate.read_bytes()
    print(f"the keys of {site.name} are in {site.folder}: nobody else needs them, not even the coordinator")
    _name_service_user(site)
    end = setup.certificates.expires(certificate)
    print(f"send this file, and nothing else, to the coordinator: {site.certificate} (good until {end:%Y-%m-%d})")
    print("then telephone the coordinator, at a number that you know, and compare")
    print(f"  your fingerprint, which you read to them:           {setup.certificates.fingerprint(certificate)}")
    print(f"  the network's fingerprint, which they read to you:  {setup.certificates.grouped(site.network)}")
    print("if one of them differs, stop: a file was exchanged on its way")
    print(f"read and edit what may leave this site: {site.policy}")
    print(f"take part:  fedlsa network join {shlex.quote(str(site.folder))} --data FILE.parquet")


@network.command(examples=APPROVE_EXAMPLES, rich_help_panel=KEYS_PANEL)
def approve(
    folder: Folder,
    certificates: list[Path] = typer.Argument(help="What sites sent: NAME.pem.", metavar="FILE...", show_default=False),
    fingerprint: list[str] | None = option(
        "As the site reads it to you; once for each file.", shown="it is shown, and you are asked"
    ),
    renew: bool = switch("--renew", "Replace the certificate that a site has."),
) -> None:
    """Let sites in, once a person has compared the fingerprint of each certificate with what the site reads."""
    setup = _setup()
    known = Network.load(folder)
    asked = [setup.read_certificate(known, path)[0] for path in certificates]
    if fingerprint and len(fingerprint) != len(asked):
        raise ArgumentError(f"--fingerprint must be given once for each file; got {len(fingerprint)} for {len(asked)}")
    if not fingerprint and not sys.stdin.isatty():
        raise ArgumentError("--fingerprint must be given where nobody can be asked; got no terminal")
    for number, (site, path) in enumerate(zip(asked, certificates, strict=True)):
        if fingerprint:
            heard = fingerprint[number]
        else:
            print(f"a certificate of {site.name}; its fingerprint is\n  {site.fingerprint}")
            print("telephone the site, at a number that you know, and let it read its fingerprint to you")
            if not typer.confirm("is it the same, in every digit?", default=False):
                raise NetworkError(f"not approved: {site.name} is not let in with this certificate")
            heard = site.fingerprint
        setup.approve(folder, path, heard, renew=renew)
        print(f"approved {site.name}: it can join now")
    waiting = [site for site in known.sites if not known.site_certificate(site).exists()]
    if waiting:
        print(f"not approved yet: {', '.join(waiting)}")


@network.command(rich_help_panel=KEYS_PANEL)
def revoke(folder: Folder, site: Site) -> None:
    """Take a site's certificate away: it is refused from now on, and its keys are never approved again."""
    _setup().revoke(folder, site)
    print(f"revoked: {site} is refused from now on. To come back it makes new keys (fedlsa network enrol --new-key)")


@network.command(rich_help_panel=KEYS_PANEL)
def renew(folder: Folder) -> None:
    """A new server certificate from the same authority; neither sites nor a running serve need anything new."""
    setup = _setup()
    end = setup.certificates.expires(setup.renew(folder).certificate.read_bytes())
    print(f"new certificate, good until {end:%Y-%m-%d}")


@network.command("add-site", rich_help_panel=KEYS_PANEL)
def add_site(folder: Folder, site: Site) -> None:
    """Add a site; runs that have begun go on without it."""
    print(f"added {site}: send it {_setup().add_site(folder, site)}, and approve the certificate that it sends")


@network.command("remove-site", rich_help_panel=KEYS_PANEL)
def remove_site(folder: Folder, site: Site) -> None:
    """Take a site off the list; its certificate is revoked."""
    left = _setup().remove_site(folder, site)
    print(f"removed {site}; {', '.join(left.sites)} stay. Its certificate is refused from now on")

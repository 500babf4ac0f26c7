"""The commands `fedlsa network ...` with which networks are made and sites come, change their keys, and go."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import checks
from ..errors import ArgumentError, NetworkError
from ..fitting import Regression
from ..network.folder import setup
from ..network.folder.config import PORT, Network
from .options import App, Given, argument, option, switch, takes
from .outputs import check_writable
from .task_options import REGRESSION_TASK, VALUE_TASK, chosen_task

INIT_EXAMPLES = (
    "fedlsa network init net --sites 4 --host fl.example.org --target charges",
    "fedlsa network init net --site lisbon --site oslo --host 192.0.2.7 --discount 0.95 --features 'OneHot(64)'",
)
REQUEST_EXAMPLES = ("fedlsa network request site-1.zip", "fedlsa network request site-1 --new-key")
APPROVE_EXAMPLES = (
    "fedlsa network approve net site-1.csr",
    "fedlsa network approve net site-1.csr --fingerprint '3f2a 90c1 77de 0b54 a1e8 6c03 d95b 42f7' --renew",
)
Folder = Annotated[Path, argument("What fedlsa network init made.", "DIR")]
Site = Annotated[str, argument("Its name.", "SITE")]
KEYS_PANEL, SITE_PANEL = "The coordinator: a network and its sites", "A site"  # of the help
network = App(no_args_is_help=True)


def _enrolment() -> Any:
    """The module behind these commands, or which extra is missing."""
    from ..network.folder import enrolment

    return enrolment


@network.command(examples=INIT_EXAMPLES, rich_help_panel=KEYS_PANEL)
@takes(regression=REGRESSION_TASK, value=VALUE_TASK)
def init(
    regression: Given,
    value: Given,
    folder: Path = argument("A new folder.", "DIR"),
    host: str = option("Address or name by which sites reach the coordinator.", ...),
    sites: int | None = option("How many: site-1, site-2, ..."),
    site: list[str] | None = option("Or their names, one option each."),
    port: int = option("That sites reach.", PORT),
    page_port: int | None = option("Of the coordinator's page, on loopback only.", shown="the next one"),
) -> None:
    """Make a network: an authority, the coordinator's keys, a bundle without secrets per site, READMEs, services."""
    if (sites is None) == (not site):
        got = "neither" if sites is None else "both"
        raise ArgumentError(f"--sites or --site must be given, one of them; got {got}")
    task = chosen_task(regression, value)
    check_writable("the folder", folder)
    if sites is not None:
        checks.integer("sites", sites, at_least=1, at_most=setup.MAX_SITES)
    made = setup.init(folder, sites or site or [], host, port, task=task or Regression("y"), page_port=page_port)
    if task is None:
        print("the task: a regression of the column 'y' on all others; --target or --discount choose another")
    here, first, fingerprint = shlex.quote(str(folder)), made.sites[0], _enrolment().certificates.grouped(made.id)
    print(f"made {folder} for {len(made.sites)} site{'s' * (len(made.sites) > 1)}: {', '.join(made.sites)}")
    print(f"the network's fingerprint, to be read to every site over the telephone: {fingerprint}")
    print(f"send each site its bundle, {folder / 'bundles'}/NAME.zip; it holds no secret")
    print(f"how to go on: {folder / 'README.md'}")
    print(f"at a site:              fedlsa network request {first}.zip")
    print(f"approve what it sends:  fedlsa network approve {here} {first}.csr")
    print(f"start the coordinator:  fedlsa network serve {here}")


@network.command(examples=REQUEST_EXAMPLES, rich_help_panel=SITE_PANEL)
def request(
    bundle: Path = argument("What the coordinator sent; or the site's folder, to ask again.", "BUNDLE"),
    folder: Path | None = option("Where the site keeps keys, policy and state.", shown="the bundle's name"),
    new_key: bool = switch("--new-key", "Make new keys; policy, ledger and state stay."),
) -> None:
    """At a site: make its keys, which never leave, and a request for the coordinator to approve."""
    enrolment = _enrolment()
    site = enrolment.request(bundle, folder, new_key=new_key)
    asked = enrolment.certificates.identity(site.request.read_bytes())
    here = shlex.quote(str(site.folder))
    print(f"the keys of {site.name} are in {site.folder}: nobody else needs them, not even the coordinator")
    print(f"send this file, and nothing else, to the coordinator: {site.request}")
    print("then telephone the coordinator, at a number that you know, and compare")
    print(f"  your fingerprint, which you read to them:           {asked.fingerprint}")
    print(f"  the network's fingerprint, which they read to you:  {enrolment.certificates.grouped(site.network)}")
    print("if one of them differs, stop: a file was exchanged on its way")
    print(f"install what they send back:  fedlsa network install {here} {site.name}.pem")


@network.command(examples=APPROVE_EXAMPLES, rich_help_panel=KEYS_PANEL)
def approve(
    folder: Folder,
    request: Path = argument("What the site sent: NAME.csr.", "REQUEST"),
    fingerprint: str | None = option("As the site reads it to you.", shown="it is shown, and you are asked"),
    renew: bool = switch("--renew", "Replace the certificate that the site has."),
) -> None:
    """Give a site its certificate, once a person has compared the fingerprint of its request with the site's own."""
    enrolment = _enrolment()
    asked = enrolment.read_request(Network.load(folder), request)
    if fingerprint is None:
        if not sys.stdin.isatty():
            raise ArgumentError("--fingerprint must be given where nobody can be asked; got no terminal")
        print(f"a request of {asked.name}; its fingerprint is\n  {asked.fingerprint}")
        print("telephone the site, at a number that you know, and let it read its fingerprint to you")
        if not typer.confirm("is it the same, in every digit?", default=False):
            raise NetworkError(f"not approved: {asked.name} has no new certificate")
        fingerprint = asked.fingerprint
    made = enrolment.approve(folder, request, fingerprint, renew=renew)
    end = enrolment.certificates.expires(made.read_bytes())
    print(f"approved {asked.name} until {end:%Y-%m-%d}: send it {made}, which is no secret")


@network.command(rich_help_panel=SITE_PANEL)
def install(
    folder: Path = argument("The site's folder.", "DIR"),
    certificate: Path = argument("What the coordinator sent: NAME.pem.", "FILE"),
) -> None:
    """At a site: put its certificate beside its keys, if it is for them and from this network."""
    enrolment = _enrolment()
    site = enrolment.install(folder, certificate)
    end = enrolment.certificates.expires(site.certificate.read_bytes())
    here = shlex.quote(str(site.folder))
    print(f"installed; {site.name} can take part until {end:%Y-%m-%d}")
    print(f"read and edit what may leave this site: {site.policy}")
    print(f"then:  fedlsa network join {here} --data FILE.parquet")


@network.command(rich_help_panel=KEYS_PANEL)
def revoke(folder: Folder, site: Site) -> None:
    """Take a site's certificate away: it is refused from now on, and its keys are never approved again."""
    _enrolment().revoke(folder, site)
    print(f"revoked: {site} is refused from now on. To come back it makes new keys (fedlsa network request --new-key)")


@network.command(rich_help_panel=KEYS_PANEL)
def renew(folder: Folder) -> None:
    """A new server certificate from the same authority; sites need nothing new."""
    made = setup.renew(folder)
    end = _enrolment().certificates.expires(made.certificate.read_bytes())
    print(f"new certificate, good until {end:%Y-%m-%d}; restart serve")


@network.command("add-site", rich_help_panel=KEYS_PANEL)
def add_site(folder: Folder, site: Site) -> None:
    """Add a site; runs that have begun go on without it."""
    made = setup.add_site(folder, site)
    print(f"added {site}: send it {made}, and approve its request")


@network.command("remove-site", rich_help_panel=KEYS_PANEL)
def remove_site(folder: Folder, site: Site) -> None:
    """Take a site off the list; its certificate is revoked."""
    left = setup.remove_site(folder, site)
    print(f"removed {site}; {', '.join(left.sites)} stay. Its certificate is refused from now on")

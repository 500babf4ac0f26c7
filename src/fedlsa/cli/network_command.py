"""The commands `fedlsa network ...`: networks are made, sites come and go, and runs go across them."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .. import checks
from ..errors import ArgumentError, NetworkError
from ..fitting import Regression
from ..network.disk import ChainHead, Database, write_json
from ..network.folder.config import PORT, Network, SiteFolder
from ..network.pages import PagePlace
from ..network.protocol.run_settings import ABSENCE, AGGREGATIONS, StartOptions
from ..theory.privacy import LOCAL, UNITS, check_unit
from ..theory.private_plans import PrivacyBudget, affordable, least_error
from .options import AS_JSON, FORCE, App, Given, Option, Options, Words, argument, option, switch, takes
from .outputs import Outputs, check_writable, print_json
from .problem_options import share
from .task_options import BY_HAND, EPSILON, REGRESSION_TASK, VALUE_TASK, chosen_task, names, site_files

NETWORK_HELP = """Run the same recursion across real sites.

The [bold]coordinator[/bold] runs init, approve and run; a [bold]site[/bold] runs enrol and join. \
What may leave a site its own policy says. See docs/network.md."""
INIT_EXAMPLES = (
    "fedlsa network init net --sites lyon,oslo,turin --host fl.example.org --target charges",
    "fedlsa network init net --sites 4 --host 192.0.2.7 --discount 0.95 --features 'OneHot(64)'",
)
ENROL_EXAMPLES = ("fedlsa network enrol lyon.toml", "fedlsa network enrol lyon --new-key")
APPROVE_EXAMPLES = (
    "fedlsa network approve net lyon.pem oslo.pem turin.pem",
    "fedlsa network approve net lyon.pem --fingerprint '3f2a 90c1 77de 0b54 a1e8 6c03 d95b 42f7' --renew",
)
RUN_EXAMPLES = (
    "fedlsa network run net --epsilon 0.02 --model model.json",
    "fedlsa network run net --method scaffnew --step-size 0.01 --local-steps 500 --rounds 40 --name trial --detach",
    "fedlsa network run net --epsilon 0.05 --clip 1 --noise 0.5 --quantise 16",
)
RESULT_EXAMPLES = ("fedlsa network result net --model model.json", "fedlsa network result net trial --json")
LEDGER_EXAMPLES = ("fedlsa network ledger lyon", "fedlsa network ledger lyon --json > ledger.json")
ALLOW_EXAMPLES = ("fedlsa network allow lyon", "fedlsa network allow lyon trial")
JOIN_EXAMPLES = (
    "fedlsa network join lyon --data lyon.parquet",
    "fedlsa network join /srv/fedlsa/lyon --loader hospital.records:load --yes",
)

RUN: Words = {
    "epsilon": EPSILON,
    **BY_HAND,
    "local": Option("What a step uses: rows at random, or the site's means.", names=LOCAL),
    "seed": "Of who takes part, and of the lengths of scaffnew's rounds; rows are drawn by the sites.",
    "errors_of": Option(
        "Coefficients that get standard errors by rounds of their own, a,b or repeated, where sites share no scores.",
        kind=list[str] | None,
        read=names,
    ),
    "max_weight": Option("Largest share of one site in the average.", shown="a half, of three sites or more"),
    "name": "Of the experiment, for status, stop and result.",
}
PARTICIPATION: Words = {
    "aggregation": Option(
        "secure: the coordinator learns sums of at least three sites; plain: every site's change.",
        shown="secure, with three sites or more",
        names=AGGREGATIONS,
    ),
    "min_sites": Option("Sites that a round needs.", shown="half of them, at least three where it is secure"),
    "deadline": "Seconds that a round may take.",
    "grace": "Seconds for which a round waits for a site that is away.",
    "participation": Option(
        "Share of the sites that take part in a round, such as 0.5.", shown="all that are present", kind=str, read=share
    ),
    "participants": "The same as a count.",
    "patience": "Rounds missed in a row after which a site counts as gone.",
    "absence": Option(
        "When a site is gone: restart all control variates at 0, or freeze them for its return.", names=ABSENCE
    ),
    "outlier": "Longest change, in multiples of the running median; 0 for any. With --clip that is it.",
    "strikes": "Answers against the protocol after which a site is put aside.",
    "most_in_vain": "Rounds in vain, in a row, after which the run ends.",
    "trim": "Leave out so many replies on each side of each coordinate; biased where sites differ, and plain.",
}
MESSAGES: Words = {
    "clip": "Longest change of a site; longer ones are scaled, or end a masked run without noise.",
    "noise": "Discrete Gaussian noise on what sites send: its standard deviation in units of --clip.",
    "unit": Option("What the noise hides: all rows of a site, or any one record.", names=UNITS),
    "row_clip": "For the unit record: longest step of a single row, over the step size.",
    "quantise": Option("Bits of a number sent: 8 or 16.", shown="64"),
}
START = Options(
    StartOptions, {"Run": RUN, "Who takes part": PARTICIPATION, "What sites send": MESSAGES}, {"errors_of": None}
)
BUDGET_EXAMPLES = (
    "fedlsa network budget like-*.csv --target charges --privacy 1 --unit record --row-clip 10",
    "fedlsa network budget --sites 10 --coefficients 8 --clip 1 --max-rounds 60 --privacy 1",
)
PRIVACY: Words = {
    "epsilon": Option("Epsilon that all rounds together may spend.", "--privacy"),
    "delta": "The probability that goes with it.",
    "unit": Option("What noise hides: site (all its rows) or record (any one row).", names=UNITS),
    "row_clip": "For records: the longest gradient of a row, in the run's coordinates.",
    "rows": Option("For records: rows of the smallest site.", shown="those of the files"),
}
BUDGET = Options(PrivacyBudget, {"Privacy": PRIVACY})
AFFORDABLE: Words = {
    "error": Option("That is wanted (RMSE, on the standardised scale).", shown="the smallest"),
    "local": Option("What a step uses: rows at random, or the site's means.", names=LOCAL),
    "local_steps": "Of a site in a round.",
    "max_rounds": "Most rounds.",
}
PLAN = Options(affordable, {"Run": AFFORDABLE})
Folder = Annotated[Path, argument("What fedlsa network init made.", "DIR")]
Site = Annotated[str, argument("Its name.", "SITE")]
KEYS_PANEL, SITE_PANEL = "The coordinator: a network and its sites", "A site"  # of the help
Experiment = Annotated[str | None, typer.Argument(help="Of a run.", show_default="the latest", metavar="NAME")]
OUT = option("Save the result: FILE.json.", None, "Output")
MODEL = option("Save the model, for fl.Fit.load and fedlsa evaluate: FILE.json.", None, "Output")
NO_PAGE = switch("--no-page", "Without the live page.")
CARRIER = option("Another carrier that is installed, and its place: nvflare:KIT.", shown="gRPC")
PAGE_ADDRESS = option("That the page listens on: who reaches it can read it.", "127.0.0.1")
SITE_FOLDER = argument("What fedlsa network enrol made.", "FOLDER")
app, network = App(), App(no_args_is_help=True)
app.add_typer(network, name="network", help=NETWORK_HELP)


def say(line: str) -> None:
    """Print a line at once, also into a file or a journal; warnings go to standard error."""
    loud = line.startswith("WARNING")
    print(f"fedlsa: {line}" if loud else line, file=sys.stderr if loud else sys.stdout, flush=True)


def _module(name: str) -> Any:
    """A module of fedlsa.network that only the commands load which need it, or which extra is missing."""
    return import_module(f"fedlsa.network.{name}")


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
    setup = _module("folder.setup")
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


def _name_service_user(of: Network | SiteFolder) -> None:
    setup = _module("folder.setup")
    if (user := setup.service_user()) == setup.SERVICE_USER:
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
    setup = _module("folder.setup")
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
    setup = _module("folder.setup")
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
    _module("folder.setup").revoke(folder, site)
    print(f"revoked: {site} is refused from now on. To come back it makes new keys (fedlsa network enrol --new-key)")


@network.command(rich_help_panel=KEYS_PANEL)
def renew(folder: Folder) -> None:
    """A new server certificate from the same authority; neither sites nor a running serve need anything new."""
    setup = _module("folder.setup")
    end = setup.certificates.expires(setup.renew(folder).certificate.read_bytes())
    print(f"new certificate, good until {end:%Y-%m-%d}")


@network.command("add-site", rich_help_panel=KEYS_PANEL)
def add_site(folder: Folder, site: Site) -> None:
    """Add a site; runs that have begun go on without it."""
    bundle = _module("folder.setup").add_site(folder, site)
    print(f"added {site}: send it {bundle}, and approve the certificate that it sends")


@network.command("remove-site", rich_help_panel=KEYS_PANEL)
def remove_site(folder: Folder, site: Site) -> None:
    """Take a site off the list; its certificate is revoked."""
    left = _module("folder.setup").remove_site(folder, site)
    print(f"removed {site}; {', '.join(left.sites)} stay. Its certificate is refused from now on")


@network.command(examples=BUDGET_EXAMPLES)
@takes(budget=BUDGET, plan=PLAN, regression=REGRESSION_TASK, value=VALUE_TASK)
def budget(
    budget: Given,
    plan: Given,
    regression: Given,
    value: Given,
    files: list[Path] | None = typer.Argument(
        None, help="Data that resemble the sites', one file per site.", metavar="[FILE...]", show_default=False
    ),
    sites: int | None = option("Instead of files: how many sites.", panel="Without files"),
    coefficients: int | None = option("How many.", panel="Without files"),
    clip: float | None = option("Longest change that a site sends.", panel="Without files"),
    step_size: float | None = option("For records: the step size.", panel="Without files"),
    json: bool = AS_JSON,
) -> None:
    """What error a privacy budget buys, or that it cannot be afforded: exact on files, a lower bound from numbers."""
    given, run = budget.arguments, plan.arguments
    if not files:
        numbers = {"sites": sites, "coefficients": coefficients, "clip": clip}
        for name in (name for name, number in numbers.items() if number is None):
            raise ArgumentError(f"{name} must be given where there are no files; got None")
        asked, R = PrivacyBudget(**given), run["max_rounds"]
        weights = np.full(checks.integer("sites", sites, at_least=1), 1 / (sites or 1))
        more = {"local": run["local"], "step_size": step_size, "local_steps": run["local_steps"]}
        least, noise = least_error(asked, weights, coefficients, R, clip, **more)  # type: ignore[arg-type]
        if json:
            print_json(budget=asked, rounds=R, noise=noise, least_rmse=least)
            return
        print(
            f"({asked.epsilon:g}, {asked.delta:g})-differential privacy of a {asked.unit} in {R} rounds asks for noise "
            f"of {noise:.3g} times the clip; no method then ends nearer than {least:.3g} (root mean square) to the "
            "solution. How far it really ends needs data: give files that resemble the sites'."
        )
        return
    from ..fitting import site_problem  # with the engine

    task = chosen_task(regression, value) or Regression("y")
    check_unit(given["unit"], isinstance(task, Regression), task.own is not None)
    like = site_problem(site_files(files), task, "sites", "rows")
    if given["rows"] is None:
        given["rows"] = int(np.diff(like.first).min())
    asked = PrivacyBudget(**given)
    bought = affordable(like, asked, **run)
    if json:
        print_json(budget=asked, plan=bought, covers_standardisation=not task.scaled)
        return
    print(bought.sentence)
    if task.scaled:
        print("Not covered: the sums with which columns are standardised leave without noise; --no-standardise")


@network.command()
def serve(
    folder: Folder,
    no_page: bool = NO_PAGE,
    page_port: int | None = option("Of the live page.", shown="as init chose"),
    page_address: str = PAGE_ADDRESS,
    carrier: str | None = CARRIER,
) -> None:
    """Run the coordinator until it is interrupted; an unfinished run goes on where it was."""
    page = None if no_page else PagePlace(page_port, page_address)
    _module("coordinator.commands").serve(folder, page=page, carrier=carrier, say=say)


@network.command(examples=RUN_EXAMPLES)
@takes(run=START)
def run(
    context: typer.Context,
    folder: Folder,
    run: Given,
    detach: bool = switch("--detach", "Leave the run to serve, and do not wait; status shows it."),
    out: Path | None = OUT,
    model: Path | None = MODEL,
    force: bool = FORCE,
    json: bool = AS_JSON,
) -> None:
    """Estimate across the sites: rounds, sites, sizes, error and bytes as they come, then the result.

    Where nobody serves the network it is served until the run is over.
    """
    asked = run()
    result = _Result(context, out, model, force, json)
    asked.least(len(Network.load(folder).sites))
    report = (lambda line: print(line, file=sys.stderr)) if json else say
    begun = _module("coordinator.commands").run(folder, asked, detach=detach, say=report)
    if not detach:
        result.show(folder, begun.name)
    elif json:
        print_json(experiment=begun.name)


class _Result:
    """What is done with a run's result: it is saved and shown; the names of files are checked first."""

    def __init__(self, context: typer.Context, out: Path | None, model: Path | None, force: bool, json: bool) -> None:
        self.command, self.out, self.model, self.json = context.obj, out, model, json
        self.saved = Outputs(context.obj, force)
        for flag, path in (("--out", out), ("--model", model)):
            self.saved.check(flag, path, (".json",))

    def show(self, folder: Path, name: str | None) -> None:
        coordinator = _module("coordinator.commands")
        content = coordinator.outcome(folder, name)
        self.saved.save(self.out, lambda path: write_json(path, {**content, "command": self.command}, "the result"))
        if self.model is not None:
            fitted = coordinator.model(folder, name)
            self.saved.save(self.model, replace(fitted, made_by={"command": self.command} | fitted.made_by).save)
        if self.json:
            print_json(**content)
        else:
            say("\n".join(_module("coordinator.runs").summary(content)))
            self.saved.print_saved()


@network.command()
def status(folder: Folder, name: Experiment = None, json: bool = AS_JSON) -> None:
    """Where a run stands, and which sites are there."""
    if json:
        print_json(**_module("coordinator.commands").status_facts(folder, name))
    else:
        say(_module("coordinator.commands").status(folder, name))


@network.command()
def stop(folder: Folder, name: Experiment = None) -> None:
    """End a run after the round that is open; what it has so far is its result."""
    say(_module("coordinator.commands").stop(folder, name))


@network.command(examples=RESULT_EXAMPLES)
def result(
    context: typer.Context,
    folder: Folder,
    name: Experiment = None,
    out: Path | None = OUT,
    model: Path | None = MODEL,
    force: bool = FORCE,
    json: bool = AS_JSON,
) -> None:
    """The estimate of a run, on the original scale, with rounds, messages and bytes per site."""
    _Result(context, out, model, force, json).show(folder, name)


@network.command()
def audit(
    folder: Folder,
    head: str | None = option("That an earlier call printed: the log must still hold it.", shown="not compared"),
    last: int = typer.Option(20, help="Entries to show.", min=0),
    json: bool = AS_JSON,
) -> None:
    """Verify the coordinator's audit log, a hash chain, and show its last entries."""
    if json:
        print_json(**_module("audit").contents(folder, head))
        return
    for text in _module("audit").report(folder, head, last):
        say(text)


@network.command(examples=JOIN_EXAMPLES, rich_help_panel=SITE_PANEL)
def join(
    folder: Path = argument("What fedlsa network enrol made.", "FOLDER"),
    data: Path | None = option("The site's .parquet or .csv file."),
    loader: str | None = option("Or a function that returns the columns: package.module:function."),
    proxy: str | None = option("Connect through an HTTP proxy: http://host:port.", shown="none, also if one is set"),
    carrier: str | None = CARRIER,
    no_page: bool = NO_PAGE,
    page_port: int | None = option("Of the site's live page.", shown="a free one"),
    page_address: str = PAGE_ADDRESS,
    yes: bool = switch("--yes", "Do not ask before joining."),
) -> None:
    """Take part as a site: check the data, say what may leave, and answer orders until interrupted."""
    if (data is None) == (loader is None):
        got = "neither" if data is None else "both"
        raise ArgumentError(f"--data or --loader must be given, one of them; got {got}")

    def agree() -> bool:
        if not yes and not sys.stdin.isatty():
            raise ArgumentError("--yes must be given where nobody can be asked; got no terminal")
        return yes or typer.confirm("join?", default=False)

    page = None if no_page else PagePlace(page_port, page_address)
    join = _module("site.join").join
    join(folder, data=data, loader=loader, proxy=proxy, carrier=carrier, page=page, agree=agree, say=say)


@network.command()
def demo(folder: Path | None = option("Keep everything there.", shown="a temporary folder, removed")) -> None:
    """Try it on this machine: a coordinator and four sites over TLS, one of them killed and brought back."""
    _module("demo").demo(folder, say=say)


@network.command(examples=LEDGER_EXAMPLES, rich_help_panel=SITE_PANEL)
def ledger(
    folder: Path = SITE_FOLDER,
    last: int = typer.Option(20, help="Entries to show.", min=0),
    head: str | None = option(
        "That the site's page showed before: the ledger must still hold it.", shown="not compared"
    ),
    json: bool = AS_JSON,
) -> None:
    """Verify a site's ledger, a hash chain, and show what was asked, what left, and what is spent."""
    if head is not None:
        Database(SiteFolder.load(folder).folder).verify(ChainHead.from_text(head))
    if json:
        print_json(**_module("site.ledger").ledger_facts(folder))
        return
    for line in _module("site.ledger").ledger_report(folder, last):
        print(line)


@network.command(examples=ALLOW_EXAMPLES, rich_help_panel=SITE_PANEL)
def allow(
    folder: Path = SITE_FOLDER,
    run: str | None = typer.Argument(
        None, help="The run's name.", show_default="those that wait are shown", metavar="RUN"
    ),
    yes: bool = switch("--yes", "Do not ask."),
) -> None:
    """Let a run in, at a site whose policy wants a person to allow each (approve_runs)."""
    site = SiteFolder.load(folder)
    policy = _module("site.policy")
    waiting = policy.waiting(site.folder)
    if run is None:
        print("\n".join(f"{name} waits: {' '.join(words)}" for name, words in waiting.items()) or "no run waits")
        return
    for line in waiting.get(run, ()):
        print(line)
    if run in waiting and not yes and not typer.confirm(f"allow {run}?", default=False):
        raise NetworkError(f"{run} is not allowed: nothing of it is answered")
    policy.allow(site.folder, run)
    print(f"{run} is allowed on these terms; other terms would ask again")

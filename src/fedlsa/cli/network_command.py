"""The commands `fedlsa network ...`: a coordinator, its sites, and runs across them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .. import checks
from ..errors import ArgumentError, NetworkError
from ..fitting import Regression
from ..network import audit as audit_log
from ..network.coordinator import runs
from ..network.disk import write_json
from ..network.folder.config import Network, SiteFolder
from ..network.pages import PagePlace
from ..network.protocol.run_settings import ABSENCE, AGGREGATIONS, StartOptions
from ..network.site import ledger as site_ledger
from ..network.site import policy
from ..network.store import ChainHead, Database
from ..theory.privacy import LOCAL, UNITS, check_unit
from ..theory.private_plans import PrivacyBudget, affordable, least_error
from .enrolment_command import SITE_PANEL, Folder, network
from .options import AS_JSON, FORCE, App, Given, Option, Options, Words, argument, option, switch, takes
from .outputs import Outputs, print_json
from .problem_options import share
from .task_options import BY_HAND, EPSILON, REGRESSION_TASK, VALUE_TASK, chosen_task, names, site_files

NETWORK_HELP = """Run the same recursion across real sites.

The [bold]coordinator[/bold] runs init, approve and run; a [bold]site[/bold] runs enrol and join. \
What may leave a site its own policy says. See docs/network.md."""
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
Experiment = Annotated[str | None, typer.Argument(help="Of a run.", show_default="the latest", metavar="NAME")]
OUT = option("Save the result: FILE.json.", None, "Output")
MODEL = option("Save the model, for fl.Fit.load and fedlsa evaluate: FILE.json.", None, "Output")
NO_PAGE = switch("--no-page", "Without the live page.")
CARRIER = option("Another carrier that is installed, and its place: nvflare:KIT.", shown="gRPC")
PAGE_ADDRESS = option("That the page listens on: who reaches it can read it.", "127.0.0.1")
SITE_FOLDER = argument("What fedlsa network enrol made.", "FOLDER")
app = App()
app.add_typer(network, name="network", help=NETWORK_HELP)


def say(line: str) -> None:
    """Print a line at once, also into a file or a journal; warnings go to standard error."""
    loud = line.startswith("WARNING")
    print(f"fedlsa: {line}" if loud else line, file=sys.stderr if loud else sys.stdout, flush=True)


def _coordinator() -> Any:
    """The module behind the coordinator's commands, which is loaded for them alone."""
    from ..network.coordinator import commands

    return commands


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
        for name, number in numbers.items():
            if number is None:
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
    _coordinator().serve(folder, page=page, carrier=carrier, say=say)


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
    begun = _coordinator().run(folder, asked, detach=detach, say=report)
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
        coordinator = _coordinator()
        content = coordinator.outcome(folder, name)
        self.saved.save(self.out, lambda path: write_json(path, {**content, "command": self.command}, "the result"))
        if self.model is not None:
            fitted = coordinator.model(folder, name)
            self.saved.save(self.model, replace(fitted, made_by={"command": self.command} | fitted.made_by).save)
        if self.json:
            print_json(**content)
        else:
            say("\n".join(runs.summary(content)))
            self.saved.print_saved()


@network.command()
def status(folder: Folder, name: Experiment = None, json: bool = AS_JSON) -> None:
    """Where a run stands, and which sites are there."""
    if json:
        print_json(**_coordinator().status_facts(folder, name))
    else:
        say(_coordinator().status(folder, name))


@network.command()
def stop(folder: Folder, name: Experiment = None) -> None:
    """End a run after the round that is open; what it has so far is its result."""
    say(_coordinator().stop(folder, name))


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
        print_json(**audit_log.contents(folder, head))
        return
    for text in audit_log.report(folder, head, last):
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
    from ..network.site import join as joining

    if (data is None) == (loader is None):
        got = "neither" if data is None else "both"
        raise ArgumentError(f"--data or --loader must be given, one of them; got {got}")

    def agree() -> bool:
        if not yes and not sys.stdin.isatty():
            raise ArgumentError("--yes must be given where nobody can be asked; got no terminal")
        return yes or typer.confirm("join?", default=False)

    page = None if no_page else PagePlace(page_port, page_address)
    joining.join(folder, data=data, loader=loader, proxy=proxy, carrier=carrier, page=page, agree=agree, say=say)


@network.command()
def demo(folder: Path | None = option("Keep everything there.", shown="a temporary folder, removed")) -> None:
    """Try it on this machine: a coordinator and four sites over TLS, one of them killed and brought back."""
    from ..network import demo as trial

    trial.demo(folder, say=say)


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
        print_json(**site_ledger.ledger_facts(folder))
        return
    for line in site_ledger.ledger_report(folder, last):
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
    waiting = policy.waiting(site.folder)
    for name, words in waiting.items() if run is None else ():
        print(f"{name} waits: {' '.join(words)}")
    if run is None:
        if not waiting:
            print("no run waits")
        return
    for line in waiting.get(run, ()):
        print(line)
    if run in waiting and not yes and not typer.confirm(f"allow {run}?", default=False):
        raise NetworkError(f"{run} is not allowed: nothing of it is answered")
    policy.allow(site.folder, run)
    print(f"{run} is allowed on these terms; other terms would ask again")

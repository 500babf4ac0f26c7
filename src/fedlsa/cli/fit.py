"""The commands `fedlsa fit value`, `fedlsa fit regression` and `fedlsa evaluate`: from the sites' files to a model."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from .. import checks, figures
from ..errors import ArgumentError
from ..figures import style
from ..fit import Fit, Regression, Value
from ..fit import evaluate as on_holdout
from ..fit import fit as fit_sites
from ..fit.tasks import Task
from . import fit_options, fit_report, options
from .fit_options import OUTPUT, Request
from .merged import takes

TASK = "What to estimate"
FIT_HELP = """Estimate one model from the files of all sites, with error bars.

A site is a Parquet or CSV file. What is shared is the solution of the averaged system; see docs/data.md."""
VALUE_EXAMPLES = """[bold]Examples[/bold]

fedlsa fit value hospital-*.parquet --discount 0.95 --epsilon 0.02 --out model.json

fedlsa fit value lake-*.csv --discount 0.9 --features 'OneHot(16)' --trace 0.8 --plot values.png

fedlsa fit value pole-*.parquet --discount 0.99 --features 'Fourier(low=[-2.4, -0.2], high=[2.4, 0.2], order=3)'"""
REGRESSION_EXAMPLES = """[bold]Examples[/bold]

fedlsa fit regression firm-*.csv --target invest --out model.json

fedlsa fit regression firm-*.csv --target invest --features value,capital --weight samples --uncentred --baselines"""
EVALUATE_EXAMPLES = """[bold]Examples[/bold]

fedlsa evaluate model.json holdout.parquet

fedlsa evaluate model.json new-*.csv --out table.csv"""

Files = Annotated[
    list[Path],
    typer.Argument(help="One file per site: .parquet or .csv.", show_default=False, metavar="FILE..."),
]
takes_request = takes("request", fit_options.request)
app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.command(epilog=VALUE_EXAMPLES)
@takes_request
def value(
    context: typer.Context,
    files: Files,
    discount: Annotated[float, typer.Option(help="Discount factor, below 1.", rich_help_panel=TASK)],
    request: Callable[[], Request],
    trace: Annotated[float, typer.Option(help="Lambda of TD(lambda).", rich_help_panel=TASK)] = 0.0,
    features: Annotated[
        str | None,
        typer.Option(
            help="Map of states to features, as in Python: 'OneHot(64)', 'Aggregation(64, 8)', 'TileCoding(low=0, "
            "high=1, tiles=8, tilings=4)', 'Fourier(...)', 'RadialBasis(...)'. Without it columns are features.",
            show_default=False,
            rich_help_panel=TASK,
        ),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns of the state: their common prefix, or a list x,y.",
            show_default="state",
            rich_help_panel=TASK,
        ),
    ] = None,
    next_state: Annotated[
        list[str] | None,
        typer.Option(help="The same of the state that followed.", show_default="next_state", rich_help_panel=TASK),
    ] = None,
    reward: Annotated[str, typer.Option(help="Column of rewards.", rich_help_panel=TASK)] = "reward",
    terminated: Annotated[
        str, typer.Option(help="Column: the episode ended here; nothing is worth more.", rich_help_panel=TASK)
    ] = "terminated",
    truncated: Annotated[
        str, typer.Option(help="Column: the record was cut here; may be missing.", rich_help_panel=TASK)
    ] = "truncated",
    importance: Annotated[
        str, typer.Option(help="Column of importance weights; may be missing.", rich_help_panel=TASK)
    ] = "importance",
    intercept: Annotated[
        bool, typer.Option("--intercept", help="Add a constant feature.", rich_help_panel=TASK)
    ] = False,
    standardise: Annotated[
        bool, typer.Option("--standardise", help="Run on features of mean square 1.", rich_help_panel=TASK)
    ] = False,
    numbers: Annotated[
        bool,
        typer.Option(
            "--numbers", help="A state of one integer column is a number, not a state's.", rich_help_panel=TASK
        ),
    ] = False,
) -> None:
    """The value function of the policy that made the logs, by TD: columns of states, rewards and ends."""
    task = Value(
        discount=discount,
        trace=trace,
        state=fit_options.prefix_or_names("--state", state or ["state"]),
        next_state=fit_options.prefix_or_names("--next-state", next_state or ["next_state"]),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        importance=importance,
        features=None if features is None else fit_options.feature_map(features),
        intercept=intercept,
        standardise=standardise,
        numbers=numbers,
    )
    _fit(context.obj, files, task, request())


@app.command(epilog=REGRESSION_EXAMPLES)
@takes_request
def regression(
    context: typer.Context,
    files: Files,
    target: Annotated[str, typer.Option(help="Column to be explained.", rich_help_panel=TASK)],
    request: Callable[[], Request],
    features: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns that explain it, a,b or repeated. By default all others.",
            show_default=False,
            rich_help_panel=TASK,
        ),
    ] = None,
    no_intercept: Annotated[
        bool, typer.Option("--no-intercept", help="Without a constant term.", rich_help_panel=TASK)
    ] = False,
    no_standardise: Annotated[
        bool, typer.Option("--no-standardise", help="Run on the columns as they are.", rich_help_panel=TASK)
    ] = False,
    ridge: Annotated[float, typer.Option(help="Penalty, on the standardised columns.", rich_help_panel=TASK)] = 0.0,
) -> None:
    """A linear model of one column by others: least squares over all sites."""
    task = Regression(
        target=target,
        features=None if features is None else fit_options.names("--features", features),
        intercept=not no_intercept,
        standardise=not no_standardise,
        ridge=ridge,
    )
    _fit(context.obj, files, task, request())


def _fit(command: str, files: list[Path], task: Task, asked: Request) -> None:
    """The fit, shown, saved and drawn as asked."""
    sites = fit_options.site_files(files)
    if asked.plot is not None:
        style.matplotlib()  # now rather than after the work
    with fit_report.stages(shown=not asked.quiet) as progress:
        found = fit_sites(sites, task, progress=progress, **asked.arguments)
    found = replace(found, made_by={"command": command} | found.made_by)
    if not asked.quiet:
        fit_report.print_fit(found, asked.level)
    if asked.out is not None:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        found.save(asked.out)
    if asked.plot is not None:
        asked.plot.parent.mkdir(parents=True, exist_ok=True)
        figures.save(figures.coefficients(found, level=asked.level), asked.plot, command=command)
    if not asked.quiet:
        for path in (asked.out, asked.plot):
            if path is not None:
                print(f"saved {path}")
        if asked.out is not None:
            print(f"on other data:  fedlsa evaluate {shlex.quote(str(asked.out))} FILE")
        elif asked.plot is None:
            print("nothing saved: --out model.json keeps the model, --plot FILE.png draws it")


def evaluate(
    context: typer.Context,
    model: Annotated[
        Path, typer.Argument(help="What fedlsa fit --out wrote.", show_default=False, metavar="MODEL.json")
    ],
    files: Annotated[
        list[Path],
        typer.Argument(help="Data that the fit has not seen: .parquet or .csv.", show_default=False, metavar="FILE..."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Save the table: FILE.csv.", show_default=False, rich_help_panel=OUTPUT),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """How a fitted model does on data that it has not seen, file by file and on all together."""
    if out is not None:
        checks.choice(f"the suffix of {str(out)!r}", out.suffix.lower(), (".csv",))
        options.refuse_to_overwrite([out], force)
        options.check_folder("--out", out)
    if model.suffix.lower() in (".csv", ".parquet"):
        raise ArgumentError(f"the model must come first, a file of fedlsa fit --out; got {str(model)!r}")
    found = on_holdout(Fit.load(model), fit_options.site_files(files))
    fit_report.print_evaluation(found)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        fit_report.save_evaluation(found, out, context.obj)
        print(f"saved {out}")

"""The commands `fedlsa fit`, `fedlsa predict` and `fedlsa evaluate`: from sites' files to a model and its answers."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from inspect import signature
from pathlib import Path

import typer
from rich.table import Table

from .. import checks, figures
from ..engine.progress import progress_bars
from ..errors import ArgumentError
from ..figures import theme
from ..fitting import Fit, Prediction, Regression, Residuals, TDErrors, Value, WaldTest
from ..fitting import evaluate as on_holdout
from ..fitting import fit as fit_sites
from ..fitting.model_files import to_plain
from ..fitting.table_files import DECIMAL_MARKS
from ..fitting.tasks import COVARIANCES
from .options import AS_JSON, FORCE, App, Given, Option, Options, Words, argument, option, switch, takes
from .outputs import Outputs, number, print_all, print_json, table
from .task_options import BY_HAND, EPSILON, REGRESSION, VALUE, site_files, size

FIT_HELP = """Estimate one model from the files of all sites, with error bars.

A site is a Parquet or CSV file. What is shared is the solution of the averaged system; see docs/data.md."""
VALUE_EXAMPLES = (
    "fedlsa fit value hospital-*.parquet --discount 0.95 --epsilon 0.02 --out model.json",
    "fedlsa fit value lake-*.csv --discount 0.9 --features 'OneHot(16)' --trace 0.8 --plot values.png",
    "fedlsa fit value pole-*.parquet --discount 0.99 --features 'Fourier(low=[-2.4, -0.2], high=[2.4, 0.2], order=3)'",
)
REGRESSION_EXAMPLES = (
    "fedlsa fit regression firm-*.csv --target invest --out model.json",
    "fedlsa fit regression firm-*.csv --target invest --columns value,capital --weight sites --baselines",
)
EVALUATE_EXAMPLES = (
    "fedlsa evaluate model.json holdout.parquet",
    "fedlsa evaluate model.json new-*.csv --out table.csv",
)
PREDICT_EXAMPLES = (
    "fedlsa predict model.json new.csv",
    "fedlsa predict model.json new.parquet --level 0.9 --out table.csv",
)
ROWS = SITES = 20  # that are shown at most
MODEL = argument("What fedlsa fit --out wrote.", "MODEL.json")
FILES = argument("One file per site: .parquet or .csv.", "FILE...")
RESIDUALS = {"rows": "rows", "r_squared": "R²", "rmse": "RMSE"}  # headings of a table, by the names in the records
RESIDUALS |= {"spread": "spread of\nthe target", "mean": "mean\nresidual"}
TD_ERRORS = {"rows": "rows", "td_error": "mean squared\nTD error", "update": "norm of mean\nTD update"}
TD_ERRORS |= {"return_rmse": "RMSE against\nreturns", "return_spread": "spread of\nreturns"}
TD_ERRORS |= {"return_mean": "mean\nreturn", "episodes": "episodes", "cut": "of them\ncut"}
TD_ERRORS |= {"remainder": "put in\nfor cuts"}
TD_NOTES = [
    "The TD error is not the error of the values: it holds the noise of transitions. The update is 0 for the solution "
    "of these data.",
    "The RMSE against returns holds their own noise. Episodes that were cut before they ended are counted with the "
    "model's own value of the state at the cut, whose root mean square over all rows is what was put in.",
]
PROTOCOL: Words = {
    "epsilon": f"{EPSILON} By default no combination of coefficients is off by a tenth of its standard error.",
    **BY_HAND,
    "plan": "Without the run by which sites would get the answer: the estimate and its errors alone.",
    "max_samples": "Most steps of a site. By default 4 times the fewest that reach epsilon.",
    "share_moments": "Sites let averages of products leave for the plan. By default only where no other plan will do.",
    "local": "What a step uses: rows at random, the log in its order, the site's means, or auto.",
    "memory": Option(
        "For rows; files that need more are read again, and steps use means. Such as 500MB or 8GB.", kind=str, read=size
    ),
}
ERROR_BARS: Words = {
    "covariance": Option("Of the coefficients; HC3 unless --cluster or --lag is given.", names=COVARIANCES),
    "cluster": "Column of clusters whose rows are correlated; sites: each site is one.",
    "lag": "How many rows apart errors may be correlated (HAC). By default 0; chosen for values.",
    "bootstrap": "Error bars from so many reweighted data sets too.",
    "resample": "What varies in them: pairs, block or cluster. By default it follows from the data.",
}
RUN = Options(
    fit_sites,
    {
        "Data": {
            "site": "Column that says which site a row is of. By default each file is a site.",
            "decimal": Option("Decimal mark of CSV files. By default as their numbers show it.", names=DECIMAL_MARKS),
        },
        "Run": PROTOCOL,
        "Error bars": ERROR_BARS,
        "Output": {"baselines": "Compare with protocols of one message per site."},
    },
    defaults={"memory": f"{signature(fit_sites).parameters['memory'].default / 1e6:g}MB"},
)
app, fits = App(), App(no_args_is_help=True)
app.add_typer(fits, name="fit", help=FIT_HELP)


def fit(
    context: typer.Context,
    task: Given,
    run: Given,
    files: list[Path] = FILES,
    level: float = option("Of confidence intervals.", 0.95, "Error bars"),
    test: list[str] | None = option("Claims to test, 'a = b' or 'a = 0, b = 0'; may be repeated.", None, "Error bars"),
    out: Path | None = option("Save the model: FILE.json, for fedlsa predict and evaluate.", None, "Output"),
    own_effects: bool = switch("--own-effects", "Save what is each site's own in the model too.", "Output"),
    plot: Path | None = option("Draw coefficients and errors: .png, .pdf or .svg.", None, "Output"),
    force: bool = FORCE,
    quiet: bool = switch("--quiet", "No bar and no tables.", "Output"),
    json: bool = AS_JSON,
) -> None:
    """The fit of a task, shown, saved and drawn as asked."""
    saved = Outputs(context.obj, force)
    saved.check("--out", out, (".json",))
    saved.check("--plot", plot)
    checks.real("--level", level, above=0, below=1)
    arguments, wanted, sites = run.arguments, task(), site_files(files)
    if own_effects and (out is None or not getattr(wanted, "own", None)):
        raise ArgumentError(f"--own-effects must go with --own and --out; got {'--out' if out else 'no --out'} alone")
    if plot is not None:
        theme.matplotlib()  # now rather than after the work
    with progress_bars(shown=not quiet, transient=True) as made:
        fitted = fit_sites(sites, wanted, progress=None if made is None else made.show, **arguments)
    fitted = replace(fitted, made_by={"command": context.obj} | fitted.made_by)
    saved.save(out, partial(fitted.save, own=own_effects))
    saved.draw(plot, partial(figures.coefficients, fitted, level=level))
    tests = [fitted.test(claims) for claims in test or ()]  # a claim that cannot be read loses nothing
    if json:
        bars = {"standard_error": fitted.standard_error, "interval": fitted.confidence_interval(level), "level": level}
        bars |= {"t_values": fitted.t_values, "p_values": fitted.p_values, "tests": tests}
        if len(fitted.per_site) > 1:
            between = fitted.heterogeneity()
            bars |= {"heterogeneity": {**between.coefficients, "all together": between.together}}
            bars |= {"stand_out": between.stands_out}
        print_json(**to_plain(fitted), **bars, saved=saved.saved)
    if quiet or json:
        return
    _print_fit(fitted, tests, level, hint="" if out else ", --out keeps all")
    saved.print_saved()
    if out is not None:
        print(f"on other data:  fedlsa predict or fedlsa evaluate, {shlex.quote(str(out))} FILE")
    elif plot is None:
        print("nothing saved: --out model.json keeps the model, --plot FILE.png draws it")


def _print_fit(fit: Fit, tests: Sequence[WaldTest], level: float, hint: str) -> None:
    """The summary, tests where there are some, then the parts of the error, the sites, and baselines."""
    far = len(fit.per_site) - SITES
    parts: list[str | Table] = [
        *([] if fit.plan is None else [_parts(fit)]),
        _sites(fit),
        "Distance, influence, noise and finite data are in standard errors of the estimate.",
        *([f"the {SITES} sites furthest away; {far} more{hint}"] if far > 0 else []),
    ]
    if fit.baselines:
        headings = ["from the data's solution,\nstandard errors", "numbers that\na site sends", "messages", "bytes"]
        ways = [[r.name, r.distance, r.numbers, r.messages, r.bytes] for r in fit.baselines]
        parts += [table("way to an answer", *headings, rows=ways), *(f"{r.name}: {r.reveals}" for r in fit.baselines)]
    print(fit.summary(level), *tests, sep="\n\n", end="\n\n")
    print_all(*parts)


def _parts(fit: Fit) -> Table:
    """The squares of the parts add up, so shares are of squares."""
    total = sum(e**2 for e in fit.error.values())
    shares = {n: f"{100 * e**2 / total:.1f}%" if 0 < total < math.inf else "-" for n, e in fit.error.items()}
    rows = [[name, e, shares[name]] for name, e in fit.error.items()]
    return table("error of the protocol's answer, by origin", "standard\nerrors", "share", rows=rows)


def _sites(fit: Fit) -> Table:
    far = sorted(fit.per_site, key=lambda s: -math.inf if math.isnan(s.distance) else -s.distance)
    kept = {id(s) for s in far[:SITES]}
    shown = [s for s in fit.per_site if id(s) in kept]
    rows = [[s.name, s.rows, s.weight, s.distance, s.influence, s.noise, s.finite_data] for s in shown]
    headings = ["rows", "weight", "own solution,\ndistance", "influence", "noise", "finite\ndata"]
    if own := fit.own_effects:
        headings, rows = [*headings, "intercept,\nstays there"], [[*row, own[str(row[0])]] for row in rows]
    return table("site", *headings, rows=rows)


def _of_task(task: type, words: Words) -> Callable[..., None]:
    command = takes(task=Options(task, {"What to estimate": words}), run=RUN)(fit)
    vars(command)["flags"]["hypothesis"] = "--test"
    return command


VALUE_HELP = "The value function of the policy that made the logs, by TD: columns of states, rewards and ends."
REGRESSION_HELP = "A linear model of one column by others: least squares over all sites."
fits.command("value", help=VALUE_HELP, examples=VALUE_EXAMPLES)(_of_task(Value, VALUE))
fits.command("regression", help=REGRESSION_HELP, examples=REGRESSION_EXAMPLES)(_of_task(Regression, REGRESSION))


@app.command(examples=EVALUATE_EXAMPLES)
def evaluate(
    context: typer.Context,
    model: Path = MODEL,
    files: list[Path] = argument("Data that the fit has not seen: .parquet or .csv.", "FILE..."),
    out: Path | None = option("Save the table: FILE.csv.", None, "Output"),
    site: str | None = option("Column that says which site a row is of. By default each file is one.", None, "Data"),
    force: bool = FORCE,
    json: bool = AS_JSON,
) -> None:
    """How a fitted model does on data that it has not seen, file by file and on all together."""
    saved = Outputs(context.obj, force)
    saved.check("--out", out, (".csv",))
    found = on_holdout(_load(model), site_files(files), site=site)
    saved.save_table(out, list(map(asdict, found)))
    if json:
        print_json(model=model, files=list(found), saved=saved.saved)
    else:
        _print_evaluation(found)
        saved.print_saved()


def _print_evaluation(found: Sequence[Residuals] | Sequence[TDErrors]) -> None:
    """A row for each file, and what the columns do not say."""
    headings, notes = TD_ERRORS, TD_NOTES
    if isinstance(found[0], Residuals):
        undefined = any(isinstance(r, Residuals) and math.isnan(r.r_squared) for r in found)
        headings, notes = RESIDUALS, ["R² is missing where the target does not vary."] * undefined
    records = [{n: getattr(r, n) for n in ("name", *headings)} for r in found]
    for r in records:
        if not math.isnan(r.get("cut", math.nan)):
            r["cut"] = f"{r['cut']:.0%}"
    print_all(table("hold-out", *headings.values(), rows=(r.values() for r in records)), *notes)


@app.command(examples=PREDICT_EXAMPLES)
def predict(
    context: typer.Context,
    model: Path = MODEL,
    file: Path = argument("Points with the model's columns: .parquet or .csv."),
    level: float = option("Of intervals.", 0.95),
    site: str | None = option("The site whose own intercept counts, where sites have their own.", None),
    out: Path | None = option("Save the table: FILE.csv.", None, "Output"),
    force: bool = FORCE,
    json: bool = AS_JSON,
) -> None:
    """A fitted model at the rows of a file: values with standard errors, intervals, and those of a new observation."""
    saved = Outputs(context.obj, force)
    saved.check("--out", out, (".csv",))
    checks.real("--level", level, above=0, below=1)
    points = site_files([file])
    if len(points) > 1:
        raise ArgumentError(f"predict needs one file of points; {str(file)!r} are {len(points)}")
    found = _load(model).predict_interval(points[0], level, site=site)
    saved.save_table(out, found.to_frame().to_dict("records"))
    if json:
        print_json(model=model, file=file, level=level, **vars(found), saved=saved.saved)
    else:
        _print_predictions(found, level, hint="" if out else "; --out keeps all")
        saved.print_saved()


def _print_predictions(found: Prediction, level: float, hint: str) -> None:
    """The first rows of what a model predicts."""
    interval = f"{100 * level:g}% interval"
    headings = ["value", "standard\nerror", f"{interval},\nfrom", "\nto", "of an observation,\nfrom", "\nto"]
    rows = [[i, *(number(v, 5) for v in row)] for i, row in enumerate(found.to_frame()[:ROWS].to_numpy(), 1)]
    more = len(found.value) - ROWS
    print_all(table("row", *headings, rows=rows), *([f"and {more:,} more{hint}"] if more > 0 else []))


def _load(model: Path) -> Fit:
    if model.suffix.lower() in (".csv", ".parquet"):
        raise ArgumentError(f"the model must come first, a file of fedlsa fit --out; got {str(model)!r}")
    return Fit.load(model)

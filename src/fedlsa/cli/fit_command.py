"""The commands `fedlsa fit`, `fedlsa predict` and `fedlsa evaluate`: from sites' files to a model and its answers."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from .. import checks, figures
from ..errors import ArgumentError
from ..figures import theme
from ..fitting import Fit, Regression, Value
from ..fitting import evaluate as on_holdout
from ..fitting import fit as fit_sites
from ..fitting.models import to_plain
from ..fitting.sites.site_readers import MEMORY
from . import parsing
from .display import print_json, stages
from .options import AS_JSON, App, Given, Option, Options, Words, option, switch, takes
from .summaries import print_evaluation, print_fit, print_predictions, save_table
from .task_options import BY_HAND, EPSILON, REGRESSION, VALUE

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

MODEL: Any = typer.Argument(help="What fedlsa fit --out wrote.", show_default=False, metavar="MODEL.json")
MANY_FILES: Any = {"show_default": False, "metavar": "FILE..."}
FILES: Any = typer.Argument(help="One file per site: .parquet or .csv.", **MANY_FILES)
RUN = Options(
    fit_sites,
    {
        "Data": {"site": "Column that says which site a row is of. By default each file is a site."},
        "Run": {
            "epsilon": f"{EPSILON} By default no combination of coefficients is off by a tenth of its standard error.",
            **BY_HAND,
            "local_steps": "Steps of a site between communications (scaffnew: on average).",
            "plan": "Without the run by which sites would get the answer: the estimate and its errors alone.",
            "max_samples": "Most steps of a site. By default 4 times the fewest that reach epsilon.",
            "local": "What a step uses: rows at random, the log in its order, the site's means, or auto.",
            "memory": Option(
                "For rows; files that need more are read again, and steps use means. Such as 500MB or 8GB.",
                kind=str,
                read=parsing.size,
            ),
        },
        "Error bars": {
            "lag": "How many rows apart errors may be correlated (HAC). By default 0; chosen for values.",
            "bootstrap": "Error bars from so many reweighted data sets too.",
            "resample": "What varies in them: pairs, block, cluster or wild. By default it follows from the data.",
        },
        "Output": {"baselines": "Compare with protocols of one message per site."},
    },
    defaults={"memory": f"{MEMORY / 1e6:g}MB"},
)
fits = App(no_args_is_help=True)


def fit(
    context: typer.Context,
    task: Given,
    run: Given,
    files: list[Path] = FILES,
    level: float = option("Of confidence intervals.", 0.95, "Error bars"),
    test: list[str] | None = option("Claims to test, 'a = b' or 'a = 0, b = 0'; may be repeated.", None, "Error bars"),
    out: Path | None = option("Save the model: FILE.json, for fedlsa predict and evaluate.", None, "Output"),
    plot: Path | None = option("Draw coefficients and errors: .png, .pdf or .svg.", None, "Output"),
    force: bool = switch("--force", "Replace files that exist.", "Output"),
    quiet: bool = switch("--quiet", "No bar and no tables.", "Output"),
    json: bool = AS_JSON,
) -> None:
    """The fit of a task, shown, saved and drawn as asked."""
    model = parsing.target("--out", out, force, context.obj, (".json",))
    picture = parsing.target("--plot", plot, force, context.obj)
    checks.real("--level", level, above=0, below=1)
    arguments, wanted, sites = run.arguments, task(), parsing.site_files(files)
    if picture is not None:
        theme.matplotlib()  # now rather than after the work
    with stages(shown=not quiet) as progress:
        fitted = fit_sites(sites, wanted, progress=progress, **arguments)
    fitted = replace(fitted, made_by={"command": context.obj} | fitted.made_by)
    tests = [fitted.test(claims) for claims in test or ()]
    parsing.write(model, fitted.save, force=force)
    draw = partial(figures.coefficients, fitted, level=level)
    parsing.write_picture(picture, draw, context.obj, force=force)
    if json:
        bars = {"standard_error": fitted.standard_error, "interval": fitted.confidence_interval(level), "level": level}
        bars |= {"t_values": fitted.t_values, "p_values": fitted.p_values, "tests": tests}
        if len(fitted.per_site) > 1:
            between = fitted.heterogeneity()
            bars |= {"heterogeneity": {**between.coefficients, "all together": between.together}}
            bars |= {"stand_out": between.stands_out}
        print_json(**to_plain(fitted), **bars, saved=[path for path in (model, picture) if path is not None])
    elif not quiet:
        print_fit(fitted, tests, level)
    if quiet or json:
        return
    parsing.tell_saved(model, picture)
    if model is not None:
        print(f"on other data:  fedlsa predict or fedlsa evaluate, {shlex.quote(str(model))} FILE")
    elif picture is None and not quiet:
        print("nothing saved: --out model.json keeps the model, --plot FILE.png draws it")


def _of_task(task: type, words: Words) -> Callable[..., None]:
    return takes(task=Options(task, {"What to estimate": words}), run=RUN)(fit)


VALUE_HELP = "The value function of the policy that made the logs, by TD: columns of states, rewards and ends."
REGRESSION_HELP = "A linear model of one column by others: least squares over all sites."
fits.command("value", help=VALUE_HELP, examples=VALUE_EXAMPLES)(_of_task(Value, VALUE))
fits.command("regression", help=REGRESSION_HELP, examples=REGRESSION_EXAMPLES)(_of_task(Regression, REGRESSION))


app = App()
app.add_typer(fits, name="fit", help=FIT_HELP)


@app.command(examples=EVALUATE_EXAMPLES)
def evaluate(
    context: typer.Context,
    model: Path = MODEL,
    files: list[Path] = typer.Argument(help="Data that the fit has not seen: .parquet or .csv.", **MANY_FILES),
    out: Path | None = option("Save the table: FILE.csv.", None, "Output"),
    site: str | None = option("Column that says which site a row is of. By default each file is one.", None, "Data"),
    force: bool = switch("--force", "Replace a file that exists.", "Output"),
    json: bool = AS_JSON,
) -> None:
    """How a fitted model does on data that it has not seen, file by file and on all together."""
    table = parsing.target("--out", out, force, context.obj, (".csv",))
    found = on_holdout(_load(model), parsing.site_files(files), site=site)
    parsing.write(table, partial(save_table, list(map(asdict, found)), context.obj), force=force)
    if json:
        print_json(model=model, files=list(found), saved=[table] if table is not None else [])
    else:
        print_evaluation(found)
        parsing.tell_saved(table)


@app.command(examples=PREDICT_EXAMPLES)
def predict(
    context: typer.Context,
    model: Path = MODEL,
    file: Path = typer.Argument(help="Points with the model's columns: .parquet or .csv.", show_default=False),
    level: float = option("Of intervals.", 0.95),
    out: Path | None = option("Save the table: FILE.csv.", None, "Output"),
    force: bool = switch("--force", "Replace a file that exists.", "Output"),
    json: bool = AS_JSON,
) -> None:
    """A fitted model at the rows of a file: values with standard errors, intervals, and those of a new observation."""
    table = parsing.target("--out", out, force, context.obj, (".csv",))
    checks.real("--level", level, above=0, below=1)
    points = parsing.site_files([file])
    if len(points) > 1:
        raise ArgumentError(f"predict needs one file of points; {str(file)!r} are {len(points)}")
    found = _load(model).predict_interval(points[0], level)
    parsing.write(table, partial(save_table, found.to_frame().to_dict("records"), context.obj), force=force)
    if json:
        print_json(model=model, file=file, level=level, **vars(found), saved=[table] if table is not None else [])
    else:
        print_predictions(found, level)
        parsing.tell_saved(table)


def _load(model: Path) -> Fit:
    if model.suffix.lower() in (".csv", ".parquet"):
        raise ArgumentError(f"the model must come first, a file of fedlsa fit --out; got {str(model)!r}")
    return Fit.load(model)

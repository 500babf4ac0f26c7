"""The commands `fedlsa simulate` and `fedlsa plot`: runs on one machine, and the figure of saved ones."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .. import checks, engine, figures, results
from ..algorithms import Algorithm
from ..engine.checkpoints import partial_file, simulate_to_files
from ..figures.drawing_checks import SCALES
from ..figures.lines import COSTS
from ..files import remove
from ..problems import Problem
from ..results.sweeps import separate, stack
from . import parsing
from .choices import ALL_METHODS, PROBLEM, described, sweep_axes
from .display import live_bar, print_json
from .options import AS_JSON, App, Given, Option, Options, option, switch, takes
from .summaries import print_table

if TYPE_CHECKING:
    import xarray as xr

SIMULATE_EXAMPLES = (
    "fedlsa simulate --local-steps 1000 --plot drift.png",
    "fedlsa simulate --method fedlsa --method scafflsa --method scaffnew --seeds 20 --out out/three",
    "fedlsa simulate --problem ring --step-size 0.05,0.1 --local-steps 10,100 --out sweep.nc",
    "fedlsa simulate --method fedlsa --step-size 0.5 --power 0.7 --participation 0.3 --out run.nc",
)
PLOT_EXAMPLES = (
    "fedlsa plot fedlsa.nc scafflsa.nc",
    'fedlsa plot out/*.nc --x samples --scale log --title "Error against data" --out figure.pdf',
)
RUN = Options(
    engine.simulate_grid,
    {
        "Run": {
            "rounds": Option("Communications T.", kind=int),
            "seeds": Option("A count (10) or a list (3,5,8).", kind=str, read=parsing.count_or_list),
            "engine": Option(
                "cpu, cuda (an NVIDIA GPU), auto (whichever is quicker) or reference (to be read).",
                names=engine.ENGINES,
            ),
            "dtype": Option("float64 or float32.", names=("float64", "float32")),
            "threads": "By default all cores.",
            "record": Option(
                "Rounds to keep: how many (200), or which (0,10,100).", kind=str, read=parsing.count_or_list
            ),
        }
    },
)


app = App()


@app.command(examples=SIMULATE_EXAMPLES)
@takes(problem=PROBLEM, methods=ALL_METHODS, run=RUN)
def simulate(
    context: typer.Context,
    problem: Given,
    methods: Given,
    run: Given,
    sampling: str = option("iid or markov (one trajectory per agent).", "iid", "Run", names=parsing.SAMPLINGS),
    thin: int | None = option("markov: use every thin-th observation.", None, "Run"),
    out: Path | None = option(
        "Save results: FILE.nc, or a folder with a file per method; a sweep is one file.", None, "Output"
    ),
    plot: Path | None = option("Draw the error curves: .png, .pdf or .svg.", None, "Output"),
    force: bool = switch("--force", "Replace files that exist.", "Output"),
    quiet: bool = switch("--quiet", "No bar and no table.", "Output"),
    json: bool = AS_JSON,
) -> None:
    """Run methods on a problem, all on the same random numbers; show, save and draw how far they get.

    A run with --out that is interrupted goes on when the same command is given again.
    """
    chosen, how, arguments = methods(), parsing.make_sampling(sampling, thin), run.arguments
    names = [algorithm.name for algorithm in chosen]
    axes = sweep_axes(chosen, methods.arguments) if out is not None else {}
    files = [] if out is None else parsing.result_paths(out, ["sweep"] if axes else names)
    for path in files:
        parsing.check_target("--out", path, force, context.obj)
    picture = parsing.target("--plot", plot, force, context.obj)
    made = problem()
    compiled = arguments["engine"] != "reference"
    kept = [files[0].with_name(f"{files[0].name}.{i}") for i in range(len(chosen))] if axes else files
    with live_bar(" + ".join(dict.fromkeys(names)), shown=not quiet, updates=compiled) as progress:
        arguments = {"sampling": how, "progress": progress, **arguments}
        runs = _run(made, chosen, kept, force, arguments) if kept else engine.simulate_grid(made, chosen, **arguments)
    bias = [figures.predicted_bias(r, made) for r in runs]
    for result, path in zip([stack(runs, axes)] if axes else runs, files, strict=False):
        save = partial(results.save, result, command=context.obj)
        parsing.write(path, save, force=force)
    draw = partial(figures.error_curves, runs, bias=bias)
    parsing.write_picture(picture, draw, context.obj, force=force)
    for path in kept:  # in the end: with them a command that is killed before goes on at once
        remove(partial_file(path))
    saved = [*files, *([picture] if picture is not None else [])]
    if json:
        rows = zip(chosen, bias, results.summary(runs).to_dict("records"), strict=True)
        print_json(runs=[{**described(a), **row, "predicted_drift": level} for a, level, row in rows], saved=saved)
    if quiet or json:
        return
    print_table(runs, bias)
    parsing.tell_saved(*saved)
    if files:
        print(f"draw it:  fedlsa plot {shlex.join(map(str, files))}")
    elif picture is None:
        print("nothing saved: --out FILE.nc keeps the results, --plot FILE.png draws them")


def _run(
    problem: Problem, methods: list[Algorithm], files: list[Path], force: bool, arguments: dict[str, Any]
) -> list[xr.Dataset]:
    """Results that are on disk as they come; what an interruption leaves is told, and where the same command begins."""
    try:
        return simulate_to_files(problem, methods, files, replaces=force, **arguments)
    except KeyboardInterrupt:
        kept = [str(path) for path in map(partial_file, files) if path.exists()]
        if kept:
            told = f"fedlsa: what is done is kept in {', '.join(kept)}; the same command goes on from there"
            print(told, file=sys.stderr)
        raise


@app.command(examples=PLOT_EXAMPLES)
def plot(
    context: typer.Context,
    result: list[Path] = typer.Argument(help="Files that fedlsa simulate --out wrote.", show_default=False),
    out: Path = option("The figure: .png, .pdf or .svg.", Path("figure.png")),
    x: str = option("communications, samples (per agent), uploads (messages) or bytes.", "communications", names=COSTS),
    scale: str = option("Of the horizontal axis: linear or log.", "linear", names=SCALES),
    title: str | None = option("A line above the figure."),
    force: bool = switch("--force", "Replace a file that exists."),
) -> None:
    """Draw the error of saved results against their cost, with the bias that theory predicts for FedLSA."""
    checks.choice("--x", x, COSTS)
    checks.choice("--scale", scale, SCALES)
    picture = parsing.target("--out", out, force, context.obj)
    runs = separate(results.load(path) for path in result)
    figure = figures.error_curves(runs, bias=[figures.predicted_bias(r) for r in runs], title=title, x=x, scale=scale)
    parsing.write_picture(picture, lambda: figure, context.obj, force=force)
    parsing.tell_saved(picture)

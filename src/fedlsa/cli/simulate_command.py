"""The command `fedlsa simulate`: runs on one machine."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .. import engine, figures, results
from ..algorithms import Algorithm
from ..engine.progress import live_bar
from ..engine.simulation import partial_file, simulate_to_files
from ..errors import ArgumentError
from ..figures.lines import common_setting
from ..figures.lines import names as line_names
from ..files import remove
from ..problems import Problem
from ..results.sweeps import stack
from ..sampling import IID, Markov
from .options import AS_JSON, FORCE, App, Given, Option, Options, Words, option, switch, takes
from .outputs import Outputs, number, print_all, print_json, table
from .problem_options import ALL_METHODS, PROBLEM, count_or_list, described, sweep_axes

if TYPE_CHECKING:
    import xarray as xr

SIMULATE_EXAMPLES = (
    "fedlsa simulate --local-steps 1000 --plot drift.png",
    "fedlsa simulate --method fedlsa --method scafflsa --method scaffnew --seeds 20 --out out/three",
    "fedlsa simulate --problem ring --step-size 0.05,0.1 --local-steps 10,100 --out sweep.nc",
    "fedlsa simulate --method fedlsa --step-size 0.5 --power 0.7 --participation 0.3 --out run.nc",
)
SAMPLINGS = ("iid", "markov")  # no problem of the command line is a log that could be replayed
RUN_WORDS: Words = {
    "rounds": Option("Communications T.", kind=int),
    "seeds": Option("A count (10) or a list (3,5,8).", kind=str, read=count_or_list),
    "engine": Option(
        "cpu, cuda (an NVIDIA GPU), auto (whichever is quicker) or reference (to be read).", names=engine.ENGINES
    ),
    "dtype": Option("float64 or float32.", names=("float64", "float32")),
    "threads": "By default all cores.",
    "record": Option("Rounds to keep: how many (200), or which (0,10,100).", kind=str, read=count_or_list),
}
RUN = Options(engine.simulate, {"Run": RUN_WORDS})
app = App()


@app.command(examples=SIMULATE_EXAMPLES)
@takes(problem=PROBLEM, methods=ALL_METHODS, run=RUN)
def simulate(
    context: typer.Context,
    problem: Given,
    methods: Given,
    run: Given,
    sampling: str = option("iid or markov (one trajectory per agent).", "iid", "Run", names=SAMPLINGS),
    thin: int | None = option("markov: use every thin-th observation.", None, "Run"),
    out: Path | None = option(
        "Save results: FILE.nc, or a folder with a file per method; a sweep is one file.", None, "Output"
    ),
    plot: Path | None = option("Draw the error curves: .png, .pdf or .svg.", None, "Output"),
    force: bool = FORCE,
    quiet: bool = switch("--quiet", "No bar and no table.", "Output"),
    json: bool = AS_JSON,
) -> None:
    """Run methods on a problem, all on the same random numbers; show, save and draw how far they get.

    A run with --out that is interrupted goes on when the same command is given again.
    """
    if sampling == "iid" and thin is not None:
        raise ArgumentError(f"--thin needs --sampling markov; got --thin {thin} with iid")
    how = IID() if sampling == "iid" else Markov(thin=1 if thin is None else thin)
    chosen, arguments = methods(), run.arguments
    names = [algorithm.name for algorithm in chosen]
    axes = sweep_axes(chosen, methods.arguments) if out is not None else {}
    paths = [] if out is None else _result_paths(out, ["sweep"] if axes else names)
    files = Outputs(context.obj, force)
    for path in paths:
        files.check("--out", path, ())
    files.check("--plot", plot)
    made = problem()
    compiled = arguments["engine"] != "reference"
    kept = [paths[0].with_name(f"{paths[0].name}.{i}") for i in range(len(chosen))] if axes else paths
    with live_bar(" + ".join(dict.fromkeys(names)), shown=not quiet, updates=compiled) as progress:
        arguments = {"sampling": how, "progress": progress, **arguments}
        runs = _run(made, chosen, kept, force, arguments) if kept else engine.simulate_grid(made, chosen, **arguments)
    bias = [figures.predicted_bias(r, made) for r in runs]
    for result, path in zip([stack(runs, axes)] if axes else runs, paths, strict=False):
        files.save(path, partial(results.save, result, command=context.obj))
    files.draw(plot, partial(figures.error_curves, runs, bias=bias))
    for path in kept:  # in the end: with them a command that is killed before goes on at once
        remove(partial_file(path))
    if json:
        rows = zip(chosen, bias, results.summary(runs).to_dict("records"), strict=True)
        found = [{**described(a), **row, "predicted_drift": level} for a, level, row in rows]
        print_json(runs=found, saved=files.saved)
    if quiet or json:
        return
    print_table(runs, bias)
    files.print_saved()
    if paths:
        print(f"draw it:  fedlsa plot {shlex.join(map(str, paths))}")
    elif plot is None:
        print("nothing saved: --out FILE.nc keeps the results, --plot FILE.png draws them")


def _result_paths(out: Path, names: list[str]) -> list[Path]:
    """A file per method: in the folder `out`, or `out` itself, with the method's name added if there are several."""
    if out.suffix == ".nc" and not out.is_dir():
        if len(names) == 1:
            return [out]
        return [out.with_name(f"{out.stem}-{name}.nc") for name in names]
    if out.suffix and not out.is_dir():
        raise ArgumentError(f"--out must be a file that ends in .nc or a folder; got {str(out)!r}")
    return [out / f"{name}.nc" for name in names]


def _run(
    problem: Problem, methods: list[Algorithm], files: list[Path], force: bool, arguments: dict[str, Any]
) -> list[xr.Dataset]:
    """Results that are on disk as they come; after an interruption a line says where the same command goes on."""
    try:
        return simulate_to_files(problem, methods, files, replaces=force, **arguments)
    except KeyboardInterrupt:
        kept = [str(path) for path in map(partial_file, files) if path.exists()]
        if kept:
            done = f"what is done is kept in {', '.join(kept)}"
            print(f"fedlsa: {done}; the same command goes on from there", file=sys.stderr)
        raise


def print_table(runs: Sequence[xr.Dataset], bias: Sequence[float]) -> None:
    """One row per result: what it cost, its final error with a standard error, and what theory predicts for FedLSA."""
    found = results.summary(runs).to_dict("records")
    headings = ["communi-\ncations", "samples\nper agent", "final MSE ±\nstandard error", "predicted\ndrift"]
    rows = []
    for name, row, level in zip(line_names(runs), found, bias, strict=True):
        error = "" if math.isnan(row["mse"]) else f" ± {number(row['standard_error'], 2)}"
        rows.append([name, row["communications"], round(row["samples"]), number(row["mse"]) + error, level])
    if any(row["diverged"] for row in found):
        headings.append("seeds that\ndiverged")
        rows = [[*cells, f"{row['diverged']} of {row['seeds']}"] for cells, row in zip(rows, found, strict=True)]
    print_all(table("method", *headings, rows=rows), heading=common_setting(runs))

"""The command `fedlsa plot`: the figure of saved results, drawn without the engine that made them."""

from __future__ import annotations

from pathlib import Path

import typer

from .. import figures, results
from ..figures.lines import COSTS, SCALES
from ..results.sweeps import require_runs, separate
from .options import FORCE, App, argument, option
from .outputs import Outputs

PLOT_EXAMPLES = (
    "fedlsa plot fedlsa.nc scafflsa.nc",
    'fedlsa plot out/*.nc --x samples --scale log --title "Error against data" --out figure.pdf',
)
app = App()


@app.command(examples=PLOT_EXAMPLES)
def plot(
    context: typer.Context,
    result: list[Path] = argument("Files that fedlsa simulate --out wrote."),
    out: Path = option("The figure: .png, .pdf or .svg.", Path("figure.png"), "Output"),
    x: str = option("communications, samples (per agent), uploads (messages) or bytes.", "communications", names=COSTS),
    scale: str = option("Of the horizontal axis: linear or log.", "linear", names=SCALES),
    title: str | None = option("A line above the figure."),
    force: bool = FORCE,
) -> None:
    """Draw the error of saved results against their cost, with the bias that theory predicts for FedLSA."""
    files = Outputs(context.obj, force)
    files.check("--out", out)
    saved = [results.load(path) for path in result]
    for path, dataset in zip(result, saved, strict=True):
        require_runs(str(path), dataset)
    runs = separate(saved)
    figure = figures.error_curves(runs, bias=[figures.predicted_bias(r) for r in runs], title=title, x=x, scale=scale)
    files.draw(out, lambda: figure)
    files.print_saved()

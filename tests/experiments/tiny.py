"""A private catalogue of small experiments, one cell of which is a real simulation; every computation is logged."""

import math
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from fedlsa.experiments import Cell, Claim, Experiment, Picture, Scale, Table, computes
from fedlsa.experiments.cells import KINDS
from fedlsa.figures.lines import Chart, ChartRows, Line, mean_line

PAUSE = 0.01
LOG = Path(os.devnull)  # a line per cell that is computed


def log_to(path):
    global LOG
    LOG = path


def _log(kind, settings):
    time.sleep(PAUSE)
    with open(LOG, "a") as log:
        log.write(Cell(kind, settings).key + "\n")


@computes("tiny")
def draws(settings, how):
    _log("tiny", settings)
    values = np.random.default_rng(settings["place"]).normal(settings["place"], 1, (settings["seeds"], 20))
    return xr.Dataset({"value": (("seed", "rounds"), values)}, attrs={"place": settings["place"]})


@computes("tiny simulate")
def simulated(settings, how):
    _log("tiny simulate", settings)
    return KINDS["simulate"](settings, how)


def place(scale, i):
    return Cell("tiny", {"place": i, "seeds": scale.seeds, "preset": scale.preset})


def real(scale):
    run = {"method": "scafflsa", "step_size": 0.1, "local_steps": 10, "rounds": 20, "record": 20, "seeds": scale.seeds}
    return Cell("tiny simulate", {"problem": {"agents": 2, "states": 12, "preset": scale.preset}, **run})


def cells(first, last):
    return lambda scale: [*(place(scale, i) for i in range(first, last)), real(scale)]


def draw(results, scale):
    lines = []
    for row in results[results["kind"] == "tiny"].itertuples():
        x, y = np.arange(row.result.sizes["rounds"]), row.result["value"].mean("seed").values
        lines.append(Line(x, y, "<mean> & more", name=f"place {row.place:g}"))
    error = results[results["kind"] == "tiny simulate"]["result"].item()["squared_error"].values
    lines.append(mean_line(np.arange(error.shape[1]), error, "run", "#d55e00"))
    chart = Chart(lines, "", "", "the <means>", y_scale="linear", limits=(-5, 15))
    return ChartRows([[chart]], panel=(1.0, 1.0))  # small: drawn quickly


def rows(results, scale):
    tiny = results[results["kind"] == "tiny"]
    means = [(int(row.place), float(row.result["value"].mean())) for row in tiny.itertuples()]
    return pd.DataFrame([{"place": i, "mean <i>": mean, "none": math.nan if i else mean} for i, mean in means])


def mean(results):
    return float(np.mean([result["value"].mean() for result in results[results["kind"] == "tiny"]["result"]]))


def claim(name, **bounds):
    bounds.setdefault("why", "" if bounds.get("expected", True) else "They are not.")
    text = f"the mean is <right> & {name}"
    return Claim(name, text, "sec:tiny", "mean of draws; of all", cells(0, 4), mean, **bounds)


ONE = Experiment(
    "one",
    "First & foremost",
    ("fig:show-bias",),
    (Picture("one", "Means of {seeds} seeds, <{preset}>", cells(0, 8), draw, lambda scale: ["the <means>"]),),
    (Table("one", "The means & more", cells(0, 8), rows, {"none": "it was left out"}),),
    (
        claim("near", at_least=1, at_most=2, kind="paper", quote="means are <near> & dear", panel="one: the <means>"),
        claim(
            "false",
            at_most=0.0,
            expected=False,
            kind="paper",
            quote="means are small in fig:show-bias",
            panel="one: the <means>",
        ),
    ),
)
TWO = Experiment("two", "Second", (), (Picture("two", "More", cells(4, 12), draw, lambda scale: ["the <means>"]),))
WRONG = Experiment("wrong", "A claim that fails", (), claims=(claim("missed", at_least=5.0),))
CATALOGUE = {e.name: e for e in (ONE, TWO)}
SCALES = (Scale("paper", 3, True), Scale("authors", 3, True))

"""When one message is enough: one-shot baselines beside plans of FedLSA and SCAFFLSA, on the first table's instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..checks import Floats
from ..figures import style
from ..figures.complexities import CostPanel, Marks, cost_panels, marks_of
from . import laws
from .base import Claim, Experiment, Lookup, Panels, Picture, Row, Scale, Table
from .cells import Cell
from .complexities import LSA, NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES, QUICK_SAMPLES = tuple(10**k for k in range(2, 8)), (1_000, 10_000, 100_000, 1_000_000)
DRAWS, FEWEST = 10, 50  # draws of a baseline for each seed of a simulation, and the fewest: they cost next to nothing
SETTLED = 10_000  # observations from which on the limits describe a baseline
SYSTEM, SOLUTIONS = "one message: averaged system", "one message: average of local solutions"
SHOWN = ("fedlsa", "scafflsa")
DIM = 8  # of the Garnet, where its settings do not say otherwise


def cells(scale: Scale) -> Panels:
    """Baselines by the number of observations; the plans are those of the first table."""
    where = {"problem": LSA.problem(scale), "seeds": max(FEWEST, DRAWS * scale.seeds)}
    baselines = {str(n): Cell("one-shot", {**where, "samples": n}) for n in (QUICK_SAMPLES if scale.quick else SAMPLES)}
    return {"one-shot": baselines, **{k: v for k, v in LSA.cells(scale).items() if k.startswith("plan")}}


def errors(name: str, cells: Panels, lookup: Lookup) -> tuple[Floats, Floats]:
    """Numbers of observations (n,) and squared errors (n, seed) of a baseline, "system" or "solutions"."""
    held = cells["one-shot"]
    return np.array([float(n) for n in held]), np.stack([lookup(c)[name].values for c in held.values()])


def last(cells: Panels, lookup: Lookup) -> xr.Dataset:
    """The result with the most observations."""
    return lookup(list(cells["one-shot"].values())[-1])


def limit(name: str, held: xr.Dataset, n: Floats) -> Floats:
    """What the MSE of a baseline tends to: noise / n, plus the squared bias of the average of solutions."""
    bias = float(held["solutions_bias"]) if name == "solutions" else 0.0
    return np.asarray(bias + float(held[f"{name}_noise"]) / n, np.float64)


def draw(cells: Panels, lookup: Lookup, scale: Scale) -> Figure:
    """MSE against observations per agent, of the baselines and of plans."""
    held, marks = last(cells, lookup), []
    for name, label, colour, marker in (
        ("system", SYSTEM, style.OTHERS[3], "D"),
        ("solutions", SOLUTIONS, style.OTHERS[0], "v"),
    ):
        n, squared = errors(name, cells, lookup)
        band = (np.quantile(squared, 0.1, axis=1), np.quantile(squared, 0.9, axis=1))
        fine = np.geomspace(n[0], n[-1], 100)
        law = (fine, limit(name, held, fine))
        marks.append(Marks(label, colour, n, squared.mean(axis=1), marker, band, law))
    for method in SHOWN:
        x, samples = LSA.measured("plan", method, "samples", cells, lookup)
        inside = samples <= 2 * n[-1]
        marks.append(marks_of(NAMES[method], samples[inside], x[inside] ** -2.0))
    note = (
        f"Baselines: mean of the squared error over {squared.shape[1]} draws; band: their 10% to 90% quantile;\n"
        "line: its limit for many observations. FedLSA, SCAFFLSA: exact MSE and samples of the plans with\n"
        f"the fewest communications. Instance: {scale.preset}, N = {LSA.agents(scale)}, d = {dim(scale)}."
    )
    return cost_panels(
        [CostPanel("", "observations per agent", "mean squared error", marks)], note=note, width=6.2, legend=2
    )


def dim(scale: Scale) -> int:
    """Of the instance."""
    return int(LSA.problem(scale).get("features", DIM))


def table(cells: Panels, lookup: Lookup, scale: Scale) -> list[Row]:
    """Messages, numbers and observations with which each gets to an accuracy."""
    held, d = last(cells, lookup), dim(scale)
    rows: list[Row] = []
    every = LSA.accuracies(scale)
    for e in (every[0], every[len(every) // 2], every[-1]):
        for method, name in NAMES.items():
            found = lookup(cells[f"plan {method}"][f"{e:g}"])
            T, n = int(found["rounds"]), float(found["samples"])
            rows.append(_row(e, name, T, 2 * T * d, f"{n:.3g}"))
        rows.append(_row(e, SYSTEM, 1, d * d + 2 * d, f"{float(held['system_noise']) / e**2:.3g}"))
        room = e**2 - float(held["solutions_bias"])
        never = f"never: bias {float(held['solutions_bias']) ** 0.5:.3g}"
        needed = f"{float(held['solutions_noise']) / room:.3g}" if room > 0 else never
        rows.append(_row(e, SOLUTIONS, 1, 2 * d, needed))
    return rows


def _row(epsilon: float, method: str, rounds: int, numbers: int, samples: str) -> Row:
    return {
        "ε": epsilon,
        "method": method,
        "communications": rounds,
        "numbers up and down, per agent": numbers,
        "observations per agent": samples,
    }


def rate(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The exponent of n in the MSE of the averaged system, once it has settled."""
    n, squared = errors("system", cells, lookup)
    return laws.slope(n[n >= SETTLED], squared.mean(axis=1)[n >= SETTLED])


def z_score(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """Standard errors between n times the MSE of the averaged system and its limit, at the largest n."""
    n, squared = errors("system", cells, lookup)
    mean, deviation = squared[-1].mean(), squared[-1].std(ddof=1) / len(squared[-1]) ** 0.5
    return float(abs(mean - limit("system", last(cells, lookup), n[-1:])[0]) / deviation)


def stall(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """MSE of the average of local solutions at the largest n, relative to its squared bias."""
    _, squared = errors("solutions", cells, lookup)
    return float(squared[-1].mean() / float(last(cells, lookup)["solutions_bias"]))


def _of_baselines(scale: Scale) -> Panels:
    """The baselines alone, without plans."""
    return {"one-shot": cells(scale)["one-shot"]}


def _claim(name: str, text: str, statistic: str, measure: Any, **k: Any) -> Claim:
    return Claim(f"one-shot-{name}", text, "", statistic, _of_baselines, measure, **k)


EXPERIMENTS = (
    Experiment(
        "one-shot",
        "When one message is enough",
        (),
        (
            Picture(
                "one-shot",
                "Mean squared error against observations per agent: two estimators that need one message, and plans.",
                cells,
                draw,
            ),
        ),
        (Table("one-shot", "What an RMSE of ε costs with one message and with several.", cells, table),),
        (
            _claim(
                "rate",
                "The error of the averaged system falls like 1/n in the observations per agent",
                f"exponent of n in the MSE from n = {SETTLED:,} on",
                rate,
                at_least=-1.2,
                at_most=-0.8,
            ),
            _claim(
                "limit",
                "n times the MSE of the averaged system tends to tr(A^-1 S A^-T), S the noise at theta_star over N",
                "difference at the largest n, in standard errors over draws",
                z_score,
                at_most=4.0,
            ),
            _claim(
                "stall",
                "The average of local solutions stalls at its bias when agents differ",
                "MSE at the largest n over the squared bias",
                stall,
                at_least=0.9,
                at_most=1.1,
            ),
        ),
    ),
)

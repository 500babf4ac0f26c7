"""The pictures of docs/gallery.md: each method of the field on one problem, exact and simulated.

Run `python docs/make_gallery_pictures.py [NAME ...]`; it writes docs/images/gallery-NAME.svg, a few seconds each.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fedlsa as fl
from fedlsa import figures, theory
from fedlsa.figures import theme
from fedlsa.figures.lines import ERROR, Chart, ChartRows, Line, level
from fedlsa.figures.matplotlib_figures import draw_charts

IMAGES = Path(__file__).parent / "images"
ETA, H, ROUNDS, SEEDS = 0.05, 20, 100, 200
LOWEST = 1e-4  # error that is shown
SLOW = (1, 1, 1, 0.2, 0.2, 0.2)
METHODS: dict[str, fl.Algorithm] = {
    "unequal-work": fl.UnequalWork(ETA, H, length_factors=SLOW),
    "fednova": fl.FedNova(ETA, H, length_factors=SLOW),
    "dropouts": fl.Dropouts(ETA, H, (0.5, 0.5, 0.5, 0, 0, 0)),
    "delayed": fl.Delayed(ETA, 10, (0.4, 0.3, 0.2, 0.1)),
    "buffered": fl.Buffered(ETA, 5, participants=3),
    "compressed": fl.Compressed(ETA, H, fl.RandK(1)),
    "compressed-memory": fl.Compressed(ETA, H, fl.RandK(1, scaled=False), memory=True),
    "rounding": fl.Compressed(ETA, H, fl.Rounding(4, 8.0)),
    "noise": fl.Compressed(ETA, H, fl.Noise(0.1)),
    "momentum": fl.Momentum(ETA, 5, 0.5),
    "adam": fl.Adam(ETA, H, 0.1, beta_1=0.5),
    "anderson": fl.Anderson(ETA, H, 2, ridge=0.1),
    "personal": fl.Personal(ETA, H, (0,)),
    "svrg": fl.SVRG(ETA, H),
    "saga": fl.SAGA(ETA, H),
    "fedprox": fl.FedProx(ETA, H, 0.3),
    "fedlin": fl.FedLin(ETA, H),
    "scaffold": fl.Scaffold(ETA, H, 1, participants=2),
    "gradient-tracking": fl.GradientTracking(ETA, 5),
}
MORE = {"compressed-memory": " with memory", "rounding": " to 4 bits", "noise": " with noise"}  # beside the name
WITHOUT_THEORY = ("adam", "anderson")


def instance() -> fl.Problem:
    """Six agents whose solutions stand on a ring, in the plane."""
    return fl.problems.ring(agents=6)


def quantiles(errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The band of the seeds; what lies far below the picture is left at its edge."""
    low, high = np.quantile(errors, (0.1, 0.9), axis=0)
    return np.maximum(low, LOWEST / 10), np.maximum(high, LOWEST / 10)


def exact_line(problem: fl.Problem, method: fl.Algorithm, recorded: np.ndarray, label: str, colour: str) -> Line:
    mse = theory.exact(problem, method, rounds=ROUNDS, record=recorded.tolist())["mse"].values
    return Line(recorded.astype(float), mse, label, colour, width=1.0)


def method_lines(problem: fl.Problem, name: str, recorded: np.ndarray) -> list[Line]:
    """Its curve, the band of its seeds and the floor; where coordinates are own, of the others, from their limit."""
    method, colour = METHODS[name], theme.OTHERS[0]
    shared = [i for i in range(problem.dim) if i not in getattr(method, "own", ())]
    run = fl.simulate(problem, method, rounds=ROUNDS, seeds=SEEDS, record=recorded.tolist())
    label, x = type(method).__name__, recorded.astype(float)
    if name in WITHOUT_THEORY:
        errors = run["squared_error"].values
        return [Line(x, errors.mean(0), label, colour, band=quantiles(errors))]
    limit = theory.stationary(problem, method)
    target = problem.theta_star if len(shared) == problem.dim else limit.mean
    errors = ((run["theta"].values - target)[..., shared] ** 2).sum(-1)
    exact = theory.exact(problem, method, rounds=ROUNDS, record=recorded.tolist())
    variance = exact["covariance"].values[:, shared, shared].sum(-1)
    mse = ((exact["mean"].values - target)[:, shared] ** 2).sum(-1) + variance
    floor = ((limit.mean - target)[shared] ** 2).sum() + limit.covariance[shared, shared].sum()
    curve = Line(x, mse, label, colour, band=quantiles(errors))
    return [curve, level(float(floor), [curve], "its floor")] if floor > 1e-20 else [curve]


def picture(problem: fl.Problem, name: str) -> Figure:
    recorded = np.unique(np.geomspace(1, ROUNDS, 60).round().astype(int))
    lines = [
        exact_line(problem, fl.FedLSA(ETA, H), recorded, "FedLSA", theme.METHODS["FedLSA"]),
        exact_line(problem, fl.SCAFFLSA(ETA, H), recorded, "SCAFFLSA", theme.METHODS["SCAFFLSA"]),
    ]
    lines = [*([] if name == "personal" else lines), *method_lines(problem, name, recorded)]
    y = "MSE, shared coordinate" if name == "personal" else ERROR
    title = f"{type(METHODS[name]).__name__}{MORE.get(name, '')}, {METHODS[name].round_steps()} local steps"
    chart = Chart(lines, y=y, x_scale="log", limits=(LOWEST, 10.0), title=title)
    return draw_charts(ChartRows([[chart]], [], (4.2, 2.8)), description=f"{METHODS[name]!r} on {problem.recipe}")


def main(names: list[str]) -> None:
    problem = instance()
    for name in names or METHODS:
        path = IMAGES / f"gallery-{name}.svg"
        figures.save(picture(problem, name), path, command="python docs/make_gallery_pictures.py")
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The picture and the table of docs/richardson-romberg.md: exact limits of FedLSA, Richardson-Romberg and SCAFFLSA.

Run `python docs/make_romberg_picture.py`; it prints the table and writes docs/images/richardson-romberg.png in seconds.

Two runs on the same observations are one run in twice the dimension, with A(z) and b(z) beside 2 A(z) and 2 b(z), at
step size eta. So the exact covariance of that run holds all that a combination of the two needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

import fedlsa as fl
from fedlsa import figures, theory
from fedlsa.figures import theme
from fedlsa.figures.lines import Chart, ChartRows, Line
from fedlsa.figures.matplotlib_figures import draw_charts

PICTURE = Path(__file__).parent / "images" / "richardson-romberg.png"
ETA = 0.01
SHOWN = (10, 100, 1_000, 10_000)  # local steps in the table


class Limit(NamedTuple):
    """Where things end for one number of local steps: norms of biases, and root mean squared errors."""

    bias: float
    combined_bias: float
    rmse: float
    combined_rmse: float
    independent_rmse: float  # the two runs on different observations
    scafflsa_rmse: float


def instance() -> fl.Problem:
    """The authors' heterogeneous Garnet with ten agents."""
    return fl.problems.garnet(agents=10, preset="authors", seed=42)


def side_by_side(problem: fl.Problem) -> fl.Problem:
    """The problem on which one run at eta is two runs of `problem`, at eta and at 2 eta, on the same observations."""
    d, tables = problem.dim, []
    for span in problem.spans():
        A, b = problem.observations.matrices(span)
        both = np.zeros((len(A), 2 * d, 2 * d))
        both[:, :d, :d], both[:, d:, d:] = A, 2 * A
        tables.append((problem.prob[span], both, np.hstack([b, 2 * b])))
    return fl.problems.from_observations(tables, weights=problem.weights, assignment=problem.assignment)


def limit(problem: fl.Problem, both: fl.Problem, H: int) -> Limit:
    d = problem.dim
    R = np.hstack([2 * np.eye(d), -np.eye(d)])
    bias = np.concatenate([theory.bias(problem, k * ETA, H) for k in (1, 2)])
    C = theory.stationary(both, fl.FedLSA(ETA, H)).covariance
    one, two, together = np.trace(C[:d, :d]), np.trace(C[d:, d:]), np.trace(R @ C @ R.T)
    plain, combined = bias[:d], R @ bias
    return Limit(
        bias=float(np.linalg.norm(plain)),
        combined_bias=float(np.linalg.norm(combined)),
        rmse=float(np.sqrt(plain @ plain + one)),
        combined_rmse=float(np.sqrt(combined @ combined + together)),
        independent_rmse=float(np.sqrt(combined @ combined + 4 * one + two)),
        scafflsa_rmse=float(np.sqrt(theory.stationary(problem, fl.SCAFFLSA(ETA, H)).mse)),
    )


def table(problem: fl.Problem, both: fl.Problem) -> str:
    """The rows of the page, in Markdown."""
    rows = []
    for H in SHOWN:
        x = limit(problem, both, H)
        numbers = (x.bias, x.combined_bias, x.rmse, x.combined_rmse, x.independent_rmse, x.scafflsa_rmse)
        rows.append(f"| {ETA * H:g} | " + " | ".join(f"{n:.3g}" for n in numbers) + " |")
    return "\n".join(rows)


def picture(problem: fl.Problem, both: fl.Problem) -> Figure:
    steps = np.unique(np.geomspace(3, 30_000, 25).round().astype(int))
    x = ETA * steps
    curves = Limit(*np.array([limit(problem, both, int(H)) for H in steps]).T)
    combined = "Richardson-Romberg, same observations"
    red, blue, violet = theme.METHODS["FedLSA"], theme.METHODS["SCAFFLSA"], theme.OTHERS[0]
    biases = [Line(x, curves.bias, "FedLSA", red), Line(x, curves.combined_bias, combined, violet)]
    errors = [
        Line(x, curves.independent_rmse, "Richardson-Romberg, independent observations", violet, dash="dotted"),
        Line(x, curves.rmse, "FedLSA", red),
        Line(x, curves.combined_rmse, combined, violet),
        Line(x, curves.scafflsa_rmse, "SCAFFLSA", blue),
    ]
    charts = [Chart(biases, "ηH", "norm of the limit bias", x_scale="log")]
    charts.append(Chart(errors, "ηH", "root of the limit MSE", x_scale="log", limits=(0.022, 2.5)))
    note = "The bias of FedLSA falls like ηH, that of Richardson-Romberg like (ηH)²; SCAFFLSA has none."
    return draw_charts(
        ChartRows([charts], [note], (3.5, 2.7), "none"),
        description=f"limits on the authors' heterogeneous Garnet, N = {problem.n_agents}, step size {ETA}",
    )


def main() -> None:
    problem = instance()
    both = side_by_side(problem)
    print(table(problem, both))
    figures.save(picture(problem, both), PICTURE, command="python docs/make_romberg_picture.py")
    print(PICTURE.name, PICTURE.stat().st_size)


if __name__ == "__main__":
    main()

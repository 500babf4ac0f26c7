"""The picture and the table of docs/richardson-romberg.md: exact limits of FedLSA, Richardson-Romberg and SCAFFLSA.

Run `python docs/make_romberg_picture.py`; it prints the table and writes docs/images/richardson-romberg.png in seconds.

Two runs on the same observations are one run in twice the dimension, with A(z) and b(z) beside 2 A(z) and 2 b(z), at
step size eta. So the exact covariance of that run holds all that a combination of the two needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import fedlsa as fl
from fedlsa import figures, theory
from fedlsa.figures import style

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
    red, blue, violet = style.METHODS["FedLSA"], style.METHODS["SCAFFLSA"], style.OTHERS[0]
    light = style.shade(violet, 1)
    with matplotlib.rc_context({**style.RC, **style.PANELS_RC}):
        figure = Figure(figsize=(7, 2.9), dpi=150)
        left, right = figure.subplots(1, 2)
        left.loglog(x, curves.bias, color=red)
        left.loglog(x, curves.combined_bias, color=violet)
        for label, colour, at in (
            ("FedLSA, falls like ηH", red, (0.035, 6e-2)),
            ("Richardson-Romberg,\nfalls like (ηH)²", violet, (1.3, 4e-6)),
            ("SCAFFLSA: none", blue, (1.3, 4e-8)),
        ):
            left.text(*at, label, color=colour, fontsize=8)
        left.set_ylabel("norm of the limit bias")
        right.loglog(x, curves.independent_rmse, color=light, linestyle=style.DASHES["dotted"][0])
        right.loglog(x, curves.rmse, color=red)
        right.loglog(x, curves.combined_rmse, color=violet)
        right.loglog(x, curves.scafflsa_rmse, color=blue)
        right.set_ylabel("root of the limit MSE")
        right.set_ylim(0.022, 2.5)
        for label, colour, at in (
            ("Richardson-Romberg,\nindependent observations", light, (0.03, 0.122)),
            ("FedLSA", red, (3.2, 0.4)),
            ("SCAFFLSA", blue, (0.03, 0.048)),
            ("Richardson-Romberg, same observations", violet, (0.03, 0.0275)),
        ):
            right.text(*at, label, color=colour, fontsize=8)
        for axes in (left, right):
            axes.set_xlabel("ηH")
            axes.minorticks_off()
        figure.tight_layout(w_pad=2.5)
    figure.set_label(f"limits on the authors' heterogeneous Garnet, N = {problem.n_agents}, step size {ETA}")
    return figure


def main() -> None:
    problem = instance()
    both = side_by_side(problem)
    print(table(problem, both))
    figures.save(picture(problem, both), PICTURE, command="python docs/make_romberg_picture.py")
    print(PICTURE.name, PICTURE.stat().st_size)


if __name__ == "__main__":
    main()

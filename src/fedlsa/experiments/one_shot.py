"""When one message is enough: one-shot baselines beside plans of FedLSA and SCAFFLSA, on the first table's instance.

Every site sends one message, made from n observations of its own, and is done.

- The averaged system (federated LSTD, normal equations): sites send estimates of (A_bar_c, b_bar_c), d^2 + d numbers,
  and the server solves their average. Consistent; n times its MSE tends to tr(A^-1 S A^-T), A = sum_c w_c A_bar_c,
  S = sum_c w_c^2 Sigma_omega_c.
- The average of local solutions: sites send the solutions of their own estimates, d numbers. It tends to the mean of
  the theta_star_c, which is not theta_star unless agents are alike.

Random numbers: one NumPy generator per seed and number of observations, default_rng([seed, n]); each agent's counts of
the outcomes of its table are one multinomial draw, agent after agent. Nothing here shares draws with `fl.simulate`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .. import theory
from ..checks import Floats
from ..figures import theme
from ..figures.lines import Chart, ChartRows, Line, method_line
from ..problems import Problem
from . import claim_statistics as laws
from .cells import Cell, computes
from .computations import How, Settings, problem
from .cost_tables import LSA, NAMES
from .experiment import Experiment, Picture, Scale, Table, claim

SAMPLES, QUICK_SAMPLES = tuple(10**k for k in range(2, 8)), (1_000, 10_000, 100_000, 1_000_000)
DRAWS, FEWEST = 10, 50  # draws of a baseline for each seed of a simulation, and the fewest: they cost next to nothing
SETTLED = 10_000  # observations from which on the limits describe a baseline
SYSTEM, SOLUTIONS = "one message: averaged system", "one message: average of local solutions"
DIM = 8  # of the Garnet, where its settings do not say otherwise


def estimated_systems(p: Problem, n: int, seed: int) -> tuple[Floats, Floats]:
    """Means of A(z) : (N, d, d) and of b(z) : (N, d) over n i.i.d. observations of each agent."""
    rng = np.random.default_rng([seed, n])
    spans = list(p.spans())
    means = [p.observations.mean(spans[m], rng.multinomial(n, p.prob[spans[m]]) / n) for m in p.assignment]
    return np.stack([A for A, _ in means]), np.stack([b for _, b in means])


def averaged_system(A: Floats, b: Floats, weights: Floats) -> Floats:
    """The solution (d,) of sum_c w_c A_c theta = sum_c w_c b_c (eq:lsa_syst_fed with estimates)."""
    return _shortest_solution(np.tensordot(weights, A, 1), weights @ b)


def average_of_solutions(A: Floats, b: Floats, weights: Floats) -> Floats:
    """sum_c w_c theta_c with A_c theta_c = b_c : (d,)."""
    return np.asarray(weights @ np.stack([_shortest_solution(*own) for own in zip(A, b, strict=True)]), np.float64)


def _shortest_solution(A: Floats, b: Floats) -> Floats:
    """Of all solutions the shortest, for few observations may leave directions that none has shown."""
    return np.asarray(np.linalg.lstsq(A, b)[0], np.float64)


def limits(p: Problem) -> dict[str, float]:
    """For large n: n times the MSE of the averaged system; squared bias, and n times the variance, of the average."""
    known, w = theory.constants(p), p.weights
    inverse = np.linalg.inv(np.tensordot(w, p.A_bar, 1))
    own = np.linalg.inv(p.A_bar)
    off = w @ p.theta_star_local - p.theta_star
    return {
        "system_bias": 0.0,
        "system_noise": float(np.trace(inverse @ np.tensordot(w**2, known.Sigma_omega, 1) @ inverse.T)),
        "solutions_bias": float(off @ off),
        "solutions_noise": float(np.einsum("c,cij,cjk,cik->", w**2, own, known.Sigma_eps, own)),
    }


@computes("one-shot")
def squared_errors(settings: Settings, how: How) -> xr.Dataset:
    """Squared errors (seed,) of both baselines with "samples" observations per agent, with their `limits`."""
    p, n = problem(settings), settings["samples"]
    errors = np.empty((2, settings["seeds"]))
    for seed in range(settings["seeds"]):
        A, b = estimated_systems(p, n, seed)
        for row, estimate in zip(errors, (averaged_system, average_of_solutions), strict=True):
            row[seed] = np.sum((estimate(A, b, p.weights) - p.theta_star) ** 2)
    return xr.Dataset(
        {"system": ("seed", errors[0]), "solutions": ("seed", errors[1])}
        | {name: ((), value) for name, value in limits(p).items()},
        coords={"seed": np.arange(settings["seeds"])},
    )


def baseline_cells(scale: Scale) -> list[Cell]:
    """Baselines by the number of observations."""
    where = {"problem": LSA.problem(scale), "seeds": max(FEWEST, DRAWS * scale.seeds)}
    return [Cell("one-shot", {**where, "samples": n}) for n in (QUICK_SAMPLES if scale.quick else SAMPLES)]


def cells(scale: Scale) -> list[Cell]:
    """Baselines, and the plans of the first table."""
    return [*baseline_cells(scale), *LSA.cells(scale, *NAMES, kinds=("plan",))]


def limit(name: str, result: xr.Dataset, n: Floats) -> Floats:
    """What the MSE of a baseline tends to: noise / n, plus the squared bias."""
    return np.asarray(float(result[f"{name}_bias"]) + float(result[f"{name}_noise"]) / n, np.float64)


def errors_by_samples(results: pd.DataFrame, name: str) -> tuple[Floats, Floats, xr.Dataset]:
    """Numbers of observations (n,), squared errors (n, seed) of a baseline, and the result with the most."""
    baselines = results[results["kind"] == "one-shot"]
    errors = np.stack([result[name].values for result in baselines["result"]])
    return baselines["samples"].to_numpy(float), errors, baselines["result"].iloc[-1]


def draw(results: pd.DataFrame, scale: Scale) -> ChartRows:
    """MSE against observations per agent, of the baselines and of plans."""
    lines = []
    for name, label, colour, marker in (
        ("system", SYSTEM, theme.OTHERS[3], "diamond"),
        ("solutions", SOLUTIONS, theme.OTHERS[0], "triangle down"),
    ):
        n, squared, last = errors_by_samples(results, name)
        band = (np.quantile(squared, 0.1, axis=1), np.quantile(squared, 0.9, axis=1))
        fine = np.geomspace(n[0], n[-1], 100)
        error = squared.std(axis=1, ddof=1) / squared.shape[1] ** 0.5
        lines.append(Line(n, squared.mean(axis=1), label, colour, "marks", band, error, marker=marker))
        lines.append(Line(fine, limit(name, last, fine), "", colour, "law"))
    for method in ("fedlsa", "scafflsa"):
        plans = results[results["method"] == method]
        samples, epsilon = plans["samples"].to_numpy(float), plans["epsilon"].to_numpy(float)
        inside = samples <= 2 * n[-1]
        lines.append(method_line(NAMES[method], samples[inside], epsilon[inside] ** 2))
    agents, d = _size(results)
    note = (
        f"Baselines: mean of the squared error over {squared.shape[1]} draws, with its standard error; band: their 10% "
        "to 90% quantile;\nline: its limit for many observations. FedLSA, SCAFFLSA: exact MSE and samples of the plans "
        "with\n"
        f"the fewest communications. Instance: {scale.preset}, N = {agents}, d = {d}."
    )
    chart = Chart(lines, "observations per agent", "mean squared error", x_scale="log")
    return ChartRows([[chart]], notes=[note])


def _size(results: pd.DataFrame) -> tuple[int, int]:
    """N and d of the instance."""
    first = results.iloc[0]
    return first["agents"] * first["copies"], first.get("features", DIM)


def rows(results: pd.DataFrame, scale: Scale) -> pd.DataFrame:
    """Messages, numbers and observations with which each gets to an accuracy."""
    last, (_, d) = errors_by_samples(results, "system")[2], _size(results)
    found: list[tuple[Any, ...]] = []
    plans = results[results["kind"] == "plan"]
    epsilons = plans["epsilon"].unique()
    for e in (epsilons[0], epsilons[len(epsilons) // 2], epsilons[-1]):
        for plan in plans[plans["epsilon"] == e].itertuples():
            T = int(plan.rounds)
            found.append((e, NAMES[plan.method], T, 2 * T * d, f"{plan.samples:.3g}"))
        for name, label, numbers in (("system", SYSTEM, d * d + 2 * d), ("solutions", SOLUTIONS, 2 * d)):
            bias, noise = (float(last[f"{name}_{part}"]) for part in ("bias", "noise"))
            needed = f"{noise / (e**2 - bias):.3g}" if e**2 > bias else f"never: bias {bias**0.5:.3g}"
            found.append((e, label, 1, numbers, needed))
    headings = ("ε", "method", "communications", "numbers up and down, per agent", "observations per agent")
    return pd.DataFrame(found, columns=list(headings))


def rate(results: pd.DataFrame) -> float:
    """The exponent of n in the MSE of the averaged system, once it has settled."""
    n, squared, _ = errors_by_samples(results, "system")
    return laws.slope(n[n >= SETTLED], squared.mean(axis=1)[n >= SETTLED])


def z_score(results: pd.DataFrame) -> float:
    """Standard errors between n times the MSE of the averaged system and its limit, at the largest n."""
    n, squared, last = errors_by_samples(results, "system")
    mean, deviation = squared[-1].mean(), squared[-1].std(ddof=1) / len(squared[-1]) ** 0.5
    return float(abs(mean - limit("system", last, n[-1:])[0]) / deviation)


def stall(results: pd.DataFrame) -> float:
    """MSE of the average of local solutions at the largest n, relative to its squared bias."""
    _, squared, last = errors_by_samples(results, "solutions")
    return float(squared[-1].mean() / float(last["solutions_bias"]))


EXPERIMENT = Experiment(
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
    (Table("one-shot", "What an RMSE of ε costs with one message and with several.", cells, rows),),
    (
        claim(
            "one-shot-rate",
            baseline_cells,
            rate,
            statistic=f"exponent of n in the MSE; simulated, from n = {SETTLED:,} on",
        ),
        claim("one-shot-limit", baseline_cells, z_score),
        claim("one-shot-stall", baseline_cells, stall),
    ),
)

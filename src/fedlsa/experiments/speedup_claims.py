"""What the paper says about linear speed-up, as numbers from the cells of fig:show-speed-up."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from .base import Claim, Lookup, Panels, Scale
from .limits import WITHIN, score
from .speedup import METHODS, all_cells, axes, panel_name, role, values

SOURCE = "sec:numerical, fig:show-speed-up"
BOTH_WORLDS = 2  # from so many agents on, heterogeneous ones live in both worlds
SLOPE = 0.2  # by which a slope may differ from -1; the authors' instance is another one for each N
BIASED = panel_name(True, 100)


def _limits(
    cells: Panels, lookup: Lookup, scale: Scale, what: str = "mse"
) -> Iterator[tuple[str, str, float, dict[int, float]]]:
    """Panel, method, step size, and the value for each number of agents."""
    numbers, step_sizes, _ = axes(scale)
    for title, held in cells.items():
        for method in METHODS:
            if role("limit", method, step_sizes[0], numbers[0]) in held:
                for eta in step_sizes:
                    found = values(held, lookup, method, eta, numbers, what)
                    yield title, method, eta, dict(zip(numbers, found, strict=True))


def slope(of: dict[int, float]) -> float:
    """Least-squares slope of log value against log N, from the first N with agents in both worlds; NaN: unstable."""
    shown = {n: v for n, v in of.items() if n >= BOTH_WORLDS}
    if not all(math.isfinite(v) and v > 0 for v in shown.values()):
        return math.nan
    return float(np.polyfit(np.log(list(shown)), np.log(list(shown.values())), 1)[0])


def scafflsa_slope(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The slope furthest from -1 among all settings of SCAFFLSA; with H = 1 it is FedLSA."""
    found = [slope(mse) for _, method, _, mse in _limits(cells, lookup, scale) if method == "scafflsa"]
    return max(found, key=lambda s: math.inf if math.isnan(s) else abs(s + 1))


def fedlsa_slope(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The slope furthest from -1 for FedLSA with homogeneous agents, or with one local step."""
    plain = {k: v for k, v in cells.items() if k.startswith("homogeneous") or k == panel_name(True, 1)}
    found = [slope(mse) for _, method, _, mse in _limits(plain, lookup, scale) if method == "fedlsa"]
    return max(found, key=lambda s: math.inf if math.isnan(s) else abs(s + 1))


def bias_slope(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The smallest slope of FedLSA's squared bias against N, heterogeneous, H = 100."""
    held = {BIASED: cells[BIASED]}
    return min(slope(b) for _, m, _, b in _limits(held, lookup, scale, "squared_bias") if m == "fedlsa")


def speed_up_ends(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """N at which FedLSA's variance has fallen to its squared bias, heterogeneous, H = 100, step size 0.1."""
    held, n = cells[BIASED], axes(scale)[0][-1]
    end = lookup(held[role("limit", "fedlsa", 0.1, n)])
    return float(n * end["variance"] / end["squared_bias"])


def larger_steps(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """MSE with (10 eta, 10 N) over MSE with (eta, N), homogeneous, eta <= 0.01: a mean over N, the furthest from 1."""
    plain = {k: v for k, v in cells.items() if k.startswith("homogeneous")}
    found = {(t, m, eta): mse for t, m, eta, mse in _limits(plain, lookup, scale)}
    means = []
    for (t, m, eta), mse in found.items():
        if eta <= 0.01:
            larger = found[t, m, 0.1 if eta == 0.01 else 0.01]
            means.append(math.exp(np.mean([math.log(larger[10 * n] / mse[n]) for n in mse if 10 * n in mse])))
    return max(max(r, 1 / r) for r in means)


def furthest(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The largest score of a simulated point against its exact limit."""
    worst = 0.0
    for held in cells.values():
        for name, cell in held.items():
            if name.startswith("simulated"):
                end = lookup(held[name.replace("simulated", "limit")])
                mean = float(lookup(cell)["squared_error"].values[:, -1].mean())
                if math.isfinite(end["mse"]):
                    worst = max(worst, abs(score(mean, float(end["mse"]), float(end["spread"]), scale.seeds)))
    return worst


CLAIMS = (
    Claim(
        "scafflsa-speed-up",
        "SCAFFLSA keeps the linear speed-up with every step size, many local steps and heterogeneous agents.",
        f"{SOURCE}; cor:iteration-complexity-fed-lsa-constant",
        "slope of log stationary MSE (exact) against log N, from N = 2 on: of all step sizes, H = 10 and 100, both "
        "settings, the slope furthest from -1",
        all_cells,
        scafflsa_slope,
        -1 - SLOPE,
        -1 + SLOPE,
    ),
    Claim(
        "fedlsa-speed-up",
        "FedLSA has linear speed-up if agents are homogeneous or there is one local step.",
        SOURCE,
        "the same slope for FedLSA, of all step sizes, homogeneous agents or H = 1: the one furthest from -1",
        all_cells,
        fedlsa_slope,
        -1 - SLOPE,
        -1 + SLOPE,
    ),
    Claim(
        "bias-ignores-agents",
        "FedLSA loses the speed-up to a bias that does not fall with the number of agents.",
        SOURCE,
        "slope of log squared bias (exact limit) against log N, from N = 2 on; heterogeneous, H = 100: the smallest "
        "over step sizes",
        all_cells,
        bias_slope,
        -SLOPE,
    ),
    Claim(
        "speed-up-ends",
        "With heterogeneous agents and many local steps FedLSA loses the speed-up within the figure's thousand agents.",
        SOURCE,
        "number of agents at which FedLSA's variance, which falls like 1/N, equals its squared bias; heterogeneous, "
        "H = 100, step size 0.1, from the exact limit at the largest N",
        all_cells,
        speed_up_ends,
        1.0,
        1000.0,
    ),
    Claim(
        "larger-steps",
        "With homogeneous agents the same precision is reached with a step size that grows with their number.",
        SOURCE,
        "stationary MSE with 10 N agents and step size 10 eta over that with N and eta, up to 10 eta = 0.1: geometric "
        "mean over N (the authors' instance is another one for each N); of both methods and all H the one furthest "
        "from 1, as a factor",
        all_cells,
        larger_steps,
        1.0,
        2.0,
    ),
    Claim(
        "simulation-agrees-speed-up",
        "Simulated errors in the stationary regime agree with the exact stationary law.",
        f"{SOURCE}; th:2nd_moment_no_cv",
        "largest distance of a simulated point from its exact limit in standard errors of the exact law (normal "
        "score of the skewed mean over seeds); the run's variance lacks up to 5%",
        all_cells,
        furthest,
        at_most=WITHIN,
    ),
)

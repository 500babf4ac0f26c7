"""What the paper says about linear speed-up, as numbers from the cells of fig:show-speed-up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .base import Claim, Lookup, Panels, Scale
from .limits import LEVEL, p_values, together
from .speedup import METHODS, RUNS, all_cells, all_limits, axes, panel_name, role, values

SOURCE = "sec:numerical, fig:show-speed-up"
BOTH_WORLDS = 2  # from so many agents on, heterogeneous ones live in both worlds
SLOPE = 0.2  # by which a slope may differ from -1; the authors' instance is another one for each N
BIASED = panel_name(True, 100)
ALIKE = (
    "Whenever (i) agents are homogeneous, or (ii) the number of local steps is small, both FedLSA and SCAFFLSA can "
    "achieve similar precision with a step size that increases with the number of agents"
)
LOST = (
    "However, when agents are heterogeneous and the number of local updates increases, FedLSA loses the speed-up due "
    "to large bias"
)


def _only(panel: Callable[[str], bool], some: Callable[[str, Scale], bool]) -> Callable[[Scale], Panels]:
    """Limits of some panels and some roles."""

    def cells(scale: Scale) -> Panels:
        kept = {title: held for title, held in all_limits(scale).items() if panel(title)}
        return {title: {k: c for k, c in held.items() if some(k, scale)} for title, held in kept.items()}

    return cells


def _several(role: str, scale: Scale) -> bool:
    return int(role.rpartition(" ")[2]) >= BOTH_WORLDS


def _homogeneous(title: str) -> bool:
    return title.startswith("homogeneous")


def _limits(
    cells: Panels, lookup: Lookup, scale: Scale, what: str = "mse"
) -> Iterator[tuple[str, str, float, dict[int, float]]]:
    """Panel, method, step size, and the value for each number of agents that is there."""
    numbers, step_sizes, _ = axes(scale)
    for title, held in cells.items():
        for method in METHODS:
            for eta in step_sizes:
                some = [n for n in numbers if role("limit", method, eta, n) in held]
                if some:
                    found = values(held, lookup, method, eta, some, what)
                    yield title, method, eta, dict(zip(some, found, strict=True))


def slope(of: dict[int, float]) -> float:
    """Least-squares slope of log value against log N."""
    return float(np.polyfit(np.log(list(of)), np.log(list(of.values())), 1)[0])


def furthest_slope(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The slope of the MSE furthest from -1."""
    return max((slope(mse) for *_, mse in _limits(cells, lookup, scale)), key=lambda s: abs(s + 1))


def bias_slope(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The smallest slope of FedLSA's squared bias against N."""
    return float(np.min([slope(b) for *_, b in _limits(cells, lookup, scale, "squared_bias")]))


def speed_up_ends(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """N at which FedLSA's variance has fallen to its squared bias, from the limit at one N."""
    ((held,),) = [held.values() for held in cells.values()]
    end = lookup(held)
    return float(held.settings["problem"]["agents"] * end["variance"] / end["squared_bias"])


def larger_steps(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """MSE with (10 eta, 10 N) over MSE with (eta, N), eta <= 0.01: a mean over N, the furthest from 1."""
    found = {(t, m, eta): mse for t, m, eta, mse in _limits(cells, lookup, scale)}
    means = []
    for (t, m, eta), mse in found.items():
        if eta <= 0.01:
            larger = found[t, m, 0.1 if eta == 0.01 else 0.01]
            means.append(np.mean([math.log(larger[10 * n] / mse[n]) for n in mse if 10 * n in larger]))
    return float(np.exp(np.max(np.abs(means))))


def _tenfold(name: str, scale: Scale) -> bool:
    """Whether a limit has a partner with ten times, or a tenth of, the agents and the step size."""
    numbers, step_sizes, _ = axes(scale)
    n, eta = int(name.rpartition(" ")[2]), float(name.partition("step size ")[2].partition(",")[0])
    up = 10 * n in numbers and eta <= 0.01
    return up or (n % 10 == 0 and n // 10 in numbers and eta <= 0.1 and eta > step_sizes[0])


def likelihood(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The least p-value of a simulated point under its exact limit, times the number of comparisons."""
    found = list[float]()
    for held in cells.values():
        for name, cell in held.items():
            if name.startswith("simulated"):
                end, theta = lookup(held[name.replace("simulated", "limit")]), lookup(cell)["theta"].values[:, -1]
                found += p_values(theta, end["mean"].values, end["covariance"].values)
    return together(found)


def _checked(scale: Scale) -> Panels:
    """Simulations with their limits."""
    return {
        title: {k: c for k, c in held.items() if k.replace("limit", "simulated") in held}
        for title, held in all_cells(scale).items()
    }


def _last(name: str, scale: Scale) -> bool:
    return name == role("limit", "fedlsa", 0.1, axes(scale)[0][-1])


NEAR: dict[str, Any] = {"at_least": -1 - SLOPE, "at_most": -1 + SLOPE, "kind": "paper"}

CLAIMS = (
    Claim(
        "scafflsa-speed-up",
        "SCAFFLSA keeps the linear speed-up with every step size, many local steps and heterogeneous agents.",
        f"{SOURCE}; cor:iteration-complexity-fed-lsa-constant",
        "slope of log stationary MSE (exact) against log N, from N = 2 on: of all step sizes, H = 10 and 100, both "
        "settings, the slope furthest from -1",
        _only(lambda title: True, lambda name, scale: " scafflsa," in name and _several(name, scale)),
        furthest_slope,
        quote="Remarkably, and as explained by our theory [...], SCAFFLSA maintains this speed-up even in "
        "heterogeneous settings",
        **NEAR,
    ),
    Claim(
        "fedlsa-speed-up",
        "FedLSA has linear speed-up if agents are homogeneous or there is one local step.",
        SOURCE,
        "the same slope for FedLSA, of all step sizes, homogeneous agents or H = 1: the one furthest from -1",
        _only(
            lambda title: _homogeneous(title) or title == panel_name(True, 1),
            lambda name, scale: " fedlsa," in name and _several(name, scale),
        ),
        furthest_slope,
        quote="This allows to use larger step sizes, so as to reach a given precision level faster, resulting in the "
        "so-called linear speed-up",
        **NEAR,
    ),
    Claim(
        "bias-ignores-agents",
        "FedLSA loses the speed-up to a bias that does not fall with the number of agents.",
        SOURCE,
        "slope of log squared bias (exact limit) against log N, from N = 2 on; heterogeneous, H = 100: the smallest "
        "over step sizes",
        _only(lambda title: title == BIASED, lambda name, scale: " fedlsa," in name and _several(name, scale)),
        bias_slope,
        at_least=-SLOPE,
        kind="paper",
        quote=LOST,
    ),
    Claim(
        "speed-up-ends",
        "With heterogeneous agents and many local steps FedLSA loses the speed-up within the figure's thousand agents.",
        SOURCE,
        "number of agents at which FedLSA's variance, which falls like 1/N, equals its squared bias; heterogeneous, "
        "H = 100, step size 0.1, from the exact limit at the largest N",
        _only(lambda title: title == BIASED, _last),
        speed_up_ends,
        at_most=1000.0,
        kind="paper",
        quote=LOST,
    ),
    Claim(
        "larger-steps",
        "With homogeneous agents the same precision is reached with a step size that grows with their number.",
        SOURCE,
        "stationary MSE with 10 N agents and step size 10 eta over that with N and eta, up to 10 eta = 0.1: geometric "
        "mean over N (the authors' instance is another one for each N); of both methods and all H the one furthest "
        "from 1, as a factor",
        _only(_homogeneous, _tenfold),
        larger_steps,
        at_most=2.0,
        kind="paper",
        quote=ALIKE,
    ),
    Claim(
        "simulation-agrees-speed-up",
        "Simulated parameters in the stationary regime follow the exact stationary law.",
        SOURCE,
        f"{RUNS} runs or more of each simulated point: the least p-value of their mean and of their spread under the "
        "normal law with the exact stationary mean and covariance, times the number of comparisons; twice the variance "
        "in any one point is found with a probability above 0.99 (the runs' own variance lacks up to 5%)",
        _checked,
        likelihood,
        at_least=LEVEL,
        kind="check",
    ),
)

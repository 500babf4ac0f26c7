"""What the paper says about its main figure, as numbers; and simulations held to exact laws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .base import Claim, Lookup, Panels, Scale, grid
from .cells import Cell
from .limits import LEVEL, limit_cell, p_values, settings_at, together

Cells = Callable[[Scale], Panels]
METHODS = ("fedlsa", "scafflsa")
HOMOGENEOUS, HETEROGENEOUS = {"heterogeneous": (False,)}, {"heterogeneous": (True,)}
MAIN = {"local_steps": (10, 1000)}
LONG = 200_000  # local steps after which only the limit is left
RUNS = 40  # of a simulation that is held to its exact law: see POWER
STEPS, QUICK_STEPS, FEWEST = 20_000, 2_000, 5  # local steps of such a run, and the fewest rounds
SETTLED = 60  # rounds of 1000 local steps after which FedLSA's mean is at its limit
MARGIN, CONFIDENT = 0.25, 1.645  # of an estimated bias, and the standard errors of a one-sided test at 5%
POWER = "twice or half the variance in any one setting is found with a probability above 0.999"


def sizes(scale: Scale) -> tuple[int, ...]:
    """Numbers of agents."""
    return (10,) if scale.quick else (10, 100)


def limits(axes: Mapping[str, Sequence[Any]], methods: Sequence[str] = METHODS) -> Cells:
    """Exact limits of the methods over a grid, with 10 and 100 agents; quick: with 10."""

    def cells(scale: Scale) -> Panels:
        places = grid({"agents": sizes(scale), **axes})
        return {"limits": {name(m, p): limit_cell(scale, m, **p) for p in places for m in methods}}

    return cells


def name(method: str, place: Mapping[str, Any]) -> str:
    """What a limit is among its kind."""
    return " ".join((method, *(f"{k}={v}" for k, v in sorted(place.items()))))


def paired(panels: Panels, lookup: Lookup) -> list[tuple[Any, Any]]:
    """Limits of FedLSA and SCAFFLSA at equal places."""
    held = panels["limits"]
    pairs = [(k, k.replace("fedlsa", "scafflsa", 1)) for k in held if k.startswith("fedlsa")]
    return [(lookup(held[a]), lookup(held[b])) for a, b in pairs]


def factor(ratios: Sequence[float]) -> float:
    """The ratio furthest from one, as a factor of at least one."""
    return float(np.exp(np.max(np.abs(np.log(np.asarray(ratios, np.float64))))))


def checked(step_size: float, lengths: Sequence[int]) -> Cells:
    """Simulations and their exact laws in both settings, with 10 and 100 agents; quick: with 10."""

    def cells(scale: Scale) -> Panels:
        found: dict[str, Cell] = {}
        for H in lengths:
            rounds = max(FEWEST, (QUICK_STEPS if scale.quick else STEPS) // H)
            for n in sizes(scale):
                for heterogeneous in (True, False):
                    for method in METHODS if H > 1 else METHODS[:1]:
                        found |= _checked(scale, method, rounds, n, heterogeneous, step_size, H)
        return {"simulations and exact laws": found}

    return cells


def _checked(scale: Scale, method: str, rounds: int, *place: Any) -> dict[str, Cell]:
    settings = {**settings_at(scale, method, *place), "rounds": rounds}
    key = f"{method}, {place}"
    run = Cell("simulate", {**settings, "record": [0, rounds], "seeds": RUNS})
    return {f"run {key}": run, f"law {key}": Cell("law", settings)}


def runs_and_laws(panels: Panels, lookup: Lookup) -> list[tuple[Any, Any]]:
    """Parameters after the last round, (seed, dim), and their exact law."""
    (held,) = panels.values()
    names = [key.removeprefix("run ") for key in held if key.startswith("run ")]
    return [(lookup(held[f"run {k}"])["theta"].values[:, -1], lookup(held[f"law {k}"])) for k in names]


def likelihood(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    """The least p-value of a mean or a spread over seeds, times the number of comparisons."""
    found = list[float]()
    for theta, law in runs_and_laws(panels, lookup):
        found += p_values(theta, law["mean"].values, law["covariance"].values)
    return together(found)


def agreement(what: str, label: str, step_size: float, lengths: Sequence[int]) -> Claim:
    """Simulations have the exact mean and covariance."""
    H = ", ".join(f"{n:,}" for n in lengths)
    return Claim(
        f"simulation-agrees-{what}",
        "Simulated parameters follow the exact law in every panel.",
        label,
        f"{RUNS} runs of each setting (step size {step_size}, H = {H}, N = 10 and 100, quick: 10) of {STEPS:,} local "
        f"steps (quick: {QUICK_STEPS:,}), at least {FEWEST} rounds: the least p-value of their mean and of their "
        f"spread under the normal law with the exact mean and covariance, times the number of comparisons; {POWER}",
        checked(step_size, lengths),
        likelihood,
        at_least=LEVEL,
        kind="check",
    )


def _biased(scale: Scale) -> Panels:
    """FedLSA with heterogeneous agents and H = 1000, until its mean has settled."""
    places = [_checked(scale, "fedlsa", SETTLED, n, True, 0.1, 1000) for n in sizes(scale)]
    return {"FedLSA at its bias": {k: cell for held in places for k, cell in held.items()}}


def bias_off(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    """How far the simulated bias along the predicted one may be from it: distance plus 1.645 standard errors."""
    found = []
    for theta, law in runs_and_laws(panels, lookup):
        b, C = law["bias"].values, law["covariance"].values
        share = (theta.mean(axis=0) - law["theta_star"].values) @ b / (b @ b)
        found.append(abs(share - 1) + CONFIDENT * math.sqrt(b @ C @ b / len(theta)) / (b @ b))
    return float(np.max(found))


def _share(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    (end,) = [lookup(c) for c in panels["limits"].values()]
    return float(end["squared_bias"] / end["mse"])


def _stalled(scale: Scale) -> Panels:
    place = {"agents": sizes(scale)[-1], "heterogeneous": True, "step_size": 0.1, "local_steps": 1000}
    return {"limits": {"fedlsa": limit_cell(scale, "fedlsa", **place)}}


def _long(scale: Scale) -> Panels:
    """SCAFFLSA's exact moments at the end of a run so long that no start is remembered."""
    found = {}
    for place in grid({"agents": (10,), **HETEROGENEOUS, "step_size": (0.1,), **MAIN}):
        rounds = LONG // place["local_steps"]
        settings = {**settings_at(scale, "scafflsa", **place), "rounds": rounds, "record": [0, rounds]}
        found[name("scafflsa", place)] = Cell("exact", settings)
    return {"long runs": found}


def _left(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    ends = [lookup(c).isel(round=-1) for c in panels["long runs"].values()]
    return float(np.max([float(end["squared_bias"] / end["mse"]) for end in ends]))


def _apart(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    return factor([float(b["mse"] / a["mse"]) for a, b in paired(panels, lookup)])


def spread(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    """The largest factor between limits that differ in H alone."""
    held: dict[str, list[float]] = {}
    for key, cell in panels["limits"].items():
        rest = " ".join(word for word in key.split() if not word.startswith("local_steps"))
        held.setdefault(rest, []).append(float(lookup(cell)["mse"]))
    return float(np.max([np.max(v) / np.min(v) for v in held.values()]))


def main_claims() -> tuple[Claim, ...]:
    """Those of fig:show-bias."""
    source = "sec:numerical, fig:show-bias"
    return (
        Claim(
            "fedlsa-stalls",
            "FedLSA stalls at its bias when the number of local updates increases.",
            f"{source}; th:2nd_moment_no_cv",
            "share of ||bias||^2 in FedLSA's exact stationary MSE; heterogeneous, N = 100 (quick: 10), H = 1000, step "
            "size 0.1",
            _stalled,
            _share,
            0.5,
            1.0,
            kind="paper",
            quote="As predicted by our theory, FedLSA stalls when the number of local updates increases",
        ),
        Claim(
            "bias-as-predicted",
            "The level at which FedLSA stalls is in line with the theory.",
            f"{source}; th:2nd_moment_no_cv",
            f"{RUNS} runs, heterogeneous, H = 1000, {SETTLED} rounds: distance from 1 of the simulated bias along the "
            "predicted one, over that, plus 1.645 standard errors (two one-sided tests at 5%); the largest over N",
            _biased,
            bias_off,
            at_most=MARGIN,
            kind="paper",
            quote="its bias (green dashed line) is in line with the value predicted by our theory",
        ),
        Claim(
            "scafflsa-unbiased",
            "SCAFFLSA's bias correction eliminates all bias (in the stationary limit).",
            f"{source}; thm:upper-bound-dist-param-scafflsa",
            "squared bias over MSE of SCAFFLSA (exact) after 200,000 local steps from theta_star + 1, without control "
            "variates at first; heterogeneous, N = 10, H = 10 and 1000, step size 0.1: the larger",
            _long,
            _left,
            at_most=1e-12,
            kind="paper",
            quote="SCAFFLSA's bias-correction mechanism allows to eliminate all bias, improving the MSE until noise "
            "dominates",
        ),
        Claim(
            "alike-when-homogeneous",
            "With homogeneous agents SCAFFLSA is on par with FedLSA.",
            source,
            "stationary MSE of SCAFFLSA over that of FedLSA (exact), homogeneous, N = 10 and 100 (quick: 10), H = 10 "
            "and 1000, step size 0.1: the one furthest from 1, as a factor",
            limits({**HOMOGENEOUS, "step_size": (0.1,), **MAIN}),
            _apart,
            at_most=1.25,
            kind="paper",
            quote="Since agents are homogeneous, control variates have virtually no effect, and SCAFFLSA is on par "
            "with FedLSA",
        ),
        Claim(
            "local-steps-matter-little",
            "With homogeneous agents the number of local steps has little influence on the final MSE.",
            f"{source}; cor:sample_complexity_lsa",
            "largest over smallest stationary MSE (exact) for H = 10 and 1000, homogeneous, both methods, N = 10 and "
            "100 (quick: 10), step size 0.1",
            limits({**HOMOGENEOUS, "step_size": (0.1,), **MAIN}),
            spread,
            at_most=1.5,
            kind="paper",
            quote="the number of local steps H has little influence on the final MSE",
        ),
        agreement("main", source, 0.1, MAIN["local_steps"]),
    )

"""What the appendix says about more local steps, smaller steps and FedLSA without its bias, as numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Claim, Lookup, Panels, Scale
from .curve_claims import HETEROGENEOUS, HOMOGENEOUS, MAIN, METHODS, Cells, agreement, factor, limits, paired, spread

LENGTHS = {"local_steps": (1, 10, 100, 1000, 10_000)}
GROWING = (1, 10, 100)  # local steps with which noise does not yet dominate
APPENDIX = "sec:appendix_numerics"


def _faster(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    """The largest ratio of exact errors after equally many communications: ten times the local steps over once."""
    curves: dict[str, dict[int, Any]] = {}
    for title, held in panels.items():
        for method in METHODS:
            cell = held[f"exact {method}"]
            curves.setdefault(f"{method}, {title.partition(', H')[0]}", {})[cell.settings["local_steps"]] = lookup(cell)
    worst = 0.0
    for found in curves.values():
        common = min(int(c["round"][-1]) for c in found.values())
        after = [float(np.interp(common, found[H]["round"].values, found[H]["mse"].values)) for H in GROWING]
        worst = max(worst, *(b / a for a, b in itertools.pairwise(after)))
    return worst


def local_steps_claims(cells: Cells) -> tuple[Claim, ...]:
    """Those of the figures with more local steps; cells : of both."""
    source = f"{APPENDIX}, fig:show-bias-more-h, fig:show-bias-more-h-het"
    return (
        Claim(
            "local-steps-speed-up",
            "More local steps speed up the training until noise dominates.",
            source,
            "exact MSE with H = 10 over H = 1, and H = 100 over 10, after as many communications as the shortest run "
            "makes (50; quick: 5): the largest ratio over settings, N and methods",
            cells,
            _faster,
            at_most=1.0,
        ),
        Claim(
            "similar-error-in-the-end",
            "With homogeneous agents both algorithms reach a stationary regime with similar error, whatever H is.",
            source,
            "largest over smallest stationary MSE (exact) for H = 1 to 10,000, homogeneous, both methods, N = 10 and "
            "100 (quick: 10), step size 0.1",
            limits({**HOMOGENEOUS, "step_size": (0.1,), **LENGTHS}),
            spread,
            1.0,
            1.5,
        ),
        agreement("local-steps", source, cells),
    )


def _smaller(what: str) -> Callable[[Panels, Lookup, Scale], float]:
    def measure(panels: Panels, lookup: Lookup, scale: Scale) -> float:
        held = panels["limits"]
        small = [k for k in held if "step_size=0.01" in k]
        return max(float(lookup(held[k])[what] / lookup(held[k.replace("0.01", "0.1")])[what]) for k in small)

    return measure


def small_steps_claims(cells: Cells) -> tuple[Claim, ...]:
    """Those of the figures with step size 0.01; cells : of both."""
    source = f"{APPENDIX}, fig:show-bias-more-small-h, fig:show-bias-more-small-h-het"
    steps = {"step_size": (0.1, 0.01)}
    return (
        Claim(
            "smaller-steps-smaller-error",
            "With a smaller step size all algorithms find better estimators.",
            source,
            "stationary MSE (exact) with step size 0.01 over that with 0.1: the largest over both settings and "
            "methods, N = 10 and 100 (quick: 10), H = 10 and 1000",
            limits({"heterogeneous": (True, False), **steps, **MAIN}),
            _smaller("mse"),
            at_most=0.5,
        ),
        Claim(
            "smaller-steps-smaller-bias",
            "FedLSA's bias is smaller with a smaller step size.",
            f"{source}; th:2nd_moment_no_cv",
            "squared bias of FedLSA with step size 0.01 over that with 0.1; heterogeneous, N = 10 and 100 (quick: 10), "
            "H = 10 and 1000: the largest",
            limits({**HETEROGENEOUS, **steps, **MAIN}, ("fedlsa",)),
            _smaller("squared_bias"),
            at_most=0.5,
        ),
        agreement("small-steps", source, cells),
    )


def _corrected(times: float) -> Callable[[Panels, Lookup, Scale], float]:
    """MSE of FedLSA whose mean is `times` the bias away from theta_star, over that of SCAFFLSA."""

    def measure(panels: Panels, lookup: Lookup, scale: Scale) -> float:
        return factor([(a["variance"] + times**2 * a["squared_bias"]) / b["mse"] for a, b in paired(panels, lookup)])

    return measure


def debiased_claims() -> tuple[Claim, ...]:
    """Those of the figures with FedLSA's bias removed."""
    source = f"{APPENDIX}, fig:app-show-bias, fig:app-show-bias-smaller-step"
    places = {"heterogeneous": (True, False), "step_size": (0.1, 0.01), **MAIN}
    statistic = (
        "stationary MSE (exact) of {} over that of SCAFFLSA; both settings and step sizes, N = 10 and 100 (quick: 10), "
        "H = 10 and 1000: the one furthest from 1, as a factor"
    )
    return (
        Claim(
            "debiased-matches",
            "FedLSA, once its bias is removed, has an error similar to that of SCAFFLSA.",
            source,
            statistic.format("theta_t minus the limit bias"),
            limits(places),
            _corrected(0.0),
            1.0,
            1.5,
        ),
        Claim(
            "debiased-as-printed",
            "theta_t plus the limit bias estimates theta_star (a slip of the sign: it must be minus).",
            source,
            statistic.format("theta_t plus the limit bias"),
            limits(places),
            _corrected(2.0),
            1.0,
            1.5,
            expected=False,
        ),
    )

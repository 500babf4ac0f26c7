"""What the appendix says about more local steps, smaller steps and FedLSA without its bias, as numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .base import Claim, Lookup, Panels, Scale, grid
from .cells import Cell
from .curve_claims import (
    HETEROGENEOUS,
    HOMOGENEOUS,
    MAIN,
    METHODS,
    Cells,
    agreement,
    factor,
    limits,
    name,
    paired,
    sizes,
    spread,
)
from .limits import limit_cell, settings_at

LENGTHS = (1, 10, 100, 1000, 10_000)
EARLY = 50  # communications after which runs of different lengths are compared: all that H = 10,000 makes
APPENDIX = "sec:appendix_numerics"


def _early(heterogeneous: bool, methods: Sequence[str]) -> Cells:
    """Exact errors after 50 communications, and FedLSA's limits where agents differ, for every H."""

    def cells(scale: Scale) -> Panels:
        found = {}
        axes = {"agents": sizes(scale), "heterogeneous": (heterogeneous,), "step_size": (0.1,), "local_steps": LENGTHS}
        for place in grid(axes):
            for method in methods:
                settings = {**settings_at(scale, method, **place), "rounds": EARLY, "record": [0, EARLY]}
                found[name(method, place)] = Cell("exact", settings)
                if heterogeneous and method == "fedlsa" and place["local_steps"] > 1:
                    found["limit of " + name(method, place)] = limit_cell(scale, method, **place)
        return {"after 50 communications": found}

    return cells


@dataclass(frozen=True)
class _Longer:
    """Ten times the local steps instead of H. noisy : noise dominates with H, after 50 communications; biased : bias
    dominates in the limit, with H and with 10 H; ratio : of the errors after 50 communications."""

    noisy: bool
    biased: tuple[bool, bool]
    ratio: float


def _longer(panels: Panels, lookup: Lookup) -> list[_Longer]:
    (held,) = panels.values()

    def biased(key: str) -> bool:
        end = lookup(held[f"limit of {key}"]) if f"limit of {key}" in held else None
        return end is not None and bool(end["squared_bias"] > end["variance"])

    found = []
    for key, cell in held.items():
        H = cell.settings["local_steps"]
        if cell.kind == "exact" and LENGTHS[-1] > H:
            more = key.replace(f"local_steps={H} ", f"local_steps={10 * H} ")
            before, then = (lookup(held[k]).isel(round=-1) for k in (key, more))
            noisy = bool(before["variance"] > before["squared_bias"])
            found.append(_Longer(noisy, (biased(key), biased(more)), float(then["mse"] / before["mse"])))
    return found


def _faster(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    """The largest ratio where noise does not dominate yet, nor bias; NaN where one of them does from the beginning."""
    found = [longer.ratio for longer in _longer(panels, lookup) if not longer.noisy and not any(longer.biased)]
    return float(np.max(found)) if found else math.nan


def _stuck(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    """The smallest ratio where bias dominates already; 0 where it does so for no H."""
    return float(np.min([longer.ratio for longer in _longer(panels, lookup) if longer.biased[0]] or [0.0]))


def local_steps_claims() -> tuple[Claim, ...]:
    """Those of the figures with more local steps."""
    source = f"{APPENDIX}, fig:show-bias-more-h, fig:show-bias-more-h-het"
    ratio = "exact MSE with ten times the local steps over that with H, H = 1 to 1000, after 50 communications, "
    return (
        Claim(
            "local-steps-speed-up",
            "With homogeneous agents more local steps speed up the training until noise dominates.",
            source,
            f"{ratio}homogeneous, both methods, N = 10 and 100 (quick: 10): the largest where at H the squared bias of "
            "the mean still exceeds the variance",
            _early(False, METHODS),
            _faster,
            at_most=1.0,
            kind="paper",
            quote="In both methods, increasing the number of local steps speeds-up the training, until the stochastic "
            "noise dominates",
        ),
        Claim(
            "local-steps-speed-up-fedlsa",
            "With heterogeneous agents more local steps speed FedLSA up while its bias is small.",
            source,
            f"{ratio}heterogeneous, FedLSA: the largest where at H noise does not dominate, and at 10 H the limit's "
            "squared bias is below its variance",
            _early(True, METHODS[:1]),
            _faster,
            at_most=1.0,
            kind="paper",
            quote="In heterogeneous settings, while FedLSA's bias is smaller than the variance of its iterates, "
            "training speeds up when the number of local steps increases",
        ),
        Claim(
            "local-steps-bias",
            "With heterogeneous agents there is a number of local steps from which on bias dominates, and more of "
            "them make FedLSA no better.",
            source,
            f"{ratio}heterogeneous, FedLSA: the smallest where at H the limit's squared bias exceeds its variance",
            _early(True, METHODS[:1]),
            _stuck,
            at_least=1.0,
            kind="paper",
            quote="After that point, bias dominates",
        ),
        Claim(
            "local-steps-speed-up-scafflsa",
            "With heterogeneous agents more local steps speed SCAFFLSA up until noise dominates.",
            source,
            f"{ratio}heterogeneous, SCAFFLSA: the largest where at H noise does not dominate",
            _early(True, METHODS[1:]),
            _faster,
            at_most=1.0,
            kind="paper",
            quote="SCAFFLSA preserves the speed-up by eliminating this bias",
        ),
        Claim(
            "similar-error-in-the-end",
            "With homogeneous agents both algorithms reach a stationary regime with similar error, whatever H is.",
            source,
            "largest over smallest stationary MSE (exact) for H = 1 to 10,000, homogeneous, both methods, N = 10 and "
            "100 (quick: 10), step size 0.1",
            limits({**HOMOGENEOUS, "step_size": (0.1,), "local_steps": LENGTHS}),
            spread,
            at_most=1.5,
            kind="paper",
            quote="At this point, both algorithms reach a stationary regime with similar error",
        ),
        agreement("local-steps", source, 0.1, LENGTHS),
    )


def _smaller(what: str) -> Callable[[Panels, Lookup, Scale], float]:
    def measure(panels: Panels, lookup: Lookup, scale: Scale) -> float:
        held = panels["limits"]
        small = [k for k in held if "step_size=0.01" in k]
        ratios = [float(lookup(held[k])[what] / lookup(held[k.replace("0.01", "0.1")])[what]) for k in small]
        return float(np.max(ratios))

    return measure


def small_steps_claims() -> tuple[Claim, ...]:
    """Those of the figures with step size 0.01."""
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
            kind="paper",
            quote="In this setting, all algorithms manage to find better estimators, since the amount of variance "
            "depends on the step size",
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
            kind="paper",
            quote="Additionally, FedLSA's bias is smaller than in [fig:app-show-bias], which is also in line with the "
            "upper bound",
        ),
        agreement("small-steps", source, 0.01, LENGTHS),
    )


def _corrected(times: float) -> Callable[[Panels, Lookup, Scale], float]:
    """MSE of FedLSA whose mean is `times` the bias away from theta_star, over that of SCAFFLSA."""

    def measure(panels: Panels, lookup: Lookup, scale: Scale) -> float:
        pairs = paired(panels, lookup)
        return factor([float((a["variance"] + times**2 * a["squared_bias"]) / b["mse"]) for a, b in pairs])

    return measure


def debiased_claims() -> tuple[Claim, ...]:
    """Those of the figures with FedLSA's bias removed."""
    source = f"{APPENDIX}, fig:app-show-bias, fig:app-show-bias-smaller-step"
    places = {"heterogeneous": (True, False), "step_size": (0.1, 0.01), **MAIN}
    statistic = (
        "stationary MSE (exact) of {} over that of SCAFFLSA; both settings and step sizes, N = 10 and 100 (quick: 10), "
        "H = 10 and 1000: the one furthest from 1, as a factor"
    )
    common: dict[str, Any] = {"at_most": 1.5, "kind": "paper"}
    return (
        Claim(
            "debiased-matches",
            "FedLSA, once its bias is removed, has an error similar to that of SCAFFLSA.",
            source,
            statistic.format("theta_t minus the limit bias"),
            limits(places),
            _corrected(0.0),
            quote="FedLSA, once its bias is removed, converges similarly to SCAFFLSA",
            **common,
        ),
        Claim(
            "debiased-as-printed",
            "theta_t plus the limit bias estimates theta_star (a slip of the sign: it must be minus).",
            source,
            statistic.format("theta_t plus the limit bias"),
            limits(places),
            _corrected(2.0),
            expected=False,
            quote="Therefore, θ_t + θ̃_∞ is a proper estimator of θ⋆",
            **common,
        ),
    )

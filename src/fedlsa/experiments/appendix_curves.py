"""The error curves of the paper's appendix: more local steps, smaller steps, FedLSA without its bias."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from .cells import Cell
from .claim_statistics import aligned
from .experiment import Cells, Experiment, Picture, Scale, claim, grid
from .paper_curves import (
    CURVES,
    LENGTHS,
    NAMES,
    agreement,
    curves,
    limits,
    method_ratio,
    setting_word,
    spread_over_local_steps,
)

MORE_LENGTHS = (1, 10, 100, 1000, 10_000)  # local steps
EARLY = 50  # communications after which runs of different lengths are compared: all that H = 10,000 makes


def _lengths(name: str, step_size: float) -> tuple[Picture, ...]:
    return tuple(
        curves(
            f"{name}-{setting_word(h)}",
            f"{CURVES} for H = 1 to 10,000 local steps, {setting_word(h)} agents, step size {step_size}.",
            step_size,
            MORE_LENGTHS,
            (h,),
        )
        for h in (True, False)
    )


def _early(heterogeneous: bool, methods: Sequence[str]) -> Cells:
    """Exact errors after 50 communications, and FedLSA's limits where agents differ, for every H."""

    def cells(scale: Scale) -> list[Cell]:
        found = []
        for place in grid(agents=scale.agents, local_steps=MORE_LENGTHS, method=methods):
            place |= {"heterogeneous": heterogeneous, "step_size": 0.1}
            found.append(scale.cell("exact", rounds=EARLY, record=[0, EARLY], **place))
            if heterogeneous and place["method"] == "fedlsa" and place["local_steps"] > 1:
                found.append(scale.cell("limit", **place))
        return found

    return cells


def _longer(results: pd.DataFrame) -> Iterator[tuple[float, bool, bool, bool]]:
    """Ten times the local steps instead of H: the ratio of the errors after 50 communications; whether noise dominates
    with H by then; whether drift dominates in the limit, with H and with 10 H."""
    at = results.set_index(["agents", "method", "local_steps"])
    exact, ends = at[at["kind"] == "exact"], at[at["kind"] == "limit"]
    biased = ends.index[ends["drift"] > ends["noise"]]
    for (agents, method, H), before in exact.iterrows():
        more = (agents, method, 10 * H)
        if more in exact.index:
            then, noisy = exact.loc[more], bool(before["noise"] > before["start"] + before["drift"])
            yield float(then["mse"] / before["mse"]), noisy, (agents, method, H) in biased, more in biased


def _faster(results: pd.DataFrame) -> float:
    """The largest ratio where noise does not dominate yet, nor bias; NaN where one of them does from the beginning."""
    return float(np.max([ratio for ratio, *dominated in _longer(results) if not any(dominated)] or [math.nan]))


def _stuck(results: pd.DataFrame) -> float:
    """The smallest ratio where bias dominates already; 0 where it does so for no H."""
    return float(np.min([ratio for ratio, _, biased, _ in _longer(results) if biased] or [0.0]))


def _smaller(what: str) -> Callable[[pd.DataFrame], float]:
    """The largest ratio of a number with step size 0.01 to that with 0.1."""

    def largest(results: pd.DataFrame) -> float:
        small, large = aligned(results, "step_size", 0.01, 0.1)
        return float((small[what] / large[what]).max())

    return largest


def _misplaced(times: float) -> Callable[[pd.DataFrame], float]:
    """FedLSA's error, if its mean were `times` the bias away from theta_star, over SCAFFLSA's."""
    return method_ratio(lambda limits: limits["noise"] + times**2 * limits["drift"])


BOTH_STEP_SIZES = limits(heterogeneous=(True, False), step_size=(0.1, 0.01), local_steps=LENGTHS)
LOCAL_STEPS = Experiment(
    "local-steps",
    "From one local step to ten thousand",
    ("fig:show-bias-more-h", "fig:show-bias-more-h-het"),
    _lengths("local-steps", 0.1),
    claims=(
        claim("local-steps-speed-up", _early(False, tuple(NAMES)), _faster),
        claim("local-steps-speed-up-fedlsa", _early(True, ("fedlsa",)), _faster),
        claim("local-steps-bias", _early(True, ("fedlsa",)), _stuck),
        claim("local-steps-speed-up-scafflsa", _early(True, ("scafflsa",)), _faster),
        claim(
            "similar-error-in-the-end",
            limits(heterogeneous=(False,), step_size=(0.1,), local_steps=MORE_LENGTHS),
            spread_over_local_steps,
        ),
        agreement("local-steps", 0.1, MORE_LENGTHS),
    ),
)
SMALLER_STEPS = Experiment(
    "small-steps",
    "The same with a tenth of the step size",
    ("fig:show-bias-more-small-h", "fig:show-bias-more-small-h-het"),
    _lengths("small-steps", 0.01),
    claims=(
        claim("smaller-steps-smaller-error", BOTH_STEP_SIZES, _smaller("mse")),
        claim(
            "smaller-steps-smaller-bias",
            limits(method=("fedlsa",), heterogeneous=(True,), step_size=(0.1, 0.01), local_steps=LENGTHS),
            _smaller("drift"),
        ),
        agreement("small-steps", 0.01, MORE_LENGTHS),
    ),
)
WITHOUT_BIAS = Experiment(
    "debiased",
    "FedLSA with its bias removed matches SCAFFLSA",
    ("fig:app-show-bias", "fig:app-show-bias-smaller-step"),
    tuple(
        curves(
            f"debiased-{eta}",
            f"{CURVES}, with theta_t minus the limit bias, and plus it, as further estimators; step size {eta}.",
            eta,
            LENGTHS,
            debiased=True,
        )
        for eta in (0.1, 0.01)
    ),
    claims=(
        claim("debiased-matches", BOTH_STEP_SIZES, _misplaced(0.0)),
        claim("debiased-as-printed", BOTH_STEP_SIZES, _misplaced(2.0)),
    ),
)
EXPERIMENTS = (LOCAL_STEPS, SMALLER_STEPS, WITHOUT_BIAS)

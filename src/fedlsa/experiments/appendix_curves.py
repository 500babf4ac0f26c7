"""The error curves of the paper's appendix: more local steps, smaller steps, FedLSA without its bias."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .cells import Cell
from .claim_statistics import aligned
from .experiment import Cells, Claim, Experiment, Picture, Scale, grid
from .paper_curves import (
    CURVES,
    LENGTHS,
    NAMES,
    agreement,
    curves,
    limits,
    method_ratio,
    panel_title,
    setting_word,
    spread_over_local_steps,
)

MORE_LENGTHS = (1, 10, 100, 1000, 10_000)  # local steps
EARLY = 50  # communications after which runs of different lengths are compared: all that H = 10,000 makes
APPENDIX = "sec:appendix_numerics"
MORE_STEPS = f"{APPENDIX}, fig:show-bias-more-h, fig:show-bias-more-h-het"
SMALL_STEPS = f"{APPENDIX}, fig:show-bias-more-small-h, fig:show-bias-more-small-h-het"
NO_BIAS = f"{APPENDIX}, fig:app-show-bias, fig:app-show-bias-smaller-step"


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


def _ratio_claim(
    name: str, text: str, heterogeneous: bool, methods: Sequence[str], statistic: str, quote: str, stuck: bool = False
) -> Claim:
    """On the errors with ten times the local steps; stuck : they do not fall any more, instead of falling."""
    number = "MSE with ten times the local steps over that with H; exact, H = 1 to 1000, after 50 communications"
    bounds: dict[str, Any] = {"at_least": 1.0} if stuck else {"at_most": 1.0}
    return Claim(
        f"local-steps-{name}",
        text,
        MORE_STEPS,
        f"{number}, {statistic}",
        _early(heterogeneous, methods),
        _stuck if stuck else _faster,
        quote=quote,
        panel=f"local-steps-{setting_word(heterogeneous)}: {panel_title(heterogeneous, '{N}', 10_000)}",
        **bounds,
    )


def _debiased_claim(name: str, text: str, estimator: str, times: float, quote: str, **more: Any) -> Claim:
    """On FedLSA whose mean is `times` the bias away from theta_star."""
    return Claim(
        name,
        text,
        NO_BIAS,
        f"factor between the stationary MSEs of {estimator} and of SCAFFLSA; exact, both settings and step sizes, "
        "N = 10 and 100 (quick: 10), H = 10 and 1000: the one furthest from 1",
        limits(heterogeneous=(True, False), step_size=(0.1, 0.01), local_steps=LENGTHS),
        method_ratio(lambda limits: limits["noise"] + times**2 * limits["drift"]),
        at_most=1.5,
        quote=quote,
        panel=f"debiased-0.1: {panel_title(True, '{N}', 1000)}",
        **more,
    )


SMALLER = f"small-steps-heterogeneous: {panel_title(True, '{N}', 1000)}"
LOCAL_STEPS = Experiment(
    "local-steps",
    "From one local step to ten thousand",
    ("fig:show-bias-more-h", "fig:show-bias-more-h-het"),
    _lengths("local-steps", 0.1),
    claims=(
        _ratio_claim(
            "speed-up",
            "With homogeneous agents more local steps speed up the training until noise dominates.",
            False,
            tuple(NAMES),
            "homogeneous, both methods, N = 10 and 100 (quick: 10): the largest where at H start and drift together "
            "still exceed noise",
            "In both methods, increasing the number of local steps speeds-up the training, until the stochastic noise "
            "dominates",
        ),
        _ratio_claim(
            "speed-up-fedlsa",
            "With heterogeneous agents more local steps speed FedLSA up while its bias is small.",
            True,
            ("fedlsa",),
            "heterogeneous, FedLSA: the largest where at H noise does not dominate, and at 10 H the limit's drift "
            "is below its noise",
            "In heterogeneous settings, while FedLSA's bias is smaller than the variance of its iterates, training "
            "speeds up when the number of local steps increases",
        ),
        _ratio_claim(
            "bias",
            "With heterogeneous agents there is a number of local steps from which on bias dominates, and more of "
            "them make FedLSA no better.",
            True,
            ("fedlsa",),
            "heterogeneous, FedLSA: the smallest where at H the limit's drift exceeds its noise",
            "After that point, bias dominates",
            stuck=True,
        ),
        _ratio_claim(
            "speed-up-scafflsa",
            "With heterogeneous agents more local steps speed SCAFFLSA up until noise dominates.",
            True,
            ("scafflsa",),
            "heterogeneous, SCAFFLSA: the largest where at H noise does not dominate",
            "SCAFFLSA preserves the speed-up by eliminating this bias",
        ),
        Claim(
            "similar-error-in-the-end",
            "With homogeneous agents both algorithms reach a stationary regime with similar error, whatever H is.",
            MORE_STEPS,
            "factor between the stationary MSEs for different H; exact, the largest over the smallest, H = 1 to "
            "10,000, homogeneous, both methods, N = 10 and 100 (quick: 10), step size 0.1",
            limits(heterogeneous=(False,), step_size=(0.1,), local_steps=MORE_LENGTHS),
            spread_over_local_steps,
            at_most=1.5,
            quote="At this point, both algorithms reach a stationary regime with similar error",
            panel=f"local-steps-homogeneous: {panel_title(False, '{N}', 10_000)}",
        ),
        agreement("local-steps", MORE_STEPS, 0.1, MORE_LENGTHS, "local-steps-heterogeneous"),
    ),
)
SMALLER_STEPS = Experiment(
    "small-steps",
    "The same with a tenth of the step size",
    ("fig:show-bias-more-small-h", "fig:show-bias-more-small-h-het"),
    _lengths("small-steps", 0.01),
    claims=(
        Claim(
            "smaller-steps-smaller-error",
            "With a smaller step size all algorithms find better estimators.",
            SMALL_STEPS,
            "stationary MSE with step size 0.01 over that with 0.1; exact, the largest over both settings and "
            "methods, N = 10 and 100 (quick: 10), H = 10 and 1000",
            limits(heterogeneous=(True, False), step_size=(0.1, 0.01), local_steps=LENGTHS),
            _smaller("mse"),
            at_most=0.5,
            quote="In this setting, all algorithms manage to find better estimators, since the amount of variance "
            "depends on the step size",
            panel=SMALLER,
        ),
        Claim(
            "smaller-steps-smaller-bias",
            "FedLSA's bias is smaller with a smaller step size.",
            f"{SMALL_STEPS}; th:2nd_moment_no_cv",
            "FedLSA's drift ‖bias‖² with step size 0.01 over that with 0.1; exact limits, heterogeneous, N = 10 and "
            "100 (quick: 10), H = 10 and 1000: the largest",
            limits(method=("fedlsa",), heterogeneous=(True,), step_size=(0.1, 0.01), local_steps=LENGTHS),
            _smaller("drift"),
            at_most=0.5,
            quote="Additionally, FedLSA's bias is smaller than in fig:app-show-bias, which is also in line with the "
            "upper bound",
            panel=SMALLER,
        ),
        agreement("small-steps", SMALL_STEPS, 0.01, MORE_LENGTHS, "small-steps-heterogeneous"),
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
        _debiased_claim(
            "debiased-matches",
            "FedLSA, once its bias is removed, has an error similar to that of SCAFFLSA.",
            "theta_t minus the limit bias",
            0.0,
            "FedLSA, once its bias is removed, converges similarly to SCAFFLSA",
        ),
        _debiased_claim(
            "debiased-as-printed",
            "theta_t plus the limit bias estimates theta_star (a slip of the sign: it must be minus).",
            "theta_t plus the limit bias",
            2.0,
            r"Therefore, $\theta_t+\tilde\theta^{(bi,bi)}_\infty$ is a proper estimator of $\theta_\star$",
            expected=False,
            why="The sign is a slip: in the mean theta_t tends to theta_star plus the bias, so the bias must be "
            "subtracted. Added, it is doubled.",
        ),
    ),
)
EXPERIMENTS = (LOCAL_STEPS, SMALLER_STEPS, WITHOUT_BIAS)

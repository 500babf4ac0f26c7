"""The paper's error curves: how they are drawn and checked, and what the main figure and those of the appendix say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ..algorithms import METHODS
from ..checks import Floats
from ..figures import theme
from ..figures.lines import Chart, ChartRows, Line, add_prediction, error_ceiling, mean_line
from .cells import Cell
from .claim_statistics import aligned, least_p_value, runs_and_laws
from .experiment import Cells, Claim, Experiment, Picture, Scale, claim, grid

STEPS, FEWEST = 500_000, 50  # T H of every run, and the fewest rounds (the authors' protocol)
QUICK_STEPS = 2_000  # where only the path through the code matters
RECORD = 200
NAMES = {name: METHODS[name].__name__ for name in ("fedlsa", "scafflsa")}
SHIFTED = {"FedLSA, bias removed": -1, "FedLSA, bias added, as printed": 1}
NOTE = (
    "Line: mean of the squared error over {seeds} seeds; band: from their 10% to their 90% quantile. Thin black line: "
    "its exact expectation.\nDashed: FedLSA's drift ‖bias‖² as theory predicts it; far below the curves, its value is "
    "in the corner. Instance: {preset}; step size η = {step_size}."
)
CURVES = "Mean squared error against communications"
LENGTHS = (10, 1000)  # local steps in the main figure
FORGOTTEN = 200_000  # local steps after which nothing is left of the start
RUNS = 40  # of a simulation that is held to its exact law: see POWER
CHECKED_STEPS, FEWEST_CHECKED = 20_000, 5  # local steps of such a run, and the fewest rounds
SETTLED = 60  # rounds of 1000 local steps after which FedLSA's mean is at its limit
CONFIDENT = 1.645  # standard errors of a one-sided test at 5%
POWER = "twice or half the variance in any one setting is found with a probability above 0.999"


def setting_word(heterogeneous: bool) -> str:
    """What the agents are."""
    return "heterogeneous" if heterogeneous else "homogeneous"


def panel_title(heterogeneous: bool, agents: int | str = "", local_steps: int = 0) -> str:
    """A panel: its agents, and what is given of how many; agents "{N}" : the most of a run, as a claim refers to it."""
    words = [setting_word(heterogeneous), agents and f"N = {agents}", local_steps and f"H = {local_steps:,}"]
    return ", ".join(str(word) for word in words if word)


def curves(
    name: str,
    caption: str,
    step_size: float,
    lengths: Sequence[int],
    settings: Sequence[bool] = (True, False),
    debiased: bool = False,
) -> Picture:
    """A figure of simulations and exact curves of both methods, with 10 and 100 agents (quick: 10).

    settings : heterogeneous agents or not, a row each, or else a row for each number of agents; lengths : local steps
    debiased : theta_t less, and plus, the bias
    """

    def cells(scale: Scale) -> list[Cell]:
        found = []
        for place in grid(agents=scale.agents, method=tuple(NAMES), heterogeneous=settings, local_steps=lengths):
            H = place["local_steps"]
            place |= {"record": RECORD, "step_size": step_size}
            place["rounds"] = max(5, QUICK_STEPS // H) if scale.quick else max(FEWEST, STEPS // H)
            found += [scale.cell("simulate", seeds=scale.seeds, **place), scale.cell("exact", **place)]
        return found

    def panels(scale: Scale) -> list[str]:
        return [
            panel_title(**place) for place in grid(heterogeneous=settings, agents=scale.agents, local_steps=lengths)
        ]

    def draw(results: pd.DataFrame, scale: Scale) -> ChartRows:
        rows = results.groupby("heterogeneous" if len(settings) > 1 else "agents", sort=False)
        panels = [row.groupby(["agents", "local_steps"], sort=False) for _, row in rows]
        charts = [[_chart(panel, debiased) for _, panel in row] for row in panels]
        note = NOTE.format(seeds=scale.seeds, preset=scale.preset, step_size=step_size)
        length = f"T H = {QUICK_STEPS:,} (a quick run)" if scale.quick else f"T H = {STEPS:,}"
        return ChartRows(charts, notes=[f"{note} {length}."], panel=(1.95, 2.0))

    return Picture(name, caption, cells, draw, panels)


def _chart(panel: pd.DataFrame, with_debiased: bool) -> Chart:
    means: dict[str, tuple[Floats, Floats]] = {}  # squared errors (seed, round) and their expectation (round)
    place, made = panel.iloc[0], panel.set_index(["method", "kind"])["result"]
    for method, name in NAMES.items():
        run, exact = made[method, "simulate"], made[method, "exact"]
        means[name] = run["squared_error"].values, exact["mse"].values
        if method == "fedlsa":
            bias = float(np.sum(exact["bias"].values ** 2))
            if with_debiased:
                means |= {name: _shifted(run["theta"].values, exact, sign) for name, sign in SHIFTED.items()}
    x, rounds = run["rounds"].values, exact["rounds"].values
    lines = []
    for i, (name, (error, expected)) in enumerate(means.items()):
        colour = theme.METHODS.get(name) or theme.OTHERS[list(SHIFTED).index(name)]
        width = max(2.6 - 0.7 * i, 1.2)  # where lines coincide, all are seen
        lines.append(mean_line(x, error, name, colour, width=width))
        lines.append(Line(rounds, expected, "exact expectation", role="expectation", name=f"{name}, exact"))
    title = panel_title(place["heterogeneous"], place["agents"], place["local_steps"]).replace(", ", ",\n", 1)
    ceiling = error_ceiling([line.y for line in lines])
    chart = Chart(lines, y="mean squared error", title=title, ceiling=ceiling)
    return add_prediction(chart, bias, "predicted drift ‖bias‖² of FedLSA", "‖bias‖²")


def _shifted(theta: Floats, exact: xr.Dataset, sign: int) -> tuple[Floats, Floats]:
    """Squared errors (seed, round) of theta_t with the limit bias added or removed, and their expectation (round)."""
    centre = exact["theta_star"].values - sign * exact["bias"].values
    expected = exact["noise"].values + np.sum((exact["mean"].values - centre) ** 2, axis=-1)
    return np.sum((theta - centre) ** 2, axis=-1), expected


def limits(**axes: Sequence[Any]) -> Cells:
    """Exact limits over a grid, with 10 and 100 agents (quick: 10); of both methods unless the grid says otherwise."""
    return lambda scale: [
        scale.cell("limit", **place) for place in grid(**{"agents": scale.agents, "method": tuple(NAMES), **axes})
    ]


def method_ratio(error: Callable[[pd.DataFrame], Any]) -> Callable[[pd.DataFrame], float]:
    """An error from FedLSA's limit over the MSE of SCAFFLSA's: the one furthest from 1, as a factor of at least one."""

    def furthest(results: pd.DataFrame) -> float:
        fedlsa, scafflsa = aligned(results, "method", "fedlsa", "scafflsa")
        return float(np.exp(np.max([abs(math.log(ratio)) for ratio in error(fedlsa) / scafflsa["mse"]])))

    return furthest


def spread_over_local_steps(results: pd.DataFrame) -> float:
    """The largest factor between the MSEs of limits that differ in H alone."""
    groups = results.groupby(["method", "agents"])["mse"]
    return float((groups.max() / groups.min()).max())


def _run_and_law(scale: Scale, **place: Any) -> list[Cell]:
    run = scale.cell("simulate", record=[0, place["rounds"]], seeds=RUNS, **place)
    return [run, scale.cell("law", **place)]


def agreement(what: str, step_size: float, lengths: Sequence[int]) -> Claim:
    """Simulations have the exact mean and covariance: both settings, with 10 and 100 agents (quick: 10)."""

    def cells(scale: Scale) -> list[Cell]:
        found = []
        for place in grid(local_steps=lengths, agents=scale.agents, heterogeneous=(True, False), method=tuple(NAMES)):
            if place["local_steps"] > 1 or place["method"] == "fedlsa":
                steps = QUICK_STEPS if scale.quick else CHECKED_STEPS
                rounds = max(FEWEST_CHECKED, steps // place["local_steps"])
                found += _run_and_law(scale, step_size=step_size, rounds=rounds, **place)
        return found

    H = ", ".join(f"{n:,}" for n in lengths)
    return claim(
        f"simulation-agrees-{what}",
        cells,
        least_p_value,
        statistic=f"least p-value of simulated means and spreads; {RUNS} runs of each setting (step size {step_size}, "
        f"H = {H}, N = 10 and 100, quick: 10) of {CHECKED_STEPS:,} local steps (quick: {QUICK_STEPS:,}), at least "
        f"{FEWEST_CHECKED} rounds, under the normal law with the exact mean and covariance; times the number of "
        f"comparisons; {POWER}",
    )


def _biased(scale: Scale) -> list[Cell]:
    """FedLSA with heterogeneous agents and H = 1000, until its mean has settled."""
    place = {"method": "fedlsa", "heterogeneous": True, "step_size": 0.1, "local_steps": 1000, "rounds": SETTLED}
    return [cell for n in scale.agents for cell in _run_and_law(scale, agents=n, **place)]


def bias_off(results: pd.DataFrame) -> float:
    """How far the simulated bias along the predicted one may be from it: distance plus 1.645 standard errors."""
    found = []
    for theta, law in runs_and_laws(results):
        b, C = law["bias"].values, law["covariance"].values
        share = (theta.mean(axis=0) - law["theta_star"].values) @ b / (b @ b)
        found.append(abs(share - 1) + CONFIDENT * math.sqrt(b @ C @ b / len(theta)) / (b @ b))
    return float(np.max(found))


def _long_runs(scale: Scale) -> list[Cell]:
    """SCAFFLSA's exact moments at the end of a run so long that no start is remembered."""
    place: dict[str, Any] = {"agents": 10, "heterogeneous": True, "method": "scafflsa", "step_size": 0.1}
    ends = {H: FORGOTTEN // H for H in LENGTHS}
    return [scale.cell("exact", local_steps=H, rounds=T, record=[0, T], **place) for H, T in ends.items()]


def _share(*parts: str) -> Callable[[pd.DataFrame], float]:
    """The largest share of parts in an exact error."""
    return lambda results: float((sum(results[part] for part in parts) / results["mse"]).max())


HOMOGENEOUS = limits(heterogeneous=(False,), step_size=(0.1,), local_steps=LENGTHS)
MAIN = Experiment(
    "fig1",
    "FedLSA stalls at its bias, SCAFFLSA does not",
    ("fig:show-bias",),
    (
        curves(
            "fig1",
            f"{CURVES} of federated TD(0) with heterogeneous and homogeneous agents, step size 0.1.",
            0.1,
            LENGTHS,
        ),
    ),
    claims=(
        claim(
            "fedlsa-stalls",
            lambda scale: [
                scale.cell("limit", scale.agents[-1], True, method="fedlsa", step_size=0.1, local_steps=1000)
            ],
            _share("drift"),
        ),
        claim(
            "bias-as-predicted",
            _biased,
            bias_off,
            statistic="distance of the simulated bias from the predicted one, relative, with its uncertainty; "
            f"{RUNS} runs, heterogeneous, H = 1000, {SETTLED} rounds, along the predicted bias, plus 1.645 standard "
            "errors (two one-sided tests at 5%), the largest over N",
        ),
        claim("scafflsa-unbiased", _long_runs, _share("start", "drift")),
        claim("alike-when-homogeneous", HOMOGENEOUS, method_ratio(lambda limits: limits["mse"])),
        claim("local-steps-matter-little", HOMOGENEOUS, spread_over_local_steps),
        agreement("main", 0.1, LENGTHS),
    ),
)

# The error curves of the appendix: more local steps, smaller steps, FedLSA without its bias.

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
APPENDIX = (LOCAL_STEPS, SMALLER_STEPS, WITHOUT_BIAS)

"""The paper's error curves, of its main figure and of its appendix: how they are drawn, and what it says about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ..algorithms import METHODS
from ..checks import Floats
from ..figures import theme
from ..figures.lines import Chart, ChartRows, Line, add_prediction, error_ceiling, mean_line
from .cells import Cell, Results
from .claim_statistics import LEVEL, least_p_value, runs_and_laws
from .experiment import Cells, Claim, Experiment, Picture, Scale, grid

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
MARGIN, CONFIDENT = 0.25, 1.645  # of an estimated bias, and the standard errors of a one-sided test at 5%
POWER = "twice or half the variance in any one setting is found with a probability above 0.999"
SOURCE = "sec:numerical, fig:show-bias"


def sizes(scale: Scale) -> tuple[int, ...]:
    """Numbers of agents."""
    return (10,) if scale.quick else (10, 100)


def world(heterogeneous: bool) -> str:
    """The setting in a word."""
    return "heterogeneous" if heterogeneous else "homogeneous"


def curves(
    name: str,
    caption: str,
    axes: Mapping[str, Sequence[Any]],
    *,
    rows: str = "heterogeneous",
    columns: Sequence[str] = ("agents", "local_steps"),
    debiased: bool = False,
) -> Picture:
    """A figure of simulations and exact curves of both methods, with 10 and 100 agents (quick: 10).

    axes : the other settings; rows, columns : what panels differ in; debiased : theta_t less, and plus, the bias
    """

    def cells(scale: Scale) -> list[Cell]:
        found = []
        for place in grid(agents=sizes(scale), method=tuple(NAMES), **axes):
            H = place["local_steps"]
            place["rounds"] = max(5, QUICK_STEPS // H) if scale.quick else max(FEWEST, STEPS // H)
            found.append(scale.cell("simulate", record=RECORD, seeds=scale.seeds, **place))
            found.append(scale.cell("exact", record=RECORD, **place))
        return found

    def draw(results: Results, scale: Scale) -> ChartRows:
        charts = [[_chart(part, debiased) for part in row.by(*columns).values()] for row in results.by(rows).values()]
        note = NOTE.format(seeds=scale.seeds, preset=scale.preset, step_size=results.cells[0]["step_size"])
        length = f"T H = {QUICK_STEPS:,} (a quick run)" if scale.quick else f"T H = {STEPS:,}"
        return ChartRows(charts, notes=[f"{note} {length}."], panel=(1.95, 2.0))

    return Picture(name, caption, cells, draw)


def _chart(results: Results, with_debiased: bool) -> Chart:
    means: dict[str, tuple[Floats, Floats]] = {}  # squared errors (seed, round) and their expectation (round)
    cell = results.cells[0]
    for method, name in NAMES.items():
        run, exact = (results.select(method=method, kind=kind).only() for kind in ("simulate", "exact"))
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
    title = f"{world(cell['heterogeneous'])},\nN = {cell['agents']}, H = {cell['local_steps']:,}"
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
        scale.cell("limit", **place) for place in grid(**{"agents": sizes(scale), "method": tuple(NAMES), **axes})
    ]


def method_ratio(error: Callable[[xr.Dataset], Any]) -> Callable[[Results], float]:
    """An error from FedLSA's limit over the MSE of SCAFFLSA's: the one furthest from 1, as a factor of at least one."""

    def furthest(results: Results) -> float:
        pairs = results.pairs({"method": "scafflsa"}, method="fedlsa")
        return float(np.exp(np.max([abs(math.log(float(error(fed) / scaff["mse"]))) for fed, scaff in pairs])))

    return furthest


def spread_over_local_steps(results: Results) -> float:
    """The largest factor between the MSEs of limits that differ in H alone."""
    groups = [group.values("mse") for group in results.by("method", "agents").values()]
    return float(np.max([np.max(mse) / np.min(mse) for mse in groups]))


def _run_and_law(scale: Scale, **place: Any) -> list[Cell]:
    run = scale.cell("simulate", record=[0, place["rounds"]], seeds=RUNS, **place)
    return [run, scale.cell("law", **place)]


def agreement(what: str, source: str, step_size: float, lengths: Sequence[int]) -> Claim:
    """Simulations have the exact mean and covariance: both settings, with 10 and 100 agents (quick: 10)."""

    def cells(scale: Scale) -> list[Cell]:
        found = []
        for place in grid(local_steps=lengths, agents=sizes(scale), heterogeneous=(True, False), method=tuple(NAMES)):
            if place["local_steps"] > 1 or place["method"] == "fedlsa":
                steps = QUICK_STEPS if scale.quick else CHECKED_STEPS
                rounds = max(FEWEST_CHECKED, steps // place["local_steps"])
                found += _run_and_law(scale, step_size=step_size, rounds=rounds, **place)
        return found

    H = ", ".join(f"{n:,}" for n in lengths)
    return Claim(
        f"simulation-agrees-{what}",
        "Simulated parameters follow the exact law in every panel.",
        source,
        f"{RUNS} runs of each setting (step size {step_size}, H = {H}, N = 10 and 100, quick: 10) of "
        f"{CHECKED_STEPS:,} local steps (quick: {QUICK_STEPS:,}), at least {FEWEST_CHECKED} rounds: the least p-value "
        "of their mean and of their spread under the normal law with the exact mean and covariance, times the number "
        f"of comparisons; {POWER}",
        cells,
        least_p_value,
        at_least=LEVEL,
        kind="check",
    )


def _biased(scale: Scale) -> list[Cell]:
    """FedLSA with heterogeneous agents and H = 1000, until its mean has settled."""
    place = {"method": "fedlsa", "heterogeneous": True, "step_size": 0.1, "local_steps": 1000, "rounds": SETTLED}
    return [cell for n in sizes(scale) for cell in _run_and_law(scale, agents=n, **place)]


def bias_off(results: Results) -> float:
    """How far the simulated bias along the predicted one may be from it: distance plus 1.645 standard errors."""
    found = []
    for theta, law in runs_and_laws(results):
        b, C = law["bias"].values, law["covariance"].values
        share = (theta.mean(axis=0) - law["theta_star"].values) @ b / (b @ b)
        found.append(abs(share - 1) + CONFIDENT * math.sqrt(b @ C @ b / len(theta)) / (b @ b))
    return float(np.max(found))


def _stalled(scale: Scale) -> list[Cell]:
    place: dict[str, Any] = {"method": "fedlsa", "heterogeneous": True, "step_size": 0.1, "local_steps": 1000}
    return [scale.cell("limit", agents=sizes(scale)[-1], **place)]


def _long_runs(scale: Scale) -> list[Cell]:
    """SCAFFLSA's exact moments at the end of a run so long that no start is remembered."""
    place: dict[str, Any] = {"agents": 10, "heterogeneous": True, "method": "scafflsa", "step_size": 0.1}
    ends = {H: FORGOTTEN // H for H in LENGTHS}
    return [scale.cell("exact", local_steps=H, rounds=T, record=[0, T], **place) for H, T in ends.items()]


def _share(*parts: str) -> Callable[[Results], float]:
    """The largest share of parts in an exact error."""
    return lambda results: float(np.max(sum(map(results.values, parts)) / results.values("mse")))


HOMOGENEOUS = limits(heterogeneous=(False,), step_size=(0.1,), local_steps=LENGTHS)
MAIN = Experiment(
    "fig1",
    "FedLSA stalls at its bias, SCAFFLSA does not",
    ("fig:show-bias",),
    (
        curves(
            "fig1",
            f"{CURVES} of federated TD(0) with heterogeneous and homogeneous agents, step size 0.1.",
            {"heterogeneous": (True, False), "local_steps": LENGTHS, "step_size": (0.1,)},
        ),
    ),
    claims=(
        Claim(
            "fedlsa-stalls",
            "FedLSA stalls at its bias when the number of local updates increases.",
            f"{SOURCE}; th:2nd_moment_no_cv",
            "share of drift, ||bias||^2, in FedLSA's exact stationary MSE; heterogeneous, N = 100 (quick: 10), "
            "H = 1000, step size 0.1",
            _stalled,
            _share("drift"),
            0.5,
            1.0,
            quote="As predicted by our theory, FedLSA stalls when the number of local updates increases",
        ),
        Claim(
            "bias-as-predicted",
            "The level at which FedLSA stalls is in line with the theory.",
            f"{SOURCE}; th:2nd_moment_no_cv",
            f"{RUNS} runs, heterogeneous, H = 1000, {SETTLED} rounds: distance from 1 of the simulated bias along the "
            "predicted one, over that, plus 1.645 standard errors (two one-sided tests at 5%); the largest over N",
            _biased,
            bias_off,
            at_most=MARGIN,
            quote="its bias (green dashed line [...]) is in line with the value predicted by our theory",
        ),
        Claim(
            "scafflsa-unbiased",
            "SCAFFLSA's bias correction eliminates all bias (in the stationary limit).",
            f"{SOURCE}; thm:upper-bound-dist-param-scafflsa",
            "start and drift over MSE of SCAFFLSA (exact) after 200,000 local steps from theta_star + 1, without "
            "control variates at first; heterogeneous, N = 10, H = 10 and 1000, step size 0.1: the larger",
            _long_runs,
            _share("start", "drift"),
            at_most=1e-12,
            quote="SCAFFLSA's bias-correction mechanism allows to eliminate all bias, improving the MSE until noise "
            "dominates",
        ),
        Claim(
            "alike-when-homogeneous",
            "With homogeneous agents SCAFFLSA is on par with FedLSA.",
            SOURCE,
            "stationary MSE of SCAFFLSA over that of FedLSA (exact), homogeneous, N = 10 and 100 (quick: 10), H = 10 "
            "and 1000, step size 0.1: the one furthest from 1, as a factor",
            HOMOGENEOUS,
            method_ratio(lambda limit: limit["mse"]),
            at_most=1.25,
            quote="Since agents are homogeneous, control variates have virtually no effect, and SCAFFLSA is on par "
            "with FedLSA",
        ),
        Claim(
            "local-steps-matter-little",
            "With homogeneous agents the number of local steps has little influence on the final MSE.",
            f"{SOURCE}; cor:sample_complexity_lsa",
            "largest over smallest stationary MSE (exact) for H = 10 and 1000, homogeneous, both methods, N = 10 and "
            "100 (quick: 10), step size 0.1",
            HOMOGENEOUS,
            spread_over_local_steps,
            at_most=1.5,
            quote="the number of local steps H has little influence on the final MSE",
        ),
        agreement("main", SOURCE, 0.1, LENGTHS),
    ),
)


# the appendix: more local steps, smaller steps, FedLSA without its bias

MORE_LENGTHS = (1, 10, 100, 1000, 10_000)  # local steps
EARLY = 50  # communications after which runs of different lengths are compared: all that H = 10,000 makes
APPENDIX = "sec:appendix_numerics"
MORE_STEPS = f"{APPENDIX}, fig:show-bias-more-h, fig:show-bias-more-h-het"
SMALL_STEPS = f"{APPENDIX}, fig:show-bias-more-small-h, fig:show-bias-more-small-h-het"
NO_BIAS = f"{APPENDIX}, fig:app-show-bias, fig:app-show-bias-smaller-step"


def _lengths(name: str, step_size: float) -> tuple[Picture, ...]:
    return tuple(
        curves(
            f"{name}-{world(h)}",
            f"{CURVES} for H = 1 to 10,000 local steps, {world(h)} agents, step size {step_size}.",
            {"heterogeneous": (h,), "local_steps": MORE_LENGTHS, "step_size": (step_size,)},
            rows="agents",
            columns=("local_steps",),
        )
        for h in (True, False)
    )


def _early(heterogeneous: bool, methods: Sequence[str]) -> Cells:
    """Exact errors after 50 communications, and FedLSA's limits where agents differ, for every H."""

    def cells(scale: Scale) -> list[Cell]:
        found = []
        for place in grid(agents=sizes(scale), local_steps=MORE_LENGTHS, method=methods):
            place |= {"heterogeneous": heterogeneous, "step_size": 0.1}
            found.append(scale.cell("exact", rounds=EARLY, record=[0, EARLY], **place))
            if heterogeneous and place["method"] == "fedlsa" and place["local_steps"] > 1:
                found.append(scale.cell("limit", **place))
        return found

    return cells


def _longer(results: Results) -> Iterator[tuple[float, bool, bool, bool]]:
    """Ten times the local steps instead of H: the ratio of the errors after 50 communications; whether noise dominates
    with H by then; whether drift dominates in the limit, with H and with 10 H."""

    def biased(cell: Cell, local_steps: int) -> bool:
        end = results.partner(cell, kind="limit", local_steps=local_steps)
        return end is not None and bool(end["drift"] > end["noise"])

    for cell, curve in results.select(kind="exact"):
        H = cell["local_steps"]
        more = results.partner(cell, local_steps=10 * H)
        if more is not None:
            before, then = curve.isel(rounds=-1), more.isel(rounds=-1)
            noisy = bool(before["noise"] > before["start"] + before["drift"])
            yield float(then["mse"] / before["mse"]), noisy, biased(cell, H), biased(cell, 10 * H)


def _faster(results: Results) -> float:
    """The largest ratio where noise does not dominate yet, nor bias; NaN where one of them does from the beginning."""
    return float(np.max([ratio for ratio, *dominated in _longer(results) if not any(dominated)] or [math.nan]))


def _stuck(results: Results) -> float:
    """The smallest ratio where bias dominates already; 0 where it does so for no H."""
    return float(np.min([ratio for ratio, _, biased, _ in _longer(results) if biased] or [0.0]))


def _smaller(what: str) -> Callable[[Results], float]:
    """The largest ratio of a number with step size 0.01 to that with 0.1."""
    return lambda results: float(
        np.max([small[what] / large[what] for small, large in results.pairs({"step_size": 0.1}, step_size=0.01)])
    )


def _ratio_claim(name: str, text: str, cells: Cells, statistic: str, quote: str, stuck: bool = False) -> Claim:
    """On the errors with ten times the local steps; stuck : they do not fall any more, instead of falling."""
    bounds = {"at_least": 1.0} if stuck else {"at_most": 1.0}
    statistic = (
        "exact MSE with ten times the local steps over that with H, H = 1 to 1000, after 50 communications, "
        + statistic
    )
    measure = _stuck if stuck else _faster
    return Claim(f"local-steps-{name}", text, MORE_STEPS, statistic, cells, measure, quote=quote, **bounds)  # type: ignore[arg-type]


def _debiased_claim(name: str, text: str, estimator: str, times: float, quote: str, **more: Any) -> Claim:
    """On FedLSA whose mean is `times` the bias away from theta_star."""
    return Claim(
        name,
        text,
        NO_BIAS,
        f"stationary MSE (exact) of {estimator} over that of SCAFFLSA; both settings and step sizes, N = 10 and 100 "
        "(quick: 10), H = 10 and 1000: the one furthest from 1, as a factor",
        limits(heterogeneous=(True, False), step_size=(0.1, 0.01), local_steps=LENGTHS),
        method_ratio(lambda limit: limit["noise"] + times**2 * limit["drift"]),
        at_most=1.5,
        quote=quote,
        panel="debiased-0.1 heterogeneous, N = 10, H = 1,000",
        **more,
    )


LOCAL_STEPS = Experiment(
    "local-steps",
    "From one local step to ten thousand",
    ("fig:show-bias-more-h", "fig:show-bias-more-h-het"),
    _lengths("local-steps", 0.1),
    claims=(
        _ratio_claim(
            "speed-up",
            "With homogeneous agents more local steps speed up the training until noise dominates.",
            _early(False, tuple(NAMES)),
            "homogeneous, both methods, N = 10 and 100 (quick: 10): the largest where at H start and drift together "
            "still exceed noise",
            "In both methods, increasing the number of local steps speeds-up the training, until the stochastic noise "
            "dominates",
        ),
        _ratio_claim(
            "speed-up-fedlsa",
            "With heterogeneous agents more local steps speed FedLSA up while its bias is small.",
            _early(True, ("fedlsa",)),
            "heterogeneous, FedLSA: the largest where at H noise does not dominate, and at 10 H the limit's drift "
            "is below its noise",
            "In heterogeneous settings, while FedLSA's bias is smaller than the variance of its iterates, training "
            "speeds up when the number of local steps increases",
        ),
        _ratio_claim(
            "bias",
            "With heterogeneous agents there is a number of local steps from which on bias dominates, and more of "
            "them make FedLSA no better.",
            _early(True, ("fedlsa",)),
            "heterogeneous, FedLSA: the smallest where at H the limit's drift exceeds its noise",
            "After that point, bias dominates",
            stuck=True,
        ),
        _ratio_claim(
            "speed-up-scafflsa",
            "With heterogeneous agents more local steps speed SCAFFLSA up until noise dominates.",
            _early(True, ("scafflsa",)),
            "heterogeneous, SCAFFLSA: the largest where at H noise does not dominate",
            "SCAFFLSA preserves the speed-up by eliminating this bias",
        ),
        Claim(
            "similar-error-in-the-end",
            "With homogeneous agents both algorithms reach a stationary regime with similar error, whatever H is.",
            MORE_STEPS,
            "largest over smallest stationary MSE (exact) for H = 1 to 10,000, homogeneous, both methods, N = 10 and "
            "100 (quick: 10), step size 0.1",
            limits(heterogeneous=(False,), step_size=(0.1,), local_steps=MORE_LENGTHS),
            spread_over_local_steps,
            at_most=1.5,
            quote="At this point, both algorithms reach a stationary regime with similar error",
        ),
        agreement("local-steps", MORE_STEPS, 0.1, MORE_LENGTHS),
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
            "stationary MSE (exact) with step size 0.01 over that with 0.1: the largest over both settings and "
            "methods, N = 10 and 100 (quick: 10), H = 10 and 1000",
            limits(heterogeneous=(True, False), step_size=(0.1, 0.01), local_steps=LENGTHS),
            _smaller("mse"),
            at_most=0.5,
            quote="In this setting, all algorithms manage to find better estimators, since the amount of variance "
            "depends on the step size",
        ),
        Claim(
            "smaller-steps-smaller-bias",
            "FedLSA's bias is smaller with a smaller step size.",
            f"{SMALL_STEPS}; th:2nd_moment_no_cv",
            "limit's drift ‖bias‖² of FedLSA with step size 0.01 over that with 0.1; heterogeneous, N = 10 and 100 "
            "(quick: 10), H = 10 and 1000: the largest",
            limits(method=("fedlsa",), heterogeneous=(True,), step_size=(0.1, 0.01), local_steps=LENGTHS),
            _smaller("drift"),
            at_most=0.5,
            quote="Additionally, FedLSA's bias is smaller than in fig:app-show-bias, which is also in line with the "
            "upper bound",
        ),
        agreement("small-steps", SMALL_STEPS, 0.01, MORE_LENGTHS),
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
            {"heterogeneous": (True, False), "local_steps": LENGTHS, "step_size": (eta,)},
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

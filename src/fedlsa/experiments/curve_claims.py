"""What the paper says about its main figure, as numbers: from the cells of the curves and from the exact limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .base import Claim, Lookup, Panels, Scale, grid
from .cells import Cell
from .limits import WITHIN, limit_cell, score, settings_at, widest

Cells = Callable[[Scale], Panels]
METHODS = ("fedlsa", "scafflsa")
HOMOGENEOUS, HETEROGENEOUS = {"heterogeneous": (False,)}, {"heterogeneous": (True,)}
MAIN = {"local_steps": (10, 1000)}
LONG = 200_000  # local steps after which only the limit is left
LAST = 4  # the last quarter of a curve


def limits(axes: Mapping[str, Sequence[Any]], methods: Sequence[str] = METHODS) -> Cells:
    """Exact limits of the methods over a grid, with 10 and 100 agents; quick: with 10."""

    def cells(scale: Scale) -> Panels:
        sizes = {"agents": (10,) if scale.quick else (10, 100)}
        places = grid({"agents": sizes["agents"], **axes})
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
    return max(max(float(r), 1 / float(r)) for r in ratios)


def furthest(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    """The largest score of a simulated curve against the exact one, at the last record."""
    return max(abs(end_score(held, lookup, scale, m, 1)) for held in panels.values() for m in METHODS)


def end_score(held: Mapping[str, Cell], lookup: Lookup, scale: Scale, method: str, records: int) -> float:
    """The score of the mean over seeds and the last records; as if these were one, which makes it no larger."""
    run, exact = lookup(held[f"simulated {method}"]), lookup(held[f"exact {method}"])
    last = exact.isel(round=slice(-records, None))
    mean = float(run["squared_error"].values[:, -records:].mean())
    spreads = [widest(*v) for v in zip(last["squared_bias"].values, last["variance"].values, strict=True)]
    return score(mean, float(last["mse"].values.mean()), float(np.mean(spreads)), scale.seeds)


def tail(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    """The largest score of FedLSA's last quarter with heterogeneous agents and H = 1000."""
    chosen = [held for title, held in panels.items() if title.startswith("heterogeneous") and "H = 1,000" in title]
    found = [
        end_score(held, lookup, scale, "fedlsa", len(lookup(held["exact fedlsa"])["round"]) // LAST) for held in chosen
    ]
    return max(map(abs, found))


def agreement(what: str, labels: str, cells: Cells) -> Claim:
    """Simulated curves end where the exact ones do."""
    return Claim(
        f"simulation-agrees-{what}",
        "Simulated errors agree with their exact expectation in every panel.",
        labels,
        "largest distance of the mean over seeds from the exact MSE at the last record, in standard errors that are at "
        "most those of the exact mean and variance (normal score of the skewed mean)",
        cells,
        furthest,
        at_most=WITHIN,
    )


def _share(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    (end,) = [lookup(c) for c in panels["limits"].values()]
    return float(end["squared_bias"] / end["mse"])


def _stalled(scale: Scale) -> Panels:
    place = {"agents": 100, "heterogeneous": True, "step_size": 0.1, "local_steps": 1000}
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
    return max(float(end["squared_bias"] / end["mse"]) for end in ends)


def _apart(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    return factor([b["mse"] / a["mse"] for a, b in paired(panels, lookup)])


def spread(panels: Panels, lookup: Lookup, scale: Scale) -> float:
    """The largest factor between limits that differ in H alone."""
    held: dict[str, list[float]] = {}
    for key, cell in panels["limits"].items():
        rest = " ".join(word for word in key.split() if not word.startswith("local_steps"))
        held.setdefault(rest, []).append(float(lookup(cell)["mse"]))
    return max(max(v) / min(v) for v in held.values())


def main_claims(cells: Cells) -> tuple[Claim, ...]:
    """Those of fig:show-bias; cells : of the figure."""
    source = "sec:numerical, fig:show-bias"
    return (
        Claim(
            "fedlsa-stalls",
            "FedLSA stalls at its bias when the number of local updates increases.",
            f"{source}; th:2nd_moment_no_cv",
            "share of ||bias||^2 in FedLSA's exact stationary MSE; heterogeneous, N = 100, H = 1000, step size 0.1",
            _stalled,
            _share,
            0.5,
            1.0,
        ),
        Claim(
            "bias-as-predicted",
            "The level at which FedLSA stalls is in line with the theory.",
            f"{source}; th:2nd_moment_no_cv",
            "distance of FedLSA's simulated MSE over the last quarter of the run from the exact one, in standard "
            "errors of one record; heterogeneous, H = 1000: the largest over N",
            cells,
            tail,
            at_most=WITHIN,
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
        ),
        Claim(
            "alike-when-homogeneous",
            "With homogeneous agents SCAFFLSA is on par with FedLSA.",
            source,
            "stationary MSE of SCAFFLSA over that of FedLSA (exact), homogeneous, N = 10 and 100 (quick: 10), H = 10 "
            "and 1000, step size 0.1: the one furthest from 1, as a factor",
            limits({**HOMOGENEOUS, "step_size": (0.1,), **MAIN}),
            _apart,
            1.0,
            1.25,
        ),
        Claim(
            "local-steps-matter-little",
            "With homogeneous agents the number of local steps has little influence on the final MSE.",
            f"{source}; cor:sample_complexity_lsa",
            "largest over smallest stationary MSE (exact) for H = 10 and 1000, homogeneous, both methods, N = 10 and "
            "100 (quick: 10), step size 0.1",
            limits({**HOMOGENEOUS, "step_size": (0.1,), **MAIN}),
            spread,
            1.0,
            1.5,
        ),
        agreement("main", source, cells),
    )

"""What scene.js draws, as the JSON that its first lines describe: the error of all methods, the agents beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from ..figures.lines import method_name, summarise_seeds
from .answers import PARTS, Curve
from .page_settings import AXES, METHODS, PROBLEMS, PageSettings
from .scene_plane import UNSTABLE, finite_lists

BAND = (0.1, 0.9)  # quantiles over seeds


def error_data(s: PageSettings, curves: Mapping[str, Curve], runs: Sequence[xr.Dataset] = ()) -> dict[str, Any] | None:
    """Mean squared error against communications, observations or bytes; None as long as there is no curve.

    curves : those that are there yet, by method; runs : simulated seeds that are laid on top, one result per method
    """
    simulated = {method_name(r): r for r in runs} | {n: c.runs for n, c in curves.items() if c.runs is not None}
    methods: list[dict[str, Any]] = []
    rounds: list[int] = []
    for name in METHODS:
        exact = curves[name].exact if name in curves else None
        shown: dict[str, Any] = {"name": name}
        if exact is not None:
            rounds = exact["rounds"].values.tolist()
            shown |= {"x": exact[s.x].values.tolist(), "total": finite_lists(exact["mse"].values)}
            if all(part in exact for part in PARTS):
                shown["parts"] = {part: finite_lists(exact[part].values) for part in PARTS}
            if curves[name].bias > 0:
                shown["floor"] = curves[name].bias
            if curves[name].blown_up is not None:
                shown["unstable_from"] = curves[name].blown_up
        if name in simulated:
            seeds = summarise_seeds(simulated[name], BAND, s.x)
            mean, (low, high) = finite_lists(seeds.mean), (finite_lists(v) for v in (seeds.low, seeds.high))
            shown |= {"low": low, "high": high, "seeds": finite_lists(seeds.diverged)}
            if exact is not None:
                shown["mean"] = mean
            else:
                rounds = simulated[name]["rounds"].values.tolist()
                shown |= {"x": seeds.x.tolist(), "total": mean}
        if "total" in shown:
            methods.append(shown)
    if not methods:
        return None
    return {"x_label": AXES[s.x], "x_scale": s.scale, "x": methods[0]["x"], "rounds": rounds, "methods": methods}


def scene_text(
    s: PageSettings,
    curves: Mapping[str, Curve],
    agents: bytes | str | None = None,
    runs: Sequence[xr.Dataset] = (),
    unstable: Sequence[str] = (),
    question: int = 0,
) -> str:
    """All that is known of one question, as JSON.

    agents : `plane_data` as JSON, or why there is none, or None as long as neither is known
    unstable : methods that have no limit at this step size, as far as it is known
    question : a number of its own, by which the picture sees whether something else is asked
    """
    steps = f"{s.local_steps} local step{'s' if s.local_steps > 1 else ''}"
    known: dict[str, Any] = {
        "title": f"{PROBLEMS[s.problem]}: step size {s.step_size:.4g}, {steps}",
        "rounds": s.rounds, "round": s.round, "problem": s.problem, "question": question,
        "unstable": dict.fromkeys(unstable, UNSTABLE), "error": error_data(s, curves, runs),
    }  # fmt: skip
    if isinstance(agents, str):
        known["plane"] = None
    text = json.dumps(known, ensure_ascii=False)
    return f'{text[:-1]}, "plane": {agents.decode()}}}' if isinstance(agents, bytes) else text

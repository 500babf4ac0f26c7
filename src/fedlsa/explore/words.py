"""What the pictures show, said in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..figures.labels import start
from .answers import DIGITS, Curve
from .page_settings import METHODS, PageSettings


def verdict(s: PageSettings, curves: Mapping[str, Curve], limits: Mapping[str, float]) -> list[str]:
    """A line for each method whose curve is there: how it ends, or that it does not, as Markdown."""
    lines = [_line(s, curves[name], limits.get(name)) for name in METHODS if name in curves]
    if s.sampling == "markov" and s.thin > 1 and lines:
        lines.append(
            f"H counts the observations that are received, of which one in {s.thin} is used; p is per used one."
        )
    return lines


def _line(s: PageSettings, c: Curve, limit: float | None) -> str:
    if c.exact is None:
        return _simulated(c)
    # a method that is stable may still settle far above its start, where observations are noisy
    known = None if limit is None or math.isnan(limit) else limit
    unstable = c.blown_up is not None if known is None else s.step_size >= known
    if unstable:
        when = "" if c.blown_up is None else f" The error is a thousand times its start by round {c.blown_up}."
        return f"**{c.method} is unstable** at step size {s.step_size:g}.{when} {_cure(limit)}"
    mse, bias = (float(c.exact[name].values[-1]) for name in ("mse", "squared_bias"))
    share = bias / mse if mse > 0 else 0.0
    text = f"**{c.method}** ends at {mse:.3g} after {s.rounds} rounds"
    if c.method != "FedLSA" or c.bias == 0:  # control variates, or nothing to correct
        return f"{text}, {share:.0%} of it bias, which more rounds remove."
    if math.isnan(c.bias):
        return text + "."
    return f"{text}, {share:.0%} of it bias; more rounds lead to a squared bias of {c.bias:.3g}, not to 0."


def _cure(limit: float | None) -> str:
    if limit is None:
        return "Looking for the step size at which it becomes stable …"
    if math.isnan(limit):
        return "The step size at which it becomes stable could not be found."
    if limit <= 0:
        return "No step size makes it stable."
    return f"It becomes stable below {_below(limit)}."


def _simulated(c: Curve) -> str:
    assert c.runs is not None
    error, at = c.runs["squared_error"].values, c.runs["diverged_at"].values
    if (at >= 0).any():
        lost = at[at >= 0]
        return f"**{c.method}**: {len(lost)} of {len(at)} seeds diverged, the first in round {lost.min()}."
    last = error[:, -1]
    spread = f" ± {last.std(ddof=1) / math.sqrt(len(last)):.1g}" if len(last) > 1 else ""
    return f"**{c.method}** ends at {last.mean():.3g}{spread}, the mean of {len(last)} simulated seeds."


def start_line(curves: Mapping[str, Curve]) -> str:
    """Where all runs of the picture start; nothing where there is no picture yet."""
    shown = [c.runs if c.exact is None else c.exact for c in curves.values()]
    return next((f"Runs {named}" for data in shown if data is not None and (named := start(data))), "")


def limits_line(limits: Mapping[str, float]) -> str:
    """The stable step sizes in one line, as far as they are known."""
    known = [f"{name} {_below(limits[name])}" for name in METHODS if not math.isnan(limits.get(name, math.nan))]
    return "Stable below: " + " · ".join(known) if known else ""


def _below(limit: float) -> str:
    """A limit to two digits, rounded down: what is printed is stable, although limits are known up to DIGITS."""
    if not math.isfinite(limit) or limit <= 0:
        return f"{limit:g}"
    sure = limit * (1 - DIGITS)
    power = 10.0 ** (math.floor(math.log10(sure)) - 1)
    lower = math.floor(sure / power) * power
    return f"{lower:,.0f}" if lower >= 100 else f"{lower:.2g}"

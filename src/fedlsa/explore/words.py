"""What the pictures show, said in words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..figures.lines import start_words
from .answers import DIGITS, ROUNDING, Curve, Floor
from .page_settings import BESIDE, METHODS, SETTINGS, PageSettings

VISIBLE = 1e-3  # of an error: smaller parts are not named
NEARLY = 0.05  # of an error, within which it has reached its floor
NAMES = {"start": "what is left of the start", "drift": "drift", "noise": "noise"}
DRIFTING = ("FedLSA", "FedNova", "FedProx")  # without control variates
LESS_DRIFT = "but fewer local steps, a smaller step size or control variates would."
LESS_NOISE = "but a smaller step size would."
MEANS = "with more than 20 coefficients, or more rows than fit into memory, local steps take a site's means"


def in_words(text: str) -> str:
    """A complaint of the library in the words of the page: its labels instead of arguments and options."""

    def chosen(m: re.Match[str]) -> str:
        about: Mapping[str, Any] = SETTINGS[m[1]].metadata if m[1] in SETTINGS else {"offers": ()}
        known = isinstance(about["offers"], Mapping) and m[2] in about["offers"]
        return f"“{about['label']}: {about['offers'][m[2]]}”" if known else m[0]

    def named(m: re.Match[str]) -> str:
        return str(SETTINGS[m[0]].metadata["label"]) if m[0] in SETTINGS else m[0]

    text = re.sub(r"\b(\w+)='(\w+)'(?: \(--[\w-]+ [\w-]+\))?", chosen, text)
    rule, mark, got = text.partition("; got ")
    return re.sub(r"^\w+(?= must )|\b[a-z]+_[a-z]+\b", named, rule) + mark + got


def verdict(
    s: PageSettings,
    curves: Mapping[str, Curve],
    limits: Mapping[str, float],
    floors: Mapping[str, Floor | None] = MappingProxyType({}),
) -> list[str]:
    """A line for each method whose curve is there: how it ends and of what its error is made, or that it does not end.

    As Markdown. limits : stable step sizes; floors : what more rounds lead to, as far as both are known
    """
    lines = [_line(s, c, limits.get(n), floors.get(n)) for n in s.shown() if (c := curves.get(n))]
    if s.beside != "none" and (added := s.shown()[-1]) in curves:  # it says what it is
        told = BESIDE[s.beside][0].removeprefix(f"{added}: ")
        lines[-1] = lines[-1].replace(added, f"{added} ({told})", 1)
    ends = {n: c.end for n, c in curves.items() if c.record is not None}
    shown = {n: end for n, end in ends.items() if not is_unstable(s, curves[n], limits.get(n), floors.get(n))}
    lines += _above_fedlsa(shown)
    if s.problem == "files" and ends and not any(parts["noise"] for _, parts in ends.values()):
        lines.append(f"There is no noise: {MEANS}.")
    if s.sampling == "markov" and s.thin > 1 and lines:
        lines.append(
            f"H counts the observations that are received, of which one in {s.thin} is used; p is per used one."
        )
    return lines


def _line(s: PageSettings, c: Curve, limit: float | None, floor: Floor | None) -> str:
    if c.record is None:
        return _simulated(c)
    if is_unstable(s, c, limit, floor):
        when = "" if c.blown_up is None else f" The error is a thousand times its start by round {c.blown_up}."
        calm = "The agents' paths are means, which may look calm while single runs scatter ever more."
        return f"**{c.method} is unstable** at step size {s.step_size:.4g}.{when} {calm} {_cure(limit)}"
    mse, parts = c.end
    return f"**{c.method}** ends at {mse:.3g} after {s.rounds} rounds{_sum(parts)}. {_later(c, floor)}".rstrip()


def is_unstable(s: PageSettings, c: Curve, limit: float | None, floor: Floor | None) -> bool:
    """Whether second moments of a method have no limit: by its floor, else by its limit, else by its curve.

    A method that is stable may still settle far above its start, where observations are noisy.
    """
    if floor is not None:
        return not math.isfinite(floor.mse)
    return c.blown_up is not None if limit is None or math.isnan(limit) else s.step_size >= limit


def _sum(parts: Mapping[str, float]) -> str:
    """The parts that are more than a thousandth of the whole, the largest first."""
    least, ordered = VISIBLE * sum(parts.values()), sorted(parts.items(), key=lambda part: -part[1])
    shown = [(name, value) for name, value in ordered if value > least]
    if len(shown) == 1:
        return f", all of it {NAMES[shown[0][0]]}"
    return ": " + " + ".join(f"{name} {value:.3g}" for name, value in shown) if shown else ""


def _later(c: Curve, floor: Floor | None) -> str:
    """What more rounds do: they remove the start, and the drift of methods with control variates."""
    assert c.record is not None
    mse, parts = c.end
    if floor is None:  # not known yet
        gone = [p for p in ("start", "drift")[: 1 + (c.method not in DRIFTING)] if parts[p] > VISIBLE * mse]
        much = sum(parts[p] for p in gone) > NEARLY * mse
        return f"More rounds remove {' and '.join(NAMES[p] for p in gone)}." if much else ""
    if floor.mse <= ROUNDING * float(c.of("mse")[0]):
        return "There is no floor: more rounds lead to 0."
    what = "noise floor" if floor.drift <= VISIBLE * floor.mse else "floor"
    made = "" if what == "noise floor" else f" ({_sum({'drift': floor.drift, 'noise': floor.noise}).lstrip(',: ')})"
    if abs(mse - floor.mse) <= NEARLY * floor.mse:
        text = f"That is its {what}: more rounds do not help"
    elif mse > floor.mse:
        return f"More rounds help, down to its {what} of {floor.mse:.3g}{made}."
    else:
        text = f"It still rises, to its {what} of {floor.mse:.3g}{made}: more rounds do not help"
    return f"{text}, {LESS_DRIFT if floor.drift > floor.noise else LESS_NOISE}"


def _above_fedlsa(ends: Mapping[str, tuple[float, dict[str, float]]]) -> list[str]:
    """Why a method with control variates ends above FedLSA, where one does; ends : of stable methods."""
    fed, of_fed = ends.get("FedLSA", (math.inf, {}))
    above = [name for name in METHODS if name in ends and ends[name][0] > (1 + NEARLY) * fed]
    if not above:
        return []
    mse, parts = ends[above[0]]
    text = f"{' and '.join(above)} end{'s' * (len(above) == 1)} above FedLSA: "
    added = parts["noise"] - of_fed["noise"]
    if added <= max((mse - fed) / 2, of_fed["drift"] - parts["drift"]):
        return [f"{text}control variates have still to be learnt, which takes rounds."]
    noise = f"control variates add noise ({parts['noise']:.3g} instead of {of_fed['noise']:.3g})"
    return [f"{text}{noise}, more than the drift that they take away ({of_fed['drift']:.3g})."]


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
    attrs = [c.record["attrs"] for c in curves.values() if c.record]
    attrs += [c.runs.attrs for c in curves.values() if c.runs is not None]
    return f"Runs {start_words(attrs[0]['start'])}" if attrs else ""


def limits_line(limits: Mapping[str, float]) -> str:
    """The stable step sizes in one line, as far as they are known."""
    known = [
        f"{n} {'not found' if math.isnan(limits[n]) else _below(limits[n])}"
        for n in dict.fromkeys((*METHODS, *limits))
        if n in limits
    ]
    return "Stable below: " + " · ".join(known) if known else ""


def _below(limit: float) -> str:
    """A limit to two digits, rounded down: what is printed is stable, although limits are known up to DIGITS."""
    if not math.isfinite(limit) or limit <= 0:
        return f"{limit:g}"
    sure = limit * (1 - DIGITS)
    power = 10.0 ** (math.floor(math.log10(sure)) - 1)
    lower = math.floor(sure / power) * power
    return f"{lower:,.0f}" if lower >= 100 else f"{lower:.2g}"

"""What scene.js draws and the page says, as the JSON that its first lines describe: the error, and where agents go."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..figures.lines import method_name, start_words, summarise_seeds
from .answers import AGENTS, DIGITS, PARTS, ROUNDING, UNSTABLE, Curve, Floor, Question, finite_lists
from .page_settings import AXES, BESIDE, METHODS, PROBLEMS, SETTINGS, PageSettings

if TYPE_CHECKING:
    import xarray as xr

BAND = (0.1, 0.9)  # quantiles over seeds
VISIBLE = 1e-3  # of an error: smaller parts are not named
NEARLY = 0.05  # of an error, within which it has reached its floor
NAMES = {"start": "what is left of the start", "drift": "drift", "noise": "noise"}
DRIFTING = ("FedLSA", "FedNova", "FedProx")  # without control variates
LESS_DRIFT = "but fewer local steps, a smaller step size or control variates would."
LESS_NOISE = "but a smaller step size would."
MEANS = "with more than 20 coefficients, or more rows than fit into memory, local steps take a site's means"


@dataclass(frozen=True, eq=False)
class Curves:
    """What is known of one question, by method: curves, why there is none, stable step sizes, what more rounds lead to.

    agents : where they go, as JSON, or why that cannot be seen; None as long as neither is known
    """

    question: Question
    by_method: dict[str, Curve] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    floors: dict[str, Floor] = field(default_factory=dict)
    agents: bytes | str | None = None

    @property
    def waiting(self) -> list[str]:
        return [n for n in self.question.page.shown() if n not in self.by_method and n not in self.failed]

    @property
    def complete(self) -> bool:
        """Whether nothing is missing that the pictures show."""
        return not self.waiting and self.agents is not None

    def with_answer(self, name: str, answer: Any) -> Curves:
        """The same with one more answer; a text says why there is none."""
        if name == AGENTS:
            return replace(self, agents=answer)
        if isinstance(answer, str):
            return replace(self, failed={**self.failed, name: answer})
        return replace(self, by_method={**self.by_method, name: answer})

    @property
    def unstable(self) -> list[str]:
        """Methods whose second moments have no limit at this step size, as far as it is known."""
        s, limits, floors = self.question.page, self.limits, self.floors
        return [n for n, c in self.by_method.items() if is_unstable(s, c, limits.get(n), floors.get(n))]

    def lines(self) -> list[str]:
        """What is said under the pictures."""
        said = verdict(self.question.page, self.by_method, self.limits, self.floors)
        failed, reasons = self.failed, set(self.failed.values())
        if len(failed) == len(self.question.page.shown()) and len(reasons) == 1:  # it is said once
            failed = {"No curves": reasons.pop()}
        elif isinstance(self.agents, str):
            failed = {**failed, "No picture of the agents": self.agents}
        return said + [f"**{n}**: {why}" for n, why in failed.items()] + [f"**{n}**: computing …" for n in self.waiting]


def error_data(s: PageSettings, curves: Mapping[str, Curve]) -> dict[str, Any] | None:
    """Mean squared error against communications, observations or bytes; None as long as there is no curve."""
    methods: list[dict[str, Any]] = []
    rounds: list[int] = []
    for c in (curves[name] for name in s.shown() if name in curves):
        shown: dict[str, Any] = {"name": c.method}
        if c.record is not None:
            rounds = c.of("rounds").tolist()
            shown |= {"x": c.of(s.x).tolist(), "total": finite_lists(c.of("mse"))}
            if c.blown_up is None:  # else one part would cover the picture
                shown["parts"] = {part: finite_lists(c.of(part)) for part in PARTS}
            if c.bias > 0:
                shown["floor"] = c.bias
            if c.blown_up is not None:
                shown["unstable_from"] = c.blown_up
        elif c.runs is not None:
            rounds = c.runs["rounds"].values.tolist()
            seeds = seeds_data([c.runs])[c.method]
            shown |= {"x": summarise_seeds(c.runs, BAND, s.x).x.tolist(), "total": seeds.pop("mean"), **seeds}
        methods.append(shown)
    if not methods:
        return None
    return {"x_label": AXES[s.x], "x_scale": s.scale, "x": methods[0]["x"], "rounds": rounds, "methods": methods}


def seeds_data(runs: Sequence[xr.Dataset]) -> dict[str, dict[str, Any]]:
    """Simulated seeds by method: their mean, the band that holds four fifths of them, those that diverged."""
    out = {}
    for run in runs:
        seeds = summarise_seeds(run, BAND, "communications")
        mean, (low, high) = finite_lists(seeds.mean), (finite_lists(v) for v in (seeds.low, seeds.high))
        out[method_name(run)] = {"mean": mean, "low": low, "high": high, "seeds": finite_lists(seeds.diverged)}
    return out


def known_line(known: Curves, drawn: Curves) -> bytes:
    """All that is known, as a line of JSON; what stands in `drawn`, the line before, is not sent again."""
    s = known.question.page
    steps = f"{s.local_steps} local step{'s' if s.local_steps > 1 else ''}"
    told: dict[str, Any] = {
        "title": f"{PROBLEMS[s.problem]}: step size {s.step_size:.4g}, {steps}", "rounds": s.rounds, "round": s.round,
        "problem": s.problem, "waiting": known.waiting, "words": known.lines(),
        "unstable": dict.fromkeys(known.unstable, UNSTABLE), "limits": limits_line(known.limits),
        "start": start_line(known.by_method),
    }  # fmt: skip
    if known.by_method.keys() != drawn.by_method.keys() or (known.complete and not known.by_method):
        told["error"] = error_data(s, known.by_method)
    text = json.dumps({"known": told}, ensure_ascii=False, separators=(",", ":")).encode()
    if known.agents is drawn.agents:
        return text + b"\n"
    return text[:-1] + b',"plane":' + (known.agents if isinstance(known.agents, bytes) else b"null") + b"}\n"


# What the pictures show, said in words


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
    """A line of Markdown for each method: how it ends and of what its error is made, or that it does not end; limits :
    stable step sizes; floors : what more rounds lead to, as far as both are known"""
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
    """Whether second moments of a method have no limit: by its floor, else by its limit, else by its curve."""
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

"""What scene.js draws and the page says, as the JSON that its first lines describe: the error, and where agents go."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..figures.lines import method_name, summarise_seeds
from . import words
from .answers import AGENTS, PARTS, UNSTABLE, Curve, Floor, Question, finite_lists
from .page_settings import AXES, PROBLEMS, PageSettings

if TYPE_CHECKING:
    import xarray as xr

BAND = (0.1, 0.9)  # quantiles over seeds


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
        return [n for n, c in self.by_method.items() if words.is_unstable(s, c, limits.get(n), floors.get(n))]

    def lines(self) -> list[str]:
        """What is said under the pictures."""
        said = words.verdict(self.question.page, self.by_method, self.limits, self.floors)
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
        "unstable": dict.fromkeys(known.unstable, UNSTABLE), "limits": words.limits_line(known.limits),
        "start": words.start_line(known.by_method),
    }  # fmt: skip
    if known.by_method.keys() != drawn.by_method.keys() or (known.complete and not known.by_method):
        told["error"] = error_data(s, known.by_method)
    text = json.dumps({"known": told}, ensure_ascii=False, separators=(",", ":")).encode()
    if known.agents is drawn.agents:
        return text + b"\n"
    return text[:-1] + b',"plane":' + (known.agents if isinstance(known.agents, bytes) else b"null") + b"}\n"

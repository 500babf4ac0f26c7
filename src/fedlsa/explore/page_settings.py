"""Everything that the page lets one choose, as one value that fits into the page's address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import numpy as np

from .. import checks
from ..algorithms import Algorithm, Scaffnew, supporting
from ..errors import ArgumentError, ArgumentTypeError, FedLSAError
from ..problems import FAMILIES
from ..sampling import IID, Markov, Sampling

PROBLEMS = {family.name: family.title for family in FAMILIES.values()} | {"files": "Your files"}
METHODS = tuple(kind.__name__ for kind in supporting("plan").values())
AXES = {"communications": "communications", "samples": "observations per agent", "bytes": "bytes sent, all agents"}
TASKS = {"regression": "a linear model", "value": "a value function"}
STARTS: dict[str, dict[str, Any]] = {  # settings at which each problem shows drift
    "ring": {},
    "garnet": {"agents": 10, "step_size": 0.03, "local_steps": 3000},
    "lakes": {"agents": 10, "step_size": 0.02, "local_steps": 5000},
    "cartpoles": {"agents": 10, "step_size": 0.05, "local_steps": 5000},
    "files": {"agents": 2},
}
OF_PROBLEM = {  # the settings of each problem that the page shows; `spread` is how far apart `low` and `high` lie
    "ring": ("agents", "spread", "noise"),
    "garnet": ("preset", "heterogeneous", "perturbation", "agents", "features", "discount", "seed"),
    "lakes": ("agents", "spread", "discount"),
    "cartpoles": ("agents", "spread", "discount"),
    "files": ("task", "state", "next_state", "discount", "weight"),
}
MOST = {"agents": 200, "noise": 10, "perturbation": 10, "features": 16, "seed": 2**31 - 1, "spread": 1}  # on the page
POINTS = 120  # recorded rounds on a logarithmic axis

Rule = Callable[[str, Any], Any]
_unit = partial(checks.real, above=0, at_most=1)
_text: Rule = lambda name, value: str(value)  # noqa: E731


@dataclass(frozen=True)
class PageSettings:
    """One setting of the page. Fields of other kinds of problems than the chosen one play no part.

    spread : 0 for equal sites, lakes or poles, 1 for those of the examples; noise : of the sites in a plane;
    probability : None for 1 / local_steps
    x, scale : the horizontal axis of the error; epsilon : the accuracy that a plan is asked for
    round : the round whose inside is shown first, and saved
    """

    problem: str = "ring"
    agents: int = 5
    noise: float = 0.2
    preset: str = "paper"
    heterogeneous: bool = True
    perturbation: float = 0.02
    discount: float = 0.95
    features: int = 8
    seed: int = 42
    spread: float = 1.0
    task: str = "regression"
    target: str = ""
    state: str = "state"
    next_state: str = "next_state"
    weight: str = "sites"
    step_size: float = 0.05
    local_steps: int = 100
    probability: float | None = None
    rounds: int = 50
    sampling: str = "iid"
    thin: int = 1
    seeds: int = 20
    x: str = "communications"
    scale: str = "linear"
    epsilon: float = 0.1
    round: int = 3

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, RULES[field.name](field.name, getattr(self, field.name)))

    def methods(self) -> list[Algorithm]:
        """All methods with equally long rounds, in the mean; Scaffnew has a rate of its own if told so."""
        fixed = [kind.with_steps(self.step_size, self.local_steps) for kind in supporting("plan").values()]
        return [replace(m, probability=self.chance) if isinstance(m, Scaffnew) else m for m in fixed]

    def method(self, name: str) -> Algorithm:
        return self.methods()[METHODS.index(name)]

    @property
    def chance(self) -> float:
        """Scaffnew's probability to communicate."""
        return 1 / self.local_steps if self.probability is None else self.probability

    @property
    def used_steps(self) -> int:
        """Local steps of a round: every thin-th observation of a trajectory makes one."""
        return self.local_steps if self.sampling == "iid" else max(1, self.local_steps // self.thin)

    def order(self) -> Sampling:
        """How agents meet their observations."""
        return IID() if self.sampling == "iid" else Markov(thin=self.thin)

    def record(self) -> list[int] | int:
        """The rounds at which errors are known."""
        if self.scale == "linear":
            return 200
        return [0, *(int(t) for t in np.unique(np.geomspace(1, self.rounds, POINTS).round()))]

    def query(self) -> dict[str, str]:
        """What differs from the defaults, as text: the settings' part of the address."""
        start = PageSettings()
        changed = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: _as_text(v) for k, v in changed.items() if v != getattr(start, k)}

    def address(self) -> str:
        """The same, as it stands behind the question mark."""
        return urlencode(self.query())

    @classmethod
    def start(cls, problem: str) -> PageSettings:
        """Where the page begins with a problem."""
        return cls(problem=problem, **STARTS[problem])

    @classmethod
    def from_query(cls, query: Mapping[str, Any]) -> tuple[PageSettings, list[str]]:
        """Settings from the parts of an address, and a line for each part that could not be used."""
        found, complaints = cls(), []
        for name, text in query.items():
            try:
                found = replace(found, **{name: _parsed(name, text[-1] if isinstance(text, list) else text)})
            except FedLSAError as error:
                complaints.append(str(error))
        return found, complaints

    @classmethod
    def from_address(cls, text: str) -> PageSettings:
        """Settings from an address of the page, or from what stands behind its question mark."""
        rule = f"settings must be an address of the page, or name=value&name=value; got {checks.show(text)}"
        front, mark, _ = text.partition("?")
        whole = text.startswith(("http://", "https://")) or (mark and "=" not in front)  # else a value has the mark
        try:
            query = urlsplit(text).query if whole else text
        except ValueError:
            raise ArgumentError(rule) from None
        if query and "=" not in query:
            raise ArgumentError(rule)
        found, complaints = cls.from_query(dict(parse_qsl(query, keep_blank_values=True)))
        if complaints:
            raise ArgumentError(complaints[0])
        return found


def _probability(name: str, value: Any) -> float | None:
    return None if value is None else _unit(name, value)


RULES: dict[str, Rule] = {
    "problem": partial(checks.choice, options=PROBLEMS),
    **{
        name: replace(parameter, at_most=MOST.get(name, parameter.at_most)).check
        for family in FAMILIES.values()
        for name, parameter in family.parameters.items()
        if name in OF_PROBLEM[family.name]
    },
    "task": partial(checks.choice, options=TASKS),
    "target": _text,
    "state": _text,
    "next_state": _text,
    "weight": partial(checks.choice, options=("sites", "samples")),
    "step_size": partial(checks.real, above=0, at_most=100),
    "local_steps": partial(checks.integer, at_least=1, at_most=1_000_000),
    "probability": _probability,
    "rounds": partial(checks.integer, at_least=1, at_most=100_000),
    "sampling": partial(checks.choice, options=("iid", "markov")),
    "thin": partial(checks.integer, at_least=1, at_most=1000),
    "seeds": partial(checks.integer, at_least=1, at_most=1000),
    "x": partial(checks.choice, options=AXES),
    "scale": partial(checks.choice, options=("linear", "log")),
    "epsilon": partial(checks.real, above=0),
    "round": partial(checks.integer, at_least=1, at_most=20),
}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(value) if isinstance(value, float) else str(value)


def _parsed(name: str, text: str) -> Any:
    """The value that the text stands for; its range is checked by `PageSettings`."""
    if name not in RULES:
        raise ArgumentError(f"names must be of the page's settings; got {checks.show(name)}")
    kind = type(getattr(PageSettings(), name))
    if kind is bool:
        if text not in ("yes", "no"):
            raise ArgumentTypeError(f"{name} must be yes or no; got {checks.show(text)}")
        return text == "yes"
    if kind is str:
        return text
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        what = "an integer" if kind is int else "a number"
        raise ArgumentTypeError(f"{name} must be {what}; got {checks.show(text)}") from None

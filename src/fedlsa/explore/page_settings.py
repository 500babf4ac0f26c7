"""Everything that the page lets one choose, as one value that fits into its address; and the problem it makes."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import numpy as np

from .. import algorithms, checks, fitting
from ..algorithms import Algorithm, Scaffnew, supporting
from ..errors import ArgumentError, ArgumentTypeError, FedLSAError
from ..problems import FAMILIES, Problem, make
from ..sampling import IID, Markov, Sampling

PROBLEMS = {family.name: family.title for family in FAMILIES.values()} | {"files": "Your files"}
METHODS = tuple(kind.__name__ for kind in supporting("plan").values())


def _slow_third(agents: int) -> dict[str, Any]:
    slow = max(1, agents // 3)
    return {"length_factors": (1 / 3,) * slow + (1.0,) * (agents - slow)}


def _half(agents: int) -> dict[str, Any]:
    return {"participants": (agents + 1) // 2}


BESIDE: dict[str, tuple[str, type[Algorithm], Callable[[int], dict[str, Any]]]] = {  # one more: its settings by N
    "slow": ("a third of the agents three times slower", algorithms.UnequalWork, _slow_third),
    "fednova": ("FedNova: averages normalised, a third slower", algorithms.FedNova, _slow_third),
    "dropouts": ("drop-outs of 20%", algorithms.Dropouts, lambda _: {"dropout": 0.2}),
    "few": ("one random coordinate sent", algorithms.Compressed, lambda _: {"send": algorithms.RandK(1)}),
    "bits": (
        "8 bits per number, within ±10",
        algorithms.Compressed,
        lambda _: {"send": algorithms.Rounding(8, radius=10.0)},
    ),
    "late": ("late by up to two rounds", algorithms.Delayed, lambda _: {"delays": (0.5, 0.3, 0.2)}),
    "buffered": ("a server that waits for half of the agents", algorithms.Buffered, _half),
    "momentum": ("a server with momentum 0.5", algorithms.Momentum, lambda _: {"momentum": 0.5}),
    "svrg": ("SVRG: passes over each agent's table", algorithms.SVRG, lambda _: {}),
    "fedprox": ("FedProx: local steps pulled back, by 0.1", algorithms.FedProx, lambda _: {"pull": 0.1}),
    "fedlin": ("FedLin: drift measured at the start of a round", algorithms.FedLin, lambda _: {}),
    "scaffold": ("Scaffold: half of the agents in a round", algorithms.Scaffold, _half),
    "tracking": ("GradientTracking: tracked drift", algorithms.GradientTracking, lambda _: {}),
}
AXES = {"communications": "rounds", "samples": "observations per agent", "bytes": "bytes sent, all agents"}
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
    "files": ("task", "state", "next_state", "discount", "weight", "missing"),
}
MAX_SEED, MAX_ROUNDS = 2**31 - 1, 100_000  # on the page
MAX_MOVES_LETTERS = 4000  # of the setting that holds moved solutions
PRESETS = {"authors": "of the authors' code", "paper": "of the paper's text"}
LOCAL_STEPS = (1, 2, 3, 5, 7, 10, 20, 30, 50, 70, 100, 200, 300, 500, 700, 1000, 2000, 3000, 5000, 7000, 10000)
POINTS = 120  # recorded rounds on a logarithmic axis

Rule = Callable[[str, Any], Any]
Moves = tuple[tuple[int, tuple[float, ...]], ...]  # of agents' own solutions: agent from 0 on, by how much
_positive = partial(checks.real, above=0)
_text: Rule = lambda name, value: str(value)  # noqa: E731


def _setting(
    default: Any, label: str, offers: Any = (), rule: Rule | None = None, element: str = "", unit: str = ""
) -> Any:
    """All that is to be said about one setting; checks, the address and the controls follow from it.

    offers : places of a slider, or words by value; rule : of any value; unit : what is counted, read aloud after it
    element : the kind of control: slider, number, select, radio, checkbox, text, columns, or none
    """
    if isinstance(offers, Mapping):
        rule, element = rule or partial(checks.choice, options=offers), element or "radio"
    element = element or ("slider" if offers else "text")
    about = {"label": label, "offers": offers, "rule": rule or _text, "element": element, "unit": unit}
    return field(default=default, metadata=about)


def _family_rule(name: str, at_most: float | None = None) -> Rule:
    """The rule of the families of problems for one of their parameters; at_most : on the page."""
    parameter = next(family.parameters[name] for family in FAMILIES.values() if name in family.parameters)
    return (parameter if at_most is None else replace(parameter, at_most=at_most)).check


def _count(at_most: int) -> Rule:
    return partial(checks.integer, at_least=1, at_most=at_most)


def _probability(name: str, value: Any) -> float | None:
    return None if value is None else _positive(name, value, at_most=1)


def _logarithmic(low: float, high: float, places: int) -> list[float]:
    return [float(f"{value:.2g}") for value in np.geomspace(low, high, places)]


def split_moves(text: str) -> Moves:
    """Agents (from 0 on) and by how much their own solutions are moved, from "2:0.5,-1;4:0,0.25" (agents from 1 on)."""
    found = {}
    for part in filter(None, text.split(";")):
        agent, _, numbers = part.partition(":")
        found[int(agent) - 1] = tuple(float(v) for v in numbers.split(","))
    return tuple(sorted(found.items()))


def _moves(name: str, value: Any) -> str:
    text = str(value)
    try:
        split = split_moves(text)
    except ValueError:
        split = ((-1, ()),)
    if any(agent < 0 or not np.isfinite(delta).all() for agent, delta in split) or len(text) > MAX_MOVES_LETTERS:
        raise ArgumentError(f"{name} must be agents with numbers, such as 2:0.5,-1;4:0,0.25; got {checks.show(text)}")
    return text


def split_names(text: str) -> list[str]:
    """The names of columns in a setting; a name with a comma stands in quotation marks."""
    try:
        return list(filter(None, next(csv.reader(io.StringIO(text, newline="")), [])))
    except csv.Error:
        return [text]


def join_names(names: Sequence[str]) -> str:
    """The setting of some columns."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(names)
    return line.getvalue()[:-2]


def column_term(name: str, text: bool) -> str:
    """A column in a setting: C(name) for categories, N(name) for numbers whose name looks like one of these."""
    return f"C({name})" if text else f"N({name})" if name.startswith(("C(", "N(")) else name


def column_name(term: str) -> tuple[str, bool]:
    """The column that a term of a setting names, and whether it stands for categories."""
    inside = term[2:-1] if term.startswith(("C(", "N(")) and term.endswith(")") else term
    return inside, term.startswith("C(") and inside != term


@dataclass(frozen=True)
class PageSettings:
    """One setting of the page. Fields of other kinds of problems than the chosen one play no part.

    columns : terms as in a line of a CSV file (`column_term`); "" for all others than the target
    spread : 0 for equal sites, lakes or poles, 1 for those of the examples; noise : of the sites in a plane;
    probability : None for 1 / local_steps
    beside : one more method of BESIDE, or "none"
    x, scale : the horizontal axis of the error; epsilon : the accuracy that a plan is asked for
    round : where the cursor of the picture stands, and whose inside is saved
    """

    problem: str = _setting("ring", "problem", PROBLEMS, element="select")
    agents: int = _setting(
        5, "agents N", (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 70, 100), _family_rule("agents", 200), unit="agents"
    )
    noise: float = _setting(0.2, "noise", (0.0, 0.05, 0.1, 0.2, 0.5, 1.0), _family_rule("noise", 10))
    preset: str = _setting("paper", "instance", PRESETS, _family_rule("preset"), "select")
    heterogeneous: bool = _setting(True, "two different worlds", (), _family_rule("heterogeneous"), "checkbox")
    perturbation: float = _setting(
        0.02,
        "perturbation within a world",
        (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
        _family_rule("perturbation", 10),
    )
    discount: float = _setting(
        0.95, "discount \u03b3", (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99), _family_rule("discount")
    )
    features: int = _setting(8, "features d", tuple(range(2, 17)), _family_rule("features", 16), unit="features")
    seed: int = _setting(42, "seed of the worlds", (0, MAX_SEED), _family_rule("seed", MAX_SEED), "number")
    spread: float = _setting(1.0, "how much they differ", [k / 10 for k in range(11)], _family_rule("spread", 1))
    task: str = _setting("regression", "estimate", {"regression": "a linear model", "value": "a value function"})
    target: str = _setting("", "column to be explained", element="target")
    columns: str = _setting("", "columns that explain it", element="columns")
    missing: str = _setting("error", "rows that lack a value", {"error": "are an error", "drop": "are left out"})
    state: str = _setting("state", "state columns begin with")
    next_state: str = _setting("next_state", "next-state columns begin with")
    weight: str = _setting("sites", "sites count", {"sites": "all alike", "samples": "by their rows"})
    step_size: float = _setting(0.05, "step size η", _logarithmic(1e-3, 3, 61), partial(_positive, at_most=100))
    local_steps: int = _setting(100, "local steps H", LOCAL_STEPS, _count(1_000_000), unit="local steps")
    probability: float | None = _setting(
        None, "Scaffnew's probability p (1/H if empty)", _logarithmic(1e-4, 1, 41), _probability
    )
    rounds: int = _setting(
        50, "rounds T", (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000), _count(MAX_ROUNDS), unit="rounds"
    )
    sampling: str = _setting("iid", "observations", {"iid": "independent", "markov": "along a trajectory"})
    thin: int = _setting(1, "use every q-th observation, q", (1, 2, 3, 5, 10, 20, 50, 100), _count(1000))
    seeds: int = _setting(20, "seeds", (1, 5, 10, 20, 50, 100, 200), _count(1000), unit="seeds")
    beside: str = _setting(
        "none", "beside them", {"none": "no other"} | {k: v[0] for k, v in BESIDE.items()}, None, "select"
    )
    x: str = _setting("communications", "horizontal axis", AXES, element="select")
    scale: str = _setting("linear", "its scale", {"linear": "linear", "log": "logarithmic"}, element="select")
    epsilon: float = _setting(0.1, "accuracy ε (root mean squared error)", _logarithmic(0.01, 1, 21), _positive)
    round: int = _setting(3, "round", (), partial(checks.integer, at_least=0, at_most=MAX_ROUNDS), "none")
    moves: str = _setting("", "moved solutions", (), _moves, "none")

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            object.__setattr__(self, name, setting.metadata["rule"](name, getattr(self, name)))

    def shown(self) -> tuple[str, ...]:
        """The names of all methods: the three, and the one beside them."""
        return METHODS if self.beside == "none" else (*METHODS, BESIDE[self.beside][1].__name__)

    def methods(self, agents: int = 0) -> list[Algorithm]:
        """All methods with equally long rounds, in the mean; Scaffnew has a rate of its own if told so.

        agents : how many there are, where files say so
        """
        fixed = [kind.with_steps(self.step_size, self.local_steps) for kind in supporting("plan").values()]
        if self.beside != "none":
            _, kind, own = BESIDE[self.beside]
            fixed.append(kind.with_steps(self.step_size, self.local_steps, **own(agents or self.agents)))
        return [replace(m, probability=self.chance) if isinstance(m, Scaffnew) else m for m in fixed]

    def method(self, name: str, agents: int = 0) -> Algorithm:
        return self.methods(agents)[self.shown().index(name)]

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
        chosen = {name: getattr(self, name) for name, f in SETTINGS.items() if getattr(self, name) != f.default}
        return {k: ("no", "yes")[v] if isinstance(v, bool) else str(v) for k, v in chosen.items()}

    def address(self) -> str:
        """The same, as it stands behind the question mark."""
        return urlencode(self.query())

    @classmethod
    def start(cls, problem: str) -> PageSettings:
        """Where the page begins with a problem."""
        return cls(problem=problem, **STARTS[problem])

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> tuple[PageSettings, dict[str, str]]:
        """Settings from the parts of an address, and a line for each part that could not be used, by its name."""
        chosen, complaints = cls(), dict[str, str]()
        for name, text in query.items():
            try:
                chosen = replace(chosen, **{name: _parsed(name, text)})
            except FedLSAError as error:
                complaints[name] = str(error)
        return chosen, complaints

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
        chosen, complaints = cls.from_query(dict(parse_qsl(query, keep_blank_values=True)))
        for complaint in complaints.values():
            raise ArgumentError(complaint)
        return chosen


SETTINGS: dict[str, Any] = {setting.name: setting for setting in fields(PageSettings)}


def _parsed(name: str, text: str) -> Any:
    """The value that the text stands for; its range is checked by `PageSettings`."""
    if name not in SETTINGS:
        raise ArgumentError(f"names must be of the page's settings; got {checks.show(name)}")
    kind = type(SETTINGS[name].default)
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


# ---- how the problem of the settings is made: one description of the call serves to make it and to print it

CONTROLLED = {"ring": {"ideal": True}}  # so that agents who differ by 0 do not drift, and noise 0 leaves no floor
Stamps = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Call:
    """A call of a function of fedlsa that makes a problem: fl.problems.garnet(agents=10, ...)."""

    function: str
    arguments: tuple[tuple[str, Any], ...]
    moves: Moves = ()

    def __str__(self) -> str:
        moved = f".moved({ {c: list(delta) for c, delta in self.moves} })" if self.moves else ""
        return f"fl.{self.function}({', '.join(f'{k}={_shown(v)}' for k, v in self.arguments)}){moved}"

    def problem(self) -> Problem:
        """The problem; the same object as long as nothing else is asked for and its files stay as they are."""
        files = next((v for k, v in self.arguments if k == "sites"), ())
        return _build(self, stamps(files))

    def fit(self) -> fitting.Fit:
        return fitting.fit(**self.plain())

    def plain(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in self.arguments}


def stamps(files: Sequence[str]) -> Stamps:
    """When each file was written, and its length; zeros where there is none, of which its reader complains."""
    found = []
    for file in files:
        try:
            known = os.stat(file)
            found.append((known.st_mtime_ns, known.st_size))
        except OSError:
            found.append((0, 0))
    return tuple(found)


def call(s: PageSettings, files: tuple[str, ...] = ()) -> Call:
    """How the problem of these settings is made; files : those of the sites, named by the user."""
    if s.problem in FAMILIES:
        known = FAMILIES[s.problem].parameters
        asked = {name: getattr(s, name) for name in OF_PROBLEM[s.problem]} | CONTROLLED.get(s.problem, {})
        if "low" in known:
            ends, spread = (known["low"].default, known["high"].default), asked.pop("spread")
            middle = sum(ends) / 2
            asked["low"], asked["high"] = (round(middle + spread * (end - middle), 4) for end in ends)
            if asked["low"] == asked["high"]:  # logs of equal poles would differ: everybody has the same one
                asked |= {"agents": 1, "assignment": (0,) * asked["agents"]}
        changed = [(k, v) for k, v in asked.items() if k not in known or v != known[k].default]
        ordered = tuple(sorted(changed, key=lambda one: [*known, one[0]].index(one[0])))
        return Call(f"problems.{s.problem}", ordered, split_moves(s.moves))
    if not files:
        raise ArgumentError("files must hold one file per site, CSV or Parquet; got none yet")
    if s.task == "regression":
        if not s.target:
            raise ArgumentError("target must be a column that holds numbers in every file; got none")
        task: Any = _regression(s)
    else:
        task = fitting.Value(s.discount, state=s.state, next_state=s.next_state)
    return Call("site_problem", (("sites", files), ("task", task), ("weight", s.weight)), split_moves(s.moves))


def fit_call(s: PageSettings, files: tuple[str, ...]) -> Call:
    """How the same files and columns are fitted; nothing is planned or run."""
    return Call("fit", (*call(s, files).arguments, ("plan", False)))


def _regression(s: PageSettings) -> fitting.Regression:
    """The chosen columns; categories among them make it a formula."""
    columns = [column_name(term) for term in split_names(s.columns)]
    if not any(text for _, text in columns):
        return fitting.Regression(s.target, tuple(name for name, _ in columns) or None, missing=s.missing)
    terms = [f"C({_quoted(name)})" if text else _quoted(name) for name, text in columns]
    return fitting.Regression(f"{_quoted(s.target)} ~ {' + '.join(terms)}", missing=s.missing)


def _quoted(name: str) -> str:
    """A column in a formula."""
    if "`" in name or (len(name) - len(name.rstrip("\\"))) % 2:
        rule = "columns must have no backtick in their names, nor a backslash at their end, beside categories"
        raise ArgumentError(f"{rule}; got {name!r}")
    return name if name.isidentifier() else f"`{name}`"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[0] * {len(value)}" if set(value) == {0} else repr([Path(v).name for v in value])  # 0: an assignment
    return f"fl.{value!r}" if is_dataclass(value) else repr(value)


@lru_cache(maxsize=8)
def _build(call: Call, changed: Stamps) -> Problem:
    if call.moves:
        return _build(replace(call, moves=()), changed).moved(dict(call.moves))
    arguments, family = call.plain(), call.function.removeprefix("problems.")
    return make(family, **arguments) if family in FAMILIES else fitting.site_problem(**arguments)

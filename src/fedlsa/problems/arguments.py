"""What constructors of problems have in common: one tuple of arrays per table, recipes, and typed parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError
from .system import Integers, Problem

P = ParamSpec("P")
Made = TypeVar("Made")


def agents(tables: int, assignment: ArrayLike | None, weights: ArrayLike | None) -> tuple[Integers, Floats]:
    """The assignment (N,) and weights (N,) that every constructor accepts, checked; by default an agent per table."""
    given = np.arange(tables) if assignment is None else checks.array("assignment", assignment, ("agents",))
    assigned = given.astype(np.int64)
    wrong = (assigned != given) | (assigned < 0) | (assigned >= tables)
    if wrong.any() or not len(assigned):
        got = f"{given[wrong][0]:g}" if len(assigned) else "an empty array"
        raise ArgumentError(f"assignment must hold table numbers from 0 to {tables - 1}; got {got}")
    w = np.ones(len(assigned)) if weights is None else checks.array("weights", weights, (len(assigned),))
    if (w <= 0).any():
        c = int(np.argmax(w <= 0))
        raise ArgumentError(f"weights must be positive; got {w[c]:g} for agent {c}")
    return assigned, w / w.sum()


def tuples(name: str, value: Any, fields: Sequence[str], optional: int = 0) -> list[tuple[Any, ...]]:
    """A list with one tuple per table; the last `optional` fields may be missing."""
    form = f"({', '.join(fields)})"
    rule = f"a list of tuples {form}, one per table"
    if isinstance(value, Mapping):
        raise ArgumentTypeError(f"{name} must be {rule}; got {checks.show(value)}")
    out = []
    for m, entry in enumerate(checks.entries(name, value, rule)):
        if not isinstance(entry, (tuple, list)):
            raise ArgumentTypeError(f"{name}[{m}] must be a tuple {form}; got {checks.show(entry)}")
        if not len(fields) - optional <= len(entry) <= len(fields):
            raise ArgumentError(f"{name}[{m}] must be a tuple {form}; got {len(entry)} entries")
        out.append(tuple(entry))
    if not out:
        raise ArgumentError(f"{name} must hold at least one table; got an empty list")
    return out


def same_columns(name: str, tables: Sequence[Any]) -> None:
    """Refuse data frames whose columns differ or stand in another order: arrays are taken by position."""
    named = [(m, [str(c) for c in t.columns]) for m, t in enumerate(tables) if hasattr(t, "columns")]
    for m, columns in named:
        if columns != named[0][1]:
            rule = f"{name} must have the same columns in the same order in every table, {', '.join(named[0][1][:8])}"
            raise ArgumentError(f"{rule}; got {', '.join(columns[:8])} in table {m}")


def filled(name: str, value: ArrayLike, shape: Sequence[int | str]) -> Floats:
    """An array of finite numbers with at least one row and one column: a table has an outcome and a dimension."""
    out = checks.array(name, value, shape)
    if 0 in out.shape:
        raise ArgumentError(f"{name} must have at least one row and one column; got shape {out.shape}")
    return out


def offsets(lengths: Sequence[int]) -> Integers:
    """(M + 1,): where each of the tables begins when they stand one after the other."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def recorded(problem: Problem, constructor: str, settings: dict[str, Any], /, **arrays: ArrayLike | None) -> Problem:
    """The problem with its recipe: arguments as given, for a law that is normalised twice may differ in a last bit.

    arrays : of which it gets copies, for the caller may change the originals
    """
    copies = {name: None if value is None else np.array(checks.as_array(name, value)) for name, value in arrays.items()}
    # set on the object that was just made: a copy would check all its tables again
    problem.__setstate__({"recipe": {"constructor": constructor, "arguments": settings | copies}})
    return problem


def call_by_name(function: Callable[..., Made], given: Mapping[str, Any], what: str) -> Made:
    """Call a function with arguments from elsewhere: unknown names and missing ones are refused before the call."""
    known = inspect.signature(function).parameters
    for key in given:
        checks.choice(f"a name among the {what} of {function.__name__}", key, known)
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in given:
            raise ArgumentError(f"{what} must hold {key!r} for {function.__name__}; got {checks.show(list(given))}")
    return function(**given)


@dataclass(frozen=True)
class Parameter:
    """One number, word or switch that a family of problems is made from.

    help : what it is, a sentence for people; at_least, at_most, above, below : of a number; options : the words known
    kind, default : int, float, bool or str, and the value that is meant without it, both of the family's signature
    """

    help: str
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    options: tuple[str, ...] = ()
    kind: type = int
    default: Any = None

    def check(self, name: str, value: Any) -> Any:
        """The clean value, or an error that says the name, the rule and the value."""
        if self.kind is bool:
            return checks.boolean(name, value)
        if self.kind is str:
            return checks.choice(name, value, self.options)
        bounds = {k: v for k in ("at_least", "at_most", "above", "below") if (v := getattr(self, k)) is not None}
        return checks.integer(name, value, **bounds) if self.kind is int else checks.real(name, value, **bounds)


@dataclass(frozen=True)
class ProblemFamily:
    """Problems of one kind, made by `make` from typed parameters; title : a few words that a list of choices shows."""

    name: str
    title: str
    make: Callable[..., Problem]
    parameters: dict[str, Parameter]


def family(
    title: str, /, *, own_recipe: bool = True, **parameters: Parameter
) -> Callable[[Callable[P, Problem]], Callable[P, Problem]]:
    """A decorator: the function that makes problems of a family gets checked arguments, and its settings as recipe.

    parameters : of the function, by name; types and defaults are those of its signature
    own_recipe : False where the problem keeps the recipe of what it is made from
    """

    def decorate(function: Callable[P, Problem]) -> Callable[P, Problem]:
        signature = inspect.signature(function, eval_str=True)
        typed = {
            name: replace(p, kind=signature.parameters[name].annotation, default=signature.parameters[name].default)
            for name, p in parameters.items()
        }

        @functools.wraps(function)
        def make(*args: P.args, **kwargs: P.kwargs) -> Problem:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            given.arguments |= {name: p.check(name, given.arguments[name]) for name, p in typed.items()}
            problem = function(*given.args, **given.kwargs)
            if own_recipe:
                settings = {name: given.arguments.pop(name) for name in typed}
                recorded(problem, function.__name__, settings, **given.arguments).__setstate__({"laboratory": True})
            return problem

        vars(make)["family"] = ProblemFamily(function.__name__, title, make, typed)
        return make

    return decorate

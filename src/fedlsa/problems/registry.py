"""The one registry: families of problems by name, with typed parameters, and everything that a recipe can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import checks
from ..errors import ArgumentTypeError
from .arguments import ProblemFamily, call_by_name
from .families import cartpoles, lakes, ring
from .garnets import garnet
from .mdp import from_chains, from_mdps
from .observations import from_observations, regression
from .system import Problem
from .transitions import from_transitions

FAMILIES: dict[str, ProblemFamily] = {make.__name__: vars(make)["family"] for make in (ring, garnet, lakes, cartpoles)}
CONSTRUCTORS: dict[str, Callable[..., Problem]] = {
    make.__name__: make for make in (from_mdps, from_chains, from_transitions, regression, from_observations)
} | {name: family.make for name, family in FAMILIES.items()}


def make(family: str, /, **settings: Any) -> Problem:
    """A problem of a family, by name: make("garnet", agents=10) is fl.problems.garnet(agents=10).

    family : a name of `FAMILIES`, whose entry lists the parameters with their types, defaults, bounds and meaning
    settings : of the family, by name
    """
    return call_by_name(FAMILIES[checks.choice("family", family, FAMILIES)].make, settings, "arguments")


def from_recipe(recipe: Mapping[str, Any]) -> Problem:
    """The problem that `problem.recipe` describes: {"constructor": name, "arguments": {...}}."""
    if not isinstance(recipe, Mapping) or not {"constructor", "arguments"} <= recipe.keys():
        rule = "recipe must be a mapping with the keys 'constructor' and 'arguments'"
        raise ArgumentTypeError(f"{rule}; got {checks.show(recipe)}")
    if not isinstance(recipe["arguments"], Mapping):
        raise ArgumentTypeError(f"arguments must be a mapping; got {checks.show(recipe['arguments'])}")
    constructor = CONSTRUCTORS[checks.choice("constructor", recipe["constructor"], CONSTRUCTORS)]
    return call_by_name(constructor, recipe["arguments"], "arguments")

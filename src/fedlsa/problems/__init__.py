"""What is to be solved: observations per agent, the systems they average to, and ways to make them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError
from . import features
from .families import cartpoles, lakes, ring
from .garnet import garnet
from .gymnasium import from_gymnasium
from .mdp import from_chains, from_mdps
from .minari import from_minari
from .observations import from_observations, regression
from .rollouts import rollout
from .system import Chain, Dense, Problem, RankOne
from .transitions import Log, from_logs, from_transitions

CONSTRUCTORS: dict[str, Callable[..., Problem]] = {
    "garnet": garnet,
    "from_mdps": from_mdps,
    "from_chains": from_chains,
    "from_transitions": from_transitions,
    "regression": regression,
    "from_observations": from_observations,
    "ring": ring,
    "cartpoles": cartpoles,
}
DATA = ("regression", "from_transitions", "from_observations")  # whose arguments are rows of sites, or made of them


def from_recipe(recipe: Mapping[str, Any]) -> Problem:
    """The problem that `problem.recipe` describes: {"constructor": name, "arguments": {...}}."""
    if not isinstance(recipe, Mapping) or not {"constructor", "arguments"} <= recipe.keys():
        rule = "recipe must be a mapping with the keys 'constructor' and 'arguments'"
        raise ArgumentTypeError(f"{rule}; got {checks.show(recipe)}")
    name = checks.choice("constructor", recipe["constructor"], CONSTRUCTORS)
    made_of, known = recipe["arguments"], inspect.signature(CONSTRUCTORS[name]).parameters
    if not isinstance(made_of, Mapping):
        raise ArgumentTypeError(f"arguments must be a mapping; got {checks.show(made_of)}")
    for key in made_of:
        checks.choice(f"an argument of {name}", key, known)
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in made_of:
            raise ArgumentError(f"arguments must hold {key!r} for {name}; got {checks.show(list(made_of))}")
    return CONSTRUCTORS[name](**made_of)


__all__ = [
    "CONSTRUCTORS",
    "Chain",
    "Dense",
    "Log",
    "Problem",
    "RankOne",
    "cartpoles",
    "features",
    "from_chains",
    "from_gymnasium",
    "from_logs",
    "from_mdps",
    "from_minari",
    "from_observations",
    "from_recipe",
    "from_transitions",
    "garnet",
    "lakes",
    "regression",
    "ring",
    "rollout",
]

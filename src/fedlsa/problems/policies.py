"""Policies as users state them: an array, a function of a batch of states, or a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError
from .features.base import numbered

RULE = "an array (states, actions), a function from a batch of states to probabilities or actions, or 'random'"


def prepared(policy: Any, actions: int, name: str = "policy") -> Callable[[NDArray[Any]], Floats]:
    """The policy as a function from a batch of n states to probabilities (n, actions); arrays are checked once.

    policy : (S, actions) probabilities or (S,) actions for numbered states; a function from the batch of states to
        (n, actions) probabilities or (n,) actions; or "random", all actions alike
    """
    if isinstance(policy, str):
        checks.choice(name, policy, ("random",))
        return lambda states: np.full((len(states), actions), 1 / actions)
    if callable(policy):
        return lambda states: _law(_called(policy, states, name), actions, f"what {name} gives", len(states))
    if checks.as_array(name, policy, RULE).ndim not in (1, 2):
        raise ArgumentTypeError(f"{name} must be {RULE}; got {checks.show(policy)}")
    table = _law(policy, actions, name, "S")
    return lambda states: table[numbered(states, len(table))]


def _law(value: Any, actions: int, name: str, n: int | str) -> Floats:
    """(n, actions): probabilities as they are, actions as certainties."""
    if checks.as_array(name, value).ndim == 2:
        return checks.probabilities(name, value, (n, actions))
    chosen = checks.array(name, value, (n,))
    return np.asarray(np.eye(actions)[numbered(chosen, actions, name)], np.float64)


def chosen(policy: Any, states: NDArray[Any], spaces: Sequence[Any]) -> NDArray[Any]:
    """(n, ...): the actions of a policy where they are not numbered; "random" draws from the n spaces themselves."""
    space = spaces[0]
    if isinstance(policy, str):
        checks.choice("policy", policy, ("random",))
        return np.stack([own.sample() for own in spaces])
    if not callable(policy):
        raise ArgumentTypeError(
            f"policy must be a function of states or 'random' for {space}; got {checks.show(policy)}"
        )
    out = checks.array("what policy gives", _called(policy, states, "policy"), (len(states), *space.shape))
    return np.asarray(out, space.dtype)


def _called(policy: Any, batch: NDArray[Any], name: str) -> Any:
    try:
        return policy(batch)
    except (TypeError, ValueError, IndexError) as error:
        rule = f"{name} must be a function of a batch of states of shape {batch.shape}"
        raise ArgumentError(f"{rule}; calling it failed: {error}") from error

"""Federated TD(0) on Markov decision processes that are given in full."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from .base import Problem, agents
from .markov import Flags
from .tables import own, recipe
from .td import Edges, temporal_difference


def from_mdps(
    P: ArrayLike,
    r: ArrayLike,
    policy: ArrayLike,
    features: ArrayLike,
    discount: float,
    terminal: ArrayLike | None = None,
    initial: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Federated TD(0) (eq:system_matrix): evaluate one policy in M decision processes with a shared linear model.

    P : (M, S, A, S) transition probabilities; r : (M, S, A) rewards; policy : (S, A); features : (S, d)
    terminal : (S,) or (M, S) booleans. A transition into a terminal state bootstraps nothing, and the chain restarts
        from `initial`; rows of P that start in a terminal state are not used
    initial : (S,) or (M, S) law in which a chain begins. With it, states that cannot be reached do not matter

    Each chain must have one closed class of states (else StationaryLawError); transient states and periods are fine.
    """
    kernel = checks.probabilities("P", P, ("M", "S", "A", "S"))
    M, S, A, _ = kernel.shape
    reward = checks.array("r", r, (M, S, A))
    pi = checks.probabilities("policy", policy, (S, A))
    phi = checks.array("features", features, (S, "d"))
    if phi.shape[1] == 0:
        raise ArgumentError(f"features must have at least one column; got shape {phi.shape}")
    gamma = checks.real("discount", discount, at_least=0, below=1)
    ends, law = _episodes(terminal, initial, M, S)
    held, w = agents(M, assignment, weights)
    joint = pi[:, :, None] * kernel
    joint[ends] = 0
    table, s, a, s_next = np.nonzero(joint)
    edges = Edges(table, s, s_next, reward[table, s, a], joint[table, s, a, s_next], ends[table, s_next])
    arrays = {"P": P, "r": r, "policy": policy, "features": features, "terminal": terminal, "initial": initial}
    given = {"discount": gamma, **{name: own(value) for name, value in arrays.items()}}
    source = recipe("from_mdps", weights, assignment, given)
    return temporal_difference(edges, M, phi, gamma, law, held, w, source)


def _episodes(terminal: ArrayLike | None, initial: ArrayLike | None, M: int, S: int) -> tuple[Flags, Floats | None]:
    """Which states end an episode, and where the next one begins, for each table: (M, S) both."""
    ends = np.zeros((M, S), np.bool_)
    if initial is None:
        if terminal is None:
            return ends, None
        raise ArgumentError("initial must be a law over the states when terminal is given; got None")
    law = np.broadcast_to(checks.probabilities("initial", initial, _shape("initial", initial, M, S)), (M, S))
    if terminal is not None:
        ends |= checks.flags("terminal", terminal, _shape("terminal", terminal, M, S))
    if (law[ends] > 0).any():
        m, s = (int(i) for i in np.argwhere(ends & (law > 0))[0])
        raise ArgumentError(
            f"initial must give terminal states no probability; got {law[m, s]:g} for state {s} of P[{m}]"
        )
    return ends, law


def _shape(name: str, value: Any, M: int, S: int) -> tuple[int, ...]:
    """(M, S) for an argument with one row per table, else (S,)."""
    return (M, S) if checks.as_array(name, value).ndim == 2 else (S,)

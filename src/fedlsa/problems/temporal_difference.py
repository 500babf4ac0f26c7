"""TD(0) as linear stochastic approximation (sec:appendix_td): from the transitions of finite chains to a problem.

An outcome z = (s, a, s') has A(z) = phi(s) (phi(s) - gamma phi(s'))^T and b(z) = r(s, a) phi(s) (eq:matr_A_def_td_app).
A transition into a terminal state bootstraps nothing, A(z) = phi(s) phi(s)^T, and the chain then restarts.

Outcomes have the probabilities of the stationary laws (assum:P_pi_ergodicity; chain_laws.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..checks import Floats
from .chain_laws import stationary_laws
from .system import Chain, Flags, Integers, Problem, RankOne


@dataclass(frozen=True, eq=False)
class Edges:
    """Transitions of all tables: from `origin` to `successor`, reward y, probability `conditional`, each (E,).

    ends : (E,) which of them end an episode, where any does
    """

    table: Integers
    origin: Integers
    successor: Integers
    y: Floats
    conditional: Floats
    ends: Flags | None = None


def temporal_difference(
    edges: Edges,
    tables: int,
    features: Floats,
    discount: float,
    initial: Floats | None,
    assignment: Integers,
    weights: Floats,
    recipe: dict[str, Any] | None = None,
) -> Problem:
    """The federated TD(0) problem (eq:system_matrix) of chains over S states, features : (S, d).

    initial : (M, S) law of a chain's first state, and of the state after the end of an episode; None if nothing ends
    """
    S = len(features)
    edges, ends = _merged(edges, np.zeros(len(edges.y), np.bool_) if edges.ends is None else edges.ends, S)
    begin = np.ones((tables, S), np.bool_)
    rows, right = _rows(features, discount, edges, ends)
    following = np.where(ends, S, edges.successor)
    if initial is not None:
        edges, right, following = _restarted(edges, ends, right, following, initial)
        begin = initial > 0
    node = edges.table * S + edges.origin
    mu = stationary_laws(node, edges.table * S + edges.successor, edges.conditional, begin, assignment).ravel()
    return Problem(
        observations=RankOne(
            rows,
            edges.origin.astype(np.uint32),
            right.astype(np.uint32),
            edges.y,
            following=following.astype(np.uint32),
            discount=discount,
            features=S,
        ),
        prob=mu[node] * edges.conditional,
        first=np.searchsorted(edges.table, np.arange(tables + 1)).astype(np.int64),
        assignment=assignment,
        weights=weights,
        chain=Chain(edges.origin, edges.successor, edges.conditional, mu, np.arange(tables + 1) * S),
        recipe=recipe or {},
    )


def _merged(edges: Edges, ends: Flags, S: int) -> tuple[Edges, Flags]:
    """Possible outcomes, sorted by table and origin; those that differ in nothing but the action become one."""
    target = np.where(ends, S, edges.successor)  # all terminal states are one: what follows does not depend on which
    key = (edges.table * S + edges.origin) * (S + 1) + target
    order = np.lexsort((edges.y, key))
    order = order[edges.conditional[order] > 0]
    key, y = key[order], edges.y[order]
    new = np.ones(len(key), np.bool_)
    new[1:] = (key[1:] != key[:-1]) | (y[1:] != y[:-1])
    conditional = np.add.reduceat(edges.conditional[order], np.flatnonzero(new))
    kept = order[new]
    return Edges(edges.table[kept], edges.origin[kept], edges.successor[kept], edges.y[kept], conditional), ends[kept]


def _rows(phi: Floats, gamma: float, edges: Edges, ends: Flags) -> tuple[Floats, Integers]:
    """phi(s) for every state, then phi(s) - gamma phi(s') once for every pair in use; the row of each outcome's v."""
    S = len(phi)
    pair = edges.origin * S + edges.successor
    if 4 * len(pair) >= S**2:  # many tables over few states: a list of all pairs is quicker than sorting
        used = np.zeros(S * S, np.bool_)
        used[pair[~ends]] = True
        pairs, number = np.flatnonzero(used), np.cumsum(used) - 1
        nth = number[pair]
    else:
        pairs = np.unique(pair[~ends])
        nth = np.searchsorted(pairs, pair)
    s, s_next = np.divmod(pairs, S)
    return np.concatenate([phi, phi[s] - gamma * phi[s_next]]), np.where(ends, edges.origin, S + nth)


def _restarted(
    edges: Edges, ends: Flags, right: Integers, following: Integers, initial: Floats
) -> tuple[Edges, Integers, Integers]:
    """Each outcome that ends an episode, split into one per state from which the next episode may begin."""
    table, state = np.nonzero(initial)
    choices = np.bincount(table, minlength=len(initial))
    copies = np.where(ends, choices[edges.table], 1)
    checks.memory("transitions, restarts from every initial state included,", int(copies.sum()), 100, "each of them")
    k = np.repeat(np.arange(len(copies)), copies)
    nth = np.arange(len(k)) - (np.cumsum(copies) - copies)[k]
    at = np.where(ends[k], (np.cumsum(choices) - choices)[edges.table[k]] + nth, 0)
    successor = np.where(ends[k], state[at], edges.successor[k])
    conditional = np.where(ends[k], initial[table[at], state[at]], 1.0) * edges.conditional[k]
    return Edges(edges.table[k], edges.origin[k], successor, edges.y[k], conditional), right[k], following[k]

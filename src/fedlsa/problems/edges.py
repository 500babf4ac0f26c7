"""Finite chains that are given in full: transitions merged, restarted where episodes end, with their stationary laws.

Outcomes have the probabilities of the stationary laws (assum:P_pi_ergodicity; chain_laws.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from .chain_laws import stationary_laws
from .system import Chain, Dense, Flags, Integers, Problem, RankOne


class Edges(NamedTuple):
    """Transitions of all tables: from `origin` to `successor`, reward y, probability `conditional`, each (E,).

    ends : (E,) which of them end an episode
    ratio : (E,) probability of the action under the policy that is evaluated over that under the one that acts; or None
    """

    table: Integers
    origin: Integers
    successor: Integers
    y: Floats
    conditional: Floats
    ends: Flags
    ratio: Floats | None = None

    def at(self, k: Integers) -> Edges:
        """Those of the given numbers."""
        return Edges._make(None if column is None else column[k] for column in self)


class Trajectories(NamedTuple):
    """Chains with their laws, and who follows them: what every problem on finite chains is made of.

    edges : sorted by table and origin; one that ends leads to where the next episode begins
    mu : (M, S) stationary laws; features : (S, d); assignment, weights : (N,)
    """

    edges: Edges
    mu: Floats
    features: Floats
    assignment: Integers
    weights: Floats

    def differences(self, discount: float) -> tuple[Floats, NDArray[np.uint32]]:
        """Rows phi(s) and, once for every pair in use, phi(s) - discount phi(s'); and (E,) the row that an edge has.

        An edge that ends bootstraps nothing: its row is phi(s).
        """
        edges, phi, S = self.edges, self.features, len(self.features)
        pair = edges.origin * S + edges.successor
        pairs = np.unique(pair[~edges.ends])
        s, s_next = np.divmod(pairs, S)
        right = np.where(edges.ends, edges.origin, S + np.searchsorted(pairs, pair)).astype(np.uint32)
        return np.concatenate([phi, phi[s] - discount * phi[s_next]]), right

    def problem(self, observations: RankOne | Dense, **options: Any) -> Problem:
        """The problem with one observation for each edge."""
        edges, (M, S) = self.edges, self.mu.shape
        mu = self.mu.ravel()
        prob = mu[edges.table * S + edges.origin] * edges.conditional
        first = np.searchsorted(edges.table, np.arange(M + 1)).astype(np.int64)
        chain = Chain(edges.origin, edges.successor, edges.conditional, mu, np.arange(M + 1) * S)
        return Problem(observations, prob, first, self.assignment, self.weights, chain, laboratory=True, **options)

    def check_ends(self) -> None:
        """Refuse visited states that lead to no end: discount 1 is well posed where every episode ends."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import breadth_first_order

        edges, (M, S) = self.edges, self.mu.shape
        k = np.flatnonzero(edges.conditional * (1 if edges.ratio is None else edges.ratio) > 0)
        base, end = edges.table[k] * S, M * S
        head = np.where(edges.ends[k], end, base + edges.successor[k])
        backwards = coo_array((np.ones(len(k)), (head, base + edges.origin[k])), shape=(end + 1, end + 1)).tocsr()
        backwards.sum_duplicates()
        never = np.append(self.mu > 0, False)
        never[breadth_first_order(backwards, end, return_predecessors=False)] = False
        rule = "discount must be below 1 where no end can be reached, at [table, state]"
        checks.refuse(never[:-1].reshape(M, S), np.ones((M, S)), rule)


def follow(
    edges: Edges, features: Floats, initial: Floats | None, tables: int, assignment: Integers, weights: Floats
) -> Trajectories:
    """Trajectories along given transitions of states with features : (S, d).

    initial : (M, S) law of a chain's first state, and of the state after the end of an episode; None if nothing ends
    """
    S = len(features)
    edges, begin = _merged(edges, S), np.ones((tables, S), np.bool_)
    if initial is not None:
        edges, begin = _restarted(edges, initial), initial > 0
    base = edges.table * S
    mu = stationary_laws(base + edges.origin, base + edges.successor, edges.conditional, begin, assignment)
    return Trajectories(edges, mu, features, assignment, weights)


def _merged(edges: Edges, S: int) -> Edges:
    """Possible outcomes, sorted by table and origin; those that differ in nothing but the action become one."""
    target = np.where(edges.ends, S, edges.successor)  # all terminal states are one: what follows is the same
    key = (edges.table * S + edges.origin) * (S + 1) + target
    keys = [column for column in (edges.ratio, edges.y, key) if column is not None]
    order = np.lexsort(keys)
    order = order[edges.conditional[order] > 0]
    new = np.arange(len(order)) == 0
    for column in keys:
        column = column[order]
        new[1:] |= column[1:] != column[:-1]
    conditional = np.add.reduceat(edges.conditional[order], np.flatnonzero(new))
    return edges.at(order[new])._replace(conditional=conditional)


def _restarted(edges: Edges, initial: Floats) -> Edges:
    """Each outcome that ends an episode, split into one per state from which the next episode may begin."""
    table, state = np.nonzero(initial)
    choices = np.bincount(table, minlength=len(initial))
    copies = np.where(edges.ends, choices[edges.table], 1)
    checks.memory("transitions, restarts from every initial state included,", int(copies.sum()), 100, "each of them")
    k = np.repeat(np.arange(len(copies)), copies)
    nth = np.arange(len(k)) - (np.cumsum(copies) - copies)[k]
    out = edges.at(k)
    at = np.where(out.ends, (np.cumsum(choices) - choices)[out.table] + nth, 0)
    successor = np.where(out.ends, state[at], out.successor)
    conditional = np.where(out.ends, initial[table[at], state[at]], 1.0) * out.conditional
    return out._replace(successor=successor, conditional=conditional)

"""Federated TD(0) on finite chains that are given in full: decision processes, or lists of transitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from .arguments import agents, filled, recorded, tuples
from .chain_laws import stationary_laws
from .features import numbered
from .system import Chain, Flags, Integers, Problem, RankOne

# TD(0) as linear stochastic approximation (sec:appendix_td): from the transitions of finite chains to a problem.
#
# An outcome z = (s, a, s') has A(z) = phi(s) (phi(s) - gamma phi(s'))^T, b(z) = r(s, a) phi(s) (eq:matr_A_def_td_app).
# A transition into a terminal state bootstraps nothing, A(z) = phi(s) phi(s)^T, and the chain then restarts.
#
# Outcomes have the probabilities of the stationary laws (assum:P_pi_ergodicity; chain_laws.py).


class Edges(NamedTuple):
    """Transitions of all tables: from `origin` to `successor`, reward y, probability `conditional`, each (E,).

    ends : (E,) which of them end an episode
    """

    table: Integers
    origin: Integers
    successor: Integers
    y: Floats
    conditional: Floats
    ends: Flags

    def at(self, k: Integers) -> Edges:
        """Those of the given numbers."""
        return Edges._make(column[k] for column in self)


def temporal_difference(
    edges: Edges,
    tables: int,
    features: Floats,
    discount: float,
    initial: Floats | None,
    assignment: Integers,
    weights: Floats,
) -> Problem:
    """The federated TD(0) problem (eq:system_matrix) of chains over S states, features : (S, d).

    initial : (M, S) law of a chain's first state, and of the state after the end of an episode; None if nothing ends
    """
    S = len(features)
    edges, begin = _merged(edges, S), np.ones((tables, S), np.bool_)
    if initial is not None:
        edges, begin = _restarted(edges, initial), initial > 0
    pair = edges.origin * S + edges.successor  # phi(s) - gamma phi(s') stands once for every pair in use
    pairs = np.unique(pair[~edges.ends])
    s, s_next = np.divmod(pairs, S)
    right = np.where(edges.ends, edges.origin, S + np.searchsorted(pairs, pair))
    node = edges.table * S + edges.origin
    mu = stationary_laws(node, edges.table * S + edges.successor, edges.conditional, begin, assignment).ravel()
    return Problem(
        observations=RankOne(
            np.concatenate([features, features[s] - discount * features[s_next]]),
            edges.origin.astype(np.uint32),
            right.astype(np.uint32),
            edges.y,
            following=np.where(edges.ends, S, edges.successor).astype(np.uint32),
            discount=discount,
            features=S,
        ),
        prob=mu[node] * edges.conditional,
        first=np.searchsorted(edges.table, np.arange(tables + 1)).astype(np.int64),
        assignment=assignment,
        weights=weights,
        chain=Chain(edges.origin, edges.successor, edges.conditional, mu, np.arange(tables + 1) * S),
        laboratory=True,
    )


def _merged(edges: Edges, S: int) -> Edges:
    """Possible outcomes, sorted by table and origin; those that differ in nothing but the action become one."""
    target = np.where(edges.ends, S, edges.successor)  # all terminal states are one: what follows is the same
    key = (edges.table * S + edges.origin) * (S + 1) + target
    order = np.lexsort((edges.y, key))
    order = order[edges.conditional[order] > 0]
    key, y = key[order], edges.y[order]
    new = np.ones(len(key), np.bool_)
    new[1:] = (key[1:] != key[:-1]) | (y[1:] != y[:-1])
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


FIELDS = ("state", "next_state", "reward", "probability", "terminated")  # of a chain


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
    Memory grows with M S^2 A: `from_chains` takes large chains with few transitions.

    discount : how much a reward counts one step later (gamma), at least 0 and below 1
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    kernel = checks.probabilities("P", P, ("M", "S", "A", "S"))
    M, S, A, _ = kernel.shape
    reward = checks.array("r", r, (M, S, A))
    pi = checks.probabilities("policy", policy, (S, A))
    phi = filled("features", features, (S, "d"))
    gamma = checks.real("discount", discount, at_least=0, below=1)
    if terminal is not None and initial is None:
        raise ArgumentError("initial must be a law over the states when terminal is given; got None")
    law = None if initial is None else _for_each(checks.probabilities, "initial", initial, M, S)
    ends = _for_each(checks.flags, "terminal", np.zeros(S) if terminal is None else terminal, M, S)
    if law is not None and (law[ends] > 0).any():
        m, at = np.argwhere(ends & (law > 0))[0].tolist()
        rule = "initial must give terminal states no probability"
        raise ArgumentError(f"{rule}; got {law[m, at]:g} for state {at} of P[{m}]")
    assigned, w = agents(M, assignment, weights)
    joint = pi[:, :, None] * kernel
    joint[ends] = 0
    table, s, a, s_next = np.nonzero(joint)
    edges = Edges(table, s, s_next, reward[table, s, a], joint[table, s, a, s_next], ends[table, s_next])
    arrays = {"P": P, "r": r, "policy": policy, "features": features, "terminal": terminal, "initial": initial}
    problem = temporal_difference(edges, M, phi, gamma, law, assigned, w)
    return recorded(problem, "from_mdps", {"discount": gamma}, **arrays, weights=weights, assignment=assignment)


def _for_each(check: Callable[..., NDArray[Any]], name: str, value: ArrayLike, M: int, S: int) -> NDArray[Any]:
    """(M, S): an argument with a row per table, or one for all."""
    shape = (M, S) if checks.as_array(name, value).ndim == 2 else (S,)
    return np.broadcast_to(check(name, value, shape), (M, S))


def from_chains(
    chains: Iterable[tuple[ArrayLike, ...]],
    features: ArrayLike,
    discount: float,
    initial: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Federated TD(0) (eq:system_matrix) on M chains over S states, each a list of the transitions it can make.

    chains : tuples (state, next_state, reward, probability[, terminated]) of arrays (E,), one tuple per table. The
        probabilities of the entries with one state sum to one; a state without entries is never visited. A pair of
        states may occur often, with different rewards. A terminated transition bootstraps nothing, and the chain
        restarts from `initial`. Or tuples (kernel, reward), kernel : (S, S) a sparse matrix of SciPy, whose rows are
        the laws of the next state, reward : (S,) of each state
    features : (S, d); initial : (S,) or (M, S) law in which a chain begins, needed where something terminates

    It differs from `from_mdps` in that the policy is already in the probabilities, that rewards and ends belong to
    transitions, and that impossible transitions take no room.

    discount : how much a reward counts one step later (gamma), at least 0 and below 1
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    given = tuples("chains", chains, FIELDS, optional=3)
    phi = filled("features", features, ("S", "d"))
    M, S = len(given), len(phi)
    gamma = checks.real("discount", discount, at_least=0, below=1)
    assigned, w = agents(M, assignment, weights)
    lists = [_checked(f"chains[{m}]", _as_lists(f"chains[{m}]", entry, S), S) for m, entry in enumerate(given)]
    table = np.repeat(np.arange(M), [len(entry[0]) for entry in lists])
    s, s_next, y, chance, ends = (np.concatenate([entry[i] for entry in lists]) for i in range(5))
    chance /= np.bincount(table * S + s, chance, M * S)[table * S + s]
    if initial is None and ends.any():
        raise ArgumentError("initial must be a law over the states when transitions terminate; got None")
    law = None if initial is None else _for_each(checks.probabilities, "initial", initial, M, S)
    problem = temporal_difference(Edges(table, s, s_next, y, chance, ends), M, phi, gamma, law, assigned, w)
    arrays = {"features": features, "initial": initial, "weights": weights, "assignment": assignment}
    return recorded(problem, "from_chains", {"chains": lists, "discount": gamma}, **arrays)


def _as_lists(name: str, entry: tuple[Any, ...], S: int) -> tuple[Any, ...]:
    """One chain as lists of transitions, however it is given."""
    if len(entry) > 3:
        return entry
    if len(entry) != 2 or not hasattr(entry[0], "tocoo") or entry[0].shape != (S, S):
        rule = f"a tuple ({', '.join(FIELDS)}), or (kernel, reward) with a sparse matrix of shape {(S, S)}"
        raise ArgumentError(f"{name} must be {rule}; got {len(entry)} entries, the first {checks.show(entry[0])}")
    kernel, reward = entry[0].tocoo(), checks.array(f"reward in {name}", entry[1], (S,))
    return kernel.row, kernel.col, reward[kernel.row], kernel.data


def _checked(name: str, entry: tuple[Any, ...], S: int) -> tuple[Any, ...]:
    """One list with its arrays checked and copied."""
    s = numbered(filled(f"state in {name}", entry[0], ("E",)), S, f"state in {name}")
    E = s.shape
    s_next = numbered(checks.array(f"next_state in {name}", entry[1], E), S, f"next_state in {name}")
    y, chance = (checks.array(f"{FIELDS[i]} in {name}", entry[i], E).copy() for i in (2, 3))
    ends = checks.flags(f"terminated in {name}", entry[4] if len(entry) > 4 else np.zeros(E), E)
    checks.refuse(chance < 0, chance, f"probability in {name} must hold numbers of at least 0")
    total, left = np.asarray(np.bincount(s, chance, S), np.float64), np.bincount(s, minlength=S) > 0
    rule = f"probability in {name} must sum to one in every state"
    checks.refuse((np.abs(total - 1) > 1e-8) & left, total, rule, "{:.10g}")
    rule = f"state in {name} must hold every state that is entered, or the transition must terminate"
    checks.refuse(~left[s_next] & ~ends & (chance > 0), s_next, rule, "none for state {}, entered")
    return s, s_next, y, chance, ends

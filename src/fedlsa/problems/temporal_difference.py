"""TD(0) as linear stochastic approximation (sec:appendix_td): from the transitions of finite chains to a problem.

An outcome z = (s, a, s') has A(z) = phi(s) (phi(s) - gamma phi(s'))^T and b(z) = r(s, a) phi(s) (eq:matr_A_def_td_app).
A transition into a terminal state bootstraps nothing, A(z) = phi(s) phi(s)^T, and the chain then restarts.

Outcomes have the probabilities of the stationary laws (assum:P_pi_ergodicity), whatever the transient or periodic
states. The M chains of a problem, of S states each, are one chain on M S nodes whose parts never meet: node m S + s is
state s of table m. One pass over that graph finds every closed communicating class; a table must have exactly one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Floats
from ..errors import StationaryLawError
from .system import Chain, Flags, Integers, Problem, RankOne

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCK = 2**22  # entries of the kernels written out at a time (32 MiB)


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
    used = np.zeros(S * S, np.bool_)
    used[pair[~ends]] = True
    s, s_next = np.divmod(np.flatnonzero(used), S)
    number = np.cumsum(used) + (S - 1)
    return np.concatenate([phi, phi[s] - gamma * phi[s_next]]), np.where(ends, edges.origin, number[pair])


def _restarted(
    edges: Edges, ends: Flags, right: Integers, following: Integers, initial: Floats
) -> tuple[Edges, Integers, Integers]:
    """Each outcome that ends an episode, split into one per state from which the next episode may begin."""
    table, state = np.nonzero(initial)
    choices = np.bincount(table, minlength=len(initial))
    copies = np.where(ends, choices[edges.table], 1)
    k = np.repeat(np.arange(len(copies)), copies)
    nth = np.arange(len(k)) - (np.cumsum(copies) - copies)[k]
    at = np.where(ends[k], (np.cumsum(choices) - choices)[edges.table[k]] + nth, 0)
    successor = np.where(ends[k], state[at], edges.successor[k])
    conditional = np.where(ends[k], initial[table[at], state[at]], 1.0) * edges.conditional[k]
    return Edges(edges.table[k], edges.origin[k], successor, edges.y[k], conditional), right[k], following[k]


def stationary_laws(
    origin: Integers, successor: Integers, probability: Floats, begin: Flags, assignment: Integers
) -> Floats:
    """The stationary law of each table : (M, S).

    origin, successor : (E,) nodes of each edge, sorted by origin; probability : (E,)
    begin : (M, S) states from which a chain may begin; closed classes that none of them reaches do not count
    assignment : (N,) tables of the agents, so that an error can name one
    """
    recurrent = _recurrent(origin, successor, begin, assignment)
    M, S = begin.shape
    laws = np.zeros((M, S))
    step = max(1, BLOCK // S**2)
    for m in range(0, M, step):
        rho = recurrent[m : m + step].astype(np.float64)
        edges = slice(*np.searchsorted(origin, [m * S, (m + len(rho)) * S]))
        flat = (origin[edges] - m * S) * S + successor[edges] % S
        kernel = np.bincount(flat, probability[edges], len(rho) * S * S).reshape(-1, S, S) * rho[:, :, None]
        # on the closed class (I - K^T + 1 1^T) mu = 1 has one solution, the law; elsewhere it reads mu = 0
        system = np.eye(S) - kernel.transpose(0, 2, 1) * rho[:, :, None] + rho[:, :, None] * rho[:, None, :]
        mu = np.maximum(np.linalg.solve(system, rho[:, :, None])[:, :, 0], 0)
        laws[m : m + step] = mu / mu.sum(axis=1, keepdims=True)
    return laws


def _recurrent(origin: Integers, successor: Integers, begin: Flags, assignment: Integers) -> Flags:
    """(M, S): which states lie in the one closed class of their table that can be reached."""
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    M, S = begin.shape
    n = M * S
    graph = _graph(origin, successor, begin)
    _, label = connected_components(graph, directed=True, connection="strong")
    leaves = label[origin] != label[successor]
    is_open = np.zeros(n + 1, np.bool_)
    is_open[label[origin[leaves]]] = True
    reached = np.zeros(n + 1, np.bool_)
    reached[breadth_first_order(graph, n, directed=True, return_predecessors=False)] = True
    nodes = np.flatnonzero(reached[:n] & ~is_open[label[:n]])
    _, one_per_class = np.unique(label[nodes], return_index=True)
    classes = np.bincount(nodes[one_per_class] // S, minlength=M)
    if (classes != 1).any():
        m = int(np.argmax(classes != 1))
        agents = np.flatnonzero(assignment == m)
        who = f"agent {agents[0]}" if len(agents) else f"table {m} (which no agent holds)"
        raise StationaryLawError(
            f"the chain of {who} must have one closed class of states for its stationary law to be unique; "
            f"got {classes[m]} closed classes"
        )
    out = np.zeros(n, np.bool_)
    out[nodes] = True
    return out.reshape(M, S)


def _graph(origin: Integers, successor: Integers, begin: Flags) -> csr_array:
    """The edges of all chains, and a last node that leads to every state in `begin`."""
    from scipy.sparse import coo_array

    n = begin.size
    starts = np.flatnonzero(begin)
    tail = np.concatenate([origin, np.full(len(starts), n)])
    head = np.concatenate([successor, starts])
    return coo_array((np.ones(len(tail), np.int8), (tail, head)), shape=(n + 1, n + 1)).astype(np.float64).tocsr()

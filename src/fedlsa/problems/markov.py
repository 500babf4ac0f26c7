"""Stationary laws of many finite chains at once (assum:P_pi_ergodicity), whatever their transient or periodic states.

The M chains of a problem, of S states each, are one chain on M S nodes whose parts never meet: node m S + s is state s
of table m. One pass over that graph finds every closed communicating class; a table must have exactly one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from ..checks import Floats
from ..errors import StationaryLawError
from .base import Integers

Flags = NDArray[np.bool_]

BLOCK = 2**22  # entries of the kernels written out at a time (32 MiB)


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
    n = begin.size
    starts = np.flatnonzero(begin)
    tail = np.concatenate([origin, np.full(len(starts), n)])
    head = np.concatenate([successor, starts])
    return coo_array((np.ones(len(tail), np.int8), (tail, head)), shape=(n + 1, n + 1)).astype(np.float64).tocsr()

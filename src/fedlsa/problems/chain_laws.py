"""Stationary laws of finite chains (assum:P_pi_ergodicity), whatever their transient or periodic states.

The M chains of a problem, of S states each, are one chain on M S nodes whose parts never meet: node m S + s is state s
of table m. One pass over that graph finds every closed communicating class; a table must have exactly one.

Three routes, each with a check. Small chains are solved densely, many at once, with an estimate of the error. Large
ones, and small ones that the estimate distrusts because they nearly fall apart, lose their states one by one
(elimination.py), which costs no accuracy. What resists that mixes fast: there Arnoldi's method finds the law of the
states that are left, and has to find it twice.
"""

from __future__ import annotations

import numpy as np

from ..checks import Floats
from ..errors import StationaryLawError
from .system import Flags, Integers

BLOCK = 2**18  # entries of the kernels written out at a time (2 MiB)
MOST_DENSE = 512  # states of a chain whose kernel is written out
ROOM = 2**24  # transitions that an elimination may make (400 MB)
PAIRS = (2e8, 4e9)  # of states that it may touch, at first and where that was not enough: seconds, a minute
TRUSTED = 1e-11  # error of a law, up to which it need not be found with more care
TOLERANCE = 1e-8  # error of a law, beyond which there is none; also of its balance


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
    laws, trusted = np.zeros((M, S)), np.zeros(M, np.bool_)
    first = np.searchsorted(origin, np.arange(M + 1) * S)
    step = max(1, BLOCK // S**2)
    for m in range(0, M if S <= MOST_DENSE else 0, step):
        edges, rho = slice(first[m], first[min(m + step, M)]), recurrent[m : m + step]
        flat = (origin[edges] - m * S) * S + successor[edges] % S
        kernel = np.asarray(np.bincount(flat, probability[edges], len(rho) * S * S).reshape(-1, S, S), np.float64)
        laws[m : m + step], trusted[m : m + step] = _dense_laws(kernel, rho.astype(np.float64))
    for m in map(int, np.flatnonzero(~trusted)):
        edges = slice(first[m], first[m + 1])
        law = _law(origin[edges] - m * S, successor[edges] - m * S, probability[edges], recurrent[m])
        if law is None:
            rule = f"must be left and entered often enough for its stationary law to be known to {TOLERANCE:g}"
            raise StationaryLawError(
                f"every part of the chain of {_holder(m, assignment)} {rule}; "
                f"got a class of {recurrent[m].sum():,} states that nearly falls apart"
            )
        laws[m] = law
    return laws


def _dense_laws(kernel: Floats, rho: Floats) -> tuple[Floats, Flags]:
    """The laws (m, S) of kernels (m, S, S) with closed classes rho (m, S), and which of them can be trusted."""
    S = kernel.shape[1]
    kernel *= rho[:, :, None]
    # on the closed class (I - K^T + 1 1^T) mu = 1 has one solution, the law; elsewhere it reads mu = 0
    system = np.eye(S) - kernel.transpose(0, 2, 1) * rho[:, :, None] + rho[:, :, None] * rho[:, None, :]
    probe = np.broadcast_to(np.cos(np.arange(S) ** 2), rho.shape)  # of no pattern: shows how much rounding is enlarged
    try:
        mu, answer = np.moveaxis(np.linalg.solve(system, np.stack([rho, probe], axis=2)), 2, 0)
    except np.linalg.LinAlgError:  # one of them falls apart within rounding
        return np.zeros(rho.shape), np.zeros(len(rho), bool)
    mu = np.maximum(mu, 0)
    enlarged = np.linalg.norm(answer, axis=1) / np.linalg.norm(probe, axis=1)
    return mu / mu.sum(axis=1, keepdims=True), S * np.finfo(np.float64).eps * enlarged <= TRUSTED


def _law(origin: Integers, successor: Integers, probability: Floats, recurrent: Flags) -> Floats | None:
    """The law (S,) of one chain, however large; None where it cannot be told."""
    from scipy.sparse import coo_array

    from .elimination import bring_back, eliminate

    number, inside, n = np.cumsum(recurrent) - 1, recurrent[origin], int(recurrent.sum())
    entries = (number[origin[inside]], number[successor[inside]])
    kernel = coo_array((probability[inside], entries), shape=(n, n)).tocsr()  # which adds up what has two rewards
    moves = kernel.tocoo()
    away = moves.row != moves.col
    room = max(min(2 * n * n, ROOM), int(away.sum()))  # every pair of states, and as many that one elimination may make
    for most_pairs in PAIRS:
        tail, head, value, used = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room), int(away.sum())
        tail[:used], head[:used], value[:used] = moves.row[away], moves.col[away], moves.data[away]
        order, leaving, when, used, column, down = eliminate(tail, head, value, used, n, most_pairs)
        left = when == n
        law = left.astype(np.float64)
        if len(order) < n - 1:
            place, among = np.cumsum(left) - 1, np.flatnonzero(left[tail[:used]] & left[head[:used]])
            core = _core_law(place[tail[among]], place[head[among]], value[among], int(left.sum()))
            if core is None:  # the states that are left do not show their law
                continue
            law[left] = core
        bring_back(law, order, leaving, when, tail, value, column, down)
        law /= law.sum()
        if np.abs(kernel.T @ law - law).sum() <= TOLERANCE:
            out = np.zeros(len(recurrent))
            out[recurrent] = law
            return out
    return None


def _core_law(tail: Integers, head: Integers, value: Floats, n: int) -> Floats | None:
    """The law (n,) of a chain by Arnoldi's method, from two starts: where they disagree, it nearly falls apart."""
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import ArpackError, eigs

    away = np.bincount(tail, value, n)  # how often a state is left; the jumps alone have the law mu_i away_i
    if not away.all():
        return None
    jumps = coo_array((value / away[tail], (head, tail)), shape=(n, n)).tocsr()
    found = []
    for start in (np.ones(n), 1 + np.cos(np.arange(n) ** 2)):
        try:
            _, vector = eigs(jumps, k=1, which="LR", v0=start, ncv=40, maxiter=200)
        except ArpackError:  # it did not converge
            return None
        visits = vector[:, 0].real * np.sign(vector[:, 0].real.sum())
        if visits.min() < -TOLERANCE * visits.max():  # parts that hardly meet, with opposite signs: no law
            return None
        law = np.maximum(visits, 0) / away
        found.append(law / law.sum())
    return found[0] if np.abs(found[0] - found[1]).sum() <= TOLERANCE else None


def _recurrent(origin: Integers, successor: Integers, begin: Flags, assignment: Integers) -> Flags:
    """(M, S): which states lie in the one closed class of their table that can be reached."""
    M, S = begin.shape
    small = M * S * S <= BLOCK  # then SciPy's graphs would take longer to load than all the rest
    out, classes = (_classes_by_powers if small else _classes_by_search)(origin, successor, begin)
    if (classes != 1).any():
        m = int(np.argmax(classes != 1))
        raise StationaryLawError(
            f"the chain of {_holder(m, assignment)} must have one closed class of states for its stationary law to be "
            f"unique; got {classes[m]} closed classes"
        )
    return out


def _classes_by_powers(origin: Integers, successor: Integers, begin: Flags) -> tuple[Flags, Integers]:
    """(M, S): states in closed classes that can be reached; (M,): how many classes. From who reaches whom, squared."""
    M, S = begin.shape
    leads = np.zeros((M * S, S), np.float32)
    leads[np.append(origin, np.arange(M * S)), np.append(successor, np.arange(M * S)) % S] = 1
    leads = leads.reshape(M, S, S)
    for _ in range(int(S).bit_length()):  # then paths of S moves and more are in it
        leads = np.minimum(leads @ leads, 1)
    reaches = leads > 0
    back = reaches.transpose(0, 2, 1)
    closed = np.asarray((reaches <= back).all(axis=2) & (begin[:, :, None] & reaches).any(axis=1))
    first = np.argmax(reaches & back, axis=2) == np.arange(S)  # of its class
    return closed, (closed & first).sum(axis=1)


def _classes_by_search(origin: Integers, successor: Integers, begin: Flags) -> tuple[Flags, Integers]:
    """The same in one pass over the graph of all tables, however large."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    M, S = begin.shape
    n, starts = M * S, np.flatnonzero(begin)
    first = np.append(np.searchsorted(origin, np.arange(n + 1)), len(origin) + len(starts))
    head = np.concatenate([successor, starts])
    graph = csr_array((np.ones(len(head)), head, first), shape=(n + 1, n + 1))  # the last node leads to every start
    graph.sum_duplicates()  # without which SciPy's search for components never ends
    _, label = connected_components(graph, directed=True, connection="strong")
    leaves = label[origin] != label[successor]
    is_open = np.zeros(n + 1, np.bool_)
    is_open[label[origin[leaves]]] = True
    reached = np.zeros(n + 1, np.bool_)
    reached[breadth_first_order(graph, n, directed=True, return_predecessors=False)] = True
    out = reached[:n] & ~is_open[label[:n]]
    nodes = np.flatnonzero(out)
    _, one_per_class = np.unique(label[nodes], return_index=True)
    return out.reshape(M, S), np.bincount(nodes[one_per_class] // S, minlength=M)


def _holder(table: int, assignment: Integers) -> str:
    """Who has this table, for people."""
    agents = np.flatnonzero(assignment == table)
    return f"agent {agents[0]}" if len(agents) else f"table {table} (which no agent holds)"

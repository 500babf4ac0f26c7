"""Finite chains that are given in full: transitions merged, restarted where episodes end, with their stationary laws.

Outcomes have the probabilities of the stationary laws (assum:P_pi_ergodicity). Whatever their transient or periodic
states, the M chains of a problem, of S states each, are one chain on M S nodes whose parts never meet: node m S + s is
state s of table m. One pass over that graph finds every closed communicating class; a table must have exactly one.

Three routes to a law, each with a check. Small chains are solved densely, many at once, with an estimate of the error.
Large ones, and small ones that the estimate distrusts because they nearly fall apart, lose their states one by one
(elimination.py), which costs no accuracy. What resists that mixes fast: there Arnoldi's method finds the law of the
states that are left, and has to find it twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import StationaryLawError
from .system import Chain, Dense, Flags, Integers, Problem, RankOne

BLOCK = 2**18  # entries of the kernels written out at a time (2 MiB)
MOST_DENSE = 512  # states of a chain whose kernel is written out
ROOM = 2**24  # transitions that an elimination may make (400 MB)
PAIRS = (2e8, 4e9)  # of states that it may touch, at first and where that was not enough: seconds, a minute
TRUSTED = 1e-11  # error of a law, up to which it need not be found with more care
TOLERANCE = 1e-8  # error of a law, beyond which there is none; also of its balance


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

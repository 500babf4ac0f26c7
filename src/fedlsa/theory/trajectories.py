"""First and second moments of methods whose agents follow trajectories (assum:P_pi_ergodicity, algo:fed-lsa-markov).

One agent: exact, indexed by the state of its chain (chains.py). Several agents, whose chains go on across rounds,
correlate with theta each on its own: exact on the product of the chains for two agents and where that is small,
otherwise closed over pairs of agents with an estimate of the error. A result says which. All forms carry E[y] of some y
and, with z = (y - E[y], 1), moments E[z z^T 1{s}] over states s of chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import count

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..algorithms import Algorithm, FedLSA, FixedRounds, Scaffnew
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..sampling import Markov
from . import tuning
from .chains import ChainMap, gram, used, whole_round
from .joint_laws import check_plain
from .linear import Squares, at_rounds, smat, svec, symkron, traces, triangle, within

__all__ = ["check", "curve"]

EXACT, PRODUCT, CLOSURE = "exact", "exact on the product of chains", "closure over pairs of agents"
State = tuple[Floats, Floats]  # (E[y], 1) : (..., k) and E[z z^T 1{s}] : (states, ..., k, k)


def curve(
    problem: Problem,
    algorithm: Algorithm,
    sampling: Markov,
    u: Floats,
    xi: Floats,
    recorded: NDArray[np.int64],
) -> tuple[Floats, Floats, Floats | None, Floats | None, str]:
    """E[u] : (R, d), svec Cov(u) : (R, s), psi and error of a closure : (R,) at the recorded rounds, and their kind.

    From known u = theta_0 - theta_star : (d,) and control variates xi : (N, d): on the product of chains where it is
    small enough, which that of two always is for FedLSA, or else closed over pairs of agents. psi is that of methods
    with control variates.
    """
    N, d, w, layout = problem.n_agents, problem.dim, problem.weights, _layout(problem, algorithm)
    plain, size = isinstance(algorithm, FedLSA), math.prod(_states(problem)) * (layout.size - d) ** 2
    closed = size > tuning.MAX_PRODUCT_MOMENTS and (2 if plain else 1) < N
    if closed and not plain:
        raise ArgumentError(
            f"the product of the chains must have at most {tuning.MAX_PRODUCT_MOMENTS} moments for "
            f"{type(algorithm).__name__} with sampling=Markov(); got {size} (fewer agents, states or features would "
            "do; the closure over pairs of agents is for FedLSA, and simulate is for all)"
        )
    etas, sizes = algorithm.eta(np.arange(max(int(recorded[-1]), 1))), _states(problem)
    steady = bool((etas == etas[0]).all())
    received = algorithm.local_steps if isinstance(algorithm, FixedRounds) else sampling.thin
    updates = algorithm.mean_steps if isinstance(algorithm, Scaffnew) else algorithm.mean_steps // sampling.thin
    alike = np.column_stack([problem.assignment, 0 * xi if layout.x else xi, w, sampling.start or np.zeros(N)])
    _, ones, which = np.unique(alike[:, : 1 + d], axis=0, return_index=True, return_inverse=True)
    agents, counts = np.arange(N), np.ones(N, np.int64)
    if closed:  # agents who are alike in everything are one group, and all chains have as many states
        _, agents, counts = np.unique(alike, axis=0, return_index=True, return_counts=True)
        sizes, e, n = [max(sizes)] * N, d * (d + 1) // 2, d + 1
        each = (8 if steady else 16) * sizes[0] ** 2 * (e * (n * (n + 1) // 2) + 2 * d * n)  # of one round, or of two
        checks.memory("the different agents", len(ones), each, "what one does in a round")
    else:
        checks.memory("the states of all chains together", math.prod(sizes), 64 * layout.size**2, "moments")
    laws = [_first_law(problem, c, sampling.start, sizes[c]) for c in agents.tolist()]

    @lru_cache(maxsize=1)
    def maps(eta: float) -> list[ChainMap]:
        """Of each agent over a round, for Scaffnew over one update."""
        chains = [(int(problem.assignment[c]), eta, sizes[c], None if layout.x else xi[c]) for c in ones]
        known = [whole_round(used(problem, *chain), received, sampling.thin) for chain in chains]
        return [known[i] for i in which.ravel()[agents]]

    if closed:
        mean, second = np.tile(np.append(u, 1.0), (1, 2, 1)), np.zeros((sizes[0], len(laws), 2, d + 1, d + 1))
        second[..., d, d] = np.array(laws).T[..., None]
        forgotten = 1 - max(chain.memory for chain in maps(float(etas[0])))

        def close(t: int, state: State) -> State:
            return advance(state, w[agents], counts, maps(float(etas[t])))

        states = until_converged((mean, second), close, steady)
        mean, covariance, error = at_rounds(states, recorded, lambda state: _shown(state, forgotten))
        return mean, covariance, None, error, CLOSURE

    @lru_cache(maxsize=1)
    def powers(eta: float) -> list[Squares[ChainMap]]:
        return [Squares(update, ChainMap.then) for update in maps(eta)]

    def step(t: int, state: State) -> State:
        end = layout.server(w, float(1 / (etas[t] * updates)))
        if isinstance(algorithm, Scaffnew):
            mean, second = random_steps(state, layout, powers(float(etas[t])), algorithm.probability)
        else:
            mean, second = local_steps(state, layout, maps(float(etas[t])))
        second = end @ second @ end.T
        return end @ mean, (second + second.swapaxes(-1, -2)) / 2  # an asymmetry by rounding would grow

    x, second = xi - problem.xi_star, np.zeros((*sizes, layout.size, layout.size))
    second[..., -1, -1] = reduce(np.multiply.outer, laws)
    start = np.concatenate([u, np.zeros(N * d), x.ravel() if layout.x else [], [1.0]])

    def show(state: State) -> tuple[Floats, Floats, float]:
        mean, total = state[0], state[1].sum(axis=tuple(range(N)))
        square = mean**2 + np.diagonal(total)
        each = [square[entries].sum() for entries in layout.x] or np.sum(x**2, axis=1)
        return mean[:d], svec(total[:d, :d]), float(w @ each)

    mean, covariance, spread = at_rounds(until_converged((start, second), step, steady), recorded, show)
    psi = np.sum(mean**2, axis=1) + traces(covariance) + (etas[np.maximum(recorded - 1, 0)] * updates) ** 2 * spread
    psi = np.where(np.isnan(psi), np.inf, psi)
    return mean, covariance, None if plain else psi, None, EXACT if N == 1 else PRODUCT


def _layout(problem: Problem, algorithm: Algorithm) -> JointLayout:
    """A single agent's control variate stays where it is."""
    return JointLayout(problem.n_agents, problem.dim, not isinstance(algorithm, FedLSA) and problem.n_agents > 1)


def _first_law(problem: Problem, agent: int, start: tuple[int, ...] | None, states: int) -> Floats:
    """(states,): the law of the state in which an agent's trajectory starts."""
    chain, m = problem.chain, int(problem.assignment[agent])
    assert chain is not None
    law = chain.stationary[chain.first_state[m] : chain.first_state[m + 1]]
    return np.append(law, np.zeros(states - len(law))) if start is None else np.eye(states)[start[agent]]


def _states(problem: Problem) -> list[int]:
    """How many states the chain of each agent has."""
    assert problem.chain is not None
    return np.diff(problem.chain.first_state)[problem.assignment].tolist()


def check(problem: Problem, algorithm: Algorithm, sampling: Markov) -> None:
    """Refuse what has no moments along trajectories here, and what `simulate` refuses."""
    check_plain(algorithm, problem.n_agents, "exact moments with sampling=Markov()")
    if problem.chain is None:
        rule = "sampling must be IID() for exact moments of a problem without a transition kernel"
        raise ArgumentError(f"{rule}; got Markov() for a problem made by {problem.made_by}")
    algorithm.observations(np.zeros(1), sampling.thin)  # refuses rounds without an update
    layout = _layout(problem, algorithm)
    n, states = len(layout.local), max(_states(problem))
    most = int(math.sqrt(tuning.MAX_CHAIN_MAP) / (n * (n + 1) // 2))
    if states > most:
        rule = f"the chains must have at most {most} states in dimension {layout.d} for exact moments with"
        raise ArgumentError(f"{rule} sampling=Markov(); got {states}")
    if sampling.start is not None:
        problem.check_start(sampling.start)


# --- round by round ---------------------------------------------------------------------------------------------------


class Convergence:
    """Whether a recursion has reached its limit: then nothing more needs to be computed.

    Once a round changes less than SETTLING, relative, the rate at which changes fall from there on says how far it is
    still to go; a slow mode moves little in a round, and far in many.
    """

    def __init__(self) -> None:
        self.first, self.rounds = 0.0, 0

    def reached(self, change: float) -> bool:
        """change : of a round, relative."""
        if not 0 < change < self.first:
            self.first, self.rounds = change if change <= tuning.SETTLING else 0.0, 0
            return change == 0
        self.rounds += 1
        return change <= -tuning.SETTLED * math.expm1(math.log(change / self.first) / self.rounds)


def until_converged(now: State, advance: Callable[[int, State], State], steady: bool) -> Iterator[State]:
    """The states after 0, 1, 2, ... rounds; where all rounds are alike, up to one from which nothing changes."""
    convergence = Convergence()
    for t in count():
        yield now
        before, now = now, advance(t, now)
        if steady and convergence.reached(_change(before, now)):
            yield now
            return


def _change(before: State, after: State) -> float:
    """The largest change in a round, each entry relative to its own size."""
    size = _sizes(after)
    second = _relative(after[1] - before[1], size[..., None] * size[..., None, :])
    return max(_relative(after[0] - before[0], np.abs(after[0]) + size), second)


def _relative(change: Floats, scale: Floats) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(change == 0, 0.0, np.abs(change) / scale).max())


def _sizes(state: State) -> Floats:
    """The standard deviations of z : (..., k)."""
    mean, second = state
    total = second.sum(axis=tuple(range(second.ndim - mean.ndim - 1)))
    return np.sqrt(np.maximum(np.diagonal(total, axis1=-2, axis2=-1), 0))


# --- the product of the agents' chains --------------------------------------------------------------------------------
#
# y = (u, delta_1, ..., delta_N, x_1, ..., x_N), without the x where control variates never change; delta_c is what
# agent c has added to u since the round began. Given where a round begins agents are independent, so their local steps
# may be taken one agent after the other; the server's average and the correction of the x are one matrix on y.


class JointLayout:
    """Where things stand in (y, 1): N agents of dimension d, with or without control variates that change.

    delta, x : the entries of delta_c and x_c; own : those of (u, delta_c, x_c, 1)
    local : what makes w_c = (u + delta_c, x_c, 1) of those
    """

    def __init__(self, N: int, d: int, controlled: bool) -> None:
        blocks = [slice(k * d, (k + 1) * d) for k in range(1 + N + controlled * N)]
        self.d, self.size, self.delta, self.x = d, len(blocks) * d + 1, blocks[1 : 1 + N], blocks[1 + N :]
        self.own = [np.r_[blocks[0], *blocks[1 + c :: N], self.size - 1] for c in range(N)]
        rows = np.eye(len(self.own[0]))
        rows[:d] += rows[d : 2 * d]
        self.local = np.delete(rows, blocks[1], axis=0)

    def server(self, weights: Floats, gain: float) -> Floats:
        """The end of a round: u moves by the mean of all delta, x_c by gain (mean - delta_c), and delta_c is 0."""
        N, out = len(weights), np.eye(1 + len(self.delta) + len(self.x))
        out[1 : 1 + N] = 0
        out[0, 1 : 1 + N] = weights
        if self.x:
            out[1 + N :, 1 : 1 + N] = gain * (weights - np.eye(N))
        end = np.eye(self.size)
        end[:-1, :-1] = np.kron(out, np.eye(self.d))
        return end


def local_steps(state: State, layout: JointLayout, agents: Sequence[ChainMap]) -> State:
    """The moments after each agent has taken its observations."""
    (mean, second), d, local = state, layout.d, layout.local
    mean = mean.copy()
    for c, agent in enumerate(agents):
        own, delta = layout.own[c], layout.delta[c]
        moved = np.moveaxis(second, c, 0)
        before = moved.reshape(len(agent.K), -1, layout.size, layout.size)
        J, E = local.copy(), np.eye(d, len(own), d)  # w = J z, and delta - E[delta] afterwards is X w + E z
        J[:, -1] = local @ mean[own]
        shift = np.einsum("xsij,sj->i", agent.Y, before[:, :, own, -1].sum(1) @ J.T)
        E[:, -1] -= shift
        after = np.tensordot(agent.K, before, 1)
        cross = agent.passed(J, E, before[:, :, own])
        after[:, :, delta], after[..., delta] = cross, _T(cross)
        after[:, :, delta, delta] = agent.second(J, E, before[:, :, own[:, None], own])
        second = np.moveaxis(after.reshape(moved.shape), 0, c)
        mean[delta] += shift
    return mean, second


def random_steps(state: State, layout: JointLayout, updates: Sequence[Squares[ChainMap]], p: float) -> State:
    """The same for a Geometric(p) number of updates, the same for all agents; updates : one of each agent, and powers.

    From numbers up to n to those up to 2 n: with chance (1 - p)^n there are n updates more. Two states are added about
    their common mean. The sum is infinite where the moments grow faster than long rounds become rare.
    """
    now, rest = local_steps(state, layout, [next(each.of(1)) for each in updates]), 1 - p
    for k in range(tuning.MAX_DOUBLINGS):
        later = local_steps(now, layout, [next(each.of(2**k)) for each in updates])
        difference, share, rest = later[0] - now[0], rest / (1 + rest), rest**2
        added = share * _about(later[1], (1 - share) * difference)
        now = now[0] + share * difference, (1 - share) * _about(now[1], -share * difference) + added
        size = _sizes(now)
        if _relative(added, size[:, None] * size) <= tuning.LENGTHS_TAIL:
            return now
    return now[0], np.full_like(now[1], np.inf)


def _about(second: Floats, difference: Floats) -> Floats:
    """E[z z^T ...] with `difference`, which ends in 0, added to z."""
    shift = np.eye(len(difference))
    shift[:, -1] += difference
    return np.asarray(shift @ second @ shift.T, np.float64)


# --- FedLSA of many agents --------------------------------------------------------------------------------------------
#
# y = u, and second moments are those with the state of one chain. With m = E[u] and p_c the law of chain c they hold
#
#     mu_c(s) = E[(u - m) i_c(s)],   W_c(s) = E[(u - m)(u - m)^T i_c(s)],   i_c(s) = 1{S_c = s} - p_c(s).
#
# A round needs the same with factors i_c i_e of two chains. u is nearly a sum of what agents did, each part of which
# depends on one chain alone, so that E[(u - m)(u - m)^T i_c i_e] is nearly mu_c mu_e^T + mu_e mu_c^T and
# E[(u - m) i_c i_e] nearly 0. What this leaves out is work of one agent on that of another whose chain still remembers
# it: it is of the order of w_c w_e epsilon, the share of a chain's distance from stationarity that a round leaves, and
# acts on what is kept with a factor of the step size.
#
# The estimate of the error compares with the cruder closure in which a chain forgets whole rounds (epsilon = 0) unless
# its own agent's work is meant; both are followed, along an axis of 2. The estimate is the sum of the absolute
# eigenvalues of their difference in E[u u^T], divided by 1 - epsilon (the largest of all agents) for the orders beyond:
# an order above the error that it stands for, and infinite for chains that never forget.

REMEMBERED = np.array([1.0, 0.0])  # of what chains remember: all, and nothing for comparison


def _T(X: Floats) -> Floats:
    return np.swapaxes(X, -1, -2)


def _both(X: Floats) -> Floats:
    return X + _T(X)


def _pairs(R: Floats, C: Floats, P: Floats, V: Floats) -> Floats:
    """Cov(hat, hat') of two agents, summed over all pairs of those whose R, C and P are summed : (..., 2, d, d)."""
    return R @ V @ _T(R) + _both(C @ _T(R)) + np.einsum("...ikl,...jlk->...ij", P, P)


def _crossed(P: Floats, R: Floats) -> Floats:
    """(..., 2, e, d): mu -> svec of both(sum_k P_jki mu_k R^T)."""
    return _T(svec(_both(np.einsum("...jki,...li->...kjl", P, R))))


def _work(a: ChainMap, J: Floats, G: Floats, W: Floats) -> tuple[Floats, ...]:
    """What one agent does in a round, hat being its u at the end, s the first and t the last state of its chain.

    E : (2, d, n), what has to be added to X w for hat - E[hat]; second : (T, 2, d, d), E[(hat - E[hat])^2 1{t}]
    R : (2, d, d), E[hat | s] as a map of u, averaged over states; C : (2, d, d), Cov(hat - R u, u) and
    P : (2, d, d, d), E[(E[hat | s] - R)_ij (u - m)_k], what its chain has to do with u
    on_W, on_mu : (2, e, e), (2, e, d), Cov(hat) of W and mu of another chain, beyond products of R and P
    """
    d, n = a.d, a.d + 1
    p, mu, eye = G[:, 0, d, d], G[..., :d, d], np.eye(d)
    change = a.Y.sum(0)[:, None] @ J  # (S, 2, d, n), E[hat - u | s] of z
    shift = np.einsum("sxij,sxj->xi", change, G[..., d])
    E = np.concatenate([np.tile(eye, (2, 1, 1)), -shift[..., None]], axis=2)
    known = change + E
    A, B = change[..., :d], known[..., :d]
    R, P = np.tensordot(p, B, 1), np.einsum("sxij,sxk->xijk", A, mu)
    C = np.einsum("sxi,sxj->xij", change[..., d], mu) + np.einsum("sxij,sxjk->xik", A, W)
    # Cov(hat) as a map of E[z z^T], given the law of s; and of mu where s goes with mu
    mean = np.tensordot(p, a.noise, 1) @ symkron(J) + gram((np.sqrt(p)[:, None, None, None] * known).swapaxes(0, 1))
    (i, j), inner, with_one = triangle(d), within(d, n), np.flatnonzero(triangle(n)[1] == d)[:d]
    pair = eye[i] * mu[..., j, None] + eye[j] * mu[..., i, None]  # (S, 2, e, d), svec both(. mu^T)
    on_mu = mean[..., with_one] + np.tensordot(a.noise[..., inner], pair, ([0, 2], [0, 2])).swapaxes(0, 1)
    on_mu += _T(svec(_both(np.einsum("sxik,sxj->xkij", B, (B @ mu[..., None])[..., 0])))) - _crossed(P, R)
    return E, a.second(J, E, G), R, C, P, mean[..., inner] - symkron(R), on_mu


def advance(state: State, w: Floats, counts: NDArray[np.int64], agents: Sequence[ChainMap]) -> State:
    """One round later: agents work, the server averages, and chains remember what happened before.

    mean : (1, 2, n), second : (S, K, 2, n, n) of K groups of agents; w, counts : (K,), weight and number of each
    """
    mean, G = state
    d = G.shape[-1] - 1
    J = np.tile(np.eye(d + 1), (2, 1, 1))
    J[:, :d, d] = mean[0, :, :d]
    p, mu, V = G[..., d, d, None, None], G[..., :d, d], G[:, 0, :, :d, :d].sum(0)
    W = G[..., :d, :d] - p * V
    works = zip(*(_work(a, J, G[:, k], W[:, k]) for k, a in enumerate(agents)), strict=True)
    E, second, *of_each = (np.stack(some) for some in works)
    R, C, P, _, _ = (np.tensordot(counts * w, X, 1) for X in of_each)
    _, _, _, on_W, on_mu = (np.tensordot(counts * w**2, X, 1) for X in of_each)
    own = second.sum(1) - _pairs(of_each[0], of_each[1], of_each[2], V)  # an agent and itself are no pair
    V_after = _pairs(R, C, P, V) + np.tensordot(counts * w**2, own, 1)
    mean, after = mean.copy(), np.empty_like(G)
    mean[0, :, :d] -= np.tensordot(counts * w, E[..., d], 1)
    for k, (a, w_c) in enumerate(zip(agents, w.tolist(), strict=True)):
        R_o, C_o, P_o = (all_of - w_c * X[k] for all_of, X in zip((R, C, P), of_each, strict=False))  # of all others
        W_o, mu_o = (all_of - w_c**2 * X[k] for all_of, X in zip((on_W, on_mu), of_each[3:], strict=True))
        others = np.empty((len(G), 2, d + 1, d))  # E[z 1{s} hat_o^T]
        others[..., :d, :] = G[:, k, :, :d, :d] @ _T(R_o) + p[:, k] * _T(C_o)
        others[..., :d, :] += np.einsum("xjki,sxk->sxij", P_o, mu[:, k])
        others[..., d, :] = np.einsum("xij,sxj->sxi", R_o, mu[:, k])
        through = a.passed(J, E[k], np.concatenate([G[:, k, :, :, d:], others], axis=3))
        noise = np.einsum("xfe,sxe->sxf", W_o, svec(W[:, k]))
        noise += np.einsum("xfi,sxi->sxf", mu_o + _crossed(P_o, R_o), mu[:, k])
        kept = R_o @ W[:, k] @ _T(R_o) + smat(noise, d)
        law = a.K @ p[:, k, 0, 0, 0]
        law /= law.sum()
        memory = REMEMBERED[:, None, None] * (a.K - law[:, None])
        worked = w_c**2 * second[k] + w_c * _both(through[..., 1:])
        worked += law[:, None, None, None] * (V_after - worked.sum(0))
        after[:, k, :, :d, :d] = worked + np.einsum("xts,sxij->txij", memory, kept)
        after[:, k, :, :d, d] = w_c * through[..., 0] + np.einsum("xts,sxi->txi", memory, others[..., d, :])
        after[:, k, :, d, :d], after[:, k, :, d, d] = after[:, k, :, :d, d], law[:, None]
    return mean, (after + _T(after)) / 2  # an asymmetry by rounding would grow


def _shown(state: State, forgotten: float) -> tuple[Floats, Floats, float]:
    """E[u] : (d,), svec Cov(u), and the error of both together; forgotten : 1 - epsilon."""
    m, V = state[0][0, :, :-1], state[1][:, 0, :, :-1, :-1].sum(0)
    D = V[0] - V[1] + _both(np.multiply.outer(m[0] - m[1], m.sum(0)) / 2)
    known = np.isfinite(D).all() and (forgotten >= 1e-12 or not D.any())
    error = float(np.abs(np.linalg.eigvalsh(D)).sum()) / max(forgotten, 1e-12) if known else np.inf
    return m[0], svec(V[0]), error

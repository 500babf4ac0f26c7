"""A multiplier bootstrap on the run itself: error bars that need no matrix inverse.

Replica b gives every data point, row k of table m, a weight W_b(m, k) of 0 or 2: mean one, variance one. A row has the
same weight whenever it is visited, so the replica's run solves the reweighted data's system, and the spread of the
replicas is the statistical error of the estimate. All replicas see the observations of the run and take its steps,

    theta_hat_b <- theta_hat_b - eta (W_b(z) / w_bar_bc (A(z) theta_hat_b - b(z)) - xi_bc).

`centred` divides by the site's mean weight, w_bar_bc = sum_k p_k W_b(c, k): rows vary within their site, and the
covariance tends to A_bar^-1 (sum_c w_c^2 Cov_c(g) / n_c) A_bar^-T with the scores g = A(z) theta_star - b(z).
Otherwise w_bar = 1, and second moments take the place of covariances, as in HC0 standard errors.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..algorithms import Algorithm
from ..checks import Floats
from ..engine import jobs
from ..engine.outcome_tables import outcome_tables
from ..engine.random import uniforms
from ..engine.simulate import available_cores
from ..errors import ArgumentError
from ..frozen import ReadOnly
from ..problems import Dense, Problem, RankOne
from ..sampling import IID
from .replicas import LANES, Data, Method, State, Weights, advance, mean_weights, weight_bits

GROUP = 64  # replicas that run together at most: the bits of a word
MOST_WORK = 1e14  # numbers that are updated in all: a day of one core
PIECE = 2e8  # numbers that are updated between two looks at the keyboard


@dataclass(frozen=True, eq=False)
class Bootstrap(ReadOnly):
    """A run and its replicas.

    theta : (d,), where the run itself ends; replicas : (B, d), where it ends on the reweighted data.
    """

    theta: Floats
    replicas: Floats

    @property
    def covariance(self) -> Floats:
        """(d, d): of the replicas about their mean. It holds what the run's own noise adds."""
        return np.atleast_2d(np.cov(self.replicas, rowvar=False))

    @property
    def standard_error(self) -> Floats:
        """(d,): the standard deviation of the replicas."""
        return np.asarray(self.replicas.std(axis=0, ddof=1), np.float64)

    def interval(self, level: float = 0.95, kind: str = "percentile") -> Floats:
        """(d, 2): lower and upper ends for each coordinate.

        kind : "percentile", the quantiles q of the replicas, or "basic", which turns them round: 2 theta - q.
        """
        level = checks.real("level", level, above=0, below=1)
        checks.choice("kind", kind, ("percentile", "basic"))
        low, high = np.quantile(self.replicas, [(1 - level) / 2, (1 + level) / 2], axis=0)
        if kind == "basic":
            low, high = 2 * self.theta - high, 2 * self.theta - low
        return np.stack([low, high], axis=1)


def bootstrap(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int,
    *,
    replicas: int = 200,
    seed: int = 0,
    run_seed: int = 0,
    blocks: int = 1,
    centred: bool = True,
    theta_0: ArrayLike | None = None,
    threads: int | None = None,
) -> Bootstrap:
    """Run a method with i.i.d. sampling, and with it `replicas` reweighted copies of the data.

    problem : of rank-one observations whose rows are data points (fl.problems.regression, from_transitions)
    seed : of the weights; run_seed : of the run, which is that of fl.simulate(..., seeds=[run_seed]) to rounding
    blocks : how many consecutive rows share a weight; for logs, longer than their autocorrelation time
    theta_0 : (d,), zeros by default. threads : does not change a bit of the result

    Steps on a row of weight 2 are twice as long, so the step size must be stable with a factor 2 (and a little more
    where a site is small). A constant step leaves noise in the replicas, which widens the error: with average_after and
    several times as many steps as a site has rows, what is left of it is small.
    """
    data, method, start = _checked(problem, algorithm, rounds, run_seed, theta_0)
    B = checks.integer("replicas", replicas, at_least=2)
    checks.memory("replicas", B, 16 * problem.dim, "where a replica ends")
    check_work("replicas", B, problem, float(method.lengths.sum()))
    key = np.uint64(checks.integer("seed", seed, at_most=2**64 - 1))
    per_block = checks.integer("blocks", blocks, at_least=1)
    centred = checks.boolean("centred", centred)
    workers = available_cores() if threads is None else checks.integer("threads", threads, at_least=1)
    width = GROUP
    while width > LANES and -(-B // width) < workers:
        width //= 2

    stop = threading.Event()

    def run(first: int) -> Floats:
        weights = _weights(problem, key, per_block, centred, first, min(width, B + 1 - first), itself=B)
        return _run(data, method, weights, start, stop)[:, : B + 1 - first].T

    with ThreadPoolExecutor(workers) as pool:
        try:
            held = np.concatenate(list(pool.map(run, range(0, B + 1, width))))
        except BaseException:
            stop.set()
            raise
    theta, held = held[B].copy(), held[:B]
    _check_finite(algorithm, theta, held)
    return Bootstrap(theta, held)


def check_work(name: str, replicas: int, problem: Problem, samples: float) -> None:
    """Refuse replicas of a run of so many steps per site that would take days; name : of the argument."""
    each = problem.n_agents * problem.dim * samples
    if replicas * each > MOST_WORK:
        raise ArgumentError(
            f"{name} must be at most {MOST_WORK / each:,.0f} for a run of {samples:,.0f} steps at each of "
            f"{problem.n_agents} sites, {problem.dim} numbers each: more take days; got {replicas}"
        )


def row_weights(problem: Problem, replica: int, *, seed: int = 0, blocks: int = 1, centred: bool = True) -> Floats:
    """W_b / w_bar_b of every row of every table in replica b, (K,)."""
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    b, blocks = checks.integer("replica", replica), checks.integer("blocks", blocks, at_least=1)
    key = np.uint64(checks.integer("seed", seed, at_most=2**64 - 1))
    weights = _weights(problem, key, blocks, checks.boolean("centred", centred), b, 1)
    out = []
    for m, span in enumerate(problem.spans()):
        j = weights.first_block[m] + np.arange(span.stop - span.start) // blocks
        out.append((weights.bits[j] & np.uint64(1)) * weights.scale[m, 0])
    return np.concatenate(out)


def reweighted(problem: Problem, replica: int, *, seed: int = 0, blocks: int = 1, centred: bool = True) -> Problem:
    """The problem that replica b of the bootstrap solves, written out: its theta_star is what the replica tends to.

    Observations W_b(z)/w_bar (A(z), b(z)) with unchanged probabilities, dense: for small data and for tests.
    """
    f = row_weights(problem, replica, seed=seed, blocks=blocks, centred=centred)
    A, b = problem.observations.matrices(slice(None))
    return replace(problem, observations=Dense(f[:, None, None] * A, f[:, None] * b), chain=None, recipe={})


def _checked(
    problem: Problem, algorithm: Algorithm, rounds: int, run_seed: int, theta_0: ArrayLike | None
) -> tuple[Data, Method, Floats]:
    """The arguments of a run, as arrays for the kernel."""
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    checks.instance("algorithm", algorithm, Algorithm, "a method such as fl.SCAFFLSA(...)")
    T = checks.integer("rounds", rounds, at_least=1)
    run_seed = checks.integer("run_seed", run_seed, at_most=2**64 - 1)
    z = problem.observations
    if not isinstance(z, RankOne):
        made = problem.recipe.get("constructor", "hand")
        raise ArgumentError(f"problem must have rank-one observations (regression, transitions); got one by {made}")
    if type(algorithm).server_step is not None:
        name = type(algorithm).__name__
        raise ArgumentError(f"algorithm must average plainly for a bootstrap; got {name}, which has a server_step")
    N, where = problem.n_agents, outcome_tables(problem, IID())
    start = np.zeros(problem.dim) if theta_0 is None else theta_0
    arguments = {"seeds": [run_seed], "record": 2, "dtype": "float64", "engine": "cpu"}
    job = jobs.make_job(problem, algorithm, T, IID(), where, start, None, arguments)
    seed, m = job.seeds[0], algorithm.taking_part(N)
    lengths = np.asarray(algorithm.observations(uniforms(seed, 0, T), 1), np.int64)
    etas = np.asarray(algorithm.eta(np.arange(T)), np.float64)
    data = Data(
        z.rows, z.left, z.right, z.y, float(z.ridge), where.slots, where.slot, where.row, where.shift,
        problem.assignment, problem.weights,
    )  # fmt: skip
    method = Method(
        seed, lengths, etas, np.asarray(algorithm.gain(etas, lengths), np.float64),
        0 if m == N else m,
        np.inf if algorithm.projection is None else algorithm.projection,
        T + 1 if algorithm.average_after is None else algorithm.average_after,
    )  # fmt: skip
    return data, method, job.theta_0


def _weights(
    problem: Problem, seed: np.uint64, per_block: int, centred: bool, first: int, count: int, itself: int | None = None
) -> Weights:
    """The weights of replicas first ... first + count - 1, which share one word of bits.

    itself : the replica that is the run itself, all of whose weights are one
    """
    group, offset = divmod(first, GROUP)
    blocks = -(-np.diff(problem.first) // per_block)
    first_block = np.append(0, np.cumsum(blocks))
    bits = np.empty(int(first_block[-1]), np.uint64)
    weight_bits(seed, group, first_block, bits)
    bits >>= np.uint64(offset)
    scale = np.zeros((problem.n_tables, -(-count // LANES) * LANES))
    scale[:, :count] = 2.0
    w_bar = np.ones((problem.n_tables, count))
    if centred:
        mean_weights(bits, first_block, per_block, problem.prob, problem.first, w_bar)
        if not w_bar.all():
            m, b = (int(i) for i in np.argwhere(w_bar == 0)[0])
            raise ArgumentError(
                f"every site must keep some rows in every replica, but replica {first + b} drops all of site {m}, "
                f"whose rows make {blocks[m]} blocks: use smaller blocks or centred=False; got blocks={per_block}"
            )
    if itself is not None and first <= itself < first + count:
        bits |= np.uint64(1 << (itself - first))
        w_bar[:, itself - first] = 2
    scale[:, :count] /= w_bar
    return Weights(bits, first_block[:-1], per_block, scale)


def _run(data: Data, method: Method, weights: Weights, theta_0: Floats, stop: threading.Event) -> Floats:
    """Where all replicas of these weights end, (d, W); in pieces, so that an interruption is heard."""
    N, d, W, T = len(data.assignment), len(theta_0), weights.scale.shape[1], len(method.etas)
    theta = np.repeat(theta_0, W)
    state = State(theta, theta.copy(), np.zeros((N, d * W)), np.zeros((N, d * W)), np.zeros(N, np.int64))
    work = np.cumsum(method.lengths * float(N * d * W)) // PIECE
    ends: NDArray[Any] = np.append(np.flatnonzero(np.diff(work)) + 1, T)
    begin = 0
    for end in ends.tolist():
        if stop.is_set():
            break
        advance(data, method, weights, state, begin, end)
        begin = end
    return state.best.reshape(d, W)


def _check_finite(algorithm: Algorithm, theta: Floats, replicas: Floats) -> None:
    """Refuse a run whose replicas, or which itself, left the range of numbers."""
    lost = int((~np.isfinite(replicas).all(axis=1)).sum())
    what = f"{lost} of {len(replicas)} replicas" if np.isfinite(theta).all() else "the run itself"
    if lost or what == "the run itself":
        raise ArgumentError(
            f"step_size must keep every replica stable, where a row of weight 2 doubles the step, but {what} diverged; "
            f"got {algorithm.step_size!r}"
        )

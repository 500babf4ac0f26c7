"""What a researcher would write instead: SCAFFLSA (Algorithm 2) in NumPy and in JAX, on the same observations.

Both solve the problem that fedlsa solves; tests/benchmarks holds their means to the exact recursion and their errors to
fedlsa's. Observations are rank-one, A(z) = u v^T and b(z) = y u; sampling is i.i.d.; agents weigh the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedlsa.engine.outcome_tables import outcome_tables
from fedlsa.problems import Problem, RankOne
from fedlsa.sampling import IID

DRAWS = ("cumulative", "alias")


def rank_one_observations(problem: Problem) -> RankOne:
    """The observations of a problem that the baselines can run."""
    z = problem.observations
    if not isinstance(z, RankOne) or z.ridge:
        raise ValueError("the baselines know rank-one observations without a ridge only")
    if np.ptp(problem.weights) > 1e-12:
        raise ValueError("the baselines know equal weights only")
    return z


def _cumulative(problem: Problem) -> np.ndarray:
    """(K,): cumulative probabilities within each table, plus the number of the table: increasing over all tables."""
    return np.concatenate([m + np.cumsum(problem.prob[span]) for m, span in enumerate(problem.spans())])


def numpy_loop(problem: Problem, eta: float, H: int) -> Callable[[int, int], np.ndarray]:
    """A function of (local steps in all, seed) that returns theta after the last whole round : (d,).

    Vectorised over agents; in every step the N matrices A(z) are written out, (N, d, d), as in the algorithm's box.
    """
    z, N, d = rank_one_observations(problem), problem.n_agents, problem.dim
    U, V, y, table = z.rows[z.left], z.rows[z.right], z.y, problem.assignment
    cumulative, last = _cumulative(problem), problem.first[table + 1] - 1

    def run(steps: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        theta, xi = problem.theta_star + 1, np.zeros((N, d))
        theta_hat = np.tile(theta, (N, 1))
        for step in range(1, steps + 1):
            k = np.minimum(np.searchsorted(cumulative, table + rng.random(N), side="right"), last)
            A = np.einsum("ni,nj->nij", U[k], V[k])
            b = y[k, None] * U[k]
            theta_hat = theta_hat - eta * (np.einsum("nij,nj->ni", A, theta_hat) - b - xi)
            if step % H == 0:
                theta = theta_hat.mean(axis=0)
                xi = xi + (theta - theta_hat) / (eta * H)
                theta_hat = np.tile(theta, (N, 1))
        return theta

    return run


def jax_loop(problem: Problem, eta: float, H: int, draw: str = "cumulative") -> Callable[[int, Any], Any]:
    """A compiled function of (rounds, seeds : (R,)) that returns the last theta of each seed : (R, d).

    vmap over seeds and agents, scan over the steps of a round; a round's random numbers are drawn in one call.
    draw : "cumulative" looks uniform numbers up in cumulative probabilities, as jax.random.choice does, but sums these
    once (jax.random.categorical is far slower); "alias" hands JAX the alias tables that fedlsa draws from, which few
    people would build for themselves.
    """
    import jax
    import jax.numpy as jnp

    if draw not in DRAWS:
        raise ValueError(f"draw must be one of {DRAWS}; got {draw!r}")
    z, N, d, table = rank_one_observations(problem), problem.n_agents, problem.dim, problem.assignment
    rows, y = jnp.asarray(z.rows), jnp.asarray(z.y)
    left, right = jnp.asarray(z.left.astype(np.int32)), jnp.asarray(z.right.astype(np.int32))
    first = jnp.asarray(problem.first[table].astype(np.int32))
    start = jnp.asarray(problem.theta_star + 1)
    if draw == "cumulative":
        longest = int(np.diff(problem.first).max())
        cumulative = np.full((problem.n_tables, longest), 2.0)  # 2: never reached
        for m, span in enumerate(problem.spans()):
            cumulative[m, : span.stop - span.start - 1] = np.cumsum(problem.prob[span])[:-1]
        law = (jnp.asarray(cumulative[table]),)
    else:
        where = outcome_tables(problem, IID())
        law = (jnp.asarray(where.slot[table].astype(np.int32)), jnp.asarray(where.shift[table].astype(np.uint32)))
        slots = jnp.asarray(where.slots)

    def outcomes(key: Any, *law: Any) -> Any:
        if draw == "cumulative":
            return jnp.searchsorted(law[0], jax.random.uniform(key, (H,)), side="right")
        slot, shift = law
        word, low = jax.random.bits(key, (H,), jnp.uint32), (jnp.uint32(1) << shift) - 1
        entry = slots[slot + (word >> shift)]
        return jnp.where(word & low < entry & low, word >> shift, entry >> shift).astype(jnp.int32)

    def local_steps(key: Any, first: Any, theta: Any, xi: Any, *law: Any) -> Any:
        def step(theta_hat: Any, k: Any) -> Any:
            u, v = rows[left[k]], rows[right[k]]
            return theta_hat - eta * ((v @ theta_hat - y[k]) * u - xi), None

        return jax.lax.scan(step, theta, first + outcomes(key, *law))[0]

    def one_seed(rounds: Any, seed: Any) -> Any:
        def one_round(t: Any, state: Any) -> Any:
            theta, xi = state
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), t), N)
            each = (0, 0, None, 0, *(0 for _ in law))
            theta_hat = jax.vmap(local_steps, each)(keys, first, theta, xi, *law)
            theta = theta_hat.mean(axis=0)
            return theta, xi + (theta - theta_hat) / (eta * H)

        return jax.lax.fori_loop(0, rounds, one_round, (start, jnp.zeros((N, d))))[0]

    return jax.jit(jax.vmap(one_seed, (None, 0)))

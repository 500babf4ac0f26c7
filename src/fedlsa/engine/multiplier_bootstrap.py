"""The online multiplier bootstrap: perturbed copies of a run of FedLSA say how far it may be off.

Each copy multiplies every local step of every agent by a weight W of its own, independent, with mean 1 and variance 1:

    theta_hat <- theta_hat - eta W (A(z) theta_hat - b(z)),   W = 0 or 2, each with probability 1/2.

Given the observations, a copy varies about the run to first order as the run does about theta_star, since W - 1 has the
variance of an observation's own noise, times what that noise is. So quantiles of |copy - run| are those of |run -
theta_star|, without any covariance. Of the last iterate, and with `average_after` of the average.
"""

# Numba infers the types of these functions itself.
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False, disallow-untyped-calls=False
from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..algorithms import Algorithm, FedLSA
from ..errors import ArgumentError
from ..kernel_cache import kernel
from ..problems import Problem
from ..sampling import IID
from .jobs import seed_list
from .outcome_tables import outcome_tables
from .random import OBSERVATION, block, words
from .schedule import schedule

if TYPE_CHECKING:
    import xarray as xr

WEIGHT = 8  # the stream of weights, one bit each


def bootstrap(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int = 500,
    copies: int = 200,
    seeds: int | Iterable[int] = 1,
    level: float = 0.95,
    theta_0: ArrayLike | None = None,
) -> xr.Dataset:
    """Runs of FedLSA with perturbed copies, and the confidence regions that these give (online multiplier bootstrap).

    problem, algorithm, rounds, seeds, theta_0 : as in `simulate`; everyone takes part, observations are independent
    copies : perturbed runs beside each run; level : the probability with which a region holds theta_star

    Returns a dataset: theta (seed, dim), which is that of `simulate`; copies (seed, copy, dim); lower and upper
    (seed, dim), an interval for each coordinate alone; radius (seed), of a ball around theta for all together. Regions
    hold theta_star as they say where bias, and what is left of the start, are small beside noise.

    >>> p = fl.problems.garnet(agents=4, states=5, features=2, seed=1)
    >>> r = fl.bootstrap(p, fl.FedLSA(fl.PowerStep(0.5, 0.7), 2), rounds=100)
    >>> r["copies"].shape, bool((r["lower"] < p.theta_star).all())
    ((1, 200, 2), True)
    """
    import xarray as xr

    checks.instance("problem", problem, Problem, "a fedlsa problem")
    checks.instance("algorithm", algorithm, FedLSA, "an fl.FedLSA, whose agents remember nothing")
    rounds, copies = (checks.integer(n, v, at_least=1) for n, v in (("rounds", rounds), ("copies", copies)))
    level, N, d = checks.real("level", level, above=0, below=1), problem.n_agents, problem.dim
    own = algorithm.server(), algorithm.agent_factors(N), algorithm.projection, algorithm.taking_part(N)
    if own != ((((1.0,),), (1.0,)), None, None, N) or algorithm.server_step is not None:
        raise ArgumentError(f"algorithm must be a plain FedLSA of all agents for a bootstrap; got {algorithm!r}")
    if (k := math.ceil(level * (copies + 1))) > copies:
        raise ArgumentError(f"copies must be at least {math.ceil(level / (1 - level))} at this level; got {copies}")
    numbers = seed_list(seeds)
    start = checks.array("theta_0", problem.start if theta_0 is None else theta_0, (d,))
    tables, after = outcome_tables(problem, IID()), -1 if algorithm.average_after is None else algorithm.average_after
    if after > rounds:
        raise ArgumentError(f"average_after must be at most rounds, {rounds}; got {after}")
    plan = schedule(algorithm, IID(), 0, rounds, N)  # lengths are the same for all seeds
    steps, m = int(plan.observations.sum()), list(enumerate(problem.assignment.tolist()))  # tables of agents
    checks.memory("local steps of a run", steps, 24 * N, "the observations of all agents")
    checks.memory("observations", len(problem.prob), 8 * d * (d + 1), "their matrices")
    A, b = problem.observations.matrices(slice(0, len(problem.prob)))
    out = np.empty((len(numbers), copies + 1, d))
    for i, seed in enumerate(numbers):
        drawn = [tables.draw(words(seed, c, OBSERVATION, 0, steps), tables.slot[j], tables.shift[j]) for c, j in m]
        outcome = np.stack([tables.order[tables.row[j] + z] for (_, j), z in zip(m, drawn, strict=True)])
        out[i] = start
        _perturb((A, b), outcome, plan.observations, plan.step_sizes, problem.weights, np.uint64(seed), after, out[i])
    theta, off = out[:, 0], np.abs(out[:, 1:] - out[:, :1])
    half, far = np.sort(off, axis=1)[:, k - 1], np.sort(np.linalg.norm(off, axis=2), axis=1)[:, k - 1]
    values: dict[str, Any] = {
        "theta": (("seed", "dim"), theta),
        "copies": (("seed", "copy", "dim"), out[:, 1:]),
        "lower": (("seed", "dim"), theta - half),
        "upper": (("seed", "dim"), theta + half),
        "radius": ("seed", far),
    }
    return xr.Dataset(values, coords={"seed": numbers}, attrs={"level": level, "rounds": rounds})


@kernel(error_model="numpy")
def _perturb(observed, outcome, lengths, etas, share, seed, after, theta):
    """Run : (0) and copies of theta : (B + 1, d) to their last round, or their averages; outcome : (N, steps)."""
    (A, b), (n, d) = observed, theta.shape
    total, hat, weight, average, at = np.zeros((n, d)), np.zeros((n, d)), np.ones(n), np.zeros((n, d)), 0
    move, blocks = np.zeros(d), (n + 126) // 128
    if after == 0:
        average[:] = theta
    for t in range(len(lengths)):
        total[:] = 0.0
        for c in range(outcome.shape[0]):
            hat[:] = theta
            for h in range(at, at + lengths[t]):
                for i in range(1, n):
                    if (i - 1) % 128 == 0:
                        bits = block(seed, c, WEIGHT, h * blocks + (i - 1) // 128)
                    word = bits[(i - 1) % 128 // 32]
                    weight[i] = 2.0 * ((word >> np.uint64((i - 1) % 32)) & np.uint64(1))
                z = outcome[c, h]
                for i in range(n):
                    if weight[i] > 0:
                        for j in range(d):
                            move[j] = -b[z, j]
                            for k in range(d):
                                move[j] += A[z, j, k] * hat[i, k]
                        for j in range(d):
                            hat[i, j] -= etas[t] * weight[i] * move[j]
            total += share[c] * hat
        theta[:] = total
        at += lengths[t]
        if after >= 0 and t + 1 >= after:
            average += (theta - average) / (t + 2 - after)
    if after >= 0:
        theta[:] = average

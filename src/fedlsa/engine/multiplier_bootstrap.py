"""The online multiplier bootstrap: perturbed copies of a run say how far it may be off.

Each copy multiplies what an observation says beyond m, the mean of A(z) theta_hat - b(z) over all that the agent saw in
the run before, by a weight W of its own for every local step of every agent, with mean 1 and variance 1:

    theta_hat <- theta_hat - eta (m + W (A(z) theta_hat - b(z) - m) - xi_c),   W = 0 or 2, each with probability 1/2.

Given the observations, a copy varies about the run to first order as the run does about theta_star, since W - 1 has the
variance of 1, and m tends to what agents lack at theta_star, xi_star, so that it multiplies an observation's own noise.
So quantiles of |copy - run| are those of |run - theta_star|, without any covariance. Without m, regions of agents who
differ would be too wide: xi_star would count as noise. Of the last iterate, and with `average_after` of the average.
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
from ..algorithms import Algorithm
from ..errors import ArgumentError, DivergenceWarning, warn
from ..kernel_cache import kernel
from ..problems import Problem
from ..results import method_label
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
    """Runs with perturbed copies, and the confidence regions that these give (online multiplier bootstrap).

    problem, algorithm, rounds, seeds, theta_0 : as in `simulate`; all take part, with equal steps; i.i.d.
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
    checks.instance("algorithm", algorithm, Algorithm, "a method (fl.Algorithm)")
    rounds, copies = (checks.integer(n, v, at_least=1) for n, v in (("rounds", rounds), ("copies", copies)))
    level, N, d = checks.real("level", level, above=0, below=1), problem.n_agents, problem.dim
    if (part := algorithm.taking_part(N)) < N:
        raise ArgumentError(f"participation must be 1.0: weights do not perturb who takes part; got {part} of {N}")
    own = algorithm.server(), algorithm.agent_factors(N), algorithm.projection, algorithm.server_step
    if own != ((((1.0,),), (1.0,)), None, None, None) or type(algorithm).exchange is not Algorithm.exchange:
        rule = "algorithm must have equal agents, no exchange, no projection, and a server that takes the average,"
        raise ArgumentError(f"{rule} for a bootstrap; got {algorithm!r}")
    if (k := math.ceil(level * (copies + 1))) > copies:
        raise ArgumentError(f"copies must be at least {math.ceil(level / (1 - level))} at this level; got {copies}")
    numbers = seed_list(seeds)
    checks.memory("rounds", rounds, 64, "step sizes and lengths")
    checks.memory("copies", copies, 32 * d * len(numbers), "theta in all runs, and how far it is")
    start = checks.array("theta_0", problem.start if theta_0 is None else theta_0, (d,))
    tables, after = outcome_tables(problem, IID()), -1 if algorithm.average_after is None else algorithm.average_after
    if after > rounds:
        raise ArgumentError(f"average_after must be at most rounds, {rounds}; got {after}")
    m = list(enumerate(problem.assignment.tolist()))  # tables of agents
    checks.memory("rounds", rounds, 24 * N, "the observations of all agents, at least one each")
    checks.memory("copies", copies + 1, 8 * N * d * 3, "theta and control variates of all agents")
    checks.memory("observations", len(problem.prob), 8 * d * (d + 1), "their matrices")
    A, b = problem.observations.matrices(slice(0, len(problem.prob)))
    out = np.empty((len(numbers), copies + 1, d))
    for i, seed in enumerate(numbers):
        plan = schedule(algorithm, IID(), seed, rounds, N)
        steps = sum(plan.observations.tolist())  # an integer that cannot overflow
        checks.memory("local steps of a run", steps, 24 * N, "the observations of all agents")
        drawn = [tables.draw(words(seed, c, OBSERVATION, 0, steps), tables.slot[j], tables.shift[j]) for c, j in m]
        outcome = np.stack([tables.order[tables.row[j] + z] for (_, j), z in zip(m, drawn, strict=True)])
        out[i] = start
        each = plan.observations, plan.step_sizes, plan.gains
        _perturb((A, b), outcome, each, problem.weights, np.uint64(seed), after, out[i])
    if not np.isfinite(out).all():
        warn(f"{method_label(algorithm)} diverged, with its copies: try a smaller step_size", DivergenceWarning)
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
def _perturb(observed, outcome, rule, share, seed, after, theta):
    """Run : (0) and copies of theta : (B + 1, d) to their last round, or their averages; outcome : (N, steps)."""
    (A, b), (lengths, etas, gains), (n, d), N = observed, rule, theta.shape, len(outcome)
    hat, xi, mean = np.zeros((N, n, d)), np.zeros((N, n, d)), np.zeros((N, d))
    weight, average, move, blocks, at = np.ones(n), np.zeros((n, d)), np.zeros((n, d)), (n + 126) // 128, 0
    if after == 0:
        average[:] = theta
    for t in range(len(lengths)):
        for c in range(N):
            hat[c] = theta
            for h in range(at, at + lengths[t]):
                for i in range(1, n):
                    if (i - 1) % 128 == 0:
                        bits = block(seed, c, WEIGHT, h * blocks + (i - 1) // 128)
                    word = bits[(i - 1) % 128 // 32]
                    weight[i] = 2.0 * ((word >> np.uint64((i - 1) % 32)) & np.uint64(1))
                z = outcome[c, h]
                for i in range(n):
                    for j in range(d):
                        move[i, j] = mean[c, j]
                    if weight[i] > 0:
                        for j in range(d):
                            whole = -b[z, j]
                            for k in range(d):
                                whole += A[z, j, k] * hat[c, i, k]
                            move[i, j] += weight[i] * (whole - mean[c, j])
                    for j in range(d):
                        hat[c, i, j] -= etas[t] * (move[i, j] - xi[c, i, j])
                mean[c] += (move[0] - mean[c]) / (h + 1)
        at += lengths[t]
        theta[:] = 0.0
        for c in range(N):
            theta += share[c] * hat[c]
        if gains[t] > 0:
            for c in range(N):
                xi[c] += gains[t] * (theta - hat[c])
        if after >= 0 and t + 1 >= after:
            average += (theta - average) / (t + 2 - after)
    if after >= 0:
        theta[:] = average

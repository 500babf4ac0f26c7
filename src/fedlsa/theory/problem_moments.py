"""First and second moments of observations: all that exact error curves and the planner need to know of a problem.

They are kept apart from the problem so that estimated ones serve as well. For each table, with v = (theta - centre, 1),

    Cov(A(z) theta - b(z)) = noise[svec(v v^T)],

a linear map that holds every second moment of (A(z), b(z)). Around theta_star noise that vanishes there is 0, and not a
difference of large numbers; estimated moments are around 0. Agents with the same table and weight form a group.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..problems import Dense, Problem, RankOne, Stream
from ..problems.averaged_system import dense_residual, ideal_control_variates, solution_error, solve_average
from ..problems.system import DefaultStart, check_arrays, check_law, check_range
from ..value_objects import Displayed, ReadOnly, frozen_property
from . import tuning
from .linear import folded, symkron, triangle

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False, repr=False)
class Moments(Displayed, ReadOnly, DefaultStart):
    """First and second moments of M tables, and the K groups of identical agents that hold them.

    A_bar : (M, d, d) mean matrix of each table
    b_bar : (M, d) mean vector of each table
    noise : (M, d (d + 1) / 2, (d + 1) (d + 2) / 2) what gives the covariance of A(z) theta - b(z) at any theta
    table : (K,) of each group of agents
    weight : (K,) of each agent of a group; sum_k count_k weight_k = 1
    count : (K,) agents of each group
    centre : (d,) about which the noise is given, 0 by default; theta_star where it solves the system up to rounding
    laboratory : whether runs start at theta_star + 1 unless they are told, as the problem's do; else at 0
    """

    A_bar: Floats
    b_bar: Floats
    noise: Floats
    table: NDArray[np.int64]
    weight: Floats
    count: NDArray[np.int64]
    centre: Floats | None = None
    laboratory: bool = False

    def __post_init__(self) -> None:
        sizes = check_arrays(self, b_bar="Md", A_bar="Mdd", table="K", weight="K", count="K")
        d = sizes["d"]
        sizes |= {"s": d * (d + 1) // 2, "q": (d + 1) * (d + 2) // 2}
        check_arrays(self, sizes, noise="Msq", centre="d")
        check_range("table", self.table, sizes["M"])
        for name, values in (("weight", self.weight), ("count", self.count)):
            if not (values > 0).all():
                raise ArgumentError(f"{name} must hold positive numbers; got {values.min():g}")
        check_law("weight times count", self.weight * self.count, np.zeros(sizes["K"], np.int64), "set of groups")
        checks.boolean("laboratory", self.laboratory)
        super().__post_init__()

    @property
    def dim(self) -> int:
        return int(self.b_bar.shape[1])

    @property
    def n_agents(self) -> int:
        return int(self.count.sum())

    @frozen_property
    def noiseless(self) -> bool:
        """Whether no observation is random: then second moments are squares of means (theory/noiseless.py)."""
        if not any(self.noise.strides):  # one number, shown many times
            return not self.noise.size or not self.noise.flat[0]
        return not self.noise.any()

    @frozen_property
    def table_weights(self) -> Floats:
        """(M,): the total weight of the agents that hold each table."""
        return np.bincount(self.table, self.count * self.weight, len(self.A_bar)).astype(np.float64)

    @frozen_property
    def _average(self) -> Floats:
        return np.tensordot(self.table_weights, self.A_bar, 1)

    @frozen_property
    def theta_star(self) -> Floats:
        """(d,): the solution of the averaged system (eq:lsa_syst_fed)."""
        w = self.table_weights
        residual = partial(dense_residual, self.A_bar, self.b_bar, (w, np.zeros_like(w)))
        return solve_average(self._average, w @ self.b_bar, residual, self.centre)

    @frozen_property
    def offset(self) -> Floats:
        """(d,): theta_star - centre."""
        return self.theta_star if self.centre is None else self.theta_star - self.centre

    @frozen_property
    def xi_star(self) -> Floats:
        """(M, d): the ideal control variate of each table."""
        return ideal_control_variates(self.A_bar, self.b_bar, self.table_weights, self.theta_star)

    def rounding(self, u: Floats, x: Floats, length: float) -> float:
        """By how much rounding may make second moments negative, in a run from u : (d,), x : (K, d); length = eta H."""
        spread = float(self.count * self.weight @ np.sum(x**2, axis=1))
        return tuning.MOMENT_ROUNDING * (float(self.theta_star @ self.theta_star + u @ u) + length**2 * spread)

    def check_digits(self, eta: float, steps: float = np.inf) -> float:
        """The relative error of moments after so many local steps that rounding I - eta A makes; refused if large.

        It changes eta A by eps, which is eps / (eta s) of the slowest rate, s the smallest singular value of the
        averaged matrix; and by no more than eps in each step. The error of theta_star counts too.
        """
        slowest = float(np.linalg.svd(self._average, compute_uv=False)[-1])
        error = max(EPS * min(steps, 1 / max(eta * slowest, EPS**2)), solution_error(self._average))
        if error > tuning.MAX_ROUNDING_ERROR:
            least = f"{EPS / tuning.MAX_ROUNDING_ERROR:.0e} in its slowest direction"
            rule = f"step_size must be large enough for I - step_size A to differ from I by {least}"
            raise PrecisionError(f"{rule}; got {eta:g} times {slowest:.2g}")
        return error


_KNOWN: WeakKeyDictionary[Problem, Moments] = WeakKeyDictionary()  # problems do not change, so neither do these


def moments(problem: Problem | Moments) -> Moments:
    """The moments of a problem, from its tables; a table that nobody holds is left out. Computed once per problem.

    Moments, estimated ones for example, stay what they are.
    """
    if isinstance(problem, Moments):
        return problem
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    found = _KNOWN.get(problem)  # in one go: it may be known by an equal problem that is about to go
    if found is not None:
        return found
    held, table = np.unique(problem.assignment, return_inverse=True)
    pairs, count = np.unique(np.stack([table.astype(np.float64), problem.weights], 1), axis=0, return_counts=True)
    _KNOWN[problem] = found = Moments(
        A_bar=problem.table_A_bar[held],
        b_bar=problem.table_b_bar[held],
        noise=_all_noise(problem, held),
        table=pairs[:, 0].astype(np.int64),
        weight=pairs[:, 1],
        count=count.astype(np.int64),
        centre=problem.theta_star,
        laboratory=problem.laboratory,
    )
    return found


def start_error(problem: Problem | Moments, theta_0: ArrayLike | None) -> Floats:
    """theta_0 - theta_star : (d,), of which squares are numbers; by default that of `problem.start`."""
    if theta_0 is None and problem.laboratory:
        return np.ones(problem.dim)  # theta_star + 1 - theta_star, without its rounding
    theta_0 = problem.start if theta_0 is None else theta_0
    start = checks.array("theta_0", theta_0, (problem.dim,)) - problem.theta_star
    if not (largest := float(np.abs(start).max())) <= checks.LARGEST_REAL:
        rule = f"theta_0 must be within {checks.LARGEST_REAL:g} of theta_star in each coordinate"
        raise ArgumentError(f"{rule}; got a distance of {largest:g}")
    return start


def random(problem: Problem) -> bool:
    """Whether some table that an agent holds has more than one outcome."""
    possible = np.add.reduceat(problem.prob > 0, problem.first[:-1], dtype=np.int64)
    return bool((possible[problem.assignment] > 1).any())


def _all_noise(problem: Problem, held: NDArray[np.int64]) -> Floats:
    """(M, s, S) of the held tables; where none of them is random, one zero that takes no memory in any dimension."""
    d, z, spans = problem.dim, problem.observations, list(problem.spans())
    if isinstance(z, Stream):
        z = z.stand_in()
    shape = (len(held), d * (d + 1) // 2, (d + 1) * (d + 2) // 2)
    if not random(problem):
        return np.broadcast_to(np.float64(0), shape)
    check_size(shape)
    if isinstance(z, RankOne):
        noise = _rank_one_noise(problem, z, held, np.zeros(shape))
    else:
        noise = np.stack([_dense_noise(problem, z, m, spans[m]) for m in held])
    noise[[np.count_nonzero(problem.prob[spans[m]]) < 2 for m in held]] = 0  # not a difference of products
    return noise


def check_size(shape: tuple[int, ...]) -> None:
    """Refuse second moments of more memory than there may be; shape : that of Moments.noise."""
    size, most = 8 * math.prod(shape), tuning.MAX_MOMENTS_BYTES
    if size > most:
        dim = math.isqrt(2 * shape[1])  # of d (d + 1) / 2
        taken = f"{size / 2**30:.0f} GB for {shape[0]} tables ({most / 2**30:.0f} at most)"
        rule = f"dim must be small enough for exact moments, which here take {taken}"
        raise ArgumentError(f"{rule}; got {dim}: fl.theory.bound and fl.plan use theorems there")


# The map svec(v v^T) -> svec(Cov(A(z) theta - b(z))) of a table is E[B~ v v^T B~^T], B = (A, A centre - b).


def _rank_one_noise(problem: Problem, z: RankOne, held: NDArray[np.int64], noise: Floats) -> Floats:
    """B = u w^T with w = (v, v . centre - y), so B X B^T = u u^T (w^T X w): a quarter of the work.

    The ridge is no noise. Columns are observations, so that a row of either factor is made from two rows that stand in
    memory as they are; small tables of as many observations go through it together.
    """
    d, prob, (i, j), (k, q) = z.dim, problem.prob, triangle(z.dim), triangle(z.dim + 1)
    first, room = problem.first[held], max(1, tuning.CACHED_OUTCOMES // sum(noise.shape[1:]))
    sizes = problem.first[held + 1] - first
    for n in np.unique(sizes).tolist():
        same = np.flatnonzero(sizes == n)
        for some in np.split(same, range(max(1, room // n), len(same), max(1, room // n))):
            mean, total = np.zeros((len(some), d, d + 1)), np.zeros((len(some), *noise.shape[1:]))
            for start in range(0, n, room):
                part = first[some, None] + np.arange(start, min(start + room, n))
                p, v = prob[part][:, None], z.rows[z.right[part]]
                u = np.ascontiguousarray(z.rows[z.left[part]].swapaxes(1, 2))
                w = np.concatenate([v.swapaxes(1, 2), (v @ problem.theta_star - z.y[part])[:, None]], axis=1)
                mean += (p * u) @ w.swapaxes(1, 2)
                total += (u[:, i] * u[:, j] * p) @ (w[:, k] * w[:, q]).swapaxes(1, 2)
            noise[some] = np.where(k == q, 1.0, 2.0) * total - symkron(mean)
    return noise


def _dense_noise(problem: Problem, z: Dense, m: int, span: slice) -> Floats:
    """The same for observations of any kind: of what they differ by from their means, so that small noise is exact."""
    d, prob, theta = problem.dim, problem.prob, problem.theta_star
    total = np.zeros((d * (d + 1), d * (d + 1)))
    step = max(1, tuning.OUTCOMES_AT_ONCE // total.shape[0])
    for start in range(span.start, span.stop, step):
        part = slice(start, min(span.stop, start + step))
        A, b = z.matrices(part)
        A, b = A - problem.table_A_bar[m], b - problem.table_b_bar[m]
        flat = np.concatenate([A, (A @ theta - b)[:, :, None]], axis=2).reshape(len(A), -1)
        total += (prob[part, None] * flat).T @ flat
    return folded(total.reshape(d, d + 1, d, d + 1))


def merged(m: Moments, groups: int) -> Moments:
    """A problem with few groups that resembles the given one: groups of similar mean systems, each averaged."""
    from scipy.cluster.vq import kmeans2  # slow to load, and few agents need none of it

    features = np.concatenate([m.A_bar[m.table].reshape(len(m.table), -1), m.b_bar[m.table]], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of groups that stay empty: fewer will do
        _, label = kmeans2(features, groups, minit="++", rng=0)
    kept = [np.flatnonzero(label == g) for g in np.unique(label)]
    total = m.count * m.weight
    weight = np.array([total[g].sum() / m.count[g].sum() for g in kept])

    def mean(of: Floats, share: Floats) -> Floats:
        return np.stack([np.tensordot(share[g], of[m.table[g]], 1) / total[g].sum() for g in kept])

    return replace(  # the averaged system and the noise of an average stay what they are
        m,
        A_bar=mean(m.A_bar, total),
        b_bar=mean(m.b_bar, total),
        noise=mean(m.noise, total * m.weight) / weight[:, None, None],
        table=np.arange(len(kept)),
        weight=weight,
        count=np.array([m.count[g].sum() for g in kept]),
    )

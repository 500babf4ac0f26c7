"""Exact moments of Scaffnew iteration by iteration, where agents have drifted apart since they last communicated.

An iteration is a local step of everybody and then, with probability p and for all at once, a communication. In what is
carried nothing is conserved, so that its digits last while errors fall by many orders of magnitude: the average
u_bar = sum_k s_k u_k of the means of groups (s_k = count_k weight_k), v_k = u_k - u_bar, and control variates
x_k = (eta / p) (xi_k - xi_star_k). With D_k = A_k - A_bar, which is exactly 0 for equal agents,

    u_bar <- (I - eta A_bar) u_bar - c,   v_k <- (I - eta A_k) v_k - eta D_k u_bar + c + p x_k,

where c = eta sum_j s_j D_j v_j, and a communication is v_k <- 0, x_k <- x_k - v_k. The sums of s_k v_k and s_k x_k are
0; what rounding makes of them decays as an agent with A_bar does. Agents of a group differ from its mean by (v, x) of
their own, which go on without D and c. Second moments are sums of positive terms, the variance of the coin among them,
and so is the Lyapunov function, psi = E||u_bar||^2 + sum_k s_k E||v_k||^2 + sum_k s_k E||x_k||^2 over all agents.

Beside the covariance goes F, a bound on its error and that of the squared mean, which later iterations change as they
change covariances. An iteration rounds z, roots of second moments, by eps |map| |z|: this adds a few eps z z^T to F.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, results
from ..algorithms import Scaffnew
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..problems import Problem
from ..sampling import IID
from ..threads import small_products
from . import tuning
from .joint_laws import check_plain, checked_method
from .linear import at_rounds, smat, squares, svec, symkron
from .problem_moments import EPS, Moments, moments, start_error
from .rounds import groups_of

if TYPE_CHECKING:
    import xarray as xr

ROUNDINGS = 8  # of a number in an iteration: products on both sides, sums, a communication
SMALLEST = 1e-280  # a square below it has lost digits that its range does not hold


@small_products
def exact_iterations(
    problem: Problem | Moments,
    algorithm: Scaffnew,
    iterations: int = 1000,
    theta_0: ArrayLike | None = None,
    xi_0: ArrayLike | None = None,
    record: int | Sequence[int] = 200,
) -> xr.Dataset:
    """Scaffnew's exact errors per iteration k, not per communication (algo:fed-lsa-controlvar-h1), i.i.d. sampling.

    problem : one of fl.problems, or its moments
    algorithm : fl.Scaffnew(...)
    iterations : local steps of each agent, the last k
    theta_0, xi_0, record : as in `exact`

    Returns a dataset over iteration: psi (eq:definition:lyapunov_app; bounded by thm:potential_psi_t_sto_com_appendix),
    agents_mse = E_c E||theta^c - theta_star||^2, its first part; mse, noise (the variance) and mean (iteration, dim) of
    the average of the agents, which is what a server would hold if it asked. A curve costs as many steps as its last
    iteration. Everybody takes part. The attribute `rounding` bounds the relative error that rounding leaves in psi,
    agents_mse and mse, and in noise relative to mse; where it would be above 0.1% there is a PrecisionError.
    """
    given = checked_method(moments(problem), algorithm, IID())
    check_plain(given, problem.n_agents, "moments per iteration")
    checks.instance("algorithm", given, Scaffnew, "a Scaffnew: other methods have nothing between communications")
    m, x, *_ = groups_of(problem, given, xi_0)
    if not isinstance(algorithm.step_size, float):
        raise ArgumentError(f"step_size must be constant for moments per iteration; got {algorithm.step_size!r}")
    last = checks.integer("iterations", iterations, at_least=1, at_most=tuning.MAX_ITERATIONS)
    recorded = results.recorded_rounds(record, last)
    with np.errstate(over="ignore", invalid="ignore"):
        run = _Run(m, algorithm.step_size, algorithm.probability, start_error(m, theta_0), x + m.xi_star[m.table])
        mean, shown, noise, errors = at_rounds(run.states(), recorded, _Run.show)
        values, noise = (np.where(np.isnan(some), np.inf, some) for some in (shown, noise))
        sure = (values <= SMALLEST) | (values == np.inf)
        rounding = np.where(sure, 0.0, errors / np.where(sure, 1.0, values) + EPS * recorded[:, None])
    if not (rounding <= tuning.MAX_ROUNDING_ERROR).all():
        k = recorded[int(np.argmax((rounding > tuning.MAX_ROUNDING_ERROR).any(1)))]
        rule = f"errors must be known to {tuning.MAX_ROUNDING_ERROR:g}, relative"
        raise PrecisionError(f"{rule}; at iteration {k} rounding may have changed one by {rounding.max():.1g}")
    text = "E of the Lyapunov function, eq:definition:lyapunov_app"
    columns = {
        "psi": ("iteration", values[:, 2], {"description": text}),
        "agents_mse": ("iteration", values[:, 1], {"description": "mean over agents of E||theta^c - theta_star||^2"}),
        "mse": ("iteration", values[:, 0], {"description": "E||mean of the agents - theta_star||^2"}),
        "noise": ("iteration", noise, {"description": "E||mean of the agents - its expectation||^2"}),
        "mean": (("iteration", "dim"), mean + m.theta_star, {"description": "E of the mean of the agents"}),
    }
    attrs = {"method": results.method_label(algorithm), "agents": m.n_agents, "dim": m.dim, "sampling": "IID"}
    attrs |= {"start": m.start_label(theta_0), "rounding": float(rounding.max())}
    import xarray as xr

    return xr.Dataset(columns, coords={"iteration": recorded}, attrs=attrs)


class _Run:
    """After some iterations the mean of (u_bar, v, x), and 0 : (2, n); its covariance C, and F : (2, n, n).

    v and x have E parts of d numbers: the means of K groups, then of each group of several the difference of two agents
    over sqrt(2). share : (E,), in u_bar; counted : (E,), in sums over agents
    """

    def __init__(self, m: Moments, eta: float, p: float, u: Floats, xi: Floats) -> None:
        (K, d), self.several = xi.shape, np.flatnonzero(m.count > 1)
        part, one, theta = np.append(np.arange(K), self.several), np.eye(m.dim), m.theta_star
        E, is_mean, total, within = len(part), np.arange(len(part)) < K, (m.count * m.weight)[part], 1 - 1 / m.count
        checks.memory("the number of different agents", K, 64 * (d + 2 * E * d) ** 2 // K, "their covariances")
        self.moments, self.p, self.part, self.within = m, p, part, within[self.several, None, None]
        self.share, self.counted = is_mean * total, np.where(is_mean, 1, within[part]) * total
        self.noise_share = np.where(is_mean, 1 / m.count[part], 1.0)[:, None, None]  # of an agent's noise in a part
        self.spread = np.vstack([self.share, np.eye(E) - np.outer(is_mean, self.share)])  # of agents to (u_bar, v)
        self.v, self.x = slice(d, d + E * d), slice(d + E * d, None)

        def centred(X: Floats) -> Floats:
            """From the average; first from one of them, so that equal ones have 0."""
            return np.tensordot(self.spread[1:] * is_mean, X - X[0], 1)

        A, b, xi = m.A_bar[m.table][part], m.b_bar[m.table][part], xi[part]
        D, b_centred, own = centred(A), centred(b), one - eta * A
        average = A[0] - D[0]
        data = np.abs(A) * D.any(0) * is_mean[:, None, None]  # entries in which all agents agree have no error in D
        self.local = one - eta * average, own, -eta * D, -1.0
        self.sizes = np.abs(one - eta * average), np.abs(own), eta * data, 1.0
        # the start, and what rounding may have changed in it and in theta_star
        size = np.abs(A) @ np.abs(theta) + np.abs(b)
        off = EPS * (np.abs(np.linalg.inv(average)) @ (self.share @ size) + np.abs(theta))
        x_off = data @ off + EPS * is_mean[:, None] * (np.abs(b) * b_centred.any(0) + np.abs(xi))
        start = np.concatenate([u, np.zeros(E * d), eta / p * (centred(xi) - D @ theta + b_centred).ravel()])
        error = np.concatenate([off * u.any(), np.zeros(E * d), eta / p * x_off.ravel()])
        length = float(np.linalg.norm(error))
        ratio = length / max(float(np.linalg.norm(start)), length, SMALLEST)
        self.off, self.mean, self.C = np.append(off, 0), np.stack([start, 0 * start]), np.zeros((2, *2 * start.shape))
        np.fill_diagonal(self.C[1], error**2 / (ratio or 1) + ratio * start**2)
        if not m.noiseless:
            place = np.eye(d + 1)  # (theta - centre, 1) in terms of (u, 1)
            place[:d, d] = m.offset
            self.noise = (m.noise @ (eta**2 * symkron(place)))[m.table]
            self.noise_sizes = (np.abs(m.noise) @ (eta**2 * symkron(np.abs(place))))[m.table]

    def states(self) -> Iterator[_Run]:
        """Itself after 0, 1, 2, ... iterations."""
        C, mean, p, v, x, U = self.C, self.mean, self.p, self.v, self.x, self.x.start
        UU, XX, F = C[:, :U, :U], C[:, x, x], np.einsum("ii->i", C[1])
        while True:
            yield self
            rounded = np.abs(self._squares()[:1])
            rounded[:, :U] = self._local(np.sqrt(rounded)[..., None], *self.sizes)[..., 0] ** 2
            noise = None if self.moments.noiseless else self._noise()
            mean[:, :U] = self._local(mean[..., None], *self.local)[..., 0]
            half = self._local(C, *self.local)
            C[:, :U, x], C[:, x, :U] = half[..., x], half[..., x].swapaxes(1, 2)
            UU[:] = self._local(half.swapaxes(1, 2), *self.local)
            if noise is not None:
                both = np.tensordot(self.spread[:, :, None, None] * noise[:, None], self.spread, (2, 1))
                UU += both.swapaxes(3, 4).reshape(UU.shape)
            UU[:] = (UU + UU.swapaxes(1, 2)) / 2  # an asymmetry by rounding would grow
            F += ROUNDINGS * EPS * rounded[0]
            coin = p * (1 - p) * (C[:, v, v] + mean[:, v, None] * mean[:, None, v])
            for X in (C, C.swapaxes(1, 2), mean[..., None]):  # a communication in the mean
                X[:, x] -= p * X[:, v]
                X[:, v] *= 1 - p
            XX[:] = (XX + XX.swapaxes(1, 2)) / 2
            for rows, columns in product((v, x), (v, x)):
                C[:, rows, columns] += coin

    def _local(self, X: Floats, average: Floats, own: Floats, D: Floats, sign: float) -> Floats:
        """(u_bar, v) after a local step, of rows (u_bar, v, x) of X : (2, n, columns)."""
        d, (copies, _, columns), U = len(average), X.shape, self.x.start
        out, parts = np.empty((copies, U, columns)), (copies, -1, d, columns)
        c = sign * np.concatenate(list(self.share[:, None, None] * D), axis=1) @ X[:, self.v]
        out[:, :d] = average @ X[:, :d] + sign * c
        moved = np.matmul(own, X[:, self.v].reshape(parts), out=out[:, d:].reshape(parts))
        moved += D @ X[:, None, :d]
        moved += self.p * X[:, self.x].reshape(parts)
        moved[:, : len(self.moments.table)] += c[:, None]
        return out

    def _noise(self) -> Floats:
        """The covariance that observations add to u of each part, and F of it : (2, E, d, d)."""
        d, K, U, off = self.moments.dim, len(self.moments.table), self.x.start, self.off
        blocks = self.C[:, :U, :U].reshape(2, U // d, d, U // d, d)
        own, cross = np.einsum("xeiej->xeij", blocks), blocks[:, 0, :, 1 : K + 1].swapaxes(1, 2)
        second = np.zeros((2, K, d + 1, d + 1))  # of (u, 1) of an agent of each group
        second[..., :d, :d] = own[:, :1] + own[:, 1 : K + 1] + cross + cross.swapaxes(2, 3)
        second[:, self.several, :d, :d] += self.within * own[:, K + 1 :]
        mean = np.append(self.mean[0, :d] + self.mean[0, d : d + K * d].reshape(K, d), np.ones((K, 1)), axis=1)
        second[0] += mean[:, :, None] * mean[:, None, :]
        size = np.sqrt(np.abs(np.einsum("kii->ki", second[0])))
        error = squares(size) * ROUNDINGS * EPS + squares(size + off) - squares(size)
        Q = smat((self.noise @ svec(second)[..., None])[..., 0], d)
        Q[1] += np.eye(d) * smat((self.noise_sizes @ error[..., None])[..., 0], d)
        return self.noise_share * Q[:, self.part]

    def _squares(self) -> Floats:
        """Second moments of (u_bar, v, x), and F of them : (2, n)."""
        return np.einsum("xii->xi", self.C) + self.mean**2

    def show(self) -> tuple[Floats, Floats, float, Floats]:
        """E[u_bar], (mse, agents_mse, psi), the variance of u_bar, and bounds on the errors of the three."""
        d, square = self.moments.dim, self._squares()
        per_agent = square[:, d:].reshape(2, 2, -1, d).sum(3) @ self.counted
        parts = np.cumsum(np.column_stack([square[:, :d].sum(1), per_agent]), axis=1)
        return self.mean[0, :d].copy(), parts[0], max(float(np.trace(self.C[0, :d, :d])), 0.0), parts[1]

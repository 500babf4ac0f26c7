"""Exact moments of Scaffnew iteration by iteration, where agents have drifted apart since they last communicated.

An iteration is a local step of everybody and then, with probability p and for all at once, a communication. In what is
carried nothing is conserved, so that its digits last while errors fall by many orders of magnitude: the average
u_bar = sum_k s_k u_k of the means of groups (s_k = count_k weight_k), v_k = u_k - u_bar, and control variates
x_k = (eta / p) (xi_k - xi_star_k). With D_k = A_k - A_bar, which is exactly 0 for equal agents,

    u_bar <- (I - eta A_bar) u_bar - c,   v_k <- (I - eta A_k) v_k - eta D_k u_bar + c + p x_k,

where c = eta sum_j s_j D_j v_j, and a communication is v_k <- 0, x_k <- x_k - v_k. The sums of s_k v_k and s_k x_k are
0; what rounding makes of them decays as an agent with A_bar does. Agents of a group differ from its mean by deviations
(v, x) that evolve on their own. So there are a mean, a covariance of (u_bar, v, x) and one of deviations in each group.
They are sums of positive terms, the variance of the coin among them, and so is the Lyapunov function: with deviations,

    psi = E||u_bar||^2 + sum_k s_k E||v_k||^2 + sum_k s_k E||x_k||^2.

Beside each covariance goes F, a bound on its error and that of the squared mean, which later iterations change as they
change covariances. An iteration rounds z, roots of second moments, by eps |map| |z|: this adds a few eps z z^T to F.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, results
from ..algorithms import Scaffnew, method_class
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..problems import Problem
from ..sampling import IID
from . import tuning
from .exact_curves import checked_method
from .linear import at_rounds, smat, squares, svec, symkron, triangle
from .problem_moments import EPS, Moments, moments, start_error
from .rounds import groups_of
from .threads import small_products

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
    method_class("algorithm", given, "paper")
    checks.instance("algorithm", given, Scaffnew, "a Scaffnew: other methods have nothing between communications")
    m, x, _ = groups_of(problem, given, xi_0)
    taking_part = algorithm.taking_part(m.n_agents)
    if taking_part < m.n_agents:
        raise ArgumentError(f"participation must be 1.0 for moments per iteration; got {taking_part} of {m.n_agents}")
    if not isinstance(algorithm.step_size, float):
        raise ArgumentError(f"step_size must be constant for moments per iteration; got {algorithm.step_size!r}")
    last = checks.integer("iterations", iterations, at_least=1, at_most=tuning.MAX_ITERATIONS)
    recorded = results.recorded_rounds(record, last)
    with np.errstate(over="ignore", invalid="ignore"):
        run = _Run(m, algorithm.step_size, algorithm.probability)
        run.start(start_error(m, theta_0), theta_0 is not None, x + m.xi_star[m.table])
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
    """The moments of K groups after some iterations, n = (1 + 2 K) d numbers of (u_bar, v, x).

    mean : (n,); UU, UX, XX : covariances of U = (u_bar, v) and x, and F of them : (2, ., .); G : (2, K, 2d, 2d), those
    of (v, x) of one agent of a group from another one, halved.
    """

    def __init__(self, m: Moments, eta: float, p: float) -> None:
        self.moments, self.eta, self.p, self.share = m, eta, p, m.count * m.weight
        self.within = 1 - 1 / m.count  # G counts as much in an agent of a group
        K, d = len(m.table), m.dim
        checks.memory("the number of different agents", K, 80 * d * d * (2 * K + 2), "their covariances")
        self.A, self.b, one = m.A_bar[m.table], m.b_bar[m.table], np.eye(d)
        self.D, own = self._centred(self.A), one - eta * self.A
        average = one - eta * (self.A[0] - self.D[0])
        self.data = np.abs(self.A) * self.D.any(0)  # entries in which all agents agree have no error in D
        self.maps = self._maps(average, own, -eta * self.D, eta * self.D, -one)
        sizes = self._maps(np.abs(average), np.abs(own), eta * self.data, eta * self.data, one)
        self.maps_and_sizes = [np.stack(both) for both in zip(self.maps, sizes, strict=True)]
        self.deviate = np.block([[own, np.tile(p * one, (K, 1, 1))], [0 * own, np.tile(one, (K, 1, 1))]])

    def _centred(self, X: Floats) -> Floats:
        """X : (K, ...) of groups from their average: first from one of them, so that equal ones have 0."""
        X = X - X[0]
        return np.asarray(X - np.tensordot(self.share, X, 1), np.float64)

    def _maps(self, average: Floats, own: Floats, apart: Floats, D: Floats, back: Floats) -> tuple[Floats, ...]:
        """own : (K, d, d) of v_k; shared : ((1 + K) d, 2d) of (u_bar, c); drift : (d, K d), which makes c of v."""
        K, d, _ = own.shape
        shared = np.block([[average, back], [apart.reshape(K * d, d), np.tile(np.eye(d), (K, 1))]])
        return own, shared, np.concatenate(list(self.share[:, None, None] * D), axis=1)

    def start(self, u: Floats, given: bool, xi: Floats) -> None:
        """Known u : (d,) and xi : (K, d), but for what rounding changed in them and in theta_star."""
        m, (K, d), theta, scale = self.moments, xi.shape, self.moments.theta_star, self.eta / self.p
        size = np.abs(self.A) @ np.abs(theta) + np.abs(self.b)
        inverse = np.abs(np.linalg.inv(np.tensordot(self.share, self.A, 1)))
        off = EPS * (inverse @ (self.share @ size) + np.abs(theta))
        b, zero = self._centred(self.b), np.zeros(K * d)
        x_off = self.data @ off + EPS * (np.abs(self.b) * b.any(0) + np.abs(xi))
        self.mean = np.concatenate([u, zero, scale * (self._centred(xi) - self.D @ theta + b).ravel()])
        error = np.concatenate([off * (given and u.any()), zero, scale * x_off.ravel()])
        length = float(np.linalg.norm(error))
        ratio = length / max(float(np.linalg.norm(self.mean)), length, SMALLEST)
        F = error**2 / (ratio or 1) + ratio * self.mean**2
        U = d + K * d
        self.UU, self.UX, self.XX = (np.zeros((2, *size)) for size in ((U, U), (U, K * d), (K * d, K * d)))
        self.UU[1], self.XX[1], self.G = np.diag(F[:U]), np.diag(F[U:]), np.zeros((2, K, 2 * d, 2 * d))
        if not m.noiseless:
            place = np.eye(d + 1)  # (theta - centre, 1) in terms of (u, 1)
            place[:d, d] = m.offset
            self.noise = (m.noise @ (self.eta**2 * symkron(place)))[m.table]
            lost = np.append(np.abs(m.offset), 1.0) * m.offset.any()  # in moments around another centre
            diagonal = np.equal(*triangle(d))
            self.noise_off = np.abs(self.noise @ squares(np.append(off, 0.0)))[:, diagonal]
            self.noise_lost = self.eta**2 * (np.abs(m.noise) @ squares(lost))[m.table][:, diagonal]

    def states(self) -> Iterator[_Run]:
        """Itself after 0, 1, 2, ... iterations."""
        m, p, d, UU, UX, XX, G = self.moments, self.p, self.moments.dim, self.UU, self.UX, self.XX, self.G
        F, F_x, F_within = (np.einsum("...ii->...i", X[1]) for X in (UU, XX, G))
        U, many, v = UU.shape[1], bool(self.within.any()), slice(d, None)
        while True:
            yield self
            now = np.stack([self.mean, np.sqrt(np.abs(self._squares()[0]))])[:, :, None]
            noise = None if m.noiseless else self._noise()
            now[:, :U] = self._local(now[:, :U], now[:, U:], self.maps_and_sizes)
            (self.mean, z), half = now[..., 0], self._local(UU, UX.swapaxes(1, 2), self.maps)
            UX[:] = self._local(UX, XX, self.maps)
            UU[:] = self._local(half.swapaxes(1, 2), UX.swapaxes(1, 2), self.maps)
            F += ROUNDINGS * EPS * z[:U] ** 2
            F_x += ROUNDINGS * EPS * z[U:] ** 2
            if noise is not None:
                self._add_noise(noise)
            UU[:] = _symmetric(UU)
            if many:
                deviation = np.sqrt(np.abs(np.einsum("kii->ki", G[0])))[..., None]
                G[:] = _symmetric(self.deviate @ G @ self.deviate.swapaxes(1, 2))
                F_within += ROUNDINGS * EPS * (np.abs(self.deviate) @ deviation)[..., 0] ** 2
                G[..., :d, :d] += 0 if noise is None else noise
                self._communicate(G[..., :d, :d], G[..., :d, d:], G[..., d:, d:], slice(None))
                G[..., d:, :d] = G[..., :d, d:].swapaxes(-1, -2)
            self._communicate(UU, UX, XX, v)
            moved, x = self.mean[d:U], self.mean[U:]
            coin = p * (1 - p) * np.outer(moved, moved)  # the variance of the coin
            UU[0, v, v] += coin
            UX[0, v] += coin
            XX[0] += coin
            x -= p * moved
            moved *= 1 - p

    def _local(self, U: Floats, x: Floats, maps: Sequence[Floats]) -> Floats:
        """(u_bar, v) of columns U : (2, (1 + K) d, columns) and x : (2, K d, columns) after a local step."""
        own, shared, drift = maps
        d = own.shape[-1]
        out, groups = shared @ np.concatenate([U[:, :d], drift @ U[:, d:]], axis=1), (len(U), -1, d, U.shape[2])
        v = out[:, d:].reshape(groups)
        v += own @ U[:, d:].reshape(groups)
        v += self.p * x.reshape(groups)
        return np.asarray(out, np.float64)

    def _communicate(self, UU: Floats, UX: Floats, XX: Floats, v: slice) -> None:
        """Covariances after the coin, without its own variance."""
        u, both = slice(v.start or 0), UX[..., v, :] + UX[..., v, :].swapaxes(-1, -2)
        XX += self.p * (UU[..., v, v] - both)
        UX[..., u, :] -= self.p * UU[..., u, v]
        for X in (UX[..., v, :], UU[..., v, :], UU[..., u, v]):
            X *= 1 - self.p

    def _noise(self) -> Floats:
        """The covariance that observations add to u of one agent of each group, and F of it : (2, K, d, d)."""
        UU, K, d = self.UU, len(self.share), self.moments.dim
        second = np.zeros((2, K, d + 1, d + 1))  # of (u_k, 1)
        both = UU[:, :d, d:].reshape(2, d, K, d).swapaxes(1, 2)
        second[:, :, :d, :d] = UU[:, None, :d, :d] + both + both.swapaxes(2, 3)
        second[:, :, :d, :d] += np.einsum("akikj->akij", UU[:, d:, d:].reshape(2, K, d, K, d))
        second[:, :, :d, :d] += self.within[:, None, None] * self.G[:, :, :d, :d]
        lifted = np.append(self.mean[:d] + self.mean[d : d + K * d].reshape(K, d), np.ones((K, 1)), axis=1)
        second[0] += lifted[:, :, None] * lifted[:, None, :]
        Q = smat((self.noise @ svec(second).transpose(1, 2, 0)).transpose(2, 0, 1), d)
        own, F = np.einsum("akii->aki", Q)
        F += ROUNDINGS * EPS * (own + self.noise_lost) + 2 * np.sqrt(np.abs(own * self.noise_off)) + self.noise_off
        return Q

    def _add_noise(self, Q: Floats) -> None:
        """That of groups' means, which are independent, to their average and to what is left of it."""
        K, d = Q.shape[1:3]
        N, sign = Q / self.moments.count[:, None, None], np.where(np.arange(K + 1) > 0, 1.0, -1.0)
        spread = np.multiply.outer(sign, self.share**2) - 2 * np.eye(K + 1, K, -1) * self.share
        blocks = self.UU.reshape(2, K + 1, d, K + 1, d)
        blocks += (spread @ N.reshape(2, K, d * d)).reshape(2, K + 1, d, 1, d) * sign[:, None]  # to be made symmetric
        np.einsum("akikj->akij", blocks[:, 1:, :, 1:])[...] += N

    def _squares(self) -> Floats:
        """Second moments of (u_bar, v, x), and F of them : (2, n)."""
        out = np.concatenate([np.einsum("aii->ai", X) for X in (self.UU, self.XX)], axis=1)
        out[0] += self.mean**2
        return out

    def show(self) -> tuple[Floats, Floats, float, Floats]:
        """E[u_bar], (mse, agents_mse, psi), the variance of u_bar, and bounds on the errors of the three."""
        d, K, square = self.moments.dim, len(self.share), self._squares()
        apart = square[:, d:].reshape(2, 2, K, d).sum(3) @ self.share
        apart += ((self.share * self.within) @ np.einsum("akii->aki", self.G)).reshape(2, 2, d).sum(2)
        parts = np.cumsum(np.column_stack([square[:, :d].sum(1), apart]), axis=1)
        return self.mean[:d].copy(), parts[0], max(float(np.trace(self.UU[0, :d, :d])), 0.0), parts[1]


def _symmetric(X: Floats) -> Floats:
    """Without its asymmetry, which rounding makes and which would grow."""
    return np.asarray((X + X.swapaxes(-1, -2)) / 2, np.float64)

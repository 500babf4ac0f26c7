"""Exact moments of Scaffnew iteration by iteration, where agents have drifted apart since they last communicated.

In centred coordinates agent c holds w_c = (u_c, x_c). An iteration is a local step of everybody and then, with
probability p and for all at once, a communication:

    u_c <- M_c (u_c, x_c) + noise;   u_bar = sum_c w_c u_c,   x_c <- x_c + (p / eta) (u_bar - u_c),   u_c <- u_bar,

and communicating is linear too, w_c <- keep w_c + move w_bar. What evolves is the mean m_k, the covariance S_k of one
agent of each group and that of two different agents, T_kl, of each pair of groups. A coin between m and m' adds
p (1 - p) (m - m')(m - m')^T to covariances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from .. import checks, results
from ..algorithms import Scaffnew
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..sampling import IID
from . import tuning
from .exact import centred_start, check_method
from .linear import at_rounds, not_negative, smat, svec
from .local_steps import one_step
from .moments import Moments, start_error
from .threads import small_products

Covariances = tuple[Floats, Floats, Floats]  # m (K, 2d) = E[w], S (K, 2d, 2d) and T (K, 2d, K, 2d)


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
    iteration. Everybody takes part.
    """
    checks.instance("algorithm", algorithm, Scaffnew, "a Scaffnew: other methods have nothing between communications")
    m, x = centred_start(problem, xi_0)
    check_method(m, algorithm, IID())
    taking_part = algorithm.taking_part(m.n_agents)
    if taking_part < m.n_agents:
        raise ArgumentError(f"participation must be 1.0 for moments per iteration; got {taking_part} of {m.n_agents}")
    if not isinstance(algorithm.step_size, float):
        raise ArgumentError(f"step_size must be constant for moments per iteration; got {algorithm.step_size!r}")
    eta, p, d = algorithm.step_size, algorithm.probability, m.dim
    last = checks.integer("iterations", iterations, at_least=1, at_most=tuning.MAX_ITERATIONS)
    recorded = results.recorded_rounds(record, last)
    u = start_error(m, theta_0)
    w = np.concatenate([np.tile(u, (len(x), 1)), x], axis=1)
    step, share = _Iteration(m, eta, p), m.count * m.weight

    def show(state: Covariances) -> tuple[Floats, float, float, float]:
        mean, S, T = state
        square = np.diagonal(S, axis1=1, axis2=2) + mean**2
        average = np.tensordot(share, step.mean_with(S, T), 1)[:d, :d]
        agents = float(share @ square[:, :d].sum(1))
        psi = agents + (eta / p) ** 2 * float(share @ square[:, d:].sum(1))
        return share @ mean[:, :d], float(np.trace(average)), agents, psi

    with np.errstate(over="ignore", invalid="ignore"):
        average_mean, variances, agents_mse, psis = at_rounds(step.states(w), recorded, show)
        squared_bias = np.sum(average_mean**2, axis=1)
        rounding = m.rounding(u, x, eta / p) + tuning.VARIANCE_ROUNDING * squared_bias
        variances = not_negative(variances, rounding, "variances, iteration by iteration,")
    values = {
        "psi": ("iteration", psis, {"description": "E of the Lyapunov function, eq:definition:lyapunov_app"}),
        "agents_mse": ("iteration", agents_mse, {"description": "mean over agents of E||theta^c - theta_star||^2"}),
        "mse": ("iteration", squared_bias + variances, {"description": "E||mean of the agents - theta_star||^2"}),
        "noise": ("iteration", variances, {"description": "E||mean of the agents - its expectation||^2"}),
        "mean": (("iteration", "dim"), average_mean + m.theta_star, {"description": "E of the mean of the agents"}),
    }
    attrs = {"method": results.method_label(algorithm), "agents": m.n_agents, "dim": d, "sampling": "IID"}
    attrs["start"] = m.start_label(theta_0)
    return xr.Dataset(values, coords={"iteration": recorded}, attrs=attrs)


class _Iteration:
    """A local step of everybody, and a coin."""

    def __init__(self, m: Moments, eta: float, p: float) -> None:
        d, t = m.dim, m.table
        one = one_step(m, eta)
        self.moments, self.p = m, p
        self.L = one.M[t, : 2 * d, : 2 * d]
        self.noise = one.noise[t]
        self.keep, self.move = np.zeros((2 * d, 2 * d)), np.zeros((2 * d, 2 * d))  # C w_c = keep w_c + move w_bar
        gain = p / eta
        self.keep[d:, d:], self.keep[d:, :d] = np.eye(d), -gain * np.eye(d)
        self.move[:d, :d], self.move[d:, :d] = np.eye(d), gain * np.eye(d)

    def mean_with(self, S: Floats, T: Floats) -> Floats:
        """Cov(w_bar, w_k) of one agent of each group : (K, 2d, 2d)."""
        m, same = self.moments, np.arange(len(S))
        total = np.tensordot(m.count * m.weight, T, 1).transpose(1, 0, 2)
        return np.asarray(total + m.weight[:, None, None] * (S - T[same, :, same]), np.float64)

    def states(self, w: Floats) -> Iterator[Covariances]:
        """After 0, 1, 2, ... iterations from known w : (K, 2d)."""
        K, n = w.shape
        now = w, np.zeros((K, n, n)), np.zeros((K, n, K, n))
        while True:
            yield now
            now = self.after(*now)

    def after(self, mean: Floats, S: Floats, T: Floats) -> Covariances:
        """One iteration later."""
        (K, n), d = mean.shape, mean.shape[1] // 2
        share, keep, move, p = self.moments.count * self.moments.weight, self.keep, self.move, self.p
        second = np.zeros((K, n + 1, n + 1))  # E[(w, 1)(w, 1)^T]
        second[:, :n, :n] = S
        lifted = np.append(mean, np.ones((K, 1)), axis=1)
        second += lifted[:, :, None] * lifted[:, None, :]
        S = self.L @ S @ self.L.transpose(0, 2, 1)
        S[:, :d, :d] += smat((self.noise @ svec(second)[..., None])[..., 0], d)
        mean = (self.L @ mean[..., None])[..., 0]
        T = (self.L @ T.reshape(K, n, K * n)).reshape(K * n, K, n)
        T = (T.transpose(1, 0, 2) @ self.L.transpose(0, 2, 1)).transpose(1, 0, 2).reshape(K, n, K, n)
        S, T = (S + S.transpose(0, 2, 1)) / 2, (T + T.transpose(2, 3, 0, 1)) / 2  # an asymmetry by rounding would grow
        with_mean = self.mean_with(S, T)
        shared = move @ np.tensordot(share, with_mean, 1) @ move.T
        mixed = move @ with_mean @ keep.T  # Cov(move w_bar, keep w_k)
        S_after = keep @ S @ keep.T + mixed + mixed.transpose(0, 2, 1) + shared
        kept = (keep @ T.reshape(K, n, K * n)).reshape(K, n, K, n) @ keep.T
        T_after = kept + mixed.transpose(1, 0, 2) + mixed.transpose(0, 2, 1)[:, :, None, :] + shared[:, None, :]
        off = mean @ keep.T + share @ mean @ move.T - mean  # what communicating does to the mean
        coin = p * (1 - p) * np.multiply.outer(off, off)
        own = coin[np.arange(K), :, np.arange(K)]
        return (mean + p * off, (1 - p) * S + p * S_after + own, (1 - p) * T + p * T_after + coin)

"""Normal laws around exact moments: the central limit of averaged iterates, of the last one, and confidence regions.

A round is a linear map in the mean, E[s+ | s] = M s, of a joint state s of which u = theta - theta_star is a part. In
its stationary law Cov(s_k, u_0) = M^k Cov(s, u), so that sqrt(T) (mean of T iterates - its limit) has the covariance

    V = C + X + X^T,   C = Cov(u),   X = the part u of sum_{k > 0} Cov(s_k, u_0) = (I - M)^-1 M Cov(s, u).

With decreasing steps noise at theta_star is all that counts: for an average over agents and a local step that is
Sigma = sum_c w_c^2 Cov(A_c(z) theta_star - b_c(z)). The sum of all rounds, A_bar sum_t u_t = -(noise), gives Polyak's
and Ruppert's V = A_bar^-1 Sigma A_bar^-T / H. Of the last iterate, (theta_t - theta_star) / sqrt(eta_t) tends to the
normal law of the V with A_bar V + V A_bar^T = Sigma.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .. import checks
from ..algorithms import Algorithm, PowerStep, method
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..problems import Problem
from ..sampling import IID
from ..threads import small_products
from ..value_objects import Displayed, ReadOnly
from . import tuning
from .exchange_rounds import declared
from .joint import Joint
from .joint_laws import checked_method, joint_limit, joint_round
from .linear import check_accuracy, refined, smat, squares
from .problem_moments import Moments, moments, start_error
from .rounds import AgentRound, ServerRound, groups_of, round_of
from .stationarity import AgentLimit, joint_vector, limit


@dataclass(frozen=True, eq=False, repr=False)
class CentralLimit(Displayed, ReadOnly):
    """The normal law that sqrt(n) (theta_bar - mean) tends to, n = `number(rounds)`; theta_bar : of those rounds.

    mean : (d,), to which averages tend; covariance : (d, d), the paper's V of the module's text
    error : the estimated relative error of the covariance
    last : whether the last iterate stands in for the average
    algorithm : the method
    """

    mean: Floats
    covariance: Floats
    error: float
    last: bool
    algorithm: Algorithm = field(repr=False)

    def number(self, rounds: int) -> float:
        """What sqrt(n) is of: the number of rounds; of the last iterate, 1 / eta."""
        t = checks.integer("rounds", rounds, at_least=1)
        return 1 / float(self.algorithm.eta(np.array([t - 1]))[0]) if self.last else float(t)

    def after(self, rounds: int) -> Floats:
        """(d, d): the covariance of the average of so many rounds, or of the last iterate, if the limit held there."""
        return self.covariance / self.number(rounds)


@small_products
def central_limit(problem: Problem | Moments, algorithm: Algorithm, last: bool = False) -> CentralLimit:
    """The central limit law of averaged iterates (Polyak and Ruppert), i.i.d. observations.

    problem : one of fl.problems, or its moments
    algorithm : the method; at constant steps the mean of FedLSA keeps its bias. Its `average_after` does not matter
    last : whether the law of the last iterate is meant; it is normal in the limit of decreasing steps alone

    >>> p = fl.problems.garnet(agents=4, states=5, features=2, seed=1)
    >>> law = fl.theory.central_limit(p, fl.SCAFFLSA(0.1, 10))
    >>> curve = fl.theory.exact(p, fl.FedLSA(0.1, 1, average_after=0), rounds=5000, record=[5000])
    >>> single = fl.theory.central_limit(p, fl.FedLSA(0.1, 1)).after(5000)
    >>> bool(np.allclose(curve["covariance"][-1], single, rtol=0.05)), law.covariance.shape
    (True, (2, 2))
    """
    m = moments(problem)
    a = checked_method(m, replace(method("algorithm", algorithm, "theory"), average_after=None), IID())
    if isinstance(a.step_size, PowerStep) and a.step_size.power > 0:
        return _decreasing(m, a, a.step_size.power, checks.boolean("last", last))
    eta = float(a.eta(np.zeros(1, np.int64))[0])
    lost = m.check_digits(eta)
    if checks.boolean("last", last):
        raise ArgumentError(f"last must be False at a constant step size: the limit is not normal; got {last}")
    with np.errstate(over="ignore", invalid="ignore"):
        mean, V, error = _of_exchange(problem, a) if declared(a) else _of_round(round_of(groups_of(problem, a), a, eta))
    if not np.isfinite(V).all():
        raise ArgumentError(f"step_size must be small enough for second moments to converge; got {a.step_size}")
    error = max(lost, error)
    if not error <= tuning.MAX_LIMIT_ERROR:
        rule = f"the covariance of averages must be known to {tuning.MAX_LIMIT_ERROR:g}, relative"
        raise PrecisionError(f"{rule}; got an error of {error:.1e}")
    return CentralLimit(m.theta_star + mean, (V + V.T) / 2, error, False, a)


def _of_exchange(problem: Problem | Moments, a: Algorithm) -> tuple[Floats, Floats, float]:
    """E[u], V and its error of a method that is an exchange."""
    found = joint_limit(joint_round(problem, a), start_error(problem, None))
    V, error = found.averaged() if np.isfinite(found.C).all() else (found.C, 0.0)
    return found.mean[: len(V)], V, error


def _of_round(step: ServerRound | AgentRound) -> tuple[Floats, Floats, float]:
    """E[u] : (d,), V : (d, d), infinite where second moments do not converge, and its estimated error, relative."""
    if isinstance(step, ServerRound):
        d, n, (mean, C, error) = step.d, len(step.mean) - 1, step.limit
        S, mean, C, M = C[:, :d], mean[:d], C[:d, :d], step.mean[:n, :n]
    else:
        end = limit(step)
        mean, C, error = np.zeros(step.shape[1]), end.U, end.error
    if not (np.isfinite(C).all() and C.any()):
        return mean, C, error
    if isinstance(step, ServerRound):
        whole, off = refined(np.eye(n) - M, M @ S)
        X = whole[:d]
    else:
        form, S = _with_u(step, end)
        right = _after_a_round(form, S)
        whole = _summed_rounds(form, right)
        change = _summed_rounds(form, right - whole + _after_a_round(form, whole))
        whole, off = whole + change, float(np.linalg.norm(change) / np.linalg.norm(whole))
        X = form.read(whole)[1]
    V = C + X + X.T
    size = float(np.linalg.norm(C) + 2 * np.linalg.norm(whole))  # of what may cancel
    return mean, V, max(error, off) * size / float(np.linalg.norm(V))


def _with_u(step: AgentRound, end: AgentLimit) -> tuple[Joint, Floats]:
    """A round with control variates, and Cov((y, z), u) : (n + l, d) in its limit."""
    if end.route == "modes" and end.known:  # which knows it without the covariances of all pairs
        form = Joint(step)
        return form, end.known[1].swapaxes(1, 2).reshape(form.n, form.d)
    form, vector = joint_vector(step, end)
    rY, rr = form.common_covariances(form.parts(vector))
    by_u = rr @ form.alpha.T
    return form, np.concatenate([rY.T @ form.alpha.T, by_u[len(form.rho) :]])


def _after_a_round(form: Joint, X: Floats) -> Floats:
    return np.stack([form.mean(x) for x in X.T], axis=1)


def _summed_rounds(form: Joint, right: Floats) -> Floats:
    """(I - M)^-1 of columns (f, g) : (n + l, c).

    y_c = F_c y_c + B_c r + f_c gives each agent's y_c as a function of r = (sigma, z), so that r alone is coupled:
    sigma = rho y and, since a round's z+ sees y+ = y - f, z = Z r + X (sigma - rho f) + g.
    """
    n, sums = form.n, len(form.rho)
    f, g, own = right[:n], right[n:], np.linalg.inv(form.moved)  # I - F
    y = (own @ f.reshape(form.K, form.d, -1)).reshape(n, -1)
    by_r = (own @ form.B).reshape(n, -1)
    coupled = np.eye(by_r.shape[1])
    coupled[:sums] -= form.rho @ by_r
    coupled[sums:] -= form.Z
    coupled[sums:, :sums] -= form.X
    r = np.linalg.solve(coupled, np.concatenate([form.rho @ y, g - form.X @ (form.rho @ f)]))
    return np.concatenate([y + by_r @ r, r[sums:]])


def _decreasing(m: Moments, a: Algorithm, power: float, last: bool) -> CentralLimit:
    """The limit law at steps of this power."""
    if declared(a):
        raise ArgumentError(f"step_size must be constant for averages of an exchange; got {a.step_size}")
    N, part, stages = m.n_agents, a.taking_part(m.n_agents), a.stages(1.0, m.n_agents)
    corrected = any(np.any(getattr(stage, "gain", 0.0)) for stage in stages)
    drifts = not corrected and a.mean_steps > 1 and bool(m.xi_star.any())  # FedLSA's bias falls as the step size
    least = 0.5 if drifts and not last else 0.0
    if not least < power < 1:
        raise ArgumentError(f"power of step_size must be above {least:g} and below 1 for a limit law; got {power:g}")
    if a.agent_factors(N) is not None or (last and (len(a.server()[1]) > 1 or a.server()[1][0] != 1)):
        rule = "algorithm must have equal agents, and for the last iterate a server that takes the average,"
        raise ArgumentError(f"{rule} at decreasing steps; got {type(a).__name__}")
    if part < N and corrected:
        raise ArgumentError(f"participation must be 1.0 for control variates at decreasing steps; got {part} of {N}")
    t, w = m.table, m.weight
    own = smat(m.noise[t] @ squares(np.append(m.offset, 1.0)), m.dim)
    noise = np.tensordot(m.count * w**2, own, 1) * N / part / a.mean_steps
    if part < N:  # who takes part is seen in what agents lack at theta_star, which is xi_star
        x = np.sqrt(m.count)[:, None] * w[:, None] * m.xi_star[t]
        noise = noise + N * (N - part) / (part * (N - 1)) * x.T @ x
    A = np.tensordot(m.table_weights, m.A_bar, 1)
    if not (slowest := float(np.linalg.eigvals(A).real.min())) > 0:
        raise ArgumentError(f"A_bar must have eigenvalues with real parts above 0 for a limit law; got {slowest:g}")
    if last:
        from scipy.linalg import solve_continuous_lyapunov as solve  # slow to load

        Q = noise * a.mean_steps
        V = solve(A, Q)
        change = solve(A, Q - A @ V - V @ A.T)
        V, error = V + change, float(np.linalg.norm(change) / np.linalg.norm(V)) if Q.any() else 0.0
    else:
        half, error = refined(A, noise)
        V, off = refined(A, half.T)
        error += off
    check_accuracy(error, "the limit covariance")
    return CentralLimit(m.theta_star, (V + V.T) / 2, error, last, a)

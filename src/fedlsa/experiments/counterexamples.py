"""Statements of the paper that do not hold as printed: counterexamples, with exact numbers.

Each function returns what the printed statement says, the exact number it speaks of, and what the corrected statement
says or leads to. Nothing is simulated: exact numbers come from recursions of moments, or from formulas.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .. import problems, theory
from ..algorithms import SCAFFLSA, FedLSA, Scaffnew
from ..errors import ArgumentError, TheoryWarning
from ..problems import Problem
from ..sampling import Markov


class Comparison(NamedTuple):
    """`what` the printed statement is about, its number, the exact one, and the number of the corrected statement."""

    what: str
    printed: float
    exact: float
    corrected: float = math.nan


# lemmas and assumptions, which a pencil can check

COVARIANCE = r"$\Vert E[xx^\top]\Vert$ (corrected: traces over $d$)"
COUNTEREXAMPLES: dict[str, Callable[[], Comparison]] = {}


def counterexample(function: Callable[[], Comparison]) -> Callable[[], Comparison]:
    """Enter a function under its name."""
    COUNTEREXAMPLES[function.__name__] = function
    return function


def no_speed_up_example(agents: int) -> problems.Problem:
    """The example of thm:no-speed-up-proxskip with a = 1: A(z) = I and b(z) = (b_c +- 1) (1, 1), here b_c = +-1."""
    A, u = np.stack([np.eye(2)] * 2), np.ones(2)
    tables = [([0.5, 0.5], A, np.stack([(b + 1) * u, (b - 1) * u])) for b in (1.0, -1.0)[:agents]]
    return problems.from_observations(tables, assignment=np.arange(agents) % 2)


@counterexample
def dimension() -> Comparison:
    """th:scafflsa_MSE_bound leaves out d, which its proof has: A = I, noise in b alone with covariance I, d = 1000.

    One agent, H = 1: E||x||^2 = d eta / (2 - eta). Printed: with 36, as in the appendix, for the unnamed constant.
    """
    eta, d = 0.004, 1000
    return Comparison("MSE in the limit, at most", 36 * eta, d * eta / (2 - eta), 36 * d * eta)


def spiky() -> tuple[float, float]:
    """E||A||^2 and E||A~||^2 for A(z) = I/10 +- d^{1/2} e_j e_j^T, j uniform, d = 64: here Sigma_A = I."""
    alpha, s = 0.1, 8.0
    return ((alpha + s) ** 2 + (s - alpha) ** 2) / 2, s**2


@counterexample
def averaged_products() -> Comparison:
    """lemma:bound-i-c_sto at H = 2, where I - C / H = eta A(z) / 2; corrected: with ||E[M^T M]|| on the left."""
    eta, (square, _) = 0.01, spiky()
    return Comparison(
        r"$E\Vert I-C/H\Vert^2$, at most", eta**2 * (0.01 + 1), eta**2 / 4 * square, eta**2 / 4 * (0.01 + 1)
    )


@counterexample
def centred_products() -> Comparison:
    """lemma:bound-c-tilde-sto at H = 2 with one agent, where C - E C = -eta A~(z)."""
    eta, (_, square) = 0.01, spiky()
    return Comparison(r"$E\Vert C-E C\Vert^2$, at most", eta**2 * 16 * (0.01 + 1), eta**2 * square, eta**2)


@counterexample
def products_apart() -> Comparison:
    """lemma:bound-dcprod: A = 0.01 and 0.02 without noise, eta = H = 1; C_A^2 is printed for C_A."""
    return Comparison(r"$\Vert\Gamma-\Gamma_c\Vert$, at most", 2 * 0.02**2, 0.005, 2 * 0.02)


@counterexample
def first_covariance() -> Comparison:
    """After the first round: H = 2, one agent, A(z) = I +- s e_1 e_j^T, Sigma_omega = I; spectral norms (printed) fail.

    E[x x^T] = eta^2 (I + E[(I - eta A)(I - eta A)^T]), and E[A~ A~^T] = s^2 e_1 e_1^T while E[A~^T A~] = s^2 / d I.
    """
    eta, s, d = 0.1, 8.0, 4
    left = (1 - eta) ** 2 + eta**2 * s**2 / d
    first = eta**2 * (1 + (1 - eta) ** 2 + eta**2 * s**2)
    rest = eta**2 * (1 + (1 - eta) ** 2)
    assert left < 1  # assum:exp_stability holds
    return Comparison(COVARIANCE, 2 * eta**2, first, (first + (d - 1) * rest) / d)


def covariances(c: float, d: int, eta: float = 1e-3) -> tuple[float, float, float]:
    """||E[x x^T]|| in the limit and its mean eigenvalue, for H = 1, s^2 = c d / eta in that example; and a(eta)."""
    square = (1 - eta) ** 2 + eta * c
    rest = eta**2 / (1 - (1 - eta) ** 2)
    first = (eta * c * (d - 1) * rest + eta**2) / (1 - square)
    return first, (first + (d - 1) * rest) / d, (1 - math.sqrt(square)) / eta


@counterexample
def next_covariance() -> Comparison:
    """lem:ineq-bounds-fluctuations, run to its limit: p <= (1 - eta a)^2 p + 3 eta^2."""
    eta, (first, mean, a) = 1e-3, covariances(0.6, 16)
    return Comparison(COVARIANCE, 3 * eta**2 / (1 - (1 - eta * a) ** 2), first, mean)


@counterexample
def last_covariance() -> Comparison:
    """coro:analysis-noise-param: 18 eta / a, with its condition met."""
    eta, (first, mean, a) = 1e-3, covariances(1 / 400, 40_000)
    assert eta * (1 + 1 / (400 * eta)) <= a / 240
    return Comparison(COVARIANCE, 18 * eta / a, first, mean)


@counterexample
def rate_of_scaffnew() -> Comparison:
    """Below assum:L-a-constant: "the same constant a". A is 1 with probability 1/100, else 0: L = 1, a = 1/100.

    At eta = 1 / L one step has E||(I - eta A) u||^2 = (1 - a) ||u||^2.
    """
    a = 0.01
    return Comparison(r"$E^{1/2}\Vert(I-\eta A)u\Vert^2$, at most", 1 - a, math.sqrt(1 - a), 1 - a / 2)


@counterexample
def short_products() -> Comparison:
    """The proof of lem:last_iterate_bound takes short products for contractions; in one state A(z) may be negative."""
    P, phi = np.array([[[0.1, 0.9], [0.9, 0.1]]])[:, :, None], np.array([[0.2], [1.0]])
    problem = problems.from_mdps(P, np.zeros((1, 2, 1)), np.ones((2, 1)), phi, 0.5)
    A = problem.observations.matrices(slice(0, len(problem.prob)))[0][:, 0, 0]
    eta, chain = theory.markov_constants(problem).eta_inf_M, problem.chain
    assert chain is not None
    here = chain.origin == 0
    fourth = chain.conditional[here] @ (1 - eta * A[here]) ** 4
    return Comparison(r"$E^{1/4}\Vert I-\eta A(z)\Vert^4-1$ from one state, at most", 0.0, fourth**0.25 - 1)


@counterexample
def hurwitz() -> Comparison:
    """assum:exp_stability: -A Hurwitz with an indefinite symmetric part; one step lengthens some vector at any eta."""
    A = np.array([[1.0, 9.0], [0.0, 1.0]])
    problem = problems.from_observations([([1.0], [A], [[1.0, 1.0]])])
    assert np.isnan([theory.stability(problem, eta) for eta in np.geomspace(1e-9, 10, 50)]).all()
    step = np.eye(2) - 0.01 * A
    longest, radius = float(np.linalg.norm(step, 2)), float(np.abs(np.linalg.eigvals(step)).max())
    return Comparison("longest image of a unit vector, below (corrected: spectral radius)", 1.0, longest, radius)


@counterexample
def rewards() -> Comparison:
    """Garnet as described: rewards in [0, 1] plus perturbations in [0, 0.02] leave [0, 1]."""
    garnets = [problems.garnet(agents=100, seed=s).observations for s in range(3)]
    largest = max(float(z.y.max()) for z in garnets if isinstance(z, problems.RankOne))
    return Comparison("largest reward, at most", 1.0, largest)


@counterexample
def scaffnew_assumption() -> Comparison:
    """assum:L-a-constant: with the printed direction any small L will do, so eta = 1 / (2 L) can be as large as liked.

    A(z) = I without noise: S <= E[A^T A] / L holds for L = 0.1, eta = 5; the iterates grow by (1 - eta)^2 = 16.
    """
    problem = problems.from_observations([([1.0], [np.eye(2)], [[1.0, 1.0]])])
    eta = 1 / (2 * 0.1)
    psi = theory.exact(problem, Scaffnew(eta, 1.0), 5, record=[0, 5])["psi"].values
    zeta = min(eta * 1.0, 1.0)
    return Comparison("psi, at most", (1 - zeta) ** 5 * psi[0], psi[1])


# theorems and corollaries


def well(seed: int, agents: int = 2) -> Problem:
    """Three outcomes per agent, A(z) near the identity."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(agents):
        A = (1 + rng.random()) * np.eye(2) + 0.3 * rng.standard_normal((3, 2, 2))
        tables.append((rng.dirichlet(np.ones(3)), A, rng.standard_normal((3, 2))))
    return problems.from_observations(tables)


def chains(seed: int, difference: float | None = None) -> Problem:
    """Two agents on chains of two states, TD(0) with a feature per state; unrelated, or different by a little."""
    rng = np.random.default_rng(seed)
    if difference is None:
        P, r = rng.dirichlet(np.ones(2), (2, 2, 1)), rng.random((2, 2, 1))
    else:
        P, r = rng.dirichlet(5 * np.ones(2), (1, 2, 1)), rng.random((1, 2, 1))
        P, r = np.concatenate([P, P]), np.concatenate([r, r + difference])
        P[1, 0, 0] += difference * np.array([1.0, -1.0])
    return problems.from_mdps(P, r, np.ones((2, 1)), np.eye(2), 0.3)


@counterexample
def drift() -> Comparison:
    """lem:bound-bias lacks ||A_bar_c||^2 / 2: two scalar agents with A = 10 and 20."""
    A, b = np.array([[[10.0]], [[20.0]]]), np.array([[10.0], [-20.0]])
    problem = problems.from_observations([([1.0], A[c : c + 1], b[c : c + 1]) for c in range(2)])
    eta, H = 1e-3, 2
    gap = np.abs(problem.theta_star_local - problem.theta_star)[:, 0]
    printed = (eta * H) ** 2 * np.mean(np.exp(eta * H * A[:, 0, 0]) * gap)
    exact = float(np.linalg.norm(theory.round_bias(problem, eta, H)))
    return Comparison("drift, at most", printed, exact, theory.round_bias_bound(problem, eta, H))


@counterexample
def order_of_sigma_a() -> Comparison:
    """eq:def_covariance_noises: with A~ = s e_j e_1^T the printed E[A~ A~^T] is d times too small in norm."""
    d, s, eta, rounds = 16, 0.1, 0.01, 5000
    noise = np.zeros((2 * d, d, d))
    noise[np.arange(2 * d), np.arange(2 * d) % d, 0] = np.repeat([s, -s], d)
    A, first, law = np.eye(d) + noise, np.eye(d)[0], np.full(2 * d, 0.5 / d)
    problem = problems.from_observations([(law, A, A @ first), (law, A, -A @ first)])
    method, start = FedLSA(eta, 1), problem.theta_star
    known, got = theory.constants(problem), theory.bound(problem, method, rounds, start)
    shrink = max(np.linalg.norm(S, 2) for S in known.table_Sigma_A_printed) / known.Sigma_A_norm
    exact = math.sqrt(theory.exact(problem, method, rounds, start, record=[rounds])["mse"][-1])
    return Comparison("RMSE, at most", got.value * math.sqrt(shrink), exact, got.value)


@counterexample
def fluctuation() -> Comparison:
    """lem:bounding_flbi: two agents differ and are not random, the one at theta_star is; so v_heter = Sigma_eps = 0."""
    random = ([0.5, 0.5], [[[1.9]], [[0.1]]], [[0.0], [0.0]])
    tables = [([1.0], [[[1.0]]], [[2.0]]), ([1.0], [[[2.0]]], [[-2.0]]), random]
    problem, eta, H = problems.from_observations(tables), 1e-4, 2
    rho, a = float(np.linalg.norm(theory.round_bias(problem, eta, H))), theory.stability(problem, eta)
    printed = 2 * math.sqrt(theory.constants(problem).Sigma_A_mean / (3 * H)) * rho / a
    exact = math.sqrt(theory.stationary(problem, FedLSA(eta, H)).variance)
    corrected = theory.bound(problem, FedLSA(eta, H), 1, problem.theta_star).value
    return Comparison("RMS distance from theta_star + bias, at most", printed, exact, corrected)


@counterexample
def equal_matrices() -> Comparison:
    """Below eq:FLSA_recursion_expanded_appendix: with equal A_bar_c the fluctuation of the bias is said to vanish."""
    tables = [([0.5, 0.5], [[[1.5]], [[0.5]]], [[1.5 * b], [0.5 * b]]) for b in (1.0, -1.0)]
    problem, method = problems.from_observations(tables), FedLSA(0.1, 2)
    exact = math.sqrt(theory.stationary(problem, method).variance)
    return Comparison("fluctuation of the bias", 0.0, exact, theory.bound(problem, method, 1, problem.theta_star).value)


@counterexample
def transient_rate() -> Comparison:
    """thm:transient-without-noise is stated with 1/4 and used with 1/2: factors (1 - eta a H / .)^t at one setting."""
    problem = well(0)
    known, H, rounds = theory.constants(problem), 3, 3000
    eta = 0.9 * known.a_sym / (240 * H * (known.C_A**2 + known.Sigma_A_norm))
    virtual = theory.scafflsa_parts(problem).virtual
    a = theory.stability(problem, eta)
    psi = theory.exact(virtual, SCAFFLSA(eta, H), rounds, virtual.theta_star + 1, record=[0, rounds])["psi"].values
    slow, fast = ((1 - eta * a * H / k) ** rounds for k in (4, 2))
    return Comparison("share of psi that is left, at most", slow, psi[1] / psi[0], fast)


@counterexample
def scafflsa_rounds() -> Comparison:
    """The corollary on SCAFFLSA's rounds lacks a factor two: the theorem's bound after the printed rounds."""
    problem, eps = well(5), 0.01
    start = problem.theta_star + 1
    got, known = theory.complexity(problem, "scafflsa", eps, start), theory.constants(problem)
    a = theory.stability(problem, got.step_size)
    psi_0 = 2 + (got.step_size * got.local_steps) ** 2 * known.Delta
    T = 240 * (known.C_A**2 + known.Sigma_A_norm) / a**2 * math.log(4 * psi_0 / eps**2)
    T = math.ceil(T)
    after = theory.bound(problem, got.algorithm, T, start).value
    there = float(theory.exact(problem, got.algorithm, T, start, record=[T])["mse"][-1])
    what = f"bound of the theorem after T rounds, at most (exact MSE there: {there:.3g})"
    return Comparison(what, eps**2, after, got.bound.value)


def noiseless_at_home() -> Problem:
    """b(z) = A(z) theta_c: no noise at the local solutions, so Sigma_eps = 0, but noise at theta_star."""
    rng = np.random.default_rng(0)
    tables = []
    for theta in ([2.0, 0.0], [-2.0, 1.0]):
        A = 1.5 * np.eye(2) + 0.5 * rng.standard_normal((3, 2, 2))
        tables.append((np.full(3, 1 / 3), A, A @ theta))
    return problems.from_observations(tables)


@counterexample
def scaffnew_noise() -> Comparison:
    """thm:potential_psi_t_sto_com_appendix with Sigma_eps, which is 0 here, while psi is not."""
    problem = noiseless_at_home()
    start = problem.theta_star + 1
    known = theory.constants(problem)
    eta, p, rounds = 1 / (2 * known.L), 0.5, 2000
    method = Scaffnew(eta, p)
    got = theory.bound(problem, method, rounds, start)
    psi = float(theory.exact_iterations(problem, method, got.samples, start, record=[got.samples])["psi"][-1])
    printed = got.terms["transient"] + 2 * eta**2 / min(eta * known.a_sym, p**2) * known.sigma_eps
    return Comparison("psi, at most", printed, psi, got.value)


@counterexample
def scafflsa_step() -> Comparison:
    """The step size of SCAFFLSA's corollary with Sigma_eps: where that is 0, no accuracy makes the step smaller."""
    problem, eps = noiseless_at_home(), 1e-3
    known = theory.constants(problem)
    eta_inf = known.a_sym / (480 * (known.C_A**2 + known.Sigma_A_norm))  # half of what the theorem allows at H = 1
    share = problem.n_agents * known.a_sym * eps**2 / (72 * problem.dim)
    steps = (min(eta_inf, share / max(known.Sigma_eps_norm, 1e-300)), min(eta_inf, share / known.Sigma_omega_norm))
    exact, corrected = (theory.stationary(problem, SCAFFLSA(eta, 1)).mse for eta in steps)
    return Comparison("MSE after any number of rounds, at most", eps**2, exact, corrected)


@counterexample
def scaffnew_iterations() -> Comparison:
    """cor:scaffnew-complexity: psi after the printed iterations (Sigma_omega corrected), and after more."""
    problem, eps = well(6), 0.1
    start = problem.theta_star + 1
    known = theory.constants(problem)
    a, sigma = known.a_sym, known.sigma_omega
    eta = min(1 / (2 * known.L), eps**2 * a / (8 * sigma))
    p = math.sqrt(eta * a)
    X = 2 + min(1 / (2 * a * known.L), eps**2 / (8 * sigma)) * known.Delta
    printed = max(2 * known.L / a, 4 * sigma / (eps * a) ** 2) * math.log(X / (2 * eps**2))
    corrected = max(2 * known.L / a, 8 * sigma / (eps * a) ** 2) * math.log(2 * X / eps**2)
    psi = []
    for K in (math.ceil(printed), math.ceil(corrected)):
        psi.append(float(theory.exact_iterations(problem, Scaffnew(eta, p), K, start, record=[K])["psi"][-1]))
    return Comparison("psi after K iterations, at most", eps**2, psi[0], psi[1])


@counterexample
def lower_bound() -> Comparison:
    """thm:no-speed-up-proxskip: its right-hand side, taken as an equality, against psi; corrected: without the 2."""
    eta, K = 0.05, 1000
    zeta = 1 - (1 - eta) ** 2
    problem, method = no_speed_up_example(2), Scaffnew(eta, math.sqrt(zeta))
    known = theory.constants(problem)
    start, left = 2 + eta**2 / zeta * known.Delta, (1 - zeta) ** K
    psi = float(theory.exact_iterations(problem, method, K, problem.theta_star + 1, record=[K])["psi"][-1])
    noise = eta**2 / zeta * known.sigma_eps
    return Comparison("psi", left * start + 2 * noise, psi, left * start + (1 - left) * noise)


@counterexample
def speed_up() -> Comparison:
    """In that example psi does not fall from one agent to four, but the server's MSE does: ratios four to one."""
    method, ends = Scaffnew(0.05, 0.2), []
    for N in (1, 4):
        e = theory.exact_iterations(no_speed_up_example(N), method, 5000, record=[5000])
        ends.append((float(e["psi"][-1]), float(e["mse"][-1])))
    psi, mse = np.divide(ends[1], ends[0])
    return Comparison("psi of 4 agents over that of 1 (corrected: the server's MSE, likewise)", 1.0, psi, mse)


@counterexample
def coupling() -> Comparison:
    """eq:delta_corr: sqrt(delta) times the lemma's bound must be epsilon^2; the printed delta lacks a square."""
    problem, eps = chains(3), 0.1
    far, method = problem.theta_star + 1e4, FedLSA(1e-6, 1)
    got = theory.markov_block(problem, method, 1, eps, far)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TheoryWarning)
        lemma = theory.bound(problem, method, 1, far, Markov()).mse
    left = [math.sqrt(delta) * lemma for delta in (got.delta_printed, got.delta)]
    return Comparison("what coupling may leave, at most", eps**2, left[0], left[1])


@counterexample
def infeasible() -> Comparison:
    """cor:sample_complexity_lsa_Markov: at the least round length of the lemma, the bias alone exceeds epsilon."""
    problem, eps = chains(0, 0.2), 1e-3
    try:
        theory.complexity(problem, "markov", eps)
        raise AssertionError("this setting was feasible")
    except ArgumentError:
        pass
    markov = theory.markov_constants(problem)
    eta = theory.complexity(problem, "synchronous", eps).step_size
    eta = min(eta, markov.eta_inf_M)
    updates = math.ceil(12 / markov.a_tilde * (2 + math.log(problem.dim * markov.kappa_Q) / 2) / eta)
    bias = float(np.linalg.norm(theory.bias(problem, eta, updates)))
    return Comparison("RMSE, at most", eps, bias)


@counterexample
def debiased() -> Comparison:
    """The mean of FedLSA tends to theta_star PLUS the bias: distances of theta +- bias to theta_star."""
    problem, eta, H = well(0), 0.05, 10
    bias = theory.bias(problem, eta, H)
    limit = theory.exact(problem, FedLSA(eta, H), 1000, record=[1000])["mean"].values[-1]
    plus, minus = (float(np.linalg.norm(limit + s * bias - problem.theta_star)) for s in (1, -1))
    return Comparison("distance of the corrected mean from theta_star", 0.0, plus, minus)

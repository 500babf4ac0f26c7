"""Lemmas and assumptions of the paper that do not hold as printed: counterexamples that a pencil can check.

Each function returns what the printed statement says, the exact number it speaks of, and what the corrected statement
says or leads to. Nothing is simulated: exact numbers come from recursions of moments, or from formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .. import problems, theory
from ..algorithms import Scaffnew


class Comparison(NamedTuple):
    """`what` the printed statement is about, its number, the exact one, and the number of the corrected statement."""

    what: str
    printed: float
    exact: float
    corrected: float = math.nan


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

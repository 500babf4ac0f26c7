"""Scaffnew per iteration: against enumeration of all outcomes and coins, against its own rounds, and its theorem."""

import itertools

import numpy as np
import pytest
from tables import tiny

import fedlsa as fl


def enumerated(problem: fl.Problem, eta: float, p: float, iterations: int, theta_0: np.ndarray) -> list[tuple]:
    """psi, E_c E||theta^c - theta_star||^2, the MSE and the mean of the average, after each iteration."""
    N, w, star = problem.n_agents, problem.weights, problem.theta_star
    spans = [list(problem.spans())[m] for m in problem.assignment]
    tables = [(problem.prob[s], *problem.observations.matrices(s)) for s in spans]
    states = [(1.0, np.tile(theta_0, (N, 1)), np.zeros((N, problem.dim)))]
    out = []
    for k in range(iterations + 1):
        if k:
            later = []
            for q, theta, xi in states:
                for z in itertools.product(*(range(len(t[0])) for t in tables)):
                    chance, hat = q, theta.copy()
                    for c, (prob, A, b) in enumerate(tables):
                        chance *= prob[z[c]]
                        hat[c] -= eta * (A[z[c]] @ theta[c] - b[z[c]] - xi[c])
                    mean = np.tile(w @ hat, (N, 1))
                    later += [(chance * (1 - p), hat, xi), (chance * p, mean, xi + p / eta * (mean - hat))]
            states = later
        agents = sum(q * (w @ np.sum((th - star) ** 2, 1)) for q, th, _ in states)
        spread = sum(q * (w @ np.sum((xi - problem.xi_star) ** 2, 1)) for q, _, xi in states)
        average = sum(q * np.sum((w @ th - star) ** 2) for q, th, _ in states)
        mean = sum(q * (w @ th) for q, th, _ in states)
        out.append((agents + (eta / p) ** 2 * spread, agents, average, mean))
    return out


@pytest.mark.parametrize("assignment", [[0, 1], [0, 0, 1]])
def test_every_iteration_equals_the_enumeration_of_all_outcomes(assignment):
    weights = [1.0, 2.0] if len(assignment) == 2 else None
    problem = tiny(2, 2, 2, 23, weights=weights, assignment=assignment)
    start = problem.theta_star + np.array([1.0, -0.5])
    found = fl.theory.exact_iterations(problem, fl.Scaffnew(0.2, 0.4), iterations=3, theta_0=start)
    expected = enumerated(problem, 0.2, 0.4, 3, start)
    for k, (psi, agents, mse, mean) in enumerate(expected):
        at = found.sel(iteration=k)
        np.testing.assert_allclose([at["psi"], at["agents_mse"], at["mse"]], [psi, agents, mse], rtol=1e-12)
        np.testing.assert_allclose(at["mean"], mean, rtol=0, atol=1e-12)


def test_communicating_always_is_the_curve_of_rounds():
    problem, a = tiny(3, 2, 3, 5, weights=[1.0, 2.0, 3.0]), fl.Scaffnew(0.3, 1.0)
    by_round, by_iteration = fl.theory.exact(problem, a, 30), fl.theory.exact_iterations(problem, a, 30)
    for name in ("mse", "psi"):
        np.testing.assert_allclose(by_iteration[name], by_round[name], rtol=1e-11)
    np.testing.assert_allclose(by_iteration["agents_mse"], by_iteration["mse"], rtol=1e-11)


def test_the_clock_of_iterations_and_that_of_communications_have_one_limit():
    problem, a = tiny(2, 2, 3, 9), fl.Scaffnew(0.2, 0.5)
    far = fl.theory.exact_iterations(problem, a, 3000, record=2)
    assert float(far["mse"][-1]) == pytest.approx(fl.theory.stationary(problem, a).mse, rel=1e-9)


def test_without_speed_up_psi_stays_where_it_is_as_agents_are_added_and_the_average_does_not():
    limits = []
    for N in (1, 4, 16):
        problem = tiny(1, 2, 3, 31, assignment=[0] * N)
        end = fl.theory.exact_iterations(problem, fl.Scaffnew(0.05, 0.2), 2000, record=2).isel(iteration=-1)
        limits.append((float(end["psi"]), float(end["mse"])))
    (psi_1, mse_1), _, (psi_16, mse_16) = limits
    assert mse_16 < mse_1 / 10
    assert psi_16 > psi_1 / 2


def test_the_theorem_on_psi_holds_at_every_iteration():
    rng = np.random.default_rng(0)
    sites = [(rng.standard_normal((40, 2)), rng.standard_normal(40)) for _ in range(3)]
    problem = fl.problems.regression(sites)
    eta, p = 1 / (2 * fl.theory.constants(problem).L), 0.25
    a = fl.Scaffnew(eta, p)
    found = fl.theory.exact_iterations(problem, a, 400, record=101)
    for T in (1, 10, 50, 100):
        bound = fl.theory.bound(problem, a, T)
        assert bound.holds
        assert float(found["psi"].sel(iteration=4 * T)) <= bound.value


@pytest.mark.parametrize(
    ("a", "keywords", "named"),
    [
        (fl.SCAFFLSA(0.1, 3), {}, "algorithm"),
        (fl.Scaffnew(fl.PowerStep(0.1, 0.5), 0.3), {}, "step_size"),
        (fl.Scaffnew(0.1, 0.3, participants=1), {}, "participation"),
        (fl.Scaffnew(0.1, 0.3), {"iterations": 0}, "iterations"),
        (fl.Scaffnew(0.1, 0.3), {"theta_0": [1.0]}, "theta_0"),
    ],
)
def test_bad_arguments_are_refused_by_name(a, keywords, named):
    with pytest.raises((fl.errors.ArgumentError, fl.errors.ArgumentTypeError), match=named):
        fl.theory.exact_iterations(tiny(2, 2, 2, 0), a, **keywords)

"""Scaffnew per iteration: against enumeration of all outcomes and coins, against its own rounds, and its theorem.

And against second moments of all agents' (u, x) with 300 digits, on problems kind and hostile.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from rational import solve
from tables import tiny
from tiers import mostly_long

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


BITS = 1000  # after the binary point


def fixed(values) -> np.ndarray:
    """Numbers as integers in units of 2**-BITS."""
    return np.vectorize(lambda x: round(Fraction(x) * 2**BITS), otypes=[object])(np.asarray(values, object))


def with_many_digits(problem: fl.Problem, a: fl.Scaffnew, ks: list[int], theta_0: np.ndarray) -> list[dict]:
    """psi, agents_mse, mse and noise after the given iterations, from E[s s^T] of s = (u_1, ..., x_1, ..., 1)."""
    exactly = np.vectorize(Fraction, otypes=[object])
    w, N, d = exactly(problem.weights) / sum(exactly(problem.weights)), problem.n_agents, problem.dim
    eta, p, one = Fraction(a.step_size), Fraction(a.probability), exactly(np.eye(N))
    spans = [list(problem.spans())[m] for m in problem.assignment]
    tables = [(exactly(problem.prob[s]), *map(exactly, problem.observations.matrices(s))) for s in spans]
    tables = [(prob / sum(prob), A, b) for prob, A, b in tables]
    A_bar = np.array([np.tensordot(prob, A, 1) for prob, A, _ in tables])
    b_bar = np.array([prob @ b for prob, _, b in tables])
    star = solve(np.tensordot(w, A_bar, 1), w @ b_bar)
    x = b_bar - A_bar @ star
    s = fixed([*np.tile(exactly(theta_0) - star, N), *x.ravel(), 1])
    local, talk, n = fixed(np.eye(len(s), dtype=int)), fixed(np.eye(len(s), dtype=int)), N * d
    average = np.tile(w, (N, 1))
    talk[:n, :n] = fixed(np.kron(average, np.eye(d, dtype=int)))
    talk[n:-1, :n] = fixed(np.kron((average - one) * p / eta, np.eye(d, dtype=int)))
    local[:n, n:-1] = fixed(np.eye(n, dtype=int) * eta)
    noise = []
    for c, (prob, A, b) in enumerate(tables):
        own = np.arange(c * d, c * d + d)
        local[np.ix_(own, own)] -= fixed(eta * A_bar[c])
        deviations = np.concatenate([A - A_bar[c], ((A - A_bar[c]) @ star - b + b_bar[c])[..., None]], axis=2)
        noise += [(own, fixed(q * eta**2)[()], fixed(B)) for q, B in zip(prob, deviations, strict=True) if B.any()]
    S, mean, p_fixed, out = np.multiply.outer(s, s) >> BITS, s, fixed(p)[()], []
    for k in range(max(ks) + 1):
        if k:
            added = [(own, B @ S[np.ix_([*own, -1], [*own, -1])] @ B.T >> 2 * BITS, q) for own, q, B in noise]
            S, mean = local @ S @ local.T >> 2 * BITS, local @ mean >> BITS
            for own, Q, q in added:
                S[np.ix_(own, own)] += q * Q >> BITS
            S += p_fixed * ((talk @ S @ talk.T >> 2 * BITS) - S) >> BITS
            mean = mean + (p_fixed * ((talk @ mean >> BITS) - mean) >> BITS)
        if k in ks:
            squares = np.array([Fraction(int(y), 2**BITS) for y in S.diagonal()[:-1]], object).reshape(2, N, d).sum(2)
            pick = np.kron(fixed(w)[None], np.eye(d, dtype=int))
            mse, bias = (pick @ S[:n, :n] @ pick.T >> 2 * BITS).trace(), pick @ mean[:n] >> BITS
            found = (w @ squares[0] + (eta / p) ** 2 * (w @ squares[1]), w @ squares[0])
            found += (Fraction(int(mse), 2**BITS), Fraction(int(mse - (bias @ bias >> BITS)), 2**BITS))
            out.append(dict(zip(("psi", "agents_mse", "mse", "noise"), found, strict=True)))
    return out


def deterministic(*agents, **keywords) -> fl.Problem:
    return fl.problems.from_observations([([1.0], [A], [b]) for A, b in agents], **keywords)


def noisy_b(size: float) -> fl.Problem:
    tables = [([0.5, 0.5], [[[A]], [[A]]], [[b + size], [b - size]]) for A, b in ((1.0, 0.5), (0.5, 1.25))]
    return fl.problems.from_observations(tables)


THREE = deterministic(([[1.5]], [0.5]), ([[0.5]], [1.25]), ([[0.75]], [-0.25]))
CORRIDOR = np.eye(3) - 0.9 * np.eye(3, k=1)
TURN, SCALES = np.array([[0.1, 1.0], [-1.0, 0.1]]), np.array([[0.7, 1e3], [-1e-4, 0.9]])
HOSTILE = {
    "three deterministic agents": (THREE, 0.1875, 0.25, 1000),
    "always communicating": (THREE, 0.1875, 1.0, 300),
    "hardly ever communicating": (THREE, 0.1875, 1e-4, 100),
    "hardly ever not communicating": (THREE, 0.1875, 0.999, 300),
    "equal deterministic agents": (tiny(1, 2, 1, 2, assignment=[0, 0], weights=[1.0, 3.0]), 0.2, 0.3, 300),
    "equal agents": (tiny(1, 1, 2, 2, assignment=[0, 0, 0], weights=[1.0, 2.0, 2.0]), 0.2, 0.3, 300),
    "one agent": (tiny(1, 2, 3, 4), 0.2, 0.3, 300),
    "groups": (tiny(2, 1, 2, 9, assignment=[0, 0, 1, 1, 1]), 0.2, 0.3, 100),
    "deterministic groups": (tiny(2, 1, 1, 9, assignment=[0, 0, 1, 1, 1]), 0.2, 0.3, 100),
    "weights from 1e-4 to 100": (tiny(3, 1, 2, 8, weights=[1.0, 100.0, 1e-4]), 0.2, 0.3, 300),
    "one-hot corridor": (deterministic((CORRIDOR, [0, 0, 1]), (1.25 * CORRIDOR, [0, 0, 3])), 0.5, 0.3, 100),
    "badly scaled": (deterministic((SCALES, [1e3, 1e-3]), (1.5 * SCALES, [0, 1])), 0.2, 0.3, 100),
    "turning": (deterministic((TURN, [1, 0]), (2 * TURN, [0, 1])), 0.05, 0.2, 200),
    "an unstable agent": (deterministic(([[-0.25]], [1]), ([[1.5]], [0.5])), 0.2, 0.2, 300),
    "a very unstable agent": (deterministic(([[-1.5]], [1]), ([[3.5]], [0.5])), 0.05, 0.5, 300),
    "noise in b": (noisy_b(0.5), 0.2, 0.3, 300),
    "hardly any noise in b": (noisy_b(1e-9), 0.2, 0.3, 300),
    "small steps": (tiny(2, 1, 2, 6), 1e-4, 0.01, 300),
    "unstable": (tiny(2, 1, 2, 12), 3.0, 0.3, 100),
}
QUICK = ("hardly ever communicating", "always communicating", "deterministic groups", "badly scaled", "noise in b")


@pytest.mark.parametrize("name", mostly_long(HOSTILE, QUICK))
def test_errors_keep_their_digits_however_far_they_fall(name):
    problem, eta, p, last = HOSTILE[name]
    a, ks, start = fl.Scaffnew(eta, p), [1, 20, last], problem.theta_star + 1
    found = fl.theory.exact_iterations(problem, a, last, start, record=ks).sel(iteration=ks)
    assert found.attrs["rounding"] < 1e-11
    for i, want in enumerate(with_many_digits(problem, a, ks, start)):
        for column, value in want.items():
            got = Fraction(float(found[column][i]))
            assert abs(got - value) <= found.attrs["rounding"] * abs(value) + Fraction(1, 2 ** (BITS - 50)), column


def test_what_rounding_may_have_changed_is_told_where_the_system_is_ill_conditioned():
    A = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-5]]) / 3
    problem, a = deterministic((A, [1.0, 0.3]), (A + np.eye(2) * 1e-6, [0.7, 1.1])), fl.Scaffnew(0.2, 0.3)
    start = problem.theta_star + np.array([1.0, -1.0])
    found = fl.theory.exact_iterations(problem, a, 30, start, record=[30])
    (want,) = with_many_digits(problem, a, [30], start)
    assert found.attrs["rounding"] < 1e-5
    for column in ("psi", "agents_mse", "mse"):
        error = abs(Fraction(float(found[column][-1])) / want[column] - 1)
        assert error < found.attrs["rounding"]


def test_an_error_that_rounding_hides_is_refused():
    A = np.array([[1.0, 0.3], [0.3, 0.5]])
    fast = np.linalg.eigh(A)[1][:, 1]  # what falls slowly is there by rounding alone
    with pytest.raises(fl.errors.PrecisionError, match="iteration 200"):
        fl.theory.exact_iterations(deterministic((A, [0, 0])), fl.Scaffnew(0.5, 0.5), 200, fast, record=[5, 200])


def test_communicating_always_is_the_curve_of_rounds():
    problem, a = tiny(3, 2, 3, 5, weights=[1.0, 2.0, 3.0]), fl.Scaffnew(0.3, 1.0)
    by_round, by_iteration = fl.theory.exact(problem, a, 30), fl.theory.exact_iterations(problem, a, 30)
    for name in ("mse", "psi"):
        np.testing.assert_allclose(by_iteration[name], by_round[name], rtol=1e-11)
    np.testing.assert_allclose(by_iteration["agents_mse"], by_iteration["mse"], rtol=1e-11)


def test_the_clock_of_iterations_and_that_of_communications_have_one_limit():
    problem, a = tiny(2, 2, 3, 9), fl.Scaffnew(0.2, 0.5)
    far = fl.theory.exact_iterations(problem, a, 500, record=2)
    assert float(far["mse"][-1]) == pytest.approx(fl.theory.stationary(problem, a).mse, rel=1e-9)


def test_without_speed_up_psi_stays_where_it_is_as_agents_are_added_and_the_average_does_not():
    limits = []
    for N in (1, 4, 16):
        problem = tiny(1, 2, 3, 31, assignment=[0] * N)
        end = fl.theory.exact_iterations(problem, fl.Scaffnew(0.05, 0.2), 500, record=2).isel(iteration=-1)
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

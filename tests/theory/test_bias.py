"""The limit bias of FedLSA against the mean recursion written out, and against what the paper says of it."""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pytest
from gallery import CASES
from rational import rational, solve

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.theory.bias_terms import limit_bias, power_sums

EPS = np.finfo(np.float64).eps


def exact_systems(A, b, **options):
    """A problem whose agents have the systems A : (N, d, d), b : (N, d), each observed without noise."""
    return fl.problems.from_observations([(np.ones(1), A[c : c + 1], b[c : c + 1]) for c in range(len(A))], **options)


def random_systems(seed, agents=3, dim=3, **options):
    rng = np.random.default_rng(seed)
    A = np.eye(dim) + 0.4 * rng.standard_normal((agents, dim, dim))
    return exact_systems(A, rng.standard_normal((agents, dim)), **options)


def mean_round(problem, theta, eta, H):
    """One round of FedLSA without noise (Algorithm 1), literally."""
    out = np.zeros(problem.dim)
    for weight, A, b in zip(problem.weights, problem.A_bar, problem.b_bar, strict=True):
        theta_hat = theta
        for _ in range(H):
            theta_hat = theta_hat - eta * (A @ theta_hat - b)
        out += weight * theta_hat
    return out


@pytest.mark.parametrize("H", [2, 3, 7, 10])
def test_mean_recursion_tends_to_theta_star_plus_bias(H):
    problem = random_systems(1, weights=[1.0, 2.0, 3.0])
    theta = problem.theta_star + 1
    for _ in range(3000 // H):
        theta = mean_round(problem, theta, 0.05, H)
    np.testing.assert_allclose(theta, problem.theta_star + fl.theory.bias(problem, 0.05, H), atol=1e-12)


@pytest.mark.parametrize("H", [1, 2, 9])
def test_round_bias_is_the_drift_of_one_round_from_theta_star(H):
    problem = random_systems(2)
    drift = mean_round(problem, problem.theta_star, 0.1, H) - problem.theta_star
    np.testing.assert_allclose(fl.theory.round_bias(problem, 0.1, H), drift, atol=1e-14)


def test_bias_is_the_formula_of_the_first_theorem():
    problem, eta, H = random_systems(3), 0.1, 12
    powers = np.stack([np.linalg.matrix_power(np.eye(3) - eta * A, H) for A in problem.A_bar])
    rho = np.mean((np.eye(3) - powers) @ (problem.theta_star_local - problem.theta_star)[..., None], axis=0)[:, 0]
    np.testing.assert_allclose(fl.theory.round_bias(problem, eta, H), rho, rtol=1e-12)
    expected = np.linalg.solve(np.eye(3) - powers.mean(axis=0), rho)
    np.testing.assert_allclose(fl.theory.bias(problem, eta, H), expected, rtol=1e-11)


def test_bias_vanishes_when_local_steps_is_one():
    assert np.array_equal(fl.theory.bias(random_systems(4), 0.1, 1), np.zeros(3))


@pytest.mark.parametrize("H", [2, 100, 10**6])
def test_bias_vanishes_when_agents_are_identical(H):
    rng = np.random.default_rng(5)
    A, b = np.eye(4) + 0.3 * rng.standard_normal((4, 4)), rng.standard_normal(4)
    problem = exact_systems(np.stack([A] * 3), np.stack([b] * 3))
    np.testing.assert_allclose(fl.theory.bias(problem, 0.05, H), 0, atol=1e-14)


def test_bias_exists_when_an_agent_alone_is_singular():
    A = np.stack([np.diag([1.0, 0.0]), np.array([[1.0, 0.2], [0.0, 2.0]])])
    problem = exact_systems(A, np.array([[1.0, 0.5], [0.3, -1.0]]))
    assert np.isnan(problem.theta_star_local[0]).all()
    fixed = problem.theta_star + fl.theory.bias(problem, 0.1, 6)
    np.testing.assert_allclose(mean_round(problem, fixed, 0.1, 6), fixed, atol=1e-14)


def test_bias_tends_to_its_first_order_formula_at_the_rate_of_the_step_size():
    problem, H = random_systems(6), 8
    gap = (problem.theta_star_local - problem.theta_star)[..., None]
    slope = np.mean(problem.A_bar @ problem.A_bar @ gap, axis=0)[:, 0]
    direction = -(H - 1) / 2 * np.linalg.solve(problem.A_bar.mean(axis=0), slope)
    steps = 10.0 ** -np.arange(3, 9)
    errors = np.array([np.linalg.norm(fl.theory.bias(problem, eta, H) / eta - direction) for eta in steps])
    np.testing.assert_allclose(errors[:-1] / errors[1:], 10, rtol=0.05)  # the relative error is of order eta, to 1e-8


def test_bias_of_many_steps_is_the_distance_to_the_mean_of_the_local_solutions():
    problem = random_systems(7)
    expected = problem.theta_star_local.mean(axis=0) - problem.theta_star
    np.testing.assert_allclose(fl.theory.bias(problem, 0.05, 10**9), expected, rtol=1e-9)


def test_agents_that_share_a_table_count_by_their_weights():
    problem = random_systems(8, agents=2, assignment=[0, 1, 1], weights=[1.0, 0.5, 2.5])
    apart = random_systems(8, agents=2, weights=[1.0, 3.0])
    np.testing.assert_allclose(fl.theory.bias(problem, 0.1, 5), fl.theory.bias(apart, 0.1, 5), rtol=1e-12)


@pytest.mark.parametrize("H", [1, 2, 3, 6, 13, 64, 100])
def test_power_sums_are_the_sums_of_powers(H):
    A = np.random.default_rng(9).standard_normal((2, 3, 3))
    expected = sum(np.stack([np.linalg.matrix_power(np.eye(3) - 0.1 * a, h) for a in A]) for h in range(H))
    S, F = power_sums(A, 0.1, H)
    np.testing.assert_allclose(S, expected, rtol=1e-10)
    np.testing.assert_allclose(F, expected - expected[0], rtol=1e-10, atol=1e-9)


ONES = exact_systems(np.ones((2, 1, 1)), np.array([[1.0], [2.0]]))


@pytest.mark.parametrize(
    ("problem", "eta", "H", "radius"),
    [
        (random_systems(10), 3.0, 2, r"\d+\.\d+"),
        (ONES, 3.0, 10**6, "inf"),
        (ONES, 2.0, 2, "1"),
        (ONES, 2.5, 1, r"1\.5"),
    ],
)
def test_a_recursion_without_a_limit_has_no_bias(problem, eta, H, radius):
    rule = f"step_size must be small enough for the mean of FedLSA with local_steps={H} to have a limit"
    with pytest.raises(ArgumentError, match=f"^{rule}; got {eta:g}, where its .* radius {radius}, not below 1$"):
        fl.theory.bias(problem, eta, H)


def test_a_step_that_one_swallows_has_the_bias_of_first_order():
    problem, eta = random_systems(11), 1e-20
    expected = fl.theory.first_order_bias(problem, eta, 10)
    np.testing.assert_allclose(fl.theory.bias(problem, eta, 10), expected, rtol=1e-9)


def test_a_stable_recursion_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fl.theory.bias(random_systems(11), 0.05, 10**4)


def test_the_nearly_homogeneous_garnet_has_a_tiny_bias_and_the_heterogeneous_one_a_large_one():
    same, other = (fl.problems.garnet(agents=10, heterogeneous=h, seed=1) for h in (False, True))
    small, large = (np.linalg.norm(fl.theory.bias(p, 0.1, 1000)) for p in (same, other))
    assert 0 < small < 0.1 * large


def test_bias_refuses_steps_that_are_not_positive():
    problem = random_systems(12)
    with pytest.raises(ArgumentError, match="step_size must be a finite number above 0; got 0"):
        fl.theory.bias(problem, 0, 3)
    with pytest.raises(ArgumentError, match="local_steps must be a positive integer; got 0"):
        fl.theory.bias(problem, 0.1, 0)


@pytest.mark.parametrize("H", [1, 2, 7])
@pytest.mark.parametrize("t", [0, 1, 2, 5, 64])
def test_finite_time_bias_is_the_mean_recursion_started_at_theta_star(H, t):
    problem = random_systems(13, weights=[1.0, 2.0, 3.0])
    theta = problem.theta_star
    for _ in range(t):
        theta = mean_round(problem, theta, 0.1, H)
    np.testing.assert_allclose(fl.theory.bias_at(problem, 0.1, H, t), theta - problem.theta_star, atol=1e-13)


def test_finite_time_bias_is_the_printed_sum_and_tends_to_the_limit():
    problem, eta, H, t = random_systems(14), 0.1, 6, 9
    Gamma = np.mean([np.linalg.matrix_power(np.eye(3) - eta * A, H) for A in problem.A_bar], axis=0)
    rho = fl.theory.round_bias(problem, eta, H)
    printed = sum(np.linalg.matrix_power(Gamma, t - s) @ rho for s in range(1, t + 1))
    np.testing.assert_allclose(fl.theory.bias_at(problem, eta, H, t), printed, rtol=1e-11)
    np.testing.assert_allclose(fl.theory.bias_at(problem, eta, H, 10**6), fl.theory.bias(problem, eta, H), rtol=1e-11)


@pytest.mark.parametrize("H", [2, 5, 40])
def test_first_order_bias_is_the_limit_of_the_bias_for_small_steps(H):
    problem = random_systems(15, weights=[3.0, 1.0, 1.0])
    exact = fl.theory.bias(problem, 1e-8, H)
    np.testing.assert_allclose(fl.theory.first_order_bias(problem, 1e-8, H), exact, rtol=1e-4)
    assert np.array_equal(fl.theory.first_order_bias(problem, 0.1, 1), np.zeros(3))


def test_first_order_bias_is_the_formula_with_the_local_solutions():
    problem, eta, H = random_systems(16), 0.1, 4
    gap = (problem.theta_star_local - problem.theta_star)[..., None]
    slope = np.mean(problem.A_bar @ problem.A_bar @ gap, axis=0)[:, 0]
    expected = -eta * (H - 1) / 2 * np.linalg.solve(problem.A_bar.mean(axis=0), slope)
    np.testing.assert_allclose(fl.theory.first_order_bias(problem, eta, H), expected, rtol=1e-10)


def test_the_lemma_bounds_the_drift_of_a_round_in_240_settings():
    checked = 0
    for seed in range(20):
        for scale in (0.1, 1.0, 10.0):
            rng = np.random.default_rng(seed)
            A = scale * rng.standard_normal((3, 2, 2))
            problem = exact_systems(A, rng.standard_normal((3, 2)), weights=[1.0, 2.0, 3.0])
            for eta, H in ((0.1, 2), (0.01, 30), (1e-3, 1000), (0.3, 4)):
                drift = np.linalg.norm(fl.theory.round_bias(problem, eta, H))
                assert drift <= fl.theory.round_bias_bound(problem, eta, H) * (1 + 1e-9)
                checked += 1
    assert checked == 240


def test_the_lemma_on_the_drift_fails_as_printed_for_it_lacks_the_norm_of_the_matrices():
    problem = exact_systems(np.array([[[10.0]], [[20.0]]]), np.array([[10.0], [-20.0]]))
    eta, H = 1e-3, 2
    gap = np.abs(problem.theta_star_local - problem.theta_star)[:, 0]
    printed = (eta * H) ** 2 * np.mean(np.exp(eta * H * problem.A_bar[:, 0, 0]) * gap)
    drift = np.linalg.norm(fl.theory.round_bias(problem, eta, H))
    assert printed < drift <= fl.theory.round_bias_bound(problem, eta, H)


def test_the_lemma_bounds_the_distance_of_the_bias_from_its_limit_in_200_settings():
    checked = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        problem = exact_systems(np.eye(2) + 0.2 * rng.standard_normal((3, 2, 2)), rng.standard_normal((3, 2)))
        for eta, H in ((0.1, 2), (0.02, 10), (0.3, 3), (0.01, 1)):
            limit = fl.theory.bias(problem, eta, H)
            for t in (0, 1, 3, 10, 50):
                gap = np.linalg.norm(fl.theory.bias_at(problem, eta, H, t) - limit)
                assert gap <= fl.theory.bias_gap_bound(problem, eta, H, t) * (1 + 1e-9) + 1e-15
                checked += 1
    assert checked == 200


def test_bounds_on_the_bias_are_nan_where_their_constants_do_not_exist():
    A = np.stack([np.diag([1.0, 0.0]), np.diag([1.0, 2.0])])
    singular = exact_systems(A, np.array([[1.0, 0.5], [0.3, -1.0]]))
    assert np.isnan(fl.theory.round_bias_bound(singular, 0.1, 5))
    assert np.isnan(fl.theory.bias_gap_bound(singular, 0.1, 5, 3))  # its a(eta) is 0
    same = exact_systems(np.ones((2, 1, 1)), np.ones((2, 1)))
    assert fl.theory.round_bias_bound(same, 100.0, 10**6) == 0


def rational_means(problem):
    """Weights, A_bar, b_bar and theta_star as fractions."""
    w, A, b = (rational(x) for x in (problem.weights, problem.A_bar, problem.b_bar))
    w = w / w.sum()
    return w, A, b, solve(np.einsum("c,cij->ij", w, A), w @ b)


def rational_drift(w, A, b, star, eta, H):
    """Gamma and rho_H of a round in the mean."""
    one = rational(np.eye(len(star)))
    Gamma, there = 0 * one, 0 * star  # theta -> Gamma theta + there
    for c in range(len(w)):
        step, power, reached = one - Fraction(eta) * A[c], one, 0 * star
        for _ in range(H):
            power, reached = step.dot(power), step.dot(reached) + Fraction(eta) * b[c]
        Gamma, there = Gamma + w[c] * power, there + w[c] * reached
    return Gamma, Gamma.dot(star) + there - star


@pytest.mark.parametrize(("eta", "H"), [(0.1, 2), (0.1, 60), (1e-4, 10), (1e-8, 3)])
@pytest.mark.parametrize("gap", [1e-5, 1e-9])
def test_the_bias_of_nearly_equal_agents_keeps_its_digits(gap, eta, H):
    rng = np.random.default_rng(17)
    A = np.eye(2) + 0.3 * rng.standard_normal((2, 2)) + gap * rng.standard_normal((3, 2, 2))
    problem = exact_systems(A, rng.standard_normal(2) + gap * rng.standard_normal((3, 2)))
    w, A, b, star = rational_means(problem)
    Gamma, rho = rational_drift(w, A, b, star, eta, H)
    slope = np.einsum("c,cij,cj->i", w, A, np.einsum("cij,j->ci", A, star) - b)
    first = Fraction(eta) * Fraction(H - 1, 2) * solve(np.einsum("c,cij->ij", w, A), slope)
    limit, error = limit_bias(problem, eta, H)
    pairs = [(fl.theory.round_bias(problem, eta, H), rho), (limit, solve(rational(np.eye(2)) - Gamma, rho))]
    pairs += [(fl.theory.first_order_bias(problem, eta, H), first), (fl.theory.bias_at(problem, eta, H, 1), rho)]
    for computed, exact in pairs:
        np.testing.assert_allclose(computed, exact.astype(float), rtol=0, atol=1e-13 * float(np.abs(exact).max()))
    assert EPS / gap / 10 < error < 1e3 * EPS / gap  # the means might have been rounded


@pytest.mark.parametrize("gap", [1e-2, 1e-5, 1e-9])
def test_the_error_of_the_bias_covers_the_rounding_of_the_means(gap):
    """Tables of five outcomes whose means are not floating-point numbers."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        A, b = np.eye(2) + 0.3 * rng.standard_normal((5, 2, 2)), rng.standard_normal((5, 2))
        p = rng.dirichlet(np.ones(5))
        tables = [(p, A + gap * rng.standard_normal((2, 2)), b + gap * rng.standard_normal(2)) for _ in range(2)]
        problem = fl.problems.from_observations(tables)
        p = [rational(problem.prob[span]) for span in problem.spans()]
        A, b = (np.stack([np.tensordot(p[c], rational(tables[c][k]), 1) for c in range(2)]) for k in (1, 2))
        w = rational(problem.weights)
        star = solve(np.einsum("c,cij->ij", w, A), w @ b)
        Gamma, rho = rational_drift(w, A, b, star, 0.1, 7)
        want = solve(rational(np.eye(2)) - Gamma, rho).astype(float)
        for given in (problem, fl.theory.moments(problem)):
            limit, error = limit_bias(given, 0.1, 7)
            assert np.linalg.norm(limit - want) <= error * np.linalg.norm(want)
            assert error < 1e3 * EPS / gap


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name]().problem.dim < 4])
def test_the_bias_keeps_its_digits_and_its_bounds_on_hostile_problems(name):
    problem, eta_0 = CASES[name]().problem, CASES[name]().eta
    w, A, b, star = rational_means(problem)
    for eta, H in itertools.product((eta_0, 1e-6), (1, 2, 5)):
        Gamma, rho = rational_drift(w, A, b, star, eta, H)
        third = rho + Gamma.dot(rho + Gamma.dot(rho))
        limit = solve(rational(np.eye(problem.dim)) - Gamma, rho)
        got = fl.theory.round_bias(problem, eta, H), fl.theory.bias_at(problem, eta, H, 3)
        pairs = list(zip(got, (rho, third), strict=True))
        if np.abs(np.linalg.eigvals(Gamma.astype(float))).max() < 1:
            pairs.append((fl.theory.bias(problem, eta, H), limit))
        else:
            with pytest.raises(ArgumentError, match="step_size must be small enough"):
                fl.theory.bias(problem, eta, H)
        for computed, exact in pairs:
            exact = exact.astype(float)
            np.testing.assert_allclose(computed, exact, rtol=1e-9, atol=1e-9 * np.abs(exact).max())
        bound, gap = fl.theory.round_bias_bound(problem, eta, H), fl.theory.bias_gap_bound(problem, eta, H, 3)
        assert not np.linalg.norm(rho.astype(float)) > bound * (1 + 1e-9)  # NaN where there is no bound
        assert not np.linalg.norm((third - limit).astype(float)) > gap * (1 + 1e-9)

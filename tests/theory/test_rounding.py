"""Where rounding is all that is left: variances of nothing are 0, what lies further below 0 is refused."""

from dataclasses import replace
from fractions import Fraction

import gallery
import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import PrecisionError
from fedlsa.theory import local_steps, many_rounds, rounds, search, stationarity, trajectories
from fedlsa.theory.noiseless import Modes, Powers, modes_of

METHODS = (fl.FedLSA(0.1, 1), fl.SCAFFLSA(0.1, 1), fl.SCAFFLSA(0.1, 3), fl.Scaffnew(0.1, 0.4))


def without_noise_at_the_solution(far: float = 1.0) -> fl.Problem:
    """b(z) = A(z) theta_star - xi_c: matrices are random, the error at theta_star is not. No number is dyadic."""
    theta, xi = far * np.array([0.1, -0.7]), far * np.array([[0.3, 0.1], [-0.3, -0.1]])
    tables = []
    for c in range(2):
        p, A, _ = gallery.shaken([[1.1, 0.3 * c], [-0.2, 0.7]], [0, 0], 0.3)
        tables.append((p, A, A @ theta - xi[c]))
    return fl.problems.from_observations(tables)


@pytest.mark.parametrize("far", [1.0, 1e6])
@pytest.mark.parametrize("a", METHODS, ids=str)
def test_a_run_from_a_solution_without_noise_stays_there(a, far):
    """With ideal control variates; with one local step, the same as FedLSA, with any."""
    problem = without_noise_at_the_solution(far)
    xi = problem.xi_star
    e = fl.theory.exact(problem, a, 400, problem.theta_star, xi, record=[1, 50, 200, 400])
    assert (e["noise"].values >= 0).all()
    assert (e["mse"].values <= 1e-24 * far**2).all()
    if not isinstance(a, fl.FedLSA):  # which keeps its control variates at 0
        limit = fl.theory.stationary(problem, a)
        assert (np.diagonal(limit.covariance) >= 0).all()
        assert 0 <= limit.variance <= 1e-24 * far**2


def test_estimated_moments_may_be_around_any_point():
    problem = without_noise_at_the_solution()
    m = fl.theory.moments(problem)
    plain = replace(m, noise=gallery.uncentred(m), centre=None)
    for a in (fl.FedLSA(0.1, 3), fl.SCAFFLSA(0.1, 3)):
        one, other = (fl.theory.exact(x, a, 30)["noise"].values for x in (m, plain))
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-15)
    assert fl.theory.stationary(plain, a).variance <= 1e-14


@pytest.mark.parametrize(("by", "refused"), [(1e-5, True), (1e-18, False)])
def test_a_negative_variance_is_refused_unless_it_is_rounding(monkeypatch, by, refused):
    problem, a = without_noise_at_the_solution(), fl.FedLSA(0.1, 3)
    start = problem.theta_star + 1
    m = fl.theory.moments(problem)
    law = search.MethodErrors(rounds.groups_of(m, a), fl.FedLSA, np.zeros(2))
    nothing = lambda step, u, t: (np.zeros((len(t), 2)), np.tile([-by, 0.0, 0.0], (len(t), 1)))  # noqa: E731
    monkeypatch.setattr(rounds.ServerRound, "curve", nothing)
    limit = rounds.StateLimit(np.zeros(2), np.diag([1.0, -by]), 0.0, np.zeros((2, 2)))
    monkeypatch.setattr(rounds.ServerRound, "limit", property(lambda step: limit))
    if not refused:
        assert (fl.theory.exact(problem, a, 30, start)["noise"].values == 0).all()
        assert fl.theory.stationary(problem, a).variance == 1
        assert law.errors(0.1, 3, 5).tolist() == [0, 0, 0, 1]
        return
    for find in (lambda: fl.theory.exact(problem, a, 30, start), lambda: fl.theory.stationary(problem, a)):
        with pytest.raises(PrecisionError, match=r"variances by .* must not be negative; got -1.*e-05"):
            find()
    assert law.error(0.1, 3, 5) == np.inf  # of a plan, which takes another step size


def test_a_negative_variance_of_control_variates_is_refused(monkeypatch):
    problem, a = without_noise_at_the_solution(), fl.SCAFFLSA(0.1, 3)
    real, limit = many_rounds.one_by_one, stationarity.limit

    def wrong(*arguments):
        values = real(*arguments)
        values[:, 2] = -1e-5 - values[:, 2]  # of the first coordinate
        return values

    monkeypatch.setattr(many_rounds, "one_by_one", wrong)
    with pytest.raises(PrecisionError, match="variances by round by round must not be negative"):
        fl.theory.exact(problem, a, 30)
    monkeypatch.setattr(stationarity, "limit", lambda step: replace(limit(step), U=np.diag([1.0, -1e-5])))
    with pytest.raises(PrecisionError, match="stationary variances by modes must not be negative"):
        fl.theory.stationary(problem, a)


def test_a_variance_along_trajectories_is_0_or_refused_too(monkeypatch):
    """It is carried apart from the mean: on a walk without chance nothing is left of it."""
    problem = gallery.mdp([[[0, 1], [1, 0]]], [[1.0, 0.3]], np.array([[0.7], [1.1]]))
    a, sampling = fl.FedLSA(0.1, 3), fl.Markov(start=[0])
    found = fl.theory.exact(problem, a, 100, sampling=sampling)
    assert (found["noise"].values >= 0).all()
    off = np.sum((found["mean"].values - problem.theta_star) ** 2, axis=1)
    assert (found["noise"].values <= 1e-30 * (1 + off)).all()
    np.testing.assert_allclose(found["mse"], found["noise"] + off, atol=1e-15)  # means were rounded with theta_star
    real = trajectories.curve

    def wrong(*arguments):
        mean, variance, *others = real(*arguments)
        return mean, variance - 1e-5, *others

    monkeypatch.setattr(trajectories, "curve", wrong)
    with pytest.raises(PrecisionError, match="variances by states of chains must not be negative"):
        fl.theory.exact(problem, a, 100, sampling=sampling)


def test_powers_of_nearly_defective_matrices_keep_their_digits():
    """Against rational arithmetic: a basis of nearly parallel eigenvectors is kept only where it gives A again."""
    eta, H, kinds = 0.25, 20, set()
    for gap in (0.3, 1e-3, 4e-4):
        A = np.array([[1.0, 1.0], [0.0, 1.0 + gap]])
        assert np.linalg.cond(np.linalg.eig(A)[1]) < 1e4
        step = [[Fraction(int(i == j)) - Fraction(eta) * Fraction(A[i, j]) for j in range(2)] for i in range(2)]
        power = step
        for _ in range(H - 1):
            power = [[sum(power[i][k] * step[k][j] for k in range(2)) for j in range(2)] for i in range(2)]
        local, want = modes_of(A[None], np.ones(1)), np.array(power, float)
        got = local.mean(local.times(local.powers(eta, H)[0], local.identity()))
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13 * np.abs(want).max())
        kinds.add(type(local))
    assert kinds == {Modes, Powers}


@pytest.mark.parametrize("p", [1e-9, 1e-12, 1e-17, 1e-140])
@pytest.mark.parametrize("name", ["singular site", "one dimension"])
def test_rounds_longer_than_digits_reach_are_refused(name, p):
    case = gallery.CASES[name]()
    with pytest.raises(PrecisionError, match="must be known to 1e-09"):
        fl.theory.exact(case.problem, fl.Scaffnew(case.eta, p), 3)


def test_a_radius_that_overflows_on_its_way_is_refused():
    """It is below 1; rounds of 1e140 steps leave the range of numbers in between."""
    with pytest.raises(PrecisionError, match="some beyond it"):
        fl.theory.radius(fl.problems.garnet(agents=2, states=4, features=2), fl.Scaffnew(0.1, 1e-140))


def test_the_first_long_round_has_its_digits():
    """E[u] = sum_c w_c (p K^-1 B u + eta K^-1 x), K = p I + (1 - p) eta A_c, for rounds of 100,000 steps."""
    case, p = gallery.CASES["no noise"](), 1e-5
    problem, one, want = case.problem, np.eye(2), np.zeros(2)
    for w, A, xi in zip(problem.weights, problem.A_bar, problem.xi_star, strict=True):
        K = p * one + (1 - p) * case.eta * A
        want += w * np.linalg.solve(K, p * (one - case.eta * A) @ np.ones(2) - case.eta * xi)
    e = fl.theory.exact(problem, fl.Scaffnew(case.eta, p), 1, problem.theta_star + 1, record=[1])
    np.testing.assert_allclose(e["mean"].values[0] - problem.theta_star, want, rtol=1e-9)


def test_what_tiny_steps_lose_to_rounding_is_in_the_error():
    """To first order in the step size, variances are proportional to it."""
    problem = fl.problems.garnet(agents=3, states=5, features=2, seed=1)
    larger = fl.theory.stationary(problem, fl.FedLSA(1e-6, 1))
    for eta in (1e-10, 1e-11):
        found = fl.theory.stationary(problem, fl.FedLSA(eta, 1))
        off = abs(found.variance / eta / (larger.variance / 1e-6) - 1)
        assert 1e-6 < off <= found.error + 1e-6


def test_steps_that_rounding_swallows_are_refused():
    problem = fl.problems.garnet(agents=3, states=5, features=2, seed=1)
    for method in (fl.FedLSA(1e-14, 1), fl.FedLSA(1e-16, 1), fl.SCAFFLSA(1e-14, 2 * 10**17), fl.Scaffnew(1e-15, 0.5)):
        with pytest.raises(fl.errors.PrecisionError, match="step_size must be large enough"):
            fl.theory.stationary(problem, method)
    with pytest.raises(fl.errors.PrecisionError, match="step_size must be large enough"):
        fl.theory.exact(problem, fl.FedLSA(1e-15, 10**15), rounds=10)
    assert fl.theory.exact(problem, fl.FedLSA(1e-15, 1), rounds=10).attrs["rounding"] < 1e-14


@pytest.mark.parametrize(
    "make", [lambda e: fl.FedLSA(e, 1), lambda e: fl.SCAFFLSA(e, 1), lambda e: fl.Scaffnew(e, 1.0)]
)
def test_what_steps_near_the_stability_limit_lose_to_rounding_is_in_the_error(make):
    """A = 1 +- 1/2 and b = 1 +- 1: a step shrinks squares by (1 - eta)^2 + eta^2 / 4 and adds 5/4 eta^2."""
    A, b = [[[1.5]], [[1.5]], [[0.5]], [[0.5]]], [[2.0], [0.0], [2.0], [0.0]]
    problem = fl.problems.from_observations([([0.25] * 4, A, b)])
    for near in (1e-3, 1e-6, 1e-9, 1e-11, 1e-12):
        eta = Fraction(1.6 * (1 - near))
        want = float(Fraction(5, 4) * eta**2 / (1 - (1 - eta) ** 2 - eta**2 / 4))
        found = fl.theory.stationary(problem, make(float(eta)))
        assert abs(found.variance / want - 1) <= found.error <= 1e-15 / near
    with pytest.raises(PrecisionError, match="so near to the stability limit"):
        fl.theory.stationary(problem, make(1.6 * (1 - 1e-15)))


@pytest.mark.parametrize("name", ["jordan block", "one agent"])
def test_many_rounds_from_the_solution_begin_as_few_do(name):
    """There and with the right control variates means stay 0, and all that moves are variances."""
    case = gallery.CASES[name]()
    for a in case.methods():
        start = case.problem.theta_star, case.problem.xi_star
        few = fl.theory.exact(case.problem, a, 20, *start)["noise"].values
        many = fl.theory.exact(case.problem, a, 3000, *start, record=[*range(20), 3000])["noise"].values
        assert few[1] < 0.9 * many[-1]
        np.testing.assert_allclose(many[:20], few[:20], rtol=0, atol=1e-11 * many[-1])


@pytest.mark.parametrize("eigenvalues", [(1e-6, 2.0), (1e-6, 1.0), (1e-9, 1e-3)])
def test_sums_over_lengths_have_their_digits_at_both_ends(eigenvalues):
    """sum_l q^l (1 - z)^l (1 - z')^l, for sites whose steps hardly move and sites whose steps turn around."""
    Z, p = np.array(eigenvalues).reshape(-1, 1, 1), 1e-6
    factor, powers = local_steps.shared_length(Z, p)
    i, j = [0, 0, 1], [0, 1, 1]
    found = factor[i] * factor[j]
    for Q in powers:
        found = found + Q[i] * found * Q[j]
    one = [(1 - Fraction(z)) for z in eigenvalues]
    want = [float(1 / (1 - (1 - Fraction(p)) * one[k] * one[n])) for k, n in zip(i, j, strict=True)]
    np.testing.assert_allclose(found.ravel(), want, rtol=1e-9)


def test_sums_over_lengths_without_digits_are_refused():
    with pytest.raises(PrecisionError, match=r"rounds of 1e\+09 steps .* 1e-09, relative"):
        local_steps.shared_length(np.array([1e-6, 2.0]).reshape(-1, 1, 1), 1e-9)


def test_a_constant_step_size_needs_no_memory_per_round(monkeypatch):
    problem = fl.problems.garnet(agents=3, states=5, features=2, seed=1)
    monkeypatch.setenv("FEDLSA_MEMORY", "100000000")
    for method in (fl.FedLSA(0.1, 1), fl.SCAFFLSA(0.1, 2), fl.Scaffnew(0.1, 0.5)):
        assert np.isfinite(fl.theory.exact(problem, method, 10**10, record=2).mse.values).all()


def test_a_limit_that_no_route_knows_well_is_returned_with_its_error():
    """With one local step SCAFFLSA is FedLSA, whose variances are proportional to the step size, to first order."""
    problem = fl.problems.garnet(agents=3, states=5, features=2, seed=1)
    found = fl.theory.stationary(problem, fl.SCAFFLSA(1e-8, 1))
    right = fl.theory.stationary(problem, fl.FedLSA(1e-6, 1)).variance / 1e-6
    assert found.error > 1e-9
    assert abs(found.variance / 1e-8 / right - 1) <= found.error + 3e-7


def test_an_agent_alone_at_the_edge_does_not_hide_the_limit_of_many():
    """Of 65 agents one keeps E[y^2] as it is for given u: (I - own) is 0 there, which is no matter for the whole."""
    tables = [([0.5, 0.5], [[[0.1 + 1e-5 * k]]] * 2, [[2.0], [0.01 * k]]) for k in range(64)]
    edge = ([0.5, 0.5], [[[2.0]], [[-2.0]]], [[1.0], [-1.0]])
    problem, a = fl.problems.from_observations([*tables, edge]), fl.SCAFFLSA(1.0, 2)
    found = fl.theory.stationary(problem, a)
    near = fl.theory.stationary(problem, fl.SCAFFLSA(1 - 1e-6, 2))
    assert found.route == "krylov"
    assert found.variance == pytest.approx(near.variance, rel=1e-4)


def test_a_run_that_leaves_the_range_of_numbers_has_an_infinite_error():
    """Powers of a round overflowed to variances of minus infinity, which were refused as negative."""
    problem = fl.problems.garnet(agents=2, states=6, features=2, seed=2)
    curve = fl.theory.exact(problem, fl.FedLSA(2.0, 50), rounds=400, record=list(range(0, 401, 7)))
    assert np.isfinite(curve["mse"].values[0])
    assert curve["mse"].values[-1] == np.inf
    assert not np.isnan(curve["mse"].values).any()

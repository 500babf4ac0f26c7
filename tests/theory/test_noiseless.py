"""Problems without noise: every site steps with its own means, and plans are exact in any dimension."""

import importlib
from fractions import Fraction
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from tiers import longer, mostly_long

import fedlsa as fl
from fedlsa.theory import tuning
from fedlsa.theory.noiseless import Modes, Powers, modes_of, powers_of
from fedlsa.theory.problem_moments import Moments
from fedlsa.theory.rounds import groups_of
from fedlsa.theory.search import MethodErrors

moments_file = importlib.import_module("fedlsa.theory.problem_moments")  # the package's name for it is the function
METHODS = {"fedlsa": fl.FedLSA, "scafflsa": fl.SCAFFLSA}


def noiseless(kind: str, agents: int, dim: int, seed: int = 3, **keywords) -> fl.Problem:
    """One outcome per table; a site's own matrix is symmetric, or has complex eigenvalues, or no eigenvectors."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(agents):
        if kind == "symmetric":
            X = rng.standard_normal((dim // 2, dim)) * np.geomspace(1, 0.2, dim)  # each alone is singular
            A = X.T @ X / dim
        elif kind == "rotating":
            A = np.diag(np.geomspace(1, 0.2, dim)) + 0.5 / np.sqrt(dim) * rng.standard_normal((dim, dim))
        else:
            A = np.eye(dim) + np.diag(np.full(dim - 1, 0.3 * rng.random()), 1)
        tables.append(([1.0], A[None], rng.standard_normal((1, dim))))
    return fl.problems.from_observations(tables, **keywords)


KINDS = ("symmetric", "rotating", "defective")


@pytest.mark.parametrize("kind", KINDS)
def test_powers_of_a_round_are_those_of_the_matrices(kind):
    problem, rng = noiseless(kind, 3, 6), np.random.default_rng(0)
    A, share, eta, H = problem.A_bar, np.array([0.2, 0.3, 0.5]), 0.3, 7
    local = modes_of(A, share)
    assert type(local) is (Powers if kind == "defective" else Modes)
    power, kappa = local.powers(eta, H)
    step = np.eye(6) - eta * A
    u, x = rng.standard_normal(6), rng.standard_normal((3, 6))
    kept = local.mean(local.times(power, local.common(u)))
    moved = local.mean(local.times(kappa, local.in_bases(x)))
    slow = sum(np.linalg.matrix_power(step, h) for h in range(H))
    np.testing.assert_allclose(kept, np.einsum("k,kij,j", share, np.linalg.matrix_power(step, H), u), atol=1e-13)
    np.testing.assert_allclose(moved, np.einsum("k,kij,kj", share, eta * slow, x), atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_those_of_exact_second_moments(kind, method):
    weights = [1.0, 2.0, 1.0, 0.5]
    problem = noiseless(kind, 3, 6, assignment=[0, 1, 2, 1], weights=weights)
    m, start = fl.theory.moments(problem), np.linspace(-1, 2, 6)
    assert m.noiseless
    assert not any(m.noise.strides)  # nothing is allocated
    settings = ((0.3, 1, 20), (0.3, 4, 1), (0.05, 31, 9), (0.01, 200, 300))

    def found() -> tuple:
        errors = MethodErrors(groups_of(m, fl.FedLSA(0.1, 1)), METHODS[method], start)
        scanned = [float(errors.cheap_part(np.array([0.7 * eta, eta]), H, T)[1].max()) for eta, H, T in settings]
        return errors.edge, [errors.single(0.3, t) for t in (1, 30)], [errors.error(*s) for s in settings], scanned

    fast = found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedlsa.theory.rounds.GroupStages.noiseless", lambda *_: False)
        patch.setattr(Moments, "noiseless", False)
        slow = found()
    assert fast[0] == pytest.approx(slow[0], rel=2e-3)
    assert fast[1] == pytest.approx(slow[1], rel=1e-9, abs=1e-24)
    assert fast[2] == pytest.approx(slow[2], rel=1e-9, abs=1e-24)
    assert (np.array(fast[3]) <= np.array(fast[2]) * (1 + 1e-9) + 1e-24).all()
    if method == "scafflsa":  # without noise, means are all there is; of FedLSA the limit, which a scan leaves out
        assert fast[3] == pytest.approx(fast[2], rel=1e-6, abs=1e-24)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", mostly_long(KINDS, ["rotating"]))
@pytest.mark.parametrize(("agents", "dim", "engine"), [(12, 8, "cpu"), longer(5, 40, "reference")])
def test_the_planned_run_lands_where_the_plan_says(kind, method, agents, dim, engine):
    problem, zero, epsilon = noiseless(kind, agents, dim), np.zeros(dim), 0.01
    plan = fl.plan(problem, epsilon=epsilon, method=method, theta_0=zero)
    run = fl.simulate(problem, plan.algorithm, rounds=plan.rounds, seeds=1, theta_0=zero, engine=engine)
    error = np.sqrt(run["squared_error"].values[0])
    assert error[-1] <= epsilon < error[-2]
    assert error[-1] == pytest.approx(plan.rmse, rel=1e-9)
    assert plan.basis == "exact moments"


@pytest.mark.parametrize("algorithm", [fl.FedLSA(0.2, 5), fl.SCAFFLSA(0.2, 5)], ids=METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_exact_curves_without_noise_are_those_of_second_moments_and_of_the_run(kind, algorithm):
    rng = np.random.default_rng(2)
    problem, record = noiseless(kind, 3, 8), [0, 1, 7, 10]
    xi = rng.standard_normal((3, 8))
    keywords = {"rounds": 10, "record": record, "theta_0": np.zeros(8), "xi_0": xi - xi.mean(0)}
    fast = fl.theory.exact(problem, algorithm, **keywords)
    run = fl.simulate(problem, algorithm, seeds=1, engine="reference", **keywords)
    np.testing.assert_allclose(fast["mean"], run["theta"][0], atol=1e-12)
    np.testing.assert_allclose(fast["mse"], run["squared_error"][0], rtol=1e-9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedlsa.theory.rounds.GroupStages.noiseless", lambda *_: False)
        slow = fl.theory.exact(problem, algorithm, **keywords)
    for name in set(slow) - {"noise"}:  # 0 here, and rounding there
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-9, atol=1e-12)


def test_exact_curves_without_noise_need_no_second_moments_in_many_dimensions():
    problem = noiseless("rotating", 3, 150)
    curve = fl.theory.exact(problem, fl.SCAFFLSA(0.2, 5), rounds=200)
    assert curve["mse"][-1] < 1e-6 * curve["mse"][0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_of_fedlsa_without_noise_is_its_bias(kind):
    problem, algorithm = noiseless(kind, 3, 8), fl.FedLSA(0.2, 5)
    found = fl.theory.stationary(problem, algorithm)
    np.testing.assert_allclose(found.bias, fl.theory.bias(problem, 0.2, 5), atol=1e-12)
    assert found.mse == pytest.approx(found.bias @ found.bias, rel=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedlsa.theory.rounds.GroupStages.noiseless", lambda *_: False)
        slow = fl.theory.stationary(problem, algorithm)
    assert found.radius == pytest.approx(slow.radius, rel=1e-6 if kind != "defective" else 1e-2)
    assert fl.theory.stationary(noiseless(kind, 3, 8), fl.FedLSA(50.0, 5)).mse == np.inf


def test_second_moments_too_large_for_memory_are_refused_though_there_is_no_noise():
    with pytest.raises(fl.errors.ArgumentError, match=r"dim must be small enough .* got 200"):
        fl.theory.stationary(noiseless("rotating", 3, 200), fl.Scaffnew(0.1, 0.1))


@pytest.mark.parametrize("method", mostly_long(METHODS, ["fedlsa"]))
def test_budgets_of_rounds_and_of_steps_are_planned_in_many_dimensions(method):
    problem = noiseless("symmetric", 12, 40)
    few, many = (fl.plan(problem, rounds=T, max_samples=20 * T, method=method) for T in (5, 20))
    assert (few.rounds, many.rounds) == (5, 20)
    assert many.rmse < few.rmse
    assert many.samples <= 400
    small, large = (fl.plan(problem, samples=S, method=method) for S in (100, 1_000))
    assert large.rmse < small.rmse
    assert large.samples == 1_000


@pytest.mark.parametrize("method", mostly_long(METHODS, ["fedlsa"]))
def test_no_choice_on_a_grid_needs_fewer_communications(method):
    problem, epsilon, most = noiseless("rotating", 5, 8), 0.01, 100
    plan = fl.plan(problem, epsilon=epsilon, max_samples=most, method=method, theta_0=problem.theta_star + 1)
    law = MethodErrors(groups_of(problem, plan.algorithm), METHODS[method], np.ones(8))
    for T in range(1, plan.rounds):
        for H in (h for h in (1, 2, 3, 5, 8, 13, 21, 34) if h * T <= most):
            errors = [law.error(eta, H, T) for eta in np.geomspace(0.01, 1, 40) * law.edge]
            assert min(errors) > epsilon**2 * 0.95, (T, H)


def test_an_averaged_system_that_no_step_size_makes_stable_is_refused():
    tables = [([1.0], np.diag([1.0, -0.5])[None], np.ones((1, 2)))]
    with pytest.raises(fl.errors.ArgumentError, match="stable step size"):
        fl.plan(fl.problems.from_observations(tables), epsilon=0.1)


def test_outcomes_that_never_happen_are_no_noise():
    A, b = np.stack([np.eye(3), 2 * np.eye(3)]), np.ones((2, 3))
    never = fl.theory.moments(fl.problems.from_observations([([1.0, 0.0], A, b)]))
    sometimes = fl.theory.moments(fl.problems.from_observations([([0.9, 0.1], A, b), ([1.0, 0.0], A, b)]))
    assert never.noiseless
    assert not sometimes.noiseless
    assert not sometimes.noise[1].any()


def test_estimated_moments_without_noise_are_noiseless_too():
    m = fl.theory.moments(noiseless("rotating", 2, 4))
    written_out = Moments(m.A_bar, m.b_bar, np.zeros(m.noise.shape), m.table, m.weight, m.count)
    assert written_out.noiseless
    one, other = (fl.plan(moments, epsilon=0.1) for moments in (m, written_out))
    assert one.algorithm == other.algorithm


@pytest.mark.parametrize("ridge", [0.0, 0.7])
@pytest.mark.parametrize("pieces", [2_000, 2**18])  # a table in several, several tables in one
def test_moments_of_rank_one_tables_are_those_of_the_written_out_matrices(ridge, pieces, monkeypatch):
    rng = np.random.default_rng(1)
    sites = [(rng.standard_normal((300, 5)) + 1, rng.standard_normal(300) - 2) for _ in range(3)]
    logs = [(rng.random((200, 4)), rng.random(200), rng.random((200, 4)), rng.random(200) < 0.1)]
    monkeypatch.setattr(tuning, "CACHED_OUTCOMES", pieces)
    for problem in (
        fl.problems.regression(sites, ridge=ridge, assignment=[0, 2]),  # nobody holds the second
        fl.problems.from_transitions(logs, 0.9, trace=0.5),
        fl.problems.garnet(agents=40, states=4, features=2, seed=3),
    ):
        held = np.unique(problem.assignment)
        for m, fast in zip(held, moments_file.moments(problem).noise, strict=True):
            slow = moments_file._dense_noise(problem, problem.observations, m, list(problem.spans())[m])
            np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-12 * np.abs(slow).max())


def test_what_an_equal_problem_knew_may_go_at_any_time(monkeypatch):
    """Problems and moments are equal by value: what is known of one is found by another, as long as the first lives."""

    class Leaving(WeakKeyDictionary):
        def __contains__(self, key):
            found = super().__contains__(key)
            self.clear()
            return found

    steps_file = importlib.import_module("fedlsa.theory.noiseless")
    for file in (moments_file, steps_file):
        monkeypatch.setattr(file, "_KNOWN", Leaving())
    problem = noiseless("symmetric", 2, 4)
    for _ in range(2):
        m = moments_file.moments(problem)
        assert steps_file.local_powers(m) is steps_file.local_powers(m)


@pytest.mark.parametrize("eta", [1e-1, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("H", [1, 2, 7])
def test_complex_eigenvalues_keep_their_digits_however_small_the_step_is(eta, H):
    """kappa by the binomial theorem, in exact fractions: numpy's complex log1p would leave eps / eta of it."""
    x, y, e = Fraction(3, 8), Fraction(1, 16), Fraction(eta)
    power, kappa = (Fraction(1), Fraction(0)), (Fraction(0), Fraction(0))
    for _ in range(H):
        kappa = (kappa[0] + e * power[0], kappa[1] + e * power[1])
        real, imaginary = 1 - e * x, -e * y
        power = (power[0] * real - power[1] * imaginary, power[0] * imaginary + power[1] * real)
    got = powers_of(np.array([complex(x, y)]), eta, H)[1][0]
    assert abs(got - complex(*map(float, kappa))) <= 4 * np.finfo(float).eps * eta * H

"""The constants of the paper against their definitions, outcome by outcome."""

from __future__ import annotations

import numpy as np
import pytest
from gallery import CASES

import fedlsa as fl
from fedlsa.problems import RankOne
from fedlsa.theory import tuning


def dense(seed=0):
    rng = np.random.default_rng(seed)
    tables = []
    for outcomes in (4, 7):
        prob = rng.dirichlet(np.ones(outcomes))
        A = 2 * np.eye(3) + 0.5 * rng.standard_normal((outcomes, 3, 3))
        tables.append((prob, A, rng.standard_normal((outcomes, 3))))
    return fl.problems.from_observations(tables, weights=[1.0, 3.0])


def ridged(seed=1):
    rng = np.random.default_rng(seed)
    sites = [(rng.standard_normal((n, 3)), rng.standard_normal(n)) for n in (5, 9, 6)]
    return fl.problems.regression(sites, ridge=0.3, assignment=[0, 1, 2, 2])


def temporal(seed=2):
    return fl.problems.garnet(agents=4, states=6, features=3, discount=0.9, seed=seed)


def skewed(seed=3):
    """Rank-one outcomes with u and v of their own, some at an obtuse angle, and a ridge."""
    rng = np.random.default_rng(seed)
    left, right = np.arange(12, dtype=np.uint32), np.arange(12, 24, dtype=np.uint32)
    observations = RankOne(rng.standard_normal((24, 2)), left, right, rng.standard_normal(12), ridge=1.5)
    prob = np.concatenate([rng.dirichlet(np.ones(n)) for n in (5, 7)])
    return fl.problems.Problem(observations, prob, np.array([0, 5, 12]), np.arange(2), np.array([0.25, 0.75]))


def hostile(name):
    def make():
        return CASES[name]().problem

    make.__name__ = name
    return make


PROBLEMS = [dense, ridged, temporal, skewed]
HOSTILE = [hostile(name) for name in CASES if np.isfinite(CASES[name]().problem.theta_star_local).all()]


def literal(problem):
    """Every constant by its definition, with every A(z) written out."""
    agents = []
    for m, span in enumerate(problem.spans()):
        (A, b), p = problem.observations.matrices(span), problem.prob[span]
        A_bar, b_bar = np.einsum("k,kij->ij", p, A), p @ b
        local = np.linalg.solve(A_bar, b_bar)
        noise = A - A_bar
        eps, omega = (noise @ theta - (b - b_bar) for theta in (local, problem.theta_star))
        Sigma_A = sum(q * X.T @ X for q, X in zip(p, noise, strict=True))
        second = sum(q * X.T @ X for q, X in zip(p, A, strict=True))
        symmetric = (A_bar + A_bar.T) / 2
        agents.append(
            {
                "w": problem.weights[problem.assignment == m].sum(),
                "p": p,
                "A": A,
                "Sigma_A": Sigma_A,
                "Sigma_A_printed": sum(q * X @ X.T for q, X in zip(p, noise, strict=True)),
                "Sigma_eps": sum(q * np.outer(e, e) for q, e in zip(p, eps, strict=True)),
                "Sigma_omega": sum(q * np.outer(e, e) for q, e in zip(p, omega, strict=True)),
                "C_A": np.linalg.norm(A_bar, 2),
                "A_sup": max(np.linalg.norm(X, 2) for X in A[p > 0]),
                "eps_sup": max(np.linalg.norm(e) for e in eps[p > 0]),
                "Sigma_A_mean": np.linalg.norm(Sigma_A, 2),
                "v_heter": np.linalg.norm(Sigma_A, 2) * np.sum((local - problem.theta_star) ** 2),
                "Delta": np.sum((A_bar @ (local - problem.theta_star)) ** 2),
                "a_sym": np.linalg.eigvalsh(symmetric)[0],
                "L": np.linalg.eigvals(np.linalg.solve(symmetric, second)).real.max(),
            }
        )
    return agents


@pytest.mark.parametrize("make", PROBLEMS + HOSTILE)
def test_covariances_are_sums_over_outcomes(make):
    problem = make()
    agents, got = literal(problem), fl.theory.constants(problem)
    for name in ("Sigma_A", "Sigma_A_printed", "Sigma_eps", "Sigma_omega"):
        expected = np.stack([agent[name] for agent in agents])
        rounding = 1e-13 * np.abs(expected).max() + 1e-28
        np.testing.assert_allclose(getattr(got, f"table_{name}"), expected, rtol=1e-6, atol=rounding)


def test_small_noise_keeps_its_digits():
    """Rows (1 +- h, 1): A~ = +- ((2 h, h), (h, 0)), beside which A itself is of size one."""
    h = 2.0**-27
    problem = fl.problems.regression([(np.array([[1 + h, 1.0], [1 - h, 1.0]]), np.zeros(2))], ridge=0.5)
    expected = h**2 * np.array([[5.0, 2.0], [2.0, 1.0]])
    got = fl.theory.constants(problem)
    np.testing.assert_allclose(got.table_Sigma_A[0], expected, rtol=1e-7)
    np.testing.assert_allclose(got.table_Sigma_A_printed[0], expected, rtol=1e-7)


@pytest.mark.parametrize("make", PROBLEMS + HOSTILE)
def test_scalars_are_averages_and_extremes_over_agents(make):
    problem = make()
    agents, got = literal(problem), fl.theory.constants(problem)
    for name in ("Sigma_A_mean", "v_heter", "Delta"):
        assert getattr(got, name) == pytest.approx(sum(a["w"] * a[name] for a in agents), rel=1e-10), name
    for name in ("C_A", "A_sup", "eps_sup"):
        assert getattr(got, name) == pytest.approx(max(a[name] for a in agents), rel=1e-10), name
    assert got.sigma_eps == pytest.approx(sum(a["w"] * np.trace(a["Sigma_eps"]) for a in agents), rel=1e-10)
    assert got.sigma_omega == pytest.approx(sum(a["w"] * np.trace(a["Sigma_omega"]) for a in agents), rel=1e-10)
    assert got.a_sym == pytest.approx(min(a["a_sym"] for a in agents), rel=1e-9)
    if got.a_sym > 0:
        assert pytest.approx(max(a["L"] for a in agents), rel=1e-8) == got.L
    else:
        assert np.isnan(got.L)


@pytest.mark.parametrize("make", PROBLEMS)
@pytest.mark.parametrize("chunk", [1, 12])
def test_chunks_do_not_change_the_constants(make, chunk, monkeypatch):
    problem = make()
    whole = fl.theory.constants(problem)
    monkeypatch.setattr(tuning, "OUTCOMES_AT_ONCE", chunk)
    parts = fl.theory.constants(make())
    assert parts is not whole
    np.testing.assert_allclose(parts.table_Sigma_A, whole.table_Sigma_A, atol=1e-13)
    np.testing.assert_allclose(parts.table_Sigma_eps, whole.table_Sigma_eps, atol=1e-13)
    assert parts.A_sup == pytest.approx(whole.A_sup)


@pytest.mark.parametrize("make", PROBLEMS)
def test_stability_is_the_contraction_in_mean_square(make):
    problem, eta = make(), 0.01
    rates = []
    for agent in literal(problem):
        steps = np.eye(problem.dim) - eta * agent["A"]
        second = sum(q * X.T @ X for q, X in zip(agent["p"], steps, strict=True))
        rates.append((1 - np.sqrt(np.linalg.eigvalsh(second)[-1])) / eta)
    expected = min(rates) if min(rates) > 0 else np.nan
    assert fl.theory.stability(problem, eta) == pytest.approx(expected, rel=1e-9, nan_ok=True)


def test_there_is_no_stability_when_the_symmetric_part_is_indefinite():
    problem = fl.problems.from_observations([([1.0], [[[1.0, 9.0], [0.0, 1.0]]], [[1.0, 1.0]])])
    assert np.isnan(fl.theory.stability(problem, 0.01))  # although -A is Hurwitz
    assert np.isnan(fl.theory.constants(problem).L)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("seed", range(5))
def test_claim_on_td_bounds_the_constants_of_garnet(gamma, seed):
    problem = fl.problems.garnet(agents=4, states=6, features=3, discount=gamma, perturbation=0.0, seed=seed)
    got, claim = fl.theory.constants(problem), fl.theory.td_claim(problem)
    assert all(claim.conditions.values())
    assert claim.nu == got.nu > 0
    assert got.discount == gamma
    assert got.C_A <= got.A_sup <= claim.C_A == 1 + gamma
    assert got.Sigma_A_norm <= claim.Sigma_A_norm == 2 * (1 + gamma) ** 2
    for eta in (1e-6, claim.eta_inf / 2, claim.eta_inf):
        assert fl.theory.stability(problem, eta) >= claim.a == (1 - gamma) * got.nu / 2
    assert claim.eta_inf * claim.a <= 0.5
    assert got.L <= got.L_td == claim.L == pytest.approx((1 + gamma) ** 2 / (1 - gamma))
    assert (1 + gamma) / ((1 - gamma) ** 2 * got.nu) > claim.L  # printed, from the inequality the other way round
    traces = np.trace(got.Sigma_eps, axis1=1, axis2=2)
    assert (traces <= claim.trace_Sigma_eps).all()
    assert np.trace(got.Sigma_omega, axis1=1, axis2=2).max() <= claim.trace_Sigma_omega
    np.testing.assert_allclose(
        claim.trace_Sigma_eps, 2 * (1 + gamma) ** 2 * (np.sum(got.theta_star_local**2, axis=1) + 1)
    )


def test_features_that_depend_on_each_other_are_never_positive_definite():
    """One feature and its multiples: rounding alone would make the smallest eigenvalue 1e-17, of either sign."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        features = rng.random((4, 1)) * rng.random((1, 2))
        data = [(features, np.ones(4), features[::-1], np.zeros(4, bool))]
        tables = fl.problems.from_transitions([*data, (np.eye(2), np.ones(2), np.eye(2), np.ones(2, bool))], 0.5)
        got = fl.theory.constants(tables)
        assert got.nu <= 0
        assert np.isnan([got.L, got.L_td, fl.theory.stability(tables, 0.1)]).all()


def test_claim_says_when_rewards_or_features_are_too_large_for_it():
    ok = "E[phi phi^T] positive definite (assum:feature_design)"
    P, policy = np.full((1, 2, 1, 2), 0.5), np.ones((2, 1))
    large = fl.problems.from_mdps(P, np.full((1, 2, 1), 3.0), policy, 2 * np.eye(2), 0.5)
    met = fl.theory.td_claim(large).conditions
    assert met[ok]
    assert not met["||phi(s)|| <= 1 (assum:feature_design)"]
    assert not met["|r(s, a)| <= 1"]


@pytest.mark.parametrize("make", [dense, ridged, skewed])
def test_there_is_no_claim_outside_td(make):
    problem = make()
    with pytest.raises(fl.errors.ArgumentError, match=r"problem must be one of TD\(0\)"):
        fl.theory.td_claim(problem)
    assert np.isnan([fl.theory.constants(problem).L_td, fl.theory.constants(problem).discount]).all()


@pytest.mark.parametrize("make", PROBLEMS)
def test_norms_without_an_index_are_the_largest_over_agents(make):
    problem = make()
    agents, got = literal(problem), fl.theory.constants(problem)
    for name in ("Sigma_A", "Sigma_eps", "Sigma_omega"):
        expected = max(np.linalg.norm(agent[name], 2) for agent in agents)
        assert getattr(got, f"{name}_norm") == pytest.approx(expected, rel=1e-10), name


@pytest.mark.parametrize("make", PROBLEMS)
def test_distances_of_the_local_solutions(make):
    problem = make()
    got, w = fl.theory.constants(problem), problem.weights
    gap = problem.theta_star_local - problem.theta_star
    assert got.distance == pytest.approx(w @ np.linalg.norm(gap, axis=1))
    mean_square = w @ np.sum(gap**2, axis=1)
    assert got.chi == pytest.approx(max(mean_square, 1 + w @ np.sum(problem.theta_star_local**2, axis=1)))


def test_stability_keeps_its_digits_at_tiny_steps():
    problem = dense()
    limit = fl.theory.constants(problem).a_sym  # a(eta) tends to it
    assert fl.theory.stability(problem, 1e-13) == pytest.approx(limit, rel=1e-10)
    assert fl.theory.constants(problem).stability(0.01) == pytest.approx(fl.theory.stability(problem, 0.01))
    assert np.isnan(fl.theory.stability(problem, 1e150))


def test_feature_eigenvalue_is_known_for_td_alone():
    assert np.isnan(fl.theory.constants(ridged()).nu)
    assert np.isnan(fl.theory.constants(dense()).nu)


def test_a_singular_agent_has_no_noise_at_its_solution_but_has_noise_at_the_common_one():
    singular = (np.array([0.5, 0.5]), np.array([np.diag([1.0, 1.0]), np.diag([1.0, -1.0])]), np.ones((2, 2)))
    regular = (np.array([1.0]), np.eye(2)[None], np.ones((1, 2)))
    got = fl.theory.constants(fl.problems.from_observations([singular, regular]))
    assert np.isnan(got.sigma_eps)
    assert np.isnan(got.v_heter)
    assert np.isfinite([got.sigma_omega, got.Delta, got.Sigma_A_mean, got.A_sup, got.C_A]).all()


def test_norm_of_a_ridged_outcome_in_one_dimension():
    problem = fl.problems.regression([(np.array([[0.5], [2.0]]), np.array([1.0, 1.0]))], ridge=0.25)
    assert fl.theory.constants(problem).A_sup == pytest.approx(4.25)


def test_constants_of_agents_are_those_of_their_tables():
    got = fl.theory.constants(ridged())
    assert got.Sigma_A.shape == got.Sigma_eps.shape == got.Sigma_omega.shape == got.A_bar.shape == (4, 3, 3)
    assert np.array_equal(got.Sigma_A[2], got.Sigma_A[3])
    assert got.b_bar.shape == got.xi_star.shape == got.theta_star_local.shape == (4, 3)
    assert np.array_equal(got.theta_star, got.problem.theta_star)

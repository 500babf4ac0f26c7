"""Exact moments against enumeration of all outcome sequences, against each other, and against simulation."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from tables import tiny
from tiers import longer

import fedlsa as fl
from fedlsa.theory import moments

BEYOND = 4.5  # standard errors that a simulated mean may lie off


def local_laws(problem, c, theta, xi, eta, H):
    """Every value that an agent's theta_hat can take after H steps, with its probability."""
    span = list(problem.spans())[problem.assignment[c]]
    A, b = problem.observations.matrices(span)
    laws = []
    for z in itertools.product(range(len(b)), repeat=H):
        p, th = 1.0, theta
        for k in z:
            p, th = p * problem.prob[span][k], th - eta * (A[k] @ th - b[k] - xi)
        laws.append((p, th))
    return laws


def enumerated(problem, eta, lengths, gain, rounds, theta_0):
    """E[theta] and E||theta - theta_star||^2 after each round, over all outcome sequences and round lengths."""
    N, w = problem.n_agents, problem.weights
    states = [(1.0, theta_0, np.zeros((N, problem.dim)))]
    out = [(theta_0, np.sum((theta_0 - problem.theta_star) ** 2))]
    for _ in range(rounds):
        later = []
        for p, theta, xi in states:
            for chance, H in lengths:
                laws = [local_laws(problem, c, theta, xi[c], eta, H) for c in range(N)]
                for each in itertools.product(*laws):
                    hat = np.stack([th for _, th in each])
                    mean = w @ hat
                    later.append((p * chance * np.prod([q for q, _ in each]), mean, xi + gain * (mean - hat)))
        states = later
        total = sum(p for p, _, _ in states)
        mean = sum(p * th for p, th, _ in states) / total
        out.append((mean, sum(p * np.sum((th - problem.theta_star) ** 2) for p, th, _ in states) / total))
    return np.stack([m for m, _ in out]), np.array([e for _, e in out])


@pytest.mark.parametrize("weights", [None, [1.0, 3.0]], ids=["equal weights", "unequal weights"])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("method", [fl.FedLSA, fl.SCAFFLSA])
def test_moments_of_fixed_rounds_equal_those_of_all_outcome_sequences(method, seed, weights):
    p = tiny(2, 2, 2, seed, weights=weights)
    a = method(0.3, 2)
    theta_0 = p.theta_star + np.array([1.0, -2.0])
    gain = 0.0 if method is fl.FedLSA else 1 / (0.3 * 2)
    mean, mse = enumerated(p, 0.3, [(1.0, 2)], gain, 3, theta_0)
    found = fl.theory.exact(p, a, rounds=3, theta_0=theta_0)
    np.testing.assert_allclose(found["mean"], mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found["mse"], mse, rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_moments_of_scaffnew_equal_those_of_all_lengths_and_outcomes(seed):
    p = tiny(2, 1, 2, seed)
    prob, eta = 0.99, 0.2
    lengths = [(prob * (1 - prob) ** (L - 1), L) for L in range(1, 7)]  # longer rounds have probability 1e-12
    theta_0 = p.theta_star + 1.5
    mean, mse = enumerated(p, eta, lengths, prob / eta, 1, theta_0)
    found = fl.theory.exact(p, fl.Scaffnew(eta, prob), rounds=1, theta_0=theta_0)
    np.testing.assert_allclose(found["mse"], mse, rtol=1e-11)
    np.testing.assert_allclose(found["mean"], mean, rtol=0, atol=1e-11)


def test_scaffnew_that_always_communicates_is_scafflsa_with_one_local_step():
    p = tiny(3, 2, 3, 5, weights=[1.0, 2.0, 3.0])
    one = fl.theory.exact(p, fl.SCAFFLSA(0.3, 1), rounds=30)
    new = fl.theory.exact(p, fl.Scaffnew(0.3, 1.0), rounds=30)
    fed = fl.theory.exact(p, fl.FedLSA(0.3, 1), rounds=30)
    for name in ("mse", "mean"):
        np.testing.assert_allclose(one[name], new[name], rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(one[name], fed[name], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("a", [fl.FedLSA(0.2, 3), fl.SCAFFLSA(0.2, 3), fl.Scaffnew(0.2, 0.3)], ids=repr)
def test_groups_of_identical_agents_change_nothing(a):
    p = tiny(3, 2, 2, 7, assignment=[0, 0, 1, 1, 1, 2])
    m = moments(p)
    assert m.count.tolist() == [2, 3, 1]
    split = replace(
        m, table=np.repeat(m.table, m.count), weight=np.repeat(m.weight, m.count), count=np.ones(6, np.int64)
    )
    together, apart = fl.theory.exact(m, a, rounds=60), fl.theory.exact(split, a, rounds=60)
    np.testing.assert_allclose(together["mse"], apart["mse"], rtol=1e-10)
    np.testing.assert_allclose(together["mean"], apart["mean"], rtol=0, atol=1e-12)
    one, other = fl.theory.stationary(m, a), fl.theory.stationary(split, a)
    np.testing.assert_allclose(one.mse, other.mse, rtol=1e-9)
    np.testing.assert_allclose(one.radius, other.radius, rtol=1e-6)


@pytest.mark.parametrize(
    "a",
    [
        fl.FedLSA(0.2, 3),
        longer(fl.FedLSA(0.2, 3, participants=2)),
        fl.FedLSA(0.2, 3, average_after=4),
        fl.FedLSA(fl.PowerStep(0.4, 0.5), 3),
        fl.SCAFFLSA(0.2, 3),
        fl.SCAFFLSA(fl.PowerStep(0.4, 0.5), 3),
        fl.SCAFFLSA(0.2, 3, participants=2),
        longer(fl.Scaffnew(0.2, 0.3)),
        longer(fl.Scaffnew(0.2, 0.3, participation=0.4)),
    ],
    ids=repr,
)
def test_simulation_agrees_with_the_exact_mean_and_error(a):
    seeds = 1000 if a.random_lengths or a.taking_part(3) < 3 else 3000  # each of the former has rounds of its own
    p = fl.problems.garnet(agents=3, states=12, features=5, discount=0.7, weights=[1.0, 2.0, 4.0], seed=3)
    run = fl.simulate(p, a, rounds=12, seeds=seeds, record=[0, 1, 5, 12])
    found = fl.theory.exact(p, a, rounds=12, record=[0, 1, 5, 12])
    error = run["squared_error"].values
    off = np.abs(error.mean(0) - found["mse"].values)
    assert (off <= BEYOND * error.std(0, ddof=1) / np.sqrt(seeds) + 1e-12).all()
    theta = run["theta"].values
    off = np.abs(theta.mean(0) - found["mean"].values)
    assert (off <= BEYOND * theta.std(0, ddof=1) / np.sqrt(seeds) + 1e-12).all()


def random_problem(seed: int) -> tuple[fl.Problem, list[fl.algorithms.Algorithm]]:
    """A problem of a random kind with random agents, tables and weights, and the methods at random settings."""
    rng = np.random.default_rng(seed)
    tables, agents, dim = int(rng.integers(1, 4)), int(rng.integers(3, 7)), 5
    shared = {"weights": rng.uniform(1, 3, agents), "assignment": rng.integers(0, tables, agents)}
    if seed % 3 == 0:
        prob = rng.dirichlet(np.ones(6), tables)
        A = np.eye(dim) + 0.3 * rng.standard_normal((tables, 6, dim, dim))
        b = rng.standard_normal((tables, 6, dim))
        p = fl.problems.from_observations(list(zip(prob, A, b, strict=True)), **shared)
    elif seed % 3 == 1:
        sites = [(rng.standard_normal((30, dim)), rng.standard_normal(30)) for _ in range(tables)]
        p = fl.problems.regression(sites, ridge=float(rng.uniform(0, 0.2)), **shared)
    else:
        p = fl.problems.garnet(
            agents=agents, states=10, features=dim, discount=0.6, weights=shared["weights"], seed=seed
        )
    H, share = int(rng.integers(2, 9)), rng.uniform(0.05, 0.4)
    eta = float(share * fl.theory.stability_limit(p, fl.Scaffnew(0.1, 1 / H), tolerance=0.01))  # the frailest
    return p, [fl.FedLSA(eta, H), fl.SCAFFLSA(eta, H), fl.Scaffnew(eta, 1 / H)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_simulation_agrees_on_random_problems(seed):
    p, methods = random_problem(seed)
    runs = fl.simulate_grid(p, methods, rounds=9, seeds=1000, record=[2, 9])
    for run, a in zip(runs, methods, strict=True):
        found = fl.theory.exact(p, a, rounds=9, record=[2, 9])
        for got, expected in ((run["squared_error"], found["mse"]), (run["theta"], found["mean"])):
            off = np.abs(got.values.mean(0) - expected.values) / (got.values.std(0, ddof=1) / np.sqrt(1000))
            assert off.max() <= BEYOND, (a, off)


@pytest.mark.parametrize("a", [fl.FedLSA(0.2, 4), fl.SCAFFLSA(0.2, 4), fl.Scaffnew(0.2, 0.25)], ids=repr)
def test_stationary_limit_by_solving_equals_the_limit_by_iterating(a):
    p = tiny(3, 2, 3, 11, weights=[1.0, 2.0, 1.5])
    limit, curve = fl.theory.stationary(p, a), fl.theory.exact(p, a, rounds=4000, record=2)
    assert limit.radius < 1
    np.testing.assert_allclose(curve["mse"][-1], limit.mse, rtol=1e-9)
    np.testing.assert_allclose(curve["mean"][-1], limit.mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(limit.mse, limit.variance + limit.bias @ limit.bias, rtol=1e-12)
    assert np.linalg.eigvalsh(limit.covariance).min() > 0
    expected = fl.theory.bias(p, 0.2, 4) if isinstance(a, fl.FedLSA) else np.zeros(2)
    np.testing.assert_allclose(limit.bias, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("a", [fl.FedLSA(0.1, 3), fl.SCAFFLSA(0.1, 3), longer(fl.Scaffnew(0.1, 0.3))], ids=repr)
def test_second_moments_converge_below_the_stability_limit_and_not_above(a):
    p = tiny(2, 2, 3, 13)
    edge = fl.theory.stability_limit(p, a)
    assert 0.1 < edge < 10
    below, above = replace(a, step_size=0.99 * edge), replace(a, step_size=1.01 * edge)
    assert np.isfinite(fl.theory.stationary(p, below).mse)
    assert fl.theory.stationary(p, above).mse == np.inf
    grown = fl.theory.exact(p, above, rounds=1500, record=2)["mse"].values
    assert not grown[-1] < 1e3 * grown[0]


def test_a_site_with_a_singular_matrix_has_exact_moments():
    rng = np.random.default_rng(4)
    sites = [(np.outer(rng.standard_normal(40), [1.0, 2.0]), rng.standard_normal(40))]
    sites.append((rng.standard_normal((60, 2)), rng.standard_normal(60)))
    p = fl.problems.regression(sites)
    assert np.isnan(p.theta_star_local[0]).all()
    for a in (fl.FedLSA(0.05, 5), fl.SCAFFLSA(0.05, 5), fl.Scaffnew(0.05, 0.2)):
        run = fl.simulate(p, a, rounds=20, seeds=1000, record=[20])
        error = run["squared_error"].values[:, 0]
        found = float(fl.theory.exact(p, a, rounds=20, record=[20])["mse"][0])
        assert abs(error.mean() - found) <= BEYOND * error.std(ddof=1) / np.sqrt(1000)


def test_started_at_the_ideal_control_variates_the_mean_stays_at_the_solution():
    p = tiny(3, 2, 3, 17)
    found = fl.theory.exact(p, fl.SCAFFLSA(0.2, 5), rounds=50, theta_0=p.theta_star, xi_0=p.xi_star)
    np.testing.assert_allclose(found["mean"], np.tile(p.theta_star, (len(found["rounds"]), 1)), rtol=0, atol=1e-13)
    assert (np.diff(found["mse"].values[:20]) > 0).all()  # noise builds up from nothing
    frozen = fl.theory.exact(p, fl.FedLSA(0.2, 5), rounds=50, theta_0=p.theta_star, xi_0=p.xi_star)
    np.testing.assert_allclose(frozen["mean"], np.tile(p.theta_star, (len(frozen["rounds"]), 1)), rtol=0, atol=1e-13)


def test_records_are_those_of_simulate():
    p = tiny(2, 2, 2, 0)
    for record in (2, 7, [0, 3, 9]):
        run = fl.simulate(p, fl.FedLSA(0.1, 2), rounds=9, seeds=1, record=record)
        found = fl.theory.exact(p, fl.FedLSA(0.1, 2), rounds=9, record=record)
        assert run["rounds"].values.tolist() == found["rounds"].values.tolist()


@pytest.mark.parametrize(
    ("a", "keywords", "named"),
    [
        (fl.FedLSA(0.1, 2, projection=1.0), {}, "projection"),
        (fl.Scaffnew(0.1, 0.5, average_after=1), {}, "random"),
        (fl.FedLSA(0.1, 2), {"sampling": fl.Markov()}, "sampling"),
        (fl.FedLSA(0.1, 2), {"rounds": 0}, "rounds"),
        (fl.FedLSA(0.1, 2, average_after=9), {"rounds": 8}, "average_after"),
        (fl.FedLSA(0.1, 2), {"theta_0": [1.0]}, "theta_0"),
        (fl.FedLSA(0.1, 2), {"xi_0": np.ones((2, 2))}, "xi_0"),
    ],
)
def test_what_has_no_exact_moments_is_refused_by_name(a, keywords, named):
    with pytest.raises(fl.errors.ArgumentError, match=named):
        fl.theory.exact(tiny(2, 2, 2, 0), a, **keywords)


def test_a_dimension_whose_moments_would_not_fit_is_refused_before_they_are_made():
    x = np.random.default_rng(0).standard_normal((20, 128))
    p = fl.problems.regression([(x * k, x[:, 0]) for k in range(1, 12)], ridge=1.0)
    with pytest.raises(fl.errors.ArgumentError, match=r"dim must be small enough.*got 128"):
        fl.theory.exact(p, fl.FedLSA(0.1, 2))


def test_the_stability_limit_of_scaffnew_is_not_lost_among_tiny_steps():
    p = fl.problems.garnet(agents=4, perturbation=0)
    edge = fl.theory.stability_limit(p, fl.Scaffnew(0.1, 0.1))
    assert edge > 0.5
    assert fl.theory.stationary(p, fl.Scaffnew(0.98 * edge, 0.1)).mse < np.inf
    assert fl.theory.stationary(p, fl.Scaffnew(1.02 * edge, 0.1)).mse == np.inf

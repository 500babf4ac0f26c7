"""Complexities: every setting that is promised keeps its promise, in the theorem and in the exact second moments."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from gallery import CASES, CORE
from tables import well_conditioned
from tiers import mostly_long

import fedlsa as fl
from fedlsa.errors import ArgumentError, UnknownNameError

METHODS = ("fedlsa", "synchronous", "scafflsa", "scaffnew")


def quietly(problem, method, epsilon, theta_0=None):
    """The complexity, whose theorem must hold without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fl.theory.complexity(problem, method, epsilon, theta_0)


RANDOM = {f"random {seed}": well_conditioned(seed, agents=1 + seed) for seed in range(3)}
PROBLEMS = RANDOM | {name: make().problem for name, make in CASES.items()}


@pytest.mark.parametrize("name", mostly_long(PROBLEMS, ("random 0", *CORE)))
def test_every_complexity_satisfies_its_theorem(name):
    problem = PROBLEMS[name]
    if not fl.theory.constants(problem).L > 0:
        return
    for method, epsilon in itertools.product(METHODS, (10.0, 0.1, 1e-5)):
        if method == "scafflsa" and np.ptp(problem.weights) > 0:
            continue
        if name == "badly scaled" and epsilon == 1e-5 and method in ("fedlsa", "synchronous", "scafflsa"):
            continue  # some theorems ask for more rounds than an integer holds
        got = quietly(problem, method, epsilon)
        again = fl.theory.bound(problem, got.algorithm, got.rounds)
        assert again.mse == pytest.approx(got.bound.mse, rel=1e-12)
        assert again.mse <= epsilon**2 * (1 + 1e-9)
        assert again.holds
        if method == "fedlsa" and got.rounds < 10_000 and got.algorithm.step_size > 1e-11:  # smaller ones lose digits
            exact = fl.theory.exact(problem, got.algorithm, got.rounds, record=[got.rounds])
            assert float(exact["mse"][-1]) <= epsilon**2


@pytest.mark.parametrize("method", METHODS)
def test_garnet_has_complexities_too_and_a_start_at_the_solution_costs_one_transient_step(method):
    problem = fl.problems.garnet(agents=10, discount=0.5, seed=1)
    got = quietly(problem, method, 0.1, problem.theta_star)
    assert got.bound.mse <= 0.01 * (1 + 1e-9)
    assert got.samples >= got.rounds >= 1
    assert quietly(problem, method, 0.1).rounds >= got.rounds


@pytest.mark.parametrize("method", METHODS)
def test_fewer_rounds_do_not_satisfy_the_share_of_the_transient(method):
    problem, epsilon = well_conditioned(3), 0.01
    got = quietly(problem, method, epsilon)
    share = epsilon / 4 if method in ("fedlsa", "synchronous") else epsilon**2 / 2
    fewer = fl.theory.bound(problem, got.algorithm, got.rounds - 1)
    assert got.bound.terms["transient"] <= share * (1 + 1e-9) < fewer.terms["transient"] * (1 + 1e-6)


def test_communications_grow_as_the_paper_says():
    problem = well_conditioned(4)
    rounds = {m: [quietly(problem, m, e).rounds for e in (1e-2, 1e-3, 1e-4)] for m in METHODS}
    log = math.log(10)
    # up to logarithms: 1/epsilon for FedLSA, 1/epsilon^2 at H = 1, constant for SCAFFLSA, 1/epsilon for Scaffnew
    for method, power in (("fedlsa", 1), ("synchronous", 2), ("scafflsa", 0), ("scaffnew", 1)):
        slope = math.log(rounds[method][2] / rounds[method][1]) / log
        assert power <= slope + 0.05 <= power + 0.3, (method, slope)


def test_more_agents_need_fewer_samples():
    one = fl.problems.from_observations([([0.5, 0.5], np.stack([np.eye(2)] * 2), [[1.0, 0.0], [-1.0, 0.0]])])
    A, b = one.observations.A, one.observations.b
    many = fl.problems.from_observations([([0.5, 0.5], A, b)], assignment=[0] * 10)
    for method in ("fedlsa", "synchronous", "scafflsa"):
        few, more = (quietly(p, method, 1e-3, p.theta_star + 1).samples for p in (one, many))
        assert 8 < few / more < 12


def test_identical_agents_need_one_round_of_fedlsa():
    rng = np.random.default_rng(0)
    table = ([0.5, 0.5], np.eye(2) + 0.1 * rng.standard_normal((2, 2, 2)), rng.standard_normal((2, 2)))
    got = quietly(fl.problems.from_observations([table], assignment=[0, 0, 0]), "fedlsa", 0.01)
    assert got.rounds == 1
    assert got.local_steps == got.samples


def test_the_printed_rounds_of_scafflsa_lack_a_factor_two():
    problem, epsilon = well_conditioned(5), 0.01
    start = problem.theta_star + 1
    got, known = quietly(problem, "scafflsa", epsilon, start), fl.theory.constants(problem)
    eta, H = got.step_size, got.algorithm.local_steps
    a = fl.theory.stability(problem, eta)
    psi_0 = 2 + (eta * H) ** 2 * known.Delta
    printed = 240 * (known.C_A**2 + known.Sigma_A_norm) / a**2 * math.log(4 * psi_0 / epsilon**2)
    assert got.rounds == pytest.approx(2 * printed, rel=0.01)
    assert fl.theory.bound(problem, got.algorithm, math.ceil(printed), start).value > epsilon**2


def test_the_printed_iterations_of_scaffnew_are_too_few():
    problem, epsilon = well_conditioned(6), 0.01
    start, known = problem.theta_star + 1, fl.theory.constants(problem)
    a, sigma = known.a_sym, known.sigma_omega
    eta = min(1 / (2 * known.L), epsilon**2 * a / (8 * sigma))
    p = math.sqrt(eta * a)
    X = 2 + min(1 / (2 * a * known.L), epsilon**2 / (8 * sigma)) * known.Delta
    printed = max(2 * known.L / a, 4 * sigma / (epsilon * a) ** 2) * math.log(X / (2 * epsilon**2))
    corrected = max(2 * known.L / a, 8 * sigma / (epsilon * a) ** 2) * math.log(2 * X / epsilon**2)
    algorithm = fl.Scaffnew(eta, p)
    assert fl.theory.bound(problem, algorithm, math.floor(printed * p), start).value > epsilon**2
    assert fl.theory.bound(problem, algorithm, math.ceil(corrected * p), start).value <= epsilon**2


def trajectories(seed, difference):
    """Two agents whose rewards differ a little, TD(0) with one feature per state."""
    rng = np.random.default_rng(seed)
    P, r = rng.dirichlet(5 * np.ones(2), (1, 2, 1)), rng.random((1, 2, 1))
    P, r = np.concatenate([P, P]), np.concatenate([r, r + difference])
    P[1, 0, 0] += difference * np.array([1.0, -1.0])
    return fl.problems.from_mdps(P, r, np.ones((2, 1)), np.eye(2), 0.3)


@pytest.mark.parametrize("seed", mostly_long(range(3), [0]))
@pytest.mark.parametrize(("difference", "epsilon"), [(0.0, 0.3), (0.0, 0.01), (0.01, 0.5), (0.001, 0.1)])
def test_complexities_on_trajectories_satisfy_theorem_and_lemma(seed, difference, epsilon):
    problem = trajectories(seed, difference)
    got = quietly(problem, "markov", epsilon)
    again = fl.theory.markov_bound(problem, got.algorithm, got.rounds, got.thin)
    assert again.holds
    assert again.mse <= epsilon**2
    assert got.samples == got.rounds * got.algorithm.local_steps
    assert got.algorithm.local_steps % got.thin == 0


def test_on_trajectories_long_rounds_and_a_small_bias_exclude_each_other():
    problem = trajectories(0, 0.2)
    with pytest.raises(ArgumentError, match=r"epsilon must be larger.*eq:block_size_relation"):
        fl.theory.complexity(problem, "markov", 1e-3)
    assert fl.theory.complexity(problem, "fedlsa", 1e-3).bound.holds


def test_complexities_refuse_what_no_theorem_covers():
    indefinite = fl.problems.from_observations([([1.0], [[[1.0, 9.0], [0.0, 1.0]]], [[1.0, 1.0]])])
    with pytest.raises(ArgumentError, match="positive definite symmetric parts"):
        fl.theory.complexity(indefinite, "fedlsa", 0.1)
    with pytest.raises(UnknownNameError, match="did you mean 'scafflsa'"):
        fl.theory.complexity(well_conditioned(0), "SCAFLSA", 0.1)
    with pytest.raises(ArgumentError, match="equal weights"):
        fl.theory.complexity(well_conditioned(0, weights=[1.0, 2.0]), "scafflsa", 0.1)
    assert quietly(well_conditioned(0, weights=[1.0, 2.0]), "fedlsa", 0.1).bound.holds


@pytest.mark.parametrize("method", METHODS)
def test_rounds_are_counted_where_the_square_of_distance_over_epsilon_is_no_number(method):
    problem = well_conditioned(0)
    near, middle, far = (fl.theory.complexity(problem, method, 1e-5, np.full(2, 10.0**k)) for k in (50, 100, 150))
    gap = middle.samples - near.samples
    assert gap > 0
    ceilings = 2 * far.local_steps  # a round more or less in each difference
    assert far.samples - middle.samples == pytest.approx(gap, rel=1e-9, abs=ceilings)
    assert math.isfinite(far.bound.mse)

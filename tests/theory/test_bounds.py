"""Each theorem against exact moments, on kind problems and on the gallery, wherever its conditions hold."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from gallery import CASES, CORE
from tables import well_conditioned
from tiers import longer, mostly_long
from twin import Twin, moved

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, TheoryWarning

STARTS = (1.0, 0.0, -3.0)  # theta_0 - theta_star, in every coordinate but the first, which has the opposite sign
SLACK = 1 + 1e-9


def noiseless_at_home(seed):
    """b(z) = A(z) theta_c: no noise at the local solutions, Sigma_eps = 0, but noise at theta_star."""
    rng = np.random.default_rng(seed)
    tables = []
    for theta in ([2.0, 0.0], [-2.0, 1.0]):
        A = 1.5 * np.eye(2) + 0.5 * rng.standard_normal((3, 2, 2))
        tables.append((np.full(3, 1 / 3), A, A @ theta))
    return fl.problems.from_observations(tables)


def noise_at_the_solution_alone(s):
    """Two agents that differ and are not random, one at theta_star that is: Sigma_eps = 0 and v_heter = 0."""
    tables = [([1.0], [[[1.0]]], [[2.0]]), ([1.0], [[[2.0]]], [[-2.0]])]
    return fl.problems.from_observations([*tables, ([0.5, 0.5], [[[1 + s]], [[1 - s]]], [[0.0], [0.0]])])


PROBLEMS = {
    **{f"random {seed}": well_conditioned(seed, agents=1 + seed % 3) for seed in range(4)},
    "weights": well_conditioned(11, agents=3, weights=[1.0, 5.0, 2.0]),
    "noiseless at home": noiseless_at_home(0),
    "noise at the solution alone": noise_at_the_solution_alone(0.9),
    "large noise at the solution alone": noise_at_the_solution_alone(30.0),
    "garnet": fl.problems.garnet(agents=2, states=4, features=2, discount=0.5, perturbation=0.0, seed=3),
    **{name: make().problem for name, make in CASES.items()},
}
STEPS = (0.1, 0.01, 1e-4)
LENGTHS = (1, 4, 60)
KEPT = ("weights", "noiseless at home", "noise at the solution alone", *CORE[:4])
every = pytest.mark.parametrize("name", mostly_long(PROBLEMS, KEPT))


def starts(problem):
    for offset in STARTS:
        theta = problem.theta_star + offset
        theta[0] -= 2 * offset
        yield theta


def found(problem, algorithm, rounds, theta_0, find=fl.theory.bound):
    """The bound at these rounds, without its warning; terms add up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TheoryWarning)
        got = find(problem, algorithm, rounds, theta_0)
    assert np.array_equal(sum(got.terms.values()), got.value, equal_nan=True)
    return got


def fedlsa_checks(problem, steps, lengths, find=fl.theory.bound):
    """How often the conditions of the theorem on FedLSA held; whenever they did, so did the bound."""
    checked, rounds = 0, [0, 1, 30, 3000]
    rounding = 1e-14 * (1 + problem.theta_star @ problem.theta_star)  # of a second moment about theta_star
    for eta, H in itertools.product(steps, lengths):
        algorithm, bias = fl.FedLSA(eta, H), None
        for theta_0 in starts(problem):
            got = found(problem, algorithm, rounds, theta_0, find)
            if got.holds:
                e = fl.theory.exact(problem, algorithm, rounds[-1], theta_0, record=rounds)
                if bias is None:
                    bias = np.stack([fl.theory.bias_at(problem, eta, H, t) for t in rounds])
                around = np.sum((e["mean"].values - problem.theta_star - bias) ** 2, axis=1) + e["noise"].values
                assert (around <= got.value**2 * SLACK + rounding).all()
                assert (e["mse"].values <= got.mse * SLACK + rounding).all()
                checked += len(rounds)
    return checked


@every
def test_the_theorem_on_fedlsa_holds(name):
    checked = fedlsa_checks(PROBLEMS[name], STEPS, LENGTHS)
    stable = fl.theory.stability(PROBLEMS[name], 1e-4) > 0
    assert checked >= (36 if stable and np.isfinite(PROBLEMS[name].theta_star_local).all() else 0)


@every
def test_the_theorem_on_scafflsa_holds_and_its_noise_is_below_half_of_its_term(name):
    problem = PROBLEMS[name]
    known = fl.theory.constants(problem)
    if known.a_sym <= 0 or np.ptp(problem.weights) > 0:
        return
    parts, rounds = fl.theory.scafflsa_parts(problem), [1, 3, 200]
    assert fl.theory.constants(parts.virtual).sigma_omega == pytest.approx(0, abs=1e-20 * (1 + known.sigma_omega))
    for share, H in ((0.9, 1), (0.9, 8), (0.1, 40)):
        algorithm = scafflsa_setting(problem, share, H)
        for theta_0 in itertools.islice(starts(problem), 2):
            got = found(problem, algorithm, rounds, theta_0)
            assert got.holds
            assert np.array_equal(got.mse, got.value)
            e = fl.theory.exact(problem, algorithm, rounds[-1], theta_0, record=rounds)
            assert (e["mse"].values <= got.value * SLACK).all()
        assert fl.theory.stationary(parts.fluctuation, algorithm).mse <= got.terms["noise"][0] / 2 * SLACK


def scafflsa_setting(problem, share, H):
    """SCAFFLSA at a share of the largest step size that the theorem allows for H."""
    known = fl.theory.constants(problem)
    return fl.SCAFFLSA(share * known.a_sym / (240 * H * (known.C_A**2 + known.Sigma_A_norm)), H)


@every
def test_the_theorem_on_scaffnew_holds_with_noise_at_the_common_solution(name):
    problem = PROBLEMS[name]
    known = fl.theory.constants(problem)
    if known.L != known.L:
        return
    for share, p in ((1.0, 1.0), (1.0, 0.2), (1.0, None), (0.1, None)):
        eta = share / (2 * known.L)
        p = p or max(math.sqrt(eta * known.a_sym), 0.01)
        algorithm, rounds = fl.Scaffnew(eta, p), [1, max(2, math.floor(100 * p))]
        for theta_0 in itertools.islice(starts(problem), 2):
            got = found(problem, algorithm, rounds, theta_0)
            assert got.holds
            K = got.samples.tolist()
            try:
                e = fl.theory.exact_iterations(problem, algorithm, K[-1], theta_0, record=[0, *K])
            except fl.errors.PrecisionError:  # what is left of the error is hidden by rounding
                continue
            rounding = 1e-14 * e["psi"].values[0]
            assert (e["psi"].values[1:] <= got.value * SLACK + rounding).all()
            assert (e["mse"].values[1:] <= got.mse * SLACK + rounding).all()


def test_scaffnew_at_a_communication_has_the_error_of_the_average_at_that_iteration():
    twin = Twin(well_conditioned(1), fl.Scaffnew(0.1, 0.3))
    m, C = twin.steps(*moved(twin.lift(), *twin.start()), 0.1, 5)
    average = sum(w * np.eye(twin.n)[h] for w, h in zip(twin.p.weights, twin.h, strict=True))
    later, after = moved(twin.collect(np.full(twin.N, 3.0)), m, C)
    np.testing.assert_allclose(later[twin.u], average @ m, rtol=1e-12)
    np.testing.assert_allclose(after[twin.u, twin.u], average @ C @ average.T, rtol=1e-12)


def test_scaffnew_fails_as_printed_for_sigma_eps_can_be_zero_while_psi_is_not():
    problem = noiseless_at_home(0)
    known = fl.theory.constants(problem)
    assert known.sigma_eps == pytest.approx(0, abs=1e-25)
    eta, p, rounds = 1 / (2 * known.L), 0.5, 500
    got = found(problem, fl.Scaffnew(eta, p), rounds, None)
    psi = float(fl.theory.exact_iterations(problem, fl.Scaffnew(eta, p), got.samples, record=[got.samples])["psi"][-1])
    printed = got.terms["transient"] + 2 * eta**2 / min(eta * known.a_sym, p**2) * known.sigma_eps
    assert printed < 1e-12 < 1e-3 < psi <= got.value


def rademacher(agents):
    """The example of thm:no-speed-up-proxskip with a = 1: A(z) = I, b(z) = (b_c +- 1) (1, 1)."""
    A, u = np.stack([np.eye(2)] * 2), np.ones(2)
    return fl.problems.from_observations([([0.5, 0.5], A, np.stack([(c + 1) * u, (c - 1) * u])) for c in range(agents)])


def scaffnew_example(agents, eta, p, K):
    """psi and the MSE of the average at iteration K, from theta_star + 1."""
    problem = rademacher(agents)
    e = fl.theory.exact_iterations(problem, fl.Scaffnew(eta, p), K, problem.theta_star + 1, record=[K])
    return float(e["psi"][-1]), float(e["mse"][-1])


def test_in_the_lower_bound_psi_does_not_fall_with_the_agents_but_the_error_of_the_server_does():
    psi, server = np.array([scaffnew_example(N, 0.05, 0.2, 400) for N in (1, 2, 3, 4)]).T
    assert (np.diff(psi) > 0).all()
    np.testing.assert_allclose(server * [1, 2, 3, 4], server[0], rtol=1e-6)


@pytest.mark.parametrize("agents", [1, 2, 3])
@pytest.mark.parametrize("K", [1, 10, longer(1000)])
def test_the_lower_bound_is_an_equality_without_its_factor_two_where_both_rates_agree(agents, K):
    eta = 0.05
    zeta = 1 - (1 - eta) ** 2  # the rate of theta; p^2 = zeta makes it that of the control variates too
    known = fl.theory.constants(rademacher(agents))
    psi, _ = scaffnew_example(agents, eta, np.sqrt(zeta), K)
    start = 2 + eta**2 / zeta * known.Delta
    left = (1 - zeta) ** K
    assert psi == pytest.approx(left * start + (1 - left) * eta**2 / zeta * known.sigma_eps, rel=1e-9)
    printed = left * start + 2 * eta**2 / zeta * known.sigma_eps
    assert psi < printed  # so the printed equality is none


def test_a_singular_agent_leaves_fedlsa_without_a_bound():
    singular = ([1.0], [np.diag([1.0, 0.0])], [[1.0, 1.0]])
    regular = ([1.0], [np.diag([1.0, 2.0])], [[1.0, 0.0]])
    with pytest.warns(TheoryWarning, match="every agent has a theta_star_c"):
        got = fl.theory.bound(fl.problems.from_observations([singular, regular]), fl.FedLSA(0.1, 2), 3)
    assert np.isnan(got.value)


def test_fedlsa_fails_with_the_printed_order_of_sigma_a():
    """A~(z) = s e_j e_1^T, j uniform: E[A~^T A~] = s^2 e_1 e_1^T, but the printed E[A~ A~^T] = s^2 / d I."""
    d, s, eta = 16, 0.1, 0.01
    noise = np.zeros((2 * d, d, d))
    noise[np.arange(2 * d), np.arange(2 * d) % d, 0] = np.repeat([s, -s], d)
    A = np.eye(d) + noise
    first = np.eye(d)[0]
    law = np.full(2 * d, 0.5 / d)
    problem = fl.problems.from_observations([(law, A, A @ first), (law, A, -A @ first)])  # eps = 0, theta_star = 0
    got = found(problem, fl.FedLSA(eta, 1), 5000, problem.theta_star)
    assert got.holds
    mean_square, first_square = 0.0, 0.0  # E||u||^2 and E u_1^2, from the recursion of the average of the two agents
    for _ in range(5000):
        growth = eta**2 * s**2 / 2 * (1 + first_square)  # two agents, w_c^2 = 1/4, at distance 1 from theta_star
        mean_square = (1 - eta) ** 2 * mean_square + growth
        first_square = (1 - eta) ** 2 * first_square + growth / d
    known = fl.theory.constants(problem)
    printed_norm = max(np.linalg.norm(S, 2) for S in known.table_Sigma_A_printed)
    assert printed_norm == pytest.approx(s**2 / d)
    assert known.Sigma_A_norm == pytest.approx(s**2)
    printed = got.value * np.sqrt(printed_norm / known.Sigma_A_norm)  # heterogeneity is its only term
    assert got.terms["heterogeneity"] == pytest.approx(got.value)
    assert printed < np.sqrt(mean_square) <= got.value


@pytest.mark.parametrize("seed", range(3))
def test_the_td_corollaries_hold_with_the_constants_of_the_claim(seed):
    problem = fl.problems.garnet(agents=2, states=4, features=2, discount=0.5, perturbation=0.0, seed=seed)
    eta_inf = fl.theory.td_claim(problem).eta_inf
    assert fedlsa_checks(problem, (eta_inf, 0.01), (1, 20), fl.theory.td_bound) == 48
    ours, theirs = (find(problem, fl.FedLSA(0.1, 5), 100).value for find in (fl.theory.bound, fl.theory.td_bound))
    assert ours <= theirs


def test_the_td_corollary_of_scafflsa_and_scaffnew_is_weaker_than_the_theorem():
    problem = fl.problems.garnet(agents=2, states=4, features=2, discount=0.5, perturbation=0.0, seed=1)
    claim = fl.theory.td_claim(problem)
    eta = claim.a / (240 * 2 * (claim.C_A**2 + claim.Sigma_A_norm))
    for algorithm in (fl.SCAFFLSA(eta, 2), fl.Scaffnew(1 / (2 * claim.L), 0.1)):
        ours, theirs = (found(problem, algorithm, 100, None, find) for find in (fl.theory.bound, fl.theory.td_bound))
        assert ours.holds
        assert theirs.holds
        assert ours.value <= theirs.value


def test_conditions_that_fail_are_warned_of_once_and_the_number_is_returned():
    with pytest.warns(TheoryWarning, match=r"H <= a / \(240 eta") as caught:
        got = fl.theory.bound(well_conditioned(0), fl.SCAFFLSA(0.1, 10), 5)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert not got.holds
    assert got.conditions["a(eta) exists"]
    assert got.numbers["H <= a / (240 eta (C_A^2 + ||Sigma_A||))"][0] == 10
    assert np.isfinite(got.value)


@pytest.mark.parametrize("algorithm", [fl.FedLSA(0.01, 3), fl.SCAFFLSA(0.01, 3), fl.Scaffnew(0.01, 0.3)])
def test_without_stability_every_bound_is_nan_and_says_so(algorithm):
    problem = fl.problems.from_observations([([1.0], [[[1.0, 9.0], [0.0, 1.0]]], [[1.0, 1.0]])])
    with pytest.warns(TheoryWarning, match="exist"):
        got = fl.theory.bound(problem, algorithm, 10)
    assert np.isnan([got.value, got.mse]).all()


def test_bounds_say_what_they_do_not_cover():
    problem = well_conditioned(0)
    for options in ({"participation": 0.5}, {"projection": 1.0}, {"average_after": 3}):
        with pytest.raises(ArgumentError, match="the theorems"):
            fl.theory.bound(problem, fl.FedLSA(0.1, 2, **options), 3)
    with pytest.raises(ArgumentError, match="constant step_size"):
        fl.theory.bound(problem, fl.FedLSA(fl.PowerStep(0.1, 0.5), 2), 3)
    with pytest.raises(ArgumentError, match="equal weights"):
        fl.theory.bound(well_conditioned(0, weights=[1.0, 2.0]), fl.SCAFFLSA(0.1, 2), 3)
    with pytest.raises(ArgumentError, match=r"i\.i\.d\. sampling"):
        fl.theory.bound(problem, fl.SCAFFLSA(0.1, 2), 3, sampling=fl.Markov())
    with pytest.raises(ArgumentTypeError, match="algorithm must be a method such as"):
        fl.theory.bound(problem, 3, 3)


def walk(problem, gain, theta, draws, eta):
    """theta_t - theta_star of a method on given observations; draws : (rounds, local steps, agents)."""
    A, b = problem.observations.matrices(slice(0, len(problem.prob)))
    xi, out = np.zeros((problem.n_agents, problem.dim)), []
    for steps in draws:
        theta_hat = np.tile(theta, (problem.n_agents, 1))
        for z in steps:
            theta_hat = theta_hat - eta * (np.einsum("cij,cj->ci", A[z], theta_hat) - b[z] - xi)
        theta = problem.weights @ theta_hat
        xi = xi + gain * (theta - theta_hat)
        out.append(theta - problem.theta_star)
    return np.array(out)


@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_parts_add_up_to_the_error_on_every_path(ridge):
    rng = np.random.default_rng(0)
    problem = fl.problems.regression([(rng.standard_normal((6, 2)), np.arange(6.0)) for _ in range(2)], ridge=ridge)
    zero, theta_0 = np.zeros(2), problem.theta_star + np.array([1.0, -2.0])
    draws, eta = rng.integers(6, size=(9, 4, 2)) + np.array([0, 6]), 0.05
    three, two = fl.theory.fedlsa_parts(problem), fl.theory.scafflsa_parts(problem)
    parts = ((three.transient, theta_0 - problem.theta_star), (three.noise, zero))
    total = sum(
        walk(part, 0.0, start, draws, eta) for part, start in (*parts, (three.heterogeneity, problem.theta_star))
    )
    np.testing.assert_allclose(total, walk(problem, 0.0, theta_0, draws, eta), atol=1e-12)
    parts = ((two.virtual, theta_0), (two.fluctuation, zero))
    total = sum(walk(part, 1 / (4 * eta), start, draws, eta) for part, start in parts)
    np.testing.assert_allclose(total, walk(problem, 1 / (4 * eta), theta_0, draws, eta), atol=1e-12)


def test_parts_of_fedlsa_need_local_solutions():
    singular = ([1.0], [np.diag([1.0, 0.0])], [[1.0, 1.0]])
    regular = ([1.0], [np.diag([1.0, 2.0])], [[1.0, 0.0]])
    problem = fl.problems.from_observations([singular, regular])
    with pytest.raises(ArgumentError, match="every agent must have a theta_star_c"):
        fl.theory.fedlsa_parts(problem)
    assert fl.theory.scafflsa_parts(problem).virtual.theta_star == pytest.approx(problem.theta_star)

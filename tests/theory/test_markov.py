"""The Markovian case: mixing times by brute force, constants by their formulas, bounds against exact product chains."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.linalg
from gallery import CASES

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, TheoryWarning
from fedlsa.theory.problem_constants import lyapunov_matrix


def chains(seed, agents=2, states=2, discount=0.3, same=False):
    """TD(0) with one feature per state: A_bar is well conditioned for a small discount."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(states), (agents, states, 1))
    r = rng.random((agents, states, 1))
    if same:
        P[:], r[:] = P[0], r[0]
    return fl.problems.from_mdps(P, r, np.ones((states, 1)), np.eye(states), discount)


def observation_kernel(problem, m):
    """Q(z' | z), written out, on the observations that can happen."""
    span, chain = list(problem.spans())[m], problem.chain
    possible = problem.prob[span] > 0
    origin, successor, law = (x[span][possible] for x in (chain.origin, chain.successor, chain.conditional))
    return (successor[:, None] == origin[None, :]) * law[None, :]


def farthest(Q, k):
    power = np.linalg.matrix_power(Q, k)
    return max(np.abs(x - y).sum() / 2 for x, y in itertools.product(power, repeat=2))


@pytest.mark.parametrize("seed", range(12))
def test_mixing_time_is_the_least_that_the_definition_allows(seed):
    states = 2 + seed % 4
    if seed % 2:
        problem = fl.problems.garnet(agents=2, states=8, actions=2, branching=2, features=2, seed=seed)
    else:
        problem = chains(seed, states=states)
    for m, tau in enumerate(fl.theory.mixing_times(problem)):
        Q = observation_kernel(problem, m)
        distances = [farthest(Q, k) for k in range(5 * int(tau) + 1)]

        def defined(t, distances=distances):
            return all(d <= 0.25 ** (k // t) + 1e-12 for k, d in enumerate(distances))

        assert defined(int(tau))
        assert not any(defined(t) for t in range(1, int(tau)))


@pytest.mark.parametrize("bits", [20, 33])
def test_mixing_time_of_a_slow_chain_is_found_without_counting_to_it(bits):
    leave = 2.0**-bits
    P = np.array([[[[1 - leave, leave]], [[leave, 1 - leave]]]])
    problem = fl.problems.from_mdps(P, np.ones((1, 2, 1)), np.ones((2, 1)), np.eye(2), 0.5)
    expected = math.ceil(math.log(0.25) / math.log1p(-2 * leave)) + 1  # d(k) = (1 - 2 leave)^{k-1}
    assert fl.theory.mixing_times(problem)[0] == pytest.approx(expected, rel=1e-12, abs=1)


@pytest.mark.parametrize("name", ["corridor", "absorbing chain", "periodic chain"])
def test_mixing_times_of_hostile_chains(name):
    problem = CASES[name]().problem
    for m, tau in enumerate(fl.theory.mixing_times(problem)):
        Q = observation_kernel(problem, m)  # all of it: states that are left for ever are not observed
        assert tau == next((k for k in range(1, 50) if farthest(Q, k) <= 0.25), math.inf)


def test_a_periodic_chain_never_mixes_and_a_single_state_mixes_at_once():
    swap = fl.problems.from_mdps([[[[0.0, 1.0]], [[1.0, 0.0]]]], np.ones((1, 2, 1)), np.ones((2, 1)), np.eye(2), 0.5)
    assert fl.theory.mixing_times(swap)[0] == math.inf
    with pytest.raises(ArgumentError, match="chains must mix"):
        fl.theory.markov_block(swap, fl.FedLSA(0.1, 10), 5, 0.1)
    alone = fl.problems.from_mdps(np.ones((1, 1, 1, 1)), np.ones((1, 1, 1)), np.ones((1, 1)), np.ones((1, 1)), 0.5)
    assert fl.theory.mixing_times(alone)[0] == 1


@pytest.mark.parametrize("seed", range(5))
def test_constants_follow_their_formulas(seed):
    problem = chains(seed, agents=3, states=3)
    got, C_A = fl.theory.markov_constants(problem), fl.theory.constants(problem).A_sup
    a, eta, kappa = [], [], []
    for A, Q in zip(problem.A_bar, got.Q, strict=True):
        np.testing.assert_allclose(A.T @ Q + Q @ A, np.eye(3), atol=1e-12)
        root = scipy.linalg.sqrtm(Q).real
        in_Q = np.linalg.norm(root @ A @ np.linalg.inv(root), 2)
        norm = np.linalg.norm(Q, 2)
        a.append(1 / (2 * norm))
        eta.append(min(0.5 / (in_Q**2 * norm), norm))
        kappa.append(np.linalg.cond(Q))
    np.testing.assert_allclose(got.a_local, a, rtol=1e-9)
    np.testing.assert_allclose(got.eta_tilde_inf_local, eta, rtol=1e-9)
    np.testing.assert_allclose(got.kappa_Q_local, kappa, rtol=1e-9)
    root, low = np.sqrt(max(kappa)), min(a)
    blocks = np.ceil(8 * root * C_A / low)
    assert pytest.approx(2 * root * C_A) == got.b_Q
    assert pytest.approx(4 * (root * C_A + low / 6) ** 2 * blocks) == got.C_Gamma
    assert got.c_A_M == pytest.approx(low / (12 * got.C_Gamma))
    small = min(min(eta), 1 / (root * C_A), low / (6 * np.e * max(kappa) * C_A))
    assert got.eta_inf_M == pytest.approx(min(small / blocks, got.c_A_M / 2))
    assert got.tau_mix == max(fl.theory.mixing_times(problem))


@pytest.mark.filterwarnings("error")
def test_a_lyapunov_equation_that_floating_point_numbers_cannot_solve_has_no_solution():
    assert np.isnan(lyapunov_matrix(np.array([[1e-9, 1e9], [0.0, 1e-9]]))).all()  # although -A is Hurwitz
    A = np.array([[1.0, 1e6], [0.0, 1.0]])
    Q = lyapunov_matrix(A)
    np.testing.assert_allclose(A.T @ Q + Q @ A, np.eye(2), atol=1e-6)


def test_without_a_hurwitz_matrix_there_are_no_constants_and_without_a_chain_no_mixing_time():
    dense = fl.problems.from_observations([([1.0], [[[1.0]]], [[1.0]])])
    with pytest.raises(ArgumentError, match="made from chains"):
        fl.theory.markov_constants(dense)
    with pytest.raises(ArgumentError, match="made from chains"):
        fl.theory.mixing_times(dense)


class ProductChain:
    """E[y y^T 1{states}] with y = (u_1 ... u_N, 1) on the product of the agents' chains, exactly."""

    def __init__(self, problem, eta, thin):
        N, d, chain = problem.n_agents, problem.dim, problem.chain
        self.N, self.d = N, d
        sizes = np.diff(chain.first_state)
        self.joint = list(itertools.product(*(range(s) for s in sizes)))
        where = {s: i for i, s in enumerate(self.joint)}
        n, S = N * d + 1, len(self.joint)
        self.n, self.S = n, S
        update = np.zeros((S, n * n, S, n * n))
        move = np.zeros((S, S))  # [to, from]
        spans = list(problem.spans())
        for ks in itertools.product(*(range(span.start, span.stop) for span in spans)):
            start = where[tuple(int(chain.origin[k]) for k in ks)]
            end = where[tuple(int(chain.successor[k]) for k in ks)]
            chance = np.prod([chain.conditional[k] for k in ks])
            M = np.eye(n)
            for c, k in enumerate(ks):
                (A,), (b,) = problem.observations.matrices(slice(k, k + 1))
                u = slice(c * d, (c + 1) * d)
                M[u, u] = np.eye(d) - eta * A
                M[u, -1] = -eta * (A @ problem.theta_star - b)
            update[end, :, start, :] += chance * np.kron(M, M)
            move[end, start] += chance
        skip = np.kron(np.linalg.matrix_power(move, thin - 1), np.eye(n * n))
        self.step = update.reshape(S * n * n, -1) @ skip
        mix = np.eye(n)
        mix[:-1, :-1] = np.kron(np.full((N, N), 1 / N), np.eye(d))
        self.mix = np.kron(np.eye(S), np.kron(mix, mix))
        laws = [chain.stationary[a:b] for a, b in itertools.pairwise(chain.first_state)]
        self.law = np.array([np.prod([law[s] for law, s in zip(laws, joint, strict=True)]) for joint in self.joint])

    def round(self, updates):
        power, result = self.step, np.eye(len(self.step))
        while updates:
            if updates & 1:
                result = result @ power
            power = power @ power
            power[np.abs(power) < 1e-100] = 0  # numbers that underflow are slow
            result[np.abs(result) < 1e-100] = 0
            updates >>= 1
        return self.mix @ result

    def mse(self, one, rounds, offset):
        y = np.append(np.tile(offset, self.N), 1.0)
        state = np.kron(self.law, np.outer(y, y).ravel())
        for _ in range(rounds):
            state = one @ state
        return np.trace(state.reshape(self.S, self.n, self.n).sum(axis=0)[: self.d, : self.d])


def silently(find, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = find(*arguments, **options)
    assert got.holds
    return got


def setting(problem, share=1.0):
    """A step size, the fewest updates and the fewest observations in a round that the lemma allows."""
    known = fl.theory.markov_constants(problem)
    eta = share * known.eta_inf_M
    rate, C = known.a_tilde * eta / 12, np.exp(2) * np.sqrt(problem.dim * known.kappa_Q)
    return eta, math.ceil(1 + np.log(C) / rate), 1 - C / np.expm1(-rate), int(known.tau_mix)


def test_the_last_iterate_lemma_holds_in_216_settings():
    checked = 0
    for seed in range(9):
        problem = chains(seed, agents=2 if seed % 3 == 0 else 1)
        for share in (1.0, 0.2):
            eta, fewest, observations, tau = setting(problem, share)
            for q in (tau, 2 * tau + 1):
                updates = max(fewest, math.ceil(observations / q))
                exact = ProductChain(problem, eta, q)
                one = exact.round(updates)
                for t in (0, 1, 7):
                    for offset in ([1.0, 1.0], [-5.0, 2.0]):
                        algorithm = fl.FedLSA(eta, q * updates)
                        where = {"theta_0": problem.theta_star + offset, "sampling": fl.Markov(thin=q)}
                        got = silently(fl.theory.bound, problem, algorithm, t, **where)
                        assert exact.mse(one, t, np.array(offset)) <= got.mse * (1 + 1e-9)
                        assert got.mse == got.value**2
                        checked += 1
    assert checked == 216


def test_rounds_that_are_too_short_for_the_lemma_are_named():
    problem = chains(0)
    eta, fewest, observations, tau = setting(problem)
    q = 9 * tau
    assert observations < q * fewest
    silently(fl.theory.bound, problem, fl.FedLSA(eta, q * fewest), 1, sampling=fl.Markov(thin=q))
    with pytest.warns(TheoryWarning, match=r"not met: 1 \+ 12 / \(a~ eta\) .* <= floor\(H / q\)"):
        fl.theory.bound(problem, fl.FedLSA(eta, q * fewest - 1), 1, sampling=fl.Markov(thin=q))
    assert observations > tau * fewest
    with pytest.warns(TheoryWarning, match=r"not met: 1 \+ e\^2 \(d kappa_Q\)"):
        fl.theory.bound(problem, fl.FedLSA(eta, tau * fewest), 1, sampling=fl.Markov(thin=tau))


def test_the_bound_by_coupling_holds_and_tends_to_that_of_independent_observations():
    checked = 0
    for seed in range(2):
        for same in (False, True):
            problem = chains(seed, same=same)
            eta, fewest, observations, tau = setting(problem)
            for blocks in (1, 5, 100):
                q = blocks * tau
                updates = max(fewest, math.ceil(observations / q))
                got = silently(fl.theory.markov_bound, problem, fl.FedLSA(eta, q * updates), 3, q)
                exact = ProductChain(problem, eta, q)
                assert exact.mse(exact.round(updates), 3, np.ones(2)) <= got.value * (1 + 1e-9)
                checked += 1
            apart = fl.theory.bound(problem, fl.FedLSA(eta, updates), 3)
            assert got.value == pytest.approx(apart.mse, rel=1e-3)
    assert checked == 12


def test_block_size_makes_the_coupling_term_as_small_as_asked():
    problem, epsilon, T = chains(3), 0.01, 20
    algorithm = fl.FedLSA(0.01, 5000)
    got, known = fl.theory.markov_block(problem, algorithm, T, epsilon), fl.theory.constants(problem)
    steps = 5000 * T
    assert got.Delta_corr == pytest.approx((np.sqrt(2) + 2 * known.distance + 0.01 * known.eps_sup) ** 2)
    assert got.delta == pytest.approx(epsilon**4 / (steps**4 * got.Delta_corr**2))
    assert got.delta_printed == pytest.approx(epsilon**4 / (steps**4 * got.Delta_corr))
    tau = max(fl.theory.mixing_times(problem))
    assert got.q == math.ceil(tau * math.log(2 * 2 * steps / got.delta) / math.log(4))
    with pytest.warns(TheoryWarning):
        lemma = fl.theory.bound(problem, algorithm, T, sampling=fl.Markov(thin=got.q))
    assert math.sqrt(got.delta) * lemma.mse <= epsilon**2
    with pytest.warns(TheoryWarning):
        coupled = fl.theory.markov_bound(problem, algorithm, T, got.q)
    assert coupled.terms["coupling"] <= epsilon**2


def test_the_printed_delta_leaves_more_than_epsilon_squared():
    problem = chains(3)
    far = problem.theta_star + 1e4
    got = fl.theory.markov_block(problem, fl.FedLSA(1e-6, 1), 1, 0.1, far)
    with pytest.warns(TheoryWarning):
        lemma = fl.theory.bound(problem, fl.FedLSA(1e-6, 1), 1, far, fl.Markov())
    assert math.sqrt(got.delta) * lemma.mse <= 0.1**2 * (1 + 1e-9)
    assert math.sqrt(got.delta_printed) * lemma.mse > 100 * 0.1**2


def test_what_the_markovian_functions_do_not_cover():
    problem = chains(0)
    with pytest.raises(ArgumentError, match=r"theta_0 must be so near .* got a distance of 1\.4.*e\+100"):
        fl.theory.markov_block(problem, fl.FedLSA(0.1, 3), 5, 0.1, np.full(2, 1e100))
    P = np.array([[[[0.5, 0.5]], [[0.5, 0.5]]], [[[1.0, 0.0]], [[1.0, 0.0]]]])
    stays = fl.problems.from_mdps(P, np.ones((2, 2, 1)), np.ones((2, 1)), np.eye(2), 0.5)
    with pytest.raises(ArgumentError, match="every theta_star_c exist"):
        fl.theory.markov_block(stays, fl.FedLSA(0.1, 3), 5, 0.1)
    with pytest.raises(ArgumentTypeError, match="rounds of fixed length"):
        fl.theory.markov_block(problem, fl.Scaffnew(0.1, 0.1), 5, 0.1)
    with pytest.raises(ArgumentError, match="thin must be at most local_steps, 3; got 4"):
        fl.theory.bound(problem, fl.FedLSA(0.1, 3), 5, sampling=fl.Markov(thin=4))
    with pytest.raises(ArgumentTypeError, match="algorithm must be a FedLSA"):
        fl.theory.markov_bound(problem, fl.SCAFFLSA(0.1, 3), 5, 2)

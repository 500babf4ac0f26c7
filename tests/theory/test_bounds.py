"""Each theorem against the exact second moments, on problems built so that its conditions hold; all checks counted."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, TheoryWarning

STARTS = ([1.0, 1.0], [0.0, 0.0], [-3.0, 5.0])  # theta_0 - theta_star


class Moments:
    """E[y y^T] with y = (u_1 ... u_N, x_1 ... x_N, 1): u_c = theta_c - theta_star, x_c = xi_c - xi_star_c.

    A local step is y <- M y with agents drawn independently; `mix` averages the u_c and corrects the x_c.
    """

    def __init__(self, problem, eta, gain):
        self.N, self.d, self.w = problem.n_agents, problem.dim, problem.weights
        N, d = self.N, self.d
        self.size = n = 2 * N * d + 1
        mean = np.eye(n)
        agents = []
        for c, m in enumerate(problem.assignment):
            span = list(problem.spans())[m]
            (A, b), p = problem.observations.matrices(span), problem.prob[span]
            u, x = slice(c * d, (c + 1) * d), slice((N + c) * d, (N + c + 1) * d)
            steps = np.zeros((len(p), d, n))
            steps[:, :, u] = np.eye(d) - eta * A
            steps[:, :, x] = eta * np.eye(d)
            steps[:, :, -1] = -eta * (A @ problem.theta_star - b - problem.xi_star[c])
            mean[u] = np.einsum("k,kin->in", p, steps)
            agents.append((u, p, steps - mean[u]))
        self.local = np.kron(mean, mean).reshape(n, n, n, n)  # [i, k, j, l]: entry (i, k) from entry (j, l)
        for u, p, noise in agents:
            self.local[u, u] += np.einsum("z,zij,zkl->ikjl", p, noise, noise)
        self.local = self.local.reshape(n * n, n * n)
        mix = np.eye(n)
        for c in range(N):
            u, x = slice(c * d, (c + 1) * d), slice((N + c) * d, (N + c + 1) * d)
            mix[u] = 0
            for e in range(N):
                mix[u, e * d : (e + 1) * d] = self.w[e] * np.eye(d)
                mix[x, e * d : (e + 1) * d] += gain * self.w[e] * np.eye(d)
            mix[x, u] -= gain * np.eye(d)
        self.mix = np.kron(mix, mix)
        self.xi_star = problem.xi_star

    def start(self, offset):
        y = np.concatenate([np.tile(offset, self.N), -self.xi_star.ravel(), [1.0]])  # xi_0 = 0
        return np.outer(y, y).ravel()

    def after(self, operator, times, *offsets):
        """E[y y^T] after `times` applications of an operator; one for each start, a single one by itself."""
        start = np.stack([self.start(offset) for offset in offsets], axis=1)
        end = np.linalg.matrix_power(operator, times) @ start
        out = [column.reshape(self.size, self.size) for column in end.T]
        return out if len(out) > 1 else out[0]

    def server(self, second, shift=0.0):
        """E||mean_c u_c - shift||^2."""
        d, shift = self.d, np.zeros(self.d) + shift
        average = np.zeros((d, self.size))
        for c in range(self.N):
            average[:, c * d : (c + 1) * d] = self.w[c] * np.eye(d)
        average[:, -1] = -shift
        return np.trace(average @ second @ average.T)

    def psi(self, second, scale):
        parts = np.diag(second)[:-1].reshape(2, self.N, self.d).sum(axis=2) @ self.w
        return parts[0] + scale * parts[1]


def well(seed, agents=2, spread=0.3, **options):
    """Three outcomes per agent, A(z) near the identity."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(agents):
        A = (1 + rng.random()) * np.eye(2) + spread * rng.standard_normal((3, 2, 2))
        tables.append((rng.dirichlet(np.ones(3)), A, rng.standard_normal((3, 2))))
    return fl.problems.from_observations(tables, **options)


def noiseless_at_home(seed):
    """b(z) = A(z) theta_c: no noise at the local solutions, Sigma_eps = 0, but noise at theta_star."""
    rng = np.random.default_rng(seed)
    tables = []
    for theta in ([2.0, 0.0], [-2.0, 1.0]):
        A = 1.5 * np.eye(2) + 0.5 * rng.standard_normal((3, 2, 2))
        tables.append((np.full(3, 1 / 3), A, A @ theta))
    return fl.problems.from_observations(tables)


def problems():
    for seed in range(8):
        yield well(seed, agents=1 + seed % 3)
    yield noiseless_at_home(0)
    yield fl.problems.garnet(agents=2, states=4, features=2, discount=0.5, perturbation=0.0, seed=3)


@pytest.mark.parametrize("gain", [0.0, 2.5])
def test_the_second_moments_of_this_file_are_those_of_all_outcome_sequences(gain):
    problem, eta, H, offset = well(5, weights=[1.0, 3.0]), 0.2, 2, np.array([1.0, -2.0])
    (A, b), w = problem.observations.matrices(slice(0, 6)), problem.weights
    first, second = 0.0, 0.0
    for sequence in itertools.product(range(3), repeat=2 * H):
        chance, theta, xi = 1.0, problem.theta_star + offset, np.zeros((2, 2))
        theta_hat = np.stack([theta, theta])
        for c, z in zip([0, 0, 1, 1], sequence, strict=True):
            k = 3 * c + z
            chance *= problem.prob[k]
            theta_hat[c] = theta_hat[c] - eta * (A[k] @ theta_hat[c] - b[k] - xi[c])
        theta = w @ theta_hat
        xi = xi + gain * (theta - theta_hat)
        first += chance * np.sum((theta - problem.theta_star) ** 2)
        second += chance * (w @ np.sum((xi - problem.xi_star) ** 2, axis=1))
    moments = Moments(problem, eta, gain)
    got = moments.after(moments.mix @ moments.local @ moments.local, 1, offset)
    assert moments.server(got) == pytest.approx(first, rel=1e-12)
    assert moments.psi(got, 1.0) == pytest.approx(first + second, rel=1e-12)


def silently(problem, algorithm, rounds, offset, find=fl.theory.bound):
    """The bound, which must give no warning: its conditions hold."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = find(problem, algorithm, rounds, problem.theta_star + offset)
    assert out.holds
    assert sum(out.terms.values()) == pytest.approx(out.value)
    return out


def fedlsa_checks(problem, find, settings, rounds):
    checked = 0
    for eta, H in settings:
        moments = Moments(problem, eta, 0.0)
        one = moments.mix @ np.linalg.matrix_power(moments.local, H)
        for t in rounds:
            bias = fl.theory.bias_at(problem, eta, H, t)
            for offset, second in zip(STARTS, moments.after(one, t, *STARTS), strict=True):
                got = silently(problem, fl.FedLSA(eta, H), t, offset, find)
                assert np.sqrt(max(moments.server(second, bias), 0)) <= got.value * (1 + 1e-9)
                assert moments.server(second) <= got.mse * (1 + 1e-9)
                checked += 1
    return checked


def test_the_theorem_on_fedlsa_holds_in_270_settings_and_more_with_weights():
    settings = ((0.1, 1), (0.05, 4), (0.01, 50))
    assert sum(fedlsa_checks(p, fl.theory.bound, settings, (0, 2, 30)) for p in problems()) == 270
    weighted = well(11, agents=3, weights=[1.0, 5.0, 2.0])
    assert fedlsa_checks(weighted, fl.theory.bound, settings, (0, 2, 30)) == 27


def scafflsa_setting(problem, fraction, H):
    """A step size at `fraction` of the largest that the theorem allows for H."""
    known = fl.theory.constants(problem)
    eta = fraction * known.a_sym / (240 * H * (known.C_A**2 + known.Sigma_A_norm))
    return fl.SCAFFLSA(eta, H)


def test_the_theorem_on_scafflsa_holds_in_240_settings():
    checked = 0
    for problem in problems():
        for fraction, H in ((0.95, 1), (0.9, 3), (0.5, 8), (0.1, 20)):
            algorithm = scafflsa_setting(problem, fraction, H)
            moments = Moments(problem, algorithm.step_size, 1 / (algorithm.step_size * H))
            one = moments.mix @ np.linalg.matrix_power(moments.local, H)
            for t in (1, 30, 3000):
                for offset, second in zip(STARTS[:2], moments.after(one, t, *STARTS[:2]), strict=True):
                    got = silently(problem, algorithm, t, offset)
                    assert moments.server(second) <= got.value * (1 + 1e-9)
                    assert got.mse == got.value
                    checked += 1
    assert checked == 240


def scaffnew_settings(problem):
    known = fl.theory.constants(problem)
    for share in (1.0, 0.3, 0.01):
        eta = share / (2 * known.L)
        for p in (1.0, np.sqrt(eta * known.a_sym), 0.05):
            yield fl.Scaffnew(eta, float(p))


def test_the_mended_theorem_on_scaffnew_holds_in_360_settings_and_more_with_weights():
    checked = 0
    for problem in [*problems(), well(12, agents=3, weights=[1.0, 5.0, 2.0])]:
        for algorithm in scaffnew_settings(problem):
            eta, p = algorithm.step_size, algorithm.probability
            moments = Moments(problem, eta, p / eta)
            one = (1 - p) * moments.local + p * moments.mix @ moments.local
            for rounds in (1, 40):
                K = int(np.ceil(rounds / p - 1e-9))
                for offset, second in zip(STARTS[:2], moments.after(one, K, *STARTS[:2]), strict=True):
                    got = silently(problem, algorithm, rounds, offset)
                    assert moments.psi(second, eta**2 / p**2) <= got.value * (1 + 1e-9)
                    assert moments.server(second) <= got.mse * (1 + 1e-9)
                    checked += 1
    assert checked == 360 + 36


def test_scaffnew_at_a_communication_has_the_error_of_the_average_at_that_iteration():
    problem, algorithm = well(1), fl.Scaffnew(0.1, 0.3)
    moments = Moments(problem, 0.1, 3.0)
    one = 0.7 * moments.local + 0.3 * moments.mix @ moments.local
    before = moments.after(one, 6, STARTS[0]).ravel()
    apart, together = ((op @ before).reshape(moments.size, -1) for op in (moments.local, moments.mix @ moments.local))
    assert moments.server(apart) == pytest.approx(moments.server(together), rel=1e-12)
    assert algorithm.probability == 0.3


def test_scaffnew_fails_as_printed_for_sigma_eps_can_be_zero_while_psi_is_not():
    problem = noiseless_at_home(0)
    known = fl.theory.constants(problem)
    assert known.sigma_eps == pytest.approx(0, abs=1e-25)
    eta, p, rounds = 1 / (2 * known.L), 0.5, 2000
    moments = Moments(problem, eta, p / eta)
    one = (1 - p) * moments.local + p * moments.mix @ moments.local
    psi = moments.psi(moments.after(one, int(rounds / p), [1.0, 1.0]), eta**2 / p**2)
    got = silently(problem, fl.Scaffnew(eta, p), rounds, [1.0, 1.0])
    printed = got.terms["transient"] + 2 * eta**2 / min(eta * known.a_sym, p**2) * known.sigma_eps
    assert printed < 1e-12 < 1e-3 < psi <= got.value


def rademacher(agents):
    """The example of thm:no-speed-up-proxskip with a = 1: A(z) = I, b(z) = (b_c +- 1) (1, 1)."""
    A, u = np.stack([np.eye(2)] * 2), np.ones(2)
    return fl.problems.from_observations([([0.5, 0.5], A, np.stack([(c + 1) * u, (c - 1) * u])) for c in range(agents)])


def scaffnew_example(agents, eta, p, K):
    """psi and the MSE of the average at iteration K, from theta_star + 1."""
    moments = Moments(rademacher(agents), eta, p / eta)
    second = moments.after((1 - p) * moments.local + p * moments.mix @ moments.local, K, [1.0, 1.0])
    return moments.psi(second, eta**2 / p**2), moments.server(second)


def test_in_the_lower_bound_psi_does_not_fall_with_the_agents_but_the_error_of_the_server_does():
    psi, server = np.array([scaffnew_example(N, 0.05, 0.2, 20000) for N in (1, 2, 3, 4)]).T
    assert (np.diff(psi) > 0).all()
    np.testing.assert_allclose(server * [1, 2, 3, 4], server[0], rtol=1e-6)


@pytest.mark.parametrize("agents", [1, 2, 3])
@pytest.mark.parametrize("K", [0, 1, 10, 1000])
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
    got = silently(problem, fl.FedLSA(eta, 1), 5000, np.zeros(d))
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


def test_the_td_corollaries_hold_with_the_constants_of_the_claim_in_216_settings():
    checked = 0
    for seed in range(8):
        problem = fl.problems.garnet(agents=2, states=4, features=2, discount=0.5, perturbation=0.0, seed=seed)
        eta_inf = fl.theory.td_claim(problem).eta_inf
        checked += fedlsa_checks(problem, fl.theory.td_bound, ((eta_inf, 1), (0.1, 5), (0.01, 20)), (0, 5, 50))
        ours = fl.theory.bound(problem, fl.FedLSA(0.1, 5), 100)
        assert ours.value <= fl.theory.td_bound(problem, fl.FedLSA(0.1, 5), 100).value
    assert checked == 216


def test_the_td_corollary_of_scafflsa_and_scaffnew_is_weaker_than_the_theorem():
    problem = fl.problems.garnet(agents=2, states=4, features=2, discount=0.5, perturbation=0.0, seed=1)
    claim = fl.theory.td_claim(problem)
    eta = claim.a / (240 * 2 * (claim.C_A**2 + claim.Sigma_A_norm))
    for algorithm in (fl.SCAFFLSA(eta, 2), fl.Scaffnew(1 / (2 * claim.L), 0.1)):
        theirs = silently(problem, algorithm, 100, [1.0, 1.0], fl.theory.td_bound)
        assert silently(problem, algorithm, 100, [1.0, 1.0]).value <= theirs.value


def test_conditions_that_fail_are_warned_of_once_and_the_number_is_returned():
    with pytest.warns(TheoryWarning, match=r"H <= a / \(240 eta") as caught:
        got = fl.theory.bound(well(0), fl.SCAFFLSA(0.1, 10), 5)
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
    problem = well(0)
    for options in ({"participation": 0.5}, {"projection": 1.0}, {"average_after": 3}):
        with pytest.raises(ArgumentError, match="the theorems"):
            fl.theory.bound(problem, fl.FedLSA(0.1, 2, **options), 3)
    with pytest.raises(ArgumentError, match="constant step_size"):
        fl.theory.bound(problem, fl.FedLSA(fl.PowerStep(0.1, 0.5), 2), 3)
    with pytest.raises(ArgumentError, match="equal weights"):
        fl.theory.bound(well(0, weights=[1.0, 2.0]), fl.SCAFFLSA(0.1, 2), 3)
    with pytest.raises(ArgumentError, match=r"i\.i\.d\. sampling"):
        fl.theory.bound(problem, fl.SCAFFLSA(0.1, 2), 3, sampling=fl.Markov())
    with pytest.raises(ArgumentTypeError, match="algorithm must be one of FedLSA, SCAFFLSA, Scaffnew"):
        fl.theory.bound(problem, "FedLSA", 3)


def test_parts_of_fedlsa_add_up_and_keep_to_their_lemmas_in_240_settings():
    checked = 0
    for problem in problems():
        parts = fl.theory.fedlsa_parts(problem)
        for eta, H in ((0.1, 1), (0.05, 4), (0.01, 50)):
            rounds = {name: Moments(getattr(parts, name), eta, 0.0) for name in ("transient", "noise", "heterogeneity")}
            one = {name: m.mix @ np.linalg.matrix_power(m.local, H) for name, m in rounds.items()}
            for t in (1, 30):
                lemma = fl.theory.bound(problem, fl.FedLSA(eta, H), t).terms  # from theta_star + 1
                bias = fl.theory.bias_at(problem, eta, H, t)
                np.testing.assert_allclose(fl.theory.bias_at(parts.heterogeneity, eta, H, t), bias, atol=1e-13)
                square = {}
                for name, start, shift in (("transient", 1.0, 0.0), ("noise", 0.0, 0.0), ("heterogeneity", 0.0, bias)):
                    second = rounds[name].after(one[name], t, np.full(2, start))
                    square[name] = rounds[name].server(second, shift)
                    checked += 1
                slack = 1 + 1e-9
                assert square["transient"] <= lemma["transient"] ** 2 * slack  # lem:transient_term_bound
                assert square["noise"] <= lemma["noise"] ** 2 * slack  # lem:fluctuation_term_bound
                fluctuation = lemma["heterogeneity"] + lemma["bias fluctuation"]
                assert square["heterogeneity"] <= fluctuation**2 * slack + 1e-18  # lem:bounding_flbi
                checked += 1  # lem:bias_bias_bound
                gap = np.linalg.norm(bias - fl.theory.bias(problem, eta, H))
                assert gap <= fl.theory.bias_gap_bound(problem, eta, H, t) * slack + 1e-15
    assert checked == 240


@pytest.mark.parametrize("seed", range(3))
def test_parts_add_up_to_the_error_on_every_path(seed):
    problem = fl.problems.regression(
        [(np.random.default_rng(seed + c).standard_normal((6, 2)), np.arange(6.0)) for c in range(2)], ridge=0.2 * seed
    )
    theta_0 = problem.theta_star + np.array([1.0, -2.0])
    parts = fl.theory.fedlsa_parts(problem)
    fed, scaff = fl.FedLSA(0.05, 4), fl.SCAFFLSA(0.05, 4)

    def error(part, method, start):
        run = fl.simulate(part, method, rounds=9, seeds=2, theta_0=start, engine="reference")
        return run.theta.values - part.theta_star

    zero = np.zeros(2)
    total = (
        error(parts.transient, fed, theta_0 - problem.theta_star)
        + error(parts.noise, fed, zero)
        + error(parts.heterogeneity, fed, problem.theta_star)
    )
    np.testing.assert_allclose(total, error(problem, fed, theta_0), atol=1e-12)
    two = fl.theory.scafflsa_parts(problem)
    total = error(two.virtual, scaff, theta_0) + error(two.fluctuation, scaff, zero)
    np.testing.assert_allclose(total, error(problem, scaff, theta_0), atol=1e-12)


def test_parts_of_scafflsa_keep_to_their_lemmas_in_240_settings():
    checked = 0
    for problem in problems():
        parts = fl.theory.scafflsa_parts(problem)
        assert fl.theory.constants(parts.virtual).sigma_omega == pytest.approx(0, abs=1e-24)
        for fraction, H in ((0.95, 1), (0.9, 3), (0.5, 8), (0.1, 20)):
            algorithm = scafflsa_setting(problem, fraction, H)
            eta = algorithm.step_size
            virtual, noise = (Moments(p, eta, 1 / (eta * H)) for p in (parts.virtual, parts.fluctuation))
            for t in (1, 30, 3000):
                lemma = fl.theory.bound(problem, algorithm, t).terms
                one = virtual.mix @ np.linalg.matrix_power(virtual.local, H)
                psi = virtual.psi(virtual.after(one, t, [1.0, 1.0]), (eta * H) ** 2)
                assert psi <= lemma["transient"] / 2 * (1 + 1e-9)  # with the rate of the final theorem
                one = noise.mix @ np.linalg.matrix_power(noise.local, H)
                assert noise.server(noise.after(one, t, [0.0, 0.0])) <= lemma["noise"] / 2 * (1 + 1e-9)
                checked += 2
    assert checked == 240


def test_parts_of_fedlsa_need_local_solutions():
    singular = ([1.0], [np.diag([1.0, 0.0])], [[1.0, 1.0]])
    regular = ([1.0], [np.diag([1.0, 2.0])], [[1.0, 0.0]])
    problem = fl.problems.from_observations([singular, regular])
    with pytest.raises(ArgumentError, match="every agent must have a theta_star_c"):
        fl.theory.fedlsa_parts(problem)
    assert fl.theory.scafflsa_parts(problem).virtual.theta_star == pytest.approx(problem.theta_star)

"""Privacy: integers of exactly the law that is claimed, and an account of them that independent ones confirm."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from scipy.stats import chisquare, kstest, norm
from tiers import longer

from fedlsa.errors import ArgumentError, ArgumentTypeError
from fedlsa.network.protocol.ring import Coding, encode
from fedlsa.theory import privacy
from fedlsa.theory.privacy import (
    delta_left,
    discrete_gaussian,
    epsilon_of,
    most_draws,
    privacy_spent,
    promise,
    rho_for,
    rho_of,
    rho_of_answer,
)


def noise_variance(noise, clip, grid):
    """The variance, in squares of the grid, of noise with standard deviation noise * clip: a rational, exactly."""
    return (Fraction(noise) * Fraction(clip) / Fraction(grid)) ** 2


def chi_square(draws, variance):
    """The p-value of integers under the discrete Gaussian, its rare values taken together."""
    reach = math.ceil(12 * math.sqrt(variance)) + 3
    k = np.arange(-reach, reach + 1)
    prob = np.exp(-(k**2) / (2 * float(variance)))
    prob /= prob.sum()
    common = prob * len(draws) >= 8
    counts = np.array([np.sum(np.asarray(draws) == i) for i in k[common]])
    rest = max(1 - prob[common].sum(), 1e-12)
    return chisquare([*counts, len(draws) - counts.sum()], [*(prob[common] * len(draws)), rest * len(draws)]).pvalue


@pytest.mark.parametrize(
    "variance", [Fraction(1, 20), longer(Fraction(1, 3)), 1, longer(Fraction(7, 2)), longer(10), Fraction(1000, 7)]
)
def test_small_variances_have_the_exact_probabilities(variance):
    draws = discrete_gaussian(variance, 20_000, random.Random(3).randrange)
    assert chi_square(draws, variance) > 1e-3


@pytest.mark.parametrize("variance", [Fraction(1, 3), 1])
def test_rounded_floats_would_be_noticed(variance):
    floats = np.random.default_rng(0).normal(0, math.sqrt(variance), 20_000)
    assert chi_square(np.rint(floats).astype(int), variance) < 1e-6  # their variance is 1/12 larger


@pytest.mark.parametrize("variance", [2**120, Fraction(3**80, 10**3), Fraction(2**120 + 1, 2**40)])
def test_large_variances_have_the_gaussian_law_and_even_last_bits(variance):
    n, sigma = 4000, math.sqrt(variance)
    draws = discrete_gaussian(variance, n, random.Random(5).randrange)
    z = np.array([k / sigma for k in draws])
    assert abs(z.mean()) < 4 / math.sqrt(n)
    assert abs((z**2).mean() - 1) < 4 * math.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 4 * math.sqrt(96 / n)
    assert kstest(z, "norm").pvalue > 1e-3
    for bit in (0, 1, 30):
        assert abs(np.mean([k >> bit & 1 for k in draws]) - 0.5) < 4 * 0.5 / math.sqrt(n)


def test_the_secret_source_gives_the_same_law_and_never_the_same_numbers():
    a, b = discrete_gaussian(2**100, 50), discrete_gaussian(2**100, 50)
    assert not set(a) & set(b)
    assert chi_square(discrete_gaussian(4, 5000), 4) > 1e-6  # these draws differ from run to run: one in a million


def test_no_float_enters_the_sampler(monkeypatch):
    def refuse(*_):
        raise AssertionError("a float")

    for name in ("exp", "log", "sqrt", "floor"):
        monkeypatch.setattr(privacy.math, name, refuse)
    asked = []

    def randbelow(n):
        asked.append(n)
        return random.Random(len(asked)).randrange(n)

    assert all(isinstance(k, int) for k in discrete_gaussian(Fraction(10**40, 3), 20, randbelow))
    assert all(isinstance(n, int) for n in asked)


@pytest.mark.parametrize("variance", [0, -1, Fraction(-1, 2), 1.0, True, "1", None])
def test_a_variance_that_is_no_positive_rational_is_refused(variance):
    with pytest.raises((ArgumentError, ArgumentTypeError), match="variance must be"):
        discrete_gaussian(variance, 1)


# the account


def divergence(variance, shift, order):
    """The Renyi divergence of a discrete Gaussian and the same one moved by an integer, by summing."""
    k = np.arange(-400, 401)
    p = np.exp(-(k**2) / (2 * variance))
    p /= p.sum()
    q = np.exp(-((k - shift) ** 2) / (2 * variance))
    q /= q.sum()
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        terms = np.where(p > 0, order * np.log(p) + (1 - order) * np.log(q), -np.inf)
    return float(np.logaddexp.reduce(terms[np.isfinite(terms)])) / (order - 1)


@pytest.mark.parametrize(("variance", "shift"), [(0.3, 1), (1.0, 1), (4.0, 3), (50.0, 5)])
def test_the_divergence_of_moved_integers_is_at_most_the_order_times_rho(variance, shift):
    rho = rho_of(shift, math.sqrt(variance))
    found = [divergence(variance, shift, order) for order in (1.25, 1.5, 2.0, 3.0)]
    bound = [order * rho for order in (1.25, 1.5, 2.0, 3.0)]
    assert all(f <= b * (1 + 1e-9) for f, b in zip(found, bound, strict=True))
    assert found[2] == pytest.approx(bound[2], rel=1e-6)  # whole orders move the law by integers: equality


def exact_delta(epsilon, sigma):
    """The exact delta of a Gaussian mechanism of sensitivity 1 (Balle and Wang 2018, Theorem 8)."""
    log_part = epsilon + norm.logcdf(-0.5 / sigma - epsilon * sigma)
    return norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(log_part)


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
@pytest.mark.parametrize(("noise", "releases"), [(2, 1), (8, 1), (10, 10), (40, 300), (1, 60), (0.1, 60)])
def test_epsilon_is_that_of_independent_accountants(noise, releases, delta):
    spent = privacy_spent(noise, releases, delta)
    orders = 1 + np.geomspace(1e-3, 1e3, 1500)
    other = RdpAccountant(orders=orders).compose(GaussianDpEvent(noise / 2), releases).get_epsilon(delta)
    assert spent == pytest.approx(other, rel=1e-4)
    assert spent <= other * (1 + 1e-8)  # all orders are searched
    assert exact_delta(spent, noise / 2 / math.sqrt(releases)) <= delta  # a true bound of the exact mechanism


@pytest.mark.parametrize(("sigma", "times"), [(3.0, 1), (8.0, 5)])
def test_the_discrete_gaussian_itself_is_no_less_private_than_stated(sigma, times):
    law = privacy_loss_distribution.from_discrete_gaussian_mechanism(sigma, value_discretization_interval=1e-3)
    exact = law.self_compose(times).get_epsilon_for_delta(1e-6)
    ours = epsilon_of(times * rho_of(1, sigma), 1e-6)
    assert exact <= ours <= 1.15 * exact


def test_the_known_epsilon_of_one_mechanism_is_missed_by_a_tenth_at_most():
    assert 4.3772 < privacy_spent(2.0, 1, 1e-5) < 1.1 * 4.3772  # exactly 4.3772 for the Gaussian itself


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-12])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1, 10, 1e4])
def test_the_rho_for_an_epsilon_spends_it_and_no_more(epsilon, delta):
    rho = rho_for(epsilon, delta)
    assert epsilon_of(rho, delta) <= epsilon
    assert epsilon_of(rho * (1 + 1e-9), delta) > epsilon * (1 - 1e-12)
    assert epsilon_of(rho * 1.001, delta) > epsilon


def test_more_replies_cost_more_more_noise_costs_less_and_runs_add_up():
    by_releases = [privacy_spent(20, k, 1e-6) for k in (0, 1, 2, 10, 100)]
    assert by_releases[0] == 0
    assert all(a < b for a, b in itertools.pairwise(by_releases))
    by_noise = [privacy_spent(z, 10, 1e-6) for z in (2, 4, 8, 16)]
    assert all(a > b for a, b in itertools.pairwise(by_noise))
    each = rho_of_answer("site", 3.0, 20)
    assert epsilon_of(30 * each + 70 * each, 1e-6) == pytest.approx(privacy_spent(20, 100, 1e-6), rel=1e-12)


def test_the_promise_names_replies_epsilon_and_delta():
    said = promise(10, 10, 1e-5)
    assert "the 10 noised answers of this run" in said
    assert f"({privacy_spent(10, 10, 1e-5):.3g}, 1e-05)" in said
    assert "sums that left before them without noise are not in this" in said
    assert "single row" not in said
    assert "of a single row's privacy the site's ledger says" in promise(10, 10, 1e-5, unit="record")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((0, 1, 0.1), "noise must be"), ((1, -1, 0.1), "releases must be"), ((1, 1, 0), "delta must be")],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        privacy_spent(*arguments)
    with pytest.raises(ArgumentTypeError, match="releases must be"):
        privacy_spent(1.0, 2.5, 1e-5)


# rounding, and how often a row is drawn


def test_rounding_to_the_grid_is_in_the_sensitivity_and_must_be():
    rng, d, clip, grid, worst = np.random.default_rng(2), 3, 1.0, 0.3, 0.0
    for _ in range(4000):
        x = rng.normal(size=d) * [1, 0.05, 0.05]
        x, y = clip * x / np.linalg.norm(x), -clip * x / np.linalg.norm(x)
        worst = max(worst, float(np.linalg.norm(grid * (np.rint(x / grid) - np.rint(y / grid)))))
    assert 2 * clip < worst <= 2 * clip + grid * math.sqrt(d)
    assert rho_of_answer("site", clip, 1.0, dim=d, grid=grid) >= rho_of(worst, clip)
    assert rho_of_answer("site", clip, 1.0) < rho_of(worst, clip)


@pytest.mark.parametrize(("H", "n"), [(1, 10), (20, 10), (40, 400), (300, 100)])
def test_the_most_draws_are_the_exact_binomial_quantile(H, n):
    tail, K = 1e-7, most_draws(H, n, 1e-7)
    often = [math.comb(H, j) * (n - 1) ** (H - j) for j in range(H + 1)]  # of n**H, in integers: exact
    assert Fraction(sum(often[K + 1 :]), n**H) <= tail
    assert K == 0 or Fraction(sum(often[K:]), n**H) > tail


def test_tails_are_paid_from_delta_and_cannot_exceed_it():
    assert delta_left("site", 1e-6, 10**6) == 1e-6
    assert delta_left("record", 1e-6, 1000) == pytest.approx(1e-6 - 1000 * 2.0**-40)
    with pytest.raises(ArgumentError, match="delta must be above"):
        delta_left("record", 1e-9, 2000)


@pytest.mark.parametrize("quantise", [None, 8])
def test_what_leaves_is_the_clipped_vector_plus_noise_of_the_stated_size_and_nothing_is_carried(quantise):
    n, weight, delta = 3000, 0.25, np.array([3.0, 4.0, 0.0, 0.0])
    coding, source = Coding(clip=1.0, noise=0.5, quantise=quantise), random.Random(5)
    grid = coding.grid

    def noise(variance, size):
        assert variance == noise_variance(0.5, 1.0, grid.unit / weight)
        return discrete_gaussian(variance, size, source.randrange)

    uploads = [encode(delta, np.zeros(4), weight, 1.0, coding, noise) for _ in range(n)]
    sent = np.stack([upload.delta for upload in uploads])
    room = grid.unit / weight / 2
    assert np.all(np.abs(sent.mean(axis=0) - [0.6, 0.8, 0, 0]) < 4 * 0.5 / np.sqrt(n) + room)  # four standard errors
    assert np.all(np.abs(sent.std(axis=0) - 0.5) < 4 * 0.5 / np.sqrt(2 * n))
    assert not any(upload.residual.any() for upload in uploads)

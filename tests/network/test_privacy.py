"""Privacy: the accounting is the Gaussian mechanism's, and the noise is inside what the site corrects xi with."""

import itertools
import math
import sys

import numpy as np
import pytest
from scipy.stats import norm

from fedlsa.errors import ArgumentError, ArgumentTypeError, MissingExtraError
from fedlsa.network.protocol.coding import Coding, encode, noise_for, privacy_spent, promise


def delta_of(epsilon, sigma):
    """The exact delta of a Gaussian mechanism of sensitivity 1 (Balle and Wang 2018, Theorem 8)."""
    return norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)


@pytest.mark.parametrize(("noise", "releases"), [(2, 1), (8, 1), (10, 10), (40, 300)])
def test_the_accounting_is_that_of_one_gaussian_mechanism_with_sensitivity_of_twice_the_clip(noise, releases):
    spent = privacy_spent(noise, releases, 1e-5)
    assert delta_of(spent, noise / 2 / math.sqrt(releases)) == pytest.approx(1e-5, rel=1e-6)


def test_one_mechanism_with_multiplier_one_costs_the_known_epsilon():
    assert privacy_spent(2.0, 1, 1e-5) == pytest.approx(4.3772, abs=1e-3)


def test_more_replies_cost_more_and_more_noise_costs_less():
    by_releases = [privacy_spent(20, k, 1e-6) for k in (0, 1, 2, 10, 100)]
    assert by_releases[0] == 0
    assert all(a < b for a, b in itertools.pairwise(by_releases))
    by_noise = [privacy_spent(z, 10, 1e-6) for z in (2, 4, 8, 16)]
    assert all(a > b for a, b in itertools.pairwise(by_noise))


def test_the_noise_for_an_epsilon_spends_that_epsilon():
    assert privacy_spent(noise_for(1.5, 50, 1e-6), 50, 1e-6) == pytest.approx(1.5, rel=1e-5)


def test_the_promise_names_replies_epsilon_and_delta():
    assert "after 10 replies" in promise(10, 10, 1e-5)
    assert "(2.59, 1e-05)" in promise(10, 10, 1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((0, 1, 0.1), "noise must be"), ((1, -1, 0.1), "releases must be"), ((1, 1, 0), "delta must be")],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        privacy_spent(*arguments)
    with pytest.raises(ArgumentTypeError, match="releases must be"):
        privacy_spent(1.0, 2.5, 1e-5)
    with pytest.raises(ArgumentTypeError, match="releases must be"):
        noise_for(1.0, 2.5, 1e-5)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match=r"fedlsa\[privacy\]"):
        privacy_spent(1.0, 1, 1e-5)


def test_noise_without_clipping_or_without_a_generator_is_refused():
    with pytest.raises(ArgumentError, match="noise must come with clip"):
        Coding(noise=1.0)
    with pytest.raises(ArgumentError, match="secret must be a random generator"):
        encode(np.ones(3), np.zeros(3), Coding(noise=1.0, clip=1.0))


def test_what_leaves_is_the_clipped_vector_plus_noise_of_the_stated_size():
    d, n = 4, 20000
    secret, delta = np.random.default_rng(5), np.array([3.0, 4.0, 0.0, 0.0])
    coding = Coding(clip=1.0, noise=0.5)
    sent = np.stack([encode(delta, np.zeros(d), coding, secret).delta for _ in range(n)])
    mean, spread = sent.mean(axis=0), sent.std(axis=0)
    assert np.all(np.abs(mean - [0.6, 0.8, 0, 0]) < 4 * 0.5 / np.sqrt(n))  # four standard errors
    assert np.all(np.abs(spread - 0.5) < 4 * 0.5 / np.sqrt(2 * n))

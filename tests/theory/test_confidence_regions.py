"""Quantiles of squared lengths against other ways to them, and what regions of exact curves cover."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import chi2, ncx2

import fedlsa as fl
from fedlsa.errors import ArgumentError, PrecisionError
from fedlsa.theory import tuning
from fedlsa.theory.inference import squared_length_quantiles

LEVELS = np.array([0.001, 0.025, 0.5, 0.975, 0.999])


@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("far", [0.0, 1.0, 40.0, 1e3, 1e9])
def test_equal_variances_give_the_noncentral_chi_squared_law(d, far):
    mean = np.sqrt(far) * np.eye(d)[:1]
    found, error = squared_length_quantiles(3.0 * mean, 9.0 * np.eye(d)[None], LEVELS)
    want = ncx2.cdf(found[0] / 9, d, far) if far else chi2.cdf(found[0] / 9, d)
    np.testing.assert_allclose(want, LEVELS, rtol=0, atol=1e-9)
    assert error < 1e-6


@pytest.mark.parametrize(
    ("mean", "sd"),
    [([0.0, 0.0], [1.0, 1e-4]), ([3.0, -0.2], [0.1, 1.0]), ([1.0, 1.0], [1.0, 0.5]), ([5.0, 1e-3], [1e-3, 1e-3])],
)
def test_two_unequal_variances_agree_with_an_integral_over_one_coordinate(mean, sd):
    (a, b), (s, t) = mean, sd
    turn = np.array([[0.6, 0.8], [-0.8, 0.6]])
    C, m = turn @ np.diag(np.square(sd)) @ turn.T, turn @ mean
    (found,), error = squared_length_quantiles(m[None], C[None], LEVELS)

    def inside(z, x):
        half = np.sqrt(max(x - (a + s * z) ** 2, 0.0))
        return (ndtr((half - b) / t) - ndtr((-half - b) / t)) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

    for x, level in zip(found, LEVELS, strict=True):
        ends = np.clip((np.array([-1, 1]) * np.sqrt(x) - a) / s, -12, 12)
        cuts = np.linspace(*ends, 60)
        total = sum(quad(inside, *part, args=(x,), limit=200)[0] for part in pairwise(cuts))
        assert total == pytest.approx(level, abs=1e-7)
    assert error < 1e-6


def test_axes_without_variance_add_what_they_have():
    found, _ = squared_length_quantiles(np.array([[0.0, 2.0]]), np.diag([1.0, 0.0])[None], LEVELS)
    np.testing.assert_allclose(found[0], 4 + chi2.ppf(LEVELS, 1), rtol=1e-9)
    found, error = squared_length_quantiles(np.array([[1.0, 2.0]]), np.zeros((1, 2, 2)), LEVELS)
    np.testing.assert_array_equal(found, 5.0)
    assert error == 0
    found, _ = squared_length_quantiles(np.ones((1, 2)), np.full((1, 2, 2), np.inf), LEVELS)
    assert np.isinf(found).all()


def test_variances_of_many_sizes_agree_with_samples():
    variance, mean = np.array([1, 1e-2, 1e-5, 1e-9]), np.array([0.1, 0.5, 1.0, 2.0])
    (found,), _ = squared_length_quantiles(mean[None], np.diag(variance)[None], LEVELS)
    seen = ((mean + np.sqrt(variance) * np.random.default_rng(0).standard_normal((10**5, 4))) ** 2).sum(1)
    share = (seen[:, None] <= found).mean(0)
    assert (np.abs(share - LEVELS) <= 4.5 * np.sqrt(LEVELS * (1 - LEVELS) / 10**5)).all()


def test_levels_that_are_not_known_and_other_datasets_are_refused(monkeypatch):
    curve = fl.theory.exact(fl.problems.garnet(agents=2, states=4, features=2), fl.FedLSA(0.1, 2), 1, record=[1])
    for bad in (curve.drop_vars("covariance"), curve["mse"], None):
        with pytest.raises(ArgumentError, match="curve must be a dataset"):
            fl.theory.confidence(bad)
    with pytest.raises(ArgumentError, match="level"):
        fl.theory.confidence(curve, 1.0)
    monkeypatch.setattr(tuning, "PATH_NODES", 5)
    with pytest.raises(PrecisionError, match="levels of squared errors"):
        fl.theory.confidence(curve)


def test_runs_that_do_not_vary_have_regions_of_one_point():
    p = fl.problems.from_observations([([1.0], [np.eye(2) * k], [[1.0, k]]) for k in (1.0, 2.0)])
    curve = fl.theory.exact(p, fl.SCAFFLSA(0.1, 3), 4)
    regions = fl.theory.confidence(curve)
    np.testing.assert_array_equal(regions["radius"], 0)
    np.testing.assert_allclose(regions["error_upper"], curve["mse"], rtol=1e-12)
    np.testing.assert_array_equal(regions["lower"], curve["mean"])


@pytest.mark.long
@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("a", [fl.FedLSA(0.02, 10), fl.SCAFFLSA(0.02, 10)], ids=repr)
def test_regions_cover_what_they_promise_where_runs_are_nearly_normal(a, level):
    p = fl.problems.garnet(agents=20, states=8, features=3, seed=4)
    rounds, seeds = [5, 60, 200], 2000
    runs = fl.simulate(p, a, 200, seeds, record=rounds)
    curve = fl.theory.exact(p, a, 200, record=rounds)
    r = fl.theory.confidence(curve, level)
    inside = (runs["theta"] >= r["lower"]) & (runs["theta"] <= r["upper"])
    off = runs["theta"].values - curve["mean"].values
    far = np.einsum("sri,rij,srj->sr", off, np.linalg.inv(curve["covariance"].values), off)
    band = (runs["squared_error"] >= r["error_lower"]) & (runs["squared_error"] <= r["error_upper"])
    error = np.sqrt(level * (1 - level) / seeds)
    for share in (inside.mean("seed").values, (far <= r["radius"].values ** 2).mean(0), band.mean("seed").values):
        assert (np.abs(share - level) <= 4.5 * error).all()

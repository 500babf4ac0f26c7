"""Corners of fl.fit: each agrees with an independent slow computation, or is refused for its own reason."""

from fractions import Fraction
from importlib import import_module

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAWarning, SiteDataError

COEFFICIENTS = np.array([1.0, -2.0, 0.5])


def site(n, seed=0, scale=(1.0, 1.0, 1.0), offset=0.0, noise=1.0):
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(n, 3)) + offset) * scale
    return x, 3 + x @ (COEFFICIENTS / scale) + noise * rng.normal(size=n)


def exactly(sites, weights):
    """The solution of the averaged normal equations in rational arithmetic: not one rounding error."""
    d = sites[0][0].shape[1] + 1
    A, b = [[Fraction(0)] * d for _ in range(d)], [Fraction(0)] * d
    for (x, y), w in zip(sites, weights, strict=True):
        for row, target in zip(x.tolist(), y.tolist(), strict=True):
            z, t, share = [*map(Fraction, row), Fraction(1)], Fraction(target), Fraction(w) / len(y)
            for i in range(d):
                b[i] += share * z[i] * t
                for j in range(d):
                    A[i][j] += share * z[i] * z[j]
    for i in range(d):  # A is positive definite: no pivoting is needed where nothing is rounded
        for k in range(i + 1, d):
            factor = A[k][i] / A[i][i]
            A[k] = [p - factor * q for p, q in zip(A[k], A[i], strict=True)]
            b[k] -= factor * b[i]
    theta = [Fraction(0)] * d
    for i in reversed(range(d)):
        theta[i] = (b[i] - sum(A[i][j] * theta[j] for j in range(i + 1, d))) / A[i][i]
    return np.array([float(t) for t in theta])


CONSTANT = (np.column_stack([np.ones(20), site(20)[0][:, 1:]]), site(20)[1])
AGREE = {
    "one site": [site(30)],
    "one row more than coefficients": [site(5)],
    "columns of 1e12 and 1e-12": [site(30, 0, (1e12, 1e-12, 1.0)), site(40, 1, (1e12, 1e-12, 1.0))],
    "columns far from 0": [site(30, offset=1e6), site(40, 1, offset=1e6)],
    "more columns than rows at one site": [site(2, 3), site(40, 1)],
    "one row at one site": [site(1, 3), site(40, 1)],
    "sites of 5 and 500 rows": [site(5, 3), site(500, 1)],
    "a column that is constant at one site": [CONSTANT, site(30)],
    "no noise": [site(30, noise=0.0), site(40, 1, noise=0.0)],
}


@pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")
@pytest.mark.parametrize("weight", ["sites", "samples"])
@pytest.mark.parametrize("case", AGREE)
def test_estimates_agree_with_rational_arithmetic(case, weight):
    sites = AGREE[case]
    rows = np.array([len(y) for _, y in sites])
    expected = exactly(sites, np.full(len(sites), 1 / len(sites)) if weight == "sites" else rows / rows.sum())
    found = fl.fit(sites, fl.Regression("y"), weight=weight, local="means")
    error = np.maximum(1e-8 * found.standard_error, 1e-9 * np.abs(expected))
    assert (np.abs(found.theta - expected) <= error).all()
    assert (np.abs(found.protocol - found.theta) <= np.maximum(found.standard_error, 1e-7 * np.abs(expected))).all()


def test_columns_that_nearly_determine_one_another_keep_their_digits():
    """A year, its square and its cube: the condition number of their correlations is above 1e11."""
    year = np.arange(1950.0, 2001.0)
    y = np.random.default_rng(0).normal(size=51)
    sites = [(np.stack([year, year**2, year**3], axis=1)[part], y[part]) for part in (slice(0, 20), slice(20, 51))]
    found = fl.fit(sites, fl.Regression("y"), plan=False)
    assert found.theta == pytest.approx(exactly(sites, np.array([20, 31]) / 51), rel=1e-8)


X, Y = site(20)
REFUSED = {
    "one row": ([site(1)], "has the same value, .* in every row of site 0; leave it out"),
    "as many rows as coefficients": ([site(4)], "error bars need more rows than coefficients, 4"),
    "fewer rows than coefficients": ([site(3)], "more rows than coefficients, 4; they have 3"),
    "no rows": ([(np.zeros((0, 3)), np.zeros(0))], "must have at least one row"),
    "a constant column": ([CONSTANT], "column 'x0' has the same value, 1, in every row of site 0"),
    "a column of zeros": ([(X * [0, 1, 1], Y)], "column 'x0' has the same value, 0, in every row"),
    "not a number": (
        [(np.where(X[3] == X, np.nan, X), Y)],
        "values are missing at site 0 in 1 of 20 rows .*first in row 4",
    ),
    "an infinite target": (
        [(X, np.where(Y[2] == Y, np.inf, Y))],
        "column 'y' must hold finite numbers; got inf in row 3",
    ),
    "text": ([{"a": ["high", "low"], "b": [1, 2], "y": [1, 2]}], "column 'a' must hold numbers; got 'high' in row 1"),
    "numbers beyond squares": ([site(20, scale=(1e200, 1, 1))], "so that it can be squared; got .*e\\+200"),
    "numbers below squares": ([site(20, scale=(1e-200, 1, 1))], "so that it can be squared; got .*e-200"),
    "a column twice": ([(X[:, [0, 1, 1]], Y)], "columns 'x1' and 'x2' determine one another"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_estimated_is_refused_for_its_own_reason(case):
    sites, words = REFUSED[case]
    for task in (fl.Regression("y"), fl.Regression("y", standardise=False)):
        with pytest.raises(SiteDataError, match=words):
            fl.fit(sites, task, local="means")


def test_columns_too_different_for_steps_on_them_as_they_are_are_told_so():
    sites = AGREE["columns of 1e12 and 1e-12"]
    task = fl.Regression("y", standardise=False)
    with pytest.warns(FedLSAWarning, match="columns must be of comparable sizes for steps on them as they are"):
        assert fl.fit(sites, task, local="means").plan is None
    with pytest.raises(SiteDataError, match="columns must be of comparable sizes for steps on them as they are"):
        fl.fit(sites, task, 0.1, local="means")


def test_replicas_beyond_all_means_are_refused_with_what_would_fit(monkeypatch):
    d = site(60)[0].shape[1] + 1
    run = {"step_size": 0.01, "local_steps": 10, "rounds": 100}
    with pytest.raises(ArgumentError, match=r"bootstrap must be at most .* to fit into .* of memory .*; got 10{18}"):
        fl.fit([site(60)], fl.Regression("y"), **run, bootstrap=10**18)
    monkeypatch.setattr(import_module("fedlsa.fitting.error_sources"), "MOST_WORK", 1e5)
    most = round(1e5 / (60 * d * (d + 1)))
    with pytest.raises(
        ArgumentError, match=rf"bootstrap must be at most {most} for 60 rows and {d} coefficients: .*; got 100000"
    ):
        fl.fit([site(60)], fl.Regression("y"), **run, bootstrap=100_000)


def test_a_log_of_one_row_is_said_to_be_one():
    rng = np.random.default_rng(0)
    logs = [(rng.normal(size=(n, 1)), rng.normal(size=n), rng.normal(size=(n, 1)), np.zeros(n)) for n in (1, 60)]
    with pytest.warns(FedLSAWarning, match=r"1 of 2 sites \(site 0\) with one row"):
        fl.fit(logs, fl.Value(0.5), plan=False)


@pytest.mark.parametrize("nearly", [1e-2, 1e-4])
def test_coefficients_of_columns_that_are_nearly_one_are_exact(nearly):
    a, sign = np.arange(12.0) % 5, np.array([1.0, -1, 1, -1, -1, 1, 1, 1, -1, 1, -1, -1])
    x = np.column_stack([a, a + nearly * sign])
    y = 1 + x @ [3, 2] + 1e-3 * np.cos(a * sign)
    np.testing.assert_allclose(
        fl.fit([(x, y)], fl.Regression("y"), plan=False).theta, exactly([(x, y)], [1]), rtol=1e-10
    )


@pytest.mark.parametrize("start", [1e3, 3e5])
def test_columns_far_from_zero_give_the_same_coefficients_standardised_or_not(start):
    x, y = start + np.arange(30.0) % 7, np.cos(np.arange(30.0))
    standardised = fl.fit([{"x": x, "y": y}], fl.Regression("y"), plan=False)
    raw = fl.Regression("y", standardise=False)
    if start == 3e5:
        with pytest.warns(FedLSAWarning, match="far from 0, .* exact to about .* standardise=True helps"):
            found = fl.fit([{"x": x, "y": y}], raw, plan=False)
    else:
        found = fl.fit([{"x": x, "y": y}], raw, plan=False)
    np.testing.assert_allclose(found.theta, standardised.theta, rtol=1e-9)
    np.testing.assert_allclose(found.standard_error, standardised.standard_error, rtol=1e-4)

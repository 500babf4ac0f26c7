"""Data that are hard on a fit: it says what statsmodels says of the pooled rows, or in one line why it cannot.

Small cases are held to rational arithmetic (test_corners.py), real data to several packages (tests/golden).
"""

import time

import numpy as np
import pytest
import statsmodels.api as sm
from test_corners import exactly

import fedlsa as fl
from fedlsa.errors import SiteDataError


def normal(n, d, seed=0, units=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * units + offset
    return x, (x / units).sum(axis=1) + (0.5 + np.abs(x[:, 0] / np.ravel(units)[0])) * rng.normal(size=n)


def split(x, y, sizes):
    cuts = np.cumsum(sizes)[:-1]
    return list(zip(np.split(x, cuts), np.split(y, cuts), strict=True))


def constant_at_one_site():
    x, y = normal(90, 3)
    x[:30, 1] = 4.0
    return split(x, y, (30, 60))


def copies():
    x, y = normal(40, 3)
    return split(np.repeat(x, 5, axis=0), np.repeat(y, 5), (100, 100))


CASES = {
    "sites of 3 and of 3,000 rows": split(*normal(3003, 4), (3, 3000)),
    "60 columns, fewer rows than columns at two of three sites": split(*normal(300, 60), (20, 50, 230)),
    "one row more than coefficients": split(*normal(6, 4), (2, 4)),
    "a column that is constant at one site": constant_at_one_site(),
    "every row five times": copies(),
    "units 1e6 apart": split(*normal(200, 3, units=[1.0, 1e6, 1e-6]), (50, 150)),
    "units 1e12 apart": split(*normal(200, 3, units=[1.0, 1e12, 1e-12]), (50, 150)),
    "columns far from 0": split(*normal(200, 3, offset=1e7), (50, 150)),
    "one site": split(*normal(50, 3), (50,)),
}


@pytest.mark.parametrize("kind", ["classical", "HC3"])
@pytest.mark.parametrize("case", CASES)
def test_hard_data_are_fitted_as_statsmodels_fits_them(case, kind):
    sites = CASES[case]
    x, y = (np.concatenate(parts) for parts in zip(*sites, strict=True))
    centre, size = x.mean(axis=0), x.std(axis=0)  # statsmodels itself loses digits where units differ
    how = "nonrobust" if kind == "classical" else kind
    pooled = sm.OLS(y, sm.add_constant((x - centre) / size)).fit(cov_type=how)
    found = fl.fit(sites, fl.Regression("y"), plan=False, covariance=kind)
    np.testing.assert_allclose(found.theta[:-1] * size, pooled.params[1:], rtol=1e-8, atol=1e-8 * pooled.bse.max())
    np.testing.assert_allclose(found.standard_error[:-1] * size, pooled.bse[1:], rtol=1e-7)
    if np.abs(centre / size).max() > 1e3:  # nothing is left of the digits of the sums below
        return
    at = np.append(centre, 1.0)  # the intercept of centred columns
    assert found.theta @ at == pytest.approx(pooled.params[0], rel=1e-8)
    assert np.sqrt(at @ found.covariance @ at) == pytest.approx(pooled.bse[0], rel=1e-6)


@pytest.mark.parametrize("offset", [1e9, 1e12, -1e13])
@pytest.mark.parametrize("weight", ["samples", "sites"])
def test_a_column_may_be_very_far_from_zero_for_its_spread(offset, weight):
    rng = np.random.default_rng(0)
    x = offset + rng.normal(size=200)
    near = x - offset  # exactly what is left of the digits
    y, part = 2 * near + rng.normal(size=200), np.arange(200) < 60
    rows = np.where(part, 1 / 60, 1 / 140) if weight == "sites" else np.ones(200)
    pooled = sm.WLS(y, sm.add_constant(near), weights=rows).fit(cov_type="HC3")
    found = fl.fit([(x[p, None], y[p]) for p in (part, ~part)], fl.Regression("y"), weight=weight, plan=False)
    assert found.theta[0] == pytest.approx(pooled.params[1], rel=1e-9)
    assert found.standard_error[0] == pytest.approx(pooled.bse[1], rel=1e-9)
    with pytest.raises(SiteDataError, match=r"column 'x0' has the same value, .* in every row"):
        fl.fit([(np.full((60, 1), offset), y[:60])], fl.Regression("y"), plan=False)


def test_a_thousand_sites_of_five_rows_take_seconds():
    x, y = normal(5000, 2)
    sites, begin = split(x, y, (5,) * 1000), time.process_time()
    found = fl.fit(sites, fl.Regression("y"))
    assert time.process_time() - begin < 60  # about 3 on an idle machine
    pooled = sm.OLS(y, sm.add_constant(x)).fit(cov_type="HC3")
    np.testing.assert_allclose(found.standard_error, pooled.bse[[1, 2, 0]], rtol=1e-9)
    assert (np.abs(found.protocol - found.theta) <= 0.2 * found.standard_error).all()
    assert found.local == "means"


def polynomial(degree, noise):
    """As in NIST's Wampler data: powers of 0 ... 20, all coefficients 1."""
    x = np.arange(21.0)[:, None] ** np.arange(1, degree + 1)
    y = 1 + x.sum(axis=1) + noise * np.random.default_rng(0).normal(size=21)
    return [(x[::2], y[::2]), (x[1::2], y[1::2])]


@pytest.mark.parametrize(("degree", "error"), [(3, 1e-10), (5, 1e-6), (7, 1e-2)])
def test_powers_are_fitted_to_a_small_part_of_their_standard_errors(degree, error):
    sites = polynomial(degree, 100.0)
    found = fl.fit(sites, fl.Regression("y"), plan=False)
    assert (np.abs(found.theta - exactly(sites, [11 / 21, 10 / 21])) <= error * found.standard_error).all()


def test_powers_beyond_the_precision_of_numbers_are_refused_by_name():
    with pytest.raises(SiteDataError, match=r"columns 'x0', 'x1', .* determine one another in the data of all sites"):
        fl.fit(polynomial(10, 100.0), fl.Regression("y"), plan=False)

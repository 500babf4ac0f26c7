"""What users of statsmodels look for in a fit: it is there with statsmodels' number, or its name here is said."""

import copy
import dataclasses
import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from numpy.testing import assert_allclose

import fedlsa as fl


def table(seed=0, n=60):
    """Rows of two sites with two categories, a number and weights."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"g": rng.choice(list("abc"), n), "h": rng.choice(list("pq"), n), "x": rng.normal(size=n)})
    data["w"], data["s"] = rng.uniform(0.5, 2, n), np.arange(n) % 2
    return data.assign(y=5 + (data.g == "b") + rng.normal(size=n))


def dummies(data, *columns):
    """A column for each combination of levels."""
    labels = data[list(columns)].agg("_".join, axis=1)
    return pd.get_dummies(labels).astype(float)


def fitted(data, columns, covariance="classical", **task):
    given = {"intercept": False, "columns": list(columns)} | task
    return fl.fit(data, fl.Regression("y", **given), site="s", plan=False, covariance=covariance)


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize("intercept", [True, False])
def test_likelihood_aic_and_bic_are_those_of_statsmodels(weights, intercept):
    data = table().assign(z=lambda d: d.x**2)
    fit = fitted(data, ["x", "z"], row_weights=weights, intercept=intercept)
    x = data[["x", "z"]].assign(one=1.0) if intercept else data[["x", "z"]]
    there = sm.WLS(data.y, x, weights=1.0 if weights is None else data[weights]).fit()
    here = (fit.log_likelihood, fit.aic, fit.bic, fit.nobs, fit.r_squared, fit.adjusted_r_squared)
    assert_allclose(here, (there.llf, there.aic, there.bic, there.nobs, there.rsquared, there.rsquared_adj), rtol=1e-10)
    assert_allclose((fit.test().statistic, fit.test().p_value), (there.fvalue, there.f_pvalue), rtol=1e-9)
    assert_allclose(fit.params[["x", "z"]], there.params[["x", "z"]], rtol=1e-10)
    assert list(fit.params.index) == list(fit.names)


def test_there_is_no_likelihood_where_the_fit_does_not_maximise_it():
    data = table()
    rows, zero = data.iloc[:55], data.assign(w=np.where(data.x > 1, 0.0, 1.0))
    unequal = fl.fit(rows, fl.Regression("y", columns="x"), site="s", weight="sites", plan=False)
    for fit in (fitted(data, ["x"], ridge=0.1), fitted(zero, ["x"], row_weights="w"), unequal):
        assert math.isnan(fit.log_likelihood)
        assert math.isnan(fit.aic)
        assert math.isnan(fit.bic)


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize(
    ("columns", "number", "formula"),
    [(["g"], False, "y ~ C(g) - 1"), (["g"], True, "y ~ 0 + g + x"), (["g", "h"], False, "y ~ g:h - 1")],
)
def test_columns_that_add_up_to_a_constant_count_as_one(columns, number, formula, weights):
    data = table()
    x = dummies(data, *columns).assign(**({"x": data.x} if number else {}))
    there = smf.wls(formula, data, weights=1.0 if weights is None else data[weights]).fit()
    assert there.df_model == x.shape[1] - 1
    for standardise in (True, False):
        all_columns = pd.concat([x, data[["y", "s", "w"]]], axis=1)
        fit = fitted(all_columns, x.columns, row_weights=weights, standardise=standardise)
        assert_allclose(x @ fit.constant, 1.0, atol=1e-12)
        found = fit.test()
        assert (found.df_num, found.df_denom) == (there.df_model, there.df_resid)
        assert_allclose(fit.adjusted_r_squared, there.rsquared_adj, rtol=1e-9)
        assert_allclose((found.statistic, found.p_value), (there.fvalue, there.f_pvalue), rtol=1e-9)
        head = dict(fit.summary().head)
        assert float(head["F-statistic"]) == pytest.approx(there.fvalue, rel=1e-4)
        assert head["Adj. R-squared"] == f"{there.rsquared_adj:.4f}"


def test_an_implied_constant_gives_the_robust_f_of_the_model_with_an_intercept():
    data = table()
    x = dummies(data, "g")
    implied = fitted(pd.concat([x, data], axis=1), x.columns, covariance="HC3").test()
    explicit = fitted(pd.concat([x, data], axis=1), ["b", "c"], intercept=True, covariance="HC3").test()
    assert_allclose((implied.statistic, implied.p_value), (explicit.statistic, explicit.p_value), rtol=1e-9)
    assert {claim.removesuffix(" = 0") for claim in implied.claims} <= {f"{a} - {b}" for a in "abc" for b in "abc"}


def test_units_of_columns_do_not_change_whether_there_is_a_constant():
    data = table()
    far = data.assign(t=1.7e9 + 1e4 * data.x)  # seconds, of which none is a constant
    there = sm.OLS(data.y, far[["t"]], hasconst=False).fit()
    fit = fitted(far, ["t"])
    assert fit.constant is None
    assert_allclose((fit.r_squared, fit.test().statistic), (there.rsquared, there.fvalue), rtol=1e-6)
    x = dummies(data, "g") * [1e-6, 1.0, 1e6]
    fit = fitted(pd.concat([x, data[["y", "s"]]], axis=1), x.columns)
    assert_allclose(fit.constant, [1e6, 1.0, 1e-6], rtol=1e-9)
    assert fit.test().statistic == pytest.approx(smf.ols("y ~ g", data).fit().fvalue, rel=1e-9)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("bse", "standard_error"), ("rsquared", "r_squared"), ("fvalue", "test().statistic"), ("wald_test", "test(")],
)
def test_a_name_of_statsmodels_leads_to_ours(theirs, ours):
    fit = fitted(table(), ["x"])
    with pytest.raises(AttributeError, match=re.escape(f"Fit has no '{theirs}'; it is called {ours}")):
        getattr(fit, theirs)
    with pytest.raises(AttributeError, match=r"^Fit has no 'nothing'$"):
        _ = fit.nothing
    assert copy.deepcopy(fit) == pickle.loads(pickle.dumps(fit)) == fit


def test_every_name_that_is_pointed_to_exists():
    from fedlsa.fitting.fitted import OURS

    fit = fitted(table(), ["x"])
    assert all(hasattr(fit, name.partition("(")[0]) for name in OURS.values())
    assert not any(hasattr(fit, name) for name in OURS)


def test_residuals_are_no_part_of_a_saved_fit(tmp_path):
    fit = dataclasses.replace(fitted(table(), ["x"]), resid=np.ones(60), fittedvalues=np.zeros(60))
    fit.save(tmp_path / "model.json")
    assert 'resid"' not in (tmp_path / "model.json").read_text()
    again = fl.Fit.load(tmp_path / "model.json")
    assert again == fit
    assert again.resid is again.fittedvalues is None

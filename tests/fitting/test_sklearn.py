"""The regressor with scikit-learn's manners: its checks, and the coefficients of its linear models on pooled rows."""

import doctest
import importlib
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAWarning, MissingExtraError

FederatedRegressor = fl.sklearn.FederatedRegressor
RNG = np.random.default_rng(0)
SITES = RNG.choice(["north", "south", "west"], size=90, p=[0.2, 0.3, 0.5])
X = RNG.normal(size=(90, 3)) * [1.0, 20.0, 0.1] + [0.0, 50.0, 1.0]
Y = 3.0 + X @ [1.0, -0.2, 4.0] + RNG.normal(size=90) + (SITES == "west")
W = RNG.integers(0, 4, size=90).astype(float)


@pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")  # more columns than rows
@parametrize_with_checks([FederatedRegressor(), FederatedRegressor(ridge=0.1, weight="sites", fit_intercept=False)])
def test_it_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_the_example_holds():
    assert doctest.testmod(fl.sklearn, extraglobs={"fl": fl, "np": np}).failed == 0


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weights", [None, W])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_coefficients_are_those_of_scikit_learn_on_the_pooled_rows(ridge, weights, intercept):
    found = FederatedRegressor(ridge=ridge, fit_intercept=intercept).fit(X, Y, SITES, weights)
    mass = 90 if weights is None else weights.sum()
    other = (Ridge(mass * ridge) if ridge else LinearRegression()).set_params(fit_intercept=intercept)
    other.fit(X, Y, weights)
    np.testing.assert_allclose(found.coef_, other.coef_, rtol=1e-8)
    assert found.intercept_ == pytest.approx(other.intercept_, rel=1e-8, abs=1e-12)
    assert found.score(X, Y, weights) == pytest.approx(other.score(X, Y, weights), rel=1e-8)
    one = FederatedRegressor(ridge=ridge, fit_intercept=intercept).fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-8)


def test_sites_that_count_the_same_are_rows_with_weights():
    found = FederatedRegressor(weight="sites").fit(X, Y, pd.Series(SITES, index=range(7, 97)))
    each = {name: 1 / np.sum(name == SITES) for name in set(SITES)}
    other = LinearRegression().fit(X, Y, [each[name] for name in SITES])
    np.testing.assert_allclose(found.coef_, other.coef_, rtol=1e-8)


def test_the_fit_has_error_bars_and_the_names_of_columns():
    frame = pd.DataFrame(X, columns=["age", "y", "weight"])
    found = FederatedRegressor(covariance="classical").fit(frame, Y, SITES)
    assert list(found.feature_names_in_) == ["age", "y", "weight"]
    assert found.fit_.names == ("age", "y", "weight", "intercept")
    assert {site.name for site in found.fit_.per_site} == set(SITES)
    assert found.fit_.plan is None
    np.testing.assert_allclose(found.predict(frame), X @ found.coef_ + found.intercept_)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict(frame), found.predict(frame))
    assert again.fit_ == found.fit_
    assert clone(found).get_params() == found.get_params()


def test_rows_of_weight_0_are_as_if_they_were_not_there():
    found = FederatedRegressor().fit(X, Y, SITES, (SITES != "west") * W)
    assert {site.name for site in found.fit_.per_site} == {"north", "south"}
    assert found.fit_.rows == np.sum((SITES != "west") & (W > 0))


def test_a_run_is_planned_where_it_is_asked_for():
    found = FederatedRegressor(plan=True).fit(X[:, :1], Y)
    np.testing.assert_allclose(found.fit_.protocol, found.fit_.theta, atol=0.2 * found.fit_.standard_error.max())
    assert found.fit_.communications > 0


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_open_coefficients_are_the_shortest_and_said_to_be_without_errors(ridge):
    twice = np.column_stack([X, X[:, 0], np.ones(90)])
    for features, rows in ((twice, 90), (np.column_stack([X, X**2]), 5)):
        with pytest.warns(FedLSAWarning, match="coef_ is the solution of least norm, and fit_ None"):
            found = FederatedRegressor(ridge=ridge).fit(features[:rows], Y[:rows], SITES[:rows])
        other = (Ridge(rows * ridge) if ridge else LinearRegression()).fit(features[:rows], Y[:rows])
        np.testing.assert_allclose(found.coef_, other.coef_, rtol=1e-8, atol=1e-10)
        assert found.fit_ is None


def test_sites_go_by_their_labels_as_text_and_stand_in_their_order():
    labels = np.array(["NA", "10", "01", "1", ""] * 18, object)
    found = FederatedRegressor().fit(X, Y, sites=labels).fit_
    assert {s.name: s.rows for s in found.per_site} == dict.fromkeys(["", "01", "1", "10", "NA"], 18)
    numbers = FederatedRegressor().fit(X, Y, sites=np.resize([10, 2, 1], 90)).fit_
    assert [s.name for s in numbers.per_site] == ["1", "2", "10"]


def test_pipelines_and_searches_pass_sites_on():
    pipe = make_pipeline(StandardScaler(), FederatedRegressor())
    pipe.fit(X, Y, federatedregressor__sites=SITES)
    assert len(pipe[-1].fit_.per_site) == 3
    assert pipe.score(X, Y) == pytest.approx(LinearRegression().fit(X, Y).score(X, Y))
    grid = {"ridge": [0.01, 1.0, 100.0]}
    search = GridSearchCV(FederatedRegressor(), grid, cv=2).fit(X, Y, sites=SITES)
    assert search.best_params_ == {"ridge": 0.01}
    assert len(search.best_estimator_.fit_.per_site) == 3
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make_pipeline(StandardScaler(), FederatedRegressor().set_fit_request(sites=True))
        search = GridSearchCV(routed, {"federatedregressor__ridge": [0.01, 100.0]}, cv=2).fit(X, Y, sites=SITES)
        assert len(search.best_estimator_[-1].fit_.per_site) == 3


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"sites": SITES[:-1]}, "sites must have a label for each of the 90 rows; got shape"),
        ({"sites": [None, *SITES[1:]]}, "sites must have a label for each row; got one that is missing"),
        ({"sample_weight": -W}, "sample_weight must be finite and at least 0; got -"),
        ({"sample_weight": np.zeros(90)}, "sample_weight must be above 0 in some row; got zero in all"),
    ],
)
def test_bad_arguments_are_named(given, rule):
    with pytest.raises(ArgumentError, match=rule):
        FederatedRegressor().fit(X, Y, **given)


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "fedlsa.sklearn")
    with pytest.raises(MissingExtraError, match=r"pip install 'fedlsa\[sklearn\]'"):
        importlib.import_module("fedlsa.sklearn")

"""Least squares on data that stay apart, as a regressor of scikit-learn; only this module needs scikit-learn.

>>> X = np.arange(8.0).reshape(8, 1)
>>> fl.sklearn.FederatedRegressor().fit(X, X[:, 0] ** 2, sites=["a", "b"] * 4).coef_.round(3)
array([7.])
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import Floats
from .errors import ArgumentError, MissingExtraError, SiteDataError, warn
from .fitting import Fit, Regression
from .fitting import fit as fit_sites
from .fitting.tasks import checked_weight

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import check_array
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError:
    raise MissingExtraError("fl.sklearn needs scikit-learn: pip install 'fedlsa[sklearn]'") from None

__all__ = ["FederatedRegressor"]


class FederatedRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Linear least squares over sites whose rows stay where they are, with the manners of scikit-learn.

    fit_intercept : a constant term
    ridge : rho adds rho ||coef||^2 to the mean squared error, never for the intercept. With n rows that is
        scikit-learn's Ridge(alpha=n * rho); with sample weights n is their sum. 0 is LinearRegression
    weight : "samples" (the answer of all rows in one table) or "sites" (each site counts the same, as in the paper)
    covariance : of the errors in fit_, as in fl.fit
    plan : whether to plan and simulate the communications by which sites would get the answer, as fl.fit does

    Fitted, it has coef_ (d,), intercept_, n_features_in_, feature_names_in_ where columns have names, and fit_: the
    fl.Fit with error bars, a report of each site and, if asked for, the plan. Where the rows leave coefficients open
    (fewer rows than coefficients, columns that determine one another) coef_ is the shortest solution, as
    LinearRegression has it, fit_ is None, for no coefficient has an error bar then, and a warning says why.

    >>> X = np.arange(12.0).reshape(12, 1)
    >>> model = fl.sklearn.FederatedRegressor().fit(X, 2 * X[:, 0] + np.cos(X[:, 0]), sites=["a", "b"] * 6)
    >>> model.coef_.round(2), model.predict([[20.0]]).round(1), model.fit_.standard_error.round(2)
    (array([1.94]), array([39.1]), array([0.06, 0.45]))
    """

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        ridge: float = 0.0,
        weight: str = "samples",
        covariance: str | None = None,
        plan: bool = False,
    ) -> None:
        self.fit_intercept = fit_intercept
        self.ridge = ridge
        self.weight = weight
        self.covariance = covariance
        self.plan = plan

    def fit(
        self, X: ArrayLike, y: ArrayLike, sites: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> FederatedRegressor:
        """Fit features X : (n, d) to targets y : (n,).

        sites : (n,) the site of each row, by any labels; None: all rows are of one site
        sample_weight : (n,) of at least 0, or one number for all; a row of weight 0 is as if it were not there
        """
        rows, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        counted = (w := _weights(sample_weight, len(targets))) > 0
        x, t, w, labels = rows[counted], targets[counted], w[counted], _labels(sites, len(targets))[counted]
        names = [str(c) for c in getattr(self, "feature_names_in_", [f"x{j}" for j in range(x.shape[1])])]
        target, weights, site = (_free(name, names) for name in ("y", "weight", "site"))
        task = Regression(
            target,
            columns=names,
            intercept=self.fit_intercept,
            standardise=self.ridge == 0,  # Ridge penalises coefficients of features as they are
            ridge=self.ridge,
            row_weights=None if sample_weight is None else weights,
        )
        checked_weight(task, self.weight)
        table = dict(zip(names, x.T, strict=True)) | {target: t, weights: w, site: labels}
        self.fit_: Fit | None
        try:
            self.fit_ = fit_sites(
                table, task, site=site, weight=self.weight, covariance=self.covariance, plan=self.plan
            )
            theta = self.fit_.theta
        except SiteDataError as error:
            warn(f"{error}: coef_ is the solution of least norm, and fit_ None")
            self.fit_ = None
            theta = _shortest(x, t, _shares(labels, w, self.weight), task)
        self.coef_: Floats = theta[: x.shape[1]].copy()
        self.intercept_: float = float(theta[-1]) if self.fit_intercept else 0.0
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """(n,): the targets that the model expects of features X : (n, d)."""
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False) @ self.coef_ + self.intercept_)


def _labels(sites: ArrayLike | None, n: int) -> NDArray[Any]:
    """(n,): the name of each row's site."""
    if sites is None:
        return np.full(n, "all rows", object)
    given = np.asarray(sites, object)
    if given.shape != (n,):
        raise ArgumentError(f"sites must have a label for each of the {n} rows; got shape {given.shape}")
    if any(label is None or label != label for label in given):
        raise ArgumentError("sites must have a label for each row; got one that is missing")
    return np.array([str(label) for label in given], object)


def _weights(sample_weight: ArrayLike | None, n: int) -> Floats:
    if sample_weight is None or isinstance(sample_weight, Real):
        w = np.full(n, 1.0 if sample_weight is None else float(sample_weight))
    else:
        w = check_array(sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight")
        if w.shape != (n,):
            raise ArgumentError(f"sample_weight must be a number for each of the {n} rows; got shape {w.shape}")
    if not (np.isfinite(w).all() and (w >= 0).all()):
        raise ArgumentError(f"sample_weight must be finite and at least 0; got {w[~(np.isfinite(w) & (w >= 0))][0]:g}")
    if not w.any():
        raise ArgumentError("sample_weight must be above 0 in some row; got zero in all")
    return w


def _free(name: str, taken: Sequence[str]) -> str:
    """A name that no column has."""
    while name in taken:
        name += "_"
    return name


def _shares(labels: NDArray[Any], w: Floats, weight: str) -> Floats:
    """(n,): what each row counts; all together 1."""
    if weight == "samples":
        return w / w.sum()
    names, codes = np.unique(labels, return_inverse=True)
    return np.asarray(w / np.bincount(codes, w)[codes] / len(names), np.float64)


def _shortest(X: Floats, y: Floats, share: Floats, task: Regression) -> Floats:
    """The coefficients of least norm among those with the least sum of share (y - x^T coef)^2 + ridge ||coef||^2, and
    after them the intercept, if there is one."""
    centre, y_centre = (share @ X, share @ y) if task.intercept else (np.zeros(X.shape[1]), 0.0)
    root, d = np.sqrt(share), X.shape[1]
    rows = np.concatenate([(X - centre) * root[:, None], np.sqrt(task.ridge) * np.eye(d)])
    coef = np.linalg.lstsq(rows, np.append((y - y_centre) * root, np.zeros(d)), rcond=None)[0]
    return np.append(coef, y_centre - centre @ coef) if task.intercept else np.asarray(coef, np.float64)

"""Standard errors from sums of sites are those of fl.fit, which has all the rows."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.fitting.covariance import (
    ScorePoint,
    convergence_notes,
    fields_of_fit,
    score_sums,
    solution_point,
    system_sums,
)
from fedlsa.fitting.reading import read, read_scaled
from fedlsa.fitting.sites import open_tables
from fedlsa.fitting.sums import penalty_of
from fedlsa.theory.linear import smat

SIZES = (31, 80, 57)
NUMBERS = ("theta", "covariance", "degrees_of_freedom", "residual_variance", "r_squared", "log_likelihood")
TASKS = {
    "pooled least squares": fl.Regression("y"),
    "in the columns' own units": fl.Regression("y", standardise=False),
    "no intercept": fl.Regression("y", intercept=False),
    "a constant among the columns": fl.Regression("y ~ C(group) + x0 - 1"),
    "ridge": fl.Regression("y", columns=["x0", "x1"], ridge=0.3),
    "an offset": fl.Regression("y", columns=["x0", "x1"], offset="x2"),
    "own intercepts": fl.Regression("y", own="intercept"),
    "own intercepts of categories": fl.Regression("y ~ x0 + C(group)", own="intercept", ridge=0.1, standardise=False),
    "a formula": fl.Regression("y ~ x0 * C(group) + I(x1 ** 2)"),
}


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(5)
    out = {}
    for c, n in enumerate(SIZES):
        x = rng.normal(size=(n, 3)) * [1, 3, 0.2] + [c, 5, -c]
        y = x @ [1.0, -0.3, 2.0] + rng.normal(size=n) * (1 + np.abs(x[:, 0]))
        columns = {f"x{j}": x[:, j] for j in range(3)} | {"y": y + 3}
        out[f"s{c}"] = columns | {"group": np.array(["a", "b", "c"])[np.arange(n) % 3]}
    return out


class Sums:
    """The sites' rows, apart, in one scale; weight : as in fl.fit."""

    def __init__(self, sites, task, weight=None):
        columns = ["y", *task.columns] if task.columns else ["y", "x0", "x1", "x2"]
        beside = [task.offset] if task.offset else []
        whole = task.formula is not None
        self.sites = {
            name: site if whole else {c: site[c] for c in dict.fromkeys([*columns, *beside])}
            for name, site in sites.items()
        }
        self.task, self.weight = task, weight or "samples"
        tables = open_tables(self.sites, task, None, None)
        self.data, self.weights, _ = read(tables, task, self.weight, 1e9, lambda *_: None)
        self.pieces = [partial(read_scaled, t, task, self.data.columns, self.data.scale) for t in tables]
        self.counts, self.penalty = (np.array(SIZES), self.weights), penalty_of(task, self.data.scale)
        self.own = task.own is not None

    def total(self, part):
        return np.sum([part(p, w) for p, w in zip(self.pieces, self.weights, strict=True)], axis=0)

    def all_coefficients(self, theta):
        d, scale = self.data.scale.dim, self.data.scale
        system = self.total(lambda p, w: system_sums(p(), theta, self.penalty, w))
        at = solution_point(system, theta, self.data.coefficients, *self.counts, self.own)
        total = self.total(lambda p, w: score_sums(p, at, self.penalty, w))
        return fields_of_fit(self.task, scale, SIZES, at, total, range(d))

    def of_chosen(self, chosen, theta):
        scale = self.data.scale
        total = self.total(lambda p, w: system_sums(p(), theta, self.penalty, w))
        A = smat(total[: scale.dim * (scale.dim + 1) // 2], scale.dim)
        at = ScorePoint(theta, np.linalg.solve(A.T, scale.original()[0][chosen].T).T, own=self.own)
        total = self.total(lambda p, w: score_sums(p, at, self.penalty, w))
        return fields_of_fit(self.task, scale, SIZES, at, total, chosen)


def assert_same(found, fit, names=NUMBERS, chosen=slice(None)):
    for name in names:
        got, right = np.asarray(found[name]), np.asarray(getattr(fit, name))
        if name in ("theta", "covariance"):
            got, right = got[chosen], right[chosen]
        scale = np.abs(right).max()
        assert np.abs(got - right).max() <= 1e-9 * scale, name


@pytest.mark.parametrize("weight", ["samples", "sites"])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
def test_two_sums_give_the_fit_of_all_rows_wherever_the_run_ended(sites, task, weight):
    sums = Sums(sites, task, weight)
    found = sums.all_coefficients(np.full(sums.data.scale.dim, 0.7))
    fit = fl.fit(sums.sites, task, weight=weight, plan=False)
    names = NUMBERS if task.ridge == 0 and weight == "samples" else NUMBERS[:-1]
    assert_same(found, fit, names)
    assert np.abs(found["root"] @ found["root"].T - fit.covariance).max() <= 1e-9 * np.abs(fit.covariance).max()
    assert found["covariance_kind"] == "HC3" == fit.covariance_kind
    if fit.constant is not None:
        assert np.abs(found["constant"] - fit.constant).max() <= 1e-9


@pytest.mark.parametrize("task", [TASKS[k] for k in ("pooled least squares", "no intercept", "own intercepts")])
def test_directions_alone_give_the_errors_of_chosen_coefficients(sites, task):
    sums = Sums(sites, task)
    fit = fl.fit(sums.sites, task, covariance="HC1", plan=False)
    T, t = sums.data.scale.original()
    found = sums.of_chosen([2, 0], np.linalg.solve(T, fit.theta - t))
    assert_same(found, fit, ("covariance",), np.ix_([2, 0], [2, 0]))
    assert_same(found, fit, ("degrees_of_freedom", "residual_variance", "log_likelihood"))
    assert np.isnan(found["covariance"][1]).all()
    assert np.isnan(found["root"][1]).all()
    assert np.isnan(found["r_squared"]) == (not task.intercept)


def test_a_direction_brings_its_coefficient_to_the_solution(sites):
    sums = Sums(sites, TASKS["pooled least squares"])
    fit = fl.fit(sums.sites, sums.task, plan=False)
    found = sums.of_chosen([1], np.full(sums.data.scale.dim, 0.1))
    assert abs(found["theta"][1] - fit.theta[1]) <= 1e-9 * abs(fit.theta[1])
    assert abs(found["theta"][0] - fit.theta[0]) > 1e-3


def test_a_run_that_ended_far_from_the_solution_is_said_to():
    theta, covariance = np.array([1.0, 2.0]), np.diag([0.01, np.nan])
    assert convergence_notes(theta, theta + 1e-3, covariance, 0.001) == ()
    far, unsettled = convergence_notes(theta, theta + np.array([0.05, 9.0]), covariance, 0.2)
    assert "0.5 standard errors" in far
    assert "about 20% of their size" in unsettled
    assert "rounds do not show" in convergence_notes(theta, theta, covariance, 1.0)[0]


def test_what_is_known_of_some_coefficients_can_be_tested(sites):
    sums = Sums(sites, TASKS["pooled least squares"])
    whole = fl.fit(sums.sites, sums.task, covariance="HC1", plan=False)
    T, t = sums.data.scale.original()
    found = sums.of_chosen([0, 1], np.linalg.solve(T, whole.theta - t))
    part = replace(whole, **{name: found[name] for name in ("covariance", "root")})
    for claim in ("x0 = 1", "x0 = x1", "x0 = 1, x1 = 0"):
        assert part.test(claim).p_value == pytest.approx(whole.test(claim).p_value, rel=1e-9)
    assert part.p_values[:2] == pytest.approx(whole.p_values[:2], rel=1e-9)
    with pytest.raises(ArgumentError, match="'x2 = 0' has none that is known"):
        part.test("x0 = 1, x2 = 0")
    assert "x2" in str(part.summary())

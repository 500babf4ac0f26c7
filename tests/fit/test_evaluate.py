"""Hold-outs: residuals, TD errors and returns against numbers worked out by hand."""

from importlib import import_module

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentTypeError, SiteDataError


@pytest.fixture(scope="module")
def line():
    """y = 1 + 2x, fitted without error."""
    x = np.arange(4.0)
    return fl.fit([{"x": x, "y": 1 + 2 * x}], fl.Regression("y"), 1e-9, local="means")


def test_residuals_of_a_regression_file_by_file_and_together(line):
    first = {"x": [0.0, 1, 2, 3], "y": [2.0, 2, 6, 6], "more": [9.0] * 4}  # residuals 1, -1, 1, -1
    second = {"x": [0.0, 0], "y": [4.0, 4], "more": [9.0] * 2}  # residuals 3, 3; the target is constant
    a, b, both = fl.evaluate(line, [first, second])
    assert (a.rows, b.rows, both.rows, both.name) == (4, 2, 6, "all")
    assert (a.rmse, a.spread, a.mean) == pytest.approx((1, 2, 0), abs=1e-7)
    assert a.r_squared == pytest.approx(1 - 1 / 4)
    assert b.rmse == pytest.approx(3)
    assert np.isnan(b.r_squared)
    y = np.array([2.0, 2, 6, 6, 4, 4])
    assert both.rmse == pytest.approx(np.sqrt((4 + 18) / 6))
    assert both.mean == pytest.approx(1)
    assert both.r_squared == pytest.approx(1 - 22 / 6 / y.var())


def test_a_spread_far_from_zero_keeps_its_digits(line):
    y = 1e9 + np.array([0.0, 1, 2, 3])
    (row,) = fl.evaluate(line, [{"x": [0.0, 1, 2, 3], "y": y}])
    assert row.spread == pytest.approx(y.std(), rel=1e-12)


LOG = {
    "state": [0, 1, 2, 0, 1, 3, 2],
    "next_state": [1, 2, 0, 1, 3, 1, 1],
    "reward": [1.0, 2, 4, 8, 16, 32, 64],
    "terminated": [0, 0, 1, 0, 0, 0, 0],
    "truncated": [0, 0, 0, 0, 1, 0, 0],
}


@pytest.fixture(scope="module")
def values():
    """A value function on four states, from a log that has seen them all."""
    task = fl.Value(0.5, features=fl.problems.features.OneHot(4))
    return fl.fit([LOG], task, 1e-9, local="means")


def test_td_errors_updates_and_returns_of_a_log(values):
    V = values.theta
    s, after, r = (np.array(LOG[k]) for k in ("state", "next_state", "reward"))
    delta = r + 0.5 * V[after] * (1 - np.array(LOG["terminated"])) - V[s]
    hold_out = {k: v[:5] for k, v in LOG.items()}
    (row,) = fl.evaluate(values, [hold_out])
    assert row.td_error == pytest.approx(np.mean(delta[:5] ** 2))
    update = np.array([delta[:5][s[:5] == k].sum() for k in range(4)]) / 5
    assert row.update == pytest.approx(np.linalg.norm(update))
    gain = np.array([1 + 0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4, 4])  # the second episode is cut off and has no returns
    assert row.returns == 3
    assert row.return_rmse == pytest.approx(np.sqrt(np.mean((V[[0, 1, 2]] - gain) ** 2)))
    assert row.return_spread == pytest.approx(gain.std())


def test_the_mean_update_vanishes_on_the_data_that_were_fitted(values):
    (row,) = fl.evaluate(values, [LOG])
    assert row.update < 1e-7
    assert row.td_error > 1


def test_episodes_are_whole_across_pieces_of_a_file(values, monkeypatch):
    whole = fl.evaluate(values, [LOG, LOG])
    module = import_module("fedlsa.fit.evaluate")
    monkeypatch.setattr(module, "piece_rows", lambda width: 2)
    for a, b in zip(whole, fl.evaluate(values, [LOG, LOG]), strict=True):
        assert (a.name, a.rows, a.returns) == (b.name, b.rows, b.returns)
        assert (a.td_error, a.return_rmse, a.return_spread) == pytest.approx(
            (b.td_error, b.return_rmse, b.return_spread)
        )


def test_returns_of_another_policy_are_left_out(values):
    (row,) = fl.evaluate(values, [{**LOG, "importance": [1.0] * 7}])
    assert row.returns == 0
    assert np.isnan(row.return_rmse)


def test_a_hold_out_must_have_the_columns_of_the_model(line):
    with pytest.raises(SiteDataError, match="has no column 'x'"):
        fl.evaluate(line, [{"z": [1.0], "y": [1.0]}])
    fit = fl.fit([{"s0": [1.5, 2], "n0": [2.0, 1.5], "reward": [1.0, 2], "terminated": [0, 0]}],
                 fl.Value(0.5, state="s", next_state="n"), 0.1, local="means")  # fmt: skip
    with pytest.raises(SiteDataError, match="must have the columns of the model, s0; got s1"):
        fl.evaluate(fit, [{"s1": [1.0], "n1": [2.0], "reward": [1.0], "terminated": [0]}])
    with pytest.raises(ArgumentTypeError, match="fit must be what"):
        fl.evaluate("model.json", [])

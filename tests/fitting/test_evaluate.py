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
    put_in = np.array([0, 0, 0, 0.25 * V[3], 0.5 * V[3]])  # the second episode is cut in state 3
    gain = np.array([1 + 0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4, 4, 8 + 0.5 * 16, 16]) + put_in
    assert (row.returns, row.episodes, row.cut) == (5, 2, 0.5)
    assert row.return_rmse == pytest.approx(np.sqrt(np.mean((V[s[:5]] - gain) ** 2)))
    assert (row.return_spread, row.return_mean) == pytest.approx((gain.std(), gain.mean()))
    assert row.remainder == pytest.approx(np.sqrt(np.mean(put_in**2)))


def test_rows_that_do_not_follow_one_another_are_episodes_of_one_row(values):
    """Transitions drawn apart: nothing but TD errors can be seen, and all of them are said to be cut."""
    shuffled = {k: np.array(v)[[3, 0, 5, 0]] for k, v in LOG.items()}
    (row,) = fl.evaluate(values, [shuffled])
    assert (row.episodes, row.cut) == (4, 1.0)
    assert row.return_rmse == pytest.approx(np.sqrt(row.td_error))


def test_episodes_that_outlast_the_log_are_not_left_out():
    """One state, a reward of -1 a step, the end with probability 0.02, a log that gives up after 20 steps.

    The return is -1 / (1 - 0.98 gamma) from every row. Those that end in time alone have far smaller ones.
    """
    gamma, rng, rows = 0.99, np.random.default_rng(0), []
    for _ in range(400):
        length = int(rng.geometric(0.02))
        rows += [(k == length - 1, k == 19) for k in range(min(length, 20))]
    ended, cut = np.array(rows, float).T
    log = {"state": np.ones(len(rows)), "next_state": np.ones(len(rows)), "reward": -np.ones(len(rows))}
    log |= {"terminated": ended, "truncated": cut * (1 - ended)}
    found = fl.fit([log], fl.Value(gamma, numbers=True), 1e-3, lag=0, local="means")
    truth = -1 / (1 - 0.98 * gamma)
    (row,) = fl.evaluate(found, [log])
    error = 4 * found.standard_error[0]
    assert abs(found.theta[0] - truth) < error
    assert abs(row.return_mean - truth) < error
    assert row.episodes == 400
    assert row.cut == pytest.approx(np.mean((cut * (1 - ended))[(ended + cut) > 0]))
    assert row.cut > 0.5
    assert row.remainder > 0.5 * abs(truth)


def test_the_mean_update_vanishes_on_the_data_that_were_fitted(values):
    (row,) = fl.evaluate(values, [LOG])
    assert row.update < 1e-7
    assert row.td_error > 1


def test_episodes_are_whole_across_pieces_of_a_file(values, monkeypatch):
    whole = fl.evaluate(values, [LOG, LOG])
    module = import_module("fedlsa.fitting.evaluation")
    monkeypatch.setattr(module, "block_rows", lambda width: 2)
    for a, b in zip(whole, fl.evaluate(values, [LOG, LOG]), strict=True):
        assert (a.name, a.rows, a.returns) == (b.name, b.rows, b.returns)
        assert (a.episodes, a.cut) == (b.episodes, b.cut)
        assert (a.td_error, a.return_rmse, a.return_spread, a.remainder) == pytest.approx(
            (b.td_error, b.return_rmse, b.return_spread, b.remainder)
        )


def test_returns_of_another_policy_are_left_out(values):
    (row,) = fl.evaluate(values, [{**LOG, "importance": [1.0] * 7}])
    assert (row.returns, row.episodes) == (0, 0)
    assert np.isnan([row.return_rmse, row.return_mean, row.cut]).all()


def test_a_hold_out_must_have_the_columns_of_the_model(line):
    with pytest.raises(SiteDataError, match="has no column 'x'"):
        fl.evaluate(line, [{"z": [1.0], "y": [1.0]}])
    fit = fl.fit([{"s0": [1.5, 2], "n0": [2.0, 1.5], "reward": [1.0, 2], "terminated": [0, 0]}],
                 fl.Value(0.5, state="s", next_state="n"), 0.1, local="means")  # fmt: skip
    with pytest.raises(SiteDataError, match="must have the columns of the model, s0; got s1"):
        fl.evaluate(fit, [{"s1": [1.0], "n1": [2.0], "reward": [1.0], "terminated": [0]}])
    with pytest.raises(ArgumentTypeError, match="fit must be what"):
        fl.evaluate("model.json", [])

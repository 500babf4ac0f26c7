"""Logs that cannot tell a value function, or hardly, say so; those that can say nothing."""

import warnings
from functools import reduce
from operator import add

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import FedLSAWarning, SiteDataError
from fedlsa.fitting.reading import Determination
from fedlsa.fitting.rows import LogFacts, Piece

OneHot = fl.problems.features.OneHot


def walk(n, seed=0, states=4, rare=1.0):
    """A walk among states, each as likely as the others but for the last, which is visited `rare` times as often."""
    rng = np.random.default_rng(seed)
    p = np.append(np.ones(states - 1), rare)
    s = rng.choice(states, n + 1, p=p / p.sum())
    return {"state": s[:-1], "reward": s[1:] % 2 + rng.normal(size=n), "next_state": s[1:], "terminated": np.zeros(n)}


def said(log, task):
    """What a fit warns of, in one text."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fl.fit([log], task, plan=False)
    return "; ".join(str(w.message) for w in found if issubclass(w.category, FedLSAWarning))


def test_a_log_that_tells_the_values_goes_without_a_word():
    assert said(walk(2000), fl.Value(0.9, features=OneHot(4))) == ""
    rows = walk(2000) | {"importance": np.random.default_rng(1).choice([0.5, 1.5], 2000)}
    assert said(rows, fl.Value(0.9, features=OneHot(4))) == ""


def test_states_that_were_never_visited_are_named_together():
    rule = r"'state 4' and 'state 5' were never visited at site 0; OneHot\(6, without=\[4, 5\]\) leaves them out"
    with pytest.raises(SiteDataError, match=rule):
        said(walk(50), fl.Value(0.9, features=OneHot(6)))


def test_states_that_are_entered_and_never_left_ask_for_an_end_of_the_task():
    log = walk(60, states=3)
    end = log["next_state"] == 2
    log = {name: column[log["state"] != 2] for name, column in log.items()}
    with pytest.raises(SiteDataError, match=r"next states have 'state 2': nothing was recorded .* 'terminated'"):
        said(log, fl.Value(0.9, features=OneHot(3)))
    log["terminated"] = (log["next_state"] == 2).astype(float)
    assert end.any()
    with pytest.raises(
        SiteDataError, match=r"'state 2' was never visited at site 0; OneHot\(3, without=\[2\]\) leaves"
    ):
        said(log, fl.Value(0.9, features=OneHot(3)))
    assert "never" not in said(log, fl.Value(0.9, features=lambda s: np.eye(3)[s.astype(int)][:, :2]))


def test_a_state_without_a_feature_that_is_entered_while_the_task_goes_on_is_told():
    log = walk(400, states=3)
    kept = {name: column[log["state"] != 2] for name, column in log.items()}
    count = int(np.sum(kept["next_state"] == 2))
    text = said(kept, fl.Value(0.9, features=OneHot(3, without=[2])))
    assert f"{count} rows of {len(kept['state'])} lead to states that OneHot leaves out" in text
    kept["terminated"] = (kept["next_state"] == 2).astype(float)
    assert "leaves out" not in said(kept, fl.Value(0.9, features=OneHot(3, without=[2])))


def test_the_value_of_a_state_without_a_feature_is_0_and_a_warning_says_when_that_is_right():
    log = walk(400, states=3)
    log["terminated"] = (log["next_state"] == 2).astype(float)
    log = {name: column[log["state"] != 2] for name, column in log.items()}
    found = fl.fit([log], fl.Value(0.9, features=OneHot(3, without=[2])), plan=False)
    assert found.names == ("state 0", "state 1")
    with pytest.warns(FedLSAWarning, match=r"OneHot leaves out \[2\]: the value of such states is given as 0"):
        np.testing.assert_array_equal(found.predict([2, 0])[:1], [0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.predict([0, 1])


def corridor(episodes, n=4, seed=0):
    """Episodes that begin anywhere, go right or stay, cost 1 a step, and end on the right."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(episodes):
        s = rng.integers(n)
        while s < n:
            t = s + int(rng.random() < 0.5)
            rows.append((s, -1.0, t, t == n))
            s = t
    state, reward, after, end = np.array(rows, np.float64).T
    return {"state": state, "reward": reward, "next_state": after, "terminated": end}


def test_without_discount_values_are_those_of_episodes_that_end():
    """Two steps a place on average."""
    task = fl.Value(1.0, features=OneHot(5, without=[4]))
    found = fl.fit([corridor(600), corridor(600, seed=1)], task, baselines=True)
    assert np.all(np.abs(found.theta - np.array([-8, -6, -4, -2])) < 4 * found.standard_error)
    np.testing.assert_allclose(found.protocol, found.theta, atol=0.5)
    assert np.isfinite(found.baselines[-1].theta).all()
    assert said(corridor(600), task) == ""


def test_without_discount_every_episode_must_end():
    task, log = fl.Value(1.0, features=OneHot(5, without=[4])), corridor(50)
    n = len(log["state"])
    shorter = {name: column[: n - 1] for name, column in log.items()}
    if shorter["terminated"][-1]:
        shorter = {name: column[: n - 2] for name, column in log.items()}
    with pytest.raises(SiteDataError, match=r"discount must be below 1 unless .* the last goes on at the end"):
        fl.fit([log, shorter], task, plan=False)
    cut = np.zeros(n)
    cut[np.flatnonzero(log["terminated"] == 0)[3]] = 1
    with pytest.raises(SiteDataError, match=r"site 0 has 51 episodes, of which 50 end .*: 'truncated' cuts"):
        fl.fit([log | {"truncated": cut}], task, plan=False)
    with pytest.raises(SiteDataError, match="of which 0 end"):
        fl.fit([walk(50)], fl.Value(1.0, features=OneHot(4)), plan=False)


def test_a_state_of_few_visits_is_hardly_determined():
    log = walk(2000, rare=0.01)
    visits = np.sum(log["state"] == 3)
    assert 3 <= visits <= 8
    text = said(log, fl.Value(0.5, features=OneHot(4)))
    assert "hardly determine the coefficient of 'state 3' (F = " in text
    F = float(text.split("F = ")[1].split(",")[0])
    assert visits / 2 < F < 2 * visits


def test_F_is_the_rows_over_the_variance_inflation_factor_in_least_squares():
    rng, n = np.random.default_rng(0), 20_000
    z = rng.normal(size=(n, 2))
    x = np.column_stack([z[:, 0], z[:, 0] + 0.1 * z[:, 1]])  # squared correlation 1 / 1.01
    found = determination([x[: n // 4], x[n // 4 :]], [1000, n])
    np.testing.assert_allclose(found, n / 101, rtol=0.45)  # 64 batches: a standard error of 18%
    np.testing.assert_allclose(determination([x[: n // 4], x[n // 4 :]], [7, 999, 4000]), found, rtol=1e-9)


def determination(sites, cuts):
    """F of sites that count by their rows, read in pieces."""
    n = np.array([len(x) for x in sites])
    out = Determination(sum(x.T @ x for x in sites) / n.sum(), n / n.sum(), n)
    for c, x in enumerate(sites):
        parts = [part for part in np.split(x, [k for k in cuts if k < len(x)]) if len(part)]
        assert sum(len(p.y) for p in out.watched(c, [Piece(x, x, np.ones(len(x))) for x in parts])) == len(x)
    return out.F


def test_values_that_look_further_ahead_than_any_log_say_so_unless_tasks_end():
    log, task = walk(500), fl.Value(0.999, features=OneHot(4))
    assert "nothing terminates, and discount 0.999 looks 1,000 steps ahead" in said(log, task)
    assert "terminates" not in said(log | {"terminated": (np.arange(500) % 50 == 0) * 1.0}, task)
    assert "terminates" not in said(log, fl.Value(0.99, features=OneHot(4)))


def test_importance_weights_that_leave_few_rows_or_do_not_average_one_say_so():
    task = fl.Value(0.9, features=OneHot(4))
    heavy = np.zeros(2000)
    heavy[::100] = 100.0
    assert "importance weights leave 20 effective rows of 2,000" in said(walk(2000) | {"importance": heavy}, task)
    half = np.random.default_rng(0).choice([0.2, 0.8], 2000)
    text = said(walk(2000) | {"importance": half}, task)
    assert f"importance weights must average 1, whatever the policies; they average {half.mean():.4g}" in text


def test_next_states_outside_the_states_are_said_to_be_extrapolated():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=400)
    log = {"state": x, "next_state": x + 2, "reward": x, "terminated": np.zeros(400)}
    assert "next states lie outside the states that were visited, in 'state': 'state' is from -0" in said(log, value())
    inside = log | {"next_state": np.where(np.arange(400) % 2, -x, x + 2), "terminated": 1.0 - np.arange(400) % 2}
    assert "outside" not in said(inside, value())  # where the task ends, no value is looked up


def test_rows_that_do_not_follow_one_another_say_so_where_a_trace_reaches_back():
    log = walk(2000)
    jump = np.arange(2000) % 100 == 99
    log["next_state"] = np.where(jump, (log["next_state"] + 1) % 4, log["next_state"])
    one = {"features": OneHot(4)}
    assert said(log, fl.Value(0.9, **one)) == ""
    text = said(log, fl.Value(0.9, 0.5, **one))
    assert "19 rows of 2,000 do not lead to the state in which the next one begins" in text  # the last has no next
    assert "trace 0.5 mixes episodes" in text
    assert said(log | {"truncated": jump * 1.0}, fl.Value(0.9, 0.5, **one)) == ""
    with pytest.warns(FedLSAWarning, match="Monte Carlo mixes episodes"):
        fl.fit([log], fl.Value(0.9, **one), plan=False, baselines=True)


def value():
    return fl.Value(0.5, intercept=True)


def test_facts_of_pieces_add_up_to_those_of_the_log():
    rng, n = np.random.default_rng(0), 40
    phi, after, rho = rng.normal(size=(n, 2)), rng.normal(size=(n, 2)), rng.uniform(size=n)
    ended, cut = rng.random(n) < 0.1, rng.random(n) < 0.2
    cut |= ended
    cut[-1] = False
    whole = LogFacts.of(phi, after, ended, cut, rho)
    parts = [LogFacts.of(phi[a:b], after[a:b], ended[a:b], cut[a:b], rho[a:b]) for a, b in ((0, 1), (1, 17), (17, n))]
    found = reduce(add, parts)
    assert (found.n, found.terminated, found.episodes) == (n, ended.sum(), cut.sum() + 1)
    for name in ("states", "following", "mass", "squares"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name))
    assert found.effective_rows == pytest.approx(rho.sum() ** 2 / (rho**2).sum())

"""Which columns a task reads: exact names before prefixes, the same at every site, and a hint for what is not there."""

import re

import numpy as np
import pandas as pd
import pytest

import fedlsa as fl
from fedlsa import Regression, Value
from fedlsa.errors import ArgumentError, SiteDataError
from fedlsa.fitting.rows import choose_columns
from fedlsa.fitting.sites import open_tables
from fedlsa.network.site import facts


def columns(task, *sites):
    return choose_columns(task, open_tables([dict.fromkeys(names.split(), np.ones(2)) for names in sites], task))


def value(**settings):
    return Value(discount=0.9, **settings)


def test_regression_takes_all_columns_but_the_target_or_those_that_are_named():
    assert columns(Regression("y"), "a y b").state == ("a", "b")
    assert columns(Regression("y", columns=["b", "a"]), "a y b c").state == ("b", "a")
    assert columns(Regression("y", columns="b"), "a y b").all == ("b", "y")


def test_the_order_of_columns_may_differ_between_sites():
    assert columns(Regression("y"), "a y b", "y b a").state == ("a", "b")


@pytest.mark.parametrize(
    ("task", "sites", "complaint"),
    [
        (Regression("y"), ["a b"], "site 0 has no column 'y'; it has a, b"),
        (Regression("Target"), ["a target"], "site 0 has no column 'Target'; did you mean 'target'?"),
        (Regression("y"), ["y"], "site 0 must have at least one column beside the target 'y'"),
        (Regression("y", columns=["a", "y"]), ["a y"], "site 0: the target 'y' must not be a feature as well"),
        (Regression("y", columns=["a", "a"]), ["a y"], "site 0: columns must be named once each; 'a' is named twice"),
        (Regression("y"), ["a b y", "a c y"], "site 1 lacks the column 'b' that site 0 has"),
        (Regression("y"), ["a y", "a b y"], "site 1 has a column 'b' that site 0 lacks; name the columns"),
    ],
)
def test_columns_of_a_regression_that_do_not_fit(task, sites, complaint):
    with pytest.raises(SiteDataError) as caught:
        columns(task, *sites)
    assert str(caught.value) == complaint


REST = "reward terminated"


def test_columns_with_a_prefix_stand_in_the_order_of_their_numbers():
    names = "state10 state2 next_state2 next_state10"
    found = columns(value(), f"{names} {REST}")
    assert found.state == ("state2", "state10")
    assert found.next_state == ("next_state2", "next_state10")


@pytest.mark.parametrize(
    ("state", "following", "names", "before", "after"),
    [
        ("state", "next_state", "state next_state", ("state",), ("next_state",)),
        ("state", "next_state", "state state_old next_state", ("state",), ("next_state",)),  # an exact name wins
        ("s", "s_next", "s s_next", ("s",), ("s_next",)),
        ("s_", "s_next_", "s_0 s_1 s_next_0 s_next_1", ("s_0", "s_1"), ("s_next_0", "s_next_1")),
        (
            "after_x",
            "after",
            "after_x0 after0",
            ("after_x0",),
            ("after0",),
        ),  # the next state may have the shorter prefix
        ("r", "n", "r0 n0", ("r0",), ("n0",)),  # "reward" begins with r as well
        (["p", "q"], ["v", "u"], "p q u v", ("p", "q"), ("v", "u")),
        ("s", ["s1", "s2"], "s3 s4 s1 s2", ("s3", "s4"), ("s1", "s2")),
    ],
)
def test_states_are_found_by_name_prefix_or_list(state, following, names, before, after):
    found = columns(value(state=state, next_state=following), f"{names} {REST}")
    assert (found.state, found.next_state) == (before, after)


def test_truncation_and_importance_may_be_missing_but_at_all_sites():
    names = f"state next_state {REST}"
    assert columns(value(), names).truncated is None
    assert columns(value(), names + " truncated").truncated == "truncated"
    assert columns(value(importance="rho"), names + " rho").importance == "rho"
    with pytest.raises(SiteDataError, match=r"site 1 has a column 'truncated' that site 0 lacks$"):
        columns(value(), names, names + " truncated")
    with pytest.raises(SiteDataError, match="site 1 lacks the column 'importance' that site 0 has"):
        columns(value(), names + " importance", names)


@pytest.mark.parametrize(
    ("sites", "complaint"),
    [
        (
            ["phi next_state reward terminated"],
            "site 0 has no column 'state', nor any that begins so, for state; it has",
        ),
        (["state0 state1 next_state0"], "site 0 has no column 'reward'"),
        (["state0 state1 next_state0 " + REST], r"as many columns of the next state .* 2 \(state0, state1\); got 1"),
        (["state0 next_state1 " + REST], "site 0 has 'state0' but no 'next_state0' for the next state"),
        (["state next_state reward done"], "site 0 has no column 'terminated'; it has state, next_state, reward, done"),
        (
            ["state0 next_state0 " + REST, "state0 state1 next_state0 next_state1 " + REST],
            "site 1 has a column 'state1' that site 0 lacks",
        ),
    ],
)
def test_columns_of_a_log_that_do_not_fit(sites, complaint):
    with pytest.raises(SiteDataError, match=complaint):
        columns(value(), *sites)


# names, not positions ------------------------------------------------------------------------------------------------

BY_HAND = {"step_size": 0.1, "local_steps": 2, "rounds": 300, "local": "means"}


def patients(seed=0, n=30):
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(2, 8, n), rng.gamma(2, 5, n)
    return pd.DataFrame({"age": age, "dose": dose, "response": 5 + 0.1 * age + 2 * dose + rng.normal(size=n)})


@pytest.fixture(scope="module")
def model():
    return fl.fit([patients(0), patients(1)], Regression("response"), **BY_HAND)


def test_values_and_hold_outs_are_matched_by_name(model):
    table = patients(2)
    expected = model.predict(table[["age", "dose"]].to_numpy())
    others = table.assign(weight=1.0, place="here")
    for given in (table[["dose", "age"]], others, table.to_dict("list"), {"dose": table["dose"], "age": table["age"]}):
        np.testing.assert_array_equal(model.predict(given), expected)
    (a,), (b,) = (fl.evaluate(model, [t]) for t in (table, table[["response", "dose", "age"]]))
    assert (a.rmse, a.r_squared) == (b.rmse, b.r_squared)
    words = "new must have the columns age, dose, in any order; got none called 'age'; did you mean 'Age'?"
    with pytest.raises(ArgumentError, match=re.escape(words)):
        model.predict(table.rename(columns={"age": "Age"}))
    with pytest.raises(SiteDataError, match="new must have each column once; 'age' appears 2 times"):
        model.predict(table[["age", "age", "dose"]])


def test_states_of_a_feature_map_are_matched_by_name():
    rng = np.random.default_rng(0)
    log = {"x": rng.uniform(size=40), "y": rng.uniform(size=40), "reward": rng.normal(size=40)}
    log |= {"x2": np.roll(log["x"], -1), "y2": np.roll(log["y"], -1), "terminated": np.zeros(40)}
    task = value(
        state=["x", "y"], next_state=["x2", "y2"], features=fl.problems.features.Fourier((0, 0), (1, 1), order=1)
    )
    found = fl.fit([log], task, lag=0, **BY_HAND)
    assert found.columns == ("x", "y")
    points = np.column_stack([log["x"], log["y"]])
    np.testing.assert_array_equal(found.predict(log), found.predict(points))
    np.testing.assert_array_equal(found.predict({"y": log["y"], "x": log["x"]}), found.predict(points))


def test_data_frames_in_tuples_keep_their_names(model):
    a, b = patients(0), patients(1)
    mixed = [(a[["age", "dose"]], a["response"]), (b[["dose", "age"]], b["response"])]
    found = fl.fit(mixed, Regression("response"), **BY_HAND)
    np.testing.assert_array_equal(found.theta, model.theta)
    with pytest.raises(SiteDataError, match="X must have the columns age, dose; got age, weight"):
        fl.fit([(a[["age"]].assign(weight=1.0), a["response"])], Regression("response", columns=["age", "dose"]))
    with pytest.raises(ArgumentError, match="must have the same columns in the same order in every table, age, dose"):
        fl.problems.regression(mixed)
    log = [(a[["age", "dose"]], a["response"], a[["dose", "age"]], np.zeros(30))]
    assert columns_of_log(log[0]).next_state == ("next_state_age", "next_state_dose")
    with pytest.raises(ArgumentError, match="phi and phi_next in logs must have the same columns in the same order"):
        fl.problems.from_transitions(log, 0.9)


def columns_of_log(entry):
    return choose_columns(value(), open_tables([entry], value()))


@pytest.mark.parametrize(("index", "shown"), [("", "without a name"), ("Unnamed: 0", "'Unnamed: 0'"),
                                              ("__index_level_0__", "'__index_level_0__'")])  # fmt: skip
def test_an_index_is_not_a_feature_unless_it_is_named(index, shown):
    sites = open_tables([{index: np.arange(2), "a": np.ones(2), "y": np.ones(2)}], Regression("y"))
    with pytest.raises(SiteDataError, match=rf"site 0 has a column {shown}, as an index is written: .*index=False"):
        choose_columns(Regression("y"), sites)
    assert choose_columns(Regression("y", columns="a"), sites).state == ("a",)


def test_a_file_with_an_index_is_refused(tmp_path):
    patients().to_csv(tmp_path / "a.csv")
    with pytest.raises(SiteDataError, match=r"a\.csv has a column without a name"):
        fl.fit([tmp_path / "a.csv"], Regression("response"), **BY_HAND)


def test_columns_of_states_are_named_once():
    for names in ({"state": ["a", "a"], "next_state": ["b", "c"]}, {"state": ["a"], "next_state": ["a"]}):
        with pytest.raises(SiteDataError, match="columns of state and next_state must be named once; 'a' is twice"):
            columns(value(**names), f"a b c {REST}")


def test_integer_states_are_asked_about():
    log = {"state": [0, 1, 2, 1, 0, 2], "next_state": [1, 2, 1, 0, 2, 0], "reward": [1.0, 0, 2, 1, 0, 1]}
    log |= {"terminated": np.zeros(6)}
    with pytest.raises(SiteDataError, match=r"column 'state' holds integers alone.*OneHot.*numbers must be given"):
        fl.fit([log, log], value(), lag=0, **BY_HAND)
    with pytest.raises(SiteDataError, match="holds integers alone"):
        facts.view(open_tables([log], value())[0], value())  # a site of a network
    numbers = fl.fit([log], value(numbers=True), lag=0, **BY_HAND)
    assert numbers.names == ("state",)
    for new in ([0, 2], [[0], [2]], {"state": [0, 2]}):  # as states came
        np.testing.assert_allclose(numbers.predict(new), [0.0, 2 * numbers.theta[0]])
    assert len(fl.fit([log], value(features=fl.problems.features.OneHot(3)), lag=0, **BY_HAND).theta) == 3
    half = log | {"state": [0, 1, 2, 1, 0, 0.5]}
    assert fl.fit([log, half], value(), lag=0, **BY_HAND).names == ("state",)

"""Which columns a task reads: exact names before prefixes, the same at every site, and a hint for what is not there."""

import numpy as np
import pytest

from fedlsa import Regression, Value
from fedlsa.errors import SiteDataError
from fedlsa.fit.columns import chosen
from fedlsa.fit.sites import open_sites


def columns(task, *sites):
    return chosen(task, open_sites([dict.fromkeys(names.split(), np.ones(2)) for names in sites], task))


def value(**settings):
    return Value(discount=0.9, **settings)


def test_regression_takes_all_columns_but_the_target_or_those_that_are_named():
    assert columns(Regression("y"), "a y b").state == ("a", "b")
    assert columns(Regression("y", features=["b", "a"]), "a y b c").state == ("b", "a")
    assert columns(Regression("y", features="b"), "a y b").all == ("b", "y")


def test_the_order_of_columns_may_differ_between_sites():
    assert columns(Regression("y"), "a y b", "y b a").state == ("a", "b")


@pytest.mark.parametrize(
    ("task", "sites", "complaint"),
    [
        (Regression("y"), ["a b"], "site 0 has no column 'y'; it has a, b"),
        (Regression("Target"), ["a target"], "site 0 has no column 'Target'; did you mean 'target'?"),
        (Regression("y"), ["y"], "site 0 must have at least one column beside the target 'y'"),
        (Regression("y", features=["a", "y"]), ["a y"], "site 0: the target 'y' must not be a feature as well"),
        (Regression("y", features=["a", "a"]), ["a y"], "site 0: features must be named once each; 'a' is named twice"),
        (Regression("y"), ["a b y", "a c y"], "site 1 lacks the column 'b' that site 0 has"),
        (Regression("y"), ["a y", "a b y"], "site 1 has a column 'b' that site 0 lacks; name the features"),
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

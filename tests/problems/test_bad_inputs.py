"""Every argument is checked at once: the right exception, and a message with name, rule and value."""

import numpy as np
import pytest

from fedlsa.errors import ArgumentError, ArgumentTypeError, UnknownNameError
from fedlsa.problems import Log, from_mdps, from_observations, from_transitions, garnet, regression

GARNET = [
    ({"agents": 0}, ArgumentError, "agents must be a positive integer; got 0"),
    ({"agents": 2.5}, ArgumentTypeError, "agents must be a positive integer; got 2.5"),
    ({"agents": True}, ArgumentTypeError, "agents must be a positive integer; got True"),
    ({"states": -1}, ArgumentError, "states must be a positive integer; got -1"),
    ({"actions": 0}, ArgumentError, "actions must be a positive integer; got 0"),
    ({"actions": 1, "preset": "authors"}, ArgumentError, "actions must be an integer of at least 2; got 1"),
    ({"branching": 31}, ArgumentError, "branching must be a positive integer and at most 30; got 31"),
    ({"features": 0}, ArgumentError, "features must be a positive integer; got 0"),
    ({"discount": 1}, ArgumentError, "discount must be a finite number at least 0 and below 1; got 1"),
    ({"discount": float("nan")}, ArgumentError, "discount must be a finite number at least 0 and below 1; got nan"),
    ({"discount": "0.9"}, ArgumentTypeError, "discount must be a finite number at least 0 and below 1; got '0.9'"),
    ({"heterogeneous": 1}, ArgumentTypeError, "heterogeneous must be True or False; got 1"),
    ({"perturbation": -0.1}, ArgumentError, "perturbation must be a finite number at least 0; got -0.1"),
    ({"preset": "author"}, UnknownNameError, "got 'author'; did you mean 'authors'?"),
    ({"preset": 3}, ArgumentTypeError, "preset must be one of 'paper', 'authors'; got 3"),
    ({"seed": -1}, ArgumentError, "seed must be a non-negative integer; got -1"),
    ({"seed": None}, ArgumentTypeError, "seed must be a non-negative integer; got None"),
    ({"weights": [1, 2]}, ArgumentError, "weights must be an array of finite numbers of shape (100,); got shape (2,)"),
    ({"agents": 2, "weights": [1, 0]}, ArgumentError, "weights must be positive; got 0 for agent 1"),
    ({"agents": 2, "weights": [1, np.inf]}, ArgumentError, "weights must be an array of finite numbers"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), GARNET)
def test_garnet_refuses(arguments, error, message):
    with pytest.raises(error) as caught:
        garnet(**arguments)
    assert type(caught.value) is error
    assert message in str(caught.value)


def uniform():
    return {
        "P": np.full((2, 3, 2, 3), 1 / 3),
        "r": np.zeros((2, 3, 2)),
        "policy": np.full((3, 2), 0.5),
        "features": np.eye(3),
        "discount": 0.9,
    }


def bad_kernel(value):
    P = uniform()["P"]
    P[1, 2, 0, 0] = value
    return P


ENDS, BEGINS = [False, False, True], [0.5, 0.5, 0]
MDPS = [
    (
        {"P": bad_kernel(0.5)},
        ArgumentError,
        "P must sum to one over its last axis; got a sum of 1.166666667 at [1, 2, 0]",
    ),
    ({"P": bad_kernel(-0.5)}, ArgumentError, "P must hold probabilities of at least 0; got -0.5 at [1, 2, 0, 0]"),
    ({"P": bad_kernel(np.nan)}, ArgumentError, "P must be an array of finite numbers"),
    ({"P": np.full((3, 2, 3), 1 / 3)}, ArgumentError, "shape (M, S, A, S); got shape (3, 2, 3)"),
    ({"P": np.full((2, 3, 2, 4), 1 / 4)}, ArgumentError, "shape (M, S, A, S); got shape (2, 3, 2, 4)"),
    ({"P": "kernel"}, ArgumentTypeError, "P must be an array of finite numbers of shape (M, S, A, S); got 'kernel'"),
    ({"P": np.zeros((0, 3, 2, 3))}, ArgumentError, "P must hold at least one probability; got shape (0, 3, 2, 3)"),
    (
        {"r": np.zeros((2, 3))},
        ArgumentError,
        "r must be an array of finite numbers of shape (2, 3, 2); got shape (2, 3)",
    ),
    ({"policy": np.full((3, 2), 0.6)}, ArgumentError, "policy must sum to one over its last axis; got a sum of 1.2"),
    ({"features": np.eye(4)}, ArgumentError, "features must be an array of finite numbers of shape (3, d); got"),
    (
        {"features": np.zeros((3, 0))},
        ArgumentError,
        "features must have at least one row and one column; got shape (3, 0)",
    ),
    ({"features": [[1, 2], [3]]}, ArgumentTypeError, "features must be an array of finite numbers"),
    ({"discount": 1.5}, ArgumentError, "discount must be a finite number at least 0 and below 1; got 1.5"),
    ({"terminal": ENDS}, ArgumentError, "initial must be a law over the states when terminal is given; got None"),
    ({"terminal": [2], "initial": BEGINS}, ArgumentError, "terminal must be an array of finite numbers of shape (3,)"),
    (
        {"terminal": [0, 1, 2], "initial": BEGINS},
        ArgumentError,
        "terminal must hold booleans (or 0 and 1); got 2 at [2]",
    ),
    ({"terminal": ENDS, "initial": [0.5, 0.4, 0]}, ArgumentError, "initial must sum to one"),
    ({"terminal": ENDS, "initial": [0, 0, 1]}, ArgumentError, "got 1 for state 2 of P[0]"),
    ({"initial": [[1, 0], [0]]}, ArgumentTypeError, "initial must be an array"),
    ({"assignment": [0, 2]}, ArgumentError, "assignment must hold table numbers from 0 to 1; got 2"),
    ({"assignment": [0, 0.5]}, ArgumentError, "assignment must hold table numbers from 0 to 1; got 0.5"),
    ({"assignment": []}, ArgumentError, "assignment must hold table numbers from 0 to 1; got an empty array"),
    ({"weights": [1, -2]}, ArgumentError, "weights must be positive; got -2 for agent 1"),
]


@pytest.mark.parametrize(("changes", "error", "message"), MDPS)
def test_from_mdps_refuses(changes, error, message):
    with pytest.raises(error) as caught:
        from_mdps(**{**uniform(), **changes})
    assert type(caught.value) is error
    assert message in str(caught.value)


X, Y = np.eye(2), np.ones(2)
LOG = (X, Y, X, [False, False])
RECORD = ([0, 1], [0, 0], Y, [1, 0], [False, False], [False, True])
ENDLESS = []
ENDLESS.append(ENDLESS)
PROB, MATRICES, VECTORS = [0.5, 0.5], np.stack([X, X]), np.ones((2, 2))
NAN = np.array([[1, np.nan], [0, 1]])

LISTS = [
    (regression, ([],), ArgumentError, "sites must hold at least one table; got an empty list"),
    (regression, (3,), ArgumentTypeError, "sites must be a list of tuples (X, y), one per table; got 3"),
    (regression, ((X, Y),), ArgumentTypeError, "sites[0] must be a tuple (X, y); got an array of shape (2, 2)"),
    (regression, ([(X, Y), (X,)],), ArgumentError, "sites[1] must be a tuple (X, y); got 1 entries"),
    (regression, ([(X, Y), (np.eye(3), Y)],), ArgumentError, "X in sites[1] must be an array of finite numbers"),
    (regression, ([(X, Y), (X, [1, 2, 3])],), ArgumentError, "y in sites[1] must be an array of finite numbers of"),
    (regression, ([(X, Y), (NAN, Y)],), ArgumentError, "got nan at [0, 1]"),
    (regression, ([(X, Y), (np.zeros((0, 2)), [])],), ArgumentError, "X in sites[1] must have at least one row"),
    (regression, ([(X, ["a", "b"])],), ArgumentTypeError, "y in sites[0] must be an array of finite numbers of"),
    (regression, ([(X, Y)], -1), ArgumentError, "ridge must be a finite number at least 0; got -1"),
    (regression, ([(X, Y)], "big"), ArgumentTypeError, "ridge must be a finite number at least 0; got 'big'"),
    (from_transitions, ({}, 0.9), ArgumentTypeError, "logs must be a list of tuples (phi, r, phi_next, terminated,"),
    (from_transitions, ([LOG[:3]], 0.9), ArgumentError, "logs[0] must be a tuple"),
    (from_transitions, ([LOG, (*LOG, [0, 2])], 0.9), ArgumentError, "truncated in logs[1] must hold booleans"),
    (from_transitions, ([(X, Y, np.eye(3), [0, 0])], 0.9), ArgumentError, "phi_next in logs[0] must be an array"),
    (from_transitions, ([(X, Y, X, [0])], 0.9), ArgumentError, "terminated in logs[0] must be an array"),
    (from_transitions, ([LOG, (X[:0], [], X[:0], [])], 0.9), ArgumentError, "phi in logs[1] must have at least one"),
    (from_transitions, ([LOG], 1.0), ArgumentError, "discount must be a finite number at least 0 and below 1; got 1"),
    (from_transitions, ([LOG], 0.9, 1.1), ArgumentError, "trace must be a finite number at least 0 and at most 1; got"),
    (Log, (ENDLESS, *RECORD[1:]), ArgumentTypeError, "state must be an array of numbers; got [[...]]"),
    (Log, (["a", "b"], *RECORD[1:]), ArgumentError, "state must be numbers, one row for each of 2 rewards; got an"),
    (Log, (*RECORD[:3], np.zeros(3), *RECORD[4:]), ArgumentError, "next_state must be numbers, one row for each of 2"),
    (Log, (*RECORD[:2], ENDLESS, *RECORD[3:]), ArgumentTypeError, "reward must be an array of finite numbers of shape"),
    (Log, (*RECORD[:4], [0, 3], [0, 1]), ArgumentError, "terminated must hold booleans (or 0 and 1); got 3 at [1]"),
    (Log, (*RECORD, [1.0]), ArgumentError, "importance must be an array of finite numbers of shape (2,); got shape (1"),
    (from_observations, ([],), ArgumentError, "tables must hold at least one table; got an empty list"),
    (from_observations, ([([0.5, 0.4], MATRICES, VECTORS)],), ArgumentError, "prob in tables[0] must sum to one"),
    (from_observations, ([([], X, Y)],), ArgumentError, "prob in tables[0] must hold at least one probability"),
    (from_observations, ([(PROB, X, VECTORS)],), ArgumentError, "A in tables[0] must be an array of finite numbers of"),
    (
        from_observations,
        ([(PROB, MATRICES, Y)],),
        ArgumentError,
        "b in tables[0] must be an array of finite numbers of",
    ),
]


@pytest.mark.parametrize(("constructor", "arguments", "error", "message"), LISTS)
def test_constructors_from_lists_refuse(constructor, arguments, error, message):
    with pytest.raises(error) as caught:
        constructor(*arguments)
    assert type(caught.value) is error
    assert message in str(caught.value)

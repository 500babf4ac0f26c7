"""The table of routes: what it names exists, and results name its rows."""

import importlib

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.theory import stationary_pairs
from fedlsa.theory.linear import Squares, at_rounds, repeat
from fedlsa.theory.routes import CURVES, LIMITS, table

TWO = fl.problems.garnet(agents=2, states=3, features=2, seed=1)
SIX = fl.problems.garnet(agents=6, states=8, features=3, seed=2)
ONE_OUTCOME = fl.problems.from_observations([([1.0], A[None], np.ones((1, 2))) for A in (np.eye(2), 2 * np.eye(2))])


@pytest.mark.parametrize(
    ("row", "problem", "a", "rounds", "sampling"),
    [
        (0, TWO, fl.FedLSA(0.1, 2), 9, fl.IID()),
        (0, ONE_OUTCOME, fl.FedLSA(0.1, 2), 9, fl.IID()),
        (1, TWO, fl.FedLSA(0.1, 2, average_after=3), 9, fl.IID()),
        (1, TWO, fl.FedLSA(fl.PowerStep(0.1, 0.5), 2), 9, fl.IID()),
        (2, TWO, fl.SCAFFLSA(0.1, 2), 200, fl.IID()),
        (2, TWO, fl.Scaffnew(0.1, 0.5), 200, fl.IID()),
        (3, TWO, fl.SCAFFLSA(0.1, 2), 9, fl.IID()),
        (3, TWO, fl.SCAFFLSA(10.0, 2), 200, fl.IID()),  # without a limit
        (3, ONE_OUTCOME, fl.SCAFFLSA(0.1, 2), 200, fl.IID()),
        (3, TWO, fl.Scaffnew(fl.PowerStep(0.1, 0.5), 0.5), 200, fl.IID()),
        (4, TWO, fl.SCAFFLSA(0.1, 2), 3, fl.Markov()),
        (5, SIX, fl.FedLSA(0.1, 2), 3, fl.Markov()),
    ],
)
def test_a_curve_names_the_first_row_that_suits_it(row, problem, a, rounds, sampling):
    found = fl.theory.exact(problem, a, rounds, sampling=sampling, record=[0, rounds])
    assert found.attrs["route"] == CURVES[row].name
    assert isinstance(a, CURVES[row].methods)
    assert isinstance(sampling, CURVES[row].sampling)


@pytest.mark.parametrize("row", [*CURVES, *LIMITS], ids=lambda row: f"{row.name}, {row.routine}")
def test_every_row_names_a_routine_that_exists(row):
    module, name = row.routine.split(".")
    assert hasattr(importlib.import_module(f"fedlsa.theory.{module}"), name)


def test_limits_name_rows_of_the_table():
    names = {row.name for row in LIMITS}
    assert set(stationary_pairs.ROUTES) <= names
    assert {fl.theory.stationary(p, fl.FedLSA(0.1, 2)).route for p in (TWO, ONE_OUTCOME)} == {"linear system", "means"}
    assert {"linear system", "means"} <= names


def test_the_table_is_markdown_with_a_line_for_each_row():
    head, rule, *lines = table().splitlines()
    assert len(lines) == len(CURVES) + len(LIMITS)
    assert {line.count(" | ") for line in (head, *lines)} == {7}
    assert set(rule) == {"|", "-"}


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 1000])
def test_a_step_is_repeated_in_the_order_of_time(n):
    """Affine maps x -> a x + b, which do not commute."""
    step = (0.5, 3.0)

    def then(first, later):
        return later[0] * first[0], later[0] * first[1] + later[1]

    slow = step
    for _ in range(n - 1):
        slow = then(slow, step)
    x = 2.0
    for a, b in Squares(step, then).of(n):
        x = a * x + b
    assert repeat(step, n, then) == pytest.approx(slow, rel=1e-14)
    assert x == pytest.approx(slow[0] * 2.0 + slow[1], rel=1e-14)


def test_rounds_beyond_the_last_state_show_it():
    (values,) = at_rounds(iter([10, 11, 12]), np.array([0, 2, 5]), lambda state: (state,))
    assert values.tolist() == [10, 12, 12]

"""How a result was found: the route that it names is the first that suits it, and a row of the documentation."""

import csv
import importlib
from pathlib import Path

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.theory import stationarity
from fedlsa.theory.linear import Squares, at_rounds, repeat

TWO = fl.problems.garnet(agents=2, states=3, features=2, seed=1)
SIX = fl.problems.garnet(agents=6, states=8, features=3, seed=2)
ONE_OUTCOME = fl.problems.from_observations([([1.0], A[None], np.ones((1, 2))) for A in (np.eye(2), 2 * np.eye(2))])
with open(Path(__file__).parents[2] / "src" / "fedlsa" / "theory" / "routes.csv", newline="", encoding="utf8") as file:
    TABLE = list(csv.DictReader(file))


def rows(result, route, method, sampling):
    """Those of the table that speak of it."""
    of = [row for row in TABLE if (row["result"], row["route"]) == (result, route)]
    return [row for row in of if method in row["methods"].split(", ") and row["sampling"] == type(sampling).__name__]


@pytest.mark.parametrize(
    ("route", "problem", "a", "rounds", "sampling"),
    [
        ("powers of a round", TWO, fl.FedLSA(0.1, 2), 9, fl.IID()),
        ("powers of a round", ONE_OUTCOME, fl.FedLSA(0.1, 2), 9, fl.IID()),
        ("round by round", TWO, fl.FedLSA(0.1, 2, average_after=3), 9, fl.IID()),
        ("round by round", TWO, fl.FedLSA(fl.PowerStep(0.1, 0.5), 2), 9, fl.IID()),
        ("Krylov spaces", TWO, fl.SCAFFLSA(0.1, 2), 200, fl.IID()),
        ("Krylov spaces", TWO, fl.Scaffnew(0.1, 0.5), 200, fl.IID()),
        ("round by round", TWO, fl.SCAFFLSA(0.1, 2), 9, fl.IID()),
        ("round by round", TWO, fl.SCAFFLSA(10.0, 2), 200, fl.IID()),  # without a limit
        ("round by round", ONE_OUTCOME, fl.SCAFFLSA(0.1, 2), 200, fl.IID()),
        ("round by round", TWO, fl.Scaffnew(fl.PowerStep(0.1, 0.5), 0.5), 200, fl.IID()),
        ("joint law, round by round", TWO, fl.SCAFFLSA(0.1, 2, average_after=3), 9, fl.IID()),
        ("states of chains", TWO, fl.SCAFFLSA(0.1, 2), 3, fl.Markov()),
        ("pairs of agents", SIX, fl.FedLSA(0.1, 2), 3, fl.Markov()),
    ],
)
def test_a_curve_names_the_first_route_that_suits_it(route, problem, a, rounds, sampling):
    found = fl.theory.exact(problem, a, rounds, sampling=sampling, record=[0, rounds])
    assert found.attrs["route"] == route
    assert len(rows("curve", route, type(a).__name__, sampling)) == 1


@pytest.mark.parametrize(
    ("route", "problem", "a"),
    [
        ("linear system", TWO, fl.FedLSA(0.1, 2)),
        ("means", ONE_OUTCOME, fl.FedLSA(0.1, 2)),
        ("modes", TWO, fl.SCAFFLSA(0.1, 2)),
        ("modes", TWO, fl.Scaffnew(0.1, 0.5)),
        ("krylov", TWO, fl.SCAFFLSA(0.1, 2, participants=1)),
    ],
)
def test_a_limit_names_the_first_route_that_suits_it(route, problem, a):
    assert fl.theory.stationary(problem, a).route == route
    assert len(rows("limit", route, type(a).__name__, fl.IID())) == 1


def test_the_table_of_routes_names_all_limits_and_routines_that_exist():
    assert {*stationarity.ROUTES, "linear system", "means", "joint law"} == {
        r["route"] for r in TABLE if r["result"] == "limit"
    }
    for row in TABLE:
        module, _, name = f"fedlsa.{row['routine'].strip('`')}".rpartition(".")
        whole, _, owner = module.rpartition(".")
        where = importlib.import_module(module if owner.islower() else whole)
        assert hasattr(where if owner.islower() else getattr(where, owner), name), row


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

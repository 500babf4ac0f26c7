"""Warnings stand at the line that called the library, and those of divergence say what to do."""

import re
import warnings

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import DivergenceWarning, TheoryWarning

RING = fl.problems.ring(agents=3)
WILD = fl.FedLSA(9.0, 5)
RUN = {"rounds": 200, "seeds": 2, "engine": "reference"}
CALLS = {
    "simulate": lambda: fl.simulate(RING, WILD, **RUN),
    "simulate_grid": lambda: fl.simulate_grid(RING, [WILD, fl.FedLSA(0.1, 5)], **RUN),
    "sweep": lambda: fl.sweep({"a": RING}, fl.FedLSA, step_size=[0.1, 9.0], local_steps=5, **RUN),
    "resume": lambda: fl.resume(fl.simulate(RING, WILD, 2, 2, engine="reference", keep=("theta", "state")), 200),
    "bound": lambda: fl.theory.bound(RING, fl.FedLSA(0.9, 5), 3),
}


def first_warning(call):
    with pytest.warns((DivergenceWarning, TheoryWarning)) as caught:
        call()
    return caught[0]


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_stands_at_the_line_of_the_call(name):
    given = first_warning(CALLS[name])
    assert (given.filename, given.lineno) == (__file__, CALLS[name].__code__.co_firstlineno)


def test_a_warning_passes_by_the_decorators_of_our_functions():
    with np.errstate(all="ignore"):
        called = np.errstate(all="ignore")(lambda: fl.simulate(RING, WILD, **RUN))
        assert first_warning(called).filename == __file__


def test_a_divergence_names_the_stability_limit_where_it_is_soon_known():
    text = str(first_warning(CALLS["simulate"]).message)
    label = re.escape("runs diverged: FedLSA(step_size=9.0, local_steps=5) (2 of 2 seeds, from round ")
    found = re.fullmatch(
        label + r"\d+ on\): try a smaller step_size, below the stability limit of about ([\d.]+)", text
    )
    assert float(found[1]) == pytest.approx(fl.theory.stability_limit(RING, WILD), rel=6e-3)


def test_where_no_step_size_is_stable_the_warning_says_so():
    away = fl.problems.from_observations([([1.0], [[[-1.0]]], [[1.0]])])
    text = str(first_warning(lambda: fl.simulate(away, fl.FedLSA(1.0, 5), 400, 1, engine="reference")).message)
    assert text.endswith(": no step_size was found to be stable")


class Own(fl.FedLSA):
    """A method of which no theory speaks."""


@pytest.mark.parametrize(
    ("problem", "method", "sampling"),
    [
        (RING, Own(9.0, 5), fl.IID()),
        (RING, fl.FedLSA(fl.PowerStep(9.0, 0.01), 5), fl.IID()),
        (fl.problems.garnet(agents=4, states=5, features=2, seed=0), fl.FedLSA(50.0, 5), fl.Markov()),
        (fl.problems.garnet(agents=30, seed=0), fl.FedLSA(50.0, 5), fl.IID()),  # too large to be soon known
    ],
)
def test_where_the_limit_is_not_known_none_is_named(problem, method, sampling):
    with pytest.warns(DivergenceWarning, match=": try a smaller step_size$"):
        fl.simulate(problem, method, rounds=400, seeds=1, sampling=sampling)


def test_nothing_is_said_of_runs_that_do_not_diverge():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fl.simulate(RING, fl.FedLSA(0.01, 5), rounds=20, seeds=2, engine="reference")

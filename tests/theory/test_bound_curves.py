"""A bound at many rounds is the bound at each of them, and constants are computed once for a problem."""

from __future__ import annotations

import copy
import gc
import importlib
import pickle
import warnings
import weakref

import numpy as np
import pytest
from tables import well_conditioned

import fedlsa as fl
from fedlsa.errors import ArgumentError, TheoryWarning

ROUNDS = [0, 1, 2, 7, 40, 41, 1000]


def garnet(seed=3):
    return fl.problems.garnet(agents=2, states=4, features=2, discount=0.5, perturbation=0.0, seed=seed)


def agree(curve, points):
    """A curve against single bounds; what does not depend on rounds is the same."""
    assert curve.value.shape == curve.mse.shape == (len(points),)
    for i, one in enumerate(points):
        assert isinstance(one.value, float)
        assert curve.value[i] == pytest.approx(one.value, rel=1e-12)
        assert curve.mse[i] == pytest.approx(one.mse, rel=1e-9)
        assert {k: v[i] for k, v in curve.terms.items()} == pytest.approx(one.terms, rel=1e-12)
        assert (curve.conditions, curve.numbers, curve.label) == (one.conditions, one.numbers, one.label)
        assert one.rounds == curve.rounds[i]


@pytest.mark.filterwarnings("ignore::fedlsa.errors.TheoryWarning")
@pytest.mark.parametrize("algorithm", [fl.FedLSA(0.05, 7), fl.SCAFFLSA(1e-4, 3), fl.Scaffnew(0.01, 0.3)])
@pytest.mark.parametrize("problem", [well_conditioned(0, 3), garnet()], ids=["tables", "garnet"])
def test_a_curve_is_the_bound_at_each_of_its_rounds(problem, algorithm):
    start = problem.theta_star + np.array([3.0, -1.0])
    curve = fl.theory.bound(problem, algorithm, ROUNDS, start)
    agree(curve, [fl.theory.bound(problem, algorithm, t, start) for t in ROUNDS])


@pytest.mark.filterwarnings("ignore::fedlsa.errors.TheoryWarning")
def test_curves_on_trajectories_and_with_the_constants_of_the_claim_too():
    problem, method = garnet(), fl.FedLSA(0.05, 12)
    curve = fl.theory.bound(problem, method, ROUNDS, sampling=fl.Markov(thin=3))
    agree(curve, [fl.theory.bound(problem, method, t, sampling=fl.Markov(thin=3)) for t in ROUNDS])
    agree(fl.theory.td_bound(problem, method, ROUNDS), [fl.theory.td_bound(problem, method, t) for t in ROUNDS])
    curve = fl.theory.markov_bound(problem, method, ROUNDS, 3)
    agree(curve, [fl.theory.markov_bound(problem, method, t, 3) for t in ROUNDS])


@pytest.mark.parametrize("record", [2, 5, 200, [0, 3, 50], np.array([1, 60])])
def test_equal_record_gives_equal_rounds_in_simulate_exact_and_bound(record):
    problem, method = garnet(), fl.FedLSA(0.05, 3)
    rounds = fl.theory.bound(problem, method, 60, record=record).rounds
    np.testing.assert_array_equal(rounds, fl.theory.exact(problem, method, 60, record=record)["rounds"])
    np.testing.assert_array_equal(rounds, fl.simulate(problem, method, 60, seeds=1, record=record)["rounds"])


def test_without_stability_a_curve_is_nan_and_one_warning_says_so():
    problem = fl.problems.from_observations([([1.0], [[[1.0, 9.0], [0.0, 1.0]]], [[1.0, 1.0]])])
    with pytest.warns(TheoryWarning, match="exist") as caught:
        curve = fl.theory.bound(problem, fl.FedLSA(0.01, 3), [1, 10, 100])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert np.isnan(curve.value).all()


def test_bad_rounds_are_named():
    problem, method = well_conditioned(0, 3), fl.FedLSA(0.05, 3)
    for bad, rule in (([], "at least one round"), ([3, 3], "increasing order"), ([5, 3], "at most 3")):
        with pytest.raises(ArgumentError, match=rule):
            fl.theory.bound(problem, method, bad)
    with pytest.raises(ArgumentError, match="rounds is a list"):
        fl.theory.bound(problem, method, [1, 2], record=5)
    with pytest.raises(ArgumentError, match="rounds must be a non-negative integer"):
        fl.theory.bound(problem, method, -1)


def test_constants_are_computed_once_for_a_problem_and_go_with_it(monkeypatch):
    module = importlib.import_module("fedlsa.theory.problem_constants")
    calls, compute = [], module._matrix_noise
    monkeypatch.setattr(module, "_matrix_noise", lambda problem: calls.append(problem) or compute(problem))
    problem = well_conditioned(7, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TheoryWarning)
        for method in (fl.FedLSA(0.05, 7), fl.SCAFFLSA(1e-3, 3), fl.Scaffnew(0.01, 0.3)):
            fl.theory.bound(problem, method, [1, 10])
    assert len(calls) == 1
    calls.clear()
    assert fl.theory.constants(problem) is fl.theory.constants(problem)
    assert not fl.theory.constants(problem).table_Sigma_A.flags.writeable
    gone = weakref.ref(problem)
    del problem
    gc.collect()
    assert gone() is None  # the problem holds its constants, nobody else does


def test_a_copied_or_pickled_problem_has_the_constants_of_its_own_tables():
    problem = well_conditioned(8, 3)
    known = fl.theory.constants(problem)
    for twin in (copy.deepcopy(problem), pickle.loads(pickle.dumps(problem))):
        assert fl.theory.constants(twin).problem is twin
        assert fl.theory.constants(twin).sigma_eps == known.sigma_eps

"""Skipping resolved to numbers, costs to a level, and the claims of `markov` at the quick scale."""

import math

import numpy as np
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.experiments import Cell, compute, tabulate
from fedlsa.experiments.computations import skipping
from fedlsa.experiments.skipping import inequivalence, rounds_to

SETTINGS = {
    "problem": {"agents": 2, "features": 8},
    "method": "fedlsa",
    "step_size": 0.1,
    "updates": 2,
    "rounds": 5,
    "record": 6,
}


@pytest.mark.filterwarnings("ignore::fedlsa.errors.TheoryWarning")
def test_the_theorems_block_is_its_own_block():
    p = fl.problems.garnet(agents=2, features=8)
    theorem = {"skip": "theorem", "planned_rounds": 100, "epsilon": 0.1}
    q = skipping(p, {"method": "fedlsa", "step_size": 0.1, "updates": 10, **theorem})
    assert q == fl.theory.markov_block(p, fl.FedLSA(0.1, 10 * q), 100, 0.1).q
    assert q > skipping(p, {"skip": "tau_mix"}) > skipping(p, {"skip": 1}) == 1


def test_a_round_takes_q_times_its_updates():
    got = compute(Cell("simulate", {**SETTINGS, "skip": "tau_mix", "seeds": 2}))
    q = int(got["q"])
    assert q == fl.theory.mixing_times(fl.problems.garnet(agents=2, features=8)).max()
    np.testing.assert_array_equal(got["samples"].values, np.tile(2 * q * np.arange(6), (2, 1)))
    same = fl.simulate(
        fl.problems.garnet(agents=2, features=8), fl.FedLSA(0.1, 2 * q), rounds=5, seeds=2, sampling=fl.Markov(q)
    )
    np.testing.assert_array_equal(got["theta"].values, same["theta"].values)


def test_rounds_to_a_level_lie_between_recorded_rounds_by_the_logarithm():
    curve = xr.Dataset({"mse": ("rounds", 100.0 ** -np.arange(4.0))}, coords={"rounds": [0, 10, 20, 30]})
    assert rounds_to(curve, 1e-3) == pytest.approx(15)
    assert rounds_to(curve, 2.0) == 0
    assert rounds_to(curve, 1e-9) == math.inf


def made_up(level, noise):
    """Ten seeds that scatter about a level by so much, beside an exact curve at 1."""
    error = level * (1 + noise * np.linspace(-1, 1, 10))[:, None] * np.ones(5)
    run = xr.Dataset({"squared_error": (("seed", "rounds"), error)}, coords={"rounds": range(5), "seed": range(10)})
    exact = xr.Dataset({"mse": ("rounds", np.ones(5))}, coords={"rounds": range(5)})
    place = {"problem": {"agents": 2}, "method": "fedlsa"}
    cells = [Cell("exact", place), *(Cell("simulate", {**place, "skip": skip}) for skip in ("tau_mix", "theorem"))]
    return inequivalence(tabulate(cells, lambda cell: exact if cell.kind == "exact" else run))


def test_errors_are_the_same_where_noise_is_small_enough_to_tell_and_only_there():
    assert made_up(1.05, 0.1) < 0.05
    assert made_up(1.05, 0.9) > 0.05  # noise hides the answer
    for level in (0.5, 1.25, 2.0):
        assert made_up(level, 0.1) > 0.05

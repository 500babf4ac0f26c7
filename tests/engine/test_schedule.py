"""The schedule: what a method, a sampling and a seed say of the rounds, the same in whatever pieces it is asked for."""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.engine.random import participants, uniforms
from fedlsa.engine.schedule import expected_updates, schedule

METHODS = [
    fl.FedLSA(0.1, 6),
    fl.SCAFFLSA(fl.PowerStep(0.3, 0.5), 6, participants=3),
    fl.Scaffnew(0.1, 0.3),
    fl.Scaffnew(fl.PowerStep(0.2, 0.1), 0.3, participation=0.5),
]
SEED = 2**63 + 5


@pytest.mark.parametrize("sampling", [fl.IID(), fl.Markov(thin=2), fl.Replay(thin=3)], ids=str)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_schedule_is_the_same_in_one_piece_and_in_several(method, sampling):
    whole = schedule(method, sampling, SEED, 12, 7)
    parts = [schedule(method, sampling, SEED, n, 7, first) for first, n in ((0, 1), (1, 4), (5, 7))]
    for name in ("observations", "step_sizes", "gains", "participants", "updates"):
        pieces = np.concatenate([getattr(p, name) for p in parts])
        np.testing.assert_array_equal(pieces, getattr(whole, name))
    assert [p.first for p in parts] == [0, 1, 5]


def test_rounds_are_those_that_the_method_states():
    plan = schedule(METHODS[1], fl.Markov(thin=2), SEED, 4, 7)
    assert plan.observations.tolist() == [6] * 4
    assert plan.updates.tolist() == [3] * 4
    np.testing.assert_array_equal(plan.step_sizes, 0.3 / np.sqrt(np.arange(1, 5)))
    np.testing.assert_allclose(plan.gains, 1 / (3 * plan.step_sizes), rtol=1e-15)
    drawn = np.empty((4, 3), np.int64)
    participants(np.uint64(SEED), 0, 7, drawn)
    assert [plan.active(t).tolist() for t in range(4)] == drawn.tolist()


def test_the_lengths_of_scaffnew_are_geometric_numbers_of_the_seed():
    plan = schedule(METHODS[2], fl.Markov(thin=2), SEED, 50, 7)
    u = uniforms(np.uint64(SEED), 0, 50)
    assert plan.updates.tolist() == [1 + int(np.log1p(-x) / np.log(0.7)) for x in u]
    assert (plan.observations == 2 * plan.updates).all()
    assert (plan.gains == 0.3 / 0.1).all()


def test_everyone_takes_part_unless_the_method_says_otherwise():
    plan = schedule(METHODS[0], fl.IID(), 0, 3, 7)
    assert plan.participants.shape == (3, 0)
    assert plan.active(2).tolist() == list(range(7))
    lengths_alone = schedule(METHODS[1], fl.IID(), 0, 3)
    assert lengths_alone.participants.shape == (3, 0)
    with pytest.raises(fl.errors.ArgumentError, match="participants must be at most the number of agents, 2; got 3"):
        schedule(METHODS[1], fl.IID(), 0, 3, 2)


def test_the_expected_cost_of_a_round_is_that_of_its_agents():
    assert expected_updates(METHODS[1], fl.IID(), 7) == 3 * 6
    assert expected_updates(METHODS[2], fl.IID(), 7) == pytest.approx(7 / 0.3, rel=0.05)

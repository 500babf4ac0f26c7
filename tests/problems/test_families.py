"""The ready-made families of environments: what they consist of, and what they refuse."""

import sys

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, MissingExtraError
from fedlsa.problems import families

gymnasium = pytest.importorskip("gymnasium")


def test_lakes_are_the_chains_of_frozen_lake_under_the_policy_along_the_shore():
    p = fl.problems.lakes(3, 0.5, 0.9, 0.9)
    policy = np.full((16, 4), 0.05)
    policy[np.arange(16), families.LAKE_WALK] += 0.8
    for c, rate in enumerate((0.5, 0.7, 0.9)):
        table = gymnasium.make("FrozenLake-v1", success_rate=rate).unwrapped.P
        P, r = np.zeros((16, 16)), np.zeros(16)
        for s in range(16):
            for a in range(4):
                for chance, t, reward, over in table[s][a]:
                    P[s, t] += 0 if over else policy[s, a] * chance
                    r[s] += policy[s, a] * chance * reward
        V = np.linalg.solve(np.eye(16) - 0.9 * P, r)
        for s in np.flatnonzero([cell in "SF" for cell in families.LAKE_MAP]):
            assert fl.theory.value_functions(p)[c, s] == pytest.approx(V[s], abs=1e-10)


def test_the_map_and_the_cells_leave_out_holes_and_the_goal():
    world = gymnasium.make("FrozenLake-v1").unwrapped
    assert b"".join(world.desc.ravel()).decode() == families.LAKE_MAP
    nothing = ~families.LAKE_CELLS(np.arange(16)).any(axis=1)
    np.testing.assert_array_equal(nothing, [cell in "HG" for cell in families.LAKE_MAP])


def test_a_lake_that_slips_more_is_worth_less_and_one_lake_has_the_lowest_rate():
    p = fl.problems.lakes()
    assert (p.n_agents, p.dim) == (20, 8)
    assert (np.diff(fl.theory.value_functions(p)[:, 0]) > 0).all()
    alone = fl.problems.lakes(agents=1)
    np.testing.assert_allclose(alone.theta_star, p.theta_star_local[0], rtol=1e-12)


def test_cartpoles_are_the_problem_of_their_logs_on_poles_of_equal_ratios():
    p = fl.problems.cartpoles(3, 0.25, 1.0, steps=150, seed=4)
    poles = [{"length": 0.25}, {"length": 0.5}, {"length": 1.0}]
    logs = fl.problems.rollout("CartPole-v1", families.controller, 150, seed=4, variations=poles)
    ours = families.cartpole_logs(3, 0.25, 1.0, 150, 4)
    for log, same in zip(logs, ours, strict=True):
        np.testing.assert_array_equal(log.state, same.state)
    by_hand = fl.problems.from_logs(logs, lambda s: families.POLE_BASIS(s[:, 2:]), 0.95)
    np.testing.assert_allclose(p.theta_star, by_hand.theta_star, rtol=1e-12)
    assert (p.n_agents, p.dim) == (3, 6)
    assert not np.allclose(p.theta_star, fl.problems.cartpoles(3, 0.25, 1.0, steps=150, seed=5).theta_star)


def test_a_family_can_be_made_again_from_its_recipe(monkeypatch):
    poles = fl.problems.cartpoles(2, steps=100, weights=[1, 2])
    np.testing.assert_array_equal(fl.problems.from_recipe(poles.recipe).theta_star, poles.theta_star)
    ice = fl.problems.lakes(3)
    monkeypatch.setitem(sys.modules, "gymnasium", None)  # lakes are exact: their chains are the recipe
    np.testing.assert_array_equal(fl.problems.from_recipe(ice.recipe).theta_star, ice.theta_star)


def test_weights_and_assignment_are_those_of_every_constructor():
    p = fl.problems.lakes(2, weights=[1, 1, 2], assignment=[0, 1, 1])
    assert p.n_agents == 3
    np.testing.assert_allclose(p.weights, [0.25, 0.25, 0.5])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fl.problems.lakes(0), "agents must be a positive integer; got 0"),
        (lambda: fl.problems.lakes(low=0.9, high=0.3), "low must be at most high, 0.3; got 0.9"),
        (lambda: fl.problems.lakes(high=1.1), "high must be a finite number above 0 and at most 1; got 1.1"),
        (lambda: fl.problems.lakes(low=0), "low must be a finite number above 0 and at most 1; got 0"),
        (lambda: fl.problems.lakes(discount=1), "discount must be .* below 1; got 1"),
        (lambda: fl.problems.cartpoles(low=-1), "low must be a finite number above 0; got -1"),
        (lambda: fl.problems.cartpoles(low=2), "low must be at most high, 1.5; got 2"),
        (lambda: fl.problems.cartpoles(discount=1.5), "discount must be .* below 1; got 1.5"),
        (lambda: fl.problems.cartpoles(2, steps=0), "steps must be a positive integer; got 0"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()


def test_arguments_of_the_wrong_type_are_named():
    with pytest.raises(ArgumentTypeError, match=r"agents must be a positive integer; got 2\.5"):
        fl.problems.lakes(2.5)
    with pytest.raises(ArgumentTypeError, match="steps must be a positive integer"):
        fl.problems.cartpoles(2, steps=[10, 20])
    with pytest.raises(ArgumentTypeError, match="seed must be a non-negative integer; got None"):
        fl.problems.cartpoles(2, seed=None)


@pytest.mark.parametrize("family", ["lakes", "cartpoles"])
def test_without_gymnasium_the_extra_is_named(family, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtraError, match=r"fedlsa\[gym\]"):
        getattr(fl.problems, family)(2)

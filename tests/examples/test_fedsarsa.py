"""The example on FedSARSA, at a small scale: it runs and draws, and its worlds are what they are said to be."""

import re
from pathlib import Path

import numpy as np
import pytest

import fedlsa as fl

gymnasium = pytest.importorskip("gymnasium")
import fedsarsa  # noqa: E402


@pytest.mark.long
def test_the_study_draws_and_control_variates_leave_less_than_averages(tmp_path, capsys, pictures):
    fedsarsa.main(tmp_path / "fedsarsa.png", steps=150_000, seeds=1)
    assert pictures == ["fedsarsa.png"]
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "LSA" in line]
    rows = {(name, int(N)): np.array(errors, float) for name, N, *errors in lines}
    assert rows["SCAFFLSA", 50][-1] < rows["FedLSA", 50][-1] / 5
    assert rows["SCAFFLSA", 50][0] < rows["SCAFFLSA", 2][0] / 2


def test_lakes_are_frozen_lakes():
    """The value of walking at random, against the library's own problem from the same environment."""
    worlds = fedsarsa.lakes([0.5, 0.9])
    assert worlds.features.shape == (16, 4, 44)
    cells = fl.problems.features.OneHot(16, without=[5, 7, 11, 12, 15])
    variations = [{"success_rate": 0.5}, {"success_rate": 0.9}]
    known = fl.theory.value_functions(
        fl.problems.from_gymnasium("FrozenLake-v1", "random", cells, 0.95, variations=variations)
    )
    for c in range(2):
        onward = worlds.P[c].mean(axis=1) * ~worlds.terminal
        V = np.linalg.solve(np.eye(16) - 0.95 * onward, (worlds.P[c] * worlds.r[c]).sum(axis=2).mean(axis=1))
        np.testing.assert_allclose(V[~worlds.terminal], known[c][~worlds.terminal], atol=1e-12)


def test_poles_move_as_gymnasium_says_and_cells_are_where_they_are():
    env = gymnasium.make("CartPole-v1").unwrapped
    env.length, env.polemass_length = 0.8, 0.08
    env.reset(seed=0)
    for action in (0, 1, 1, 0, 1):
        before = np.array(env.state, float)
        env.step(action)
        np.testing.assert_allclose(fedsarsa.push(*before, action, 0.8), np.array(env.state, float), rtol=1e-6)
    assert fedsarsa.cell(np.array([[-9.0, 0, 0, 0], [2.3, 2.9, 0.2, 2.9]]), (2, 1, 1, 2)).tolist() == [1, 3]


def test_a_pole_is_balanced_longer_by_what_was_learnt():
    """Rewards of an episode before and after learning, and the real CartPole under the policy that was found."""
    worlds, hopeful = fedsarsa.cartpoles([0.5], bins=(1, 1, 12, 12)), np.full(288, 20.0)  # so that all is tried
    settings = {"seeds": 4, "temperature": 0.1, "theta_0": hopeful, "record": [0, 1, 250, 300]}
    r = fl.sarsa(worlds, fl.FedLSA(0.2, 1000), rounds=300, **settings)
    early, late = r["average_return"].values[:, 1].mean(), r["average_return"].values[:, -1].mean()
    assert late > 3 * early
    q = worlds.features @ r["theta"].values[0, -1]
    env, lengths = gymnasium.make("CartPole-v1"), []
    for seed in range(4):
        state, over, steps = env.reset(seed=seed)[0], False, 0
        while not over:
            action = int(q[fedsarsa.cell(state[None], (1, 1, 12, 12))[0]].argmax())
            state, _, fell, cut, _ = env.step(action)
            over, steps = fell or cut, steps + 1
        lengths.append(steps)
    assert np.mean(lengths) > 100  # at random: 22


def test_what_the_page_says_is_so():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "environments.md").read_text(encoding="utf8")
    assert (root / "docs" / "images" / "fedsarsa.png").is_file()
    _, error = fedsarsa.run(fl.FedLSA, 2, 10_000, steps=200_000, seeds=1)
    said = float(re.search(r"stay (\S+) from the fixed point", page)[1])
    assert said == pytest.approx(fedsarsa.last((0, error)), rel=0.1)

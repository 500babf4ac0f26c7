"""Minari: data sets that the tests record themselves, read back as logs."""

import sys
import warnings

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, MissingExtraError
from fedlsa.problems import from_minari, from_transitions
from fedlsa.problems.features import Fourier, OneHot

gymnasium = pytest.importorskip("gymnasium")
minari = pytest.importorskip("minari")

BOX = Fourier([-2.4, -3, -0.21, -3], [2.4, 3, 0.21, 3], order=1, total=True)


def record(name, env, episodes, actions):
    """A data set of a few episodes, and its transitions as the recording saw them."""
    collector, rows = minari.DataCollector(env), []
    for seed in range(episodes):
        state, _ = collector.reset(seed=seed)
        over = cut = False
        while not (over or cut):
            action = next(actions)
            after, reward, over, cut, _ = collector.step(action)
            rows.append((state, action, reward, after, over, cut))
            state = after
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # authors, code and algorithm are not named
        collector.create_dataset(name)
    collector.close()
    return [np.array(column) for column in zip(*rows, strict=True)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("minari")
        patch.setenv("MINARI_DATASETS_PATH", str(folder))
        cut_short = gymnasium.make("CartPole-v1", max_episode_steps=15)
        alternate = iter(np.arange(10_000) % 2)
        rows = {
            "pole/short-v0": record("pole/short-v0", cut_short, 3, alternate),
            "pole/long-v0": record("pole/long-v0", gymnasium.make("CartPole-v1"), 4, iter([1, 1, 0] * 1000)),
            "lake/v-v0": record("lake/v-v0", gymnasium.make("FrozenLake-v1"), 5, iter([1, 2, 0, 3] * 1000)),
        }
        yield folder, rows


def written_out(rows, phi, *rest):
    state, _, reward, after, over, cut = rows
    return (phi(state), reward, phi(after), over, cut, *rest)


def test_data_sets_are_read_as_they_were_recorded(recorded):
    folder, rows = recorded
    names = ["pole/short-v0", "pole/long-v0"]
    p = from_minari([names[0], folder / names[1]], BOX, 0.9, trace=0.7, weights=[1, 2])  # an id and a folder
    q = from_transitions([written_out(rows[name], BOX) for name in names], 0.9, 0.7, weights=[1, 2])
    np.testing.assert_allclose(p.A_bar, q.A_bar, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(p.b_bar, q.b_bar, rtol=1e-13, atol=1e-15)
    assert p.ordered
    assert rows[names[0]][5].sum() == 3  # truncated every time, and the pole falls in the other
    assert rows[names[1]][4].sum() == 4


def test_numbered_states_take_a_table_of_features(recorded):
    _, rows = recorded
    table = OneHot(16)(np.arange(16))[:, :1] + 0.1
    p = from_minari(minari.load_dataset("lake/v-v0"), table, 0.9)
    q = from_transitions([written_out(rows["lake/v-v0"], lambda s: table[s])], 0.9)
    np.testing.assert_allclose(p.theta_star, q.theta_star, rtol=1e-13)


def test_importance_comes_from_a_function_or_as_arrays(recorded):
    _, rows = recorded
    action = rows["pole/long-v0"][1]
    rho = np.where(action == 1, 0.5, 2.0)
    expected = from_transitions([written_out(rows["pole/long-v0"], BOX, rho)], 0.9)
    for given in (lambda states, actions: np.where(actions == 1, 0.5, 2.0), [rho]):
        p = from_minari("pole/long-v0", BOX, 0.9, importance=given)
        np.testing.assert_allclose(p.A_bar, expected.A_bar, rtol=1e-13, atol=1e-15)


def test_bad_data_sets_are_named(recorded):
    with pytest.raises(
        ArgumentError, match=r"datasets\[0\] must be a folder or the id of a local data set \(lake/v-v0, p"
    ):
        from_minari("pole/other-v0", BOX, 0.9)
    with pytest.raises(ArgumentTypeError, match=r"datasets\[0\] must be a path; got 3"):
        from_minari([3], BOX, 0.9)
    with pytest.raises(ArgumentError, match="at least one data set"):
        from_minari([], BOX, 0.9)
    with pytest.raises(ArgumentTypeError, match=r"one array per data set \(1\)"):
        from_minari("pole/long-v0", BOX, 0.9, importance=[[1.0], [1.0]])
    with pytest.raises(ArgumentError, match=r"importance for datasets\[0\] must be an array .*got shape \(1,\)"):
        from_minari("pole/long-v0", BOX, 0.9, importance=[[1.0]])


class Pair(gymnasium.Env):
    """An environment whose observations are neither numbers nor vectors."""

    observation_space = gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(2))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"a": 0}, {}

    def step(self, action):
        return {"a": 1}, 0.0, True, False, {}


def test_other_observation_spaces_are_refused(recorded):
    record("pair/v-v0", Pair(), 1, iter([0, 0]))
    with pytest.raises(
        ArgumentError, match=r"numbered states or vectors as observations \(Discrete or Box\); got Dict"
    ):
        from_minari("pair/v-v0", BOX, 0.9)


def test_a_missing_minari_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedlsa\[gym\]'"):
        from_minari("pole/long-v0", BOX, 0.9)


def test_a_fit_takes_data_sets_and_their_ids(recorded):
    _, rows = recorded
    task = fl.Value(0.9, features=BOX, trace=0.5)
    state, _, reward, after, over, cut = rows["pole/long-v0"]
    expected = fl.fit([(state, reward, after, over, cut)], task, plan=False)
    for given in ("pole/long-v0", ["pole/long-v0"], {"a": "pole/long-v0"}, minari.load_dataset("pole/long-v0")):
        found = fl.fit(given, task, plan=False)
        np.testing.assert_allclose(found.theta, expected.theta, rtol=1e-12)
    names = ["pole/short-v0", "pole/long-v0"]
    assert [site.name for site in fl.fit(names, task, plan=False).per_site] == names
    with pytest.raises(ArgumentError, match=r"sites\[0\] must be a folder or the id of a local data set \(lake/v"):
        fl.fit(["pole/other-v0"], task)


def test_a_fit_of_an_id_names_a_missing_minari(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedlsa\[gym\]'"):
        fl.fit("pole/long-v0", fl.Value(0.9, features=BOX))

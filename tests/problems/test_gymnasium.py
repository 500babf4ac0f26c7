"""Gymnasium: exact problems from transition tables, rollouts that keep termination and truncation apart."""

import sys

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, MissingExtraError, SingularSystemError, UnknownNameError
from fedlsa.problems import from_gymnasium, from_logs, rollout
from fedlsa.problems.features import Aggregation, Fourier, OneHot

gymnasium = pytest.importorskip("gymnasium")

LAKE = OneHot(16, without=[5, 7, 11, 12, 15])  # holes and goal: no transition that counts begins there
PATH = np.array([1, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 2, 2, 0])  # down, down, right, down, right, right: the goal
CART = Fourier([-2.4, -3, -0.21, -3], [2.4, 3, 0.21, 3], order=1, total=True)


def towards_goal(share):
    """The path of PATH with probability `share`, any action alike otherwise."""
    return (1 - share) / 4 + share * np.eye(4)[PATH]


def by_iteration(env, policy, gamma):
    """The value function of a policy by repeated Bellman updates on the environment's own table."""
    P = env.unwrapped.P
    V = np.zeros(len(P))
    for _ in range(600):
        V = np.array(
            [
                sum(policy[s, a] * q * (r + gamma * (not over) * V[t]) for a in P[s] for q, t, r, over in P[s][a])
                for s in P
            ]
        )
    return V


def test_lakes_become_exact_problems_whose_values_are_those_of_dynamic_programming():
    rates, policy = (0.3, 0.9), towards_goal(0.8)
    p = from_gymnasium("FrozenLake-v1", policy, LAKE, 0.9, variations=[{"success_rate": x} for x in rates])
    V = fl.theory.value_functions(p)
    seen = np.setdiff1d(np.arange(16), LAKE.without)
    for c, rate in enumerate(rates):
        exact = by_iteration(gymnasium.make("FrozenLake-v1", success_rate=rate), policy, 0.9)
        np.testing.assert_allclose(V[c], exact, atol=1e-12)
        np.testing.assert_allclose(p.theta_star_local[c], exact[seen], atol=1e-12)  # one-hot: TD finds the values
    assert V[1][0] > 20 * V[0][0]  # 0.310 against 0.009
    mu = fl.theory.stationary_law(p)
    np.testing.assert_allclose(mu[:, list(LAKE.without)], 0, atol=1e-15)  # no law sits in the holes
    assert (fl.theory.value_error(p, p.theta_star) > 0.001).all()  # no one function is right in both
    again = fl.problems.from_recipe(p.recipe)
    np.testing.assert_array_equal(again.A_bar, p.A_bar)


def test_a_lake_without_slips_rolled_out_is_the_exact_problem():
    arguments = {"variations": [{"is_slippery": False}], "policy": PATH, "features": Aggregation(16, [0, *[1] * 15])}
    exact = from_gymnasium("FrozenLake-v1", discount=0.9, **arguments)
    logged = from_gymnasium("FrozenLake-v1", discount=0.9, steps=60, seed=0, **arguments)  # ten episodes of six steps
    np.testing.assert_allclose(logged.A_bar, exact.A_bar, atol=1e-15)
    np.testing.assert_allclose(logged.b_bar, exact.b_bar, atol=1e-15)
    assert logged.ordered


def test_a_cliff_keeps_two_rewards_of_one_transition_apart():
    p = from_gymnasium("CliffWalking-v1", "random", Aggregation(48, 4), 0.9, variations=[{"is_slippery": True}])
    chain = p.chain
    at_start = (chain.origin == 36) & (chain.successor == 36)  # stays: against a wall, or after a fall
    assert sorted(p.observations.y[at_start]) == [-100, -1]
    V = by_iteration(gymnasium.make("CliffWalking-v1", is_slippery=True), np.full((48, 4), 0.25), 0.9)
    np.testing.assert_allclose(fl.theory.value_functions(p)[0], V, rtol=1e-12)


@pytest.mark.long
def test_taxi_begins_as_it_says_and_one_value_per_state_is_the_value_function():
    name = max(k for k in gymnasium.registry if k.startswith("Taxi-v"))
    with pytest.raises(SingularSystemError, match="as by features") as caught:
        from_gymnasium(name, "random", OneHot(500), 0.9)
    advice = eval(str(caught.value).partition("as by features.")[2])
    p = from_gymnasium(name, "random", advice, 0.9)
    assert p.dim == 400
    assert fl.theory.value_error(p, p.theta_star)[0] < 1e-9
    with pytest.raises(ArgumentError, match="with fickle passengers, whom its table leaves out"):
        from_gymnasium(name, "random", advice, 0.9, variations=[{"fickle_passenger": True}])


def test_every_row_of_a_rollout_is_a_step_of_the_environment_and_resets_are_none():
    lengths = (0.3, 1.2)
    logs = rollout("CartPole-v1", "random", 150, seed=3, variations=[{"length": x} for x in lengths])
    for c, log in enumerate(logs):
        env = gymnasium.make("CartPole-v1")
        env.unwrapped.length, env.unwrapped.polemass_length = lengths[c], 0.1 * lengths[c]
        state, _ = env.reset(seed=int(np.random.SeedSequence([3, c]).generate_state(2)[0]))
        for k in range(150):
            np.testing.assert_array_equal(log.state[k], state)
            state, reward, over, cut, _ = env.step(int(log.action[k]))
            np.testing.assert_array_equal(log.next_state[k], state)
            assert (reward, over) == (log.reward[k], log.terminated[k])
            if over or cut:
                state, _ = env.reset()
    assert logs[0].terminated.sum() >= 3
    assert not np.array_equal(logs[0].state, logs[1].state)


def test_a_time_limit_truncates_and_the_last_state_is_what_is_bootstrapped():
    limited = [{"max_episode_steps": 20, "gravity": g} for g in (0.002, 0.0025)]
    logs = rollout("MountainCar-v0", "random", [50, 45], seed=0, variations=limited)
    assert [len(log) for log in logs] == [50, 45]
    for log in logs:
        ends = np.flatnonzero(log.truncated)
        assert ends.tolist() == [19, 39, len(log) - 1]  # the log's own end is a cut too
        assert not log.terminated.any()
        goes_on = ~log.truncated[:-1]
        np.testing.assert_array_equal(log.next_state[:-1][goes_on], log.state[1:][goes_on])
        assert (log.next_state[[19, 39], 0] != log.state[[20, 40], 0]).all()
    box = Fourier([-1.2, -0.07], [0.6, 0.07], 1)
    z = from_logs(logs, box, 0.9).observations
    np.testing.assert_allclose(
        z.rows[z.right[19]], box(logs[0].state[19:20])[0] - 0.9 * box(logs[0].next_state[19:20])[0]
    )


def test_equal_seeds_give_equal_logs_and_a_small_federation_is_a_part_of_a_large_one():
    poles = [{"length": 0.4}, {"length": 0.5}, {"gravity": 12.0}]
    first = rollout("CartPole-v1", "random", 60, seed=1, variations=poles)
    for again in (
        rollout("CartPole-v1", "random", 60, seed=1, variations=poles),
        rollout("CartPole-v1", "random", 60, seed=1, variations=poles[:2]),
    ):
        for a, b in zip(first, again, strict=False):
            for name, column in a.columns().items():
                np.testing.assert_array_equal(column, b.columns()[name])
    other = rollout("CartPole-v1", "random", 60, seed=2, variations=poles[:1])[0]
    assert not np.array_equal(first[0].action, other.action)


def test_continuous_actions_come_from_a_function_or_from_the_space():
    random = rollout("Pendulum-v1", "random", 5, seed=0)[0]
    assert random.action.shape == (5, 1)
    np.testing.assert_array_equal(random.action, rollout("Pendulum-v1", "random", 5, seed=0)[0].action)
    still = rollout("Pendulum-v1", lambda s: np.zeros((len(s), 1)), 5, seed=0)[0]
    assert not still.action.any()
    assert set(still.columns()) >= {
        "state_0",
        "state_2",
        "action_0",
        "next_state_1",
        "reward",
        "terminated",
        "truncated",
    }


def test_logs_of_another_policy_carry_the_ratio_of_probabilities():
    def lean(states):
        right = np.where(states[:, 2] > 0, 0.8, 0.1)
        return np.stack([1 - right, right], axis=1)

    log = rollout("CartPole-v1", lean, 80, seed=0, behaviour="random")[0]
    np.testing.assert_allclose(log.importance, lean(log.state)[np.arange(80), log.action] / 0.5, rtol=1e-12)
    assert rollout("CartPole-v1", lean, 5, seed=0)[0].importance is None
    p = from_gymnasium("CartPole-v1", lean, CART, 0.9, steps=80, seed=0, behaviour="random")
    z = p.observations
    np.testing.assert_allclose(z.rows[z.left], log.importance[:, None] * CART(log.state), rtol=1e-12)


def test_environments_may_be_given_themselves_and_stay_open():
    envs = [gymnasium.make("FrozenLake-v1", success_rate=x) for x in (0.4, 0.8)]
    p = from_gymnasium(envs, towards_goal(0.5), LAKE, 0.9, weights=[1, 3])
    q = from_gymnasium("FrozenLake-v1", towards_goal(0.5), LAKE, 0.9, weights=[1, 3],
                       variations=[{"success_rate": 0.4}, {"success_rate": 0.8}])  # fmt: skip
    np.testing.assert_allclose(p.theta_star, q.theta_star, rtol=1e-13)
    rollout(envs, "random", 5, seed=0)
    envs[0].reset()
    ids = from_gymnasium(["FrozenLake-v1", "FrozenLake8x8-v1"][:1], "random", LAKE, 0.9)
    assert ids.n_agents == 1


class Hall(gymnasium.Env):
    """Two numbered states; a table without an initial law."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, starts=(1,)):
        self.P = {s: {a: [(1.0, a, float(s), False)] for a in (0, 1)} for s in (0, 1)}
        self.starts = starts

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = int(self.np_random.choice(self.starts))
        return self.state, {}


def test_an_environment_that_does_not_tell_where_it_begins_is_reset():
    stay = np.eye(2)
    assert fl.theory.stationary_law(from_gymnasium(Hall(), stay, [[1.0], [2.0]], 0.5)).tolist() == [[0, 1]]
    with pytest.raises(ArgumentError, match=r"initial must be given for envs\[0\], which begins in 2 states or more"):
        from_gymnasium(Hall((0, 1)), stay, [[1.0], [2.0]], 0.5)
    given = from_gymnasium(Hall((0, 1)), stay, [[1.0], [2.0]], 0.5, initial=[1, 0])
    assert fl.theory.stationary_law(given).tolist() == [[1, 0]]


BAD = [
    ({"envs": "FrozenLak-v1"}, ArgumentError, "envs must name a gymnasium environment; got 'FrozenLak-v1'"),
    ({"envs": 3}, ArgumentTypeError, "envs[0] must be the id of a gymnasium environment or one itself; got 3"),
    ({"envs": []}, ArgumentError, "envs must hold at least one environment; got an empty list"),
    ({"envs": ["FrozenLake-v1"], "variations": [{}]}, ArgumentError, "variations must be None unless envs is one id"),
    ({"variations": [{"sucess_rate": 0.5}]}, ArgumentError, "reward_schedule, success_rate); got 'sucess_rate'"),
    ({"variations": [{"nrow": 5}]}, ArgumentError, "got 'nrow'"),  # it would not reach the table
    ({"variations": {"success_rate": 0.5}}, ArgumentTypeError, "variations must be a list of mappings, one per agent"),
    ({"variations": [0.5]}, ArgumentTypeError, "variations[0] must be a mapping of settings; got 0.5"),
    ({"envs": "CartPole-v1"}, ArgumentError, "steps must be given for CartPole-v1, which carries no transition table"),
    ({"envs": "CartPole-v1", "variations": [{"lenght": 1}]}, ArgumentError, "force_mag, gravity, length, masscart"),
    ({"envs": "Blackjack-v1", "steps": 5, "seed": 0}, ArgumentError, "envs must have numbered states or vectors"),
    ({"envs": ["FrozenLake-v1", "CartPole-v1"], "steps": 5, "seed": 0}, ArgumentError, "envs must share the shapes of"),
    (
        {"envs": ["FrozenLake-v1", "CliffWalking-v1"]},
        ArgumentError,
        "envs must share their states and actions, 16 and 4",
    ),
    ({"steps": 5}, ArgumentError, "seed must be a non-negative integer when steps are rolled out; got None"),
    ({"steps": 0, "seed": 0}, ArgumentError, "steps must be a positive integer; got 0"),
    ({"steps": [5, 5], "seed": 0}, ArgumentError, "steps must be one integer, or one per agent (1); got [5, 5]"),
    ({"seed": 1}, ArgumentError, "steps must be given with seed or behaviour"),
    ({"trace": 0.5}, ArgumentError, "trace must be 0 without steps: exact problems are of TD(0); got 0.5"),
    ({"steps": 5, "seed": 0, "initial": np.ones(16) / 16}, ArgumentError, "initial must be None with steps"),
    ({"policy": "randm"}, UnknownNameError, "policy must be 'random'; got 'randm'; did you mean 'random'?"),
    ({"policy": 3}, ArgumentTypeError, "policy must be an array (states, actions), a function"),
    ({"policy": np.ones((16, 4))}, ArgumentError, "policy must sum to one over its last axis; got a sum of 4"),
    ({"policy": np.full(16, 4)}, ArgumentError, "policy must be integers from 0 to 3; got 4 at [0]"),
    (
        {"policy": lambda s: 1 if s == 0 else 2},
        ArgumentError,
        "policy must be a function of a batch of states of shape",
    ),
    (
        {"policy": lambda s: np.zeros(3)},
        ArgumentError,
        "what policy gives must be an array of finite numbers of shape (16,); got shape (3,)",
    ),
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD)
def test_what_cannot_be_is_refused(changes, error, message):
    arguments = {"envs": "FrozenLake-v1", "policy": "random", "features": LAKE, "discount": 0.9, **changes}
    with pytest.raises(error) as caught:
        from_gymnasium(**arguments)
    assert message in str(caught.value)


def test_a_missing_gymnasium_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedlsa\[gym\]'"):
        from_gymnasium("FrozenLake-v1", "random", LAKE, 0.9)

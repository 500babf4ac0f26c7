"""FedSARSA against a plain loop, dynamic programming and its own fixed point."""

import numpy as np
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.engine.random import OBSERVATION, START, words

TWO = 2.0**32


def random_worlds(agents=3, states=5, actions=3, features=4, seed=0, ending=True):
    """Full kernels, features that no state owns, unequal weights, ends and starts."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(states) * 0.3, (agents, states, actions)) * 0.9 + 0.1 / states
    phi = rng.normal(size=(states, actions, features)) / 2
    if not ending:
        return fl.control.Worlds(P, rng.random((agents, states, actions)), 0.8, features=phi)
    first = np.array([0.5, 0.3, 0.2, *np.zeros(states - 3)])
    terminal, r = np.arange(states) == states - 1, rng.random((agents, states, actions, states))
    return fl.control.Worlds(P, r, 0.9, terminal, first, phi, weights=np.arange(1.0, agents + 1))


def pick(law, u):
    """The entry in which u falls when the entries of a law are laid one after the other."""
    return min(int((u >= np.cumsum(law)).sum()), int(np.flatnonzero(law)[-1]))


def law_of(q, temperature, epsilon):
    if epsilon is not None:
        return epsilon / len(q) + (1 - epsilon) * (np.arange(len(q)) == np.argmax(q))
    e = np.exp((q - q.max()) / temperature)
    return e / e.sum()


def act(q, u, temperature, epsilon):
    if epsilon is not None:
        return min(int(u / epsilon * len(q)), len(q) - 1) if u < epsilon else int(np.argmax(q))
    return pick(law_of(q, temperature, epsilon), u)


def plain_loop(worlds, method, rounds, seed, temperature=1.0, epsilon=None, improvement="step"):
    """FedSARSA as one would write it down; returns theta after each round, xi, and the rewards of all steps."""
    phi, gamma, N = worlds.features, worlds.discount, len(worlds.P)
    theta, xi, rewards, pairs = np.zeros(phi.shape[2]), np.zeros((N, phi.shape[2])), [], []
    for c in range(N):
        u = words(seed, c, START, 0, 2) / TWO
        s = pick(worlds.initial[c], u[0])
        pairs.append((s, pick(law_of(phi[s] @ theta, temperature, epsilon), u[1])))
    out, H = [theta], method.local_steps
    for t in range(rounds):
        eta = float(method.eta(np.array([t]))[0])
        ends = []
        for c in range(N):
            hat, (s, a) = theta.copy(), pairs[c]
            for k in range(t * H, (t + 1) * H):
                u, choice = words(seed, c, OBSERVATION, 2 * k, 2) / TWO
                after = pick(worlds.P[c, s, a], u)
                r, over = worlds.r[c, s, a, after], worlds.terminal[after]
                if over:
                    after = pick(worlds.initial[c], words(seed, c, START, 4 * (k + 1), 1)[0] / TWO)
                a_next = act(phi[after] @ (hat if improvement == "step" else theta), choice, temperature, epsilon)
                target = r + (0 if over else gamma * phi[after, a_next] @ hat)
                hat = hat + eta * (phi[s, a] * (target - phi[s, a] @ hat) + xi[c])
                s, a = after, a_next
                rewards.append(r)
            pairs[c] = s, a
            ends.append(hat)
        theta = worlds.weights @ np.array(ends)
        if isinstance(method, fl.SCAFFLSA):
            xi = xi + (theta - np.array(ends)) / (eta * H)
        out.append(theta)
    return np.array(out), xi, np.array(rewards)


@pytest.mark.parametrize(
    ("worlds", "method", "policy"),
    [
        (fl.control.garnet(4), fl.SCAFFLSA(0.2, 7), {"temperature": 0.5}),
        (fl.control.garnet(4), fl.FedLSA(0.2, 7), {"epsilon": 0.2, "improvement": "round"}),
        (random_worlds(), fl.SCAFFLSA(fl.PowerStep(0.2, 0.3), 5), {"temperature": 0.3, "improvement": "round"}),
        (random_worlds(), fl.SCAFFLSA(0.1, 8), {"temperature": 0.3}),
        (random_worlds(agents=1), fl.FedLSA(0.1, 1), {"epsilon": 0.0}),
        (random_worlds(), fl.FedLSA(0.1, 4), {"epsilon": 1.0}),
    ],
)
def test_compiled_rounds_are_those_of_a_plain_loop(worlds, method, policy):
    r = fl.sarsa(worlds, method, rounds=12, seeds=[5, 2**40], record=13, threads=1, **policy)
    for i, seed in enumerate([5, 2**40]):
        theta, xi, rewards = plain_loop(worlds, method, 12, seed, **policy)
        size = 1e-9 * max(1, np.abs(theta).max())
        np.testing.assert_allclose(r["theta"].values[i], theta, rtol=0, atol=size)
        np.testing.assert_allclose(r["xi"].values[i], xi, rtol=0, atol=1e-9)
        mean = rewards.reshape(12, -1).mean(axis=1)
        np.testing.assert_allclose(r["average_reward"].values[i, 1:], mean, rtol=1e-9)


def test_threads_groups_of_seeds_and_what_is_recorded_leave_the_bits_alone(monkeypatch):
    worlds, method = random_worlds(), fl.SCAFFLSA(0.1, 6)
    one = fl.sarsa(worlds, method, rounds=40, seeds=5, record=[0, 13, 40], threads=1)
    many = fl.sarsa(worlds, method, rounds=40, seeds=5, record=[0, 13, 40], threads=4)
    xr.testing.assert_identical(one, many)
    alone = fl.sarsa(worlds, method, rounds=40, seeds=[3], record=41)
    np.testing.assert_array_equal(alone["theta"].sel(rounds=[0, 13, 40])[0], one["theta"].sel(seed=3))
    early = fl.sarsa(worlds, method, rounds=40, seeds=[3], record=[13])
    np.testing.assert_array_equal(early["theta"][0, 0], one["theta"].sel(seed=3, rounds=13))
    np.testing.assert_array_equal(early["xi"], alone["xi"])
    again = fl.sarsa(**fl.control.arguments(one))
    xr.testing.assert_identical(one, again)
    monkeypatch.setattr("fedlsa.results.recipe.EMBED_LIMIT", 100)
    large = fl.sarsa(worlds, method, rounds=40, seeds=5, record=[0, 13, 40])
    with pytest.raises(fl.errors.ArgumentError, match="worlds must be passed"):
        fl.control.arguments(large)
    xr.testing.assert_identical(large, fl.sarsa(**fl.control.arguments(large, worlds)))
    assert np.abs(np.tensordot(one["xi"].values, worlds.weights, (1, 0))).max() < 1e-13


def test_with_one_local_step_control_variates_change_nothing():
    worlds = fl.control.garnet(5)
    r, q = (fl.sarsa(worlds, method(0.1, 1), rounds=200, seeds=2) for method in (fl.FedLSA, fl.SCAFFLSA))
    np.testing.assert_allclose(r["theta"], q["theta"], rtol=0, atol=1e-10)


def mean_update(worlds, theta, temperature):
    """sum_c w_c E[phi(s, a) error], with stationary laws by brute force: the chain run for a long time."""
    phi, (N, S, A, _) = worlds.features, worlds.P.shape
    q = phi @ theta
    pi = np.exp((q - q.max(axis=1, keepdims=True)) / temperature)
    pi /= pi.sum(axis=1, keepdims=True)
    out = np.zeros((N, len(theta)))
    for c in range(N):
        onward = np.einsum("sa,sat->st", pi, worlds.P[c])
        chain = onward * ~worlds.terminal + np.outer(onward @ worlds.terminal, worlds.initial[c])
        mu = np.linalg.matrix_power(chain, 2**20).T @ worlds.initial[c]
        for s, a, t in np.ndindex(S, A, S):
            values = pi[t] @ q[t] * (not worlds.terminal[t])
            error = worlds.r[c, s, a, t] + worlds.discount * values - q[s, a]
            out[c] += mu[s] * pi[s, a] * worlds.P[c, s, a, t] * error * phi[s, a]
    return out, worlds.weights


@pytest.mark.parametrize("worlds", [fl.control.garnet(3), random_worlds(), random_worlds(ending=False)])
def test_the_mean_update_vanishes_at_the_fixed_point_and_xi_star_is_each_agents_own(worlds):
    problem, residual = fl.control.solve(worlds, temperature=0.7)
    each, w = mean_update(worlds, problem.theta_star, 0.7)
    assert np.abs(w @ each).max() < 1e-10
    assert residual < 1e-10
    np.testing.assert_allclose(problem.xi_star, -each, atol=1e-10)


def test_with_a_feature_for_each_pair_theta_star_is_the_value_of_its_own_policy():
    """Dynamic programming: Q = r + gamma P V, V = sum_a pi Q, and pi is the softmax of Q itself."""
    for worlds in (fl.control.garnet(1), fl.control.garnet(6, heterogeneity=0.0)):
        problem, _ = fl.control.solve(worlds, temperature=0.2)
        (S, A), q = worlds.P.shape[1:3], problem.theta_star.reshape(worlds.P.shape[1:3])
        pi = np.exp((q - q.max(axis=1, keepdims=True)) / 0.2)
        pi /= pi.sum(axis=1, keepdims=True)
        chain, reward = np.einsum("sa,sat->st", pi, worlds.P[0]), (pi * worlds.r[0, :, :, 0]).sum(axis=1)
        V = np.linalg.solve(np.eye(S) - worlds.discount * chain, reward)
        np.testing.assert_allclose(q, worlds.r[0, :, :, 0] + worlds.discount * worlds.P[0] @ V, rtol=1e-10)
        np.testing.assert_allclose(fl.theory.value_functions(problem)[0].reshape(S, A), q, rtol=1e-10)


def test_a_cold_policy_is_nearly_as_good_as_the_best_and_never_better():
    """Two dynamic programmes: backups by the softmax of the values themselves, and by their maximum."""
    worlds, temperature = fl.control.garnet(1, seed=3), 0.05
    q, best = (np.zeros(worlds.P.shape[1:3]) for _ in range(2))
    for _ in range(600):
        pi = np.exp((q - q.max(axis=1, keepdims=True)) / temperature)
        pi /= pi.sum(axis=1, keepdims=True)
        q = worlds.r[0, :, :, 0] + worlds.discount * worlds.P[0] @ (pi * q).sum(axis=1)
        best = worlds.r[0, :, :, 0] + worlds.discount * worlds.P[0] @ best.max(axis=1)
    found = fl.control.solve(worlds, temperature)[0].theta_star
    np.testing.assert_allclose(found, q.ravel(), rtol=1e-9)
    assert (found <= best.ravel() + 1e-12).all()
    np.testing.assert_allclose(found, best.ravel(), rtol=0.05)


def plateau(worlds, method, seeds=6, temperature=1.0, updates=60_000):
    """The mean of theta over seeds after half of the rounds, from theta_star on, its standard error, and errors."""
    star = fl.control.solve(worlds, temperature)[0].theta_star
    rounds = updates // method.local_steps
    r = fl.sarsa(worlds, method, rounds, seeds, temperature, theta_0=star, theta_star=star, record=40, threads=1)
    each = r["theta"].isel(rounds=slice(20, None)).mean("rounds").values - star
    error = r["squared_error"].isel(rounds=slice(20, None)).mean("rounds").values
    return each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(seeds), error


@pytest.mark.long
def test_local_steps_drift_where_worlds_differ_and_control_variates_do_not():
    worlds = fl.control.garnet(4)
    (drift, noise, _), (left, other, _) = (plateau(worlds, m(0.05, 2000)) for m in (fl.FedLSA, fl.SCAFFLSA))
    assert np.linalg.norm(drift) > 10 * np.linalg.norm(noise)
    assert np.linalg.norm(left) < np.linalg.norm(drift) / 5
    assert np.linalg.norm(left) < 3 * np.linalg.norm(other)
    same = plateau(fl.control.garnet(4, heterogeneity=0.0), fl.FedLSA(0.05, 2000))
    assert np.linalg.norm(same[0]) < np.linalg.norm(drift) / 5


@pytest.mark.long
def test_more_agents_lower_the_error():
    """Eight times the agents: an eighth of the variance, within three standard errors of its mean over seeds."""
    few, many = (plateau(fl.control.garnet(N), fl.SCAFFLSA(0.05, 10), seeds=8, updates=20_000)[2] for N in (2, 16))
    ratio = few.mean() / many.mean()
    spread = ratio * np.hypot(*(x.std(ddof=1) / np.sqrt(8) / x.mean() for x in (few, many)))
    assert abs(ratio - 8) < 3 * spread
    assert spread < 1.5


@pytest.mark.long
@pytest.mark.parametrize("improvement", ["step", "round"])
def test_the_stationary_mean_tends_to_the_fixed_point_as_steps_get_smaller(improvement):
    """What the noise of theta does to the policy, and the chain's memory, bias the mean in proportion to the step."""
    worlds, seeds = fl.control.garnet(2, states=4, actions=2), 40
    star = fl.control.solve(worlds, 0.3)[0].theta_star
    gaps = []
    for eta, rounds in ((0.4, 20_000), (0.1, 40_000)):
        method, record = fl.SCAFFLSA(eta, 10), range(rounds // 10, rounds, 100)
        r = fl.sarsa(worlds, method, rounds, seeds, 0.3, improvement=improvement, theta_0=star, record=record)
        each = r["theta"].mean("rounds").values - star
        gaps.append((np.linalg.norm(each.mean(axis=0)), np.linalg.norm(each.std(axis=0, ddof=1) / np.sqrt(seeds))))
    (wide, _), (near, noise) = gaps
    assert wide > 10 * noise
    assert abs(near - wide / 4) < wide / 8 + 3 * noise


def test_a_run_that_leaves_the_range_of_numbers_says_when_and_goes_on_as_nan():
    phi = np.array([[[1.0], [1.0]], [[2.0], [2.0]]])
    worlds = fl.control.Worlds(np.full((1, 2, 2, 2), 0.5), np.ones((1, 2, 2)), 0.99, features=phi)
    with pytest.warns(fl.errors.DivergenceWarning, match="smaller step_size"):
        r = fl.sarsa(worlds, fl.FedLSA(5.0, 100), rounds=30, seeds=2, theta_star=[0.0])
    at = int(r["diverged_at"][0])
    assert at > 0
    assert np.isnan(r["theta"].values[0, at:]).all()
    assert np.isfinite(r["theta"].values[0, :at]).all()


def test_episodes_have_returns_where_something_ends():
    worlds = random_worlds()
    r = fl.sarsa(worlds, fl.FedLSA(0.1, 50), rounds=4, seeds=2)
    assert (r["average_return"].values[:, 1:] > r["average_reward"].values[:, 1:]).all()
    assert np.isnan(fl.sarsa(fl.control.garnet(2), fl.FedLSA(0.1, 50), rounds=2)["average_return"]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": fl.Scaffnew(0.1, 0.5)}, "method must be fl.FedLSA"),
        ({"method": fl.FedLSA(0.1, 5, participants=1)}, "method must be fl.FedLSA"),
        (
            {"method": fl.FedLSA(0.1, fl.PowerLength(2, 0.5))},
            "local_steps must be the same in all rounds; got PowerLen",
        ),
        ({"temperature": 0.0}, "temperature must be a finite number above 0; got 0"),
        ({"epsilon": 1.5}, "epsilon must be"),
        ({"improvement": "rounds"}, "improvement must be one of 'step', 'round'; got 'rounds'; did you mean 'round'?"),
        ({"theta_0": [0.0]}, "theta_0 must be an array of finite numbers of shape"),
        ({"rounds": 0}, "rounds must be a positive integer; got 0"),
        (  # words come again after 2^32 blocks
            {"rounds": 2**26, "method": fl.FedLSA(0.1, 2**6)},
            "rounds times local_steps must be a non-negative integer and at most 4294967295; got 4294967296",
        ),
        ({"seeds": [1, 1]}, "seeds must be distinct"),
        ({"worlds": 3}, "worlds must be made by fl.control; got 3"),
    ],
)
def test_arguments_that_break_a_rule_are_refused(change, message):
    given = {"worlds": fl.control.garnet(2), "method": fl.FedLSA(0.1, 5), "rounds": 2}
    with pytest.raises((fl.errors.ArgumentError, fl.errors.ArgumentTypeError), match=message.split("?")[0]):
        fl.sarsa(**given | change)


def test_a_policy_without_a_fixed_point_is_an_error_that_says_how_near_it_came(monkeypatch):
    """Greedy with two features for six pairs: whichever action seems best, its values say that another one is."""
    monkeypatch.setattr("fedlsa.control.worlds.MOST_ITERATIONS", 100)
    worlds = random_worlds(agents=1, states=3, actions=2, features=2, seed=34, ending=False)
    with pytest.raises(fl.errors.PrecisionError, match=r"got a last distance of .* epsilon 0\.1"):
        fl.control.solve(worlds, epsilon=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"P": np.full((1, 2, 2, 2), 0.4)}, "P must sum to one"),
        ({"r": np.ones((1, 2))}, "r must be an array of finite numbers of shape"),
        ({"discount": 1.0}, "discount must be a finite number at least 0 and below 1; got 1"),
        ({"terminal": [False, True], "initial": [0.5, 0.5]}, "initial must be 0 in terminal states; got 0.5"),
        ({"initial": [[1], [1, 2]]}, r"initial must be an array of numbers; got \[\[1\], \[1, 2\]\]"),
        ({"features": np.ones((2, 2))}, "features must be an array of finite numbers of shape"),
        ({"features": np.ones((2, 2, 0))}, "number of features must be a positive integer; got 0"),
        ({"weights": [0.0]}, "weights must be positive"),
    ],
)
def test_worlds_that_are_none_are_refused(change, message):
    given = {"P": np.full((1, 2, 2, 2), 0.5), "r": np.ones((1, 2, 2)), "discount": 0.5}
    with pytest.raises((fl.errors.ArgumentError, fl.errors.ArgumentTypeError), match=message):
        fl.control.Worlds(**given | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agents": 10**18}, "agents times states.2 times actions must be at most"),
        ({"states": 2.5}, "states must be a positive integer; got 2.5"),
        ({"actions": 0}, "actions must be a positive integer; got 0"),
        ({"branching": 4}, "branching must be a positive integer and at most 3; got 4"),
        ({"seed": -1}, "seed must be a non-negative integer; got -1"),
    ],
)
def test_a_garnet_that_is_none_is_refused(change, message):
    with pytest.raises((fl.errors.ArgumentError, fl.errors.ArgumentTypeError), match=message):
        fl.control.garnet(**{"agents": 2, "states": 3, "actions": 2} | change)


def test_what_is_no_result_or_no_tolerance_is_refused():
    with pytest.raises(fl.errors.ArgumentError, match=r"result must be one of fl\.sarsa; got 3"):
        fl.control.arguments(3)
    with pytest.raises(fl.errors.ArgumentTypeError, match="tol must be a finite number above 0; got None"):
        fl.control.solve(fl.control.garnet(2), tol=None)


def test_garnet_is_the_instance_of_the_published_code():
    """Its first world, from the draws that the code makes: successors, probabilities, then rewards."""
    worlds = fl.control.garnet(3)
    rng = np.random.default_rng(0)
    after = [rng.choice(10, 2, replace=False) for _ in range(30)]
    chance = rng.uniform(size=(10, 3, 2))
    s, a = 7, 2
    np.testing.assert_allclose(worlds.P[0, s, a, after[3 * s + a]], chance[s, a] / chance[s, a].sum())
    np.testing.assert_allclose(worlds.r[0, :, :, 4], rng.uniform(0, 1, (10, 3)))
    np.testing.assert_array_equal(worlds.P[0], worlds.P[2])
    assert (worlds.P[0] != worlds.P[1]).any()
    np.testing.assert_array_equal(
        fl.control.garnet(2, heterogeneity=0.0).P[0], fl.control.garnet(2, heterogeneity=0.0).P[1]
    )

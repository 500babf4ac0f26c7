"""Off-policy, emphatic, average-reward and gradient TD, traces and discount 1, against dynamic programming."""

from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, DivergenceWarning, SingularSystemError, UnknownNameError
from fedlsa.problems import average_reward, from_chains, from_mdps, gradient_td


@dataclass(frozen=True, eq=False)
class World:
    """A decision process and two policies, pi : (S, A) to be evaluated and b : (S, A) that acts."""

    P: np.ndarray
    r: np.ndarray
    pi: np.ndarray
    b: np.ndarray
    phi: np.ndarray
    ends: np.ndarray
    initial: np.ndarray

    def arrays(self, features=None):
        given = {"P": self.P[None], "r": self.r[None], "policy": self.pi}
        given["features"] = self.phi if features is None else features
        return given | ({"terminal": self.ends, "initial": self.initial} if self.ends.any() else {})

    def kernel(self, policy):
        """(S, S): where moves lead that end nothing."""
        K = np.einsum("sa,sat->st", policy, self.P)
        return K * ~self.ends * ~self.ends[:, None]

    def law(self, policy):
        """The stationary law of the restarted chain, from its definition."""
        K = np.einsum("sa,sat->st", policy, self.P)
        K = K * ~self.ends + (K @ self.ends)[:, None] * self.initial
        live = np.flatnonzero(~self.ends)
        K, mu = K[live][:, live], np.zeros(len(self.ends))
        mu[live] = np.linalg.lstsq(np.vstack([K.T - np.eye(len(live)), np.ones(len(live))]), np.eye(len(live) + 1)[-1])[
            0
        ]
        return mu

    def reward(self):
        return (self.pi * self.r).sum(axis=1) * ~self.ends

    def values(self, gamma):
        live = self.law(self.b) > 1e-12
        K, out = self.kernel(self.pi)[live][:, live], np.zeros(len(self.ends))
        out[live] = np.linalg.solve(np.eye(live.sum()) - gamma * K, self.reward()[live])
        return out

    def system(self, gamma, lam, acts, emphatic):
        """A = Phi^T D M (I - gamma lambda P)^{-1} (I - gamma P) Phi and b of TD(lambda), as textbooks have them."""
        mu, K, one = self.law(acts), self.kernel(self.pi), np.eye(len(self.ends))
        live = mu > 1e-12
        mu, K, one, phi, reward = mu[live], K[live][:, live], one[live][:, live], self.phi[live], self.reward()[live]
        followon = np.linalg.solve((one - gamma * K).T, mu)
        m = lam * mu + (1 - lam) * followon if emphatic else mu
        after = np.linalg.solve(one - gamma * lam * K, np.column_stack([(one - gamma * K) @ phi, reward]))
        both = (phi * m[:, None]).T @ after
        return both[:, :-1], both[:, -1]


def random_world(seed, S=5, A=3, d=2, ends=False, sharp=1.0):
    g = np.random.default_rng(seed)
    P = g.dirichlet(np.ones(S), (S, A)) * (g.random((S, A, S)) < 0.6)
    P[..., 0] += 0.1
    P /= P.sum(axis=-1, keepdims=True)
    pi, b = g.dirichlet(np.ones(A), S), g.dirichlet(np.full(A, sharp), S)
    last = np.arange(S) == S - 1
    return World(P, g.normal(size=(S, A)), pi, b, g.normal(size=(S, d)), last & ends, np.eye(S)[1])


def turning():
    """Three states in turn, whatever is done; the last one may end the episode."""
    P = np.zeros((4, 2, 4))
    for s in range(3):
        P[s, :, (s + 1) % 3] = 1
    P[2, 1] = [0, 0, 0, 1]
    P[3, :, 3] = 1
    r = np.arange(8.0).reshape(4, 2)
    phi = np.array([[1, 0], [0.3, 0.8], [0, 1], [7, 7]])
    pi, b = np.tile([0.9, 0.1], (4, 1)), np.tile([0.4, 0.6], (4, 1))
    return World(P, r, pi, b, phi, np.arange(4) == 3, np.eye(4)[0])


def absorbed():
    """All time is spent in a state that is never left."""
    P = np.array([[[0.5, 0.5], [0.2, 0.8]], [[0, 1], [0, 1]]])
    return World(P, np.array([[9.0, 9], [1, 2]]), np.full((2, 2), 0.5), np.array([[0.5, 0.5], [0.1, 0.9]]),
                 np.array([[0.5], [1.0]]), np.zeros(2, bool), np.eye(2)[0])  # fmt: skip


def nearly_apart():
    """Two halves that meet once in 10,000 steps."""
    P = np.kron(np.array([[1 - 1e-4, 1e-4], [1e-4, 1 - 1e-4]]), np.array([[0.3, 0.7], [0.6, 0.4]]))
    P = np.stack([P, P[::-1]], axis=1)
    pi, b = np.tile([0.8, 0.2], (4, 1)), np.tile([0.5, 0.5], (4, 1))
    return World(P, np.eye(4)[:, :2], pi, b, np.eye(4)[:, [0, 2]] + 0.1, np.zeros(4, bool), np.eye(4)[0])


def nearly_dependent():
    world = random_world(3)
    return World(**vars(world) | {"phi": world.phi @ [[1, 1], [0, 1e-5]]})


def long_corridor():
    """Right with 0.9 under the policy, with 0.2 under the other one; ratios of 4.5, and 0.1 to the left."""
    S = 8
    P = np.zeros((S, 2, S))
    for s in range(S - 1):
        P[s, 0, s + 1] = P[s, 1, max(s - 1, 0)] = 1
    P[-1, :, -1] = 1
    pi, b = np.tile([0.9, 0.1], (S, 1)), np.tile([0.2, 0.8], (S, 1))
    phi = np.column_stack([np.ones(S), np.arange(S) / S])
    return World(P, -np.ones((S, 2)), pi, b, phi, np.arange(S) == S - 1, np.eye(S)[0])


WORLDS = {
    "random": random_world(0),
    "episodes": random_world(1, ends=True),
    "ratios": random_world(2, sharp=0.3),
    "turning": turning(),
    "absorbed": absorbed(),
    "nearly apart": nearly_apart(),
    "nearly dependent": nearly_dependent(),
    "corridor": long_corridor(),
}
QUICK = ("episodes", "absorbed")
every_world = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in WORLDS]
)
every_world_of_many_states = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "corridor" else pytest.mark.long) for n in WORLDS if n != "absorbed"]
)


def discounts(world):
    return (0.0, 0.9, 1.0) if world.ends.any() else (0.0, 0.9, 0.999)


@every_world
def test_means_of_every_kind_are_those_of_dense_algebra(name):
    world = WORLDS[name]
    for gamma, lam, off, emphatic in product(discounts(world), (0.0, 0.7), (False, True), (False, True)):
        acts = world.b if off else world.pi
        options = {"behaviour": world.b} if off else {}
        p = from_mdps(**world.arrays(), discount=gamma, trace=lam, emphatic=emphatic, **options)
        A, b = world.system(gamma, lam, acts, emphatic)
        np.testing.assert_allclose(p.A_bar[0], A, rtol=0, atol=1e-9 * np.abs(A).max())
        np.testing.assert_allclose(p.b_bar[0], b, rtol=0, atol=1e-9 * max(np.abs(b).max(), np.abs(A).max()))
        sees = np.linalg.cond(A)
        np.testing.assert_allclose(p.theta_star, np.linalg.solve(A, b), rtol=1e-9 * max(sees, 1), atol=1e-12 * sees)
        assert (p.trace, p.off_policy, p.discount) == (lam, off or emphatic, gamma)


@every_world_of_many_states
def test_one_hot_features_give_the_values_of_the_policy_whoever_acts(name):
    world = WORLDS[name]
    seen = np.flatnonzero(world.law(world.b) > 1e-12)
    for gamma, lam, emphatic in product(discounts(world)[1:], (0.0, 0.7), (False, True)):
        V = world.values(gamma)
        arrays = world.arrays(np.eye(len(V))[:, seen])
        p = from_mdps(**arrays, discount=gamma, trace=lam, emphatic=emphatic, behaviour=world.b)
        scale = np.abs(V).max()
        np.testing.assert_allclose(p.theta_star, V[seen], rtol=0, atol=1e-8 * scale)
        np.testing.assert_allclose(fl.theory.value_functions(p)[0], V, rtol=0, atol=1e-8 * scale)
        assert fl.theory.value_error(p, p.theta_star)[0] <= 1e-8 * scale
        for kind in ("gtd2", "tdc"):
            q = gradient_td(**arrays, discount=gamma, kind=kind, ratio=0.3, behaviour=world.b)
            np.testing.assert_allclose(q.theta_star, np.append(V[seen], 0 * seen), rtol=0, atol=1e-7 * scale)
            assert fl.theory.value_error(q, q.theta_star)[0] <= 1e-7 * scale


def test_a_policy_that_acts_itself_gives_td_with_ratios_of_one():
    world = WORLDS["episodes"]
    p, q = (from_mdps(**world.arrays(), discount=0.9, **options) for options in ({}, {"behaviour": world.pi}))
    np.testing.assert_allclose(p.theta_star, q.theta_star, rtol=1e-12)
    assert (p.off_policy, q.off_policy) == (False, True)
    np.testing.assert_allclose(fl.theory.stationary_law(q), fl.theory.stationary_law(p), atol=1e-15)


def test_agents_may_act_by_policies_of_their_own():
    one, other = random_world(4), random_world(5)
    P, r = np.stack([one.P, other.P]), np.stack([one.r, other.r])
    b = np.stack([one.b, other.b])
    p = from_mdps(P, r, one.pi, one.phi, 0.8, behaviour=b, trace=0.5, weights=[1, 3], assignment=[1, 0])
    other = World(**vars(other) | {"pi": one.pi, "phi": one.phi})
    systems = [world.system(0.8, 0.5, world.b, False) for world in (other, one)]
    A, b = (0.25 * first + 0.75 * second for first, second in zip(*systems, strict=True))
    np.testing.assert_allclose(p.theta_star, np.linalg.solve(A, b), rtol=1e-10)
    np.testing.assert_allclose(p.xi_star[0], systems[0][0] @ p.theta_star - systems[0][1], atol=1e-11)


def walk(world, policy, steps, chains, g):
    """Trajectories of a policy: state, action, next state, whether an episode ended : (steps, chains) each."""
    S, A = world.pi.shape
    s, out = g.choice(S, chains, p=world.law(policy).clip(0) / world.law(policy).clip(0).sum()), []
    for _ in range(steps):
        a = (g.random(chains)[:, None] > policy[s].cumsum(axis=1)).sum(axis=1).clip(max=A - 1)
        t = (g.random(chains)[:, None] > world.P[s, a].cumsum(axis=1)).sum(axis=1).clip(max=S - 1)
        ended = world.ends[t]
        out.append((s, a, t, ended))
        s = np.where(ended, g.choice(S, chains, p=world.initial), t)
    return out


@pytest.mark.long
@pytest.mark.parametrize(("name", "emphatic"), [("episodes", False), ("episodes", True), ("turning", True)])
def test_the_recursions_of_traces_have_this_mean_along_simulated_trajectories(name, emphatic):
    """Emphatic TD(lambda) as its authors write it, with all its traces, over 40,000 trajectories."""
    world, gamma, lam, n = WORLDS[name], 0.6, 0.5, 40_000
    steps = walk(world, world.b, 90, n, np.random.default_rng(0))
    e, F, rho_before = np.zeros((n, world.phi.shape[1])), np.zeros(n), np.zeros(n)
    total = 0
    for t, (s, a, s_next, ended) in enumerate(steps):
        rho = world.pi[s, a] / world.b[s, a]
        F = 1 + gamma * rho_before * F
        m = lam + (1 - lam) * F if emphatic else np.ones(n)
        e = rho[:, None] * (gamma * lam * e + m[:, None] * world.phi[s])
        if t >= 50:  # the traces have forgotten that they began at 0
            v = world.phi[s] - gamma * np.where(ended[:, None], 0, world.phi[s_next])
            total = total + np.concatenate(
                [e[:, :, None] * v[:, None, :], (world.r[s, a, None] * e)[:, :, None]], axis=2
            )
        e, rho_before = np.where(ended[:, None], 0, e), np.where(ended, 0, rho)
    total = total / (len(steps) - 50)
    p = from_mdps(**world.arrays(), discount=gamma, trace=lam, emphatic=emphatic, behaviour=world.b)
    error = (total.mean(axis=0) - np.column_stack([p.A_bar[0], p.b_bar[0]])) / (total.std(axis=0) / np.sqrt(n))
    assert np.abs(error).max() < 4


@pytest.mark.parametrize("name", ["random", "episodes", "turning"])
def test_the_credited_state_has_the_trace_as_its_mean_given_the_trajectory(name):
    """The law of the credited state, filtered along a trajectory that begins with an episode or long ago."""
    world, gamma, lam = WORLDS[name], 0.9, 0.6
    decay, S = gamma * lam, len(WORLDS[name].ends)
    p = from_mdps(**world.arrays(), discount=gamma, trace=lam)
    chain, z = p.chain, p.observations
    m, s = np.divmod(chain.origin, S)
    m_next, s_next = np.divmod(chain.successor, S)
    ended = np.isclose(z.rows[z.right], world.phi[s]).all(axis=1)
    law, e = np.zeros(S + 1), np.zeros(world.phi.shape[1])
    path = [tuple(int(x[0]) for x in step) for step in walk(world, world.pi, 40, 1, np.random.default_rng(1))]
    if world.ends.any():
        law[[path[0][0], S]] = 1 - decay, decay
    else:
        law[path[0][0]], e = 1, world.phi[path[0][0]] / (1 - decay)  # as if it had always been here
    for (state, _, _, end), (after, *_) in pairwise(path):
        e = world.phi[state] + decay * e
        here = (s == state) & (s_next == after) & (ended == bool(end))
        chance, moved = chain.conditional * here, np.zeros(S + 1)
        u = np.zeros((S + 1, len(e)))
        u[m[here]] = z.rows[z.left[here]]
        np.testing.assert_allclose(law @ u, e, atol=1e-12)
        np.add.at(moved, m_next, law[m] * chance)
        law, e = moved / moved.sum(), e * (not end)


# Average rewards.


@every_world_of_many_states
def test_differential_td_solves_the_poisson_equation(name):
    world = WORLDS[name]
    mu = world.law(world.pi)
    K = np.einsum("sa,sat->st", world.pi, world.P)
    K = K * ~world.ends + (K @ world.ends)[:, None] * world.initial
    seen = np.flatnonzero(mu > 1e-12)
    K, mu, r, n = K[seen][:, seen], mu[seen], world.reward()[seen], len(seen)
    average = mu @ r
    h = np.linalg.lstsq(np.vstack([np.eye(n) - K, np.eye(n)[:1]]), np.append(r - average, 0))[0]
    arrays = world.arrays(np.eye(len(world.ends))[:, seen[1:]])
    for ratio in (0.2, 1.0, 30.0):
        p = average_reward(**arrays, ratio=ratio)
        np.testing.assert_allclose(p.theta_star, np.append(h[1:], average), rtol=0, atol=1e-9 * max(1, np.abs(h).max()))
    assert (np.linalg.eigvals(p.A_bar[0]).real > 0).all()
    few = world.phi[:, :1] + np.linspace(0, 1, len(world.ends))[:, None]
    p, phi = average_reward(**world.arrays(few)), few[seen]
    D = np.diag(mu)
    theta = np.linalg.solve(phi.T @ D @ (np.eye(n) - K) @ phi, phi.T @ D @ (r - average))
    np.testing.assert_allclose(p.theta_star, np.append(theta, average), rtol=1e-9, atol=1e-9)


def test_the_shared_average_reward_is_the_mean_of_the_agents():
    one, other = random_world(6, d=3), random_world(7)
    p = average_reward(np.stack([one.P, other.P]), np.stack([one.r, other.r]), one.pi, one.phi, weights=[1, 4])
    rewards = [world.law(one.pi) @ (one.pi * world.r).sum(axis=1) for world in (one, other)]
    np.testing.assert_allclose(p.theta_star_local[:, -1], rewards, rtol=1e-10)
    assert p.theta_star[-1] == pytest.approx(0.2 * rewards[0] + 0.8 * rewards[1], rel=1e-10)
    assert p.observations.rows.shape[1] == p.dim == 4


def test_values_of_average_rewards_have_no_constant():
    for features in (np.eye(5), np.ones((5, 1)), np.column_stack([np.arange(5.0), 3 - np.arange(5)])):
        with pytest.raises(
            SingularSystemError, match=r"^features must not combine to a constant .* got singular values"
        ):
            average_reward(**random_world(0).arrays(features))


# Gradient methods.


@every_world
@pytest.mark.parametrize("kind", ["gtd2", "tdc"])
def test_gradient_td_has_the_fixed_point_of_td_and_the_matrices_of_its_authors(name, kind):
    world, gamma, ratio = WORLDS[name], 0.9, 2.5
    p = gradient_td(**world.arrays(), discount=gamma, kind=kind, ratio=ratio, behaviour=world.b)
    td = from_mdps(**world.arrays(), discount=gamma, behaviour=world.b)
    d, mu, phi = world.phi.shape[1], world.law(world.b), world.phi
    A, b = world.system(gamma, 0, world.b, False)
    C = phi.T @ np.diag(mu) @ phi
    following = gamma * phi.T @ world.kernel(world.pi).T @ np.diag(mu) @ phi  # E[rho gamma phi' phi^T]
    top = [np.zeros((d, d)), -A.T] if kind == "gtd2" else [A, following]
    expected = np.block([top, [ratio * A, ratio * C]])
    np.testing.assert_allclose(p.A_bar[0], expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(
        p.b_bar[0], np.append(b * (kind == "tdc"), ratio * b), rtol=0, atol=1e-9 * np.abs(b).max()
    )
    scale, lost = np.abs(td.theta_star).max(), 1e-13 * np.linalg.cond(expected)
    np.testing.assert_allclose(p.theta_star[:d], td.theta_star, rtol=0, atol=max(1e-10, lost) * scale)
    np.testing.assert_allclose(p.theta_star[d:], 0, rtol=0, atol=max(1e-10, lost) * scale)


def test_a_step_of_gradient_td_is_that_of_its_box():
    """theta moves by eta rho v (phi^T w) or eta rho (delta phi - gamma phi' (phi^T w)), w by ratio eta (...) phi."""
    world, gamma, eta, ratio = WORLDS["episodes"], 0.8, 0.1, 3.0
    g = np.random.default_rng(0)
    theta, w = g.normal(size=2), g.normal(size=2)
    for kind in ("gtd2", "tdc"):
        p = gradient_td(**world.arrays(), discount=gamma, kind=kind, ratio=ratio, behaviour=world.b)
        A, b = p.observations.matrices(slice(0, len(p.prob)))
        moves = -eta * (A @ np.append(theta, w) - b)
        expected = np.zeros(4)
        for s, a, t in np.ndindex(5, 3, 5):
            chance = world.law(world.b)[s] * world.b[s, a] * world.P[s, a, t]
            rho, phi = world.pi[s, a] / world.b[s, a], world.phi[s]
            after = np.zeros(2) if world.ends[t] else gamma * world.phi[t]
            delta = world.r[s, a] + (after - phi) @ theta
            first = rho * (delta * phi - after * (phi @ w)) if kind == "tdc" else rho * (phi - after) * (phi @ w)
            expected += chance * eta * np.append(first, ratio * (rho * delta - phi @ w) * phi)
        np.testing.assert_allclose(p.prob @ moves, expected, atol=1e-12)


# Where off-policy TD diverges.


def star():
    """Like Baird's star: the policy goes to the centre, the other one wanders; features are independent, values 0."""
    P = np.zeros((7, 2, 7))
    P[:, 0, :6], P[:, 1, 6] = 1 / 6, 1
    phi = np.vstack([2 * np.eye(6, 7), np.zeros(7)])
    phi[:, 6] = [1, 1, 1, 1, 1, 1, 2]
    pi, b = np.tile([0, 1.0], (7, 1)), np.tile([6 / 7, 1 / 7], (7, 1))
    return World(P, np.zeros((7, 2)), pi, b, phi / 5**0.5, np.zeros(7, bool), np.eye(7)[0])


def test_off_policy_td_is_unstable_on_a_star_and_emphatic_and_gradient_td_are_not():
    given = star().arrays() | {"discount": 0.99, "behaviour": star().b}
    assert np.linalg.eigvals(from_mdps(**given).A_bar[0]).real.min() < -0.04
    options = ({"kind": "gtd2"}, {"kind": "tdc", "ratio": 20})
    for q in (from_mdps(**given, emphatic=True), *(gradient_td(**given, **more) for more in options)):
        assert np.linalg.eigvals(q.A_bar[0]).real.min() > 0
        np.testing.assert_allclose(q.theta_star, 0, atol=1e-12)


@pytest.mark.long
def test_off_policy_td_diverges_on_a_star_and_says_so():
    given, method = (
        star().arrays() | {"discount": 0.99, "assignment": [0, 0], "behaviour": star().b},
        fl.FedLSA(0.3, 40),
    )
    p = from_mdps(**given)
    assert fl.theory.stationary(p, method).mse == np.inf
    with pytest.warns(DivergenceWarning, match="no step_size was found to be stable"):
        r = fl.simulate(p, method, rounds=2000, seeds=2)
    assert (r["diverged_at"].values > 0).all()
    assert fl.theory.stability_limit(from_mdps(**given, emphatic=True), fl.FedLSA(0.1, 5), 0.1) > 0.01
    assert fl.theory.stability_limit(gradient_td(**given, kind="gtd2"), fl.FedLSA(0.1, 5), 0.1) > 0.01


# Discount 1.


def test_values_without_discount_are_expected_sums():
    """A walk on 0 ... 6 that ends at both ends: the chance of the right end is s / 6, the steps are s (6 - s)."""
    P = (np.eye(7, k=1) + np.eye(7, k=-1)) / 2
    P[[0, 6]] = np.eye(7)[[0, 6]]
    ends, initial = np.isin(np.arange(7), [0, 6]), np.eye(7)[3]
    given = (P[None, :, None], np.ones((1, 7, 1)), np.ones((7, 1)), np.eye(7)[:, 1:6], 1)
    p = from_mdps(*given, ends, initial)
    s = np.arange(1, 6)
    for q in (p, from_mdps(*given, ends, initial, trace=0.9), from_mdps(*given, ends, initial, emphatic=True)):
        np.testing.assert_allclose(q.theta_star, s * (6 - s), rtol=1e-12)
    np.testing.assert_allclose(fl.theory.value_functions(p)[0], [0, *s * (6 - s), 0], rtol=1e-12)
    np.testing.assert_allclose(fl.theory.value_error(p, p.theta_star), 0, atol=1e-12)
    origin, successor = np.nonzero(P[1:6])
    origin += 1
    chains = [(origin, np.where(ends[successor], 3, successor), successor == 6, P[origin, successor], ends[successor])]
    q = from_chains(chains, np.eye(7)[:, 1:6], 1, initial)
    np.testing.assert_allclose(q.theta_star, s / 6, rtol=1e-12)
    assert np.isnan(fl.theory.constants(p).nu)  # the paper's claims for TD(0) need a discount


def test_discount_one_without_an_end_is_refused():
    world = long_corridor()
    given = world.arrays() | {"discount": 1}
    stay = np.tile([0.0, 1.0], (8, 1))
    with pytest.raises(ArgumentError, match=r"^discount must be .* below 1; got 1$"):
        from_mdps(**{k: v for k, v in given.items() if k not in ("terminal", "initial")})
    message = r"^discount must be below 1 where no end can be reached, at \[table, state\]; got 1 at \[0, 0\]$"
    kinds = {"policy": stay}, {"policy": stay, "behaviour": world.b}, {"terminal": np.zeros(8)}
    for options, state in zip(kinds, (0, 0, 7), strict=True):
        for make in (from_mdps, gradient_td):
            with pytest.raises(ArgumentError, match=message.replace("0, 0", f"0, {state}")):
                make(**given | options)
    chain = ([0, 1, 1], [1, 1, 0], np.ones(3), [1, 1, 0], [0, 0, 1])
    with pytest.raises(ArgumentError, match=message.replace("0, 0", "0, 1")):
        from_chains([chain], np.eye(2)[:, 1:], 1, [1, 0])
    with pytest.raises(ArgumentError, match=r"^trace must be below 1 where discount is 1; got 1$"):
        from_mdps(**given, trace=1)


# What is refused.

BAD = [
    (from_mdps, {"behaviour": np.tile([0.0, 1.0], (8, 1))}, ArgumentError,
     r"behaviour must be above 0 for every action that policy takes; got 0 at \[0, 0, 0\]"),
    (from_mdps, {"behaviour": np.full((2, 8, 2), 0.5)}, ArgumentError, "behaviour must be an array .* got shape"),
    (from_mdps, {"behaviour": np.full((8, 2), 0.4)}, ArgumentError, "behaviour must sum to one over its last axis"),
    (from_mdps, {"trace": 1.5}, ArgumentError, "trace must be .* at most 1; got 1.5"),
    (from_mdps, {"emphatic": 1}, ArgumentTypeError, "emphatic must be True or False; got 1"),
    (from_mdps, {"discount": 1.5}, ArgumentError, "discount must be .* at most 1; got 1.5"),
    (gradient_td, {"kind": "gtd"}, UnknownNameError, "kind must be one of 'tdc', 'gtd2'; got 'gtd'; did you"),
    (gradient_td, {"ratio": 0}, ArgumentError, "ratio must be a finite number above 0; got 0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "changes", "error", "message"), BAD)
def test_bad_arguments_are_refused(make, changes, error, message):
    with pytest.raises(error, match=message):
        make(**long_corridor().arrays() | {"discount": 0.9} | changes)


def test_an_action_that_is_missing_where_nobody_goes_does_not_matter():
    world = absorbed()
    p = from_mdps(**world.arrays(), discount=0.5, behaviour=[[1, 0], [0.5, 0.5]], trace=0.3)
    np.testing.assert_allclose(p.theta_star, [1.5 / 0.5], rtol=1e-12)


def test_ratios_that_no_number_holds_are_refused():
    S = 40
    P = np.zeros((1, S, 2, S))
    P[0, np.arange(S), 0, np.minimum(np.arange(S) + 1, S - 1)] = P[0, :, 1, 0] = 1
    policy, behaviour = np.tile([0.5, 0.5], (S, 1)), np.tile([1e-12, 1 - 1e-12], (S, 1))
    with pytest.raises(fl.errors.PrecisionError, match="behaviour must do what policy does more often"):
        from_mdps(P, np.ones((1, S, 2)), policy, np.ones((S, 1)), 0.9, behaviour=behaviour, trace=0.9)


# Simulated against exact theory.


def problems():
    """Two agents in different worlds, each kind of problem."""
    one, other = random_world(8, S=3, A=2), random_world(9, S=3, A=2)
    given = {"P": 0.9 * np.stack([one.P, other.P]) + 0.1 / 3, "r": np.stack([one.r, other.r]), "policy": one.pi}
    given["features"] = one.phi / np.linalg.norm(one.phi, axis=1).max()
    ends = {"terminal": [0, 0, 1], "initial": [0.5, 0.5, 0]}
    off = {"behaviour": 0.5 * one.pi + 0.25}
    return {
        "off-policy": from_mdps(**given, **off, discount=0.8),
        "trace": from_mdps(**given, **ends, discount=0.8, trace=0.5),
        "off-policy trace": from_mdps(**given, **off, discount=0.8, trace=0.5),
        "emphatic": from_mdps(**given, **off, discount=0.5, trace=0.2, emphatic=True),
        "gtd2": gradient_td(**given, **off, **ends, discount=1, kind="gtd2", ratio=2),
        "tdc": gradient_td(**given, **off, discount=0.8),
        "average reward": average_reward(**given, ratio=0.5),
        "no discount": from_mdps(**given, **ends, discount=1),
    }


KINDS = ("off-policy", "trace", "off-policy trace", "emphatic", "gtd2", "tdc", "average reward", "no discount")


@pytest.mark.long
@pytest.mark.parametrize("sampling", [fl.IID(), fl.Markov(), fl.Markov(thin=2)], ids=["iid", "markov", "thinned"])
@pytest.mark.parametrize("kind", KINDS)
def test_simulated_errors_are_those_of_exact_theory(kind, sampling):
    p, method, n = problems()[kind], fl.FedLSA(0.05, 4), 4000
    options = {"rounds": 25, "sampling": sampling, "record": [0, 1, 5, 25]}
    run, m = fl.simulate(p, method, seeds=n, **options), fl.theory.exact(p, method, **options)
    squares, theta = run["squared_error"].values[:, 1:], run["theta"].values[:, 1:]
    assert np.abs((squares.mean(0) - m["mse"].values[1:]) / squares.std(0) * n**0.5).max() < 4
    spread = theta.std(0) / n**0.5
    assert (np.abs(theta.mean(0) - m["mean"].values[1:]) <= 4 * spread + 1e-12).all()

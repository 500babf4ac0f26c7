"""Each method against a literal transcription of its box in the paper, on the observations that the engine draws."""

from types import SimpleNamespace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.algorithms import METHODS, supporting
from fedlsa.engine.outcome_tables import first_states, outcome_tables
from fedlsa.engine.random import uniforms
from fedlsa.engine.reference import Observer

ETA, N, T, H = 0.3, 4, 8, 6
SEED = 11


def observers(problem, sampling, outcomes_only=False):
    """One stream of observations per agent; with `outcomes_only` they give the numbers of the outcomes instead."""
    where = outcome_tables(problem, sampling)
    seeds = np.array([SEED], np.uint64)
    states = first_states(problem, sampling, seeds)[0] if isinstance(sampling, fl.Markov) else [None] * N
    if outcomes_only:
        numbered = SimpleNamespace(matrices=lambda span: ([span.start], [None]))
        problem = SimpleNamespace(assignment=problem.assignment, observations=numbered)
    return [
        Observer(problem, sampling, where, SEED, c, None if s is None else int(s))
        for c, s in zip(range(N), states, strict=True)
    ]


@pytest.fixture(scope="module")
def problem():
    return fl.problems.garnet(agents=N, states=12, seed=5)


def server_iterates(problem, algorithm, sampling=None, rounds=T):
    sampling = sampling or fl.IID()
    r = fl.simulate(problem, algorithm, rounds=rounds, seeds=[SEED], sampling=sampling, record=rounds + 1)
    return r["theta"].values[0]


def agree(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def test_fedlsa_follows_algorithm_1(problem):
    agents = observers(problem, fl.IID())
    theta = [problem.theta_star + 1]
    for t in range(T):
        local = {}
        for c in range(N):
            local[c, 0] = theta[t]
            for h in range(1, H + 1):
                A, b = agents[c].receive()
                local[c, h] = local[c, h - 1] - ETA * (A @ local[c, h - 1] - b)
        theta.append(sum(local[c, H] for c in range(N)) / N)
    agree(server_iterates(problem, fl.FedLSA(ETA, H)), theta)


def test_scafflsa_follows_algorithm_2(problem):
    agents = observers(problem, fl.IID())
    theta, xi = [problem.theta_star + 1], {(0, c): np.zeros(problem.dim) for c in range(N)}
    for t in range(T):
        hat = {}
        for c in range(N):
            hat[c, 0] = theta[t]
            for h in range(1, H + 1):
                A, b = agents[c].receive()
                hat[c, h] = hat[c, h - 1] - ETA * (A @ hat[c, h - 1] - b - xi[t, c])
        theta.append(sum(hat[c, H] for c in range(N)) / N)
        for c in range(N):
            xi[t + 1, c] = xi[t, c] + (theta[t + 1] - hat[c, H]) / (ETA * H)
    agree(server_iterates(problem, fl.SCAFFLSA(ETA, H)), theta)
    kept = fl.simulate(problem, fl.SCAFFLSA(ETA, H), rounds=T, seeds=[SEED], keep=("xi",))["xi"].values[0]
    agree(kept, [xi[T, c] for c in range(N)])


def test_scaffnew_follows_its_text_with_one_coin_for_all_agents(problem):
    """Iteration by iteration, as eq:global-update-sto to eq:def:control-variate have it; B_k = 1 ends a round."""
    p = 0.3
    coins = []
    for u in uniforms(SEED, 0, T):  # the number of tosses up to the first head, by inversion of its law
        k = 1
        while u >= 1 - (1 - p) ** k:
            k += 1
        coins += [0] * (k - 1) + [1]
    assert len(coins) > T  # some rounds have more than one step
    agents = observers(problem, fl.IID())
    theta = [problem.theta_star + 1] * N
    xi = [np.zeros(problem.dim)] * N
    after = [theta[0]]
    for B in coins:
        hat = []
        for c in range(N):
            A, b = agents[c].receive()
            hat.append(theta[c] - ETA * (A @ theta[c] - b - xi[c]))
        theta = [sum(hat) / N] * N if B else hat
        xi = [xi[c] + p / ETA * (theta[c] - hat[c]) for c in range(N)]
        if B:
            after.append(theta[0])
    agree(server_iterates(problem, fl.Scaffnew(ETA, p)), after)


@pytest.mark.parametrize("q", [1, 2, 4])
def test_markovian_fedlsa_skips_all_but_every_qth_observation(problem, q):
    """algo:fed-lsa-markov, with the theta that its box forgets in the update."""
    sampling = fl.Markov(thin=q)
    agents = observers(problem, sampling)
    theta = problem.theta_star + 1
    after = [theta]
    for _ in range(T):
        local = [theta] * N
        for c in range(N):
            for h in range(1, H + 1):
                A, b = agents[c].receive()
                if h % q == 0:
                    local[c] = local[c] - ETA * (A @ local[c] - b)
        theta = sum(local) / N
        after.append(theta)
    agree(server_iterates(problem, fl.FedLSA(ETA, H), sampling), after)
    assert agents[0].step == T * H  # the trajectory goes on across rounds, and skipped observations count


@pytest.mark.parametrize("controlled", [False, True], ids=["federated TD(0)", "SCAFFTD(0)"])
@pytest.mark.parametrize("sampling", [fl.IID(), fl.Markov()], ids=["generative", "trajectory"])
def test_td_boxes_computed_from_states_actions_and_features(controlled, sampling):
    """algo:fed-lsa-td and algo:scafflsa-td: A = phi(s) (phi(s) - gamma phi(s'))^T and b = phi(s) r(s, a)."""
    g = np.random.default_rng(8)
    S, actions, d, gamma = 10, 2, 6, 0.9
    P, r = g.dirichlet(np.full(S, 0.3), size=(N, S, actions)), g.normal(size=(N, S, actions))
    policy, phi = g.dirichlet(np.ones(actions), size=S), g.normal(size=(S, d)) / 3
    problem = fl.problems.from_mdps(P, r, policy, phi, gamma)
    agents = observers(problem, sampling, outcomes_only=True)
    chain, y = problem.chain, problem.observations.y
    theta, xi = problem.theta_star + 1, np.zeros((N, d))
    before = [None] * N
    after = [theta]
    for _ in range(T):
        hat = np.tile(theta, (N, 1))
        for c in range(N):
            for _h in range(H):
                z = agents[c].receive()[0]
                s, s_next = int(chain.origin[z]), int(chain.successor[z])
                a = int(np.flatnonzero(r[c, s] == y[z])[0])  # rewards are all different
                assert P[c, s, a, s_next] * policy[s, a] > 0
                if isinstance(sampling, fl.Markov) and before[c] is not None:
                    assert s == before[c]  # a trajectory has no gaps, not even between rounds
                before[c] = s_next
                error = r[c, s, a] + gamma * phi[s_next] @ hat[c] - phi[s] @ hat[c]  # the temporal difference
                hat[c] = hat[c] + ETA * (error * phi[s] + xi[c])
        theta = hat.mean(axis=0)
        if controlled:
            xi = xi + (theta - hat) / (ETA * H)
        after.append(theta)
    agree(server_iterates(problem, (fl.SCAFFLSA if controlled else fl.FedLSA)(ETA, H), sampling), after)


def test_each_method_of_the_registry_says_its_name_what_it_supports_and_how_long_its_rounds_are():
    for name, kind in METHODS.items():
        method = kind.with_steps(0.1, 8, participants=2)
        assert kind.name == name
        assert method.mean_steps == 8
        assert getattr(method, kind.length) == (1 / 8 if kind.random_lengths else 8)
        assert method.participants == 2
    for room in ("theory", "plan", "fit", "network"):
        assert list(supporting(room)) == ["fedlsa", "scafflsa", "scaffnew"]
    assert supporting("anything else") == {}

    class Variation(fl.SCAFFLSA):
        """A method from outside, of which no theory is known."""

    assert not Variation.supports
    with pytest.raises(
        fl.errors.ArgumentError, match=r"algorithm must be one of FedLSA, SCAFFLSA, Scaffnew, .*; got Variation"
    ):
        fl.theory.exact(fl.problems.ring(3), Variation(0.1, 2), rounds=2)

"""The slow twin itself: against enumeration of everything that can happen, and against its own other ways."""

import itertools

import numpy as np
import pytest
from gallery import CASES, shaken
from own_steps import OwnStepsSCAFFLSA
from server_momentum import MomentumFedLSA, MomentumSCAFFLSA
from twin import Twin, stability_limit

import fedlsa as fl


def outcomes(p, c, theta, xi, eta, H):
    """Every (probability, theta_hat) of agent c after H steps, as the method is written."""
    span = list(p.spans())[p.assignment[c]]
    A, b = p.observations.matrices(span)
    for z in itertools.product(range(len(b)), repeat=H):
        chance, hat = 1.0, theta
        for k in z:
            chance, hat = chance * p.prob[span][k], hat - eta * (A[k] @ hat - b[k] - xi)
        yield chance, hat


def enumerated(p, eta, lengths, gain, m, rounds, theta_0, momentum):
    """E[theta], E||theta - theta_star||^2, sum_c w_c E||xi_c - xi_star_c||^2 after each round, over all histories.

    eta, gain : (N,); lengths : those that all agents' rounds may have together, (N,), and how likely they are
    """
    N, w = p.n_agents, p.weights
    sets = list(itertools.combinations(range(N), m))
    states, out = [(1.0, theta_0, np.zeros((N, p.dim)), 0 * theta_0)], []
    for t in range(rounds + 1):
        q = np.array([chance for chance, _, _, _ in states])
        theta, xi = np.stack([s[1] for s in states]), np.stack([s[2] for s in states])
        spread = np.sum((xi - p.xi_star) ** 2, axis=2) @ w
        np.testing.assert_allclose(np.einsum("c,scd->sd", w, xi), 0, atol=1e-12)
        out.append((q @ theta, q @ np.sum((theta - p.theta_star) ** 2, axis=1), q @ spread))
        later = []
        for (chance, th, x, v), (often, H), S in itertools.product(states, lengths, sets if t < rounds else []):
            for each in itertools.product(*(outcomes(p, c, th, x[c], eta[c], H[c]) for c in S)):
                hat = dict(zip(S, (h for _, h in each), strict=True))
                speed = momentum * v + N / m * sum(w[c] * (hat[c] - th) for c in S)
                change = np.stack([gain[c] * (th - hat[c]) if c in S else 0 * th for c in range(N)])
                probability = chance * often * np.prod([a for a, _ in each]) / len(sets)
                later.append((probability, th + speed, x + change - w @ change, speed))
        states = later
    return [np.array(column) for column in zip(*out, strict=True)]


SMALL = fl.problems.from_observations(
    [shaken([[1.0]], [1.0], 0.5), shaken([[0.4]], [-1.0], 0.3), ([0.2, 0.8], [[[2.0]], [[1.0]]], [[1.0], [0.0]])],
    weights=[1.0, 2.0, 3.0],
)


UNEQUAL = {"step_factors": (1.0, 0.5, 1.2), "length_factors": (1.0, 0.5, 1.5)}


@pytest.mark.parametrize("participants", [1, 2, 3])
@pytest.mark.parametrize(
    "a",
    [
        fl.FedLSA(0.3, 2),
        fl.SCAFFLSA(0.3, 2),
        fl.Scaffnew(0.3, 0.999),
        MomentumFedLSA(0.3, 1, momentum=0.4),
        MomentumSCAFFLSA(0.3, 1, momentum=0.4),
        OwnStepsSCAFFLSA(0.3, 2, **UNEQUAL),
    ],
    ids=repr,
)
def test_the_twin_equals_enumeration_of_everything_that_can_happen(a, participants):
    eta, H, momentum, rounds = (
        0.3 * np.ones(3),
        np.full(3, getattr(a, "local_steps", 1)),
        getattr(a, "momentum", 0.0),
        2,
    )
    if isinstance(a, OwnStepsSCAFFLSA):
        eta, H = eta * UNEQUAL["step_factors"], np.array([2, 1, 3])
    lengths, gain = [(1.0, H)], 1 / (eta * H) if a.gain(eta, H).any() else np.zeros(3)
    if isinstance(a, fl.Scaffnew):  # longer rounds have a probability of 1e-12
        lengths, gain, rounds = [(0.999 * 0.001 ** (k - 1), k * H) for k in (1, 2, 3, 4)], 0.999 / eta, 1
    theta_0 = SMALL.theta_star - 0.7
    mean, mse, spread = enumerated(SMALL, eta, lengths, gain, participants, rounds, theta_0, momentum)
    found = Twin(SMALL, a, participants).curve(rounds, theta_0)
    length = 0.3 * a.mean_steps
    np.testing.assert_allclose(found["mean"] + SMALL.theta_star, mean, rtol=1e-11)
    np.testing.assert_allclose(found["mse"], mse, rtol=1e-11)
    np.testing.assert_allclose(found["psi"], mse + length**2 * spread, rtol=1e-11)
    np.testing.assert_allclose(found["variance"], found["mse"] - found["squared_bias"], atol=1e-12)


def test_iterations_equal_enumeration_of_coins_and_outcomes():
    p, eta, chance = SMALL, 0.3, 0.4
    N, w, paths, out = p.n_agents, p.weights, [(1.0, np.tile(p.theta_star + 1, (3, 1)), np.zeros((3, 1)))], []
    for _ in range(3):
        q = np.array([path[0] for path in paths])
        h, xi = np.stack([path[1] for path in paths]) - p.theta_star, np.stack([path[2] for path in paths]) - p.xi_star
        own, spread, bar = np.sum(h**2, axis=2) @ w, np.sum(xi**2, axis=2) @ w, np.einsum("c,scd->sd", w, h)
        out.append((q @ own, q @ np.sum(bar**2, axis=1), q @ (own + (eta / chance) ** 2 * spread), q @ bar))
        later = []
        for often, hats, x in paths:
            for each in itertools.product(*(outcomes(p, c, hats[c], x[c], eta, 1) for c in range(N))):
                probability, hat = often * np.prod([a for a, _ in each]), np.stack([h for _, h in each])
                mean = w @ hat
                later.append((probability * (1 - chance), hat, x))
                later.append((probability * chance, np.tile(mean, (N, 1)), x + chance / eta * (mean - hat)))
        paths = later
    found = Twin(p, fl.Scaffnew(eta, chance)).iterations(2)
    for name, column in zip(("agents_mse", "mse", "psi", "mean"), zip(*out, strict=True), strict=True):
        np.testing.assert_allclose(found[name], np.array(column), rtol=1e-12)


@pytest.mark.parametrize("a", [fl.FedLSA(0.03, 65), fl.SCAFFLSA(0.03, 65)], ids=repr)
def test_powers_of_the_joint_map_equal_single_steps(a):
    twin = Twin(SMALL, a)
    m, C = twin.round(*twin.start())
    n, D = twin.steps(*twin.steps(m, C, 0.03, 64), 0.03, 1)
    k, F = twin.steps(m, C, 0.03, 65)
    np.testing.assert_allclose(n, k, rtol=1e-12)
    np.testing.assert_allclose(D, F, rtol=1e-11, atol=1e-13 * np.abs(D).max())


@pytest.mark.parametrize("participants", [1, 3])
@pytest.mark.parametrize("a", [fl.FedLSA(0.3, 2), fl.SCAFFLSA(0.3, 2), fl.Scaffnew(0.3, 0.7)], ids=repr)
def test_a_round_keeps_the_limit_and_shrinks_what_is_not_it_by_the_radius(a, participants):
    twin = Twin(SMALL, a, participants)
    m, C = twin.fixed_point()
    n, D = twin.round(m, C)
    free = [i for part in (twin.u, *twin.x) for i in range(twin.n)[part]]
    np.testing.assert_allclose(n[free], m[free], atol=1e-13)
    np.testing.assert_allclose(D[np.ix_(free, free)], C[np.ix_(free, free)], atol=1e-13 * np.abs(C).max())
    E, sizes = twin.free(), []
    off = E @ E.T
    for _ in range(12):  # without noise, for the mean is 0
        off = twin.round(np.zeros(twin.n), off)[1]
        sizes.append(np.trace(off[twin.u, twin.u]))
    np.testing.assert_allclose(sizes[-1] / sizes[-2], twin.radius(), rtol=0.02)


def test_the_edge_of_one_agent_is_known():
    a = CASES["at the edge"]()
    limit = stability_limit(a.problem, lambda eta: fl.FedLSA(eta, 2), 0.1, 3.0)
    np.testing.assert_allclose(limit, a.eta / 0.99, rtol=1e-6)

"""The methods of the field: where they end, what they keep, and what they are where they are trivial.

`expected_round` is the expectation of a round of an exchange on the mean systems, written out; where it ends is held
against the equation that each method's page states.
"""

from dataclasses import fields
from functools import partial

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.algorithms import FAMILY, METHODS
from fedlsa.errors import ArgumentError, ArgumentTypeError

ETA, H = 0.1, 7


def make_problem(noise=0.3, N=4, d=3):
    """Agents that differ in system, weight and noise; no A_bar_c is symmetric."""
    g = np.random.default_rng(8)
    tables = []
    for _ in range(N):
        A = np.eye(d) + 0.35 * g.normal(size=(d, d))
        E, b, e = noise * g.normal(size=(d, d)), g.normal(size=d), noise * g.normal(size=d)
        tables.append(([0.5, 0.5], np.array([A + E, A - E]), np.array([b + e, b - e])))
    return fl.problems.from_observations(tables, weights=[1, 2, 1.5, 0.5])


P = make_problem()
N, D = P.n_agents, P.dim
STEPS, LENGTHS = (1.0, 0.5, 1.5, 0.8), (1.0, 3 / 7, 2 / 7, 9 / 7)
SOME = {"participants": 2}
limit_of = partial(fl.theory.stationary, P)
CORRECTED = {  # those that end in theta_star, each in a setting where it is not SCAFFLSA
    "dropouts": fl.Dropouts(ETA, H, (0.5, 0.1, 0.0, 0.3), step_factors=STEPS, length_factors=LENGTHS),
    "fednova": fl.FedNova(ETA, H, step_factors=STEPS, length_factors=LENGTHS, corrected=True, **SOME),
    "delayed": fl.Delayed(ETA, 3, (0.5, 0.3, 0.2), **SOME),
    "buffered": fl.Buffered(ETA, 3, **SOME),
    "rand-k": fl.Compressed(ETA, H, fl.RandK(2), **SOME),
    "rand-k, unscaled": fl.Compressed(ETA, H, fl.RandK(2, scaled=False)),
    "rand-k, memory": fl.Compressed(ETA, H, fl.RandK(2, scaled=False), memory=True, **SOME),
    "rounding": fl.Compressed(ETA, H, fl.Rounding(4, 6.0)),  # its noise is as large as all other
    "rounding, memory": fl.Compressed(ETA, H, fl.Rounding(5, 6.0), memory=True),
    "noise": fl.Compressed(ETA, H, fl.Noise(0.1)),
    "noise, memory": fl.Compressed(ETA, H, fl.Noise(0.1), memory=True),
    "svrg": fl.SVRG(ETA, H, **SOME),
    "saga": fl.SAGA(ETA, H, **SOME),
    "fedprox": fl.FedProx(ETA, H, 0.7, corrected=True, **SOME),
    "fedlin": fl.FedLin(ETA, H, **SOME),
    "scaffold 1": fl.Scaffold(ETA, 3, 1, 0.7, **SOME),
    "scaffold 2": fl.Scaffold(ETA, H, 2, 0.7, **SOME),
    "gradient tracking": fl.GradientTracking(ETA, 2, **SOME),
}
UNCORRECTED = {
    "delayed": fl.Delayed(ETA, 3, (0.5, 0.3, 0.2), corrected=False, **SOME),
    "buffered": fl.Buffered(ETA, 3, corrected=False, **SOME),
    "compressed": fl.Compressed(ETA, 3, fl.RandK(2), corrected=False),
    "memory": fl.Compressed(ETA, 3, fl.RandK(2, scaled=False), memory=True, corrected=False, **SOME),
    "svrg": fl.SVRG(ETA, 3, corrected=False),
    "saga": fl.SAGA(ETA, 3, corrected=False),
}


def rounds_of(problem, method):
    """Its exchange, eta_c and H_c."""
    eta, length = np.full(problem.n_agents, method.step_size), np.full(problem.n_agents, method.local_steps)
    factors = method.agent_factors(problem.n_agents)
    if factors is None:
        return method.exchange(method.step_size, method.local_steps, problem.n_agents, problem.dim), eta, length
    eta, length = eta * factors[0], np.rint(length * factors[1]).astype(int)
    return method.exchange(eta[:, None], length[:, None], problem.n_agents, problem.dim), eta, length


def combine(row, known):
    return sum(np.asarray(factor) * known[name] for name, factor in row.items())


def begin(problem, x, theta):
    """What is remembered at first : name -> (1, d) of the server, (N, d) of agents."""
    known = {"theta": theta[None], "xi": np.zeros((problem.n_agents, problem.dim))}
    shapes = dict.fromkeys(x.server, 1) | dict.fromkeys(x.agent, problem.n_agents)
    return known | {
        name: combine(x.begin.get(name, {}), known) + np.zeros((n, problem.dim)) for name, n in shapes.items()
    }


def expected_round(problem, method, state):
    """The state after a round, in expectation: who answers, starts and what is sent are replaced by their means."""
    p, (x, eta, length) = problem, rounds_of(problem, method)
    N, d = p.n_agents, p.dim
    known = dict(state)
    known["residual"] = p.b_bar - (p.A_bar @ known["theta"][0])
    known["mean_residual"] = (p.weights @ known["residual"])[None]
    starts = zip(x.probabilities(N), x.starts, strict=True)
    known["start"] = sum(q[:, None] * (combine(row, known) + np.zeros((N, d))) for q, (_, row) in starts)
    pulls, ends = combine(x.correction, known) + np.zeros((N, d)), []
    for c in range(N):
        start = theta = known["start"][c]
        for _ in range(length[c]):
            theta = theta - eta[c] * (p.A_bar[c] @ theta - p.b_bar[c] - pulls[c] + x.pull * (theta - start))
        ends.append(theta)
    known["theta_hat"] = np.array(ends)
    for name, row in x.messages.items():
        known[name] = combine(row, known)
        known[f"sent_{name}"] = x.send.law(d).mean * known[name]
    for name, (message, factor) in x.means.items():
        known[name] = (p.weights * factor @ known[f"sent_{message}"])[None]
    presence = x.answering(N, method.taking_part(N))[0][:, None]
    after = {}
    for name, before in state.items():
        after[name] = combine(x.then[name], known) if name in x.then else before
        if len(before) == N:
            absent = combine(x.absent[name], known) if name in x.absent else before
            after[name] = presence * after[name] + (1 - presence) * absent
    return after


def limit(problem, method, theta=None):
    """Where the expected recursion ends, after 2^13 rounds, by squaring its map; it must have come to rest."""
    theta = problem.theta_star + 1 if theta is None else theta
    first = begin(problem, rounds_of(problem, method)[0], theta)
    shapes = [(name, value.shape) for name, value in first.items()]
    size = sum(np.prod(shape) for _, shape in shapes)

    def step(flat):
        at, state = 0, {}
        for name, shape in shapes:
            state[name] = flat[at : at + np.prod(shape)].reshape(shape)
            at += np.prod(shape)
        return np.concatenate([np.ravel(v) for v in expected_round(problem, method, state).values()])

    constant = step(np.zeros(size))
    T = np.eye(size + 1)
    T[:-1, -1], T[:-1, :-1] = constant, np.array([step(e) - constant for e in np.eye(size)]).T
    flat = np.append(np.concatenate([np.ravel(v) for v in first.values()]), 1)
    power = np.linalg.matrix_power(T, 2**13)
    end = power @ flat
    np.testing.assert_allclose(T @ end, end, rtol=0, atol=1e-9)
    at, state = 0, {}
    for name, shape in shapes:
        state[name] = end[at : at + np.prod(shape)].reshape(shape)
        at += np.prod(shape)
    return state


def geometric(problem, eta, length, pull=0.0):
    """G_c = sum_{h < H_c} (I - eta_c (A_bar_c + pull I))^h : (N, d, d)."""
    one = np.eye(problem.dim)
    eta, length = np.broadcast_to(eta, problem.n_agents), np.broadcast_to(length, problem.n_agents)
    return np.array([
        sum(np.linalg.matrix_power(one - e * (A + pull * one), h) for h in range(n))
        for A, e, n in zip(problem.A_bar, eta, length, strict=True)
    ])  # fmt: skip


def solve_weighted(problem, factors):
    """theta with sum_c w_c factors_c (b_bar_c - A_bar_c theta) = 0; factors : (N, d, d)."""
    left = np.einsum("c,cij,cjk->ik", problem.weights, factors, problem.A_bar)
    return np.linalg.solve(left, np.einsum("c,cij,cj->i", problem.weights, factors, problem.b_bar))


@pytest.mark.parametrize("name", CORRECTED)
def test_with_corrections_every_method_ends_in_theta_star(name):
    method = CORRECTED[name]
    end = limit(P, method)
    np.testing.assert_allclose(end["theta"][0], P.theta_star, rtol=0, atol=1e-9)
    star = P.A_bar @ P.theta_star - P.b_bar
    expected = np.zeros((N, D)) if name == "fedlin" else star  # FedLin remembers nothing
    np.testing.assert_allclose(end["xi"], expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", UNCORRECTED)
def test_without_them_delays_buffers_and_messages_leave_the_fixed_point_of_fedlsa(name):
    end = limit(P, UNCORRECTED[name])["theta"][0]
    np.testing.assert_allclose(end, P.theta_star + fl.theory.bias(P, ETA, 3), rtol=0, atol=1e-10)
    assert np.linalg.norm(end - P.theta_star) > 1e-2


@pytest.mark.parametrize("pull", [0.0, 0.7])
def test_fedprox_ends_where_its_page_says(pull):
    end = limit(P, fl.FedProx(ETA, H, pull, **SOME))["theta"][0]
    np.testing.assert_allclose(end, solve_weighted(P, geometric(P, ETA, H, pull)), rtol=0, atol=1e-10)
    assert np.linalg.norm(end - P.theta_star) > 1e-2


def unequal(normalised):
    eta, length = ETA * np.array(STEPS), np.rint(H * np.array(LENGTHS)).astype(int)
    G = geometric(P, eta, length)
    return solve_weighted(P, G / length[:, None, None] if normalised else eta[:, None, None] * G)


def test_unequal_work_and_fednova_end_where_their_pages_say():
    own = {"step_factors": STEPS, "length_factors": LENGTHS, "corrected": False}
    plain = fl.theory.stationary(P, fl.UnequalWork(ETA, H, **own)).bias + P.theta_star
    np.testing.assert_allclose(plain, unequal(normalised=False), rtol=0, atol=1e-11)
    np.testing.assert_allclose(limit(P, fl.Dropouts(ETA, H, 0.4, **own))["theta"][0], plain, rtol=0, atol=1e-10)
    fair = limit(P, fl.FedNova(ETA, H, **own))["theta"][0]
    np.testing.assert_allclose(fair, unequal(normalised=True), rtol=0, atol=1e-10)
    corrected = fl.theory.stationary(P, fl.UnequalWork(ETA, H, step_factors=STEPS, length_factors=LENGTHS, **SOME))
    assert np.abs(corrected.bias).max() < 1e-11


def test_to_first_order_fednova_has_no_bias_of_unequal_work():
    """As the step size goes to 0 FedLSA's bias stays, and FedNova's falls with it."""
    own = {"length_factors": LENGTHS, "corrected": False}
    bias = {
        kind: [np.linalg.norm(limit(P, kind(eta, H, **own))["theta"] - P.theta_star) for eta in (0.02, 0.01)]
        for kind in (fl.FedNova, fl.Dropouts)
    }
    assert bias[fl.Dropouts][1] / bias[fl.Dropouts][0] > 0.9
    assert 0.45 < bias[fl.FedNova][1] / bias[fl.FedNova][0] < 0.55


class OwnGains(fl.UnequalWork):
    """The other natural correction: each agent does xi_c <- xi_c + gain_c (mean - change_c) alone."""

    def exchange(self, eta, updates, agents, dim):
        gain = self.gain(eta, updates)
        xi = {"xi": 1, "sent_change": -gain, "mean": gain}
        return fl.Exchange(then={"theta": {"theta": 1, "mean": 1}, "xi": xi}, absent={"xi": {"xi": 1, "mean": gain}})


def test_the_other_correction_keeps_another_sum_and_ends_in_the_system_weighted_by_how_far_agents_walk():
    method = OwnGains(ETA, H, step_factors=STEPS, length_factors=LENGTHS)
    end = limit(P, method)
    _, eta, length = rounds_of(P, method)
    walk = P.weights * eta * length
    np.testing.assert_allclose(walk @ end["xi"], 0, rtol=0, atol=1e-10)
    assert np.abs(P.weights @ end["xi"]).max() > 1e-2
    theta = np.linalg.solve(np.einsum("c,cij->ij", walk, P.A_bar), walk @ P.b_bar)
    np.testing.assert_allclose(end["theta"][0], theta, rtol=0, atol=1e-10)
    assert np.linalg.norm(theta - P.theta_star) > 1e-2


@pytest.mark.parametrize("corrected", [True, False])
def test_personal_coordinates_solve_the_joint_system(corrected):
    """Unknowns: the shared coordinates, then each agent's own, one equation for each."""
    own, start = [1], np.array([0.3, -2.0, 0.5])
    end = limit(P, fl.Personal(ETA, H, own, corrected=corrected, **SOME), start)
    G = np.eye(D) if corrected else geometric(P, ETA, H)
    A, b = G @ P.A_bar, (G @ P.b_bar[..., None])[..., 0]
    s, o, k = [0, 2], own, 2 + N
    left, right = np.zeros((k, k)), np.zeros(k)
    for c in range(N):
        left[:2, :2] += P.weights[c] * A[c][np.ix_(s, s)]
        left[:2, 2 + c] = P.weights[c] * A[c][s, 1]
        right[:2] += P.weights[c] * b[c][s]
        left[2 + c, :2], left[2 + c, 2 + c], right[2 + c] = A[c][1, s], A[c][1, 1], b[c][1]
    solution = np.linalg.solve(left, right)
    np.testing.assert_allclose(end["theta"][0][s], solution[:2], rtol=0, atol=1e-10)
    np.testing.assert_allclose(end["kept"][:, o].ravel(), solution[2:], rtol=0, atol=1e-10)
    assert end["theta"][0][1] == 0  # never sent
    assert (end["kept"][:, s] == 0).all()
    assert (end["xi"][:, o] == 0).all()


@pytest.mark.parametrize("name", [n for n in CORRECTED if n.startswith(("scaffold", "gradient"))])
def test_the_servers_variate_is_the_mean_of_the_agents(name):
    """Else agents would not all move alike in expectation: checked on the state, round by round, in expectation."""
    method, memory = CORRECTED[name], {"gradient tracking": ("track", -1)}.get(name, ("shared", 1))
    state = begin(P, rounds_of(P, method)[0], P.theta_star + 1)
    for _ in range(20):
        state = expected_round(P, method, state)
        np.testing.assert_allclose(state[memory[0]][0], memory[1] * P.weights @ state["xi"], rtol=0, atol=1e-12)
    assert np.abs(state[memory[0]]).max() > 1e-3


@pytest.mark.parametrize(("make", "says"), [
    (lambda: fl.Delayed(ETA, H, (0.5, 0.4)), r"delays must sum to one .*; got a sum of 0.9"),
    (lambda: fl.FedProx(ETA, H, -1), r"pull must be a finite number at least 0; got -1"),
    (lambda: fl.Momentum(ETA, H, 1.0), r"momentum must be a finite number at least 0 and below 1; got 1"),
    (lambda: fl.Scaffold(ETA, H, 3), r"option must be a positive integer and at most 2; got 3"),
    (lambda: fl.Anderson(ETA, H, 1.0), r"depth must be a positive integer and at most 2; got 1.0"),
    (lambda: fl.Adam(ETA, H, floor=0), r"floor must be a finite number above 0; got 0"),
    (lambda: fl.Dropouts(ETA, H, [[0.1], [0.1, 0.2]]), r"dropout must be an array of numbers; got \[\[0.1\]"),
    (lambda: fl.Dropouts(ETA, H, (0.1, 1.0)), r"dropout must be a finite number at least 0 and below 1; got 1"),
    (lambda: fl.Dropouts(ETA, H, participants=2), r"participation and participants must be None beside dropout; got"),
    (lambda: fl.Compressed(ETA, H, 2), r"send must be what is sent, such as fl.RandK\(...\); got 2"),
    (lambda: fl.Compressed(ETA, H, fl.RandK(2), True), r"send must not be scaled beside memory, .*; got RandK"),
    (lambda: fl.Compressed(ETA, H, corrected=1), r"corrected must be True or False; got 1"),
    (lambda: fl.Personal(ETA, H, (-1,)), r"entry of own must be a non-negative integer; got -1"),
    (lambda: limit_of(fl.Personal(ETA, H, (3,))), r"own must be of indices below the dimension, 3; got 3"),
    (lambda: limit_of(fl.UnequalWork(ETA, H, step_factors=(1, 2))), r"step_factors must be .*; got shape"),
    (lambda: limit_of(fl.Dropouts(ETA, H, (0.1, 0.2))), r"dropout must be an array .* \(4,\); got shape"),
])  # fmt: skip
def test_arguments_are_checked(make, says):
    with pytest.raises((ArgumentError, ArgumentTypeError), match=f"^{says}"):
        make()


def test_every_method_of_the_family_is_public_by_its_name_and_explains_its_settings():
    for name, kind in FAMILY.items():
        assert name == kind.__name__.lower() == kind.name
        assert getattr(fl, kind.__name__) is kind
        if name not in METHODS:
            text = kind.__doc__
            assert "ixed point" in text
            assert "nvariant" in text
            for f in fields(kind):
                assert f.name in text, (name, f.name)

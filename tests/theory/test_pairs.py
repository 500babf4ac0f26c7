"""The compiled round of control variates against the slow twin, and many rounds at once against plain iteration."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from twin import Twin

import fedlsa as fl
from fedlsa.theory import local_steps, many_rounds, moments, stationary_pairs, tuning
from fedlsa.theory.controlled import _shared, controlled_round
from fedlsa.theory.krylov import Krylov
from fedlsa.theory.linear import repeat, smat, squares, symkron

METHODS = [fl.SCAFFLSA(0.2, 7), fl.SCAFFLSA(0.2, 1), fl.Scaffnew(0.2, 0.2), fl.Scaffnew(0.2, 1.0)]


def several():
    """Tables whose mean matrices have complex eigenvalues, held by groups of different sizes and weights."""
    rng, dim = np.random.default_rng(3), 3
    turn = np.eye(dim)
    turn[0, 1], turn[1, 0] = 0.8, -0.8
    tables = []
    for _ in range(4):
        A = turn + 0.4 * rng.standard_normal((3, dim, dim))
        tables.append((rng.dirichlet(np.ones(3)), A, rng.standard_normal((3, dim))))
    weights = rng.uniform(1, 2, 4)[[0, 1, 1, 2, 3, 3, 3]]
    return fl.problems.from_observations(tables, assignment=[0, 1, 1, 2, 3, 3, 3], weights=weights)


@pytest.mark.parametrize("participants", [3, 7])
@pytest.mark.parametrize("a", METHODS, ids=repr)
@pytest.mark.parametrize("compiled_from", [0, 2**20])
def test_the_compiled_round_of_groups_is_that_of_the_twin(monkeypatch, a, participants, compiled_from):
    monkeypatch.setattr(tuning, "COMPILED_FROM", compiled_from)
    problem = several()
    m = moments(problem)
    assert m.count.tolist() == [1, 2, 1, 3]
    step = controlled_round(m, replace(a, participants=participants), 0.2)
    u = np.array([1.0, -0.5, 2.0])
    vector, twin = step.start(u, -m.xi_star[m.table]), Twin(problem, a, participants)
    state = twin.start(problem.theta_star + u)
    for _ in range(2):
        vector, state = step.advance(vector), twin.round(*state)
    mean, U, uy = step.common(vector)
    y, V, W = step.parts(vector)
    tiles = dict(zip(zip(*np.triu_indices(4), strict=True), W, strict=True))
    E, C, k = np.eye(twin.n), state[1], step.gain
    one, other = [0, 1, 3, 4], [None, 2, None, 5]  # agents of the groups
    np.testing.assert_allclose(mean, state[0][twin.u], rtol=1e-12)
    np.testing.assert_allclose(U, C[twin.u, twin.u], rtol=0, atol=1e-13 * np.abs(U).max())
    spot = [E[twin.x[c]] - k * E[twin.u] for c in range(7)]  # y of each agent
    for g, c in enumerate(one):
        np.testing.assert_allclose(y[g], spot[c] @ state[0], rtol=1e-11)
        np.testing.assert_allclose(smat(V[g], 3), spot[c] @ C @ spot[c].T, rtol=0, atol=1e-13 * np.abs(V).max())
        np.testing.assert_allclose(uy[g], C[twin.u] @ spot[c].T, rtol=0, atol=1e-13 * np.abs(uy).max())
        for h in range(g, 4):
            e = other[h] if h == g else one[h]
            want = np.zeros((3, 3)) if e is None else spot[c] @ C @ spot[e].T
            np.testing.assert_allclose(tiles[g, h], want, rtol=0, atol=1e-13 * np.abs(W).max())
    around = [E[twin.x[c]] for c in range(7)]  # x of each agent
    spread = sum(w * np.trace(x @ C @ x.T) for w, x in zip(problem.weights, around, strict=True))
    want = [*state[0][twin.u], np.trace(C[twin.u, twin.u]), spread]
    np.testing.assert_allclose(step.look(vector), want, rtol=1e-11)


@pytest.mark.parametrize("a", [fl.SCAFFLSA(0.1, 20), fl.Scaffnew(0.1, 0.05)], ids=repr)
def test_threads_and_sketches_of_many_groups_change_nothing(a, monkeypatch):
    m = moments(fl.problems.garnet(agents=25, preset="authors"))
    step = controlled_round(m, a, 0.1)
    assert len(step.weights[2]) == 325
    wanted, x = np.array([0, 3, 50, 150]), -m.xi_star[m.table]
    monkeypatch.setattr(tuning, "KRYLOV_FROM", 0)
    fast = many_rounds.krylov_curve(step, np.ones(8), x, wanted)
    slow = many_rounds.one_by_one(lambda t: step, np.ones(8), x, wanted)
    np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("rounds", [3, 40])  # the second space holds every mean
@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_means_in_a_krylov_space_have_the_squares_of_the_long_vector(a, rounds):
    m = moments(several())
    step = controlled_round(m, replace(a, participants=3), 0.2)
    y, (i, j) = step.parts(step.start(np.ones(3), -m.xi_star[m.table]))[0].copy(), np.triu_indices(4)
    means = many_rounds.MeanSpace(step, y.ravel(), rounds)
    v = means.beside(np.empty(0))
    for _ in range(4):
        vector = np.zeros(step.length)
        mean, V, W = step.parts(vector)
        mean[:], V[:], W[:] = y, squares(y), y[i, :, None] * y[j, None, :]
        W[(i == j) & (m.count[i] == 1)] = 0
        for got, want in zip(means.second(v), step.second(vector), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-13 * np.abs(want).max())
        u, spread = means.look(v)
        want = step.seen(vector)  # whose last entry has the square of the mean twice
        np.testing.assert_allclose([*u, 2 * spread], [*want[:3], want[4]], rtol=0, atol=1e-12 * np.abs(want).max())
        v, y = means.carry(v), step.mean(y)


@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_spaces_that_start_again_and_again_follow_the_same_curve(a, monkeypatch):
    m = moments(several())
    step, x, wanted = controlled_round(m, a, 0.02), -m.xi_star[m.table], np.array([0, 1, 7, 30, 31, 400])
    slow = many_rounds.one_by_one(lambda t: step, np.ones(3), x, wanted)
    spaces, begin = [], Krylov.__init__
    monkeypatch.setattr(Krylov, "__init__", lambda self, *args: (begin(self, *args), spaces.append(len(args[1])))[0])
    for name in ("MAX_KRYLOV_DIM", "MIN_KRYLOV_DIM"):
        monkeypatch.setattr(tuning, name, 16)
    monkeypatch.setattr(tuning, "KRYLOV_FROM", 0)
    fast = many_rounds.krylov_curve(step, np.ones(3), x, wanted)
    np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-11)
    assert sum(n > step.length for n in spaces) > 1  # more than one space of covariances and means


@pytest.mark.parametrize("p", [0.9, 0.1, 1e-3])
@pytest.mark.parametrize(
    "Z", [0.1 * np.eye(2), [[0.05, 3.0], [0.0, 0.05]], [[0.2, -0.5], [0.5, 0.2]], [[1.8, 0], [0, 0]]]
)
def test_sums_over_a_common_length_have_the_terms_of_all_lengths(Z, p):
    """slow growth, no eigenvectors, turning, steps near to the edge"""
    Z, q = np.array([Z, np.diag([0.3, 0.01])], np.float64), 1 - p
    B, X = np.eye(2) - Z, np.arange(1.0, 5.0).reshape(2, 2)
    factor, powers = _shared(Z, p)
    found = factor[0] @ X @ factor[1].T
    for Q in powers:
        found = found + Q[0] @ found @ Q[1].T
    want, term = np.zeros((2, 2)), X
    for _ in range(int(50 / p)):
        want, term = want + term, q * B[0] @ term @ B[1].T
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-12 * np.abs(want).max())


def test_a_length_whose_sums_diverge_has_none():
    assert _shared(np.array([[[2.2]]]), 0.1) is None
    assert _shared(np.array([[[-0.2]]]), 0.1) is None


def test_dimensions_that_no_mean_reaches_are_left_out():
    H = np.diag([0.99, 0.5, 0.1, 0.1]) + np.diag([1e-3, 1e-10, 1e-10], -1)
    assert many_rounds._occupied(H) == 3
    assert many_rounds._occupied(np.diag(np.ones(3), -1)) == 4  # a shift reaches all, one after the other
    assert many_rounds._occupied(np.zeros((0, 0))) == 0


@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_the_limit_is_a_fixed_point_and_the_radius_the_rate_at_which_it_is_approached(a):
    m = moments(several())
    found = stationary_pairs.limit(controlled_round(m, a, 0.2))
    assert found.vector is not None
    np.testing.assert_allclose(
        found.step.advance(found.vector), found.vector, rtol=0, atol=1e-12 * np.abs(found.vector).max()
    )
    columns = [found.step.advance(e, 0.0) for e in np.eye(found.step.length)]
    second = np.array(columns)[12:, 12:]  # without the means of 4 groups
    radius = stationary_pairs.radius(found.step)
    assert radius == pytest.approx(np.abs(np.linalg.eigvals(second)).max(), rel=1e-6)


def test_a_sketched_krylov_space_reproduces_its_map():
    rng = np.random.default_rng(1)
    rates, n = np.linspace(0, 0.99, 40), 20_000
    where = rng.integers(0, 40, n)
    start = rng.standard_normal(n)
    space = Krylov(lambda v: rates[where] * v, start)
    space.grow(30)
    out, along = space.rest
    want = (rates[where] * space.basis).T
    got = space.basis.T @ space.h
    got[:, -1] += out * along
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
    assert np.linalg.cond(space.basis) < 2
    space.grow(40)
    assert np.abs(np.linalg.eigvals(space.h)).max() == pytest.approx(0.99, abs=1e-8)


@pytest.mark.parametrize("H", [2, 7, 1000])
def test_threads_that_share_the_tables_find_the_same_powers_of_a_local_step(H):
    m = moments(fl.problems.garnet(agents=50, preset="authors"))
    for step in (partial(local_steps.one_step, m, 0.1), partial(local_steps.frozen_step, m, 0.1, -m.xi_star)):
        slow = repeat(step(), H, lambda a, b: a.then(b))
        for got, want in zip(local_steps.local_maps(m, H, step), (slow.M, slow.noise), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-13 * np.abs(want).max())


def test_steps_compose_as_their_matrices_do():
    """D_{a+b} = G_b D_a + D_b symkron(M_a), with other steps first than later"""
    early, late = (moments(fl.problems.garnet(agents=3, preset="authors", features=4, seed=k)) for k in (1, 2))
    s, x = 10, np.random.default_rng(0).standard_normal((3, 4))
    for a, b in (
        (local_steps.one_step(early, 0.3), local_steps.one_step(late, 0.5)),
        (local_steps.frozen_step(early, 0.3, x), local_steps.frozen_step(late, 0.5, -x)),
    ):
        a, b = a.then(b), b.then(a)  # so that no block is that of a single step
        both, (G_a, G_b) = a.then(b), (c.rows[:, :s, :s].transpose(0, 2, 1) for c in (a, b))
        np.testing.assert_allclose(both.M, b.M @ a.M, rtol=0, atol=1e-14)
        np.testing.assert_allclose(both.rows[:, :s, :s].transpose(0, 2, 1), G_b @ G_a, rtol=0, atol=1e-14)
        want = G_b @ a.noise + b.noise @ symkron(a.M)
        np.testing.assert_allclose(both.noise, want, rtol=0, atol=1e-14 * np.abs(want).max())


def test_a_deterministic_problem_has_a_limit_of_no_error():
    tables = [(np.ones(1), np.diag([0.5, 1.0])[None] * s, np.ones((1, 2))) for s in (1.0, 2.0)]
    p = fl.problems.from_observations(tables)
    found = fl.theory.stationary(p, fl.SCAFFLSA(0.3, 4))
    assert found.mse == 0
    assert 0 < found.radius < 1

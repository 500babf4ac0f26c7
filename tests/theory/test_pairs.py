"""The compiled round of methods with control variates against its readable twin, and leaps against plain iteration."""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.theory import controlled, limits, local, moments
from fedlsa.theory.exact import controlled_round
from fedlsa.theory.krylov import Krylov
from fedlsa.theory.pairs import pair_map

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


@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_the_compiled_round_and_its_readable_twin_agree(a):
    m = moments(several())
    assert m.count.tolist() == [1, 2, 1, 3]
    step = controlled_round(m, a, 0.2)
    pairs = pair_map(step)
    state = controlled.start(np.array([1.0, -0.5, 2.0]), -m.xi_star[m.table])
    vector = pairs.pack(state)
    for _ in range(4):
        state, vector = controlled.advance(step, state), pairs.advance(vector)
        found = pairs.unpack(vector)
        for name in ("u", "x", "U", "X", "V"):
            want = getattr(state, name)
            np.testing.assert_allclose(getattr(found, name), want, rtol=0, atol=1e-13 * np.abs(want).max() + 1e-15)
        exist = (~np.eye(4, dtype=bool)) | (m.count > 1)[:, None]  # pairs of two different agents
        both = [s.W.transpose(0, 2, 1, 3)[exist] for s in (found, state)]
        np.testing.assert_allclose(both[0], both[1], rtol=0, atol=1e-13 * np.abs(both[1]).max() + 1e-15)
        spread = (m.count * m.weight) @ np.trace(state.V, axis1=1, axis2=2)
        np.testing.assert_allclose(pairs.look(vector), [*state.u, np.trace(state.U), spread], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("a", [fl.SCAFFLSA(0.1, 20), fl.Scaffnew(0.1, 0.05)], ids=repr)
def test_threads_and_sketches_of_many_groups_change_nothing(a):
    m = moments(fl.problems.garnet(agents=25, preset="authors"))
    step = controlled_round(m, a, 0.1)
    pairs = pair_map(step)
    assert len(pairs.parts(np.zeros(pairs.length))[2]) == 325
    state = controlled.start(np.ones(8), -m.xi_star[m.table])
    vector = pairs.pack(state)
    wanted = np.array([0, 3, 50, 150])
    found, values = limits.curve(step, state, wanted), []
    for t in range(151):
        if t in wanted:
            values.append(pairs.look(vector))
        vector = pairs.advance(vector)
        if t < 2:
            state = controlled.advance(step, state)
            np.testing.assert_allclose(pairs.common(vector)[1], state.U, rtol=1e-12)
    values = np.array(values)
    np.testing.assert_allclose(found[1], values[:, 8], rtol=1e-10)
    np.testing.assert_allclose(found[2], values[:, 9], rtol=1e-10)
    np.testing.assert_allclose(found[0], values[:, :8], rtol=0, atol=1e-11)


@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_the_limit_is_a_fixed_point_and_the_radius_the_rate_at_which_it_is_approached(a):
    m = moments(several())
    found = limits.limit(controlled_round(m, a, 0.2))
    assert found.vector is not None
    np.testing.assert_allclose(
        found.step.advance(found.vector), found.vector, rtol=0, atol=1e-12 * np.abs(found.vector).max()
    )
    assert found.radius == pytest.approx(limits.radius(found.step.round), rel=1e-8)
    columns = [found.step.advance(e, 0.0) for e in np.eye(found.step.length)]
    second = np.array(columns)[12:, 12:]  # without the means of 4 groups
    assert found.radius == pytest.approx(np.abs(np.linalg.eigvals(second)).max(), rel=1e-6)


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
    m = moments(fl.problems.garnet(agents=25, preset="authors"))
    for step in (local.one_step(m, 0.1), local.frozen_step(m, 0.1, -m.xi_star)):
        fast, slow = local.repeated(step, H), local.slowly_repeated(step, H)
        for name in ("M", "G", "D"):
            want = getattr(slow, name)
            np.testing.assert_allclose(getattr(fast, name), want, rtol=0, atol=1e-13 * np.abs(want).max())


def test_a_deterministic_problem_has_a_limit_of_no_error():
    tables = [(np.ones(1), np.diag([0.5, 1.0])[None] * s, np.ones((1, 2))) for s in (1.0, 2.0)]
    p = fl.problems.from_observations(tables)
    found = fl.theory.stationary(p, fl.SCAFFLSA(0.3, 4))
    assert found.mse == 0
    assert 0 < found.radius < 1

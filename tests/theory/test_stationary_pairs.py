"""Limits, radii and stability limits against the slow twin on problems that break things, by every route."""

import functools

import gallery
import numpy as np
import pytest
import scipy.linalg
from twin import Twin

import fedlsa as fl
from fedlsa.theory import moments, pair_kernels, stationary_pairs, tuning
from fedlsa.theory.controlled import controlled_round
from fedlsa.theory.stationary_pairs import limit_by_series, pair_series

SLOW = "seventeen dimensions"  # for the twin
ALL = [pytest.param(case, a, id=f"{name}-{type(a).__name__}") for name, case, a in gallery.everything() if name != SLOW]
CONTROLLED = [p for p in ALL if not isinstance(p.values[1], fl.FedLSA)]


@functools.cache
def slow_limit(problem, a):
    """The twin's radius; bias and covariance of the limit, where there is one."""
    twin = Twin(problem, a)
    radius = twin.radius()
    return radius, *(twin.stationary() if radius < 1 else (None, None))


@pytest.mark.parametrize("compiled_from", [0, tuning.COMPILED_FROM])
@pytest.mark.parametrize(("case", "a"), ALL)
def test_limits_and_radii_are_those_of_the_slow_twin(case, a, compiled_from, monkeypatch):
    monkeypatch.setattr(tuning, "COMPILED_FROM", compiled_from)
    want, bias, covariance = slow_limit(case.problem, a)
    found = fl.theory.stationary(case.problem, a)
    assert found.stable == (want < 1)
    assert found.radius == pytest.approx(want, abs=1e-3)  # without eigenvectors nobody knows it better
    if found.stable:
        far, size = np.abs(case.problem.theta_star).max(), np.abs(covariance).max()
        np.testing.assert_allclose(found.bias, bias, rtol=0, atol=1e-9 * np.abs(bias).max() + 1e-12 * far)
        # observations are rounded too: by 1e-16, which is not nothing beside noise of 1e-8
        np.testing.assert_allclose(found.covariance, covariance, rtol=0, atol=1e-9 * size + 1e-16 * far * size**0.5)
        assert found.error <= 1e-9


@pytest.mark.parametrize(("case", "a"), CONTROLLED)
def test_every_route_finds_one_limit_and_one_answer_where_there_is_none(case, a):
    m = moments(case.problem)
    suited = [r for r in stationary_pairs.ROUTES if r != "lyapunov" or isinstance(a, fl.SCAFFLSA)]
    if case is gallery.CASES["badly scaled"]():
        suited.remove("dense")  # which refuses: it knows seven digits
    ends = [stationary_pairs.limit(controlled_round(m, a, a.step_size), [r]) for r in suited]
    assert [e.route for e in ends] == suited
    for e in ends[1:]:
        scale = np.abs(ends[0].vector).max()
        np.testing.assert_allclose(e.vector, ends[0].vector, rtol=0, atol=1e-9 * scale)
        np.testing.assert_allclose(e.U, ends[0].U, rtol=0, atol=1e-9 * np.abs(ends[0].U).max())
    assert all(stationary_pairs.settles(ends[0].step, [r]) for r in suited)


@pytest.mark.parametrize("H", [2, 20])
def test_every_route_sees_the_same_instability(H):
    problem = fl.problems.garnet(agents=3, states=10, features=3, discount=0.6)
    for make in (lambda eta: fl.SCAFFLSA(eta, H), lambda eta: fl.Scaffnew(eta, 1 / H)):
        edge = fl.theory.stability_limit(problem, make(0.1), tolerance=1e-4)
        for factor in (0.99, 1.01, 4.0):
            a = make(factor * edge)
            step = controlled_round(moments(problem), a, a.step_size)
            for route in stationary_pairs.ROUTES[isinstance(a, fl.Scaffnew) :]:
                assert stationary_pairs.settles(step, [route]) == (factor < 1), (a, route)


def test_a_route_whose_divisor_rounds_to_zero_leaves_the_limit_to_the_next(monkeypatch):
    problem, a = fl.problems.garnet(agents=3, states=10, features=3, discount=0.6), fl.SCAFFLSA(0.1, 2)
    want, equation = fl.theory.stationary(problem, a), stationary_pairs.Lyapunov
    assert want.route == "lyapunov"

    def singular(step):
        found = equation(step)
        Z, _, lanes = found._turned
        found.__dict__["_turned"] = Z, pair_kernels.in_lanes(np.zeros_like(Z) + np.eye(3)), lanes
        return found

    monkeypatch.setattr(stationary_pairs, "Lyapunov", singular)
    found = stationary_pairs.limit(controlled_round(moments(problem), a, a.step_size))
    assert found.route == "krylov"
    np.testing.assert_allclose(found.U, want.covariance, rtol=0, atol=1e-9 * np.abs(want.covariance).max())


def turning(agents, re=0.001, im=0.1):
    """Many different agents with eigenvalues re +- i im."""
    rng, tables = np.random.default_rng(0), []
    for _ in range(agents):
        A = np.array([[re, im], [-im, re]]) + 0.05 * re * rng.standard_normal((2, 2))
        E, b, e = 0.05 * re * rng.standard_normal((2, 2)), rng.standard_normal(2), rng.standard_normal(2)
        tables.append(([0.5, 0.5], np.stack([A + E, A - E]), np.stack([b + e, b - e])))
    return fl.problems.from_observations(tables)


def skewed(agents, delta):
    """Many different agents whose two eigenvectors are nearly one."""
    rng, tables = np.random.default_rng(0), []
    for _ in range(agents):
        A = (1 + 0.3 * rng.random()) * np.array([[1.0, 1.0], [0.0, 1.0 + delta]])
        E, b, e = 0.1 * rng.standard_normal((2, 2)), rng.standard_normal(2), rng.standard_normal(2)
        tables.append(([0.5, 0.5], np.stack([A + E, A - E]), np.stack([b + e, b - e])))
    return fl.problems.from_observations(tables)


@pytest.mark.parametrize(
    ("problem", "a"),
    [
        (turning(30), fl.SCAFFLSA(0.01, 10)),
        (skewed(26, 1e-5), fl.SCAFFLSA(0.1, 10)),
        (skewed(26, 0.0), fl.SCAFFLSA(0.1, 10)),
    ],
    ids=["turning", "nearly defective", "defective"],
)
def test_many_different_agents_have_the_limit_that_their_rounds_tend_to(problem, a):
    found = fl.theory.stationary(problem, a)
    assert found.route == "lyapunov"
    step = controlled_round(moments(problem), a, a.step_size)
    np.testing.assert_allclose(stationary_pairs.limit(step, ["krylov"]).U, found.covariance, rtol=1e-9)
    vector = stationary_pairs.limit(step).vector  # and nothing is taken on trust: the moments stay as they are
    np.testing.assert_allclose(step.advance(vector), vector, rtol=0, atol=1e-12 * np.abs(vector).max())


def test_a_route_that_is_not_accurate_is_left_for_the_next_and_none_is_a_refusal(monkeypatch):
    problem = fl.problems.garnet(agents=3, states=10, features=3, discount=0.6)
    step = controlled_round(moments(problem), fl.SCAFFLSA(0.1, 7), 0.1)
    right = stationary_pairs.limit(step)
    monkeypatch.setitem(stationary_pairs._SOLVE, "lyapunov", lambda step, source, goal: (2 * right.vector, 1e-3))
    other = stationary_pairs.limit(step)
    assert other.route == "krylov"
    np.testing.assert_allclose(other.U, right.U, rtol=1e-9)
    with pytest.raises(fl.errors.PrecisionError, match=r"lyapunov \(error 1.0e-03\)"):
        stationary_pairs.limit(step, ["lyapunov"])


def test_a_krylov_space_that_would_not_fit_is_refused_and_limits_do_without(monkeypatch):
    problem = fl.problems.garnet(agents=6, states=10, features=3, discount=0.6)
    want = fl.theory.stationary(problem, fl.SCAFFLSA(0.1, 7))
    monkeypatch.setattr(tuning, "KRYLOV_NUMBERS", 2000)
    found = fl.theory.stationary(problem, fl.SCAFFLSA(0.1, 7))
    assert found.mse == pytest.approx(want.mse, rel=1e-9)
    with pytest.raises(fl.errors.ArgumentError, match="groups of agents times dimension must be at most about"):
        _ = found.radius


@pytest.mark.parametrize("a", [fl.FedLSA(0.3, 5), fl.SCAFFLSA(0.3, 5), fl.Scaffnew(0.3, 0.4)], ids=repr)
def test_small_noise_keeps_its_digits(a):
    """A variance of 1e-12 beside a squared bias of 1: a difference of second moments has four digits of it."""
    A, B = np.array([[1.0, 0.3], [0.0, 0.5]]), np.array([[2.0, 0.0], [-0.4, 0.7]])
    noisy = [[gallery.shaken(A, [1, 2], 0.0, s), gallery.shaken(B, [0.3, 0.2], 0.0, s)] for s in (1.0, 1e-6)]
    loud, soft = (fl.theory.stationary(fl.problems.from_observations(t), a).covariance for t in noisy)
    np.testing.assert_allclose(soft, 1e-12 * loud, rtol=1e-8)


@pytest.mark.parametrize("name", ["one dimension", "turning modes", "badly scaled"])
def test_the_stability_limit_is_that_of_the_slow_twin(name):
    problem = gallery.CASES[name]().problem
    for make in (lambda s: fl.FedLSA(s, 3), lambda s: fl.SCAFFLSA(s, 3), lambda s: fl.Scaffnew(s, 0.8)):
        found = fl.theory.stability_limit(problem, make(0.1))
        assert [Twin(problem, make(f * found)).radius() < 1 for f in (1 - 1e-5, 1 + 1e-5)] == [True, False]


def opposite(noise):
    """Two agents that turn in opposite directions: FedLSA is stable where H rounds of turning cancel, and again later.

    Its mean contracts by |1 - eta (a + i b)|^H cos(H phi), phi the angle of that number.
    """
    A = np.array([[0.01, 1.0], [-1.0, 0.01]])
    return fl.problems.from_observations([gallery.shaken(A, [1, 0], noise), gallery.shaken(A.T, [0, 1], noise)])


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_the_stability_limit_is_the_first_where_stable_step_sizes_are_no_interval(noise):
    problem = opposite(noise)
    stable = [fl.theory.stationary(problem, fl.FedLSA(eta, 10)).stable for eta in (0.15, 0.3, 0.5)]
    assert stable == [True, False, True]
    found = fl.theory.stability_limit(problem, fl.FedLSA(0.1, 10))
    r, phi = abs(1 - found * (0.01 + 1j)), np.angle(1 - found * (0.01 + 1j))
    assert abs(r**10 * np.cos(10 * phi)) == pytest.approx(1, abs=1e-4 if noise == 0 else 1e-2)
    assert 0.15 < found < 0.3


def test_a_tolerance_below_rounding_ends_as_well():
    problem = gallery.CASES["one dimension"]().problem
    for a in (fl.FedLSA(0.1, 1), fl.SCAFFLSA(0.1, 3)):
        found = fl.theory.stability_limit(problem, a, tolerance=1e-100)
        assert found == pytest.approx(fl.theory.stability_limit(problem, a), rel=1e-5)


def stable_maps(rng, K, d):
    """Random maps, one with a Jordan block, one that turns, one that hardly shrinks."""
    F = rng.normal(size=(K, d, d))
    F *= 0.9 / np.abs(np.linalg.eigvals(F)).max(axis=1)[:, None, None]
    F[0] = 0.5 * np.eye(d) + np.eye(d, k=1)
    F[1, :2, :2] = [[0.6, -0.7], [0.7, 0.6]]
    F[1, 2:], F[2] = 0.0, 0.99999 * np.eye(d)
    return F


def every_pair(F, R, B, weight, count):
    """The W_kl of their equations, one by one, and the sums over other agents."""
    K, d, _ = F.shape
    sums, tiles = np.zeros((K, d, d)), np.zeros((K * (K + 1) // 2, d, d))
    for at, (k, n) in enumerate(zip(*np.triu_indices(K), strict=True)):
        if k < n or count[k] > 1:
            right = R[k] @ B[n].T + B[k] @ R[n].T
            W = np.linalg.solve(np.eye(d * d) - np.kron(F[k], F[n]), right.ravel()).reshape(d, d)
            tiles[at] = W
            sums[n] += weight[k] * (count[k] - (k == n)) * W
            if k < n:
                sums[k] += weight[n] * count[n] * W.T
    return sums, tiles


@pytest.mark.parametrize("size", [0.7, 1e-3])
def test_the_series_sums_over_pairs_or_leaves_them_to_the_pass(size):
    K, d = 90, 3
    rng = np.random.default_rng(K)
    F, R, B = size * stable_maps(rng, K, d), rng.normal(size=(K, d, d)), rng.normal(size=(K, d, d))
    weight, count = rng.random(K), rng.integers(1, 3, K)
    weight[0] = 0.0
    series = pair_series(F, B, count * weight, weight)
    sums, _ = every_pair(F, R, B, weight, count)
    np.testing.assert_allclose(series.sums(R), sums, rtol=0, atol=1e-13 * np.abs(sums).max())
    for slow in (F / size, np.full_like(F, np.nan), np.full_like(F, np.inf)):  # one that hardly shrinks, or not at all
        with np.errstate(all="ignore"):
            assert pair_series(slow, B, count * weight, weight) is None


def test_limits_by_the_series_are_those_by_the_pass(monkeypatch):
    problem, a = fl.problems.garnet(agents=40, states=10, features=3, discount=0.6), fl.SCAFFLSA(0.1, 10)
    step = controlled_round(moments(problem), a, a.step_size)
    assert stationary_pairs.Lyapunov(step)._series is not None
    quick = stationary_pairs.limit(step)
    monkeypatch.setattr(tuning, "PAIR_SERIES_NUMBERS", 0)
    assert stationary_pairs.Lyapunov(step)._series is None
    slow = stationary_pairs.limit(step)
    np.testing.assert_allclose(quick.vector, slow.vector, rtol=0, atol=1e-12 * np.abs(slow.vector).max())
    np.testing.assert_allclose(quick.U, slow.U, rtol=1e-11)


@pytest.mark.parametrize("H", [1, 3])
def test_the_series_knows_a_limit_and_that_there_is_none_without_all_pairs(H, monkeypatch):
    """Many agents, some of them twice, whose noise is what makes larger steps unstable."""
    monkeypatch.setattr(tuning, "PAIR_SERIES_SHARE", 1)  # it decides however many terms it has
    rng, tables = np.random.default_rng(H), []
    for _ in range(72):
        A, E = 0.1 * (np.eye(2) + 0.3 * rng.standard_normal((2, 2))), rng.standard_normal((2, 2))
        b, e = rng.standard_normal(2), rng.standard_normal(2)
        tables.append(([0.4, 0.3, 0.3], np.stack([A, A + E, A - E]), np.stack([b + e, b - e, b - e / 3])))
    problem = fl.problems.from_observations(tables, assignment=np.append(np.arange(72), np.arange(0, 72, 3)))
    edge = fl.theory.stability_limit(problem, fl.SCAFFLSA(0.1, H))
    for factor in (0.5, 0.999, 1.001, 4.0):
        a = fl.SCAFFLSA(factor * edge, H)
        step = controlled_round(moments(problem), a, a.step_size)
        assert factor > 2 or stationary_pairs.Lyapunov(step)._series is not None
        found, end = limit_by_series(step), stationary_pairs.limit(step)
        stable = fl.theory.stationary(problem, a).stable
        assert stable == (end.vector is not None) == (found is not None) == (factor < 1), factor
        if found is not None:
            np.testing.assert_allclose(found[0], end.U, rtol=1e-9)
            assert found[1] <= 1e-9


def test_what_the_series_cannot_know_is_left_to_others():
    A = np.array([[1.0, 0.3], [0.0, 0.5]])
    quiet = [gallery.shaken(A, [1, k], 0.0, np.array([1.0, 0.0])) for k in range(64)]  # no noise in one direction
    garnet = fl.problems.garnet(agents=9, states=10, features=3, discount=0.6)
    for problem, a in (
        (fl.problems.from_observations(quiet), fl.SCAFFLSA(1e-3, 2)),
        (garnet, fl.SCAFFLSA(1e-9, 2, participation=0.5)),
        (garnet, fl.Scaffnew(0.1, 0.5)),
        (garnet, fl.SCAFFLSA(0.1, 10)),  # more terms than so few agents are worth
        (garnet, fl.SCAFFLSA(1e100, 10)),
    ):
        with np.errstate(all="ignore"):
            assert limit_by_series(controlled_round(moments(problem), a, a.step_size)) is None


@pytest.mark.parametrize(("K", "d"), [(3, 2), (2 * pair_kernels.LANES + 5, 3)])
def test_the_compiled_pass_solves_the_equation_of_every_pair(K, d):
    rng = np.random.default_rng(K)
    F, R, B = stable_maps(rng, K, d), rng.normal(size=(K, d, d)), rng.normal(size=(K, d, d))
    weight, count = rng.random(K), rng.integers(1, 3, K)
    weight[0], count[:2] = 0.0, (2, 1)
    for given in (weight, count):
        given.flags.writeable = False  # as those of moments are: no second compilation
    T, Z = (np.array(x) for x in zip(*(scipy.linalg.schur(f, output="complex") for f in F), strict=True))
    adjoint = Z.conj().transpose(0, 2, 1)
    sums, tiles = every_pair(F, R, B, weight, count)
    maps = pair_kernels.maps_in_lanes(*map(pair_kernels.in_lanes, (T, Z)), adjoint @ R, adjoint @ B)
    np.testing.assert_array_equal(pair_kernels.from_lanes(maps[0], K), T)
    out, found, middle = np.zeros_like(maps[0]), np.zeros_like(tiles), K // 2
    for begin, end in ((0, middle), (middle, K)):  # as two threads would share it
        pair_kernels.solve_pairs(maps, weight, count, begin, end, out, found)
    size = np.abs(tiles).max()
    np.testing.assert_allclose(found, tiles, rtol=0, atol=1e-10 * size)
    own = pair_kernels.from_lanes(out, K) @ adjoint
    np.testing.assert_allclose(own, sums, rtol=0, atol=1e-10 * np.abs(sums).max())

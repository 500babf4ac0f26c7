"""Limits, radii and stability limits against the slow twin on problems that break things, by every route."""

import functools
from dataclasses import replace

import gallery
import numpy as np
import pytest
from tables import round_of, skewed, tiny, turning
from tiers import longer
from twin import Twin

import fedlsa as fl
from fedlsa.theory import moments, stationarity, tuning
from fedlsa.theory.joint import Joint
from fedlsa.theory.many_rounds import Nodes, moment_map
from fedlsa.theory.modes import Limit, factor
from fedlsa.theory.problem_moments import merged

SLOW = "seventeen dimensions"  # for the twin
ALL = [
    pytest.param(case, a, id=f"{name}-{type(a).__name__}", marks=() if name in gallery.CORE else pytest.mark.long)
    for name, case, a in gallery.everything()
    if name != SLOW
]
CONTROLLED = [p for p in ALL if not isinstance(p.values[1], fl.FedLSA)]


@functools.cache
def slow_limit(problem, a):
    """The twin's radius; bias and covariance of the limit, where there is one."""
    twin = Twin(problem, a)
    radius = twin.radius()
    return radius, *(twin.stationary() if radius < 1 else (None, None))


@pytest.mark.parametrize("many", [False, True], ids=["as few agents", "as many agents"])
@pytest.mark.parametrize(("case", "a"), ALL)
def test_limits_and_radii_are_those_of_the_slow_twin(case, a, many, monkeypatch):
    if many:  # nothing is written out
        monkeypatch.setattr(tuning, "WRITTEN_OUT", 0)
        monkeypatch.setattr(tuning, "JOINT_MODES", 0)
        monkeypatch.setattr(tuning, "DENSE_MODES", 0)
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
    step = round_of(case.problem, a)
    suited = [r for r in stationarity.ROUTES if r != "modes" or (step.reduced and Limit(step).good)]
    ends = [stationarity.limit(step, [r]) for r in suited]
    assert [e.route for e in ends] == suited
    if not ends[0].known:  # of no noise
        assert all(not e.U.any() for e in ends)
        return
    vectors = [e.vector() for e in ends]
    for e, vector in zip(ends[1:], vectors[1:], strict=True):
        np.testing.assert_allclose(vector, vectors[0], rtol=0, atol=1e-9 * np.abs(vectors[0]).max())
        np.testing.assert_allclose(e.U, ends[0].U, rtol=0, atol=1e-9 * np.abs(ends[0].U).max())
    assert all(stationarity.settles(step, [r]) for r in suited)


@pytest.mark.parametrize("H", [2, 20])
def test_every_route_sees_the_same_instability(H):
    problem = fl.problems.garnet(agents=3, states=10, features=3, discount=0.6)
    for make in (lambda eta: fl.SCAFFLSA(eta, H), lambda eta: fl.Scaffnew(eta, 1 / H)):
        edge = fl.theory.stability_limit(problem, make(0.1), tolerance=1e-4)
        for share in (0.99, 1.01, 4.0):
            a = make(share * edge)
            for route in stationarity.ROUTES:
                assert stationarity.settles(round_of(problem, a), [route]) == (share < 1), (a, route)


@pytest.mark.parametrize(
    "inverse", [lambda self: np.linalg.inv(np.zeros((6, 6))), lambda self: np.full((6, 6), np.nan)]
)
def test_a_route_whose_divisor_rounds_to_zero_leaves_the_limit_to_the_next(inverse, monkeypatch):
    problem, a = fl.problems.garnet(agents=3, states=10, features=3, discount=0.6), fl.SCAFFLSA(0.1, 2)
    want = fl.theory.stationary(problem, a)
    assert want.route == "modes"
    monkeypatch.setattr(Limit, "_solve_agent", property(inverse))
    found = fl.theory.stationary(problem, a)
    assert found.route == "krylov"
    np.testing.assert_allclose(found.covariance, want.covariance, rtol=0, atol=1e-9 * np.abs(want.covariance).max())


@pytest.mark.parametrize("make", [lambda eta: fl.SCAFFLSA(eta, 10), lambda eta: fl.Scaffnew(eta, 0.1)])
@pytest.mark.parametrize(
    ("problem", "eta", "route"),
    [
        (turning(30), 0.01, "modes"),
        (skewed(26, 1e-3), 0.1, "modes"),
        (skewed(26, 1e-5), 0.1, "krylov"),
        (skewed(26, 0.0), 0.1, "krylov"),
    ],
    ids=["turning", "skewed", "nearly defective", "defective"],
)
def test_many_different_agents_have_the_limit_that_their_rounds_tend_to(problem, eta, route, make, monkeypatch):
    step = round_of(problem, make(eta))
    found = stationarity.limit(step)
    assert found.route == route
    assert found.error <= 1e-9
    np.testing.assert_allclose(stationarity.limit(step, ["krylov"]).U, found.U, rtol=1e-9)
    monkeypatch.setattr(tuning, "JOINT_MODES", 0)
    start = np.ones(2), np.ones(step.shape)
    usual = moment_map(step, *start)
    assert type(usual) is (Nodes if route == "modes" else Joint)
    for form in {usual, Joint(step)}:  # nothing is taken on trust: the moments stay as they are
        vector = form.fixed(*found.known[1:]) if isinstance(form, Nodes) else found.vector()
        no_means = 0 * form.start(*start)[:, None]
        again = form.advance(vector) + form.force(no_means)(np.zeros(1), np.zeros((1, 1)))
        np.testing.assert_allclose(form.second(again), form.second(vector), rtol=0, atol=1e-11 * np.abs(vector).max())


def test_a_route_that_is_not_accurate_is_left_for_the_next_and_none_is_a_refusal(monkeypatch):
    problem = fl.problems.garnet(agents=3, states=10, features=3, discount=0.6)
    step = round_of(problem, fl.SCAFFLSA(0.1, 7))
    right = stationarity.limit(step)
    wrong = replace(right, U=2 * right.U, error=1e-3)
    monkeypatch.setitem(stationarity._SOLVE, "modes", lambda *arguments: wrong)
    other = stationarity.limit(step)
    assert other.route == "krylov"
    np.testing.assert_allclose(other.U, right.U, rtol=1e-9)
    with pytest.raises(fl.errors.PrecisionError, match=r"modes \(error 1.0e-03\)"):
        stationarity.limit(step, ["modes"])


def test_a_krylov_space_that_would_not_fit_is_refused_and_limits_do_without(monkeypatch):
    problem = fl.problems.garnet(agents=6, states=10, features=3, discount=0.6)
    want = fl.theory.stationary(problem, fl.SCAFFLSA(0.1, 7))
    monkeypatch.setattr(tuning, "KRYLOV_NUMBERS", 2000)
    monkeypatch.setattr(tuning, "WRITTEN_OUT", 0)
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


@pytest.mark.parametrize("name", ["one dimension", longer("turning modes"), "badly scaled"])
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


def test_a_kernel_is_the_square_of_its_factor_or_has_none(monkeypatch):
    f = 0.9 * np.exp(0.5j * np.linspace(-1, 1, 300)) * np.linspace(0.2, 1, 300)

    def kernel(i, j):
        return 1 / (1 - f[i] * f[j].conj())

    L, every = factor(kernel, 300), np.arange(300)
    want = kernel(every[:, None], every)
    assert 5 < L.shape[1] < 60
    rounding = 1e-15 * L.shape[1] * np.abs(want).max()  # of so many products
    np.testing.assert_allclose(L @ L.conj().T, want, rtol=0, atol=rounding)
    monkeypatch.setattr(tuning, "MAX_KERNEL_RANK", L.shape[1] - 1)
    assert factor(kernel, 300).shape == (300, 0)  # more columns than are worth it
    f[7] = 1.1
    assert factor(kernel, 300).shape == (300, 0)  # not definite: its sums diverge


def many_noisy_groups(seed):
    """Many agents, some of them twice, whose noise is what makes larger steps unstable."""
    rng, tables = np.random.default_rng(seed), []
    for _ in range(36):
        A, E = 0.1 * (np.eye(2) + 0.3 * rng.standard_normal((2, 2))), rng.standard_normal((2, 2))
        b, e = rng.standard_normal(2), rng.standard_normal(2)
        tables.append(([0.4, 0.3, 0.3], np.stack([A, A + E, A - E]), np.stack([b + e, b - e, b - e / 3])))
    return fl.problems.from_observations(tables, assignment=np.append(np.arange(36), np.arange(0, 36, 3)))


@pytest.mark.parametrize(
    "make", [lambda e: fl.SCAFFLSA(e, 1), lambda e: fl.SCAFFLSA(e, 3), lambda e: fl.Scaffnew(e, 0.4)]
)
def test_inertia_knows_a_limit_and_that_there_is_none_without_all_pairs(make, monkeypatch):
    problem = many_noisy_groups(1)
    edge = fl.theory.stability_limit(problem, make(0.1), tolerance=1e-4)
    for share in (0.5, 0.999, 1.001, 1.5):
        step = round_of(problem, make(share * edge))
        verdicts = []
        for modes in (tuning.DENSE_MODES, 0):
            monkeypatch.setattr(tuning, "DENSE_MODES", modes)
            verdicts.append(stationarity.settles(step, ["modes"]))
        assert verdicts == [share < 1] * 2, share
        end = stationarity.limit(step)
        assert bool(end.known) == (share < 1)
        if share < 1:
            np.testing.assert_allclose(stationarity.limit(step, ["krylov"]).U, end.U, rtol=1e-9)
            assert end.error <= 1e-9


@pytest.mark.parametrize("make", [lambda e: fl.SCAFFLSA(e, 3), lambda e: fl.Scaffnew(e, 0.4)])
def test_a_rate_is_above_the_radius_or_below_it(make, monkeypatch):
    """Of a mode that all agents share, which no agent alone shows."""
    step = round_of(tiny(4, 2, 3, 4, weights=[1.0, 2.0, 3.0, 2.0]), make(0.02))
    radius = stationarity.agents_radius(step)
    for modes in (tuning.DENSE_MODES, 0):
        monkeypatch.setattr(tuning, "DENSE_MODES", modes)
        margins = [stationarity.margin(step, ["modes"], share * radius) for share in (1.1, 1.001, 0.999, 0.9)]
        assert [margin > 0 for margin in margins] == [True, True, False, False], modes


def test_a_similar_problem_with_few_groups_has_the_same_average_and_noise():
    m = moments(tiny(12, 2, 3, 4, weights=np.linspace(1, 3, 12)))
    few = merged(m, 3)
    assert len(few.table) == 3
    assert few.n_agents == 12
    for name in ("A_bar", "b_bar"):
        one, other = (np.tensordot(x.count * x.weight, getattr(x, name)[x.table], 1) for x in (m, few))
        np.testing.assert_allclose(other, one, rtol=1e-13)
    one, other = (np.tensordot(x.count * x.weight**2, x.noise[x.table], 1) for x in (m, few))
    np.testing.assert_allclose(other, one, rtol=1e-12)


def test_noise_in_few_directions_and_few_participants_have_a_limit_too():
    A = np.array([[1.0, 0.3], [0.0, 0.5]])
    quiet = [gallery.shaken(A, [1, k], 0.0, np.array([1.0, 0.0])) for k in range(64)]  # no noise in one direction
    garnet = fl.problems.garnet(agents=9, states=10, features=3, discount=0.6)
    for problem, a, route in (
        (fl.problems.from_observations(quiet), fl.SCAFFLSA(1e-3, 2), "modes"),
        (garnet, fl.SCAFFLSA(0.01, 2, participation=0.5), "krylov"),
        (garnet, fl.Scaffnew(0.01, 0.5, participants=1), "krylov"),
    ):
        found, other = (
            stationarity.limit(round_of(problem, a), routes) for routes in (stationarity.ROUTES, ["krylov"])
        )
        assert found.route == route
        np.testing.assert_allclose(found.U, other.U, rtol=0, atol=1e-9 * np.abs(other.U).max())
    with np.errstate(all="ignore"):
        assert stationarity.limit(round_of(garnet, fl.SCAFFLSA(1e100, 10))).route == "mean"


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("scale", [1.0, 0.01])
@pytest.mark.parametrize("H", [1, 3])
@pytest.mark.parametrize("make", [fl.FedLSA, fl.SCAFFLSA, lambda eta, H: fl.Scaffnew(eta, 1 / H)])
def test_the_stability_limit_of_the_simplest_agent_is_two_over_its_matrix(make, H, scale, noise):
    """A = scale I and noise in b alone: nothing but the mean decides, which H steps shrink by (1 - eta scale)^H."""
    tables = [([0.5, 0.5], scale * np.tile(np.eye(2), (2, 1, 1)), [[1 + noise, 0.0], [1 - noise, noise]])]
    found = fl.theory.stability_limit(fl.problems.from_observations(tables), make(0.1, H))
    assert found == pytest.approx(2 / scale, rel=2e-6)


@pytest.mark.parametrize("preset", ["paper", "authors"])
@pytest.mark.parametrize(("eta", "H"), [(1e-2, 1), (1e-3, 10), (1e-4, 1), (1e-4, 10)])
def test_limits_at_tiny_steps_are_those_of_a_round_that_keeps_u(preset, eta, H):
    """In eigenbases u is a sum over agents, of which large gains lose digits: the error says how many."""
    problem = fl.problems.garnet(agents=6, states=8, features=4, heterogeneous=True, preset=preset)
    step = round_of(problem, fl.SCAFFLSA(step_size=eta, local_steps=H))
    quick, slow = stationarity.limit(step, ["modes"]), stationarity.limit(step, ["krylov"])
    assert (quick.route, slow.route) == ("modes", "krylov")
    off = np.abs(quick.U - slow.U).max() / np.abs(slow.U).max()
    assert off <= quick.error + slow.error <= 1e-8


@pytest.mark.long
def test_a_thousand_agents_at_a_tiny_step_have_a_limit():
    """Hundreds of them took minutes, a thousand were refused: the reduced coordinates were left for large gains."""
    problem = fl.problems.garnet(agents=1000, heterogeneous=True, preset="authors")
    end = fl.theory.stationary(problem, fl.SCAFFLSA(step_size=0.001, local_steps=10))
    assert end.route == "modes"
    assert end.error < 1e-6
    assert 1 < end.variance / fl.theory.stationary(problem, fl.FedLSA(step_size=0.001, local_steps=1)).variance < 1.1

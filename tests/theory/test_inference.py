"""Limit laws against the slow twin: autocovariances one by one, the joint law of all agents, small constant steps."""

import functools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from gallery import CASES
from own_steps import OwnStepsFedLSA, OwnStepsSCAFFLSA
from scipy.stats import binom, norm
from server_momentum import MomentumFedLSA, MomentumSCAFFLSA
from tiers import longer, mostly_long
from twin import Twin

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError
from fedlsa.theory import inference, stationarity, tuning

GALLERY = mostly_long((n for n in CASES if n != "seventeen dimensions"), ["one agent"])
UNEQUAL = {"step_factors": (1.0, 0.5, 1.3), "length_factors": (1.0, 2.0, 0.5)}
OWN = [
    MomentumFedLSA(0.2, 3, momentum=0.4),
    MomentumSCAFFLSA(0.2, 3, momentum=0.4),
    OwnStepsFedLSA(0.2, 2, **UNEQUAL),
    OwnStepsSCAFFLSA(0.2, 2, **UNEQUAL),
]


def methods(name):
    case, some = CASES[name](), [None, 1] if name in ("shared tables and unequal weights", "turning modes") else [None]
    return [(case.problem, a) for m in some for a in case.methods(participants=m)]


@functools.cache
def twin_of(problem, a):
    return Twin(problem, a)


def sum_of_autocovariances(problem, a):
    """Cov(u_0) + sum_k (Cov(u_k, u_0) + its transpose) of 2^24 rounds, on the joint state of the twin."""
    _, M, _, (_, back, _) = twin_of(problem, a).operator
    d, C = problem.dim, back @ twin_of(problem, a).fixed_point()[1] @ back.T
    total, power = M, M
    for _ in range(24):  # M + ... + M^n, and as many more
        total, power = total + power @ total, power @ power
    X = (total @ C)[:d, :d]
    return C[:d, :d] + X + X.T


@pytest.mark.parametrize("name", GALLERY)
def test_covariance_of_averages_is_the_sum_of_all_autocovariances(name):
    for problem, a in methods(name):
        if not fl.theory.stationary(problem, a).stable:
            with pytest.raises(ArgumentError, match="step_size must be small enough"):
                fl.theory.central_limit(problem, a)
            continue
        found = fl.theory.central_limit(problem, a)
        want = sum_of_autocovariances(problem, a)
        assert found.error < 1e-6, a
        off = np.abs(found.covariance - want).max()
        size = fl.theory.stationary(problem, a).variance  # which may be larger than the sum, or than its entries
        assert off <= (1e-9 + found.error) * max(np.abs(want).max(), size), a


@pytest.mark.parametrize("participants", [None, 1])
@pytest.mark.parametrize("a", OWN, ids=lambda a: type(a).__name__)
def test_covariance_of_averages_of_declared_methods_is_that_sum(a, participants):
    problem, a = fl.problems.garnet(agents=3, states=4, features=2, seed=1), replace(a, participants=participants)
    found = fl.theory.central_limit(problem, a)
    np.testing.assert_allclose(found.covariance, sum_of_autocovariances(problem, a), rtol=1e-8)


@pytest.mark.parametrize("a", [fl.SCAFFLSA(0.05, 8), fl.Scaffnew(0.05, 0.2), fl.FedLSA(0.05, 8)], ids=repr)
def test_the_ways_to_a_limit_lead_to_one_covariance_of_averages(a, monkeypatch):
    problem = fl.problems.garnet(agents=24, states=6, features=3, seed=2)
    fast = fl.theory.central_limit(problem, a)
    monkeypatch.setattr(stationarity, "ROUTES", ("krylov", "dense"))
    monkeypatch.setattr(stationarity.limit, "__defaults__", (("krylov", "dense"),))
    np.testing.assert_allclose(fl.theory.central_limit(problem, a).covariance, fast.covariance, rtol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("a", [fl.FedLSA(0.1, 5), fl.SCAFFLSA(0.1, 5)], ids=repr)
def test_averages_of_many_runs_vary_as_the_central_limit_says(a):
    problem, T, first = fl.problems.garnet(agents=4, states=5, features=2, seed=1), 800, 200
    runs = fl.simulate(problem, replace(a, average_after=first), T, 2000, record=[T])["theta"][:, -1].values
    law = fl.theory.central_limit(problem, a)
    n = T - first + 1
    assert (np.abs(runs.mean(0) - law.mean) <= 4.5 * np.sqrt(np.diagonal(law.covariance) / n / 2000)).all()
    whole = np.linalg.solve(np.linalg.cholesky(law.covariance / n), (runs - law.mean).T)
    error = np.sqrt(np.array([[2.0, 1.0], [1.0, 2.0]]) / 2000)  # of a sample covariance of normal vectors
    assert (np.abs(whole @ whole.T / 2000 - np.eye(2)) <= 4.5 * error + 10 / n).all()  # the limit is O(1 / n) away


def test_exact_averages_have_the_covariance_of_the_limit():
    problem, a = CASES["jordan block"]().problem, fl.FedLSA(0.1, 3)
    law, T = fl.theory.central_limit(problem, a), np.array([299, 599])
    curve = fl.theory.exact(problem, replace(a, average_after=0), int(T[-1]), record=T.tolist())
    scaled = curve["covariance"].values * (T + 1)[:, None, None]
    np.testing.assert_allclose(2 * scaled[1] - scaled[0], law.covariance, rtol=1e-5)
    np.testing.assert_allclose(law.after(4000), law.covariance / 4000)


GROWING = fl.PowerLength(2, 0.2)


def coin(q):
    return fl.problems.from_observations([([1 - q, q], np.ones((2, 1, 1)), [[0.0], [1.0]])])


COIN = coin(0.1)
SMALL = fl.problems.garnet(agents=3, states=4, features=2, seed=1, weights=[1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "make",
    [
        lambda eta: fl.FedLSA(eta, 5, participants=2),
        lambda eta: fl.SCAFFLSA(eta, 5),
        *(
            pytest.param(make, marks=pytest.mark.long)
            for make in (
                lambda eta: fl.FedLSA(eta, 5),
                lambda eta: fl.Scaffnew(eta, 0.2),
                lambda eta: MomentumFedLSA(eta, 5, momentum=0.3),
                lambda eta: MomentumSCAFFLSA(eta, 5, momentum=0.3),
            )
        ),
    ],
)
def test_the_law_of_decreasing_steps_is_that_of_ever_smaller_constant_ones(make):
    steps = 1e-4 * np.array([1.0, 0.5, 0.25])
    V = [fl.theory.central_limit(SMALL, make(eta)).covariance for eta in steps]
    first = [2 * V[1] - V[0], 2 * V[2] - V[1]]
    found = fl.theory.central_limit(SMALL, make(fl.PowerStep(0.5, 0.7)))
    np.testing.assert_allclose(found.covariance, (4 * first[1] - first[0]) / 3, rtol=1e-6)
    np.testing.assert_allclose(found.mean, SMALL.theta_star)
    if len(make(1.0).server()[1]) > 1:
        return
    L = [fl.theory.stationary(SMALL, make(eta)).covariance / eta for eta in steps]
    first = [2 * L[1] - L[0], 2 * L[2] - L[1]]
    last = fl.theory.central_limit(SMALL, make(fl.PowerStep(0.5, 0.7)), last=True)
    np.testing.assert_allclose(last.covariance, (4 * first[1] - first[0]) / 3, rtol=1e-6)
    assert last.number(4) == pytest.approx(4**0.7 / 0.5)


def quick(count=3):
    """A problem of agents who differ, with all rates near 1."""
    rng = np.random.default_rng(0)
    A = [np.eye(2) * rng.uniform(0.8, 1.4) + 0.3 * rng.normal(size=(4, 2, 2)) for _ in range(count)]
    b = [rng.normal(size=(4, 2)) + rng.normal(size=2) for _ in range(count)]
    return fl.problems.from_observations([(np.full(4, 0.25), *of) for of in zip(A, b, strict=True)], weights=[1, 2, 3])


@pytest.mark.parametrize(
    ("a", "last"),
    [
        (fl.SCAFFLSA(fl.PowerStep(0.5, 0.7), 2, participants=2), False),
        longer(fl.SCAFFLSA(fl.PowerStep(0.5, 0.7), 2, participants=2), True),
        longer(fl.SCAFFLSA(fl.PowerStep(0.5, 0.8), GROWING), True),
        (fl.FedLSA(fl.PowerStep(0.5, 0.7), GROWING), True),
    ],
    ids=repr,
)
def test_exact_moments_and_two_thousand_runs_come_to_the_law_of_decreasing_steps(a, last):
    p, T, run = quick(), [50, 200, 800], a if last else replace(a, average_after=0)
    law, curve = fl.theory.central_limit(p, a, last), fl.theory.exact(p, run, 800, p.theta_star, record=T)
    root = np.linalg.inv(np.linalg.cholesky(law.covariance))
    scaled = [C * law.number(t + (not last)) for t, C in zip(T, curve["covariance"].values, strict=True)]
    off = [np.abs(root @ C @ root.T - np.eye(2)).max() for C in scaled]
    assert off[2] < 0.1
    assert off[1] < off[0] / 1.3
    assert off[2] < off[1] / 1.3  # it falls with a power of the rounds
    found = fl.theory.normal_distance(fl.simulate(p, run, 800, 2000, p.theta_star, record=T), p, level=0.999)
    total, moments, _ = found["distance"].values
    assert (np.abs(total - moments) <= found["band"].sel(part="total").values).all()


@pytest.mark.parametrize(("a", "b"), [(0.7, 0.2), (0.9, 0.5)])
def test_the_law_of_growing_rounds_is_that_of_a_million_local_steps(a, b):
    """In dimension 1 with A = 1 the moments of theta and of its average obey three numbers."""
    method, T = fl.SCAFFLSA(fl.PowerStep(0.5, a), fl.PowerLength(2, b)), 30_000
    last, mean = (fl.theory.central_limit(COIN, method, each) for each in (True, False))
    C = G = S = 0.0  # of theta, with the sum, of the sum
    off = {}
    for t, eta, H in zip(range(T), method.eta(np.arange(T)), method.steps_in(np.arange(T)), strict=True):
        r = (1 - eta) ** H
        C, before = r * r * C + eta**2 * 0.09 * (1 - r * r) / (1 - (1 - eta) ** 2), G
        G, S = r * G + C, S + 2 * r * before + C
        if t + 1 in (300, 3000, T):
            off[t + 1] = abs(C / last.after(t + 1).item() - 1), abs(S / (t + 1) ** 2 / mean.after(t + 1).item() - 1)
    assert max(off[T]) < 0.02
    assert (np.array(off[3000]) < np.array(off[300]) / 1.8).all()
    assert (np.array(off[T]) < np.array(off[3000]) / 1.8).all()


@pytest.mark.parametrize(
    ("last", "b", "a", "vanishes"),
    [(False, 0.2, 0.9, True), (False, 0.2, 0.72, False), (True, 0.3, 0.8, True), (True, 0.3, 0.45, False)],
)
def test_the_powers_that_are_refused_are_those_at_which_drift_outlasts_noise(last, b, a, vanishes):
    p = fl.problems.from_observations([([0.5, 0.5], [[[c]]] * 2, [[c - 2.0], [c - 1.0]]) for c in (1.0, 2.0)])
    method = fl.FedLSA(fl.PowerStep(0.3, a), fl.PowerLength(2, b))
    t, A, local = np.arange(30_000), p.A_bar[:, 0, 0], (p.theta_star_local - p.theta_star)[:, 0]
    u, total, scaled = 0.0, 0.0, []
    for at, r in zip(t + 1, (1 - np.outer(method.eta(t), A)) ** method.steps_in(t)[:, None], strict=True):
        u = np.mean(r * u + (1 - r) * local)
        total += u
        if at in (3000, 30_000):
            number = 1 / method.eta(t[at - 1 : at])[0] if last else at**2 / np.sum(2 / method.steps_in(t[:at]))
            scaled.append(abs(u if last else total / at) * np.sqrt(number))
    assert (scaled[1] < scaled[0]) == vanishes
    if vanishes:
        assert fl.theory.central_limit(p, method, last).number(30_000) == pytest.approx(number)
    else:
        with pytest.raises(ArgumentError, match="power of step_size must be above"):
            fl.theory.central_limit(p, method, last)


def test_what_has_no_limit_law_is_refused_by_name():
    power = fl.PowerStep(0.5, 0.4)
    for rule, a, last in (
        ("last must be False", fl.FedLSA(0.1, 2), True),
        ("power of step_size must be above 0.5 and below 1", fl.FedLSA(power, 2), False),
        ("power of step_size must be above 0 and below 1", fl.SCAFFLSA(fl.PowerStep(0.5, 1.0), 2), False),
        (
            "participation must be 1.0 where rounds grow",
            fl.FedLSA(fl.PowerStep(0.5, 0.9), GROWING, participants=2),
            False,
        ),
        ("local_steps must be the same", fl.SCAFFLSA(fl.PowerStep(0.5, 0.9), GROWING, participants=2), False),
        ("local_steps must be the same", fl.SCAFFLSA(0.1, GROWING), False),
        ("above 0.8 and below 1.2", fl.FedLSA(fl.PowerStep(0.5, 0.75), GROWING), False),
        ("above 0.4 and below 1.2", fl.FedLSA(fl.PowerStep(0.5, 0.4), GROWING), True),
        ("above 0.2 and below 1.2", fl.SCAFFLSA(fl.PowerStep(0.5, 0.2), GROWING), False),
        ("power of local_steps must be below 1", fl.SCAFFLSA(fl.PowerStep(0.5, 1.5), fl.PowerLength(2, 1.0)), False),
        ("step_size must be small enough", fl.SCAFFLSA(30.0, 2), False),
        (
            "send must add no noise for a limit law at decreasing steps",
            fl.Compressed(fl.PowerStep(0.5, 0.7), 2, fl.Noise(0.1)),
            False,
        ),
    ):
        with pytest.raises(ArgumentError, match=rule):
            fl.theory.central_limit(SMALL, a, last)
    with pytest.raises(ArgumentError, match="A_bar must have eigenvalues with real parts above 0"):
        fl.theory.central_limit(
            fl.problems.from_observations([([1.0], [-np.eye(2)], [[1.0, 2.0]])]), fl.SCAFFLSA(power, 1)
        )


@pytest.mark.parametrize("kind", [fl.SVRG, fl.SAGA])
def test_where_local_steps_leave_no_noise_the_law_is_a_point(kind):
    law = fl.theory.central_limit(SMALL, kind(fl.PowerStep(0.5, 0.7), 2))
    assert not law.covariance.any()
    assert law.error == 0


# --- the distance from the normal law ---------------------------------------------------------------------------------

ROUNDS = [4, 8, 16, 32, 64, 128]


def from_normal(n, q):
    """The Kolmogorov distance of the standardised binomial law of n coins from the normal law."""
    k = np.arange(n + 1)
    below, P = np.append(0.0, binom.cdf(k, n, q)), norm.cdf((k - n * q) / np.sqrt(n * q * (1 - q)))
    return max(np.abs(below[1:] - P).max(), np.abs(below[:-1] - P).max())


@pytest.mark.parametrize("q", [0.1, 0.9])  # skewed to either side
def test_the_distance_of_averaged_coins_is_that_of_the_binomial_law(q):
    p, a = coin(q), fl.FedLSA(1.0, 1, average_after=1)  # theta_t is a coin
    found = fl.theory.normal_distance(fl.simulate(p, a, ROUNDS[-1], 20_000, record=ROUNDS), p, level=0.999)
    truth, seen = np.array([from_normal(n, q) for n in ROUNDS]), found["distance"].sel(part="total").values
    band = float(found["band"].sel(part="total"))
    assert (np.abs(seen - truth) <= band).all()
    assert (truth > 2 * band).all()
    assert found["resolved"].sel(part="total").all()
    assert found["distance"].sel(part="moments").max() < 1e-9  # the average has the mean and covariance of its limit
    np.testing.assert_allclose(found["distance"].sel(part="shape"), seen, rtol=0, atol=1e-6)
    exponent = -np.polyfit(np.log(ROUNDS), np.log(truth), 1, w=truth)[0]
    assert abs(found["exponent"].sel(part="total") - exponent) <= 3 * found["exponent_error"].sel(part="total")
    assert found["exponent_error"].sel(part="total") < 0.03


def test_a_distance_below_the_resolution_has_no_exponent_and_is_that_of_the_moments():
    node, weight = np.polynomial.hermite_e.hermegauss(24)  # nearly normal noise
    p = fl.problems.from_observations([(weight / weight.sum(), np.ones((24, 1, 1)), node[:, None])])
    for a in (fl.FedLSA(0.1, 1, average_after=0), fl.FedLSA(fl.PowerStep(0.5, 0.7), 1)):  # both remember their start
        runs = fl.simulate(p, a, 64, 4000, record=[8, 16, 32, 64], theta_0=[0.5])
        found = fl.theory.normal_distance(runs, p, level=0.999)
        total, moments, shape = found["distance"].values
        band = float(found["band"].sel(part="total"))
        assert (np.abs(total - moments) <= band).all(), a
        assert (shape <= band).all()
        assert not found["resolved"].sel(part="shape").any()
        assert np.isnan(found["exponent"].sel(part="shape"))
        assert (moments > band).sum() >= 3
        assert found["exponent_error"].sel(part="moments") == 0


def test_parts_of_the_distance_bound_the_whole_in_several_dimensions():
    a = fl.SCAFFLSA(fl.PowerStep(0.5, 0.7), 2)
    found = fl.theory.normal_distance(fl.simulate(SMALL, a, 40, 2000, record=[0, 10, 20, 40]), SMALL)
    total, moments, shape = found["distance"].values
    assert found["rounds"].values.tolist() == [10, 20, 40]
    assert (total <= moments + shape).all()
    assert (total >= moments - found["band"].sel(part="total").values).all()


def test_parts_are_not_known_while_noise_has_not_reached_a_coordinate():
    chained = np.array([[[1.0, 0.5], [0.0, 1.0]]] * 2)  # noise of the second goes on to the first
    p = fl.problems.from_observations([([0.5, 0.5], chained, [[0.0, 1.0], [0.0, -1.0]])])
    found = fl.theory.normal_distance(fl.simulate(p, fl.FedLSA(0.5, 1, average_after=1), 9, 99, record=[1, 5, 9]), p)
    assert np.isfinite(found["distance"]).values.tolist() == [[True] * 3, [False, True, True], [False, True, True]]
    assert not found["resolved"][1:, 0].any()


def test_the_distance_of_two_normal_laws_is_the_largest_on_a_grid():
    m, s, x = (
        np.array([0.0, 0.0, 1e-9, 0.3, -2.0, 1.0]),
        np.array([1.0, 1.0001, 1.0, 1.0, 0.7, 3.0]),
        np.linspace(-9, 9, 10**6 + 1),
    )
    grid = [np.abs(norm.cdf((x - a) / b) - norm.cdf(x)).max() for a, b in zip(m, s, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = inference._between_normals(m[:, None], s[:, None])
    np.testing.assert_allclose(found, grid, rtol=1e-6, atol=1e-15)


def test_runs_without_a_normal_limit_are_refused():
    def runs(a, p=COIN, **options):
        return fl.simulate(p, a, 4, 3, **options)

    quiet = fl.problems.from_observations([([1.0], [np.eye(1)], [[1.0]])])
    for rule, given, p in (
        ("runs must have average_after, or decreasing steps", runs(fl.FedLSA(0.1, 1)), COIN),
        ("runs must have noise in every coordinate", runs(fl.FedLSA(0.1, 1, average_after=0), quiet), quiet),
        ("runs must hold theta", runs(fl.FedLSA(0.1, 1, average_after=0), keep=()), COIN),
        ("runs must hold a recorded round", runs(fl.FedLSA(0.1, 1, average_after=3), record=[1, 2]), COIN),
        (
            "runs must have independent observations",
            runs(fl.FedLSA(0.1, 1, average_after=0), SMALL, sampling=fl.Markov()),
            SMALL,
        ),
        ("runs must be", COIN, COIN),
    ):
        with pytest.raises(FedLSAError, match=rule):
            fl.theory.normal_distance(given, p)


# --- the joint law ----------------------------------------------------------------------------------------------------


def joint_agrees(problem, a):
    found, twin = fl.theory.stationary(problem, a, joint=True), twin_of(problem, a)
    m, C = twin.fixed_point()
    rows = np.concatenate([np.r_[v] for v in [*twin.memory, *(twin.x if twin.gains(0.1).any() else [])]])
    centre = np.zeros(len(rows))
    centre[: problem.dim] = problem.theta_star
    if twin.gains(0.1).any():
        centre[-problem.n_agents * problem.dim :] = problem.xi_star.ravel()
    np.testing.assert_allclose(found.joint.mean, centre + m[rows], rtol=0, atol=1e-9 * max(1, np.abs(centre).max()))
    want = C[np.ix_(rows, rows)]
    off, scale = np.abs(found.joint.covariance - want), np.sqrt(np.diagonal(want))
    floor = 1e-12 * np.abs(want).max()  # directions that are conserved, where the truth is 0
    assert (off <= (1e-8 + found.error) * np.outer(scale, scale) + floor).all(), a
    np.testing.assert_allclose(
        found.joint.covariance[: problem.dim, : problem.dim], found.covariance, rtol=1e-7, atol=floor
    )


@pytest.mark.parametrize("name", GALLERY)
def test_the_joint_law_is_that_of_the_twin(name):
    for problem, a in methods(name):
        if fl.theory.stationary(problem, a).stable:
            joint_agrees(problem, a)
        else:
            assert np.isinf(fl.theory.stationary(problem, a, joint=True).joint.covariance).all()


@pytest.mark.parametrize("participants", [None, 1])
@pytest.mark.parametrize("a", OWN, ids=lambda a: type(a).__name__)
def test_the_joint_law_of_declared_methods_is_that_of_the_twin(a, participants):
    joint_agrees(SMALL, replace(a, participants=participants))


def test_the_joint_law_of_moments_alone_and_of_too_many_agents(monkeypatch):
    p, a = (
        fl.problems.garnet(agents=4, states=4, features=2, seed=1, heterogeneous=False, perturbation=0.0),
        fl.SCAFFLSA(0.1, 3),
    )
    both = [fl.theory.stationary(of, a, joint=True).joint for of in (p, fl.theory.moments(p))]
    np.testing.assert_allclose(both[0].covariance, both[1].covariance, rtol=1e-9, atol=1e-15)
    assert fl.theory.stationary(p, a).joint is None
    monkeypatch.setattr(tuning, "JOINT_COORDINATES", 9)
    with pytest.raises(ArgumentError, match="agents must be at most 3 for a joint law in dimension 2; got 4"):
        fl.theory.stationary(p, a, joint=True)


@dataclass(frozen=True, repr=False)
class DeclaredSCAFFLSA(fl.ExchangeMethod):
    """SCAFFLSA as an exchange."""

    def exchange(self, eta, updates, agents, dim):
        return self.declare(eta, updates, agents)


@pytest.mark.parametrize("participants", [None, 2])
def test_laws_of_exchanges_are_those_of_the_same_method_in_stages(participants):
    a, given = fl.SCAFFLSA(0.1, 3, participants=participants), DeclaredSCAFFLSA(0.1, 3, participants=participants)
    laws = [fl.theory.central_limit(SMALL, each) for each in (a, given)]
    np.testing.assert_allclose(laws[1].covariance, laws[0].covariance, rtol=1e-8)
    joint = [fl.theory.stationary(SMALL, each, joint=True).joint for each in (a, given)]
    np.testing.assert_allclose(joint[1].covariance, joint[0].covariance, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(joint[1].mean, joint[0].mean, rtol=0, atol=1e-10)
    smaller = [replace(each, step_size=fl.PowerStep(0.1, 0.7)) for each in (a, given)]
    for last in (False, True):
        found = [fl.theory.central_limit(SMALL, each, last) for each in smaller]
        np.testing.assert_allclose(found[1].covariance, found[0].covariance, rtol=1e-8)
        np.testing.assert_allclose(found[1].mean, SMALL.theta_star, atol=1e-9)
    with pytest.raises(ArgumentError, match="step_size must be small enough"):
        fl.theory.central_limit(SMALL, replace(given, step_size=30.0))

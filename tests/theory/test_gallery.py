"""Exact moments against the slow twin: the gallery of problems that break things x methods x routes x participation."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from gallery import CASES, Case
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import mostly_long
from twin import Twin

import fedlsa as fl
from fedlsa.theory import tuning
from fedlsa.theory.exact_curves import independent_curve
from fedlsa.theory.linear import smat, traces
from fedlsa.theory.rounds import groups_of

CLOSE = 1e-9  # relative: variances to themselves, means to the error they are a part of
ROUNDS = 3
ROUTES = ("usual", "with noise", "Krylov spaces", "nodes")
EVERYTHING = [(name, i) for name in CASES for i in range(3)]
SLOW = ("turning modes", "nearly singular average", "badly scaled", "periodic chain", "at the edge", "corridor")


def method(name: str, i: int, **options) -> tuple[fl.Problem, fl.algorithms.Algorithm]:
    case = CASES[name]()
    return case.problem, case.methods(**options)[i]


@functools.cache
def expected(name: str, i: int, participants: int | None = None) -> dict[str, np.ndarray]:
    problem, a = method(name, i)
    return Twin(problem, a, participants).curve(ROUNDS)


def found(problem, a, recorded, route="usual", theta_0=None, xi_0=None) -> dict[str, np.ndarray]:
    """By the usual route; or where problems without noise are taken as all others, or by Krylov spaces, or without."""
    groups = groups_of(problem, a, xi_0)
    m = groups.moments
    u = np.ones(m.dim) if theta_0 is None else theta_0 - m.theta_star
    with pytest.MonkeyPatch.context() as patch:
        if route != "usual":
            patch.setattr("fedlsa.theory.rounds.GroupStages.noiseless", lambda *_: False)
        if route in ("Krylov spaces", "round by round"):
            patch.setattr(tuning, "KRYLOV_FROM", 0 if route == "Krylov spaces" else 10**9)
        if route == "nodes":  # however few modes there are
            patch.setattr(tuning, "JOINT_MODES", 0)
        out = independent_curve(groups, a, u, np.asarray(recorded))
    variance, d = traces(out.covariance), m.dim
    mse = np.sum(out.mean**2, axis=1) + variance
    covariance = smat(out.covariance, d) if out.covariance.shape[1] >= d else np.zeros((len(mse), d, d))
    found = {"mean": out.mean, "variance": variance, "covariance": covariance, "mse": mse, "psi": out.psi}
    return found | {"route": out.route}


def agree(got, want, limit=0.0) -> None:
    """To CLOSE, but for rounding of the largest variance, or of its limit, and for means, of the error at the start."""
    error = np.sqrt(want["mse"])
    floor = 1e-13 * max(want["variance"].max(), limit)
    assert (np.linalg.norm(got["mean"] - want["mean"], axis=1) <= CLOSE * np.maximum(error, 1e-6 * error[0])).all()
    np.testing.assert_allclose(got["variance"], want["variance"], rtol=CLOSE, atol=floor)
    off = np.abs(got["covariance"] - want["covariance"]).max(axis=(1, 2))
    assert (off <= CLOSE * want["variance"] + floor).all()
    np.testing.assert_allclose(got["mse"], want["mse"], rtol=CLOSE, atol=1e-12 * want["mse"][0] + floor)
    if got["psi"] is not None:
        np.testing.assert_allclose(got["psi"], want["psi"], rtol=CLOSE, atol=1e-12 * want["psi"][0] + floor)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("name", "i"), mostly_long(EVERYTHING, [(n, i) for n, i in EVERYTHING if n not in SLOW]))
def test_every_route_gives_the_moments_of_the_twin(name, i, route):
    problem, a = method(name, i)
    limit = (
        fl.theory.stationary(problem, a).variance if route == "Krylov spaces" and i else 0.0
    )  # from which they measure
    agree(found(problem, a, np.arange(ROUNDS + 1), route), expected(name, i), limit)


@pytest.mark.parametrize(("name", "i"), [(n, i) for n, i in EVERYTHING if CASES[n]().problem.n_agents > 1])
def test_moments_with_partial_participation_are_those_of_the_twin(name, i):
    problem, _ = method(name, i)
    for m in {1, problem.n_agents - 1}:
        _, a = method(name, i, participants=m)
        agree(found(problem, a, np.arange(ROUNDS + 1)), expected(name, i, m))


@pytest.mark.parametrize("i", range(3))
@pytest.mark.parametrize("name", ["jordan block", "one dimension", "weights from one to a millionth"])
def test_limits_with_one_participant_are_those_of_the_twin(name, i):
    problem, a = method(name, i, participants=1)
    twin, end = Twin(problem, a), fl.theory.stationary(problem, a)
    mean, covariance = twin.stationary()
    np.testing.assert_allclose(end.bias, mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(end.covariance, covariance, rtol=0, atol=1e-11 * end.variance)
    defective = 1e-4 if name == "jordan block" else 1e-9  # threefold eigenvalues are known to a third of the digits
    assert end.radius == pytest.approx(twin.radius(), rel=defective)


@pytest.mark.parametrize("name", CASES)
def test_iterations_of_scaffnew_are_those_of_the_twin(name):
    problem, a = method(name, 2)
    got, want = (
        fl.theory.exact_iterations(problem, a, 5, problem.theta_star + 1, record=6),
        Twin(problem, a).iterations(5),
    )
    scale = 1e-12 * want["psi"][0]
    for column in ("agents_mse", "mse", "psi"):
        np.testing.assert_allclose(got[column], want[column], rtol=CLOSE, atol=scale)
    np.testing.assert_allclose(
        got["mean"] - problem.theta_star, want["mean"], rtol=CLOSE, atol=1e-12 * scale**0.5 + 1e-9
    )


@pytest.mark.parametrize("name", mostly_long(SLOW, ["at the edge", "corridor"]))
@pytest.mark.parametrize("i", [1, 2])
def test_leaps_over_many_rounds_lead_where_single_rounds_do(name, i):
    problem, a = method(name, i)
    recorded = [0, 1, 60, 299, 300, 600]
    slow = found(problem, a, recorded, "round by round")
    for seen in (recorded, [0, 600], [600]):
        fast = found(problem, a, seen, "Krylov spaces")
        rows = np.isin(recorded, seen)
        agree(fast, {k: v[rows] for k, v in slow.items() if k != "route"}, slow["variance"].max())
        assert fast["route"] == "Krylov spaces"
    assert slow["route"] == "round by round"


@pytest.mark.parametrize("name", ["no noise", "weights from one to a millionth", "one agent"])
@pytest.mark.parametrize(
    "a",
    [
        fl.FedLSA(0.2, 2, average_after=2),
        fl.FedLSA(fl.PowerStep(0.3, 0.5), 2, average_after=1),
        fl.FedLSA(fl.PowerStep(0.3, 0.5), 2),
        fl.SCAFFLSA(fl.PowerStep(0.3, 0.5), 2),
        fl.Scaffnew(fl.PowerStep(0.3, 0.5), 0.6),
    ],
    ids=repr,
)
def test_averages_and_decreasing_steps_are_those_of_the_twin(name, a):
    problem = CASES[name]().problem
    rng = np.random.default_rng(1)
    theta_0, xi = rng.standard_normal(problem.dim), rng.standard_normal((problem.n_agents, problem.dim))
    xi_0 = xi - problem.weights @ xi
    got = found(problem, a, np.arange(ROUNDS + 1), theta_0=theta_0, xi_0=xi_0)
    agree(got, Twin(problem, a).curve(ROUNDS, theta_0, xi_0))


def test_far_from_the_limit_the_last_error_does_not_depend_on_what_is_recorded():
    """Slow modes have hardly moved when fast ones are gone: no space may take the rest for nothing."""
    p = fl.problems.garnet(agents=10, heterogeneous=False, preset="authors")
    a = fl.SCAFFLSA(0.01, 10)
    few = fl.theory.exact(p, a, rounds=50_000, record=2)
    more = fl.theory.exact(p, a, rounds=50_000, record=[0, 100, 1000, 10_000, 49_999, 50_000])
    assert float(few["mse"][-1]) == pytest.approx(8.161003699e-4, rel=1e-9)
    assert float(more["mse"][-1]) == pytest.approx(float(few["mse"][-1]), rel=1e-11)
    assert float(few["mse"][-1]) > (1 + 2e-4) * fl.theory.stationary(p, a).mse


@st.composite
def problems(draw):
    """Small problems of any noise, weights and shape, whose averaged matrix is stable."""
    d, N = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    noise, skew = 10.0 ** draw(st.integers(-6, 0)), draw(st.sampled_from([0.0, 1.0, 10.0]))
    base = np.eye(d) + skew * np.eye(d, k=1)
    turn = rng.standard_normal((d, d))
    base = base + draw(st.sampled_from([0.0, 3.0])) * (turn - turn.T)
    tables = []
    for _ in range(N):
        A, b = base + 0.2 * rng.standard_normal((d, d)), rng.standard_normal(d)
        E, e = noise * rng.standard_normal((2, d, d)), noise * rng.standard_normal((2, d))
        tables.append((rng.dirichlet(np.ones(2)), A + E, b + e))
    weights = 10.0 ** -rng.uniform(0, draw(st.sampled_from([0, 3])), N)
    size = max(np.linalg.norm(A, 2) for _, As, _ in tables for A in As)
    return fl.problems.from_observations(tables, weights=weights), 0.3 / size


@settings(max_examples=30)
@given(case=problems(), i=st.integers(0, 2), data=st.data())
def test_moments_of_drawn_problems_are_those_of_the_twin(case, i, data):
    problem, eta = case
    m = data.draw(st.integers(1, problem.n_agents))
    a = Case(problem, eta, H=data.draw(st.integers(1, 4)), p=data.draw(st.sampled_from([0.6, 0.9, 1.0]))).methods()[i]
    want = Twin(problem, a, m).curve(3)
    got = found(problem, replace(a, participants=m), np.arange(4))
    agree(got, want)

"""Theory of methods that declare more than those of the paper: servers with memory, agents with their own steps."""

from dataclasses import dataclass, replace

import gallery
import numpy as np
import pytest
from own_steps import OwnStepsFedLSA, OwnStepsSCAFFLSA
from server_momentum import MomentumFedLSA, MomentumSCAFFLSA
from tables import round_of, tiny
from twin import Twin

import fedlsa as fl
from fedlsa.theory import stationarity, tuning

UNEQUAL = {"step_factors": (1.0, 0.5, 1.3), "length_factors": (1.0, 2.0, 0.5)}
CASES = (
    "jordan block",
    "one dimension",
    "no noise",
    "shared tables and unequal weights",
    "weights from one to a millionth",
)


@dataclass(frozen=True, repr=False)
class MomentumScaffnew(fl.Scaffnew):
    """Rounds of random length, and a server with two vectors beside theta."""

    supports = frozenset({"theory"})

    def server(self):
        return ((1.0, 0.3, -0.1), (0.0, 0.5, 0.2), (0.0, 0.1, 0.0)), (0.8, 0.4, 1.0)


METHODS = [
    MomentumFedLSA(0.2, 3, momentum=0.4),
    MomentumSCAFFLSA(0.2, 3, momentum=0.4),
    MomentumScaffnew(0.2, 0.4),
    OwnStepsFedLSA(0.2, 2, **UNEQUAL),
    OwnStepsSCAFFLSA(0.2, 2, **UNEQUAL),
]


@pytest.mark.parametrize("participants", [None, 1])
@pytest.mark.parametrize("a", METHODS, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("name", CASES)
def test_curves_of_declared_methods_are_those_of_the_twin(name, a, participants):
    case = gallery.CASES[name]()
    a = replace(a, step_size=min(0.2, case.eta), participants=participants)
    xi = np.sin(np.arange(case.problem.n_agents * case.problem.dim)).reshape(-1, case.problem.dim)
    start = case.problem.theta_star - 0.5, xi - case.problem.weights @ xi
    want, got = Twin(case.problem, a).curve(3, *start), fl.theory.exact(case.problem, a, 3, *start)
    scale = want["mse"].max()
    np.testing.assert_allclose(got["mean"] - case.problem.theta_star, want["mean"], rtol=0, atol=1e-12 * scale**0.5)
    np.testing.assert_allclose(got["mse"], want["mse"], rtol=1e-9, atol=1e-13 * scale)
    np.testing.assert_allclose(got["noise"], want["variance"], rtol=1e-9, atol=1e-13 * scale)
    off = np.abs(got["covariance"].values - want["covariance"]).max(axis=(1, 2))
    assert (off <= 1e-9 * want["variance"] + 1e-13 * scale).all()
    if "psi" in got:
        np.testing.assert_allclose(got["psi"], want["psi"], rtol=1e-9)


@pytest.mark.parametrize("a", METHODS, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("name", CASES[:4])
def test_limits_and_radii_of_declared_methods_are_those_of_the_twin(name, a):
    case = gallery.CASES[name]()
    a = replace(a, step_size=min(0.2, case.eta))
    twin, found = Twin(case.problem, a), fl.theory.stationary(case.problem, a)
    assert found.radius == pytest.approx(twin.radius(), rel=1e-3 if name == "jordan block" else 1e-8)
    bias, covariance = twin.stationary()
    np.testing.assert_allclose(found.bias, bias, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.covariance, covariance, rtol=0, atol=1e-9 * np.abs(covariance).max())


@pytest.mark.parametrize("a", METHODS, ids=lambda a: type(a).__name__)
def test_many_rounds_of_declared_methods_lead_where_single_ones_do(a, monkeypatch):
    p = tiny(4, 2, 3, 4, weights=[1.0, 2.0, 3.0, 2.0])
    fast = fl.theory.exact(p, replace(a, step_size=0.05), 400, record=[1, 60, 200, 400])
    monkeypatch.setattr(tuning, "KRYLOV_FROM", 1000)
    slow = fl.theory.exact(p, replace(a, step_size=0.05), 400, record=[1, 60, 200, 400])
    np.testing.assert_allclose(fast["mse"], slow["mse"], rtol=1e-9)
    if "psi" in fast:
        assert (fast.route, slow.route) == ("Krylov spaces", "round by round")
        np.testing.assert_allclose(fast["psi"], slow["psi"], rtol=1e-9)
        end = fl.theory.stationary(p, replace(a, step_size=0.05))
        assert float(slow["mse"][-1]) == pytest.approx(end.mse, rel=1e-4)


@pytest.mark.parametrize("a", METHODS, ids=lambda a: type(a).__name__)
def test_the_stability_limit_of_declared_methods_is_where_the_radius_is_one(a):
    problem = gallery.CASES["one dimension"]().problem
    found = fl.theory.stability_limit(problem, a)
    assert [Twin(problem, replace(a, step_size=f * found)).radius() < 1 for f in (1 - 1e-5, 1 + 1e-5)] == [True, False]


@pytest.mark.parametrize("a", METHODS[:2] + METHODS[3:], ids=lambda a: type(a).__name__)
def test_simulated_runs_of_declared_methods_have_the_exact_error(a):
    p, seeds = tiny(3, 2, 3, 4, weights=[1.0, 2.0, 3.0]), 2000
    run = fl.simulate(p, a, rounds=8, seeds=seeds, record=[2, 5, 8])["squared_error"].values
    exact = fl.theory.exact(p, a, 8, record=[2, 5, 8])["mse"].values
    assert (np.abs(run.mean(0) - exact) <= 4 * run.std(0, ddof=1) / np.sqrt(seeds)).all()


@pytest.mark.parametrize("make", [lambda e: fl.SCAFFLSA(e, 3), lambda e: fl.Scaffnew(e, 0.4)])
def test_a_server_that_remembers_nothing_has_the_limit_of_the_plain_one(make):
    """Written as one with memory: explicit coordinates, of which the limit is that of the reduced ones."""
    p = tiny(4, 2, 3, 4, weights=[1.0, 2.0, 3.0, 2.0])
    plain = round_of(p, make(0.1))
    kept = replace(plain, steady=False)
    assert (plain.reduced, kept.reduced) == (True, False)
    one, other = stationarity.limit(plain), stationarity.limit(kept)
    np.testing.assert_allclose(other.U, one.U, rtol=0, atol=1e-10 * np.abs(one.U).max())
    assert stationarity.agents_radius(kept) == pytest.approx(stationarity.agents_radius(plain), rel=1e-9)
    assert stationarity.settles(kept)


def test_what_holds_of_the_papers_methods_alone_is_refused_to_others():
    """A theorem, a trajectory or an iteration of SCAFFLSA says nothing of SCAFFLSA with momentum."""
    problem = fl.problems.garnet(agents=2, states=3, features=2, seed=1)
    a = MomentumSCAFFLSA(0.01, 2)
    for call in (
        lambda: fl.theory.exact(problem, a, 3, sampling=fl.Markov()),
        lambda: fl.theory.exact_iterations(problem, a, 3),
        lambda: fl.theory.bound(problem, a, 3),
        lambda: fl.theory.td_bound(problem, a, 3),
        lambda: fl.theory.markov_block(problem, a, 3, 0.1),
        lambda: fl.theory.complexity(problem, a, 0.1),
    ):
        with pytest.raises(fl.errors.ArgumentError, match=r"one of FedLSA, SCAFFLSA, Scaffnew, of .*; got Momentum"):
            call()


def test_a_method_with_control_variates_of_some_agents_is_refused():
    problem = fl.problems.garnet(agents=2, states=3, features=2, seed=1)

    class Some(OwnStepsSCAFFLSA):
        supports = frozenset({"theory"})

        def gain(self, eta, updates):
            return np.where(eta == eta.min(), 0.0, 1 / (eta * updates))

    with pytest.raises(fl.errors.ArgumentError, match="gain must be above 0 for all agents, or 0 for all"):
        fl.theory.stationary(problem, Some(0.01, 2))

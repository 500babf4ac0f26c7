"""A run that stops and goes on gives the bits of one that was never interrupted: every method, option and engine."""

import warnings

import numpy as np
import pytest
from own_steps import OwnStepsSCAFFLSA
from server_momentum import MomentumFedLSA
from tiers import longer

import fedlsa as fl

WEIGHTS = np.arange(1.0, 21.0)
KEEP = ("theta", "xi", "state")


class Halfway(fl.SCAFFLSA):
    """A server step of its own: nine tenths of the way to the average."""

    @staticmethod
    def server_step(theta, mean, parameters):
        for i in range(len(theta)):
            theta[i] += 0.9 * (mean[i] - theta[i])


def garnet(agents=20, **keywords):  # more than one group of sixteen
    return fl.problems.garnet(agents=agents, states=12, features=5, discount=0.8, seed=1, **keywords)


def log():
    rng = np.random.default_rng(0)
    sites = [(rng.random((n, 3)), rng.random(n), rng.random((n, 3)), np.zeros(n)) for n in (7, 9, 12)]
    return fl.problems.from_transitions(sites, 0.5)


def regression():
    rng = np.random.default_rng(1)
    return fl.problems.regression([(rng.standard_normal((9, 4)), rng.standard_normal(9)) for _ in range(3)], ridge=0.1)


def dense():
    rng = np.random.default_rng(2)
    A = np.eye(3) + 0.3 * rng.standard_normal((3, 4, 3, 3))
    return fl.problems.from_observations([(np.ones(4) / 4, a, rng.standard_normal((4, 3))) for a in A])


IID, MARKOV, DECREASING = fl.IID(), fl.Markov(), fl.PowerStep(0.4, 0.5)
CASES = {  # problem, method, sampling, further arguments
    "FedLSA": (garnet, fl.FedLSA(0.1, 3), IID, {}),
    "SCAFFLSA, one step, trajectories drawn ahead": (garnet, fl.SCAFFLSA(0.1, 1), MARKOV, {}),
    "SCAFFLSA, long rounds on trajectories": (garnet, fl.SCAFFLSA(0.1, 18), MARKOV, {}),
    "SCAFFLSA, thinned": (garnet, fl.SCAFFLSA(0.1, 7), fl.Markov(thin=3), {}),
    "SCAFFLSA, given states": (garnet, fl.SCAFFLSA(0.1, 2), fl.Markov(start=[0, 1] * 10), {}),
    "SCAFFLSA, weights, a start of its own": (
        lambda: garnet(weights=WEIGHTS), fl.SCAFFLSA(0.1, 3), IID, {"theta_0": np.ones(5), "xi_0": "some"},
    ),
    "SCAFFLSA, some take part, trajectories": (
        lambda: garnet(weights=WEIGHTS), fl.SCAFFLSA(0.1, 3, participants=7), MARKOV, {},
    ),
    "Scaffnew": (garnet, fl.Scaffnew(0.1, 0.3), MARKOV, {}),
    "Scaffnew, decreasing, some take part": (garnet, fl.Scaffnew(DECREASING, 0.3, participants=3), IID, {}),
    "SCAFFLSA, decreasing, averaged before": (garnet, fl.SCAFFLSA(DECREASING, 4, average_after=2), IID, {}),
    "FedLSA, projected, averaged afterwards": (garnet, fl.FedLSA(0.5, 4, projection=1.0, average_after=8), IID, {}),
    "SCAFFLSA, single precision": (garnet, fl.SCAFFLSA(0.1, 3), MARKOV, {"dtype": "float32"}),
    "Scaffnew, single precision, some": (garnet, fl.Scaffnew(0.1, 0.3, participants=9), IID, {"dtype": "float32"}),
    "SCAFFLSA, a log": (log, fl.SCAFFLSA(0.1, 5), fl.Replay(), {}),
    "Scaffnew, a log thinned, some": (log, fl.Scaffnew(0.1, 0.3, participants=2), fl.Replay(thin=2), {}),
    "SCAFFLSA, a ridge": (regression, fl.SCAFFLSA(0.05, 3), IID, {}),
    "SCAFFLSA, dense": (dense, fl.SCAFFLSA(0.05, 3, average_after=3), IID, {}),
    "a server step": (garnet, Halfway(0.1, 3), IID, {}),
    "momentum": (garnet, MomentumFedLSA(0.1, 3, participants=7, average_after=2), IID, {}),
    "own steps, trajectories": (garnet, OwnStepsSCAFFLSA(0.1, 6), MARKOV, {}),
    "own steps, a log, some": (log, OwnStepsSCAFFLSA(0.1, 4, participants=2), fl.Replay(thin=2), {}),
    "divergence before": (garnet, fl.FedLSA(1e120, 2), IID, {}),
    "divergence afterwards": (garnet, fl.FedLSA(1e30, 1), IID, {}),
}  # fmt: skip
ENGINES = [("cpu", name) for name in CASES] + [
    ("reference", name) if name in ("SCAFFLSA, thinned", "momentum", "divergence before") else longer("reference", name)
    for name in CASES
]


def arguments_of(name, engine):
    make, algorithm, sampling, more = CASES[name]
    problem = make()
    if "xi_0" in more:
        xi = np.random.default_rng(3).standard_normal((problem.n_agents, problem.dim)) / 10
        more = more | {"xi_0": xi - problem.weights @ xi}
    return {"problem": problem, "algorithm": algorithm, "sampling": sampling, "seeds": 3, "engine": engine} | more


@pytest.mark.parametrize(("engine", "name"), ENGINES)
def test_a_run_that_goes_on_has_the_bits_of_one_that_never_stopped(engine, name):
    arguments = arguments_of(name, engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fl.errors.DivergenceWarning)
        short = fl.simulate(**arguments, rounds=5, record=[0, 2], keep=KEEP, threads=1)
        longer = fl.resume(short, 11, arguments["problem"], arguments["algorithm"], record=2, threads=2)
        whole = fl.simulate(**arguments, rounds=11, record=longer["rounds"].values.tolist(), keep=KEEP)
    assert longer["rounds"].values.tolist() == [0, 2, 8, 11]
    assert longer.identical(whole)
    assert bool((longer["diverged_at"] >= 0).any()) == ("divergence" in name)


def test_a_saved_state_goes_on_twice_and_says_how_to_make_it_at_once(tmp_path):
    p, a = garnet(4), fl.Scaffnew(0.1, 0.3, average_after=20)
    r = fl.simulate(p, a, rounds=6, seeds=[3, 8], sampling=MARKOV, keep=("state",))  # averages are yet to come
    for rounds in (14, 25):
        fl.results.save(r, tmp_path / "run.nc")
        loaded = fl.results.load(tmp_path / "run.nc")
        assert loaded.identical(r)
        r = fl.resume(loaded, rounds, record=[rounds - 1])
    assert r["rounds"].values.tolist() == [*range(7), 13, 24]
    assert "theta" not in r
    assert r.identical(fl.simulate(**fl.results.arguments(r)))


@pytest.mark.parametrize("name", ["SCAFFLSA, some take part, trajectories", "SCAFFLSA, single precision"])
@pytest.mark.parametrize(("before", "after"), [("reference", "cpu"), ("cpu", "reference")])
def test_another_engine_goes_on_to_rounding(name, before, after):
    arguments = arguments_of(name, before)
    short = fl.simulate(**arguments, rounds=5, keep=KEEP)
    whole = fl.simulate(**arguments, rounds=11, keep=KEEP)
    longer = fl.resume(short, 11, engine=after)
    size = 1e-4 if "single" in name else 1e-12
    for part in ("theta", "xi"):
        np.testing.assert_allclose(longer[part], whole[part], rtol=0, atol=size)
    assert longer["state_steps"].identical(whole["state_steps"])
    assert longer["state_chain"].identical(whole["state_chain"])
    assert f'"engine": "{after}"' in longer.attrs["arguments"]


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_starts_may_differ_from_seed_to_seed(engine):
    problem, rng = garnet(3), np.random.default_rng(5)
    theta, xi = rng.standard_normal((2, 5)), rng.standard_normal((2, 3, 5))
    xi -= xi.mean(axis=1, keepdims=True)
    run = {"rounds": 2, "engine": engine, "keep": ("theta", "xi")}
    both = fl.simulate(problem, fl.SCAFFLSA(0.1, 2), seeds=2, theta_0=theta, xi_0=xi, **run)
    for s in range(2):
        alone = fl.simulate(problem, fl.SCAFFLSA(0.1, 2), seeds=[s], theta_0=theta[s], xi_0=xi[s], **run)
        for part in ("theta", "xi", "squared_error"):
            assert np.array_equal(both[part][s], alone[part][0])
    assert both.identical(fl.simulate(**fl.results.arguments(both)))


def test_what_cannot_go_on_is_refused_in_one_line():
    problem, a = garnet(3), fl.FedLSA(0.1, 2)
    r = fl.simulate(problem, a, 4, seeds=2, keep=("theta", "state"))
    refused = {
        "result must hold a state": lambda: fl.resume(fl.simulate(problem, a, 4, seeds=2), 8),
        "rounds must be above 4": lambda: fl.resume(r, 4),
        "record must hold rounds above 4": lambda: fl.resume(r, 8, record=[3, 8]),
        "result must hold all 2 seeds": lambda: fl.resume(r.isel(seed=[0]), 8),
        "seeds of its run in their order": lambda: fl.resume(r.isel(seed=[1, 0]), 8),
        "result must hold theta": lambda: fl.resume(r.drop_vars("theta"), 8),
        "does not fit its problem": lambda: fl.resume(r.assign(state_steps=r["state_steps"] - 100), 8),
        "problem must be the one": lambda: fl.resume(r, 8, problem=garnet(3, perturbation=0.5)),
        r"theta_0 must .* \(2, 5\)": lambda: fl.simulate(problem, a, 4, seeds=2, theta_0=np.ones((3, 5))),
        r"xi_0 must .* \(2, 3, 5\)": lambda: fl.simulate(problem, a, 4, seeds=2, xi_0=np.ones((1, 3, 5))),
        "weighted sum": lambda: fl.simulate(problem, a, 4, seeds=2, xi_0=np.ones((2, 3, 5))),
    }
    for message, call in refused.items():
        with pytest.raises(fl.errors.ArgumentError, match=message):
            call()

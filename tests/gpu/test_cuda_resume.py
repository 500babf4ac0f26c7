"""Runs on a GPU, or on Numba's simulator of one, that stop and go on: the bits of those that never stopped."""

import numpy as np
import pytest
from numba import config
from own_steps import OwnStepsSCAFFLSA
from server_momentum import MomentumSCAFFLSA

import fedlsa as fl
from fedlsa.engine import cuda

SIMULATED = bool(config.ENABLE_CUDASIM)
pytestmark = pytest.mark.skipif(
    not SIMULATED and not cuda.available(), reason="needs NUMBA_ENABLE_CUDASIM=1 or an NVIDIA GPU"
)
AGENTS, SEEDS = (3, 1) if SIMULATED else (100, 3)
KEEP = ("theta", "xi", "state")


class Halfway(fl.SCAFFLSA):
    @staticmethod
    def server_step(theta, mean, parameters):
        for i in range(len(theta)):
            theta[i] += 0.5 * (mean[i] - theta[i])


def garnet():
    return fl.problems.garnet(agents=AGENTS, states=12, discount=0.8, seed=1, weights=np.arange(1.0, AGENTS + 1))


def log():
    rng = np.random.default_rng(0)
    site = rng.random((7, 3)), rng.random(7), rng.random((7, 3)), np.zeros(7)
    return fl.problems.from_transitions([site] * AGENTS, 0.5)


CASES = {
    "trajectories": (garnet, fl.SCAFFLSA(0.1, 3), fl.Markov(), "float64"),
    "some take part": (garnet, fl.SCAFFLSA(0.1, 2, participants=2 * AGENTS // 3), fl.Markov(), "float64"),
    "random lengths, decreasing": (garnet, fl.Scaffnew(fl.PowerStep(0.2, 0.5), 0.5), fl.IID(), "float64"),
    "single precision, averaged": (garnet, fl.SCAFFLSA(0.1, 2, average_after=2), fl.IID(), "float32"),
    "a log": (log, fl.SCAFFLSA(0.1, 1), fl.Replay(), "float64"),
    "momentum": (garnet, MomentumSCAFFLSA(0.1, 1), fl.IID(), "float64"),
    "own steps on trajectories": (garnet, OwnStepsSCAFFLSA(0.1, 2), fl.Markov(), "float64"),
    "a server step, projected": (garnet, Halfway(0.1, 1, projection=3.0), fl.IID(), "float64"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_goes_on_has_the_bits_of_one_that_never_stopped(name):
    make, algorithm, sampling, dtype = CASES[name]
    problem = make()
    run = {"seeds": SEEDS, "sampling": sampling, "dtype": dtype, "engine": "cuda", "keep": KEEP}
    short = fl.simulate(problem, algorithm, 2, record=[0, 1], **run)
    longer = fl.resume(short, 4, problem, algorithm, record=2)
    assert longer.identical(fl.simulate(problem, algorithm, 4, record=[0, 1, 3, 4], **run))


@pytest.mark.parametrize(("before", "after"), [("reference", "cuda"), ("cuda", "reference")])
def test_a_trajectory_goes_on_from_engine_to_engine_within_four_draws(before, after):
    """Six steps: a GPU draws four at a time, and begins anew with what led to where the trajectory is."""
    problem, a = garnet(), fl.SCAFFLSA(0.1, 3)
    run = {"seeds": SEEDS, "sampling": fl.Markov(), "keep": KEEP}
    longer = fl.resume(fl.simulate(problem, a, 2, engine=before, **run), 3, engine=after)
    whole = fl.simulate(problem, a, 3, engine="reference", **run)
    np.testing.assert_allclose(longer["theta"], whole["theta"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(longer["xi"], whole["xi"], rtol=0, atol=1e-12)
    assert longer["state_chain"].identical(whole["state_chain"])

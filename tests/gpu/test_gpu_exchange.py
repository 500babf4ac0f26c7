"""Methods that declare an exchange on a GPU, or on Numba's simulator of one, against the same runs elsewhere."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from numba import config

import fedlsa as fl
from fedlsa.algorithms import FAMILY, Algorithm, Exchange, ExchangeMethod
from fedlsa.engine import cuda

SIMULATED = bool(config.ENABLE_CUDASIM)
pytestmark = pytest.mark.skipif(
    not SIMULATED and not cuda.available(), reason="needs NUMBA_ENABLE_CUDASIM=1 or an NVIDIA GPU"
)
AGENTS, SEEDS, ROUNDS, OTHER = (4, [3], 4, "reference") if SIMULATED else (20, 64, 200, "cpu")
KEEP = ("theta", "xi", "state")
DECLARED = {name: kind(0.1, 2) for name, kind in FAMILY.items() if kind.exchange is not Algorithm.exchange}
FACTORS = tuple(np.linspace(0.5, 1, AGENTS))
TRAJECTORIES = {"sampling": fl.Markov(thin=2)}


def garnet():
    return fl.problems.garnet(agents=AGENTS, states=6, features=3, seed=1, weights=np.arange(1.0, AGENTS + 1))


def dense():
    rng = np.random.default_rng(1)
    A = np.eye(3) + 0.3 * rng.standard_normal((AGENTS, 4, 3, 3))
    return fl.problems.from_observations([(np.ones(4) / 4, a, rng.standard_normal((4, 3))) for a in A])


def log():
    rng = np.random.default_rng(0)
    site = rng.random((7, 3)), rng.random(7), rng.random((7, 3)), np.zeros(7)
    return fl.problems.from_transitions([site] * AGENTS, 0.5)


CASES = {
    **{name: (garnet, method, {}) for name, method in DECLARED.items()},
    **{
        repr(send): (garnet, fl.Compressed(0.1, 2, send, memory=send.kind > 3), {})
        for send in (fl.RandK(2), fl.Rounding(4, 0.5), fl.Rounding(3, 0.1, dither=False), fl.Noise(0.1), fl.TopK(2))
    },
    "sign": (garnet, fl.Compressed(0.1, 2, fl.Sign()), {}),
    "some answer, averaged, projected": (
        garnet, fl.Delayed(fl.PowerStep(0.1, 0.5), 3, participants=2, average_after=2, projection=0.5), TRAJECTORIES,
    ),
    "drop-outs on trajectories": (garnet, fl.Dropouts(0.1, 4, 0.4), TRAJECTORIES),
    "own lengths": (garnet, fl.FedNova(0.1, 4, length_factors=FACTORS, corrected=True), {}),
    "growing lengths": (garnet, fl.Anderson(0.1, fl.PowerLength(2, 0.7), 2), {}),
    "dense, anchored": (dense, fl.SVRG(0.05, 3), {}),
    "a log": (log, fl.GradientTracking(0.05, 3), {"sampling": fl.Replay(thin=2)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_whole_runs_agree_with_the_cpu(name):
    make, method, options = CASES[name]
    p, given = make(), {"seeds": SEEDS, "record": 3, "keep": KEEP, **options}
    on_gpu, on_cpu = (fl.simulate(p, method, ROUNDS, engine=engine, **given) for engine in ("cuda", OTHER))
    for part in on_cpu.data_vars:
        if part in ("theta", "xi", "squared_error", "state_theta", "state_memory", "state_xi", "state_running"):
            size = max(1.0, float(np.abs(on_cpu[part].values).max(initial=0)))
            np.testing.assert_allclose(on_gpu[part], on_cpu[part], rtol=0, atol=1e-9 * size, err_msg=part)
        else:
            np.testing.assert_array_equal(on_gpu[part], on_cpu[part], err_msg=part)


@pytest.mark.parametrize("name", ["adam", "dropouts", "delayed"])
def test_a_run_that_goes_on_has_the_bits_of_one_that_never_stopped(name):
    p, given = garnet(), {"seeds": SEEDS, "engine": "cuda", "keep": KEEP, **TRAJECTORIES}
    short = fl.simulate(p, DECLARED[name], 2, record=[0, 1], **given)
    longer = fl.resume(short, 4, record=2)
    assert longer.identical(fl.simulate(p, DECLARED[name], 4, record=[0, 1, 3, 4], **given))


def test_a_grid_may_hold_methods_of_both_kinds():
    p, methods = garnet(), [fl.Adam(0.1, 2), fl.SCAFFLSA(0.1, 2), fl.FedLin(0.1, 2), fl.FedLSA(0.1, 2)]
    together = fl.simulate_grid(p, methods, 3, seeds=1, engine="cuda")
    for method, run in zip(methods, together, strict=True):
        assert run.identical(fl.simulate(p, method, 3, seeds=1, engine="cuda"))


def test_runs_that_diverge_say_when():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        on_gpu, on_cpu = (fl.simulate(garnet(), fl.Delayed(1e100, 2), 5, 1, engine=e) for e in ("cuda", OTHER))
    assert on_gpu["diverged_at"].values.tolist() == on_cpu["diverged_at"].values.tolist() != [-1]


def raising(server, means, t, parameters):
    raise ValueError


def on_arrays(server, means, t, parameters):
    server[0] = server[0] + means[0]


@dataclass(frozen=True, repr=False)
class Ruled(ExchangeMethod):
    rule: object = None

    def exchange(self, eta, updates, agents, dim):
        return Exchange(rule=self.rule)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (raising, "rule of Ruled must not raise with engine='cuda'"),
        pytest.param(
            on_arrays,
            "rule of Ruled must be .* loops over numbers; got from Numba",
            marks=pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing"),
        ),
    ],
)
def test_rules_that_a_gpu_cannot_run_are_refused_by_name(rule, message):
    with pytest.raises(fl.errors.ArgumentError, match=message):
        fl.simulate(garnet(), Ruled(0.1, 2, rule), 2, 1, engine="cuda")

"""A method's stages are what the engines run: a twin that knows no method, and what a method must not declare."""

from dataclasses import dataclass

import numpy as np
import pytest
from own_steps import OwnStepsFedLSA, OwnStepsSCAFFLSA
from server_momentum import MomentumFedLSA, MomentumSCAFFLSA

import fedlsa as fl
from fedlsa.algorithms.stages import Geometric, Linear, Local, Private, Sample, Shared
from fedlsa.engine.random import participants, uniforms
from fedlsa.errors import ArgumentError


def noiseless():
    """Three agents that see the same A and b in every step."""
    g = np.random.default_rng(0)
    A = np.eye(2) + 0.3 * g.normal(size=(3, 2, 2))
    return fl.problems.from_observations([([1.0], a[None], g.normal(size=(1, 2))) for a in A], weights=[1, 2, 5])


def run_stages(problem, method, rounds, seed):
    """Rounds of a method as its stages say, on mean systems: (theta, xi)."""
    N, d, w = problem.n_agents, problem.dim, problem.weights
    xi, present, length = np.zeros((N, d)), np.ones(N, bool), 0
    memory = np.vstack([problem.start, np.zeros((len(method.server()[1]) - 1, d))])
    for t in range(rounds):
        change = np.zeros((N, d))
        for stage in method.stages(method.eta(np.array([t]))[0], N):
            if isinstance(stage, Shared) and isinstance(stage.law, Geometric):
                length = int(stage.law.draw(uniforms(seed, t, 1))[0])
            elif isinstance(stage, Local):
                eta = np.broadcast_to(stage.step_size, N)
                H = np.broadcast_to(length if isinstance(stage.steps, Geometric) else stage.steps, N)
                for c in range(N):
                    hat = memory[0]
                    for _ in range(H[c]):
                        hat = hat - eta[c] * (problem.A_bar[c] @ hat - problem.b_bar[c] - xi[c])
                    change[c] = hat - memory[0]
            elif isinstance(stage, Shared):
                drawn = np.empty((1, stage.law.participants), np.int64)
                participants(np.uint64(seed), t, stage.law.agents, drawn)
                present = np.isin(np.arange(N), drawn)
            else:
                change = change * present[:, None]
                pulled = np.reshape(np.broadcast_to(stage.gain, N), (N, 1)) * change
                xi = xi - pulled + w @ pulled
                Delta = N / present.sum() * (w @ change)
                memory = np.array(stage.server) @ memory + np.outer(stage.change, Delta)
    return memory[0], xi


@pytest.mark.parametrize("method", [
    fl.FedLSA(0.1, 3), fl.SCAFFLSA(0.1, 3, participants=2), fl.Scaffnew(fl.PowerStep(0.2, 0.5), 0.3),
    MomentumFedLSA(0.1, 3, participants=1), MomentumSCAFFLSA(0.1, 3, momentum=0.7),
    OwnStepsFedLSA(0.1, 4), OwnStepsSCAFFLSA(fl.PowerStep(0.2, 0.5), 4, participants=2),
], ids=repr)  # fmt: skip
def test_stages_say_what_the_engines_run(method):
    p, seed = noiseless(), 2**40 + 3
    theta, xi = run_stages(p, method, 9, seed)
    run = fl.simulate(p, method, rounds=9, seeds=[seed], keep=("theta", "xi"))
    np.testing.assert_allclose(run["theta"].values[0, -1], theta, rtol=0, atol=1e-13)
    np.testing.assert_allclose(run["xi"].values[0], xi, rtol=0, atol=1e-12)


def test_stages_stand_in_the_order_in_which_they_are_drawn_and_run():
    assert fl.FedLSA(0.1, 3).stages(0.2, 4) == (Local(0.2, 3), Linear())
    assert fl.Scaffnew(0.1, 0.5, participants=2).stages(0.1, 4, upload_noise=0.3) == (
        Shared(Geometric(0.5)), Local(0.1, Geometric(0.5)), Private(0.3), Shared(Sample(2, 4)), Linear(gain=5.0),
    )  # fmt: skip
    local, linear = OwnStepsSCAFFLSA(0.1, 4).stages(0.1, 2)
    assert local == Local(np.array([0.1, 0.05]), np.array([4, 8]))
    assert linear == Linear(gain=1 / np.array([0.4, 0.4]))


@dataclass(frozen=True)
class Both(MomentumSCAFFLSA):
    @staticmethod
    def server_step(theta, mean, parameters):
        theta[:] = mean


class AnyLength(fl.FedLSA):
    def observations(self, uniform, thin):
        return np.full(len(uniform), 3)


class GainOfLength(fl.Scaffnew):
    def gain(self, eta, updates):
        return 1 / (eta * updates)


def server(*given):
    return type("Server", (fl.FedLSA,), {"server": lambda self: given})(0.1, 3)


def factors(base, *given):
    return type("Factors", (base,), {"agent_factors": lambda self, agents: given})(
        0.1, 0.5 if base is fl.Scaffnew else 3
    )


ONE, NONE = np.ones(4), np.zeros(4)
REFUSED = {
    "stages": [
        (Both(0.1, 3), r"algorithm must say server\(\) and round_steps\(\) for theory; got Both.server_step"),
        (AnyLength(0.1, 3), r"algorithm must say server\(\) and round_steps\(\) for theory; got AnyLength.obs"),
        (GainOfLength(0.1, 0.5), "gain of GainOfLength must not depend on a random length; got"),
    ],
    "simulate": [(Both(0.1, 3), "server and server_step must not both be declared; got both of Both")],
    "both": [
        (server(((1.0, 0.5),), (1.0,)), r"server must be an array of finite numbers of shape \(k, k\); got"),
        (server(((0.9,),), (1.0,)), r"server must have the first column 1, 0, .*; got \[0.9\]"),
        (server(((1.0,),), (1.0, 2.0)), r"change must be an array of finite numbers of shape \(1,\); got"),
        (factors(fl.Scaffnew, ONE, ONE), "agent_factors of Factors must be None where lengths are random"),
        (factors(fl.FedLSA, ONE[1:], ONE[1:]), r"agent_factors of Factors must be an array .* \(2, 4\); got"),
        (factors(fl.FedLSA, ONE, NONE), "agent_factors of Factors must be above 0; got 0"),
    ],
}


@pytest.mark.parametrize(("where", "method", "message"), [(k, *case) for k, cases in REFUSED.items() for case in cases])
def test_what_a_method_must_not_declare_is_refused_by_rule_and_value(where, method, message):
    if where != "simulate":
        with pytest.raises(ArgumentError, match=f"^{message}"):
            method.stages(0.1, 4)
    if where != "stages":
        with pytest.raises(ArgumentError, match=f"^{message}"):
            fl.simulate(fl.problems.ring(agents=4), method, rounds=2, seeds=1, engine="reference")


def test_an_agent_whose_rounds_make_no_update_is_refused():
    p = fl.problems.garnet(agents=4, states=6, features=3)
    with pytest.raises(ArgumentError, match="must leave each agent 3 observations, or a round makes no update; got 2"):
        fl.simulate(p, OwnStepsSCAFFLSA(0.1, 4), rounds=2, seeds=1, sampling=fl.Markov(thin=3))

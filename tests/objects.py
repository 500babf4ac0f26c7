"""One of every kind of object that users hold, by name: each call makes it anew, from equal arguments."""

import functools
import importlib
import pickle

import numpy as np

import fedlsa as fl
from fedlsa.algorithms import FAMILY, METHODS
from fedlsa.engine.paths import round_paths

ROOMS = {
    name: importlib.import_module(name)
    for name in ("fedlsa", "fedlsa.problems", "fedlsa.problems.features", "fedlsa.theory", "fedlsa.fitting")
}


def chains():
    return fl.problems.garnet(agents=2, states=5, features=2, branching=2, seed=3)


def sites():
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(12, 2)), rng.normal(size=12)) for _ in range(2)]


def dense():
    return fl.problems.from_observations([([0.5, 0.5], np.eye(2) + np.array([[[0.1]], [[-0.1]]]), np.ones((2, 2)))])


def draw(agent, uniforms, u, v):
    u[:], v[:] = 1.0, 1.0
    return uniforms[0]


def stream():
    return fl.problems.stream(
        np.ones((2, 1, 1)), np.full((2, 1), 0.5), draw, 1, np.diag([0, 1 / 12]) + np.zeros((2, 1, 1))
    )


def log():
    states = np.array([0, 1, 2, 0, 1, 0, 2])
    reward, ends = np.arange(7.0), np.array([0, 0, 1, 0, 1, 0, 1])
    return fl.problems.Log(states, np.zeros(7), reward, np.roll(states, -1), ends, np.zeros(7))


def transitions(log):
    return {name: np.asarray(column) for name, column in log.columns().items() if name != "action"}


def regression_fit():
    task = fl.Regression("y")
    settings = {"step_size": 0.1, "local_steps": 2, "rounds": 5, "local": "means"}
    return fl.fit(sites(), task, **settings, bootstrap=5, baselines=True)


def value_fit():
    task = fl.Value(0.5, features=np.eye(3))
    return fl.fit([transitions(log())], task, step_size=0.1, local_steps=2, rounds=5, local="means")


EMPTY = (
    "growing length",
    "cochran's q",
    "fit summary",
    "bound",
    "complexity",
    "plan",
    "markov block",
    "residuals",
    "td errors",
)  # without an array
OBJECTS = {
    "garnet": chains,
    "regression": lambda: fl.problems.regression(sites(), ridge=0.1),
    "dense": dense,
    "transitions": lambda: fl.problems.from_transitions(
        [(np.eye(3)[[0, 1, 2]], np.ones(3), np.eye(3)[[1, 2, 0]], [0, 0, 1])], 0.5, trace=0.5
    ),
    "a pickled problem": lambda: pickle.loads(pickle.dumps(fl.problems.ring(agents=3))),
    "log": log,
    "rank-one observations": lambda: chains().observations,
    "dense observations": lambda: dense().observations,
    "chain": lambda: chains().chain,
    "stream": stream,
    "drawn observations": lambda: stream().observations,
    "Exchange": lambda: fl.Exchange(server=("past",), begin={"past": {"theta": np.ones(2)}}),
    "moments": lambda: fl.theory.moments(chains()),
    "constants": lambda: fl.theory.constants(chains()),
    "markov constants": lambda: fl.theory.markov_constants(chains()),
    "markov block": lambda: fl.theory.markov_block(chains(), fl.FedLSA(0.01, 1000), 10, 0.5),
    "stationary": lambda: fl.theory.stationary(dense(), fl.SCAFFLSA(0.1, 2)),
    "growing length": lambda: fl.PowerLength(2, 0.5),
    "joint law": lambda: fl.theory.stationary(dense(), fl.SCAFFLSA(0.1, 2), joint=True).joint,
    "central limit": lambda: fl.theory.central_limit(dense(), fl.SCAFFLSA(0.1, 2)),
    "unstable": lambda: fl.theory.stationary(dense(), fl.SCAFFLSA(30.0, 2)),
    "bound": lambda: fl.theory.bound(dense(), fl.FedLSA(0.01, 2), 10),
    "bound at many rounds": lambda: fl.theory.bound(dense(), fl.FedLSA(0.01, 2), range(200)),
    "complexity": lambda: fl.theory.complexity(dense(), "fedlsa", 0.1),
    "td claim": lambda: fl.theory.td_claim(chains()),
    "virtual": lambda: fl.theory.virtual_mdp(chains()),
    "plan": lambda: fl.plan(dense(), 0.1),
    "fedlsa parts": lambda: fl.theory.fedlsa_parts(dense()),
    "scafflsa parts": lambda: fl.theory.scafflsa_parts(dense()),
    "paths": lambda: round_paths(dense(), fl.SCAFFLSA(0.1, 2), 2, points=2),
    "fit": regression_fit,
    "value fit": value_fit,
    "fit summary": lambda: regression_fit().summary(),
    "site report": lambda: regression_fit().per_site[0],
    "baseline": lambda: regression_fit().baselines[0],
    "bootstrap": lambda: regression_fit().bootstrap,
    "heterogeneity": lambda: regression_fit().heterogeneity(),
    "cochran's q": lambda: regression_fit().heterogeneity().together,
    "prediction": lambda: regression_fit().predict_interval([[1.0, 2.0]]),
    "wald test": lambda: regression_fit().test([[1.0, -1.0, 0.0]]),
    "residuals": lambda: fl.evaluate(regression_fit(), sites())[0],
    "td errors": lambda: fl.evaluate(value_fit(), [transitions(log())])[0],
}
SETTINGS = {
    "FedLSA": lambda: fl.FedLSA(0.1, 10),
    "SCAFFLSA": lambda: fl.SCAFFLSA(fl.PowerStep(0.1, 0.5), 10, participants=3, projection=2.0),
    "Scaffnew": lambda: fl.Scaffnew(0.1, 0.1, average_after=5),
    **{kind.__name__: functools.partial(kind, 0.1, 2) for kind in FAMILY.values() if kind.name not in METHODS},
    "ExchangeMethod": lambda: fl.ExchangeMethod(0.1, 2),
    "RandK": lambda: fl.RandK(2),
    "Rounding": lambda: fl.Rounding(8, 1.0),
    "Noise": lambda: fl.Noise(0.1),
    "TopK": lambda: fl.TopK(2),
    "Sign": lambda: fl.Sign(),
    "PowerStep": lambda: fl.PowerStep(0.1, 0.5),
    "IID": fl.IID,
    "Markov": lambda: fl.Markov(2, start=[0, 1]),
    "Replay": lambda: fl.Replay(3),
    "Sampling": fl.Sampling,
    "Regression": lambda: fl.Regression("y", columns=["age", "dose"], ridge=0.1),
    "Value": lambda: fl.Value(0.9, features=np.eye(3)),
    "OneHot": lambda: fl.problems.features.OneHot(4, without=(3,)),
    "Aggregation": lambda: fl.problems.features.Aggregation(6, 2),
    "TileCoding": lambda: fl.problems.features.TileCoding([0.0, 0.0], [1.0, 1.0], 3, 2),
    "Fourier": lambda: fl.problems.features.Fourier([0.0], [1.0], 3),
    "RadialBasis": lambda: fl.problems.features.RadialBasis([0.0], [1.0], 3),
}
ALL = OBJECTS | SETTINGS

"""Arrays that objects hand out cannot be written to: `t = p.theta_star; t += 0.5` must not move the truth."""

import dataclasses
import pickle
from functools import cached_property

import numpy as np
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.engine.paths import round_paths
from fedlsa.frozen import ReadOnly


def chains():
    return fl.problems.garnet(agents=2, states=5, features=2, branching=2, seed=3)


def sites():
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(12, 2)), rng.normal(size=12)) for _ in range(2)]


def dense():
    return fl.problems.from_observations([([0.5, 0.5], np.eye(2) + np.array([[[0.1]], [[-0.1]]]), np.ones((2, 2)))])


HANDED_OUT = {
    "garnet": chains,
    "regression": lambda: fl.problems.regression(sites(), ridge=0.1),
    "dense": dense,
    "transitions": lambda: fl.problems.from_transitions(
        [(np.eye(3)[[0, 1, 2]], np.ones(3), np.eye(3)[[1, 2, 0]], [0, 0, 1])], 0.5, trace=0.5
    ),
    "a pickled problem": lambda: pickle.loads(pickle.dumps(chains())),
    "moments": lambda: fl.theory.moments(chains()),
    "constants": lambda: fl.theory.constants(chains()),
    "markov constants": lambda: fl.theory.markov_constants(chains()),
    "stationary": lambda: fl.theory.stationary(dense(), fl.SCAFFLSA(0.1, 2)),
    "bound": lambda: fl.theory.bound(dense(), fl.FedLSA(0.01, 2), 10),
    "complexity": lambda: fl.theory.complexity(dense(), "fedlsa", 0.1),
    "td claim": lambda: fl.theory.td_claim(chains()),
    "virtual": lambda: fl.theory.virtual_mdp(chains()),
    "plan": lambda: fl.plan(dense(), 0.1),
    "paths": lambda: round_paths(dense(), fl.SCAFFLSA(0.1, 2), 2, points=2),
    "fit": lambda: fl.fit(sites(), fl.Regression("y"), step_size=0.1, local_steps=2, rounds=5, local="means"),
}


def arrays(value, path, seen):
    """(path, array) of every array that can be reached from an object, cached and plain properties included."""
    if id(value) in seen or isinstance(value, (xr.Dataset, type)):
        return
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from arrays(entry, f"{path}[{key!r}]", seen)
    elif isinstance(value, (tuple, list)):
        for i, entry in enumerate(value):
            yield from arrays(entry, f"{path}[{i}]", seen)
    elif type(value).__module__.startswith("fedlsa"):
        for name in dir(type(value)):
            kind = getattr(type(value), name, None)
            if isinstance(kind, (property, cached_property)):
                one, two = getattr(value, name), getattr(value, name)
                if not isinstance(one, np.ndarray) or np.shares_memory(one, two):  # else a fresh copy for every asker
                    yield from arrays(one, f"{path}.{name}", seen)
        for name, entry in vars(value).items():
            yield from arrays(entry, f"{path}.{name}", seen)


@pytest.mark.parametrize("name", HANDED_OUT)
@pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")
def test_every_array_that_an_object_hands_out_is_read_only(name):
    found = list(arrays(HANDED_OUT[name](), name, {}))
    assert [path for path, array in found if array.flags.writeable] == []
    if name not in ("bound", "complexity", "plan"):
        assert found


def test_public_records_with_arrays_are_read_only_by_their_base():
    rooms = {"fl": fl, "problems": fl.problems, "theory": fl.theory, "results": fl.results}
    for room, module in rooms.items():
        for name in module.__all__:
            kind = getattr(module, name)
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                held = [f.name for f in dataclasses.fields(kind) if "Floats" in str(f.type) or "NDArray" in str(f.type)]
                assert not held or issubclass(kind, ReadOnly), f"{room}.{name} hands out {held}"


def test_the_truth_stays_where_it_is():
    p = dense()
    truth = p.theta_star
    with pytest.raises(ValueError, match="read-only"):
        truth += 0.5

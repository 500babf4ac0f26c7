"""Arrays that objects hand out cannot be written to: `t = p.theta_star; t += 0.5` must not move the truth."""

import dataclasses
from functools import cached_property

import numpy as np
import pytest
import xarray as xr
from objects import EMPTY, OBJECTS, dense

import fedlsa as fl
from fedlsa.value_objects import ReadOnly


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


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")
def test_every_array_that_an_object_hands_out_is_read_only(name):
    found = list(arrays(OBJECTS[name](), name, {}))
    assert [path for path, array in found if array.flags.writeable] == []
    if name not in EMPTY:
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

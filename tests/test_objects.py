"""Objects are values: equal where their numbers are, usable as keys, the same after a copy and in another process."""

import copy
import dataclasses
import functools
import inspect
import pickle
import pydoc
import re

import numpy as np
import pytest
from objects import ALL, ROOMS, dense, regression_fit, sites, value_fit

import fedlsa as fl
from fedlsa.value_objects import ReadOnly, same

pytestmark = pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")
made = functools.cache(lambda name: ALL[name]())


def test_the_list_holds_every_public_class():
    public = {kind for room in ROOMS.values() for name in room.__all__ if inspect.isclass(kind := getattr(room, name))}
    assert {kind for kind in public if not inspect.isabstract(kind)} <= {type(made(name)) for name in ALL}


@pytest.mark.parametrize("room", [*ROOMS.values(), fl.results, fl.figures, fl.experiments, fl.errors])
def test_a_package_completes_to_what_users_call_and_nothing_else(room):
    assert sorted(dir(room)) == sorted(room.__all__)
    for name in room.__all__:
        thing = getattr(room, name)
        if name != "__version__":
            assert not name.startswith("_")
            assert name not in ("np", "annotations", "TYPE_CHECKING")
        if inspect.ismodule(thing):
            assert thing.__name__.startswith("fedlsa.")
            assert thing.__all__
        elif callable(thing):
            assert thing.__module__.startswith("fedlsa")
            assert thing.__doc__


@pytest.mark.parametrize("name", ALL)
def test_equal_calls_and_copies_make_equal_objects(name):
    thing = made(name)
    others = [ALL[name](), copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))]
    for other in others:
        assert thing == other
        assert hash(thing) == hash(other)
        assert {thing: 1}[other] == 1
    for array in vars(others[-1]).values() if isinstance(thing, ReadOnly) else ():
        assert not (isinstance(array, np.ndarray) and array.flags.writeable)


def test_no_two_different_objects_are_equal():
    assert len({made(name) for name in ALL}) == len(ALL)
    assert made("garnet") != "garnet"


def test_one_number_is_enough_to_be_different():
    p = dense()
    A = p.observations.A.copy()
    A[-1, -1, -1] = np.nextafter(A[-1, -1, -1], 2)
    assert dataclasses.replace(p, observations=fl.problems.Dense(A, p.observations.b)) != p
    limit = fl.theory.stationary(p, fl.FedLSA(0.1, 2))
    assert limit != dataclasses.replace(limit, error=2 * limit.error)
    assert fl.FedLSA(0.1, 10) != fl.SCAFFLSA(0.1, 10)
    assert dataclasses.replace(fl.FedLSA(0.1, 10), local_steps=5) == fl.FedLSA(0.1, 5)


def test_values_are_compared_by_their_numbers():
    nan = float("nan")
    assert same(np.array([1.0, np.nan]), np.array([1.0, np.nan], np.float32))
    assert same(np.array([1, 2]), np.array([1.0, 2.0]))
    assert same({"a": [1, nan]}, {"a": (1.0, np.float64(nan))})
    assert not same(np.array([1.0]), np.array([[1.0]]))
    assert not same(np.array([1.0]), 1.0)
    assert not same(np.array([1.0, np.nan]), np.array([np.nan, 1.0]))
    assert not same({"a": 1}, {"b": 1})
    assert not same([1], [1, 2])
    table, whole = np.eye(2), fl.Value(0.5, features=np.eye(2, dtype=int))
    task = fl.Value(0.5, features=table)
    assert task == whole
    assert hash(task) == hash(whole)
    table[0, 0] = 7  # the task has its own
    assert task == whole


def test_equal_problems_share_what_is_known_of_them():
    p, q = dense(), dense()
    assert fl.theory.moments(p) is fl.theory.moments(q)
    assert fl.results.problem_text(p) == fl.results.problem_text(q)
    weighted = fl.problems.regression(sites(), weights=[1, 3])
    assert fl.theory.moments(weighted) != fl.theory.moments(fl.problems.regression(sites()))


@pytest.mark.parametrize("make", [regression_fit, value_fit])
def test_a_fit_that_was_saved_is_the_fit(make, tmp_path):
    fit = make()
    fit.save(tmp_path / "fit.json")
    again = fl.Fit.load(tmp_path / "fit.json")
    assert again == fit
    assert hash(again) == hash(fit)
    assert dataclasses.replace(again, local="x") != fit


def callables():
    """Public functions and classes of the rooms, and the methods of the classes, by name."""
    for room, module in ROOMS.items():
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing):
                yield f"{room}.{name}", thing
            for method, function in vars(thing).items() if inspect.isclass(thing) else ():
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{room}.{name}.{method}", getattr(thing, method)


def test_every_option_is_explained_in_the_docstring_that_help_shows():
    silent = {
        (name, option)
        for name, thing in callables()
        for option in inspect.signature(thing).parameters
        if option not in ("self", "args", "kwargs") and not option.startswith("_")
        if not re.search(rf"\b{option}\b", inspect.getdoc(thing) or "")
    }
    assert not silent


def test_help_of_a_method_explains_all_its_options_in_words_and_cites_the_paper():
    for kind, item in (
        (fl.FedLSA, "Algorithm 1"),
        (fl.SCAFFLSA, "Algorithm 2"),
        (fl.Scaffnew, "algo:fed-lsa-controlvar-h1"),
    ):
        text = pydoc.plain(pydoc.render_doc(kind))
        assert item in text
        for f in dataclasses.fields(kind):
            assert f"\n |  {f.name} : " in text
        assert text.count("average_after : ") == 1

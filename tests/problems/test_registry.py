"""The registry of families: what an entry says is what its function does."""

import inspect

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError
from fedlsa.problems import CONSTRUCTORS, FAMILIES, make


@pytest.mark.parametrize("name", FAMILIES)
def test_an_entry_has_the_types_and_defaults_of_its_function_and_a_sentence_for_each(name):
    family = FAMILIES[name]
    plain = inspect.signature(getattr(fl.problems, name), eval_str=True).parameters
    assert set(plain) - set(family.parameters) <= {"weights", "assignment"}
    for key, parameter in family.parameters.items():
        assert (parameter.kind, parameter.default) == (plain[key].annotation, plain[key].default)
        assert parameter.help.endswith(".")
        assert parameter.check(key, parameter.default) == parameter.default
    assert family.title
    assert CONSTRUCTORS[name] is family.make is getattr(fl.problems, name)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_bound_of_an_entry_is_held_by_its_function(name):
    for key, parameter in FAMILIES[name].parameters.items():
        wrong = {}
        if parameter.at_least is not None:
            wrong |= {"at_least": parameter.at_least - 1}
        if parameter.above is not None:
            wrong |= {"above": float(parameter.above)}
        if parameter.at_most is not None:
            wrong |= {"at_most": parameter.at_most + 1}
        if parameter.below is not None:
            wrong |= {"below": float(parameter.below)}
        if parameter.kind in (bool, str):
            wrong |= {"options": "neither"}
        assert wrong, key
        for value in wrong.values():
            with pytest.raises(FedLSAError, match=f"{key} must be"):
                make(name, **{key: value})


def test_a_family_is_made_by_name_and_remembers_its_settings():
    p = make("ring", agents=4, noise=0.5)
    np.testing.assert_array_equal(p.theta_star, fl.problems.ring(4, noise=0.5).theta_star)
    settings = {"agents": 4, "spread": 1.0, "noise": 0.5, "seed": 0, "ideal": False, "weights": None}
    assert p.recipe == {"constructor": "ring", "arguments": settings}


def test_unknown_families_and_parameters_are_named():
    with pytest.raises(ArgumentError, match="family must be"):
        make("rings")
    with pytest.raises(ArgumentError, match="a name among the arguments of ring must be"):
        make("ring", states=3)

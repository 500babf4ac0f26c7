"""A method is named in one way everywhere: by an instance, by its class or by its name, where that is enough."""

from dataclasses import dataclass

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.algorithms import FAMILY, method, method_class
from fedlsa.errors import ArgumentError, ArgumentTypeError, UnknownNameError

RING = fl.problems.ring(agents=4)
DOORS = {
    "simulate": lambda a: fl.simulate(RING, a, rounds=2, seeds=1, engine="reference"),
    "simulate_grid": lambda a: fl.simulate_grid(RING, [a], rounds=2, seeds=1, engine="reference"),
    "sweep": lambda a: fl.sweep(RING, a, step_size=[0.1], local_steps=2, rounds=2, seeds=1, engine="reference"),
    "plan": lambda a: fl.plan(RING, 0.5, method=a),
    "trade_off": lambda a: fl.trade_off(RING, 0.5, a),
    "complexity": lambda a: fl.theory.complexity(RING, a, 0.5),
    "exact": lambda a: fl.theory.exact(RING, a, rounds=2),
    "exact_iterations": lambda a: fl.theory.exact_iterations(RING, a, 2),
    "stationary": lambda a: fl.theory.stationary(RING, a),
    "radius": lambda a: fl.theory.radius(RING, a),
    "stability_limit": lambda a: fl.theory.stability_limit(RING, a),
    "bound": lambda a: fl.theory.bound(RING, a, 2),
}
CLASS_IS_ENOUGH = ("sweep", "plan", "trade_off", "complexity")


@pytest.mark.parametrize("given", ["scafflsa", "SCAFFLSA", "ScaffLSA", fl.SCAFFLSA, fl.SCAFFLSA(0.1, 10)])
def test_a_name_in_letters_of_any_size_a_class_and_an_instance_are_the_same_class(given):
    assert method_class("algorithm", given) is fl.SCAFFLSA


@pytest.mark.parametrize("door", CLASS_IS_ENOUGH)
def test_where_settings_are_found_or_swept_a_class_and_its_name_give_the_same(door):
    by_name, by_class = DOORS[door]("SCAFFLSA"), DOORS[door](fl.SCAFFLSA)
    if door == "sweep":
        assert by_name.identical(by_class)
    else:
        assert repr(by_name) == repr(by_class)


@pytest.mark.parametrize("door", sorted(set(DOORS) - set(CLASS_IS_ENOUGH)))
@pytest.mark.parametrize("given", ["scaffnew", fl.Scaffnew])
def test_where_settings_are_needed_the_error_says_which_are_missing(door, given):
    settings = r"fl\.Scaffnew\(step_size=\.\.\., probability=\.\.\.\)"
    with pytest.raises(ArgumentTypeError, match=rf"^algorithm must have its settings, {settings}; got .*[sS]caffnew"):
        DOORS[door](given)


@pytest.mark.parametrize("door", DOORS)
def test_every_door_answers_a_misspelt_name_and_a_thing_that_is_no_method_alike(door):
    with pytest.raises(UnknownNameError, match=r"(method|algorithm) must be one of .*; did you mean 'scaffnew'\?"):
        DOORS[door]("scafnew")
    for wrong in (3, None, fl.Algorithm, int, np.zeros(())):
        with pytest.raises(
            ArgumentTypeError, match=r"must be a method such as fl\.SCAFFLSA\(\.\.\.\), its class, or its n"
        ):
            DOORS[door](wrong)


@dataclass(frozen=True, repr=False)
class Ready(fl.SCAFFLSA):
    """A method whose settings all have default values."""

    step_size: float = 0.1
    local_steps: int = 3


def test_a_class_whose_settings_have_defaults_runs_with_them():
    run = fl.simulate(RING, Ready, rounds=2, seeds=1, engine="reference")
    assert run.identical(fl.simulate(RING, Ready(), rounds=2, seeds=1, engine="reference"))
    assert method("algorithm", Ready) == Ready(0.1, 3)


def test_theory_and_plans_refuse_a_method_of_ones_own_by_its_name():
    for door in ("plan", "exact", "stationary", "bound", "complexity"):
        with pytest.raises(ArgumentError, match=r"must be one of FedLSA, SCAFFLSA, Scaffnew.*; got Ready"):
            DOORS[door](Ready())


def test_the_settings_of_an_instance_hold_where_a_sweep_does_not_change_them():
    given = fl.SCAFFLSA(0.1, 10, participants=2)
    swept = fl.sweep(RING, given, local_steps=[1, 2], rounds=2, seeds=1, engine="reference")
    named = fl.sweep(
        RING, "scafflsa", step_size=0.1, participants=2, local_steps=[1, 2], rounds=2, seeds=1, engine="reference"
    )
    assert swept.identical(named)
    mean = fl.sweep(RING, fl.Scaffnew(0.1, 0.5), local_steps=[4], rounds=2, seeds=1, engine="reference")
    assert mean.attrs["sweep"].count("probability=0.25") == 1


def test_a_plan_refuses_options_that_it_does_not_know():
    assert fl.plan(RING, 0.5, method=fl.SCAFFLSA(0.1, 10)).rounds == fl.plan(RING, 0.5).rounds
    for option, value in (("projection", 2.0), ("average_after", 3)):
        said = rf"^method must have no {option}, since plans know none; got SCAFFLSA\("
        with pytest.raises(ArgumentError, match=said):
            fl.plan(RING, 0.5, method=fl.SCAFFLSA(0.1, 10, **{option: value}))


def test_every_method_of_the_registry_goes_by_its_name():
    assert {name: method_class("method", name.upper()) for name in FAMILY} == FAMILY
    assert fl.plan(RING, 0.5, method="fedprox").rounds == fl.plan(RING, 0.5, method=fl.FedProx).rounds
    with pytest.raises(UnknownNameError, match=r"method must be one of 'fedlsa', .*'unequalwork'; got 'adam'"):
        fl.plan(RING, 0.5, method="adam")


@dataclass(frozen=True, repr=False)
class Endless(fl.Algorithm):
    """Does not say how long its rounds are."""

    supports = frozenset({"theory", "plan"})

    def gain(self, eta, updates):
        return 0 * eta


@pytest.mark.parametrize("door", ["simulate", "exact", "plan"])
def test_a_method_that_does_not_say_how_long_its_rounds_are_is_refused_by_name(door):
    with pytest.raises(ArgumentError, match="algorithm must say by `length` how long its rounds are; got Endless"):
        DOORS[door](Endless if door == "plan" else Endless(0.1))

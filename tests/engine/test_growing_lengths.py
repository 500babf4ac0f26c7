"""Rounds that grow longer: every engine runs them, exact theory follows them, and all that needs one length refuses."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from gallery import CASES
from twin import Twin

import fedlsa as fl
from fedlsa.engine.paths import round_paths
from fedlsa.engine.schedule import schedule
from fedlsa.errors import ArgumentError
from fedlsa.results import recipe

P = fl.problems.garnet(agents=4, states=6, features=3, seed=1)
GROWING = fl.PowerLength(2, 0.7)  # 2, 4, 5, 6, 7, 8
KINDS = [fl.FedLSA, fl.SCAFFLSA]
OWN = partial(fl.UnequalWork, length_factors=(1, 1.5, 2, 1.2), step_factors=(1, 2, 0.5, 1))


def test_lengths_are_powers_rounded_up():
    assert GROWING.at(np.arange(6)).tolist() == [2, 4, 5, 6, 7, 8]
    assert fl.PowerLength(3, 0.5).at(np.array([0, 3, 8, 99])).tolist() == [3, 6, 9, 30]  # no rounding above
    assert fl.PowerLength(1, 1 / 3).at(np.array([7, 26, 27])).tolist() == [2, 3, 4]
    assert fl.PowerLength(7, 0).at(np.arange(3)).tolist() == [7, 7, 7]
    assert schedule(fl.SCAFFLSA(0.5, GROWING), fl.IID(), 0, 2, first=3).gains.tolist() == [1 / 3, 2 / 7]
    for bad, rule in (((0, 0.5), "H_0"), ((2, -1), "power")):
        with pytest.raises(ArgumentError, match=rule):
            fl.PowerLength(*bad)


@pytest.mark.parametrize("sampling", [fl.IID(), fl.Markov(thin=2)], ids=repr)
@pytest.mark.parametrize("kind", [*KINDS, OWN])
def test_engines_agree_and_a_run_goes_on_where_it_stopped(kind, sampling):
    for options in ({}, {"participants": 2}):
        a = kind(fl.PowerStep(0.5, 0.4), GROWING, **options)
        given = {"rounds": 6, "seeds": 3, "sampling": sampling, "record": 7}
        cpu = fl.simulate(P, a, **given, keep=("theta", "state"))
        slow = fl.simulate(P, a, **given, engine="reference")
        np.testing.assert_allclose(cpu["theta"], slow["theta"], rtol=0, atol=1e-11)
        np.testing.assert_allclose(cpu["samples"], slow["samples"])
        if not options and kind in KINDS:
            assert cpu["samples"][0].values.tolist() == [0, 2, 6, 11, 17, 24, 32]
        half = fl.simulate(P, a, **{**given, "rounds": 3}, keep=("theta", "state"))
        np.testing.assert_array_equal(fl.resume(half, 6, problem=P)["theta"][:, -1], cpu["theta"][:, -1])


def test_a_length_that_does_not_grow_is_that_number():
    kept, plain = (fl.simulate(P, fl.SCAFFLSA(0.3, H), 5, 2)["theta"].values for H in (fl.PowerLength(4, 0), 4))
    np.testing.assert_array_equal(kept, plain)
    curves = [fl.theory.exact(P, fl.SCAFFLSA(0.3, H), 5)["mse"] for H in (fl.PowerLength(4, 0), 4)]
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-12)


@pytest.mark.parametrize("name", ["jordan block", "weights from one to a millionth", "no noise", "one agent"])
@pytest.mark.parametrize(
    "make",
    [
        lambda eta, H: fl.FedLSA(eta, H),
        lambda eta, H: fl.FedLSA(eta, H, average_after=1),
        lambda eta, H: fl.SCAFFLSA(eta, H),
        lambda eta, H: fl.SCAFFLSA(fl.PowerStep(eta, 0.5), H),
        lambda eta, H: fl.FedLSA(fl.PowerStep(eta, 0.5), H, participants=1),
        lambda eta, H: fl.SCAFFLSA(eta, H, average_after=1),
    ],
)
def test_exact_moments_are_those_of_the_twin(name, make):
    problem, eta = CASES[name]().problem, min(0.2, CASES[name]().eta)
    a = make(eta, fl.PowerLength(1, 0.9))
    want = Twin(problem, a).curve(4)
    got = fl.theory.exact(problem, a, 4, problem.theta_star + 1, record=5)
    scale = want["mse"].max()
    for column, of in (("mse", "mse"), ("noise", "variance"), ("covariance", "covariance"), ("psi", "psi")):
        if column in got:
            np.testing.assert_allclose(got[column], want[of], rtol=1e-9, atol=1e-12 * scale)
    sizes = np.cumsum([0, 1, 2, 3, 4]) * a.taking_part(problem.n_agents) / problem.n_agents
    np.testing.assert_allclose(got["samples"], sizes)


@pytest.mark.long
@pytest.mark.parametrize("a", [kind(fl.PowerStep(0.3, 0.6), fl.PowerLength(2, 0.3)) for kind in KINDS], ids=repr)
def test_two_thousand_runs_have_the_exact_error(a):
    seen = fl.simulate(P, a, 60, 2000, record=[10, 60])["squared_error"]
    exact = fl.theory.exact(P, a, 60, record=[10, 60])["mse"]
    assert (abs(seen.mean("seed") - exact) <= 4.5 * seen.std("seed") / np.sqrt(2000)).all()


def test_recipes_labels_and_paths_know_the_lengths():
    a = fl.SCAFFLSA(fl.PowerStep(0.3, 0.6), GROWING)
    record = recipe.value(recipe.text(recipe.algorithm_record(a)))
    assert record.pop("name") == "SCAFFLSA"
    assert fl.SCAFFLSA(**record) == a
    assert "PowerLength" in repr(a)
    steps = round_paths(P, a, 3, points=2).steps
    assert steps[:, -1].tolist() == [2, 4, 5]


@dataclass(frozen=True, repr=False)
class Odd(fl.FedLSA):
    """Rounds of one's own lengths."""

    def observations(self, uniform, thin):
        return np.full(len(uniform), 5)


def test_lengths_of_ones_own_are_heard_as_before():
    assert fl.simulate(P, Odd(0.1, 2), 3, 1)["samples"].values[0, -1] == 15


def test_what_needs_one_length_refuses_by_name():
    a, power = fl.FedLSA(0.1, GROWING), "local_steps"
    for call in (
        lambda: fl.theory.stationary(P, a),
        lambda: fl.theory.stationary(P, fl.Scaffold(0.1, GROWING), joint=True),
        lambda: fl.theory.radius(P, fl.SCAFFLSA(0.1, GROWING)),
        lambda: fl.theory.stability_limit(P, a),
        lambda: fl.theory.bound(P, a, 10),
        lambda: fl.theory.central_limit(P, a),
        lambda: fl.theory.exact(P, a, 5, sampling=fl.Markov()),
        lambda: fl.simulate(P, a, 5, 1, sampling=fl.Markov(thin=3)),
        lambda: fl.theory.bias(P, 0.1, GROWING),
        lambda: fl.simulate(P, replace(a, local_steps=fl.PowerLength(2, 9.0)), 1000, 1),
    ):
        with pytest.raises((ArgumentError, TypeError), match=f"{power}|observations"):
            call()

"""The doors: what looks like a number, a list or a path but is none is refused with an error of fedlsa's own."""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, FedLSAError

P = fl.problems.garnet(agents=4, states=6, features=2)
METHOD = fl.SCAFFLSA(0.1, 3)
ZERO_D = np.array(0.1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fl.FedLSA(10**400, 1),
        lambda: fl.Markov(1, ZERO_D),
        lambda: fl.problems.regression(ZERO_D),
        lambda: fl.problems.garnet(agents=2, states=6, features=2, weights=[1, [2, 3]]),
        lambda: fl.problems.from_recipe({"constructor": "garnet", "arguments": {"agent": 1}}),
        lambda: fl.problems.from_recipe({"constructor": "garnet", "arguments": 1}),
        lambda: fl.problems.from_recipe({"constructor": "regression", "arguments": {}}),
        lambda: fl.simulate(P, METHOD, ZERO_D),
        lambda: fl.simulate(P, METHOD, 3, ZERO_D),
        lambda: fl.simulate(P, METHOD, 3, 10**20),
        lambda: fl.simulate(P, METHOD, 3, keep=ZERO_D),
        lambda: fl.simulate_grid(ZERO_D, [METHOD]),
        lambda: fl.simulate_grid(P, ZERO_D),
        lambda: fl.results.load(None),
        lambda: fl.results.load("a\0b"),
        lambda: fl.results.summary(3),
        lambda: fl.results.table("x"),
        lambda: fl.results.table([{"a": 1}, {"b": 1}]),
        lambda: fl.results.method_label("x"),
    ],
)
def test_what_only_looks_right_is_refused_at_the_door(call):
    with pytest.raises(FedLSAError):
        call()


@pytest.mark.parametrize(
    ("method", "rounds", "sampling"),
    [
        (fl.FedLSA(0.1, 10**400), 1, fl.IID()),
        (METHOD, 10**400, fl.IID()),
        (fl.SCAFFLSA(0.1, 10**400), 1, fl.IID()),
        (fl.Scaffnew(0.1, 1e-300), 1, fl.IID()),
        (fl.Scaffnew(0.1, 0.5), 1, fl.Markov(2**62)),
        (fl.Scaffnew(0.1, 1.0), 1, fl.Markov(2**70)),
    ],
)
def test_a_run_longer_than_the_random_numbers_last_is_refused(method, rounds, sampling):
    with pytest.raises(ArgumentError, match="must be below"):
        fl.simulate(P, method, rounds, 1, sampling=sampling)


def test_an_average_that_never_begins_leaves_the_last_iterate():
    late = fl.simulate(P, fl.FedLSA(0.1, 3, average_after=2**70), 5, 1)
    assert np.array_equal(late.theta, fl.simulate(P, fl.FedLSA(0.1, 3), 5, 1).theta)


def test_recorded_rounds_may_come_from_any_iterable():
    a, b = fl.simulate_grid(P, [METHOD, METHOD], 5, 1, record=(t for t in (0, 3, 5)))
    assert a["round"].values.tolist() == b["round"].values.tolist() == [0, 3, 5]
    assert fl.simulate(**fl.results.arguments(a)).identical(a)


def test_agents_share_the_tables_of_a_garnet():
    shared = fl.problems.garnet(agents=4, states=6, features=2, assignment=[3, 0, 3], weights=[1, 2, 3])
    assert shared.n_agents == 3
    np.testing.assert_array_equal(shared.A_bar, P.A_bar[[3, 0, 3]])
    again = fl.problems.from_recipe(shared.recipe)
    np.testing.assert_array_equal(again.theta_star, shared.theta_star)
    with pytest.raises(ArgumentError, match="table numbers from 0 to 3"):
        fl.problems.garnet(agents=4, states=6, features=2, assignment=[4])
    with pytest.raises(ArgumentTypeError):
        fl.problems.garnet(agents=4, states=6, features=2, assignment="x")


class NoUpdates(fl.FedLSA):
    def observations(self, uniform, thin):
        return np.zeros(len(uniform), np.int64)


class TooFewRounds(fl.FedLSA):
    def observations(self, uniform, thin):
        return np.full(3, 2)


class OneGain(fl.FedLSA):
    def gain(self, eta, updates):
        return np.zeros(1)


@pytest.mark.parametrize("method", [NoUpdates(0.1, 2), TooFewRounds(0.1, 2), OneGain(0.1, 2)])
def test_a_method_whose_arrays_do_not_fit_never_reaches_compiled_code(method):
    with pytest.raises(ArgumentError, match=type(method).__name__):
        fl.simulate(P, method, 20, 1)

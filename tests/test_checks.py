"""Arguments: what looks like a number, a list or a path but is none is refused with an error of fedlsa's own."""

import itertools

import numpy as np
import pytest

import fedlsa as fl
from fedlsa import checks
from fedlsa.engine import cpu_kernel
from fedlsa.errors import ArgumentError, ArgumentTypeError, FedLSAError, UnknownNameError

P = fl.problems.garnet(agents=4, states=6, features=2)
METHOD = fl.SCAFFLSA(0.1, 3)
ZERO_D = np.array(0.1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fl.FedLSA(10**400, 1),
        lambda: fl.FedLSA(0.1, 10**400),
        lambda: fl.Markov(2**70),
        lambda: fl.simulate(P, METHOD, 10**400),
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
        (fl.FedLSA(0.1, 2**62), 1, fl.IID()),
        (METHOD, 2**62, fl.IID()),
        (fl.SCAFFLSA(0.1, 2**62), 1, fl.IID()),
        (fl.Scaffnew(0.1, 1e-100), 1, fl.IID()),
        (fl.Scaffnew(0.1, 0.5), 1, fl.Markov(2**62)),
    ],
)
def test_a_run_longer_than_the_random_numbers_last_is_refused(method, rounds, sampling):
    with pytest.raises(ArgumentError, match="must be below"):
        fl.simulate(P, method, rounds, 1, sampling=sampling)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize("after", [6, 2**62])
def test_an_average_that_would_never_begin_is_refused(engine, after):
    with pytest.raises(ArgumentError, match=f"^average_after must be at most rounds, 5; got {after}$"):
        fl.simulate(P, fl.FedLSA(0.1, 3, average_after=after), 5, 1, engine=engine)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("step_size", "dtype", "value"),
    [
        (fl.PowerStep(0.1, 2000), "float64", "0 in round 4"),
        (fl.PowerStep(0.1, 440), "float64", "2.83921e-309 in round 4"),  # its inverse is infinite
        (fl.PowerStep(0.1, 60), "float32", "1.15292e-43 in round 4"),
        (fl.PowerStep(1e100, 500), "float32", r"1e\+100 in round 0"),
        (1e-50, "float32", "1e-50 in round 0"),
    ],
)
def test_a_step_size_that_vanishes_or_overflows_is_refused(engine, step_size, dtype, value):
    with pytest.raises(ArgumentError, match=f"^step_size must give a positive finite {dtype} .*; got {value}"):
        fl.simulate(P, fl.SCAFFLSA(step_size, 3), 5, 1, engine=engine, dtype=dtype)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_a_step_size_that_vanishes_only_after_the_last_round_is_accepted(engine):
    r = fl.simulate(P, fl.SCAFFLSA(fl.PowerStep(0.1, 400), 3), 5, 1, engine=engine)
    assert np.isfinite(r["theta"].values).all()


class WithSelf(fl.FedLSA):
    def server_step(self, theta, mean, parameters):
        theta[:] = mean


class NoFunction(fl.FedLSA):
    server_step = 3


class NotCompilable(fl.FedLSA):
    @staticmethod
    def server_step(theta, mean, parameters):
        theta[:] = sorted(mean, key=str)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("method", "value"), [(WithSelf(0.1, 3), r"one of \(self, theta, mean, parameters\)"), (NoFunction(0.1, 3), "3")]
)
def test_a_server_step_that_does_not_take_its_three_arguments_is_refused(engine, method, value):
    rule = r"a plain function or staticmethod of \(theta, mean, parameters\) that Numba can compile"
    with pytest.raises(ArgumentError, match=rf"^server_step of {type(method).__name__} must be {rule}; got {value}$"):
        fl.simulate(P, method, 5, 1, engine=engine)


def test_a_server_step_that_numba_cannot_compile_is_refused_in_one_line():
    with pytest.raises(ArgumentError, match=r"^server_step of NotCompilable must be .*; got from Numba: \S+") as caught:
        fl.simulate(P, NotCompilable(0.1, 3), 5, 1)
    assert "\n" not in str(caught.value)
    assert "Failed in" not in str(caught.value)
    assert fl.simulate(P, NotCompilable(0.1, 3), 5, 1, engine="reference").sizes["rounds"] == 6


def test_recorded_rounds_may_come_from_any_iterable():
    a, b = fl.simulate_grid(P, [METHOD, METHOD], 5, 1, record=(t for t in (0, 3, 5)))
    assert a["rounds"].values.tolist() == b["rounds"].values.tolist() == [0, 3, 5]
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


@pytest.mark.parametrize(
    ("dtype", "accepted", "refused"), [(np.float64, 1e-9, 1e-7), (np.float32, 1e-6, 1e-4), (np.float16, 0, 1e-2)]
)
def test_laws_sum_to_one_as_closely_as_their_precision_allows(dtype, accepted, refused):
    law = np.array([0.5, 0.25, 0.25 + accepted], dtype)
    np.testing.assert_allclose(checks.probabilities("law", law, (3,)).sum(), 1, rtol=1e-15)
    with pytest.raises(ArgumentError, match="law must sum to one over its last axis; got a sum of"):
        checks.probabilities("law", np.array([0.5, 0.25, 0.25 + refused], dtype), (3,))


def test_a_kernel_in_single_precision_is_as_good_as_one_in_double_precision():
    g = np.random.default_rng(0)
    kernel, policy = g.dirichlet(np.ones(40), (2, 40, 3)), g.dirichlet(np.ones(3), 40)
    r, features = g.normal(size=(2, 40, 3)), np.eye(40)[:, :3]
    assert np.abs(kernel.astype(np.float32).astype(np.float64).sum(axis=-1) - 1).max() > 1e-8
    double = fl.problems.from_mdps(kernel, r, policy, features, 0.9)
    single = fl.problems.from_mdps(kernel.astype(np.float32), r, policy.astype(np.float32), features, 0.9)
    np.testing.assert_allclose(single.theta_star, double.theta_star, rtol=1e-4)
    again = fl.problems.from_recipe(single.recipe)
    np.testing.assert_array_equal(again.theta_star, single.theta_star)


def test_a_table_beyond_the_places_of_the_engine_is_refused(monkeypatch):
    rows, D = P.observations.rows.shape
    fl.simulate(P, METHOD, 2, 1)
    monkeypatch.setattr(cpu_kernel, "MOST_NUMBERS", rows * D)
    with pytest.raises(ArgumentError, match=f"^problem must have below {rows * D} numbers .*; got {rows} rows of {D}$"):
        fl.simulate(P, METHOD, 2, 1)


def test_a_choice_of_one_is_not_called_one_of():
    with pytest.raises(UnknownNameError, match=r"^problem must be 'garnet'; got 'x'$"):
        checks.choice("problem", "x", ["garnet"])
    with pytest.raises(ArgumentTypeError, match=r"^problem must be one of 'a', 'b'; got 3$"):
        checks.choice("problem", 3, ["a", "b"])


def test_a_size_that_memory_cannot_hold_is_refused_before_anything_is_made_and_told_what_would_fit(monkeypatch):
    monkeypatch.setenv("FEDLSA_MEMORY", str(2**20))
    checks.memory("rounds", 2**16, 8, "their lengths")
    with pytest.raises(ArgumentError, match=r"^rounds must be at most 65,536 to fit into .* \(8 bytes each, for their"):
        checks.memory("rounds", 2**16 + 1, 8, "their lengths")
    for call, named in (
        (lambda: fl.problems.garnet(states=1000), "states"),
        (lambda: fl.problems.garnet(agents=20_000, perturbation=0), "agents"),
        (lambda: fl.problems.garnet(agents=20_000, perturbation=0.1), "agents"),
        (lambda: fl.problems.garnet(agents=2, states=3, actions=1, branching=1, features=300), "features"),
        (lambda: fl.problems.ring(10_000), "agents"),
        (lambda: fl.problems.lakes(100), "agents"),
        (lambda: fl.problems.rollout("CartPole-v1", "random", 10_000, 0), "steps"),
        (lambda: fl.problems.features.OneHot(10**6)([0]), "the number of states"),
        (lambda: fl.problems.features.Fourier((0.0,) * 9, (1.0,) * 9, 9, total=True)(np.zeros((1, 9))), "the number"),
        (lambda: fl.simulate(P, METHOD, 10**5, 1), "rounds"),
        (lambda: fl.simulate(P, METHOD, 1000, 100, record=1001), "seeds"),
        (lambda: checks.array("theta_0", range(10**12), ("d",)), "the length of theta_0"),
        (lambda: checks.array("theta_0", np.broadcast_to(0.0, (10**9,)), ("d",)), "the length of theta_0"),
        (lambda: fl.results.recorded_rounds(10**5, 10**5), "record"),
    ):
        with pytest.raises(ArgumentError, match=f"^{named}.* must be at most .* to fit into .* of memory"):
            call()


def test_the_memory_that_is_taken_for_granted_is_there():
    assert 2**28 < checks.memory_limit() < 2**50


@pytest.mark.parametrize("endless", [itertools.count, lambda: range(10**12), lambda: range(10**30)])
def test_a_sequence_without_end_is_refused(endless):
    for call in (
        lambda: fl.Markov(1, endless()),
        lambda: fl.simulate(P, METHOD, 3, endless()),
        lambda: fl.simulate(P, METHOD, 3, 1, record=endless()),
        lambda: fl.simulate_grid(endless(), [METHOD]),
        lambda: fl.simulate_grid(P, [METHOD], endless()),
        lambda: fl.problems.regression(endless()),
        lambda: fl.figures.error_curves(endless()),
        lambda: fl.theory.bound(P, METHOD, endless()),
        lambda: fl.fit(endless(), fl.Regression("y")),
    ):
        with pytest.raises(ArgumentError, match="with at most 4,194,304 entries; got more"):
            call()


class NoText:
    def __repr__(self):
        raise RuntimeError


def test_what_cannot_be_shown_is_named_by_its_kind():
    with pytest.raises(ArgumentError, match=r"; got a huge int$"):
        checks.integer("rounds", 10**5000, at_least=1)
    with pytest.raises(ArgumentTypeError, match=r"; got NoText$"):
        checks.integer("rounds", NoText(), at_least=1)

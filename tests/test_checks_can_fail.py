"""Each check of fl.check_method, fl.check_problem and fl.check_sampling fails where it should, with its sentence."""

from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import pytest
from tiers import mostly_long

import fedlsa as fl
from fedlsa import conformance
from fedlsa.problems import Dense

RING, GARNET = fl.problems.ring(agents=5, noise=0.4), fl.problems.garnet(agents=3, states=5, features=2, seed=1)
COUNTER = count(1)


@dataclass(frozen=True, repr=False)
class Moody(fl.SCAFFLSA):
    """Its gain is another at each call."""

    def gain(self, eta, updates):
        return 1 / (eta * updates * (1 + 0.01 * next(COUNTER)))


@dataclass(frozen=True, repr=False)
class Stubborn(fl.SCAFFLSA):
    """Reads the step size from itself."""

    def gain(self, eta, updates):
        return 1 / (self.step_size * updates)


@dataclass(frozen=True, repr=False)
class Tied(fl.SCAFFLSA):
    """A server whose share depends on the gain."""

    def server(self):
        return ((1.0,),), (0.5 if self.gain(np.ones(1), np.ones(1)).any() else 1.0,)


@dataclass(frozen=True, repr=False)
class Boastful(fl.FedLSA):
    """Tells theory of longer rounds than it has."""

    supports = frozenset({"theory"})

    def stages(self, eta, agents, upload_noise=0.0):
        return replace(self, local_steps=4 * self.local_steps).__class__.__base__(eta, 20).stages(eta, agents)


def sentence(name):
    return " ".join(getattr(conformance.Checks, name).__doc__.split())


def damaged(problem, **attributes):
    """A copy of a problem with fields or cached values that no constructor would let through."""
    out = replace(problem)
    out.__setstate__({"recipe": problem.recipe, "_table_means": problem._table_means, **attributes})
    return out


LIGHT = damaged(RING, weights=0.9 * RING.weights)
METHODS = {
    "engines": (Moody(0.05, 5), RING),
    "options": (Stubborn(0.05, 5), RING),
    "bits": (Moody(0.05, 5), RING),
    "resumed": (Moody(0.05, 5), RING),
    "recipes": (Moody(0.05, 5), RING),
    "invariant": (fl.SCAFFLSA(0.05, 5), LIGHT),
    "single_step": (Tied(0.05, 5), RING),
    "exact": (Boastful(0.05, 5), RING),
    "fixed_point": (Boastful(0.05, 5), RING),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_wrong_method_fails(name):
    report = fl.check_method(*METHODS[name], only=[name])
    assert not report
    assert report.failed[name].startswith(sentence(name))
    assert f"FAILS {name}" in repr(report)


def test_a_curve_that_does_not_end_in_the_stationary_law_fails(monkeypatch):
    stationary = fl.theory.stationary
    monkeypatch.setattr(fl.theory, "stationary", lambda p, a: replace(found := stationary(p, a), mse=1.01 * found.mse))
    assert "limits" in fl.check_method(fl.FedLSA(0.05, 5), only=["limits"]).failed
    monkeypatch.setattr(fl.theory, "stationary", stationary)
    monkeypatch.setattr(fl.theory, "stability_limit", lambda p, a: 1e-3)
    assert "inf" in fl.check_method(fl.FedLSA(0.05, 5), only=["limits"]).failed["limits"]


class Askew(Dense):
    """Shows another vector than it holds."""

    def matrices(self, span):
        return self.A[span], 2 * self.b[span]


A, b = RING.observations.matrices(slice(0, len(RING.prob)))
FAR = RING._table_means[0] * 1.01, RING._table_means[1]
SWAPPED = replace(GARNET.chain, stationary=GARNET.chain.stationary.reshape(3, -1)[:, ::-1].ravel().copy())
OTHER = {"constructor": "ring", "arguments": {"agents": 5, "noise": 0.3}}
LINES = np.array([[1.0, 2.0], [0.0, 1.0]])


def draw_points(agent, uniforms, u, v):
    u[0] = v[0] = 1.0
    u[1] = v[1] = uniforms[0] - 0.5
    return LINES[agent, 0] + LINES[agent, 1] * u[1]


PROBLEMS = {
    "draws": lambda: fl.problems.stream(np.tile(np.diag([1, 1 / 11]), (2, 1, 1)), LINES / [1, 12], draw_points, 1),
    "means": lambda: damaged(RING, _table_means=FAR),
    "solution": lambda: damaged(RING, theta_star=RING.theta_star + 1e-3),
    "hurwitz": lambda: replace(RING, observations=Dense(-A, -b)),
    "moments": lambda: replace(RING, observations=Askew(A, b)),
    "chains": lambda: replace(GARNET, chain=SWAPPED),
    "recipe": lambda: damaged(RING, recipe=OTHER),
    "simulated": lambda: replace(RING, observations=Askew(A, b)),
    "curve": lambda: replace(RING, observations=Askew(A, b)),
}


@dataclass(frozen=True, repr=False)
class Unsteady(fl.ExchangeMethod):
    """Agents answer two rounds of three."""

    def exchange(self, eta, updates, agents, dim):
        return self.declare(eta, updates, agents, share=2 / 3, presence=np.full(agents, 2 / 3))


def test_options_are_not_asked_of_who_takes_part_where_presence_says_it():
    assert fl.check_method(Unsteady, only=["options"])


def draw_nothing(agent, uniforms, u, v):
    u[0] = v[0] = 1.0
    return np.nan


def test_draws_that_are_no_numbers_fail():
    p = fl.problems.stream([[[1.0]]], [[0.5]], draw_nothing, 1)
    assert "Found nan" in fl.check_problem(p, only=["draws"]).failed["draws"]


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_wrong_problem_fails(name):
    report = fl.check_problem(PROBLEMS[name](), only=[name])
    assert report.failed[name].startswith(sentence(name))


def test_a_problem_that_can_be_written_to_fails():
    p = replace(RING)
    vars(p)["prob"] = RING.prob.copy()
    assert "Found 1, at most 0" in fl.check_problem(p, only=["read_only"]).failed["read_only"]


@dataclass(frozen=True, repr=False)
class Twice(fl.Sampling):
    """Shows the first row twice, and the second never."""

    @staticmethod
    def order(rows, words):
        rows[1] = 0


@dataclass(frozen=True, repr=False)
class Lazy(fl.Sampling):
    """Right in long tables, in short ones the first row alone."""

    @staticmethod
    def order(rows, words):
        if len(rows) < 40:
            rows[:] = 0


@dataclass(frozen=True, repr=False)
class Lost(fl.Sampling):
    """Returns the order, which nobody reads."""

    @staticmethod
    def order(rows, words):
        return rows[::-1].copy()


def test_orders_are_looked_at_in_short_tables_and_must_not_return():
    (said,) = fl.check_sampling(Lazy(), only=["frequencies"]).failed.values()
    assert said.startswith(sentence("frequencies"))
    with pytest.raises(fl.errors.ArgumentError, match=r"order, Lost.order, .* and must return nothing; got one"):
        fl.simulate(RING, fl.SCAFFLSA(0.05, 5), rounds=3, seeds=1, sampling=Lost())


def test_a_sampling_along_trajectories_is_checked_on_chains():
    report = fl.check_sampling(fl.Markov(2), only=["engines", "bits", "resumed"])
    assert report
    assert len(report.held) == 3


@dataclass(frozen=True, repr=False)
class Writing(fl.SCAFFLSA):
    """Doubles the steps that it is asked about."""

    def gain(self, eta, updates):
        eta *= 2
        return 1 / (eta * updates)


@dataclass(frozen=True, repr=False)
class Demanding(fl.SCAFFLSA):
    """Has a setting without a default."""

    zeta: float = field(kw_only=True)


@dataclass(frozen=True, repr=False)
class Unpulled(fl.ExchangeMethod):
    """SCAFFLSA that forgets the others in its control variates: engines and theory agree on where it ends."""

    def exchange(self, eta, updates, agents, dim):
        then = {"theta": {"theta": 1, "mean": 1}, "xi": {"xi": 1, "sent_change": -0.5 / (eta * updates)}}
        return fl.Exchange(then=then)


def test_what_a_method_does_to_its_arguments_wants_or_ends_in_is_said():
    (said,) = fl.check_method(Writing(0.05, 5), only=["bits"]).failed.values()
    assert "It raised ValueError: output array is read-only" in said
    with pytest.raises(fl.errors.ArgumentTypeError, match=r"must be made from .*, or be an object, Demanding\(...\)"):
        fl.check_method(Demanding)
    (right,), (wrong,) = (
        fl.check_method(kind(0.05, 5), only=["fixed_point"]).held.values() for kind in (fl.SVRG, Unpulled)
    )
    assert float(right.split()[-3]) < 1e-9 < 1e-2 < float(wrong.split()[-3])


@dataclass(frozen=True, repr=False)
class Restless(fl.Sampling):
    """Another law each time."""

    def reweighted(self, problem):
        q = problem.prob * np.resize([1.0, 1.0 + 50 * (next(COUNTER) % 2)], len(problem.prob))
        return problem.with_prob(q / np.bincount(np.repeat(np.arange(5), 60), q)[np.repeat(np.arange(5), 60)])


@dataclass(frozen=True, repr=False)
class Shifted(fl.Sampling):
    """Another problem."""

    def reweighted(self, problem):
        return problem.moved({0: [0.1, 0.0]})


SAMPLINGS = {
    "law": Shifted(), "frequencies": Twice(), "engines": Restless(), "bits": Restless(), "resumed": Restless(),
    "recipes": Restless(), "exact": Restless(),
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_long(SAMPLINGS, {*SAMPLINGS} - {"frequencies"}))
def test_a_wrong_sampling_fails(name, monkeypatch):
    monkeypatch.setitem(globals(), "COUNTER", count(1))
    report = fl.check_sampling(SAMPLINGS[name], only=[name])
    assert report.failed[name].startswith(sentence(name))


def test_every_check_is_seen_to_fail():
    assert {*METHODS, "limits"} == {*conformance.METHOD}
    assert {*PROBLEMS, "read_only"} == {*conformance.PROBLEM}
    assert {*SAMPLINGS} == {*conformance.SAMPLING}


def test_what_is_not_asked_says_why():
    report = fl.check_method(fl.SCAFFLSA(0.05, 5, projection=1.0), only=["exact", "limits"])
    assert report
    assert "theory refuses it: projection must be None" in report.skipped["exact"]
    with pytest.raises(fl.errors.UnknownNameError, match=r"only must be one of 'engines', .*; got 'bit'; did you mean"):
        fl.check_method(fl.SCAFFLSA, only=["bit"])
    with pytest.raises(fl.errors.ArgumentTypeError, match="problem must be a fedlsa problem; got 3"):
        fl.check_problem(3)

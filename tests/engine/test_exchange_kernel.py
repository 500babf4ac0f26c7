"""Methods that declare an exchange: the compiled engine does what the readable one and the tuned one do."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from test_conformance import decision_processes, dense, logs, long_rows, sites

import fedlsa as fl
from fedlsa.algorithms import Exchange, ExchangeMethod
from fedlsa.algorithms.sending import Exactly
from fedlsa.engine.paths import round_paths

CHANGE = {"theta_hat": 1, "start": -1}


@dataclass(frozen=True, repr=False)
class Declared(ExchangeMethod):
    """FedLSA, or SCAFFLSA, with what `kind` adds."""

    kind: str = "plain"
    send: Any = field(default=Exactly(), kw_only=True)
    factors: Any = field(default=None, kw_only=True)

    def agent_factors(self, agents):
        return self.factors

    def exchange(self, eta, updates, agents, dim):
        plain = self.declare(np.asarray(eta, float), updates, agents, send=self.send)
        then, absent = plain.then, plain.absent
        each, some = np.linspace(0.5, 1, agents)[:, None], np.arange(dim) % 2
        now, old = {"theta": 1, "mean": 1}, np.linspace(0, 0.5, agents)
        return {
            "plain": lambda: plain,
            "momentum": lambda: replace(
                plain,
                server=("speed",),
                begin={"speed": {"theta": 0.1}},
                then={**then, "speed": {"speed": 0.5, "mean": 0.7}, "theta": {"theta": 1, "speed": 0.3, "mean": 0.5}},
            ),
            "mask": lambda: replace(
                plain,
                agent=("own",),
                begin={"own": {"theta": 1}},
                start={"theta": some, "own": 1 - some},
                messages={"change": {"theta_hat": some, "start": -some}},
                then={**then, "own": {"theta_hat": 1 - some, "theta": some}},
            ),
            "delays": lambda: replace(
                plain,
                server=("old", "older"),
                begin={"old": {"theta": 1}, "older": {"theta": 1}},
                start=((0.5, {"theta": 1}), (old, {"old": 1}), (0.5 - old, {"older": 1})),
                then={**then, "old": {"theta": 1}, "older": {"old": 1}},
            ),
            "drop_outs": lambda: replace(
                plain,
                agent=("last",),
                presence=np.linspace(0.3, 1, agents),
                messages={"change": {**CHANGE, "last": 0.1}},
                then={**then, "last": {"theta_hat": each, "theta": -each}},
                absent={**absent, "last": {"last": 0.5, "residual": 0.1, "mean": 0.1, "mean_residual": 0.2}},
            ),
            "feedback": lambda: replace(
                plain,
                agent=("error",),
                messages={"change": {**CHANGE, "error": 1}, "other": {"residual": 0.1, "xi": each * np.ones(dim)}},
                then={**then, "error": {"change": 0.5, "sent_change": -0.5, "sent_other": 0.1}},
                means={**plain.means, "two": ("other", np.linspace(0, 0.3, agents))},
            ),
            "rule": lambda: replace(
                plain, server=("square",), rule=adapt, parameters=(0.1, 0.5), then={**then, "theta": now}
            ),
            "pull": lambda: replace(plain, pull=0.5, correction={"xi": 0.5, "residual": 0.1}),
            "table": lambda: replace(
                plain,
                pull=0.2,
                agent=("mean_row", "last"),
                table="mean_row",
                messages={"change": {**CHANGE, "mean_row": 0.1}},
                then={**then, "last": {"mean_row": 1}},
            ),
            "anchored": lambda: replace(plain, anchored=True, pull=0.2, correction={"mean_residual": 0.1, "xi": 1}),
        }[self.kind]()


def adapt(server, means, t, parameters):
    """A step whose size looks at the squares of those before it."""
    for i in range(server.shape[1]):
        server[1, i] = 0.5 * server[1, i] + 0.5 * means[0, i] ** 2
        server[0, i] -= parameters[0] * means[0, i] / (np.sqrt(server[1, i]) + parameters[1]) / t


PROBLEMS = {"rank one": decision_processes, "logs": logs, "ridge": sites, "dense": dense, "long": long_rows}
KINDS = ["plain", "momentum", "mask", "delays", "drop_outs", "feedback", "rule", "pull", "anchored", "table"]
SENDINGS = [
    fl.RandK(2),
    fl.RandK(3, scaled=False),
    fl.Rounding(4, 0.5),
    fl.Rounding(3, 0.1, dither=False),
    fl.Noise(0.1),
    fl.TopK(2),
    fl.Sign(),
]


def close(problem, method, rounds=6, **options):
    """Both engines agree in all that they give."""
    options = {"seeds": [3, 2**40 + 1], "keep": ("theta", "xi", "state"), **options}
    one, two = (fl.simulate(problem, method, rounds, engine=engine, **options) for engine in ("reference", "cpu"))
    assert np.isfinite(one["theta"]).all()
    for name in one.data_vars:
        a, b = one[name].values.astype(float), two[name].values.astype(float)
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9, err_msg=name)
    return two


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("corrected", [True, pytest.param(False, marks=pytest.mark.long)])
def test_engines_agree_on_what_an_exchange_can_say(kind, corrected):
    p = decision_processes()
    close(p, Declared(0.1, 4, kind=kind, corrected=corrected, projection=0.5, factors=([1, 0.5, 2, 1], [1, 2, 1.5, 1])))
    if kind != "drop_outs":
        close(p, Declared(fl.PowerStep(0.1, 0.5), 4, kind=kind, corrected=corrected, participants=2, average_after=3))


@pytest.mark.parametrize("send", SENDINGS, ids=repr)
def test_engines_agree_on_what_is_sent(send):
    close(decision_processes(), Declared(0.1, 4, kind="feedback", send=send))
    close(logs(), Declared(0.1, 4, kind="plain", send=send))


@pytest.mark.long
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("kind", ["plain", "anchored", "table", "drop_outs"])
def test_engines_agree_on_all_problems_and_samplings(problem, kind):
    p = PROBLEMS[problem]()
    samplings = [fl.IID()]
    samplings += [fl.Markov(thin=2)] if p.chain is not None else []
    samplings += [fl.Replay(thin=3)] if p.ordered else []
    for sampling in samplings:
        close(p, Declared(0.1, 7, kind=kind), sampling=sampling)


@pytest.mark.parametrize("problem", ["rank one", "dense", pytest.param("long", marks=pytest.mark.long)])
def test_a_declared_method_is_the_method_of_the_paper(problem):
    p = PROBLEMS[problem]()
    for options in ({}, {"participants": 2, "average_after": 4}):
        for corrected, twin in ((False, fl.FedLSA), (True, fl.SCAFFLSA)):
            given = {"seeds": 2, "keep": ("theta", "xi"), "xi_0": None}
            one = fl.simulate(p, Declared(0.1, 5, corrected=corrected, **options), 20, **given)
            two = fl.simulate(p, twin(0.1, 5, **options), 20, **given)
            for name in ("theta", "xi", "samples", "uploads", "communications"):
                np.testing.assert_allclose(one[name], two[name], rtol=1e-9, atol=1e-9, err_msg=name)


def test_bits_do_not_depend_on_threads_or_groups():
    p, m = decision_processes(), Declared(0.1, 3, kind="drop_outs", send=fl.Noise(0.1))
    other = fl.SCAFFLSA(0.1, 3)
    one = fl.simulate(p, m, 30, seeds=9, threads=1, keep=("theta", "xi"))
    grid = fl.simulate_grid(p, [other, m, replace(m, participants=None)], 30, seeds=9, threads=2, keep=("theta", "xi"))
    alone = fl.simulate(p, m, 30, seeds=[4], threads=1, keep=("theta", "xi"))
    for name in ("theta", "xi", "uploads", "samples"):
        assert np.array_equal(one[name], grid[1][name])
        assert np.array_equal(one[name].isel(seed=[4]), alone[name])
    assert np.array_equal(grid[0]["theta"], fl.simulate(p, other, 30, seeds=9)["theta"])


@pytest.mark.parametrize("kind", ["table", *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS[2:-2])])
def test_a_run_that_goes_on_has_the_bits_of_one_that_never_stopped(kind):
    p, m = decision_processes(), Declared(fl.PowerStep(0.1, 0.1), 3, kind=kind, send=fl.RandK(2))
    given = {"seeds": 3, "sampling": fl.Markov(thin=2), "keep": ("theta", "state")}
    whole = fl.simulate(p, m, 20, record=[0, 5, 9, 20], **given)
    parts = fl.resume(fl.simulate(p, m, 9, record=[0, 5, 9], **given), 20, record=[20], problem=p, algorithm=m)
    for name in whole.data_vars:
        assert np.array_equal(whole[name], parts[name]), name
    other = fl.simulate(p, m, 9, engine="reference", record=[0, 5, 9], **given)
    other = fl.resume(other, 20, record=[20], problem=p, algorithm=m, engine="cpu")
    np.testing.assert_allclose(other["theta"], whole["theta"], rtol=1e-9, atol=1e-9)


def test_costs_are_those_of_the_agents_who_answer():
    p, m = decision_processes(), Declared(0.1, 3, kind="drop_outs", send=fl.RandK(2))
    r = fl.simulate(p, m, 400, seeds=4, record=[0, 1, 400])
    uploads, mean = r["uploads"].values[:, -1], 400 * np.linspace(0.3, 1, 4).sum()
    assert (np.abs(uploads - mean) < 5 * np.sqrt(400)).all()
    assert (r["uploads"].values[:, 0] == 0).all()
    assert np.array_equal(r["samples"].values[:, -1], 3 * uploads / 4 + 400 * m.rows_read(p))
    reported = 2 * 8 * 6 * (4 / np.linspace(0.3, 1, 4).sum() - 1)  # theta and residuals, of those who do no more
    np.testing.assert_allclose(r["bytes"], r["uploads"] * (2 * 8 + 8 * 6 + reported), rtol=1e-13)


@pytest.mark.long
def test_what_is_sent_has_the_law_that_is_declared():
    """Mean and second moments of 4,000 messages, within five standard errors."""
    x = np.array([0.3, -0.2, 0.05, 0.4, -0.1])
    for send in (*SENDINGS[:3], fl.Noise(0.1), SENDINGS[3]):
        message = x if send.kind != 2 or send.dither else x / 5
        p = fl.problems.from_observations([([1.0], np.eye(5)[None], message[None])])  # one step of size 1 goes there
        method = Declared(1.0, 1, corrected=False, send=send)
        got = fl.simulate(p, method, 1, seeds=4000, theta_0=np.zeros(5), record=[1])["theta"].values[:, 0]
        assert len(np.unique(got, axis=0)) > 3
        pairs = [(got, message)]
        if send is not SENDINGS[3]:
            law = send.law(5)
            pairs = [(got, law.mean * message)]
            second = law.second * np.outer(message, message) + law.noise * np.eye(5)
            pairs.append((got[:, :, None] * got[:, None], second))
        for values, exact in pairs:
            errors = values.std(0) / np.sqrt(len(got))
            assert (np.abs(values.mean(0) - exact) <= 5 * errors + 1e-12).all(), send


@pytest.mark.long
def test_a_run_that_diverges_says_when():
    p = decision_processes()
    for send in (Exactly(), *SENDINGS[4:]):
        m = Declared(1e100, 3, kind="plain", send=send)
        with pytest.warns(fl.errors.DivergenceWarning):
            one, two = (fl.simulate(p, m, 5, seeds=2, engine=engine) for engine in ("reference", "cpu"))
        assert np.array_equal(one["diverged_at"], two["diverged_at"])
        assert (one["diverged_at"] > 0).all()


def refused(match, method, problem=None, **options):
    with pytest.raises(fl.errors.ArgumentError, match=match):
        fl.simulate(problem or decision_processes(), method, 5, seeds=2, **options)


@dataclass(frozen=True, repr=False)
class Given(ExchangeMethod):
    made: Any = None

    def exchange(self, eta, updates, agents, dim):
        return self.made(eta) if callable(self.made) else self.made


HALF = {"theta": 1}


@pytest.mark.parametrize(("rule", "of"), [
    ("factor of change in the mean mean must be an array of finite numbers", {"means": {"mean": ("change", "x")}}),
    ("factor of change in the mean mean must be .* got nan", {"means": {"mean": ("change", np.nan)}}),
    ("factor of the mean mean must be .* one of shape (7,)", {"means": {"mean": ("change", np.ones(7))}}),
    ("factor of xi in the row of correction must be .* got 'a'", {"correction": {"xi": "a"}}),
    ("factor of theta must be .* one of shape (3,)", {"server": ("v",), "begin": {"v": {"theta": np.ones(3)}}}),
    ("factor of theta must be .* one of shape (3, 1)", {"agent": ("v",), "begin": {"v": {"theta": np.ones((3, 1))}}}),
    ("probability of a start must be .* got 'a'", {"start": (("a", HALF),)}),
    ("probability of start 0 must be .* one of shape (7,)", {"start": ((np.ones(7), HALF),)}),
    ("probabilities of starts must add up to 1 .* got 0.5", {"start": ((0.5, HALF),)}),
    ("probabilities of starts must add up to 1 .* got 0", {"start": ()}),
    ("presence must be .* got nan", {"presence": np.full(4, np.nan)}),
    ("each of messages must be a name; got 1", {"messages": {1: {"theta_hat": 1}}}),
    ("each of means must be a name; got 1", {"means": {1: ("change", 1)}}),
    ("messages must be at least one; got none", {"messages": {}, "means": {}, "then": {}}),
    ("parameters must be .* got nan", {"rule": adapt, "parameters": (np.nan,)}),
    ("parameters must be .* got None", {"rule": adapt, "parameters": None}),
    ("rule must be a function or None; got 3", {"rule": 3}),
])  # fmt: skip
def test_odd_exchanges_are_refused_in_all_engines_and_in_theory(rule, of):
    p, match = decision_processes(), rule.replace("(", "\\(").replace(")", "\\)")
    for engine in ("reference", "cpu"):
        with pytest.raises(fl.errors.FedLSAError, match=match):
            fl.simulate(p, Given(0.1, 3, Exchange(**of)), 5, seeds=2, engine=engine)
    with pytest.raises(fl.errors.FedLSAError, match=match):
        fl.theory.exact(p, Given(0.1, 3, Exchange(**of)), 5)


def test_what_no_engine_can_do_is_refused():
    def both(server, means, t, parameters):
        raise ValueError("no")

    refused("dtype must be 'float64'", Declared(0.1, 3), dtype="float32")
    refused("participants must be all", Declared(0.1, 3, kind="drop_outs", participants=2))
    refused("must give an Exchange", Given(0.1, 3))
    refused("factor of theta_hat must be", Given(0.1, 3, Exchange(messages={"change": {"theta_hat": np.ones((3, 1))}})))
    refused("factor of mean must be", Given(0.1, 3, Exchange(then={"theta": {"mean": np.ones((4, 1))}})))
    refused("must have the same", Given(fl.PowerStep(0.1, 1), 3, lambda eta: Exchange(downloads=1 + (eta < 0.05))))
    for engine in ("cpu", "reference"):
        refused("rule of Given must not raise", Given(0.1, 3, Exchange(rule=both)), engine=engine)
    refused("that Numba can compile", Given(0.1, 3, Exchange(rule=lambda *all: all.none)))

    @dataclass(frozen=True, repr=False)
    class Two(Declared):
        def server(self):
            return ((1.0,),), (0.5,)

    refused("rule must be a plain function", Given(0.1, 3, Exchange(rule=dict)), engine="cpu")
    refused("must not both be declared", Two(0.1, 3))
    with pytest.raises(fl.errors.ArgumentError, match="must not declare an exchange"):
        round_paths(decision_processes(), Declared(0.1, 3))

"""Odd calls of public names: a valid call of each, with one argument (sometimes two) replaced by something odd."""

from __future__ import annotations

import itertools
import random
from dataclasses import fields
from functools import cache, partial
from pathlib import Path

import numpy as np
import xarray as xr

import fedlsa as fl
from fedlsa.engine.paths import round_paths
from fedlsa.errors import FedLSAError
from fedlsa.problems import features as maps

PAIRS = 0.2  # share of calls with two odd arguments


class Odd:
    """An object with no meaning."""

    def __repr__(self):
        return "odd"


class Fails:
    """An object that fails whatever is asked of it."""

    def __array__(self, *_, **__):
        raise RuntimeError("no array")

    def __repr__(self):
        return "fails"


def cyclic():
    out = []
    out.append(out)
    return out


def numbers(*shape, dtype=float):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def frozen(x):
    x.flags.writeable = False
    return x


@cache
def problem():
    return fl.problems.garnet(agents=3, states=5, features=2, seed=1)


def draw_one(agent, uniforms, u, v):
    u[0] = v[0] = 1.0
    return 1.0


@cache
def run():
    return fl.simulate(problem(), fl.SCAFFLSA(0.1, 3), 6, 2, engine="reference")


@cache
def averages():
    return fl.simulate(problem(), fl.FedLSA(0.1, 3, average_after=1), 6, 20, engine="reference")


@cache
def coarse():
    return fl.simulate(problem(), fl.SCAFFLSA(0.2, 3), 6, 2, engine="reference")


@cache
def curve():
    return fl.theory.exact(problem(), fl.SCAFFLSA(0.1, 3), 6)


@cache
def acted():
    return fl.sarsa(fl.control.garnet(2, 3, 2), fl.FedLSA(0.1, 3), 4, 2)


@cache
def paths():
    return round_paths(problem(), fl.FedLSA(0.1, 5), 3, points=4)


@cache
def plan():
    return fl.plan(problem(), 0.3)


def sites():
    rng = np.random.default_rng(2)
    tables = [rng.normal(size=(30, 3)) for _ in range(2)]
    return [(x[:, :2], x @ [2.0, -3.0, 0.3]) for x in tables]


def log():
    x = numbers(13, 2)
    return x[:-1], 3 + numbers(12), x[1:], np.arange(12) % 5 == 4, np.zeros(12, bool)


@cache
def fitted():
    return fl.fit(sites(), fl.Regression("y"), 0.3, local="means")


@cache
def valued():
    return fl.fit([log()], fl.Value(0.9), 0.3, local="means")


@cache
def figure():
    return fl.figures.error_curves(run())


# What arguments are replaced by. Made anew for each call: generators are used up, arrays might be written to.
ODD = {
    "None": lambda: None, "True": lambda: True, "nan": lambda: float("nan"), "inf": lambda: float("inf"),
    "-1": lambda: -1, "0": lambda: 0, "1": lambda: 1, "0.5": lambda: 0.5, "-0.5": lambda: -0.5, "2.5": lambda: 2.5,
    "10**18": lambda: 10**18, "10**30": lambda: 10**30, "10**400": lambda: 10**400, "10**5000": lambda: 10**5000,
    "2**40": lambda: 2**40, "-10**30": lambda: -(10**30), "1e308": lambda: 1e308, "-1e308": lambda: -1e308,
    "1e-300": lambda: 1e-300, "1e-9": lambda: 1e-9, "1e18": lambda: 1e18, "1j": lambda: 1j, "''": lambda: "",
    "'x'": lambda: "x", "'nul'": lambda: "a\0b", "long text": lambda: "x" * 10**6, "b'x'": lambda: b"x",
    "[]": lambda: [], "()": lambda: (), "{}": dict, "{'a': 1}": lambda: {"a": 1},
    "{'constructor': ...}": lambda: {"constructor": "garnet", "arguments": 3}, "set": lambda: {1, 2}, "odd": Odd,
    "fails": Fails, "function": lambda: lambda *a: None, "failing function": lambda: lambda *a: 1 / 0,
    "module": lambda: np, "[None]": lambda: [None], "['x']": lambda: ["x"], "[[1], [1, 2]]": lambda: [[1], [1, 2]],
    "[1, [2, [3]]]": lambda: [1, [2, [3]]], "cyclic": cyclic, "[1, 2]": lambda: [1, 2], "[nan]": lambda: [float("nan")],
    "[1j]": lambda: [1j], "[10**30]": lambda: [10**30], "generator": lambda: (i for i in range(3)),
    "endless": itertools.count, "range": lambda: range(10**12), "no entries": lambda: iter(()),
    "NaT": lambda: np.datetime64("NaT"), "0-d": lambda: np.array(0.5), "zeros(0)": lambda: np.zeros(0),
    "zeros(3)": lambda: np.zeros(3), "ones(2)": lambda: np.ones(2), "zeros(2, 2)": lambda: np.zeros((2, 2)),
    "zeros(3, 2)": lambda: np.zeros((3, 2)), "zeros(0, 2)": lambda: np.zeros((0, 2)),
    "nan array": lambda: np.full(2, np.nan), "1e308 array": lambda: np.full(2, 1e308),
    "text array": lambda: np.array(["a", "b"]), "object array": lambda: np.array([1, "a", None], object),
    "complex array": lambda: np.ones(2, complex), "float16": lambda: numbers(2, dtype=np.float16),
    "strided": lambda: numbers(4)[::2], "frozen": lambda: frozen(numbers(2)), "bool array": lambda: np.ones(2, bool),
    "dates": lambda: np.zeros(2, "M8[s]"), "records": lambda: np.zeros(2, "i4,f8"),
    "masked": lambda: np.ma.masked_array([1.0, 2.0], [True, False]), "wide": lambda: np.broadcast_to(1.0, (10**9, 2)),
    "5-d": lambda: np.zeros((1, 1, 1, 1, 1)), "dataset": xr.Dataset,
    "other dataset": lambda: xr.Dataset({"mse": ("rounds", [1.0])}), "data array": lambda: xr.DataArray([1.0, 2.0]),
    "run": run, "curve": curve, "half a run": lambda: run().drop_vars("theta"),
    "run without attributes": lambda: run().drop_attrs(),
    "run of text": lambda: run().assign(squared_error=("rounds", list("abcdefg"))),
    "run of NaN": lambda: run() * np.nan, "curve of NaN": lambda: curve() * np.nan,
    "[run]": lambda: [run()], "[run, curve]": lambda: [run(), curve()],
    "problem": problem, "method": lambda: fl.FedLSA(0.1, 3), "plan": plan, "[plan]": lambda: [plan()],
    "huge method": lambda: fl.FedLSA(1e-140, 10**18), "rare method": lambda: fl.Scaffnew(0.1, 1e-140),
    "fast method": lambda: fl.SCAFFLSA(1e140, 3), "averaged method": lambda: fl.FedLSA(0.1, 3, average_after=10**18),
    "fading method": lambda: fl.FedLSA(fl.PowerStep(1e-140, 1e140), 2), "Markov": lambda: fl.Markov(10**18),
    "Markov at": lambda: fl.Markov(1, (10**18, 0, 0)), "Replay": lambda: fl.Replay(3),
    "task": lambda: fl.Regression("y"), "fit": fitted, "figure": figure, "path": lambda: Path("nowhere") / "x",
    "folder": lambda: Path("."), "paths": paths,
}  # fmt: skip

P4 = np.full((2, 3, 2, 3), 1 / 3)
LAKE = maps.OneHot(16, (5, 7, 11, 12, 15))
CHAIN = (np.array([0, 1, 2]), np.array([1, 2, 0]), np.ones(3), np.ones(3))
CELL = {"problem": {"agents": 2, "states": 4, "features": 2}, "method": "FedLSA", "step_size": 0.1, "local_steps": 2}


def call(function, *arguments, **named):
    return function, arguments, named


def garnet_recipe(**arguments):
    return fl.problems.from_recipe({"constructor": "garnet", "arguments": arguments})


def family():
    """Valid calls of the methods of the field, and of what they send."""
    own = {"Compressed": [fl.RandK(1, scaled=False), True], "Personal": [(1,)], "UnequalWork": [], "Dropouts": [(0.1,)]}
    plain = ("Delayed", "Buffered", "Momentum", "Adam", "Anderson", "SVRG", "SAGA", "FedProx", "FedLin", "FedNova")
    methods = {name: [] for name in (*plain, "Scaffold", "GradientTracking")} | own
    sent = {"RandK": (1, True), "Rounding": (8, 1.0, True), "Noise": (0.1,), "TopK": (1,), "Sign": ()}
    out = {name: partial(call, getattr(fl, name), 0.1, 3, *given) for name, given in methods.items()}
    return out | {name: partial(call, getattr(fl, name), *given) for name, given in sent.items()}


def calls():
    """A valid call of each public name, as a function that makes (function, arguments, named arguments).

    All arguments that there are; what they take to compute is computed when a call is made.
    """
    p, m, theory, figures, results = problem(), fl.SCAFFLSA(0.1, 3), fl.theory, fl.figures, fl.results
    no, iid = {"weights": None, "assignment": None}, fl.IID()
    mdps = (P4, np.ones((2, 3, 2)), np.full((3, 2), 0.5), np.array([[1.0, 0], [0, 1], [1, 1]]), 0.9)
    fedlsa, scaffnew, averaged = fl.FedLSA(0.1, 3), fl.Scaffnew(0.1, 0.5), fl.FedLSA(0.1, 3, average_after=1)
    box = ((0.0, 0.0), (1.0, 1.0))
    start = np.zeros(2)
    options = {"participation": 1.0, "participants": None, "projection": 1.0, "average_after": 2}
    by_hand = {
        "step_size": 0.01,
        "local_steps": 2,
        "rounds": 3,
        "max_samples": None,
        "weight": "sites",
        "local": "means",
    }
    regression = fl.Regression("y")
    return {
        "FedLSA": lambda: call(fl.FedLSA, 0.1, 3, **options),
        "SCAFFLSA": lambda: call(fl.SCAFFLSA, 0.1, 3, **options),
        "Scaffnew": lambda: call(fl.Scaffnew, 0.1, 0.5, **options),
        "PowerStep": lambda: call(fl.PowerStep, 0.1, 0.5),
        "PowerLength": lambda: call(fl.PowerLength, 2, 0.5),
        **family(),
        "IID": lambda: call(fl.IID),
        "Markov": lambda: call(fl.Markov, 1, (0, 0, 0)),
        "Replay": lambda: call(fl.Replay, 1),
        "Sampling": lambda: call(fl.Sampling),
        "check_method": lambda: call(fl.check_method, m, p, iid, 4, ["invariant"]),
        "check_problem": lambda: call(fl.check_problem, p, ["means"]),
        "check_sampling": lambda: call(fl.check_sampling, iid, p, ["law"]),
        "Regression": lambda: call(fl.Regression, "y", ("a", "b"), True, True, 0.1),
        "Value": lambda: call(fl.Value, 0.9, 0.5, "s", "n", "r", "e", "t", "i", None, True, True),
        "fit": lambda: call(fl.fit, sites(), regression, 0.3, method="scafflsa", lag=None, seed=0,
                            bootstrap=3, resample="pairs", baselines=False, progress=None, local="rows"),
        "fit errors": lambda: call(fl.fit, sites(), regression, plan=False, weight="sites", covariance="CR1",
                                   cluster="sites", decimal=None),
        "fit by hand": lambda: call(fl.fit, sites(), regression, None, **by_hand),
        "fit value": lambda: call(fl.fit, [log()], fl.Value(0.9), 0.3, max_samples=None, local="means"),
        "site_problem": lambda: call(fl.site_problem, sites(), regression, "sites", "rows", memory=2**20),
        "evaluate": lambda: call(fl.evaluate, fitted(), sites()),
        "evaluate value": lambda: call(fl.evaluate, valued(), [log()]),
        "Fit.predict": lambda: call(fitted().predict, np.ones((2, 2))),
        "Fit.predict_interval": lambda: call(fitted().predict_interval, np.ones((2, 2)), 0.9),
        "Fit.test": lambda: call(fitted().test, np.eye(3)[:2], [0.0, 1.0]),
        "Fit.summary": lambda: call(fitted().summary, 0.9),
        "Fit.to_frame": lambda: call(fitted().to_frame, 0.9),
        "Fit.confidence_interval": lambda: call(fitted().confidence_interval, 0.9),
        "Fit.save": lambda: call(fitted().save, "fit.json"),
        "Fit.load": lambda: call(fl.Fit.load, "model.json", None),
        "plan": lambda: call(fl.plan, p, 0.3, method="scafflsa", max_samples=None, theta_0=start),
        "plan rounds": lambda: call(fl.plan, p, rounds=5, max_samples=1e4),
        "plan samples": lambda: call(fl.plan, p, samples=1e3),
        "simulate": lambda: call(fl.simulate, p, m, 4, 2, start, np.zeros((3, 2)), iid, "reference", 3, ("theta",),
                                 "float64", 1, None),
        "simulate_grid": lambda: call(fl.simulate_grid, [p], [m, scaffnew], [2, 3], [0, 1], engine="reference",
                                      keep=("xi",)),
        "sweep": lambda: call(fl.sweep, {"a": p}, [fl.SCAFFLSA], step_size=[0.1, 0.2], local_steps=2, rounds=2,
                              seeds=[0, 1], theta_0=start, xi_0=np.zeros((3, 2)), sampling=iid, engine="reference",
                              record=3, keep=("xi",), dtype="float64", threads=1, progress=None),
        "resume": lambda: call(fl.resume, fl.simulate(p, m, 2, 1, engine="reference", keep=("state",)), 4, p, m, 2,
                               "reference", 1, None),
        "runs": lambda: call(results.runs, fl.sweep(p, fl.FedLSA, step_size=[0.1], local_steps=1, rounds=2, seeds=1,
                                                    engine="reference")),
        "control.garnet": lambda: call(fl.control.garnet, 2, 3, 2, 2, 1.0, 0),
        "Worlds": lambda: call(fl.control.Worlds, **given(fl.control.garnet(2, 3, 2))),
        "solve": lambda: call(fl.control.solve, fl.control.garnet(2, 3, 2), 2.0, None, 1e-9),
        "control.arguments": lambda: call(fl.control.arguments, acted(), None),
        "sarsa": lambda: call(fl.sarsa, fl.control.garnet(2, 3, 2), fl.SCAFFLSA(0.1, 3), 4, 2, 1.0, None, "step", None,
                              np.zeros(6), 3, 1),
        "garnet": lambda: call(fl.problems.garnet, 3, 5, 2, 2, 2, 0.9, True, 0.02, "paper", 1, **no),
        "ring": lambda: call(fl.problems.ring, 3, 1.0, 0.1, 0, weights=None),
        "make": lambda: call(fl.problems.make, "ring", agents=3, spread=1.0, noise=0.1, seed=0, weights=None),
        "lakes": lambda: call(fl.problems.lakes, 2, 0.4, 0.9, 0.9, **no),
        "cartpoles": lambda: call(fl.problems.cartpoles, 2, 0.2, 1.5, 0.9, 40, 0, **no),
        "from_mdps": lambda: call(fl.problems.from_mdps, *mdps, None, None, behaviour=mdps[2], trace=0.5, emphatic=True,
                                  **no),
        "average_reward": lambda: call(fl.problems.average_reward, *mdps[:4], None, None, ratio=2.0, **no),
        "gradient_td": lambda: call(fl.problems.gradient_td, *mdps, None, None, kind="tdc", ratio=2.0, behaviour=None,
                                    **no),
        "from_chains": lambda: call(fl.problems.from_chains, [CHAIN], np.eye(3)[:, :2] + 0.1, 0.9, None, **no),
        "from_transitions": lambda: call(fl.problems.from_transitions, [log()], 0.9, 0.5, **no),
        "from_logs": lambda: call(fl.problems.from_logs, [a_log()], np.eye(3)[:, :2] + 0.1, 0.9, trace=0.5, **no),
        "Log": lambda: call(fl.problems.Log, *vars(a_log()).values()),
        "from_observations": lambda: call(fl.problems.from_observations,
                                          [(np.ones(1), np.eye(2)[None], np.ones((1, 2)))], **no),
        "stream": lambda: call(fl.problems.stream, np.eye(1)[None], np.ones((1, 1)), draw_one, 2,
                               np.zeros((1, 2, 2)), **no),
        "Stream": lambda: call(fl.problems.Stream, np.eye(1)[None], np.ones((1, 1)), draw_one, 2, False),
        "from_gymnasium": lambda: call(fl.problems.from_gymnasium, "FrozenLake-v1", "random", LAKE, 0.9,
                                       variations=None, steps=None, seed=None, behaviour=None, trace=0.0, initial=None,
                                       **no),
        "from_minari": lambda: call(fl.problems.from_minari, "nothing/here-v0", np.eye(2), 0.9, trace=0.5,
                                    importance=None, **no),
        "rollout": lambda: call(fl.problems.rollout, "CartPole-v1", "random", 5, 0, variations=None, behaviour=None),
        "regression": lambda: call(fl.problems.regression, sites(), 0.1, **no),
        "from_recipe": lambda: call(fl.problems.from_recipe, {"constructor": "garnet", "arguments": {"agents": 3}}),
        "from_recipe's arguments": lambda: call(garnet_recipe, agents=3, states=5, features=2, seed=0,
                                                preset="paper"),
        "OneHot": lambda: call(maps.OneHot, 4, (1,)),
        "Aggregation": lambda: call(maps.Aggregation, 4, 2),
        "Fourier": lambda: call(maps.Fourier, *box, 2, True),
        "RadialBasis": lambda: call(maps.RadialBasis, *box, 2, 0.5),
        "TileCoding": lambda: call(maps.TileCoding, *box, 2, 2),
        "apply": lambda: call(maps.apply, maps.Fourier(*box, 2), np.zeros((3, 2))),
        "a map": lambda: call(maps.TileCoding(*box, 2, 2), np.zeros((3, 2))),
        "from_settings": lambda: call(maps.from_settings, {"name": "OneHot", "states": 4}),
        "bias": lambda: call(theory.bias, p, 0.1, 3),
        "bias_at": lambda: call(theory.bias_at, p, 0.1, 3, 4),
        "bias_gap_bound": lambda: call(theory.bias_gap_bound, p, 0.1, 3, 4),
        "first_order_bias": lambda: call(theory.first_order_bias, p, 0.1, 3),
        "round_bias": lambda: call(theory.round_bias, p, 0.1, 3),
        "round_bias_bound": lambda: call(theory.round_bias_bound, p, 0.1, 3),
        "bound": lambda: call(theory.bound, p, m, 4, start, iid, 3),
        "td_bound": lambda: call(theory.td_bound, p, m, 4, start, 3),
        "td_claim": lambda: call(theory.td_claim, p),
        "complexity": lambda: call(theory.complexity, p, "scafflsa", 0.1, start),
        "constants": lambda: call(theory.constants, p),
        "exact": lambda: call(theory.exact, p, m, 4, start, np.zeros((3, 2)), iid, 3),
        "exact on trajectories": lambda: call(theory.exact, p, fedlsa, 4, sampling=fl.Markov(1), record=3),
        "exact of Scaffnew": lambda: call(theory.exact, p, scaffnew, 4, record=3),
        "exact_iterations": lambda: call(theory.exact_iterations, p, scaffnew, 4, start, np.zeros((3, 2)), 3),
        "fedlsa_parts": lambda: call(theory.fedlsa_parts, p),
        "scafflsa_parts": lambda: call(theory.scafflsa_parts, p),
        "markov_block": lambda: call(theory.markov_block, p, m, 4, 0.1, start),
        "markov_bound": lambda: call(theory.markov_bound, p, fl.FedLSA(0.1, 10), 4, 2, start, 3),
        "markov_constants": lambda: call(theory.markov_constants, p),
        "mixing_times": lambda: call(theory.mixing_times, p),
        "moments": lambda: call(theory.moments, p),
        "radius": lambda: call(theory.radius, p, m),
        "stability": lambda: call(theory.stability, p, 0.1),
        "stability_limit": lambda: call(theory.stability_limit, p, m, 1e-3),
        "stationary": lambda: call(theory.stationary, p, m),
        "central_limit": lambda: call(theory.central_limit, p, m, False),
        "normal_distance": lambda: call(theory.normal_distance, averages(), p, averaged, 0.9),
        "confidence": lambda: call(theory.confidence, curve(), 0.9),
        "bootstrap": lambda: call(fl.bootstrap, p, fedlsa, 4, 20, 2, 0.9, start),
        "Exchange": lambda: call(fl.Exchange, ("v",), ("copy",), {"v": {"theta": 1}}, {"theta": 1}, {"xi": 1}, 0.5,
                                 False, None, {"change": {"theta_hat": 1}}, fl.RandK(1), 1, {"mean": ("change", 1)},
                                 {"theta": {"mean": 1}}, {"copy": {"theta": 1}}, None, None, ()),
        "stationary_law": lambda: call(theory.stationary_law, p),
        "synchronous_plan": lambda: call(theory.synchronous_plan, p, 0.5, start),
        "trade_off": lambda: call(theory.trade_off, p, 0.3, "fedlsa", theta_0=start),
        "value_error": lambda: call(theory.value_error, p, start),
        "value_functions": lambda: call(theory.value_functions, p),
        "virtual_mdp": lambda: call(theory.virtual_mdp, p),
        "arguments": lambda: call(results.arguments, run(), p, m),
        "load": lambda: call(results.load, "run.nc"),
        "method_label": lambda: call(results.method_label, m),
        "problem_text": lambda: call(results.problem_text, p),
        "recorded_rounds": lambda: call(results.recorded_rounds, 3, 10),
        "richardson_romberg": lambda: call(results.richardson_romberg, run(), coarse()),
        "save": lambda: call(results.save, run(), "saved.nc"),
        "save_curves": lambda: call(results.save_curves, [curve()], "curves.nc", command="c"),
        "summary": lambda: call(results.summary, [run()]),
        "table": lambda: call(results.table, [{"a": 1, "b": "x"}]),
        "agent_paths": lambda: call(figures.agent_paths, paths(), paths(), round=1, title="t"),
        "bound_and_curve": lambda: call(figures.bound_and_curve, theory.bound(p, m, 6, record=3), curve(), run(),
                                        title="t", band=(0.1, 0.9), x="communications", scale="log"),
        "coefficients": lambda: call(figures.coefficients, fitted(), level=0.9, ax=figure().axes),
        "forest": lambda: call(figures.forest, fitted().heterogeneity(), "x0", level=0.9),
        "error_curves": lambda: call(figures.error_curves, [run()], bias=0.1, title="t", band=(0.1, 0.9), x="samples",
                                     scale="log", legend=False, ax=figure().axes[0]),
        "exact_curves": lambda: call(figures.exact_curves, [curve()], bias=0.1, runs=[run()], x="communications",
                                     scale="log", title="t", band=(0.1, 0.9), parts=True),
        "predicted_bias": lambda: call(figures.predicted_bias, run(), p),
        "figures.save": lambda: call(figures.save, figure(), "figure.svg", command="c"),
        "figures.style": lambda: call(figures.style, "paper"),
        "figures.trade_off": lambda: call(figures.trade_off, [plan()], 0.5, title="t"),
        "round_paths": lambda: call(round_paths, p, m, 3, 0, start, 4, True),
        "Scale": lambda: call(fl.experiments.Scale, "paper", 2, True),
        "Cell": lambda: call(fl.experiments.Cell, "exact", CELL),
        **{type(o).__name__: lambda o=o: call(type(o), **given(o)) for o in given_outright()},
        "Store": lambda: call(fl.experiments.Store, Path("cells"), 100),
        "LocalExecutor": lambda: call(fl.experiments.LocalExecutor, None),
    }  # fmt: skip


@cache
def bases():
    return {name: make() for name, make in calls().items()}


def given(thing):
    """The fields of a dataclass by name."""
    return {f.name: getattr(thing, f.name) for f in fields(thing) if f.init}


def given_outright():
    """Objects that are mostly made by others, and may be made by hand."""
    p = fl.problems.garnet(agents=3, states=5, features=2)
    return p, p.observations, p.on_means().observations, p.chain, fl.theory.moments(p)


def a_log():
    flags = np.arange(6) % 3 == 2
    states = np.array([0, 1, 2, 0, 1, 2])
    return fl.problems.Log(states, np.zeros(6, int), np.ones(6), np.roll(states, -1), flags, np.zeros(6, bool), None)


# Public names that are not called here, and why.
RECORDS = {
    "Fit", "Bound", "Complexity", "Constants", "FedLSAParts", "MarkovBlock", "MarkovConstants", "Plan",
    "SCAFFLSAParts", "Stationary", "TDClaim", "VirtualMDP", "Outcome", "Verdict",
    "CentralLimit", "JointLaw",
}  # fmt: skip
ABSTRACT = {"Algorithm", "ExchangeMethod", "FeatureMap", "to_normals"}  # the last one is called by compiled code
EXPERIMENTS = {
    "Claim",
    "Experiment",
    "Picture",
    "Table",
    "compute",
    "computes",
    "reproduce",
    "run",
    "tabulate",
}  # data of the reproduction


def prepare():
    """Files that some calls read."""
    fitted().save("model.json")
    fl.results.save(run(), "run.nc")


def cases(count, seed):
    """Calls, drawn with a seed, as (what is odd, function that makes the call and says what is wrong with it)."""
    rng = random.Random(seed)
    all_bases = bases()
    places = [(name, place) for name, (_, args, named) in all_bases.items() for place in (*range(len(args)), *named)]
    everything = [(*where, odd) for where in places for odd in ODD]
    rng.shuffle(everything)  # each replacement once, before any comes again
    for name, place, odd in itertools.islice(itertools.cycle(everything), count):
        changes = {place: odd}
        function, args, named = all_bases[name]
        if rng.random() < PAIRS:
            changes[rng.choice([*range(len(args)), *named])] = rng.choice(list(ODD))
        yield f"{name} with {changes}", partial(outcome, function, args, named, changes)


def outcome(function, args, named, changes):
    """ "returned" or "refused", and what is wrong with that, if anything."""
    try:
        values = {place: ODD[odd]() for place, odd in changes.items()}
        args = [values.get(i, value) for i, value in enumerate(args)]
        function(*args, **{key: values.get(key, value) for key, value in named.items()})
    except FedLSAError as error:
        return "refused", None if str(error) and "\n" not in str(error) else f"not one line: {str(error)[:80]!r}"
    except Exception as error:
        if isinstance(error, MemoryError) or Path(innermost(error)[0]) != Path(__file__):
            raise
        # what failed is the caller's own function
    return "returned", None


def innermost(error):
    """File and line that an error comes from."""
    inside = error.__traceback__
    while inside.tb_next is not None:
        inside = inside.tb_next
    return inside.tb_frame.f_code.co_filename, inside.tb_lineno

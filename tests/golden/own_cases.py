"""The cases behind own_numbers.json, by groups: makers of names and values, with public names of fedlsa only."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gallery
import numpy as np

import fedlsa as fl
from fedlsa.cli import main as command

REFUSED = Path(__file__).with_name("refused.txt").read_text(encoding="utf-8").splitlines()
Entries = Iterator[tuple[str, Any]]  # names and values: arrays are vectors, lists are numbers, dictionaries are entries
ROUNDS, FEW = [0, 1, 2, 7, 30], [0, 1, 2]
label, regression = fl.results.method_label, functools.partial(fl.Regression, "y", columns=["x", "z"])
ETA = 0.1  # suits all of families()
SLOW = ("nearly singular average", "badly scaled", "very long rounds", "turning modes")  # limits that amplify rounding
NOISELESS = ("no noise", "tiny noise", "absorbing chain")  # errors fall until they are rounding
DEFECTIVE = ("jordan block", "nearly defective", "corridor")  # eigenvalues know half of the digits
ALIKE = (*DEFECTIVE, "no heterogeneity", "one agent", "at the edge", "seventeen dimensions")  # without drift
AROUND_0 = ("one dimension", "very long rounds")  # theta_star is 0, or what rounding leaves


def chains(agents: int, states: int = 3) -> fl.Problem:
    """Markov chains; features and rewards are written down exactly, probabilities only decide what is drawn."""
    s, c = np.arange(states), np.arange(agents)[:, None, None]
    P = 1.0 + (s[:, None] * (c + 2) + s * 3 + c) % 4
    P[:, :, 0] += 17 - P.sum(axis=2)
    r, features = (s * (c[:, 0] + 1) % 3 - 0.5) / 2, np.stack([np.ones(states), s % 3 - 0.5], axis=1) / 2
    return fl.problems.from_mdps(P[:, :, None] / 17, r[:, :, None], np.ones((states, 1)), features, 0.75)


def logs() -> list[tuple[np.ndarray, ...]]:
    """Transitions of two agents, with ends of both kinds."""
    k = np.arange(24)
    phi = np.stack([np.ones(24), (k * 5 % 7 - 3) / 4], axis=1) / 2
    ends = k % 8 == 7, k % 12 == 3
    return [(np.roll(phi, c, 0), (k * (c + 3) % 5 - 2) / 4, np.roll(phi, c - 1, 0), *ends) for c in range(2)]


def dense(agents: int = 3, d: int = 2, **options: Any) -> fl.Problem:
    """Dense observations, in numbers that are written down exactly."""
    k, tables = np.arange(d * d).reshape(d, d), []
    for c in range(agents):
        A, b = np.eye(d) * (1 + c / 4) + (k * (c + 3) % 5 - 2) / 16, (np.arange(d) * (c + 1) % 4 - 1.0) / 2
        E = (k * 7 % 5 - 2) / 8
        tables.append(([0.5, 0.25, 0.25], [A, A + E, A - E], [b, b + 0.5, b - 0.25]))
    return fl.problems.from_observations(tables, **options)


def rows(c: int) -> tuple[np.ndarray, np.ndarray]:
    """A site's columns and outcomes."""
    rng = np.random.default_rng(c)
    x = np.add(rng.normal(size=(14 + c, 2)), [0.5 * c, 1])
    return x, x @ [1.5, -0.5 + 0.1 * c] + 2 + rng.normal(size=14 + c) * (0.3 + 0.2 * np.abs(x[:, 0]))


def sites() -> dict[str, dict[str, Any]]:
    """The same as tables, with weights w and clusters g."""
    tables = {}
    for c in range(4):
        (x, y), k = rows(c), np.arange(14 + c)
        tables[f"site {c}"] = {"x": x[:, 0], "z": x[:, 1], "y": y, "w": 1 + k % 3, "g": (k // 3 + 5 * c).tolist()}
    return tables


def families() -> dict[str, fl.Problem]:
    """A problem of each constructor that needs no extra."""
    make = fl.problems
    return {
        "garnet": make.garnet(agents=4, states=5, features=2, seed=1),
        "garnet of the authors": make.garnet(agents=3, states=6, features=3, preset="authors"),
        "garnet with weights": make.garnet(agents=3, states=4, features=2, seed=5, weights=[1, 2, 5]),
        "ring": make.ring(agents=3, spread=1.0, noise=0.3, seed=2),
        "regression": make.regression([rows(c) for c in range(3)], ridge=0.1),
        "regression, assigned": make.regression([rows(0), rows(1)], assignment=[0, 1, 1], weights=[2, 1, 1]),
        "chains": chains(2),
        "logs": make.from_transitions(logs(), 0.75),
        "logs with traces": make.from_transitions(logs(), 0.75, trace=0.5),
        "dense": dense(),
    }


def cases(*left_out: str) -> Iterator[tuple[str, str, fl.Problem, fl.Algorithm]]:
    """The gallery and the families of problems, with each method."""
    methods = (fl.FedLSA(ETA, 5), fl.SCAFFLSA(ETA, 5), fl.Scaffnew(ETA, 0.25))
    listed = [(name, case.problem, a) for name, case, a in gallery.everything()]
    for name, p, a in listed + [(name, p, a) for name, p in families().items() for a in methods]:
        if name not in left_out:
            yield name, f"{name} / {label(a)}", p, a


def each(values: Any) -> list[Any]:
    """Numbers that are compared one by one, unlike the entries of a vector."""
    return np.asarray(values).tolist()


def p_values(values: Any) -> list[float]:
    """One by one, where they are large enough to keep the digits of their statistics."""
    return [float(p) if p > 1e-12 else 0.0 for p in np.atleast_1d(values)]


def fields(found: Any, *left_out: str) -> dict[str, Any]:
    """The public fields of a record that it shows."""
    names = [f.name for f in dataclasses.fields(found) if f.repr and not f.name.startswith("_")]
    return {name: getattr(found, name) for name in names if name not in left_out}


def settings(found: Any) -> dict[str, Any]:
    """A plan or complexity with its method in numbers."""
    a, rest = found.algorithm, fields(found, "algorithm", "method")
    return {"method": type(a).__name__, "step_size": a.step_size, "mean_steps": float(a.mean_steps)} | rest


# ---------------------------------------------------------------- theory


def problems() -> Entries:
    for name, p in ({n: make().problem for n, make in gallery.CASES.items()} | families()).items():
        yield name, {"A_bar": p.A_bar[:2, :2], "b_bar": p.b_bar[:2, :4]}
        if name not in AROUND_0:
            yield name, {"theta_star": p.theta_star}


def curve(p: Any, a: fl.Algorithm, split: bool = True, **options: Any) -> dict[str, Any]:
    found = fl.theory.exact(p, a, **{"rounds": 30, "theta_0": np.full(p.dim, 2.0), "record": ROUNDS} | options)
    values = {"mse": each(found["mse"]), "mean": found["mean"].values[:, :2].ravel()}
    if split:
        values |= {"noise": each(found["noise"]), "start, drift": found[["start", "drift"]].to_array().values.ravel()}
    costs = {name: each(found[name][-1]) for name in ("samples", "bytes")}
    return values | costs | ({"psi": each(found["psi"])} if "psi" in found else {})


def curves() -> Entries:
    for name, text, p, a in cases("nearly singular average"):
        yield text, curve(p, a, record=FEW if name in NOISELESS else ROUNDS)


def curves_with_options() -> Entries:
    p, power = families()["garnet"], fl.PowerStep(0.5, 0.4)
    yield "participation", curve(p, fl.FedLSA(ETA, 5, participation=0.5))
    yield "participants", curve(p, fl.SCAFFLSA(ETA, 5, participants=3))
    yield "one participant", curve(p, fl.Scaffnew(ETA, 0.25, participants=1))
    yield "average_after", curve(p, fl.FedLSA(ETA, 5, average_after=3))
    yield "average_after, participants", curve(p, fl.FedLSA(ETA, 5, average_after=0, participants=2))
    yield "PowerStep, FedLSA", curve(p, fl.FedLSA(power, 5))
    yield "PowerStep, SCAFFLSA, participants", curve(p, fl.SCAFFLSA(power, 5, participants=2))
    yield "PowerStep, Scaffnew", curve(p, fl.Scaffnew(power, 0.25))
    yield "the start of its own", curve(p, fl.FedLSA(ETA, 5), theta_0=None)
    yield "xi_0", curve(p, fl.SCAFFLSA(ETA, 5), xi_0=[[1, 0], [-1, 0.5], [0, 0], [0, -0.5]])
    yield "upload_noise, FedLSA", curve(p, fl.FedLSA(ETA, 5), upload_noise=0.25)
    yield "upload_noise, SCAFFLSA", curve(p, fl.SCAFFLSA(ETA, 5), upload_noise=0.25)
    yield "moments", curve(fl.theory.moments(p), fl.SCAFFLSA(ETA, 5))
    shared = dense(2, assignment=[0, 1, 1, 0, 1], weights=[1, 2, 3, 4, 5])
    for a in (fl.FedLSA(ETA, 4), fl.SCAFFLSA(ETA, 4, participation=0.6), fl.Scaffnew(ETA, 0.3)):
        yield f"weights, assignment / {label(a)}", curve(shared, a)
    found = fl.theory.exact_iterations(p, fl.Scaffnew(ETA, 0.25), 30, record=ROUNDS)
    yield "iterations", {name: each(found[name]) for name in ("psi", "agents_mse", "mse")}


def curves_along_trajectories() -> Entries:
    two = (fl.FedLSA(ETA, 6), fl.SCAFFLSA(ETA, 6), fl.Scaffnew(ETA, 0.4), fl.FedLSA(fl.PowerStep(0.4, 0.5), 6))
    for agents, a in ((1, two[0]), *((2, a) for a in two), (4, two[0])):
        for sampling in (fl.Markov(), fl.Markov(thin=3), fl.Markov(2, start=(1,) * agents)):
            name = f"{agents} agents / {label(a)} / {sampling}"
            yield name, curve(chains(agents), a, split=False, sampling=sampling)


def limits() -> Entries:
    for name, text, p, a in cases(*SLOW):
        found = fl.theory.stationary(p, a)
        values = {"mse": found.mse, "variance": found.variance, "covariance": found.covariance[:2, :2]}
        yield text, values | ({} if name in AROUND_0 else {"mean": found.mean})


def radii_and_stability_limits() -> Entries:
    for name, text, p, a in cases(*SLOW):
        if type(a) is fl.FedLSA or name not in DEFECTIVE:
            yield f"{text} / radius", fl.theory.radius(p, a)
        if name == "one dimension" or (type(a) is fl.FedLSA and p.dim < 9):
            yield f"{text} / stability_limit", fl.theory.stability_limit(p, a, tolerance=1e-12)


def biases() -> Entries:
    t = fl.theory
    for name, _, p, a in cases(*SLOW, *ALIKE):
        if type(a) is fl.FedLSA:
            asked = p, a.step_size, max(a.local_steps, 2)
            bounds = [t.round_bias_bound(*asked), t.bias_gap_bound(*asked, 3)]
            found = {f.__name__: f(*asked) for f in (t.bias, t.first_order_bias, t.round_bias)}
            yield name, found | {"bias_at": t.bias_at(*asked, 3), "bounds": bounds}


def constants() -> Entries:
    kept = ("jordan block", "one dimension", "shared tables and unequal weights", "single steps", "no noise")
    for name, p in ({n: gallery.CASES[n]().problem for n in kept} | families()).items():
        yield name, fields(fl.theory.constants(p)) | {"stability": fl.theory.stability(p, 0.01)}
    for name, p in {"garnet": families()["garnet"], "chains": chains(2)}.items():
        yield f"{name} / td_claim", fl.theory.td_claim(p)
        yield f"{name} / stationary_law", fl.theory.stationary_law(p)
        yield f"{name} / value_functions", fl.theory.value_functions(p)
        yield f"{name} / value_error", fl.theory.value_error(p, p.theta_star)
        yield f"{name} / virtual theta_star", fl.theory.virtual_mdp(p).theta_star


def theorem(found: Any) -> dict[str, Any]:
    sides = {f"condition {rule}": [float(side) for side in both] for rule, both in found.numbers.items()}
    return fields(found, "numbers", "samples", "rounds") | sides


def bounds() -> Entries:
    named = families()
    for name in ("garnet", "ring", "chains", "dense", "regression"):
        for a in (fl.FedLSA(0.01, 5), fl.SCAFFLSA(1e-4, 3), fl.Scaffnew(0.01, 0.2)):
            yield f"{name} / {label(a)}", theorem(fl.theory.bound(named[name], a, 100))
    for a in (fl.FedLSA(0.01, 5), fl.SCAFFLSA(1e-4, 3)):
        text = label(a)
        yield f"td_bound / {text}", theorem(fl.theory.td_bound(named["garnet"], a, 100))
        yield f"a curve / {text}", each(fl.theory.bound(named["garnet"], a, 100, [1, 2], record=[0, 10, 100]).value)


def bounds_along_trajectories() -> Entries:
    t, a = fl.theory, fl.FedLSA(0.01, 10)
    for name, p in {"garnet": families()["garnet"], "one chain": chains(1), "chains": chains(2)}.items():
        yield f"{name} / markov_constants", fields(t.markov_constants(p), "tau_mix_local")
        yield f"{name} / mixing_times", each(t.mixing_times(p))
        yield f"{name} / markov_block", t.markov_block(p, a, 100, 0.1)
        yield f"{name} / bound", theorem(t.bound(p, a, 100, sampling=fl.Markov(2)))
        yield f"{name} / markov_bound", theorem(t.markov_bound(p, a, 100, 5))


def plans() -> Entries:
    named, one = families(), gallery.CASES["one dimension"]().problem
    for name, epsilon in (("garnet", 0.1), ("dense", 0.2), ("regression", 0.3)):
        p = named[name]
        for method in ("fedlsa", "scafflsa", "scaffnew"):
            yield f"{name} / epsilon / {method}", settings(fl.plan(p, epsilon, method=method))
        for method in ("fedlsa", "scafflsa"):
            yield f"{name} / rounds / {method}", settings(fl.plan(p, rounds=4, max_samples=100, method=method))
            yield f"{name} / samples / {method}", settings(fl.plan(p, samples=60, method=method))
        yield f"{name} / synchronous", settings(fl.theory.synchronous_plan(p, epsilon))
    yield "theta_0, max_samples", settings(fl.plan(named["garnet"], 0.05, theta_0=[0, 0], max_samples=3000))
    yield "without noise", settings(fl.plan(gallery.CASES["no noise"]().problem, 0.01))
    for i, found in enumerate(fl.trade_off(one, 0.2, "fedlsa", theta_0=[2.0])):
        yield f"trade_off / {i}", settings(found)


def complexities() -> Entries:
    named = families() | {"one chain": chains(1)}
    for name in ("garnet", "ring", "chains", "one chain", "dense"):
        for method in ("fedlsa", "synchronous", "scafflsa", "scaffnew", *["markov"] * (name == "one chain")):
            found = fl.theory.complexity(named[name], method, 0.2)
            yield f"{name} / {method}", settings(found) | {"value": found.bound.value}


# ---------------------------------------------------------------- fits


def fitted(task: Any, data: Any = None, **options: Any) -> dict[str, Any]:
    found = fl.fit(sites() if data is None else data, task, plan=False, **options)
    kept = ("theta", "covariance", "covariance_kind", "degrees_of_freedom", "residual_variance", "r_squared")
    values = {name: getattr(found, name) for name in kept}
    return values | {"t": each(found.t_values), "p": p_values(found.p_values), "90%": found.confidence_interval(0.9).T}


def fits() -> Entries:
    for kind in ("classical", "HC0", "HC1", "HC2", "HC3", "HAC"):
        yield kind, fitted(regression(), covariance=kind)
        yield f"{kind}, row weights", fitted(regression(row_weights="w"), covariance=kind)
    for kind, cluster in (("HC1", "g"), ("HC1", "sites"), ("HC3", "g"), ("HC3", "sites")):
        yield f"{kind}, clusters {cluster}", fitted(regression(), covariance=kind, cluster=cluster)
    yield "sites count alike", fitted(regression(), weight="sites")
    yield "ridge", fitted(regression(ridge=0.5))
    yield "no intercept", fitted(regression(intercept=False, standardise=False))
    yield "lag", fitted(regression(), lag=3)
    yield "offset", fitted(regression(offset="w"))
    for trace in (0.0, 0.5):
        for lag in (0, 4, None):
            yield f"value, trace {trace}, lag {lag}", fitted(fl.Value(0.75, trace=trace), logs(), lag=lag)


def fits_of_formulas() -> Entries:
    for formula in ("y ~ x + I(z**2) + C(w)", "y ~ x * z", "np.log(y**2 + 1) ~ 0 + x + z"):
        yield formula, fitted(fl.Regression(formula))


def what_follows_from_a_fit() -> Entries:
    for kind in ("classical", "HC3"):
        found = fl.fit(sites(), regression(), covariance=kind, plan=False, baselines=True)
        compared = found.heterogeneity()
        one_by_one = {name: each(getattr(compared, name)) for name in ("p_values", "distance", "own_distance")}
        left_out = ("names", "sites", "rows", "covariance", "shared", "shared_covariance", "theta", "stands_out")
        yield f"{kind} / heterogeneity", fields(compared, *left_out) | one_by_one
        yield f"{kind} / prediction", found.predict_interval([[0.0, 1.0], [2.0, -1.0], [10.0, 3.0]], 0.9)
        for claim in ("x = 1", "x = 1, z = 0", "x + z = 1"):
            tested = found.test(claim)
            yield f"{kind} / {claim}", fields(tested, "claims", "p_value") | {"p": p_values(tested.p_value)}
        yield kind, {site.name: fields(site, "noise", "effective_rows") for site in found.per_site}
        yield kind, {other.name: fields(other, "reveals", "distance") for other in found.baselines}
        yield f"{kind} / evaluate", {s.name: fields(s, "mean") for s in fl.evaluate(found, sites())}
    found = fl.fit(sites(), regression(), step_size=0.3, local_steps=4, rounds=5, local="means")
    yield "a run by hand", {"protocol": found.protocol, "optimisation": found.optimisation, "error": found.error}
    found = fl.fit(sites(), regression(), local="means")
    plan = settings(found.plan)
    plan["rmse"] = float(f"{plan['rmse']:.10g}")  # roundings of twelve thousand steps reach the eleventh digit
    yield "a planned run", {"plan": plan, "protocol": found.protocol, "epsilon": found.epsilon}
    for resample, lag in (("pairs", 0), ("block", 3)):
        drawn = fl.fit(sites(), regression(), plan=False, bootstrap=40, resample=resample, lag=lag).bootstrap
        yield f"bootstrap / {resample}", {"covariance": drawn.covariance, "90%": drawn.interval(0.9).T}


# ---------------------------------------------------------------- runs and refusals


def simulated(**options: Any) -> Iterator[tuple[str, Any]]:
    """Eight rounds of three seeds, from 0, which no library has rounded."""
    methods = {
        "FedLSA": fl.FedLSA(0.25, 5),
        "SCAFFLSA": fl.SCAFFLSA(0.25, 4),
        "Scaffnew": fl.Scaffnew(0.25, 0.25),
        "projection, average_after": fl.FedLSA(0.25, 5, projection=0.75, average_after=2),
        "participants": fl.SCAFFLSA(0.25, 4, participants=2),
        "participation": fl.Scaffnew(0.25, 0.25, participation=0.5),
        "PowerStep": fl.SCAFFLSA(fl.PowerStep(0.5, 0.5), 4),
    }
    asked = {}
    for name, a in methods.items():
        asked[f"dense / {name} / IID"] = dense(), a, fl.IID()
        asked[f"logs / {name} / Replay"] = fl.problems.from_transitions(logs(), 0.75), a, fl.Replay()
        asked[f"chains / {name} / Markov"] = chains(3, 4), a, fl.Markov(thin=2)
    asked["one dimension"] = dense(5, 1), methods["SCAFFLSA"], fl.IID()
    asked["five dimensions, 20 agents"] = dense(20, 5), methods["participants"], fl.IID()
    asked["weights, assignment"] = dense(assignment=[0, 1, 2, 1], weights=[1, 1, 2, 4]), methods["FedLSA"], fl.IID()
    for name, (p, a, sampling) in asked.items():
        given = {"rounds": 8, "seeds": [0, 7, 2**40], "theta_0": np.zeros(p.dim), "keep": ("theta", "xi"), "record": 9}
        yield name, fl.simulate(p, a, sampling=sampling, **given, **options)


def bits_of_runs() -> Entries:
    for dtype in ("float64", "float32"):
        for name, found in simulated(dtype=dtype, threads=1):
            for seed, theta in zip(found["seed"].values, found["theta"].values.astype("<f8"), strict=True):
                digest = hashlib.sha256(np.ascontiguousarray(theta).tobytes()).hexdigest()[:16]
                if "PowerStep" not in name:  # powers are the mathematical library's
                    yield f"{name} / {dtype} / seed {seed}", " ".join([*map(float.hex, theta[-1].tolist()), digest])


def runs() -> Entries:
    for name, found in simulated(engine="reference"):
        yield name, {"theta": found["theta"].values[:2, -1, :3], "xi": found["xi"].values[0, :2, :3]}
        yield name, {name: each(found[name].values[:2, -1]) for name in ("squared_error", "samples", "uploads")}
    summed = fl.results.summary(next(simulated(engine="reference"))[1]).select_dtypes("number")
    yield "summary", {name: each(values) for name, values in summed.items()}


def refusals_of_calls() -> Entries:
    p = fl.problems.garnet(agents=3, states=4, features=2, seed=1)
    known = {"fl": fl, "np": np, "p": p, "a": fl.FedLSA(0.1, 5), "sites": sites}
    for call in (line for line in REFUSED if line.startswith("fl.")):
        try:
            yield call, f"no refusal: {eval(call, known)!r:.100}"
        except fl.errors.FedLSAError as error:
            yield call, f"{type(error).__name__}: {error}"


def refusals_of_commands() -> Entries:
    for line in (line for line in REFUSED if line.startswith("fedlsa ")):
        with contextlib.redirect_stderr(io.StringIO()) as complaint, contextlib.redirect_stdout(io.StringIO()):
            code = command(line.split()[1:])
        said = complaint.getvalue().strip().replace(", ".join(map(repr, fl.algorithms.FAMILY)), "the family")
        yield line, f"{code}: {said}"


GROUPS = {make.__name__.replace("_", " "): make for make in (
    problems, curves, curves_with_options, curves_along_trajectories, limits, radii_and_stability_limits, biases,
    constants, bounds, bounds_along_trajectories, plans, complexities, fits, fits_of_formulas, what_follows_from_a_fit,
    bits_of_runs, runs, refusals_of_calls, refusals_of_commands,
)}  # fmt: skip

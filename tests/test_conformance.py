"""Every method on every kind of problem, sampling and option: what holds for one holds for all.

What is asked stands in fedlsa.conformance; here are those of whom it is asked. A new method takes part by being listed
in METHODS: name -> a function of (step size, local steps, options).
"""

from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from new_method import ServerStepSCAFFLSA
from own_samplings import Prioritised, Reshuffled
from own_steps import OwnStepsSCAFFLSA
from server_momentum import MomentumSCAFFLSA
from tiers import longer, mostly_long

import fedlsa as fl
from fedlsa.engine.random import participants, uniforms

METHODS = {
    "FedLSA": fl.FedLSA,
    "SCAFFLSA": fl.SCAFFLSA,
    "Scaffnew": lambda step_size, local_steps, **options: fl.Scaffnew(step_size, 1 / local_steps, **options),
    "ServerStepSCAFFLSA": lambda *given, **options: ServerStepSCAFFLSA(*given, server_step_size=0.6, **options),
    "MomentumSCAFFLSA": lambda *given, **options: MomentumSCAFFLSA(*given, momentum=0.4, **options),
    "OwnStepsSCAFFLSA": OwnStepsSCAFFLSA,
}
SEEDS = (3, 2**40 + 1)  # the second needs both halves of the key


def rows(generator, K, d):
    """Rows of length at most 1: steps of size 1 are stable."""
    x = generator.normal(size=(K, d))
    return x / np.linalg.norm(x, axis=1).max()


def decision_processes():
    """Two processes with episodes; the last state is terminal, no outcome begins in it."""
    g = np.random.default_rng(2)
    P = g.dirichlet(np.full(9, 0.3), size=(2, 9, 2))
    policy = g.dirichlet([1.0, 1.0], size=9)
    terminal = np.arange(9) == 8
    initial = np.array([0.5, 0.5, 0, 0, 0, 0, 0, 0, 0])
    r = g.normal(size=(2, 9, 2))
    return fl.problems.from_mdps(P, r, policy, rows(g, 9, 6), 0.9, terminal, initial, assignment=[0, 1, 1, 0])


def logs():
    """Episodes of unequal logs with traces; truncation is not termination."""
    g = np.random.default_rng(3)
    sites = []
    for K in (7, 23, 11):
        phi = rows(g, K + 1, 5)
        sites.append((phi[:-1], g.normal(size=K), phi[1:], g.random(K) < 0.2, g.random(K) < 0.2))
    return fl.problems.from_transitions(sites, 0.8, trace=0.5)


def sites():
    """Ridge regression: tables of very different sizes, shared by agents of unequal weights."""
    g = np.random.default_rng(4)
    tables = [(rows(g, K, 7), g.normal(size=K)) for K in (1, 30, 9)]
    return fl.problems.regression(tables, 0.3, weights=[1, 5, 2, 1, 3, 1], assignment=[1, 0, 2, 1, 2, 0])


def dense():
    g = np.random.default_rng(5)
    tables = []
    for K in (3, 1, 6):
        A = 0.5 * np.eye(6) + 0.15 * g.normal(size=(K, 6, 6))
        tables.append((g.dirichlet(np.ones(K)), A, g.normal(size=(K, 6))))
    return fl.problems.from_observations(tables, weights=[0.5, 0.2, 0.3])


def long_rows():
    """Temporal differences, for which u and v differ, in more dimensions than registers hold."""
    g = np.random.default_rng(6)
    logs = [(rows(g, 81, 140), g.normal(size=80)) for _ in range(3)]
    return fl.problems.from_transitions([(phi[:-1], r, phi[1:], np.zeros(80, bool)) for phi, r in logs], 0.8)


def pairs():
    """Emphatic TD(lambda), off-policy: chains of pairs of states, rows of u and v that have nothing in common."""
    g = np.random.default_rng(7)
    P, b = g.dirichlet(np.full(7, 0.5), size=(3, 7, 2)), g.dirichlet([2.0, 2.0], size=(3, 7))
    given = {"behaviour": b, "terminal": np.arange(7) == 6, "initial": [0.7, 0.3, 0, 0, 0, 0, 0]}
    return fl.problems.from_mdps(P, g.normal(size=(3, 7, 2)), np.full((7, 2), 0.5), rows(g, 7, 6) / 2, 0.7,
                                 trace=0.5, emphatic=True, **given)  # fmt: skip


def gradients():
    """Dense observations along trajectories."""
    g = np.random.default_rng(8)
    P, policy = g.dirichlet(np.full(5, 0.5), size=(4, 5, 2)), g.dirichlet([1.0, 1.0], size=5)
    r, b = g.normal(size=(4, 5, 2)), np.full((5, 2), 0.5)
    return fl.problems.gradient_td(P, r, policy, rows(g, 5, 3), 0.9, kind="tdc", ratio=0.7, behaviour=b)


PROBLEMS = {
    "garnet": lambda: fl.problems.garnet(agents=5, states=12, seed=1),
    "mdps": decision_processes,
    "transitions": logs,
    "regression": sites,
    "dense": dense,
    "long": long_rows,
    "pairs": pairs,
    "gradients": gradients,
}
problem = cache(lambda name: PROBLEMS[name]())

OPTIONS = {
    "plain": {},
    "count": {"participants": 2},
    "share": {"participation": 0.6, "projection": 1.5},
    "projection": {"projection": 0.7},
    "average": {"average_after": 4},
    "average from the start": {"average_after": 0, "participants": 2},
    "power": {"step_size": fl.PowerStep(0.5, 0.6)},
    "all": {"step_size": fl.PowerStep(0.5, 0.3), "participants": 2, "projection": 1.0, "average_after": 3},
}

# problem, sampling, local steps, rounds, options: each of them, and the pairs that meet in the code
CASES = [
    ("garnet", fl.IID(), 7, 8, "plain"),
    ("garnet", fl.IID(), 150, 2, "plain"),  # rounds longer than what is drawn at once
    ("garnet", fl.IID(), 7, 8, "count"),
    ("garnet", fl.IID(), 7, 8, "share"),
    ("garnet", fl.IID(), 7, 8, "projection"),
    ("garnet", fl.IID(), 7, 8, "average"),
    ("garnet", fl.IID(), 3, 8, "average from the start"),
    ("garnet", fl.IID(), 7, 8, "power"),
    ("garnet", fl.IID(), 7, 8, "all"),
    ("garnet", fl.Markov(), 7, 8, "plain"),
    ("garnet", fl.Markov(thin=3), 8, 8, "plain"),
    ("garnet", fl.Markov(thin=3), 70, 2, "count"),
    ("garnet", fl.Markov(start=(0, 3, 11, 5, 7)), 4, 8, "power"),
    ("mdps", fl.IID(), 5, 8, "plain"),
    ("mdps", fl.Markov(), 5, 8, "all"),
    ("mdps", fl.Markov(thin=3), 7, 8, "average"),
    ("transitions", fl.IID(), 5, 8, "share"),
    ("transitions", fl.Replay(), 5, 8, "plain"),
    ("transitions", fl.Replay(thin=2), 7, 8, "count"),
    ("transitions", fl.Replay(thin=2), 70, 2, "plain"),
    ("regression", fl.IID(), 6, 8, "plain"),
    ("regression", fl.IID(), 6, 8, "all"),
    ("dense", fl.IID(), 5, 8, "plain"),
    ("dense", fl.IID(), 5, 8, "all"),
    ("long", fl.IID(), 5, 8, "plain"),
    ("long", fl.IID(), 5, 8, "all"),
    ("pairs", fl.Markov(), 4, 4, "plain"),
    ("gradients", fl.Markov(), 4, 4, "plain"),
]


def name(case):
    kind, sampling, H, _, options = case
    thin = f"-thin{sampling.thin}" if sampling.thin > 1 else ""
    return f"{kind}-{type(sampling).__name__}{thin}-H{H}-{options}"


def method(kind, local_steps, options):
    given = {"step_size": 0.3, **OPTIONS[options]}
    return METHODS[kind](given.pop("step_size"), local_steps, **given)


def run(kind, case, **changes):
    p, sampling, H, T, options = case
    arguments = {"rounds": T, "seeds": SEEDS, "sampling": sampling, "keep": ("theta", "xi"), "record": T + 1, **changes}
    algorithm = method(kind, H, options)
    if algorithm.average_after is not None:  # a run cut short averages its last round at least
        algorithm = replace(algorithm, average_after=min(algorithm.average_after, arguments["rounds"]))
    return fl.simulate(problem(p), algorithm, **arguments)


every_method = pytest.mark.parametrize("kind", METHODS)
# two methods meet all cases; others that in which most meets, and the rest in a longer tier
MEETING = [CASES[i] for i in (8, 11, 14, 18, 21, 23, 26)]
every_cell = pytest.mark.parametrize(
    ("kind", "case"),
    [
        pytest.param(kind, case, id=f"{name(case)}-{kind}", marks=() if usual or case in MEETING else pytest.mark.long)
        for case in CASES
        for kind, usual in zip(METHODS, (True, True, False, False, False, False), strict=True)
    ],
)
every_engine = pytest.mark.parametrize("engine", ["cpu", "reference"])


@every_cell
def test_engines_agree_and_control_variates_change_nothing_in_one_step(kind, case):
    p, sampling, H, T, options = case
    algorithm, only = method(kind, H, options), ["engines", "single_step"]
    if algorithm.average_after is not None:
        algorithm = replace(algorithm, average_after=min(algorithm.average_after, T))
    if kind == "OwnStepsSCAFFLSA":  # one step is one size for all
        alike = replace(algorithm, step_factors=(1.0,), length_factors=(1.0,))
        check(alike, problem(p), sampling, max(T, 4), ["single_step"])
    check(algorithm, problem(p), sampling, max(T, 4), only)
    assert np.ptp(run(kind, case)["theta"].values, axis=1).max() > 1e-3  # something has moved


@every_method
@pytest.mark.parametrize("case", [CASES[2], *map(longer, (CASES[0], CASES[9], CASES[21], CASES[23]))], ids=name)
def test_bits_recipes_and_sums_of_control_variates(kind, case):
    p, sampling, H, T, options = case
    only = ["invariant", "bits", "resumed", "recipes", "options"]
    check(method(kind, H, options), problem(p), sampling, T, only)


@pytest.mark.parametrize("kind", mostly_long(METHODS, ["FedLSA"]))
def test_a_method_has_the_theory_that_it_declares(kind):
    report = fl.check_method(METHODS[kind](0.05, 5))
    assert report, report
    assert ("exact" in report.held) == (kind != "ServerStepSCAFFLSA")  # which does not declare it


def check(*arguments):
    report = fl.check_method(*arguments)
    assert report, report


@every_method
def test_control_variates_of_agents_that_do_not_take_part_share_one_shift(kind):
    """xi_c moves by sum_c' w_c' change_c', the same for all who are absent, and not that of those present."""
    p = problem("garnet")
    xi_0 = np.random.default_rng(0).normal(size=(p.n_agents, p.dim))
    xi_0 -= xi_0.mean(0)
    algorithm = method(kind, 7, "count")
    r = fl.simulate(p, algorithm, rounds=1, seeds=SEEDS, xi_0=xi_0, keep=("xi",))
    moved = r["xi"].values - xi_0
    shift = np.median(moved, axis=1, keepdims=True)  # two of five take part
    corrects = algorithm.gain(np.array([0.3]), np.array([7]))[0] > 0
    assert (np.abs(shift).max() > 1e-3) == corrects
    assert ((np.abs(moved - shift).max(axis=2) > 1e-12).sum(axis=1) == (2 if corrects else 0)).all()


@every_engine
@pytest.mark.parametrize("options", [{"participation": 0.5}, {"participants": 1}])
def test_unequal_weights_and_few_participants_solve_the_weighted_system(engine, options):
    """Weights 9 and 1, solutions 0 and 1, no noise: theta_star = 0.1, and one participant finds it (SAGA at H = 1)."""
    one = [([1.0], np.eye(6)[None], np.full((1, 6), b)) for b in (0.0, 1.0)]
    p = fl.problems.from_observations(one, weights=[9, 1])
    for H in (1, 3):
        r = fl.simulate(p, fl.SCAFFLSA(0.1, H, **options), 800 // H, 2, np.ones(6), engine=engine, keep=("theta", "xi"))
        np.testing.assert_allclose(r["theta"].values[:, -1], 0.1, rtol=0, atol=1e-10)
        np.testing.assert_allclose(r["xi"].values[:, :, 0], [[0.1, -0.9]] * 2, rtol=0, atol=1e-9)


@every_method
@every_engine
def test_results_carry_their_labels(kind, engine):
    case = CASES[0]
    p, r = problem(case[0]), run(kind, case, engine=engine)
    S, R, N, d = len(SEEDS), case[3] + 1, p.n_agents, p.dim
    expected = {
        "squared_error": (("seed", "rounds"), (S, R), np.float64),
        "theta": (("seed", "rounds", "dim"), (S, R, d), np.float64),
        "communications": (("seed", "rounds"), (S, R), np.int64),
        "uploads": (("seed", "rounds"), (S, R), np.int64),
        "bytes": (("seed", "rounds"), (S, R), np.float64),
        "samples": (("seed", "rounds"), (S, R), np.float64),
        "diverged_at": (("seed",), (S,), np.int64),
        "xi": (("seed", "agent", "dim"), (S, N, d), np.float64),
    }
    assert {k: (v.dims, v.shape, v.dtype) for k, v in r.data_vars.items()} == expected
    assert r["seed"].values.tolist() == list(SEEDS)
    assert r["rounds"].values.tolist() == list(range(R))
    assert (r["theta"].values[:, 0] == p.theta_star + 1).all()
    error = r["theta"].values - p.theta_star
    np.testing.assert_allclose(r["squared_error"].values, (error**2).sum(-1), rtol=1e-12)
    assert r.attrs["method"].startswith(kind)
    assert set(fl.simulate(p, method(kind, 7, "plain"), rounds=1, seeds=1, keep=("xi",), engine=engine).data_vars) == (
        set(expected) - {"theta"}
    )


@every_method
@every_engine
@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[3], CASES[10], CASES[18]], ids=name)
def test_communications_uploads_and_samples_count_what_is_sent_and_received(kind, engine, case):
    p, sampling, H, T, options = case
    algorithm, N = method(kind, H, options), problem(p).n_agents
    recorded = [0, 1, 4, T]
    r = run(kind, case, engine=engine, record=recorded)
    m = {"plain": N, "count": 2, "share": 3}[options]
    assert r["communications"].values.tolist() == [recorded] * 2
    assert r["uploads"].values.tolist() == [[t * m for t in recorded]] * 2
    for s, seed in enumerate(SEEDS):
        lengths = algorithm.observations(uniforms(seed, 0, T), sampling.thin)[:, None] * np.ones(N)
        if kind == "OwnStepsSCAFFLSA":
            lengths = np.rint(lengths * np.resize(algorithm.length_factors, N))
        drawn = np.tile(np.arange(N), (T, 1))
        if m < N:
            participants(np.uint64(seed), 0, N, drawn := np.empty((T, m), np.int64))
        received = [np.take_along_axis(lengths, drawn, 1)[:t].sum() / N for t in recorded]
        np.testing.assert_allclose(r["samples"].values[s], received, rtol=1e-13)


@pytest.mark.parametrize("kind", ["SCAFFLSA", "Scaffnew", "OwnStepsSCAFFLSA"])
@pytest.mark.parametrize("case", [CASES[0], CASES[7], CASES[20]], ids=name)
def test_with_one_local_step_methods_are_fedlsa(kind, case):
    p, sampling, _, T, options = case
    plain, algorithm = method("FedLSA", 1, options), method(kind, 1, options)
    if kind == "OwnStepsSCAFFLSA":
        algorithm = replace(algorithm, step_factors=(1.0,), length_factors=(1.0,))
    a, b = (fl.simulate(problem(p), m, rounds=T, seeds=SEEDS, sampling=sampling) for m in (algorithm, plain))
    np.testing.assert_allclose(a["theta"].values, b["theta"].values, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", ["garnet", "dense", *map(longer, ("mdps", "transitions", "regression", "long"))])
def test_problems_conform(kind):
    p = fl.problems.ring(agents=4, noise=0.3) if kind == "long" else problem(kind)  # its moments take seconds
    report = fl.check_problem(p)
    assert report, report
    if kind == "long":
        report = fl.check_problem(problem("long"), only=["means", "solution", "hurwitz", "read_only", "recipe"])
        assert report, report


@pytest.mark.parametrize("sampling", [fl.IID(), fl.Replay(thin=2), Reshuffled(), Prioritised(0.5)], ids=repr)
@pytest.mark.parametrize("kind", ["regression", longer("transitions")])
def test_samplings_conform(sampling, kind):
    if kind == "regression" and isinstance(sampling, fl.Replay):
        pytest.skip("its rows are no log")
    report = fl.check_sampling(sampling, problem(kind))
    assert report, report
    report = fl.check_method(method("Scaffnew", 3, "count"), problem(kind), sampling, 6, ["engines", "resumed", "bits"])
    assert report, report


@pytest.mark.long
@pytest.mark.parametrize("sampling", [fl.Markov(), fl.Markov(thin=3)], ids=repr)
def test_trajectories_conform(sampling):
    report = fl.check_sampling(sampling, problem("garnet"))
    assert report, report


def test_a_server_step_of_one_is_the_mean_itself():
    p = problem("garnet")
    a = fl.simulate(p, ServerStepSCAFFLSA(0.3, 7), rounds=20, seeds=2)["theta"].values
    b = fl.simulate(p, fl.SCAFFLSA(0.3, 7), rounds=20, seeds=2)["theta"].values
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("example", "shown"), [
    ("new_method", "ServerStepSCAFFLSA(step_size=0.1, local_steps=100, server_step_size=0.1)"),
    ("server_momentum", "MomentumSCAFFLSA(step_size=0.02, local_steps=10, momentum=0.9)"),
    ("own_steps", "OwnStepsSCAFFLSA"),
])  # fmt: skip
def test_an_example_of_a_new_method_runs_and_fits_its_page(example, shown, capsys):
    module = import_module(example)
    module.main(rounds=16, seeds=2)
    assert shown in capsys.readouterr().out
    assert len(Path(module.__file__).read_text().splitlines()) <= 50


@pytest.mark.parametrize(
    ("method", "option"), [(ServerStepSCAFFLSA, "server_step_size"), (MomentumSCAFFLSA, "momentum")]
)
def test_examples_check_their_options(method, option):
    with pytest.raises(fl.errors.ArgumentError, match=rf"{option} must be .*; got 1\.5"):
        method(0.1, 10, **{option: 1.5})


def test_a_result_of_an_outside_method_says_that_it_must_be_passed_again():
    p, a = problem("garnet"), OwnStepsSCAFFLSA(0.3, 4, length_factors=(1.0, 2.0))
    run = fl.simulate(p, a, rounds=3, seeds=2)
    assert run.identical(fl.simulate(**fl.results.arguments(run, algorithm=a)))
    with pytest.raises(fl.errors.ArgumentError, match="algorithm must be"):
        fl.results.arguments(run, algorithm=OwnStepsSCAFFLSA(0.3, 4))

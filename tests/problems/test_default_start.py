"""Runs begin at theta_star + 1 in a laboratory and at 0 on data, in every room alike, and every label says which."""

from dataclasses import replace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.engine.paths import round_paths
from fedlsa.figures.lines import common_setting

METHOD = fl.SCAFFLSA(0.1, 3)
RNG = np.random.default_rng(3)
SITES = [(RNG.standard_normal((6, 2)), RNG.standard_normal(6)) for _ in range(3)]
CHAIN = ([[[[0.5, 0.5]], [[0.2, 0.8]]]], [[[1.0], [0.0]]], np.ones((2, 1)), np.eye(2), 0.5)
PROBLEMS = {
    "garnet": (fl.problems.garnet(agents=2, states=4, features=2, seed=1), True),
    "ring": (fl.problems.ring(agents=2, noise=0.2), True),
    "decision processes": (fl.problems.from_mdps(*CHAIN), True),
    "rows": (fl.problems.regression(SITES, ridge=0.1), False),
    "files": (fl.site_problem(SITES, fl.Regression("y"), local="rows"), False),
    "means": (fl.site_problem(SITES, fl.Regression("y"), local="means"), False),
    "observations": (fl.problems.from_observations([([0.5, 0.5], [np.eye(2), 2 * np.eye(2)], np.ones((2, 2)))]), False),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_room_begins_where_the_problem_says(name):
    problem, laboratory = PROBLEMS[name]
    start = problem.theta_star + 1 if laboratory else np.zeros(problem.dim)
    label = "theta_star + 1" if laboratory else "0"
    assert problem.laboratory is laboratory
    assert (problem.start == start).all()
    run = fl.simulate(problem, METHOD, rounds=2, seeds=2, engine="reference")
    assert (run["theta"].values[:, 0] == start).all()
    exact = fl.theory.exact(problem, METHOD, rounds=2)
    estimated = fl.theory.exact(fl.theory.moments(problem), METHOD, rounds=2)
    for curve in (exact, estimated):
        np.testing.assert_allclose(curve["mean"].values[0], start, rtol=1e-15, atol=1e-15)
    assert (round_paths(problem, METHOD, rounds=1).theta[0] == start).all()
    assert [d.attrs["start"] for d in (run, exact, estimated)] == [label] * 3
    words = "start: " + label.replace("theta_star", "θ⋆")
    assert words in common_setting([run])
    assert words in common_setting([exact])
    assert ("runs start at", label) in problem._display()[1]
    away = float(np.linalg.norm(start - problem.theta_star))
    plan, told = fl.plan(problem, 0.5 * away), fl.plan(problem, 0.5 * away, theta_0=start)
    assert (plan.rounds, plan.algorithm, plan.start) == (told.rounds, told.algorithm, label)


def test_a_start_that_is_given_is_named_by_its_numbers():
    problem, _ = PROBLEMS["rows"]
    starts = {"theta_star + 1": problem.theta_star + 1, "0": np.zeros(2), "given": np.ones(2)}
    for label, theta_0 in starts.items():
        assert fl.simulate(problem, METHOD, 1, 1, theta_0=theta_0, engine="reference").attrs["start"] == label
        assert fl.theory.exact(problem, METHOD, 1, theta_0=theta_0).attrs["start"] == label


def test_a_result_holds_its_start():
    problem, _ = PROBLEMS["rows"]
    how = {"rounds": 4, "seeds": 2, "engine": "reference"}
    run = fl.simulate(problem, METHOD, **how)
    assert run.attrs["start"] == "0"
    assert fl.simulate(**fl.results.arguments(run, problem=problem)).identical(run)
    both = {"rows": problem, "ring": PROBLEMS["ring"][0]}
    sweep = fl.sweep(both, fl.SCAFFLSA, step_size=[0.1, 0.2], local_steps=3, **how)
    assert [r.attrs["start"] for r in fl.results.runs(sweep)] == ["0"] * 2 + ["theta_star + 1"] * 2
    assert fl.sweep(**fl.results.arguments(sweep, problem=both)).identical(sweep)

    laboratory = fl.simulate(PROBLEMS["ring"][0], METHOD, **how)
    bare = replace(PROBLEMS["ring"][0], laboratory=False)  # the same tables, of which nobody says where runs begin
    again = fl.simulate(**fl.results.arguments(laboratory, problem=bare))
    assert np.array_equal(again["theta"].values, laboratory["theta"].values)

    run.attrs.pop("start")
    with pytest.raises(fl.errors.ArgumentError, match="got a dataset without start"):
        fl.results.arguments(run, problem=problem)

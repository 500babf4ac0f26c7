"""What the page shows is what the library computes: curves, limits, seeds, paths and plans."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.explore import answers, page, scene_data
from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import METHODS, PageSettings

RING = PageSettings(agents=3, noise=0.3, local_steps=10, rounds=12, seeds=4)
GARNET = PageSettings(problem="garnet", agents=2, features=8, step_size=0.5, local_steps=6, rounds=5, seeds=3)


def quiet(done, total):
    """Progress that nobody looks at."""


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_curve_is_the_exact_error(name, scale):
    s = replace(RING, scale=scale)
    c = answers.curve(Question.of(s), name)
    expected = fl.theory.exact(
        fl.problems.ring(agents=3, noise=0.3, ideal=True),
        s.method(name),
        rounds=12,
        record=s.record() if scale == "log" else 200,
    )
    xr.testing.assert_identical(c.exact, expected)
    assert (c.method, c.runs, c.blown_up) == (name, None, None)


def test_only_the_bias_of_fedlsa_is_predicted():
    bias = fl.theory.bias(fl.problems.ring(agents=3, noise=0.3, ideal=True), RING.step_size, RING.local_steps)
    found = {name: answers.curve(Question.of(RING), name).bias for name in METHODS}
    assert found["FedLSA"] == bias @ bias
    assert math.isnan(found["SCAFFLSA"])
    assert math.isnan(found["Scaffnew"])


@pytest.mark.parametrize("name", METHODS)
def test_trajectories_of_several_agents_are_simulated(name):
    s = replace(GARNET, sampling="markov", thin=2)
    c = answers.curve(Question.of(s), name)
    expected = fl.simulate(Question.of(s).problem(), s.method(name), 5, 3, sampling=fl.Markov(thin=2))
    assert c.exact is None
    xr.testing.assert_identical(c.runs, expected)
    assert math.isnan(c.bias)
    assert c.blown_up is None


def test_sites_without_a_trajectory_say_so():
    with pytest.raises(ArgumentError, match="observations must be independent for sites without a trajectory"):
        answers.curve(Question.of(replace(RING, sampling="markov")), "FedLSA")


def test_agents_on_trajectories_make_as_many_steps_as_they_use_observations():
    s = replace(GARNET, sampling="markov", thin=5, local_steps=50)
    assert answers.agents(Question.of(s)) == answers.agents(Question.of(replace(GARNET, local_steps=10)))


def test_a_bias_of_rounding_errors_is_none():
    equal = replace(GARNET, heterogeneous=False, perturbation=0.0, step_size=0.05, local_steps=500)
    assert answers.curve(Question.of(equal), "FedLSA").bias == 0


def test_an_unstable_setting_blows_up_at_the_round_that_theory_gives():
    s = replace(RING, step_size=3.0, local_steps=2)
    c = answers.curve(Question.of(s), "SCAFFLSA")
    mse = fl.theory.exact(fl.problems.ring(agents=3, noise=0.3, ideal=True), fl.SCAFFLSA(3.0, 2), rounds=12)[
        "mse"
    ].values
    first = next(t for t, value in enumerate(mse) if not value <= 1000 * mse[0])
    assert c.blown_up == first > 0


@pytest.mark.parametrize("name", METHODS)
def test_a_limit_separates_stable_from_unstable_step_sizes(name):
    q = Question.of(RING)
    found = answers.limit(q, name)
    assert found == pytest.approx(fl.theory.stability_limit(q.problem(), RING.method(name)), rel=answers.DIGITS)
    for share, stable in ((1 - 1.01 * answers.DIGITS, True), (1 + 1e-9, False)):
        method = replace(RING.method(name), step_size=share * found)
        assert math.isfinite(fl.theory.stationary(q.problem(), method).mse) == stable


def test_the_limit_does_not_depend_on_the_step_size_at_hand():
    a, b = (answers.limit(Question.of(replace(RING, step_size=eta)), "FedLSA") for eta in (0.01, 50.0))
    assert a == b


@pytest.mark.parametrize("s", [RING, replace(GARNET, sampling="markov", thin=2, scale="log")])
def test_seeds_on_top_are_those_of_a_grid(s):
    told = []
    found = answers.simulations(Question.of(s), progress=lambda *now: told.append(now))
    p = Question.of(s).problem()
    expected = fl.simulate_grid(p, s.methods(), s.rounds, s.seeds, sampling=s.order(), record=s.record())
    for a, b in zip(found, expected, strict=True):
        xr.testing.assert_identical(a, b)
    assert told
    assert told[-1][0] == told[-1][1] > 0


def test_runs_that_diverge_are_no_warning_of_the_page(recwarn):
    (run, *_) = answers.simulations(
        Question.of(replace(RING, step_size=50.0, local_steps=200, seeds=2)), progress=quiet
    )
    assert (run["diverged_at"].values >= 0).all()
    assert not recwarn.list


@pytest.mark.parametrize(("agents", "rounds"), [(1, 4), (5, 50), (50, 20), (200, 20)])
def test_many_agents_are_sent_with_fewer_rounds_and_points(agents, rounds):
    sent = answers.agents(Question.of(replace(RING, agents=agents, rounds=min(rounds, 60) if agents == 1 else 60)))
    plane = json.loads(sent)
    assert [a["name"] for a in plane["agents"]] == [f"agent {c + 1}" for c in range(agents)]
    assert [len(m["walks"]) for m in plane["methods"]] == [rounds, rounds]
    assert len(sent) < 500_000


def test_an_end_is_marked_where_second_moments_have_a_limit_and_else_the_reason_is_said():
    for step_size, marked in ((0.05, True), (0.3, False)):  # means have a limit at both
        s = replace(RING, step_size=step_size)
        assert fl.theory.stationary(Question.of(s).problem(), s.method("FedLSA")).stable == marked
        fedlsa, scafflsa = json.loads(answers.agents(Question.of(s)))["methods"]
        assert (fedlsa.get("end") is not None, "unstable" in fedlsa.get("end_reason", "")) == (marked, not marked)
        assert "end" not in scafflsa


def test_a_plan_is_that_of_the_library_or_the_reason_why_there_is_none():
    q = Question.of(RING)
    found = answers.plan(q, 0.3, "FedLSA")
    expected = fl.plan(q.problem(), 0.3, method="fedlsa")
    assert (found.algorithm, found.rounds) == (expected.algorithm, expected.rounds)
    why = answers.plan(q, 1e-9, "FedLSA")
    with pytest.raises(ArgumentError) as caught:
        fl.plan(q.problem(), 1e-9, method="fedlsa")
    assert why == str(caught.value)
    assert "\n" not in why


def test_the_trade_off_is_that_of_the_library():
    q = Question.of(RING)
    found, expected = answers.trade_off(q, 0.3, "SCAFFLSA"), fl.trade_off(q.problem(), 0.3, "scafflsa")
    assert [(p.algorithm, p.rounds) for p in found] == [(p.algorithm, p.rounds) for p in expected]
    for p in found:
        assert page._cells(p)[2:4] == [str(p.rounds), f"{p.samples:,.0f}"]


def test_questions_about_looks_alone_are_one_question():
    s = replace(RING, x="bytes", epsilon=0.5, round=7)
    assert Question.of(s) == Question.of(RING)
    assert hash(Question.of(s)) == hash(Question.of(RING))
    assert Question.of(replace(RING, rounds=13)) != Question.of(RING)
    assert Question.of(replace(RING, rounds=13)).without("rounds") == Question.of(RING).without("rounds")


def test_an_error_that_is_no_number_counts_as_blown_up():
    curve = answers.curve(Question.of(RING), "FedLSA")
    curve.of("mse")[5] = np.nan
    assert curve.blown_up == 5


def test_runs_on_files_start_at_zero_as_fits_do(tmp_path):
    files = []
    for name in ("a.csv", "b.csv"):
        rows = np.random.default_rng(len(files)).normal(size=(9, 2)) @ [[1, 3.0], [0, 1.0]]
        np.savetxt(tmp_path / name, rows, delimiter=",", header="x,y", comments="")
        files.append(str(tmp_path / name))
    s = PageSettings(problem="files", target="y", agents=2, local_steps=5, rounds=6, seeds=2)
    q = Question.of(s, tuple(files))
    p = q.problem()
    square = float(p.theta_star @ p.theta_star)
    assert float(answers.curve(q, "FedLSA").exact["mse"][0]) == pytest.approx(square)
    for r in answers.simulations(q, progress=quiet):
        np.testing.assert_array_equal(r["theta"].values[:, 0], 0)
    zero = np.zeros(p.dim)
    expected = fl.plan(p, 0.3, method="fedlsa", theta_0=zero)
    assert str(answers.plan(q, 0.3, "FedLSA")) == str(expected)
    assert min(p.rounds for p in answers.trade_off(q, 0.3, "FedLSA")) <= expected.rounds
    plane = json.loads(answers.agents(q))
    assert [a["name"] for a in plane["agents"]] == ["a", "b"]
    start = plane["methods"][0]["average"][0]
    assert np.linalg.norm(start) == pytest.approx(np.linalg.norm(p.theta_star))
    assert scene_data.start_line({"FedLSA": answers.curve(q, "FedLSA")}) == "Runs start: 0"
    ring = answers.curve(Question.of(RING), "FedLSA")
    assert scene_data.start_line({"FedLSA": ring}) == "Runs start: θ⋆ + 1"

"""What scene.js is sent: agents where theory has them, exact curves with their parts, and nothing that JSON has not."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.engine.paths import round_paths
from fedlsa.errors import ArgumentError
from fedlsa.explore.answers import Curve, Question, curve
from fedlsa.explore.page_settings import METHODS, PageSettings
from fedlsa.explore.scene_data import error_data, scene_text
from fedlsa.explore.scene_plane import UNSTABLE, plane_data
from fedlsa.figures import agent_plane

BOTH = [fl.FedLSA(0.1, 100), fl.SCAFFLSA(0.1, 100)]
SETTINGS = PageSettings(agents=3, rounds=12, local_steps=20, seeds=4)


def runs_of(agents, methods=BOTH, rounds=5, **settings):
    problem = fl.problems.garnet(agents=agents, features=8, **{"perturbation": 0.3, **settings})
    return [round_paths(problem, m, rounds, points=12) for m in methods]


@pytest.fixture(scope="module")
def runs():
    return runs_of(3)


@pytest.fixture(scope="module")
def curves():
    return {name: curve(Question.of(SETTINGS), name) for name in METHODS}


def strict(data):
    """The data after a journey through JSON, which knows finite numbers alone."""
    return json.loads(json.dumps(data, allow_nan=False))


def test_agents_averages_and_solutions_are_those_of_the_paths_in_the_plane(runs):
    sent = strict(plane_data(runs, ["a", "b", "c"], {"FedLSA": True}))
    problem, plane = runs[0].problem, agent_plane.plane_of(runs[0].problem, [r.theta[0] for r in runs])
    for method, run in zip(sent["methods"], runs, strict=True):
        np.testing.assert_allclose(method["average"], plane.project(run.theta), atol=1e-11)
        walks = np.reshape(method["walks"], (5, 3, 13, 2))
        width = np.ptp(walks[..., 0])
        np.testing.assert_allclose(walks, plane.project(run.local), atol=1e-4 * width)
    assert [a["name"] for a in sent["agents"]] == ["a", "b", "c"]
    np.testing.assert_allclose([a["own"] for a in sent["agents"]], plane.project(problem.theta_star_local), atol=1e-11)
    assert [a["weight"] for a in sent["agents"]] == problem.weights.tolist()
    end = problem.theta_star + fl.theory.bias(problem, 0.1, 100)
    np.testing.assert_allclose(sent["methods"][0]["end"], plane.project(end), atol=1e-11)
    assert "end" not in sent["methods"][1]
    assert "means" in sent["caption"]
    assert f"{100 * plane.share:.0f} % of how own solutions differ" in sent["caption"]


def test_where_second_moments_have_no_limit_no_end_is_marked_but_the_reason_is_said(runs):
    fedlsa, _ = strict(plane_data(runs, "abc", {"FedLSA": False}))["methods"]
    assert (fedlsa["end"], fedlsa["end_reason"]) == (None, UNSTABLE)


@pytest.mark.filterwarnings("error")
def test_a_run_that_diverges_and_agents_without_a_solution_can_be_sent():
    problem = fl.problems.garnet(agents=3, features=8, perturbation=0.3)
    wild = round_paths(problem, fl.SCAFFLSA(50.0, 200), 8)
    assert not np.isfinite(wild.theta[-1]).all()
    sent = strict(plane_data([round_paths(problem, BOTH[0], 8), wild], "abc", {}))
    assert sent["methods"][1]["average"][-1] == [None, None]
    drawn = [abs(v) for row in sent["methods"][1]["walks"] for walk in row for v in walk if v is not None]
    assert max(drawn) < 1000 * max(abs(v) for xy in sent["methods"][0]["average"] for v in xy)
    flat, whole = (np.array([[1.0, 0, 0]]), np.array([2.0])), (np.eye(3), np.array([1.0, 0, 0]))
    some = fl.problems.regression([flat, whole])  # one row in three dimensions: many solutions
    own = [a["own"] for a in strict(plane_data([round_paths(some, BOTH[0], 3)], "ab", {}))["agents"]]
    assert (own[0], len(own[1])) == (None, 2)


def test_a_line_is_no_plane():
    line = fl.problems.regression([(np.ones((2, 1)), np.ones(2))])
    with pytest.raises(ArgumentError, match="at least 2 dimensions to be seen in a plane; got 1"):
        plane_data([round_paths(line, BOTH[0], 2)], "a", {})


@pytest.mark.parametrize("x", ["communications", "samples", "bytes"])
def test_the_error_is_that_of_theory_against_each_cost(curves, x):
    sent = strict(error_data(replace(SETTINGS, x=x), curves))
    assert [m["name"] for m in sent["methods"]] == list(METHODS)
    for m in sent["methods"]:
        exact = curves[m["name"]].exact
        assert (m["x"], m["total"]) == (exact[x].values.tolist(), exact["mse"].values.tolist())
        assert sent["rounds"] == exact["rounds"].values.tolist()
        assert ("floor" in m) == (m["name"] == "FedLSA")
        if "parts" in m:
            np.testing.assert_allclose(np.sum(list(m["parts"].values()), axis=0), m["total"], rtol=1e-9)
    assert sent["methods"][0]["floor"] == curves["FedLSA"].bias


def test_simulated_seeds_lie_on_top_or_stand_for_the_curve(curves):
    run = fl.simulate(Question.of(SETTINGS).problem(), SETTINGS.method("FedLSA"), 12, seeds=4, record=13)
    error = run["squared_error"].values
    for known, line in ((curves, "mean"), ({"FedLSA": Curve("FedLSA", None, run, math.nan)}, "total")):
        (m,) = [m for m in strict(error_data(SETTINGS, known, [run]))["methods"] if m["name"] == "FedLSA"]
        np.testing.assert_allclose(m[line], error.mean(axis=0))
        np.testing.assert_allclose([m["low"], m["high"]], np.quantile(error, [0.1, 0.9], axis=0))


def test_a_method_that_blows_up_is_marked_and_its_numbers_end_where_numbers_do():
    s = replace(SETTINGS, step_size=50.0, local_steps=500)
    sent = strict(error_data(s, {"FedLSA": curve(Question.of(s), "FedLSA")}))
    assert sent["methods"][0]["unstable_from"] == 1
    assert sent["methods"][0]["total"][-1] is None


def test_the_text_holds_what_is_known_and_says_what_is_not(curves):
    nothing = json.loads(scene_text(SETTINGS, {}))
    assert (nothing["error"], "plane" in nothing) == (None, False)
    assert nothing["title"] == "Sites in a plane: step size 0.05, 20 local steps"
    assert json.loads(scene_text(SETTINGS, curves, "one dimension"))["plane"] is None
    all_of_it = json.loads(scene_text(SETTINGS, curves, b'{"agents": []}', (), ["FedLSA"]))
    assert (all_of_it["plane"], all_of_it["unstable"]) == ({"agents": []}, {"FedLSA": UNSTABLE})

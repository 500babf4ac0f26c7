"""What scene.js is sent: agents where theory has them, exact curves with their parts, and nothing that JSON has not."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.engine.paths import round_paths
from fedlsa.errors import ArgumentError
from fedlsa.explore.answers import UNSTABLE, Curve, Question, agents, curve, plane_data
from fedlsa.explore.page_settings import METHODS, PageSettings
from fedlsa.explore.scene_data import Curves, error_data, known_line, seeds_data
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


def test_simulated_seeds_have_a_mean_and_a_band_or_stand_for_the_curve():
    run = fl.simulate(Question.of(SETTINGS).problem(), SETTINGS.method("FedLSA"), 12, seeds=4, record=13)
    error = run["squared_error"].values
    (m,) = strict(error_data(SETTINGS, {"FedLSA": Curve("FedLSA", None, run, math.nan)}))["methods"]
    for shown, line in ((strict(seeds_data([run]))["FedLSA"], "mean"), (m, "total")):
        np.testing.assert_allclose(shown[line], error.mean(axis=0))
        np.testing.assert_allclose([shown["low"], shown["high"]], np.quantile(error, [0.1, 0.9], axis=0))


def test_a_method_that_blows_up_is_marked_and_its_numbers_end_where_numbers_do():
    s = replace(SETTINGS, step_size=50.0, local_steps=500)
    sent = strict(error_data(s, {"FedLSA": curve(Question.of(s), "FedLSA")}))
    assert sent["methods"][0]["unstable_from"] == 1
    assert "parts" not in sent["methods"][0]  # one of them would cover the picture
    assert sent["methods"][0]["total"][-1] is None


def test_a_line_holds_what_is_known_and_not_what_the_line_before_it_held(curves):
    q = Question.of(SETTINGS)
    known = Curves(q, dict(curves), agents=b'{"agents": []}')
    whole = json.loads(known_line(known, Curves(q)))
    assert whole["known"]["title"] == "Sites in a plane: step size 0.05, 20 local steps"
    assert whole["plane"] == {"agents": []}
    assert [m["name"] for m in whole["known"]["error"]["methods"]] == list(METHODS)
    more = json.loads(known_line(replace(known, limits=dict.fromkeys(METHODS, 0.01)), known))
    assert ("plane" in more, "error" in more["known"]) == (False, False)
    assert more["known"]["unstable"] == dict.fromkeys(METHODS, UNSTABLE)
    assert "unstable" in more["known"]["words"][0]
    assert json.loads(known_line(replace(known, agents="one dimension"), Curves(q)))["plane"] is None


def test_a_method_is_called_unstable_by_its_limit_and_until_that_is_known_by_its_curve():
    q = Question.of(PageSettings(agents=3, rounds=5, local_steps=5, step_size=1.0))
    known = Curves(q, {name: curve(q, name) for name in METHODS})
    assert known.unstable == [name for name in METHODS if known.by_method[name].blown_up is not None] != []
    assert replace(known, limits=dict.fromkeys(METHODS, 2.0)).unstable == []
    assert replace(known, limits={"SCAFFLSA": 0.5, "FedLSA": 2.0, "Scaffnew": 2.0}).unstable == ["SCAFFLSA"]


def test_a_moved_solution_is_seen_where_it_was_put_in_a_plane_that_stays():
    before, after = Question.of(SETTINGS), Question.of(replace(SETTINGS, moves="2:0.5,-0.25"))
    one, two = (strict(json.loads(agents(q))) for q in (before, after))
    assert one["axes"] == two["axes"]
    shift = np.array(two["axes"]) @ [0.5, -0.25]
    np.testing.assert_allclose(np.subtract(two["agents"][1]["own"], one["agents"][1]["own"]), shift, atol=1e-9)
    assert two["agents"][0]["own"] == one["agents"][0]["own"]
    star = after.problem().theta_star - before.problem().theta_star
    np.testing.assert_allclose(two["theta_star"], np.array(two["axes"]) @ star, atol=1e-9)

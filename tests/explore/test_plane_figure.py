"""The moving picture shows the paths in the plane, a frame for each moment, and stays small enough to send."""

import base64
import json
import sys

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.engine.paths import round_paths, uncorrected
from fedlsa.errors import ArgumentError, ArgumentTypeError, MissingExtraError
from fedlsa.figures import agent_plane, theme

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from fedlsa.explore.plane import agents_figure

METHODS = [fl.FedLSA(0.1, 100), fl.SCAFFLSA(0.1, 100), fl.Scaffnew(0.1, 0.01)]


def runs_of(agents, methods=METHODS[:2], rounds=5, **settings):
    problem = fl.problems.garnet(agents=agents, features=8, **{"perturbation": 0.3, **settings})
    return [round_paths(problem, m, rounds, points=36) for m in methods]


@pytest.fixture(scope="module")
def runs():
    return runs_of(3, METHODS)


@pytest.fixture(scope="module")
def figure(runs):
    return agents_figure(runs[:2], round=2)


def array(value):
    """Numbers of a trace, also as Plotly packs them."""
    if isinstance(value, dict):
        return np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"])
    return np.array(value, np.float64)


def points(trace):
    return np.stack([array(trace["x"]), array(trace["y"])], axis=1)


def sent(figure):
    return json.loads(figure.to_json())


def stop(figure, t):
    """The frame at which the slider stops for round t, as it is sent."""
    (name,) = figure["layout"]["sliders"][0]["steps"][t - 1]["args"][0]
    (frame,) = [f for f in figure["frames"] if f["name"] == name]
    return frame


def moved(figure, frame, axis):
    """What a frame gives to the traces of one panel, with the look of those traces."""
    for place, new in zip(frame["traces"], frame["data"], strict=True):
        if figure["data"][place]["xaxis"] == axis:
            yield figure["data"][place], points(new)


def lines(figure, frame, axis, dash=None):
    return [
        xy for look, xy in moved(figure, frame, axis) if look["mode"] == "lines" and look["line"].get("dash") == dash
    ]


def close(got, wanted):
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_uncorrected_paths_are_the_local_steps_of_fedlsa_from_the_same_point(runs, method):
    run = runs[METHODS.index(method)]
    free = uncorrected(run)
    assert free.shape == run.local.shape
    for t in range(run.rounds):
        plain = fl.FedLSA(0.1, int(run.steps[t, -1]))
        one = round_paths(run.problem, plain, 1, theta_0=run.theta[t], points=36)
        np.testing.assert_allclose(free[t], one.local[0], rtol=0, atol=1e-12)
    if not isinstance(method, fl.FedLSA):
        assert np.abs(free[1:] - run.local[1:]).max() > 0.01


def test_uncorrected_paths_need_paths_without_noise_and_leave_out_who_sat_out():
    problem = fl.problems.garnet(agents=4, features=8)
    with pytest.raises(ArgumentError, match="paths must be without noise"):
        uncorrected(round_paths(problem, fl.SCAFFLSA(0.1, 3), 1, noise=True))
    with pytest.raises(ArgumentTypeError, match="paths must be what round_paths returns"):
        uncorrected("paths")
    some = round_paths(problem, fl.SCAFFLSA(0.1, 3, participants=2), 6)
    assert (np.isnan(uncorrected(some)) == np.isnan(some.local)).all()


def test_each_stop_of_the_slider_shows_the_paths_of_its_round_in_the_plane(runs, figure):
    plane, shown = agent_plane.plane_of(runs[0].problem, [r.theta[0] for r in runs]), sent(figure)
    assert len(shown["layout"]["sliders"][0]["steps"]) == 5
    for axis, run in zip(("x", "x2"), runs, strict=False):
        for t in range(1, 6):
            frame = stop(shown, t)
            for got, path in zip(lines(shown, frame, axis), plane.project(run.local[t - 1]), strict=True):
                close(got, path)
            marks = [(look, xy) for look, xy in moved(shown, frame, axis) if look["mode"] != "lines"]
            average, begin, end = [xy for look, xy in marks if look["marker"].get("symbol") != "arrow"]
            close(average, plane.project(run.theta[: t + 1]))
            close(begin, plane.project(run.theta[t - 1 : t]))
            close(end, plane.project(run.theta[t : t + 1]))
            words = frame["layout"]["annotations"][0 if axis == "x" else 1]["text"]
            assert words == agent_plane.round_summary(run, t)


def test_what_is_shown_first_is_the_round_that_was_asked_for(runs, figure):
    shown = sent(figure)
    frame = stop(shown, 2)
    assert shown["layout"]["sliders"][0]["active"] == 1
    assert [shown["layout"]["annotations"][i]["text"] for i in (0, 1)] == [
        agent_plane.round_summary(r, 2) for r in runs[:2]
    ]
    for place, new in zip(frame["traces"], frame["data"], strict=True):
        np.testing.assert_array_equal(points(shown["data"][place]), points(new))


def test_between_two_stops_the_agents_walk_and_the_average_waits(runs, figure):
    shown = sent(figure)
    plane = agent_plane.plane_of(runs[0].problem, [r.theta[0] for r in runs])
    walking = [f for f in shown["frames"] if f["name"].startswith("3.")]
    assert len(walking) == 5
    paths = plane.project(runs[1].local[2])
    for m, frame in enumerate(walking, 1):
        for got, path in zip(lines(shown, frame, "x2"), paths, strict=True):
            close(got, path[: 6 * m + 1])
    (average,) = [xy for look, xy in moved(shown, walking[0], "x2") if look["mode"] == "lines+markers"]
    close(average, plane.project(runs[1].theta[:3]))


def test_dotted_lines_show_the_round_without_control_variates_where_there_are_any(runs, figure):
    shown = sent(figure)
    plane = agent_plane.plane_of(runs[0].problem, [r.theta[0] for r in runs])
    free = plane.project(uncorrected(runs[1]))
    for t in (1, 4):
        for got, path in zip(lines(shown, stop(shown, t), "x2", "dot"), free[t - 1], strict=True):
            close(got, path)
    assert lines(shown, stop(shown, 4), "x", "dot") == []
    assert "Dotted" in shown["layout"]["annotations"][-1]["text"]
    alone = agents_figure(runs[:1])
    assert "Dotted" not in alone.layout.annotations[-1].text


def test_the_end_of_fedlsa_the_solution_and_the_agents_are_named(runs, figure):
    words = [a.text for a in figure.layout.annotations]
    for text in ("<b>θ*</b>", "agent 1", "agent 3", "<b>FedLSA<br>ends here</b>"):
        assert text in words
    assert "<b>SCAFFLSA<br>ends here</b>" not in words
    (cross,) = [t for t in figure.data if t.marker.symbol == "x"]
    plane = agent_plane.plane_of(runs[0].problem, [r.theta[0] for r in runs])
    end = runs[0].problem.theta_star + fl.theory.bias(runs[0].problem, 0.1, 100)
    close(points(cross), plane.project(end)[None])
    own = figure.data[0]
    close(points(own), plane.project(runs[0].problem.theta_star_local))
    far = np.linalg.norm(runs[0].problem.theta_star_local - runs[0].problem.theta_star, axis=1)
    assert list(own.customdata) == [f"{v:.2g}" for v in far]
    assert figure.data[1].line.color == theme.METHODS["FedLSA"]


def test_own_solutions_far_out_stand_at_the_edge_in_their_direction():
    runs = runs_of(2, preset="authors", perturbation=0.02)
    figure = agents_figure(runs)
    plane = agent_plane.plane_of(runs[0].problem, [r.theta[0] for r in runs])
    own, at = plane.project(runs[0].problem.theta_star_local), points(figure.data[0])
    left, right = figure.layout.xaxis.range
    assert (np.abs(own[:, 0]) > right - left).all()
    assert ((at[:, 0] > left) & (at[:, 0] < right)).all()
    np.testing.assert_allclose(at / np.linalg.norm(at, axis=1)[:, None], own / np.linalg.norm(own, axis=1)[:, None])
    assert set(figure.data[0].marker.symbol) == {"arrow"}
    assert any("agent 1, 24 away" in a.text for a in figure.layout.annotations)


def test_lengths_are_equal_in_both_directions_and_panels_stand_side_by_side_or_one_above_the_other(runs):
    for width, count, across in (("wide", 1, 1), ("wide", 2, 2), ("wide", 3, 3), ("narrow", 2, 1), ("narrow", 3, 1)):
        layout = agents_figure(runs[:count], width=width).layout
        inner = layout.width - layout.margin.l - layout.margin.r, layout.height - layout.margin.t - layout.margin.b
        scales = set()
        for i in range(count):
            x, y = layout[f"xaxis{i + 1 if i else ''}"], layout[f"yaxis{i + 1 if i else ''}"]
            for axis, pixels in ((x, inner[0]), (y, inner[1])):
                share = axis.domain[1] - axis.domain[0]
                scales.add(round(share * pixels / (axis.range[1] - axis.range[0]), 6))
        assert len(scales) == 1
        starts = {round(layout[f"xaxis{i + 1 if i else ''}"].domain[0], 6) for i in range(count)}
        assert len(starts) == across
        assert layout.width == (900 if width == "wide" else 358)


def test_fifty_agents_and_twenty_rounds_stay_under_two_megabytes():
    runs = runs_of(50, rounds=20)
    text = agents_figure(runs).to_json()
    assert len(text) < 2_000_000
    shown = json.loads(text)
    frame = stop(shown, 7)
    plane = agent_plane.plane_of(runs[0].problem, [r.theta[0] for r in runs])
    heads = [xy for look, xy in moved(shown, frame, "x2") if look["marker"].get("symbol") == "arrow"]
    close(heads[0], plane.project(runs[1].local[6, :, -1]))
    drawn = np.concatenate(lines(shown, frame, "x"))
    assert len(drawn[np.isfinite(drawn).all(axis=1)]) == 50 * 13
    assert not any(a["text"].startswith("agent 1") for a in shown["layout"]["annotations"])


@pytest.mark.filterwarnings("error")
def test_a_run_that_diverges_is_left_out_where_numbers_end():
    problem = fl.problems.garnet(agents=3, features=8, perturbation=0.3)
    wild = round_paths(problem, fl.SCAFFLSA(50.0, 200), 8)
    assert not np.isfinite(wild.theta[-1]).all()
    tame = round_paths(problem, fl.SCAFFLSA(0.1, 200), 8)
    shown = sent(agents_figure([tame, wild], round=8))
    assert "run away" in stop(shown, 8)["layout"]["annotations"][1]["text"]
    box = shown["layout"]["xaxis"]["range"]
    assert 0 < box[1] - box[0] < 40
    for frame in shown["frames"]:
        for trace in frame["data"]:
            xy = points(trace)
            assert np.abs(xy[np.isfinite(xy)]).max(initial=0) < 100 * (box[1] - box[0])


def test_one_agent_and_one_round_make_a_picture(runs):
    (run,) = runs_of(1, METHODS[1:2], rounds=1)
    figure = agents_figure([run])
    assert "Curve: the agent" in figure.layout.annotations[-1].text
    assert len(figure.layout.sliders[0].steps) == 1


@pytest.mark.filterwarnings("error")
def test_agents_without_a_solution_of_their_own_and_equal_agents_are_shown():
    flat = (np.array([[1.0, 0, 0]]), np.array([2.0]))  # one row in three dimensions: many solutions
    whole = (np.eye(3), np.array([1.0, 0, 0]))
    for sites in ([flat, whole], [whole, whole]):
        problem = fl.problems.regression(sites)
        shown = sent(agents_figure([round_paths(problem, m, 3) for m in (fl.FedLSA(0.1, 5), fl.SCAFFLSA(0.1, 5))]))
        assert len(lines(shown, stop(shown, 2), "x")) == 2
        box = shown["layout"]["xaxis"]["range"]
        assert box[0] < 0 < box[1]


@pytest.mark.filterwarnings("error")
def test_agents_that_sit_a_round_out_are_not_drawn_in_it():
    (run,) = runs_of(4, [fl.SCAFFLSA(0.1, 20, participants=2)])
    shown = sent(agents_figure([run]))
    for t in range(1, 6):
        drawn = [np.isfinite(xy).all() for xy in lines(shown, stop(shown, t), "x")]
        assert drawn == (~np.isnan(run.local[t - 1, :, 0, 0])).tolist()


def test_play_shows_the_frames_of_this_figure_alone_in_their_order(figure):
    names = [f.name for f in figure.frames]
    assert len(set(names)) == len(names) == 5 * (6 + 3)
    play, pause = figure.to_dict()["layout"]["updatemenus"][0]["buttons"]
    assert play["args"][0] == names  # a page may still hold frames of the figure before
    assert pause["args"][0] == [None]
    assert {name.split()[-1] for name in names} < set("abcdefgh")


def test_plotly_accepts_what_was_built_without_its_checks(figure):
    import plotly.graph_objects as go

    go.Figure(figure.to_dict(), skip_invalid=False)


def test_wrong_arguments_are_named(runs, monkeypatch):
    with pytest.raises(ArgumentError, match="paths must hold at least one run"):
        agents_figure([])
    with pytest.raises(ArgumentError, match="paths must hold at most 3 runs; got 4"):
        agents_figure([*runs, runs[0]])
    with pytest.raises(ArgumentError, match="round must be a positive integer and at most 5; got 6"):
        agents_figure(runs, round=6)
    with pytest.raises(ArgumentError, match="width must be one of 'wide', 'narrow'; got 'broad'"):
        agents_figure(runs, width="broad")
    line = fl.problems.regression([(np.ones((2, 1)), np.ones(2))])
    with pytest.raises(ArgumentError, match="at least 2 dimensions to be seen in a plane; got 1"):
        agents_figure([round_paths(line, fl.FedLSA(0.1, 2), 2)])
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedlsa\[explore\]'"):
        agents_figure(runs)

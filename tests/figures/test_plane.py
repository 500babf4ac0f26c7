"""The plane holds what it says it holds, and the figure shows the paths and never makes any."""

import re
from pathlib import Path

import numpy as np
import pytest

import fedlsa as fl
from fedlsa import figures
from fedlsa.engine.paths import round_paths
from fedlsa.errors import ArgumentError, ArgumentTypeError
from fedlsa.figures.agent_plane import fixed_point, plane_of, plane_words

ROOT = Path(__file__).parents[2]
ROUNDING = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(scope="module")
def problem():
    return fl.problems.ring(3)


@pytest.fixture(scope="module")
def runs(problem):
    return [round_paths(problem, m, rounds=6) for m in (fl.FedLSA(0.05, 100), fl.SCAFFLSA(0.05, 100))]


def drawn(axes, label):
    (found,) = [one for one in axes.get_lines() if one.get_label() == label]
    return np.array(found.get_data()).T


def near(found, wanted):
    """Equal but for rounding: BLAS projects a point alone and a point among many in other orders of summation."""
    np.testing.assert_allclose(found, wanted, **ROUNDING)


def words(figure):
    legend = [t.get_text() for one in figure.legends for t in one.get_texts()]
    return "\n".join([*legend, *(t.get_text() for thing in (figure, *figure.axes) for t in thing.texts)])


def test_axes_are_orthonormal_and_principal():
    problem = fl.problems.garnet(agents=6, features=8, perturbation=0.3)
    plane = plane_of(problem)
    np.testing.assert_allclose(plane.axes @ plane.axes.T, np.eye(2), atol=1e-12)
    X = problem.theta_star_local - problem.theta_star
    C = X.T @ (problem.weights[:, None] * X)
    values = np.linalg.eigvalsh(C)[::-1]
    assert plane.share == pytest.approx(values[:2].sum() / values.sum())
    np.testing.assert_allclose(np.einsum("ki,ij,kj->k", plane.axes, C, plane.axes), values[:2])
    np.testing.assert_allclose(plane.project(problem.theta_star), 0, atol=1e-12)


def test_in_two_dimensions_distances_are_kept(problem):
    plane = plane_of(problem)
    assert plane.share == pytest.approx(1)
    own = problem.theta_star_local
    far = np.linalg.norm(own - problem.theta_star, axis=1)
    np.testing.assert_allclose(np.linalg.norm(plane.project(own), axis=1), far)


def test_agents_without_a_solution_have_no_say_and_missing_directions_are_filled_up():
    flat = (np.array([[1.0, 0, 0]]), np.array([2.0]))  # one row in three dimensions: many solutions
    whole = (np.eye(3), np.array([1.0, 0, 0]))
    problem = fl.problems.regression([flat, whole])
    assert np.isnan(problem.theta_star_local[0]).all()
    towards = problem.theta_star + np.array([5.0, 0, 3.0])
    plane = plane_of(problem, [towards])
    np.testing.assert_allclose(np.abs(plane.axes), [[1, 0, 0], [0, 0, 1]], atol=1e-12)
    assert plane.share == 1
    same = fl.problems.regression([whole, whole])
    assert plane_words(plane_of(same)) == ""  # nothing differs, of which it could show a part
    np.testing.assert_allclose(np.abs(plane_of(same).axes), [[1, 0, 0], [0, 1, 0]])
    runs = [round_paths(p, fl.FedLSA(0.1, 5), 3) for p in (problem, same)]
    for run in runs:
        figures.agent_paths(run)


def test_the_figure_shows_the_average_the_solution_and_the_fixed_point(problem, runs):
    figure = figures.agent_paths(*runs, round=4, title="Drift")
    plane = plane_of(problem)
    for axes, run in zip(figure.axes, runs, strict=True):
        near(drawn(axes, "average"), plane.project(run.theta))
        near(drawn(axes, "round begins")[0], plane.project(run.theta[3]))
        near(drawn(axes, "round ends")[0], plane.project(run.theta[4]))
        np.testing.assert_array_equal(drawn(axes, "θ⋆"), [[0, 0]])
        curves = [np.array(line.get_data()).T for line in axes.get_lines()]
        for path in plane.project(run.local[3]):
            assert any(c.shape == path.shape and np.allclose(c, path, **ROUNDING) for c in curves)
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()
    end = problem.theta_star + fl.theory.bias(problem, 0.05, 100)
    np.testing.assert_allclose(drawn(figure.axes[0], "fixed point θ⋆ + bias")[0], plane.project(end))
    assert not any("fixed point" in line.get_label() for line in figure.axes[1].get_lines())
    for c in range(3):
        near(drawn(figure.axes[0], f"agent {c + 1}")[0], plane.project(problem.theta_star_local[c]))
    for text in ("Drift", "θ⋆", "agent 1", "agent 3", "θ⋆ + bias", "round 4", "the 3 agents"):
        assert text in words(figure)
    error = np.linalg.norm(runs[0].theta[4] - problem.theta_star)
    assert f"which is {error:.2g} from θ⋆" in words(figure).replace("\n", " ")


@pytest.mark.filterwarnings("error")
def test_no_fixed_point_is_claimed_where_there_is_none_and_what_runs_away_is_cut(problem):
    wild = round_paths(problem, fl.FedLSA(5.0, 50), rounds=8)
    assert np.abs(np.nan_to_num(wild.theta, nan=np.inf)).max() > 1e100
    assert fixed_point(wild) is None
    assert fixed_point(round_paths(problem, fl.FedLSA(0.05, 5, projection=1.0), 1)) is None
    figure = figures.agent_paths(wild, round=8)
    assert max(map(abs, (*figure.axes[0].get_xlim(), *figure.axes[0].get_ylim()))) < 20


def test_many_agents_are_not_named_one_by_one():
    ring, methods = fl.problems.ring(50), (fl.FedLSA(0.05, 100), fl.SCAFFLSA(0.05, 100))
    runs = [round_paths(ring, method, rounds=3, points=10) for method in methods]
    figure = figures.agent_paths(*runs, round=2)
    assert "agent 1" not in words(figure)
    assert "Circles: own solutions." in words(figure)
    assert words(figure).count("agents\n") == words(figure).count("fixed point") == 1


def test_wrong_arguments_are_named(runs):
    with pytest.raises(ArgumentError, match="paths must hold at least one run"):
        figures.agent_paths()
    with pytest.raises(ArgumentError, match="round must be a positive integer and at most 6; got 7"):
        figures.agent_paths(*runs, round=7)
    with pytest.raises(ArgumentTypeError, match="paths must be what round_paths returns"):
        figures.agent_paths("paths")
    other = fl.problems.regression([(np.ones((2, 1)), np.ones(2))])
    with pytest.raises(ArgumentError, match="paths must all be on the same problem"):
        figures.agent_paths(runs[0], round_paths(other, fl.FedLSA(0.1, 2), 2))
    with pytest.raises(ArgumentError, match="at least 2 dimensions to be seen in a plane; got 1"):
        figures.agent_paths(round_paths(other, fl.FedLSA(0.1, 2), 2))


def test_the_example_draws_its_picture_and_the_page_says_what_it_prints(tmp_path, capsys, pictures):
    import drift

    page = (ROOT / "docs" / "drift.md").read_text(encoding="utf8")
    drift.main(tmp_path / "many.png", agents=50, rounds=5)
    capsys.readouterr()
    drift.main(tmp_path / "drift.png")
    assert pictures == ["many.png", "drift.png"]
    ends = re.findall(r"(\w+) +ends (\S+) from theta_star", capsys.readouterr().out)
    assert [name for name, _ in ends] == ["FedLSA", "SCAFFLSA"]
    for name, error in ends:
        assert f"{name} ends {error} from" in page


def test_the_block_of_the_page_runs(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "drift.md").read_text(encoding="utf8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/drift.md", "exec"), {})
    assert (tmp_path / "drift.png").stat().st_size > 50_000
    for name in re.findall(r"!\[[^\]]+\]\((images/[^)]+)\)", page):
        assert (ROOT / "docs" / name).stat().st_size > 50_000

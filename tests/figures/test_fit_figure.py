"""The picture of a fit shows its numbers, for few and for many coefficients and sites."""

from types import SimpleNamespace as Plain

import numpy as np
import pytest

from fedlsa import figures
from fedlsa.errors import ArgumentError


def fit(d, sites, deviation=None):
    """Something that looks like a fit: figures need no more."""
    rng = np.random.default_rng(d)
    theta, deviation = rng.normal(size=d), np.full(d, 0.1) if deviation is None else np.asarray(deviation)
    reports = [
        Plain(name=f"site {c}", theta=theta + rng.normal(size=d), influence=0.1 / (c + 1), noise=0.0, finite_data=0.05)
        for c in range(sites)
    ]
    return Plain(
        names=tuple(f"x{j}" for j in range(d)), theta=theta, standard_error=deviation, per_site=reports,
        confidence_interval=lambda level: np.stack([theta - 2 * level * deviation, theta + 2 * level * deviation], 1),
        error={"drift": 0.0, "noise": 0.1, "finite data": 0.4},
    )  # fmt: skip


def segments(axes):
    (lines,) = [c for c in axes.collections if c.get_label().endswith("interval")]
    return np.array([s[:, 0] for s in lines.get_segments()])


@pytest.mark.parametrize(("d", "sites"), [(3, 5), (32, 100), (70, 5), (1, 1)])
def test_intervals_estimates_and_every_site_are_drawn(d, sites):
    f = fit(d, sites)
    main, parts, by_site = figures.coefficients(f, level=0.5).axes
    assert segments(main) == pytest.approx(f.confidence_interval(0.5))
    lines = {line.get_label(): line for line in main.lines}
    assert lines["shared estimate"].get_xdata() == pytest.approx(f.theta)
    assert "50% interval" in [c.get_label() for c in main.collections]
    low, high = main.get_xlim()
    own = np.stack([s.theta for s in f.per_site])
    shown = (own >= low) & (own <= high)
    assert len(lines["site's own solution"].get_xdata()) == shown.sum()
    triangles = [line for line in main.lines if line.get_marker() in "<>"]
    assert sum(len(t.get_xdata()) for t in triangles) == (own < low).any(0).sum() + (own > high).any(0).sum()
    assert [bar.get_width() for bar in parts.patches] == [0.0, 0.1, 0.4]
    drawn = {line.get_label(): line.get_ydata() for line in by_site.lines}
    assert drawn.keys() == {"influence", "finite data"}  # no site has noise
    assert drawn["influence"] == pytest.approx(0.1 / np.arange(1, sites + 1))
    names = [t.get_text() for t in main.get_yticklabels()]
    assert (names == list(f.names)) == (d <= 40)


def test_coefficients_of_different_scales_are_divided_by_their_standard_errors():
    f = fit(3, 4, deviation=[1e-3, 0.1, 50])
    main = figures.coefficients(f).axes[0]
    assert segments(main) == pytest.approx(f.confidence_interval(0.95) / f.standard_error[:, None])
    assert main.get_xlabel() == "coefficient / its standard error"


def test_a_site_without_a_solution_of_its_own_is_left_out(tmp_path):
    f = fit(3, 4)
    f.per_site[1].theta = np.full(3, np.nan)
    figure = figures.coefficients(f)
    (dots,) = [line for line in figure.axes[0].lines if line.get_label() == "site's own solution"]
    assert len(dots.get_xdata()) <= 9
    figures.save(figure, tmp_path / "fit.svg")


def test_sure_coefficients_of_one_site_can_be_drawn(tmp_path):
    f = fit(2, 1, deviation=[0, 0])
    f.error, f.per_site[0].influence, f.per_site[0].finite_data = {"finite data": 0.0}, 0.0, 0.0
    figures.save(figures.coefficients(f), tmp_path / "fit.png")
    f.error["start"], f.per_site[0].influence = np.inf, np.inf  # whatever is not 0 is infinitely many standard errors
    figures.save(figures.coefficients(f), tmp_path / "fit.svg")


def test_a_level_is_a_probability():
    with pytest.raises(ArgumentError, match="level must be"):
        figures.coefficients(fit(2, 2), level=95)


def test_without_a_run_there_are_no_parts_of_the_error():
    f = fit(2, 3)
    f.error = {"start": np.nan, "drift": np.nan, "noise": np.nan, "finite data": 1.0}
    coefficients, sites = figures.coefficients(f).axes
    assert coefficients.get_xlabel() == "coefficient"
    assert sites.get_xlabel() == "sites, by influence"

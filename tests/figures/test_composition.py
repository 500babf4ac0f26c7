"""Figures compose: every drawing function draws into the user's axes, and touches nothing else."""

import inspect
from functools import partial

import matplotlib
import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from test_error_curves import a_result
from test_fit_figure import fit
from test_forest import alike

import fedlsa as fl
from fedlsa import figures, theory
from fedlsa.engine.paths import round_paths
from fedlsa.errors import ArgumentError, ArgumentTypeError, UnknownNameError
from fedlsa.theory.planner import Plan

NOT_DRAWING = {"predicted_bias", "save", "style"}
WIDTHS = {"paper": 5.5, "slide": 10.0}
SMALLEST = {"paper": 8.0, "slide": 12.4, "notebook": 6.9}  # points of text
LEGENDS = {"agent_paths", "error_curves", "exact_curves", "bound_and_curve", "trade_off", "coefficients", "forest"}


@pytest.fixture(scope="module")
def drawings():
    """Of each drawing function, the arguments before its options, and how many panels they make."""
    problem = fl.problems.garnet(agents=4, states=6, features=2, discount=0.3, seed=3)
    methods = [fl.FedLSA(0.05, 5), fl.SCAFFLSA(0.05, 5)]
    curves = [theory.exact(problem, m, 12) for m in methods]
    ring = fl.problems.ring(3)
    paths = [round_paths(ring, m, rounds=3, points=5) for m in methods]
    return {
        "agent_paths": (paths, 2),
        "bound_and_curve": ([theory.bound(problem, methods[0], 12, record=13), curves[0], a_result(methods[0])], 1),
        "coefficients": ([fit(4, 3)], 3),
        "error_curves": ([[a_result(m) for m in methods]], 1),
        "exact_curves": ([curves], 1),
        "forest": ([alike(5), "x0"], 1),
        "trade_off": ([[Plan(m, 9, 300.0, 0.1, 36, 4608) for m in methods], 0.1], 1),
    }


def public():
    return sorted(set(figures.__all__) - NOT_DRAWING)


def state(figure, axes):
    """All that a stranger could change in a figure and in some of its axes, as text."""
    around = [figure.get_size_inches().tolist(), figure.dpi, [t.get_text() for t in figure.texts], len(figure.axes),
              figure.get_suptitle(), len(figure.legends), figure.get_label()]  # fmt: skip
    inside = [[a.get_xlim(), a.get_ylim(), a.get_xscale(), a.get_title(), a.get_label(), a.get_position().bounds,
               [(type(c).__name__, id(c)) for c in a.get_children()]] for a in axes]  # fmt: skip
    return repr((around, inside))


def around(figure):
    """Texts that must not be cut off at the edge of a figure."""
    legends = [*figure.legends, *(a.get_legend() for a in figure.axes if a.get_legend())]
    axes = [t for a in figure.axes for t in (a.xaxis.label, a.yaxis.label, *a.get_children()) if isinstance(t, Text)]
    return [t for t in (*figure.texts, *axes, *(t for one in legends for t in one.get_texts())) if t.get_text()]


def test_every_drawing_function_is_walked_over_and_takes_axes(drawings):
    assert public() == sorted(drawings)
    for name in public():
        options = inspect.signature(getattr(figures, name)).parameters
        assert options["ax"].default is None
        assert ("legend" in options) == (name in LEGENDS)


@pytest.mark.parametrize(
    ("name", "nested"), [*((name, False) for name in public()), ("coefficients", True), ("error_curves", True)]
)
def test_a_drawing_stays_in_its_axes_and_returns_them(drawings, name, nested):
    arguments, panels = drawings[name]
    figure = plt.figure(layout="constrained", figsize=(8, 6))
    ours, theirs = figure.subfigures(1, 2) if nested else (figure, figure)
    axes = ours.subplots(2, 2).ravel()
    others = [*axes[panels:], *([theirs.subplots()] if nested else [])]
    others[0].plot([1, 2], [3, 4], label="mine")
    axes[0].plot([1e-9, 3], [1e-9, 3], label="mine too")
    figure.suptitle("Mine")
    before, settings = state(figure, others), dict(matplotlib.rcParams)
    given = axes[0] if panels == 1 else axes[:panels]
    assert getattr(figures, name)(*arguments, ax=given) is given
    assert state(figure, others) == before
    assert dict(matplotlib.rcParams) == settings
    assert all(len(one.get_children()) > len(others[-1].get_children()) for one in axes[:panels])
    assert "mine too" in [line.get_label() for line in axes[0].lines]
    assert axes[0].get_label()
    figure.draw_without_rendering()  # constrained layout finds room for all
    plt.close(figure)


@pytest.mark.parametrize("name", public())
def test_styles_set_the_width_and_the_smallest_text_and_are_gone_after_the_block(drawings, name):
    arguments, _ = drawings[name]
    settings = dict(matplotlib.rcParams)
    plain = getattr(figures, name)(*arguments)
    assert isinstance(plain, Figure)
    for style, points in SMALLEST.items():
        with figures.style(style):
            figure = getattr(figures, name)(*arguments)
        assert figure.get_figwidth() == WIDTHS.get(style, plain.get_figwidth())
        figure.draw_without_rendering()
        assert min(t.get_fontsize() for t in figure.findobj(Text) if t.get_text()) >= points
        for t in around(figure):
            low, high = t.get_window_extent().get_points() / figure.dpi
            assert (low >= 0).all(), t
            assert (high <= figure.get_size_inches()).all(), t
    assert dict(matplotlib.rcParams) == settings


@pytest.mark.parametrize("name", sorted(LEGENDS))
def test_a_legend_can_be_left_to_the_user(drawings, name):
    arguments, panels = drawings[name]
    draw = getattr(figures, name)
    for legend in (True, False):
        figure = draw(*arguments, legend=legend)
        assert bool([*figure.legends, *(a for a in figure.axes if a.get_legend())]) == legend
    figure, axes = plt.subplots(1, panels, squeeze=False)
    draw(*arguments, ax=axes, legend=False)
    assert not any(a.get_legend() for a in axes.flat)
    assert axes[0, 0].legend().get_texts()  # what is drawn has its names
    plt.close(figure)
    with pytest.raises(ArgumentTypeError, match="legend must be"):
        draw(*arguments, legend="upper left")


def test_what_is_there_stays_in_sight_and_two_drawings_share_axes(drawings):
    (curves,), _ = drawings["exact_curves"]
    figure, ax = plt.subplots()
    ax.plot([1, 500], [1e-7, 3], label="mine")
    figures.exact_curves(curves[0], ax=ax, legend=False)
    figures.exact_curves(curves[1], ax=ax, title="Both")
    assert ax.get_xlim()[1] >= 500
    assert 0 < ax.get_ylim()[0] <= 1e-7
    assert ax.get_title() == "Both"
    assert {"mine", "FedLSA", "SCAFFLSA"} <= {line.get_label() for line in ax.lines}
    plt.close(figure)


def test_shared_axes_hold_all_of_them():
    wide, narrow = a_result(), a_result(rounds=6)
    narrow["squared_error"].values[:] = 1.0
    figure, (left, right) = plt.subplots(1, 2, sharex=True, sharey=True)
    figures.error_curves(wide, ax=left)
    limits = left.get_xlim(), left.get_ylim()
    figures.error_curves(narrow, ax=right)
    assert (left.get_xlim(), left.get_ylim()) == limits
    plt.close(figure)


def test_notes_are_there_for_the_caption(drawings):
    arguments, _ = drawings["error_curves"]
    figure, ax = plt.subplots()
    figures.error_curves(*arguments, ax=ax)
    assert "Line: mean over 5 seeds. Band: from their 10%" in ax.get_label()
    plt.close(figure)


def test_sizes_follow_the_settings_of_matplotlib(drawings):
    arguments, _ = drawings["error_curves"]
    for width in (1.0, 4.0):
        with matplotlib.rc_context({"lines.linewidth": width}):
            figure, ax = plt.subplots()
            figures.error_curves(*arguments, ax=ax)
        assert ax.lines[0].get_linewidth() == width
        plt.close(figure)


def test_wrong_axes_and_styles_are_named(drawings):
    split = partial(figures.exact_curves, *drawings["exact_curves"][0], parts=True)
    figure, axes = plt.subplots(1, 3)
    with pytest.raises(ArgumentError, match="ax must hold 2 Axes, one per panel; got 3"):
        split(ax=axes)
    with pytest.raises(ArgumentError, match="ax must hold 1 or 3 Axes, one per panel; got 2"):
        figures.coefficients(fit(2, 2), ax=axes[:2])
    with pytest.raises(ArgumentTypeError, match="ax must be matplotlib Axes, or a sequence of them; got"):
        split(ax=figure)
    with pytest.raises(ArgumentError, match="title must be None where ax holds several Axes"):
        split(ax=axes[:2], title="Both")
    plt.close(figure)
    with (
        pytest.raises(UnknownNameError, match=r"style must be one of .* did you mean 'paper'"),
        figures.style("papers"),
    ):
        pass

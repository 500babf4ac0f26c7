"""The forest plot shows every site's estimate and interval, and the shared one, for few and for many sites."""

from types import SimpleNamespace as Plain

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from fedlsa import figures
from fedlsa.errors import ArgumentError, ArgumentTypeError, UnknownNameError


def alike(sites, d=2, apart=()):
    """Something that looks like a Heterogeneity: figures need no more."""
    rng = np.random.default_rng(sites)
    error = rng.uniform(0.05, 0.2, size=(sites, d))
    names = tuple(f"x{j}" for j in range(d))
    test = Plain(line=lambda: "Q = 1.00")
    return Plain(
        names=names, sites=tuple(f"site {c}" for c in range(sites)), theta=1 + error * rng.normal(size=(sites, d)),
        standard_error=error, degrees_of_freedom=np.full(sites, 20.0), shared=np.ones(d),
        shared_covariance=0.01 * np.eye(d), shared_degrees_of_freedom=np.inf,
        coefficients=dict.fromkeys(names, test), stands_out=tuple(f"site {c}" for c in apart),
    )  # fmt: skip


def drawn(axes):
    """(k, 3): y, low and high of every site's line, in the order of y."""
    rows = [(s[0, 1], *s[:, 0]) for c in axes.collections if hasattr(c, "get_segments") for s in c.get_segments()]
    return np.array(sorted(rows))


def squares(axes):
    return [c for c in axes.collections if c.get_label().startswith("site")]


@pytest.mark.parametrize(("sites", "apart"), [(2, ()), (11, (3,)), (60, (7, 30)), (400, (1, 50))])
def test_every_site_is_drawn_with_its_interval_and_the_shared_estimate_is_a_diamond(sites, apart):
    f = alike(sites, apart=apart)
    (axes,) = figures.forest(f, "x1", level=0.9).axes
    lines, reach = drawn(axes), student.ppf(0.95, 20) * f.standard_error[:, 1]
    low, high = axes.get_xlim()
    assert lines[:, 1] == pytest.approx(np.maximum(f.theta[:, 1] - reach, low))
    assert lines[:, 2] == pytest.approx(np.minimum(f.theta[:, 1] + reach, high))
    ours, *others = squares(axes)
    assert [len(c.get_offsets()) for c in (ours, *others)] == [sites - len(apart), *([len(apart)] if apart else [])]
    (diamond,) = axes.patches
    ends = diamond.get_path().vertices[:, 0]
    assert [ends.min(), ends.max()] == pytest.approx(1 + 0.1 * norm.ppf([0.05, 0.95]))
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names[-1] == "shared estimate"
    assert names[:-1] == [f"site {c}" for c in (range(sites) if sites <= 60 else apart)]
    assert axes.get_xlabel().startswith("Q = 1.00\n")


def test_sites_are_sorted_and_squares_are_in_proportion_to_inverse_variances():
    f = alike(9)
    (axes,) = figures.forest(f, "x0", sort="estimate").axes
    (marks,) = squares(axes)
    order = np.argsort(f.theta[:, 0])
    assert np.array(marks.get_offsets())[:, 0] == pytest.approx(f.theta[order, 0])
    weight = f.standard_error[order, 0] ** -2.0
    area, shown = marks.get_sizes(), weight > weight.max() / 9  # none is so small that it vanishes
    assert area[shown] / area.max() == pytest.approx(weight[shown] / weight.max())
    assert [t.get_text() for t in axes.get_yticklabels()][:-1] == [f"site {c}" for c in order]


def test_sites_that_say_little_leave_the_axes_with_an_arrow_and_open_ones_are_counted():
    f = alike(12)
    f.theta[3], f.standard_error[3], f.theta[4] = 80.0, 70.0, np.nan
    (axes,) = figures.forest(f, "x0").axes
    assert axes.get_xlim()[1] < 3
    arrows = {line.get_marker(): line.get_xydata().tolist() for line in axes.lines if line.get_marker() in "<>"}
    left, right = axes.get_xlim()
    assert arrows == {"<": [[left, 3]], ">": [[right, 3]]}  # on either side of the fourth
    assert "; 1 of 12 sites leave it open" in axes.get_xlabel()
    f.standard_error[:] = 0
    with pytest.raises(ArgumentError, match="coefficient must be one that the rows of some site determine"):
        figures.forest(f, "x0")


def test_long_names_keep_their_ends_and_wrong_arguments_are_named():
    f = alike(2)
    f.sites = tuple(f"St. Bartholomew's Regional University Hospital, ward {c}" for c in range(2))
    (axes,) = figures.forest(f, "x0", title="Effect").axes
    assert axes.get_yticklabels()[1].get_text().endswith("ward 1")
    assert axes.get_title(loc="left") == "Effect"
    with pytest.raises(UnknownNameError, match="coefficient must be"):
        figures.forest(f, "x9")
    with pytest.raises(UnknownNameError, match="sort must be"):
        figures.forest(f, "x0", sort="weight")
    with pytest.raises(ArgumentTypeError, match=r"fit must be what fl\.fit returns"):
        figures.forest([1.0], "x0")

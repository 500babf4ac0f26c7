"""Do sites agree: Cochran's Q by its formula and by statsmodels, who stands out, and how often by chance."""

from types import SimpleNamespace as Plain

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.fitting.heterogeneity import (
    cochran,
    compare_sites,
    find_determined,
    find_outlying_sites,
    pooled_cochran,
    precisions,
)

RUN = {"step_size": 1e-3, "local_steps": 1, "rounds": 1, "local": "means"}  # on which sites do not depend
pytestmark = pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")


def draws(sites=6, d=3, seed=0, freedom=(50, 90)):
    """Estimates (N, d) with their covariances (N, d, d), on very different scales, and degrees of freedom."""
    rng = np.random.default_rng(seed)
    units = 1000.0 ** np.arange(d)
    root = rng.normal(size=(sites, d, 2 * d))
    V = np.einsum("nik,njk->nij", root, root) * np.outer(units, units)
    theta = np.linspace(-1, 1, d) * units + np.stack([rng.multivariate_normal(np.zeros(d), v) for v in V])
    return theta, V, rng.integers(*freedom, size=sites).astype(float)


def fitted(theta, V, df, rows=200, kind="classical"):
    """A fit as far as the comparison of its sites goes; its answer is the mean by precisions."""
    known = find_determined(theta, V, df)
    W = precisions(V, known)
    shared = np.linalg.solve(W.sum(0), np.einsum("nij,nj->i", W, np.where(known, theta, 0)))
    sites = [
        Plain(name=f"s{c}", rows=rows, theta=theta[c], covariance=V[c], degrees_of_freedom=df[c], distance=1.0,
              without=shared + c)
        for c in range(len(df))
    ]  # fmt: skip
    names = tuple(f"x{j}" for j in range(theta.shape[1]))
    return Plain(
        names=names, theta=shared, covariance=np.linalg.inv(W.sum(0)), degrees_of_freedom=300.0, per_site=sites,
        covariance_kind=kind,
    )  # fmt: skip


def test_each_coefficient_has_the_numbers_of_a_meta_analysis():
    theta, V, df = draws()
    found = compare_sites(fitted(theta, V, df))
    for j, q in enumerate(found.coefficients.values()):
        theirs = combine_effects(theta[:, j], V[:, j, j], method_re="chi2")
        assert (q.q, q.df, q.sites) == (pytest.approx(theirs.q, rel=1e-10), 5, 6)
        assert q.i_squared == pytest.approx(max(theirs.i2, 0), abs=1e-10)
        assert q.chi2_p_value == pytest.approx(theirs.test_homogeneity().pvalue, rel=1e-9)
        assert q.tau == pytest.approx(np.sqrt(max(theirs.tau2, 0)), rel=1e-9, abs=1e-12)
    frame = found.to_frame()
    assert list(frame.index) == ["x0", "x1", "x2", "all together"]
    assert frame.loc["x1", "q"] == found.coefficients["x1"].q


def test_all_together_is_the_quadratic_form_of_stacked_estimates_and_of_one_coefficient_welchs_test():
    theta, V, df = draws()
    found = compare_sites(fitted(theta, V, df)).together
    X, y, S = np.tile(np.eye(3), (6, 1)), theta.ravel(), np.zeros((18, 18))
    for c in range(6):
        S[3 * c : 3 * c + 3, 3 * c : 3 * c + 3] = V[c]
    P = np.linalg.inv(S)
    e = y - X @ np.linalg.solve(X.T @ P @ X, X.T @ P @ y)
    assert (found.q, found.df) == (pytest.approx(e @ P @ e, rel=1e-6), 15)
    assert found.chi2_p_value < found.p_value  # estimated covariances make the law wider
    groups = [np.random.default_rng(k).normal(0, 1 + k, size=5 + 3 * k) for k in range(4)]
    welch = stats.alexandergovern  # not the same test: Welch's own formula follows
    n = np.array([len(g) for g in groups])
    w = n / [g.var(ddof=1) for g in groups]
    mean = np.array([g.mean() for g in groups])
    Q = np.sum(w * (mean - w @ mean / w.sum()) ** 2)
    off = np.sum((1 - w / w.sum()) ** 2 / (n - 1))
    F = Q / 3 / (1 + 2 * 2 / 15 * off)
    one = cochran(mean[:, None], w[:, None, None], n - 1.0, np.ones((4, 1), bool))
    assert one.p_value == pytest.approx(stats.f.sf(F, 3, 15 / (3 * off)), rel=1e-10)
    assert one.p_value == pytest.approx(welch(*groups).pvalue, abs=0.1)


def test_what_a_site_leaves_open_is_left_out_and_the_rest_of_it_counts():
    theta, V, df = draws()
    theta[1, 2], V[1, 2], V[1, :, 2] = np.nan, np.nan, np.nan  # open
    V[4], df[5] = 0, 5.0  # no noise; less than two degrees of freedom for each coefficient
    found = compare_sites(fitted(theta, V, df))
    assert found.left_out == ("s1", "s4", "s5")
    assert [q.sites for q in found.coefficients.values()] == [4, 4, 3]
    assert (found.together.sites, found.together.df) == (4, 3 + 3 + 2)
    kept = [0, 1, 2, 3]
    assert found.coefficients["x0"].q == pytest.approx(combine_effects(theta[kept, 0], V[kept, 0, 0]).q, rel=1e-10)
    assert np.isnan(found.p_values[4:]).all()
    assert np.isfinite(found.p_values[:4]).all()
    theta[:-1], V[:-1] = np.nan, np.nan
    nothing = compare_sites(fitted_open(theta, V, np.ones(6)))
    assert np.isnan(nothing.together.q)
    assert "fewer than two sites" in nothing.line()
    with pytest.raises(ArgumentError, match="at least 2; got 1"):
        compare_sites(Plain(per_site=[None]))


def fitted_open(theta, V, df):
    """A fit whose sites leave all open."""
    f = fitted(*draws())
    for site, t, v, k in zip(f.per_site, theta, V, df, strict=True):
        site.theta, site.covariance, site.degrees_of_freedom = t, v, k
    return f


def test_a_site_is_compared_with_the_mean_of_the_others():
    theta, V, df = draws()
    known = np.ones((6, 3), bool)
    p, apart = find_outlying_sites(theta, V, df, known, 0.05)
    assert not apart.any()
    W = np.linalg.inv(V)
    rest = np.arange(6) != 2
    total = W[rest].sum(0)
    mean = np.linalg.solve(total, np.einsum("nij,nj->i", W[rest], theta[rest]))
    gap, spread = theta[2] - mean, V[2] + np.linalg.inv(total)
    freedom = np.array([df[2], df[rest].sum()])
    pair = cochran(np.stack([theta[2], mean]), np.stack([W[2], total]), freedom, known[:2])
    assert pair.q == pytest.approx(gap @ np.linalg.solve(spread, gap), rel=1e-6)
    assert p[2] == pytest.approx(pair.p_value, rel=1e-6)
    known[2, 1], known[3, 1] = False, False  # what one of two leaves open is not compared, and the rest is
    marginal, _ = find_outlying_sites(theta, V, df, known, 0.05)
    open_here = precisions(V, known)
    total = open_here[rest].sum(0)
    mean = np.linalg.solve(total, np.einsum("nij,nj->i", open_here[rest], theta[rest]))
    gap, spread, part = theta[2] - mean, np.linalg.inv(total), np.ix_([0, 2], [0, 2])
    pair = cochran(
        np.stack([theta[2], mean])[:, [0, 2]],
        np.linalg.inv(np.stack([V[2][part], spread[part]])),
        freedom,
        known[:2][:, [0, 2]],
    )
    assert marginal[2] == pytest.approx(pair.p_value, rel=1e-6)


def test_only_the_site_that_differs_stands_out_and_lengths_are_in_its_own_errors():
    theta, V, df = draws()
    theta[2] += 12 * np.sqrt(np.diag(V[2]))
    found = compare_sites(fitted(theta, V, df))
    assert found.stands_out == ("s2",)  # though it moves the mean of the others, so that they look far away too
    assert compare_sites(fitted(theta[1:3], V[1:3], df[1:3])).stands_out == ()  # of two, nobody can say which
    assert found.line().endswith("; s2 stands out")
    gap = theta[2] - found.shared
    assert found.own_distance[2] == pytest.approx(np.sqrt(gap @ np.linalg.solve(V[2], gap) / 3), rel=1e-6)
    assert found.change[4] == pytest.approx(4 / np.sqrt(np.diag(found.shared_covariance)))
    table = found.site_frame()
    assert table.loc[("s2", "x1"), "estimate"] == theta[2, 1]
    assert table.loc[("s2", "x1"), "p_value"] == found.p_values[2]
    assert found.note == ""


def test_small_sites_have_pooled_covariances_or_no_test_at_all():
    theta, V, df = draws(freedom=(20, 40))
    found = compare_sites(fitted(theta, V, df, kind="HC3"))
    assert found.note.startswith("6 of 6 sites with fewer than 15 degrees of freedom for each coefficient: covariances")
    assert found.together.pooled
    assert found.line().startswith("Sites: Q = ")
    assert "pooled covariances" in found.line()
    refused = compare_sites(fitted(theta, V, df, kind="CR1, 60 clusters"))
    assert "where CR1 is too small: no test is right; covariance='HC3' has one" in refused.note
    assert refused.line() == "Sites: Q is not known, for sites are too small"
    assert np.isnan([refused.together.p_value, refused.coefficients["x0"].tau, *refused.p_values]).all()
    large = compare_sites(fitted(theta, V, 10 * df, kind="HC1"))
    assert large.together.pooled  # whose errors are small, so that they count in sums over sites alone


def test_the_mean_and_variance_of_q_with_pooled_weights_are_those_of_its_quadratic_form():
    """Q = x^T P x with x ~ N(0, V): mean tr(PV), variance 2 tr(PVPV); with a coefficient that one site leaves open."""
    theta, V, df = draws(sites=4, d=2)
    known = np.array([[True, True], [True, False], [True, True], [True, True]])
    rows = np.array([10.0, 20, 30, 40])
    found = pooled_cochran(theta, V, rows, df, known)
    stacked, X = np.zeros((7, 7)), np.zeros((7, 2))
    W, cells = np.zeros((7, 7)), [(c, j) for c in range(4) for j in range(2) if known[c, j]]
    inside = [known[:, i] & known[:, j] for i in range(2) for j in range(2)]
    B = np.array([np.mean(rows[k] * V[k, *divmod(a, 2)]) for a, k in enumerate(inside)]).reshape(2, 2)
    for a, (c, j) in enumerate(cells):
        X[a, j] = 1
        precision = rows[c] * np.linalg.inv(B[np.ix_(known[c], known[c])])
        for b, (other, i) in enumerate(cells):
            if other == c:
                stacked[a, b] = V[c, j, i]
                place = list(np.flatnonzero(known[c]))
                W[a, b] = precision[place.index(j), place.index(i)]
    P = W - W @ X @ np.linalg.solve(X.T @ W @ X, X.T @ W)
    x = np.array([theta[c, j] for c, j in cells])
    PV = P @ stacked
    parts = np.array([sum(PV[a, a] for a, (c, _) in enumerate(cells) if c == site) for site in range(4)])
    nu = np.trace(PV) ** 2 / np.sum(parts**2 / df)
    mean = np.trace(PV) * nu / (nu - 3)
    assert found.q == pytest.approx(x @ P @ x / mean * 5, rel=1e-6)
    assert found.p_value == pytest.approx(
        stats.f.sf(x @ P @ x / mean, np.trace(PV) ** 2 / np.trace(PV @ PV), nu - 1), rel=1e-6
    )


@pytest.fixture(scope="module")
def wages():
    """A fit of three towns with a category, of which the last lacks a level; the second pays more for schooling."""
    rng, tables = np.random.default_rng(0), {}
    for c, n in enumerate((90, 120, 70)):
        educ, sector = rng.normal(12, 2, n), rng.choice(["a", "b", "c"][: 3 - (c == 2)], n)
        wage = 3 + (0.5 + 0.4 * (c == 1)) * educ + (sector == "b") + rng.normal(size=n)
        tables[f"town {c}"] = {"educ": educ, "sector": sector, "wage": wage}
    fit = fl.fit(tables, fl.Regression("wage ~ educ + sector"), **RUN)
    return tables, fit


def design(table):
    """Columns for educ, sectors b and c, and the intercept."""
    sector = table["sector"]
    return np.column_stack([table["educ"], sector == "b", sector == "c", np.ones(len(sector))]).astype(float)


def test_a_fit_compares_its_sites_as_separate_regressions_do(wages, tmp_path):
    tables, fit = wages
    found = fit.heterogeneity()
    names = list(fit.names)
    for c, table in enumerate(tables.values()):
        X = np.column_stack(
            [table["educ"], table["sector"] == "b", table["sector"] == "c", np.ones(len(table["wage"]))]
        )
        kept = [0, 1, 2, 3] if c < 2 else [0, 1, 3]
        ols = sm.OLS(table["wage"], X[:, kept]).fit(cov_type="HC3", use_t=True)
        places = [names.index(("educ", "sector[T.b]", "sector[T.c]", "intercept")[k]) for k in kept]
        np.testing.assert_allclose(found.theta[c, places], ols.params, rtol=1e-8)
        np.testing.assert_allclose(found.covariance[c][np.ix_(places, places)], ols.cov_params(), rtol=1e-6)
        assert found.degrees_of_freedom[c] == ols.df_resid
        assert np.isnan(found.theta[c]).sum() == 4 - len(kept)
        rest = [t for k, t in enumerate(tables.values()) if k != c]
        X = np.concatenate([design(t) for t in rest])
        without = np.linalg.lstsq(X, np.concatenate([t["wage"] for t in rest]))[0]
        order = [names.index(n) for n in ("educ", "sector[T.b]", "sector[T.c]", "intercept")]
        np.testing.assert_allclose(found.without[c, order], without, rtol=1e-8)
    assert found.coefficients["sector[T.c]"].sites == 2
    assert found.coefficients["educ"].sites == 3
    assert found.stands_out == ("town 1",)
    assert found.left_out == ("town 2",)
    fit.save(tmp_path / "fit.json")
    assert fl.Fit.load(tmp_path / "fit.json").heterogeneity() == found
    (axes,) = found.plot("educ", sort="estimate").axes
    assert [t.get_text() for t in axes.get_yticklabels()][-2:] == ["town 1", "shared estimate"]


def test_sites_of_logs_and_sites_that_are_clusters_are_compared_too():
    rng = np.random.default_rng(2)
    logs = [(rng.random((60, 2)), rng.random(60), rng.random((60, 2)), np.zeros(60)) for _ in range(3)]
    found = fl.fit(logs, fl.Value(0.5), lag=2, **RUN).heterogeneity()
    assert np.isfinite([found.together.p_value, *found.p_values]).all()
    assert (found.degrees_of_freedom == 60 / (6 * 2)).all()  # slow cosines
    x = rng.normal(size=(3, 30, 1))
    exact = fl.fit([(u, 2 * u[:, 0]) for u in x], fl.Regression("y"), plan=False).heterogeneity()
    assert exact.together.sites == 0  # without noise what is left are rounding errors, which are no spread
    sites = [(u, u[:, 0] + rng.normal(size=30)) for u in x]
    for cluster in ("sites", None):
        found = fl.fit(sites, fl.Regression("y"), **RUN, cluster=cluster).heterogeneity()
        assert (found.degrees_of_freedom == 28).all()  # a site that is one cluster has its rows


def alike(rng, N, n, d):
    """Own solutions (N, d) and their HC3 covariances (N, d, d) of N sites of n rows; errors grow with a column."""
    X = rng.normal(size=(N, n, d))
    y = rng.normal(size=(N, n)) * np.abs(X[:, :, 0])
    inverse = np.linalg.inv(np.swapaxes(X, 1, 2) @ X)
    theta = np.einsum("nij,nkj,nk->ni", inverse, X, y)
    e = (y - np.einsum("nkj,nj->nk", X, theta)) / (1 - np.einsum("nki,nij,nkj->nk", X, inverse, X))
    return theta, inverse @ np.einsum("nki,nk,nkj->nij", X, e**2, X) @ inverse


@pytest.mark.long
@pytest.mark.parametrize(("N", "n", "d", "sets"), [(200, 30, 3, 50), (200, 30, 6, 40), (10, 15, 3, 100)])
def test_small_sites_that_are_alike_are_found_to_differ_no_more_often_than_the_level_says(N, n, d, sets):
    """At 5%, within four errors, of all coefficients, of the first, and of sites that stand out; by the covariances of
    each site more often."""
    rng, counts = np.random.default_rng(1), np.zeros(4)
    for _ in range(sets):
        theta, V = alike(rng, N, n, d)
        found = compare_sites(fitted(theta, V, np.full(N, float(n - d)), n, "HC3"))
        own = cochran(theta, np.linalg.inv(V), np.full(N, n - d), np.ones((N, d), bool))
        p = found.together.p_value, found.coefficients["x0"].p_value, own.chi2_p_value
        counts += [p[0] < 0.05, p[1] < 0.05, len(found.stands_out) > 0, p[2] < 0.05]
    most = 0.05 + 4 * np.sqrt(0.05 * 0.95 / sets)
    assert (counts[:3] / sets < most).all()
    assert counts[3] / sets > most


def test_small_sites_that_differ_are_found():
    theta, V = alike(np.random.default_rng(3), 200, 30, 3)
    found = compare_sites(fitted(theta, V, np.full(200, 27.0), 30, "HC3"))
    apart = theta + np.random.default_rng(4).normal(0, 0.4, size=(200, 3))
    different = compare_sites(fitted(apart, V, np.full(200, 27.0), 30, "HC3"))
    assert found.coefficients["x1"].tau < 0.15
    assert different.coefficients["x1"].tau == pytest.approx(0.4, abs=0.1)
    assert different.together.p_value < 1e-6
    assert found.together.i_squared < 0.1 < different.together.i_squared


def test_a_row_that_alone_determines_a_coefficient_leaves_the_error_bars_of_other_sites_as_they_are():
    rng = np.random.default_rng(8)
    tables = [{"x": rng.normal(size=40), "only": np.zeros(40), "y": rng.normal(size=40)} for _ in range(2)]
    tables[1]["only"][3] = 1.0
    task = fl.Regression("y", columns=["x", "only"])
    with pytest.warns(fl.errors.FedLSAWarning, match="error bars are HC1 instead"):
        found = fl.fit(tables, task, plan=False)
    alone = fl.fit([tables[0]], fl.Regression("y", columns=["x"]), plan=False)
    kept = np.ix_([0, 2], [0, 2])  # what its rows determine
    np.testing.assert_allclose(found.per_site[0].covariance[kept], alone.covariance, rtol=1e-9)

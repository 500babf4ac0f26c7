"""How rows come does not matter: sites mixed in one table or file, in several files, or one by one, give one answer."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from numpy.testing import assert_allclose, assert_array_equal
from tiers import longer, mostly_long

import fedlsa as fl
from fedlsa.fitting import reading, rows, table_files, tables
from fedlsa.fitting.sites import open_tables

N = 150
pytestmark = pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")


def made_up(holes=False):
    """Rows of three sites in turn, with clusters that cross them, a category, weights and an offset."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=N), "z": 3 + rng.normal(size=N), "s": rng.choice([2, 10, 3], N)})
    data["g"], data["k"] = rng.integers(0, 25, N) + 2**60, rng.choice(["p", "q", "r"], N)
    data["w"], data["o"] = rng.gamma(3, size=N), rng.normal(size=N)
    shift = rng.normal(size=25)[data.g - 2**60]
    data["y"] = 1 + data.x - data.z + (data.k == "q") + data.o + shift + (1 + data.x.abs()) * rng.normal(size=N)
    if holes:
        data.loc[rng.choice(N, 30, replace=False), "x"] = np.nan
        data.loc[5:8, "y"] = np.nan
    return data


def logs():
    """Transitions of three logs, whose rows are mixed in one table."""
    rng, out = np.random.default_rng(1), []
    for c, n in enumerate((60, 90, 50)):
        x = np.zeros((n + 1, 2))
        for t in range(n):
            x[t + 1] = 0.6 * x[t] + rng.normal(size=2)
        log = {"state_0": x[:-1, 0], "state_1": x[:-1, 1], "next_state_0": x[1:, 0], "next_state_1": x[1:, 1]}
        log |= {"reward": x[:-1].sum(axis=1) + rng.normal(size=n), "terminated": rng.random(n) < 0.1}
        out.append(pd.DataFrame(log | {"s": [10, 2, 3][c], "time": np.arange(n)}))
    return pd.concat(out).sort_values("time", kind="stable", ignore_index=True).drop(columns="time")


@pytest.fixture
def small(monkeypatch):
    """Blocks, batches and parts of a few rows, so that sites are mixed across them."""
    monkeypatch.setattr(rows, "block_rows", lambda width: 16)
    for module in (tables, table_files):
        monkeypatch.setattr(module, "block_rows", lambda width, cached=0: 32)
    monkeypatch.setattr(table_files, "BLOCK", 2**11)
    monkeypatch.setattr(reading, "MANY_ROWS", 100)
    monkeypatch.setattr(reading, "JOINED", 40)


def ways(data, folder):
    """The same rows as fl.fit takes them, each with what else it needs; sites stand in one order everywhere."""
    apart = {str(s): own.reset_index(drop=True) for s, own in data.groupby("s")}
    data.to_parquet(folder / "all.parquet", index=False, row_group_size=8)
    data.to_csv(folder / "all.csv", index=False)
    for c, at in enumerate((slice(0, 40), slice(40, 41), slice(41, None))):
        data[at].to_csv(folder / f"part{c}.csv", index=False)
        data[at].to_parquet(folder / f"part{c}.parquet", index=False)
    for name, own in apart.items():
        own.to_csv(folder / f"site{name}.csv", index=False)
    split = {"site": "s"}
    return {
        "one by one": (apart, {}),
        "table": (data, split),
        "Parquet": (folder / "all.parquet", split),
        "CSV": (folder / "all.csv", split),
        "files": ([folder / "part0.csv", folder / "part1.parquet", folder / "part2.csv"], split),
        "not kept": (folder / "all.csv", split | {"memory": 1.0}),
        "parts, not kept": ([folder / f"part{c}.parquet" for c in range(3)], split | {"memory": 1.0}),
        "a file each": ([folder / f"site{name}.csv" for name in apart], {}),
        "a file each, not kept": ([folder / f"site{name}.csv" for name in apart], {"memory": 1.0}),
    }


@pytest.fixture(scope="module")
def regressions(tmp_path_factory):
    """Rows in all ways, without holes and with them."""
    return {holes: ways(made_up(holes), tmp_path_factory.mktemp("rows")) for holes in (False, True)}


def numbers(fit):
    """All that a fit says in numbers."""
    out = [fit.theta, fit.covariance, fit.degrees_of_freedom, fit.residual_variance, fit.r_squared, fit.log_likelihood]
    out += [] if fit.bootstrap is None else [fit.bootstrap.replicas]
    out += [v for b in fit.baselines for v in (b.theta, b.standard_error)]
    for site in fit.per_site:
        out += [v for f in dataclasses.fields(site) if not isinstance(v := getattr(site, f.name), str)]
    return out


def assert_one_answer(found):
    first, *others = found.items()
    for name, fit in others:
        assert (fit.covariance_kind, fit.names) == (first[1].covariance_kind, first[1].names), name
        for a, b in zip(numbers(fit), numbers(first[1]), strict=True):
            size = np.nanmax(np.abs(b)) if np.isfinite(b).any() else 1.0
            assert_allclose(a, b, rtol=1e-9, atol=1e-12 * size, err_msg=f"{name} and {first[0]}")


OPTIONS = {
    "HC3": {},
    "sites": {"weight": "sites", "bootstrap": 70},
    "classical": {"covariance": "classical", "weight": "sites"},
    "lag": {"lag": 3, "bootstrap": 70},
    "HAC": {"covariance": "HAC"},
    "clusters": {"cluster": "g", "bootstrap": 70},
    "sites as clusters": {"cluster": "sites", "covariance": "CR1"},
}


@pytest.mark.parametrize(
    ("kind", "holes"),
    mostly_long(itertools.product(OPTIONS, (True, False)), [("clusters", True), ("lag", True), ("HC3", False)]),
)
def test_a_regression_does_not_depend_on_how_its_rows_come(regressions, small, kind, holes):
    task = fl.Regression("y ~ x + z + k", row_weights="w", offset="o", missing="drop" if holes else "error")
    given, options = regressions[holes], OPTIONS[kind]
    found = {name: fl.fit(sites, task, plan=False, **options, **more) for name, (sites, more) in given.items()}
    assert_one_answer(found)
    assert [s.rows + s.dropped for s in found["CSV"].per_site] == made_up().groupby("s").size().tolist()


@pytest.mark.parametrize("options", [longer({}), {"trace": 0.7}], ids=["TD(0)", "TD(0.7)"])
def test_a_value_function_does_not_depend_on_how_the_rows_of_its_logs_come(tmp_path, small, options):
    task = fl.Value(0.8, **options)
    given = ways(logs(), tmp_path)
    more = {"plan": False, "bootstrap": 20, "lag": 2, "baselines": True}
    given["one by one"] = {name: t.drop(columns="s") for name, t in given["one by one"][0].items()}, {}
    found = {name: fl.fit(sites, task, **more, **extra) for name, (sites, extra) in given.items()}
    assert_one_answer(found)
    tests = {
        name: fl.evaluate(found["table"], sites, **{k: v for k, v in extra.items() if k == "site"})
        for name, (sites, extra) in given.items()
    }
    for name, reports in tests.items():
        for a, b in zip(reports, tests["one by one"], strict=True):
            for f in dataclasses.fields(a)[1:]:
                assert getattr(a, f.name) == pytest.approx(getattr(b, f.name), rel=1e-10, nan_ok=True), name


@pytest.mark.parametrize("way", ["table", "Parquet", "CSV", "files"])
@pytest.mark.parametrize("holes", [False, True], ids=["whole", "holes"])
def test_residuals_and_fitted_values_stand_in_the_order_of_the_data(regressions, small, way, holes):
    data = made_up(holes)
    sites, more = regressions[holes][way]
    task = fl.Regression("y ~ x + z", row_weights="w", offset="o", missing="drop" if holes else "error")
    fit = fl.fit(sites, task, plan=False, **more)
    whole = data.dropna()
    there = smf.wls("I(y - o) ~ x + z", whole, weights=whole.w).fit()
    assert_allclose(fit.resid, there.resid, atol=1e-12)
    assert_allclose(fit.fittedvalues, there.fittedvalues + whole.o, atol=1e-12)
    assert_allclose(fit.fittedvalues, fit.predict(whole), atol=1e-12)
    assert fit.nobs == len(fit.resid) == len(whole)


def test_residuals_of_tables_one_by_one_follow_the_tables_and_those_of_rows_that_were_not_kept_are_not_there(
    regressions,
):
    data, given = made_up(), regressions[False]
    task = fl.Regression("y ~ x + z")
    together = fl.fit(data, task, site="s", plan=False)
    apart = fl.fit(given["one by one"][0], task, plan=False)
    order = np.argsort(data.s, kind="stable")
    assert_allclose(apart.resid, together.resid[order], atol=1e-12)
    assert fl.fit(given["CSV"][0], task, site="s", plan=False, memory=1.0).resid is None
    log = fl.fit(logs(), fl.Value(0.8), site="s", plan=False)
    assert log.resid is log.fittedvalues is None


def test_more_sites_than_groups_of_tables_give_the_fit_of_one_table():
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"x": rng.normal(size=500), "s": np.arange(500) % 100, "g": rng.integers(0, 40, 500)})
    data["y"] = data.x + rng.normal(size=500) + rng.normal(size=40)[data.g]
    task = fl.Regression("y", columns="x")
    apart = {str(s): own for s, own in data.groupby("s")}
    for options in ({}, {"cluster": "g", "weight": "sites", "bootstrap": 10}):
        found = {
            "table": fl.fit(data, task, site="s", plan=False, **options),
            "apart": fl.fit(apart, task, plan=False, **options),
        }
        assert_one_answer(found)
    assert_array_equal([s.name for s in found["table"].per_site], list(apart))


@pytest.mark.parametrize("sizes", [[1], [5, 900], [900, 5], [3, 3, 3], [1] * 40, [700, 1, 1, 300]])
@pytest.mark.parametrize("count", [1, 2, 16])
def test_a_table_falls_into_parts_of_whole_sites_however_uneven_they_are(sizes, count):
    site = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    [table] = open_tables({"site": site, "y": site.astype(float)}, fl.Regression("y"), site="site")
    parts = table.parts(count)
    assert 1 <= len(parts) <= count
    assert [name for part in parts for name in part.sites] == [str(c) for c in range(len(sizes))]
    assert all(part.rows > 0 for part in parts)
    for part in parts:
        [block] = part.blocks(["y"])
        assert np.repeat(block.sites, np.diff([*block.starts, part.rows])).tolist() == part.codes.tolist()
        assert [part.sites[c] for c in part.codes] == [str(int(v)) for v in block["y"]]


@pytest.mark.parametrize("options", [{}, {"lag": 3}, {"cluster": "g"}, {"weight": "sites"}], ids=str)
@pytest.mark.parametrize("length", [4, 7, 1000])
def test_sites_that_are_read_in_one_group_may_come_in_several_pieces(monkeypatch, options, length):
    rng = np.random.default_rng(3)
    sites = [
        {"x": rng.normal(size=n), "g": rng.integers(0, 15, n), "y": rng.normal(size=n)} for n in (30, 3, 25, 9, 40)
    ]
    task = fl.Regression("y", columns=["x"])
    whole = fl.fit(sites, task, plan=False, **options)
    monkeypatch.setattr(reading, "MAX_GROUPS", 1)
    monkeypatch.setattr(rows, "block_rows", lambda width: length)
    found = fl.fit(sites, task, plan=False, **options)
    assert [site.rows for site in found.per_site] == [30, 3, 25, 9, 40]
    assert_allclose(found.theta, whole.theta, rtol=1e-10)
    assert_allclose(found.covariance, whole.covariance, rtol=1e-9)
    assert_allclose(found.resid, whole.resid, atol=1e-12)
    for one, other in zip(found.per_site, whole.per_site, strict=True):
        assert_allclose(one.covariance, other.covariance, rtol=1e-8)

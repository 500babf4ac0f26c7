"""Fits of Ray Data sets and Dask data frames: the numbers of one machine, from sums that partitions send."""

import importlib.util
import os
import pickle
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedlsa as fl
from fedlsa import Regression
from fedlsa.errors import ArgumentError, ArgumentTypeError, ClusterError, SiteDataError
from fedlsa.fitting import partitions
from fedlsa.fitting.rows import Columns

dask = pytest.importorskip("dask", reason="pip install 'fedlsa[dask]'")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="pip install 'fedlsa[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")


def make_frame(cut):
    """What Dask has of a table: parts that may hold columns of other types, as files of many years do."""

    class DataFrame:
        __module__ = "dask.dataframe"

        def __init__(self, parts):
            self.parts, self.columns = parts, parts[0].columns

        def __getitem__(self, columns):
            return DataFrame([part[columns] for part in self.parts])

        def to_delayed(self):
            return [dask.delayed(part, traverse=False) for part in self.parts]

    return DataFrame(cut)


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def table(seed=0, n=600):
    rng = np.random.default_rng(seed)
    found = pd.DataFrame({"a": 1e4 + rng.normal(size=n), "b": rng.exponential(size=n), "w": rng.uniform(0.2, 3, n)})
    found["k"] = np.where(np.arange(n) < 6, "rare", rng.choice(["p", "q", "r"], n))
    found["year"], found["patient"] = rng.integers(2018, 2023, n), rng.integers(0, 45, n)
    found["site"] = rng.choice([2, 10, 3, 7], n, p=[0.5, 0.3, 0.15, 0.05])
    found["y"] = found.a + found.b * (found.k == "q") + rng.normal(size=n) * (1 + found.b) + 0.1 * found.patient
    found.loc[rng.choice(n, 25, replace=False), "b"] = np.nan
    return found


def cut(whole, seed=0, parts=6):
    """In some order: parts of any size, one with all of a level, one empty, one where a site has a single row."""
    rng = np.random.default_rng([1, seed])
    which = rng.integers(0, parts, len(whole))
    which[(whole.k == "rare").to_numpy()] = 0
    which[int(np.argmax(whole.site == 7))] = parts
    out = [whole.iloc[np.flatnonzero(which == k)] for k in range(parts + 1)] + [whole.iloc[:0]]
    return [out[k] for k in rng.permutation(len(out))]


def assert_same(found, expected, tolerance=1e-11):
    """Every number of two fits, each by its own size."""
    assert found.names == expected.names
    assert found.levels == expected.levels
    assert found.covariance_kind == expected.covariance_kind
    assert (found.own_effects or {}) == pytest.approx(expected.own_effects or {}, rel=1e-9)
    error = expected.standard_error
    np.testing.assert_allclose(found.theta, expected.theta, rtol=tolerance, atol=tolerance * error.min())
    np.testing.assert_allclose(found.standard_error, error, rtol=tolerance)
    off = (found.covariance - expected.covariance) / np.outer(error, error)
    assert abs(off).max() < tolerance
    for name in ("degrees_of_freedom", "r_squared", "residual_variance", "log_likelihood"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=tolerance, err_msg=name)
    np.testing.assert_allclose(found.p_values, expected.p_values, rtol=1e-8, atol=1e-300)  # of |t| up to 40
    assert [(s.name, s.rows, s.dropped) for s in found.per_site] == [
        (s.name, s.rows, s.dropped) for s in expected.per_site
    ]
    for a, b in zip(found.per_site, expected.per_site, strict=True):
        for name in ("weight", "theta", "influence", "finite_data", "covariance", "degrees_of_freedom", "without"):
            given, wanted = np.asarray(getattr(a, name)), np.asarray(getattr(b, name))
            np.testing.assert_array_equal(np.isnan(given), np.isnan(wanted), err_msg=name)
            size = np.nanmax(abs(wanted), initial=0)
            np.testing.assert_allclose(given, wanted, rtol=1e-9, atol=1e-9 * size, err_msg=f"{name} of {a.name}")


COLUMNS = Regression("y", ["a", "b"], missing="drop")
FITS = {
    "HC3": (COLUMNS, {}),
    "HC1, a row weight": (Regression("y", ["a", "b"], missing="drop", row_weights="w"), {"covariance": "HC1"}),
    "CR3 across partitions and sites": (COLUMNS, {"cluster": "patient"}),
    "CR1 of sites": (COLUMNS, {"cluster": "sites", "covariance": "CR1"}),
    "classical, sites count the same": (
        Regression("y ~ a + b*k", missing="drop"),
        {"covariance": "classical", "weight": "sites"},
    ),
    "categories, ridge, CR3": (
        Regression("y ~ a + b + k + C(year)", missing="drop", ridge=0.1),
        {"cluster": "patient", "weight": "sites"},
    ),
    "own intercepts, CR3": (
        Regression("y ~ a + b + k", missing="drop", own="intercept", row_weights="w"),
        {"cluster": "patient"},
    ),
    "own intercepts, HC3": (Regression("y", ["a", "b"], missing="drop", own="intercept"), {"weight": "sites"}),
    "as they are": (Regression("y", "b", missing="drop", standardise=False, offset="w"), {"covariance": "HC2"}),
}


@pytest.mark.parametrize(
    "name", ["HC3", "classical, sites count the same", "categories, ridge, CR3", "own intercepts, CR3"]
)
def test_partitions_give_the_numbers_of_one_machine(name):
    (task, options), whole = FITS[name], table()
    expected = fl.fit(whole, task, site="site", plan=False, **options)
    assert_same(fl.fit(make_frame(cut(whole)), task, site="site", plan=False, **options), expected)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", FITS)
def test_however_rows_are_shared_out_the_numbers_are_those_of_one_machine(name, seed):
    (task, options), whole = FITS[name], table(seed, 300)
    expected = fl.fit(whole, task, site="site", plan=False, **options)
    for parts in (1, 20):
        assert_same(fl.fit(make_frame(cut(whole, seed, parts)), task, site="site", plan=False, **options), expected)


def test_the_planned_run_and_the_notes_are_those_of_one_machine():
    """In one partition, with the rows in their order, even the correlation of neighbours is the same."""
    whole = table().sort_values("patient")
    whole["y"] = whole.y + np.cumsum(np.random.default_rng(3).normal(size=len(whole)))
    expected = fl.fit(whole, COLUMNS, site="site", local="means")
    found = fl.fit(make_frame([whole]), COLUMNS, site="site")
    assert found.plan == expected.plan
    np.testing.assert_allclose(found.protocol, expected.protocol, rtol=1e-11)
    assert any("consecutive rows are correlated" in note for note in expected.notes)
    assert found.notes == expected.notes
    some = fl.fit(make_frame([whole.iloc[:300], whole.iloc[300:]]), COLUMNS, site="site", plan=False)
    assert any("consecutive rows are correlated" in note for note in some.notes)


def test_ids_and_levels_are_the_same_whatever_a_partition_makes_of_their_type():
    """5, 5.0 and "5" are one site and one cluster; a level may be in one partition alone, and a column without any."""
    task = Regression("y ~ a + b + k + C(year)", missing="drop")
    whole = table()
    parts = [part.copy() for part in cut(whole, parts=4) if len(part)]
    parts[0] = parts[0].assign(site=parts[0].site.astype(float), patient=parts[0].patient.astype(float))
    parts[1] = parts[1].assign(year=parts[1].year.astype(float), b=parts[1].b.astype(object))
    parts[2] = parts[2].assign(site=parts[2].site.astype(str), k=parts[2].k.astype("category"))
    lost = parts[3].assign(k=np.nan, patient=parts[3].patient.astype(float))
    same = pd.concat([part for i, part in enumerate(parts) if i != 3] + [parts[3].assign(k=None)])
    same = same.astype({"site": float, "patient": int, "b": float, "year": int}).astype({"site": int})
    expected = fl.fit(same, task, site="site", cluster="patient", plan=False)
    assert expected.levels["k"] == ("p", "q", "r", "rare")
    given = make_frame([lost, *parts[:3], *parts[4:]])
    assert_same(fl.fit(given, task, site="site", cluster="patient", plan=False), expected)


@pytest.mark.long
def test_a_level_that_rows_without_a_value_alone_have_is_none():
    whole = table()
    whole.loc[whole.k == "rare", "b"] = np.nan
    found = fl.fit(make_frame(cut(whole)), Regression("y ~ b + k", missing="drop"), site="site", plan=False)
    assert found.levels["k"] == ("p", "q", "r")


def test_what_a_partition_sends_does_not_grow_with_its_rows():
    """Sums of its sites and clusters alone, pickled as Ray and Dask send them: as large for 20 times the rows."""
    sizes = {}
    for n in (5_000, 100_000):
        whole = table(n=n).dropna()
        sent = []

        class Watched(partitions.Partitions):
            def _on_dask(self, wanted, work, sent=sent):
                out = super()._on_dask(wanted, work)
                sent.extend(len(pickle.dumps(one)) for one in out)
                return out

        source = Watched(make_frame([whole]), {c: c for c in whole}, "site")
        data, weights, systems = partitions.read_partitions(source, COLUMNS, "samples", lambda *_: None, "patient")
        A, solution = systems.solution(weights, data.coefficients)
        kind = partitions.CovarianceKind.of(COLUMNS, None, "patient", None)
        at = fl.fitting.scores.SharedSolution(kind, A, solution, np.eye(3), np.zeros(3)), systems, weights
        data.scores("error bars", lambda *_: None, at)
        sizes[n] = sent
    assert len(sizes[5_000]) == 2
    assert sizes[5_000] == pytest.approx(sizes[100_000], rel=0.001)
    assert sizes[100_000][0] < 2_500  # moments of 4 sites, 3 numbers a row
    assert sizes[100_000][1] < 45 * 4 * 8 * 20 + 8_000  # scores of 45 clusters at 4 sites


REFUSED = {
    "task must be fl.Regression(...) where sites are a Ray or Dask data set": {"task": fl.Value(0.9)},
    "site must be given where sites are a Ray or Dask": {"site": None},
    "covariance must not be 'HAC'": {"covariance": "HAC"},
    "covariance must not be 'HAC' where": {"lag": 3},
    "bootstrap must not be given where": {"bootstrap": 50},
    "local must be 'auto' or 'means' where": {"local": "rows"},
    "column 'y' must hold numbers; got 'u' in row 2 of the data (rows are counted in their partition)": {
        "change": lambda part: part.assign(y=["v"[:0] or 1.0, "u", *part.y[2:]])
    },
    "must say of every row what site it is of; 1 of": {"change": lambda part: part.assign(site=[None, *part.site[1:]])},
    "column 'patient' must have labels that are text or integers where they are so large; got floating point": {
        "change": lambda part: part.assign(patient=2.0**53),
        "cluster": "patient",
    },
    "clusters must have labels of one kind; got the text 'p0'": {
        "change": lambda part: part.assign(patient="p0"),
        "cluster": "patient",
    },
    "column 'k' must hold numbers at all sites, or categories at all": {
        "change": lambda part: part.assign(k=1),
        "task": Regression("y ~ a + k", missing="drop"),
    },
    "column 'k' must have levels of one kind; got numbers": {
        "change": lambda part: part.assign(k=1),
        "task": Regression("y ~ a + C(k)", missing="drop"),
    },
    "7 must have a row without a missing value, or the column, or the site, be left out": {
        "change": lambda part: part.assign(b=part.b.where(part.site != 7)),
        "all": True,
    },
    "the data set must have at least one row; it has none": {"change": lambda part: part.iloc[:0], "all": True},
    "alone determines some coefficient, so that HC3 does not exist": {
        "change": lambda part: part.assign(k=["single", *part.k[1:]]),
        "task": Regression("y ~ a + k"),
        "covariance": "HC3",
    },
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_sums_cannot_tell_is_refused_in_a_sentence(text):
    given = dict(REFUSED[text])
    change, every = given.pop("change", None), given.pop("all", False)
    parts = [part for part in cut(table(n=200)) if len(part) > 5]
    if change is not None:
        parts = [change(part) if every or i == 1 else part for i, part in enumerate(parts)]
    with pytest.raises((ArgumentError, SiteDataError)) as error:
        fl.fit(make_frame(parts), **{"task": COLUMNS, "site": "site", "plan": False} | given)
    assert text in str(error.value)


def test_missing_values_are_counted_over_all_partitions():
    whole = table()
    with pytest.raises(SiteDataError, match="of 4 sites have missing values") as found:
        fl.fit(make_frame(cut(whole)), Regression("y", ["a", "b"]), site="site")
    with pytest.raises(SiteDataError) as expected:
        fl.fit(whole, Regression("y", ["a", "b"]), site="site")
    assert str(found.value).split("; ")[-1] == str(expected.value).split("; ")[-1]
    for c, rows in whole[whole.site != 7].groupby("site"):
        assert f"{c} in {rows.b.isna().sum()} of {len(rows)} rows ('b' {rows.b.isna().sum()})" in str(found.value)


def test_rows_that_are_others_when_they_are_read_again_are_refused():
    class Drawn(type(make_frame([table()]))):
        __module__ = "dask.dataframe"

        def __getitem__(self, columns):
            rng = np.random.default_rng()
            return make_frame([part[columns].assign(y=rng.normal(size=len(part))) for part in self.parts])

    Drawn.__name__ = "DataFrame"
    with pytest.raises(SiteDataError, match="must have the same rows whenever it is read"):
        fl.fit(Drawn(cut(table())), COLUMNS, site="site", plan=False)


def test_a_worker_with_another_version_is_refused():
    work = partitions.PartitionWork(partitions.find_moments, "site", COLUMNS, Columns((), (), "y"), version="0.0")
    assert "another version" in str(work(table()).refused)


def test_other_functions_take_no_data_sets_yet():
    with pytest.raises(ArgumentTypeError):
        fl.fit(make_frame, COLUMNS, site="site")


@pytest.mark.long
def test_data_frames_of_dask_in_threads_and_in_processes():
    """And a chain of delayed parts whose rows are made where they are wanted."""
    import dask.dataframe as dd

    whole = table(n=5000)
    task = Regression("y ~ a + b + k + C(year)", missing="drop")
    expected = fl.fit(whole, task, site="site", cluster="patient", plan=False)
    given = dd.from_pandas(whole, npartitions=18, sort=False)
    for scheduler in ("threads", "processes"):
        with dask.config.set(scheduler=scheduler):
            assert_same(fl.fit(given, task, site="site", cluster="patient", plan=False), expected)


def _end_process(part):
    if len(part) and os.getpid() != int(os.environ["FEDLSA_TEST_PID"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return part


GIVEN = {"task": COLUMNS, "site": "site", "plan": False}


def test_what_partitions_of_dask_lack_or_have_twice_is_named():
    import dask.dataframe as dd

    whole, given = table(), GIVEN
    parts = [dask.delayed(whole[:300]), dask.delayed(whole[300:].drop(columns="b"))]
    with pytest.raises(SiteDataError, match="every partition must have the column 'b'; one lacks it"):
        fl.fit(dd.from_delayed(parts, meta=whole.iloc[:0], verify_meta=False), **given)
    twice = dd.from_pandas(whole.assign(**{"1": whole.a}).rename(columns={"w": 1}), npartitions=2, sort=False)
    with pytest.raises(SiteDataError, match="must have each column once; '1' appears 2 times"):
        fl.fit(twice, **given)


@pytest.mark.long
def test_a_pool_of_dask_that_loses_a_process_is_said_to_be_lost(monkeypatch):
    import dask.dataframe as dd

    whole, given = table(), GIVEN
    monkeypatch.setenv("FEDLSA_TEST_PID", str(os.getpid()))
    lost = dd.from_pandas(whole, npartitions=3, sort=False).map_partitions(_end_process, meta=whole.iloc[:0])
    with (
        dask.config.set(scheduler="processes", num_workers=1),
        pytest.raises(ClusterError, match="a process of Dask's pool was lost, and all partitions with it"),
    ):
        fl.fit(lost, **given)


@pytest.fixture(scope="module")
def cluster_of_processes():
    if " " in sys.executable:
        pytest.skip("Ray starts workers through a shell, in which it does not quote the path of Python")
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=200 * 2**20, **quiet)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()


@pytest.mark.long
@needs_ray
@pytest.mark.parametrize("name", ["HC3", "categories, ridge, CR3"])
def test_data_sets_of_ray_give_the_numbers_of_one_machine(name, cluster_of_processes):
    (task, options), whole = FITS[name], table(n=5000)
    expected = fl.fit(whole, task, site="site", plan=False, **options)
    given = cluster_of_processes.data.from_pandas(cut(whole, parts=20))
    assert_same(fl.fit(given, task, site="site", plan=False, **options), expected)
    arrow = cluster_of_processes.data.from_arrow([_arrow(part) for part in cut(whole, parts=3)])
    assert_same(fl.fit(arrow, task, site="site", plan=False, **options), expected)


def _arrow(part):
    import pyarrow as pa

    return pa.Table.from_pandas(part, preserve_index=False)


@pytest.mark.long
@needs_ray
def test_a_killed_worker_costs_only_its_partition(cluster_of_processes, tmp_path):
    """The process that makes partition 3 dies in the second pass: it is made once more, the others are not.

    Tasks by which Ray only looks for the names of columns, in as many partitions as it likes, are not counted.
    """
    parts, rows = 8, 500
    context = cluster_of_processes.get_runtime_context

    def make(batch, folder=str(tmp_path)):
        if partitions._to_frame.__name__ not in context().get_task_name():
            return make_rows(batch["id"])
        k = int(batch["id"][0]) // rows
        times = Path(folder, str(k))
        with times.open("a") as file:
            file.write("x")
        if k == 3 and len(times.read_text()) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return make_rows(batch["id"])

    def make_rows(i):
        x, noise = np.sin(1.0 * i), np.cos(7.0 * i * i)
        return {"x": x, "site": i % 7, "patient": i % 50, "y": 2 * x + noise}

    data = cluster_of_processes.data.range(parts * rows, override_num_blocks=parts).map_batches(make, batch_size=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fl.fit(data, Regression("y", "x"), site="site", cluster="patient", plan=False)
    expected = fl.fit(
        pd.DataFrame(make_rows(np.arange(parts * rows))),
        Regression("y", "x"),
        site="site",
        cluster="patient",
        plan=False,
    )
    assert_same(found, expected)
    times = {k: len((tmp_path / str(k)).read_text()) for k in range(parts)}
    assert times.pop(3) == 3
    assert set(times.values()) == {2}


@pytest.mark.long
@needs_ray
def test_partitions_of_ray_that_a_filter_leaves_empty_and_columns_that_one_lacks(cluster_of_processes):
    whole = table(n=2000)
    parts = [whole.iloc[k::20].assign(part=k) for k in range(20)]
    given = cluster_of_processes.data.from_pandas(parts)
    found = fl.fit(given.filter(lambda row: row["part"] != 1), COLUMNS, site="site", plan=False)
    assert_same(found, fl.fit(pd.concat([*parts[:1], *parts[2:]]), COLUMNS, site="site", plan=False))
    with pytest.raises(SiteDataError, match="must have at least one row; it has none"):
        fl.fit(given.filter(lambda row: False), COLUMNS, site="site", plan=False)
    lacking = cluster_of_processes.data.from_pandas([parts[0], parts[1].drop(columns="b")])
    with pytest.raises(SiteDataError, match="every partition must have the column 'b'; one lacks it"):
        fl.fit(lacking, COLUMNS, site="site", plan=False)

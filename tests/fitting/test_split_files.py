"""Files and folders that hold the rows of many sites: the same sites as one table has, read no more than needed."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedlsa as fl
from fedlsa import Regression
from fedlsa.errors import ArgumentError, SiteDataError
from fedlsa.fitting.sites import site_files
from fedlsa.fitting.sites.missing_rows import MissingRows, complete
from fedlsa.fitting.sites.site_readers import open_sites

TASK = Regression("y")
N = 60
RNG = np.random.default_rng(7)
TABLE = pd.DataFrame({"a": RNG.normal(size=N), "firm": RNG.choice([2, 10, 3], N), "k": RNG.choice(["p", "q"], N)})
TABLE["y"] = 2 * TABLE["a"] + RNG.normal(size=N)
SORTED = TABLE.sort_values("firm", kind="stable", ignore_index=True)
NAMES = ["2", "3", "10"]


def held(sites, rows=7):
    """By site: its numbers, its labels, and the rows that it has, counted from 0."""
    out = {}
    for site in sites:
        pieces = list(site.pieces(("a", "y"), rows, ("k",)))
        where = [p.rows if not isinstance(p.rows, int) else np.arange(p.values.shape[1]) + p.rows for p in pieces]
        labels = [v for p in pieces for v in p.labels["k"].tolist()]
        out[site.name] = np.concatenate([p.values for p in pieces], axis=1), labels, np.concatenate(where)
    return out


@pytest.fixture
def write(tmp_path):
    def to(name, table, **more):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path, row_group_size=8, **more)
        else:
            table.to_csv(path, index=False, **more)
        return path

    return to


@pytest.fixture
def batches(monkeypatch):
    """How many rows have been read from files since."""
    read, inner = [], site_files.FileSite.located

    def counted(self, *arguments):
        for start, batch in inner(self, *arguments):
            read.append(len(batch))
            yield start, batch

    monkeypatch.setattr(site_files.FileSite, "located", counted)
    return read


@pytest.mark.parametrize("memory", [1e9, 1.0], ids=["split in memory", "read apart"])
@pytest.mark.parametrize("table", [TABLE, SORTED], ids=["mixed", "sorted"])
@pytest.mark.parametrize("names", [["t.parquet"], ["t.csv"], ["t.csv.gz"], ["u.parquet", "v.csv"]], ids=" ".join)
def test_files_are_split_as_the_table_that_they_hold(write, memory, table, names):
    cuts = np.linspace(0, N, len(names) + 1).astype(int)
    paths = [write(name, table.iloc[a:b]) for name, a, b in zip(names, cuts, cuts[1:], strict=False)]
    sites = open_sites(paths, TASK, "firm", memory)
    expected = held(open_sites(table, TASK, "firm"))
    assert [s.name for s in sites] == NAMES == list(expected)
    for _ in range(2):  # a second pass finds the same
        found = held(sites)
        for name, (values, labels, rows) in expected.items():
            np.testing.assert_allclose(found[name][0], values, rtol=1e-15)
            assert found[name][1] == labels
            np.testing.assert_array_equal(found[name][2], rows)
    assert sum(s.rows for s in sites) == N


@pytest.mark.parametrize(
    ("table", "memory", "least", "most"),
    [(TABLE, 1e9, 1, 1), (TABLE, 1.0, 2.5, 3), (SORTED, 1.0, 1, 1.4)],
    ids=["once", "apart", "sorted"],
)
def test_shared_row_groups_are_read_once_where_memory_allows(write, batches, table, memory, least, most):
    sites = open_sites(write("t.parquet", table), TASK, "firm", memory)
    assert sum(batches) == N  # the labels
    batches.clear()
    held(sites)
    assert least * N <= sum(batches) <= most * N


def test_rows_that_do_not_fit_are_read_once_for_as_many_sites_as_do(write, batches):
    table = TABLE.assign(firm=np.arange(N) % 12)  # five rows each, of 96 bytes with their labels
    path = write("t.csv", table)  # every pass reads all of it
    expected = held(open_sites(table, TASK, "firm"))
    for sites_at_once in (3, 4):
        sites = open_sites(path, TASK, "firm", 4 * 5 * 96 * sites_at_once)
        batches.clear()
        found = held(sites)
        assert sum(batches) == N * 12 / sites_at_once
        for name, (values, labels, rows) in expected.items():
            np.testing.assert_allclose(found[name][0], values, rtol=1e-15)
            assert found[name][1] == labels
            np.testing.assert_array_equal(found[name][2], rows)
        assert not sites[0].files.held  # nothing stays in memory


def test_folders_are_data_sets_whose_keys_are_columns_or_sites(tmp_path, write):
    for (firm, k), part in TABLE.groupby(["firm", "k"]):
        write(f"set/firm={firm}/k={k}/part.parquet", part.drop(columns=["firm", "k"]))
    write("set/_hidden.csv", TABLE)
    sites = open_sites(tmp_path / "set", TASK, "firm")
    assert [s.name for s in sites] == NAMES
    assert sites[0].columns == ("a", "y", "firm", "k")
    expected = held(open_sites(TABLE, TASK, "firm"))
    for name, (values, labels, _) in held(sites).items():
        np.testing.assert_array_equal(np.sort(values), np.sort(expected[name][0]))
        assert sorted(labels) == sorted(expected[name][1])
    assert [s.name for s in open_sites([tmp_path / "set"], TASK, "k")] == ["p", "q"]
    apart = open_sites(str(tmp_path / "set"), TASK)
    assert [s.name for s in apart][:2] == ["firm=10/k=p/part.parquet", "firm=10/k=q/part.parquet"]
    assert apart[0].columns == ("a", "y")
    (tmp_path / "none").mkdir()
    with pytest.raises(SiteDataError, match=r"none must hold files that end in .parquet.*; it holds none$"):
        open_sites(tmp_path / "none", TASK)


def test_values_of_folders_are_numbers_where_numbers_are_wanted_and_may_be_missing(write, tmp_path):
    for key in ("2019", "2020", "__HIVE_DEFAULT_PARTITION__"):
        write(f"set/year={key}/part.csv", TABLE)
    sites = open_sites(tmp_path / "set", TASK, "firm")
    years = np.concatenate([p["year"] for p in sites[0].pieces(("year",))])
    assert sorted(set(years[~np.isnan(years)])) == [2019, 2020]
    found = MissingRows("")
    assert sum(len(p["a"]) for p in complete(sites[0].pieces(("a",), labels=("year",)), found, drop=True)) > 0
    assert found.incomplete * 3 == found.rows
    with pytest.raises(SiteDataError, match=r"column 'year' must say of every row what site it is of; 60 of 60 rows"):
        open_sites(tmp_path / "set", TASK, "year")


def test_a_fit_of_one_file_is_that_of_the_table_for_formulas_and_clusters_too(write):
    task = Regression("y ~ a + k", cluster="firm", covariance="HC0")
    one = fl.fit(TABLE, task, site="firm", plan=False)
    for path in (write("t.parquet", TABLE), write("t.csv", TABLE)):
        for memory in (1e9, 1.0):
            found = fl.fit(path, task, site="firm", memory=memory, plan=False)
            np.testing.assert_allclose(found.theta, one.theta, rtol=1e-9)
            np.testing.assert_allclose(found.standard_error, one.standard_error, rtol=1e-9)
    fixed = fl.fit(TABLE, Regression("y ~ a + C(firm)"), site="firm", plan=False)  # the site column, where it is named
    assert fixed.names == ("a", "C(firm)[T.3]", "C(firm)[T.10]", "intercept")


def test_labels_of_csv_files_are_names_as_they_are_written(write):
    path = write("t.csv", pd.DataFrame({"a": [1.0, 2, 3], "y": [1.0, 2, 3], "g": ["007", "7", "007"]}))
    assert [s.name for s in open_sites(path, TASK, "g")] == ["007", "7"]


def test_what_is_wrong_with_files_of_many_sites_is_said_in_one_line(write):
    holes = TABLE.assign(firm=[None, *TABLE["firm"][1:-1], None])
    for name in ("t.parquet", "t.csv"):
        with pytest.raises(
            SiteDataError, match=rf"^{name}: column 'firm' must say .*; 2 of 60 rows .* first is row 1$"
        ):
            open_sites(write(name, holes), TASK, "firm")
    good = write("good.parquet", TABLE)
    with pytest.raises(SiteDataError, match=r"^good.parquet has no column 'frim', which is to say .*'firm'"):
        open_sites(good, TASK, "frim")
    with pytest.raises(SiteDataError, match=r"^less.csv has no column 'a', that good.parquet has"):
        open_sites([good, write("less.csv", TABLE[["firm", "y"]])], TASK, "firm")
    with pytest.raises(ArgumentError, match=r"^site must be given for one table, for files or for a folder"):
        open_sites([TABLE, TABLE], TASK, "firm")
    with pytest.raises(SiteDataError, match=r"^text.csv: column 'a' must hold numbers; got 'x' in row 60 of the data$"):
        held(open_sites(write("text.csv", TABLE.assign(a=[*map(str, TABLE["a"][:-1]), "x"])), TASK, "firm"))
    with pytest.raises(SiteDataError, match=r"column 'a' must hold finite numbers; got inf in row 60 of the data$"):
        held(open_sites(write("inf.parquet", TABLE.assign(a=[*TABLE["a"][:-1], np.inf])), TASK, "firm"))

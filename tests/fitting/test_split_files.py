"""Files and folders that hold the rows of many sites: the same sites as one table has, read no more than needed."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedlsa as fl
from fedlsa import Regression
from fedlsa.errors import ArgumentError, SiteDataError
from fedlsa.fitting.sites import open_tables
from fedlsa.fitting.table_files import DataFile
from fedlsa.fitting.tables import MissingRows, drop_incomplete

TASK = Regression("y")
N = 60
RNG = np.random.default_rng(7)
TABLE = pd.DataFrame({"a": RNG.normal(size=N), "firm": RNG.choice([2, 10, 3], N), "k": RNG.choice(["p", "q"], N)})
TABLE["y"] = 2 * TABLE["a"] + RNG.normal(size=N)
SORTED = TABLE.sort_values("firm", kind="stable", ignore_index=True)
NAMES = ["2", "3", "10"]


def held(table, rows=7):
    """By site: its numbers, its labels, and the rows that it has, counted from 0."""
    found = {}
    for block in table.blocks(("a", "y"), rows, ("k",)):
        for c, own in zip(block.sites, np.split(np.arange(block.values.shape[1]), block.starts[1:]), strict=True):
            found.setdefault(table.sites[c], []).append(block.take(own))
    return {
        name: (
            np.concatenate([b.values for b in blocks], axis=1),
            [v for b in blocks for v in b.labels["k"].tolist()],
            np.concatenate([b.rows for b in blocks]),
        )
        for name, blocks in found.items()
    }


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
    read, inner = [], DataFile.batches

    def counted(self, *arguments):
        for start, numbers, texts, codes in inner(self, *arguments):
            read.append(len([*numbers, *texts.values()][0]))
            yield start, numbers, texts, codes

    monkeypatch.setattr(DataFile, "batches", counted)
    return read


@pytest.mark.parametrize("table", [TABLE, SORTED], ids=["mixed", "sorted"])
@pytest.mark.parametrize("names", [["t.parquet"], ["t.csv"], ["t.csv.gz"], ["u.parquet", "v.csv"]], ids=" ".join)
def test_files_are_split_as_the_table_that_they_hold(write, table, names):
    cuts = np.linspace(0, N, len(names) + 1).astype(int)
    paths = [write(name, table.iloc[a:b]) for name, a, b in zip(names, cuts, cuts[1:], strict=False)]
    [split] = open_tables(paths, TASK, "firm")
    expected = held(*open_tables(table, TASK, "firm"))
    assert list(split.sites) == NAMES == list(expected)
    assert split.rows == N
    for _ in range(2):  # a second pass finds the same
        found = held(split)
        for name, (values, labels, rows) in expected.items():
            np.testing.assert_allclose(found[name][0], values, rtol=1e-15)
            assert found[name][1] == labels
            np.testing.assert_array_equal(found[name][2], rows)


@pytest.mark.parametrize("table", [TABLE, SORTED, TABLE.assign(firm=np.arange(N) % 12)], ids=["mixed", "sorted", "12"])
@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_every_pass_reads_each_row_once_however_sites_are_mixed(write, batches, table, name):
    path = write(name, table)
    [split] = open_tables(path, TASK, "firm")
    assert sum(batches) == N  # the labels
    batches.clear()
    held(split)
    assert sum(batches) == N
    for memory, passes in ((1e9, 1), (1.0, 2)):  # a fit reads rows that it cannot keep once more, for the error bars
        batches.clear()
        fl.fit(path, Regression("y", columns="a"), site="firm", memory=memory, plan=False)
        assert sum(batches) == (1 + passes) * N


def test_folders_are_data_sets_whose_keys_are_columns_or_sites(tmp_path, write):
    for (firm, k), part in TABLE.groupby(["firm", "k"]):
        write(f"set/firm={firm}/k={k}/part.parquet", part.drop(columns=["firm", "k"]))
    write("set/_hidden.csv", TABLE)
    [split] = open_tables(tmp_path / "set", TASK, "firm")
    assert list(split.sites) == NAMES
    assert split.columns == ("a", "y", "firm", "k")
    expected = held(*open_tables(TABLE, TASK, "firm"))
    for name, (values, labels, _) in held(split).items():
        np.testing.assert_array_equal(np.sort(values), np.sort(expected[name][0]))
        assert sorted(labels) == sorted(expected[name][1])
    assert open_tables([tmp_path / "set"], TASK, "k")[0].sites == ("p", "q")
    apart = open_tables(str(tmp_path / "set"), TASK)
    assert [s.name for s in apart][:2] == ["firm=10/k=p/part.parquet", "firm=10/k=q/part.parquet"]
    assert apart[0].columns == ("a", "y")
    (tmp_path / "none").mkdir()
    with pytest.raises(SiteDataError, match=r"none must hold files that end in .parquet.*; it holds none$"):
        open_tables(tmp_path / "none", TASK)


def test_values_of_folders_are_numbers_where_numbers_are_wanted_and_may_be_missing(write, tmp_path):
    for key in ("2019", "2020", "__HIVE_DEFAULT_PARTITION__"):
        write(f"set/year={key}/part.csv", TABLE)
    [split] = open_tables(tmp_path / "set", TASK, "firm")
    years = np.concatenate([b["year"] for b in split.blocks(("year",))])
    assert sorted(set(years[~np.isnan(years)])) == [2019, 2020]
    found = MissingRows(split.sites)
    assert (
        sum(len(b["a"]) for b, _ in drop_incomplete(split.blocks(("a",), labels=("year",)), found, drop=True)) == 2 * N
    )
    assert (found.incomplete * 3 == found.rows).all()
    with pytest.raises(SiteDataError, match=r"column 'year' must say of every row what site it is of; 60 of 60 rows"):
        open_tables(tmp_path / "set", TASK, "year")


def test_a_fit_of_one_file_is_that_of_the_table_for_formulas_and_clusters_too(write):
    task, clustered = Regression("y ~ a + k"), {"cluster": "firm", "covariance": "CR0"}
    one = fl.fit(TABLE, task, site="firm", plan=False, **clustered)
    for path in (write("t.parquet", TABLE), write("t.csv", TABLE)):
        for memory in (1e9, 1.0):
            found = fl.fit(path, task, site="firm", memory=memory, plan=False, **clustered)
            np.testing.assert_allclose(found.theta, one.theta, rtol=1e-9)
            np.testing.assert_allclose(found.standard_error, one.standard_error, rtol=1e-9)
    fixed = fl.fit(TABLE, Regression("y ~ a + C(firm)"), site="firm", plan=False)  # the site column, where it is named
    assert fixed.names == ("a", "C(firm)[T.3]", "C(firm)[T.10]", "intercept")


def test_labels_of_csv_files_are_names_as_they_are_written(write):
    path = write("t.csv", pd.DataFrame({"a": [1.0, 2, 3], "y": [1.0, 2, 3], "g": ["007", "7", "007"]}))
    assert open_tables(path, TASK, "g")[0].sites == ("007", "7")


def test_what_is_wrong_with_files_of_many_sites_is_said_in_one_line(write):
    holes = TABLE.assign(firm=[None, *TABLE["firm"][1:-1], None])
    for name in ("t.parquet", "t.csv"):
        with pytest.raises(
            SiteDataError, match=rf"^{name}: column 'firm' must say .*; 2 of 60 rows .* first is row 1$"
        ):
            open_tables(write(name, holes), TASK, "firm")
    good = write("good.parquet", TABLE)
    with pytest.raises(SiteDataError, match=r"^good.parquet has no column 'frim', which is to say .*'firm'"):
        open_tables(good, TASK, "frim")
    less = write("less.csv", TABLE[["firm", "y", "a"]].rename(columns={"a": "more"}))
    with pytest.raises(SiteDataError, match=r"^less.csv lacks the column 'a' that good.parquet has"):
        fl.fit([good, less], Regression("y"), site="firm", plan=False)
    with pytest.raises(ArgumentError, match=r"^site must be given for one table, for files or for a folder"):
        open_tables([TABLE, TABLE], TASK, "firm")
    with pytest.raises(SiteDataError, match=r"^text.csv: column 'a' must hold numbers; got 'x' in row 60 of the data$"):
        held(*open_tables(write("text.csv", TABLE.assign(a=[*map(str, TABLE["a"][:-1]), "x"])), TASK, "firm"))
    with pytest.raises(SiteDataError, match=r"column 'a' must hold finite numbers; got inf in row 60 of the data$"):
        held(*open_tables(write("inf.parquet", TABLE.assign(a=[*TABLE["a"][:-1], np.inf])), TASK, "firm"))


def test_a_file_with_other_sites_than_when_it_was_opened_is_refused(tmp_path):
    path = tmp_path / "f.csv"
    text = "s,x,y\n" + "".join(f"{'ab'[k % 2]},{k},{k % 7}\n" for k in range(20))
    path.write_text(text)
    [table] = open_tables(path, Regression("y"), site="s")
    for changed in ("c", "NA"):
        path.write_text(text.replace("\na,", f"\n{changed},"))
        with pytest.raises(SiteDataError, match=r"f\.csv must not change while it is read"):
            list(table.blocks(["x"]))

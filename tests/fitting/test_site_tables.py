"""One table for all sites, tables by name: the same sites in the same order, whatever holds the rows."""

import datetime
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fedlsa as fl
from fedlsa import Regression
from fedlsa.errors import ArgumentError, ArgumentTypeError, MissingExtraError, SiteDataError
from fedlsa.fitting.sites import open_tables

TASK = Regression("y")
N = 30
RNG = np.random.default_rng(5)
FIRM = np.array(["b", "a10", "a2"])[RNG.integers(3, size=N)]
A = RNG.normal(size=N)
Y = 2 * A + RNG.normal(size=N)
COLUMNS = {"a": A, "firm": FIRM, "y": Y}
NAMES = ["a2", "a10", "b"]
APART = {name: {"a": A[name == FIRM], "y": Y[name == FIRM]} for name in NAMES}


def held(tables, columns=("a", "y"), labels=()):
    """By site: its numbers (k, n), and its labels."""
    found = {}
    for table in tables:
        for block in table.blocks(columns, 4, labels):
            for c, rows in zip(block.sites, np.split(np.arange(block.values.shape[1]), block.starts[1:]), strict=True):
                found.setdefault(table.sites[c], []).append(block.take(rows))
    out = {name: np.concatenate([b.values[:-1] for b in blocks], axis=1) for name, blocks in found.items()}
    for name, blocks in found.items():
        out |= {(name, c): [v for b in blocks for v in b.labels[c].tolist()] for c in labels}
    return out


def quick(sites, task=TASK, **more):
    return fl.fit(sites, task, plan=False, **more)


TABLES = {
    "mapping": COLUMNS,
    "lists": {c: v.tolist() for c, v in COLUMNS.items()},
    "pandas": pd.DataFrame(COLUMNS),
    "pandas, index shuffled": pd.DataFrame(COLUMNS, index=RNG.permutation(N)),
    "pandas, categorical": pd.DataFrame(COLUMNS).astype({"firm": "category"}),
    "pandas, nullable": pd.DataFrame(COLUMNS).convert_dtypes(),
    "pandas, arrow": pd.DataFrame(COLUMNS).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame(COLUMNS),
    "polars, lazy": pl.LazyFrame(COLUMNS),
    "polars, categorical": pl.DataFrame(COLUMNS).with_columns(pl.col("firm").cast(pl.Categorical)),
    "arrow": pa.table(COLUMNS),
    "arrow, dictionary": pa.table(COLUMNS | {"firm": pa.array(FIRM).dictionary_encode()}),
    "arrow, in pieces": pa.concat_tables([pa.table(COLUMNS).slice(0, 7), pa.table(COLUMNS).slice(7)]),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_one_table_is_split_into_sites_named_by_a_column_in_the_order_of_their_names(table):
    [one] = open_tables(table, TASK, "firm")
    assert one.sites == tuple(NAMES)
    assert one.rows == N
    found = held([one])
    assert list(found) == NAMES
    for name, values in found.items():
        np.testing.assert_array_equal(values, np.stack([APART[name]["a"], APART[name]["y"]]))
    assert held([one], ("a",), ("firm",))["b", "firm"] == ["b"] * np.sum(FIRM == "b")


def test_one_table_tables_by_name_and_a_list_give_the_same_fit():
    one = quick(pd.DataFrame(COLUMNS), site="firm")
    assert one.names == ("a", "intercept")  # the site column explains nothing
    assert [s.name for s in one.per_site] == NAMES
    by_name = quick(APART)
    grouped = quick(list(pd.DataFrame(COLUMNS).groupby(["firm"])), Regression("y", columns=["a"]))
    for other in (by_name, grouped, quick(list(APART.values()))):
        np.testing.assert_allclose(other.theta, one.theta, rtol=1e-12)
    assert [s.name for s in by_name.per_site] == NAMES
    assert [s.name for s in grouped.per_site] == ["a10", "a2", "b"]
    X = np.column_stack([A, np.ones(N)])
    np.testing.assert_allclose(one.theta, np.linalg.lstsq(X, Y)[0], rtol=1e-10)
    [row, *_] = fl.evaluate(one, pl.DataFrame(COLUMNS), site="firm")
    assert (row.name, row.rows) == ("a2", np.sum(FIRM == "a2"))
    assert fl.site_problem(pa.table(COLUMNS), TASK, site="firm").n_agents == 3


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([10, 9, -1], ["-1", "9", "10"]),
        ([10.0, 9.0, 0.5], ["0.5", "9", "10"]),
        ([2**60 + 2, -(2**60), 2**60], [f"{-(2**60)}", f"{2**60}", f"{2**60 + 2}"]),
        ([True, False, True], ["False", "True"]),
        (np.array([3, "3", 3.0], object), ["3"]),
        (["x10", "x9", "y"], ["x9", "x10", "y"]),
        ([datetime.date(2020, 1, k) for k in (10, 9, 10)], ["2020-01-09", "2020-01-10"]),
        (np.array(["2020-01-02", "2020-01-02T03"] * 2, "M8[ns]")[:3], ["2020-01-02", "2020-01-02 03:00:00"]),
    ],
)
def test_labels_of_any_kind_are_names_and_numbers_stand_in_their_order(labels, names):
    [table] = open_tables({"a": [1, 2, 3], "y": [1, 2, 3], "g": labels}, TASK, "g")
    assert list(table.sites) == names


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_rows_of_no_site_are_counted_and_refused(missing):
    table = pd.DataFrame({"a": np.ones(4), "y": np.ones(4), "g": np.array(["u", missing, "v", missing], object)})
    said = (
        "the table: column 'g' must say of every row what site it is of; 2 of 4 rows have no value, the first is row 2"
    )
    with pytest.raises(SiteDataError, match=f"^{said}$"):
        open_tables(table, TASK, "g")


def test_what_is_no_list_of_sites_is_refused_in_one_line():
    for sites, shown in (
        (pd.DataFrame(COLUMNS), r"a DataFrame of shape \(\d+, \d\)"),
        ("f.csv", "'f.csv'"),
        (COLUMNS, ""),
    ):
        with pytest.raises(
            ArgumentTypeError, match=rf"^sites must come with site=\.\.\. where one .* is of; got {shown}"
        ):
            open_tables(sites, TASK)
    with pytest.raises(
        ArgumentTypeError, match=r"^sites must be a list with one entry per site.* with site=\.\.\.; got 3$"
    ):
        open_tables(3, TASK)
    with pytest.raises(ArgumentError, match=r"^site must not be given for a mapping, whose keys name the sites"):
        open_tables(APART, TASK, "firm")
    with pytest.raises(SiteDataError, match=r"^the table has no column 'frim'.*did you mean 'firm'"):
        open_tables(COLUMNS, TASK, "frim")
    with pytest.raises(ArgumentTypeError, match=r"^site must be the name of a column; got 3$"):
        open_tables(COLUMNS, TASK, 3)
    with pytest.raises(ArgumentError, match=r"^sites must have names of their own; got 'u' 2 times$"):
        open_tables([("u", APART["b"]), ("u", APART["a2"])], TASK)
    with pytest.raises(SiteDataError, match=r"^the table must have at least one row; it has none$"):
        open_tables(pd.DataFrame(COLUMNS)[:0], TASK, "firm")
    for frame in (pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]), pa.table([[1.0], [2.0]], ["a", "a"])):
        with pytest.raises(SiteDataError, match=r"^site 0 must have each column once; 'a' appears 2 times$"):
            open_tables([frame], TASK)


def test_without_narwhals_pandas_works_and_others_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    assert open_tables(pd.DataFrame(COLUMNS), TASK, "firm")[0].sites == tuple(NAMES)
    nullable = {"a": pd.array([1, None], "Int64"), "y": [1.0, 2.0]}
    np.testing.assert_array_equal(held(open_tables([pd.DataFrame(nullable)], TASK))["site 0"], [[1, np.nan], [1, 2]])
    with pytest.raises(MissingExtraError, match=r"Table need narwhals: pip install 'fedlsa\[data\]'"):
        open_tables([pa.table(COLUMNS)], TASK)


def with_holes():
    """COLUMNS with values missing in six rows, of every used kind, and whether a row lacks nothing."""
    weight, group = np.ones(N), FIRM.astype(object)
    a, y, cluster, unused = A.copy(), Y.copy(), group.copy(), A * np.nan
    a[[3, 4]], y[[4, 8]], weight[9], cluster[20] = np.nan, np.nan, np.nan, None
    whole = ~np.isin(np.arange(N), [3, 4, 8, 9, 20])
    return {"a": a, "y": y, "w": weight, "k": cluster, "firm": FIRM, "unused": unused}, whole


def test_rows_with_missing_values_are_dropped_on_request_and_counted_per_site():
    table, whole = with_holes()
    task = Regression("y", columns=["a"], row_weights="w", missing="drop")
    found = quick(pl.DataFrame(table, strict=False), task, site="firm", cluster="k", covariance="CR0")
    lacking = [int(np.sum(~whole[name == FIRM])) for name in NAMES]
    assert [s.dropped for s in found.per_site] == lacking
    assert sum(lacking) == 5
    assert [s.rows for s in found.per_site] == [int(np.sum(whole[name == FIRM])) for name in NAMES]
    X = np.column_stack([A, np.ones(N)])[whole]
    np.testing.assert_allclose(found.theta, np.linalg.lstsq(X, Y[whole])[0], rtol=1e-10)
    np.testing.assert_allclose(quick(APART, Regression("y", missing="drop")).theta, quick(APART).theta, rtol=0)


def test_missing_values_of_all_sites_are_one_error_that_counts_them():
    table = {"a": [1.0, None, 2.0, 3.0, 4.0, None], "y": [1.0, None, 3.0, 4.0, 5.0, 6.0], "g": list("uuvvww")}
    said = (
        "2 of 3 sites have missing values: u in 1 of 2 rows ('a' 1, first in row 2; 'y' 1, first in row 2), "
        "w in 1 of 2 rows ('a' 1, first in row 6); missing='drop' (--missing drop) leaves such rows out"
    )
    with pytest.raises(SiteDataError) as caught:
        quick(pl.DataFrame(table), site="g")
    assert str(caught.value) == said
    value = fl.Value(discount=0.5, state="a", next_state="b", reward="r", terminated="d")
    log = {"a": [0.5, np.nan], "b": [0.1, 0.2], "r": [1, 2], "d": [0, 0]}
    with pytest.raises(SiteDataError, match=r"^values are missing at site 0 in 1 of 2 rows \('a' 1, first in row 2\)$"):
        fl.fit([log], value)


def test_a_site_of_which_nothing_is_left_is_an_error():
    table = {"a": [1.0, np.nan, 2.0, 3.0], "y": [1.0, 2.0, 3.0, 5.0], "g": list("vuvv")}
    said = (
        r"^u must have a row without a missing value, or the column, or the site, be left out; "
        r"values are missing at u in 1 of 1 rows \('a' 1, first in row 2\)$"
    )
    with pytest.raises(SiteDataError, match=said):
        quick(table, Regression("y", missing="drop"), site="g")


def test_rows_in_errors_are_those_of_the_table_also_after_dropped_ones():
    table = {"a": [1.0, np.nan, 2.0, 3.0], "y": np.arange(4.0), "w": [1, 1, 1, -1], "g": list("uvvv")}
    with pytest.raises(SiteDataError, match=r"^v: column 'w' must hold weights of at least 0; got -1 in row 4 of"):
        quick(table, Regression("y", row_weights="w", missing="drop"), site="g")
    with pytest.raises(SiteDataError, match=r"^v: column 'a' must hold finite numbers; got inf in row 3 of the data"):
        quick(table | {"a": [1, 2, np.inf, 3]}, site="g")


def test_an_index_column_is_refused_in_frames_of_features_too():
    phi = pd.DataFrame({"Unnamed: 0": [0, 1], "u": [0.5, 0.25]})
    with pytest.raises(
        SiteDataError, match=r"^site 0: phi has a column 'Unnamed: 0', as an index is written: .*index=False"
    ):
        open_tables([(phi, [1, 2], phi, [0, 0])], fl.Value(discount=0.5))


def test_states_that_are_integers_are_asked_about_in_tables_and_files_alike(tmp_path):
    log = {"state": [0, 1, 2, 1], "next_state": [1, 2, 1, 0], "reward": [0, 1, 0, 1], "terminated": [0, 0, 0, 1]}
    table = pd.DataFrame(log | {"plant": ["p", "q", "p", "q"]})
    table.to_csv(tmp_path / "f.csv", index=False)
    table.astype({"state": "int8"}).to_parquet(tmp_path / "f.parquet", index=False)
    held = (table, table.convert_dtypes(), pl.DataFrame(table), pa.Table.from_pandas(table), tmp_path / "f.csv")
    for sites in (*held, tmp_path / "f.parquet"):
        with pytest.raises(SiteDataError, match=r"^p: column 'state' holds integers alone\. .*features must say so"):
            fl.fit(sites, fl.Value(discount=0.5), site="plant", plan=False)
        found = fl.fit(sites, fl.Value(discount=0.5, features=np.eye(3)), site="plant", plan=False)
        assert [s.rows for s in found.per_site] == [2, 2]

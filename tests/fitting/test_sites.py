"""Site files and arrays: what is accepted is read exactly, and what is not gets one line that names its place."""

import decimal
import gzip
import os
import sys
from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedlsa import Regression, Value
from fedlsa.errors import ArgumentError, ArgumentTypeError, MissingExtraError, SiteDataError
from fedlsa.fitting import table_files
from fedlsa.fitting.sites import open_tables
from fedlsa.fitting.tables import MissingRows, drop_incomplete
from fedlsa.problems import Log

TASK = Regression(target="y")
NO_TEXT = "must be text in UTF-8 (Excel: CSV UTF-8); its first line is not"
GOOD = "a,b,y\n" + "".join(f"{k},{k * k / 8},{k % 3}\n" for k in range(20))
N = 20
ROUTES = [1, 2**13]  # rows from which a Parquet file is read group by group, where those here have 7: so and in batches


def opened(entry, task=TASK):
    return open_tables([entry], task)[0]


def read(site, columns=("a", "b", "y"), rows=2**16):
    blocks = [block for block, _ in drop_incomplete(site.blocks(columns, rows), MissingRows(site.sites), drop=False)]
    return {c: np.concatenate([b[c] for b in blocks]) for c in columns}


def message(entry, task=TASK):
    """The one line with which a site is refused, when it is opened or when it is read."""
    with pytest.raises(SiteDataError) as caught:
        read(opened(entry, task))
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def write(tmp_path):
    def to(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return to


@pytest.fixture
def parquet(tmp_path):
    def to(name, **columns):
        held = {"a": np.arange(N) / 4, "b": np.arange(N) ** 2.0, "y": np.ones(N)} | columns
        pq.write_table(pa.table(held), tmp_path / name, row_group_size=7)
        return tmp_path / name

    return to


@pytest.mark.parametrize("end", ["csv", "csv.gz"])
def test_a_csv_file_gives_its_numbers_in_pieces_of_any_size(write, end):
    text = GOOD.replace("\n", ",unread\n").replace("unread", "name", 1)
    site = opened(write(f"f.{end}", gzip.compress(text.encode()) if end == "csv.gz" else text))
    assert site.columns == ("a", "b", "y", "name")
    assert site.name == f"f.{end}"
    for rows in (1, 7, 100):
        found = read(site, rows=rows)
        assert max(len(p["a"]) for p in site.blocks(("a",), rows)) <= rows
        np.testing.assert_array_equal(found["a"], np.arange(N))
        np.testing.assert_array_equal(found["b"], np.arange(N) ** 2 / 8)


def test_csv_may_have_a_byte_order_mark_blank_lines_quotes_and_line_breaks_in_text(write):
    text = '\ufeffa,b,y,note\n1,"2",3,"two\nlines"\n\n 4 ,5e0,+6,\xe9\n'.encode()
    found = read(opened(write("f.csv", text)))
    assert {c: v.tolist() for c, v in found.items()} == {"a": [1, 4], "b": [2, 5], "y": [3, 6]}


def test_true_and_false_are_one_and_zero_in_every_kind_of_site(write, parquet):
    flags = np.arange(N) % 3 == 0
    text = "a,b,y\n" + "".join(f"{str(f).lower()},1,2\n" for f in flags)
    for entry in (write("f.csv", text), parquet("f.parquet", a=flags), {"a": flags, "b": flags, "y": flags}):
        np.testing.assert_array_equal(read(opened(entry))["a"], flags.astype(float))


@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(N), pa.int8()),
        pa.array(range(N), pa.uint64()),
        pa.array(range(N), pa.float32()),
        pa.array(np.arange(N, dtype=np.float16)),
        pa.array([decimal.Decimal(k) for k in range(N)], pa.decimal128(9, 2)),
        pa.array(range(N)).dictionary_encode(),
    ],
    ids=lambda c: str(c.type),
)
@pytest.mark.parametrize("least", ROUTES)
def test_every_kind_of_number_in_parquet_becomes_a_float(parquet, monkeypatch, column, least):
    monkeypatch.setattr(table_files, "SMALL_GROUP", least)
    site = opened(parquet("f.parquet", b=column))
    assert site.rows == N
    for rows in (3, 100):  # less than a row group, and several
        found = read(site, rows=rows)
        assert found["b"].dtype == np.float64
        np.testing.assert_array_equal(found["b"], np.arange(N))


def broken(k, value):
    return [float(j) if j != k else value for j in range(N)]


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        (pa.array(broken(19, float("-inf"))), "column 'b' must hold finite numbers; got -inf in row 20 of the data"),
        (pa.array(["1.5"] * N), "column 'b' must hold numbers; got '1.5' (string) in row 1 of the data"),
        (
            pa.array([datetime(2020, 1, 2)] * N),
            "column 'b' must hold numbers; got 2020-01-02 00:00:00 (timestamp[us]) in row 1 of the data",
        ),
        (pa.array([[1.0]] * N), "column 'b' must hold numbers; got [1.0] (list<element: double>) in row 1 of the data"),
    ],
    ids=["inf", "text", "date", "list"],
)
@pytest.mark.parametrize("least", ROUTES)
def test_what_is_not_a_number_in_parquet_is_refused_with_its_row(parquet, monkeypatch, column, complaint, least):
    monkeypatch.setattr(table_files, "SMALL_GROUP", least)
    assert message(parquet("f.parquet", b=column)) == f"f.parquet: {complaint}"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("1,n.a.,3", "f.csv: column 'b' must hold numbers; got 'n.a.' in row 21 of the data"),
        ("1,,3", "values are missing at f.csv in 1 of 22 rows ('b' 1, first in row 21)"),
        ("1,n/a,3", "values are missing at f.csv in 1 of 22 rows ('b' 1, first in row 21)"),
        ("1,nan,3", "values are missing at f.csv in 1 of 22 rows ('b' 1, first in row 21)"),
        ("NA,NULL,3", "values are missing at f.csv in 1 of 22 rows ('a' 1, first in row 21; 'b' 1, first in row 21)"),
        ("1,1e999,3", "f.csv: column 'b' must hold finite numbers; got inf in row 21 of the data"),
        ("1,true,3", "f.csv: column 'b' must hold numbers; got 'true' in row 21 of the data"),
        ("1,2", "f.csv must have 3 fields in every row, as in its header; row 21 of the data has 2"),
        ("1,2,3,4", "f.csv must have 3 fields in every row, as in its header; row 21 of the data has 4"),
    ],
)
def test_a_bad_row_of_a_csv_file_is_found_wherever_it_stands(write, monkeypatch, row, complaint):
    assert message(write("f.csv", GOOD + "\n" + row + "\n5,6,7\n")) == complaint
    monkeypatch.setattr(table_files, "BLOCK", 64)  # blocks of a few lines: the first one knows nothing of it
    assert message(write("f.csv", GOOD + "\n" + row + "\n5,6,7\n")) == complaint


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("f.csv", "", "f.csv must have at least one row; it is empty"),
        ("f.parquet", "", "f.parquet must have at least one row; it is empty"),
        ("f.csv", "\n\n", "f.csv must begin with a line that names its columns; its first line is empty"),
        ("f.csv", "a,b,y", "f.csv must have at least one row; it has a header alone"),
        ("f.csv", "a,a,y\n1,2,3\n", "f.csv must have each column once; 'a' appears 2 times"),
        ("f.csv", "a,b\xe9,y\n1,2,3\n".encode("latin-1"), f"f.csv {NO_TEXT}"),
        ("f.csv", GOOD.encode("utf-16"), f"f.csv {NO_TEXT}"),
        ("f.csv", bytes(100), f"f.csv {NO_TEXT}"),
        ("f.csv.gz", GOOD, "f.csv.gz cannot be read as a CSV file: "),
        ("f.csv.gz", gzip.compress(GOOD.encode(), mtime=0)[:40], "f.csv.gz cannot be read as a CSV file: "),
        ("f.parquet", b"no such thing", "f.parquet cannot be read as a Parquet file: "),
        ("f.txt", GOOD, "f.txt must be a Parquet or CSV file, ending in .parquet, .pq, .csv, .csv.gz, .tsv, .tsv.gz"),
    ],
)
def test_files_that_are_not_what_they_should_be(write, name, content, complaint):
    assert message(write(name, content)).startswith(complaint)


def test_damaged_pages_of_a_parquet_file_are_an_error_of_the_site(parquet):
    path = parquet("f.parquet")
    held = path.read_bytes()
    path.write_bytes(held[:8] + bytes(200) + held[208:])
    assert message(path).startswith("f.parquet cannot be read as a Parquet file: ")


def test_files_that_are_not_there(tmp_path, write):
    assert message(tmp_path / "no.csv") == f"{tmp_path / 'no.csv'} does not exist"
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(SiteDataError, match=r"^north must be a file; it is a folder$"):
        open_tables({"north": tmp_path / "folder.csv"}, TASK)
    locked = write("locked.csv", GOOD)
    locked.chmod(0)
    if not os.access(locked, os.R_OK):
        assert message(locked).startswith("locked.csv cannot be read: ")


def test_duplicate_columns_of_a_parquet_file(tmp_path):
    pq.write_table(pa.table([pa.array([1.0]), pa.array([2.0])], ["a", "a"]), tmp_path / "f.parquet")
    assert message(tmp_path / "f.parquet") == "f.parquet must have each column once; 'a' appears 2 times"


def test_files_are_called_by_name_or_by_path_where_names_repeat(tmp_path, write):
    (tmp_path / "other").mkdir()
    one, two, same = write("f.csv", GOOD), write("g.csv", GOOD), write("other/f.csv", GOOD)
    arrays = (np.ones((2, 2)), np.ones(2))
    names = [s.name for s in open_tables([str(one), two, same, arrays], TASK)]
    assert names == [str(one), "g.csv", str(same), "site 3"]
    with pytest.raises(SiteDataError, match=r"must be given once; it is site 0 and site 2$"):
        open_tables([one, two, tmp_path / "other" / ".." / "f.csv"], TASK)


def test_files_need_pyarrow_and_arrays_do_not(monkeypatch, write):
    path = write("f.csv", GOOD)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"fedlsa\[data\]"):
        opened(path)
    assert opened((np.ones((2, 2)), np.ones(2))).rows == 2


def test_mappings_data_frames_tables_and_tuples_give_the_same_columns():
    a, b, y = np.arange(5), np.arange(5) / 8, np.ones(5, np.float32)
    held = {"a": a, "b": b, "y": y}
    for entry in (held | {"b": b.tolist()}, pd.DataFrame(held), pl.DataFrame(held), pl.LazyFrame(held), pa.table(held)):
        found = read(opened(entry), rows=2)
        assert all(v.dtype == np.float64 for v in found.values())
        np.testing.assert_array_equal(found["a"], a)
        np.testing.assert_array_equal(found["b"], b)
    pair = opened((np.column_stack([a, b]), y))
    assert pair.columns == ("x0", "x1", "y")
    assert opened((np.column_stack([a, b]), y), Regression("y", columns=["a", "b"])).columns == ("a", "b", "y")
    log = opened((np.ones((3, 2)), [1, 2, 3], np.ones((3, 2)), [0, 0, 1], None, [1, 1, 1]), Value(discount=0.9))
    rest = ("reward", "terminated", "importance")
    assert log.columns == ("state0", "state1", "next_state0", "next_state1", *rest)
    numbered = opened(([0, 1], [1, 2], [1, 0], [0, 0], [0, 1]), Value(discount=0.9, features=np.eye(2)))
    assert numbered.columns == ("state", "next_state", "reward", "terminated", "truncated")


def test_a_column_that_nobody_wants_is_not_looked_at():
    site = opened({"a": np.ones(3), "b": ["x", "y", "z"], "y": np.ones(3)})
    np.testing.assert_array_equal(read(site, ("a",))["a"], np.ones(3))


@pytest.mark.parametrize(
    ("b", "complaint"),
    [
        ([1, np.inf, 3], "column 'b' must hold finite numbers; got inf in row 2 of the data"),
        (["x", "y", "z"], "column 'b' must hold numbers; got 'x' in row 1 of the data"),
        (np.array([1, "y", 3], object), "column 'b' must hold numbers; got 'y' in row 2 of the data"),
        (np.array(["2020-01-02"] * 3, "M8[D]"), "column 'b' must hold numbers; got 2020-01-02 in row 1 of the data"),
        (np.ones(3) * 1j, "column 'b' must hold numbers; got 1j in row 1 of the data"),
        (np.ones((3, 2)), "column 'b' must be one-dimensional; got shape (3, 2)"),
        (np.ones(2), "all columns must have as many rows; 'a' has 3 and 'b' has 2"),
    ],
)  # fmt: skip
def test_what_is_not_a_number_in_an_array_is_refused_with_its_row(b, complaint):
    assert message({"a": np.ones(3), "b": b, "y": np.ones(3)}) == f"site 0: {complaint}"


@pytest.mark.parametrize(
    "missing",
    [
        [1, None, 3],
        [1.0, np.nan, 3.0],
        np.ma.array([1, 2, 3], mask=[0, 1, 0]),
        pd.array([1, None, 3], "Int64"),
        pd.array([True, None, True], "boolean"),
        pd.Categorical([1, None, 3]),
        pa.array([1, None, 3]),
        pa.array([1, None, 3]).dictionary_encode(),
        np.array([decimal.Decimal(1), decimal.Decimal("nan"), 3], object),
    ],
    ids=["None", "NaN", "masked", "Int64", "boolean", "categorical", "arrow", "dictionary", "decimal"],
)
def test_every_way_of_missing_is_counted_with_its_row(tmp_path, missing):
    said = "in 1 of 3 rows ('b' 1, first in row 2)"
    assert message({"a": np.ones(3), "b": missing, "y": np.ones(3)}) == f"values are missing at site 0 {said}"
    if isinstance(missing, pa.Array):
        pq.write_table(pa.table({"a": np.ones(3), "b": missing, "y": np.ones(3)}), tmp_path / "f.parquet")
        assert message(tmp_path / "f.parquet") == f"values are missing at f.parquet {said}"


def test_a_sum_beyond_all_numbers_is_not_taken_for_an_infinite_entry():
    np.testing.assert_array_equal(read(opened({"a": [1e308] * 3}), ("a",))["a"], [1e308] * 3)


@pytest.mark.parametrize(
    ("entry", "task", "complaint"),
    [
        ({}, TASK, "site 0 must have columns; it has none"),
        ((1, 2, 3), TASK, r"site 0 must be a pair of arrays \(X, y\); got 3 entries"),
        ((np.ones((2, 2, 2)), [1, 2]), TASK, r"site 0: X must have the shape \(rows, columns\); got shape \(2, 2, 2\)"),
        ((np.ones((2, 0)), [1, 2]), TASK, "site 0: X must have at least one column"),
        (([[1, 2], [3]], [1, 2]), TASK, "site 0: X must have rows of one length"),
        (
            (np.ones((2, 2)), [1, 2]),
            Regression("y", columns=["a"]),
            "X must have 1 columns, as many as are named; got 2",
        ),
        ((1, 2), Value(discount=0.9), r"site 0 must be a tuple of arrays \(phi, r, phi_next, terminated"),
    ],
)
def test_tuples_of_arrays_that_do_not_fit(entry, task, complaint):
    with pytest.raises(SiteDataError, match=complaint):
        opened(entry, task)


def test_there_must_be_a_site_and_each_must_be_of_a_known_kind():
    with pytest.raises(ArgumentError, match="got none"):
        open_tables([], TASK)
    for entry in (3, np.ones((2, 2)), None):
        with pytest.raises(ArgumentTypeError, match=r"sites\[1\] must be a path, a table"):
            open_tables([{"a": [1]}, entry], TASK)


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_a_number_that_is_not_finite_is_found_in_any_piece(parquet, rows):
    both = np.arange(float(N))
    both[[4, 15]] = np.inf, -np.inf
    site = opened(parquet("f.parquet", b=both))
    with pytest.raises(SiteDataError, match=r"f.parquet: column 'b' must hold finite numbers; got inf in row 5 of"):
        read(site, rows=rows)


def test_finite_numbers_whose_sum_is_not_are_accepted(parquet):
    huge = np.full(N, 1e308)
    np.testing.assert_array_equal(read(opened(parquet("f.parquet", a=huge, b=huge)))["b"], huge)


def test_logs_are_sites_alone_in_lists_and_by_name():
    s = np.array([[0.0, 1.0], [1.0, 2.0], [3.0, 4.0]])
    log = Log(s[:-1], [0, 1], [1.0, 2.0], s[1:], [0, 1], [0, 0], [0.5, 1.5])
    for given in (log, [log], (log,), {"a": log}):
        [site] = open_tables(given, Value(0.9))
        [block] = site.blocks(["state_0", "next_state_1", "terminated", "importance"])
        np.testing.assert_array_equal(block.values[:4], [[0, 1], [2, 4], [0, 1], [0.5, 1.5]])
    assert [site.name for site in open_tables([log, log.columns(), log], Value(0.9))] == ["site 0", "site 1", "site 2"]
    assert [site.name for site in open_tables({"oslo": log, "rome": log}, Value(0.9))] == ["oslo", "rome"]


def test_a_file_with_the_name_of_a_minari_data_set_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs-v0").write_text(GOOD)
    with pytest.raises(SiteDataError, match="runs-v0"):  # neither CSV nor Parquet by its name
        open_tables(["runs-v0"], TASK)

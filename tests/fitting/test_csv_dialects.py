"""CSV files as spreadsheets write them: any separator, decimal commas, missing values; what is doubtful is refused."""

import gzip
import re

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import fedlsa as fl
from fedlsa import Regression
from fedlsa.errors import SiteDataError
from fedlsa.fitting import table_files
from fedlsa.fitting.sites import open_tables
from fedlsa.fitting.tables import MissingRows, drop_incomplete

TASK = Regression("y")
EXPECTED = {"a": [1.5, -2, 0.25], "b": [3.25, 4, 5], "y": [1, 2e3, 3]}
SEPARATORS = pytest.mark.parametrize("mark", [",", ";", "\t", "|"], ids=["comma", "semicolon", "tab", "bar"])


@pytest.fixture
def opened(tmp_path):
    def to(text, name="f.csv"):
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return open_tables([tmp_path / name], TASK)[0]

    return to


def read(table, columns=("a", "b", "y"), labels=()):
    pieces = list(table.blocks(columns, labels=labels))
    numbers = {c: np.concatenate([p[c] for p in pieces]).tolist() for c in columns}
    return numbers | {c: [v for p in pieces for v in p.labels[c].tolist()] for c in labels}


def refused(opened, text, columns=("a", "b", "y"), labels=()):
    with pytest.raises(SiteDataError) as caught:
        read(opened(text), columns, labels)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@SEPARATORS
@pytest.mark.parametrize("name", ["f.csv", "f.csv.gz", "f.tsv"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_the_header_says_what_separates_fields(opened, mark, name, end):
    rows = ["a,b,note,y", '1.5,"3.25",x,1', "-2,4,,2e3", " 0.25 ,+5,,3"]
    text = end.join(row.replace(",", mark) for row in rows)
    for start in (b"", b"\xef\xbb\xbf"):  # and a byte order mark
        assert read(opened(start + text.encode(), name)) == EXPECTED


@pytest.mark.parametrize("mark", [";", "\t", "|"], ids=["semicolon", "tab", "bar"])
def test_decimal_commas_are_numbers_where_commas_separate_nothing(opened, mark):
    rows = ["a;b;note;y", '1,5;"3,25";1,2,3;1', "-2;4;x;2e3", ",25;5,0;;3"]
    assert read(opened("\n".join(rows).replace(";", mark))) == EXPECTED


def test_columns_of_one_file_may_have_commas_and_points(opened):
    text = "a;b;y\n1,5;3.25;1\n-2;4;2e3\n0,25;5;3\n"
    assert read(opened(text)) == EXPECTED


def test_numbers_with_decimal_commas_are_no_categories_of_a_formula(opened, tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        f"{k};{k % 7 + 0.5};{'uv'[k % 2]};{'1,5' if k % 3 else 'x'};{rng.normal():.6f};M\xfcnchen" for k in range(40)
    ]
    site = opened("\n".join(["a;b;c;dose;y;town", *(row.replace(".", ",") for row in rows)]).encode("latin-1"))
    assert read(site, ("a", "b"))["b"][9] == 2.5
    assert read(site, ("y",), ("dose",))["dose"][:2] == ["x", "1,5"]
    fit = fl.fit([tmp_path / "f.csv"], Regression("y ~ a + b + c + C(dose)"), plan=False)
    assert fit.names == ("a", "b", "c[T.v]", "C(dose)[T.x]", "intercept")
    assert np.isfinite(fit.predict(tmp_path / "f.csv")).all()


def test_a_column_of_whole_numbers_may_have_a_decimal_comma_later(opened, monkeypatch):
    monkeypatch.setattr(table_files, "BLOCK", 128)
    rows = ["a;b;y", *(f"{k},5;{k};1" for k in range(60)), "1,5;2,5;1"]
    found = read(opened("\n".join(rows)))
    assert (found["b"][3], found["b"][-1]) == (3, 2.5)


def test_thousands_are_not_guessed(opened):
    for text, row, number in (
        ("a;b;y\n1,5;1;1\n1.234,5;1;1\n", 2, "1.234,5"),
        ("a;b;y\n1,234,567;1;1\n", 1, "1,234,567"),
    ):
        said = f"got {number!r} (decimal='.' or ',' says which mark is the decimal one) in row {row} of the data"
        assert refused(opened, text).endswith(said)
    assert refused(opened, "a;b;y\n1 234;1;1\n").endswith("got '1 234' in row 1 of the data")


@pytest.mark.parametrize(
    ("text", "number", "row"),
    [
        ("a;b;y\n1,5;1;1\n1.234;1;1\n", "1.234", 2),  # beside decimal commas of its column
        ("a;b;y\n1.234;1,5;1\n2;1;1\n", "1.234", 1),  # or of its file
        ("a;b;y\n1.234;1;1\n2;1;1\n", "1.234", 1),  # or where semicolons stand for commas that are in use
        ('a,b,y\n1,2.5,1\n"1,234",1,1\n', "1,234", 2),  # beside decimal points
    ],
    ids=["column", "file", "semicolons", "points"],
)
def test_a_number_that_can_be_read_in_two_ways_is_refused_with_both_unless_the_mark_is_given(
    opened, tmp_path, text, number, row
):
    there, other = (",", ".") if "," in number else (".", ",")
    said = f"got '{number}' in row {row} of the data, which is 1.234 (decimal='{there}') or 1234 (decimal='{other}')"
    assert refused(opened, text) == f"f.csv: column 'a' must be numbers that can be read in one way; {said}"
    [table] = open_tables([tmp_path / "f.csv"], TASK, decimal=other)
    assert read(table)["a"][row - 1] == 1234


@pytest.mark.parametrize("number", ["1.234", "1,234", "5.25"])
def test_a_doubtful_number_after_whole_ones_is_refused_wherever_it_stands(opened, monkeypatch, number):
    monkeypatch.setattr(table_files, "BLOCK", 128)
    whole = "a;b;y\n" + "5;1;1\n" * 60
    said = f"got '{number}' (decimal='.' or ',' says which mark is the decimal one) in row 61 of the data"
    assert refused(opened, f"{whole}{number};1;1\n").endswith(said)
    assert read(opened(whole + "NA;1;1\n"))["b"] == [1.0] * 61


def test_decimals_are_read_where_nothing_speaks_against_them(opened):
    assert read(opened("a,b,y\n1.234,2,3\n5.678,1,1\n"))["a"] == [1.234, 5.678]  # three of them, and no comma at all
    assert read(opened("a;b;y\n1.234;2,5;3\n5.25;1,5;1\n"))["a"] == [1.234, 5.25]  # the column says which mark it has
    assert read(opened('a,b,y\n"1,5",1,1\n"1,234",1,1\n'))["a"] == [1.5, 1.234]


def test_the_decimal_mark_can_be_given_and_then_the_other_stands_between_thousands(tmp_path):
    rng = np.random.default_rng(1)
    x = (1000 * rng.normal(size=30)).round(2)
    y = (2 * x + rng.normal(size=30)).round(3)
    for mark, between in ((",", "."), (".", ",")):
        written = [f"{a:_.2f};{b:_.3f}".replace(".", mark).replace("_", between) for a, b in zip(x, y, strict=True)]
        (tmp_path / "f.csv").write_text("\n".join(["x;y", *written]))
        found = fl.fit([tmp_path / "f.csv"], TASK, decimal=mark, plan=False)
        np.testing.assert_allclose(found.theta, np.linalg.lstsq(np.column_stack([x, np.ones(30)]), y)[0], rtol=1e-10)
        [row] = fl.evaluate(found, [tmp_path / "f.csv"], decimal=mark)
        assert row.rows == 30
        p = fl.site_problem([tmp_path / "f.csv"], TASK, decimal=mark)
        assert p.n_agents == 1
    with pytest.raises(fl.errors.UnknownNameError, match=r"decimal must be one of '\.', ','; got ';'"):
        fl.fit([tmp_path / "f.csv"], TASK, decimal=";")


@pytest.mark.parametrize("cell", [".", "-", "unknown", "12 mg"])
def test_numbers_with_some_text_among_them_are_refused_unless_they_are_made_a_category(opened, tmp_path, cell):
    rows = "".join(f"{k},{k % 3},{k % 7}\n" for k in range(30))
    opened(f"a,b,y\n{rows}{cell},1,2\n")
    said = f"column 'a' holds numbers but for {cell!r} in row 31 of the data; C(a) makes it a category"
    for missing in ("error", "drop"):
        with pytest.raises(SiteDataError, match=re.escape(said)):
            fl.fit([tmp_path / "f.csv"], Regression("y ~ a", missing=missing), plan=False)
    with pytest.raises(SiteDataError, match=f"column 'a' must hold numbers; got {re.escape(repr(cell))} in row 31"):
        fl.fit([tmp_path / "f.csv"], TASK, plan=False)
    other = opened("a,b,y\n" + "".join(f"{'uvw'[k % 3]},{k},{k % 7}\n" for k in range(30)), "g.csv")
    assert fl.fit([tmp_path / "g.csv"], Regression("y ~ a"), plan=False).names[:2] == ("a[T.v]", "a[T.w]")
    assert other.which_are_categories(["a"]) == {"a": True}


@SEPARATORS
def test_the_careful_reader_names_the_row_in_every_dialect(opened, monkeypatch, mark):
    monkeypatch.setattr(table_files, "BLOCK", 64)
    good = "a,b,y\n" + "".join(f"{k},{k},1\n" for k in range(30))
    for row, said in (
        ("1,x,3", "column 'b' must hold numbers; got 'x' in row 31 of the data"),
        ("1,2", "must have 3 fields in every row, as in its header; row 31 of the data has 2"),
        ("1,inf,3", "column 'b' must hold finite numbers; got inf in row 31 of the data"),
    ):
        assert refused(opened, (good + row + "\n").replace(",", mark)).endswith(said)


@pytest.mark.parametrize("nothing", table_files.NOTHING)
def test_marks_of_missing_values_are_missing_in_numbers_flags_and_labels(opened, nothing):
    text = f"a;b;y;k\n1,5;true;1;p\n{nothing};{nothing};2;{nothing}\n2,5;false;3;q\n"
    site = opened(text)
    found = read(site, labels=("k",))
    np.testing.assert_array_equal(found["a"], [1.5, np.nan, 2.5])
    np.testing.assert_array_equal(found["b"], [1, np.nan, 0])
    assert found["k"] == ["p", None, "q"]
    counted = MissingRows(["f.csv"])
    assert sum(len(p["a"]) for p, _ in drop_incomplete(site.blocks(("a",), labels=("k",)), counted, drop=True)) == 2
    assert counted.incomplete == [1]
    assert counted.columns == {"a": ([1], [2]), "k": ([1], [2])}  # how many rows, and the first of them


def test_text_in_columns_that_are_not_used_may_be_broken(opened):
    assert read(opened(b"a,b,y,note\n1.5,3.25,1,\xff\xfe\n-2,4,2e3,\n0.25,5,3,x\n")) == EXPECTED
    said = "f.csv: column 'note' must be text in UTF-8 (Excel: CSV UTF-8); row 1 of the data is not"
    assert refused(opened, b"a,b,y,note\n1.5,3.25,1,\xff\xfe\n", labels=("note",)) == said


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "latin-1", "utf-32"])
def test_other_encodings_are_refused_in_one_line(opened, coding):
    said = "f.csv must be text in UTF-8 (Excel: CSV UTF-8); its first line is not"
    assert refused(opened, "a;gr\xf6\xdfe;y\n1;2;3\n".encode(coding)) == said


def test_labels_keep_their_text_and_levels_are_numbers_where_all_are_written_so(opened, tmp_path):
    assert read(opened("a,k,y\n1,3,1\n2,,2\n3,04,5\n"), ("a",), ("k",))["k"] == ["3", None, "04"]

    def levels(*labels):
        opened("a,k,y\n" + "".join(f"{j % 5},{labels[j % len(labels)]},{j % 7}\n" for j in range(30)))
        return fl.fit([tmp_path / "f.csv"], Regression("y ~ a + C(k)"), plan=False).levels["k"]

    assert levels("10", "9", "11.0") == (9, 10, 11)
    assert levels("3", "p") == ("3", "p")
    assert levels("01067", "1067", "1068") == ("01067", "1067", "1068")
    assert levels(2**60, 2**60 + 1, 2**60 + 2) == (2**60, 2**60 + 1, 2**60 + 2)


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_clusters_and_sites_with_ids_beyond_floating_point_or_with_zeros_before_them_stay_apart(tmp_path, kind):
    rng = np.random.default_rng(3)
    n = 120
    data = pd.DataFrame({"x": rng.normal(size=n), "big": 2**60 + np.arange(n) % 40, "code": np.arange(n) % 40})
    data["y"] = data.x + rng.normal(size=40)[data.code] + rng.normal(size=n)
    data["code"] = [f"{'0' * (k % 2)}{1067 + k // 2}" for k in data.code]
    given = data
    if kind == "csv":
        data.to_csv(tmp_path / "f.csv", index=False)
        given = tmp_path / "f.csv"
    elif kind == "parquet":
        data.to_parquet(tmp_path / "f.parquet", index=False)
        given = tmp_path / "f.parquet"
    there = smf.ols("y ~ x", data).fit(cov_type="cluster", cov_kwds={"groups": np.arange(n) % 40}).bse
    for column in ("big", "code"):
        sites = [given] if kind != "frame" else [data]
        found = fl.fit(sites, Regression("y", columns="x"), cluster=column, covariance="CR1", plan=False)
        assert found.covariance_kind == "CR1, 40 clusters"
        np.testing.assert_allclose(found.standard_error, there[["x", "Intercept"]], rtol=1e-9)
        by_site = fl.fit(given, Regression("y", columns="x"), site=column, plan=False)
        assert [s.rows for s in by_site.per_site] == [3] * 40
        assert len({s.name for s in by_site.per_site}) == 40


def test_a_spreadsheet_of_all_sites_is_fitted(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=40).round(3)
    y = (2 * x + rng.normal(size=40)).round(3)
    numbers = ([str(v).replace(".", ",") for v in column] for column in (x, y))
    rows = [";".join([*row, "n/v"]) for row in zip("pqpq" * 10, *numbers, strict=True)]
    (tmp_path / "f.csv").write_bytes(b"\xef\xbb\xbfplant;x;y;note\r\n" + "\r\n".join(rows).encode())
    found = fl.fit(tmp_path / "f.csv", Regression("y", columns="x"), site="plant", plan=False)
    np.testing.assert_allclose(found.theta, np.linalg.lstsq(np.column_stack([x, np.ones(40)]), y)[0], rtol=1e-10)
    assert [s.name for s in found.per_site] == ["p", "q"]

"""CSV files as spreadsheets write them: any separator, decimal commas, missing values; what is doubtful is refused."""

import gzip

import numpy as np
import pytest

import fedlsa as fl
from fedlsa import Regression
from fedlsa.errors import SiteDataError
from fedlsa.fitting.sites import csv_files
from fedlsa.fitting.sites.missing_rows import MissingRows, complete
from fedlsa.fitting.sites.site_readers import open_sites

TASK = Regression("y")
EXPECTED = {"a": [1.5, -2, 0.25], "b": [3.25, 4, 5], "y": [1, 2e3, 3]}
SEPARATORS = pytest.mark.parametrize("mark", [",", ";", "\t", "|"], ids=["comma", "semicolon", "tab", "bar"])


@pytest.fixture
def opened(tmp_path):
    def to(text, name="f.csv"):
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return open_sites([tmp_path / name], TASK)[0]

    return to


def read(site, columns=("a", "b", "y"), labels=()):
    pieces = list(site.pieces(columns, labels=labels))
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
    assert read(site, labels=("a", "b", "c", "dose"))["a"][:2] == [0, 1]
    found = read(site, ("y",), ("a", "b", "dose"))
    assert (found["a"][9], found["b"][9], found["dose"][:2]) == (9, 2.5, ["x", "1,5"])
    fit = fl.fit([tmp_path / "f.csv"], Regression("y ~ a + b + c + dose"), plan=False)
    assert fit.names == ("a", "b", "c[T.v]", "dose[T.x]", "intercept")
    assert np.isfinite(fit.predict(tmp_path / "f.csv")).all()


def test_a_column_of_whole_numbers_may_have_a_decimal_comma_later(opened, monkeypatch):
    monkeypatch.setattr(csv_files, "BLOCK", 128)
    rows = ["a;b;y", *(f"{k},5;{k};1" for k in range(60)), "1,5;2,5;1"]
    found = read(opened("\n".join(rows)))
    assert (found["b"][3], found["b"][-1]) == (3, 2.5)


def test_thousands_are_not_guessed(opened):
    assert refused(opened, "a;b;y\n1,5;1;1\n1.234,5;1;1\n").endswith("got '1.234,5' in row 2 of the data")
    assert refused(opened, "a;b;y\n1,5;1;1\n1.234;1;1\n").endswith("got '1.234' in row 2 of the data")
    assert refused(opened, 'a,b,y\n"1,5",1,1\n').endswith(
        "column 'a' must hold numbers; got '1,5' in row 1 of the data"
    )
    assert refused(opened, "a;b;y\n1 234;1;1\n").endswith("got '1 234' in row 1 of the data")
    assert refused(opened, "a;b;y\n1,234,567;1;1\n").endswith("got '1,234,567' in row 1 of the data")


@SEPARATORS
def test_the_careful_reader_names_the_row_in_every_dialect(opened, monkeypatch, mark):
    monkeypatch.setattr(csv_files, "BLOCK", 64)
    good = "a,b,y\n" + "".join(f"{k},{k},1\n" for k in range(30))
    for row, said in (
        ("1,x,3", "column 'b' must hold numbers; got 'x' in row 31 of the data"),
        ("1,2", "must have 3 fields in every row, as in its header; row 31 of the data has 2"),
        ("1,inf,3", "column 'b' must hold finite numbers; got inf in row 31 of the data"),
    ):
        assert refused(opened, (good + row + "\n").replace(",", mark)).endswith(said)


@pytest.mark.parametrize("nothing", csv_files.NOTHING)
def test_marks_of_missing_values_are_missing_in_numbers_flags_and_labels(opened, nothing):
    text = f"a;b;y;k\n1,5;true;1;p\n{nothing};{nothing};2;{nothing}\n2,5;false;3;q\n"
    site = opened(text)
    found = read(site, labels=("k",))
    np.testing.assert_array_equal(found["a"], [1.5, np.nan, 2.5])
    np.testing.assert_array_equal(found["b"], [1, np.nan, 0])
    assert found["k"] == ["p", None, "q"]
    counted = MissingRows("f.csv")
    assert sum(len(p["a"]) for p in complete(site.pieces(("a",), labels=("k",)), counted, drop=True)) == 2
    assert (counted.incomplete, counted.columns) == (1, {"a": (1, 2), "k": (1, 2)})


def test_text_in_columns_that_are_not_used_may_be_broken(opened):
    assert read(opened(b"a,b,y,note\n1.5,3.25,1,\xff\xfe\n-2,4,2e3,\n0.25,5,3,x\n")) == EXPECTED
    said = "f.csv: column 'note' must be text in UTF-8 (Excel: CSV UTF-8); row 1 of the data is not"
    assert refused(opened, b"a,b,y,note\n1.5,3.25,1,\xff\xfe\n", labels=("note",)) == said


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "latin-1", "utf-32"])
def test_other_encodings_are_refused_in_one_line(opened, coding):
    said = "f.csv must be text in UTF-8 (Excel: CSV UTF-8); its first line is not"
    assert refused(opened, "a;gr\xf6\xdfe;y\n1;2;3\n".encode(coding)) == said


def test_labels_are_numbers_where_a_column_begins_with_numbers(opened):
    site = opened("a,k,y\n1,3,1\n2,,2\n3,4,5\n")
    assert read(site, ("a",), ("k",))["k"] == [3, None, 4]
    rows = "a,k,y\n" + "1,3,1\n" * 3 + "1,p,1\n"
    assert read(opened(rows), ("a",), ("k",))["k"] == ["3", "3", "3", "p"]


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

"""Whatever is uploaded, the page gets columns or one clear line, and nothing is written outside its folder."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError
from fedlsa.explore import uploads as module
from fedlsa.explore.page_settings import PageSettings, call
from fedlsa.explore.scene_data import in_words
from fedlsa.explore.uploads import Sites, Uploads

PAGE = "0123456789abcdef"  # the name of a set
GOOD = b"a,b,y\n1,2,3\n2,1,4\n0,5,1\n4,4,0\n"


def kept(*given, name=PAGE, uploads=None):
    """What is known of uploads (name, contents)."""
    uploads = Uploads() if uploads is None else uploads
    for file, contents in given:
        uploads.store(name, file, contents)
    return uploads.sites(name)


def trouble(*given):
    """The one line that is said of uploads that cannot be used."""
    try:
        found = kept(*given)
        assert (len(found.files), found.columns) == (len(given), ())  # which the page names beside it
        said = found.trouble
    except FedLSAError as error:
        said = str(error)
    assert said
    assert "\n" not in said
    assert len(said) < 250
    return said


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where folders of uploads are made, and beside it what must stay as it is."""
    inside = tmp_path / "outer" / "kept"
    inside.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(inside))
    return inside


def test_uploads_have_the_columns_that_all_of_them_have(folder):
    uploads = Uploads()
    found = kept(("north.csv", GOOD), ("south.csv", b"y,c,a\n1,2,3\n"), uploads=uploads)
    assert found.columns == ("a", "y")
    assert [Path(f).name for f in found.files] == ["north.csv", "south.csv"]
    assert all(Path(f).is_relative_to(folder) for f in found.files)
    assert found.trouble == ""
    assert Path(found.files[0]).read_bytes() == GOOD


def test_columns_of_text_are_known_and_block_no_file(folder):
    text = b"a,where,y\n1,land,3\n,city,4\n0,,1\n"
    found = kept(("north.csv", text), ("south.csv", text + b"2,land,5\n"))
    assert (found.columns, found.texts, found.complete) == (("a", "where", "y"), ("where",), True)
    assert not kept(("north.csv", text), ("south.csv", GOOD)).complete


def test_without_uploads_the_files_of_the_command_line_count(tmp_path):
    assert Uploads().sites(PAGE) == Sites()
    (tmp_path / "named.csv").write_bytes(GOOD)
    uploads = Uploads([str(tmp_path / "named.csv")])
    assert uploads.sites("") == uploads.sites(PAGE) == Sites((str(tmp_path / "named.csv"),), ("a", "b", "y"))
    assert [Path(f).name for f in kept(("own.csv", GOOD), uploads=uploads).files] == ["own.csv"]


def test_a_named_file_that_is_missing_is_refused_at_once(tmp_path):
    with pytest.raises(FedLSAError, match=r"nowhere\.csv"):
        Uploads([str(tmp_path / "nowhere.csv")])


def test_a_named_file_that_vanishes_later_is_one_line(tmp_path):
    (tmp_path / "named.csv").write_bytes(GOOD)
    uploads = Uploads([str(tmp_path / "named.csv")])
    (tmp_path / "named.csv").unlink()
    assert "named.csv" in uploads.sites().trouble


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("rubbish.csv", bytes(range(256)) * 40),
        ("rubbish.parquet", bytes(range(256)) * 40),
        ("short.parquet", b"PAR1"),
        ("framed.parquet", b"PAR1" + bytes(64) + b"\xff\xff\xff\x7fPAR1"),
        ("empty.csv", b""),
        ("empty.parquet", b""),
        ("blank.csv", b"\n\n\n"),
        ("zeros.csv", bytes(1000)),
        ("table.xlsx", GOOD),
        ("table", GOOD),
        (".csv", GOOD),
        ("", GOOD),
        ("two\nlines.txt", GOOD),
        ("long" * 100 + ".txt", GOOD),
        ("x." + "long" * 100, GOOD),
        ("twice.csv", b"a,a,y\n1,2,3\n"),
    ],
)
def test_a_file_that_is_no_table_is_one_line(name, contents):
    trouble((name, contents))


def test_the_line_says_which_file_and_what_it_must_be():
    assert (
        trouble(("notes.txt", GOOD))
        == "notes.txt must be a CSV or Parquet file, by its name's ending; got another kind"
    )
    line = "files must have different names, one per site; got north.csv twice"
    assert trouble(("north.csv", GOOD), ("north.csv", GOOD)) == line
    assert trouble(("a.csv", b"a,b\n1,2\n"), ("b.csv", b"c,d\n1,2\n")) == (
        "the files must have columns in common; got none"
    )


def test_a_set_is_bounded_in_files_and_bytes(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_SET_BYTES", 2**20)
    line = "files must be at most 200 files and 1 MB; name them on the command line instead; got more"
    assert trouble(("small.csv", GOOD), ("large.csv", bytes(2**20))) == line
    assert not list(folder.rglob("large.csv"))
    monkeypatch.setattr(module, "MAX_FILES", 2)
    assert "2 files" in trouble(*((f"{k}.csv", GOOD) for k in range(3)))


def test_a_thousand_sets_leave_few_and_those_that_nobody_uses_are_forgotten(folder, monkeypatch):
    uploads = Uploads()
    for k in range(1000):
        uploads.store(f"{k:016d}", "x.csv", GOOD)
    assert len(list(folder.rglob("x.csv"))) == module.MAX_SETS
    assert uploads.sites(f"{999:016d}").columns == ("a", "b", "y")
    assert uploads.sites(f"{0:016d}") == Sites()
    later = time.monotonic() + module.FORGOTTEN_AFTER + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    uploads.store(PAGE, "x.csv", GOOD)
    assert len(list(folder.rglob("x.csv"))) == 1
    uploads.forget()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("name", ["", "short", "../../../../../etc/x", "A" * 16, "a" * 65, "a" * 15 + "/"])
def test_a_set_has_a_plain_name(name):
    with pytest.raises(ArgumentError, match="files must be a set"):
        Uploads().store(name, "x.csv", GOOD)


@pytest.mark.parametrize(
    "name", ["../../x.csv", "/etc/x.csv", "..\\..\\x.csv", "C:\\x.csv", "a/../../../x.csv", "./x.csv"]
)
def test_a_name_cannot_lead_out_of_the_folder(name, folder, tmp_path):
    uploads = Uploads()
    (file,) = kept((name, GOOD), uploads=uploads).files
    assert Path(file).name == "x.csv"
    assert Path(file).parent.parent == folder
    assert [str(p) for p in tmp_path.rglob("*") if p.is_file()] == [file]


@pytest.mark.parametrize("name", ["null\0.csv", "two\nlines.csv", "long" * 100 + ".csv", "é" * 200 + ".csv", "a b.CSV"])
def test_odd_names_are_made_plain(name, folder):
    uploads = Uploads()
    (file,) = kept((name, GOOD), uploads=uploads).files
    assert Path(file).parent.parent == folder
    assert Path(file).name.isprintable()
    assert len(Path(file).name) < 100


def test_pages_do_not_share_their_uploads():
    uploads = Uploads()
    first = kept(("x.csv", GOOD), uploads=uploads)
    other = kept(("x.csv", b"q\n1\n"), name="f" * 16, uploads=uploads)
    assert first.files != other.files
    assert Path(first.files[0]).read_bytes() == GOOD


def test_columns_that_the_files_lack_are_replaced_and_text_is_left_out_unless_it_is_asked_for():
    found = Sites(("x.csv",), ("a", "b", "where", "y"), texts=("where",))
    s = PageSettings(problem="files")
    settled = found.settle(replace(s, target="gone", columns="gone"))
    assert (settled.target, settled.columns) == ("y", "a,b")
    assert found.settle(replace(s, target="b", columns="a,C(where)")).columns == "a,C(where)"
    assert replace(found, texts=()).settle(s).columns == ""  # all of them
    assert Sites().settle(s) == s


def test_a_column_that_is_empty_at_one_site_is_missing_there_and_not_text():
    uploads = Uploads()
    found = kept(("north.csv", b"a,b,y\n1,,3\n2,,4\n0,,1\n"), ("south.csv", GOOD), uploads=uploads)
    assert (found.columns, found.texts) == (("a", "b", "y"), ())
    for missing, line in (("error", "“rows that lack a value: are left out”"), ("drop", "must have a row without")):
        with pytest.raises(FedLSAError) as caught:
            call(PageSettings(problem="files", target="y", missing=missing), found.files).problem()
        assert line in in_words(str(caught.value))
    assert "or the column, or the site, be left out" in in_words(str(caught.value))  # which the page offers
    assert call(PageSettings(problem="files", target="y", columns="a", missing="drop"), found.files).problem().dim == 2


@pytest.mark.parametrize(
    "rows",
    [b"", b"nan,1,2\n1,2,3\n3,1,0\n", b"1e308,1e308,1e308\n-1e308,2,3\n1,2,1e308\n", b"1e999,1,2\n1,2,3\n",
     b"one,two,three\n", b"1,2\n1,2,3,4\n", b"1,2,3\n", b"1,1,1\n1,1,1\n1,1,1\n", b"\xff\xfe,1,2\n"],
)  # fmt: skip
def test_numbers_that_make_no_problem_are_one_line(rows):
    uploads = Uploads()
    found = kept(("x.csv", b"a,b,y\n" + rows), ("good.csv", b"a,b,y\n" + rows), uploads=uploads)
    if found.trouble:
        return
    with pytest.raises(FedLSAError) as caught:
        call(PageSettings(problem="files", target="y"), found.files).problem()
    assert "\n" not in str(caught.value)


def test_parquet_is_read_as_well(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"a": [1.0, 2.0, 0.5], "y": [1.0, 0.0, 2.0]}), tmp_path / "t.parquet")
    uploads = Uploads()
    found = kept(("north.PARQUET", (tmp_path / "t.parquet").read_bytes()), uploads=uploads)
    assert found.columns == ("a", "y")
    p = call(PageSettings(problem="files", target="y"), found.files).problem()
    expected = fl.site_problem([tmp_path / "t.parquet"], fl.Regression(target="y"))
    np.testing.assert_array_equal(p.theta_star, expected.theta_star)

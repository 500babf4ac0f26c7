"""Whatever is uploaded, the page gets columns or one clear line, and nothing is written outside its folder."""

import tempfile
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import FedLSAError
from fedlsa.explore import uploads
from fedlsa.explore.page_problem import call
from fedlsa.explore.page_settings import PageSettings
from fedlsa.explore.uploads import Sites

PAGE = sha256(b"page").hexdigest()[:16]  # the folder of the page of that name
GOOD = b"a,b,y\n1,2,3\n2,1,4\n0,5,1\n4,4,0\n"


def upload(name, contents=GOOD):
    return SimpleNamespace(name=name, contents=contents)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of uploads, and beside it what must stay as it is."""
    inside = tmp_path / "outer" / "kept"
    inside.mkdir(parents=True)
    monkeypatch.setattr(uploads, "_folder", lambda: SimpleNamespace(name=str(inside)))
    monkeypatch.setattr(uploads, "_named", ())
    return inside


def trouble(*given):
    """The one line that is said of uploads that cannot be used."""
    found = uploads.sites("page", given)
    assert (found.files, found.columns) == ((), ())
    assert found.trouble
    assert "\n" not in found.trouble
    assert len(found.trouble) < 250
    return found.trouble


def test_uploads_have_the_columns_that_all_of_them_have(folder):
    found = uploads.sites("page", [upload("north.csv"), upload("south.csv", b"y,c,a\n1,2,3\n")])
    assert found.columns == ("a", "y")
    assert [Path(f).name for f in found.files] == ["north.csv", "south.csv"]
    assert all(Path(f).is_relative_to(folder) for f in found.files)
    assert found.trouble == ""
    assert Path(found.files[0]).read_bytes() == GOOD


def test_columns_of_text_are_known_and_block_no_file(folder):
    text = b"a,where,y\n1,land,3\n,city,4\n0,,1\n"
    found = uploads.sites("page", [upload("north.csv", text), upload("south.csv", text + b"2,land,5\n")])
    assert (found.columns, found.texts, found.complete) == (("a", "where", "y"), ("where",), True)
    assert not uploads.sites("page", [upload("north.csv", text), upload("south.csv")]).complete


def test_without_uploads_the_files_of_the_command_line_count(tmp_path):
    assert uploads.sites("page", []) == Sites()
    (tmp_path / "named.csv").write_bytes(GOOD)
    uploads.name_files([str(tmp_path / "named.csv")])
    assert uploads.sites("page", []) == Sites((str(tmp_path / "named.csv"),), ("a", "b", "y"))
    assert [Path(f).name for f in uploads.sites("page", [upload("own.csv")]).files] == ["own.csv"]


def test_a_named_file_that_is_missing_is_refused_at_once(tmp_path):
    with pytest.raises(FedLSAError, match=r"nowhere\.csv"):
        uploads.name_files([str(tmp_path / "nowhere.csv")])


def test_a_named_file_that_vanishes_later_is_one_line(tmp_path):
    (tmp_path / "named.csv").write_bytes(GOOD)
    uploads.name_files([str(tmp_path / "named.csv")])
    (tmp_path / "named.csv").unlink()
    assert "named.csv" in trouble()


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
    trouble(upload(name, contents))


def test_the_line_says_which_file_and_what_it_must_be():
    assert (
        trouble(upload("notes.txt"))
        == "notes.txt must be a CSV or Parquet file, by its name's ending; got another kind"
    )
    line = "files must have different names, one per site; got north.csv twice"
    assert trouble(upload("north.csv"), upload("north.csv")) == line
    assert trouble(upload("a.csv", b"a,b\n1,2\n"), upload("b.csv", b"c,d\n1,2\n")) == (
        "the files must have columns in common; got none"
    )


def test_a_file_that_is_too_large_is_not_stored(folder, monkeypatch):
    monkeypatch.setattr(uploads, "MAX_UPLOAD_BYTES", 2**20)
    line = trouble(upload("large.csv", bytes(3 * 2**20)))
    assert line == "large.csv must have at most 1 MB; name it on the command line instead; got 3 MB"
    assert not any(p.is_file() for p in folder.rglob("*"))


@pytest.mark.parametrize(
    "name", ["../../x.csv", "/etc/x.csv", "..\\..\\x.csv", "C:\\x.csv", "a/../../../x.csv", "./x.csv"]
)
def test_a_name_cannot_lead_out_of_the_folder(name, folder, tmp_path):
    found = uploads.sites("page", [upload(name)])
    assert found.files == (str(folder / PAGE / "x.csv"),)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [folder / PAGE / "x.csv"]


@pytest.mark.parametrize("name", ["null\0.csv", "two\nlines.csv", "long" * 100 + ".csv", "é" * 200 + ".csv", "a b.CSV"])
def test_odd_names_are_made_plain(name, folder):
    (file,) = uploads.sites("page", [upload(name)]).files
    assert Path(file).parent == folder / PAGE
    assert Path(file).name.isprintable()
    assert len(Path(file).name) < 100


def test_an_upload_over_a_link_replaces_the_link_and_not_what_it_leads_to(folder, tmp_path):
    (folder / PAGE).mkdir()
    (tmp_path / "mine.csv").write_text("mine")
    (folder / PAGE / "x.csv").symlink_to(tmp_path / "mine.csv")
    uploads.sites("page", [upload("x.csv")])
    assert (tmp_path / "mine.csv").read_text() == "mine"


def test_pages_do_not_share_their_uploads():
    first = uploads.sites("one", [upload("x.csv")])
    other = uploads.sites("two", [upload("x.csv", b"q\n1\n")])
    assert first.files != other.files
    assert Path(first.files[0]).read_bytes() == GOOD


def test_the_same_upload_is_not_written_again_and_another_replaces_it():
    (file,) = uploads.sites("page", [upload("x.csv")]).files
    before = Path(file).stat().st_mtime_ns
    uploads.sites("page", [upload("x.csv")])
    assert Path(file).stat().st_mtime_ns == before
    assert uploads.sites("page", [upload("x.csv", b"a,z\n1,2\n")]).columns == ("a", "z")
    assert [p.name for p in Path(file).parent.iterdir()] == ["x.csv"]


@pytest.mark.parametrize(
    "rows",
    [b"", b"nan,1,2\n1,2,3\n3,1,0\n", b"1e308,1e308,1e308\n-1e308,2,3\n1,2,1e308\n", b"1e999,1,2\n1,2,3\n",
     b"one,two,three\n", b"1,2\n1,2,3,4\n", b"1,2,3\n", b"1,1,1\n1,1,1\n1,1,1\n", b"\xff\xfe,1,2\n"],
)  # fmt: skip
def test_numbers_that_make_no_problem_are_one_line(rows):
    found = uploads.sites("page", [upload("x.csv", b"a,b,y\n" + rows), upload("good.csv", b"a,b,y\n" + rows)])
    if found.trouble:
        return
    with pytest.raises(FedLSAError) as caught:
        call(PageSettings(problem="files", target="y"), found.files).problem()
    assert "\n" not in str(caught.value)


def test_parquet_is_read_as_well(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"a": [1.0, 2.0, 0.5], "y": [1.0, 0.0, 2.0]}), tmp_path / "t.parquet")
    found = uploads.sites("page", [upload("north.PARQUET", (tmp_path / "t.parquet").read_bytes())])
    assert found.columns == ("a", "y")
    p = call(PageSettings(problem="files", target="y"), found.files).problem()
    expected = fl.site_problem([tmp_path / "t.parquet"], fl.Regression(target="y"))
    np.testing.assert_array_equal(p.theta_star, expected.theta_star)


def test_uploads_lie_in_a_temporary_folder_that_is_made_with_the_first_and_goes_with_the_page(monkeypatch):
    monkeypatch.undo()
    uploads.forget()
    (file,) = uploads.sites("../../page", [upload("x.csv")]).files
    assert Path(file).is_relative_to(uploads._folder().name)
    assert Path(file).is_relative_to(tempfile.gettempdir())
    uploads.forget()
    assert not Path(file).exists()

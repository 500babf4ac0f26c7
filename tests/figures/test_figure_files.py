"""Figures on disk: whole or not at all, with how they were made."""

import sys

import pytest
from matplotlib.figure import Figure
from PIL import Image
from test_error_curves import a_result

from fedlsa import figures
from fedlsa.errors import ArgumentTypeError, FedLSAError, MissingExtraError, ResultFileError, UnknownNameError

SUFFIXES = [".png", ".pdf", ".svg"]


def test_a_file_says_how_it_was_made(tmp_path):
    figure = figures.error_curves(a_result())
    for suffix in SUFFIXES:
        figures.save(figure, tmp_path / f"f{suffix}", command="fedlsa plot a.nc")
    figures.save(figure, tmp_path / "f.PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.PNG", "f.pdf", "f.png", "f.svg"]
    with Image.open(tmp_path / "f.png") as image:
        text = image.text
    assert text["Source"] == "fedlsa plot a.nc"
    assert "SCAFFLSA(step_size=0.1, local_steps=10)" in text["Description"]
    assert '"constructor": "garnet"' in text["Description"]
    assert text["Software"].startswith("fedlsa ")
    for suffix in (".pdf", ".svg"):
        content = (tmp_path / f"f{suffix}").read_bytes()
        assert b"fedlsa plot a.nc" in content
        assert b"garnet" in content
        assert b"Date" not in content
        assert b"dc:date" not in content


def test_an_unknown_suffix_is_answered_with_the_nearest(tmp_path):
    figure = figures.error_curves(a_result())
    with pytest.raises(UnknownNameError, match=r"must be one of '\.png', '\.pdf', '\.svg'.*did you mean '\.png'\?"):
        figures.save(figure, tmp_path / "f.pgn")
    with pytest.raises(UnknownNameError, match=r"the suffix of 'f' must be one of"):
        figures.save(figure, "f")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("bug")])
def test_a_failing_writer_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, error):
    (tmp_path / "f.png").write_bytes(b"old")

    def half(self, file, **_):
        file.write(b"half")
        raise error

    figure = figures.error_curves(a_result())
    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(type(error)):
        figures.save(figure, tmp_path / "f.png")
    assert [p.name for p in tmp_path.iterdir()] == ["f.png"]
    assert (tmp_path / "f.png").read_bytes() == b"old"


def test_a_folder_that_does_not_exist_is_a_clear_error(tmp_path):
    with pytest.raises(ResultFileError, match=r"cannot write the figure .*f\.png: No such file"):
        figures.save(figures.error_curves(a_result()), tmp_path / "nowhere" / "f.png")


def test_what_is_not_a_figure_is_not_saved(tmp_path):
    with pytest.raises(ArgumentTypeError, match="figure must be a matplotlib figure"):
        figures.save("figure", tmp_path / "f.png")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"figures need matplotlib: pip install 'fedlsa\[plot\]'") as caught:
        figures.error_curves(a_result())
    assert isinstance(caught.value, FedLSAError)

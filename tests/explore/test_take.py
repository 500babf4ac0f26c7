"""What is taken away is what was seen: lines and command make the same picture, and the data hold the same numbers."""

import csv
import re
import shlex
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.cli import main
from fedlsa.errors import ResultFileError, UnknownNameError
from fedlsa.explore import answers, take
from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import METHODS, PageSettings
from fedlsa.figures import theme
from fedlsa.files import as_bytes

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from matplotlib.image import imread

RING = PageSettings(agents=3, noise=0.3, local_steps=10, rounds=12, seeds=4)
MARKOV = PageSettings(
    problem="garnet", agents=2, step_size=0.5, local_steps=6, rounds=5, seeds=3, sampling="markov", thin=2
)
UNSTABLE = replace(RING, step_size=3.0)
PICTURES = {
    "plain": (RING, False),
    "log samples, simulated": (replace(RING, scale="log", x="samples", probability=0.3), True),
    "bytes, simulated": (replace(RING, x="bytes"), True),
    "no bias": (replace(RING, local_steps=1), False),
    "unstable, simulated": (replace(UNSTABLE, x="samples"), True),
    "trajectories, log samples": (replace(MARKOV, scale="log", x="samples"), False),
    "trajectories, bytes": (replace(MARKOV, x="bytes"), False),
    "one trajectory": (replace(MARKOV, agents=1, features=2, rounds=3), False),
}


def shown(s, simulated=False, files=()):
    """What the page holds: the question, its curves, its seeds."""
    q = Question.of(s, files)
    curves = {name: answers.curve(q, name) for name in METHODS}
    runs = answers.simulations(q) if simulated else []
    return q, curves, runs


@pytest.fixture(scope="module")
def plain():
    return shown(RING)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(theme.RC, "savefig.dpi", 50)  # small pictures are compared sooner


def pixels(path):
    return imread(path)


@pytest.mark.parametrize("case", PICTURES)
def test_the_lines_draw_the_picture_that_is_saved(case, tmp_path):
    s, simulated = PICTURES[case]
    q, curves, runs = shown(s, simulated)
    take.write(tmp_path / "saved.png", q, curves, runs)
    exec(take.script(q, simulated, any(c.bias > 0 for c in curves.values())), {})
    np.testing.assert_array_equal(pixels("error.png"), pixels("saved.png"))


@pytest.mark.parametrize(
    "s", [replace(RING, round=20), replace(RING, rounds=40, round=30), replace(UNSTABLE, rounds=50)]
)
def test_the_lines_draw_where_the_agents_go(s, tmp_path):
    take.write_agents(tmp_path / "saved.png", Question.of(s))
    exec(take.agents_script(Question.of(s)), {})
    np.testing.assert_array_equal(pixels("agents.png"), pixels("saved.png"))


def test_lines_name_the_files_as_they_are_called_and_not_where_they_lie(tmp_path):
    rng = np.random.default_rng(3)
    files = []
    for name in ("north.csv", "south.csv"):
        np.savetxt(name, rng.normal(size=(9, 3)), delimiter=",", header="a,b,y", comments="")
        files.append(str(tmp_path / name))
    s = PageSettings(problem="files", target="y", local_steps=5, rounds=6, agents=1)
    q, curves, _ = shown(s, files=tuple(files))
    take.write(tmp_path / "saved.png", q, curves, [])
    lines = take.script(q)
    assert str(tmp_path) not in lines
    exec(lines, {})
    np.testing.assert_array_equal(pixels("error.png"), pixels("saved.png"))
    asked = take.command(q)
    assert asked == "fedlsa explore 'problem=files&agents=1&target=y&local_steps=5&rounds=6' " + (
        "--file north.csv --file south.csv --save error.png"
    )
    assert main([*shlex.split(asked)[1:], "--force"]) == 0
    np.testing.assert_array_equal(pixels("error.png"), pixels("saved.png"))


@pytest.mark.parametrize("case", ["log samples, simulated", "trajectories, log samples"])
def test_the_command_draws_the_picture_that_is_saved(case, tmp_path, capsys):
    s, simulated = PICTURES[case]
    q, curves, runs = shown(s, simulated)
    take.write(tmp_path / "saved.png", q, curves, runs)
    asked = shlex.split(take.command(q, simulated))
    assert asked[:2] == ["fedlsa", "explore"]
    assert main(asked[1:]) == 0
    assert "saved error.png" in capsys.readouterr().out
    np.testing.assert_array_equal(pixels("error.png"), pixels("saved.png"))


def test_the_command_draws_where_the_agents_go(tmp_path):
    s = replace(RING, round=2)
    take.write_agents(tmp_path / "saved.png", Question.of(s))
    assert main(shlex.split(take.command(Question.of(s), save="agents.png", agents=True))[1:]) == 0
    np.testing.assert_array_equal(pixels("agents.png"), pixels("saved.png"))


def test_settings_of_the_start_need_no_words():
    assert take.command(Question.of(PageSettings())) == "fedlsa explore --save error.png"


def test_one_command_writes_pictures_and_data_of_every_kind(capsys):
    names = [f"folder/error{kind}" for kind in (*take.PICTURES, *take.DATA)]
    assert main(["explore", RING.address(), *(w for n in names for w in ("--save", n))]) == 0
    assert capsys.readouterr().out.splitlines() == [f"saved {n}" for n in names]
    start = {kind: Path(f"folder/error{kind}").read_bytes()[:8] for kind in (*take.PICTURES, *take.DATA)}
    assert start[".png"] == b"\x89PNG\r\n\x1a\n"
    assert start[".pdf"].startswith(b"%PDF-")
    assert ElementTree.parse("folder/error.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert start[".nc"] == b"\x89HDF\r\n\x1a\n"
    first = Path("folder/error.csv").read_text(encoding="utf-8").splitlines()[0]
    assert first == f"# fedlsa explore '{RING.address()}' --save error.csv"


def rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        first = file.readline()
        return first, list(csv.DictReader(file))


def test_a_table_holds_the_exact_numbers_and_the_command_that_makes_it(plain, tmp_path):
    q, curves, runs = plain
    take.write(tmp_path / "error.csv", q, curves, runs)
    first, table = rows("error.csv")
    again = shlex.split(first.removeprefix("# "))
    before = Path("error.csv").read_bytes()
    assert main([*again[1:], "--force"]) == 0
    assert Path("error.csv").read_bytes() == before
    p = fl.problems.ring(agents=3, noise=0.3, ideal=True)
    bias = fl.theory.bias(p, RING.step_size, RING.local_steps)
    for name in METHODS:
        exact = fl.theory.exact(p, RING.method(name), rounds=12)
        mine = [row for row in table if row["method"] == name]
        assert [int(row["rounds"]) for row in mine] == exact["rounds"].values.tolist()
        for column in ("mse", "start", "drift", "noise", "communications", "samples", "bytes"):
            assert [float(row[column]) for row in mine] == exact[column].values.tolist()
        assert {row["predicted_drift"] for row in mine} == {repr(float(bias @ bias)) if name == "FedLSA" else "nan"}


@pytest.mark.parametrize("case", ["log samples, simulated", "trajectories, log samples"])
def test_tables_of_both_kinds_hold_the_seeds_too(case, tmp_path):
    s, simulated = PICTURES[case]
    q, curves, runs = shown(s, simulated)
    for name in ("error.nc", "error.csv"):
        take.write(tmp_path / name, q, curves, runs)
    grid = fl.simulate_grid(
        Question.of(s).problem(), s.methods(), s.rounds, s.seeds, sampling=s.order(), record=s.record()
    )
    with xr.open_dataset("error.nc", engine="h5netcdf") as found:
        assert found.attrs["command"] == take.command(q, simulated, "error.nc")
        assert "fedlsa" in found.attrs["versions"]
        assert found["method"].values.tolist() == list(METHODS)
        for i, result in enumerate(grid):
            error = result["squared_error"].values
            np.testing.assert_array_equal(found["simulated_mean"][i], error.mean(axis=0))
            np.testing.assert_array_equal(found["simulated_low"][i], np.quantile(error, 0.1, axis=0))
            np.testing.assert_array_equal(found["simulated_high"][i], np.quantile(error, 0.9, axis=0))
        if simulated:
            for i, name in enumerate(METHODS):
                np.testing.assert_array_equal(found["mse"][i], curves[name].exact["mse"])
        first, table = rows("error.csv")
        assert first == f"# {take.command(q, simulated, 'error.csv')}\n"
        assert [float(row["simulated_mean"]) for row in table] == found["simulated_mean"].values.ravel().tolist()
        assert ("mse" in table[0]) == simulated


def test_a_method_without_a_curve_is_left_out_of_picture_and_data(tmp_path):
    q, curves, runs = shown(RING, simulated=True)
    del curves["SCAFFLSA"]  # still being computed, or failed
    for name in ("error.png", "error.nc"):
        take.write(tmp_path / name, q, curves, runs)
    with xr.open_dataset("error.nc", engine="h5netcdf") as found:
        assert found["method"].values.tolist() == ["FedLSA", "Scaffnew"]
        np.testing.assert_array_equal(found["simulated_mean"][1], runs[2]["squared_error"].values.mean(axis=0))


def test_downloads_are_the_bytes_of_the_file(plain, tmp_path):
    q, curves, _ = plain
    made = as_bytes("error.csv", lambda path: take.write(path, q, curves, []))
    take.write(tmp_path / "error.csv", q, curves, [])
    assert made == (tmp_path / "error.csv").read_bytes()


@pytest.mark.parametrize("name", ["error.csv", "error.nc", "error.png"])
def test_a_write_that_fails_leaves_what_was_there(plain, name, tmp_path, monkeypatch):
    q, curves, _ = plain
    (tmp_path / name).write_text("before")

    def refuse(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(ResultFileError, match=f"{re.escape(name)}: No space left on device"):
        take.write(tmp_path / name, q, curves, [])
    assert (tmp_path / name).read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_another_ending_is_refused_before_anything_is_computed(tmp_path):
    slow = replace(RING, agents=200, rounds=100_000)
    with pytest.raises(UnknownNameError, match=r"the suffix of 'b\.jpg' must be one of '\.png'"):
        take.writers(Question.of(slow), [tmp_path / "a.png", Path("b.jpg")])
    with pytest.raises(UnknownNameError, match=r"the suffix of 'b\.csv' must be one of '\.png'"):
        take.writers(Question.of(slow), [Path("b.csv")], agents=True)
    assert list(tmp_path.iterdir()) == []

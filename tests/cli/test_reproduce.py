"""The command `fedlsa reproduce`: what it makes, what it says, and how it goes on after it was stopped."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from refusals import refused

from fedlsa.cli import main, reproduce_command
from fedlsa.experiments import EXPERIMENTS, Claim, Experiment, Scale
from fedlsa.experiments.executor import RunProgress

QUICK = ["reproduce", "fig1", "--quick", "--preset", "authors", "--seeds", "2"]


def content(out):
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(Path(out).rglob("*")) if p.is_file()}


SLOWLY = """
import sys, time
from fedlsa.cli import main
from fedlsa.experiments import Store
store = Store.__setitem__
Store.__setitem__ = lambda *cell: (store(*cell), time.sleep(0.1))
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""  # so that it is far from its end when it is stopped, whoever else is at work on this machine


def start(out):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, "-c", SLOWLY, *QUICK, "--out", out], text=True, start_new_session=True, **pipes
    )


def wait_for_cells(process, out, count):
    """Until so many cells are stored, and the next is being computed."""
    until = time.monotonic() + 60
    while len(list(Path(out).glob("cells/*.nc"))) < count and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    assert process.poll() is None, "it ended before it could be stopped"


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="there is no signal 9")
def test_stopped_and_killed_it_goes_on_and_ends_with_the_same_files(fedlsa, monkeypatch):
    process = start("out")
    wait_for_cells(process, "out", 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "what is done is kept in out; the same command goes on from there" in err
    assert "Traceback" not in err
    stopped = len(list(Path("out/cells").glob("*.nc")))
    process = start("out")
    wait_for_cells(process, "out", stopped + 2)
    process.kill()
    process.communicate()
    times = {p: p.stat().st_mtime_ns for p in Path("out/cells").glob("*.nc")}
    code, out, err = fedlsa(*QUICK, "--out", "out")
    assert code == 0, err
    assert {p: p.stat().st_mtime_ns for p in times} == times
    total = len(list(Path("out/cells").glob("*.nc")))
    assert f"{total - len(times):,} cells in " in out
    assert "report: out/report/index.html" in out
    monkeypatch.setattr("fedlsa.cli.reproduce_command.processes", lambda count: contextlib.nullcontext())
    assert fedlsa(*QUICK, "--out", "clean", "--threads", "1")[0] == 0  # all of it in this process
    ended, clean = content("out"), content("clean")
    # of pictures the layout's solver may choose the last bits
    drawn = {name for name in clean if name.endswith((".png", ".pdf"))}
    assert ended.keys() == clean.keys()
    assert [name for name in clean.keys() - drawn if ended[name] != clean[name]] == []
    assert {"figures/authors/fig1.png", "figures/authors/fig1.pdf"} <= drawn
    assert "report/index.html" in clean


def claim(value, name="it", **bounds):
    return Claim(name, "a claim", "sec:x", "a number", lambda scale: [], lambda _: value, **bounds)


def test_a_claim_that_comes_out_otherwise_is_exit_code_one(fedlsa, monkeypatch):
    claims = (
        claim(3.0, at_most=5.0),
        claim(7.0, "false", at_most=5.0, expected=False, kind="paper", quote="small", why="It is large."),
        claim(9.5, at_most=5.0, kind="check"),
    )
    monkeypatch.setitem(EXPERIMENTS, "fig2", Experiment("fig2", "Mine", (), claims=claims))
    # other processes know the library's own catalogue
    monkeypatch.setattr("fedlsa.cli.reproduce_command.processes", lambda count: contextlib.nullcontext())
    code, out, err = fedlsa("reproduce", "fig2", "--preset", "paper")
    assert code == 1
    assert "1 claim came out otherwise than expected" in err
    (row,) = [line for line in out.splitlines() if "FAILED" in line and "fig2" in line]
    assert "9.5" in row
    assert "≤ 5" in row
    assert "does not hold as stated" in out
    where = "hold on the instance of the paper's text"
    assert out.splitlines()[-5:-2] == [
        f"0 of 1 sentences of the paper {where}, 1 not as stated (false)",
        f"0 of 1 self-checks {where}; 1 FAILED",
        f"1 of 1 claims beyond the paper {where}",
    ]
    monkeypatch.setitem(EXPERIMENTS, "fig2", Experiment("fig2", "Mine", (), claims=claims[:2]))
    assert fedlsa("reproduce", "fig2", "--preset", "paper")[0] == 0
    nothing = (claim(float("nan"), at_most=5.0, expected=False, why="It is none."),)
    monkeypatch.setitem(EXPERIMENTS, "fig2", Experiment("fig2", "Mine", (), claims=nothing))
    assert fedlsa("reproduce", "fig2", "--preset", "paper")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fig11"], "NAME must be one of"),
        (["fig11"], "did you mean 'fig1'?"),
        (["fig1", "--preset", "author"], "did you mean 'authors'?"),
        (["fig1", "--seeds", "0"], "--seeds must be a positive integer; got 0"),
        (["fig1", "--engine", "cuba"], "--engine must be"),
        (["fig1", "--threads", "-1"], "--threads must be a positive integer"),
        (["fig1", "--instances", "-1"], "--instances must be"),
    ],
)
def test_what_is_misspelt_is_one_line_and_nothing_is_begun(fedlsa, tmp_path, arguments, complaint):
    refused(fedlsa("reproduce", *arguments), complaint)
    assert list(tmp_path.iterdir()) == []


def test_the_names_of_the_issue_are_known():
    assert {
        "fig1",
        "fig2",
        "local-steps",
        "small-steps",
        "debiased",
        "table1",
        "table2",
        "markov",
    } <= EXPERIMENTS.keys()


def test_the_quick_scale_is_asked_for_with_three_seeds_and_both_presets(fedlsa, monkeypatch):
    asked = []

    def reproduce(names, scales, *_, **__):
        asked.append((names, scales))
        return [], RunProgress({}, {})

    monkeypatch.setattr("fedlsa.experiments.reproduce", reproduce)
    assert fedlsa("reproduce", "--quick")[0] == 0
    assert fedlsa("reproduce", "debiased", "fig1", "--preset", "paper")[0] == 0
    assert asked[0] == (list(EXPERIMENTS), [Scale("paper", 3, True), Scale("authors", 3, True)])
    assert asked[1] == (["fig1", "debiased"], [Scale("paper", 10, False, 10)])


def test_the_display_has_a_bar_per_experiment_and_says_what_is_in_work(monkeypatch):
    groups = {"fig1, paper: left": [2, 2], "fig1, paper: right": [1, 4], "fig2, paper: only": [0, 3]}
    shown = {}
    monkeypatch.setattr(
        reproduce_command.Bars, "show", lambda _, what, done, total, row: shown.update({row: (what, done / total)})
    )
    with reproduce_command.display() as watch:
        watch(RunProgress(groups, {}, "fig1, paper: right"))
    assert shown == {
        "fig1, paper": ("fig1, paper: right, 3 of 6 cells", 0.5),
        "fig2, paper": ("fig2, paper, 0 of 3 cells", 0.0),
        "all": ("all, 3 of 9 cells", 1 / 3),
    }
    assert next(iter(shown)) == "all"  # of which lines speak, where there are no bars


@pytest.mark.parametrize("name", ["tables/paper/corrections.csv", "figures/.notes.part", "report/index.html"])
def test_files_of_somebody_else_are_neither_replaced_nor_removed(tmp_path, capsys, name):
    (tmp_path / "cells").mkdir()
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("mine")
    assert main(["reproduce", "corrections", "--quick", "--preset", "paper", "--out", str(tmp_path)]) == 2
    assert "exists; --force replaces it" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "mine"

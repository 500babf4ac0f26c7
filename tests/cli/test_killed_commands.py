"""A command that is killed, at any moment, is simply given again: it ends with the bytes of one that never was.

As SQLite is tested: every operation that changes files is a crash point, before it, after it, and half of a write, and
all of them are tried. A kill leaves the files as they are at that moment, so one run shows what all kills would leave:
the files are looked at before and after each operation, and the command is given again in a copy of each state.
"""

import builtins
import os
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedlsa as fl
from fedlsa import experiments, figures, theory
from fedlsa.cli import main
from fedlsa.engine import simulation
from fedlsa.experiments import executor
from fedlsa.network.coordinator import commands as coordinator
from fedlsa.network.coordinator import runs

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))

import tiny
from matplotlib.figure import Figure
from tiers import mostly_long

CHANGES = ("mkdir", "rmdir", "open", "write", "fsync", "fchmod", "fchown", "ftruncate", "replace", "rename", "link",
           "symlink", "unlink", "remove")  # fmt: skip
SMALL = "--problem ring --agents 2"
SIMULATE = f"simulate {SMALL} --local-steps 2 --rounds 2 --seeds 1 --engine reference --quiet"
COMMANDS = {
    "simulate": f"{SIMULATE} --method fedlsa --method scafflsa --out runs --plot runs/errors.png",
    "simulate, a sweep": f"{SIMULATE} --method fedlsa --step-size 0.05,0.1 --out sweep.nc",
    "plot": "plot given.nc --title 'a (b) & \"c\" <d>' --out errors.pdf",
    "theory": f"theory {SMALL} --method fedlsa --rounds 3 --out curves.csv --plot errors.pdf",
    "theory, netCDF": f"theory {SMALL} --method fedlsa --rounds 3 --out curves.nc",
    "plan": f"plan {SMALL} --epsilon 0.5 --method fedlsa --plot trade-off.svg",
    "fit regression": "fit regression a.csv b.csv --target y --no-plan --out model.json --plot 'die Güte.png'",
    "fit value": "fit value walk.csv --discount 0.5 --no-plan --out model.json --plot 'two  (2).pdf'",
    "predict": "predict given.json a.csv --level 0.5 --out 'new \"\u2603\".csv'",
    "evaluate": "evaluate given.json a.csv --out table.csv",
    "explore": "explore problem=ring&agents=2&rounds=3 --save e.csv --save e.nc --save e.pdf",
    "explore, a copy": "explore --copy mine.py",
    "network result": "network result net --out out.json --model model.json",
}
LONG = {"simulate", "theory, netCDF", "plan", "fit value", "explore"}  # others write in the same ways
OTHERWISE = {  # the same command with another wish
    "simulate": ("--rounds 2", "--rounds 3"), "simulate, a sweep": ("--rounds 2", "--rounds 3"),
    "plot": ("<d>", "<e>"), "theory": ("--rounds 3", "--rounds 4"), "theory, netCDF": ("--rounds 3", "--rounds 4"),
    "plan": ("0.5", "0.6"), "fit regression": ("b.csv ", ""), "fit value": ("0.5", "0.6"), "predict": ("0.5", "0.6"),
    "evaluate": ("a.csv", "b.csv"), "explore": ("rounds=3", "rounds=4"), "network result": ("net ", "other "),
}  # fmt: skip


def contents(folder):
    """Every file below a folder with its bytes, and every folder."""
    found = sorted(folder.rglob("*"))
    return tuple((str(p.relative_to(folder)), p.read_bytes() if p.is_file() else None) for p in found)


def put(state, folder):
    folder.mkdir()
    for name, content in state:
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)


def states_of(act, folder, monkeypatch):
    """What a folder holds at any moment of an action, in order: what a kill could leave."""
    states = dict.fromkeys([contents(folder)])

    def look():
        states[contents(folder)] = None

    def watched(name, real):
        def operation(*given, **more):
            look()
            if name == "write" and len(given[1]) > 1:
                half = real(given[0], given[1][: len(given[1]) // 2])
                look()
                done = half + real(given[0], given[1][half:])
            else:
                done = real(*given, **more)
            look()
            return done

        return operation

    with monkeypatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, watched(name, getattr(os, name)))
        patch.setattr(builtins, "open", watched("open file", open))
        patch.setattr(simulation, "FIRST_UPDATES", {"reference": 1.0})  # simulations come in parts of a round
        patch.setattr(simulation, "SECONDS", 0.0)
        patch.setattr(simulation, "WRITING", 0)
        act()
    look()
    return list(states)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """What commands read: data of sites, a model, a result."""
    folder = tmp_path_factory.mktemp("given")
    rng = np.random.default_rng(0)
    for name in ("a.csv", "b.csv"):
        x = rng.normal(size=(12, 2))
        table = np.column_stack([x, x @ [1.0, 2.0] + rng.normal(size=12)])
        np.savetxt(folder / name, table, "%.5f", ",", header="p,q,y", comments="")
    walk = np.column_stack([rng.normal(size=(12, 3)), np.zeros(12)])
    np.savetxt(folder / "walk.csv", walk, "%.5f", ",", header="state,reward,next_state,terminated", comments="")
    fl.fit([folder / "a.csv"], fl.Regression("y"), local="means", plan=False).save(folder / "given.json")
    run = fl.simulate(fl.problems.ring(2), fl.FedLSA(0.1, 2), 3, 1, engine="reference")
    fl.results.save(run, folder / "given.nc")
    return contents(folder)


@pytest.fixture
def quick(monkeypatch, tmp_path, given):
    """Pictures are a small square, the network has one result, and what is temporary stays here."""
    for name in ("error_curves", "exact_curves", "coefficients", "trade_off"):
        monkeypatch.setattr(figures, name, lambda *_, **__: Figure((0.5, 0.5)))
    monkeypatch.setattr(theory, "trade_off", lambda *_, **__: [])
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    found = {"experiment": "trial", "names": ["a"], "theta": [0.1]}
    put(given, tmp_path / "given")
    fitted = fl.Fit.load(tmp_path / "given" / "given.json")
    monkeypatch.setattr(coordinator, "outcome", lambda *_: found)
    monkeypatch.setattr(coordinator, "model", lambda *_: fitted)
    monkeypatch.setattr(runs, "summary", lambda _: ["trial"])


def test_every_command_that_writes_files_is_tried(commands):
    forced = {name for name, flags in commands.items() if "--force" in flags}  # "network run" ends as "network result"
    assert forced - {"reproduce", "network run"} == {name.partition(",")[0] for name in COMMANDS}


@pytest.mark.parametrize("name", mostly_long(COMMANDS, {*COMMANDS} - LONG))
def test_a_command_that_is_killed_anywhere_is_given_again(name, given, quick, tmp_path, monkeypatch, capsys):
    first, command = tmp_path / "first", shlex.split(COMMANDS[name])
    put(given, first)
    monkeypatch.chdir(first)
    states = states_of(lambda: main(command), first, monkeypatch)
    whole = states[-1]
    new = [file for file, content in whole if content is not None and (file, content) not in given]
    assert len(new) == sum(word in ("--out", "--plot", "--save", "--model", "--copy") for word in command) + (
        name == "simulate"
    )
    assert len(states) >= 4 * len(new)  # before, an empty file, half of it, all of it under its name
    for i, state in enumerate(states):
        put(state, tmp_path / str(i))
        monkeypatch.chdir(tmp_path / str(i))
        capsys.readouterr()
        assert main(command) == 0, (capsys.readouterr().err, [file for file, _ in state])
        assert contents(tmp_path / str(i)) == whole, [file for file, _ in state]
    assert contents(tmp_path / "temporary") == ()


@pytest.mark.parametrize("name", OTHERWISE)
def test_another_command_does_not_replace_what_one_has_made(name, given, quick, tmp_path, monkeypatch, capsys):
    put(given, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    assert main(shlex.split(COMMANDS[name])) == 0
    before = contents(tmp_path / "here")
    capsys.readouterr()
    other = shlex.split(COMMANDS[name].replace(*OTHERWISE[name]))
    assert main(other) == 2
    assert "exists; --force replaces it" in capsys.readouterr().err
    assert contents(tmp_path / "here") == before
    assert main([*other, "--force"]) == 0


def test_the_same_command_on_other_data_replaces_nothing_without_force(given, quick, tmp_path, monkeypatch, capsys):
    put(given, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    command = shlex.split(COMMANDS["fit regression"])
    assert main(command) == 0
    Path("b.csv").write_bytes(Path("a.csv").read_bytes())
    before = contents(tmp_path / "here")
    assert main(command) == 2
    assert "holds something else than this command gives; --force replaces it" in capsys.readouterr().err
    assert contents(tmp_path / "here") == before
    assert main([*command, "--force"]) == 0


def test_force_gets_past_a_damaged_partial_file(quick, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("sweep.nc.0.partial").write_bytes(b"\x89HDF\r\n\x1a\njunkjunk")
    command = shlex.split(COMMANDS["simulate, a sweep"])
    assert main(command) == 2
    assert "--force begins again without it" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    assert sorted(p.name for p in tmp_path.glob("*sweep*")) == ["sweep.nc"]


@pytest.mark.long
def test_a_reproduction_that_is_killed_anywhere_is_given_again(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "PAUSE", 0)
    monkeypatch.setattr(executor, "draw_charts", lambda *_, **__: Figure((0.5, 0.5)))
    first = replace(tiny.ONE, claims=(), pictures=(replace(tiny.ONE.pictures[0], cells=tiny.cells(0, 1)),))
    one = replace(first, tables=(replace(first.tables[0], cells=tiny.cells(0, 1)),))

    def run(out):
        experiments.reproduce(
            ["one"], tiny.SCALES[:1], out / "out", experiments.LocalExecutor(), catalogue={"one": one}
        )

    (tmp_path / "first").mkdir()
    states = states_of(lambda: run(tmp_path / "first"), tmp_path / "first", monkeypatch)
    files = [file for file, content in states[-1] if content is not None]
    assert len(files) == 7  # two cells, a picture of two kinds, a table, the report of two files
    assert len(states) >= 4 * len(files)
    for i, state in enumerate(states):
        put(state, tmp_path / str(i))
        run(tmp_path / str(i))
        assert contents(tmp_path / str(i)) == states[-1], [file for file, _ in state]

"""Runs that are interrupted, by an exception, by Ctrl-C or by a kill, and go on where they were."""

import signal
import subprocess
import sys
import time

import pytest

import fedlsa as fl
from fedlsa.cli.command_line import run
from fedlsa.engine import simulation
from fedlsa.engine.simulation import partial_file, simulate_to_files

METHODS = [fl.SCAFFLSA(0.1, 3), fl.Scaffnew(fl.PowerStep(0.2, 0.5), 0.2, participants=2, average_after=6)]
RUN = {"rounds": 9, "seeds": 2, "record": [4, 9], "sampling": fl.Markov(), "engine": "reference"}


@pytest.fixture(scope="module")
def problem():
    return fl.problems.garnet(agents=3, states=12, seed=1)


def interrupted(problem, files, monkeypatch, after, **more):
    """Run in parts of a round or two until `after` of them are done, as if Ctrl-C came then; how many were done."""
    calls, go_on = [], simulation.go_on

    def counted(parts, *more):
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(len(parts))
        return go_on(parts, *more)

    with monkeypatch.context() as patch:
        patch.setattr(simulation, "FIRST_UPDATES", {"reference": 40.0})
        patch.setattr(simulation, "SECONDS", 0.0)
        patch.setattr(simulation, "WRITING", 0)
        patch.setattr(simulation, "go_on", counted)
        with pytest.raises(KeyboardInterrupt):
            simulate_to_files(problem, METHODS, files, **RUN | more)
    return calls


def test_an_interrupted_run_goes_on_to_the_same_bits(problem, tmp_path, monkeypatch):
    files, seen = [tmp_path / "new" / "a.nc", tmp_path / "new" / "b.nc"], []
    assert len(interrupted(problem, files, monkeypatch, 3)) == 3
    first = fl.results.load(partial_file(files[0]))
    assert 3 <= int(first["rounds"][-1]) < 9
    assert first["rounds"].values.tolist() == fl.results.arguments(first)["record"]
    again = simulate_to_files(problem, METHODS, files, **RUN, progress=lambda done, total: seen.append(done / total))
    for r, whole in zip(again, fl.simulate_grid(problem, METHODS, **RUN), strict=True):
        assert r.identical(whole)
    assert seen[0] > 0.3
    assert seen[-1] == pytest.approx(1)
    assert fl.resume(first, 9, record=[9])["theta"][:, -1].identical(again[0]["theta"][:, -1])


def test_another_run_does_not_go_on_with_it(problem, tmp_path, monkeypatch):
    files = [tmp_path / "a.nc", tmp_path / "b.nc"]
    interrupted(problem, files, monkeypatch, 2)
    other = RUN | {"rounds": 10, "record": 5}
    with pytest.raises(fl.errors.ArgumentError, match=r"a.nc.partial .* another's"):
        simulate_to_files(problem, METHODS, files, **other)
    anew = simulate_to_files(problem, METHODS, files, replaces=True, **other)
    assert anew[0].identical(fl.simulate_grid(problem, METHODS, **other)[0])


def test_a_damaged_partial_file_is_refused_and_replaced_where_that_is_asked_for(problem, tmp_path, monkeypatch):
    files = [tmp_path / "a.nc", tmp_path / "b.nc"]
    interrupted(problem, files, monkeypatch, 2)
    sound, whole = partial_file(files[0]).read_bytes(), fl.simulate_grid(problem, METHODS, **RUN)
    n = len(sound)
    for damaged in (b"", sound[: n // 2], sound[:-1], sound + b"x", sound[:4096] + bytes(512) + sound[4608:]):
        partial_file(files[0]).write_bytes(damaged)
        with pytest.raises(fl.errors.ResultFileError, match=r"a\.nc\.partial is .*; --force begins again without it"):
            simulate_to_files(problem, METHODS, files, **RUN)
    anew = simulate_to_files(problem, METHODS, files, replaces=True, **RUN)
    assert all(r.identical(expected) for r, expected in zip(anew, whole, strict=True))


STOPS = """
import sys, time
from fedlsa.cli import main
from fedlsa.engine import simulation
go_on, calls = simulation.go_on, []
def run(parts, *more):
    if calls:
        time.sleep(600)  # until the signal comes
    calls.append(parts)
    return go_on(parts, *more)
simulation.go_on, simulation.FIRST_UPDATES = run, {"reference": 200.0}
sys.exit(main())
"""
OPTIONS = "simulate --agents 3 --states 10 --method scafflsa --local-steps 10 --seeds 1 --rounds 50"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_stopped_goes_on_when_it_is_given_again(how, tmp_path, capsys):
    target = tmp_path / "run.nc"
    options = [*OPTIONS.split(), "--engine", "reference", "--quiet", "--out", str(target)]
    with subprocess.Popen([sys.executable, "-c", STOPS, *options], stderr=subprocess.PIPE, text=True) as process:
        while not partial_file(target).exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(how)
        told = process.stderr.read()
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert ("the same command goes on" in told) == (how == signal.SIGINT)
    done = fl.results.load(partial_file(target))["rounds"].values
    assert 0 < done[-1] < 50
    assert not target.exists()
    assert run([*options, "--step-size", "0.2"]) == 2
    assert "another" in capsys.readouterr().err
    assert run(options) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run.nc"]
    r = fl.results.load(target)
    whole = fl.simulate(**fl.results.arguments(r))
    assert r.drop_attrs().identical(whole.drop_attrs())
    assert r.attrs["arguments"] == whole.attrs["arguments"]

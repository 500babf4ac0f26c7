"""The benchmark of a large fit runs, solves what its alternative solves, and cleans up; no test reads a timing."""

import re
from pathlib import Path

import fit as benchmark
import large_fit
import numpy as np
import pytest

SMALL = ["--many", "5", "9", "--tall", "300", "--sites", "3", "--rows", "400"]
SMALL += ["--features", "24"]  # so many that the run is one on means


def test_all_phases_are_timed_beside_an_alternative_that_solves_the_same_system(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(benchmark, "REPEATS", 1)
    monkeypatch.setattr(benchmark, "alone", lambda way, folder: (3.0, 2e9))  # a process of its own: the test below
    assert benchmark.main([*SMALL, "--dtype", "float32", "--folder", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for data in ("one table", "one CSV file", "one Parquet file"):
        assert re.search(rf"  {data} +\d+\.\d\d s +\d+\.\d\d s +\d+\.\d\dx\n", text)
    assert "statsmodels          3.00 s     2.00 GB" in text
    for phase in benchmark.PHASES.values():
        assert phase in text
    assert "each file is read 1 times" in text
    assert "memory: fedlsa 2.00 GB" in text
    gap = re.search(r"the two solutions differ by (\S+);", text)
    assert gap is not None
    assert float(gap[1]) < 1e-10
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("way", benchmark.WAYS)
def test_a_way_says_what_time_and_memory_it_takes(tmp_path, capsys, monkeypatch, way):
    monkeypatch.setattr(benchmark, "REPEATS", 1)
    benchmark.make(tmp_path, 2, 100, 3, "float64")
    assert benchmark.main(["--alone", way, "--folder", str(tmp_path)]) == 0
    seconds, memory = map(float, capsys.readouterr().out.split())
    assert seconds > 0
    assert 1e7 < memory < 1e11


def test_an_interruption_removes_the_temporary_folder(tmp_path, monkeypatch):
    def interrupted(paths):
        assert len(paths) == 3
        assert all(Path(path).exists() for path in paths)
        raise KeyboardInterrupt

    monkeypatch.setattr(benchmark, "measure", interrupted)
    for other in ("measure_many", "measure_tall"):
        monkeypatch.setattr(benchmark, other, lambda folder, size: None)
    assert benchmark.main([*SMALL, "--folder", str(tmp_path)]) == 130
    assert not list(tmp_path.iterdir())


def test_the_clock_gives_every_moment_to_one_phase():
    clock = benchmark.Clock()
    clock("reading", 1, 1)
    clock("error bars", 1, 1)
    clock("running", 0, 1)
    clock.enter("done")
    assert set(clock.seconds) == {"reading", "error bars", "running"}
    assert np.isclose(clock.total, clock.since[0] - clock.begin)


@pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")  # patients differ
def test_files_beyond_memory_are_made_in_pieces_and_every_fit_of_them_says_what_it_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(large_fit, "PIECE", 700)
    large_fit.make(tmp_path, 2000)
    for name in list(large_fit.FITS)[1:]:  # the first plans a run too
        seconds, busy, memory, error = map(float, large_fit.fit(name, str(tmp_path)).removeprefix(name).split())
        assert seconds >= 0 < busy
        assert 0.05 < memory < 100
        assert 0.01 < error < 0.3

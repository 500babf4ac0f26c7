"""The benchmark of a large fit runs, solves what its alternative solves, and cleans up; no test reads a timing."""

import re
from pathlib import Path

import fit as benchmark
import numpy as np
import pytest

SMALL = ["--sites", "3", "--rows", "400", "--features", "4"]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_all_phases_are_timed_beside_an_alternative_that_solves_the_same_system(tmp_path, capsys, dtype):
    assert benchmark.main([*SMALL, "--dtype", dtype, "--folder", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for phase in ("reading", "error bars", "plan", "running"):
        assert benchmark.PHASES[phase] in text
    gaps = [float(found) for found in re.findall(r"differs from the data's solution by (\S+),", text)]
    assert len(gaps) == 2
    assert max(gaps) < 1e-10
    assert not list(tmp_path.iterdir())


def test_an_interruption_removes_the_temporary_folder(tmp_path, monkeypatch):
    def interrupted(paths, features, size):
        assert len(paths) == 3
        assert all(Path(path).exists() for path in paths)
        raise KeyboardInterrupt

    monkeypatch.setattr(benchmark, "measure", interrupted)
    assert benchmark.main([*SMALL, "--folder", str(tmp_path)]) == 130
    assert not list(tmp_path.iterdir())


def test_the_clock_gives_every_moment_to_one_phase():
    clock = benchmark.Clock()
    clock("reading", 1, 1)
    clock("error bars", 1, 1)
    clock("running", 0, 1)
    clock.enter("done")
    assert set(clock.seconds) == {"reading", "error bars", "plan", "running"}
    assert np.isclose(sum(clock.seconds.values()), clock.since[0] - clock.begin)

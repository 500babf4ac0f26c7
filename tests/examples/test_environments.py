"""The examples on environments, at a small scale: they run, draw, and what they and their page say is so."""

import re
from pathlib import Path

import numpy as np
import pytest

import fedlsa as fl

pytest.importorskip("gymnasium")

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf8")


def test_the_lakes_have_the_values_and_the_bias_that_the_page_states(tmp_path, capsys, pictures):
    import lakes

    problem = fl.problems.lakes()
    V = fl.theory.value_functions(problem)[:, 0]
    bias = fl.theory.bias(problem, step_size=0.02, local_steps=5000)
    assert f"{V.min():.2f}" in PAGE
    assert f"{V.max():.2f} on the safest; the shared solution says {problem.theta_star[0]:.2f}" in PAGE
    error = fl.theory.value_error(problem, problem.theta_star)
    assert f"its value error is {np.sqrt(np.mean(error**2)):.3f}" in PAGE
    assert f"(a bias of {np.linalg.norm(bias):.3f})" in PAGE
    lakes.main(tmp_path / "lakes.png", rounds=12, seeds=4)
    assert pictures == ["lakes.png"]
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if "LSA" in line}
    # simulated beside exact error: four seeds of eight coordinates, so a few tens of percent apart at most
    for _, simulated, exact, *_ in rows.values():
        assert float(simulated) == pytest.approx(float(exact), rel=0.5)
    assert float(rows["SCAFFLSA"][1]) < 0.4 * float(rows["FedLSA"][1])


def test_the_poles_are_learnt_from_logs_and_the_drift_is_corrected(tmp_path, capsys, pictures):
    import cartpoles

    cartpoles.main(tmp_path / "cartpoles.png", steps=200, rounds=25, seeds=2)
    assert pictures == ["cartpoles.png"]
    out = capsys.readouterr().out
    ended, cut = re.search(r"(\d+) episodes ended, (\d+) were cut", out).groups()
    assert int(ended) > 50
    assert 45 <= int(cut) <= 50  # the end of each log is a cut, unless an episode ends just there
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if "LSA" in line}
    assert float(rows["SCAFFLSA"][1]) < float(rows["FedLSA"][1])
    assert float(rows["FedLSA"][1]) == pytest.approx(float(rows["FedLSA"][3]), rel=0.5)  # it stops where its bias is


def test_the_pictures_of_the_page_exist():
    for name in re.findall(r"\((images/[^)]+)\)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / name).stat().st_size > 50_000

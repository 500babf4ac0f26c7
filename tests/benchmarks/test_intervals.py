"""Intervals of fl.fit cover the truth as often as they say.

What an interval is made of is held to other packages elsewhere (tests/golden): here a few situations, each on 60 data
sets, hold the choice of its parts.
"""

from concurrent.futures import ThreadPoolExecutor

import intervals
import numpy as np
import pytest
from intervals import measure, situations

import fedlsa as fl

FEW = 60
ALL = list(situations())
HELD = (  # cheap ones, one for each reason why intervals may be wrong
    "four sites of 10 rows: defaults",
    "1 x 200 rows: HAC",
    "12 patients of 10 rows at 2 sites: clusters",
    "10 sites of 30 rows drawn from many that differ: clusters are sites",
    "values, a log of 1,000 steps at each of 3 sites, autocorrelation times 24-30: defaults",
    "squares of states as features, 3 x 1,500 steps without an end: defaults",
)


@pytest.mark.parametrize("name", HELD)
def test_intervals_cover(name):
    """Within three binomial errors, of all coefficients together."""
    [s] = [s for s in ALL if s.name.endswith(name)]
    covered, squares = measure(s, range(FEW))
    assert abs(covered.mean() - 0.95) <= 3 * np.sqrt(0.05 * 0.95 / (FEW * len(covered)))
    assert 0.15 < squares.mean() < 0.4  # 1 / 1.96^2 = 0.26 for errors that follow the normal law


def test_intervals_about_the_answer_of_a_run_allow_for_its_error():
    [s] = [s for s in ALL if "by hand" in s.name]
    _, squares = measure(s, range(FEW))
    found = fl.fit(s.draw(0), s.task, **s.settings)
    assert (found.optimisation > 0.1 * found.standard_error).all()
    assert abs(1.96**2 * squares.mean() - 1) <= 3 * np.sqrt(2 / (FEW * len(squares)))


def test_a_planned_run_changes_neither_estimate_nor_interval():
    s = ALL[0]
    planned, alone = fl.fit(s.draw(0), s.task, local="means"), fl.fit(s.draw(0), s.task, plan=False)
    np.testing.assert_array_equal(planned.confidence_interval(), alone.confidence_interval())


def test_the_script_prints_what_it_is_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(intervals, "ProcessPoolExecutor", lambda jobs, *rest: ThreadPoolExecutor(jobs))
    assert intervals.main(["--sets", "2", "12 patients of 10 rows at 2 sites: clusters"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:43] for line in lines] == ["12 patients of 10 rows at 2 sites: clusters"] * 2

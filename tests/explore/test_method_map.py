"""The map of the explorer: its cells are exact errors, what it calls unstable is, and a chosen cell is gone to."""

import math
import pickle
import queue
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import PrecisionError
from fedlsa.explore import answers
from fedlsa.explore.answers import STEP_SIZES, MapCell, Question
from fedlsa.explore.page_settings import METHODS, PageSettings
from fedlsa.explore.pool import Pool, PoolJob, Unfinished

S = PageSettings(agents=2, rounds=5, noise=0.3)
Q = answers.map_question(Question.of(S))


@pytest.mark.parametrize("steps", [1, 30])
def test_cells_are_exact_errors_and_the_best_is_the_smallest_of_the_stable(steps):
    row, problem = answers.map_row(Q, steps), Q.problem()
    assert len(row) == len(STEP_SIZES)
    edge = 0
    for eta, cell in zip(STEP_SIZES, row, strict=True):
        methods = {name: replace(S, step_size=eta, local_steps=steps).method(name) for name in METHODS}
        for name, method in methods.items():
            mse = float(fl.theory.exact(problem, method, S.rounds)["mse"][-1])
            assert cell.errors[name] == pytest.approx(mse, rel=1e-9) or not mse < 1e3
        if cell.best:
            assert edge == 0, "beyond the edge nothing is best"
            assert cell.errors[cell.best] <= 1.01 * min(cell.errors.values())
            assert math.isfinite(fl.theory.stationary(problem, methods[cell.best]).mse)
        else:
            edge += 1
            assert not any(math.isfinite(fl.theory.stationary(problem, m).mse) for m in methods.values())
    assert 0 < edge < len(STEP_SIZES)
    if steps == 1:  # all methods are one: the simplest has the cell
        assert {cell.best for cell in row} == {"FedLSA", ""}


def test_a_method_that_is_refused_says_why_and_the_others_go_on(monkeypatch):
    def refusing(m, a, *rest, **more):
        if isinstance(a, fl.SCAFFLSA):
            raise PrecisionError("rounding hides it")
        return {"data_vars": {"mse": ((), np.array([1.0, 0.5]))}}

    monkeypatch.setattr("fedlsa.theory.exact_curves.exact_record", refusing)
    row = answers.map_row(Q, 3)
    assert all(c.why == "SCAFFLSA: rounding hides it" and set(c.errors) == {"FedLSA", "Scaffnew"} for c in row)
    assert row[0].best == "FedLSA"


def test_cells_are_said_in_words():
    refused, unstable = MapCell({}, why="FedLSA: too long"), MapCell(dict.fromkeys(METHODS, 1e9))
    best = MapCell({"FedLSA": 0.5, "SCAFFLSA": 0.01}, "SCAFFLSA")
    cells = answers.row_data((best, refused, unstable, *[best] * (len(STEP_SIZES) - 3)), 100)
    assert [cell[0] for cell in cells[:3]] == ["SCAFFLSA", "refused", "unstable"]
    assert cells[0][1:] == [-2.0, "Step size 0.001, 100 local steps: SCAFFLSA is best (FedLSA 0.5, SCAFFLSA 0.01)."]
    assert cells[1][2].endswith("refused. FedLSA: too long")
    assert "no method is stable (FedLSA 1e+09" in cells[2][2]


def test_a_row_that_takes_too_long_is_left_out_and_says_so(monkeypatch):
    monkeypatch.setattr(answers, "ROW_SECONDS", -1.0)
    cells = answers.row_data(answers.map_row(Q, 10), 10)
    assert {cell[0] for cell in cells} == {"refused"}
    assert all("Draw the map again and it is tried again" in cell[2] for cell in cells)


def test_a_row_with_gaps_is_shown_and_computed_again_when_it_is_asked_for_again():
    pool, replies, call = Pool(quick=0, long=0), queue.SimpleQueue(), (answers.map_row, (Q, 10))
    try:
        for row, remembered in ((Unfinished(("a gap",)), False), (("whole",), True)):
            worker = SimpleNamespace(job=PoolJob(call, [(SimpleNamespace(replies=replies), 0)]))
            pool.heard(worker, "done", pickle.loads(pickle.dumps(row)))  # as it comes from a process
            assert replies.get(timeout=1).value == row
            assert (call in pool._memory) == remembered
    finally:
        pool.close()


def test_a_row_is_given_up_by_the_time_of_the_processor_and_not_of_the_clock(monkeypatch):
    monkeypatch.setattr("time.monotonic", lambda: pytest.fail("a busy machine is no reason"))
    assert type(answers.map_row(Q, 10)) is tuple
    monkeypatch.setattr(answers, "ROW_SECONDS", -1.0)
    assert type(answers.map_row(Q, 10)) is Unfinished


def test_the_map_depends_on_the_problem_and_the_rounds_alone():
    same = replace(S, step_size=0.5, local_steps=3, sampling="markov", thin=2, seeds=5, x="bytes", probability=0.2)
    assert answers.map_question(Question.of(same)) == Q
    for other in ({"rounds": 6}, {"agents": 3}, {"noise": 0.1}):
        assert answers.map_question(Question.of(replace(S, **other))) != Q

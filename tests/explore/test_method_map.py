"""The map of the explorer: its cells are exact errors, what it calls unstable is, and a chosen cell is gone to."""

import json
import math
import pickle
import queue
import re
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import PrecisionError
from fedlsa.explore import method_map
from fedlsa.explore.answers import Question
from fedlsa.explore.controls import PageHistory
from fedlsa.explore.method_map import STEP_SIZES, MapCell, MethodMap
from fedlsa.explore.open_page import OpenPage
from fedlsa.explore.page_settings import METHODS, PageSettings
from fedlsa.explore.pool import Pool
from fedlsa.explore.pool_worker import Asked, Unfinished

S = PageSettings(agents=2, rounds=5, noise=0.3)
Q = method_map.map_question(Question.of(S))


@pytest.mark.parametrize("steps", [1, 30])
def test_cells_are_exact_errors_and_the_best_is_the_smallest_of_the_stable(steps):
    row, problem = method_map.map_row(Q, steps), Q.problem()
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

    monkeypatch.setattr(method_map, "exact_record", refusing)
    row = method_map.map_row(Q, 3)
    assert all(c.why == "SCAFFLSA: rounding hides it" and set(c.errors) == {"FedLSA", "Scaffnew"} for c in row)
    assert row[0].best == "FedLSA"


def shown(known, s=S):
    return json.loads(unescape(re.search(r'data-map="(.*?)"', method_map.map_cells(known, s).text)[1]))


def test_cells_are_said_in_words_and_the_place_of_the_sliders_is_marked():
    refused, unstable = MapCell({}, why="FedLSA: too long"), MapCell(dict.fromkeys(METHODS, 1e9))
    best = MapCell({"FedLSA": 0.5, "SCAFFLSA": 0.01}, "SCAFFLSA")
    row = (best, refused, unstable, *[best] * (len(STEP_SIZES) - 3))
    known = MethodMap(Q, {100: row})
    said = shown(known, replace(S, step_size=0.05, local_steps=70))
    assert said["here"] == "100 0.042"
    cells = [said["cells"][f"100 {eta:g}"] for eta in STEP_SIZES[:3]]
    assert [cell[0] for cell in cells] == ["SCAFFLSA", "refused", "unstable"]
    assert cells[0][1:] == [-2.0, "Step size 0.001, 100 local steps: SCAFFLSA is best (FedLSA 0.5, SCAFFLSA 0.01)."]
    assert cells[1][2].endswith("refused. FedLSA: too long")
    assert "no method is stable (FedLSA 1e+09" in cells[2][2]
    assert known.progress == "Computing the map: 1 of 9 rows …"
    assert shown(MethodMap())["cells"] == {}


def test_a_row_that_takes_too_long_is_left_out_and_says_so(monkeypatch):
    monkeypatch.setattr(method_map, "ROW_SECONDS", -1.0)
    said = shown(MethodMap(Q, {10: method_map.map_row(Q, 10)}))["cells"].values()
    assert {cell[0] for cell in said} == {"refused"}
    assert all("with fewer agents it is whole" in cell[2] for cell in said)


def test_a_row_with_gaps_is_shown_and_computed_again_when_it_is_asked_for_again():
    pool, replies, call = Pool(quick=0, long=0), queue.SimpleQueue(), (method_map.map_row, (Q, 10))
    try:
        for row, remembered in ((Unfinished(("a gap",)), False), (("whole",), True)):
            worker = SimpleNamespace(asked=Asked(0, ("me", "map"), call, replies), unwanted=False)
            pool.heard(worker, "done", pickle.loads(pickle.dumps(row)))  # as it comes from a process
            assert replies.get(timeout=1).value == row
            assert (call in pool._memory) == remembered
    finally:
        pool.close()


def test_a_row_is_given_up_by_the_time_of_the_processor_and_not_of_the_clock(monkeypatch):
    monkeypatch.setattr("time.monotonic", lambda: pytest.fail("a busy machine is no reason"))
    assert type(method_map.map_row(Q, 10)) is tuple
    monkeypatch.setattr(method_map, "ROW_SECONDS", -1.0)
    assert type(method_map.map_row(Q, 10)) is Unfinished


def test_a_chosen_cell_moves_the_sliders_and_leaves_the_problem():
    put, asked = [], Question.of(replace(S, sampling="markov", probability=0.5, x="bytes"))
    page = OpenPage(None, "me", question=asked)
    PageHistory(put.append, page).go({"step_size": 0.12, "local_steps": 30, "at": 1})
    assert put == [replace(S, step_size=0.12, local_steps=30, x="bytes")]


def test_the_map_depends_on_the_problem_and_the_rounds_alone():
    same = replace(S, step_size=0.5, local_steps=3, sampling="markov", thin=2, seeds=5, x="bytes", probability=0.2)
    assert method_map.map_question(Question.of(same)) == Q
    for other in ({"rounds": 6}, {"agents": 3}, {"noise": 0.1}):
        assert method_map.map_question(Question.of(replace(S, **other))) != Q

"""The runner: each cell once, kept at once, and the same files however often it was killed on the way."""

import ast
import inspect
import json
import os
import shutil
from concurrent.futures import Future
from importlib import metadata
from pathlib import Path

import pytest
import tiny
import xarray as xr
from matplotlib.figure import Figure

import fedlsa as fl
from fedlsa.errors import ArgumentError, ResultFileError, UnknownNameError
from fedlsa.experiments import Cell, LocalExecutor, Scale, Store, cells, compute, reproduce, run
from fedlsa.experiments.cells import KINDS
from fedlsa.experiments.computations import updates
from fedlsa.experiments.executor import processes

HERE = Path(__file__).parent
QUICK = Scale("paper", 3, True)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log"
    path.write_text("")
    tiny.log_to(path)
    yield lambda: path.read_text().split()
    tiny.log_to(Path(os.devnull))


@pytest.fixture
def no_pictures(monkeypatch):
    """A square in the place of each."""
    monkeypatch.setattr("fedlsa.experiments.executor.draw_charts", lambda *_, **__: Figure((0.5, 0.5)))


def groups(*names):
    return {k: v for name in names for k, v in tiny.CATALOGUE[name].groups(QUICK).items()}


def test_a_cell_that_several_panels_share_is_computed_once(tmp_path, log):
    progress = run(groups("one", "two"), Store(tmp_path / "cells"), LocalExecutor())
    every = {cell for held in groups("one", "two").values() for cell in held}
    assert sorted(log()) == sorted(cell.key for cell in every)
    assert progress.computed == len(every) == 13
    assert all(done == total for done, total in progress.groups.values())


@pytest.mark.long
def test_processes_beside_this_one_compute_the_same_bytes_each_cell_once(tmp_path):
    """Simulations stay here where they may need a device; the files do not show who has made them."""
    exact = QUICK.cell("exact", 2, True, method="scafflsa", step_size=0.1, local_steps=3, rounds=5, record=5)
    limits = [QUICK.cell("limit", n, True, method="scafflsa", step_size=0.1, local_steps=3) for n in (1, 2, 3)]
    mixed = [exact, Cell("simulate", {**exact.settings, "seeds": 2}), *limits, exact]
    with processes(2) as pool:
        folders = {
            "here": LocalExecutor(),
            "beside": LocalExecutor(pool=pool),
            "both": LocalExecutor({"engine": "auto"}, pool),
        }
        for folder, executor in folders.items():
            done = run({"all": mixed}, Store(tmp_path / folder), executor)
            assert done.computed == 5
            assert done.groups == {"all": [5, 5]}
        broken = QUICK.cell("limit", 2, True, method="scafflsa", step_size=-1.0, local_steps=3)
        with pytest.raises(ArgumentError, match="step_size"):
            run({"all": [broken, *limits]}, Store(tmp_path / "broken"), LocalExecutor(pool=pool))
    made = [{path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} for folder in folders]
    assert made[0] == made[1] == made[2]
    assert len(made[0]) == 5


def test_the_largest_cells_are_handed_out_first():
    def simulation(rounds):
        return Cell("simulate", {"problem": {"agents": 2}, "local_steps": 3, "rounds": rounds, "seeds": 1})

    class Pool:
        submitted = ()

        def submit(self, task, text, how):
            self.submitted += (Cell.from_text(text),)
            future = Future()
            future.set_result(xr.Dataset())
            return future

    limits = [QUICK.cell("limit", n, True, method="scafflsa", step_size=0.1, local_steps=3) for n in (10, 1000, 100)]
    run = {"method": "scafflsa", "step_size": 0.1, "local_steps": 10, "rounds": 2000}
    law = QUICK.cell("law", 200, True, **run)
    plans = [QUICK.cell("plan", 2, True, method=m, epsilon=0.002) for m in ("scafflsa", "scaffnew")]
    cells, pool = [simulation(5), *limits, *plans, law, simulation(10**9)], Pool()
    done = list(LocalExecutor(pool=pool)(cells, lambda cell, share: None))
    assert pool.submitted == (cells[-1], limits[1], plans[1], law, limits[2], limits[0], cells[0], plans[0])
    assert {cell for cell, _ in done} == set(cells)


def test_what_is_stored_is_not_computed_again_and_what_is_damaged_is(tmp_path, log):
    first = run(groups("one"), Store(tmp_path / "cells"), LocalExecutor())
    store, victim = Store(tmp_path / "cells"), tiny.place(QUICK, 3)
    raw = bytearray(store.path(victim).read_bytes())
    raw[len(raw) // 2 :] = b""
    store.path(victim).write_bytes(raw)
    before = len(log())
    again = run(groups("one", "two"), store, LocalExecutor())
    assert log()[before:] == [victim.key, *(tiny.place(QUICK, i).key for i in range(8, 12))]
    assert (first.computed, again.computed) == (9, 5)


def test_cells_of_other_code_are_not_used_and_removed_where_that_is_asked_for(tmp_path, log, no_pictures, monkeypatch):
    def ran(clean=False):
        return reproduce(["one"], [QUICK], tmp_path, LocalExecutor(), catalogue=tiny.CATALOGUE, clean=clean)[1].computed

    assert (ran(), ran()) == (9, 0)
    monkeypatch.setattr("fedlsa.experiments.cells.code", lambda kind: f"other {kind}")
    old = Store(tmp_path / "cells").outdated()
    assert len(old) == 9
    assert ran() == 9
    assert all(path.exists() for path in old)
    assert ran(clean=True) == 0
    assert not any(path.exists() for path in old)


def test_the_digest_follows_every_source_that_computes_cells(tmp_path):
    package = Path(fl.__file__).parent
    shutil.copytree(package, tmp_path / "fedlsa", ignore=shutil.ignore_patterns("__pycache__"))
    own = {kind: inspect.unwrap(function).__module__ for kind, function in KINDS.items()}
    own = {kind: module for kind, module in own.items() if module.startswith("fedlsa.")}
    shared = {inspect.unwrap(f).__module__ for f in (fl.simulate, fl.theory.exact, fl.plan)}
    shared |= {"fedlsa.engine.cpu_steps", "fedlsa.problems.garnets", "fedlsa.algorithms.methods", "fedlsa.sampling"}
    shared |= {"fedlsa.experiments.computations", "fedlsa.experiments.counterexamples"}
    shared |= {"fedlsa.value_objects", "fedlsa.kernel_cache", "fedlsa.theory.bounds"}
    before = {kind: cells.source_digest(package, kind) for kind in own}
    assert before == {kind: cells.source_digest(tmp_path / "fedlsa", kind) for kind in own}
    for module in sorted({*shared, *own.values()}):
        with (tmp_path / Path(*module.split("."))).with_suffix(".py").open("a") as file:
            file.write("# changed\n")
        after = {kind: cells.source_digest(tmp_path / "fedlsa", kind) for kind in own}
        changed = {kind for kind in own if before[kind] != after[kind]}
        assert changed == (set(own) if module in shared else {kind for kind in own if own[kind] == module}), module
        before = after


@pytest.mark.parametrize("library", ["numpy", "scipy", "numba"])
def test_a_cell_of_another_version_of_a_library_is_another_cell(monkeypatch, library):
    here = tiny.place(QUICK, 0)
    assert json.loads(here.text)["libraries"][library] == metadata.version(library)
    monkeypatch.setitem(cells.LIBRARIES, library, "0.0")
    there = tiny.place(QUICK, 0)
    assert here != there
    assert here.key != there.key


def test_the_digest_covers_every_room_from_which_cells_are_computed():
    """Rooms import only those before them, so that what these files import from are all of them."""
    package = Path(fl.__file__).parent
    covered = {*cells.ROOMS, *(path.stem for path in package.glob("*.py"))}
    for own in cells.SHARED_FILES:
        nodes = [node for node in ast.walk(ast.parse((package / own).read_text())) if isinstance(node, ast.ImportFrom)]
        rooms = {(node.module or alias.name).split(".")[0] for node in nodes if node.level == 2 for alias in node.names}
        assert len(rooms) >= 3
        assert rooms <= covered


def test_a_file_of_another_cell_does_not_count(tmp_path, log):
    store, here, there = Store(tmp_path), tiny.place(QUICK, 0), tiny.place(QUICK, 1)
    store[here] = tiny.draws(here.settings, {})
    os.rename(store.path(here), store.path(there))
    fresh = Store(tmp_path)
    assert not fresh.has(there)
    assert not fresh.has(here)
    with pytest.raises(KeyError):
        fresh[there]


def test_the_store_keeps_no_more_in_memory_than_it_may_and_forgets_nothing(tmp_path, log):
    store = Store(tmp_path, kept=3)
    several = [tiny.place(QUICK, i) for i in range(8)]
    for cell in several:
        store[cell] = tiny.draws(cell.settings, {})
        assert store.has(cell)
    assert store._read.cache_info().currsize == 3
    for cell in several:
        assert store[cell].attrs["place"] == cell.settings["place"]


def test_a_result_from_the_store_is_the_one_that_was_computed(tmp_path, log):
    cell = tiny.real(QUICK)
    run({"one": [cell]}, Store(tmp_path), LocalExecutor())
    settings = cell.settings
    p = fl.problems.garnet(**settings["problem"])
    alone = fl.simulate(p, fl.SCAFFLSA(0.1, 10), rounds=20, record=20, seeds=3)
    xr.testing.assert_identical(Store(tmp_path)[cell].drop_attrs(), alone.drop_attrs())


def test_a_cell_can_be_of_any_family_of_problems():
    settings = {"problem": {"family": "ring", "agents": 3}, "method": "fedlsa", "step_size": 0.1, "local_steps": 2}
    p = fl.problems.make("ring", agents=3)
    assert float(compute(Cell("limit", settings))["mse"]) == fl.theory.stationary(p, fl.FedLSA(0.1, 2)).mse
    run = {"rounds": 5, "record": 2, "seeds": 4}
    assert updates(Cell("simulate", {**settings, **run})) == 3 * 5 * 2 * 4
    with pytest.raises(UnknownNameError, match="family must be one of"):
        compute(Cell("limit", {**settings, "problem": {"family": "rings"}}))


def test_an_error_in_a_cell_leaves_what_was_done_before_it(tmp_path, log):
    bad = Cell("tiny", {"place": "nowhere", "seeds": 3})
    store = Store(tmp_path)
    with pytest.raises(TypeError):
        run({"one": [tiny.place(QUICK, 0), bad, tiny.place(QUICK, 1)]}, store, LocalExecutor())
    assert Store(tmp_path).has(tiny.place(QUICK, 0))
    assert not Store(tmp_path).has(tiny.place(QUICK, 1))


def test_two_runs_do_not_work_in_one_folder_at_once(tmp_path, log, no_pictures):
    def while_running(progress):
        with pytest.raises(ResultFileError, match="another run is at work"):
            reproduce(["two"], [QUICK], tmp_path / "out", LocalExecutor(), catalogue=tiny.CATALOGUE)

    reproduce(["one"], [QUICK], tmp_path / "out", LocalExecutor(), while_running, catalogue=tiny.CATALOGUE)
    reproduce(["one"], [QUICK], tmp_path / "out", LocalExecutor(), catalogue=tiny.CATALOGUE)


def test_what_an_interrupted_writer_left_is_cleared_away(tmp_path, log, no_pictures):
    for folder in ("cells", "figures/paper", "report"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / ".x.nc.0123abcd.part").write_text("half")
    reproduce(["one"], [QUICK], tmp_path, LocalExecutor(), catalogue=tiny.CATALOGUE)
    assert not list(tmp_path.rglob("*.part"))

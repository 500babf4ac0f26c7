"""A pool of real processes: answers arrive, the newest question wins, and nothing that happens to one blocks it."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pool_questions as ask
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.explore import answers
from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import METHODS, PageSettings
from fedlsa.explore.pool import LONG_LANE, QUICK_LANE, Pool

PATIENCE = 60  # seconds after which a test gives up on another process
RING = PageSettings(agents=3, noise=0.3, local_steps=10, rounds=12, seeds=4)
new = itertools.count()  # questions that were never asked before


@pytest.fixture(scope="module")
def pool():
    pool = Pool(quick=1, long=1)
    yield pool
    pool.close()


def eventually(condition):
    """What a condition gives as soon as it holds."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def one(pool, function, *arguments, lane=QUICK_LANE, topic="one"):
    """The last answer to one question."""
    *_, last = answers_of(pool.ask(("me", topic), [(function, arguments)], lane=lane))
    return last.kind, last.value


def answers_of(asking):
    """What comes, without the signs that nothing does."""
    return [a for a in asking if a.kind != "idle"]


def begun(pool, path, function=ask.patience, topic="slow", lane=QUICK_LANE):
    """The answers to a question that would take a minute, after it has begun."""
    found = pool.ask(("me", topic), [(function, (str(path),))], lane=lane)
    pid = int(eventually(lambda: path.exists() and path.read_text()))
    return found, pid


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_answers_come_from_another_process(pool):
    kind, pid = one(pool, ask.process)
    assert kind == "done"
    assert pid != os.getpid()
    assert one(pool, ask.fresh, next(new), lane=LONG_LANE)[1][0] != pid


def test_each_of_several_questions_is_answered_under_its_index(pool):
    found = answers_of(pool.ask(("me", "several"), [(ask.double, (k,)) for k in range(5)]))
    assert sorted((a.index, a.kind, a.value) for a in found) == [(k, "done", 2 * k) for k in range(5)]
    assert answers_of(pool.ask(("me", "several"), [])) == []


def test_a_curve_comes_back_as_the_library_computes_it(pool):
    q = Question.of(RING)
    found = {
        METHODS[a.index]: a.value
        for a in answers_of(pool.ask(("me", "curves"), [(answers.curve, (q, n)) for n in METHODS]))
    }
    for name in METHODS:
        xr.testing.assert_identical(
            found[name].exact,
            fl.theory.exact(fl.problems.ring(agents=3, noise=0.3, ideal=True), RING.method(name), rounds=12),
        )


def test_the_newest_question_wins_although_the_older_one_never_ends(pool, tmp_path):
    old, pid = begun(pool, tmp_path / "slow", ask.stubborn)
    value = next(new)
    newest = pool.ask(("me", "slow"), [(ask.fresh, (value,))])
    assert answers_of(old) == []  # ended, without an answer
    ((kind, (other, same)),) = [(a.kind, a.value) for a in answers_of(newest)]
    assert (kind, same) == ("done", value)
    assert other != pid
    eventually(lambda: not alive(pid))


def test_a_quick_question_that_is_dropped_may_end_and_its_process_lives_on(pool, tmp_path, monkeypatch):
    monkeypatch.setattr("fedlsa.explore.pool.GRACE", PATIENCE)
    go = tmp_path / "go"
    found = pool.ask(("me", "brief"), [(ask.until, (str(tmp_path / "brief"), str(go)))])
    pid = int(eventually(lambda: (tmp_path / "brief").exists() and (tmp_path / "brief").read_text()))
    value = next(new)
    newest = pool.ask(("me", "brief"), [(ask.fresh, (value,))])
    assert answers_of(found) == []
    go.write_text("on")
    assert [a.value for a in answers_of(newest)] == [(pid, value)]
    assert one(pool, ask.until, str(tmp_path / "brief"), str(go)) == ("done", pid)  # its answer is remembered


def test_of_many_settings_that_a_slider_passes_only_the_last_is_answered(pool, tmp_path):
    first, _ = begun(pool, tmp_path / "slow", topic="slider")
    passed = [pool.ask(("me", "slider"), [(ask.fresh, (("slider", k),))]) for k in range(50)]
    assert answers_of(first) == []
    assert [a.value[1] for a in answers_of(passed[-1])] == [("slider", 49)]
    assert all(len(answers_of(p)) <= 1 for p in passed[:-1])  # one may have been answered before the next came


def test_a_process_that_is_killed_for_a_newer_question_is_replaced_at_once(pool, tmp_path):
    found, pid = begun(pool, tmp_path / "slow", lane=LONG_LANE)
    found.close()
    assert one(pool, ask.fresh, next(new), lane=LONG_LANE)[1][0] != pid
    assert [w.lane for w in pool.workers] == [QUICK_LANE, LONG_LANE]


def test_other_topics_and_other_pages_are_left_alone(pool, tmp_path):
    old, pid = begun(pool, tmp_path / "slow")
    value = next(new)
    waiting = pool.ask(("you", "slow"), [(ask.fresh, (value,))])
    for topic in (("me", "another"), ("you", "another")):
        pool.ask(topic, [(ask.double, (next(new),))]).close()
    assert alive(pid)
    old.close()
    assert answers_of(old) == []
    assert [a.value[1] for a in answers_of(waiting)] == [value]


def test_long_work_does_not_keep_quick_questions_waiting(pool, tmp_path):
    old, pid = begun(pool, tmp_path / "slow", lane=LONG_LANE)
    kind, (quick, _) = one(pool, ask.fresh, next(new))
    assert (kind, quick != pid) == ("done", True)
    old.close()
    assert answers_of(old) == []


def test_of_long_work_that_waits_the_newest_goes_first_and_its_parts_in_their_order(pool, tmp_path):
    slow, _ = begun(pool, tmp_path / "slow", lane=LONG_LANE)
    asked = [
        pool.ask(("me", topic), [(ask.double, (f"{topic} {i}",)) for i in range(2)], lane=LONG_LANE)
        for topic in ("map", "plans")
    ]
    assert [job.call[1][0] for job in pool._waiting[LONG_LANE]] == ["plans 0", "plans 1", "map 0", "map 1"]
    for asking in (*asked, slow):
        asking.close()


def test_a_question_that_waits_is_dropped_before_it_begins(pool, tmp_path):
    old, _ = begun(pool, tmp_path / "slow")
    waiting = pool.ask(("me", "waiting"), [(ask.patience, (str(tmp_path / "never"),))])
    waiting.close()
    assert answers_of(waiting) == []
    old.close()
    assert answers_of(old) == []
    assert one(pool, ask.fresh, next(new))[0] == "done"
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (ask.refused, "step_size must be positive; got 0"),
        (ask.broken, "ZeroDivisionError: by nothing"),
        (ask.rambling, "ValueError: two lines, and half a letter: ?"),
    ],
)
def test_a_question_that_fails_is_one_line_and_the_process_lives_on(pool, function, line):
    before = one(pool, ask.fresh, next(new))[1][0]
    assert one(pool, function) == ("failed", line)
    assert one(pool, ask.fresh, next(new))[1][0] == before


def test_an_answer_that_cannot_be_sent_is_one_line_too(pool):
    kind, line = one(pool, ask.unsendable)
    assert kind == "failed"
    assert "\n" not in line
    assert one(pool, ask.fresh, next(new))[0] == "done"


def test_progress_arrives_in_its_order(pool):
    found = [(a.kind, a.value) for a in answers_of(pool.ask(("me", "count"), [(ask.counted, (4,))]))]
    assert found == [*(("progress", (k, 4)) for k in range(1, 5)), ("done", "counted")]


def test_a_pause_is_told_once(pool, tmp_path):
    found = pool.ask(("me", "slow"), [(ask.patience, (str(tmp_path / "slow"),))], pause=0.01)
    assert next(iter(found)).kind == "pause"
    eventually((tmp_path / "slow").exists)
    found.close()
    assert answers_of(found) == []


def test_a_simulation_tells_its_progress_and_stops_when_dropped(pool):
    s = PageSettings(agents=3, noise=0.3, local_steps=1000, rounds=100_000, seeds=1000)  # far beyond anybody's patience
    found = pool.ask(("me", "runs"), [(answers.simulations, (Question.of(s),))], lane=LONG_LANE)
    told = next(a for a in found if a.kind != "idle" and a.value[0] > 0)  # the engine is at work
    assert told.kind == "progress"
    assert 0 < told.value[0] < told.value[1]
    (pid,) = [w.process.pid for w in pool.workers if w.lane == LONG_LANE]
    assert alive(pid)
    found.close()
    assert answers_of(found) == []
    eventually(lambda: not alive(pid))
    assert one(pool, ask.fresh, next(new), lane=LONG_LANE)[0] == "done"


def test_what_was_answered_before_is_answered_at_once(pool, tmp_path):
    value = next(new)
    first = one(pool, ask.fresh, value)
    old, _ = begun(pool, tmp_path / "slow")  # nobody is free now
    assert one(pool, ask.fresh, value) == first
    old.close()
    assert answers_of(old) == []


def test_what_runs_for_somebody_else_is_not_computed_twice(pool, tmp_path):
    path, go = tmp_path / "begun", tmp_path / "go"
    question = (ask.counted_once, (str(path), str(go)))
    first = pool.ask(("me", "ahead"), [question])
    eventually(path.exists)
    second = pool.ask(("me", "now"), [question])
    go.write_text("on")
    assert [a.value for a in answers_of(first)] == [a.value for a in answers_of(second)] == ["counted"]
    assert path.read_text() == "begun\n"


def test_the_first_process_answers_before_another_one_is_started(monkeypatch):
    monkeypatch.setattr(Pool, "start_next", lambda self, start=Pool.start_next: self.workers or start(self))
    pool = Pool(quick=2, long=1)
    try:
        assert one(pool, ask.double, 2) == ("done", 4)
        assert [w.lane for w in pool.workers] == [QUICK_LANE]
        monkeypatch.undo()
        while len(pool.workers) < 3:
            pool.start_next()
        assert [w.lane for w in pool.workers] == [QUICK_LANE, QUICK_LANE, LONG_LANE]
    finally:
        pool.close()


def test_processes_have_loaded_what_they_need_and_started_no_thread_of_a_library():
    pool = Pool(quick=1, long=0, modules=answers.NEEDED)
    try:
        loaded, threads = one(pool, ask.loaded)[1]
        assert {*answers.NEEDED, "scipy.linalg"} <= set(loaded)
        assert not {"pandas", "xarray", "matplotlib"} & set(loaded)  # seconds that curves can do without
        assert threads == 1
    finally:
        pool.close()


def test_failures_are_not_remembered(pool):
    assert one(pool, ask.refused)[0] == "failed"
    assert (ask.refused, ()) not in pool._memory


def test_a_process_that_is_killed_is_replaced(pool, tmp_path):
    old, pid = begun(pool, tmp_path / "slow")
    next(w for w in pool.workers if w.process.pid == pid).process.kill()
    line = "the computation ended unexpectedly, perhaps for want of memory"
    assert [(a.kind, a.value) for a in answers_of(old)] == [("failed", line)]
    kind, (other, _) = one(pool, ask.fresh, next(new))
    assert kind == "done"
    assert other not in (pid, os.getpid())


def test_after_closing_no_process_is_left_and_nobody_waits(tmp_path):
    pool = Pool(quick=1, long=0)
    old, pid = begun(pool, tmp_path / "slow")
    waiting = pool.ask(("me", "waiting"), [(ask.process, ())])
    pool.close()
    assert answers_of(old) == answers_of(waiting) == []
    assert not alive(pid)
    assert pid not in {p.pid for p in multiprocessing.active_children()}
    assert answers_of(pool.ask(("me", "late"), [(ask.process, ())])) == []


ALONE = """
import time
from fedlsa.explore.pool import Pool
if __name__ == "__main__":
    pool = Pool(quick=1, long=0)
    print(*(w.process.pid for w in pool.workers), flush=True)
    time.sleep(600)
"""


def test_processes_end_by_themselves_when_the_page_is_killed(tmp_path):
    (tmp_path / "alone.py").write_text(ALONE)
    page = subprocess.Popen([sys.executable, tmp_path / "alone.py"], stdout=subprocess.PIPE, text=True)
    try:
        pids = [int(word) for word in page.stdout.readline().split()]
        assert len(pids) == 1
        assert all(alive(pid) for pid in pids)
    finally:
        page.send_signal(signal.SIGKILL)
        page.wait()
        page.stdout.close()
    eventually(lambda: not any(alive(pid) for pid in pids))


def test_who_is_closed_gives_up_nothing_that_another_waits_for(pool, tmp_path):
    path, go = tmp_path / "begun", tmp_path / "go"
    question = (ask.counted_once, (str(path), str(go)))
    first = pool.ask(("me", "now"), [question], lane=LONG_LANE)
    eventually(path.exists)
    second = pool.ask(("you", "now"), [question], lane=LONG_LANE)
    first.close()
    go.write_text("on")
    assert answers_of(first) == []
    assert [a.value for a in answers_of(second)] == ["counted"]
    assert path.read_text() == "begun\n"


def test_when_the_last_who_waits_is_closed_it_is_given_up(pool, tmp_path):
    asked = [begun(pool, tmp_path / "slow", lane=LONG_LANE)]
    asked.append((pool.ask(("you", "slow"), [(ask.patience, (str(tmp_path / "slow"),))], lane=LONG_LANE), 0))
    pid = asked[0][1]
    asked[0][0].close()
    time.sleep(0.3)
    assert alive(pid)
    asked[1][0].close()
    eventually(lambda: not alive(pid))


def test_an_older_question_that_comes_late_does_not_drop_the_newer_one(pool):
    value = next(new)
    newer = pool.ask(("me", "late"), [(ask.fresh, (value,))], number=7)
    assert answers_of(pool.ask(("me", "late"), [(ask.fresh, (next(new),))], number=6)) == []
    assert [a.value[1] for a in answers_of(newer)] == [value]


def test_a_thousand_pages_leave_nothing_behind(pool):
    for page in range(1000):
        pool.ask((f"page {page}", "curves"), [(ask.double, (page,))]).close()
    assert pool._open == {}
    assert not any(pool._waiting.values())
    assert one(pool, ask.double, 7) == ("done", 14)

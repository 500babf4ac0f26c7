"""A desk of real processes: answers arrive, the newest question wins, and nothing that happens to one blocks it."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import desk_questions as ask
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.explore import answers
from fedlsa.explore.answers import Question
from fedlsa.explore.desk import LONG, QUICK, Desk
from fedlsa.explore.settings import METHODS, Settings

PATIENCE = 60  # seconds after which a test gives up on another process
RING = Settings(agents=3, noise=0.3, local_steps=10, rounds=12, seeds=4)
new = itertools.count()  # questions that were never asked before


@pytest.fixture(scope="module")
def desk():
    desk = Desk(quick=1, long=1)
    yield desk
    desk.close()


def eventually(condition):
    """What a condition gives as soon as it holds."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def one(desk, function, *arguments, lane=QUICK, topic="one"):
    """The last answer to one question."""
    *_, last = desk.ask("me", topic, [(function, arguments)], lane=lane)
    return last.kind, last.value


def begun(desk, path, function=ask.patience, topic="slow", lane=QUICK):
    """The answers to a question that would take a minute, after it has begun."""
    found = desk.ask("me", topic, [(function, (str(path),))], lane=lane)
    pid = int(eventually(lambda: path.exists() and path.read_text()))
    return found, pid


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_answers_come_from_another_process(desk):
    kind, pid = one(desk, ask.process)
    assert kind == "done"
    assert pid != os.getpid()
    assert one(desk, ask.fresh, next(new), lane=LONG)[1][0] != pid


def test_each_of_several_questions_is_answered_under_its_index(desk):
    found = list(desk.ask("me", "several", [(ask.double, (k,)) for k in range(5)]))
    assert sorted((a.index, a.kind, a.value) for a in found) == [(k, "done", 2 * k) for k in range(5)]
    assert list(desk.ask("me", "several", [])) == []


def test_a_curve_comes_back_as_the_library_computes_it(desk):
    q = Question.of(RING)
    found = {METHODS[a.index]: a.value for a in desk.ask("me", "curves", [(answers.curve, (q, n)) for n in METHODS])}
    for name in METHODS:
        xr.testing.assert_identical(
            found[name].exact, fl.theory.exact(fl.problems.ring(agents=3, noise=0.3), RING.method(name), rounds=12)
        )


def test_the_newest_question_wins_and_the_process_lives_on(desk, tmp_path):
    old, pid = begun(desk, tmp_path / "slow")
    value = next(new)
    newest = desk.ask("me", "slow", [(ask.fresh, (value,))])
    assert list(old) == []  # ended, without an answer
    assert [(a.kind, a.value) for a in newest] == [("done", (pid, value))]


def test_of_many_settings_that_a_slider_passes_only_the_last_is_answered(desk, tmp_path):
    first, pid = begun(desk, tmp_path / "slow", topic="slider")
    passed = [desk.ask("me", "slider", [(ask.fresh, (("slider", k),))]) for k in range(50)]
    assert list(first) == []
    assert [a.value for a in passed[-1]] == [(pid, ("slider", 49))]
    # those in between end; one may have been answered before the next came
    assert all(len(list(p)) <= 1 for p in passed[:-1])


def test_what_catches_its_breath_when_stopped_is_stopped_all_the_same(desk, tmp_path):
    old, pid = begun(desk, tmp_path / "slow", ask.stubborn)
    desk.drop("me", "slow")
    assert list(old) == []
    assert one(desk, ask.fresh, next(new))[1][0] == pid


def test_other_topics_and_other_pages_are_left_alone(desk, tmp_path):
    old, pid = begun(desk, tmp_path / "slow")
    value = next(new)
    waiting = desk.ask("you", "slow", [(ask.fresh, (value,))])
    desk.drop("me", "another")
    desk.drop("you", "another")
    assert alive(pid)
    desk.drop("me", "slow")
    assert list(old) == []
    assert [a.value for a in waiting] == [(pid, value)]


def test_long_work_does_not_keep_quick_questions_waiting(desk, tmp_path):
    old, pid = begun(desk, tmp_path / "slow", lane=LONG)
    kind, (quick, _) = one(desk, ask.fresh, next(new))
    assert (kind, quick != pid) == ("done", True)
    desk.drop("me", "slow")
    assert list(old) == []


def test_a_question_that_waits_is_dropped_before_it_begins(desk, tmp_path):
    old, _ = begun(desk, tmp_path / "slow")
    waiting = desk.ask("me", "waiting", [(ask.patience, (str(tmp_path / "never"),))])
    desk.drop("me", "waiting")
    assert list(waiting) == []
    desk.drop("me", "slow")
    assert list(old) == []
    assert one(desk, ask.fresh, next(new))[0] == "done"
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (ask.refused, "step_size must be positive; got 0"),
        (ask.broken, "ZeroDivisionError: by nothing"),
        (ask.rambling, "ValueError: two lines, and half a letter: ?"),
    ],
)
def test_a_question_that_fails_is_one_line_and_the_process_lives_on(desk, function, line):
    before = one(desk, ask.fresh, next(new))[1][0]
    assert one(desk, function) == ("failed", line)
    assert one(desk, ask.fresh, next(new))[1][0] == before


def test_an_answer_that_cannot_be_sent_is_one_line_too(desk):
    kind, line = one(desk, ask.unsendable)
    assert kind == "failed"
    assert "\n" not in line
    assert one(desk, ask.fresh, next(new))[0] == "done"


def test_progress_arrives_in_its_order(desk):
    found = [(a.kind, a.value) for a in desk.ask("me", "count", [(ask.counted, (4,))])]
    assert found == [*(("progress", (k, 4)) for k in range(1, 5)), ("done", "counted")]


def test_a_pause_is_told_once(desk, tmp_path):
    found = desk.ask("me", "slow", [(ask.patience, (str(tmp_path / "slow"),))], pause=0.01)
    assert next(found).kind == "pause"
    eventually((tmp_path / "slow").exists)
    desk.drop("me", "slow")
    assert list(found) == []


def test_a_simulation_tells_its_progress_and_stops_when_dropped(desk):
    s = Settings(agents=3, noise=0.3, local_steps=1000, rounds=100_000, seeds=1000)  # far beyond anybody's patience
    found = desk.ask("me", "runs", [(answers.simulations, (Question.of(s),))], lane=LONG)
    pid = {w.process.pid for w in desk._workers if w.lane == LONG}
    told = next(found)
    while told.value[0] == 0:  # until the engine is at work
        assert told.kind == "progress"
        told = next(found)
    assert 0 < told.value[0] < told.value[1]
    desk.drop("me", "runs")
    assert {a.kind for a in found} <= {"progress"}
    assert {one(desk, ask.fresh, next(new), lane=LONG)[1][0]} == pid


def test_what_was_answered_before_is_answered_at_once(desk, tmp_path):
    value = next(new)
    first = one(desk, ask.fresh, value)
    old, _ = begun(desk, tmp_path / "slow")  # nobody is free now
    assert one(desk, ask.fresh, value) == first
    desk.drop("me", "slow")
    assert list(old) == []


def test_failures_are_not_remembered(desk):
    assert one(desk, ask.refused)[0] == "failed"
    assert (ask.refused, ()) not in desk._memory


def test_a_process_that_is_killed_is_replaced(desk, tmp_path):
    old, pid = begun(desk, tmp_path / "slow")
    next(w for w in desk._workers if w.process.pid == pid).process.kill()
    line = "the computation ended unexpectedly, perhaps for want of memory"
    assert [(a.kind, a.value) for a in old] == [("failed", line)]
    kind, (other, _) = one(desk, ask.fresh, next(new))
    assert kind == "done"
    assert other not in (pid, os.getpid())


def test_after_closing_no_process_is_left_and_nobody_waits(tmp_path):
    desk = Desk(quick=1, long=0)
    old, pid = begun(desk, tmp_path / "slow")
    waiting = desk.ask("me", "waiting", [(ask.process, ())])
    desk.close()
    assert list(old) == list(waiting) == []
    assert not alive(pid)
    assert pid not in {p.pid for p in multiprocessing.active_children()}
    assert list(desk.ask("me", "late", [(ask.process, ())])) == []


ALONE = """
import time
from fedlsa.explore.desk import Desk
if __name__ == "__main__":
    desk = Desk(quick=1, long=0)
    print(*(w.process.pid for w in desk._workers), flush=True)
    time.sleep(600)
"""


def test_processes_end_by_themselves_when_the_page_is_killed(tmp_path):
    (tmp_path / "alone.py").write_text(ALONE)
    page = subprocess.Popen([sys.executable, tmp_path / "alone.py"], stdout=subprocess.PIPE, text=True)
    try:
        pids = [int(word) for word in page.stdout.readline().split()]
        assert pids
        assert all(alive(pid) for pid in pids)
    finally:
        page.send_signal(signal.SIGKILL)
        page.wait()
        page.stdout.close()
    eventually(lambda: not any(alive(pid) for pid in pids))


def test_whoever_leaves_frees_the_process_and_may_come_back(desk, tmp_path):
    found, _ = begun(desk, tmp_path / "slow", topic="left")
    desk.leave("me")
    assert list(found) == []
    assert list(desk.ask("me", "left", [(ask.double, (10**6,))])) == []  # nobody is there to hear
    assert [a.value for a in desk.ask("another", "left", [(ask.double, (10**6 + 1,))])] == [2 * 10**6 + 2]
    desk.come("me")
    assert one(desk, ask.double, 10**6 + 2) == ("done", 2 * 10**6 + 4)
    desk.come("me")  # loaded anew: the old page is heard to leave after the new one has come
    desk.leave("me")
    assert one(desk, ask.double, 10**6 + 3) == ("done", 2 * 10**6 + 6)


def test_what_is_dropped_while_a_module_loads_leaves_it_whole(desk, tmp_path):
    begins = tmp_path / "begun"
    (tmp_path / "slow_to_load.py").write_text(
        f"import os, time\nopen({str(begins)!r}, 'w').write(str(os.getpid()))\n"
        "end = time.monotonic() + 1\nwhile time.monotonic() < end:\n    sum(range(1000))\nWHOLE = True\n"
    )
    found = desk.ask("me", "import", [(ask.loading, (str(begins), str(tmp_path)))])
    pid = int(eventually(lambda: begins.exists() and begins.read_text()))
    assert one(desk, ask.fresh, next(new), topic="import")[1][0] == pid  # dropped, by the same process
    assert list(found) == []
    assert one(desk, ask.loaded, str(tmp_path)) == ("done", True)

"""One process per folder, ended by its own id."""

import os
import signal
import sys
import time

import pytest

from fedlsa.errors import NetworkError
from fedlsa.network.processes import Child, bracketed, free_port, is_held, only_one

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]


def started(path, command):
    child = Child(command, path / "child.log")
    child.start()
    end = time.monotonic() + 60
    while "up" not in child.log.read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    return child


def test_a_child_ends_politely_and_is_started_again(tmp_path):
    child = started(tmp_path, SLEEP)
    first = child.pid
    assert child.end() == -signal.SIGTERM
    assert child.pid is None
    child.start()
    assert child.pid not in (None, first)
    child.kill()
    assert child.pid is None


def test_a_child_that_will_not_end_is_killed(tmp_path):
    assert started(tmp_path, STUBBORN).end(patience=0.2) == -signal.SIGKILL


def test_one_process_per_folder_and_a_killed_one_leaves_it_free(tmp_path):
    lock = tmp_path / "pid"
    assert not is_held(lock)
    text = f"from pathlib import Path; from fedlsa.network.processes import only_one; import time\nwith only_one(Path({str(lock)!r}), 'taken'):\n    print('up', flush=True); time.sleep(600)"  # noqa: E501
    child = started(tmp_path, [sys.executable, "-c", text])
    assert is_held(lock)
    with (
        pytest.raises(NetworkError, match=f"served already, by the process {child.pid}"),
        only_one(lock, "served already"),
    ):
        pass
    child.kill()
    assert not is_held(lock)
    with only_one(lock, "again"):
        assert is_held(lock)
        assert lock.read_text() == str(os.getpid())
    assert not is_held(lock)


def test_a_lock_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(NetworkError, match="cannot write"), only_one(tmp_path / "none" / "pid", "taken"):
        pass


def test_ports_and_hosts(tmp_path):
    assert 0 < free_port() < 65536
    assert (bracketed("::1"), bracketed("a.example")) == ("[::1]", "a.example")

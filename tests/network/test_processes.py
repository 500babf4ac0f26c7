"""One process per folder, ended by its own id."""

import os
import signal
import socket
import sys
import time

import pytest

from fedlsa.errors import NetworkError
from fedlsa.network import processes
from fedlsa.network.processes import OWN_PORTS, Child, bracketed, free_port, is_held, only_one

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


def test_ports_are_not_those_that_the_system_gives_away():
    assert len({free_port() for _ in range(20)}) > 15
    assert 1024 <= OWN_PORTS[0] <= free_port() <= OWN_PORTS[-1] < 32768  # from there on Linux gives them to connections


def test_a_port_in_use_is_not_free(monkeypatch):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        taken, free = s.getsockname()[1], free_port()
        monkeypatch.setattr(processes, "OWN_PORTS", [taken] * 99 + [free])
        assert free_port() == free
        monkeypatch.setattr(processes, "OWN_PORTS", [taken] * 100)
        with pytest.raises(NetworkError, match=r"no port of 127.0.0.1 is free"):
            free_port()


def test_hosts():
    assert (bracketed("::1"), bracketed("a.example")) == ("[::1]", "a.example")

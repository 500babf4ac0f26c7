"""Children: started again when they die, ended by their own id, gone when their parent is."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fedlsa.errors import NetworkError
from fedlsa.network.processes import LAUNCH, Child, ProcessGroup, environment, only_one

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def child(tmp_path, name="sleeper", command=SLEEP):
    return Child(name, lambda: command, tmp_path / f"{name}.log", environment(tmp_path / "home"))


def until(happens):
    end = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_family_starts_again_together_and_says_why(tmp_path):
    said = []
    family = ProcessGroup([child(tmp_path, "one"), child(tmp_path, "two")], said.append, wait=0.05)
    try:
        family.look()
        first = [c.pid for c in family.children]
        os.kill(first[0], signal.SIGKILL)
        family.children[0].process.wait()
        until(
            lambda: family.look() or (family.due is None and all(c.pid not in (None, *first) for c in family.children))
        )
        assert said == [f"one ended (signal 9); starting again in 0.05 s, see {tmp_path / 'one.log'}"]
        assert family.wait == 0.1  # the next wait is longer
        with pytest.raises(ProcessLookupError):
            os.kill(first[1], 0)
    finally:
        family.end()
    assert all(c.pid is None for c in family.children)


def test_a_child_that_ignores_a_request_is_ended_for_certain(tmp_path):
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    it = child(tmp_path, command=[sys.executable, "-c", stubborn])
    it.start()
    until(lambda: "up" in it.log.read_text())
    it.end(patience=0.1)
    assert it.process.returncode == -signal.SIGKILL


def test_a_process_of_ours_ends_when_its_parent_is_killed(tmp_path):
    inner = f"import sys; sys.path.insert(0, {str(LAUNCH.parent)!r}); import launch, os, time; "
    inner += "launch.end_with(os.getppid()); print(os.getpid(), flush=True); time.sleep(600)"
    outer = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {inner!r}]); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True)
    try:
        pid = int(parent.stdout.readline())
    finally:
        parent.kill()
        parent.wait()

    def gone():
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().split()[2] == "Z"
        except FileNotFoundError:
            return True

    until(gone)


def test_two_processes_never_serve_one_folder(tmp_path):
    first, second = (only_one(tmp_path / "pid", "this network is being served already") for _ in range(2))
    with first, pytest.raises(NetworkError, match=f"served already, by the process {os.getpid()}"), second:
        pass
    with only_one(tmp_path / "pid", "again"):
        pass

"""One process per folder, ended by its own id."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedlsa.errors import NetworkError
from fedlsa.network import processes
from fedlsa.network.demo import end_process, start_process
from fedlsa.network.processes import (
    OWN_PORTS,
    bracketed,
    free_port,
    interrupted_by_signals,
    is_held,
    only_one,
    reporting,
)

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]


def started(path, command):
    child = start_process(command, path / "child.log")
    end = time.monotonic() + 60
    while "up" not in (path / "child.log").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    return child


def test_a_child_ends_politely_and_one_that_will_not_end_is_killed(tmp_path):
    for command, number in ((SLEEP, signal.SIGTERM), (STUBBORN, signal.SIGKILL)):
        (tmp_path / number.name).mkdir()
        child = started(tmp_path / number.name, command)
        for _ in range(2):  # the second time it has ended already
            end_process(child, patience=0.2 if command is STUBBORN else 10.0)
            assert child.returncode == -number


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
    child.wait()
    assert not is_held(lock)
    with only_one(lock, "again"):
        assert is_held(lock)
        assert lock.read_text() == f"{os.getpid()} on {socket.gethostname()}"
    assert not is_held(lock)


def test_whoever_looks_at_a_lock_keeps_nobody_from_taking_it(tmp_path):
    lock = tmp_path / "pid"
    lock.touch()
    text = f"from pathlib import Path; from fedlsa.network.processes import is_held; print('up', flush=True)\nfor _ in range(1_000_000): is_held(Path({str(lock)!r}))"  # noqa: E501
    child = started(tmp_path, [sys.executable, "-c", text])
    try:
        for _ in range(300):
            with only_one(lock, "taken"):
                pass
    finally:
        child.kill()
        child.wait()


def test_a_lock_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(NetworkError, match="cannot write"), only_one(tmp_path / "none" / "pid", "taken"):
        pass


def test_what_others_wrote_commands_neither_terminal_nor_log(tmp_path):
    """The attack: an order or an answer whose text clears the screen, or writes a line of its own into the log."""
    said = []
    report = reporting(tmp_path / "logs" / "x.log", said.append)
    report("refused: \x1b[2J\x9b31m\u202e\rall is well\x07" + "x" * 5000)
    report("two\nlines")
    assert said[0].isprintable()
    assert said[0].startswith("refused:  [2J")
    assert len(said[0]) <= 2000
    assert said[1] == "two\nlines"
    written = (tmp_path / "logs" / "x.log").read_text().splitlines()
    assert len(written) == 2
    assert all(line.isprintable() for line in written)


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_the_first_signal_interrupts_and_the_next_ones_do_not_disturb_what_is_tidied_up(number):
    inherited = signal.signal(number, signal.default_int_handler)  # under nohup, hang-ups are ignored
    tidied = []

    def interrupted_twice():
        try:
            os.kill(os.getpid(), number)
            time.sleep(60)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            tidied.append(True)

    with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
        interrupted_twice()
    assert tidied
    assert signal.signal(number, inherited) is signal.default_int_handler


def children(pid):
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"  # ended, nobody has looked
    except OSError:
        return False


def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="who is whose child is read from /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_a_demonstration_that_is_ended_leaves_no_process(tmp_path, number):
    command = [sys.executable, "-m", "fedlsa", "network", "demo", "--folder", str(tmp_path / "here")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as demo:
        until(lambda: demo.poll() is not None or len(children(demo.pid)) == 5)
        started = children(demo.pid)
        demo.send_signal(number)
        _, err = demo.communicate(timeout=120)
    assert len(started) == 5
    if number == signal.SIGKILL:
        assert demo.returncode == -signal.SIGKILL
        until(lambda: not any(map(alive, started)))
    else:
        assert not any(map(alive, started))
        assert (demo.returncode, err) == (130, "fedlsa: interrupted\n")

"""What all tests share: their order, property tests that draw the same examples every time, examples as modules."""

import functools
import gc
import os
import shutil
import signal
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: on busy cores, threads of BLAS wait for one another

# hundreds of processes are started, each of which would compile all sources again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if threading.current_thread() is threading.main_thread():
    # whoever is started in the background of a shell ignores Ctrl-C, and so would the processes that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.set_threshold(20_000, 20, 20)  # searches for cycles took a twentieth of all time

MEMORY, ROOM = "/dev/shm", 2**30  # bytes; a disk waits whenever one file replaces another
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)  # where pytest makes its temporary folders

os.fsync = lambda file: None  # no test cuts the power; where writing fails, tests put what fails in its place


class Unsynchronised(sqlite3.Connection):
    """Nor does SQLite wait for the disk, thousands of times; what a killed process has written is there without it."""

    def execute(self, statement, *values):
        return super().execute("pragma synchronous = off" if "synchronous" in statement else statement, *values)


sqlite3.connect = functools.partial(sqlite3.connect, factory=Unsynchronised)

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

try:
    from hypothesis import settings
except ImportError:  # the tests that need it say so; `make mutate` runs the others where it is missing too
    pass
else:
    settings.register_profile("fedlsa", derandomize=True, deadline=None, max_examples=50)
    settings.load_profile("fedlsa")

# they wait for processes of their own: begun first, while other tests fill the time
FIRST = ("test_killed_commands.py", "test_runner.py")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


def pytest_collection_finish():
    gc.freeze()  # what the libraries and thousands of tests are made of is not looked through again and again


@pytest.fixture
def pictures(monkeypatch):
    """Every picture that a test saves is fit for print; their names are in this list."""
    from print_quality import faults

    from fedlsa import figures

    save, saved = figures.save, []

    def checked(figure, path, **more):
        assert faults(figure) == [], path
        saved.append(Path(path).name)
        save(figure, path, **more)

    monkeypatch.setattr(figures, "save", checked)
    return saved

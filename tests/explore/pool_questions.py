"""Questions for a pool that take a known time, fail, or end their process; they are found by the processes by name."""

import os
import signal
import sys
import time

from fedlsa.errors import ArgumentError


def process():
    return os.getpid()


def double(value):
    return 2 * value


def fresh(value):
    """The process, under a question that was never asked before."""
    return os.getpid(), value


def patience(path, name=""):
    """Says that it has begun, then takes a minute in small steps, and leaves the processor to others."""
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.005)
    return name


def stubborn(path):
    """Takes a minute, and goes on when it is told to stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    patience(path)


def refused():
    raise ArgumentError("step_size must be positive; got 0")


def broken():
    raise ZeroDivisionError("by nothing")


def counted(steps, progress):
    for i in range(1, steps + 1):
        progress(i, steps)
    return "counted"


def unsendable():
    return lambda: None


def rambling():
    raise ValueError("two\nlines, and half a letter: \udcff")


def until(path, go):
    """Says that it has begun, and works until a file is there."""
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    while not os.path.exists(go):
        time.sleep(0.01)
    return os.getpid()


def loaded():
    """The modules of this process, and the threads of its BLAS."""
    from threadpoolctl import threadpool_info

    return list(sys.modules), max(library["num_threads"] for library in threadpool_info())


def counted_once(path, go):
    """Says each time that it begins, and works until a file is there."""
    with open(path, "a") as file:
        file.write("begun\n")
    while not os.path.exists(go):
        time.sleep(0.01)
    return "counted"

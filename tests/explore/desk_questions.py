"""Questions for a desk that take a known time, fail, or end their process; they are found by the processes by name."""

import os
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
    """Says that it has begun, then works for a minute in small steps."""
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    end = time.monotonic() + 60
    while time.monotonic() < end:
        sum(range(1000))
    return name


def stubborn(path):
    """Works for a minute, and tries to go on when it is told to stop."""
    try:
        patience(path)
    finally:
        sum(range(1000))


def refused():
    raise ArgumentError("step_size must be positive; got 0")


def broken():
    raise ZeroDivisionError("by nothing")


def counted(steps, tell):
    for i in range(1, steps + 1):
        tell(i, steps)
    return "counted"


def unsendable():
    return lambda: None


def rambling():
    raise ValueError("two\nlines, and half a letter: \udcff")


def loading(path, folder):
    """Imports a module that takes a second to load and says on disk that it has begun; then goes on for a minute."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import slow_to_load

    patience(path + ".after")
    return slow_to_load.WHOLE


def loaded(folder):
    """Whether that module is whole in this process."""
    import slow_to_load

    return slow_to_load.WHOLE

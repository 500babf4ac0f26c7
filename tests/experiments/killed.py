"""A script: run the tiny catalogue in children that are killed (signal 9) at seeded random moments, until 20 have been.

Prints what the test asserts: how often it was killed, when, how many runs came to an end, and what was wrong.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import tiny

from fedlsa.errors import ResultFileError
from fedlsa.experiments import Local, compute, reproduce
from fedlsa.results import load

KILLS, CHAIN, CELLS = 20, 5, 13  # in all, between two runs that may come to their end, and files in the end


def complete(out):
    """Keys of the cells whose files are whole."""
    keys = set()
    for path in (out / "cells").glob("*.nc"):
        try:
            load(path)
        except ResultFileError:
            continue
        keys.add(path.stem)
    return keys


def content(out):
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def once(out):
    reproduce(["one", "two"], tiny.SCALES[:1], out, Local({"threads": 2}), catalogue=tiny.CATALOGUE)


def attempt(out, moment, files=10**9):
    """Run in a child; kill it after so many seconds, or with so many cells stored. Whether it was before its end."""
    child = os.fork()
    if child == 0:
        try:
            once(out)
            os._exit(0)
        finally:
            os._exit(1)
    deadline = time.monotonic() + moment
    while time.monotonic() < deadline and sum(1 for _ in (out / "cells").glob("*.nc")) < files:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return False
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def main(folder):
    tiny.log_to(folder / "warm")
    compute(tiny.real(tiny.SCALES[0]))  # compiled here: the children have it
    once(folder / "warm up")
    tiny.log_to(folder / "clean.log")
    began = time.monotonic()
    attempt(folder / "clean", 1e9)
    whole = time.monotonic() - began
    expected = content(folder / "clean")
    draw, kills, ends, wrong, stored, before = random.Random(4), 0, 0, [], [], set()
    while kills < KILLS or ends < KILLS // CHAIN:
        out, log = folder / f"out {ends}", folder / "log"
        tiny.log_to(log)
        log.write_text("")
        spared = kills >= CHAIN * (ends + 1)
        if spared:
            killed = attempt(out, 1e9)
        elif kills % 2:  # at any moment
            killed = attempt(out, draw.uniform(0, 0.4 * whole))
        else:  # while cells are computed
            killed = attempt(out, 1e9, draw.randint(len(before), min(len(before) + 5, CELLS)))
        made = Counter(log.read_text().split())
        wrong += [f"computed again: {key}" for key in before & made.keys()]
        wrong += [f"computed twice: {key}" for key, n in made.items() if n > 1]
        after = complete(out)
        wrong += [f"damaged: {p.name}" for p in (out / "cells").glob("*.nc") if p.stem not in after]
        wrong += [f"lost: {key}" for key in before - after]
        if killed:
            kills += 1
            stored.append(len(after))
            before = after
        else:
            found = content(out)
            names = expected.keys() | found.keys()
            wrong += [f"differs: {name}" for name in names if expected.get(name) != found.get(name)]
            ends, before = ends + 1, set()
    cells = sum(name.endswith(".nc") for name in expected)
    print(json.dumps({"kills": kills, "ends": ends, "wrong": wrong, "stored": stored, "cells": cells}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The changes of `make mutate`, read from mutations.txt: one line of a kernel or a formula broken.

An entry is `file: what is broken`, lines `- ` with a text that stands in the file once, lines `+ ` with what takes its
place, and a line `! ` with the tests that must fail. Files are those below src/fedlsa.
"""

from pathlib import Path
from typing import NamedTuple


class Mutation(NamedTuple):
    file: str
    what: str
    old: str
    new: str
    tests: str  # pytest's names, separated by spaces


def read(entry: str) -> Mutation:
    """One entry of the list."""
    title, *lines = entry.strip("\n").split("\n")
    file, what = title.split(": ", 1)
    old, new, tests = ("\n".join(line[2:] for line in lines if line.startswith(mark)) for mark in "-+!")
    return Mutation(file, what, old, new, tests)


MUTATIONS = [read(entry) for entry in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split("\n\n")]

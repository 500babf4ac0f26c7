"""Work shared among plain threads: for compiled passes that let go of the interpreter's lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from itertools import pairwise


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(work: Callable[[int, int], None], cuts: Sequence[int]) -> None:
    """work(a, b) for each two neighbours a, b of `cuts`: the first here, the others in threads of their own."""
    here = [copy_context() for _ in cuts[2:]]  # NumPy's treatment of overflow holds in the others too
    others = [
        threading.Thread(target=c.run, args=(work, *pair)) for c, pair in zip(here, pairwise(cuts[1:]), strict=True)
    ]
    for thread in others:
        thread.start()
    work(cuts[0], cuts[1])
    for thread in others:
        thread.join()

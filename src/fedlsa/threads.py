"""Work shared among plain threads, and the one limit on the threads that BLAS would start inside them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, wraps
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
SMALL_DIM = 64  # up to which products of matrices are done before a second thread of BLAS has woken up
_LOCK = threading.Lock()
_INSIDE: list[bool] = []  # an entry for everybody inside `one_blas_thread`: whether SciPy's own BLAS was there
_SET: list[Any] = []  # the limits that hold meanwhile


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_blas_thread(dim: int = 1) -> Iterator[None]:
    """Within it BLAS computes in the thread that calls it; where dim is above 64, it stays as it is.

    Several threads of ours share the cores already, and small products only wait for a second thread: on a busy machine
    ten times as long as they take. BLAS has one limit for the whole process, none for a thread, so the first to enter
    sets it and the last to leave takes it back; where other threads need theirs, FEDLSA_BLAS_THREADS=keep leaves it.
    """
    if dim > SMALL_DIM or os.environ.get("FEDLSA_BLAS_THREADS") == "keep":
        yield
        return
    with _LOCK:
        scipy = "scipy.linalg" in sys.modules
        if scipy not in _INSIDE:  # nobody is here, or SciPy has come since, with a BLAS of its own
            _in_own_thread(lambda: _SET.append(_controller(scipy).limit(limits=1, user_api="blas")))
        _INSIDE.append(scipy)
    try:
        yield
    finally:
        with _LOCK:
            _INSIDE.pop()
            if not _INSIDE:
                _in_own_thread(lambda: [_SET.pop().restore_original_limits() for _ in list(_SET)])


def small_products(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator for functions of a problem, or of its moments: `one_blas_thread` with their dimension."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        of = args[0] if args else kwargs.get("problem")
        dim = getattr(of, "dim", 1)
        with one_blas_thread(dim if isinstance(dim, int) else 1):  # the function says what is wrong with it
            return function(*args, **kwargs)

    return limited


def one_blas_thread_for_good() -> None:
    """The same for the rest of a process that shares the machine with others of ours."""
    import scipy.linalg  # noqa: F401  which has a BLAS of its own

    _controller(True).limit(limits=1, user_api="blas")


def _in_own_thread(work: Callable[[], Any]) -> None:
    """In a thread that ends at once: who limits BLAS owns it while alive, and here the last to leave is often another
    thread than the first to enter."""
    _begin(threading.Thread(target=work))()


def _begin(thread: threading.Thread) -> Callable[[], None]:
    """Start a thread, or do its work here where no more may be started; what waits for its end."""
    try:
        thread.start()
    except RuntimeError:
        thread.run()
        return lambda: None
    return thread.join


@cache
def _controller(scipy: bool) -> Any:
    """The BLAS libraries of this process, found once: looking for them takes milliseconds. scipy : with SciPy's."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def share(work: Callable[[int, int], None], cuts: Sequence[int]) -> None:
    """work(a, b) for each two neighbours a, b of `cuts`: the first here, the others in threads of their own."""
    if len(cuts) == 2:  # nobody to share it with
        work(cuts[0], cuts[1])
        return
    here = [copy_context() for _ in cuts[2:]]  # NumPy's treatment of overflow holds in the others too
    others = [
        threading.Thread(target=c.run, args=(work, *pair)) for c, pair in zip(here, pairwise(cuts[1:]), strict=True)
    ]
    with one_blas_thread():
        ends = [_begin(thread) for thread in others]
        work(cuts[0], cuts[1])
        for wait in ends:
            wait()

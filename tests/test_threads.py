"""Within our own threads and processes BLAS starts none, whatever its own setting; afterwards it is as it was."""

import importlib
import threading

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  whose BLAS is another one
from threadpoolctl import ThreadpoolController

import fedlsa as fl
from fedlsa import threads
from fedlsa.experiments.executor import processes

BLAS = ThreadpoolController()


def blas_threads() -> set[int]:
    """How many threads each BLAS of this process would use now."""
    return {library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    """As on a machine where nobody has limited them."""
    limits = []
    threads._in_own_thread(lambda: limits.append(BLAS.limit(limits=2, user_api="blas")))
    assert blas_threads() == {2}
    yield
    assert blas_threads() == {2}, "a limit was left behind"
    threads._in_own_thread(limits[0].restore_original_limits)


def test_threads_that_share_work_find_one_thread_of_blas():
    seen = {}
    threads.share(lambda a, b: seen.update({a: blas_threads()}), [0, 1, 2, 3])
    assert seen == {0: {1}, 1: {1}, 2: {1}}


def test_the_limit_ends_with_the_last_of_those_who_overlap():
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with threads.one_blas_thread():
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=stay)
    with threads.one_blas_thread():
        other.start()
        inside.wait(10)
    assert blas_threads() == {1}  # the other one is still inside
    leave.set()
    other.join()
    assert blas_threads() == {2}


def test_a_library_is_looked_for_once():
    with threads.one_blas_thread():
        pass
    known = threads._controller.cache_info().misses
    for _ in range(5):
        with threads.one_blas_thread():
            pass
    assert threads._controller.cache_info().misses == known


def test_large_products_keep_their_threads():
    with threads.one_blas_thread(threads.SMALL_DIM + 1):
        assert blas_threads() == {2}
    with pytest.raises(ZeroDivisionError), threads.one_blas_thread():
        raise ZeroDivisionError


def test_who_computes_in_other_threads_can_keep_theirs(monkeypatch):
    monkeypatch.setenv("FEDLSA_BLAS_THREADS", "keep")
    with threads.one_blas_thread():
        assert blas_threads() == {2}


PROBLEM = fl.problems.ring(agents=3, noise=0.3)
SITES = [(np.random.default_rng(c).standard_normal((30, 2)), np.arange(30.0) + c) for c in range(2)]
CALLS = {
    "exact": ("fedlsa.theory.exact_curves.independent_curve", lambda: fl.theory.exact(PROBLEM, fl.SCAFFLSA(0.1, 3), 5)),
    "stationary": ("fedlsa.theory.stationarity._checked", lambda: fl.theory.stationary(PROBLEM, fl.FedLSA(0.1, 3))),
    "limit": (
        "fedlsa.theory.stationarity._checked",
        lambda: fl.theory.stability_limit(PROBLEM, fl.FedLSA(0.1, 3), 0.1),
    ),
    "plan": ("fedlsa.theory.planner.Search", lambda: fl.plan(PROBLEM, 0.5)),
    "reading": ("fedlsa.fitting.reading.first_pass", lambda: fl.fit(SITES, fl.Regression("y"), local="means")),
    "scores": ("fedlsa.fitting.estimate.join_scores", lambda: fl.fit(SITES, fl.Regression("y"), local="means")),
    "run": ("fedlsa.fitting.protocol._end", lambda: fl.fit(SITES, fl.Regression("y"), local="means")),
    "evaluation": (
        "fedlsa.fitting.evaluation._residuals",
        lambda: fl.evaluate(fl.fit(SITES, fl.Regression("y"), local="means"), SITES),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_small_products_of_every_verb_are_made_by_the_thread_that_asks(name, monkeypatch):
    place, ask = CALLS[name]
    module, _, function = place.rpartition(".")
    seen, home = [], importlib.import_module(module)
    real = getattr(home, function)

    def watched(*args, **kwargs):
        seen.append(blas_threads())
        return real(*args, **kwargs)

    monkeypatch.setattr(home, function, watched)
    monkeypatch.setattr(importlib.import_module("fedlsa.fitting.reading"), "cores", lambda: 2)
    ask()
    assert seen
    assert all(n == {1} for n in seen)


def test_processes_of_experiments_have_one_thread_of_blas():
    with processes(1) as pool:
        assert pool.submit(blas_threads).result(timeout=120) == {1}

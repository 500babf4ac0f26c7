"""SCAFFLSA in C++ (scafflsa.cpp), built on the fly where a compiler is found and called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from baselines import rank_one_observations

from fedlsa.engine.outcome_tables import outcome_tables
from fedlsa.problems import Problem
from fedlsa.sampling import IID

SOURCE = Path(__file__).resolve().with_name("scafflsa.cpp")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp-simd", "-shared", "-fPIC")
OUTCOME = np.dtype([("u", np.uint32), ("v", np.uint32), ("y", np.float64)])


class _Problem(ctypes.Structure):
    """As in the source."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("agents", "local_steps")),
        ("eta", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("slots", "slot", "shift", "first", "outcomes", "rows", "start")),
    )


def compiler() -> str | None:
    """The C++ compiler of this machine, if it has one."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


@functools.cache
def _library(d: int) -> ctypes.CDLL:
    command = compiler()
    if command is None:
        raise RuntimeError(f"the C++ twin needs a compiler, one of {', '.join(COMPILERS)}; got none")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "scafflsa.so"
        subprocess.run([command, *FLAGS, f"-DDIMENSION={d}", str(SOURCE), "-o", str(out)], check=True)
        return ctypes.CDLL(str(out))


def native_loop(problem: Problem, eta: float, H: int, threads: int = 1) -> Callable[[int, Sequence[int]], np.ndarray]:
    """A function of (rounds, seeds) that returns the last theta of each seed : (R, d); threads share the seeds.

    It draws what fedlsa draws and returns what fedlsa returns, up to rounding. The first call builds the library.
    """
    z, d, law = rank_one_observations(problem), problem.dim, outcome_tables(problem, IID())
    outcomes = np.empty(len(z.y), OUTCOME)
    outcomes["u"], outcomes["v"], outcomes["y"] = d * z.left, d * z.right, z.y
    of_agents = (x[problem.assignment].astype(np.uint32) for x in (law.slot, law.shift, law.row))
    arrays = [law.slots, *of_agents, outcomes, np.ascontiguousarray(z.rows), problem.theta_star + 1]
    given = _Problem(problem.n_agents, H, eta, *(a.ctypes.data for a in arrays))

    def run(rounds: int, seeds: Sequence[int], arrays: list[np.ndarray] = arrays) -> np.ndarray:
        theta = np.empty((len(seeds), d))  # `arrays` must live as long as the pointers to them
        one_seed = _library(d).scafflsa
        one_seed.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p)
        with ThreadPoolExecutor(threads) as pool:  # ctypes lets other threads run meanwhile
            rows = [theta[i].ctypes.data for i in range(len(seeds))]
            list(pool.map(lambda seed, row: one_seed(ctypes.addressof(given), rounds, seed, row), seeds, rows))
        return theta

    return run

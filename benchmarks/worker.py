"""A process pinned to some cores that times what it is told to: one request per line in, one answer per line out.

All contenders of a row run in the same process on the same cores. Argument: the cores. Requests are JSON objects:

    {"do": "prepare", "id": 3, "cell": {...}, "who": "fedlsa", "seconds": 0.25}  ->  {"updates": ..., "compile": ...}
    {"do": "time", "id": 3}  ->  {"seconds": ...}
    {"do": "drop"}           ->  {}
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cells import CPP, FEDLSA, JAX_ALIAS, NUMPY, STEP_SIZE, Cell

SETUP_SHARE = 0.05  # a timing is long enough for the set-up of a call to be at most this share of it


@dataclass
class Contender:
    """run(n) does n units of work, of `updates` agent updates each; setup() does as little as a call can."""

    run: Callable[[int], Any]
    updates: int
    setup: Callable[[], Any] | None = None


@dataclass
class Ready:
    """A contender that is compiled, warm, and knows how much work fills a timing."""

    contender: Contender
    units: int
    compile: float
    pace: float  # seconds per unit

    def time(self) -> float:
        return _seconds(self.contender.run, self.units)


def _seconds(call: Callable[..., Any], *arguments: Any) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


@functools.lru_cache(maxsize=1)  # the cells of a size follow one another
def problem(N: int, d: int, states: int, observations: str) -> Any:
    """A problem of the cells of this size."""
    import fedlsa as fl

    made = fl.problems.garnet(agents=N, states=states, features=d, preset="paper")
    if observations == "dense":
        made = fl.problems.from_observations([(made.prob[s], *made.observations.matrices(s)) for s in made.spans()])
    return made


def _fedlsa(cell: Cell, p: Any, threads: int) -> list[Contender]:
    import fedlsa as fl

    sampling = fl.Markov() if cell.sampling == "markov" else fl.IID()

    def simulate(H: int, rounds: int) -> None:
        method = fl.SCAFFLSA(step_size=STEP_SIZE, local_steps=H)
        with warnings.catch_warnings():
            warnings.simplefilter("error", fl.errors.DivergenceWarning)  # a run that overflows is no measure of speed
            fl.simulate(
                p, method, rounds=rounds, seeds=cell.seeds, sampling=sampling, dtype=cell.dtype, threads=threads,
                record=2, keep=(),
            )  # fmt: skip

    updates = cell.N * cell.H * cell.seeds
    return [Contender(lambda n: simulate(cell.H, n), updates, lambda: simulate(1, 1))]


def _numpy(cell: Cell, p: Any) -> list[Contender]:
    from baselines import numpy_loop

    loop = numpy_loop(p, STEP_SIZE, cell.H)
    return [Contender(lambda n: loop(n, 0), cell.N)]


def _jax(cell: Cell, p: Any, draw: str) -> list[Contender]:
    """Plain, and with the seeds spread over one XLA device per core: the faster of the two counts."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.config.update("jax_enable_x64", True)
    from baselines import jax_loop

    loop = jax_loop(p, STEP_SIZE, cell.H, draw)
    seeds = [jax.numpy.arange(cell.seeds)]
    share = math.gcd(cell.seeds, len(jax.devices()))
    if share > 1:
        mesh = Mesh(np.array(jax.devices()[:share]), "seeds")
        seeds.append(jax.device_put(seeds[0], NamedSharding(mesh, PartitionSpec("seeds"))))
    updates = cell.N * cell.H * cell.seeds
    return [Contender(lambda n, s=s: loop(n, s).block_until_ready(), updates) for s in seeds]


def _cpp(cell: Cell, p: Any, threads: int) -> list[Contender]:
    from native import native_loop

    loop = native_loop(p, STEP_SIZE, cell.H, threads)
    return [Contender(lambda n: loop(n, range(cell.seeds)), cell.N * cell.H * cell.seeds)]


def prepare(cell: Cell, who: str, seconds: float, threads: int) -> Ready:
    """Build, compile, warm up, and find out how much work takes about `seconds`."""
    if who != FEDLSA and (cell.sampling, cell.dtype, cell.observations) != ("iid", "float64", "rank-one"):
        raise ValueError(f"{who} does not run {cell}")
    p = problem(cell.N, cell.d, cell.states, cell.observations)
    if who == FEDLSA:
        contenders = _fedlsa(cell, p, threads)
    elif who == NUMPY:
        contenders = _numpy(cell, p)
    elif who == CPP:
        contenders = _cpp(cell, p, threads)
    else:
        contenders = _jax(cell, p, "alias" if who == JAX_ALIAS else "cumulative")
    return min((_calibrated(c, seconds) for c in contenders), key=lambda ready: ready.pace)


def _calibrated(contender: Contender, seconds: float) -> Ready:
    units, first = 1, _seconds(contender.run, 1)
    taken = min(_seconds(contender.run, 1) for _ in range(2))
    compile_time = max(0.0, first - taken)
    if contender.setup is not None:
        contender.setup()
        seconds = max(seconds, min(_seconds(contender.setup) for _ in range(2)) / SETUP_SHARE)
    while taken < seconds / 4:
        units *= int(min(16, max(2, 0.5 * seconds / max(taken, 1e-6))))
        taken = min(_seconds(contender.run, units) for _ in range(2))  # one alone may have been held up
    pace = taken / units
    return Ready(contender, max(1, round(seconds / pace)), compile_time, pace)


def main(cores: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever libraries print goes to standard error
    own = {int(c) for c in cores.split(",")}
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, own)
    ready: dict[int, Ready] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: dict[str, Any] = {}
            if request["do"] == "prepare":
                made = prepare(Cell(**request["cell"]), request["who"], request["seconds"], len(own))
                ready[request["id"]] = made
                answer = {"updates": made.units * made.contender.updates, "compile": made.compile}
            elif request["do"] == "time":
                answer = {"seconds": ready[request["id"]].time()}
            else:
                ready.clear()
                if "jax" in sys.modules:
                    sys.modules["jax"].clear_caches()
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

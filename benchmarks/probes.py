"""What a whole process costs: memory of many agents, and the time from start to first result. Run in fresh processes.

python probes.py memory 100000     ->  {"MB": ..., "resettable": ...}
python probes.py start             ->  {"import": ..., "first call": ..., "another": ...}
python probes.py fit               ->  {"import": ..., "first call": ...}
python probes.py jax               ->  {"import": ..., "first call": ...}
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()


def _run(*arguments: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(HERE), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{HERE.name} {' '.join(arguments)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def memory(agents: int) -> dict[str, Any]:
    """Megabytes that agents over two tables need at their peak, above a warmed-up process."""
    return {"agents": agents, **_run("memory", str(agents))}


def starts(with_jax: bool) -> dict[str, Any]:
    """Seconds of import and of first small calls: with an empty cache on disk, and again in a second process."""
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as another:
        found = {name: _run("start", NUMBA_CACHE_DIR=cache) for name in ("first", "second")}
        found["fit"] = _run("fit", NUMBA_CACHE_DIR=another)
    return found | {"jax": _run("jax", JAX_PLATFORMS="cpu")} if with_jax else found


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return float(line.split()[1]) / 1024
    raise KeyError(field)


def _memory(agents: int) -> dict[str, Any]:
    import fedlsa as fl

    def work(n: int) -> None:
        p = fl.problems.garnet(agents=n, perturbation=0, preset="paper")
        fl.simulate(p, fl.SCAFFLSA(step_size=0.1, local_steps=10), rounds=5, seeds=1)

    work(100)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
        before = _status("VmRSS")
        work(agents)
        return {"MB": _status("VmHWM") - before, "resettable": True}
    except OSError:  # not Linux, or not allowed: growth of the peak, which is less exact
        unit = 2**20 if sys.platform == "darwin" else 1024
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
        work(agents)
        return {"MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit - before, "resettable": False}


def _timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _start() -> dict[str, Any]:
    begin = time.perf_counter()
    import fedlsa as fl

    imported = time.perf_counter() - begin

    def simulate(features: int = 8, **how: Any) -> None:
        p = fl.problems.garnet(agents=10, features=features)
        fl.simulate(p, fl.SCAFFLSA(step_size=0.1, local_steps=10), rounds=5, seeds=2, **how)

    first = _timed(simulate)
    others: tuple[dict[str, Any], ...] = ({"features": 12}, {"dtype": "float32"}, {"sampling": fl.Markov()})
    another = max(_timed(lambda how=how: simulate(**how)) for how in others)
    return {"import": imported, "first call": first, "another": another}


def _fit() -> dict[str, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    columns = [{f"x{i}": x for i, x in enumerate(X)} for X in rng.normal(size=(2, 8, 200))]
    sites = [{**X, "y": sum(X.values()) + rng.normal(size=200)} for X in columns]
    begin = time.perf_counter()
    import fedlsa as fl

    imported = time.perf_counter() - begin
    return {"import": imported, "first call": _timed(lambda: fl.fit(sites, fl.Regression("y")))}


def _jax() -> dict[str, Any]:
    import fedlsa as fl

    p = fl.problems.garnet(agents=10)
    begin = time.perf_counter()
    import jax

    imported = time.perf_counter() - begin
    from baselines import jax_loop

    jax.config.update("jax_enable_x64", True)
    return {
        "import": imported,
        "first call": _timed(lambda: jax_loop(p, 0.1, 10)(5, jax.numpy.arange(2)).block_until_ready()),
    }


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    print(json.dumps({"memory": _memory, "start": _start, "fit": _fit, "jax": _jax}[what](*map(int, rest))))

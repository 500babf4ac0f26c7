"""What a whole process costs: memory of many agents, and the time from start to first result. Run in fresh processes.

python probes.py memory 100000     ->  {"MB": ..., "resettable": ...}
python probes.py start             ->  {"import": ..., "first call": ...}
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
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


def starts() -> dict[str, Any]:
    """Seconds of import and of a first small call: with an empty cache on disk, and again in a second process."""
    with tempfile.TemporaryDirectory() as cache:
        return {name: _run("start", NUMBA_CACHE_DIR=cache) for name in ("first", "second")}


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


def _start() -> dict[str, Any]:
    begin = time.perf_counter()
    import fedlsa as fl

    imported = time.perf_counter()
    p = fl.problems.garnet(agents=10)
    fl.simulate(p, fl.SCAFFLSA(step_size=0.1, local_steps=10), rounds=5, seeds=2)
    return {"import": imported - begin, "first call": time.perf_counter() - imported}


if __name__ == "__main__":
    print(json.dumps(_memory(int(sys.argv[2])) if sys.argv[1] == "memory" else _start()))

"""Processor time of exact theory, beside that of another version of fedlsa.

    python benchmarks/theory_times.py                       this checkout alone; some minutes on two cores
    python benchmarks/theory_times.py --before PATH         beside another checkout, in turns
    python benchmarks/theory_times.py --only "plan" --limit 60 --json times.json

Every row runs in a process of its own, and counts the processor time of all its threads and children, not the time on
the clock: other work on the machine changes little in it. A call that takes less than a second is repeated, and the
median of what follows the first counts: compilation is apart, but for the row about it. What a version refuses is shown
as such.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EPSILON = 0.1  # of plans
REPEATS, QUICK = 5, 1.0  # calls of a row, and seconds up to which it is repeated
ROUNDS_ONE_BY_ONE = 4, 24
Row = Callable[[Any], Any]  # of the package


def curve(rounds: int, method: str, *how: float) -> Row:
    return lambda fl: fl.theory.exact(garnet(fl, preset="authors"), getattr(fl, method)(*how), rounds)


def limit(method: str, *how: float) -> Row:
    return lambda fl: fl.theory.stationary(garnet(fl, 1000, seed=1), getattr(fl, method)(*how)).mse


def stability(preset: str, method: str, *how: float) -> Row:
    return lambda fl: fl.theory.stability_limit(garnet(fl, preset=preset), getattr(fl, method)(*how))


def plan(method: str, agents: int) -> Row:
    return lambda fl: fl.plan(garnet(fl, agents), EPSILON, method=method)


def growth(fl: Any) -> float:
    """Of the processor time of a round, where rounds are so few that they are computed one by one."""
    cost, a, (few, many) = {}, fl.SCAFFLSA(0.1, 10), ROUNDS_ONE_BY_ONE
    for agents in (100, 1000):
        problem = garnet(fl, agents)
        times = [seconds(lambda p=problem, n=n: fl.theory.exact(p, a, n, record=[n])) for n in (few, few, many)]
        cost[agents] = (times[2] - times[1]) / (many - few)
    return cost[1000] / cost[100]


def garnet(fl: Any, agents: int = 100, **how: Any) -> Any:
    return fl.problems.garnet(agents=agents, **how)  # a new one each time: its moments are part of the work


FIRST, GROWTH = "first `exact` in a fresh process, nothing cached", "a SCAFFLSA round, N = 1000 over N = 100"
ROWS: dict[str, Row] = {
    "Scaffnew curve, N = 100, p = 0.1, 5,000 rounds": curve(5_000, "Scaffnew", 0.1, 0.1),
    "SCAFFLSA curve, N = 100, H = 1000, 500 rounds": curve(500, "SCAFFLSA", 0.1, 1000),
    "SCAFFLSA curve, N = 100, H = 10, 50,000 rounds": curve(50_000, "SCAFFLSA", 0.1, 10),
    "FedLSA curve, N = 100, H = 1000, 500 rounds": curve(500, "FedLSA", 0.1, 1000),
    "SCAFFLSA limit, N = 1000, H = 10": limit("SCAFFLSA", 0.1, 10),
    "SCAFFLSA limit, N = 1000, H = 1000": limit("SCAFFLSA", 0.1, 1000),
    "Scaffnew limit, N = 1000, p = 0.1": limit("Scaffnew", 0.1, 0.1),
    **{
        f"{method} stability limit, N = 100, {name} Garnet": stability(preset, method, 0.1, how)
        for preset, name in (("authors", "authors'"), ("paper", "default"))
        for method, how in (("SCAFFLSA", 20), ("Scaffnew", 0.05))
    },
    **{f"plan, {method}, N = {n}": plan(method, n) for n in (10, 100) for method in ("fedlsa", "scafflsa", "scaffnew")},
    FIRST: curve(500, "SCAFFLSA", 0.1, 10),
    GROWTH: growth,
}


def seconds(call: Callable[[], object]) -> float:
    """Processor time of a call, of all threads and of children that have ended."""

    def now() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    begin = now()
    call()
    return now() - begin


def measure(name: str) -> dict[str, Any]:
    """One row in this process: its numbers, or the error that refuses it."""
    import fedlsa as fl

    row = ROWS[name]
    try:
        if name == GROWTH:
            return {"times": [row(fl)]}
        times = [seconds(lambda: row(fl))]
        while name != FIRST and times[-1] < QUICK and len(times) < REPEATS:
            times.append(seconds(lambda: row(fl)))
    except fl.errors.FedLSAError as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    return {"times": times[1:] or times}


def run(name: str, checkout: Path, limit: float) -> dict[str, Any]:
    """The same in a process of its own, with the package of a checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), "--row", name]
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        if name == FIRST:
            environment["NUMBA_CACHE_DIR"] = empty
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=limit, check=False, cwd=empty
            )
        except subprocess.TimeoutExpired:
            return {"late": limit}
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"code {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def text(name: str, found: dict[str, Any] | None) -> str:
    """What a row of the table says of one version."""
    if found is None:
        return ""
    if "times" in found:
        value = statistics.median(found["times"])
        return f"{value:.0f} times" if name == GROWTH else f"{1e3 * value:.0f} ms" if value < 1 else f"{value:.3g} s"
    return f"over {found['late']:.0f} s on the clock" if "late" in found else found.get("refused") or found["failed"]


def table(names: list[str], before: Path | None, limit: float) -> tuple[str, dict[str, Any]]:
    """The rows in Markdown, and all that was measured."""
    versions = {"before": before, "now": ROOT} if before else {"now": ROOT}
    lines = ["| processor time, d = 8 | " + " | ".join(versions) + " |", "| --- |" + " ---: |" * len(versions)]
    measured: dict[str, Any] = {}
    for name in names:
        measured[name] = {version: run(name, path, limit) for version, path in versions.items()}
        lines.append(f"| {name} | " + " | ".join(text(name, found) for found in measured[name].values()) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines), measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="another checkout, measured in turns with this one")
    parser.add_argument("--only", default="", help="rows whose names contain this text")
    parser.add_argument("--limit", type=float, default=600, help="seconds on the clock for one row of one version")
    parser.add_argument("--json", type=Path, help="a file for all that was measured")
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.row:
        print(json.dumps(measure(chosen.row)))
        return
    names = [name for name in ROWS if chosen.only in name]
    lines, measured = table(names, chosen.before and chosen.before.resolve(), chosen.limit)
    print(lines)
    if chosen.json:
        chosen.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

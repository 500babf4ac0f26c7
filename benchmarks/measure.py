"""Timing in turns: a worker process per set of cores, repeats interleaved: all contenders see the same machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cells import FEDLSA, Cell, Entry, Plan

WORKER = Path(__file__).resolve().with_name("worker.py")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Record:
    """Nanoseconds per agent update of an entry, one number per repeat, and the seconds its compilation took."""

    entry: Entry
    ns: tuple[float, ...]
    updates: int
    compile: float

    @property
    def best(self) -> float:
        return min(self.ns)

    @property
    def spread(self) -> float:
        """How far the median repeat is above the best, as a fraction."""
        return sorted(self.ns)[len(self.ns) // 2] / self.best - 1

    def as_json(self) -> dict[str, Any]:
        return {
            "cell": asdict(self.entry.cell),
            "who": self.entry.who,
            "cores": self.entry.cores,
            "ns": list(self.ns),
            "updates": self.updates,
            "compile": self.compile,
        }

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Record:
        entry = Entry(Cell(**row["cell"]), row["who"], row["cores"])
        return cls(entry, tuple(row["ns"]), row["updates"], row["compile"])


@dataclass(frozen=True)
class Measured:
    """All that one run of the benchmark found out."""

    plan: Plan
    machine: dict[str, Any]
    records: Sequence[Record]
    memory: dict[str, Any] | None
    starts: dict[str, Any] | None

    def record(self, cell: Cell, who: str = FEDLSA, cores: str = "one") -> Record | None:
        wanted = Entry(cell, who, cores)
        return next((r for r in self.records if r.entry == wanted), None)

    def best(self, cell: Cell, who: str = FEDLSA, cores: str = "one", scale: float = 1.0) -> float | None:
        """The best repeat in nanoseconds per update, times `scale`; None if it was not run."""
        found = self.record(cell, who, cores)
        return None if found is None else found.best * scale

    @property
    def name(self) -> str:
        """The processor in a few words, for the head of a column."""
        kind = re.sub(r"\(R\)|\(TM\)|Processor|CPU", "", self.machine["processor"])
        return f"{' '.join(kind.split())}, {self.machine['vectors']}"

    @property
    def two(self) -> str:
        """The set of cores that is two threads."""
        return "all" if self.machine["cores"] == 2 else "two"

    @property
    def all_cores(self) -> str:
        n = self.machine["cores"]
        return {1: "no more cores", 2: "both cores"}.get(n, f"all {n} cores")


def core_sets() -> dict[str, list[int]]:
    """The cores behind "one", "two" and "all"; "two" only where it is not all, and where there are as many."""
    free = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    sets = {"one": free[-1:]}  # the first core is the one that interrupts like
    if len(free) > 2:
        sets["two"] = free[-2:]
    if len(free) > 1:
        sets["all"] = free
    return sets


class Worker:
    """A worker process and its line of requests."""

    def __init__(self, cores: list[int]) -> None:
        n = str(len(cores))
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), n)
        flags = [f"--xla_force_host_platform_device_count={n}"]
        if len(cores) == 1:
            flags.append("--xla_cpu_multi_thread_eigen=false")
        environment = {**os.environ, **threads, "XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, str(WORKER), ",".join(map(str, cores))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"the worker ended with code {self.process.wait()}"}
        if "error" in answer:
            raise RuntimeError(f"a worker failed at {request}:\n{answer['error']}")
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            self.process.kill()
        self.process.communicate()  # closes its input, which ends it


@contextmanager
def workers(plan: Plan) -> Iterator[dict[str, Worker]]:
    """One worker for each set of cores that the plan asks for and the machine has."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(Worker(cores)) for name, cores in core_sets().items() if name in plan.cores}


def time_in_turns(group: list[Entry], team: dict[str, Worker], seconds: float, repeats: int) -> list[Record]:
    """Prepare all entries of a group, then time them in turns, `repeats` times each."""
    prepared = [
        team[e.cores].ask(do="prepare", id=i, cell=asdict(e.cell), who=e.who, seconds=seconds)
        for i, e in enumerate(group)
    ]
    taken: list[list[float]] = [[] for _ in group]
    for _ in range(repeats):
        for i, e in enumerate(group):
            taken[i].append(team[e.cores].ask(do="time", id=i)["seconds"])
    for worker in team.values():
        worker.ask(do="drop")
    return [
        Record(e, tuple(s / p["updates"] * 1e9 for s in t), p["updates"], p["compile"])
        for e, p, t in zip(group, prepared, taken, strict=True)
    ]


def measure(plan: Plan, say: Say) -> list[Record]:
    """All timings of a plan; `say` hears how far it is."""
    out: list[Record] = []
    begin = time.monotonic()
    with workers(plan) as team:
        groups = [[e for e in group if e.cores in team] for group in plan.groups()]
        for i, group in enumerate(groups):
            say(f"[{i + 1}/{len(groups)}, {time.monotonic() - begin:.0f} s] {group[0].cell}")
            repeats = plan.headline_repeats if i == 0 else plan.repeats
            out += time_in_turns(group, team, plan.seconds, repeats)
    return out

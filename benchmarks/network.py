"""Milliseconds per round of a real network on loopback, with secure and with plain aggregation side by side.

    python benchmarks/network.py                 4 and 100 sites, a process each; some minutes on two cores
    python benchmarks/network.py --quick         3 and 5 sites, few rounds, to see that all of it works
    python benchmarks/network.py --write         also keep the numbers as benchmarks/measured/network.json

A round is what the coordinator's events say: orders signed and sent, local steps, masks, ledger and state on every
site's disk, answers signed and verified, the average, the state on the coordinator's disk. It goes over TLS with the
carrier of `fedlsa network serve`. Runs with secure and with plain aggregation take turns on the same processes.
`in memory` is our own part in processor time, without carrier: the same run loop, signatures, masks and sites, in one
process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import documents
import machine

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "network"))

from deployment import Deployment, deployed  # noqa: E402  # the processes are those of the tests

from fedlsa.network.carriers import SignedSite, SignedTransport  # noqa: E402
from fedlsa.network.coordinator.run_loop import complete_run  # noqa: E402
from fedlsa.network.coordinator.runs import RunFolder  # noqa: E402
from fedlsa.network.site.orders import OrderHandler  # noqa: E402
from fedlsa.network.site.site_data import open_data  # noqa: E402

KEPT = ROOT / "benchmarks" / "measured" / "network.json"
ALLOWED = "least_sites = 1"  # a site that lets the coordinator see its own answers, so that both can be measured
FIRST = 3  # rounds that are left out: the first loads compiled code
AGGREGATIONS = ("secure", "plain")


@dataclass(frozen=True)
class RoundTimes:
    """Milliseconds of a round; load : of the machine, which should be that of the rounds alone."""

    sites: int
    aggregation: str
    median: float
    best: float
    slow: float  # nine of ten rounds are faster
    rounds: int
    load: float


def times(run: RunFolder) -> list[float]:
    """Milliseconds from a round's end to the next, which leaves nothing out."""
    ends = [event["time"] for _, event in run.events() if event["event"] == "round" and event["averaged"]]
    return [1000 * (after - before) for before, after in pairwise(ends[FIRST:])]


def summary(sites: int, aggregation: str, found: list[float]) -> RoundTimes:
    ordered = sorted(found)
    return RoundTimes(
        sites,
        aggregation,
        round(statistics.median(ordered), 2),
        round(ordered[0], 2),
        round(ordered[int(0.9 * (len(ordered) - 1))], 2),
        len(ordered),
        round(os.getloadavg()[0], 2),
    )


def over_loopback(sites: int, rounds: int, turns: int) -> list[RoundTimes]:
    """Rounds of real processes; the two aggregations take turns."""
    found: dict[str, list[float]] = {kind: [] for kind in AGGREGATIONS}
    with tempfile.TemporaryDirectory() as folder, deployed(Path(folder), sites, policy=ALLOWED) as it:
        for turn in range(turns):
            for kind in AGGREGATIONS:
                name = f"{kind}-{turn}"
                it.run(name, rounds=rounds, aggregation=kind)
                found[kind] += times(RunFolder(it.network.runs / name))
    return [summary(sites, kind, found[kind]) for kind in AGGREGATIONS]


class Memory:
    """A carrier within this process. asked : processor seconds at each question; answers : those of each answer."""

    def __init__(self, sites: Mapping[str, SignedSite]) -> None:
        self.sites = sites
        self.asked: list[float] = []
        self.answers: list[list[float]] = []

    def present(self) -> tuple[str, ...]:
        return tuple(sorted(self.sites))

    def ask(self, orders: Mapping[str, bytes], deadline: float) -> Iterator[tuple[str, bytes]]:
        self.asked.append(time.process_time())
        self.answers.append([])
        for site, order in orders.items():
            began = time.process_time()
            answer = self.sites[site](order)
            self.answers[-1].append(time.process_time() - began)
            yield site, answer


def in_memory(sites: int, rounds: int) -> list[dict[str, Any]]:
    """Our own part of a round: processor milliseconds of the coordinator, and of one site."""
    out = []
    for kind in AGGREGATIONS:
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
            os.environ["XDG_STATE_HOME"] = str(Path(folder) / "state")
            it = Deployment(Path(folder), sites, policy=ALLOWED)
            it.spare.end()
            handlers = {
                name: OrderHandler(at, open_data(Path(folder) / f"{name}.csv", None, at.task), say=lambda line: None)
                for name, at in it.folders.items()
            }
            carrier = Memory({name: SignedSite(at, handlers[name].respond) for name, at in it.folders.items()})
            complete_run(
                it.network, it.begin(kind, rounds=rounds, aggregation=kind), SignedTransport(carrier, it.network)
            )
        whole = [after - before for before, after in pairwise(carrier.asked)][-rounds:-1]  # without what is asked first
        spent = carrier.answers[-rounds - 1 : -2]
        site = 1000 * statistics.median(seconds for answers in spent for seconds in answers)
        own = 1000 * statistics.median(w - sum(answers) for w, answers in zip(whole, spent, strict=True))
        out.append({"sites": sites, "aggregation": kind, "site": round(site, 3), "coordinator": round(own, 3)})
    return out


def table(rounds: list[RoundTimes], memory: list[dict[str, Any]]) -> str:
    lines = ["| sites | aggregation | round, ms | best | nine of ten below | in memory: a site | the coordinator |"]
    lines.append("|---|---|---|---|---|---|---|")
    own = {(row["sites"], row["aggregation"]): row for row in memory}
    for row in rounds:
        part = own[row.sites, row.aggregation]
        lines.append(
            f"| {row.sites} | {row.aggregation} | {row.median:.1f} | {row.best:.1f} | {row.slow:.1f} "
            f"| {part['site']:.2f} | {part['coordinator']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sites and rounds, to see that all of it works")
    parser.add_argument("--sites", type=int, help="only this number of sites")
    parser.add_argument("--write", action="store_true", help=f"keep the numbers in {KEPT.relative_to(ROOT)}")
    chosen = parser.parse_args()
    if chosen.write and chosen.quick:
        parser.error("--write takes the numbers of a full run; a quick one's mean nothing")
    plan = [(3, 8, 1), (5, 8, 1)] if chosen.quick else [(4, 40, 3), (100, 12, 1)]
    plan = [step for step in plan if chosen.sites in (None, step[0])]
    here, rounds, memory = machine.describe(), [], []
    for sites, count, turns in plan:
        memory += in_memory(sites, count)
        rounds += over_loopback(sites, count, turns)
        print(table(rounds[-2:], memory[-2:]), flush=True)
    print(table(rounds, memory))
    print(machine.sentence(here))
    if chosen.write:
        kept = {"machine": here, "rounds": [asdict(row) for row in rounds], "in memory": memory}
        documents.write(KEPT, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()

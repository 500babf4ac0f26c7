"""Nanoseconds per agent update, beside what a user would pick instead; run it with `make bench`.

    python benchmarks/speed.py                 all tables, some minutes on two cores; raw numbers in out/bench.json
    python benchmarks/speed.py --quick         the same path through the code in under a minute; its numbers mean little
    python benchmarks/speed.py --write         also rewrite the tables in docs/performance.md
    python benchmarks/speed.py --from out/bench.json --write     rewrite them from an earlier run
    ... --page docs/performance-avx512.md      rewrite the tables of that page instead: another processor's

Every row's contenders run in one process per set of cores and take turns; the best of several repeats counts. Times are
those of whole public calls, long enough for set-up to be at most a twentieth of them; compilation is reported apart.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import documents
import machine
import probes
import report
from cells import FULL, NUMPY, QUICK, Plan
from measure import Record, Say, measure

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/performance.md"
BUSY = 0.5  # a load above this spoils a measurement


def without_missing(plan: Plan) -> Plan:
    """The plan with those baselines that are installed."""
    if importlib.util.find_spec("jax") is not None:
        return plan
    print("JAX is not installed, so its rows are left out; pip install 'fedlsa[bench]' brings it", file=sys.stderr)
    return replace(plan, baselines=(NUMPY,))


def run(plan: Plan, say: Say) -> report.Measured:
    """Everything the plan asks for."""
    here = machine.describe()
    if here["load"] > BUSY:
        say(f"something else is running here (load {here['load']}): these times will be too long")
    records = measure(plan, say)
    say("memory of many agents")
    memory = probes.memory(plan.memory_agents)
    say("first and second start")
    return report.Measured(plan, here, records, memory, probes.starts() if plan.starts else None)


def save(m: report.Measured, path: Path) -> None:
    raw = {
        "quick": m.plan.quick,
        "machine": m.machine,
        "records": [r.as_json() for r in m.records],
        "memory": m.memory,
        "starts": m.starts,
    }
    documents.write(path, json.dumps(raw, indent=1) + "\n")


def load(path: Path) -> report.Measured:
    raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    records = [Record.from_json(row) for row in raw["records"]]
    return report.Measured(QUICK if raw["quick"] else FULL, raw["machine"], records, raw["memory"], raw["starts"])


def update_page(blocks: dict[str, str], page: str = PAGE, root: Path = ROOT) -> None:
    """Every table of the page or none: markers are checked before the file changes."""
    text = (root / page).read_text(encoding="utf-8")
    documents.write(root / page, documents.rewrite(text, blocks, page))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="everything (the default)")
    size.add_argument("--quick", action="store_true", help="tiny sizes, to see that all of it works")
    size.add_argument("--from", dest="source", type=Path, metavar="FILE", help="the tables of an earlier run")
    parser.add_argument("--write", action="store_true", help="rewrite the tables of the page")
    parser.add_argument("--page", metavar="FILE", default=PAGE, help=f"the page to rewrite (default: {PAGE})")
    parser.add_argument("--out", type=Path, help="raw numbers (default: out/bench.json, out/bench-quick.json)")
    options = parser.parse_args(arguments)
    if options.write:
        if options.quick:
            parser.error("--write takes the numbers of a full run; a quick one's mean nothing")
        try:
            text = (ROOT / options.page).read_text(encoding="utf-8")
            documents.check(text, report.BLOCKS, options.page)  # before the first minute, not after the last
        except (OSError, documents.MarkerError) as error:
            parser.error(str(error))
    if options.source:
        measured = load(options.source)
        if options.write and measured.plan.quick:
            parser.error(f"--write takes the numbers of a full run; {options.source} is a quick one's")
    else:
        plan = without_missing(QUICK if options.quick else FULL)
        measured = run(plan, lambda text: print(text, file=sys.stderr, flush=True))
        save(measured, options.out or ROOT / "out" / ("bench-quick.json" if options.quick else "bench.json"))
    blocks = report.blocks(measured)
    for name, text in blocks.items():
        print(f"\n## {name}\n\n{text}")
    if options.write:
        update_page(blocks, options.page)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)

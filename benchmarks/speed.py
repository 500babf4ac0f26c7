"""Nanoseconds per agent update, beside what a user would pick instead; run it with `make bench`.

    python benchmarks/speed.py                 all tables, some minutes on two cores; raw numbers in out/bench-full.json
    python benchmarks/speed.py --page          what measured/README.md shows, in under four minutes on two cores
    python benchmarks/speed.py --quick         the same path through the code in under a minute; its numbers mean little
    python benchmarks/speed.py --write NAME    also keep the numbers as benchmarks/measured/NAME.json, a processor each,
                                               and rewrite the tables of measured/README.md from all files there
    python benchmarks/speed.py --from out/bench-full.json --write NAME     the same from an earlier run

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
import native
import probes
import report
from cells import CPP, JAX, JAX_ALIAS, PLANS, Plan
from measure import Measured, Record, Say, measure

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "benchmarks" / "measured"
BUSY = 0.5  # a load above this spoils a measurement


def without_missing(plan: Plan) -> Plan:
    """The plan with those baselines that are installed."""
    missing: set[str] = set()
    if importlib.util.find_spec("jax") is None:
        missing |= {JAX, JAX_ALIAS}
        print("JAX is not installed, so its rows are left out; pip install 'fedlsa[bench]' brings it", file=sys.stderr)
    if native.compiler() is None:
        missing.add(CPP)
        print(f"no C++ compiler here ({', '.join(native.COMPILERS)}), so its rows are left out", file=sys.stderr)
    return replace(plan, baselines=tuple(who for who in plan.baselines if who not in missing))


def run(plan: Plan, say: Say) -> Measured:
    """Everything the plan asks for."""
    here = machine.describe()
    if here["load"] > BUSY:
        say(f"something else is running here (load {here['load']}): these times will be too long")
    records = measure(plan, say)
    say("memory of many agents")
    memory = probes.memory(plan.memory_agents)
    say("first starts")
    starts = probes.starts(JAX in plan.baselines) if plan.starts else None
    return Measured(plan, here, records, memory, starts)


def save(m: Measured, path: Path) -> None:
    raw = {
        "plan": m.plan.name,
        "machine": m.machine,
        "records": [r.as_json() for r in m.records],
        "memory": m.memory,
        "starts": m.starts,
    }
    rows = ",\n".join(json.dumps(row) for row in raw.pop("records"))
    head = json.dumps(raw)
    documents.write(path, f'{head[:-1]}, "records": [\n{rows}\n]}}\n')


def load(path: Path) -> Measured:
    raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    records = [Record.from_json(row) for row in raw["records"]]
    return Measured(PLANS[raw["plan"]], raw["machine"], records, raw["memory"], raw["starts"])


def kept(folder: Path = MEASURED) -> list[Measured]:
    """The runs of all processors, by the names of their files."""
    return [load(path) for path in sorted(folder.glob("*.json")) if path.stem != "network"]  # that one is network.py's


def update_page(measured: Measured, name: str, folder: Path = MEASURED, page: Path = documents.PAGE) -> None:
    """Keep a run as that of a processor, and rewrite the page's tables from all processors' runs."""
    documents.check(page.read_text(encoding="utf-8"))
    save(measured, folder / f"{name}.json")
    documents.update(report.page_blocks(kept(folder)), page)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    plan = {"dest": "plan", "action": "store_const", "default": "full"}
    size.add_argument("--full", const="full", help="everything (the default)", **plan)
    size.add_argument("--page", const="page", help="what measured/README.md shows, in under four minutes", **plan)
    size.add_argument("--quick", const="quick", help="tiny sizes, to see that all of it works", **plan)
    size.add_argument("--from", dest="source", type=Path, metavar="FILE", help="the tables of an earlier run")
    parser.add_argument("--write", metavar="NAME", help="keep the numbers under this name and rewrite the page")
    parser.add_argument("--out", type=Path, help="raw numbers (default: out/bench-PLAN.json)")
    options = parser.parse_args(arguments)
    if options.write:
        if options.plan == "quick":
            parser.error("--write takes the numbers of a full run; a quick one's mean nothing")
        try:
            documents.check(documents.PAGE.read_text(encoding="utf-8"))  # before the first minute, not after the last
        except (OSError, documents.MarkerError) as error:
            parser.error(str(error))
    if options.source:
        measured = load(options.source)
        if options.write and measured.plan.name == "quick":
            parser.error(f"--write takes the numbers of a full run; {options.source} is a quick one's")
    else:
        plan = without_missing(PLANS[options.plan])
        measured = run(plan, lambda text: print(text, file=sys.stderr, flush=True))
        save(measured, options.out or ROOT / "out" / f"bench-{options.plan}.json")
    for name, text in report.screen_blocks(measured).items():
        print(f"\n## {name}\n\n{text}")
    if options.write:
        update_page(measured, options.write)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)

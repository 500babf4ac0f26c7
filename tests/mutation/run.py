"""Break one line of the package at a time and see that the named tests notice: `make mutate`.

    python tests/mutation/run.py [--jobs 16] [--only PATTERN]

Each change of mutations.txt is made in a copy of the package, never in itself; then the tests that the entry
names must fail. Before that they must pass on the unchanged copy. What the tests of this machine cannot say, because a
library is missing, is listed as such. The exit code is 0 only if every change was noticed.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600  # for the tests of one entry; a change that makes them hang is noticed too
PASSED, FAILED, BROKEN_BY_THE_CHANGE = 0, 1, 2  # exit codes of pytest; the last: a module could not be imported


class Outcome(NamedTuple):
    kind: str  # noticed, survived, cannot run, wrong
    note: str = ""


class Slot:
    """A copy of the package with a cache of its own, for one entry at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder, folder / "cache"
        for part in ("src", "integrations"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))

    def test(self, tests: str, cache: Path | None = None) -> tuple[int, str]:
        """The exit code of pytest on the copy, and the end of what it printed."""
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, self.folder.glob("**/src"))),
            "NUMBA_CACHE_DIR": str(cache or self.cache),
        }
        env |= {"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        env["PYTHONDONTWRITEBYTECODE"] = "1"  # its stamps are seconds, within which an entry may come and go
        if tests.startswith("tests/gpu"):
            env["NUMBA_ENABLE_CUDASIM"] = "1"
        command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-x", "-q", "-p", "no:cacheprovider"]
        try:
            done = subprocess.run(
                [*command, *tests.split(" ")], cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return FAILED, f"not at an end after {SECONDS} s"
        return done.returncode, done.stdout[-20000:] + done.stderr[-1000:]

    def test_changed(self, mutation: Mutation) -> tuple[int, str]:
        """The same with the change made; compiled code of a changed engine has a cache of its own."""
        path = self.folder / "src" / "fedlsa" / mutation.file
        whole, before = path.read_text(encoding="utf-8"), path.stat()
        compiled = "numba" in whole and "cuda" not in mutation.file  # what the simulator runs is not compiled
        path.write_text(changed(whole, mutation), encoding="utf-8")
        try:
            with tempfile.TemporaryDirectory(dir=self.folder) as fresh:
                return self.test(mutation.tests, Path(fresh) if compiled else None)
        finally:
            path.write_text(whole, encoding="utf-8")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def changed(text: str, mutation: Mutation) -> str:
    """The text of a file with the change made, which must be possible in exactly one place."""
    found = text.count(mutation.old)
    if found != 1:
        raise ValueError(f"{mutation.file} must hold {mutation.old!r} once; it does {found} times")
    return text.replace(mutation.old, mutation.new)


def check_unchanged(slot: Slot, tests: str) -> Outcome:
    """Whether tests can run on this machine and pass on the unchanged package."""
    code, said = slot.test(tests)
    if code == PASSED and re.search(r"\d+ passed", said):
        return Outcome("passed")
    if code == PASSED:
        return Outcome("cannot run", "its tests are skipped here")
    missing = re.search(r"No module named '([\w.]+)'", said)
    if missing and not missing[1].startswith("fedlsa"):
        return Outcome("cannot run", f"needs {missing[1]}")
    return Outcome("wrong", f"its tests do not pass on the unchanged package:\n{said}")


def check_changed(slot: Slot, mutation: Mutation) -> Outcome:
    """Whether the tests of an entry notice its change."""
    try:
        code, said = slot.test_changed(mutation)
    except (ValueError, OSError) as error:  # it does not fit any more
        return Outcome("wrong", str(error))
    if code == PASSED:
        return Outcome("survived")
    if code in (FAILED, BROKEN_BY_THE_CHANGE) or code < 0:
        return Outcome("noticed", next((x[1:].strip() for x in said.splitlines() if x.startswith("E  ")), said[-80:]))
    return Outcome("wrong", said)


def run(mutations: list[Mutation], jobs: int) -> dict[Mutation, Outcome]:
    """The outcome of every entry."""
    outcomes: dict[Mutation, Outcome] = {}
    with tempfile.TemporaryDirectory() as folder:
        free: queue.Queue[Slot] = queue.Queue()
        for i in range(jobs):
            free.put(Slot(Path(folder) / f"slot{i}"))

        def with_slot(function, *arguments):
            slot = free.get()
            try:
                return function(slot, *arguments)
            finally:
                free.put(slot)

        def tell(mutation: Mutation, outcome: Outcome) -> None:
            outcomes[mutation] = outcome
            print(f"[{len(outcomes)}/{len(mutations)}] {outcome.kind:10} {mutation.file}: {mutation.what}", flush=True)
            if outcome.kind == "noticed":
                print(f"    {outcome.note[:110]}", flush=True)

        def one(mutation: Mutation, unchanged: Future[Outcome]) -> None:
            known = unchanged.result()  # begun before, so that nobody waits for what cannot begin
            tell(mutation, known if known.kind != "passed" else with_slot(check_changed, mutation))

        with ThreadPoolExecutor(jobs) as pool:
            waiting: list[Future[None]] = []
            for tests in dict.fromkeys(m.tests for m in mutations):
                unchanged = pool.submit(with_slot, check_unchanged, tests)
                waiting += [pool.submit(one, m, unchanged) for m in mutations if m.tests == tests]
            for done in waiting:
                done.result()
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="entries at a time")
    parser.add_argument("--only", default="", help="entries whose file or words hold this pattern")
    asked = parser.parse_args()
    chosen = [m for m in MUTATIONS if re.search(asked.only, f"{m.file}: {m.what}")]
    began = time.monotonic()
    outcomes = run(chosen, max(1, asked.jobs))
    groups = {kind: [m for m in chosen if outcomes[m].kind == kind] for kind in ("survived", "cannot run", "wrong")}
    for kind, found in groups.items():
        for m in found:
            print(f"\n{kind}: {m.file}: {m.what}\n  {m.old!r}\n  {m.new!r}\n  {m.tests}\n  {outcomes[m].note}")
    noticed = len(chosen) - sum(map(len, groups.values()))
    said = ", ".join(f"{len(found)} {kind}" for kind, found in groups.items())
    print(f"\n{noticed} of {len(chosen)} noticed, {said}; {time.monotonic() - began:.0f} s")
    return int(noticed < len(chosen))


if __name__ == "__main__":
    sys.exit(main())

"""How long a fit on many large Parquet files takes, and where the time goes; beside LSTD with pyarrow and NumPy.

    python benchmarks/fit.py                                   100 sites of 100,000 transitions and 32 features
    python benchmarks/fit.py --sites 5 --rows 2000 --features 4    to see that all of it works

The files are made first, in a temporary folder that is removed at the end, and stand in the page cache when they are
read. The alternative reads them with pyarrow, stacks the columns with NumPy and solves (sum_c A_c) theta = sum_c b_c at
once: no plan, no error bars, and all rows at one place. Where memory allows, it is also timed on all rows in one array.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import machine
import numpy as np
from numpy.typing import NDArray

import fedlsa as fl

GAMMA = 0.95
MEMORY = 0.4  # of the machine's memory that the alternative may take
PHASES = {
    "reading": "reading, scale and systems (pass 1)",
    "solving": "systems of standardised features",
    "error bars": "reading again, error bars (pass 2)",
    "plan": "plan",
    "running": "run, and its exact error",
}
Floats = NDArray[np.float64]


@dataclass
class Clock:
    """Seconds and processor seconds by phase, from the calls of a fit's progress."""

    seconds: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    phase: str = "reading"
    begin: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.since = self.begin, time.process_time()

    def __call__(self, what: str, done: float, total: float) -> None:
        """What a fit calls; after its error bars it plans, which it does not say."""
        self.enter(what)
        if what == "error bars" and done == total:
            self.enter("plan")

    def enter(self, phase: str) -> None:
        now = time.perf_counter(), time.process_time()
        self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + now[0] - self.since[0]
        self.busy[self.phase] = self.busy.get(self.phase, 0.0) + now[1] - self.since[1]
        self.phase, self.since = phase, now


def make(folder: Path, sites: int, rows: int, features: int, dtype: str) -> list[str]:
    """A file per site: a log in which features wander about the site's own mean, and rewards are linear in them."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from scipy.signal import lfilter

    shared = np.random.default_rng(0).standard_normal(features)
    paths = []
    for c in range(sites):
        rng = np.random.default_rng([1, c])
        steps = rng.standard_normal((features, rows + 1))
        x = (lfilter([1.0], [1.0, -0.5], steps, axis=1) + 0.3 * rng.standard_normal((features, 1))) / np.sqrt(features)
        reward = (shared + 0.3 * rng.standard_normal(features)) @ x[:, :-1] + rng.standard_normal(rows)
        ended = rng.random(rows) < 0.01
        columns = {f"state{j}": x[j, :-1].astype(dtype) for j in range(features)}
        columns |= {f"next_state{j}": x[j, 1:].astype(dtype) for j in range(features)}
        columns |= {"reward": reward.astype(dtype), "terminated": ended}
        paths.append(str(folder / f"site-{c:03d}.parquet"))
        pq.write_table(pa.table(columns), paths[-1])
    return paths


def lstd(paths: Sequence[str], features: int, at_once: bool) -> Floats:
    """The alternative: the mean over files of u v^T and u r, solved; at_once stacks all rows into one array first."""
    import pyarrow.parquet as pq

    A, b, tables = np.zeros((features, features)), np.zeros(features), []
    for path in paths:
        t = pq.read_table(path)
        phi = np.column_stack([t[f"state{j}"].to_numpy() for j in range(features)]).astype(np.float64)
        after = np.column_stack([t[f"next_state{j}"].to_numpy() for j in range(features)]).astype(np.float64)
        v = phi - GAMMA * np.where(t["terminated"].to_numpy()[:, None], 0.0, after)
        r = t["reward"].to_numpy().astype(np.float64)
        if at_once:
            tables.append((phi, v, r))
        else:
            A += phi.T @ v
            b += phi.T @ r
    if at_once:
        u, v, r = (np.concatenate(part) for part in zip(*tables, strict=True))
        A, b = u.T @ v, u.T @ r
    return np.asarray(np.linalg.solve(A, b))


def decoding(paths: Sequence[str]) -> float:
    """Processor seconds that one pass spends on nothing but turning files into columns of numbers."""
    from fedlsa.fit.site_readers import open_sites

    begin = time.process_time()
    for site in open_sites(paths, fl.Value(discount=GAMMA)):
        for _ in site.pieces(site.columns):
            pass
    return time.process_time() - begin


def measure(paths: Sequence[str], features: int, size: int) -> None:
    """Fit, and print where the time went; then the alternative. size : bytes of all rows in float64."""
    clock = Clock()
    found = fl.fit(paths, fl.Value(discount=GAMMA), progress=clock)
    clock.enter("done")
    print(f"{'fedlsa':38} {'seconds':>8} {'on all cores':>13}")
    for phase, name in PHASES.items():
        if phase in clock.seconds:
            print(f"  {name:36} {clock.seconds[phase]:8.2f} {clock.busy[phase]:13.2f}")
    print(f"  {'total':36} {sum(clock.seconds.values()):8.2f} {sum(clock.busy.values()):13.2f}")
    sample = paths[: max(1, len(paths) // 10)]
    print(f"  {'(of a pass, decoding alone)':45} {decoding(sample) * len(paths) / len(sample):13.2f}")
    plan = found.plan
    print(
        f"  {type(plan.algorithm).__name__} on {found.local}, {plan.rounds} communications, epsilon {found.epsilon:.2g}"
    )
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    for at_once, name in ((False, "file by file"), (True, "all rows in one array")):
        if at_once and 4 * size > MEMORY * available:
            print(f"pyarrow and NumPy, {name:19} needs more memory than there is to spare")
            continue
        begin, busy = time.perf_counter(), time.process_time()
        theta = lstd(paths, features, at_once)
        spent = time.perf_counter() - begin, time.process_time() - busy
        print(f"pyarrow and NumPy, {name:19} {spent[0]:8.2f} {spent[1]:13.2f}")
        off = np.abs(found.theta - theta) / found.standard_error
        gap = np.abs(found.solution - theta).max() / np.abs(theta).max()
        print(
            f"  differs from the data's solution by {gap:.1e}, from the fit by {off.max():.2f} standard errors at most"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=100)
    parser.add_argument("--rows", type=int, default=100_000, help="transitions per site")
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--dtype", choices=("float64", "float32"), help="default: float64 where the disk has the room")
    parser.add_argument("--folder", help="where to make the temporary folder")
    options = parser.parse_args(argv)
    width = {"float64": 8, "float32": 4}
    numbers = options.sites * options.rows * (2 * options.features + 1)
    try:
        with tempfile.TemporaryDirectory(prefix="fedlsa-fit-", dir=options.folder) as folder:
            room = shutil.disk_usage(folder).free / 1.3
            dtype = options.dtype or ("float64" if room > 8 * numbers else "float32")
            if room < width[dtype] * numbers:
                parser.error(f"the folder must have room for {1.3 * width[dtype] * numbers / 1e9:.1f} GB")
            begin = time.perf_counter()
            paths = make(Path(folder), options.sites, options.rows, options.features, dtype)
            size = sum(os.path.getsize(path) for path in paths)
            print(
                f"{options.sites} sites x {options.rows:,} transitions x {options.features} features, {dtype}: "
                f"{size / 1e9:.2f} GB of Parquet, made in {time.perf_counter() - begin:.0f} s"
            )
            measure(paths, options.features, 8 * numbers)
    except KeyboardInterrupt:
        print("interrupted; the temporary folder is removed", file=sys.stderr)
        return 130
    where = machine.describe()
    print(f"{where['processor']}, {where['cores']} cores; commit {where['commit']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

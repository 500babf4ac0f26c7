"""How long a fit with robust errors takes: of many small sites, of one large table, of large files.

    python benchmarks/fit.py                                     all of it: minutes, and 1 GB of files
    python benchmarks/fit.py --many 20 40 --tall 2000 --sites 3 --rows 2000 --features 4   to see that all of it works

1. Many sites of 10 rows and 5 features, from one table of pandas, one CSV and one Parquet file: seconds, and how the
   time of a site grows with their number.
2. One table of 20 features with HC3, beside statsmodels; each in a process of its own, whose memory is the most that it
   ever held, the table and all libraries included.
3. Large Parquet files, one for each site, beside pyarrow and NumPy, which read each file once, stack its columns and
   add up the normal equations: no checks, no error bars, no plan. The two take turns, and the best repeat counts.
4. A small fit on rows, whose time should not depend on how many threads BLAS would start.

Files are made first, in a temporary folder that is removed at the end, and stand in the page cache when they are read.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
import numpy as np
from numpy.typing import NDArray

import fedlsa as fl

REPEATS = 5
ROWS_OF_MANY, FEATURES_OF_MANY = 10, 5
FEATURES_OF_TALL = 20
TASK = fl.Regression("y")
PHASES = {
    "reading": "reading, scale and systems",
    "error bars": "robust errors",
    "planning": "plan",
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
        """What a fit calls."""
        self.enter(what)

    def enter(self, phase: str) -> None:
        now = time.perf_counter(), time.process_time()
        self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + now[0] - self.since[0]
        self.busy[self.phase] = self.busy.get(self.phase, 0.0) + now[1] - self.since[1]
        self.phase, self.since = phase, now

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def make(folder: Path, sites: int, rows: int, features: int, dtype: str) -> list[str]:
    """A file per site: features about the site's own mean, and a target with noise that grows with the first."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    shared = np.random.default_rng(0).standard_normal(features)
    paths = []
    for c in range(sites):
        rng = np.random.default_rng([1, c])
        x = rng.standard_normal((features, rows)) + 0.3 * rng.standard_normal((features, 1))
        y = 1 + shared @ x + rng.standard_normal(rows) * (1 + x[0] ** 2)
        columns = {f"x{j}": x[j].astype(dtype) for j in range(features)} | {"y": y.astype(dtype)}
        paths.append(str(folder / f"site-{c:03d}.parquet"))
        pq.write_table(pa.table(columns), paths[-1])
    return paths


def normal_equations(paths: Sequence[str]) -> Floats:
    """The alternative: the mean over files of x x^T and y x, solved; the intercept last."""
    import pyarrow.parquet as pq

    A: Floats | float = 0.0
    b: Floats | float = 0.0
    for path in paths:
        t = pq.read_table(path)
        n = len(t)
        features = [t[name].to_numpy() for name in t.column_names if name != "y"]
        x = np.column_stack([*features, np.ones(n)]).astype(np.float64, copy=False)
        A, b = A + x.T @ x / n, b + x.T @ t["y"].to_numpy() / n
    return np.asarray(np.linalg.solve(A, b))


def passes(paths: Sequence[str]) -> float:
    """How often a fit reads each file."""
    from fedlsa.fitting.table_files import DataFile

    read, inner = list[str](), DataFile.batches

    def counted(self: DataFile, *arguments: object) -> object:
        read.append(self.name)
        return inner(self, *arguments)  # type: ignore[arg-type]

    DataFile.batches = counted  # type: ignore[assignment, method-assign]
    try:
        fl.fit(paths, TASK)
    finally:
        DataFile.batches = inner  # type: ignore[method-assign]
    return len(read) / len(paths)


def seconds(work: Callable[[], object]) -> float:
    """Of the best repeat."""
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def measure_many(folder: Path, counts: Sequence[int]) -> None:
    """Many small sites in one table and in one file."""
    import pandas as pd

    print(f"sites x {ROWS_OF_MANY} rows x {FEATURES_OF_MANY} features, HC3, no plan")
    print(f"{'':16}" + "".join(f"{f'{count:,} sites':>16}" for count in counts) + f"{'growth of a site':>20}")
    taken: dict[str, list[float]] = {}
    for count in counts:
        rng = np.random.default_rng(count)
        x = rng.standard_normal((FEATURES_OF_MANY, count * ROWS_OF_MANY))
        table = pd.DataFrame({f"x{j}": column for j, column in enumerate(x)})
        table["y"] = x.sum(axis=0) + rng.standard_normal(x.shape[1])
        table["site"] = rng.permutation(np.arange(x.shape[1]) % count)
        files = {"one CSV file": folder / f"{count}.csv", "one Parquet file": folder / f"{count}.parquet"}
        table.to_csv(files["one CSV file"], index=False)
        table.to_parquet(files["one Parquet file"], index=False)
        for name, data in {"one table": table, **files}.items():
            once = seconds(lambda data=data: fl.fit(data, TASK, site="site", plan=False))  # type: ignore[misc]
            taken.setdefault(name, []).append(once)
    for name, found in taken.items():
        growth = (found[-1] / counts[-1]) / (found[0] / counts[0])
        print(f"  {name:16}" + "".join(f"{one:14.2f} s" for one in found) + f"{growth:18.2f}x")


def measure_tall(folder: Path, rows: int) -> None:
    """One large table beside statsmodels."""
    make(folder, 1, rows, FEATURES_OF_TALL, "float64")
    print(f"one table of {rows:,} rows x {FEATURES_OF_TALL} features, HC3")
    found = {way: alone(way, str(folder)) for way in ("table", "statsmodels")}
    for way, name in (("table", "fedlsa"), ("statsmodels", "statsmodels")):
        print(f"  {name:16} {found[way][0]:8.2f} s {found[way][1] / 1e9:8.2f} GB")
    ratios = [ours / theirs for ours, theirs in zip(found["table"], found["statsmodels"], strict=True)]
    print(f"  ratio {ratios[0]:.2f} of time, {ratios[1]:.2f} of memory")


def statsmodels_fit(table: Any) -> object:
    """HC3 as statsmodels finds it."""
    import statsmodels.api as sm

    return sm.OLS(table["y"], sm.add_constant(table.drop(columns="y"))).fit(cov_type="HC3").bse


def _files(folder: str) -> list[str]:
    return sorted(map(str, Path(folder).glob("*.parquet")))


def _table(folder: str) -> Any:
    import pandas as pd

    return pd.read_parquet(_files(folder)[0])


def ways(way: str, folder: str) -> Callable[[], object]:
    """What is to be timed, with what it needs read before."""
    if way in ("table", "statsmodels"):
        table = _table(folder)
        return lambda: fl.fit([table], TASK, plan=False) if way == "table" else statsmodels_fit(table)
    paths = _files(folder)
    return lambda: fl.fit(paths, TASK) if way == "files" else normal_equations(paths)


WAYS = ("files", "numpy", "table", "statsmodels")


def alone(way: str, folder: str) -> tuple[float, float]:
    """Seconds, and the bytes that a process of its own takes at most, with all that it loads."""
    command = [sys.executable, __file__, "--alone", way, "--folder", folder]
    took, memory = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(took), float(memory)


def small_fit() -> float:
    """Processor seconds of a fit of 5 sites with 1,000 rows and 9 features, planned and run on rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 1000, 9))
    y = X @ rng.normal(size=9) + rng.normal(size=(5, 1000))
    begin = time.process_time()
    fl.fit(list(zip(X, y, strict=True)), TASK)
    return time.process_time() - begin


def with_blas_threads(count: int | None) -> float:
    """The same in a process whose BLAS would start so many threads, by default one for each core."""
    limits = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    limits |= {} if count is None else {"OPENBLAS_NUM_THREADS": str(count)}
    command = [sys.executable, __file__, "--small"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=limits).stdout.split()[-1])


def measure(paths: Sequence[str]) -> None:
    """Both ways, and where the time of a fit goes."""
    normal_equations(paths[:1])
    found = fl.fit(paths, TASK)  # compiles what it needs
    clocks, others = [], []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        theta = normal_equations(paths)
        others.append(time.perf_counter() - begin)
        clock = Clock()
        fl.fit(paths, TASK, progress=clock)
        clock.enter("done")
        clocks.append(clock)
    best = min(clocks, key=lambda clock: clock.total)
    print(f"{'':38} {'seconds':>8} {'on all cores':>13}")
    for phase, name in PHASES.items():
        if phase in best.seconds:
            print(f"  {name:36} {best.seconds[phase]:8.2f} {best.busy[phase]:13.2f}")
    print(f"{'fedlsa, robust errors':38} {best.total:8.2f} {sum(best.busy.values()):13.2f}")
    print(f"{'pyarrow and NumPy, no errors':38} {min(others):8.2f}")
    ratios = sorted(clock.total / other for clock, other in zip(clocks, others, strict=True))
    print(
        f"ratio {best.total / min(others):.2f} (of neighbours {ratios[0]:.2f} to {ratios[-1]:.2f}; goal at most 1.0); "
        f"each file is read {passes(paths):g} times"
    )
    folder = str(Path(paths[0]).parent)
    print(
        f"memory: fedlsa {alone('files', folder)[1] / 1e9:.2f} GB, "
        f"pyarrow and NumPy {alone('numpy', folder)[1] / 1e9:.2f} GB"
    )
    gap = np.abs(found.theta - theta).max() / np.abs(theta).max()
    print(
        f"the two solutions differ by {gap:.1e}; the run on {found.local} by {found.error['start']:.2g} standard errors"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, nargs="+", default=(1_000, 10_000), help="numbers of small sites")
    parser.add_argument("--tall", type=int, default=1_000_000, help="rows of the one large table")
    parser.add_argument("--sites", type=int, default=20, help="large files")
    parser.add_argument("--rows", type=int, default=100_000, help="of each site")
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--folder", help="where to make the temporary folder")
    parser.add_argument("--alone", choices=WAYS, help="print seconds and bytes of one way on the files of --folder")
    parser.add_argument("--small", action="store_true", help="print the processor seconds of a small fit")
    options = parser.parse_args(argv)
    if options.small:
        print(small_fit())
        return 0
    if options.alone:
        took = seconds(ways(options.alone, options.folder))
        status = Path("/proc/self/status").read_text(encoding="ascii")  # getrusage counts its parent too
        print(took, 1024 * int(status.split("VmHWM:")[1].split()[0]))
        return 0
    size = options.sites * options.rows * (options.features + 1) * np.dtype(options.dtype).itemsize
    try:
        with tempfile.TemporaryDirectory(prefix="fedlsa-fit-", dir=options.folder) as folder:
            if shutil.disk_usage(folder).free < 1.3 * size:
                parser.error(f"the folder must have room for {1.3 * size / 1e9:.1f} GB")
            here = machine.describe()  # the load before, not of, the measurement
            many, tall, large = (Path(folder) / name for name in ("many", "tall", "large"))
            for part in (many, tall, large):
                part.mkdir()
            measure_many(many, options.many)
            measure_tall(tall, options.tall)
            paths = make(large, options.sites, options.rows, options.features, options.dtype)
            print(
                f"{options.sites} files x {options.rows:,} rows x {options.features} features, {options.dtype}: "
                f"{sum(map(os.path.getsize, paths)) / 1e9:.2f} GB of Parquet"
            )
            measure(paths)
            print(
                f"a fit of 5 x 1,000 rows: {with_blas_threads(None):.1f} processor seconds with all threads of BLAS, "
                f"{with_blas_threads(1):.1f} with one"
            )
    except KeyboardInterrupt:
        print("interrupted; the temporary folder is removed", file=sys.stderr)
        return 130
    print(machine.sentence(here))
    return 0


if __name__ == "__main__":
    sys.exit(main())

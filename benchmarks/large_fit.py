"""Time and memory of fits on files beyond memory: 5 Parquet files of 10 million rows and 8 columns of numbers.

    python benchmarks/large_fit.py                 makes 3 GB of files in a temporary folder, and removes them
    python benchmarks/large_fit.py --rows 20000    to see that all of it works

Every fit runs in a process of its own, whose memory is the most that it ever held, Python and its libraries included.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import machine
import numpy as np

import fedlsa as fl

SITES, FEATURES = 5, 7
PIECE = 500_000  # rows that are made at a time
CLUSTER = 1000  # rows of each patient
COLUMNS = [f"x{j}" for j in range(FEATURES)]
FITS = {
    "HC3, with a planned run": {},
    "clusters, CR3": {"cluster": "patient", "plan": False},
    "HAC": {"covariance": "HAC", "plan": False},
    "HAC, lag=10": {"lag": 10, "plan": False},
}


def make(folder: Path, rows: int) -> None:
    """A file per site, piece by piece: features about the site's own mean, patients that differ, growing noise."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.float64()) for name in [*COLUMNS, "y"]] + [("patient", pa.int64())])
    for c in range(SITES):
        rng = np.random.default_rng([1, c])
        centre, effects = 0.3 * rng.standard_normal(FEATURES), rng.standard_normal(-(-rows // CLUSTER))
        with pq.ParquetWriter(folder / f"site-{c}.parquet", schema) as file:
            for begin in range(0, rows, PIECE):
                who = np.arange(begin, min(begin + PIECE, rows)) // CLUSTER
                x = rng.standard_normal((FEATURES, len(who))) + centre[:, None]
                y = 1 + x.sum(axis=0) + effects[who] + rng.standard_normal(len(who)) * (1 + x[0] ** 2)
                file.write_table(
                    pa.table(dict(zip(COLUMNS, x, strict=True)) | {"y": y, "patient": who + c * len(effects)})
                )


def fit(name: str, folder: str) -> str:
    """Seconds, processor seconds and peak memory of one fit in this process."""
    begin = time.perf_counter()
    found = fl.fit(sorted(Path(folder).glob("*.parquet")), fl.Regression("y", columns=COLUMNS), **FITS[name])
    seconds = time.perf_counter() - begin
    status = Path("/proc/self/status").read_text(encoding="ascii")
    memory = 1024 * int(status.split("VmHWM:")[1].split()[0])
    size = found.standard_error[0]
    return f"{name:26} {seconds:8.1f} {time.process_time():10.1f} {memory / 1e9:10.2f} {size:17.2e}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of each site")
    parser.add_argument("--folder", help="where to make the temporary folder")
    parser.add_argument("--fit", choices=list(FITS), help="make this fit of the files of --folder")
    options = parser.parse_args(argv)
    if options.fit:
        print(fit(options.fit, options.folder))
        return 0
    with tempfile.TemporaryDirectory(prefix="fedlsa-large-", dir=options.folder) as folder:
        size = SITES * options.rows * 8 * (FEATURES + 2)
        if shutil.disk_usage(folder).free < 1.3 * size:
            parser.error(f"the folder must have room for {1.3 * size / 1e9:.1f} GB")
        here = machine.describe()  # the load before, not of, the measurement
        make(Path(folder), options.rows)
        print(f"{SITES} files x {options.rows:,} rows x {FEATURES + 1} numbers and a label")
        print(f"{'':26} {'seconds':>8} {'all cores':>10} {'memory, GB':>10} {'standard error':>17}", flush=True)
        for name in FITS:
            subprocess.run([sys.executable, __file__, "--fit", name, "--folder", folder], check=True)
    print(machine.sentence(here))
    return 0


if __name__ == "__main__":
    sys.exit(main())

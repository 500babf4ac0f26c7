"""A fit of a table that no machine holds: 200 million rows on a Ray cluster of several processes.

    python benchmarks/fit_on_ray.py                          200 million rows, made in partitions as they are wanted
    python benchmarks/fit_on_ray.py --rows 2000000 --check   and beside it the fit of one machine
    python benchmarks/fit_on_ray.py --rows 2000000 --features 49    rows of 50 coefficients

It prints rows per second, what every partition sends and what a row of it costs a core, and the most memory that any
worker ever held, the store of objects that it shares with others included.
"""

from __future__ import annotations

import argparse
import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine
import numpy as np

import fedlsa as fl
from fedlsa.fitting import partitions

SITES, FEATURES, CLUSTERS = 50, 5, 400
STORE = 400 * 2**20  # bytes of Ray's store of objects
COLUMNS = [f"x{j}" for j in range(FEATURES)]
TASK = fl.Regression("y", columns=COLUMNS)


def make(batch: dict[str, Any]) -> dict[str, Any]:
    """The rows of a partition, the same whenever they are made: sites and clusters have rows in all partitions."""
    rng, n = np.random.default_rng([7, int(batch["id"][0])]), len(batch["id"])
    site, patient = rng.integers(0, SITES, n), rng.integers(0, CLUSTERS, n)
    x = rng.standard_normal((FEATURES, n))
    x[0] += 0.1 * site
    y = 1 + x.sum(axis=0) + 0.01 * (patient % 20) + rng.standard_normal(n) * (1 + 0.5 * x[0] ** 2)
    return dict(zip(COLUMNS, x, strict=True)) | {"y": y, "site": site, "patient": patient}


class WorkerMemory(threading.Thread):
    """The most memory that each worker process of this cluster ever held, in bytes, by its number."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak: dict[int, int] = {}
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2):
            status = {}
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    text = (folder / "status").read_text(encoding="ascii", errors="replace")
                    is_worker = (folder / "cmdline").read_bytes().startswith(b"ray::")
                except OSError:  # it has ended
                    continue
                fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
                status[int(folder.name)] = int(fields["PPid"]), is_worker, fields.get("VmHWM")
            for pid, (parent, is_worker, most) in status.items():
                above = status.get(parent, (0,))[0]  # a worker is started by the cluster, and that by this process
                if is_worker and most and os.getpid() in (parent, above):
                    self.peak[pid] = max(self.peak.get(pid, 0), 1024 * int(most.split()[0]))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000_000)
    parser.add_argument("--partition", type=int, default=500_000, help="rows of a partition")
    parser.add_argument("--workers", type=int, default=4, help="processes of the cluster")
    parser.add_argument("--features", type=int, default=FEATURES, help="beside the intercept")
    parser.add_argument("--cluster", action="store_true", help="standard errors by clusters (CR1) across partitions")
    parser.add_argument("--check", action="store_true", help="fit the same rows on one machine, if it holds them")
    options = parser.parse_args(argv)
    columns = [f"x{j}" for j in range(options.features)]
    globals().update(FEATURES=options.features, COLUMNS=columns, TASK=fl.Regression("y", columns=columns))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    here, parts = machine.describe(), -(-options.rows // options.partition)
    sent: dict[str, tuple[int, float]] = {}

    class Counted(partitions.Partitions):
        """Measures what the first partition sends, and the processor time that it takes."""

        def add_up(self, find: Any, task: Any, columns: Any, *more: Any) -> Any:
            import pandas as pd

            block = pd.DataFrame(make({"id": np.arange(options.partition)}))
            work = partitions.PartitionWork(find, self.site, task, columns, more)
            work(block)  # compiled
            begin = time.process_time()
            found = work(block)
            each = 1e6 * (time.process_time() - begin) / len(block)
            sent[find.__name__.removeprefix("find_")] = len(pickle.dumps(found)), each
            return super().add_up(find, task, columns, *more)

    partitions.Partitions = Counted  # type: ignore[misc]
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=options.workers, object_store_memory=STORE, **quiet)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    data = ray.data.range(options.rows, override_num_blocks=parts).map_batches(make, batch_size=None)
    how: dict[str, Any] = {"plan": False} | ({"cluster": "patient", "covariance": "CR1"} if options.cluster else {})
    memory = WorkerMemory()
    memory.start()
    begin = time.perf_counter()
    found = fl.fit(data, TASK, site="site", **how)
    seconds = time.perf_counter() - begin
    memory.over.set()
    ray.shutdown()
    print(f"{options.rows:,} rows in {parts:,} partitions, {SITES} sites, {len(found.theta)} coefficients", end="; ")
    print(found.covariance_kind)
    print(f"{seconds:.0f} s, {options.rows / seconds:,.0f} rows/s in two passes, in which rows are made anew")
    print("a partition sends", " and ".join(f"{size:,} bytes of {what}" for what, (size, _) in sent.items()), end=", ")
    print("where its rows are", f"{options.partition * 8 * (FEATURES + 3):,} bytes")
    print("a core takes", ", ".join(f"{each:.1f} μs of a row for its {what}" for what, (_, each) in sent.items()))
    peak = sorted(memory.peak.values())
    print(f"most memory of {len(peak)} workers: {', '.join(f'{size / 1e9:.2f}' for size in peak)} GB")
    print("off the truth by", np.round((found.theta[:FEATURES] - 1) / found.standard_error[:FEATURES], 1), "errors")
    if options.check:
        import pandas as pd

        ids = np.array_split(np.arange(options.rows), parts)
        whole = pd.concat([pd.DataFrame(make({"id": own})) for own in ids], ignore_index=True)
        one = fl.fit(whole, TASK, site="site", **how)
        for name in ("theta", "standard_error"):
            off = abs(getattr(found, name) / getattr(one, name) - 1).max()
            print(f"{name}: off one machine's by {off:.0e} of its size at most")
    print(machine.sentence(here))
    return 0


if __name__ == "__main__":
    sys.exit(main())

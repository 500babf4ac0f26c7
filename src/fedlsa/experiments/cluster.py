"""Cells on a Ray cluster: each is a task, and one whose worker or node dies is run again elsewhere.

Ray is an extra: pip install 'fedlsa[ray]', on every node; all nodes must have the same version of fedlsa.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import xarray as xr

from ..errors import ClusterError, MissingExtraError
from ..files import reason
from .cells import Cell, compute
from .executor import Done, Tick

LOCAL = "local"
RETRIES = 20  # of a cell whose worker dies
PATIENCE = 10.0  # seconds that a cluster has to answer
AHEAD = 2  # tasks submitted per core: none waits for work, and results do not pile up


class Cluster:
    """Computes cells as tasks of a Ray cluster, and hands them over as they arrive.

    address : of the cluster, or "local" for one on this machine alone; how : engine and threads of a simulation (a task
    occupies as many cores as it has threads, by default one). A cluster that this process has joined before is used.
    """

    def __init__(self, address: str = LOCAL, how: Mapping[str, Any] | None = None) -> None:
        self.ray = _ray()
        self.address = address
        self.how = dict(how or {})
        self.how["threads"] = self.how.get("threads") or 1

    def __call__(self, cells: Sequence[Cell], tick: Tick) -> Iterator[Done]:
        if not cells:
            return
        with self._joined():
            yield from self._run(cells, tick)

    def _run(self, cells: Sequence[Cell], tick: Tick) -> Iterator[Done]:
        ray, threads = self.ray, self.how["threads"]
        task = ray.remote(num_cpus=threads, max_retries=RETRIES, runtime_env={"env_vars": _numerics()})(_task)
        waiting = list(reversed(cells))
        at_work: dict[Any, Cell] = {}
        while waiting or at_work:
            room = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1) // threads))
            while waiting and len(at_work) < room:
                cell = waiting.pop()
                at_work[task.remote(cell.text, self.how)] = cell
                tick(cell, 0.0)
            ready, _ = ray.wait(list(at_work), num_returns=1, timeout=1.0)
            for reference in ready:
                cell = at_work.pop(reference)
                result, seconds = self._result(reference)
                yield cell, result, seconds
            if not ready:
                tick(next(iter(at_work.values())), 0.0)  # a sign of life

    def _result(self, reference: Any) -> tuple[xr.Dataset, float]:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:  # the cell itself is at fault: as if it had run here
            raise error.cause from None
        except self.ray.exceptions.RayError as error:
            raise ClusterError(f"the Ray cluster lost a cell for good: {reason(error)}") from error

    @contextlib.contextmanager
    def _joined(self) -> Iterator[None]:
        ray = self.ray
        if ray.is_initialized():
            yield
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if self.address == LOCAL:
                ray.init(address="local", include_dashboard=False, **quiet)
            else:
                _knock(self.address)
                ray.init(address=self.address, **quiet)
        except (ConnectionError, TimeoutError, ValueError, RuntimeError, OSError) as error:
            raise ClusterError(f"no Ray cluster can be joined at {self.address!r}: {reason(error)}") from error
        try:
            yield
        finally:
            ray.shutdown()


def _knock(address: str) -> None:
    """An error at once where nobody listens at HOST:PORT: Ray itself would go on trying for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()


def _task(text: str, how: Mapping[str, Any]) -> tuple[xr.Dataset, float]:
    """One cell, in a worker."""
    began = time.monotonic()
    cell = Cell.from_text(text)
    if cell.text != text:
        raise ClusterError("a node of the Ray cluster has another version of fedlsa: install the same one everywhere")
    result = compute(cell, how)
    return result, time.monotonic() - began


def _numerics() -> dict[str, str]:
    """As many threads of linear algebra as in this process: sums in another order have other last digits."""
    from ..theory.threads import cores

    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(cores()))}


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtraError("a Ray cluster needs ray: pip install 'fedlsa[ray]'") from None
    return ray

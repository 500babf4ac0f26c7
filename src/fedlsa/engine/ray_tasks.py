"""Tasks on a Ray cluster: each runs somewhere, and one whose worker or node dies is run again elsewhere.

Ray is an extra: pip install 'fedlsa[ray]', on every node; all nodes must have the same version of fedlsa.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import ClusterError, MissingExtraError
from ..files import reason
from ..threads import cores

LOCAL = "local"
RETRIES = 20  # of a task whose worker dies
PATIENCE = 10.0  # seconds that a cluster has to answer
AHEAD = 2  # tasks submitted per core: none waits for work, and results do not pile up
OTHER_VERSION = "a worker has another version of fedlsa: install the same one everywhere"


class RayTasks:
    """Calls of a function as tasks of a Ray cluster; their results are handed over as they arrive.

    address : of the cluster, or "local" for one on this machine alone. A cluster that this process has joined before is
        used; threads : how many cores a task occupies
    """

    def __init__(self, address: str = LOCAL, threads: int = 1) -> None:
        self.ray, self.address, self.threads = _ray(), address, threads

    def __call__(
        self,
        function: Callable[..., Any],
        calls: Sequence[Sequence[Any]],
        tick: Callable[[int], None],
        shared: Sequence[Any] = (),
    ) -> Iterator[tuple[int, Any]]:
        """function(*call) for every call, with the call's number.

        tick : told the number of a call that is at work, when it begins and about once a second
        shared : arguments of several calls, which travel once
        """
        if not calls:
            return
        ray, waiting, at_work = self.ray, list(reversed(range(len(calls)))), dict[Any, int]()
        with self._joined():
            references = {id(argument): ray.put(argument) for argument in shared}
            options = {"num_cpus": self.threads, "max_retries": RETRIES, "runtime_env": {"env_vars": _numerics()}}
            task = ray.remote(**options)(function)
            try:
                while waiting or at_work:
                    room = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1) // self.threads))
                    while waiting and len(at_work) < room:
                        i = waiting.pop()
                        at_work[task.remote(*(references.get(id(argument), argument) for argument in calls[i]))] = i
                        tick(i)
                    ready, _ = ray.wait(list(at_work), num_returns=1, timeout=1.0)
                    for reference in ready:
                        yield at_work.pop(reference), self._result(reference)
                    if not ready:
                        tick(next(iter(at_work.values())))  # a sign of life
            finally:
                for reference in at_work:  # a cluster that others use, too, must not go on with them
                    ray.cancel(reference)

    def _result(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:  # the task itself is at fault: as if it had run here
            raise error.cause from None
        except self.ray.exceptions.RayError as error:
            raise ClusterError(f"the Ray cluster lost a task for good: {reason(error)}") from error

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


def _numerics() -> dict[str, str]:
    """As many threads of linear algebra as in this process: sums in another order have other last digits."""
    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(cores()))}


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtraError("a Ray cluster needs ray: pip install 'fedlsa[ray]'") from None
    return ray

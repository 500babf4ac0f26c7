"""The coordinator's own process for runs: looks for a run that is not over, takes it up, and carries it to its end.

    python -m fedlsa.network.flower.coordinator_worker PARENT FOLDER PLAIN

PLAIN : 1 where the network was started with --insecure, else 0.
It holds nothing that is not on the disk: killed at any time and started again, it takes the run up where the last
stored round left it, under a new run of Flower's. Sites know a run by the experiment's name, not by Flower's number.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from flwr.common.serde import run_from_proto
from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid

from ...errors import FedLSAError
from ..coordinator.run_loop import complete_run
from ..coordinator.runs import RunFolder, unfinished
from ..disk import replace
from ..folder.config import Network
from ..processes import only_one
from .launch import end_with, hasten
from .superlink import TaskSource, acquire, connected, register, start_run, stop_run
from .transport import FlowerTransport

POLL = 0.3  # seconds between looks for a new run
MAX_WAIT = 30.0  # seconds between attempts
MAX_TRIES = 5  # attempts with the same unforeseen error before a run is given up


def carry(network: Network, run: RunFolder, names: Mapping[int, str], ca: Path | None) -> None:
    """Carry one run on; an error that another attempt would meet again ends it."""
    with only_one(run.folder / "worker.pid"):  # a killed coordinator's worker lives a moment
        if run.over:  # a process of before ended it while this one waited
            return
        number = _numbered(network, run, ca)
        with _grid(TaskSource(network.superlink, network.secret, ca), number) as grid:
            transport = FlowerTransport(grid, dict(names), frozenset(network.sites) if ca is None else frozenset())
            try:
                complete_run(network, run, transport)
            except (FedLSAError, ValueError, ArithmeticError) as error:
                if isinstance(error, OSError):  # a full disk: what the next attempt may not meet
                    raise
                run.fail(str(error) if isinstance(error, FedLSAError) else f"{type(error).__name__}: {error}")


def _numbered(network: Network, run: RunFolder, ca: Path | None) -> int:
    """The number of a new run of Flower's, noted for the next attempt, which ends it."""
    note = run.folder / "flower-run"
    with connected(network.superlink, ca) as control:
        with suppress(OSError, ValueError):  # none yet, or one that cannot be read: Flower ends it by its heartbeat
            stop_run(control, int(note.read_text(encoding="ascii")))
        number = start_run(control, run.name)
    replace(note, str(number).encode(), secret=False)
    return number


@dataclass
class Attempts:
    """How often in a row the same trouble was met at the same place of a run."""

    last: tuple[str, int] = ("", 0)
    count: int = 0

    def after(self, error: Exception, run: RunFolder | None) -> float:
        """Print the trouble and return the seconds to wait; give the run up where trying again does not help."""
        text, place = f"{type(error).__name__}: {error}", 0
        if run is not None:
            with suppress(OSError):
                place = os.stat(run.folder / "state.npz").st_mtime_ns
        self.count = self.count + 1 if (text, place) == self.last else 1
        self.last = text, place
        if isinstance(error, httpx.TransportError):
            print(f"the SuperLink does not answer ({type(error).__name__}); trying again", flush=True)
            return 1.0
        if isinstance(error, httpx.HTTPError | OSError):
            print(f"{text}; trying again", flush=True)
        else:
            traceback.print_exception(error)
            sys.stderr.flush()
            if run is not None and self.count >= MAX_TRIES:
                with suppress(OSError):  # then the next attempt says it
                    run.fail(f"the same error {self.count} times in a row: {text}")
        return min(2.0 ** (self.count - 1), MAX_WAIT) if self.count < 10 else MAX_WAIT


@contextmanager
def _grid(tasks: TaskSource, number: int) -> Iterator[Any]:
    """Flower's Grid for one run, whose task this process takes, and its heartbeat."""
    asking = tasks.asking()
    try:
        while (found := acquire(asking, "flwr-serverapp")) is None or found[0] != number:
            time.sleep(0.1)  # a task of an older run is taken and dropped
    finally:
        asking.close()
    ca = None if tasks.ca is None else tasks.ca.read_bytes()
    grid = HttpGrid(tasks.address, tasks.ca is None, ca, token=found[1])
    client = grid._runtime_client
    heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heart.start()
    status = "failed"
    try:
        given = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
        TaskIdentity.node_id = given.context.node_id
        grid.set_run(run_from_proto(given.run))
        yield grid
        status = "completed"
    finally:
        grid._retry_invoker.max_tries = 1  # what is said at the end is a courtesy
        try:
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status))
        finally:
            heart.stop()
            grid.close()


def serve(folder: Path, plain: bool) -> None:
    """Take up runs, for ever."""
    names: Mapping[int, str] = {}
    known: object = None
    attempts = Attempts()
    while True:
        run = None
        try:
            network = Network.load(folder)
            ca = None if plain else network.ca
            run = unfinished(network)
            keys = {site: network.public_key(site) for site in network.sites}
            stamp = [(site, path.read_bytes()) for site, path in keys.items()]
            if not plain and (run is not None or stamp != known):  # sites come and go, and keys are rotated
                with connected(network.superlink, ca) as control:
                    names = register(control, keys)
                known = stamp
            if run is None:
                time.sleep(POLL)
            else:
                carry(network, run, names, ca)
            attempts = Attempts()
        except Exception as error:  # whatever the transport or the disk does, the run on the disk is taken up again
            time.sleep(attempts.after(error, run))


def main() -> None:
    parent, folder, plain = sys.argv[1:4]
    end_with(int(parent))
    hasten()
    serve(Path(folder), plain == "1")


if __name__ == "__main__":
    main()

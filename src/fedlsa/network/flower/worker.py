"""The coordinator's own process for runs: looks for a run that is not over, takes it up, and carries it to its end.

    python -m fedlsa.network.flower.worker PARENT FOLDER PLAIN

PLAIN : 1 where the network was started with --insecure, else 0.
It holds nothing that is not on the disk: killed at any time and started again, it takes the run up where the last
stored round left it, under a new run of Flower's. Sites know a run by the experiment's name, not by Flower's number.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import FedLSAError
from ..conduct import conduct
from ..config import Network
from ..runs import Run, unfinished
from .control import connected, register, start_run, stop_run
from .launch import end_with, hasten
from .runtime import Door, acquire
from .server_app import Post

POLL = 0.3  # seconds between looks for a new run
REGISTER = 5.0  # seconds between looks for new and revoked keys while no run is on


def inner(network: Network) -> str:
    """The SuperLink's address, on loopback."""
    return f"127.0.0.1:{network.inner_port}"


def carry(network: Network, run: Run, names: Mapping[int, str], ca: Path | None) -> None:
    """Carry one run on; an error that another attempt would meet again ends it."""
    note = run.folder / "flower-run"
    with connected(inner(network), ca) as control:
        if note.exists():  # a process that was killed left it behind
            stop_run(control, int(note.read_text()))
        number = start_run(control, run.name)
    note.write_text(str(number))
    with _grid(Door(inner(network), network.secret, ca), number) as grid:
        try:
            conduct(network, run, Post(grid, dict(names), frozenset(network.sites) if ca is None else frozenset()))
        except FedLSAError as error:
            run.fail(str(error))


@contextmanager
def _grid(door: Door, number: int) -> Iterator[Any]:
    """Flower's Grid for one run, whose task this process takes, and its heartbeat."""
    from flwr.common.serde import run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid.http_grid import HttpGrid

    asking = door.asking()
    try:
        while (found := acquire(asking, "flwr-serverapp")) is None or found[0] != number:
            time.sleep(0.1)  # a task of an older run is taken and dropped
    finally:
        asking.close()
    ca = None if door.ca is None else door.ca.read_bytes()
    grid = HttpGrid(door.address, door.ca is None, ca, token=found[1])
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
    import httpx

    names: Mapping[int, str] = {}
    registered = -REGISTER
    while True:
        try:
            network = Network.load(folder)
            ca = None if plain else network.ca
            run = unfinished(network)
            if not plain and (run is not None or time.monotonic() - registered > REGISTER):
                with connected(inner(network), ca) as control:
                    names = register(control, {site: network.public_key(site) for site in network.sites})
                registered = time.monotonic()
            if run is None:
                time.sleep(POLL)
            else:
                carry(network, run, names, ca)
        except httpx.TransportError as error:
            print(f"the SuperLink does not answer ({type(error).__name__}); trying again", flush=True)
            time.sleep(1.0)
        except Exception:  # whatever the transport does, the run on the disk is taken up again
            traceback.print_exc()
            sys.stderr.flush()
            time.sleep(1.0)


def main() -> None:
    parent, folder, plain = sys.argv[1:4]
    end_with(int(parent))
    hasten()
    serve(Path(folder), plain == "1")


if __name__ == "__main__":
    main()

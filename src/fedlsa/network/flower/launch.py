"""Start a SuperLink or a SuperNode as our child: run as a file, so that this process never loads fedlsa or Numba.

    python launch.py link PARENT -- ARGUMENTS OF flower-superlink
    python launch.py node PARENT POLL FOLDER -- ARGUMENTS OF flower-supernode
    python launch.py gate PARENT -- ARGUMENTS OF gate.py

Three things differ from Flower's own commands. The process ends when its parent does, also when the parent was killed.
A node asks for work every POLL seconds instead of every 3. And a node that takes the place of one that was killed says
goodbye for its predecessor first, with the site's own key; without that it is refused for about 50 seconds.
Written for Flower 1.41: `fedlsa.network.flower` refuses any other.
"""

import os
import runpy
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def end_with(parent: int) -> None:
    """End this process, at once and by its own id, when `parent` is no longer our parent."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(75)

    threading.Thread(target=watch, daemon=True).start()


def hasten() -> None:
    """Ask again soon for a part of a message that is still under way: Flower waits a second, twice a round."""
    from flwr.supercore.inflatable.inflatable_utils import pull_objects

    defaults: Any = pull_objects.__kwdefaults__
    defaults.update(initial_backoff=0.05, backoff_cap=2.0)


def link(arguments: list[str]) -> None:
    """flower-superlink."""
    from flwr.superlink.cli import flower_superlink

    sys.argv = ["flower-superlink", *arguments]
    flower_superlink()


def node(poll: float, folder: Path, arguments: list[str]) -> None:
    """flower-supernode, with a shorter wait between questions and a goodbye for a killed predecessor."""
    import httpx
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.cli import flower_supernode
    from flwr.supernode.fleet_http_client import FleetHttpClient

    known = folder / "node.id"

    class Returning(FleetHttpClient):  # type: ignore[misc]
        def ActivateNode(self, request: Any) -> Any:
            with suppress(FileNotFoundError, ValueError, httpx.HTTPError, RuntimeError):  # it may be offline, or new
                self.DeactivateNode(DeactivateNodeRequest(node_id=int(known.read_text())))
            answer = super().ActivateNode(request)
            known.write_text(str(answer.node_id))
            return answer

    patched: Any = fleet_http_connection
    patched.FleetHttpClient = Returning
    patched = start_client_internal
    patched.time = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, poll)))
    hasten()
    sys.argv = ["flower-supernode", *arguments]
    flower_supernode()


def gate(arguments: list[str]) -> None:
    """The public gate, network/gate.py."""
    path = str(Path(__file__).resolve().parent.parent / "gate.py")
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")


def main() -> None:
    split = sys.argv.index("--")
    ours, theirs = sys.argv[1:split], sys.argv[split + 1 :]
    end_with(int(ours[1]))
    if ours[0] == "link":
        link(theirs)
    elif ours[0] == "gate":
        gate(theirs)
    else:
        node(float(ours[2]), Path(ours[3]), theirs)


if __name__ == "__main__":
    main()

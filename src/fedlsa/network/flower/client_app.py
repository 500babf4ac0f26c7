"""The site's side of the wire: a process that stays, takes the SuperNode's tasks, and lets the desk answer them.

    python -m fedlsa.network.flower.client_app PARENT ADDRESS SECRET JOB

JOB : a JSON file that `fedlsa network join` wrote: the site's folder, its data, and what it shares.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from ...errors import MessageError
from ..protocol.messages import Refusal
from .content import from_content, to_content
from .launch import end_with, hasten
from .runtime import Door, acquire
from .server_app import WHO

POLL = 0.2  # seconds between questions to the SuperNode, on loopback


def desk(job: Path) -> Any:
    """The desk that a job describes."""
    from ..folder.config import Bundle
    from ..site.source import open_data
    from ..site.station import Desk

    held = json.loads(job.read_text(encoding="utf-8"))
    site = Bundle.load(held["folder"])
    data = open_data(held["data"], held["loader"], site.task)
    return Desk(site.name, site.folder, data, site.task, bool(held["share_moments"]), held.get("least_noise"))


def answered(message: Any, at: Any) -> Any:
    """Flower's reply to Flower's message."""
    from flwr.app import ConfigRecord, Message, RecordDict

    try:
        if WHO in message.content:  # where there are no keys, names are asked for
            return Message(RecordDict({WHO: ConfigRecord({"site": at.name})}), reply_to=message)
        record = at.answer(from_content(message.content))
    except MessageError as error:
        record = Refusal("", 0, 0, "other", str(error)[:500]).record()
    except (LookupError, TypeError, ValueError) as error:
        print(f"a message could not be answered: {type(error).__name__}: {error}", flush=True)
        why = f"the message could not be answered: {type(error).__name__}"  # the rest may speak of the site's data
        record = Refusal("", 0, 0, "other", why).record()
    return Message(to_content(record), reply_to=message)


def serve(door: Door, at: Any) -> None:
    """Answer tasks, one after another, for ever.

    An error of the transport is noted and the next task is taken, and so is a message that cannot even be unpacked.
    """
    import httpx
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

    asking = door.asking()
    while True:
        try:
            found = acquire(asking, "flwr-clientapp")
            if found is None:
                time.sleep(POLL)
                continue
            working = door.working(found[1], "flwr-clientapp")
            try:
                message, context, _, _ = pull_task_input(working)
                push_message(working, answered(message, at), context)
                push_task_output(working, context, "completed", "")
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                print(f"a message could not be read: {type(error).__name__}: {error}", flush=True)
                push_task_output(working, None, "failed", "the message could not be read")
            finally:
                working.close()
        except (httpx.HTTPError, RuntimeError) as error:
            print(f"no task from the SuperNode: {type(error).__name__}: {error}", flush=True)
            time.sleep(1.0)


def main() -> None:
    parent, address, secret, job = sys.argv[1:5]
    end_with(int(parent))
    hasten()
    serve(Door(address, Path(secret)), desk(Path(job)))


def __getattr__(name: str) -> Any:
    """`app`, made when it is asked for: Flower's own tools look for it, and are told who runs it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def refuse(message: Any, context: Any) -> Any:
        raise RuntimeError("this app is run by `fedlsa network join`, which needs no flower-superexec")

    return app


if __name__ == "__main__":
    main()

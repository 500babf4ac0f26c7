"""The site's side of the wire: a process that stays, takes the SuperNode's tasks and answers them.

    python -m fedlsa.network.flower.site_worker PARENT ADDRESS SECRET JOB

JOB : a JSON file that `fedlsa network join` wrote: the site's folder, its data, and what it shares.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from ...errors import MessageError
from ..folder.config import Bundle
from ..protocol.messages import Refusal
from ..site.orders import OrderHandler
from ..site.site_data import open_data
from .launch import end_with, hasten
from .superlink import TaskSource, acquire
from .transport import WHO, from_content, to_content

POLL = 0.2  # seconds between questions to the SuperNode, on loopback


def handler(job: Path) -> OrderHandler:
    """What answers a site's orders, as a job describes it."""
    said = json.loads(job.read_text(encoding="utf-8"))
    site = Bundle.load(said["folder"])
    data = open_data(said["data"], said["loader"], site.task)
    return OrderHandler(site.name, site.folder, data, site.task, bool(said["share_moments"]), said["least_noise"])


def answer_message(message: Any, at: OrderHandler) -> Any:
    """Flower's reply to Flower's message."""
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


def serve(tasks: TaskSource, at: OrderHandler) -> None:
    """Answer tasks, one after another, for ever.

    An error of the transport is noted and the next task is taken, and so is a message that cannot even be unpacked.
    """
    asking = tasks.asking()
    while True:
        try:
            task = acquire(asking, "flwr-clientapp")
            if task is None:
                time.sleep(POLL)
                continue
            working = tasks.working(task[1], "flwr-clientapp")
            try:
                message, context, _, _ = pull_task_input(working)
                push_message(working, answer_message(message, at), context)
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
    serve(TaskSource(address, Path(secret)), handler(Path(job)))


if __name__ == "__main__":
    main()

"""What runs inside FLARE: a controller, an executor and a filter, named in the site's class list. They pass bytes on.

They take no arguments: a job says nothing about a site. The coordinator's socket comes from the server's environment,
the site's from the site's own privacy.json.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.filter import ContentBlockedException, Filter, FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.apis.signal import Signal

from fedlsa.errors import MessageError

from .relay import MAX_MESSAGE, REFUSED, SOCKET, TASK, connect, receive, send

PRESENCE_INTERVAL = 1.0  # seconds between messages about who is there
PATIENCE = 600.0  # seconds that an executor waits for the site's process to come back


class CoordinatorRelay(Controller):  # type: ignore[misc]
    """Orders from the coordinator's socket become tasks; their results go back."""

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Begin with no task out."""
        self.out: dict[str, Task] = {}
        self.sending = threading.Lock()

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is held that must be given back."""

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """An answer to an order that was replaced is dropped."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Serve the coordinator until the job is aborted; a coordinator that was restarted is connected to again."""
        path = os.environ.get(SOCKET)
        if path is None:
            self.system_panic(f"the server's environment must name the coordinator's socket in {SOCKET}", fl_ctx)
            return
        while not abort_signal.triggered:
            with contextlib.suppress(OSError, EOFError, MessageError), connect(path) as link:
                self._serve(link, abort_signal, fl_ctx)
            time.sleep(PRESENCE_INTERVAL)

    def _serve(self, link: Connection, abort_signal: Signal, fl_ctx: FLContext) -> None:
        next_word = 0.0
        while not abort_signal.triggered:
            if time.monotonic() >= next_word:
                next_word = time.monotonic() + PRESENCE_INTERVAL
                names = [c.name for c in fl_ctx.get_engine().get_clients()]
                here = [name for name in names if self.get_client_disconnect_time(name) is None]
                with self.sending:
                    send(link, {"here": here, "job": fl_ctx.get_job_id()})
            if link.poll(PRESENCE_INTERVAL / 2):
                head, body = receive(link)
                self._order(link, str(head["site"]), int(head["ask"]), int(head["seconds"]), body, fl_ctx)

    def _order(self, link: Connection, site: str, ask: int, seconds: int, body: bytes, fl_ctx: FLContext) -> None:
        """Give a site an order, in the place of one that it may still have."""
        job = fl_ctx.get_job_id()

        def pass_on(client_task: ClientTask, fl_ctx: FLContext) -> None:
            result = client_task.result
            answer = result.get(TASK) if result.get_return_code() == ReturnCode.OK else None
            with self.sending, contextlib.suppress(OSError):
                send(link, {"job": job, "site": site, "ask": ask}, answer if isinstance(answer, bytes) else REFUSED)

        if site not in [client.name for client in fl_ctx.get_engine().get_clients()]:
            return  # it was not there when the job began; with the next job it is asked
        if site in self.out:
            self.cancel_task(self.out[site], fl_ctx=fl_ctx)
        self.out[site] = Task(TASK, Shareable({TASK: body}), timeout=max(1, seconds), result_received_cb=pass_on)
        self.send(self.out[site], fl_ctx, targets=[site])


class SiteRelay(Executor):  # type: ignore[misc]
    """An order goes to the site's own process, by the socket that the site's privacy.json names; its answer returns."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """The site's answer; while the site's process is being restarted it is asked again."""
        path = (fl_ctx.get_prop(FLContextKey.SCOPE_PROPERTIES) or {}).get(SOCKET)
        order = shareable.get(TASK)
        if task_name != TASK or path is None or not isinstance(order, bytes):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not abort_signal.triggered:
            with contextlib.suppress(OSError, EOFError), connect(path) as link:
                link.send_bytes(order)
                while not link.poll(0.2):
                    if abort_signal.triggered:
                        return make_reply(ReturnCode.TASK_ABORTED)
                answer = link.recv_bytes(MAX_MESSAGE)
                if answer == REFUSED:
                    return make_reply(ReturnCode.BAD_TASK_DATA)
                reply = make_reply(ReturnCode.OK)
                reply[TASK] = answer
                return reply
            time.sleep(0.2)
        return make_reply(ReturnCode.EXECUTION_EXCEPTION)


class OnlyOurTask(Filter):  # type: ignore[misc]
    """The site's filter, on what comes in and on what goes out: our task, with one sealed message and nothing else."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """The message alone; anything else is blocked."""
        name, body = fl_ctx.get_prop(FLContextKey.TASK_NAME), shareable.get(TASK)
        if name != TASK:
            raise ContentBlockedException(f"this site does the task {TASK!r} only; got {str(name)[:40]!r}")
        leaves = self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_RESULT_CHAIN
        if leaves and shareable.get_return_code() != ReturnCode.OK:
            return make_reply(shareable.get_return_code())
        if not isinstance(body, bytes) or len(body) > MAX_MESSAGE:
            raise ContentBlockedException(f"the task {TASK!r} must hold one message of at most {MAX_MESSAGE} bytes")
        if leaves:
            shareable = make_reply(ReturnCode.OK)
            shareable[TASK] = body
        for key in {*shareable} - {TASK, ReservedHeaderKey.HEADERS}:
            del shareable[key]
        return shareable

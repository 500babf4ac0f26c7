"""Keeps one relay job alive on a FLARE server: submits it, and again after a crash of the server, the job or a site.

FLARE does not bring a job back after a crash, and a dead job may stand as RUNNING for ever; a client that was killed
comes back to the server but not into the job. Each of these is seen here and answered in the same way: the job is
aborted and submitted again. Runs are not touched by it: they live in the coordinator's own process and on its disk.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fedlsa.errors import MessageError, NetworkError
from fedlsa.files import reason
from fedlsa.network.folder.config import Network

from .relay import REFUSED, SOCKET, TASK, job_files, listening, receive, send, write_files

# The carrier (present, ask) whose messages a FLARE job passes on: the coordinator's end of the socket.

FRESH = 10.0  # seconds for which the last word about who is there counts
JOB_POLL = 0.2  # seconds between looks for a job that was started anew


class FlareCarrier:
    """Bytes to sites and back through one job, the expected one; a job that replaces it is given the orders again."""

    def __init__(self, path: Path) -> None:
        self._answers: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._pending: dict[str, int] = {}  # site -> the number of the question that it has not answered
        self._numbers = itertools.count(1)
        self._link: Connection | None = None
        self._here: tuple[str, ...] = ()
        self._heard, self._job = -math.inf, ""
        self._sending, self._ending = threading.Lock(), threading.Lock()  # a link is closed under both
        self._closing = contextlib.ExitStack()
        self._listener = self._closing.enter_context(listening(path))
        threading.Thread(target=self._accept, daemon=True).start()

    def present(self) -> tuple[str, ...]:
        """The sites that the job reaches."""
        return self._here if self.silence() < FRESH else ()

    def expect(self, job: str) -> None:
        """Listen to this job alone: one that its dead server left behind may still speak."""
        if job != self._job:
            self._job, self._link, self._heard = job, None, -math.inf

    def silence(self) -> float:
        """Seconds since the job said a word."""
        return time.monotonic() - self._heard

    def ask(self, orders: Mapping[str, bytes], deadline: float) -> Iterator[tuple[str, bytes]]:
        """Send orders; answers within `deadline` seconds, once per site, also through a job that was started anew."""
        end, ask = time.monotonic() + deadline, next(self._numbers)
        told: Connection | None = None
        self._answers, left = queue.SimpleQueue(), dict(orders)
        self._pending = dict.fromkeys(left, ask)
        while left and (remaining := end - time.monotonic()) > 0:
            link = self._link
            if link is not None and link is not told:
                told = link
                for site, order in left.items():
                    self._send(link, site, ask, remaining, order)
            with contextlib.suppress(queue.Empty):
                site, answer = self._answers.get(timeout=min(JOB_POLL, remaining))
                del left[site]
                yield site, answer
        self._pending = {}

    def close(self) -> None:
        """Close the socket; the job looks for it until it is there again."""
        self._closing.close()
        link = self._link
        with self._ending:
            if link is not None and not link.closed:
                _hang_up(link)

    def _send(self, link: Connection, site: str, ask: int, seconds: float, order: bytes) -> None:
        with self._sending, contextlib.suppress(OSError):
            send(link, {"site": site, "ask": ask, "seconds": math.ceil(seconds)}, order)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link = self._listener.accept()
                threading.Thread(target=self._listen, args=(link,), daemon=True).start()

    def _listen(self, link: Connection) -> None:
        try:
            with contextlib.suppress(OSError, EOFError, MessageError, KeyError, TypeError, ValueError):
                while True:
                    self._hear(link, *receive(link))
        finally:
            _hang_up(link)  # an order that nobody takes is waited for no longer
            with self._sending, self._ending:
                link.close()
            if self._link is link:
                self._link, self._heard = None, -math.inf

    def _hear(self, link: Connection, head: dict[str, Any], body: bytes) -> None:
        if head.get("job") != self._job:
            return
        if "here" in head:
            self._here = tuple(sorted(map(str, head["here"])))
            self._link, self._heard = link, time.monotonic()
        elif body != REFUSED and self._pending.get(head["site"]) == head["ask"]:
            del self._pending[head["site"]]  # nothing is kept that nobody waits for
            self._answers.put((head["site"], body))


def _hang_up(link: Connection) -> None:
    """End a connection for both sides and for all that wait on it here; who reads from it closes it, once."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(link.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


LOOK = 2.0  # seconds between looks
GATHER = 30.0  # seconds in which sites may connect before a job is submitted without some of them
SILENCE = 60.0  # seconds that a running job may say nothing
WAITING = ("SUBMITTED", "APPROVED", "DISPATCHED")  # what FLARE says of a job before it runs
RETRY = 30.0  # seconds before a job that failed within so many is submitted again
STRIKES = 3  # looks in a row that find fault with a job


class SupervisedCarrier(FlareCarrier):
    """The carrier of a network, with a thread that keeps its job alive; kit : the FLARE folder of the supervisor."""

    def __init__(self, network: Network, kit: Path, say: Callable[[str], None] = print) -> None:
        work = network.folder.resolve() / "nvflare"
        work.mkdir(mode=0o700, exist_ok=True)
        super().__init__(Path(os.environ.get(SOCKET) or work / "relay.sock"))
        try:
            self.supervisor = JobSupervisor(self, network.sites, kit, work, say)
        except BaseException:
            super().close()
            raise
        threading.Thread(target=self.supervisor.run, name="supervisor", daemon=True).start()

    def close(self) -> None:
        """Leave the job, which waits for a coordinator."""
        self.supervisor.close()
        super().close()


class JobSupervisor:
    """sites : those that belong in the job; kit : the FLARE folder of the account that may submit it."""

    def __init__(
        self, carrier: FlareCarrier, sites: tuple[str, ...], kit: Path, work: Path, say: Callable[[str], None] = print
    ) -> None:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        try:
            self.user = str(json.loads((kit / "startup" / "fed_admin.json").read_text("utf8"))["admin"]["username"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NetworkError(f"{kit} must be a FLARE folder of the supervisor: {reason(error)}") from error
        self.open_session = new_secure_session
        self.carrier, self.sites, self.kit, self.say = carrier, sites, kit, say
        self.folder = work / TASK
        write_files(self.folder, job_files(sites))
        self.ended = threading.Event()
        self.job, self.since, self.strikes = "", 0.0, 0
        self.dead: set[str] = set()
        self.trouble, self.hold = "", 0.0

    def run(self) -> None:
        """Look after the job until `close`; a server that cannot be reached is tried again."""
        while not self.ended.is_set():
            session = None
            try:
                session = self.open_session(self.user, str(self.kit), timeout=10.0)
                self._adopt(session)
                self.trouble = ""
                while not self.ended.wait(LOOK):
                    self._look(session)
            except Exception as error:  # FLARE's client raises errors of many kinds; all mean: connect again
                why = f"FLARE's server does not answer ({type(error).__name__}: {str(error)[:200]!a}); trying again"
                if why != self.trouble:  # once, however long it lasts
                    self.say(why)
                self.trouble = why
                self.ended.wait(LOOK)
            finally:
                if session is not None:
                    with contextlib.suppress(Exception):
                        session.close()

    def close(self) -> None:
        """End `run`; the job stays and waits for a coordinator."""
        self.ended.set()

    def _adopt(self, session: Any) -> None:
        """Go on with the one job that is there; of several none is trusted."""
        alive = {job.job_id for job in session.get_system_info().job_info}
        ours = {str(job["job_id"]): job["status"] for job in session.list_jobs(name_prefix=TASK)}
        there = [job for job, status in ours.items() if (job in alive or status in WAITING) and job not in self.dead]
        for job in there if len(there) > 1 else ():
            self._abort(session, job, "several jobs are there")
        self._watch(there[0] if len(there) == 1 else "")

    def _watch(self, job: str) -> None:
        self.job, self.since, self.strikes = job, time.monotonic(), 0
        self.carrier.expect(job)

    def _look(self, session: Any) -> None:
        if not self.job:
            self._submit(session)
            return
        status = str(session.get_job_status(self.job))
        if status.startswith("FINISHED"):
            soon = time.monotonic() - self.since < RETRY
            self.say(f"the job {self.job} is over ({status})" + f"; another one in {RETRY:g} s" * soon)
            self._watch("")
            self.hold = self.since + RETRY * soon
            return
        why = self._objection(session, status)
        self.strikes = self.strikes + 1 if why else 0
        if why and self.strikes >= STRIKES:
            self._abort(session, self.job, why)

    def _objection(self, session: Any, status: str) -> str | None:
        """Why the job is of no use any more."""
        if status != "RUNNING":
            return None
        if self.job not in {job.job_id for job in session.get_system_info().job_info}:
            return "it stands as RUNNING, and no process runs it"
        if self.carrier.silence() > SILENCE:
            return "it runs, and says nothing" if time.monotonic() - self.since > SILENCE else None
        idle = self._idle(session)
        return f"it runs without {', '.join(sorted(idle))}, and takes in nobody later" if idle else None

    def _idle(self, session: Any) -> set[str]:
        """Sites whose FLARE client answers, and runs no job; one that was killed may still be listed as connected."""
        told = session.get_client_job_status() or []
        return {str(entry.get("client_name")) for entry in told if entry.get("status") == "no_jobs"} & {*self.sites}

    def _submit(self, session: Any) -> None:
        """Submit the job when all sites are free for it, or some after a while."""
        if time.monotonic() < self.hold:
            return
        idle = self._idle(session)
        if len(idle) == len(self.sites) or (idle and time.monotonic() - self.since > GATHER):
            self._watch(session.submit_job(str(self.folder)))
            self.say(f"submitted the job {self.job} to {', '.join(sorted(idle))}")

    def _abort(self, session: Any, job: str, why: str) -> None:
        """Give a job up; one that its server's crash left behind cannot be aborted, and does no harm."""
        self.say(f"aborting the job {job}: {why}")
        self.dead.add(job)
        self._watch("")
        try:
            session.abort_job(job)
        except Exception as error:  # FLARE's client raises errors of many kinds
            self.say(f"the job {job} was not there to be aborted ({str(error)[:100]!a})")

"""The coordinator's commands: serve a network, make a run and watch it, its status, its end, its result.

Serving is one process: the carrier that sites connect to, the thread that carries runs, and the page. Killed at any
time and started again, it takes a run up where the last stored round left it. An error that another attempt would meet
again ends the run (failed.json); a full disk or a folder that cannot be read now is tried again.
"""

from __future__ import annotations

import ipaddress
import math
import os
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ... import files
from ...errors import FedLSAError, NetworkError, ResultFileError
from ...fitting.fitted import Fit
from ...threads import small_products
from .. import audit
from ..carriers import SignedTransport, installed_carrier
from ..carriers.grpc_carrier import GrpcCarrier
from ..folder.certificates import check_site
from ..folder.config import Network, certificate_warnings, read_file, warn_daily
from ..pages import CoordinatorState, PagePlace, announce
from ..processes import bracketed, check_stamp, interrupted_by_signals, is_held, only_one, reporting, until_ended
from ..protocol.run_settings import StartOptions
from .run_loop import complete_run, model_of
from .runs import RunFolder, RunSummary, all_runs, chosen, line, unfinished

MAX_STARTS = 10_000  # identities that are kept


class PinnedCertificates:
    """The approved certificate of each site, read again when a file has changed; safe to be asked very often."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, site: str) -> bytes | None:
        """The certificate (PEM) of a site that is listed, approved and within its dates; else None."""
        network = self.network()
        if site not in network.sites:
            return None
        path = network.site_certificate(site)
        try:
            pem = _read(path, _stamp(path))
            check_site(pem, network.id, site)  # which is quick for one that it has seen
        except (FileNotFoundError, FedLSAError):  # none; or damaged, of another name or authority, not valid today
            return None
        return pem

    def identity_files(self) -> tuple[bytes, bytes, bytes]:
        """The server's key and certificate, and all certificates that may come in; the authority's is there so that
        those of sites that an older program had certified are refused by name, and not without a word."""
        network = self.network()
        approved = (self(site) for site in network.sites)
        trusted = b"".join([network.ca.read_bytes(), *(pem for pem in approved if pem is not None)])
        return network.key.read_bytes(), network.certificate.read_bytes(), trusted

    def network(self) -> Network:
        """The network as its file says now."""
        return _load(self.folder, _stamp(self.folder / Network.FILE))


def _stamp(path: Path) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size, found.st_ino


_load = lru_cache(maxsize=16)(lambda folder, stamp: Network.load(folder))
_read = lru_cache(maxsize=1024)(lambda path, stamp: path.read_bytes())


class Lineage:
    """Every start of a coordinator has an identity of its own, and its folder keeps those of all before it.

    A site remembers whom it was with last, and asks a coordinator whether it knows that one. A restart does; a second
    coordinator that was started from a copy of the folder does not know the other's later starts, and is noticed.
    """

    def __init__(self, path: Path) -> None:
        self.identity = secrets.token_hex(8)
        before = read_file(path).decode("ascii", "replace").split()[-MAX_STARTS:] if path.exists() else []
        self.before = frozenset(before)
        files.write(path, "\n".join([*before, self.identity]).encode(), "the list of coordinators")

    def knows(self, identity: str) -> bool:
        """Whether this coordinator follows on one of that identity; an empty one is nobody's."""
        return not identity or identity == self.identity or identity in self.before


SERVED = "serve.pid"  # the file whose lock says that a network is being served
RUNS_POLL = 0.2  # seconds between looks for a new run
MAX_WAIT = 30.0  # seconds between attempts: they double
MAX_TRIES = 5  # attempts with the same unforeseen error before a run is given up
ALARM_SECONDS = 60.0  # in which a site raises one alarm at most
MAX_CONNECTIONS, OWN_FILES = 4096, 256  # of strangers and sites together; files that this process keeps for itself


class CoordinatorService:
    """A coordinator that serves from its beginning until `end`; carrier : as in `serve`."""

    def __init__(self, folder: Path | str, *, carrier: str | None = None, say: Callable[[str], None] = print) -> None:
        self.network = Network.load(folder)
        self.folder, self.say = self.network.folder.resolve(), say
        self.pinned = PinnedCertificates(self.folder)
        self._ended = threading.Event()
        self._alarms: dict[str, float] = {}
        if carrier is None:
            lineage = Lineage(self.folder / "coordinators")
            self.carrier: Any = GrpcCarrier(
                f"{bracketed(listening(self.network.host))}:{self.network.port}",
                self.pinned.identity_files,
                self.pinned,
                identity=lineage.identity,
                knows=lineage.knows,
                connections=connections(),
                say=self.say,
                alarm=self._alarm,
            )
        else:
            module, place = installed_carrier(carrier)
            self.carrier = module.open_coordinator(self.network, place, say)
        self.thread = threading.Thread(target=self._carry_runs, name="runs", daemon=True)
        self.thread.start()

    @property
    def alive(self) -> bool:
        return self.thread.is_alive()

    def missing(self) -> str:
        """Whom the coordinator waits for, in a sentence."""
        network, here = self.pinned.network(), set(self.carrier.present())
        away = [site for site in network.sites if site not in here]
        asked = [site for site in away if not network.site_certificate(site).exists()]
        if not away:
            return "all sites are here"
        approve = f"; not approved yet: {', '.join(asked)} (fedlsa network approve)" if asked else ""
        return f"waiting for {', '.join(away)}{approve}"

    def end(self) -> None:
        """Stop serving; a run that is not over goes on when the network is served again."""
        self._ended.set()
        self.carrier.close()

    def _carry_runs(self) -> None:
        attempts = Attempts(self.say)
        while not self._ended.is_set():
            run = None
            try:
                network = self.pinned.network()
                run = unfinished(network)
                if run is None:
                    self._ended.wait(RUNS_POLL)
                else:
                    carry(network, run, SignedTransport(self.carrier, network, run.name))
                attempts = Attempts(self.say)
            except Exception as error:  # whatever the disk does, the run on it is taken up again
                self._ended.wait(attempts.after(error, run))

    def _alarm(self, site: str, text: str) -> None:
        """Into the events of the run, where a person looks; the carrier has a thread for it, which may wait."""
        if time.monotonic() - self._alarms.get(site, -ALARM_SECONDS) < ALARM_SECONDS:
            return
        self._alarms[site] = time.monotonic()
        with suppress(FedLSAError, OSError):
            run = unfinished(self.network)
            if run is None:
                audit.note(self.folder, "alarm", site=site, text=text)
            else:
                run.note("alarm", site=site, text=text)


@small_products
def carry(network: Network, run: RunFolder, transport: SignedTransport) -> None:
    """Carry one run on; an error that another attempt would meet again ends it."""
    try:
        check_stamp(run.name, run.read("version.json"))
        complete_run(network, run, transport)
    except (FedLSAError, ValueError, ArithmeticError) as error:
        if may_pass(error):
            raise
        run.fail(str(error) if isinstance(error, FedLSAError) else f"{type(error).__name__}: {error}")


def may_pass(error: BaseException) -> bool:
    """Whether another attempt may not meet this error: the disk refused. A damaged file stays damaged."""
    if isinstance(error, ResultFileError):
        return isinstance(error.__cause__, OSError)
    return isinstance(error, OSError) or (isinstance(error, NetworkError) and isinstance(error.__cause__, OSError))


@dataclass
class Attempts:
    """How often in a row the same trouble was met at the same place of a run."""

    say: Callable[[str], None]
    last: tuple[str, bytes | None] = ("", None)
    count: int = 0

    def after(self, error: Exception, run: RunFolder | None) -> float:
        """Say what the trouble is, once; the seconds to wait. A run is given up where trying again does not help."""
        text, place = f"{type(error).__name__}: {error}", None
        if run is not None:
            with suppress(FedLSAError):
                place = run.stored()
        self.count = self.count + 1 if (text, place) == self.last else 1
        self.last = text, place
        known = may_pass(error) or isinstance(error, FedLSAError)
        if self.count == 1 or (not known and self.count <= MAX_TRIES):
            self.say(f"{text}; trying again" if known else "".join(traceback.format_exception(error)))
        if not may_pass(error) and run is not None and self.count >= MAX_TRIES:
            with suppress(OSError, FedLSAError):  # then the next attempt says it
                run.fail(f"the same error {self.count} times in a row: {text}")
        return min(0.5 * 2.0 ** min(self.count, 10), MAX_WAIT)


def connections() -> int:
    """How many connections may be open at once: as many as this process may have files, less its own."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    may, could = (math.inf if limit == resource.RLIM_INFINITY else limit for limit in (soft, hard))
    wanted = int(min(MAX_CONNECTIONS + OWN_FILES, could))
    if may < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(64, min(MAX_CONNECTIONS, int(max(min(may, 2**31), wanted)) - OWN_FILES))


def listening(host: str) -> str:
    """The address to listen on: loopback for loopback, else all, since a host's public name need not be its own."""
    try:
        at = ipaddress.ip_address("127.0.0.1" if host.lower() == "localhost" else host)
    except ValueError:  # a name
        return "0.0.0.0"
    if at.is_loopback:
        return str(at)
    return "::" if at.version == 6 else "0.0.0.0"


@contextmanager
def served(
    folder: Path | str,
    *,
    page: PagePlace | None = PagePlace(),  # noqa: B008  immutable
    carrier: str | None = None,
    say: Callable[[str], None] = print,
) -> Iterator[Callable[[], None]]:
    """Serve a network while the block lasts, which calls what it is given now and then.

    page : where the live page is shown, by default at the port that init chose, on loopback; None: nowhere
    carrier : NAME:PLACE, one that is installed beside fedlsa; sites are then reached through it, not at our own port
    """
    network = Network.load(folder)
    resolved = network.folder.resolve()
    report = reporting(resolved / "logs" / "serve.log", say)
    with only_one(resolved / SERVED, "this network is being served already"):
        where = f"over {carrier}" if carrier else f"at {bracketed(network.host)}:{network.port}"
        report(f"serving {len(network.sites)} sites {where}; Ctrl-C ends it")
        warn = warn_daily(network, report)
        service, shown, missing = CoordinatorService(resolved, carrier=carrier, say=report), None, ""

        def poll() -> None:
            nonlocal missing
            if not service.alive:  # this process ends, and a service manager starts it again
                raise NetworkError("the thread that carries runs has died; start the coordinator again")
            warn()
            before, missing = missing, service.missing()
            if missing != before:
                report(missing)

        try:
            if page is not None:
                port = network.page_port if page.port is None else page.port
                state = CoordinatorState(network, service.carrier.present, lambda: service.alive)
                shown = announce(lambda: state.show(port, page.address), report)
            report("ready: sites can join, runs can start")
            poll()
            yield poll
        finally:
            service.end()
            if shown is not None:
                shown.close()
    report("the coordinator has ended; a run that is not over goes on when it is served again")


def serve(folder: Path | str, **how: Any) -> None:
    """Run the coordinator until Ctrl-C or SIGTERM; how : see `served`."""
    with served(folder, **how) as poll:
        until_ended(poll)


def run(
    folder: Path | str, options: StartOptions, *, detach: bool = False, say: Callable[[str], None] = print
) -> RunFolder:
    """Start a run and show it until it is over; where nobody serves the network, it is served meanwhile.

    detach : leave the run to whoever serves the network, now or later
    """
    network = Network.load(folder)
    options.least(len(network.sites))
    begun = RunFolder.create(network, options)
    say(f"started {begun.name}")
    here = not is_held(network.folder / SERVED)
    if detach:
        if here:
            say("the coordinator is not running here: the run begins when it is (fedlsa network serve)")
        return begun
    with served(folder, say=say) if here else nullcontext(lambda: None) as poll, interrupted_by_signals():
        follow(begun, say, poll)
    return begun


def status(folder: Path | str, name: str | None = None) -> str:
    """Where a run stands, and which sites are there."""
    facts, network = status_facts(folder, name), Network.load(folder)
    lines = [f"the coordinator is {'running' if facts['running'] else 'not running (fedlsa network serve)'}"]
    lines += facts["warnings"]
    if facts["not_approved"]:
        lines.append(f"not approved yet: {', '.join(facts['not_approved'])} (fedlsa network approve)")
    run = facts["run"] and RunSummary(chosen(network, name)).read().lines(network.sites)
    return "\n".join([*lines, *(run or ["no run yet (fedlsa network run)"])])


def status_facts(folder: Path | str, name: str | None = None) -> dict[str, Any]:
    """The same for programs."""
    network = Network.load(folder)
    summary = RunSummary(chosen(network, name)).read() if name is not None or all_runs(network) else None
    sites = {site: summary.site(site) for site in network.sites} if summary is not None else {}
    return {
        "running": is_held(network.folder / SERVED),
        "warnings": certificate_warnings(network),
        "not_approved": [site for site in network.sites if not network.site_certificate(site).exists()],
        "sites": list(network.sites),
        "run": None if summary is None else summary.facts() | {"sites": sites},
    }


def stop(folder: Path | str, name: str | None = None) -> str:
    """Ask a run to stop after its open round."""
    network = Network.load(folder)
    run = chosen(network, name)
    if run.over:
        raise NetworkError(f"{run.name} is over already (fedlsa network result)")
    run.ask_to_stop()
    served = is_held(network.folder / SERVED)
    when = "after the round that is open" if served else "when the coordinator is served again"
    return f"{run.name} will end {when}; what it has so far is its result"


def model(folder: Path | str, name: str | None = None) -> Fit:
    """What came of a run as a model, which predicts and is saved as every fit is; its error bars are NaN."""
    found = outcome(folder, name)
    if "names" not in found:
        raise NetworkError(f"{found['experiment']} ended before it had an estimate: {found['over']}")
    return model_of(found, Network.load(folder).task)


def outcome(folder: Path | str, name: str | None = None) -> dict[str, Any]:
    """The content of a run's result.json."""
    run = chosen(Network.load(folder), name)
    failed = run.read("failed.json")
    if failed is not None:
        raise NetworkError(f"{run.name} failed: {failed['error']}")
    content = run.read("result.json")
    if content is None:
        raise NetworkError(f"{run.name} is not over yet (fedlsa network status)")
    return content


def follow(run: RunFolder, say: Callable[[str], None] = print, poll: Callable[[], None] = lambda: None) -> None:
    """Show a run until it is over, in a live table on a terminal; Ctrl-C ends the showing alone."""
    from rich.live import Live

    summary = RunSummary(run)
    try:
        with Live(summary.table(), refresh_per_second=4) if sys.stdout.isatty() else nullcontext() as live:
            for new in run.follow():
                poll()
                for event in new:
                    summary.take(event)
                    if live is None:
                        say(line(event))
                if live is not None:
                    live.update(summary.table())
    except KeyboardInterrupt:
        raise NetworkError(f"{run.name} is not over: it goes on while the network is served (status, stop)") from None

"""The coordinator's commands: serve the network, start a run and watch it, its status, its end, its result."""

from __future__ import annotations

import ipaddress
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ...errors import NetworkError
from ..disk import write_json
from ..flower import require_flower
from ..folder.config import Network
from ..processes import Child, ProcessGroup, Supervised, bracketed, environment, launched, module, only_one, reachable
from ..protocol.run_settings import StartOptions
from .runs import RunFolder, all_runs, chosen, line, standing, summary, table

LOUD = (
    "INSECURE: no TLS and no keys. Anyone who can reach this port reads what is sent and can pose as a site. "
    "Use it on one machine, for tests, and nowhere else."
)


class Coordinator(Supervised):
    """The processes of a coordinator: SuperLink and gate, and the worker that carries runs."""

    def __init__(
        self, folder: Path | str, *, gate: bool = True, insecure: bool = False, say: Callable[[str], None] = print
    ) -> None:
        require_flower()
        self.network = Network.load(folder)
        if gate:
            listening(self.network.host, insecure=insecure)  # refused now, and not when the gate is started
        self.folder, self.insecure, self.say = self.network.folder.resolve(), insecure, say
        env, logs = environment(self.folder / "flower"), self.folder / "logs"
        self.link = Child("the SuperLink", self._link, logs / "superlink.log", env)
        self.gate = Child("the gate", self._gate, logs / "gate.log", env) if gate else None
        self.worker = Child("the worker", self._worker, logs / "worker.log", env)
        self.groups = [ProcessGroup([child], say) for child in (self.link, self.gate, self.worker) if child]

    def _link(self) -> list[str]:
        n = self.network
        tls = ["--insecure"]
        if not self.insecure:
            tls = ["--ssl-ca-certfile", str(n.ca), "--ssl-certfile", str(n.certificate), "--ssl-keyfile", str(n.key)]
            tls.append("--enable-supernode-auth")
        return launched(
            "link",
            arguments=[
                *("--host", "127.0.0.1", "--port", str(n.inner_port), *tls),
                *("--isolation", "process", "--superexec-auth-secret-file", str(n.secret)),
                *("--database", str(self.folder / "flower" / "superlink.db")),
                "--disable-runtime-dependency-installation",
            ],
        )

    def _gate(self) -> list[str]:
        n = self.network
        tls = None if self.insecure else {"ca": str(n.ca), "certificate": str(n.certificate), "key": str(n.key)}
        given = {"host": listening(n.host, insecure=self.insecure), "port": n.port, "tls": tls}
        return launched("gate", arguments=[json.dumps(given | {"inner": n.superlink})])

    def _worker(self) -> list[str]:
        return module("fedlsa.network.flower.coordinator_worker", str(self.folder), str(int(self.insecure)))

    def ready(self) -> bool:
        """Whether the gate and the SuperLink answer."""
        own = listening(self.network.host)
        own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(own, own)
        places = [(self.link, "127.0.0.1", self.network.inner_port), (self.gate, own, self.network.port)]
        return all(child.pid is not None and reachable(host, port) for child, host, port in places if child is not None)


def listening(host: str, *, insecure: bool = False) -> str:
    """The address to listen on: loopback for loopback, else all, since a host's public name need not be its own.

    insecure : plain text without keys, which listens on loopback alone; for another host it is refused
    """
    try:
        at = ipaddress.ip_address("127.0.0.1" if host.lower() == "localhost" else host)
    except ValueError:  # a name
        at = ipaddress.ip_address("0.0.0.0")
    if at.is_loopback:
        return str(at)
    if insecure:
        raise NetworkError(f"with --insecure the host must be a loopback address such as 127.0.0.1; got {host}")
    return "::" if at.version == 6 else "0.0.0.0"


def serve(folder: Path | str, *, gate: bool = True, insecure: bool = False, say: Callable[[str], None] = print) -> None:
    """Run the coordinator until Ctrl-C or SIGTERM: children that die are started again, runs go on from the disk.

    gate : whether our own gate holds the address, or a proxy of the user's does (proxy/ in the folder)
    """
    if insecure:
        say(LOUD)
    it = Coordinator(folder, gate=gate, insecure=insecure, say=say)
    told = False

    def tell_when_ready() -> None:
        nonlocal told
        if not told and it.ready():
            say("ready: sites can join, runs can start")
            told = True

    with only_one(it.folder / "serve.pid", "this network is being served already"):
        n = it.network
        where = f"{bracketed(n.host)}:{n.port}" if gate else f"{n.superlink}, for a proxy on this machine"
        say(f"serving {len(n.sites)} sites at {where}; logs in {it.folder / 'logs'}; Ctrl-C ends it")
        it.run(tell_when_ready)
    say("the coordinator has ended; a run that is not over goes on when it is served again")


def start(
    folder: Path | str, options: StartOptions, *, detach: bool = False, say: Callable[[str], None] = print
) -> RunFolder:
    """Start a run and show it until it is over (Ctrl-C ends the showing, not the run); detach : leave at once."""
    network = Network.load(folder)
    options.least(len(network.sites))
    run = RunFolder.create(network, options)
    say(f"started {run.name}")
    if not reachable("127.0.0.1", network.inner_port):
        say("the coordinator is not running here: the run begins when it is (fedlsa network serve)")
    if not detach:
        follow(run, say)
    return run


def status(folder: Path | str, name: str | None = None) -> str:
    """Where a run stands, and which sites are there."""
    network = Network.load(folder)
    served = reachable("127.0.0.1", network.inner_port)
    lines = [f"the coordinator is {'running' if served else 'not running (fedlsa network serve)'}"]
    if name is None and not all_runs(network):
        return "\n".join([*lines, "no run yet (fedlsa network start)"])
    return "\n".join([*lines, *standing(chosen(network, name))])


def stop(folder: Path | str, name: str | None = None) -> str:
    """Ask a run to stop after its open round."""
    network = Network.load(folder)
    run = chosen(network, name)
    if run.over:
        raise NetworkError(f"{run.name} is over already (fedlsa network result)")
    run.ask_to_stop()
    served = reachable("127.0.0.1", network.inner_port)
    when = "after the round that is open" if served else "when the coordinator is served again"
    return f"{run.name} will end {when}; what it has so far is its result"


def result(folder: Path | str, name: str | None = None, *, out: Path | None = None) -> str:
    """What came of a run, in words and numbers on the original scale; out : a JSON file to save it in."""
    content = outcome(folder, name)
    if out is not None:
        write_json(out, content, "the result")
    return "\n".join(summary(content))


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


def follow(run: RunFolder, say: Callable[[str], None] = print) -> None:
    """Show a run until it is over, in a live table on a terminal; Ctrl-C ends the showing alone."""
    from rich.live import Live

    events: list[dict[str, Any]] = []
    try:
        with Live(table(run.name, events), refresh_per_second=4) if sys.stdout.isatty() else nullcontext() as live:
            for new in run.follow():
                events += new
                if live is not None:
                    live.update(table(run.name, events))
                    continue
                for event in new:
                    say(line(event))
    except KeyboardInterrupt:
        say(f"{run.name} goes on; fedlsa network status shows it, fedlsa network stop ends it")
        return
    for text in standing(run):
        say(text)

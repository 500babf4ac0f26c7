"""The coordinator's commands: make a run and watch it, its status, its end, its result (serve: serving.py)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ...errors import NetworkError
from ...fitting.fitted import Fit
from ..folder.config import Network, certificate_warnings
from ..processes import interrupted_by_signals, is_held
from ..protocol.run_settings import StartOptions
from .run_summary import RunSummary, line
from .runs import RunFolder, all_runs, chosen
from .serving import SERVED, served
from .standard_errors import model_of


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
    if facts["run"] is None:
        return "\n".join([*lines, "no run yet (fedlsa network run)"])
    return "\n".join([*lines, *RunSummary(chosen(network, name)).read().lines(network.sites)])


def status_facts(folder: Path | str, name: str | None = None) -> dict[str, Any]:
    """The same for programs."""
    network = Network.load(folder)
    any_run = name is not None or all_runs(network)
    summary = RunSummary(chosen(network, name)).read() if any_run else None
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
    """Show a run until it is over, in a live table on a terminal; Ctrl-C ends the showing alone.

    poll : called now and then
    """
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

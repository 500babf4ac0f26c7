"""The commands `fedlsa network ...` with which a site looks at its ledger and lets runs in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import NetworkError
from ..network.folder.config import SiteFolder
from .display import print_json
from .enrolment_command import SITE_PANEL
from .options import AS_JSON, App, option, switch

LEDGER_EXAMPLES = (
    "fedlsa network ledger site-1",
    "fedlsa network ledger site-1 --json > ledger.json",
)
ALLOW_EXAMPLES = (
    "fedlsa network allow site-1",
    "fedlsa network allow site-1 trial",
)
SiteDir = Annotated[
    Path, typer.Argument(help="What fedlsa network request made.", show_default=False, metavar="FOLDER")
]
app = App()


@app.command(examples=LEDGER_EXAMPLES, rich_help_panel=SITE_PANEL)
def ledger(
    folder: SiteDir,
    last: int = typer.Option(20, help="Entries to show.", min=0),
    head: str | None = option(
        "That the site's page showed before: the ledger must still hold it.", shown="not compared"
    ),
    json: bool = AS_JSON,
) -> None:
    """Verify a site's ledger, a hash chain, and show what was asked, what left, and what is spent."""
    from ..network import chain
    from ..network.site import ledger as report

    if head is not None:
        chain.verify(SiteFolder.load(folder).ledger, chain.ChainHead.from_text(head))
    if json:
        print_json(**report.ledger_facts(folder))
        return
    for line in report.ledger_report(folder, last):
        print(line)


@app.command(examples=ALLOW_EXAMPLES, rich_help_panel=SITE_PANEL)
def allow(
    folder: SiteDir,
    run: Annotated[
        str | None, typer.Argument(help="The run's name.", show_default="those that wait are shown", metavar="RUN")
    ] = None,
    yes: bool = switch("--yes", "Do not ask."),
) -> None:
    """Let a run in, at a site whose policy wants a person to allow each (approve_runs)."""
    from ..network.site import policy

    site = SiteFolder.load(folder)
    waiting = policy.waiting(site.folder)
    for name, words in waiting.items() if run is None else ():
        print(f"{name} waits: {' '.join(words)}")
    if run is None:
        if not waiting:
            print("no run waits")
        return
    for line in waiting.get(run, ()):
        print(line)
    if run in waiting and not yes and not typer.confirm(f"allow {run}?", default=False):
        raise NetworkError(f"{run} is not allowed: nothing of it is answered")
    policy.allow(site.folder, run)
    print(f"{run} is allowed on these terms; other terms would ask again")

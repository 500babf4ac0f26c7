"""The commands `fedlsa network nvflare-...`: a network over NVIDIA FLARE, for institutions that run it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import checks
from ..network.folder.config import Network
from . import parsing
from .enrolment_command import Folder
from .options import App, option

KIT_EXAMPLES = (
    "fedlsa network nvflare-kit net kit --host fl.example.org",
    "fedlsa network nvflare-harden kits/site-1 --socket /run/fedlsa/site-1.sock",
)
FLARE_PORT = 8002
FlareFolder = Annotated[
    Path, typer.Argument(help="What nvflare package made for this side.", show_default=False, metavar="KIT")
]
app = App()


@app.command("nvflare-kit", examples=KIT_EXAMPLES, rich_help_panel="Over NVIDIA FLARE")
def nvflare_kit(
    folder: Folder,
    out: Path = typer.Argument(help="A new folder.", show_default=False, metavar="OUT"),
    host: str | None = option("Of FLARE's server.", shown="the network's"),
    port: int = option("Of FLARE's server.", FLARE_PORT),
) -> None:
    """Write what each side needs to get a FLARE key of its own, the job to look at, and a README for institutions."""
    from ..network.carriers.nvflare import relay

    network = Network.load(folder)
    parsing.check_target("the kit", out)
    relay.write_kit(
        out, network.id, host or network.host, checks.integer("port", port, at_least=1, at_most=65535), network.sites
    )
    print(f"made {out}: send each site its NAME.yaml and README.md; how to go on: {out / 'README.md'}")


@app.command("nvflare-harden", examples=KIT_EXAMPLES, rich_help_panel="Over NVIDIA FLARE")
def nvflare_harden(
    kit: FlareFolder,
    socket: Path = option("Where this machine's fedlsa listens for it.", ...),
) -> None:
    """Write this side's own limits into its FLARE folder: class list, rights, filter, no streaming of logs."""
    from ..network.carriers.nvflare import relay

    side = relay.harden(kit, socket)
    print(f"{kit} is hardened as a {side}: it runs the relay of fedlsa and nothing else; restart FLARE there")

"""The command `fedlsa-nvflare`: the kit that institutions need for FLARE, and the limits of each side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedlsa.errors import FedLSAError
from fedlsa.files import reason
from fedlsa.network.folder.config import Network

from .relay import harden, write_kit

FLARE_PORT = 8002


def kit(asked: argparse.Namespace) -> str:
    """Write what each side needs to get a FLARE key of its own, the job to look at, and a README for institutions."""
    known = Network.load(asked.folder)
    write_kit(asked.out, known.id, asked.host or known.host, asked.port, known.sites)
    return f"made {asked.out}: send each site its NAME.yaml and README.md; how to go on: {asked.out / 'README.md'}"


def limits(asked: argparse.Namespace) -> str:
    """Write this side's own limits into its FLARE folder: class list, rights, filter, no streaming of logs."""
    side = harden(asked.kit, asked.socket)
    return f"{asked.kit} is hardened as a {side}: it runs the relay of fedlsa and nothing else; restart FLARE there"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    parser = argparse.ArgumentParser("fedlsa-nvflare", description="The network of fedlsa over NVIDIA FLARE.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    making = commands.add_parser("kit", help=kit.__doc__, description=kit.__doc__)
    making.set_defaults(run=kit)
    making.add_argument("folder", type=Path, help="what fedlsa network init made")
    making.add_argument("out", type=Path, help="a new folder")
    making.add_argument("--host", help="of FLARE's server; by default the network's")
    making.add_argument("--port", type=int, default=FLARE_PORT, help="of FLARE's server (%(default)s)")
    limiting = commands.add_parser("harden", help=limits.__doc__, description=limits.__doc__)
    limiting.set_defaults(run=limits)
    limiting.add_argument("kit", type=Path, help="what nvflare package made for this side")
    limiting.add_argument("--socket", type=Path, required=True, help="where this machine's fedlsa listens for it")
    asked = parser.parse_args(arguments)
    try:
        print(asked.run(asked))
    except (FedLSAError, OSError) as error:
        print(f"fedlsa-nvflare: {error if isinstance(error, FedLSAError) else reason(error)}", file=sys.stderr)
        return 2
    return 0

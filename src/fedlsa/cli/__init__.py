"""The command `fedlsa`: thin. It parses, calls one function, and prints; every error is one line and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 after an error, 130 after an interruption."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that has no ± still gets its table
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["--version"]:  # needs nothing that may be missing
        from ..installation import __version__

        print(f"fedlsa {__version__}")
        return 0
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        print("fedlsa: the command line needs typer and rich: pip install 'fedlsa[cli]'", file=sys.stderr)
        return 2
    try:
        from .command_line import run

        return run(words)
    except KeyboardInterrupt:  # while loading; `run` sees to the rest
        print("fedlsa: interrupted", file=sys.stderr)
        return 130

"""The command `fedlsa`: thin. It parses, calls one function, and prints; every error is one line and exit code 2."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code: 0, 2 after an error, 130 after an interruption, 1 where nobody reads."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that has no ± still gets its table
    words, code = sys.argv[1:] if arguments is None else list(arguments), 0
    try:
        if words[:1] == ["--version"]:  # needs nothing that may be missing
            from ..installation import __version__

            print(f"fedlsa {__version__}")
        else:
            from .command_line import run

            code = run(words)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a full disk is still one line
        return code
    except ModuleNotFoundError as error:
        from ..installation import extra_of

        extra = extra_of(error.name)
        if extra is None:
            raise
        name = str(error.name).partition(".")[0]
        return complain(f"this needs {name}, which is not installed: pip install 'fedlsa[{extra}]'")
    except OSError as error:  # of standard output: `run` sees to the rest
        sys.stdout = None  # what it still holds would be tried again at the end
        return 1 if isinstance(error, BrokenPipeError) else code or complain(f"standard output: {error.strerror}")
    except KeyboardInterrupt:  # while loading; `run` sees to the rest
        return complain("interrupted", 130)


def complain(message: str, code: int = 2) -> int:
    """One line on standard error; the code."""
    with contextlib.suppress(OSError):  # a full disk
        if sys.stderr is not None:  # print would take standard output instead
            print(f"fedlsa: {' '.join(message.split())}", file=sys.stderr)
    return code

"""The command `fedlsa`: all commands in one place, and one line for every error.

Only the command that is called is loaded, with all that it needs; of the others the help shows one line.
"""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .. import checks
from ..errors import FedLSAError, FedLSAWarning
from . import complain
from .options import App, CommandGroup

INTERRUPTED = 130
UsageError: Any = typer.BadParameter.__base__  # for which typer has no public name
HELP = (
    "Federated linear stochastic approximation: many agents, one linear system, few communications.\n\n"
    "[bold]FedLSA[/bold] averages what agents learn locally, and stalls at a bias when they differ; "
    "[bold]SCAFFLSA[/bold] and [bold]Scaffnew[/bold] remove it with control variates. "
    "Simulate them here, save the results, draw the figures, have the exact errors without a simulation, fit "
    "one model to the files of many sites, or run across real sites."
)
EXAMPLES = (
    "[bold]Try this[/bold]",
    "fedlsa simulate --agents 10 --local-steps 100 --rounds 200 --out out/first --plot out/first.png",
    "fedlsa plot out/first/*.nc --x samples --scale log --out out/samples.pdf",
    "fedlsa simulate --method scaffnew --probability 0.01 --sampling markov --thin 5",
    "fedlsa theory --agents 10 --perturbation 0 --local-steps 100 --plot out/parts.png",
    "fedlsa plan --agents 10 --perturbation 0 --epsilon 0.1 --method fedlsa --method scafflsa",
    "fedlsa fit regression firm-*.csv --target invest --out model.json",
    "fedlsa network demo",
)
COMMANDS = {  # the first line of each one's help
    "simulate": "Run methods on a problem, all on the same random numbers; show, save and draw how far they get.",
    "plot": "Draw the error of saved results against their cost, with the bias that theory predicts for FedLSA.",
    "theory": "The exact expected error of methods, split into start, drift and noise, for i.i.d. observations.",
    "plan": "The cheapest run of each method that reaches a target, by exact errors, and the command that runs it.",
    "explore": "Move sliders and see client drift: a page in your browser, served from this machine alone.",
    "reproduce": (
        "Reproduce the paper: compute what is missing, draw every figure, decide every claim, write the report."
    ),
    "evaluate": "How a fitted model does on data that it has not seen, file by file and on all together.",
    "predict": (
        "A fitted model at the rows of a file: values with standard errors, intervals, and those of a new observation."
    ),
    "fit": "Estimate one model from the files of all sites, with error bars.",
    "network": "Run the same recursion across real sites.",
}
BESIDE = {"plan": "theory", "evaluate": "fit", "predict": "fit"}  # in whose file they stand


class LazyGroup(CommandGroup):
    """The commands of the table: help and completion show a line of each, and the one that is called is loaded."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.commands = {name: TyperCommand(name, help=line) for name, line in COMMANDS.items()}

    def load(self, *names: str) -> None:
        """Put commands in the place of their lines."""
        for name in names:
            module = import_module(f".{BESIDE.get(name, name)}_command", __package__)
            self.commands[name] = typer.main.get_group(module.app).commands[name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called, or whose words a shell completes."""
        if args[0] in self.commands:
            self.load(args[0])
        return super().resolve_command(ctx, args)


app = App(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(help=HELP, epilog="\n\n".join(EXAMPLES))
def fedlsa(version: Annotated[bool, typer.Option("--version", help="Show the version and leave.")] = False) -> None:
    """What all commands share; `main` answers --version itself, for it needs nothing that may be missing."""


def run(arguments: list[str]) -> int:
    """The exit code of a command line; whatever the user can cause ends as one line on standard error."""
    try:
        with warnings_as_lines():
            command = shlex.join(["fedlsa", *arguments]).encode(errors="replace").decode()  # it goes into files
            code = app(arguments, prog_name="fedlsa", standalone_mode=False, obj=command)
        if code == INTERRUPTED:  # typer has caught the interruption itself
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except SystemExit as leave:  # a shell has its completions
        return leave.code if isinstance(leave.code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return complain("interrupted", INTERRUPTED)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help has been shown
            return 2
        return complain(_usage(error, arguments))
    except BrokenPipeError:  # nobody reads what is printed
        raise
    except RecursionError:
        return complain("too deep: a path has at most some hundred folders, a formula as many brackets")
    except (FedLSAError, OSError, MemoryError, UnicodeError) as error:
        return complain(str(error) or type(error).__name__)
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        return complain(f"{error}: the limit of processes is reached (ulimit -u)")


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Each warning of fedlsa as one line on standard error; those of others as they come."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", FedLSAWarning)
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, FedLSAWarning):
                print(f"fedlsa: warning: {' '.join(str(message).split())}", file=sys.stderr)
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        yield


def _usage(error: Any, arguments: list[str]) -> str:
    """What is wrong with the command line, with the value that was given."""
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        flags = [flag for p in error.ctx.command.params for flag in (*p.opts, *p.secondary_opts) if flag[0] == "-"]
        return f"there is no option {error.option_name!r}{checks.did_you_mean(error.option_name, flags)}"
    message = re.sub(r"^Invalid value for '(.+?)': Input should (be [^,]+).*", r"\1 must \2", error.format_message())
    for option in getattr(getattr(error, "param", None), "opts", ()):
        given = [b for a, b in pairwise(arguments) if a == option]
        given += [a.partition("=")[2] for a in arguments if a.startswith(f"{option}=")]
        if given and repr(given[-1]) not in message:
            return f"{message}; got {given[-1]!r}"
    return message

"""The command `fedlsa`: all commands in one place, and one line for every error."""

from __future__ import annotations

import shlex
import sys
from itertools import pairwise
from typing import Annotated, Any

import typer

from .. import __version__
from ..errors import FedLSAError
from . import explore_command, fit_command, network_command, predict_command, reproduce_command, simulate_command
from .derived import in_words_of
from .display import warnings_as_lines

INTERRUPTED = 130
ClickException: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: list[str]) -> int:
    """The exit code of a command line; whatever the user can cause ends as one line on standard error."""
    try:
        with warnings_as_lines():
            command = shlex.join(["fedlsa", *arguments])
            code = app(arguments, prog_name="fedlsa", standalone_mode=False, obj=command)
        if code == INTERRUPTED:  # typer has caught the interruption itself
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED)
    except FedLSAError as error:
        return _complain(in_words_of(_command(arguments), str(error)), 2)
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help has been shown
            return 2
        return _complain(_usage(error, arguments), 2)
    except (OSError, MemoryError) as error:
        return _complain(str(error) or type(error).__name__, 2)


def _command(arguments: list[str]) -> Any:
    """The command that the arguments name."""
    command: Any = typer.main.get_command(app)
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    return command


def _usage(error: Any, arguments: list[str]) -> str:
    """What is wrong with the command line, with the value that was given."""
    message = str(error.format_message())
    for option in getattr(getattr(error, "param", None), "opts", ()):
        given = [b for a, b in pairwise(arguments) if a == option]
        given += [a.partition("=")[2] for a in arguments if a.startswith(f"{option}=")]
        if given and repr(given[-1]) not in message:
            return f"{message}; got {given[-1]!r}"
    return message


def _complain(message: str, code: int) -> int:
    print(f"fedlsa: {' '.join(message.split())}", file=sys.stderr)
    return code


def _version(asked: bool) -> None:
    if asked:
        print(f"fedlsa {__version__}")
        raise typer.Exit


@app.callback(
    help=(
        "Federated linear stochastic approximation: many agents, one linear system, few communications.\n\n"
        "[bold]FedLSA[/bold] averages what agents learn locally, and stalls at a bias when they differ; "
        "[bold]SCAFFLSA[/bold] and [bold]Scaffnew[/bold] remove it with control variates. "
        "Simulate them here, save the results, draw the figures, have the exact errors without a simulation, fit "
        "one model to the files of many sites, or run across real sites."
    ),
    epilog="""[bold]Try this[/bold]

fedlsa simulate --agents 10 --local-steps 100 --rounds 200 --out out/first --plot out/first.png

fedlsa plot out/first/*.nc --x samples --scale log --out out/samples.pdf

fedlsa simulate --method scaffnew --probability 0.01 --sampling markov --thin 5

fedlsa theory --agents 10 --perturbation 0 --local-steps 100 --plot out/parts.png

fedlsa plan --agents 10 --perturbation 0 --epsilon 0.1 --method fedlsa --method scafflsa

fedlsa fit regression firm-*.csv --target invest --out model.json

fedlsa network demo""",
)
def fedlsa(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """What all commands share."""


app.command(epilog=simulate_command.SIMULATE_EXAMPLES)(simulate_command.simulate)
app.command(epilog=simulate_command.PLOT_EXAMPLES)(simulate_command.plot)
app.command(epilog=predict_command.THEORY_EXAMPLES)(predict_command.theory)
app.command(epilog=predict_command.PLAN_EXAMPLES)(predict_command.plan)
app.command(epilog=explore_command.EXAMPLES)(explore_command.explore)
app.command(epilog=reproduce_command.EXAMPLES)(reproduce_command.reproduce)
app.add_typer(fit_command.app, name="fit", help=fit_command.FIT_HELP)
app.add_typer(network_command.app, name="network", help=network_command.NETWORK_HELP)
app.command(epilog=fit_command.EVALUATE_EXAMPLES)(fit_command.evaluate)

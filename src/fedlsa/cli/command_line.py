"""The command `fedlsa`: all commands in one place, and one line for every error.

Only the command that is called is loaded, with all that it needs; of the others the help shows one line.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any

import typer

from .. import checks
from ..errors import FedLSAError
from . import complain
from .derived import CommandGroup, in_words_of
from .display import warnings_as_lines

INTERRUPTED = 130
HELP = (
    "Federated linear stochastic approximation: many agents, one linear system, few communications.\n\n"
    "[bold]FedLSA[/bold] averages what agents learn locally, and stalls at a bias when they differ; "
    "[bold]SCAFFLSA[/bold] and [bold]Scaffnew[/bold] remove it with control variates. "
    "Simulate them here, save the results, draw the figures, have the exact errors without a simulation, fit "
    "one model to the files of many sites, or run across real sites."
)
EXAMPLES = """[bold]Try this[/bold]

fedlsa simulate --agents 10 --local-steps 100 --rounds 200 --out out/first --plot out/first.png

fedlsa plot out/first/*.nc --x samples --scale log --out out/samples.pdf

fedlsa simulate --method scaffnew --probability 0.01 --sampling markov --thin 5

fedlsa theory --agents 10 --perturbation 0 --local-steps 100 --plot out/parts.png

fedlsa plan --agents 10 --perturbation 0 --epsilon 0.1 --method fedlsa --method scafflsa

fedlsa fit regression firm-*.csv --target invest --out model.json

fedlsa network demo"""
ClickException: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
COMMANDS = {  # the module of each, and the first line of its help
    "simulate": (
        "simulate_command",
        "Run methods on a problem, all on the same random numbers; show, save and draw how far they get.",
    ),
    "plot": (
        "simulate_command",
        "Draw the error of saved results against their cost, with the bias that theory predicts for FedLSA.",
    ),
    "theory": (
        "predict_command",
        "The exact expected error of methods, split into start, drift and noise, for i.i.d. observations.",
    ),
    "plan": (
        "predict_command",
        "The cheapest run of each method that reaches a target, by exact errors, and the command that runs it.",
    ),
    "explore": (
        "explore_command",
        "Move sliders and see client drift: a page in your browser, served from this machine alone.",
    ),
    "reproduce": (
        "reproduce_command",
        "Reproduce the paper: compute what is missing, draw every figure, decide every claim, write the report.",
    ),
    "evaluate": (
        "fit_command",
        "How a fitted model does on data that it has not seen, file by file and on all together.",
    ),
    "predict": (
        "fit_command",
        "A fitted model at the rows of a file: values with standard errors, intervals, and those of a new observation.",
    ),
    "fit": ("fit_command", "Estimate one model from the files of all sites, with error bars."),
    "network": ("network_command", "Run the same recursion across real sites."),
}


def run(arguments: list[str]) -> int:
    """The exit code of a command line; whatever the user can cause ends as one line on standard error."""
    try:
        with warnings_as_lines():
            command = shlex.join(["fedlsa", *arguments]).encode(errors="replace").decode()  # it goes into files
            known = application(_called(arguments or _being_completed()))
            code = known(arguments, prog_name="fedlsa", standalone_mode=False, obj=command)
        if code == INTERRUPTED:  # typer has caught the interruption itself
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except SystemExit as leave:  # a shell has its completions
        return leave.code if isinstance(leave.code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return complain("interrupted", INTERRUPTED)
    except FedLSAError as error:
        return complain(in_words_of(_command(arguments), str(error)))
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help has been shown
            return 2
        return complain(_usage(error, arguments))
    except BrokenPipeError:  # nobody reads what is printed
        raise
    except RecursionError:
        return complain("too deep: a path has at most some hundred folders, a formula as many brackets")
    except (OSError, MemoryError, UnicodeError) as error:
        return complain(str(error) or type(error).__name__)
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        return complain(f"{error}: the limit of processes is reached (ulimit -u)")


def _called(arguments: list[str]) -> list[str]:
    return [word for word in arguments if word in COMMANDS][:1]


def _being_completed() -> list[str]:
    """The words of which a shell asks how they may go on: bash says them in one variable, the others in another."""
    return f"{os.environ.get('COMP_WORDS', '')} {os.environ.get('_TYPER_COMPLETE_ARGS', '')}".split()


def _command(arguments: list[str]) -> Any:
    """The command that the arguments name."""
    command: Any = typer.main.get_command(application(_called(arguments)))
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    return command


def _usage(error: Any, arguments: list[str]) -> str:
    """What is wrong with the command line, with the value that was given."""
    context, kind = getattr(error, "ctx", None), type(error).__name__
    if kind == "NoSuchOption" and context is not None:
        flags = [flag for p in context.command.params for flag in (*p.opts, *p.secondary_opts) if flag[0] == "-"]
        return f"there is no option {error.option_name!r}{checks.did_you_mean(error.option_name, flags)}"
    known = getattr(getattr(context, "command", None), "commands", {})
    unknown = next((word for word in arguments if f"No such command {word!r}" in str(error.message)), None)
    if unknown is not None:
        return f"there is no command {unknown!r}{checks.did_you_mean(unknown, known)}"
    message = str(error.format_message())
    for option in getattr(getattr(error, "param", None), "opts", ()):
        given = [b for a, b in pairwise(arguments) if a == option]
        given += [a.partition("=")[2] for a in arguments if a.startswith(f"{option}=")]
        if given and repr(given[-1]) not in message:
            return f"{message}; got {given[-1]!r}"
    return message


def fedlsa(version: Annotated[bool, typer.Option("--version", help="Show the version and leave.")] = False) -> None:
    """What all commands share; `main` answers --version itself, for it needs nothing that may be missing."""


def application(called: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with its commands, of which those that are `called` are loaded."""
    app = CommandGroup(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=HELP, epilog=EXAMPLES)(fedlsa)
    for name, (module, line) in COMMANDS.items():
        if name not in called:
            app.command(name, help=line)(lambda: None)
            continue
        loaded = vars(import_module(f".{module}", __package__))
        if f"{name.upper()}_HELP" in loaded:  # a group of commands
            app.add_typer(loaded["app"], name=name, help=loaded[f"{name.upper()}_HELP"])
        else:
            app.command(epilog=loaded[f"{name.upper()}_EXAMPLES"])(loaded[name])
    return app

"""The commands `fedlsa simulate` and `fedlsa plot`, and the door to those of other files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__, checks, engine, figures, results
from ..errors import FedLSAError
from ..figures.drawing_checks import SCALES
from ..figures.lines import COSTS
from ..figures.matplotlib_figures import checked_path
from ..problems import Problem
from . import explore, fit, network, options, predict, report
from . import reproduce as paper
from .method import METHOD, LocalSteps, Probability, StepSize, method_option
from .problem import takes_problem

RUN, OUTPUT = "Run", "Output"
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
        with report.warnings_as_lines():
            command = shlex.join(["fedlsa", *arguments])
            code = app(arguments, prog_name="fedlsa", standalone_mode=False, obj=command)
        if code == INTERRUPTED:  # typer has caught the interruption itself
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED)
    except FedLSAError as error:
        return _complain(options.in_words_of_the_command(str(error)), 2)
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help has been shown
            return 2
        return _complain(_usage(error, arguments), 2)
    except (OSError, MemoryError) as error:
        return _complain(str(error) or type(error).__name__, 2)


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
        "one model to the files of many sites, or run across real sites that trust their coordinator."
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


@app.command(
    epilog="""[bold]Examples[/bold]

fedlsa simulate --local-steps 1000 --plot drift.png

fedlsa simulate --method fedlsa --method scafflsa --method scaffnew --seeds 20 --out out/three

fedlsa simulate --method fedlsa --step-size 0.5 --power 0.7 --participation 0.3 --out run.nc"""
)
@takes_problem
def simulate(
    context: typer.Context,
    instance: Callable[[], Problem],
    method: Annotated[list[str] | None, method_option("fedlsa and scafflsa")] = None,
    step_size: StepSize = 0.1,
    power: Annotated[
        float | None,
        typer.Option(help="Decrease the step: eta / (t + 1)^power in round t.", rich_help_panel=METHOD),
    ] = None,
    local_steps: LocalSteps = 10,
    probability: Probability = None,
    participation: Annotated[
        str | None,
        typer.Option(
            help="Share of the agents that take part in a round, such as 0.3.",
            show_default="all agents",
            rich_help_panel=METHOD,
        ),
    ] = None,
    participants: Annotated[
        int | None,
        typer.Option(help="The same as a count.", show_default=False, rich_help_panel=METHOD),
    ] = None,
    projection: Annotated[
        float | None, typer.Option(help="Radius of the ball that holds theta.", rich_help_panel=METHOD)
    ] = None,
    average_after: Annotated[
        int | None, typer.Option(help="Report the mean of iterates from this round on.", rich_help_panel=METHOD)
    ] = None,
    rounds: Annotated[int, typer.Option(help="Communications T.", rich_help_panel=RUN)] = 500,
    seeds: Annotated[str, typer.Option(help="A count (10) or a list (3,5,8).", rich_help_panel=RUN)] = "10",
    sampling: Annotated[
        str, typer.Option(help="iid or markov (one trajectory per agent).", rich_help_panel=RUN)
    ] = "iid",
    thin: Annotated[
        int | None,
        typer.Option(help="markov: use every thin-th observation.", rich_help_panel=RUN),
    ] = None,
    engine_name: Annotated[
        str,
        typer.Option(
            "--engine",
            help="cpu, cuda (an NVIDIA GPU), auto (whichever is quicker) or reference (to be read).",
            rich_help_panel=RUN,
        ),
    ] = "cpu",
    dtype: Annotated[str, typer.Option(help="float64 or float32.", rich_help_panel=RUN)] = "float64",
    threads: Annotated[int | None, typer.Option(help="By default all cores.", rich_help_panel=RUN)] = None,
    record: Annotated[
        str, typer.Option(help="Rounds to keep: how many (200), or which (0,10,100).", rich_help_panel=RUN)
    ] = "200",
    out: Annotated[
        Path | None,
        typer.Option(help="Save results: FILE.nc, or a folder with a file per method.", rich_help_panel=OUTPUT),
    ] = None,
    plot_to: Annotated[
        Path | None, typer.Option("--plot", help="Draw the error curves: .png, .pdf or .svg.", rich_help_panel=OUTPUT)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.", rich_help_panel=OUTPUT)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No bar and no table.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Run methods on a problem, all on the same random numbers; show, save and draw how far they get."""
    names = method or ["fedlsa", "scafflsa"]
    chosen = options.algorithms(
        names, step_size, power, local_steps, probability, participation, participants, projection, average_after
    )
    how = options.sampling(sampling, thin)
    seed_list, kept = options.count_or_list("--seeds", seeds), options.count_or_list("--record", record)
    files = [] if out is None else options.result_paths(out, names)
    pictures = [] if plot_to is None else [checked_path(plot_to)]
    options.refuse_to_overwrite(files + pictures, force)
    for option, paths in (("--out", files), ("--plot", pictures)):
        for path in paths:
            options.check_folder(option, path)
    made = instance()
    compiled = engine_name != "reference"
    with report.live_bar(" + ".join(names), shown=not quiet, updates=compiled) as progress:
        runs = engine.simulate_grid(
            made,
            chosen,
            rounds=rounds,
            seeds=seed_list,
            sampling=how,
            engine=engine_name,
            record=kept,
            dtype=dtype,
            threads=threads,
            progress=progress,
        )
    bias = [figures.predicted_bias(r, made) for r in runs]
    if not quiet:
        report.print_table(runs, bias)
    for result, path in zip(runs, files, strict=False):
        path.parent.mkdir(parents=True, exist_ok=True)
        results.save(result, path)
    for path in pictures:
        path.parent.mkdir(parents=True, exist_ok=True)
        figures.save(figures.error_curves(runs, bias=bias), path, command=context.obj)
    if not quiet:
        for path in files + pictures:
            print(f"saved {path}")
        if files:
            print(f"draw it:  fedlsa plot {shlex.join(map(str, files))}")
        elif not pictures:
            print("nothing saved: --out FILE.nc keeps the results, --plot FILE.png draws them")


@app.command(
    epilog="""[bold]Examples[/bold]

fedlsa plot fedlsa.nc scafflsa.nc

fedlsa plot out/*.nc --x samples --scale log --title "Error against data" --out figure.pdf"""
)
def plot(
    context: typer.Context,
    result: Annotated[list[Path], typer.Argument(help="Files that fedlsa simulate --out wrote.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The figure: .png, .pdf or .svg; one that exists is replaced.")] = Path(
        "figure.png"
    ),
    x: Annotated[str, typer.Option(help="communications, samples (per agent) or uploads (messages).")] = (
        "communications"
    ),
    scale: Annotated[str, typer.Option(help="Of the horizontal axis: linear or log.")] = "linear",
    title: Annotated[str | None, typer.Option(help="A line above the figure.", show_default=False)] = None,
) -> None:
    """Draw the error of saved results against their cost, with the bias that theory predicts for FedLSA."""
    checks.choice("--x", x, COSTS)
    checks.choice("--scale", scale, SCALES)
    target = checked_path(out)
    options.check_folder("--out", target)
    runs = [results.load(path) for path in result]
    figure = figures.error_curves(runs, bias=[figures.predicted_bias(r) for r in runs], title=title, x=x, scale=scale)
    target.parent.mkdir(parents=True, exist_ok=True)
    figures.save(figure, target, command=context.obj)
    print(f"saved {target}")


app.command(epilog=predict.THEORY_EXAMPLES)(takes_problem(predict.theory))
app.command(epilog=predict.PLAN_EXAMPLES)(takes_problem(predict.plan))
app.command(epilog=explore.EXAMPLES)(explore.explore)
app.command(epilog=paper.EXAMPLES)(paper.reproduce)
app.add_typer(fit.app, name="fit", help=fit.FIT_HELP)
app.add_typer(network.app, name="network", help=network.NETWORK_HELP)
app.command(epilog=fit.EVALUATE_EXAMPLES)(fit.evaluate)

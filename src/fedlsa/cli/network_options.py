"""The options of `fedlsa network`: what is estimated, and what a run is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Annotated, Any

import typer

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError
from ..fit import Regression, Value
from ..fit.tasks import Task
from ..network.protocol.run_settings import StartOptions
from . import fit_options, options
from .fit_options import ByHand, Method, Rounds, Seed, Weight

REGRESSION, VALUE = "A regression", "Or a value function"
RUN, SITES, PRIVATE = "Run", "Who takes part", "What sites send"
OPTIONS = {f.name: "--" + f.name.replace("_", "-") for f in fields(StartOptions)}
OPTIONS |= {"host": "--host", "port": "--port", "inner_port": "--inner-port", "sites": "--sites"}


def task(
    target: Annotated[
        str | None,
        typer.Option(help="Column to be explained.", show_default="y", rich_help_panel=REGRESSION),
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns that explain it, a,b or repeated; by default all others. Of a value function: a map such as "
            "'OneHot(16)'.",
            show_default=False,
            rich_help_panel=REGRESSION,
        ),
    ] = None,
    no_intercept: Annotated[
        bool, typer.Option("--no-intercept", help="Without a constant term.", rich_help_panel=REGRESSION)
    ] = False,
    no_standardise: Annotated[
        bool, typer.Option("--no-standardise", help="Run on the columns as they are.", rich_help_panel=REGRESSION)
    ] = False,
    ridge: Annotated[float | None, typer.Option(help="Penalty.", show_default="0", rich_help_panel=REGRESSION)] = None,
    discount: Annotated[
        float | None, typer.Option(help="Discount factor, below 1.", show_default=False, rich_help_panel=VALUE)
    ] = None,
    trace: Annotated[
        float | None, typer.Option(help="Lambda of TD(lambda).", show_default="0", rich_help_panel=VALUE)
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns of the state: a prefix, or a list x,y.", show_default="state", rich_help_panel=VALUE
        ),
    ] = None,
    next_state: Annotated[
        list[str] | None,
        typer.Option(help="Of the state that followed.", show_default="next_state", rich_help_panel=VALUE),
    ] = None,
    reward: Annotated[str | None, typer.Option(help="Column.", show_default="reward", rich_help_panel=VALUE)] = None,
    terminated: Annotated[
        str | None, typer.Option(help="Column.", show_default="terminated", rich_help_panel=VALUE)
    ] = None,
    truncated: Annotated[
        str | None, typer.Option(help="Column; may be missing.", show_default="truncated", rich_help_panel=VALUE)
    ] = None,
    importance: Annotated[
        str | None, typer.Option(help="Column; may be missing.", show_default="importance", rich_help_panel=VALUE)
    ] = None,
    intercept: Annotated[
        bool, typer.Option("--intercept", help="Add a constant feature.", rich_help_panel=VALUE)
    ] = False,
    standardise: Annotated[
        bool, typer.Option("--standardise", help="Run on features of mean square 1.", rich_help_panel=VALUE)
    ] = False,
    numbers: Annotated[
        bool,
        typer.Option(
            "--numbers", help="A state of one integer column is a number, not a state's.", rich_help_panel=VALUE
        ),
    ] = False,
) -> Task | None:
    """The task that was chosen; None if none was. Options of the two kinds do not mix."""
    linear: dict[str, Any] = {
        "--target": target,
        "--ridge": ridge,
        "--no-intercept": no_intercept,
        "--no-standardise": no_standardise,
    }
    columns = {"reward": reward, "terminated": terminated, "truncated": truncated, "importance": importance}
    value: dict[str, Any] = {"--trace": trace, "--state": state, "--next-state": next_state, "--intercept": intercept}
    value |= {f"--{name}": column for name, column in columns.items()} | {
        "--standardise": standardise,
        "--numbers": numbers,
    }
    if discount is not None:
        _refuse(linear, "a regression, and --discount asks for a value function")
        return Value(
            discount=discount,
            trace=0.0 if trace is None else trace,
            state=fit_options.prefix_or_names("--state", state or ["state"]),
            next_state=fit_options.prefix_or_names("--next-state", next_state or ["next_state"]),
            features=None if features is None else fit_options.feature_map(",".join(features)),
            intercept=intercept,
            standardise=standardise,
            numbers=numbers,
            **{name: column for name, column in columns.items() if column is not None},
        )
    _refuse(value, "a value function, which needs --discount")
    if target is None and features is None and not any(linear.values()):
        return None
    return Regression(
        target="y" if target is None else target,
        features=None if features is None else fit_options.names("--features", features),
        intercept=not no_intercept,
        standardise=not no_standardise,
        ridge=0.0 if ridge is None else ridge,
    )


def _refuse(given: dict[str, Any], why: str) -> None:
    for option, value in given.items():
        if value is not None and value is not False:
            raise ArgumentError(f"{option} must not be given: it is an option of {why}; got {checks.show(value)}")


def _option(word: re.Match[str]) -> str:
    return OPTIONS.get(word[0], word[0])


@contextmanager
def option_names() -> Iterator[None]:
    """Errors of the library with arguments named as options: min_sites -> --min-sites."""
    try:
        yield
    except (ArgumentError, ArgumentTypeError) as error:
        named, must, rest = str(error).partition(" must ")
        named = re.sub(r"\w+", _option, named)
        if rest.startswith("be given"):  # what follows are arguments too, not values
            rest = re.sub(r"\w+", _option, rest)
        raise type(error)(named + must + rest) from None


def run(
    method: Method = "scafflsa",
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Distance (RMSE, in the run's coordinates) from the data's own solution that the run may keep; a plan "
            "follows from it.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    step_size: ByHand = None,
    local_steps: Annotated[
        int | None,
        typer.Option(
            help="Steps of a site between communications (scaffnew: on average).",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    rounds: Rounds = None,
    seed: Seed = 0,
    local: Annotated[
        str, typer.Option(help="What a step uses: rows at random, or the site's means.", rich_help_panel=RUN)
    ] = "rows",
    weight: Weight = "sites",
    name: Annotated[
        str | None,
        typer.Option(help="Of the experiment, for status, stop and result.", show_default=False, rich_help_panel=RUN),
    ] = None,
    min_sites: Annotated[
        int | None,
        typer.Option(
            help="Replies that close a round at its deadline.", show_default="half of the sites", rich_help_panel=SITES
        ),
    ] = None,
    deadline: Annotated[float, typer.Option(help="Seconds that a round may take.", rich_help_panel=SITES)] = 120.0,
    participation: Annotated[
        str | None,
        typer.Option(
            help="Share of the sites that take part in a round, such as 0.5.",
            show_default="all that are present",
            rich_help_panel=SITES,
        ),
    ] = None,
    participants: Annotated[
        int | None, typer.Option(help="The same as a count.", show_default=False, rich_help_panel=SITES)
    ] = None,
    patience: Annotated[
        int, typer.Option(help="Rounds missed in a row after which a site counts as gone.", rich_help_panel=SITES)
    ] = 5,
    policy: Annotated[
        str,
        typer.Option(
            help="What becomes of a gone site's control variate: spread over those who stay, or freeze.",
            rich_help_panel=SITES,
        ),
    ] = "spread",
    trim: Annotated[
        int,
        typer.Option(
            help="Robust averaging: leave out so many replies on each side, coordinate by coordinate.",
            rich_help_panel=SITES,
        ),
    ] = 0,
    clip: Annotated[
        float | None,
        typer.Option(
            help="Longest change that a site may send; longer ones are scaled.",
            show_default=False,
            rich_help_panel=PRIVATE,
        ),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            help="Gaussian noise on what sites send: its standard deviation in units of --clip.",
            show_default=False,
            rich_help_panel=PRIVATE,
        ),
    ] = None,
    quantise: Annotated[
        int | None,
        typer.Option(help="Bits of a number sent: 8 or 16.", show_default="64", rich_help_panel=PRIVATE),
    ] = None,
) -> StartOptions:
    """What a run is asked for, checked as far as possible before any work."""
    checks.integer("--seed", seed)
    with option_names():
        return StartOptions(
            method=method,
            epsilon=epsilon,
            step_size=step_size,
            local_steps=local_steps,
            rounds=rounds,
            seed=seed,
            local=local,
            weight=weight,
            min_sites=min_sites,
            deadline=deadline,
            participation=options.share(participation),
            participants=participants,
            clip=clip,
            trim=trim,
            quantise=quantise,
            noise=noise,
            patience=patience,
            policy=policy,
            name=name,
        )

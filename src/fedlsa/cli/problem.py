"""The options that make a problem, defined once: every command that needs a problem takes them."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from .. import checks, problems
from ..problems import Problem
from .merged import takes

PANEL = "Problem"


def from_options(
    problem: Annotated[str, typer.Option(help="Family of problems: garnet.", rich_help_panel=PANEL)] = "garnet",
    agents: Annotated[int, typer.Option(help="Number of agents N.", rich_help_panel=PANEL)] = 100,
    states: Annotated[int, typer.Option(help="States of each agent's world.", rich_help_panel=PANEL)] = 30,
    actions: Annotated[int, typer.Option(help="Actions in each state.", rich_help_panel=PANEL)] = 2,
    branching: Annotated[int, typer.Option(help="Successors of a state and action.", rich_help_panel=PANEL)] = 2,
    features: Annotated[int, typer.Option(help="Features, the dimension d.", rich_help_panel=PANEL)] = 8,
    discount: Annotated[float, typer.Option(help="Discount factor, below 1.", rich_help_panel=PANEL)] = 0.95,
    heterogeneous: Annotated[
        bool,
        typer.Option("--heterogeneous/--homogeneous", help="Two worlds or one.", rich_help_panel=PANEL),
    ] = True,
    perturbation: Annotated[
        float, typer.Option(help="How much agents of one world differ.", rich_help_panel=PANEL)
    ] = 0.02,
    preset: Annotated[
        str,
        typer.Option(help="paper: as its text says; authors: as their code does.", rich_help_panel=PANEL),
    ] = "paper",
    problem_seed: Annotated[int, typer.Option(help="Seed of the problem itself.", rich_help_panel=PANEL)] = 42,
) -> Problem:
    """The problem that the options describe."""
    checks.choice("--problem", problem, ("garnet",))
    return problems.garnet(
        agents, states, actions, branching, features, discount, heterogeneous, perturbation, preset, problem_seed
    )


takes_problem = takes("instance", from_options)


def as_options(instance: Problem) -> list[str]:
    """The options that differ from the defaults: what a reader types to have this problem again."""
    asked = instance.recipe["arguments"]
    words: list[str] = []
    for name, parameter in inspect.signature(from_options).parameters.items():
        value = asked.get({"problem_seed": "seed"}.get(name, name), parameter.default)
        if name == "heterogeneous":
            words += [] if value else ["--homogeneous"]
        elif value != parameter.default:
            words += ["--" + name.replace("_", "-"), str(value)]
    return words

"""The options that say which method is meant, the same for every command that takes them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

METHOD = "Method"


def method_option(default: str) -> Any:
    """`--method`, which may be repeated; default : the methods that are meant without it, in words."""
    text = f"fedlsa, scafflsa or scaffnew; repeat it to compare. By default {default}."
    return typer.Option(help=text, rich_help_panel=METHOD, show_default=False)


StepSize = Annotated[float, typer.Option(help="Step size eta.", rich_help_panel=METHOD)]
LocalSteps = Annotated[int, typer.Option(help="Observations between communications, H.", rich_help_panel=METHOD)]
Probability = Annotated[
    float | None,
    typer.Option(help="Scaffnew: chance to communicate. By default 1 / local steps.", rich_help_panel=METHOD),
]

"""The command `fedlsa explore`: a page with sliders, served from this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ArgumentError, FedLSAError
from ..explore.settings import Settings
from . import options

PAGE, OUTPUT = "Page", "Output"
EXAMPLES = """[bold]Examples[/bold]

fedlsa explore

fedlsa explore "agents=50&local_steps=300"

fedlsa explore --file north.csv --file south.csv "problem=files&target=response"

fedlsa explore "agents=50&local_steps=300" --save error.pdf --save error.csv"""


def explore(
    settings: Annotated[
        str, typer.Argument(help="Settings to open with: an address of the page, or what follows its question mark.")
    ] = "",
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", help="A site's CSV or Parquet file; repeat it, one per site.", rich_help_panel=PAGE
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Others can reach it only if you change it.", rich_help_panel=PAGE)
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", rich_help_panel=PAGE)] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page.", rich_help_panel=PAGE)
    ] = True,
    save: Annotated[
        list[Path] | None,
        typer.Option(
            help="Write the picture (.png, .svg, .pdf) or its data (.csv, .nc) instead of opening the page; repeat it.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="With --save: simulated seeds on top.", rich_help_panel=OUTPUT)
    ] = False,
    copy: Annotated[
        Path | None,
        typer.Option(help="Write the page as a marimo notebook of your own: FILE.py.", rich_help_panel=OUTPUT),
    ] = None,
    agents: Annotated[
        bool, typer.Option("--agents", help="With --save: the picture of where the agents go.", rich_help_panel=OUTPUT)
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Move sliders and see client drift: a page in your browser, served from this machine alone."""
    from ..explore import serve

    with _settings_by_name():
        chosen = Settings.from_address(settings)
    files = [str(f) for f in file or []]
    if not 0 <= port <= 65535:
        raise ArgumentError(f"--port must be between 0 and 65535; got {port}")
    for option, asked in (("--simulated", simulated), ("--agents", agents)):
        if asked and not save:
            raise ArgumentError(f"{option} must stand with --save; got no --save")
    if simulated and agents:
        raise ArgumentError("--simulated must stand without --agents, whose picture has no seeds; got both")
    if save and files and chosen.problem != "files":
        raise ArgumentError(f"--file must stand with the setting problem=files; got problem={chosen.problem}")
    if save and copy:
        raise ArgumentError("--copy must stand without --save; got both")
    if copy is not None:
        options.refuse_to_overwrite([copy, copy.with_name(serve.STYLE.name)], force)
        options.check_folder("--copy", copy)
        serve.copy_notebook(copy)
        print(f"saved {copy}; open it with: marimo edit {copy}")
    elif save:
        from ..explore import take

        options.refuse_to_overwrite(list(save), force)
        for path in save:
            options.check_folder("--save", path)
        with _settings_by_name():
            take.save_all(chosen, tuple(files), save, simulated, agents)
        for path in save:
            print(f"saved {path}")
    else:
        serve.serve(chosen, files, host, port, browser)
        serve.leave()


@contextlib.contextmanager
def _settings_by_name() -> Iterator[None]:
    """Errors about a setting call it so: here agents=3 is a setting, and --agents something else."""
    try:
        yield
    except FedLSAError as error:
        if str(error).partition(" must ")[0] in options.OPTIONS:
            raise ArgumentError(f"the setting {error}") from None
        raise

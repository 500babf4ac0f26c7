"""The command `fedlsa explore`: a page with sliders, served from this machine."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from ..errors import ArgumentError
from ..explore.page_settings import PageSettings
from . import parsing
from .derived import Option, takes

EXAMPLES = """[bold]Examples[/bold]

fedlsa explore

fedlsa explore "agents=50&local_steps=300"

fedlsa explore --file north.csv --file south.csv "problem=files&target=response"

fedlsa explore "agents=50&local_steps=300" --save error.pdf --save error.csv"""


@takes(
    {
        "settings": Option(
            "Settings to open with: an address of the page, or what follows its question mark.", positional=True
        ),
        "Page": {
            "file": Option("A site's CSV or Parquet file; repeat it, one per site.", "--file -f"),
            "host": "Address to listen on. Others can reach it only if you change it.",
            "port": "Port; 0 takes a free one.",
            "browser": Option("Open the page.", "--browser/--no-browser"),
        },
        "Output": {
            "save": "Write the picture (.png, .svg, .pdf) or its data (.csv, .nc), and open no page; repeat it.",
            "simulated": "With --save: simulated seeds on top.",
            "copy": "Write the page as a marimo notebook of your own: FILE.py.",
            "agents": "With --save: the picture of where the agents go.",
            "force": "Replace a file that exists.",
        },
    }
)
def explore(
    settings: str = "",
    file: list[Path] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
    save: list[Path] | None = None,
    simulated: bool = False,
    copy: Path | None = None,
    agents: bool = False,
    force: bool = False,
) -> None:
    """Move sliders and see client drift: a page in your browser, served from this machine alone."""
    from ..explore import page_server

    chosen = PageSettings.from_address(settings)
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
        parsing.refuse_to_overwrite([copy, copy.with_name(page_server.STYLE.name)], force)
        parsing.check_folder("--copy", copy)
        page_server.copy_notebook(copy)
        print(f"saved {copy}; open it with: marimo edit {copy}")
    elif save:
        from ..explore import take

        parsing.refuse_to_overwrite(list(save), force)
        for path in save:
            parsing.check_folder("--save", path)
        take.save_all(chosen, tuple(files), save, simulated, agents)
        for path in save:
            print(f"saved {path}")
    else:
        page_server.serve(chosen, files, host, port, browser)
        page_server.leave()


# an error about agents=3 is one about a setting of the page: here --agents is something else
vars(explore)["flags"] = {setting.name: f"the setting {setting.name}" for setting in fields(PageSettings)}

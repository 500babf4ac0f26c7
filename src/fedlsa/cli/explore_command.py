"""The command `fedlsa explore`: a page with sliders, served from this machine."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import typer

from .. import checks
from ..errors import ArgumentError
from ..explore.page_settings import PageSettings
from ..files import write as write_file
from .options import FORCE, App, option, switch

EXPLORE_EXAMPLES = (
    "fedlsa explore",
    'fedlsa explore "agents=50&local_steps=300"',
    'fedlsa explore --file north.csv --file south.csv "problem=files&target=response"',
    'fedlsa explore "agents=50&local_steps=300" --save error.pdf --save error.csv',
)
app = App()


@app.command(examples=EXPLORE_EXAMPLES)
def explore(
    settings: str = typer.Argument("", help="To open with: an address of the page, or what follows its question mark."),
    file: list[Path] | None = option(
        "A site's CSV or Parquet file; repeat it, one per site.", None, "Page", "--file", "-f"
    ),
    host: str = option("Address to listen on. Others can reach it only if you change it.", "127.0.0.1", "Page"),
    port: int = option("Port; 0 takes a free one.", 0, "Page", min=0, max=65535),
    browser: bool = option("Open the page.", True, "Page"),
    save: list[Path] | None = option(
        "Write the picture (.png, .svg, .pdf) or its data (.csv, .nc), and open no page; repeat it.", None, "Output"
    ),
    simulated: bool = switch("--simulated", "With --save: simulated seeds on top.", "Output"),
    copy: Path | None = option("Write a Python script that makes the same figures: FILE.py.", None, "Output"),
    agents: bool = switch("--agents", "With --save: the picture of where the agents go.", "Output"),
    force: bool = FORCE,
) -> None:
    """Move sliders and see client drift: a page in your browser, served from this machine alone."""
    chosen = PageSettings.from_address(settings)
    files = [str(f) for f in file or []]
    for flag, asked in (("--simulated", simulated), ("--agents", agents)):
        if asked and not save:
            raise ArgumentError(f"{flag} must stand with --save; got no --save")
    if simulated and agents:
        raise ArgumentError("--simulated must stand without --agents, whose picture has no seeds; got both")
    if save and files and chosen.problem != "files":
        raise ArgumentError(f"--file must stand with the setting problem=files; got problem={chosen.problem}")
    if save and copy:
        raise ArgumentError("--copy must stand without --save; got both")
    if copy is not None or save:
        from ..explore import take
        from ..explore.answers import Question
        from .outputs import Outputs

    if copy is not None:
        checks.choice(f"the suffix of {str(copy)!r}", copy.suffix, (".py",))
        script = take.copy(Question.of(chosen, tuple(files))).encode()
        saved = Outputs("", force or (copy.is_file() and copy.read_bytes() == script))
        saved.check("--copy", copy, ())
        saved.save(copy, lambda path: write_file(path, script, "the script"))
        print(f"saved {copy}; run it with: python {copy}")
    elif save:
        q = Question.of(chosen, tuple(files))
        seeds = simulated and chosen.sampling == "iid"
        for path in save:
            Outputs(take.command(q, seeds, path.name, agents), force).check("--save", path, ())
        saved = Outputs("", force)
        for path, write in take.writers(q, save, simulated, agents).items():
            saved.save(path, write)
        saved.print_saved()
    else:
        from ..explore.answers import NEEDED
        from ..explore.pool import load_ahead

        load_ahead(NEEDED)

        from ..explore import page

        page.serve(chosen, files, host, port, browser)


# an error about agents=3 is one about a setting of the page: here --agents is something else
vars(explore)["called"] = {setting.name: f"the setting {setting.name}" for setting in fields(PageSettings)}

"""Take it with you: what the reader copies or downloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import marimo as mo

from . import take
from .layout import box, code
from .updates import Curves, Runs


def take_panel(files: tuple[str, ...], known: Curves, runs: Runs) -> Any:
    """The lines, the command, the pictures and the data; files are made when they are asked for."""
    heading = mo.md(
        "## Take it with you\nThe address of this page holds every setting: copy it, and it opens with what you see."
    )
    if known.question is None or not known.shown:
        return heading
    s, seeds = known.settings, runs.of(known.question)
    predicted = any(curve.bias > 0 for curve in known.shown.values())
    lines = take.script(s, files, bool(seeds), predicted)

    def error(name: str) -> Callable[[], bytes]:
        return lambda: take.as_bytes(name, lambda path: take.write(path, s, files, known.shown, seeds))

    def agents(name: str) -> Callable[[], bytes]:
        q = known.question
        assert q is not None
        return lambda: take.as_bytes(name, lambda path: take.write_agents(path, q, s))

    error_files = [_file(error, f"error{kind}") for kind in (*take.PICTURES, *take.DATA)]
    agents_files = [_file(agents, f"agents{kind}") for kind in take.PICTURES]
    tabs = {
        "The error": mo.vstack([code(lines), code(take.command(s, files, bool(seeds))), box("line", *error_files)]),
        "The agents": mo.vstack(
            [
                code(take.agents_script(s, files)),
                code(take.command(s, files, save="agents.png", agents=True)),
                box("line", *agents_files),
            ]
        ),
    }
    return mo.vstack([heading, mo.ui.tabs(tabs)])


def _file(made: Callable[[str], Callable[[], bytes]], name: str) -> Any:
    return mo.download(made(name), filename=name, label=name)

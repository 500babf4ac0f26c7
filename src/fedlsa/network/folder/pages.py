"""Texts for people and service managers, from templates/: READMEs of both roles, systemd units."""

from __future__ import annotations

import contextlib
import getpass
import shlex
import shutil
import sys
from importlib import resources
from pathlib import Path
from string import Template

from ...fit import Regression
from ...fit.tasks import Task
from ...installation import __version__
from ..protocol.records import printable
from .config import Network, SiteFolder

COORDINATOR_PAGES = {
    "README.md": "coordinator.md",
    "systemd/fedlsa-coordinator.service": "coordinator.service",
}  # path in the coordinator's folder: template
SITE_PAGES = {"README.md": "site.md", "fedlsa-site.service": "site.service"}


class _Page(Template):
    delimiter = "%"  # shells have uses of their own for the dollar


def render(template: str, of: Network | SiteFolder) -> str:
    """A text for a folder, which has its final name already."""
    from .certificates import grouped

    folder = str(of.folder)
    values = {name: str(getattr(of, name, "")) for name in ("host", "port", "page_port", "name")}
    values |= {"version": __version__, "task": _task(of.task), "folder": shlex.quote(folder)}
    values |= {"network": grouped(of.id if isinstance(of, Network) else of.network)}
    names = of.sites if isinstance(of, Network) else ()
    values |= {"sites": "\n".join(f"| {c} | {name} | bundles/{name}.zip |" for c, name in enumerate(names))}
    if template.endswith(".service"):
        beside = Path(sys.executable).with_name("fedlsa")
        command = str(beside) if beside.is_file() else shutil.which("fedlsa")
        program = "@FEDLSA@" if command is None else str(Path(command).absolute())
        values |= {"program": _word(program), "folder": _word(folder), "working_directory": _plain(folder)}
        values |= {"cache": _word(f"NUMBA_CACHE_DIR={of.folder / 'cache'}"), "user": "@USER@"}
        with contextlib.suppress(OSError, KeyError, ImportError):
            values["user"] = getpass.getuser()
    text = resources.files(__package__).joinpath("templates", template).read_text(encoding="utf-8")
    return _Page(text).substitute(values)


def _plain(text: str) -> str:
    """Text in a unit, where a percent sign would begin a specifier."""
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """One word of a command line or a list in a unit."""
    quoted = _plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def _task(task: Task) -> str:
    if isinstance(task, Regression):
        if task.formula is not None:
            return f"The task: the linear model `{printable(task.formula)}`."
        by = "all other columns" if task.columns is None else ", ".join(f"`{printable(n)}`" for n in task.columns)
        return f"The task: a linear model of the column `{printable(task.target)}` by {by}."
    return f"The task: the value function of the logged policy, discount {task.discount:g}, trace {task.trace:g}."

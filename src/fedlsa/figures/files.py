"""Figures on disk: written whole or not at all, with the same bytes for the same figure, and with how it was made."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from .. import checks
from ..files import replacing
from . import style
from .doors import checked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".pdf", ".svg")


def checked_path(path: str | os.PathLike[str]) -> Path:
    """A path with a suffix that `save` knows."""
    target = checks.path("path", path)
    checks.choice(f"the suffix of {str(target)!r}", target.suffix.lower(), SUFFIXES)
    return target


@checked
def save(figure: Figure, path: str | os.PathLike[str], *, command: str | None = None) -> None:
    """Write a figure as PNG, PDF or SVG, by the suffix of `path`.

    The file's metadata holds the figure's description (results, problem, seeds, versions) and `command`, what a reader
    types to draw it again; there is no date, so equal figures give equal bytes.
    """
    matplotlib = style.matplotlib()
    checks.instance("figure", figure, matplotlib.figure.Figure, "a matplotlib figure")
    target = checked_path(path)
    kind = target.suffix.lower()[1:]
    with replacing(target, "the figure") as part, matplotlib.rc_context(style.RC):
        figure.savefig(part, format=kind, metadata=_metadata(kind, str(figure.get_label()), command))


def _metadata(kind: str, description: str, command: str | None) -> dict[str, str | None]:
    maker = f"fedlsa {version('fedlsa')}"
    if kind == "png":
        entries = {"Software": maker, "Description": description, "Source": command}
    elif kind == "pdf":
        entries = {"Creator": maker, "Subject": description, "Keywords": command, "CreationDate": None}
    else:
        entries = {"Creator": maker, "Description": description, "Source": command, "Date": None}
    dates = {"CreationDate", "Date"}  # None takes a date out
    return {k: v for k, v in entries.items() if v or k in dates}

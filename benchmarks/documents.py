"""Tables go into documents between two comments, `bench:NAME` and `/bench`; nobody types a number."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

OPEN = re.compile(r"^<!-- bench:([\w-]+) -->$", re.MULTILINE)
BLOCK = re.compile(r"^<!-- bench:([\w-]+) -->\n(?:(?!<!-- bench:).*\n)*?<!-- /bench -->$", re.MULTILINE)


class MarkerError(ValueError):
    """A document lacks a place for a table, or has one that does not end."""


def check(text: str, names: Iterable[str], where: str) -> None:
    """Each name has exactly one place in the text, every place ends, and there are no others."""
    wanted = sorted(names)
    opened = sorted(OPEN.findall(text))
    for name in wanted:
        if name not in opened:
            raise MarkerError(f"{where} must hold a line <!-- bench:{name} --> and later <!-- /bench -->; got none")
    if opened != wanted:
        raise MarkerError(f"{where} must hold one marker for each of {', '.join(wanted)}; got {', '.join(opened)}")
    closed = sorted(BLOCK.findall(text))
    for name in wanted:
        if name not in closed:
            raise MarkerError(f"{where} must close <!-- bench:{name} --> with a line <!-- /bench -->; got none")


def rewrite(text: str, blocks: dict[str, str], where: str) -> str:
    """The text with each block in its place; doing it twice changes nothing."""
    check(text, blocks, where)
    return BLOCK.sub(lambda found: f"<!-- bench:{found[1]} -->\n{blocks[found[1]]}\n<!-- /bench -->", text)


def write(path: Path, text: str) -> None:
    """Replace a file in one go: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        if path.exists():
            os.chmod(name, path.stat().st_mode)
        else:
            os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise

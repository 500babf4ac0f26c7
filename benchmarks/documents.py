"""Tables go into measured/README.md between two comments, `bench:NAME` and `/bench`; nobody types a number."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from fedlsa import files

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "measured" / "README.md"
PLACES = ("headline", "goals", "growth", "theory", "reproduction", "gpu", "starts")  # one for each table of the page
OPEN = re.compile(r"^<!-- bench:([\w-]+) -->$", re.MULTILINE)
BLOCK = re.compile(r"^<!-- bench:([\w-]+) -->\n(?:(?!<!-- bench:).*\n)*?<!-- /bench -->$", re.MULTILINE)


class MarkerError(ValueError):
    """The page lacks a place for a table, or has one that does not end."""


def check(text: str) -> None:
    """Each place stands exactly once in the text, every place ends, and there are no others."""
    opened, closed = sorted(OPEN.findall(text)), BLOCK.findall(text)
    if opened != sorted(PLACES):
        raise MarkerError(f"{PAGE.name} must hold one marker for each of {', '.join(PLACES)}; got {', '.join(opened)}")
    for name in PLACES:
        if name not in closed:
            raise MarkerError(f"{PAGE.name} must close <!-- bench:{name} --> with a line <!-- /bench -->; got none")


def rewrite(text: str, blocks: dict[str, str]) -> str:
    """The text with each block in its place; doing it twice changes nothing."""
    check(text)

    def block(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- bench:{name} -->\n{blocks[name]}\n<!-- /bench -->" if name in blocks else found[0]

    return BLOCK.sub(block, text)


def update(blocks: dict[str, str], page: Path = PAGE) -> None:
    """Put tables into the page: all of them, or none where a place is missing."""
    write(page, rewrite(page.read_text(encoding="utf-8"), blocks))


def write(path: Path, text: str) -> None:
    """Replace a file in one go: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, text.encode(), "the tables")


def options(description: str | None) -> argparse.ArgumentParser:
    """The options of a script that makes one table of the page."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all of it works")
    parser.add_argument("--write", action="store_true", help="also rewrite the table of benchmarks/measured/README.md")
    return parser


def publish(parser: argparse.ArgumentParser, place: str, make: Callable[[argparse.Namespace], str]) -> None:
    """Make a table as the command line asks, print it, and put it into its place on the page if asked to."""
    chosen = parser.parse_args()
    if chosen.write and chosen.quick:
        parser.error("--write takes the numbers of a full run; a quick one's mean nothing")
    if chosen.write:
        check(PAGE.read_text(encoding="utf-8"))  # before the first minute, not after the last
    text = make(chosen)
    print(text)
    if chosen.write:
        update({place: text})

"""Which protocol and which program each side has: told when a site joins, and kept with every run.

Two sides speak the same protocol or not at all; the refusal says which of them is to be upgraded. Programs of different
versions may speak the same protocol, so that one side can be upgraded before the other, also during a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

from ..errors import NetworkError
from .protocol.records import VERSION, printable

PROTOCOL, PROGRAM = "fedlsa-protocol", "fedlsa-program"  # metadata of a stream
OTHER = {"site": "coordinator", "coordinator": "site"}


def program() -> str:
    """The version of this package."""
    return metadata.version("fedlsa")


def greeting() -> tuple[tuple[str, str], ...]:
    """What each side says of itself when a stream begins."""
    return (PROTOCOL, str(VERSION)), (PROGRAM, program())


def mismatch(told: Mapping[str, Any], who: str) -> str | None:
    """Why the two sides cannot speak with each other, or None; told : by the other side, who : a site or coordinator.

    A side that says nothing is older than the first that does.
    """
    said = str(told.get(PROTOCOL, "0"))[:12]
    theirs = int(said) if said.isascii() and said.isdecimal() else 0
    if theirs == VERSION:
        return None
    of = f"fedlsa {printable(told.get(PROGRAM, 'of an older version'), 40)}, protocol {theirs or 'unknown'}"
    older = who if theirs < VERSION else OTHER[who]
    return (
        f"the {who} has {of}, the {OTHER[who]} fedlsa {program()}, protocol {VERSION}: upgrade the {older}; "
        "what is stored stays"
    )


def stamp() -> dict[str, Any]:
    """What a run's folder keeps of the program that began it."""
    return {"protocol": VERSION, "program": program()}


def check_stamp(run: str, kept: Mapping[str, Any] | None) -> None:
    """Refuse to go on with a run that was begun with another protocol; kept : its stamp, None where there is none."""
    said = {} if kept is None else kept
    if said.get("protocol") == VERSION:
        return
    old, protocol = (
        printable(said.get("program", "an older version"), 40),
        printable(said.get("protocol", "unknown"), 12),
    )
    raise NetworkError(
        f"the run {run} was begun by fedlsa {old} (protocol {protocol}), and this is "
        f"fedlsa {program()} (protocol {VERSION}): finish it with that version, or start a new run; its files stay"
    )

"""Runs that a person must allow: what waits is shown, and what is allowed is these terms and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import NetworkError, PolicyError
from ..disk import read_json, write_json
from ..protocol.records import printable
from ..protocol.run_settings import RunTerms, plain_name

FILE = "approvals.json"
MOST_WAITING = 20  # the oldest is forgotten: who asks under many names shall not fill the disk


class ApprovalMissing(PolicyError):
    """A person at the site has to allow the run first."""


def check_approved(folder: Path, run: str, digest: str, terms: RunTerms) -> None:
    """Refuse a run that nobody has allowed, and note that it waits; digest : of its terms."""
    known = _read(folder)
    if known["allowed"].get(run) == digest:
        return
    if known["waiting"].get(run, {}).get("terms") != digest:
        waiting = {name: entry for name, entry in known["waiting"].items() if name != run}
        waiting[run] = {"terms": digest, "words": in_words(terms)}
        known["waiting"] = dict(list(waiting.items())[-MOST_WAITING:])
        _write(folder, known)
    raise ApprovalMissing(f"a person at this site must allow the run {run} first (fedlsa network allow)")


def waiting(folder: Path) -> dict[str, list[str]]:
    """The runs that wait for a person, each with what it asks for."""
    return {name: list(entry["words"]) for name, entry in _read(folder)["waiting"].items()}


def allow(folder: Path, run: str) -> list[str]:
    """Allow a run that waits, on the terms it came with, and return these in words."""
    plain_name("run", run)
    known = _read(folder)
    entry = known["waiting"].pop(run, None)
    if entry is None:
        names = ", ".join(known["waiting"]) or "none"
        raise NetworkError(f"the run {run} does not wait for anybody; those that do: {names}")
    known["allowed"][run] = entry["terms"]
    _write(folder, known)
    return list(entry["words"])


def in_words(terms: RunTerms) -> list[str]:
    """What a run asks for, a sentence each."""
    coding = terms.coding
    local = "rows drawn at random" if terms.local == "rows" else "the averages of all rows"
    rounds = f"at most {terms.rounds} rounds" if terms.rounds else "as many rounds as a plan will say"
    sums = "the coordinator reads sums over sites only" if terms.secure else "the coordinator reads every answer"
    out = [
        f"Method {terms.method} on {local}; {rounds}.",
        f"With {', '.join(terms.sites)}; {sums}.",
    ]
    if coding.noise is not None:
        hidden = "any single row" if coding.unit == "record" else "all rows of a site"
        out.append(f"Noise of {coding.noise:g} times the longest answer, {coding.clip:g}, hides {hidden}.")
    else:
        out.append("No noise.")
    return [printable(line, 2000) for line in out]


def _read(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    try:
        known = read_json(path) or {"waiting": {}, "allowed": {}}
        if not isinstance(known["waiting"], dict) or not isinstance(known["allowed"], dict):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise NetworkError(f"{path} is damaged; remove it, and allow again what is to run") from None
    return known


def _write(folder: Path, known: dict[str, Any]) -> None:
    write_json(folder / FILE, known, "the runs that are allowed")

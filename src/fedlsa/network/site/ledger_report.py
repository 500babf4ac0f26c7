"""The ledger for people: verified, its last entries, and what has been spent."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..chain import entries
from ..folder.config import SiteFolder
from ..protocol.privacy import delta_left, epsilon_of
from ..protocol.records import printable
from .ledger import Ledger, copy_place
from .policy import Policy


def ledger_report(folder: Path | str, last: int = 20) -> list[str]:
    """Verify a site's ledger against its chain and its copy, and say what it holds."""
    site, policy, ledger = _opened(folder)
    out = [_line(entry) for entry in deque(entries(site.ledger), maxlen=last)] if last else []
    t = ledger.totals
    out.append(f"{site.ledger}: {ledger.head.number} entries, each holds the one before it; its copy agrees")
    out.append(
        f"in all: {t.answers} answers of {policy.most_answers}, {t.runs} runs of {policy.most_runs}, "
        f"{t.rounds} rounds, {ledger.refusals} refusals"
    )
    if policy.privacy != "none":
        out.append(
            f"privacy ({policy.privacy}): epsilon {_spent(policy, ledger):.4g} of {policy.epsilon:g} is spent, "
            f"at delta {policy.delta:g}, by {t.noised} answers with noise"
        )
    return [*out, f"keep this elsewhere: {ledger.head}"]


def ledger_facts(folder: Path | str) -> dict[str, Any]:
    """The same for programs, with every entry."""
    site, policy, ledger = _opened(folder)
    content: dict[str, Any] = {"head": str(ledger.head), "totals": asdict(ledger.totals), "refusals": ledger.refusals}
    content |= {"epsilon_spent": None if policy.privacy == "none" else _spent(policy, ledger)}
    return content | {"peers": ledger.roster, "entries": list(entries(site.ledger))}


def _opened(folder: Path | str) -> tuple[SiteFolder, Policy, Ledger]:
    site = SiteFolder.load(folder)
    policy = Policy.load(site.policy)
    return site, policy, Ledger(site.ledger, copy_place(policy.ledger_copy, site.network, site.name), site.name)


def _spent(policy: Policy, ledger: Ledger) -> float:
    t = ledger.totals
    return epsilon_of(t.rho, delta_left(policy.privacy, policy.delta, t.noised))


def _line(entry: dict[str, Any]) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry["time"]))
    asked = " ".join(str(entry[name]) for name in ("asked", "round") if name in entry)
    left = entry["left"] + (f" ({entry['numbers']} numbers)" if "numbers" in entry else "")
    more = [f"rho {entry['rho']:.3g}"] if "rho" in entry else []
    more += ["again"] * bool(entry.get("again")) + [str(entry[name]) for name in ("text", "closed") if name in entry]
    words = [entry.get("run", ""), asked, left, *more]
    return f"{entry['number']:>7}  {when} UTC  {printable('; '.join(w for w in words if w), 300)}"

"""What a site's page, its /health and its /metrics say: what was asked, what left, what the policy allows, what is left
of the budget. All of it from the site's own ledger and policy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from ...errors import ArgumentError, FedLSAError
from ..coordinator.run_summary import number
from ..folder.config import SiteFolder, certificate_warnings
from ..protocol.codec import printable
from ..site.ledger import Ledger, epsilon_spent
from ..site.policy import Policy, explain, waiting
from ..store import ChainHead
from .page_state import Families, PageState

SHOWN_ENTRIES = 80
SHOWN_RESULTS = 20
VERIFY_SHARE = 0.02  # of one processor's time, at most, goes into reading the ledger again


class SiteState(PageState):
    """Everything that is shown of a site.

    connected : whether the coordinator is reached; alive : whether the program still tries
    """

    FILES = ("site.html", "site.js")

    def __init__(
        self,
        site: SiteFolder,
        policy: Policy,
        ledger: Ledger,
        connected: Callable[[], bool] = lambda: True,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(alive)
        self.site, self.policy, self.ledger, self.connected = site, policy, ledger, connected
        self._verified: dict[str, Any] = {}
        self._verify_again = 0.0

    def _families(self, now: dict[str, Any]) -> Families:
        totals, budget, ledger = now["totals"], now["budget"] or {}, now["ledger"]
        yield "fedlsa_up", "Whether the site tries to take part.", now["status"] != "dead"
        yield "fedlsa_site_connected", "Whether the coordinator is reached.", now["connected"]
        yield "fedlsa_site_ledger_whole", "Whether the ledger's chain is whole.", ledger["whole"]
        yield "fedlsa_site_waiting_runs", "Runs that wait for a person.", len(now["waiting"])
        yield "fedlsa_certificates_expiring", "Certificates that end within 30 days.", len(now["certificates"])
        yield "fedlsa_site_answers_total", "Answers that left, of every kind.", totals["answers"]
        yield "fedlsa_site_refusals_total", "Orders refused.", now["refusals"]
        yield "fedlsa_site_runs_total", "Runs taken part in.", totals["runs"]
        yield "fedlsa_site_rounds_total", "Rounds answered.", totals["rounds"]
        yield "fedlsa_site_numbers_total", "Numbers that left.", ledger["numbers"]
        yield "fedlsa_site_epsilon_spent", "Privacy spent.", budget.get("spent")
        yield "fedlsa_site_epsilon_budget", "Privacy that may be spent in all.", budget.get("total")

    def _content(self) -> dict[str, Any]:
        why, entries, waits = [], [], {}
        try:
            entries = [_entry(entry) for entry in self.ledger.store.last(SHOWN_ENTRIES)][::-1]
            waits = waiting(self.site.folder)
        except (FedLSAError, OSError) as error:
            why.append(printable(error, 300))
        self._verify()
        alive, connected, certificates = self.alive(), self.connected(), self._certificates()
        if not self._verified["whole"]:
            why.append(self._verified["text"])
        if not alive:
            why.insert(0, "the site no longer tries to take part; join again")
        elif not connected:
            why.append("the coordinator is not reached")
        why += [*certificates, *(f"the run {name} waits for a person" for name in waits)]
        ledger, policy = self.ledger, self.policy
        return {
            "name": self.site.name,
            "network": self.site.network,
            "coordinator": f"{self.site.host}:{self.site.port}",
            "connected": connected,
            "why": why,
            "latest": entries[0]["run"] if entries else None,
            "waiting": waits,
            "totals": asdict(ledger.totals),
            "limits": {"answers": policy.most_answers, "runs": policy.most_runs},
            "refusals": ledger.refusals,
            "budget": self._budget(),
            "policy": explain(policy),
            "ledger": dict(self._verified),
            "entries": entries,
            "results": self._results(),
            "certificates": certificates,
        }

    def _budget(self) -> dict[str, Any] | None:
        """Of epsilon, over all runs; None where the policy asks for no noise."""
        policy, totals = self.policy, self.ledger.totals
        if policy.privacy == "none":
            return None
        try:
            spent = epsilon_spent(policy, totals)
        except ArgumentError:  # the tails of so many answers have used up delta
            spent = policy.epsilon
        return {"unit": policy.privacy, "delta": policy.delta, "total": policy.epsilon, "spent": number(spent)}

    def _verify(self) -> None:
        """Read the whole ledger again, where it has grown, and not more often than its length allows."""
        head, begun = self.ledger.head, time.monotonic()
        if self._verified and (begun < self._verify_again or self._verified.get("head") == str(head)):
            return
        numbers, last = 0, ChainHead()
        try:
            for entry in self.ledger.store.entries():
                last = ChainHead(entry["number"], entry["hash"])
                numbers += entry["numbers"] if type(entry.get("numbers")) is int else 0
            whole = last.number >= head.number
            text = f"{last.number} entries, each holds the one before it" if whole else "its end was cut off"
        except FedLSAError as error:
            whole, text = False, printable(error, 300)
        self._verified = {"whole": whole, "text": text.replace(f"{self.site.folder}/", ""), "head": str(last)}
        self._verified |= {"numbers": numbers, "at": time.time()}
        self._verify_again = time.monotonic() + (time.monotonic() - begun) / VERIFY_SHARE

    def _results(self) -> list[dict[str, Any]]:
        """Names of the results that have come, the newest first; what they hold is for the site's own eyes."""
        try:
            files = sorted(self.site.results.glob("*.json"), key=lambda p: -p.stat().st_mtime)[:SHOWN_RESULTS]
            return [{"name": printable(file.stem, 80), "time": file.stat().st_mtime} for file in files]
        except OSError:
            return []

    def _certificates(self) -> list[str]:
        """Those that end soon, in words."""
        here = f"{self.site.folder}/"
        return [printable(text.replace(here, ""), 300) for text in certificate_warnings(self.site)]


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of the ledger as a row of a table: nothing but short texts and numbers."""
    out: dict[str, Any] = {name: number(entry.get(name)) for name in ("number", "time", "round", "numbers", "rho")}
    out |= {name: printable(entry.get(name) or "", 300) for name in ("run", "asked", "left", "text")}
    return out | {"hash": entry["hash"], "again": entry.get("again") is True}

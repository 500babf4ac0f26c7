"""What the coordinator's page, /health and /metrics say: its latest run (run_summary.py), sites and certificates."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ...errors import FedLSAError
from ..coordinator.run_summary import RunSummary, number
from ..coordinator.runs import all_runs
from ..disk import read_json
from ..folder.config import Network, certificate_warnings
from ..protocol.codec import printable
from .page_state import Families, PageState

CERTIFICATES_POLL = 60.0  # seconds
OTHER_RUNS = 12


class CoordinatorState(PageState):
    """Everything that is shown of a network. present : names of the sites that are connected; alive : the run loop."""

    FILES, DRAWS = ("coordinator.html", "coordinator.js"), ("chart",)

    def __init__(
        self, network: Network, present: Callable[[], Sequence[str]], alive: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(alive)
        self.network, self.present = network, present
        self._seen: RunSummary | None = None
        self._expiring: tuple[float, list[str]] | None = None

    def _content(self) -> dict[str, Any]:
        with suppress(FedLSAError, OSError):  # sites come and go; what was known stays
            self.network = Network.load(self.network.folder)
        network, here, runs = self.network, set(self.present()), all_runs(self.network)
        if not runs:
            self._seen = None
        elif self._seen is None or self._seen.run != runs[-1]:
            self._seen = RunSummary(runs[-1])
        seen, alive, certificates = self._seen, self.alive(), self._certificates()
        run = None if seen is None else seen.read().facts()
        alarms = [] if seen is None else list(seen.alarms)[::-1]
        away = [site for site in network.sites if site not in here]
        why = [] if alive else ["the run loop has ended; start the coordinator again"]
        if run is not None and run["state"] not in ("over", "failed") and away:
            why.append(f"not connected: {', '.join(away)}")
        said = self._receipts()
        none = {"standing": "no round yet", "missed": 0, "up": 0, "down": 0, "refused": 0}
        sites = [{"name": name, "present": name in here, **(seen.site(name) if seen else none),
                  **said.get(name, {"rho": None, "budget": None})} for name in network.sites]  # fmt: skip
        return {
            "network": network.id,
            "why": [*why, *certificates, *(alarm["text"] for alarm in alarms[:1])],
            "latest": {"name": run and run["name"], "state": run["state"] if run else "none"},
            "run": run,
            "sites": sites,
            "events": [] if seen is None else list(seen.events)[::-1],
            "alarms": alarms,
            "certificates": certificates,
            "other_runs": [{"name": r.name, "end": RunSummary(r).end} for r in runs[-1 - OTHER_RUNS : -1][::-1]],
        }

    def _receipts(self) -> dict[str, dict[str, Any]]:
        """What the sites' last receipts say of their budgets: texts of their own, so anything may stand in them."""
        kept: Any = {}
        with suppress(ValueError, OSError, RecursionError):
            kept = read_json(self.network.folder / "receipts.json")
        out = {}
        for site, receipt in kept.items() if isinstance(kept, dict) else ():
            with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                said = json.loads(json.loads(receipt)["said"])
                out[site] = {name: number(said.get(name)) for name in ("rho", "budget")}
        return out

    def _certificates(self) -> list[str]:
        """Those that end soon, in words; looked at once a minute."""
        if self._expiring is None or time.monotonic() - self._expiring[0] > CERTIFICATES_POLL:
            here = f"{self.network.folder}/"
            soon = [printable(text.replace(here, ""), 300) for text in certificate_warnings(self.network)]
            self._expiring = time.monotonic(), soon
        return self._expiring[1]

    def _families(self, now: dict[str, Any]) -> Families:
        sites, run = now["sites"], now["run"]
        yield "fedlsa_up", "Whether the run loop is alive.", now["status"] != "dead"
        yield "fedlsa_sites", "Sites of the network.", len(sites)
        yield "fedlsa_sites_present", "Sites that are connected.", sum(s["present"] for s in sites)
        yield "fedlsa_certificates_expiring", "Certificates that end within 30 days.", len(now["certificates"])
        if run is None:
            return
        name = {"run": run["name"]}
        each = [({**name, "site": site["name"]}, site) for site in sites]
        moved = [({**label, "direction": way}, site[way]) for label, site in each for way in ("up", "down")]
        ended = run["state"] in ("over", "failed")
        yield "fedlsa_run_rounds_total", "Rounds closed.", [(name, run["rounds"])]
        yield "fedlsa_run_averages_total", "Rounds averaged.", [(name, run["averages"])]
        yield "fedlsa_run_alarms", "Alarms of this run that are shown.", [(name, len(now["alarms"]))]
        yield "fedlsa_run_bytes_total", "Bytes moved; up: from the site.", moved
        yield "fedlsa_run_refused_total", "Answers and orders refused.", [(who, s["refused"]) for who, s in each]
        yield "fedlsa_run_over", "Whether the run has ended.", [(name, ended)]
        yield "fedlsa_run_failed", "Whether the run has failed.", [(name, run["state"] == "failed")]
        yield "fedlsa_run_last_round_seconds", "Seconds of the last round.", [(name, run["seconds"])]
        yield "fedlsa_run_estimated_error", "Estimated distance from the solution.", [(name, run["error"])]
        yield "fedlsa_privacy_rho", "Privacy spent (zCDP), by the site's receipt.", [(who, s["rho"]) for who, s in each]

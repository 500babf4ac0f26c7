"""What people and monitors see of a coordinator and of a site, read-only: pages, /state.json, /health and /metrics.

Whatever is shown was put together beforehand; nothing of a request is used. The server is `fedlsa.pages.web_server`.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec.structs import asdict

from ... import checks
from ...errors import ArgumentError, FedLSAError, NetworkError
from ...files import reason
from ...installation import __version__
from ...pages import COLOURS, scripts, static_text
from ...pages.web_server import JSON_KIND, KINDS, LOOPBACK, Page, Shown
from ..coordinator.runs import RunSummary, all_runs, number
from ..disk import ChainHead, read_json
from ..folder.config import Network, SiteFolder, certificate_warnings
from ..protocol.codec import VERSION, printable
from ..site.ledger import Ledger, epsilon_spent
from ..site.policy import Policy, explain, waiting

METRICS_KIND = "text/plain; version=0.0.4; charset=utf-8"
SHARED_FILES = ("page.css", "page.js", "mark.svg")
CERTIFICATES_POLL = 60.0  # seconds
FRESH = 0.5  # seconds for which an answer is given again, however many look


class PagePlace(NamedTuple):
    """Where a page is shown. port : None leaves it to the program; address : loopback, unless others may read it."""

    port: int | None = None
    address: str = LOOPBACK


class PageState(ABC):
    """What a page, /health and /metrics say; safe to be asked by many threads. alive : whether its program still works

    FILES : of static/, the page itself first; DRAWS : what it draws, of pages.SCRIPTS
    """

    FILES: tuple[str, ...]
    DRAWS: tuple[str, ...] = ()

    def __init__(self, alive: Callable[[], bool]) -> None:
        self.alive = alive
        self._guard = threading.Lock()
        self._last: tuple[float, dict[str, Any]] | None = None
        self._expiring: tuple[float, list[str]] | None = None

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """What is shown, as plain values; among them why a person should look, certificates and the latest run."""

    @abstractmethod
    def _families(self, now: dict[str, Any]) -> Families:
        """The content as metrics."""

    def _certificates(self, of: Network | SiteFolder) -> list[str]:
        """Those that end soon, in words; looked at once a minute."""
        if self._expiring is None or time.monotonic() - self._expiring[0] > CERTIFICATES_POLL:
            soon = [printable(text.replace(f"{of.folder}/", ""), 300) for text in certificate_warnings(of)]
            self._expiring = time.monotonic(), soon
        return self._expiring[1]

    def content(self) -> dict[str, Any]:
        """What the page shows; put together at most every FRESH seconds."""
        with self._guard:
            if self._last is None or time.monotonic() - self._last[0] > FRESH:
                now, alive = self._content(), self.alive()
                now |= {"now": time.time(), "version": __version__, "protocol": VERSION}
                now["status"] = "dead" if not alive else "degraded" if now["why"] else "ok"
                self._last = time.monotonic(), now
            return self._last[1]

    def state(self) -> Shown:
        """For the page."""
        return Shown(json.dumps(self.content(), allow_nan=False).encode(), JSON_KIND)

    def health(self) -> Shown:
        """For monitors: 503 when the program no longer works."""
        now = self.content()
        told = {name: now[name] for name in ("status", "version", "protocol", "why")}
        told |= {"run": now["latest"], "expiring": now["certificates"]}
        return Shown(json.dumps(told).encode() + b"\n", JSON_KIND, 503 if now["status"] == "dead" else 200)

    def metrics(self) -> Shown:
        return Shown(exposition(self._families(self.content())).encode(), METRICS_KIND)

    def show(self, port: int, address: str = LOOPBACK) -> Page:
        """Show it at http://127.0.0.1:port/, with /health and /metrics; port 0 takes a free one.

        address : to listen on, loopback by default: whoever can reach the page can read it
        """
        checks.integer("port", port, at_least=0, at_most=65535)
        routes = {f"/{name}": static(name) for name in (*self.FILES[1:], *SHARED_FILES)}
        shared = scripts(*self.DRAWS) | {COLOURS: static_text(COLOURS)}
        routes |= {f"/{name}": _shown(text, name.split(".")[1]) for name, text in shared.items()}
        routes |= {"/": static(self.FILES[0], *self.DRAWS), "/favicon.ico": static("mark.svg")}
        routes |= {"/state.json": self.state, "/health": self.health, "/metrics": self.metrics}
        try:
            return Page(routes, port, address)
        except (OSError, ValueError) as error:
            raise NetworkError(f"cannot show a page at {address}, port {port}: {reason(error)}") from error


def announce(start: Callable[[], Page], say: Callable[[str], None]) -> Page | None:
    """Start a page and say where it is; a port that is taken is a pity, and no reason not to take part."""
    try:
        page = start()
    except NetworkError as error:
        say(f"WARNING: {error}")
        return None
    say(f"the page: {page.url}")
    return page


def static(name: str, *draws: str) -> Callable[[], Shown]:
    """A file of static/, read once; a page gets what all pages have around its sections. draws : what it draws"""
    text, (role, kind) = static_text(name, __package__), name.split(".")
    if kind == "html":
        whole = static_text("page.html", __package__).replace("/ROLE.js", f"/{role}.js").replace("ROLE", role.title())
        tags = "".join(f'<script defer src="/{script}"></script>\n' for script in scripts(*draws))
        text = whole.replace("SECTIONS", text).replace("DRAWING", tags)
    return _shown(text, kind)


def _shown(text: str, kind: str) -> Callable[[], Shown]:
    shown = Shown(text.encode(), KINDS[kind])
    return lambda: shown


# Prometheus' text format (version 0.0.4), written by hand: a name, a sentence, and samples with labels. Families whose
# names end in _total are counters, all others gauges.

Samples = float | None | Sequence[tuple[Mapping[str, str], float | None]]
Families = Iterable[tuple[str, str, Samples]]


def exposition(families: Families) -> str:
    """The families as a monitor reads them; samples without a value, and families without samples, are left out."""
    lines = []
    for name, text, given in families:
        pairs = given if isinstance(given, Sequence) else [({}, given)]
        samples = [(labels, float(value)) for labels, value in pairs if value is not None]
        if samples:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {_escaped(text)}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            inside = ",".join(f'{label}="{_escaped(said)}"' for label, said in labels.items())
            lines.append(f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


# The coordinator: its latest run, sites and certificates.

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

    def _content(self) -> dict[str, Any]:
        with suppress(FedLSAError, OSError):  # sites come and go; what was known stays
            self.network = Network.load(self.network.folder)
        network, here, runs = self.network, set(self.present()), all_runs(self.network)
        if not runs:
            self._seen = None
        elif self._seen is None or self._seen.run != runs[-1]:
            self._seen = RunSummary(runs[-1])
        seen, alive, certificates = self._seen, self.alive(), self._certificates(network)
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
        kept: dict[str, Any] | None = None
        with suppress(NetworkError):
            kept = read_json(self.network.folder / "receipts.json")
        out = {}
        for site, receipt in (kept or {}).items():
            with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                said = json.loads(json.loads(receipt)["said"])
                out[site] = {name: number(said.get(name)) for name in ("rho", "budget")}
        return out

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


# A site: what was asked, what left, what the policy allows, what is left of the budget, from its own ledger and policy.

SHOWN_ENTRIES = 80
SHOWN_RESULTS = 20
VERIFY_SHARE = 0.02  # of one processor's time, at most, goes into reading the ledger again


class SiteState(PageState):
    """Everything that is shown of a site; connected : whether the coordinator is reached; alive : the program tries."""

    FILES, DRAWS = ("site.html", "site.js"), ("numbers",)

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
        alive, connected, certificates = self.alive(), self.connected(), self._certificates(self.site)
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
        try:
            last, whole = self.ledger.store.verify(head), True
            text = f"{last.number} entries, each holds the one before it"
        except FedLSAError as error:
            last, whole, text = ChainHead(), False, printable(error, 300)
        self._verified = {"whole": whole, "text": text.replace(f"{self.site.folder}/", ""), "head": str(last)}
        self._verified |= {"numbers": self.ledger.numbers, "at": time.time()}
        self._verify_again = time.monotonic() + (time.monotonic() - begun) / VERIFY_SHARE

    def _results(self) -> list[dict[str, Any]]:
        """Names of the results that have come, the newest first; what they hold is for the site's own eyes."""
        try:
            files = sorted(self.site.results.glob("*.json"), key=lambda p: -p.stat().st_mtime)[:SHOWN_RESULTS]
            return [{"name": printable(file.stem, 80), "time": file.stat().st_mtime} for file in files]
        except OSError:
            return []


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of the ledger as a row of a table: nothing but short texts and numbers."""
    out: dict[str, Any] = {name: number(entry.get(name)) for name in ("number", "time", "round", "numbers", "rho")}
    out |= {name: printable(entry.get(name) or "", 300) for name in ("run", "asked", "left", "text")}
    return out | {"hash": entry["hash"], "again": entry.get("again") is True}

"""What the coordinator asks sites, over any carrier: one order to many, good answers back, receipts kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Protocol, TypeVar

from ...errors import MessageError, NetworkError
from ..disk import read_json, write_json
from ..folder.certificates import check_site
from ..folder.config import Network, task_text
from ..protocol.messages import Describe, Refusal
from ..protocol.records import Message, Record, printable
from ..protocol.run_settings import RunTerms, StartOptions
from .runs import RunFolder

PRESENCE_POLL = 0.2  # seconds between looks for sites that are not there
MEMBERS = "certificates.json"  # of a run: its sites, with their certificates
ASK_AGAIN = 5.0  # seconds between questions to a site where a person has to allow the run first
MAX_RECEIPT = 2000  # characters
M = TypeVar("M", bound=Message)


class Transport(Protocol):
    """What carries records between coordinator and sites (carriers/signed.py, over any carrier)."""

    def present(self) -> tuple[str, ...]:
        """The sites that can be reached."""
        ...

    def ask(self, orders: Mapping[str, Record], deadline: float) -> Iterator[tuple[str, Record | MessageError]]:
        """Send orders; what comes back within `deadline` seconds, once per site."""
        ...


@dataclass
class Inquiry:
    """A run and those who take part in it. receipts : the last of each site's ledger, given back with the terms."""

    network: Network
    run: RunFolder
    transport: Transport
    options: StartOptions = field(init=False)
    receipts: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.options = self.run.options()
        self.receipts = read_json(self.network.folder / "receipts.json") or {}
        if (began := self.run.read(MEMBERS)) is not None:  # sites that were added or removed since do not change a run
            self.network = replace(self.network, sites=tuple(began))

    @property
    def secure(self) -> bool:
        """Whether sums are all that this process learns."""
        return self.options.secure(len(self.network.sites))

    def keep_receipts(self) -> None:
        """Store the receipts, for the terms of later runs."""
        write_json(self.network.folder / "receipts.json", self.receipts, "the sites' receipts")

    def wait_for(self, whom: str, seconds: float = PRESENCE_POLL) -> None:
        """Wait a little for sites, and say so once."""
        here = self.transport.present()
        text = f"waiting for {whom}; present: {', '.join(here) or 'none'}"
        if self.run.last_text() != text:
            self.run.note("waiting", text=text, present=len(here))
        time.sleep(seconds)

    def ask(self, orders: Mapping[str, Record], deadline: float) -> Iterator[tuple[str, Record | MessageError]]:
        """The transport's answers; receipts are kept."""
        for site, answer in self.transport.ask(orders, deadline):
            receipt = answer.meta.get("receipt") if isinstance(answer, Record) else None
            if isinstance(receipt, str) and 0 < len(receipt) <= MAX_RECEIPT:
                self.receipts[site] = receipt
            yield site, answer

    def ask_all(self, order: Callable[[str], Record], read: Callable[[Record], M]) -> list[M] | None:
        """One good answer of every site, however long it takes; a site that says no ends the run. None: stopped."""
        out: dict[str, M] = {}
        errors: dict[str, str] = {}
        while not self.run.stopping:
            left = [site for site in self.network.sites if site not in out]
            if not left:
                return [out[site] for site in self.network.sites]
            pause = PRESENCE_POLL
            for site, answer in self.ask({site: order(site) for site in left}, self.options.deadline):
                try:
                    if isinstance(answer, MessageError):
                        raise answer
                    if answer.kind != Refusal.KIND:
                        out[site] = read(answer)
                        continue
                    said = Refusal.from_record(answer)
                    if said.reason != "approval":
                        raise NetworkError(f"{site} refused: {printable(said.text)}")
                    pause = ASK_AGAIN
                except MessageError as error:  # it is asked again; who looks sees which site holds the run up
                    if errors.get(site) != (text := printable(error)):  # said once, for a site could fill the disk
                        self.run.note("refused", site=site, text=text)
                    errors[site] = text
            if left := [site for site in left if site not in out]:
                person = ", where a person has to allow the run" if pause == ASK_AGAIN else ""
                self.wait_for(", ".join(left) + person, pause)
        return None

    def describe(self, site: str) -> Record:
        """The order that tells a site what the run is: all the same, but for the receipt of its own ledger."""
        o, n = self.options, self.network
        terms = RunTerms(
            task=task_text(n.task),
            token=self.run.token,
            method=o.method,
            local=o.local,
            aggregation="secure" if self.secure else "plain",
            coding=o.coding,
            sites=n.sites,
            certificates=self._certificates(),
            rounds=o.rounds or 0,
            moments=True,
            receipts=((site, self.receipts[site]),) if site in self.receipts else (),
            program=metadata.version("fedlsa"),
        )
        return Describe(self.run.name, terms.text()).record()

    def _certificates(self) -> tuple[str, ...]:
        """The certificates of all sites as they were when the run began: its terms stay when one is renewed or revoked.

        A run with secure aggregation waits for sites whose request nobody has approved; without it none are needed.
        """
        n, known = self.network, self.run.read(MEMBERS)
        while known is None:
            missing = [site for site in n.sites if self.secure and not n.site_certificate(site).is_file()]
            if not missing:
                known = {site: self._certificate(site) if self.secure else "" for site in n.sites}
                self.run.write(MEMBERS, known)
            elif self.run.stopping:
                raise NetworkError(f"it was stopped before {', '.join(missing)} had a certificate")
            else:
                self.wait_for(f"{', '.join(missing)}, whose request nobody has approved (fedlsa network approve)")
        return tuple(known.values()) if self.secure else ()

    def _certificate(self, site: str) -> str:
        pem = self.network.site_certificate(site).read_bytes()
        check_site(pem, self.network.ca.read_bytes(), self.network.id, site)
        return pem.decode("ascii")

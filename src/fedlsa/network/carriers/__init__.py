"""What moves bytes between coordinator and sites, and nothing else: it reads no message and knows no round.

A carrier says who is there and asks them. What is asked and answered is signed above it, so a carrier that loses,
repeats, delays or changes messages costs time, and never more.

The coordinator signs with the network's signing key, a site with the key of its certificate. Before an answer's body
stands the digest of the order, so what a site said to an earlier order, of this run or of another, is no answer to this
one; and what was signed for one site, or as an order, is nothing for another site, or as an answer (codec.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, Protocol

from ...errors import ArgumentError, MessageError, MissingExtraError
from ...threads import one_blas_thread
from .. import audit
from ..disk import Database
from ..folder.certificates import private_key, public_key
from ..folder.config import Network, SiteFolder
from ..protocol.codec import decode, encode, sign, verify
from ..protocol.messages import Answer, Answers, Order

DIGEST_BYTES = hashlib.sha256().digest_size
_public_key = lru_cache(maxsize=1024)(public_key)  # a certificate is read once, not in every round
Responder = Callable[[bytes], bytes]  # the site's side: an order comes in, its answer goes out


class Carrier(Protocol):
    """The coordinator's side of what moves bytes."""

    def present(self) -> tuple[str, ...]:
        """The sites that can be reached now, in order of their names."""
        ...

    def ask(self, orders: Mapping[str, bytes], deadline: float) -> Iterator[tuple[str, bytes]]:
        """Send each site its order; what comes back within `deadline` seconds, each site at most once.

        A site that is away, or leaves before it has answered, is asked when it returns within the deadline.
        """
        ...


def installed_carrier(carrier: str) -> tuple[Any, str]:
    """What `NAME:PLACE` means: the module of that name in the entry points `fedlsa.carriers`, and the place. It has
    `open_coordinator(network, place, say)`, a Carrier that can be closed, and `open_site(place, answer, say)`."""
    name, _, place = carrier.partition(":")
    if not name or not place:
        raise ArgumentError(f"carrier must be NAME:PLACE, such as nvflare:KIT; got {carrier!r}")
    found = entry_points(group="fedlsa.carriers", name=name)
    if not found:
        how = f"in fedlsa's repository: pip install ./integrations/fedlsa-{name}"
        raise MissingExtraError(f"the carrier {name!r} is not installed; {how}")
    return next(iter(found)).load(), place


class SignedTransport:
    """The run loop's transport: signs orders, and believes answers that the site's approved key has signed.

    Orders are in the audit log before they are sent, answers when they have come. run : whose they are, for people
    """

    def __init__(self, carrier: Carrier, network: Network, run: str = "") -> None:
        self.carrier, self.network, self.run = carrier, network, run
        self.store, self.key = Database(network.folder), private_key(network.signing_key.read_bytes())

    def present(self) -> tuple[str, ...]:
        """The sites that can be reached."""
        return self.carrier.present()

    def ask(self, orders: Mapping[str, Order], deadline: float) -> Iterator[tuple[str, Answer | MessageError]]:
        """Send orders; what comes back, once per site; what cannot be believed is a MessageError."""
        bodies = {site: encode(order) for site, order in orders.items()}
        sealed = {site: sign(self.key, "order", self.network.id, site, body) for site, body in bodies.items()}
        audit.note_messages(self.store, self.run, "orders", sealed)
        answers: dict[str, bytes] = {}
        try:
            for site, answer in self.carrier.ask(sealed, deadline):
                answers[site] = answer
                try:
                    yield site, self._read(site, bodies[site], answer)
                except MessageError as error:
                    yield site, error
        finally:
            silent = [site for site in orders if site not in answers]
            audit.note_messages(self.store, self.run, "answers", answers, silent)

    def _read(self, site: str, order: bytes, sealed: bytes) -> Answer:
        path = self.network.site_certificate(site)
        if not path.is_file():
            raise MessageError(f"{site} has no approved certificate any more")
        body = verify(_public_key(path.read_bytes()), "answer", self.network.id, site, sealed)
        if body[:DIGEST_BYTES] != hashlib.sha256(order).digest():
            raise MessageError(f"the answer of {site} must be to the order that it was sent; it is to another one")
        return decode(body[DIGEST_BYTES:], Answers)


class SignedSite:
    """A site's answers as a carrier wants them: bytes in, bytes out. Orders that the coordinator did not sign raise."""

    def __init__(self, site: SiteFolder, answer: Callable[[bytes], bytes]) -> None:
        self.site, self.answer = site, answer
        self.key: Any = private_key(site.key.read_bytes())
        self.coordinator: Any = public_key(site.signing_public.read_bytes())

    def __call__(self, sealed: bytes) -> bytes:
        name, network = self.site.name, self.site.network
        order = verify(self.coordinator, "order", network, name, sealed)
        with one_blas_thread():  # links and pages have threads beside this one
            body = hashlib.sha256(order).digest() + self.answer(order)
        return sign(self.key, "answer", network, name, body)

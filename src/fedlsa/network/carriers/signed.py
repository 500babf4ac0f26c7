"""Messages over any carrier: every order and every answer is signed, and an answer names the very order it answers.

The coordinator signs with the network's signing key, a site with the key of its certificate. Before an answer's body
stands the digest of the order, so what a site said to an earlier order, of this run or of another, is no answer to this
one; and what was signed for one site, or as an order, is nothing for another site, or as an answer (codec.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from ...errors import MessageError
from ...theory.threads import one_blas_thread
from .. import audit
from ..folder.certificates import private_key, public_key
from ..folder.config import Network, SiteFolder
from ..protocol.codec import decode, encode, sign, verify
from ..protocol.messages import Answer, Answers, Order
from ..store import Database
from . import Carrier

DIGEST_BYTES = hashlib.sha256().digest_size
_public_key = lru_cache(maxsize=1024)(public_key)  # a certificate is read once, not in every round


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
        """The signed answer to a signed order."""
        name, network = self.site.name, self.site.network
        order = verify(self.coordinator, "order", network, name, sealed)
        with one_blas_thread():  # links and pages have threads beside this one
            body = hashlib.sha256(order).digest() + self.answer(order)
        return sign(self.key, "answer", network, name, body)

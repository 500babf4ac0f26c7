"""What moves bytes between coordinator and sites, and nothing else: it reads no message and knows no round.

A carrier says who is there and asks them. What is asked and answered is signed above it (signed.py), so a carrier that
loses, repeats, delays or changes messages costs time, and never more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol

from ...errors import ArgumentError, MissingExtraError

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
    """What `NAME:PLACE` means: the module of that name in the entry points `fedlsa.carriers`, and the place.

    It has `open_coordinator(network, place, say)`, a Carrier that can be closed, and `open_site(place, answer, say)`,
    which runs until it is stopped.
    """
    name, _, place = carrier.partition(":")
    if not name or not place:
        raise ArgumentError(f"carrier must be NAME:PLACE, such as nvflare:KIT; got {carrier!r}")
    found = entry_points(group="fedlsa.carriers", name=name)
    if not found:
        raise MissingExtraError(
            f"the carrier {name!r} is not installed; in fedlsa's repository: pip install ./integrations/fedlsa-{name}"
        )
    return next(iter(found)).load(), place

"""The carrier over NVIDIA FLARE: the tasks of one job pass sealed messages between fedlsa's own processes.

The two functions are what fedlsa calls for `--carrier nvflare:PLACE`. Nothing is loaded before they are called, since
FLARE's processes import this package too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedlsa.network.folder.config import Network

    from .relay import RelaySite
    from .supervisor import SupervisedCarrier


def open_coordinator(network: Network, place: str, say: Callable[[str], None]) -> SupervisedCarrier:
    """The coordinator's end; place : the supervisor's FLARE folder."""
    from .supervisor import SupervisedCarrier

    return SupervisedCarrier(network, Path(place), say)


def open_site(place: str, answer: Callable[[bytes], bytes], say: Callable[[str], None]) -> RelaySite:
    """A site's end; place : the socket at which its FLARE client brings orders."""
    from .relay import RelaySite

    return RelaySite(Path(place).absolute(), answer, say)

"""Certificates that end soon: a program that goes on for years says so when it starts, and once a day."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...errors import FedLSAError
from . import certificates
from .config import Network, SiteFolder

DAY = 86400.0  # seconds


def certificate_warnings(of: Network | SiteFolder) -> list[str]:
    """What must be renewed, and what is damaged, in a folder: its own certificates, and a network's sites'."""
    sites = [of.site_certificate(site) for site in of.sites] if isinstance(of, Network) else []
    out = []
    for path in (of.ca, of.certificate, *sites):
        try:
            text = certificates.expiring(path) if path.exists() else None
        except FedLSAError as error:
            text = f"{path}: {error}"
        if text is not None:
            out.append(text)
    return out


def warn_daily(
    of: Network | SiteFolder, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> Callable[[], None]:
    """A function that may be called often; it tells the warnings the first time, and again when a day is over."""
    due = clock()

    def warn() -> None:
        nonlocal due
        if clock() >= due:
            due = clock() + DAY
            for text in certificate_warnings(of):
                tell(f"WARNING: {text}")

    return warn

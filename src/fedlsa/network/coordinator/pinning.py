"""What the coordinator's folder says while it is being served: who is approved, and which coordinators went before."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

from ...errors import FedLSAError, NetworkError
from ...files import reason
from ..disk import sync
from ..folder.certificates import check_site, expires
from ..folder.config import Network

MAX_STARTS = 10_000  # identities that are kept
Stamp = tuple[int, int, int]


class PinnedCertificates:
    """The approved certificate of each site, read again when a file has changed; safe to be asked very often."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._network: tuple[Stamp, Network] | None = None
        self._known: dict[str, tuple[Stamp, bytes, datetime]] = {}

    def __call__(self, site: str) -> bytes | None:
        """The certificate (PEM) of a site that is listed, approved and within its dates; else None."""
        network = self.network()
        if site not in network.sites:
            return None
        path = network.site_certificate(site)
        try:
            stamp = _stamp(path)
            if self._known.get(site, (None,))[0] != stamp:
                pem = path.read_bytes()
                check_site(pem, network.ca.read_bytes(), network.id, site)
                self._known[site] = stamp, pem, expires(pem)
        except (FileNotFoundError, FedLSAError):  # none; or damaged, of another name or authority, not valid today
            return None
        _, certificate, end = self._known[site]
        return certificate if datetime.now(UTC) <= end else None

    def network(self) -> Network:
        """The network as its file says now."""
        stamp = _stamp(self.folder / Network.FILE)
        if self._network is None or self._network[0] != stamp:
            self._network = stamp, Network.load(self.folder)
        return self._network[1]


def _stamp(path: Path) -> Stamp:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size, found.st_ino


class Lineage:
    """Every start of a coordinator has an identity of its own, and its folder keeps those of all before it.

    A site remembers whom it was with last, and asks a coordinator whether it knows that one. A restart does; a second
    coordinator that was started from a copy of the folder does not know the other's later starts, and is noticed.
    """

    def __init__(self, path: Path) -> None:
        self.identity = secrets.token_hex(8)
        try:
            before = path.read_text(encoding="ascii", errors="replace").split() if path.exists() else []
            self.before = frozenset(before[-MAX_STARTS:])
            with path.open("a", encoding="ascii") as file:
                file.write(self.identity + "\n")
                file.flush()
                os.fsync(file.fileno())
            sync(path.parent)
        except OSError as error:
            raise NetworkError(f"cannot write {path}: {reason(error)}") from error

    def knows(self, identity: str) -> bool:
        """Whether this coordinator follows on one of that identity; an empty one is nobody's."""
        return not identity or identity == self.identity or identity in self.before

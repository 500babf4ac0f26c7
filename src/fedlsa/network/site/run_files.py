"""What a site keeps of its runs: in its store what it was told (terms, coordinates, weights), its state (client.py) and
hashes of the rows that the last one used; in results/EXPERIMENT.json the estimate, when a run is over."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import MessageError, NetworkError
from .. import disk
from ..folder.config import SiteFolder
from ..protocol.client import ClientState
from ..protocol.codec import decode, encode
from ..store import Database
from .facts import TableView, changed_rows

SECRET_BYTES = DIGEST_BYTES = 32
MOST_HASHED = 2**29  # bytes: SQLite holds values of up to 1 GB


def _columns_digest(table_view: TableView) -> bytes:
    return hashlib.sha256(json.dumps(table_view.names).encode()).digest()


@dataclass(frozen=True)
class RunFiles:
    """What a site keeps of its runs."""

    site: SiteFolder
    store: Database
    say: Callable[[str], None]

    def note(self, experiment: str) -> dict[str, Any] | None:
        """What the site has been told of a run; a damaged note is none."""
        try:
            found: dict[str, Any] | None = self.store.get_json(experiment, "note")
        except ValueError:
            return None
        return found

    def remember(self, experiment: str, note: dict[str, Any]) -> None:
        """Write the note."""
        self.store.put_json(experiment, "note", note)

    def state(self, experiment: str) -> ClientState | None:
        """The stored state; with a damaged one the site begins again, as one that forgot."""
        content = self.store.get(experiment, "state")
        try:
            return None if content is None else decode(content, ClientState)
        except MessageError as error:
            self.say(f"the state of the run {experiment} is damaged: {error}")
            return None

    def keep(self, experiment: str, old: ClientState | None, new: ClientState | None) -> None:
        """Keep a state that has changed: it is on the disk with the next entry of the ledger."""
        if new is not None and new is not old:
            self.store.stage(experiment, "state", encode(new))

    def changed_rows(self, table_view: TableView) -> tuple[int, int] | None:
        """Rows that are gone and rows that are new since the last run; None where the columns were others."""
        kept = self.store.get("", "rows") or b""
        if kept[:DIGEST_BYTES] != _columns_digest(table_view):
            return None
        return changed_rows(np.frombuffer(kept[DIGEST_BYTES:], np.uint64), table_view.rows)

    def keep_rows(self, table_view: TableView) -> None:
        """Keep hashes of all rows, to be compared with those of the next run."""
        content = _columns_digest(table_view) + table_view.rows.tobytes()
        if table_view.rows.nbytes < MOST_HASHED and content != self.store.get("", "rows"):
            self.store.stage("", "rows", content)

    def write_result(self, experiment: str, content: dict[str, Any]) -> None:
        """Write the estimate of a run."""
        self.site.results.mkdir(exist_ok=True)
        disk.write_json(self.site.results / f"{experiment}.json", content, "a result")

    def draws_secret(self) -> bytes:
        """The secret from which the site draws its rows; made at first, of mode 600."""
        path = self.site.folder / "draws.secret"
        if not path.exists():
            disk.create(path, secrets.token_bytes(SECRET_BYTES), secret=True)
        content = disk.check_secret(path, "the site's secret for draws").read_bytes()
        if len(content) != SECRET_BYTES:
            raise NetworkError(f"the site's secret for draws {path} is damaged; remove it, and a new one is made")
        return content

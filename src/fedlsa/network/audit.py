"""The coordinator's audit log, the hash chain of its folder (disk.py): what it sent, took, refused and settled, and
whom it approved, so that it can be shown afterwards what was asked of whom, and when.

Orders are written down before they are sent, as digests of the very bytes, signature included: whoever kept an order
can show that it is the one that was sent, and the log itself holds no number of anybody's.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .disk import ChainHead, Database, place_of
from .folder.config import Network
from .protocol.codec import printable

AUDITED_EVENTS = ("planned", "resumed", "refused", "alarm", "failed", "finished")  # of a run; see RunFolder.note
MAX_TEXT = 1000


def note_messages(
    store: Database, run: str, event: str, messages: Mapping[str, bytes], silent: Sequence[str] = ()
) -> None:
    """Write down the digests of messages by site, as they were carried; silent : sites of which none came."""
    digests = {site: hashlib.sha256(message).hexdigest() for site, message in messages.items()}
    store.append({"event": event, "run": run, "sites": digests} | ({"silent": list(silent)} if silent else {}))


def entry_of(event: str, **content: str | int | float | None) -> dict[str, Any]:
    """An entry that says what a person or a run did. Texts are cut to a line."""
    return {"event": event} | {n: printable(v, MAX_TEXT) if isinstance(v, str) else v for n, v in content.items()}


def note(folder: Path, event: str, **content: str | int | float | None) -> None:
    """Write down something that was done; folder : the coordinator's."""
    Database(folder).append(entry_of(event, **content))


def contents(folder: Path | str, kept: str | None = None) -> dict[str, Any]:
    """Verify the audit log, as `report` does: its file, its head and every entry, for programs."""
    store = Database(Network.load(folder).folder)
    head = store.verify(None if kept is None else ChainHead.from_text(kept))
    return {"file": str(store.path), "head": str(head), "entries": list(store.entries())}


def report(folder: Path | str, kept: str | None = None, last: int = 20) -> list[str]:
    """Verify the audit log and say what it holds: counts, the last entries, and the head to be kept elsewhere.

    kept : a head from before, NUMBER:HASH; a log that no longer holds it is a NetworkError
    """
    found = contents(folder, kept)
    entries = found["entries"]
    counts = Counter(str(entry.get("event")) for entry in entries)
    counted = ", ".join(f"{n} {printable(event, 40)}" for event, n in sorted(counts.items())) or "nothing yet"
    whole = f"{found['file']}: {len(entries)} entries, each holds the one before it ({counted})"
    keep = f"keep this elsewhere, and give it back with --head: {found['head']}"
    return [*map(_line, entries[max(len(entries) - last, 0) :]), whole, keep]


def _line(entry: dict[str, Any]) -> str:
    sites, silent = (", ".join(map(str, entry.get(name, ()))) for name in ("sites", "silent"))
    words = [entry.get("run"), entry.get("site"), sites, silent and f"no answer of {silent}", entry.get("text")]
    rest = "; ".join(str(word) for word in words if word)
    return f"{place_of(entry)}  {printable(entry.get('event'), 40)}  {printable(rest, 160)}"

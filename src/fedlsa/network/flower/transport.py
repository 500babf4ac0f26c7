"""The coordinator's side of the wire: records to sites and answers back, over Flower's Grid."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import MessageError
from ..protocol.records import Record
from .replies import Replies, from_content, to_content

PULL = 0.25  # seconds between looks for answers
PULL_PART = 0.05  # seconds until the next look for an answer of which a part is still under way
WHO = "who"
RESEND, MAX_RESEND = 6.0, 60.0  # seconds after which an order is sent again, at first and later: a site may restart


@dataclass
class FlowerTransport:
    """Carries records. names : site by node id, from the sites' keys.

    trusting : the names that nodes may give themselves where there are no keys (--insecure); else none
    """

    grid: Any
    names: dict[int, str]
    trusting: frozenset[str] = frozenset()
    pull: float = PULL
    asked: dict[str, int] = field(default_factory=dict)
    replies: Replies = field(init=False)

    def __post_init__(self) -> None:
        self.replies = Replies(self.grid)

    def present(self) -> tuple[str, ...]:
        """The sites that are connected now, or were heard of within the last minute."""
        ids = {int(n) for n in self.grid.get_node_ids()}
        if self.trusting:
            self._meet(ids)
        return tuple(sorted(self.names[n] for n in ids if n in self.names))

    def _meet(self, ids: set[int]) -> None:
        """Ask nodes without keys for their names; the latest to give a name has it."""
        from flwr.app import ConfigRecord, Message, RecordDict

        new = sorted(ids - set(self.names) - set(self.asked.values()))
        hello = [Message(RecordDict({WHO: ConfigRecord({})}), dst_node_id=n, message_type="train") for n in new]
        if hello:
            self.asked.update({str(i): n for i, n in zip(self.grid.push_messages(hello), new, strict=True) if i})
        for order, _, content in self.replies.collect(list(self.asked)):
            node, name = self.asked.pop(order), _name(content)
            if name in self.trusting:
                self.names = {n: s for n, s in self.names.items() if s != name} | {node: name}

    def ask(self, orders: Mapping[str, Record], deadline: float) -> Iterator[tuple[str, Record | MessageError]]:
        """Send each site its order and yield what comes back, until all have answered or `deadline` seconds passed.

        An order without an answer is sent again now and then: a site answers the same again, so twice is once.
        An answer is given out once per site. One that cannot be read is given out as the error that says so.
        """
        end, next_send, pause = time.monotonic() + deadline, 0.0, RESEND
        waiting, sent = set(orders), dict[str, str]()
        try:
            while waiting and (left := end - time.monotonic()) > 0:
                if time.monotonic() >= next_send:
                    here = set(self.present())  # without keys, a site that returns has a new node
                    node = {site: n for n, site in self.names.items()}
                    sent.update(self._send({node[site]: orders[site] for site in sorted(waiting & here)}, left))
                    next_send, pause = time.monotonic() + pause, min(2 * pause, MAX_RESEND)
                for order, source, content in self.replies.collect(list(sent)):
                    site = sent.pop(order)
                    # An error that Flower itself makes (a node that is gone) is no answer of the site's.
                    if site not in waiting or content is None or self.names.get(source) != site:
                        continue
                    waiting.discard(site)
                    yield site, _read(content)
                time.sleep(min(PULL_PART if self.replies.arriving else self.pull, max(0.0, left)))
        finally:
            self.replies.forget(sent)

    def _send(self, orders: Mapping[int, Record], ttl: float) -> dict[str, str]:
        """Push one message per node; the site by message id. ttl : seconds after which the message is dropped."""
        from flwr.app import Message

        if not orders:
            return {}
        messages = [
            Message(to_content(record), dst_node_id=n, message_type="train", ttl=max(ttl, 1.0))
            for n, record in orders.items()
        ]
        ids = list(self.grid.push_messages(messages))
        return {str(i): self.names[n] for i, n in zip(ids, orders, strict=False) if i}


def _read(content: Any) -> Record | MessageError:
    try:
        return content if isinstance(content, MessageError) else from_content(content)
    except MessageError as error:
        return error


def _name(content: Any) -> str | None:
    """The name that a node without a key gives itself."""
    try:
        name = content[WHO]["site"]
    except (LookupError, TypeError):  # an error, nothing, or something else
        return None
    return name if isinstance(name, str) else None

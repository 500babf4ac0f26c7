"""The coordinator's side of the wire: records to sites and answers back, over Flower's Grid.

A Record is one ConfigRecord, arrays as bytes beside their type and shape: three objects on the wire where arrays of
Flower's own would be seven, and each costs a request. A type outside the list, a shape that does not fit the bytes, or
a value of another kind than the schema's is a MessageError.

HttpGrid.pull_messages waits up to two hours for an object that a site holds back, takes trees of any size, and raises
whatever inflating raises. Here the tree is counted before an object is fetched, an object that is still under way is
looked for again next time, and a reply that cannot be read is an error of that reply alone. Who replied, and to
what, is what the SuperLink noted, not what the reply says of itself.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from ...errors import MessageError
from ..protocol.records import Record, Scalar

PULL = 0.25  # seconds between looks for answers
PULL_PART = 0.05  # seconds until the next look for an answer of which a part is still under way
WHO = "who"
MAX_OBJECTS = 16  # of one reply; an honest one has three: the message, its RecordDict and one ConfigRecord
MAX_BYTES = 16 * 2**20  # of one reply, as of one request at the gate: one object may exceed it by that again, no more
KEY = "fedlsa"
TYPES = {"float64": np.float64, "int8": np.int8, "int16": np.int16}
RESEND, MAX_RESEND = 6.0, 60.0  # seconds after which an order is sent again, at first and later: a site may restart


def to_content(record: Record) -> Any:
    """The RecordDict that carries a record."""
    entries: dict[str, Any] = {"kind": record.kind, **{f"meta.{k}": v for k, v in record.meta.items()}}
    for name, array in record.arrays.items():
        a = np.ascontiguousarray(array)
        entries[f"array.{name}"] = a.tobytes()
        entries[f"shape.{name}"] = ":".join([str(a.dtype), *map(str, a.shape)])
    return RecordDict({KEY: ConfigRecord(entries)})


def from_content(content: Any) -> Record:
    """The record that a RecordDict carries; MessageError where it carries none."""
    try:
        entries = dict(content[KEY])
    except (KeyError, TypeError, ValueError):
        raise MessageError(f"a message must hold a record named {KEY}; got none") from None
    meta: dict[str, Scalar] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in entries.items():
        part, _, rest = name.partition(".")
        if part == "meta" and isinstance(value, Scalar):
            meta[rest] = value
        elif part == "array" and isinstance(value, bytes):
            arrays[rest] = _array(rest, value, entries.get(f"shape.{rest}"))
        elif part not in ("kind", "shape"):
            raise MessageError(f"a message's entry must be a scalar or an array; got {name[:40]!r}")
    kind = entries.get("kind")
    if not isinstance(kind, str):
        raise MessageError("a message must name its kind; got none")
    return Record(kind, meta, arrays)


def _array(name: str, data: bytes, described: Any) -> np.ndarray:
    kind, *lengths = described.split(":") if isinstance(described, str) else [""]
    rule = f"array {name[:40]!r} must be one of {', '.join(TYPES)} with a shape that fits its {len(data)} bytes"
    if kind not in TYPES or len(lengths) > 3 or not all(n.isascii() and n.isdigit() and len(n) < 12 for n in lengths):
        raise MessageError(f"{rule}; got {str(described)[:40]!r}")
    try:
        return np.frombuffer(data, dtype=TYPES[kind]).reshape([int(n) for n in lengths]).copy()
    except ValueError:  # of another size, or lengths around a zero that no array can have
        raise MessageError(f"{rule}; got {described[:40]!r}") from None


@dataclass
class _Arriving:
    """A reply whose objects are being fetched. missing : ids of objects that are not here yet."""

    node: int
    root: str
    missing: list[str]
    contents: dict[str, bytes] = field(default_factory=dict)


def _ids(tree: Any) -> list[str]:
    """The ids in a tree, each once; MessageError where there are more than an honest reply has."""
    found: list[str] = []
    left = [tree]
    while left:
        at = left.pop()
        found.append(str(at.object_id))
        left.extend(at.children)
        if len(found) + len(left) > MAX_OBJECTS:
            raise MessageError(f"a reply must have at most {MAX_OBJECTS} objects; got more")
    return list(dict.fromkeys(found))


@dataclass
class FlowerTransport:
    """Carries records. names : site by node id, from the sites' keys.

    trusting : the names that nodes may give themselves where there are no keys (--insecure); else none
    asked : nodes that were asked for their names, and arriving : replies on their way, by the id of the message
    """

    grid: Any
    names: dict[int, str]
    trusting: frozenset[str] = frozenset()
    pull: float = PULL
    asked: dict[str, int] = field(default_factory=dict)
    arriving: dict[str, _Arriving] = field(default_factory=dict)

    def present(self) -> tuple[str, ...]:
        """The sites that are connected now, or were heard of within the last minute."""
        ids = {int(n) for n in self.grid.get_node_ids()}
        if self.trusting:
            self._meet(ids)
        return tuple(sorted(self.names[n] for n in ids if n in self.names))

    def _meet(self, ids: set[int]) -> None:
        """Ask nodes without keys for their names; the latest to give a name has it."""
        new = sorted(ids - set(self.names) - set(self.asked.values()))
        hello = [Message(RecordDict({WHO: ConfigRecord({})}), dst_node_id=n, message_type="train") for n in new]
        if hello:
            self.asked.update({str(i): n for i, n in zip(self.grid.push_messages(hello), new, strict=True) if i})
        for order, _, content in self._collect(list(self.asked)):
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
                for order, source, content in self._collect(list(sent)):
                    site = sent.pop(order)
                    # An error that Flower itself makes (a node that is gone) is no answer of the site's.
                    if site not in waiting or content is None or self.names.get(source) != site:
                        continue
                    waiting.discard(site)
                    yield site, _read(content)
                time.sleep(min(PULL_PART if self.arriving else self.pull, max(0.0, left)))
        finally:
            for order in sent:  # what has arrived of replies that are no longer wanted
                self.arriving.pop(order, None)

    def _send(self, orders: Mapping[int, Record], ttl: float) -> dict[str, str]:
        """Push one message per node; the site by message id. ttl : seconds after which the message is dropped."""
        if not orders:
            return {}
        messages = [
            Message(to_content(record), dst_node_id=n, message_type="train", ttl=max(ttl, 1.0))
            for n, record in orders.items()
        ]
        ids = list(self.grid.push_messages(messages))
        return {str(i): self.names[n] for i, n in zip(ids, orders, strict=False) if i}

    def _collect(self, ids: Collection[str]) -> Iterator[tuple[str, int, Any]]:
        """(id, node, content) for each reply that is whole by now; ids : of the messages whose replies are wanted.

        content : a RecordDict; a MessageError where it cannot be read; None where there will be none, since the
        objects were lost on the way or Flower itself reports an error. Only trouble of the transport is raised.
        """
        wanted = [i for i in ids if i not in self.arriving]
        if wanted:
            found = self.grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=wanted))
            for proto, tree in zip(found.messages_list, found.message_object_trees, strict=False):
                order, node = str(proto.metadata.reply_to_message_id), int(proto.metadata.src_node_id)
                if order not in wanted:
                    continue
                try:
                    self.arriving[order] = _Arriving(node, str(proto.metadata.message_id), _ids(tree))
                except MessageError as error:
                    self._confirm(str(proto.metadata.message_id))
                    yield order, node, error
        for order in [i for i in ids if i in self.arriving]:
            reply = self.arriving[order]
            content = self._content(reply)
            if content is not reply:
                del self.arriving[order]
                yield order, reply.node, content

    def _content(self, reply: _Arriving) -> Any:
        """What `_collect` gives out, or the reply itself while it is not whole."""
        try:
            whole = self._fetch(reply)
            if not whole:
                return None if whole is None else reply
            self._confirm(reply.root)
            message = inflate_object_from_contents(reply.root, reply.contents)
            if not isinstance(message, Message):
                raise MessageError(f"the reply cannot be read: it is a {type(message).__name__}")
            if message.has_error():
                return None
            if not isinstance(message.content, RecordDict):
                raise MessageError(f"the reply cannot be read: it holds a {type(message.content).__name__}")
            return message.content
        except MessageError as error:
            return error
        except httpx.HTTPError:
            raise
        except Exception as error:  # inflating what somebody made up can fail in any way
            return MessageError(f"the reply cannot be read: {type(error).__name__}")

    def _fetch(self, reply: _Arriving) -> bool | None:
        """Take the objects that are there by now; whether all are. None: one is lost, its sender was too slow."""
        for name in list(reply.missing):
            request = PullObjectRequest(node=self.grid.node, run_id=self.grid.run.run_id, object_id=name)
            answer = self.grid._runtime_client.PullObject(request)
            if not answer.object_found:
                return None
            if not answer.object_available:
                return False
            reply.missing.remove(name)
            reply.contents[name] = bytes(answer.object_content)
            if sum(map(len, reply.contents.values())) > MAX_BYTES:
                self._confirm(reply.root)
                raise MessageError(f"a reply must have at most {MAX_BYTES} bytes; got more")
        return True

    def _confirm(self, root: str) -> None:
        """Let the SuperLink drop a reply's objects."""
        request = ConfirmMessageReceivedRequest(
            node=self.grid.node, run_id=self.grid.run.run_id, message_object_id=root
        )
        self.grid._runtime_client.ConfirmMessageReceived(request)


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

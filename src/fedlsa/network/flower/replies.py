"""Records as Flower carries them, and replies taken object by object with limits: what a site pushed is not trusted.

A Record is one ConfigRecord, arrays as bytes beside their type and shape: three objects on the wire where arrays of
Flower's own would be seven, and each costs a request. A type outside the list, a shape that does not fit the bytes, or
a value of another kind than the schema's is a MessageError.

HttpGrid.pull_messages waits up to two hours for an object that a site holds back, takes trees of any size, and raises
whatever inflating raises. Here the tree is counted before an object is fetched, an object that is still under way is
looked for again next time, and a reply that cannot be read is an error of that reply alone. Who replied, and to
what, is what the SuperLink noted, not what the reply says of itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import MessageError
from ..protocol.records import Record, Scalar

MAX_OBJECTS = 16  # of one reply; an honest one has three: the message, its RecordDict and one ConfigRecord
MAX_BYTES = 16 * 2**20  # of one reply, as of one request at the gate: one object may exceed it by that again, no more
KEY = "fedlsa"
TYPES = {"float64": np.float64, "int8": np.int8, "int16": np.int16}


def to_content(record: Record) -> Any:
    """The RecordDict that carries a record."""
    from flwr.app import ConfigRecord, RecordDict

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
    shape = tuple(int(n) for n in lengths)
    if math.prod(shape) * np.dtype(TYPES[kind]).itemsize != len(data):
        raise MessageError(f"{rule}; got {described[:40]!r}")
    try:
        return np.frombuffer(data, dtype=TYPES[kind]).reshape(shape).copy()
    except ValueError:  # lengths around a zero that no array can have
        raise MessageError(f"{rule}; got {described[:40]!r}") from None


@dataclass
class _Arriving:
    """A reply whose objects are being fetched. missing : ids of objects that are not here yet."""

    node: int
    root: str
    missing: list[str]
    contents: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Replies:
    """Replies on their way over a grid, by the id of the message that they answer."""

    grid: Any
    arriving: dict[str, _Arriving] = field(default_factory=dict)

    def collect(self, ids: Collection[str]) -> Iterator[tuple[str, int, Any]]:
        """(id, node, content) for each reply that is whole by now; ids : of the messages whose replies are wanted.

        content : a RecordDict; a MessageError where it cannot be read; None where there will be none, since the
        objects were lost on the way or Flower itself reports an error. Only trouble of the transport is raised.
        """
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest

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

    def forget(self, ids: Collection[str]) -> None:
        """Drop what has arrived of replies that are no longer wanted."""
        for order in ids:
            self.arriving.pop(order, None)

    def _content(self, reply: _Arriving) -> Any:
        """What `collect` gives out, or the reply itself while it is not whole."""
        import httpx
        from flwr.app import Message, RecordDict
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        try:
            if not self._fetch(reply):
                return reply
            self._confirm(reply.root)
            message = inflate_object_from_contents(reply.root, reply.contents)
            if not isinstance(message, Message):
                raise MessageError(f"the reply cannot be read: it is a {type(message).__name__}")
            if message.has_error():
                return None
            if not isinstance(message.content, RecordDict):
                raise MessageError(f"the reply cannot be read: it holds a {type(message.content).__name__}")
            return message.content
        except _Lost:
            return None
        except MessageError as error:
            return error
        except httpx.HTTPError:
            raise
        except Exception as error:  # inflating what somebody made up can fail in any way
            return MessageError(f"the reply cannot be read: {type(error).__name__}")

    def _fetch(self, reply: _Arriving) -> bool:
        """Take the objects that are there by now; whether all are."""
        from flwr.proto.message_pb2 import PullObjectRequest

        for name in list(reply.missing):
            request = PullObjectRequest(node=self.grid.node, run_id=self.grid.run.run_id, object_id=name)
            answer = self.grid._runtime_client.PullObject(request)
            if not answer.object_found:
                raise _Lost(name)
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
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

        request = ConfirmMessageReceivedRequest(
            node=self.grid.node, run_id=self.grid.run.run_id, message_object_id=root
        )
        self.grid._runtime_client.ConfirmMessageReceived(request)


class _Lost(LookupError):
    """An object that the SuperLink no longer has: its sender did not complete the upload in time."""


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

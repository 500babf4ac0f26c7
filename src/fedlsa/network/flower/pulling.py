"""Replies from the SuperLink, taken object by object with limits: what a site pushed is not trusted.

HttpGrid.pull_messages waits up to two hours for an object that a site holds back, takes trees of any size, and raises
whatever inflating raises. Here the tree is counted before an object is fetched, an object that is still under way is
looked for again at the next look, and a reply that cannot be read is an error of that reply alone. Who replied, and to
what, is what the SuperLink noted, not what the reply says of itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...errors import MessageError

OBJECTS = 16  # of one reply; an honest one has three: the message, its RecordDict and one ConfigRecord
BYTES = 16 * 2**20  # of one reply, as of one request at the gate: one object may exceed it by no more than that again


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

    def look(self, ids: Collection[str]) -> Iterator[tuple[str, int, Any]]:
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
        """What `look` gives out, or the reply itself while it is not whole."""
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
            content = message.content
            if not isinstance(content, RecordDict):
                raise MessageError(f"the reply cannot be read: it holds a {type(content).__name__}")
            return content
        except LookupError as error:
            return None if isinstance(error, _Lost) else MessageError("the reply cannot be read: a part is missing")
        except MessageError as error:
            return error
        except Exception as error:
            if _of_transport(error):
                raise
            return MessageError(f"the reply cannot be read: {type(error).__name__}")

    def _fetch(self, reply: _Arriving) -> bool:
        """Take the objects that are there by now; whether all are."""
        from flwr.proto.message_pb2 import PullObjectRequest

        for held in list(reply.missing):
            request = PullObjectRequest(node=self.grid.node, run_id=self.grid.run.run_id, object_id=held)
            found = self.grid._runtime_client.PullObject(request)
            if not found.object_found:
                raise _Lost(held)
            if not found.object_available:
                return False
            reply.missing.remove(held)
            reply.contents[held] = bytes(found.object_content)
            if sum(map(len, reply.contents.values())) > BYTES:
                self._confirm(reply.root)
                raise MessageError(f"a reply must have at most {BYTES} bytes; got more")
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
        if len(found) + len(left) > OBJECTS:
            raise MessageError(f"a reply must have at most {OBJECTS} objects; got more")
    return list(dict.fromkeys(found))


def _of_transport(error: Exception) -> bool:
    import httpx

    return isinstance(error, httpx.HTTPError)

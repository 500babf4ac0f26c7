"""The wire on its own, without Flower's processes: what a site may push, which errors end a run, who carries it."""

import os
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from fedlsa.errors import (
    ArgumentError,
    MessageError,
    NetworkError,
    ResultFileError,
    SingularSystemError,
    SiteDataError,
)
from fedlsa.network.flower import coordinator_worker, site_worker, transport
from fedlsa.network.flower.transport import WHO, FlowerTransport, from_content, to_content
from fedlsa.network.processes import only_one
from fedlsa.network.protocol.messages import Refusal


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Who this process is to Flower, which its messages note."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def reply(content, node, order):
    """A site's reply to the message `order`."""
    about = Metadata(
        run_id=1, message_id="", src_node_id=node, dst_node_id=1, message_type="train", group_id="", ttl=60.0,
        reply_to_message_id=order, created_at=time.time(),
    )  # fmt: skip
    return make_message(metadata=about, content=content)


class Grid:
    """A SuperLink that holds what sites pushed: answers[node] makes (root id, tree, objects) from an order's id."""

    node, run = None, SimpleNamespace(run_id=1)

    def __init__(self, answers):
        self.answers, self.sent, self.objects, self.confirmed, self.pulled = answers, {}, {}, [], []
        self._runtime_client = self

    def get_node_ids(self):
        return list(self.answers)

    def push_messages(self, messages):
        ids = [f"order-{len(self.sent) + k}" for k, _ in enumerate(messages)]
        self.sent |= {i: message.metadata.dst_node_id for i, message in zip(ids, messages, strict=True)}
        return ids

    def PullMessages(self, request):
        found = SimpleNamespace(messages_list=[], message_object_trees=[])
        for order in request.message_ids:
            node = self.sent.get(order)
            made = self.answers.get(node) and self.answers[node](order)
            if made is None:
                continue
            del self.sent[order]
            root, tree, objects = made
            self.objects |= objects
            about = SimpleNamespace(message_id=root, reply_to_message_id=order, src_node_id=node)
            found.messages_list.append(SimpleNamespace(metadata=about))
            found.message_object_trees.append(tree)
        return found

    def PullObject(self, request):
        self.pulled.append(request.object_id)
        held = self.objects.get(request.object_id)
        if isinstance(held, Exception):
            raise held
        return SimpleNamespace(
            object_found=request.object_id in self.objects, object_available=held is not None, object_content=held
        )

    def ConfirmMessageReceived(self, request):
        self.confirmed.append(request.message_object_id)


def pushed(thing):
    """What an honest SuperNode pushes of an object: its id, its tree, its parts."""
    parts = {i: part.deflate() for i, part in get_all_nested_objects(thing).items()}
    return thing.object_id, get_object_tree(thing), parts


def honest(node):
    return lambda order: pushed(reply(to_content(Refusal("e", 1, 0, "other", f"no {node}").record()), node, order))


ORDER = Refusal("e", 1, 0, "other", "an order").record()


def ask(grid, names, deadline=5.0, **options):
    carrier = FlowerTransport(grid, names, pull=0.01, **options)
    return dict(carrier.ask(dict.fromkeys(names.values(), ORDER), deadline))


def bare(order):
    """Not a message: a ConfigRecord as the root."""
    return pushed(ConfigRecord({"a": 1}))


def lying(order):
    """A tree that holds less than the message needs."""
    root, _, parts = pushed(reply(to_content(ORDER), 7, order))
    return root, ObjectTree(object_id=root), {root: parts[root]}


def garbage(order):
    return "x", ObjectTree(object_id="x"), {"x": b"\xff" * 50}


def forest(order):
    tree = ObjectTree(object_id="r", children=[ObjectTree(object_id=str(k)) for k in range(transport.MAX_OBJECTS)])
    return "r", tree, {str(k): b"x" for k in range(transport.MAX_OBJECTS)}


def deep(order):
    tree = ObjectTree(object_id="0")
    for k in range(transport.MAX_OBJECTS):
        tree = ObjectTree(object_id=str(k + 1), children=[tree])
    return tree.object_id, tree, {}


@pytest.mark.parametrize("push", [bare, lying, garbage, forest, deep])
def test_a_reply_that_cannot_be_read_is_that_sites_error_alone(push):
    found = ask(Grid({7: push, 8: honest(8)}), {7: "bad", 8: "good"})
    assert isinstance(found["bad"], MessageError)
    assert found["good"].meta["text"] == "no 8"


def test_a_tree_that_is_too_large_is_refused_before_any_of_it_is_fetched():
    grid = Grid({7: forest})
    assert "at most 16 objects" in str(ask(grid, {7: "bad"})["bad"])
    assert not grid.pulled
    assert grid.confirmed == ["r"]


def test_a_reply_with_too_many_bytes_is_refused(monkeypatch):
    monkeypatch.setattr(transport, "MAX_BYTES", 100)
    assert "at most 100 bytes" in str(ask(Grid({7: honest(7)}), {7: "a"})["a"])


def test_a_site_that_holds_a_part_back_keeps_nobody_waiting_and_is_heard_when_it_sends_it():
    late = {}

    def slow(order):
        root, tree, parts = honest(7)(order)
        late.update(parts)
        return root, tree, dict.fromkeys(parts)

    grid = Grid({7: slow, 8: honest(8)})
    carrier = FlowerTransport(grid, {7: "slow", 8: "prompt"}, pull=0.01)
    answers = carrier.ask({"slow": ORDER, "prompt": ORDER}, 10.0)
    assert next(answers)[0] == "prompt"
    grid.objects |= late
    assert next(answers)[0] == "slow"
    assert not carrier.arriving


def test_what_was_not_completed_in_time_is_forgotten():
    grid = Grid({7: lambda order: ("r", ObjectTree(object_id="r"), {"r": None})})
    carrier = FlowerTransport(grid, {7: "a"}, pull=0.01)
    assert dict(carrier.ask({"a": ORDER}, 0.2)) == {}
    assert not carrier.arriving


def test_who_replied_is_what_the_superlink_noted_not_what_the_reply_says():
    grid = Grid({7: lambda order: honest(8)(order), 8: lambda order: None})
    found = ask(grid, {7: "a", 8: "b"}, deadline=0.3)
    assert list(found) == ["a"]


def test_trouble_of_the_transport_is_raised():
    def broken(order):
        return "r", ObjectTree(object_id="r"), {"r": httpx.ConnectError("away")}

    with pytest.raises(httpx.ConnectError):
        ask(Grid({7: broken}), {7: "a"})


def test_without_keys_a_site_that_returns_as_another_node_is_asked_there():
    def says(node, name, later):
        def answer(order):
            if not later:
                later.append(order)
                return pushed(reply(RecordDict({WHO: ConfigRecord({"site": name})}), node, order))
            return honest(node)(order) if node == 9 else None

        return answer

    grid = Grid({7: says(7, "a", [])})
    carrier = FlowerTransport(grid, {}, frozenset({"a"}), pull=0.01)
    assert carrier.present() == ("a",)
    del grid.answers[7]
    grid.answers[9] = says(9, "a", [])
    assert [site for site, _ in carrier.ask({"a": ORDER}, 5.0)] == ["a"]
    assert carrier.names == {9: "a"}


@pytest.mark.parametrize("given", [["a"], 3, b"a", "stranger"])
def test_without_keys_a_name_that_is_no_name_of_a_site_is_not_taken(given):
    grid = Grid({7: lambda order: pushed(reply(RecordDict({WHO: ConfigRecord({"site": given})}), 7, order))})
    assert FlowerTransport(grid, {}, frozenset({"a"})).present() == ()


def test_a_shape_that_no_array_can_have_is_a_message_error():
    held = {"kind": "k", "array.a": b"", "shape.a": "float64:0:99999999999:99999999999"}
    with pytest.raises(MessageError, match="shape that fits"):
        from_content(RecordDict({"fedlsa": ConfigRecord(held)}))
    whole = from_content(RecordDict({"fedlsa": ConfigRecord(held | {"shape.a": "float64:0"})}))
    np.testing.assert_array_equal(whole.arrays["a"], np.zeros(0))


@pytest.fixture
def run(tmp_path):
    from fedlsa.network.coordinator.runs import RunFolder

    (tmp_path / "e").mkdir()
    return RunFolder(tmp_path / "e")


@pytest.fixture
def carried(monkeypatch, run):
    """carried(error): one attempt to carry the run, in which the run raises; `stopped` lists the runs that it ended."""
    stopped = []

    @contextmanager
    def nothing(*_):
        yield None

    monkeypatch.setattr(coordinator_worker, "connected", nothing)
    monkeypatch.setattr(coordinator_worker, "_grid", nothing)
    monkeypatch.setattr(coordinator_worker, "start_run", lambda control, name: 12)
    monkeypatch.setattr(coordinator_worker, "stop_run", lambda control, number: stopped.append(number))
    network = SimpleNamespace(superlink="127.0.0.1:1", secret=None, sites=("a",))

    def attempt(error):
        def complete_run(*_):
            raise error

        monkeypatch.setattr(coordinator_worker, "complete_run", complete_run)
        coordinator_worker.carry(network, run, {}, None)

    attempt.stopped = stopped
    return attempt


@pytest.mark.parametrize(
    "error",
    [
        ArgumentError("d must be 2"), NetworkError("no"), SiteDataError("no"), SingularSystemError("no"),
        ValueError("no"), ZeroDivisionError("no"), np.linalg.LinAlgError("Singular matrix"),
    ],
)  # fmt: skip
def test_an_error_that_another_attempt_would_meet_again_ends_the_run(carried, run, error):
    carried(error)
    assert str(error) in run.read("failed.json")["error"]


@pytest.mark.parametrize(
    "error", [ResultFileError("disk full"), OSError(28, "disk full"), httpx.ReadTimeout("late"), KeyError("x")]
)
def test_a_full_disk_or_a_lost_line_or_an_unforeseen_error_is_tried_again(carried, run, error):
    with pytest.raises(type(error)):
        carried(error)
    assert not run.over


def test_a_run_of_flowers_that_was_left_behind_is_ended_and_an_empty_note_is_none(carried, run):
    note = run.folder / "flower-run"
    for text, stopped in (("7", [7]), ("", [7]), ("x\xff", [7])):
        note.write_text(text, encoding="latin-1")
        with pytest.raises(KeyError):
            carried(KeyError("x"))
        assert carried.stopped == stopped
        assert note.read_text() == "12"


def test_a_run_is_carried_by_one_process_at_a_time(carried, run):
    done = threading.Event()

    def other():
        carried(NetworkError("from the second"))
        done.set()

    with only_one(run.folder / "worker.pid"):
        second = threading.Thread(target=other)
        second.start()
        assert not done.wait(0.2)
        run.fail("from the first")
    second.join()
    assert run.read("failed.json") == {"error": "from the first"}


def test_the_same_unforeseen_error_five_times_in_a_row_ends_the_run(run, capsys):
    attempts = coordinator_worker.Attempts()
    waits = [attempts.after(KeyError("x"), run) for _ in range(4)]
    assert waits == [1, 2, 4, 8]
    assert not run.over
    attempts.after(KeyError("y"), run)  # another one: the count begins again
    for _ in range(4):
        attempts.after(KeyError("x"), run)
    assert not run.over
    attempts.after(KeyError("x"), run)
    assert run.read("failed.json") == {"error": "the same error 5 times in a row: KeyError: 'x'"}


def test_the_same_error_at_another_round_is_another_error(run, capsys):
    attempts = coordinator_worker.Attempts()
    for k in range(6):
        (run.folder / "state.npz").touch()
        os.utime(run.folder / "state.npz", ns=(k, k))
        attempts.after(KeyError("x"), run)
    assert not run.over


@pytest.mark.parametrize("error", [ResultFileError("full"), httpx.ConnectError("away"), httpx.HTTPError("500")])
def test_the_disk_and_the_transport_are_waited_for_without_end(run, capsys, error):
    attempts = coordinator_worker.Attempts()
    waits = [attempts.after(error, run) for _ in range(2000)]
    assert not run.over
    assert max(waits) <= coordinator_worker.MAX_WAIT
    assert "trying again" in capsys.readouterr().out


class Asked(Exception):
    """Ends a site's endless service in a test."""


def order(content):
    """A message as a site receives it, with an id to reply to."""
    message = reply(content, 1, "")
    message.metadata.__dict__["_message_id"] = "order-1"
    return message


@pytest.mark.parametrize("error", [KeyError("row 17"), TypeError("row 17"), ValueError("row 17")])
def test_a_message_that_a_site_cannot_answer_is_refused_without_a_word_of_its_data(error, capsys):
    def answer(record):
        raise error

    back = site_worker.answer_message(order(to_content(ORDER)), SimpleNamespace(name="a", answer=answer))
    record = from_content(back.content)
    assert (record.kind, record.meta["text"]) == (
        Refusal.KIND, f"the message could not be answered: {type(error).__name__}",
    )  # fmt: skip
    assert capsys.readouterr().out.count("\n") == 1


def test_a_site_goes_on_after_a_message_that_cannot_be_unpacked(monkeypatch, capsys):
    errors = [KeyError("x"), TypeError("x"), ValueError("x"), AttributeError("x"), httpx.ReadError("x"), Asked()]
    outputs = []

    def pull(working):
        raise errors.pop(0)

    monkeypatch.setattr(site_worker, "pull_task_input", pull)
    monkeypatch.setattr(site_worker, "push_task_output", lambda client, context, status, why: outputs.append(status))
    monkeypatch.setattr(site_worker, "acquire", lambda asking, kind: (1, "token"))
    monkeypatch.setattr(site_worker.time, "sleep", lambda seconds: None)
    tasks = SimpleNamespace(asking=lambda: None, working=lambda token, name: SimpleNamespace(close=lambda: None))
    with pytest.raises(Asked):
        site_worker.serve(tasks, None)
    assert outputs == ["failed"] * 4
    assert capsys.readouterr().out.count("\n") == 5

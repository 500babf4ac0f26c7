"""The coordinator's audit log: what was sent, taken and refused can be shown afterwards; events stay small."""

import hashlib
import json

import numpy as np
import pytest
from memory_world import MemoryWorld, by_hand
from stores import change

import fedlsa as fl
from fedlsa.cli import main
from fedlsa.errors import ArgumentError, MessageError, NetworkError
from fedlsa.network import audit
from fedlsa.network.audit import note, report
from fedlsa.network.carriers import SignedTransport
from fedlsa.network.coordinator.run_loop import complete_run
from fedlsa.network.coordinator.runs import RunFolder
from fedlsa.network.disk import Database
from fedlsa.network.folder import setup
from fedlsa.network.protocol.messages import Finish

SITES = ("a", "b", "c")


class Post:
    """A carrier in which some sites answer."""

    def __init__(self, answering):
        self.answering, self.seen = answering, None

    def present(self):
        return self.answering

    def ask(self, orders, deadline):
        self.seen = dict(orders)
        for site in self.answering:
            if site in orders:
                yield site, b"answer of " + site.encode()


def entries(folder):
    return list(Database(folder).entries())


@pytest.fixture
def fresh(tmp_path):
    return setup.init(tmp_path / "net", SITES, "127.0.0.1", task=fl.Regression("y"))


FINISH = Finish(
    "e", ("a", "b"), np.array([0.25, 0.75]), 0, np.zeros(2), 0, bytes(32), np.zeros((0, 73), np.uint8),
    np.zeros(2, np.int64), np.zeros(0, np.int64), np.zeros((0, 2)), ("x", "z"),
)  # fmt: skip


def test_orders_are_written_down_before_they_are_sent_and_answers_when_they_came(fresh):
    post = Post(("a", "c"))
    transport, before = SignedTransport(post, fresh, "trial"), len(entries(fresh.folder))
    asking = transport.ask(dict.fromkeys(SITES, FINISH), 1.0)
    site, refused = next(asking)
    assert (site, type(refused)) == ("a", MessageError)  # nobody signed it, and it is written down all the same
    assert [e["event"] for e in entries(fresh.folder)[before:]] == ["orders"]  # while the round is open
    assert [site for site, _ in asking] == ["c"]
    sent, got = entries(fresh.folder)[before:]
    assert sent["sites"] == {site: hashlib.sha256(order).hexdigest() for site, order in post.seen.items()}
    assert got["sites"] == {site: hashlib.sha256(b"answer of " + site.encode()).hexdigest() for site in ("a", "c")}
    assert got["silent"] == ["b"]
    assert "trial; a, c; no answer of b" in report(fresh.folder)[-3]
    assert {e["run"] for e in (sent, got)} == {"trial"}
    assert transport.present() == ("a", "c")


def test_nothing_is_sent_that_cannot_be_written_down(fresh, monkeypatch):
    post, transport = Post(SITES), SignedTransport(Post(SITES), fresh)
    transport.carrier = post

    def full(entry):
        raise NetworkError("cannot write to the store")

    monkeypatch.setattr(transport.store, "append", full)
    with pytest.raises(NetworkError, match="cannot write to"):
        list(transport.ask({"a": FINISH}, 1.0))
    assert post.seen is None


def test_settings_refusals_and_alarms_of_a_run_are_in_the_audit_log(tmp_path):
    run = RunFolder(tmp_path / "runs" / "trial")
    run.folder.mkdir(parents=True)
    run.note("planned", text="a plan", rounds=3, sites=["a"])
    run.note("waiting", text="for a", present=0)
    run.note("refused", site="a", round=1, text="\x1b[2Jwrong shape\n" + "x" * 5000)
    run.note("alarm", site="a", text="one key speaks from two places")
    run.fail("no plan follows")
    log = entries(tmp_path)
    assert [e["event"] for e in log] == ["planned", "refused", "alarm", "failed"]
    assert all(e["run"] == "trial" for e in log)
    assert len(log[1]["text"]) <= audit.MAX_TEXT
    assert log[1]["text"].isprintable()
    assert log[3]["text"] == "no plan follows"
    assert len(list(run.events())) == 5


def test_a_site_that_is_refused_for_ever_fills_neither_log_nor_events(tmp_path):
    run = RunFolder(tmp_path / "runs" / "trial")
    for k in range(600):
        run.note("refused", site="a", round=k, text=f"wrong shape {k}")
    run.note("refused", site="b", text="late")
    log = [(e["site"], e["times"]) for e in entries(tmp_path)]
    assert log == [("a", k) for k in [*range(1, 21), 32, 64, 128, 256, 512]] + [("b", 1)]
    assert len(list(run.events())) == len(log)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return setup.init(tmp_path_factory.mktemp("audit") / "net", SITES, "127.0.0.1", 9092)


def test_the_command_verifies_the_log_and_names_what_is_wrong(network, capsys):
    for k in range(3):
        note(network.folder, "alarm", site="a", text=f"alarm {k}\x1b[31m")
    assert main(["network", "audit", str(network.folder)]) == 0
    said = capsys.readouterr().out
    assert "3 entries, each holds the one before it (3 alarm)" in said
    assert "a; alarm 2" in said
    assert "\x1b[31m" not in said
    head = said.strip().splitlines()[-1].rpartition(" ")[2]
    assert main(["network", "audit", str(network.folder), "--head", head, "--last", "0"]) == 0
    capsys.readouterr()
    for last in (0, 1, 2, 3, 4):
        assert main(["network", "audit", str(network.folder), "--last", str(last)]) == 0
        said = capsys.readouterr().out
        assert [k for k in range(3) if f"a; alarm {k}" in said] == list(range(max(0, 3 - last), 3))
    change(network.folder, "create table aside as select * from chain", "delete from chain where number > 2")
    capsys.readouterr()
    assert main(["network", "audit", str(network.folder), "--head", head]) != 0
    assert "its end was cut off" in " ".join(capsys.readouterr().err.split())
    change(network.folder, "update chain set entry = replace(entry, 'alarm 1', 'alarm 9')")
    assert main(["network", "audit", str(network.folder)]) != 0
    assert "changed by hand" in " ".join(capsys.readouterr().err.split())
    change(network.folder, "delete from chain", "insert into chain select * from aside")
    with pytest.raises(ArgumentError, match="a head must be"):
        report(network.folder, "nonsense")


def test_an_empty_log_is_said(network, tmp_path):
    other = setup.init(tmp_path / "net", SITES, "127.0.0.1", 9092)
    assert "0 entries" in "\n".join(report(other.folder))
    assert json.dumps(report(other.folder))


def test_whom_the_coordinator_approved_and_revoked_is_in_the_audit_log(tmp_path):

    network = setup.init(tmp_path / "net", SITES, "127.0.0.1", 9092)
    setup.enrol(network, network.bundle("a"), tmp_path / "a")
    setup.revoke(network.folder, "a")
    setup.add_site(network.folder, "d")
    setup.remove_site(network.folder, "d")
    setup.renew(network.folder)
    log = [(e["event"], e.get("site")) for e in entries(network.folder)]
    assert log == [
        ("approved", "a"),
        ("revoked", "a"),
        ("site added", "d"),
        ("site removed", "d"),
        ("server certificate renewed", None),
    ]


def test_a_site_that_answers_nonsense_for_a_day_does_not_fill_the_disk(tmp_path, monkeypatch):
    """It was asked five times a second, and two entries of the audit log each time made 328 MB a day."""
    world, asked, clock = MemoryWorld(tmp_path, sites=3), [], [0.0]
    run = world.start(**by_hand(3, local="means"))

    def ask(orders, deadline):
        asked.append(sorted(orders))
        yield from ((site, MessageError(f"nonsense {len(asked)}")) for site in orders if site == "site-2")
        yield from ((s, a) for s, a in MemoryWorld.ask(world, orders, deadline) if s != "site-2")

    def sleep(seconds):
        clock[0] += seconds
        if clock[0] > 900:
            run.ask_to_stop()

    world.ask = ask
    monkeypatch.setattr("fedlsa.network.coordinator.agreement.time.sleep", sleep)
    complete_run(world.network, run, world)
    assert run.read("result.json")["over"] == "it was stopped before its first round"
    assert asked[1:] == [["site-2"]] * (len(asked) - 1)
    assert len(asked) < 120
    assert len(list(run.events())) < 60

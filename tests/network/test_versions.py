"""Upgrades: another protocol is refused on both sides with a sentence that says which to upgrade; so are old runs."""

import pytest
from memory_world import MemoryWorld, by_hand
from test_grpc_carrier import Place, until

from fedlsa.errors import NetworkError
from fedlsa.installation import __version__
from fedlsa.network import processes
from fedlsa.network.carriers import grpc_carrier, grpc_site
from fedlsa.network.coordinator.commands import carry
from fedlsa.network.coordinator.runs import RunFolder
from fedlsa.network.folder import setup
from fedlsa.network.protocol.codec import VERSION
from fedlsa.network.protocol.run_settings import StartOptions


@pytest.fixture
def place(tmp_path):
    out = Place(tmp_path)
    yield out
    for link in out.links:
        link.stop()
    out.carrier.close()


def told(protocol, program="9.9.9"):
    return ((processes.PROTOCOL, str(protocol)), (processes.PROGRAM, program))


def test_the_same_protocol_is_accepted_whatever_the_program(place, monkeypatch):
    monkeypatch.setattr(grpc_site, "greeting", lambda: told(VERSION, "0.0.1"))
    place.site("a")
    assert place.ask({"a": b"x"}) == {"a": b"re:x"}


@pytest.mark.parametrize(("protocol", "older"), [(VERSION + 1, "coordinator"), (VERSION - 1, "site"), ("x", "site")])
def test_a_site_with_another_protocol_is_refused_and_both_sides_say_why(place, monkeypatch, protocol, older):
    monkeypatch.setattr(grpc_site, "greeting", lambda: told(protocol, "9.9.9"))
    link = place.join(place.enrol("a"))
    said = f"upgrade the {older}"
    until(lambda: any(said in line for line in link.said), f"the site says {said}: {link.said}")
    until(lambda: any(said in line for line in place.said), f"the coordinator says {said}: {place.said}")
    assert any("the site has fedlsa 9.9.9" in line and f"protocol {VERSION}" in line for line in place.said)
    assert place.carrier.present() == ()


@pytest.mark.parametrize(
    ("said", "older"), [(told(VERSION + 1), "site"), (told(VERSION - 1), "coordinator"), ((), "coordinator")]
)
def test_a_coordinator_with_another_protocol_is_left_alone_by_the_site(place, monkeypatch, said, older):
    """A coordinator that lets everybody in: then the site looks."""
    monkeypatch.setattr(grpc_carrier, "greeting", lambda: said)
    orders = []
    link = place.join(place.enrol("a"), lambda order: orders.append(order) or b"")
    until(lambda: any(f"upgrade the {older}" in line for line in link.said), f"the site says so: {link.said}")
    until(lambda: not link.connected, "and leaves")
    assert list(place.carrier.ask({"a": b"order"}, 0.5)) == []
    assert orders == []


def test_a_site_from_before_the_handshake_is_told_to_upgrade(place, monkeypatch):
    monkeypatch.setattr(grpc_site, "greeting", lambda: ())
    link = place.join(place.enrol("a"))
    until(lambda: any("upgrade the site" in line for line in link.said), f"{link.said}")
    said = "of an older version, protocol unknown"
    until(lambda: any(said in line for line in place.said), f"the coordinator says {said}: {place.said}")


def test_what_the_other_side_says_of_itself_cannot_steer_a_terminal():
    text = processes.mismatch(dict(told(10**30, "\x1b[31m" + "x" * 500 + "\n")), "site")
    assert text.isprintable()
    assert len(text) < 300
    assert "upgrade the site" in processes.mismatch({processes.PROTOCOL: "٣"}, "site")  # a digit, but none of ours


@pytest.fixture
def run(tmp_path):
    network = setup.init(tmp_path / "net", 3, "127.0.0.1", 9092)
    options = StartOptions(step_size=0.1, local_steps=1, rounds=1, name="trial", aggregation="secure")
    return network, RunFolder.create(network, options)


def test_a_run_keeps_the_version_that_began_it(run):
    assert run[1].read("version.json") == {"protocol": VERSION, "program": __version__}
    processes.check_stamp("trial", run[1].read("version.json"))


@pytest.mark.parametrize(
    "kept", [{"protocol": VERSION + 1, "program": "9.9.9"}, {"protocol": 1, "program": "0.0.1"}, {}, None]
)
def test_a_run_of_another_protocol_ends_with_a_sentence_and_its_files_stay(run, kept):
    network, folder = run
    folder.write("version.json", kept)
    folder.store.put("trial", "state", b"of another version")

    class Nobody:
        def present(self):
            pytest.fail("a run of another version must not be taken up")

    carry(network, folder, Nobody())
    why = folder.read("failed.json")["error"]
    assert "the run trial was begun by fedlsa" in why
    assert f"this is fedlsa {__version__} (protocol {VERSION})" in why
    assert "finish it with that version, or start a new run" in why
    assert folder.stored() == b"of another version"
    with pytest.raises(NetworkError, match="was begun by"):
        processes.check_stamp("trial", kept)


def test_a_run_goes_on_when_the_program_is_upgraded_in_its_middle(tmp_path, monkeypatch):
    """Another program on both sides, the same protocol: the result is that of a run without the upgrade."""
    results = {}
    for upgraded in (False, True):
        world = MemoryWorld(tmp_path / str(upgraded))
        run = world.start(**by_hand(4, local="means"))
        seen = []

        def counted(site, answer, seen=seen, upgraded=upgraded):
            seen.append(site)
            if upgraded and len(seen) == 25:
                raise KeyboardInterrupt  # the coordinator is stopped in the middle of a round
            return answer

        world.meddle = counted
        try:
            carry(world.network, run, world)
        except KeyboardInterrupt:
            assert not run.over
            monkeypatch.setattr(processes, "__version__", "9.9.9")
            world.meddle = lambda site, answer: answer
            carry(world.network, run, world)
        results[upgraded] = run.read("result.json")["theta"]
    assert processes.stamp()["program"] == "9.9.9"
    assert results[True] == results[False]

"""What `serve` rests on: who is approved, which coordinators went before, which errors another attempt meets."""

import errno
import os
from datetime import UTC, datetime

import pytest

import fedlsa as fl
from fedlsa.errors import MessageError, NetworkError, ResultFileError
from fedlsa.network.carriers.grpc_site import MAX_LINES, LimitedLog
from fedlsa.network.coordinator import commands
from fedlsa.network.coordinator.commands import Lineage, PinnedCertificates
from fedlsa.network.coordinator.runs import RunFolder, all_runs, chosen
from fedlsa.network.folder import certificates, setup
from fedlsa.network.protocol.run_settings import StartOptions
from fedlsa.network.site.join import Acquaintance


@pytest.fixture
def network(tmp_path):
    made = setup.init(tmp_path / "net", 2, "127.0.0.1", task=fl.Regression("y"))
    for site in made.sites:
        setup.enrol(made, made.bundle(site), tmp_path / site)
    return made


@pytest.fixture
def run(network):
    return RunFolder.create(network, StartOptions(step_size=0.1, local_steps=1, rounds=1, name="trial"))


def test_certificates_are_read_again_when_files_change(network):
    pinned, path = PinnedCertificates(network.folder), network.site_certificate("site-1")
    first = path.read_bytes()
    assert pinned("site-1") == first
    assert pinned("nobody") is None
    assert pinned("../site-1") is None
    kept = path.with_name("kept")
    os.rename(path, kept)
    assert pinned("site-1") is None
    path.write_bytes(network.site_certificate("site-2").read_bytes())  # of another site: not believed
    assert pinned("site-1") is None
    os.rename(kept, path)
    assert pinned("site-1") == first
    setup.remove_site(network.folder, "site-1")
    assert pinned("site-1") is None
    assert pinned("site-2") is not None


def test_a_certificate_that_has_expired_meanwhile_is_none(network, monkeypatch):
    pinned = PinnedCertificates(network.folder)
    assert pinned("site-1") is not None
    late = type("Late", (datetime,), {"now": classmethod(lambda cls, tz=None: datetime(2100, 1, 1, tzinfo=UTC))})
    monkeypatch.setattr(certificates, "datetime", late)
    assert pinned("site-1") is None


def test_a_certificate_that_was_not_valid_yet_is_approved_once_it_is(network, monkeypatch):
    pinned = PinnedCertificates(network.folder)
    early = type("Early", (datetime,), {"now": classmethod(lambda cls, tz=None: datetime(2000, 1, 1, tzinfo=UTC))})
    with monkeypatch.context() as wrong_clock:
        wrong_clock.setattr(certificates, "datetime", early)
        assert pinned("site-1") is None
    assert pinned("site-1") is not None


def test_a_coordinator_knows_those_before_it_and_no_others(tmp_path):
    first = Lineage(tmp_path / "coordinators")
    second = Lineage(tmp_path / "coordinators")
    assert second.knows(first.identity)
    assert second.knows(second.identity)
    assert second.knows("")
    assert not first.knows(second.identity)
    assert not second.knows(first.identity[:-1])
    with pytest.raises(ResultFileError, match="cannot write the list of coordinators"):
        Lineage(tmp_path / "none" / "coordinators")


def test_a_site_follows_those_who_know_the_last_one(tmp_path):
    known = Acquaintance(tmp_path / "coordinator")
    assert known.last() == ""
    assert known.accept("one", False) is None  # the first of all
    assert known.accept("two", True) is None
    assert known.last() == "two"
    assert "does not know the one" in known.accept("three", False)
    assert known.last() == "two"
    assert known.accept("two", False) is None  # the same one


def test_the_latest_run_is_the_one_that_was_made_last_though_a_clock_went_back(network, run):
    os.utime(run.folder / "options.json", (4e9, 4e9))  # made when the clock was wrong
    run.fail("over")
    later = RunFolder.create(network, StartOptions(step_size=0.1, local_steps=1, rounds=1, name="later"))
    assert [found.name for found in all_runs(network)] == ["trial", "later"]
    assert chosen(network, None) == later


def disk_error():
    try:
        raise OSError(errno.ENOSPC, "No space left on device")
    except OSError as error:
        return error


def raised(error, cause=None):
    error.__cause__ = cause
    return error


def test_a_full_disk_may_pass_and_a_damaged_file_does_not():
    assert commands.may_pass(disk_error())
    assert commands.may_pass(raised(ResultFileError("cannot write state"), disk_error()))
    assert commands.may_pass(raised(NetworkError("cannot write"), disk_error()))
    assert not commands.may_pass(ResultFileError("the state is damaged"))
    assert not commands.may_pass(NetworkError("the sites refuse"))
    assert not commands.may_pass(ValueError("a bug"))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ResultFileError("the state is damaged"), "the state is damaged"),
        (MessageError("no"), "no"),
        (ZeroDivisionError("a bug"), "ZeroDivisionError: a bug"),
    ],
)
def test_an_error_that_comes_again_ends_the_run(network, run, monkeypatch, error, text):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(commands, "complete_run", fail)
    commands.carry(network, run, None)
    assert run.over
    assert text in run.read("failed.json")["error"]


def test_a_full_disk_is_tried_again_and_an_unforeseen_error_five_times(network, run, monkeypatch):
    def fail(*arguments):
        raise raised(ResultFileError("cannot write state"), disk_error())

    monkeypatch.setattr(commands, "complete_run", fail)
    with pytest.raises(ResultFileError):
        commands.carry(network, run, None)
    said = []
    attempts = commands.Attempts(said.append)
    waits = [attempts.after(disk_error(), run) for _ in range(20)]
    assert waits == sorted(waits)
    assert waits[-1] == commands.MAX_WAIT
    assert len(said) == 1
    assert not run.over
    attempts = commands.Attempts(said.append)
    for _ in range(commands.MAX_TRIES):
        assert not run.over
        attempts.after(KeyError("a bug"), run)
    assert "5 times in a row: KeyError" in run.read("failed.json")["error"]
    assert len(said) == 1 + commands.MAX_TRIES


def test_where_it_listens_and_how_many_may_connect():
    assert [commands.listening(host) for host in ("127.0.0.1", "localhost", "::1")] == ["127.0.0.1", "127.0.0.1", "::1"]
    assert [commands.listening(host) for host in ("fl.example.org", "192.0.2.7", "2001:db8::1")] == [
        "0.0.0.0",
        "0.0.0.0",
        "::",
    ]
    assert 64 <= commands.connections() <= commands.MAX_CONNECTIONS


def test_a_log_that_nobody_can_fill():
    now, written = [0.0], []
    log = LimitedLog(written.append, lambda: now[0])
    for number in range(100):
        log.say("a", f"line {number}")
        log.say("b", f"other {number}")
    assert len(written) == 2 * MAX_LINES
    now[0] = 61.0
    log.say("a", "again")
    assert written[-2:] == ["a: 80 more lines within a minute were left out", "again"]


def test_of_many_alarms_one_a_minute_is_written(network, run):
    service = commands.CoordinatorService.__new__(commands.CoordinatorService)
    service.network, service.folder, service._alarms = network, network.folder, {}
    for _ in range(3):
        service._alarm("site-1", "one key speaks from two places")
    assert [event["site"] for _, event in run.events()] == ["site-1"]

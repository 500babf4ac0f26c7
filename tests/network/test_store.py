"""The store of a folder: a hash chain against forgers, states that come back as they were, events, a full disk, others
who read and write at the same time."""

import multiprocessing
import os
import re
import stat
import threading
import time

import msgspec
import numpy as np
import pytest
from stores import change, rows

from fedlsa.errors import ArgumentError, MessageError, NetworkError, ResultFileError
from fedlsa.network import disk, processes
from fedlsa.network.coordinator.runs import RunFolder
from fedlsa.network.disk import ORIGIN, STORE, ChainHead, Database
from fedlsa.network.protocol.client import ClientState
from fedlsa.network.protocol.codec import VERSION, decode, encode
from fedlsa.network.protocol.run_settings import RunSettings
from fedlsa.network.protocol.server import ServerState, open_round


@pytest.fixture
def log(tmp_path):
    found = Database(tmp_path)
    for k in range(5):
        found.append({"event": "order", "round": k, "text": f"line {k}\n\x1b[31m"})
    return found


# the chain


def test_entries_come_back_as_they_were_written_with_number_time_and_hash(log):
    got = list(log.entries())
    assert [e["number"] for e in got] == [1, 2, 3, 4, 5]
    assert [e["round"] for e in got] == [0, 1, 2, 3, 4]
    assert got[0]["before"] == ORIGIN
    assert [e["before"] for e in got[1:]] == [e["hash"] for e in got[:-1]]
    assert log.verify() == ChainHead(5, got[-1]["hash"])
    assert log.last(2) == got[3:]
    assert {stat.S_IMODE(path.stat().st_mode) for path in log.path.parent.iterdir()} == {0o600}


def test_no_file_is_an_empty_store_and_reading_makes_none(tmp_path):
    found = Database(tmp_path)
    assert found.verify() == ChainHead(0, ORIGIN)
    assert found.get("", "x") is None
    assert list(found.events("trial")) == []
    assert list(tmp_path.iterdir()) == []
    Database(tmp_path).append({"event": "first"})
    assert found.verify().number == 1  # what comes later is seen


FORGERIES = {
    "a word changed": "update chain set entry = replace(entry, 'order', 'other') where number = 2",
    "a time changed": "update chain set time = 1.0 where number = 2",
    "one taken out": "delete from chain where number = 2",
    "the first taken out": "delete from chain where number = 1",
    "two exchanged": "update chain set number = case number when 2 then -3 when 3 then -2 else number end",
    "not JSON": "update chain set entry = '{]' where number = 3",
    "not an object": "update chain set entry = '[1]' where number = 3",
    "nested without end": f"update chain set entry = '{'[' * 60000}' where number = 3",
    "bytes": "update chain set entry = x'ff00' where number = 3",
    "no hash": "update chain set hash = null where number = 3",
    "another number": "update chain set number = 6 where number = 5",
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_changed_chain_is_noticed(log, forge):
    change(log.path.parent, forge, "update chain set number = abs(number) where number < 0")
    with pytest.raises(NetworkError, match=STORE):
        Database(log.path.parent).verify()


def test_one_entry_written_anew_with_its_hash_right_is_noticed_by_the_next(log):
    entry = log.last(3)[0] | {"round": 77}
    said = disk._text({name: value for name, value in entry.items() if name not in disk.OWN}).decode()
    change(log.path.parent, f"update chain set entry = '{said}', hash = '{disk._digest(entry)}' where number = 3")
    with pytest.raises(NetworkError, match="entry 4 is missing, changed or out of place"):
        log.verify()


def test_a_kept_head_shows_that_the_end_was_cut_off_or_all_written_anew(log):
    head = log.verify()
    assert log.verify(ChainHead.from_text(str(head))) == head
    log.append({"event": "later"})
    assert log.verify(head).number == 6
    change(log.path.parent, "delete from chain where number > 3")
    assert log.verify().number == 3  # by itself it looks whole
    with pytest.raises(NetworkError, match="its end was cut off"):
        log.verify(head)
    for k in range(9):
        log.append({"event": "forged", "round": k})
    with pytest.raises(NetworkError, match="written anew"):
        log.verify(head)


@pytest.mark.parametrize("text", ["", "5", "x:" + "0" * 64, "5:" + "g" * 64, "-1:" + "0" * 64])
def test_a_head_is_read_strictly(text):
    with pytest.raises(ArgumentError, match="a head must be"):
        ChainHead.from_text(text)


def test_a_damaged_end_is_not_built_upon(log):
    change(log.path.parent, "update chain set entry = replace(entry, '4', '5') where number = 5")
    with pytest.raises(NetworkError, match="not as it was written"):
        log.append({"event": "more"})


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_entries_that_are_not_json_are_refused(log, value):
    with pytest.raises(ArgumentError, match="JSON"):
        log.append({"x": value})
    assert log.append({"event": "next"})["number"] == 6


# what is kept, and the disk


def test_values_come_back_and_what_is_staged_is_written_with_the_next_entry(tmp_path):
    found = Database(tmp_path)
    found.put("trial", "state", b"\x00one")
    found.stage("trial", "state", b"two")
    assert found.get("trial", "state") == b"two"
    assert Database(tmp_path).get("trial", "state") == b"\x00one"
    found.append({"event": "answer"})
    assert Database(tmp_path).get("trial", "state") == b"two"
    found.stage("trial", "state", b"three")
    found.put_json("other", "note", {"a": [1, None]})
    found.forget("trial")
    assert found.get("trial", "state") is None
    assert Database(tmp_path).get_json("other", "note") == {"a": [1, None]}


def test_a_transaction_that_fails_leaves_nothing(log):
    def fail():
        with log.transaction():
            log.put("", "x", b"1")
            log.append({"event": "never"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert log.get("", "x") is None
    assert log.verify().number == 5


def test_a_full_disk_is_a_network_error_that_may_pass_and_nothing_is_half_written(log, monkeypatch):
    pages = rows(log.path.parent, "pragma page_count")[0][0]
    log.transaction().__enter__().execute(f"pragma max_page_count = {pages}")
    log._open.rollback()
    log.stage("trial", "state", b"x" * 10**6)
    with pytest.raises(NetworkError, match="database or disk is full") as caught:
        log.append({"event": "lost"})
    assert isinstance(caught.value.__cause__, OSError)
    assert log.verify().number == 5
    log._open.execute("pragma max_page_count = 100000")
    assert log.append({"event": "next"})["number"] == 6
    assert Database(log.path.parent).get("trial", "state") == b"x" * 10**6


@pytest.mark.parametrize("damage", ["not a database", "pages overwritten", "cut short"])
def test_a_damaged_database_is_told_in_a_sentence_that_says_what_to_do(tmp_path, damage):
    found = Database(tmp_path)
    for k in range(200):
        found.append({"event": "order", "text": f"{k}" * 100})
    del found
    content = (tmp_path / STORE).read_bytes()
    if damage == "not a database":
        (tmp_path / STORE).write_bytes(b"nonsense" * 1000)
    elif damage == "pages overwritten":
        (tmp_path / STORE).write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    else:
        (tmp_path / STORE).write_bytes(content[: len(content) // 2])
    for act in (lambda: Database(tmp_path).verify(), lambda: Database(tmp_path).append({"event": "more"})):
        with pytest.raises(NetworkError, match=r"is damaged .*: put it back from a backup, or put it aside") as caught:
            act()
        assert "\n" not in str(caught.value)


def test_a_database_of_another_version_and_a_folder_that_refuses_are_told(log, tmp_path):
    change(tmp_path, "pragma user_version = 9")
    with pytest.raises(NetworkError, match="must have format 1; got 9"):
        Database(tmp_path).verify()
    with pytest.raises(NetworkError, match="cannot write to"):
        Database(tmp_path / "nowhere").append({"event": "x"})


def _many(folder, count):
    found = Database(folder)
    for k in range(count):
        found.append({"event": "order", "by": os.getpid(), "round": k})


def test_two_processes_that_append_at_once_make_one_chain(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=_many, args=(tmp_path, 50)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    assert Database(tmp_path).verify().number == 100


def _for_ever(folder, begun):
    found, k = Database(folder), 0
    while True:
        found.stage("trial", "state", f"{k}".encode() * 3000)
        found.append({"event": "answer", "round": k})
        begun.set()
        k += 1


def test_a_process_that_is_killed_leaves_state_and_entry_together(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    for pause in (0.0, 0.003, 0.02, 0.05):
        folder, begun = tmp_path / str(pause), spawn.Event()
        folder.mkdir()
        process = spawn.Process(target=_for_ever, args=(folder, begun))
        process.start()
        assert begun.wait(120)
        time.sleep(pause)
        process.kill()
        process.join(120)
        last = Database(folder).last(1)[0]["round"]
        assert Database(folder).get("trial", "state") == f"{last}".encode() * 3000
        assert Database(folder).verify().number == last + 1


def test_who_reads_does_not_hold_up_who_writes(log):
    reader = Database(log.path.parent)
    reading = reader.entries()
    next(reading)
    with reader._guarded("read") as db:
        db.execute("begin")
        assert len(db.execute("select * from chain").fetchall()) == 5  # a look that does not end
        assert log.append({"event": "meanwhile"})["number"] == 6
        db.rollback()
    with pytest.raises(NetworkError, match="readonly"), reader._guarded("read") as db:
        db.execute("delete from chain")


def test_threads_share_a_store(tmp_path):
    found, errors = Database(tmp_path), []

    def work(k):
        try:
            for i in range(20):
                found.append({"event": "order", "by": k})
                found.put("", f"{k}", str(i).encode())
                assert found.get("", f"{k}") == str(i).encode()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert found.verify().number == 80


# events


def test_events_are_bounded_keep_the_plan_and_none_is_lost_while_somebody_follows(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "MOST_EVENTS", 100)
    monkeypatch.setattr(disk, "AT_ONCE", 10)
    found, seen, place = Database(tmp_path), [], 0
    found.add_event("trial", {"event": "planned", "rounds": 300})
    for k in range(300):
        found.add_event("trial", {"event": "round", "round": k})
        found.add_event("other", {"event": "round", "round": -k})
        if k % 37 == 0 or k == 299:
            new = list(found.events("trial", place))
            seen += [event for _, event in new]
            place = new[-1][0]
    assert [event["round"] for event in seen[1:]] == list(range(300))
    left = [event for _, event in found.events("trial")]
    assert left[0]["event"] == "planned"
    assert 100 <= len(left) <= 115
    assert found.last_event("trial") == {"event": "round", "round": 299}


# states


@pytest.fixture
def server():
    settings = RunSettings(name="e", step_size=0.1, local_steps=3, rounds=9, sites=("north", "süd"), clip=1e-3)
    return open_round(ServerState.start(settings, 3), ["north"])[0]


def test_a_server_state_with_an_open_round_survives_the_disk(tmp_path, server):
    run = RunFolder(tmp_path / "runs" / "e")
    assert run.load() is None
    run.save(server)
    back = RunFolder(run.folder).load()
    assert encode(back) == encode(server)
    assert back.settings == server.settings
    assert back.pending.round == 1
    assert type(back.opened) is int


def test_a_client_state_survives_the_disk():
    v = np.arange(3.0)
    share = np.arange(24, dtype=np.int16).reshape(3, 8)
    about = ("expérience", 1, bytes(range(32)), 4, 6, 7, "ab", ("a",), 3.5, 2.5)
    state = ClientState(*about, v, v + 1, v + 2, v + 3, v + 4, share)
    back = decode(encode(state), ClientState)
    assert encode(back) == encode(state)
    assert [getattr(back, name) for name in back.__struct_fields__[:10]] == list(about)
    np.testing.assert_array_equal(back.xi, v)


@pytest.mark.parametrize("damage", [lambda x: x[:-40], lambda x: b"junk", lambda x: b"", lambda x: x[:99] + x[120:]])
def test_a_state_that_cannot_be_read_is_damaged(tmp_path, server, damage):
    run = RunFolder(tmp_path / "runs" / "e")
    run.store.put("e", "state", damage(encode(server)))
    with pytest.raises(ResultFileError, match="the state of the run e is damaged"):
        run.load()


def test_states_with_a_part_missing_or_changed_are_refused(server):
    for state in (server, ClientState.fresh("e", 0, 2)):
        content = msgspec.msgpack.decode(encode(state)[1:])
        for name in (field.name for field in msgspec.structs.fields(state) if field.required):
            for changed in ({k: v for k, v in content.items() if k != name}, content | {name: [[]]}):
                with pytest.raises(MessageError):
                    decode(bytes([VERSION]) + msgspec.msgpack.encode(changed), type(state))


# logs


def test_logs_turn_over_by_size_are_private_and_keep_others_words_on_their_line(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "LOG_BYTES", 2000)
    path = tmp_path / "logs" / "serve.log"
    logger = processes.rotating(path)
    assert processes.rotating(path) is logger
    for k in range(200):
        logger.info("refused %d: %s", k, "\x1b[2J\nINFO all is well " + "x" * 100)
    files = sorted(path.parent.iterdir())
    assert len(files) == 1 + processes.OLD_LOGS
    assert all(f.stat().st_size <= 2000 and f.stat().st_mode & 0o777 == 0o600 for f in files)
    lines = path.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d .* INFO refused \d+: ", line) for line in lines)
    assert "\x1b" not in path.read_text()
    logger.info("y" * 10**6)
    assert path.stat().st_size <= 2100


def test_a_full_disk_does_not_stop_who_logs(tmp_path, monkeypatch, capsys):
    logger = processes.rotating(tmp_path / "serve.log")

    def full():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(logger.handlers[0], "flush", full)
    logger.info("a line")
    assert capsys.readouterr().err == ""


def test_a_log_that_cannot_be_made_says_why(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NetworkError, match="cannot write the log"):
        processes.rotating(tmp_path / "file" / "serve.log")

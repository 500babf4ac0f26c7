"""The hash chain under the site's ledger and the coordinator's audit log: what a forger tries, and a full disk."""

import json
import multiprocessing
import os
import re

import pytest

from fedlsa.errors import ArgumentError, NetworkError
from fedlsa.network import chain, processes
from fedlsa.network.chain import ChainHead, append, entries, verify


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    for k in range(5):
        append(path, {"event": "order", "round": k, "text": f"line {k}\n\x1b[31m"})
    return path


def rewritten(path, lines):
    path.write_bytes(b"".join(lines))


def test_entries_come_back_as_they_were_written_with_number_time_and_hash(log):
    got = list(entries(log))
    assert [e["number"] for e in got] == [1, 2, 3, 4, 5]
    assert [e["round"] for e in got] == [0, 1, 2, 3, 4]
    assert got[0]["before"] == chain.ORIGIN
    assert [e["before"] for e in got[1:]] == [e["hash"] for e in got[:-1]]
    assert verify(log) == ChainHead(5, got[-1]["hash"])
    assert log.stat().st_mode & 0o777 == 0o600
    assert b"\x1b" not in log.read_bytes()  # what others wrote cannot steer a terminal that shows the file


def test_no_file_is_an_empty_chain(tmp_path):
    assert verify(tmp_path / "none.jsonl") == ChainHead(0, chain.ORIGIN)


FORGERIES = {
    "a word changed": lambda x: [x[0], x[1].replace(b"order", b"other"), *x[2:]],
    "one taken out": lambda x: [x[0], *x[2:]],
    "the first taken out": lambda x: x[1:],
    "two exchanged": lambda x: [x[0], x[2], x[1], *x[3:]],
    "one twice": lambda x: [x[0], x[1], x[1], *x[2:]],
    "not JSON": lambda x: [*x[:2], b"{]\n", *x[2:]],
    "nested without end": lambda x: [*x[:2], b"[" * 60000 + b"\n", *x[2:]],
    "a line that never ends": lambda x: [*x, b"x" * 200_000],
    "another number": lambda x: [*x[:4], x[4].replace(b'"number":5', b'"number":6')],
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_changed_log_is_noticed(log, forge):
    rewritten(log, forge(log.read_bytes().splitlines(keepends=True)))
    with pytest.raises(NetworkError, match=r"log\.jsonl"):
        verify(log)


def test_one_entry_written_anew_with_its_hash_right_is_noticed_by_the_next(log):
    lines = log.read_bytes().splitlines(keepends=True)
    entry = json.loads(lines[2])
    entry["round"] = 77
    entry["hash"] = chain._digest(entry)
    rewritten(log, [*lines[:2], chain._text(entry) + b"\n", *lines[3:]])
    with pytest.raises(NetworkError, match="entry 4 is missing, changed or out of place"):
        verify(log)


def test_a_kept_head_shows_that_the_end_was_cut_off_or_all_written_anew(log, tmp_path):
    head = verify(log)
    assert verify(log, ChainHead.from_text(str(head))) == head
    append(log, {"event": "later"})
    assert verify(log, head).number == 6
    rewritten(log, log.read_bytes().splitlines(keepends=True)[:3])
    assert verify(log).number == 3  # by itself it looks whole
    with pytest.raises(NetworkError, match="its end was cut off"):
        verify(log, head)
    for k in range(9):
        append(log, {"event": "forged", "round": k})
    with pytest.raises(NetworkError, match="written anew"):
        verify(log, head)


@pytest.mark.parametrize("text", ["", "5", "x:" + "0" * 64, "5:" + "g" * 64, "-1:" + "0" * 64])
def test_a_head_is_read_strictly(text):
    with pytest.raises(ArgumentError, match="a head must be"):
        ChainHead.from_text(text)


def test_a_line_cut_short_by_a_power_cut_is_left_out_and_replaced(log):
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"event":"torn","num')
    assert verify(log).number == 5
    append(log, {"event": "after"})
    assert log.read_bytes().startswith(whole)
    assert [e["event"] for e in entries(log)][-2:] == ["order", "after"]


def test_a_log_whose_only_line_was_cut_short_begins_again(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"event":"to')
    assert append(path, {"event": "first"})["number"] == 1
    assert verify(path).number == 1


def test_a_damaged_end_is_not_built_upon(log):
    log.write_bytes(log.read_bytes().replace(b'"round":4', b'"round":5'))
    with pytest.raises(NetworkError, match="not as it was written"):
        append(log, {"event": "more"})


def test_a_full_disk_is_a_network_error_and_leaves_the_log_as_it_was(log, monkeypatch):
    before = log.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(NetworkError, match="No space left on device"):
            append(log, {"event": "lost"})
    assert log.read_bytes() == before
    assert append(log, {"event": "next"})["number"] == 6


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"number": 1}, "number"),
        ({"x": float("nan")}, "JSON"),
        ({"x": object()}, "JSON"),
        ({"x": "y" * 70000}, "bytes"),
    ],
)
def test_entries_that_do_not_fit_are_refused(log, entry, says):
    before = log.read_bytes()
    with pytest.raises(ArgumentError, match=says):
        append(log, entry)
    assert log.read_bytes() == before


def test_a_chain_that_has_outgrown_its_file_goes_on_in_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(chain, "SEGMENT_BYTES", 1000)
    path = tmp_path / "log.jsonl"
    for k in range(30):
        append(path, {"event": "order", "round": k})
    names = sorted(p.name for p in tmp_path.glob("log*.jsonl"))
    assert names[:2] == ["log.000001.jsonl", "log.000002.jsonl"]
    assert all(p.stat().st_size < 1400 for p in tmp_path.glob("log*.jsonl"))
    assert [e["round"] for e in entries(path)] == list(range(30))
    (tmp_path / names[1]).unlink()
    with pytest.raises(NetworkError, match="missing"):
        verify(path)


def _many(path, count):
    for k in range(count):
        append(path, {"event": "order", "by": os.getpid(), "round": k})


def test_two_processes_that_append_at_once_make_one_chain(tmp_path):
    path = tmp_path / "log.jsonl"
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=_many, args=(path, 50)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    assert verify(path).number == 100


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

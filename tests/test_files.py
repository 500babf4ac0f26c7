"""Files are written whole or not at all; what stands at the path is respected; killed and live writers do not meet."""

import errno
import fcntl
import os
import resource
import secrets
import signal
import socket
import stat
import threading
from functools import partial
from pathlib import Path

import pytest

from fedlsa import files
from fedlsa.errors import ResultFileError

PLAIN_USER = 65534


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


def in_a_child(act):
    """What a forked process ends with."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException as error:
            os._exit(9 if isinstance(error, ResultFileError) else 1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_new_file_has_the_permissions_of_the_system_and_an_old_one_keeps_its_own(tmp_path):
    before = os.umask(0o027)
    try:
        files.write(tmp_path / "new", b"one", "it")
        files.write(tmp_path / "secret", b"one", "it", mode=0o600)
    finally:
        os.umask(before)
    assert [permissions(tmp_path / name) for name in ("new", "secret")] == [0o640, 0o600]
    (tmp_path / "new").chmod(0o604)
    files.write(tmp_path / "new", memoryview(b"two"), "it")
    assert ((tmp_path / "new").read_bytes(), permissions(tmp_path / "new")) == (b"two", 0o604)
    assert names(tmp_path) == ["new", "secret"]


def test_a_file_that_may_not_be_written_is_refused(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"kept")
    file.chmod(0o400)

    def as_a_plain_user():
        if os.geteuid() == 0:
            tmp_path.chmod(0o777)
            os.chroot(tmp_path)  # the folders above are closed to others
            os.chdir("/")
            os.setgid(PLAIN_USER)
            os.setuid(PLAIN_USER)
        else:
            os.chdir(tmp_path)
        files.write(Path("new"), b"new", "it")
        files.write(Path("x"), b"newer", "it")

    code = in_a_child(as_a_plain_user)
    if code == 1 and os.geteuid() == 0:
        pytest.skip("this root may not become another user")
    assert code == 9
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"x": b"kept", "new": b"new"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_writes_every_file_and_leaves_its_owner_and_permissions(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"old")
    try:
        os.chown(file, PLAIN_USER, PLAIN_USER)
    except OSError:
        pytest.skip("this root may not give files away")
    file.chmod(0o400)
    files.write(file, b"new", "it")
    found = file.stat()
    assert (file.read_bytes(), stat.S_IMODE(found.st_mode)) == (b"new", 0o400)
    assert (found.st_uid, found.st_gid) == (PLAIN_USER, PLAIN_USER)


def test_a_link_stays_a_link_and_its_target_is_written_also_one_that_is_not_there_yet(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_bytes(b"old")
    for link, target in (("a", "data/x"), ("b", "a"), ("dangling", "data/new")):
        (tmp_path / link).symlink_to(target)
        files.write(tmp_path / link, link.encode(), "it")
        assert os.readlink(tmp_path / link) == target
    assert {p.name: p.read_bytes() for p in (tmp_path / "data").iterdir()} == {"x": b"b", "new": b"dangling"}
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ResultFileError, match=r"cannot write it .*loop"):
        files.write(tmp_path / "loop", b"x", "it")
    assert names(tmp_path) == ["a", "b", "dangling", "data", "loop"]


def test_devices_and_pipes_are_written_to_and_stay(tmp_path):
    files.write(Path("/dev/null"), b"x", "it")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    files.write(tmp_path / "pipe", b"x" * 200_000, "it")
    reader.join()
    assert read == [b"x" * 200_000]
    assert names(tmp_path) == ["pipe"]


def test_what_a_process_has_open_is_added_to(tmp_path):
    with open(tmp_path / "log", "wb") as out:
        out.write(b"before\n")
        out.flush()
        inode = os.stat(tmp_path / "log").st_ino
        files.write(Path(f"/dev/fd/{out.fileno()}"), b"after\n", "it")
    assert (tmp_path / "log").read_bytes() == b"before\nafter\n"
    assert os.stat(tmp_path / "log").st_ino == inode


def test_folders_sockets_and_missing_folders_are_refused_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("socket")
        for name, why in ((".", "directory"), ("socket", "No such"), ("no/x", "No such")):
            with pytest.raises(ResultFileError, match=f"^cannot write it .*: .*{why}"):
                files.write(Path(name), b"x", "it")
    with pytest.raises(ResultFileError):
        files.write(Path("/"), b"x", "it")
    assert names(tmp_path) == ["socket"]


@pytest.mark.parametrize(
    "name", ["x" * 255, "ü" * 127, "\N{GRINNING FACE}" * 63, "*[a]?", os.fsdecode(b"\xff.nc")], ids=range(5)
)
def test_every_name_that_the_system_takes_is_good_enough(tmp_path, name):
    for content in (b"one", b"two"):
        files.write(tmp_path / name, content, "it")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [(name, b"two")]


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, None])
def test_where_the_system_refuses_the_old_file_stays_and_nothing_else(tmp_path, monkeypatch, step, code):
    (tmp_path / "x").write_bytes(b"old")
    real = getattr(os, step)

    def fail(*given, **more):
        if step == "open" and not given[1] & os.O_CREAT:
            return real(*given, **more)
        if step == "write":
            real(given[0], given[1][:2])
        raise KeyboardInterrupt if code is None else OSError(code, os.strerror(code))

    monkeypatch.setattr(os, step, fail)
    expected = KeyboardInterrupt if code is None else ResultFileError
    with pytest.raises(expected, match=None if code is None else f"cannot write it .*x: {os.strerror(code)}"):
        files.write(tmp_path / "x", b"new content", "it")
    monkeypatch.undo()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x", b"old")]


def test_a_limit_on_the_size_of_files_is_a_sentence(tmp_path):
    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        files.write(tmp_path / "x", b"x" * 5000, "it")

    assert in_a_child(limited) == 9
    assert names(tmp_path) == []


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_writer_that_is_killed_anywhere_leaves_the_old_file_or_the_new_one(tmp_path, before):
    """Real kills: a child for every operation, ended before it (of a write: after half of it) and after it."""
    ended, target, content = {"killed": 0, "whole": 0}, tmp_path / "x", b"new content"

    def kill(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def until(count, when):
        def counted(real):
            def operation(*given):
                nonlocal count
                count -= 1
                if count == 0 and when == "before":
                    if real is write:
                        real(given[0], given[1][:5])
                    kill()
                try:
                    return real(*given)
                finally:
                    if count == 0:
                        kill()

            return operation

        write = os.write
        for name in ("open", "fchmod", "write", "fsync", "replace", "unlink", "close"):
            setattr(os, name, counted(getattr(os, name)))
        files.write(target, content, "it")

    for when in ("before", "after"):
        for count in range(1, 40):
            for path in tmp_path.iterdir():
                path.unlink()
            if before is not None:
                target.write_bytes(before)
            code = in_a_child(partial(until, count, when))
            ended["whole" if code == 0 else "killed"] += 1
            assert code in (0, -signal.SIGKILL)
            assert (target.read_bytes() if target.exists() else None) in (before, content)
            files.write(target, content, "it")
            assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x", content)]
            if code == 0:
                break
    assert ended["whole"] == 2  # every operation of a write was tried
    assert ended["killed"] >= 2 * 9


def test_what_a_killed_writer_left_is_removed_and_what_a_live_one_writes_is_not(tmp_path):
    left, live = (tmp_path / f".x.nc.{n}.part" for n in ("00000001", "00000002"))
    others = tmp_path / ".y.nc.00000003.part"
    for path in (left, live, others):
        path.write_bytes(b"half")
    with open(live, "rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        files.write(tmp_path / "x.nc", b"whole", "it")
        assert names(tmp_path) == [".x.nc.00000002.part", ".y.nc.00000003.part", "x.nc"]
    files.remove(tmp_path / "x.nc")
    assert names(tmp_path) == [".y.nc.00000003.part"]


def test_a_temporary_file_that_is_taken_away_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    lock, taken = files.lock, []

    def slow(file, **more):
        if not taken:
            taken.extend(tmp_path.iterdir())
            taken[0].unlink()
        return lock(file, **more)

    monkeypatch.setattr(files, "lock", slow)
    files.write(tmp_path / "x", b"whole", "it")
    assert len(taken) == 1
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x", b"whole")]


def test_processes_that_save_the_same_file_at_once_all_succeed_and_leave_one_whole_file(tmp_path):
    def save(letter):
        for _ in range(50):
            files.write(tmp_path / "x", letter * 5000, "it")

    children = []
    for letter in (b"a", b"b", b"c"):
        if (child := os.fork()) == 0:
            try:
                save(letter)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert names(tmp_path) == ["x"]
    assert len(content := (tmp_path / "x").read_bytes()) == 5000
    assert len(set(content)) == 1


def test_bytes_are_what_would_be_in_the_file():
    content = secrets.token_bytes(20)
    assert files.as_bytes("name.txt", lambda path: files.write(path, content + path.name.encode(), "it")) == (
        content + b"name.txt"
    )


def test_hidden_files_of_others_are_left_alone(tmp_path):
    (tmp_path / ".a.nc.mine.part").write_text("precious")
    os.mkfifo(tmp_path / ".a.nc.0123abcd.part")
    files.write(tmp_path / "a.nc", b"x", "the file")
    assert (tmp_path / ".a.nc.mine.part").read_text() == "precious"


def test_a_file_that_a_group_shares_stays_the_groups(tmp_path, monkeypatch):
    """Only root may give a file away: who may not keeps the group, or else leaves no rights to another one."""
    path, asked = tmp_path / "shared", []
    path.write_bytes(b"1")
    path.chmod(0o660)

    def refuse(file, uid, gid):
        asked.append((uid, gid))
        if uid != -1 or path.read_bytes() == b"2":
            raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    files.write(path, b"2", "the file")
    before = path.stat()
    assert asked == [(before.st_uid, before.st_gid), (-1, before.st_gid)]
    assert stat.S_IMODE(before.st_mode) == 0o660
    files.write(path, b"3", "the file")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_name_with_a_zero_byte_is_refused(tmp_path):
    with pytest.raises(ResultFileError, match="cannot write the file"):
        files.write(Path("a\0b"), b"1", "the file")

"""Whatever surrounds a command (extras that are missing, streams, names, limits), its end is one line, no traceback."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import threading

import pytest

import fedlsa as fl
from fedlsa import threads
from fedlsa.cli import main
from fedlsa.cli.outputs import Outputs
from fedlsa.engine.progress import notice
from fedlsa.files import csv_bytes
from fedlsa.installation import extra_of

RING = ["--problem", "ring", "--rounds", "4"]
TABLE = "a,y\n1,2\n2,3\n3,5\n4,4\n"
NO_TEXT = os.fsdecode(b"caf\xe9")  # the bytes of a name that is not UTF-8

# every command line from standard input, where nothing is installed but what the extra `cli` brings
WITH_CLI_ALONE = """
import contextlib, io, json, re, sys
from importlib.metadata import packages_distributions, requires

wanted = {}
for line in requires("fedlsa"):
    wanted.setdefault(line.rpartition("== ")[2].strip("'\\"") if "extra ==" in line else "", set()).add(
        re.match(r"[\\w.-]+", line)[0].lower())
others = set().union(*wanted.values()) - wanted[""] - wanted["cli"] - {"fedlsa"}
missing = {m for m, owners in packages_distributions().items() if {o.lower() for o in owners} & others}

class Without:  # libraries also ask whether a module could be found
    def __init__(self, finder):
        self.find_distributions, self.find = getattr(finder, "find_distributions", lambda *a: ()), finder.find_spec

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in missing else self.find(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
from fedlsa.cli import main

for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    print(json.dumps([code, err.getvalue()]))
"""
COMMANDS = {  # and the extra that each needs
    "simulate --problem ring --rounds 4 --seeds 2 --method fedlsa --plot x.png --out r.nc": None,
    "plot r.nc --out y.png": None,
    "theory --problem ring --rounds 4": None,
    "plan --problem ring --epsilon 0.5": None,
    "reproduce --help": None,
    "simulate --problem lakes --rounds 4": "gym",
    "simulate --problem ring --engine cuda": "cuda",
    "explore --save e.png": None,
    "fit regression x.csv --target y": "data",
    "fit regression x.csv --target 'y ~ a'": "data",
    "fit value x.csv --features 'OneHot(4)' --discount 0.9": "data",
    "evaluate m.json x.csv": "data",
    "predict m.json x.csv": "data",
    "network init new --host localhost --sites 2": "network",
    "network demo": "network",
    "network enrol net/bundles/a.toml": "network",
    **{f"network {verb} net": "network" for verb in ("serve", "run", "status", "stop", "result", "audit", "renew")},
    **{f"network {verb} net a": "network" for verb in ("approve", "revoke", "add-site", "remove-site")},
    **{f"network {verb} site": "network" for verb in ("join", "ledger", "allow")},
}


@pytest.mark.long
def test_every_command_works_with_the_extra_cli_alone_or_says_what_to_install(tmp_path):
    from fedlsa.network.folder import setup

    (tmp_path / "x.csv").write_text(TABLE)
    fl.fit([tmp_path / "x.csv"], fl.Regression("y")).save(tmp_path / "m.json")
    network = setup.init(tmp_path / "net", ["a", "b"], "localhost")
    setup.enrol(network, network.bundle("b"), tmp_path / "site")
    words = [shlex.split(command) for command in COMMANDS]
    ran = subprocess.run(
        [sys.executable, "-c", WITH_CLI_ALONE], input=json.dumps(words), capture_output=True, text=True, cwd=tmp_path,
        check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    for (given, extra), line in zip(COMMANDS.items(), ran.stdout.splitlines(), strict=True):
        code, err = json.loads(line)
        if extra is None:
            assert code == 0, (given, err)
        else:
            assert (code, err.count("\n")) == (2, 1), (given, err)
            assert f"pip install 'fedlsa[{extra}]'" in err, (given, err)


def test_the_extra_of_a_module_is_the_smallest_that_brings_it():
    modules = ["matplotlib", "typer", "pyarrow", "grpc", "cryptography", "minari.dataset", "nothing", None]
    extras = ["plot", "cli", "data", "network", "network", "gym", None, None]
    assert [extra_of(module) for module in modules] == extras


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--version", "--help"])
def test_a_full_standard_output_is_one_line_and_one_that_nobody_reads_none(words, unbuffered):
    command, env = [sys.executable, "-m", "fedlsa", words], {**os.environ, "PYTHONUNBUFFERED": unbuffered}

    def run(stdout):
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=env, text=True, check=False)
        return done.returncode, done.stderr

    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            code, err = run(full)
        assert (code, err.count("\n")) == (2, 1)
        assert "No space left on device" in err
    unread, out = os.pipe()
    os.close(unread)
    assert run(out) == (1, "")
    os.close(out)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names themselves")
def test_names_that_are_not_utf_8_are_written_and_as_data_refused_in_one_line(fedlsa, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fedlsa("simulate", *RING, "--plot", f"{NO_TEXT}.png")[0] == 0
    assert fedlsa("theory", *RING, "--out", f"{NO_TEXT}.csv")[0] == 0
    assert fedlsa("theory", *RING, "--out", f"{NO_TEXT}.nc")[0] == 0
    assert "--out 'caf?.csv'\n" in (tmp_path / f"{NO_TEXT}.csv").read_text()
    (tmp_path / f"{NO_TEXT}.csv").write_text(TABLE)
    code, _, err = fedlsa("fit", "regression", f"{NO_TEXT}.csv", "--target", "y")
    assert code == 2
    assert err.endswith("cannot be read as a CSV file: its name is not UTF-8\n")


def test_a_folder_a_thousand_deep_is_made_or_refused_in_one_line(fedlsa, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    deep = "/".join(["d"] * 1000)
    for words in (["simulate", *RING, "--quiet", "--out", deep], ["theory", *RING, "--plot", f"{deep}/x.png"]):
        code, _, err = fedlsa(*words)
        assert (code, err.count("\n")) in {(0, 0), (2, 1)}


@pytest.fixture
def no_threads(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_where_no_thread_may_be_started_the_work_is_done_here(no_threads, capsys):
    with notice("not said", after=0.0), threads.one_blas_thread():
        pass
    done = []
    threads.share(lambda a, b: done.append((a, b)), [0, 2, 5, 9])
    assert sorted(done) == [(0, 2), (2, 5), (5, 9)]
    assert main(["theory", *RING]) == 0
    assert main(["simulate", *RING, "--threads", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_where_a_command_needs_threads_that_may_not_be_started_it_says_so(no_threads, fedlsa):
    code, _, err = fedlsa("simulate", "--problem", "garnet", "--rounds", "4", "--threads", "2")
    assert (code, err) == (2, "fedlsa: can't start new thread: the limit of processes is reached (ulimit -u)\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("command", "option", "name"),
    [
        ("fit regression a.csv --target y", "--out", "m.json"),
        ("theory --problem ring --rounds 3", "--out", "m.csv"),
        ("plan --problem ring --epsilon 0.5 --method fedlsa", "--plot", "m.svg"),
    ],
)
def test_what_cannot_be_printed_is_saved_all_the_same(fedlsa, tmp_path, monkeypatch, command, option, name):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i},{i * i % 7}\n" for i in range(20)))
    with contextlib.suppress(OSError), open("/dev/full", "w") as full:  # closing it tries once more
        monkeypatch.setattr(sys, "stdout", full)
        code, _, err = fedlsa(*command.split(), option, name)
    assert (code, err.count("\n")) == (2, 1)
    assert "No space left on device" in err
    assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("command", ["fedlsa evaluate m.json 'my  f.csv'", "fedlsa theory --out 'a\nb.csv'"])
def test_a_table_knows_its_command_with_every_blank_in_it(tmp_path, command):
    path = tmp_path / "table.csv"
    path.write_bytes(csv_bytes([["a"], [1]], command))
    Outputs(command, False).check("--out", path, ())
    other = command.replace("  ", " ").replace("\n", "x") + " --other"
    with pytest.raises(fl.errors.ArgumentError, match="--force replaces it"):
        Outputs(other, False).check("--out", path, ())


def test_a_complaint_does_not_go_to_standard_output():
    shell = f'exec "{sys.executable}" -m fedlsa --nope 2>&-'
    done = subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (2, b"")

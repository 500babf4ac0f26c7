"""Files for operators: container, units, wheels. The tools that will read them lint and parse them, and the commands
inside are run as processes."""

import configparser
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
import zipfile
from pathlib import Path

import pytest
from deployment import PATIENCE, Process, Spare
from tables_of_sites import write_table

import fedlsa as fl
from fedlsa.network.folder import setup
from fedlsa.network.processes import free_port

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SITES = ("a", "b", "c")
BY_PIP = ("hadolint",)  # there are wheels of it for Linux


def tool(name):
    """A program beside Python or on the path; without it a test is skipped, but fails in CI if pip has it."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        missing = f"needs {name}, which is not installed"
        if os.environ.get("CI") == "true" and name in BY_PIP and platform.machine() == "x86_64":
            pytest.fail(f"{missing} (pip install 'fedlsa[test]')")
        pytest.skip(missing)
    return found


# the container


def instructions():
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def test_the_container_file_passes_its_linter():
    done = subprocess.run([tool("hadolint"), str(DEPLOY / "Containerfile")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_container_is_pinned_runs_as_nobody_special_and_fetches_nothing():
    found = instructions()
    bases = [words.split()[0] for name, words in found if name == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base) for base in bases)
    assert [name for name, _ in found].count("ADD") == 0
    assert not any("http" in words for name, words in found if name != "HEALTHCHECK")
    assert "--no-index" in dict(found[:3])["RUN"]
    assert "--require-hashes" in dict(found[:3])["RUN"]
    order = [name for name, _ in found]
    user = next(words for name, words in found if name == "USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)  # a number, so that "must not be root" can be checked by others
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert "HEALTHCHECK" in order


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A network on loopback, with sites that have joined, and a table each."""
    import numpy as np

    root = tmp_path_factory.mktemp("operation")
    task = fl.Regression("y", intercept=False, standardise=False)
    made = setup.init(root / "net", SITES, "127.0.0.1", free_port(), task=task, page_port=free_port())
    rng = np.random.default_rng(1)
    for name in SITES:
        setup.enrol(made, made.bundle(name), root / name)
        X = rng.normal(size=(80, 3))
        write_table(root / f"{name}.csv", np.column_stack([X, X @ [1.0, 2.0, 3.0] + rng.normal(size=80)]))
    return made


# units


def units(network):
    folder = network.folder.parent / "a"
    return [network.folder / "fedlsa-coordinator.service", folder / "fedlsa-site.service"]


def test_units_are_what_systemd_expects_and_expose_little(network, tmp_path):
    analyze = tool("systemd-analyze")
    for unit in units(network):
        table = network.folder.parent / "a.csv"
        text = unit.read_text().replace("@DATA@", str(table)).replace("@FEDLSA@", sys.executable)
        text = re.sub("User=.*", "User=daemon", text)
        copy = tmp_path / unit.name
        copy.write_text(text)
        done = subprocess.run([analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True)
        faults = [line for line in done.stderr.splitlines() if unit.name in line]
        assert not faults
        command = [analyze, "security", "--offline=true", "--threshold=25", "--no-pager", str(copy)]
        done = subprocess.run(command, capture_output=True, text=True)  # an exposure of 2.5 of 10: "OK" ends at 5
        assert done.returncode == 0, done.stdout[-300:]


# the commands inside, as processes


def commands(network):
    """(role, words after `fedlsa`) of container and units."""
    root = network.folder.parent
    found = {name: words for name, words in instructions() if name in ("ENTRYPOINT", "CMD")}
    entry, cmd = json.loads(found["ENTRYPOINT"]), json.loads(found["CMD"])
    assert entry[0] == "fedlsa"
    yield "container", [*entry[1:], *cmd]
    for unit in units(network):
        read = configparser.ConfigParser(interpolation=None, strict=False)
        read.optionxform = str
        read.read_string(unit.read_text())
        yield unit.name, shlex.split(read["Service"]["ExecStart"].replace("@DATA@", str(root / "a.csv")))[1:]


def ask(port):
    """The exit code of the container's own health check, with another port."""
    (words,) = (words for name, words in instructions() if name == "HEALTHCHECK")
    check = json.loads(words.partition("CMD")[2])
    assert check[0] == "python"
    env = {**os.environ, "FEDLSA_PAGE_PORT": str(port)}
    return subprocess.run([sys.executable, *check[1:]], env=env, capture_output=True).returncode


@pytest.fixture(scope="module")
def spare():
    out = Spare()
    yield out
    out.end()


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
            return json.loads(answer.read())
    except OSError:
        return None


@pytest.mark.long
def test_every_command_of_an_operator_starts_and_is_healthy(network, spare):
    """The words are those of the files; places are this machine's. Commands that then are the same run once."""
    root, seen = network.folder.parent, {}
    for who, words in commands(network):
        words = [*words]
        assert words[1] in ("serve", "join")
        words[2] = str(network.folder if words[1] == "serve" else root / "a")
        for option, value in (("--data", root / "a.csv"), ("--page-port", network.page_port)):
            if option in words:
                words[words.index(option) + 1] = str(value)
        seen.setdefault(tuple(words), []).append(who)
    assert sum(map(len, seen.values())) >= 3
    env = {"XDG_STATE_HOME": str(root / "state")}
    server = Process(spare, ("network", "serve", str(network.folder), "--no-page"), root / "server.log", env)
    for words, who in sorted(seen.items(), key=lambda one: one[0][1] == "join"):  # sites have a coordinator
        if words[1] == "join" and not server.running:
            server.start()
        process = Process(spare, words, root / "log", env)
        process.start()
        end = time.monotonic() + PATIENCE
        while (told := answers(network.page_port)) is None or told["status"] != "ok":
            assert process.running, f"{who}: {process.said()}"
            assert time.monotonic() < end, f"{who}: {told} {process.said()}"
            time.sleep(0.1)
        assert told["version"]
        assert ask(network.page_port) == 0
        assert process.end() == 0, f"{who}: {process.said()}"
    assert server.end() == 0
    assert ask(network.page_port) != 0


CONTAINED = """
mount --make-rprivate /
mount --bind "$1" "$1"
for folder in "$2" "$3" "$4"; do mount --bind "$folder" "$folder"; done
mount -o remount,ro,bind "$1" && mount -o remount,ro,bind /
for folder in /etc /opt "$1"; do if touch "$folder/written" 2>/dev/null; then exit 77; fi; done
shift 4; exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""
START = "import sys; from fedlsa.cli import main; sys.exit(main())"


@pytest.mark.long
def test_both_roles_run_where_only_their_folders_can_be_written(network, tmp_path):
    """Namespaces of the kernel instead of a container engine: read-only but for three folders, no capabilities."""
    root = network.folder.parent
    shell = [tool("unshare"), "--mount", "sh", "-euc"]
    tool("setpriv")
    mounts = f"mount --make-rprivate / && mount --bind {shlex.quote(str(tmp_path))} {shlex.quote(str(tmp_path))}"
    if subprocess.run([*shell, mounts], capture_output=True).returncode:
        pytest.skip("needs the right to make mount namespaces")
    state, scratch = tmp_path / "state", tmp_path / "scratch"
    state.mkdir()
    scratch.mkdir()
    ports = {"serve": network.page_port, "join": free_port()}
    data = ["--data", str(root / "b.csv"), "--yes"]
    words = {
        "serve": (network.folder, ["serve", str(network.folder), "--page-address", "127.0.0.1"]),
        "join": (root / "b", ["join", str(root / "b"), *data, "--page-port", str(ports["join"])]),
    }
    env = {**os.environ, "XDG_STATE_HOME": str(state), "TMPDIR": str(scratch), "OPENBLAS_NUM_THREADS": "1"}
    env |= {"NUMBA_CACHE_DIR": str(scratch / "numba"), "MPLCONFIGDIR": str(scratch / "matplotlib")}
    env |= {"PYTHONPATH": str(Path(fl.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
    running = {}
    try:
        for role, (folder, said) in words.items():
            command = [*shell, CONTAINED, "sh", *map(str, (tmp_path.parent, folder, state, scratch))]
            with (tmp_path / f"{role}.log").open("w") as log:
                command += [sys.executable, "-c", START, "network", *said]
                running[role] = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd="/")
        end = time.monotonic() + PATIENCE
        for role, port in ports.items():
            while (told := answers(port)) is None or told["status"] != "ok":
                said = (tmp_path / f"{role}.log").read_text()
                assert running[role].poll() is None, said
                assert time.monotonic() < end, f"{told} {said}"
                time.sleep(0.1)
    finally:
        for process in running.values():
            process.terminate()
        codes = [process.wait(PATIENCE) for process in running.values()]
    assert codes == [0, 0]
    assert list(state.rglob("*.ledger.json"))  # the copy of the ledger's head lies apart from the folder


# wheels


def test_the_lists_of_wheels_pin_every_one_by_its_hash(tmp_path):
    spec = importlib.util.spec_from_file_location("make_wheels", DEPLOY / "make_wheels.py")
    wheels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wheels)
    for name, version in (("fedlsa", "0.1.0"), ("Some_Thing.else", "2")):
        with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n\nName: no\n")
    lines = wheels.write_lists(tmp_path, "3.12", "x86_64")
    assert [line.partition(" ")[0] for line in lines] == ["fedlsa[network]==0.1.0", "some-thing-else==2"]
    assert all(re.fullmatch(r"\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    assert (tmp_path / "requirements.txt").read_text().splitlines() == lines
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0
    assert "--require-hashes" in (tmp_path / "INSTALL.md").read_text()


def test_the_versions_of_image_and_package_agree():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"fedlsa:{version}" in (DEPLOY / "Containerfile").read_text()

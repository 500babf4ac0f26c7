"""A coordinator and sites as real processes on loopback, for tests; every process is ended by its own id."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tables_of_sites import site_data, write_table

import fedlsa as fl
from fedlsa.network.carriers.grpc_site import SiteLink
from fedlsa.network.coordinator.runs import RunFolder, all_runs
from fedlsa.network.folder import setup
from fedlsa.network.processes import free_port
from fedlsa.network.protocol.run_settings import StartOptions

D, ROWS = 5, 80
PATIENCE = 240.0  # seconds, on a busy machine
ETA, H = 0.02, 25
OWN_FILES = 400  # of a process, beside those that a test opens


class Spare:
    """Starts processes quickly (spare_process.py)."""

    def __init__(self):
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).with_name("spare_process.py"))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.lock = threading.Lock()

    def ask(self, **what):
        with self.lock:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


class Process:
    """`fedlsa WORDS` as a process with a log of its own; began : where in the log its latest start is."""

    def __init__(self, spare, words, log, env):
        self.spare, self.words, self.log, self.env = spare, words, log, env
        self.pid, self.code, self.began = None, None, 0

    def start(self):
        assert self.poll() is not None or self.pid is None
        self.began = self.log.stat().st_size if self.log.exists() else 0
        self.code, self.pid = None, self.spare.ask(words=list(self.words), log=str(self.log), env=self.env)

    def poll(self):
        """The exit code, None while it runs."""
        if self.pid is not None and self.code is None:
            self.code = self.spare.ask(poll=self.pid)
        return self.code

    @property
    def running(self):
        return self.pid is not None and self.poll() is None

    def signal(self, number):
        if self.running:
            os.kill(self.pid, number)

    def wait(self, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while self.running:
            assert time.monotonic() < end, f"{self.words} does not end"
            time.sleep(0.01)
        return self.code

    def kill(self):
        """kill -9, by its own id."""
        self.signal(signal.SIGKILL)
        self.wait()

    def end(self):
        """SIGTERM; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def said(self):
        """What it has printed since its latest start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(self.began)
            return file.read().decode(errors="replace")


class Deployment:
    """The processes `fedlsa network serve` and `fedlsa network join`; who starts them again is the test."""

    def __init__(self, root, sites=4, *, env=None, policy=""):
        self.root, self.data = root, site_data(sites, ROWS, D)
        own = {"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "XDG_STATE_HOME": str(root / "state")}
        self.env = {**os.environ, **own, **(env or {})}
        self.policy, self.spare = policy, Spare()
        task = fl.Regression("y", intercept=False, standardise=False)
        self.network = setup.init(root / "net", sites, "127.0.0.1", free_port(), task=task)
        self.serve = self.child("serve", str(self.network.folder), "--no-page")
        self.sites, self.folders = {}, {}
        for name, (X, y) in zip(self.network.sites, self.data, strict=True):
            self.enrol(name, X, y)

    def enrol(self, name, X, y):
        """A site's folder, its data, and the process that it will be."""
        write_table(self.root / f"{name}.csv", np.column_stack([X, y]))
        self.folders[name] = setup.enrol(self.network, self.network.bundle(name), self.root / name)
        policy = self.folders[name].policy
        for entry in self.policy.splitlines():
            key = entry.partition("=")[0].strip()
            text, count = re.subn(rf"^{key} = .*$", entry, policy.read_text(), flags=re.M)
            assert count == 1, entry
            policy.write_text(text)
        files = str(self.folders[name].folder), "--data", str(self.root / f"{name}.csv")
        self.sites[name] = self.child("join", *files, "--yes", log=name)

    def child(self, *words, log=None):
        return Process(self.spare, ("network", *words), self.root / f"{log or words[0]}.log", self.env)

    @property
    def children(self):
        return [self.serve, *self.sites.values()]

    def start(self):
        for child in self.children:
            child.start()
        self.until(lambda: all(self.here(name) for name in self.sites), "all sites are here")

    def end(self):
        """End all, each by its own id; their exit codes."""
        try:
            for child in self.children:  # all are told before any is waited for
                child.signal(signal.SIGTERM)
            return [child.wait() for child in self.children]
        finally:
            self.spare.end()

    def again(self, *children):
        """kill -9, and start again as a service manager does."""
        for child in children:
            child.kill()
        for child in children:
            child.start()

    def said(self, name):
        """What a site's or the coordinator's processes have printed so far."""
        path = self.root / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def here(self, name):
        """Whether the coordinator that runs now says that a site is here."""
        told = re.findall(rf"^{name} (is here|has gone)", self.serve.said(), re.M)
        return bool(told) and told[-1] == "is here"

    def until(self, happens, what, seconds=PATIENCE):
        """Wait for something; the logs tell why it did not happen."""
        end = time.monotonic() + seconds
        while not happens():
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {what}\n{self.logs()}")
            time.sleep(0.05)

    def logs(self):
        """The last lines of every log."""
        texts = []
        for path in sorted(self.root.glob("*.log")):
            texts += [f"{path.name}:", *path.read_text(errors="replace").splitlines()[-8:]]
        for run in all_runs(self.network):
            texts += [run.name, *(json.dumps(event) for _, event in list(run.events())[-6:])]
        return "\n".join(texts)

    def begin(self, name, rounds=6, **options):
        """A new run; every site takes part in every round unless told otherwise."""
        given = {"step_size": ETA, "local_steps": H, "local": "means", "min_sites": len(self.sites), "deadline": 60.0}
        given |= {"grace": 60.0, "rounds": rounds, "name": name, **options}
        return RunFolder.create(self.network, StartOptions(**given))

    def follow(self, run, then=lambda event: None, seconds=PATIENCE):
        """A run to its end; `then` sees every event as it comes. What result.json holds."""
        place = 0

        def look():
            nonlocal place
            over = run.over
            for after, event in run.events(place):
                place = after
                then(event)
            return over

        self.until(look, f"{run.name} is over", seconds)
        assert run.read("failed.json") is None, run.read("failed.json")
        return run.read("result.json")

    def run(self, name, then=lambda event: None, **options):
        return self.follow(self.begin(name, **options), then)

    def keep(self):
        """Copy all folders, of processes that do not run."""
        for path in [path for path in self.root.iterdir() if path.is_dir()]:
            shutil.copytree(path, self.root.with_name("kept") / path.name)

    def restore(self):
        """Begin again where `keep` was called: the same keys, secrets and ledgers."""
        for path in self.root.with_name("kept").iterdir():
            shutil.rmtree(self.root / path.name)
            shutil.copytree(path, self.root / path.name)

    def simulated(self, rounds=6):
        """theta of the simulation of the same run: steps on means, all sites in all rounds."""
        means = [([1.0], (X.T @ X / len(y))[None], (X.T @ y / len(y))[None]) for X, y in self.data]
        problem = fl.problems.from_observations(means)
        ran = fl.simulate(problem, fl.SCAFFLSA(ETA, H), rounds=rounds, seeds=1, theta_0=np.zeros(D))
        return ran.theta.values[0, -1]


def limit_file_size(child, most):
    """Let a process write no file beyond so many bytes (a full disk, as it meets it); None lifts it again."""
    _, hard = resource.prlimit(child.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (hard if most is None else most, hard))


@contextmanager
def many_sockets(wanted, ends=1):
    """How many sockets may be opened, at most those wanted; ends : how many of a connection's are this process's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = most = ends * wanted + OWN_FILES
    if soft != resource.RLIM_INFINITY:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    try:
        yield min(wanted, (most - OWN_FILES) // ends)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def keys(it, name):
    return it.folders[name]


def link(it, site_keys, answer=lambda order: order):
    """A connection from within this test; (link, what it said)."""
    said = []
    made = SiteLink("127.0.0.1", it.network.port, site_keys, answer, say=said.append)
    threading.Thread(target=made.run, daemon=True).start()
    return made, said


def after_round(number, act):
    """A watcher that acts once, after so many averages."""
    done = []

    def watch(event):
        if event["event"] == "round" and event["averages"] >= number and not done:
            done.append(number)
            act()

    return watch


@contextmanager
def deployed(root, sites=4, **options):
    """A running deployment, ended also when the test fails."""
    it = Deployment(root, sites, **options)
    try:
        it.start()
        yield it
    finally:
        codes = it.end()
    assert set(codes) <= {0, None}, f"exit codes {codes}\n{it.logs()}"  # SIGTERM is a clean end

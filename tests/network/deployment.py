"""A coordinator and sites as real processes on loopback, for tests; every process is ended by its own id."""

import os
import signal
import threading
import time
from contextlib import contextmanager

import numpy as np

import fedlsa as fl
from fedlsa.network.coordinator.commands import Coordinator
from fedlsa.network.coordinator.runs import RunFolder
from fedlsa.network.disk import load_state
from fedlsa.network.folder import setup
from fedlsa.network.folder.config import Bundle
from fedlsa.network.processes import free_port
from fedlsa.network.protocol.run_settings import StartOptions
from fedlsa.network.site.join import Member
from fedlsa.network.site.site_data import open_data

D, ROWS = 8, 60


def site_data(sites, seed=3):
    """(X, y) of each site, whose laws differ."""
    rng = np.random.default_rng(seed)
    out = []
    for c in range(sites):
        X = rng.normal(size=(ROWS, D)) * (1 + 0.2 * c) + 0.2 * c
        out.append((X, X @ (np.arange(D) / D + 0.3 * c) + rng.normal(size=ROWS)))
    return out


def write_csv(path, X, y):
    head = ",".join([*(f"x{i}" for i in range(X.shape[1])), "y"])
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", header=head, comments="", fmt="%.17g")


class Deployment:
    """The processes, and a thread that starts again what dies, as `serve` and `join` do."""

    def __init__(self, root, sites=4, *, insecure=False, task=None):
        self.root, self.data, self.said = root, site_data(sites), []
        task = fl.Regression("y", intercept=False, standardise=False) if task is None else task
        self.network = setup.init(root / "net", sites, "127.0.0.1", free_port(), task=task, inner_port=free_port())
        self.coordinator = Coordinator(self.network.folder, insecure=insecure, say=self.said.append)
        self.members = {}
        for name, (X, y) in zip(self.network.sites, self.data, strict=True):
            write_csv(root / f"{name}.csv", X, y)
            bundle = Bundle.open(self.network.bundle(name), root / name)
            data = open_data(root / f"{name}.csv", None, bundle.task)
            self.members[name] = Member(bundle, data, insecure=insecure, say=self.said.append)
        self.lock, self.over = threading.Lock(), threading.Event()
        self.away = set(self.members)  # sites that are kept down
        self.thread = threading.Thread(target=self._supervise, daemon=True)

    def _supervise(self):
        while not self.over.wait(0.1):
            with self.lock:
                self.coordinator.look()
                for name, member in self.members.items():
                    if name not in self.away:
                        member.look()

    @property
    def children(self):
        """Every process that was started."""
        ours = [self.coordinator.link, self.coordinator.gate, self.coordinator.worker]
        return ours + [child for m in self.members.values() for child in (m.node, m.worker)]

    def start(self):
        """Start the coordinator, and the sites once it answers."""
        self.thread.start()
        self.until(self.coordinator.ready, "the coordinator answers")
        self.away.clear()

    def end(self):
        """End all, each by its own id."""
        self.over.set()
        if self.thread.is_alive():
            self.thread.join(30)
        for child in self.children:  # all are told before any is waited for
            if child.pid is not None:
                os.kill(child.pid, signal.SIGTERM)
        for child in self.children:
            child.end()

    def until(self, happens, what, seconds=300):
        """Wait for something; the logs tell why it did not happen."""
        end = time.monotonic() + seconds
        while not happens():
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {what}\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        """The last lines of every log."""
        texts = [f"supervision: {line}" for line in self.said[-10:]]
        for path in sorted(self.root.rglob("*.log")):
            texts += [f"{path}:", *path.read_text(errors="replace").splitlines()[-8:]]
        return "\n".join(texts)

    def kill(self, *children):
        """kill -9, by their own ids."""
        for child in children:
            pid = child.pid
            if pid is not None:
                os.kill(pid, signal.SIGKILL)

    def run(self, then=lambda event: None, seconds=600, **options):
        """A run to its end; `then` sees every event as it comes."""
        run = RunFolder.create(self.network, StartOptions(**options))
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
        return run

    def xi(self, name):
        """xi of every site, from the sites' own disks : (N, d)."""
        return np.stack([load_state(m.folder / "state" / f"{name}.npz")["xi"] for m in self.members.values()])


@contextmanager
def deployed(root, sites=4, **options):
    """A running deployment, ended also when the test fails."""
    it = Deployment(root, sites, **options)
    try:
        it.start()
        yield it
    finally:
        it.end()
    assert all(child.pid is None for child in it.children)

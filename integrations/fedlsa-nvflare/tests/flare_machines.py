"""A FLARE server, FLARE clients, and beside each our own process, as an institution would run them; on loopback."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
from fedlsa_nvflare import relay
from nvflare.fuel.flare_api.flare_api import new_secure_session

import fedlsa as fl
from fedlsa.network.folder import setup
from fedlsa.network.processes import free_port

BIN = Path(sys.executable).parent
SITES = ("site-1", "site-2", "site-3")
SERVER, SUPERVISOR = "localhost", relay.SUPERVISOR
PATIENCE = 300.0  # seconds for whatever is waited for; the machine may be busy


class Machines:
    """folder : where everything lies. Processes are ended by their own ids, with the processes that they started."""

    def __init__(self, folder):
        self.folder, self.processes = folder, {}
        self.env = {**os.environ, "HOME": str(folder), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        self.env |= {"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "FEDLSA_SOCKET": str(folder / "net.sock")}
        task = fl.Regression("y", intercept=False, standardise=False)
        self.network = setup.init(folder / "net", SITES, SERVER, free_port(), task=task, page_port=free_port())
        for number, site in enumerate(SITES):
            setup.enrol(self.network, self.network.bundle(site), folder / site)
            rng = np.random.default_rng(number)
            x = rng.normal(size=(200, 3))
            y = x @ [1.0, -2.0, 0.5] + number + rng.normal(size=200)
            np.savetxt(self.data(site), np.c_[x, y], delimiter=",", header="a,b,c,y", comments="")
        self._make_keys()
        for name in (SERVER, *SITES):
            relay.harden(self.kit(name), self.socket(name))

    def data(self, site):
        return self.folder / f"{site}.csv"

    def socket(self, name):
        return self.folder / ("net.sock" if name == SERVER else f"{name}.sock")

    def kit(self, name):
        return next((self.folder / "kits").glob(f"*/prod_00/{name}"))

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _make_keys(self):
        """Every side makes its own key and sends a request; the coordinator approves; every side packs its folder."""
        out = self.folder / "kit"
        relay.write_kit(out, self.network.id, SERVER, free_port(), SITES)
        ca, profile = self.folder / "flare-ca", out / "profile.yaml"
        self._nvflare("cert", "init", "--profile", profile, "-o", ca)
        fingerprint = json.loads((ca / "ca.json").read_text())["rootCA_fingerprint"]
        for side, name in {"server": SERVER, "supervisor": SUPERVISOR, **dict(zip(SITES, SITES, strict=True))}.items():
            asked, signed = self.folder / f"request-{side}", self.folder / f"{side}.signed.zip"
            self._nvflare("cert", "request", "-p", out / f"{side}.yaml", "--out", asked)
            approve = ("cert", "approve", asked / f"{name}.request.zip", "-c", ca, "--profile", profile)
            self._nvflare(*approve, "--out", signed)
            pack = ("package", signed, "-w", self.folder / "kits", "--request-dir", asked)
            self._nvflare(*pack, "--fingerprint", fingerprint)

    def _nvflare(self, *arguments):
        done = subprocess.run([BIN / "nvflare", *arguments], env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, name, *command, **env):
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env | env, start_new_session=True,
            )  # fmt: skip

    def start_flare(self, name, **env):
        """FLARE's own start script."""
        self.start(f"flare-{name}", "bash", self.kit(name) / "startup" / "sub_start.sh", "--once", **env)

    def start_site(self, site, *more):
        command = (BIN / "fedlsa", "network", "join", self.folder / site, "--data", self.data(site), "--yes")
        self.start(site, *command, *more)

    def start_coordinator(self, *more):
        self.start("serve", BIN / "fedlsa", "network", "serve", self.network.folder, "--no-page", *more)

    def start_everybody(self):
        """All processes of a network over FLARE."""
        for name in (SERVER, *SITES):
            self.start_flare(name)
        for site in SITES:
            self.start_site(site, "--carrier", f"nvflare:{self.socket(site)}")
        self.start_coordinator("--carrier", f"nvflare:{self.kit(SUPERVISOR)}")

    def session(self):
        """The supervisor's session with FLARE's server, when that is up."""
        ends = time.monotonic() + PATIENCE
        while True:
            try:
                return new_secure_session(SUPERVISOR, str(self.kit(SUPERVISOR)), timeout=10.0)
            except Exception:
                assert time.monotonic() < ends, self.log(f"flare-{SERVER}")
                time.sleep(1.0)

    def until(self, condition, what):
        """Wait until something is true, while all processes live; what it returns."""
        end = time.monotonic() + PATIENCE
        while not (found := condition()):
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            assert not ended, f"{ended} ended: {[self.log(name)[-2000:] for name in ended]}"
            assert time.monotonic() < end, f"waited {PATIENCE:g} s in vain until {what}"
            time.sleep(0.2)
        return found

    def kill(self, name):
        """kill -9 of a process and of those that it started, as when the machine loses power."""
        process = self.processes.pop(name)
        try:
            tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            tree = []
        for one in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()

    def close(self):
        for name in list(self.processes):
            self.kill(name)

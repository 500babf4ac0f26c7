"""Try it now: a coordinator and four sites as processes of this machine, with TLS and keys, over files made here.

The sites' answers are masked, so that the coordinator learns sums only. One site is killed with -9 in the middle and
brought back. At the end the network's estimate stands beside the pooled solution, which needs all rows in one place,
and beside the simulation of the same run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..algorithms import SCAFFLSA
from ..checks import Floats
from ..engine import simulate
from ..errors import NetworkError
from ..fitting import Regression
from ..problems import from_observations
from .coordinator.commands import SERVED, outcome
from .coordinator.runs import RunFolder, amount, balance, line
from .disk import trying_to
from .folder.setup import enrol, init
from .processes import free_port, interrupted_by_signals, is_held
from .protocol.run_settings import StartOptions
from .site.site_data import scale_from_json

SITES, ROWS, COLUMNS = 4, 500, ("age", "dose", "weight", "visits", "delay")
ETA, H, ROUNDS = 0.05, 60, 25
KILLED, AFTER = "site-3", 8  # which site is killed, and after which round
MAX_SECONDS = 600.0  # after which the demonstration gives up
# a command of fedlsa that ends with its parent, also where that is killed
CHILD = """import os, signal, sys, threading
watch = lambda: (os.read(0, 1), os.kill(os.getpid(), signal.SIGTERM))
threading.Thread(target=watch, daemon=True).start()
from fedlsa.cli import main
sys.exit(main())"""
COMMAND = (sys.executable, "-P", "-c", CHILD, "network")

Say = Callable[[str], None]


def demo(folder: Path | str | None = None, *, say: Say = print) -> float:
    """Run the demonstration in a folder, by default a temporary one; the largest difference to the simulation."""
    where = Path(tempfile.mkdtemp(prefix="fedlsa-demo-")) if folder is None else Path(folder)
    with trying_to(f"make the folder {where}"):
        where.mkdir(parents=True, exist_ok=True)
    if any(where.iterdir()):
        raise NetworkError(f"folder must be a new or an empty one; {where} has files in it")
    with interrupted_by_signals():
        try:
            return _demo(where.resolve(), say)
        finally:
            if folder is None:
                shutil.rmtree(where, ignore_errors=True)


def _demo(where: Path, say: Say) -> float:
    data = [_rows(c) for c in range(SITES)]
    network = init(where / "net", SITES, "127.0.0.1", free_port(), task=Regression("outcome"))
    say(f"{SITES} sites with {ROWS} rows each, {len(COLUMNS)} columns; a network in {where / 'net'}")
    commands: dict[str, Sequence[str]] = {"serve": (*COMMAND, "serve", str(network.folder), "--no-page")}
    children: dict[str, subprocess.Popen[bytes]] = {}
    for site, (X, y) in zip(network.sites, data, strict=True):
        file, head = where / f"{site}.csv", ",".join((*COLUMNS, "outcome"))
        np.savetxt(file, np.column_stack([X, y]), delimiter=",", header=head, comments="", fmt="%.17g")
        site_folder = enrol(network, network.bundle(site), where / site).folder
        commands[site] = (*COMMAND, "join", str(site_folder), "--data", str(file), "--yes")
    say(f"starting the coordinator and {SITES} sites, a process each; TLS, a key per site, masked answers")
    options = StartOptions(
        step_size=ETA, local_steps=H, rounds=ROUNDS, local="means", min_sites=SITES, deadline=60, name="demo"
    )

    def start(name: str) -> None:
        children[name] = start_process(commands[name], where / f"{name}.log")

    try:
        for name in commands:
            start(name)
        while not is_held(network.folder / SERVED):
            if children["serve"].poll() is not None:
                raise NetworkError(f"the coordinator has ended; see {where / 'serve.log'}")
            time.sleep(0.05)
        _watch(RunFolder.create(network, options), children, start, say)
    finally:
        for child in reversed(children.values()):
            end_process(child)
    return _compare(outcome(network.folder), data, say)


def _rows(c: int) -> tuple[Floats, Floats]:
    """The rows of site c, whose columns and outcome follow laws of their own."""
    rng = np.random.default_rng([7, c])
    X = rng.normal(size=(ROWS, len(COLUMNS))) * (1 + 0.4 * c) + rng.normal(size=len(COLUMNS))
    theta = np.linspace(-1, 1, len(COLUMNS)) + 0.5 * rng.normal(size=len(COLUMNS))
    return X, X @ theta + 2.0 + c + rng.normal(size=ROWS)


def start_process(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own, so that a terminal's Ctrl-C reaches only us."""
    with log.open("ab") as out:
        pipe = subprocess.PIPE  # which ends when we do, however that is
        return subprocess.Popen(command, stdin=pipe, stdout=out, stderr=out, start_new_session=True)


def end_process(child: subprocess.Popen[bytes], patience: float = 10.0) -> None:
    """End a process by its own id, first politely, then for certain."""
    child.terminate()
    try:
        child.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _watch(
    run: RunFolder, children: Mapping[str, subprocess.Popen[bytes]], start: Callable[[str], None], say: Say
) -> None:
    """Show the run; kill a site in the middle and bring it back."""
    alive, end = True, time.monotonic() + MAX_SECONDS
    for new in run.follow():
        if time.monotonic() > end:
            raise NetworkError(f"the demonstration must end within {MAX_SECONDS:g} s; see {run.folder}")
        for event in new:
            say(line(event))
            if alive and event["event"] == "round" and event["averages"] >= AFTER:
                alive = False
                say(f"{KILLED} is killed with -9 (process {children[KILLED].pid}) and brought back")
                children[KILLED].kill()
                children[KILLED].communicate()
                start(KILLED)


def _compare(result: dict[str, Any], data: list[tuple[Floats, Floats]], say: Say) -> float:
    """The table at the end: network, pooled solution, simulation."""
    scale = scale_from_json(result["scale"])
    T, t = scale.original()
    means = []
    for X, y in data:
        u = np.column_stack([(X - scale.centre) / scale.spread, np.ones(len(X))])
        means.append((u.T @ u / len(y), u.T @ ((y - scale.y_centre) / scale.y_spread) / len(y)))
    problem = from_observations([([1.0], A[None], b[None]) for A, b in means])
    ran = simulate(problem, SCAFFLSA(ETA, H), rounds=ROUNDS, seeds=1, theta_0=np.zeros(problem.dim), record=2)
    estimate = np.array(result["coefficients"])
    pooled, simulated = T @ problem.theta_star + t, T @ ran.theta.values[0, -1] + t
    say("")
    say(f"{'coefficient':<12}{'network':>14}{'pooled':>14}{'simulation':>14}")
    for name, *values in zip(result["names"], estimate, pooled, simulated, strict=True):
        say(f"{name:<12}" + "".join(f"{v:>14.8f}" for v in values))
    gap = float(np.abs(estimate - simulated).max())
    say(f"largest difference to the pooled solution {np.abs(estimate - pooled).max():.1e}, to the simulation {gap:.1e}")
    up, down = (sum(row[i] for row in result["traffic"].values()) for i in (3, 1))
    say(f"{result['averages']} rounds, {amount(up)} up, {amount(down)} down; {balance(result)}")
    return gap

"""Try it now: a coordinator and four sites as processes of this machine, with TLS and keys, over files made here.

One site is killed with -9 in the middle and brought back. At the end the network's estimate stands beside the pooled
solution, which needs all rows in one place, and beside the simulation of the same run.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..algorithms import SCAFFLSA
from ..checks import Floats
from ..engine import simulate
from ..errors import NetworkError
from ..files import reason
from ..fit import Regression
from ..problems import regression
from .coordinator.commands import Coordinator, outcome
from .coordinator.runs import RunFolder, amount, line
from .flower import require_flower
from .folder.config import Bundle
from .folder.setup import init
from .processes import free_port
from .protocol.run_settings import StartOptions
from .site.join import Member
from .site.orders import scale_from_json
from .site.site_data import open_data

SITES, ROWS, COLUMNS = 4, 500, ("age", "dose", "weight", "visits", "delay")
ETA, H, ROUNDS, SEED = 1e-4, 10_000, 12, 7
KILLED, AFTER = "site-3", 4  # which site is killed, and after which round
MAX_SECONDS = 600.0  # after which the demonstration gives up

Say = Callable[[str], None]


def demo(folder: Path | str | None = None, *, say: Say = print) -> float:
    """Run the demonstration in a folder, by default a temporary one; the largest difference to the simulation."""
    require_flower()
    where = Path(tempfile.mkdtemp(prefix="fedlsa-demo-")) if folder is None else Path(folder)
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NetworkError(f"cannot make the folder {where}: {reason(error)}") from error
    if any(where.iterdir()):
        raise NetworkError(f"folder must be a new or an empty one; {where} has files in it")
    try:
        return _demo(where.resolve(), say)
    finally:
        if folder is None:
            shutil.rmtree(where, ignore_errors=True)


def _demo(where: Path, say: Say) -> float:
    data = [_rows(c) for c in range(SITES)]
    network = init(where / "net", SITES, "127.0.0.1", free_port(), task=Regression("outcome"), inner_port=free_port())
    say(f"{SITES} sites with {ROWS} rows each, {len(COLUMNS)} columns; a network in {where / 'net'}")
    sites: dict[str, Member] = {}
    for site, (X, y) in zip(network.sites, data, strict=True):
        file, head = where / f"{site}.csv", ",".join((*COLUMNS, "outcome"))
        np.savetxt(file, np.column_stack([X, y]), delimiter=",", header=head, comments="", fmt="%.17g")
        bundle = Bundle.open(network.bundle(site), where / site)
        sites[site] = Member(bundle, open_data(file, None, bundle.task), say=say)
    say(f"starting the coordinator and {SITES} sites, each with processes of its own; TLS and a key per site")
    options = StartOptions(step_size=ETA, local_steps=H, rounds=ROUNDS, seed=SEED, deadline=60, name="demo")
    _watch(RunFolder.create(network, options), Coordinator(network.folder, say=say), sites, say)
    return _compare(outcome(network.folder), data, say)


def _rows(c: int) -> tuple[Floats, Floats]:
    """The rows of site c, whose columns and outcome follow laws of their own."""
    rng = np.random.default_rng([SEED, c])
    X = rng.normal(size=(ROWS, len(COLUMNS))) * (1 + 0.4 * c) + rng.normal(size=len(COLUMNS))
    theta = np.linspace(-1, 1, len(COLUMNS)) + 0.5 * rng.normal(size=len(COLUMNS))
    return X, X @ theta + 2.0 + c + rng.normal(size=ROWS)


def _watch(run: RunFolder, coordinator: Coordinator, sites: dict[str, Member], say: Say) -> None:
    """Look after the processes and show the run; kill a site in the middle, which is brought back."""
    alive, end = True, time.monotonic() + MAX_SECONDS
    try:
        for new in run.follow():
            if time.monotonic() > end:
                raise NetworkError(
                    f"the demonstration must end within {MAX_SECONDS:g} s; see logs in {run.folder.parents[1]}"
                )
            for owner in (coordinator, *sites.values()):
                owner.look()
            for event in new:
                say(line(event))
                if alive and event["event"] == "round" and event["averages"] >= AFTER:
                    alive = False
                    for child in (sites[KILLED].node, sites[KILLED].worker):
                        if child.pid is not None:
                            say(f"{KILLED} is killed with -9 (process {child.pid}) and brought back")
                            os.kill(child.pid, signal.SIGKILL)
    finally:
        for owner in (*sites.values(), coordinator):
            owner.end()


def _compare(result: dict[str, Any], data: list[tuple[Floats, Floats]], say: Say) -> float:
    """The table at the end: network, pooled solution, simulation."""
    scale = scale_from_json(result["scale"])
    T, t = scale.original()
    rows = [
        (np.column_stack([(X - scale.centre) / scale.spread, np.ones(len(X))]), (y - scale.y_centre) / scale.y_spread)
        for X, y in data
    ]
    problem = regression(rows)
    ran = simulate(problem, SCAFFLSA(ETA, H), rounds=ROUNDS, seeds=[SEED], theta_0=np.zeros(problem.dim), record=2)
    estimate = np.array(result["coefficients"])
    pooled, simulated = T @ problem.theta_star + t, T @ ran.theta.values[0, -1] + t
    say("")
    say(f"{'coefficient':<12}{'network':>14}{'pooled':>14}{'simulation':>14}")
    for name, *values in zip(result["names"], estimate, pooled, simulated, strict=True):
        say(f"{name:<12}" + "".join(f"{v:>14.8f}" for v in values))
    gap = float(np.abs(estimate - simulated).max())
    say(f"largest difference to the pooled solution {np.abs(estimate - pooled).max():.1e}, to the simulation {gap:.1e}")
    if result["rounds_opened"] != ROUNDS or any(row[2] != ROUNDS for row in result["traffic"].values()):
        say("a site missed a round while it was down; the simulation has all sites in all rounds")
    up, down = (sum(row[i] for row in result["traffic"].values()) for i in (3, 1))
    say(f"{result['averages']} rounds, {amount(up)} up, {amount(down)} down; |sum of xi| {result['sum_of_xi']:.1e}")
    return gap

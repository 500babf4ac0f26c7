"""From nothing to a result in nine commands, as docs/network.md shows them: by real processes in their own folders."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.network.processes import free_port

SITES = ("lyon", "oslo", "turin")
PATIENCE = 240  # seconds, on a busy machine


def fedlsa(words, where):
    """A command in a folder, without a terminal; what it prints."""
    command = [sys.executable, "-m", "fedlsa", "network", *words]
    ran = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.long
def test_three_sites_come_from_nothing_to_a_result_in_nine_commands(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    page, coordinator, commands = Path(__file__).parents[2] / "docs" / "network.md", tmp_path / "é coordinator", 0
    coordinator.mkdir()
    tables, joined = [], []
    init = f"init net --sites {','.join(SITES)} --host localhost --port {free_port()} --page-port {free_port()}"
    fedlsa([*init.split(), "--target", "outcome", "--no-standardise"], coordinator)
    words = ["approve", "net"]
    for c, name in enumerate(SITES):
        here = tmp_path / f"site {name}"
        here.mkdir()
        shutil.copy(coordinator / "net" / "bundles" / f"{name}.toml", here)  # as it would be sent
        rng = np.random.default_rng(c)
        X = rng.normal(size=(120, 2))
        tables.append((X, X @ [1.0, -2.0] + c + rng.normal(size=120)))
        rows = np.column_stack([X, tables[-1][1]])
        np.savetxt(here / "d.csv", rows, delimiter=",", header="a,b,outcome", comments="", fmt="%.17g")
        said = fedlsa(["enrol", f"{name}.toml"], here)
        (heard,) = re.findall(r"your fingerprint.*:  +(.+)", said)
        shutil.copy(here / name / f"{name}.pem", coordinator)  # and sent back
        words += [f"{name}.pem", "--fingerprint", heard]
    fedlsa(words, coordinator)
    assert not list(coordinator.rglob("mask.key"))  # no key of a site has left it
    run = "run net --step-size 0.05 --local-steps 64 --rounds 40 --local means --json --model model.json"
    try:
        for name in SITES:
            command = [sys.executable, "-m", "fedlsa", "network", "join", name, "--data", "d.csv", "--yes", "--no-page"]
            with (tmp_path / f"{name}.log").open("wb") as log:
                joined.append(subprocess.Popen(command, cwd=tmp_path / f"site {name}", stdout=log, stderr=log))
        result = json.loads(fedlsa(run.split(), coordinator))
    finally:
        for child in joined:
            os.kill(child.pid, signal.SIGTERM)
            child.wait(PATIENCE)
    design = np.column_stack([np.vstack([X for X, _ in tables]), np.ones(360)])
    pooled = np.linalg.lstsq(design, np.concatenate([y for _, y in tables]), rcond=None)[0]
    np.testing.assert_allclose(result["coefficients"], pooled, atol=1e-5)
    np.testing.assert_allclose(fl.Fit.load(coordinator / "model.json").theta, pooled, atol=1e-5)
    for name in SITES:  # who joins is told at once what happens
        assert f"{name}: reading d.csv" in (tmp_path / f"{name}.log").read_text()
    shown = page.read_text(encoding="utf-8").split("## Nine commands")[1].split("On one machine")[0]
    commands = re.findall(r"^fedlsa network (\w+)", shown, re.M)
    assert commands == ["init", "enrol", "approve", "join", "run"]
    assert 1 + len(SITES) + 1 + len(SITES) + 1 == 9

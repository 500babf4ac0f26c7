"""Where and with what the numbers were measured: commit, processor, cores, versions, date."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from llvmlite import binding

ROOT = Path(__file__).resolve().parents[1]


def _output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _commit() -> str:
    head = _output("git", "rev-parse", "--short", "HEAD")
    changed = _output("git", "status", "--porcelain", "--", "src", "benchmarks", "pyproject.toml")
    return (head or "unknown") + (" + changes" if head and changed else "")


def _processor() -> str:
    for line in _output("lscpu").splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _vectors() -> str:
    features = binding.get_host_cpu_features()
    for feature, name in (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("sve", "SVE"), ("neon", "128-bit NEON")):
        if features.get(feature):
            return name
    return "no wide vectors known"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def describe() -> dict[str, Any]:
    """Everything that a reader needs in order to judge a number."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "commit": _commit(),
        "processor": _processor(),
        "vectors": _vectors(),
        "cores": cores,
        "load": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version()}
        | {name: _version(name) for name in ("numpy", "numba", "jax")},
        "date": datetime.date.today().isoformat(),
    }


def sentence(machine: dict[str, Any]) -> str:
    """The description in one line, for below a table."""
    versions = ", ".join(f"{name} {v or 'not installed'}" for name, v in machine["versions"].items())
    cores = "1 core" if machine["cores"] == 1 else f"{machine['cores']} cores"
    return (
        f"Measured on {machine['date']} at commit {machine['commit']} on {machine['processor']} "
        f"({machine['vectors']}, {cores}; load {machine['load']} at the start), with {versions}."
    )

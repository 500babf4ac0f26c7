"""Compiled code on disk that a power cut or a full disk has damaged is compiled anew, and never runs."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config, njit

import fedlsa as fl
from fedlsa import kernel_cache

SOURCE = "def double(x):\n    return 2 * x\n"
SIMULATE = ["simulate", "--problem", "ring", "--rounds", "5", "--seeds", "2", "--json"]
DAMAGE = {
    "empty": lambda data: b"",
    "cut after 20 bytes": lambda data: data[:20],
    "cut in the middle": lambda data: data[: len(data) // 2],
    "junk": lambda data: bytes(range(256)) * 4,
    "zeros in the middle": lambda data: data[: len(data) // 4] + bytes(len(data) // 2) + data[-(len(data) // 4) :],
}


@pytest.fixture
def double(tmp_path, monkeypatch):
    """A function that makes the kernel `double`, as a new process would find it; its cache is in tmp_path."""
    (tmp_path / "doubling.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    function = importlib.import_module("doubling").double
    yield lambda: kernel_cache.kernel(error_model="numpy")(function)
    del sys.modules["doubling"]


def hits(kernel):
    return sum(kernel.stats.cache_hits.values())


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_of_the_cache_is_replaced_by_a_good_one(double, tmp_path, suffix, kind):
    assert double()(3) == 6
    (path,) = tmp_path.rglob(f"*{suffix}")
    path.write_bytes(DAMAGE[kind](path.read_bytes()))
    kernel = double()
    assert (kernel(3), hits(kernel)) == (6, 0)
    kernel = double()
    assert (kernel(3), hits(kernel)) == (6, 1)


def test_a_changed_byte_anywhere_is_noticed(double, tmp_path):
    """In the machine code, and in what names its functions and their types."""
    assert double()(3) == 6
    (path,) = tmp_path.rglob("*.nbc")
    for share in (0.1, 0.5, 0.9, 0.97):
        good = path.read_bytes()
        at = int(share * len(good))
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        kernel = double()
        assert (kernel(3), hits(kernel)) == (6, 0), share


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_files_that_cannot_be_read_or_replaced_cost_only_the_compiling(double, tmp_path, suffix):
    assert double()(3) == 6
    (path,) = tmp_path.rglob(f"*{suffix}")
    path.unlink()
    (path / "in the way").mkdir(parents=True)  # neither opened nor replaced, by root or by others
    for _ in range(2):
        kernel = double()
        assert (kernel(3), hits(kernel)) == (6, 0)


def test_without_a_folder_for_the_cache_kernels_are_compiled_and_not_kept(double, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setattr(config, "CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator", raising=False)  # there alone
    kernel = double()
    assert (kernel(3), hits(kernel)) == (6, 0)


def test_every_kernel_that_is_kept_on_disk_is_kept_by_this_cache():
    root = Path(fl.__file__).parent
    texts = {p: p.read_text() for p in root.rglob("*.py")}
    assert [str(p) for p, text in texts.items() if "cache=True" in text or '"cache": True' in text] == []


@pytest.mark.long
def test_a_command_whose_cached_kernels_are_all_damaged_runs_and_leaves_good_ones(tmp_path):
    command = [sys.executable, "-m", "fedlsa", *SIMULATE]
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run():
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        return done.stdout

    first = run()
    files = sorted((tmp_path / "cache").rglob("*.nb?"))
    assert len(files) >= 4
    for i, path in enumerate(files):
        path.write_bytes(path.read_bytes()[: 20 * (i % 2)])
    assert run() == first
    assert all(path.stat().st_size > 100 for path in files)


def test_a_cache_of_another_class_starts_afresh_too(double, tmp_path):
    """Kernels of numba-cuda keep their own class of cache; what is added to it is tried on a kernel of the CPU."""
    function = double().py_func
    for damage in (None, b"", None):
        for path in tmp_path.rglob("*.nb?") if damage is not None else ():
            path.write_bytes(damage)
        kernel = kernel_cache.cached_on_gpu(njit(function))
        assert kernel(3) == 6
    assert hits(kernel) == 1

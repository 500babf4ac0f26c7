"""A few tests that look at results of BLAS, run as an older processor runs them; `make test-portable` runs them all."""

import os
import subprocess
import sys

import portable
import pytest

FEW = ["tests/theory/test_bias.py", "tests/problems/test_stationary.py"]


@pytest.fixture(scope="module")
def old():
    settings = portable.kinds()["old"]
    del settings["NUMBA_CPU_NAME"]  # compiling for another processor takes minutes
    return os.environ | settings


def test_the_libraries_do_what_the_environment_asks_for(old):
    said, named = portable.seen(old), portable.CORES.get(portable.platform.machine())
    if named is None:
        pytest.skip("a processor of which no older kinds are known")
    assert "NumPy baseline" in said
    assert portable.seen(os.environ | {"OPENBLAS_CORETYPE": named[1]}).split(" with")[0] != said.split(" with")[0]
    if (os.cpu_count() or 1) > 1:
        assert "with 1 threads" not in portable.seen(os.environ | portable.kinds()["threads"])


def test_what_looks_at_results_of_blas_passes_on_an_older_processor(old):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *FEW]
    done = subprocess.run(command, env=old, cwd=portable.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]

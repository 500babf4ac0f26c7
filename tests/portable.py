"""The tests as other machines run them: older processors, other numbers of BLAS threads, all cores busy.

    python tests/portable.py [pytest's arguments]

OpenBLAS takes the kernels of the processor that OPENBLAS_CORETYPE names, NumPy leaves out the features that
NPY_DISABLE_CPU_FEATURES names (of those for which it has code of their own: others only warn), and Numba compiles for
NUMBA_CPU_NAME. Compiled code of each kind is kept apart.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
CORES = {  # an old kind and one in between, by the machine's name
    "x86_64": ("Prescott", "Haswell"),
    "aarch64": ("ARMV8", "NEOVERSEN1"),
    "arm64": ("ARMV8", "NEOVERSEN1"),
}
BUSY = "while True: sum(range(10**6))"


def dispatched() -> list[str]:
    """The features of processors for which this NumPy has code of their own, the oldest first."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]


def kinds() -> dict[str, dict[str, str]]:
    """Environments by name."""
    old, middle = CORES.get(platform.machine(), ("Generic", "Generic"))
    features = dispatched()
    generic = {"NUMBA_CPU_NAME": "generic", "OPENBLAS_NUM_THREADS": "1"}
    return {
        "old": {**generic, "OPENBLAS_CORETYPE": old, "NPY_DISABLE_CPU_FEATURES": " ".join(features)},
        "threads": {
            "OPENBLAS_CORETYPE": middle,
            "NPY_DISABLE_CPU_FEATURES": " ".join(features[1:]),
            "OPENBLAS_NUM_THREADS": "4",
        },
        "busy": {},
    }


def seen(env: dict[str, str]) -> str:
    """What the libraries say they run on, in an environment."""
    code = (
        "import numpy, scipy.linalg, threadpoolctl; from numpy._core._multiarray_umath import __cpu_features__ as f, "
        "__cpu_dispatch__ as d; print('BLAS', *{i.get('architecture') for i in threadpoolctl.threadpool_info()}, "
        "'with', *{str(i['num_threads']) for i in threadpoolctl.threadpool_info()}, 'threads; NumPy', "
        "*[n for n in d if f.get(n)] or ['baseline'])"
    )
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout


@contextmanager
def busy(wanted: bool):
    """Every core has something else to do, if that is wanted."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)] if wanted else []
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def main(arguments: list[str]) -> int:
    failed = []
    for name, settings in kinds().items():
        env = os.environ | settings | {"NUMBA_CACHE_DIR": str(ROOT / "build" / "portable" / name)}
        print(f"{name}: {seen(env).strip()}{', all cores busy' if name == 'busy' else ''}", flush=True)
        with busy(name == "busy"):
            code = subprocess.run([sys.executable, "-m", "pytest", *arguments], env=env, cwd=ROOT).returncode
        failed += [name] * (code != 0)
    print(f"failed on: {', '.join(failed)}" if failed else "passed on all")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

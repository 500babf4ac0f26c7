"""How functions are compiled, and what compiled code is made of, so that a cache on disk is never older than it.

Numba looks for a change only in the file of the function that it caches, not in the files of those that it calls. A
cached function that calls others across files therefore takes `sources=SOURCES` as its last parameter: a default value
is part of the signature, so code compiled from other sources is not found. Kernels of the engine, whose signature is
fixed, mention SOURCES in their bodies instead: what a function closes over is part of its key, too.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files

# every file with functions that cached functions of other files call
FILES = (
    "addresses.py",
    "compiled.py",
    "cpu_record.py",
    "lanes.py",
    "memory.py",
    "random.py",
    "vectors.py",
    "cuda/gpu_draws.py",
    "cuda/gpu_segments.py",
    "cuda/gpu_steps.py",
    "cuda/gpu_threads.py",
)


def digest(names: tuple[str, ...] = FILES) -> str:
    """The sha256 of the files of this package, shortened."""
    total = hashlib.sha256()
    for name in names:
        total.update(files(__package__).joinpath(name).read_bytes() + b"\0")
    return total.hexdigest()[:16]


SOURCES = digest()

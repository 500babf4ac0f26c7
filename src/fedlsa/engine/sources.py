"""What compiled code is made of, so that a cache on disk is never older than it.

Numba looks for a change only in the file of the function that it caches, not in the files of those that it calls. A
cached function that calls others across files therefore takes `sources=SOURCES` as its last parameter: a default value
is part of the signature, so code compiled from other sources is not found.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files

# every file with functions that cached functions of other files call
FILES = ("draws.py", "memory.py", "random.py", "steps.py", "vectors.py", "cuda/steps.py", "cuda/warp.py")


def digest(names: tuple[str, ...] = FILES) -> str:
    """The sha256 of the files of this package, shortened."""
    held = hashlib.sha256()
    for name in names:
        held.update(files(__package__).joinpath(name).read_bytes() + b"\0")
    return held.hexdigest()[:16]


SOURCES = digest()

"""States on disk: npz without pickle, with a checksum, written whole and synced, folder included, before we go on."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...errors import ResultFileError
from ...files import reason, replacing

Arrays = dict[str, np.ndarray[Any, Any]]
CHECKSUM = "checksum"


def save_state(path: str | Path, arrays: Arrays) -> None:
    """Write arrays to a file, atomically; when this returns, a power cut does not take them back."""
    target = checks.path("path", path)
    if CHECKSUM in arrays or any(a.dtype.hasobject for a in arrays.values()):
        raise ResultFileError(f"cannot write state {target}: names and dtypes must be plain")
    with replacing(target, "state") as part, open(part, "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # a control variate is the site's own
        np.savez(file, **{CHECKSUM: np.frombuffer(_digest(arrays), np.uint8)}, **arrays)  # type: ignore[arg-type]
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the file itself is safe
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def load_state(path: str | Path) -> Arrays | None:
    """The arrays of a file that `save_state` wrote; None if there is no file; a damaged one is a ResultFileError."""
    target = checks.path("path", path)
    try:
        with np.load(target, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        return None
    except Exception as error:  # the readers of zip and npy raise errors of many kinds on damaged bytes
        raise ResultFileError(f"the state {target} is damaged: {reason(error)}") from None
    found = arrays.pop(CHECKSUM, None)
    if found is None or found.tobytes() != _digest(arrays):
        raise ResultFileError(f"the state {target} is damaged: its checksum does not fit")
    return arrays


def _digest(arrays: Arrays) -> bytes:
    """Over names, dtypes, shapes and bytes."""
    digest = hashlib.blake2b(digest_size=32)
    for name in sorted(arrays):
        value = arrays[name]
        digest.update(f"{name} {value.dtype.str} {value.shape};".encode() + value.tobytes())
    return digest.digest()

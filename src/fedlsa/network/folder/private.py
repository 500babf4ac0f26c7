"""Files that only their owner may read: made so from their first byte, and refused when they have become open."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from ...errors import NetworkError
from ...files import reason

OTHERS = 0o077  # what a group and everybody else may do
CHECKED = os.name == "posix"  # elsewhere modes mean little


def create(path: Path, content: bytes, *, secret: bool) -> None:
    """Write a new file, to the disk; a secret has mode 600 before it holds anything. One that exists is an error."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise NetworkError(f"cannot write {path}: {reason(error)}") from error


def replace(path: Path, content: bytes, *, secret: bool) -> None:
    """Write a file in the place of one that may exist: whole or not at all."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        create(part, content, secret=secret)
        os.replace(part, path)
        sync(path.parent)
    except OSError as error:
        raise NetworkError(f"cannot write {path}: {reason(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def folder(path: Path) -> Path:
    """A new folder of mode 700; those above it are made if need be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except OSError as error:
        raise NetworkError(f"cannot make the folder {path}: {reason(error)}") from error
    return path


def install(part: Path, target: Path) -> None:
    """Give a finished folder its name; `target` is missing or empty."""
    try:
        if target.is_dir():
            target.rmdir()  # refuses when something has come into it meanwhile
        os.rename(part, target)
        sync(target.parent)
    except OSError as error:
        raise NetworkError(f"cannot make the folder {target}: {reason(error)}") from error


def sync(path: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check(path: Path, what: str) -> Path:
    """A secret that exists and that only its owner may read."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise NetworkError(f"cannot read {what} {path}: {reason(error)}") from None
    if CHECKED and mode & OTHERS:
        raise NetworkError(
            f"{what} {path} must be closed to others (mode 600); got mode {mode & 0o777:o}. "
            f"Close it (chmod 600), and make a new one if somebody may have read it"
        )
    return path

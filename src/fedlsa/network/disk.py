"""Files that survive a power cut, and files that only their owner may read.

All is written whole and synced, folder included, before we go on. A secret has mode 600 from its first byte, and is
refused when it has become open. What changes as runs go on is in a database (store.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..checks import show
from ..errors import NetworkError
from ..files import reason, sync_folder, write

SECRET = 0o600  # only its owner reads and writes it
OTHERS = 0o077  # what a group and everybody else may do
CHECKED = os.name == "posix"  # elsewhere modes mean little


@contextlib.contextmanager
def trying_to(do: str) -> Iterator[None]:
    """Within it, what the system refuses is a NetworkError that says what could not be done; do : in words."""
    try:
        yield
    except OSError as error:
        raise NetworkError(f"cannot {do}: {reason(error)}") from error


def create(path: Path, content: bytes, *, secret: bool) -> None:
    """Write a new file, to the disk; a secret has mode 600 before it holds anything. One that exists is an error."""
    with trying_to(f"write {path}"):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET if secret else 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def folder(path: Path) -> Path:
    """A new folder of mode 700; those above it are made if need be."""
    with trying_to(f"make the folder {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    return path


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill; when the block ends well it gets its name, `target`, which is missing or empty."""
    part = folder(target.with_name(f".{target.name}.{secrets.token_hex(4)}.part"))
    try:
        with trying_to(f"make the folder {target}"):
            yield part
            if target.is_dir():
                target.rmdir()  # refuses when something has come into it meanwhile
            os.rename(part, target)
            sync_folder(target.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def is_new(target: Path) -> bool:
    """Whether a folder of this name is missing or empty."""
    with trying_to(f"read the folder {target}"):
        return not target.exists() or (target.is_dir() and not any(target.iterdir()))


def check_secret(path: Path, what: str) -> Path:
    """A secret that exists and that only its owner may read."""
    with trying_to(f"read {what} {path}"):
        mode = path.stat().st_mode
    if CHECKED and mode & OTHERS:
        rule = f"{what} {path} must be closed to others (mode 600); got mode {mode & 0o777:o}"
        raise NetworkError(f"{rule}. Close it (chmod 600), and make a new one if somebody may have read it")
    return path


def write_json(path: Path, content: dict[str, Any], what: str) -> None:
    """Write a JSON object, whole or not at all; what : names the file in errors."""
    write(path, (json.dumps(content, indent=1) + "\n").encode(), what)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is no file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise NetworkError(f"cannot read {path}: {reason(error)}") from error
    if not isinstance(found, dict):
        raise NetworkError(f"{path} must hold a JSON object; got {show(found)}")
    return found

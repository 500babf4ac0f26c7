"""Files are written whole or not at all: to a temporary name beside the target, to the disk, and then renamed."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from .errors import ResultFileError


@contextlib.contextmanager
def replacing(target: Path, what: str) -> Iterator[Path]:
    """A name to write to; when the block ends well it takes the place of `target`, else nothing is left of it.

    what : names the file in the error that is raised where the disk refuses.
    """
    if not target.name:
        raise ResultFileError(f"cannot write {what} to {str(target)!r}: it names a folder")
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, target)
    except OSError as error:
        raise ResultFileError(f"cannot write {what} {target}: {reason(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def reason(error: BaseException) -> str:
    """What went wrong, on one line."""
    return getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__

"""Logs that stay small: `serve` and `join` write to a file that is turned over when it has grown."""

from __future__ import annotations

import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path

from ..errors import NetworkError
from ..files import reason
from .protocol.records import printable

LOG_BYTES = 5 * 2**20
OLD_LOGS = 4  # kept beside the one that is written
MAX_LINE = 2000  # characters of one entry; more is cut


class _OneLine(logging.Formatter):
    """What others wrote stays on its line: no control characters reach a terminal, and no line can be forged."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), MAX_LINE)


class _PrivateFile(RotatingFileHandler):
    """A rotated file of mode 600, whose disk may be full: logging must not stop a run."""

    def _open(self):  # type: ignore[no-untyped-def]
        return open(self.baseFilename, self.mode, encoding="utf-8", opener=lambda p, flags: os.open(p, flags, 0o600))

    def handleError(self, record: logging.LogRecord) -> None:
        """The line is lost."""


def rotating(path: Path) -> logging.Logger:
    """A logger that writes to this file, at most LOG_BYTES of it and OLD_LOGS older ones; the same one each time."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        logger = logging.getLogger(f"fedlsa.file.{str(path.resolve()).replace('.', '_')}")
        if not logger.handlers:
            handler = _PrivateFile(path, maxBytes=LOG_BYTES, backupCount=OLD_LOGS, encoding="utf-8")
            handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
            logger.propagate = False
    except OSError as error:
        raise NetworkError(f"cannot write the log {path}: {reason(error)}") from error
    return logger

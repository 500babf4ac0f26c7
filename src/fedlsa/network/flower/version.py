"""The Flower this room is written for: its inner interfaces change with every minor version."""

from __future__ import annotations

from ...errors import MissingExtraError, NetworkError

WANTED = "1.41"


def require_flower() -> None:
    """Raise unless Flower 1.41 is installed."""
    try:
        from flwr import __version__ as found
    except ImportError:
        raise MissingExtraError("a network needs flwr: pip install 'fedlsa[flower]'") from None
    if ".".join(str(found).split(".")[:2]) != WANTED:
        raise NetworkError(f"flwr must be version {WANTED}, for which this was written and tested; got {found}")

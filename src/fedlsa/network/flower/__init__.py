"""The adapter to Flower: its processes, its tasks, its messages. All that depends on Flower's inner shape is here."""

from __future__ import annotations

from ...errors import MissingExtraError, NetworkError

WRITTEN_FOR = "1.41"  # Flower's inner interfaces change with every minor version


def require_flower() -> None:
    """Raise unless Flower 1.41 is installed."""
    try:
        from flwr import __version__ as installed
    except ImportError:
        raise MissingExtraError("a network needs flwr: pip install 'fedlsa[flower]'") from None
    if ".".join(str(installed).split(".")[:2]) != WRITTEN_FOR:
        raise NetworkError(f"flwr must be version {WRITTEN_FOR}, for which this was written; got {installed}")

"""The version that is installed, and the extras that are not."""

from __future__ import annotations

from importlib.metadata import requires, version

__version__ = version("fedlsa")


def extra_of(module: str | None) -> str | None:
    """The smallest extra that brings a module, by its name; None if none does."""
    extras: dict[str, list[str]] = {}
    for requirement in requires("fedlsa") or ():
        package, _, condition = requirement.partition(";")
        extras.setdefault(condition.rpartition("==")[2].strip(" '\""), []).append(package)
    name = (module or "?").partition(".")[0]  # grpc is of grpcio
    found = [e for e, packages in extras.items() if e and any(p.startswith(name) for p in packages)]
    return min(found, key=lambda e: len(extras[e]), default=None)

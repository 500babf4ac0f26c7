"""What a method is: its step size, its round lengths, its correction gain. A method is data plus a docstring."""

from .base import Algorithm, FixedRounds, PowerStep
from .fedlsa import FedLSA
from .scafflsa import SCAFFLSA
from .scaffnew import Scaffnew

METHODS: dict[str, type[Algorithm]] = {kind.name: kind for kind in (FedLSA, SCAFFLSA, Scaffnew)}  # the one registry


def supporting(what: str) -> dict[str, type[Algorithm]]:
    """The methods, by name, that support what a room needs: "theory", "plan", "fit" or "network"."""
    return {name: kind for name, kind in METHODS.items() if what in kind.supports}


__all__ = ["METHODS", "SCAFFLSA", "Algorithm", "FedLSA", "FixedRounds", "PowerStep", "Scaffnew", "supporting"]


def __dir__() -> list[str]:
    return __all__

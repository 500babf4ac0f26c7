"""What a method is: its step size, its round lengths, its correction gain. A method is data plus a docstring."""

from .base import Algorithm, FixedRounds, PowerStep
from .fedlsa import FedLSA
from .scafflsa import SCAFFLSA
from .scaffnew import Scaffnew

METHODS: dict[str, type[Algorithm]] = {"fedlsa": FedLSA, "scafflsa": SCAFFLSA, "scaffnew": Scaffnew}

__all__ = ["METHODS", "SCAFFLSA", "Algorithm", "FedLSA", "FixedRounds", "PowerStep", "Scaffnew"]

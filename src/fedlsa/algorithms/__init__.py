"""What a method is: its step size, its round lengths, its correction gain. A method is data plus a docstring."""

from dataclasses import MISSING, fields
from inspect import isabstract, isclass
from typing import Any

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError
from .adam import Adam
from .anderson import Anderson
from .buffered import Buffered
from .compressed import Compressed
from .delayed import Delayed
from .dropouts import Dropouts
from .exchanges import Exchange
from .fedlin import FedLin
from .fednova import FedNova
from .fedprox import FedProx
from .gradient_tracking import GradientTracking
from .methods import SCAFFLSA, Algorithm, ExchangeMethod, FedLSA, FixedRounds, PowerLength, PowerStep, Scaffnew
from .momentum import Momentum
from .personal import Personal
from .scaffold import Scaffold
from .sending import Noise, RandK, Rounding, Sending, Sign, TopK
from .stages import Geometric, Linear
from .svrg import SVRG
from .unequal_work import UnequalWork

__all__ = [
    "SCAFFLSA",
    "SVRG",
    "Adam",
    "Algorithm",
    "Anderson",
    "Buffered",
    "Compressed",
    "Delayed",
    "Dropouts",
    "Exchange",
    "ExchangeMethod",
    "FedLSA",
    "FedLin",
    "FedNova",
    "FedProx",
    "FixedRounds",
    "Geometric",
    "GradientTracking",
    "Linear",
    "Momentum",
    "Noise",
    "Personal",
    "PowerLength",
    "PowerStep",
    "RandK",
    "Rounding",
    "Scaffnew",
    "Scaffold",
    "Sending",
    "Sign",
    "TopK",
    "UnequalWork",
]
METHODS: dict[str, type[Algorithm]] = {kind.name: kind for kind in (FedLSA, SCAFFLSA, Scaffnew)}  # of the paper
FAMILY: dict[str, type[Algorithm]] = METHODS | {  # those that commands do not offer, but files know
    kind.name: kind
    for kind in (
        UnequalWork,
        Dropouts,
        FedNova,
        Delayed,
        Buffered,
        Compressed,
        Momentum,
        Adam,
        Anderson,
        Personal,
        SVRG,
        FedProx,
        FedLin,
        Scaffold,
        GradientTracking,
    )
}


def supporting(what: str) -> dict[str, type[Algorithm]]:
    """The methods, by name, that support what a room needs: "theory", "plan", "fit", "network" or "paper"."""
    return {name: kind for name, kind in METHODS.items() if what in kind.supports}


def method_class(argument: str, given: Any, what: str = "") -> type[Algorithm]:
    """The class of a method that is named by an instance, by its class or by its name, in letters of any size.

    argument : what errors call it; what : that the method must support, as in `supporting`; nothing by default
    """
    names = supporting(what) if what else METHODS
    if isinstance(given, str):
        return METHODS[checks.choice(argument, given.lower() if given.lower() in names else given, names)]
    kind = given if isclass(given) else type(given)
    if not issubclass(kind, Algorithm) or isabstract(kind):
        rule = "a method such as fl.SCAFFLSA(...), its class, or its name"
        raise ArgumentTypeError(f"{argument} must be {rule}; got {checks.show(given)}")
    if what and what not in kind.supports:
        known = ", ".join(each.__name__ for each in names.values())
        raise ArgumentError(f"{argument} must be one of {known}; got {kind.__name__}")
    return kind


def method(argument: str, given: Any, what: str = "") -> Algorithm:
    """The same as an instance: a class or a name is enough where every setting has a default value."""
    kind = method_class(argument, given, what)
    if isinstance(given, Algorithm):
        return given
    missing = [f.name for f in fields(kind) if f.init and f.default is MISSING and f.default_factory is MISSING]
    if missing:
        example = f"fl.{kind.__name__}" if METHODS.get(kind.name) is kind else kind.__name__
        rule = f"{argument} must have its settings, {example}({', '.join(f'{name}=...' for name in missing)})"
        raise ArgumentTypeError(f"{rule}; got {checks.show(given)}")
    return kind()  # type: ignore[call-arg]

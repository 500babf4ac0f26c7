"""What a method is: its step size, its round lengths, its correction gain. A method is data plus a docstring."""

from dataclasses import MISSING, fields
from inspect import isabstract, isclass
from typing import Any

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError
from .adam import Adam as Adam
from .anderson import Anderson as Anderson
from .buffered import Buffered as Buffered
from .compressed import Compressed as Compressed
from .delayed import Delayed as Delayed
from .dropouts import Dropouts as Dropouts
from .exchanges import Exchange as Exchange
from .fedlin import FedLin as FedLin
from .fednova import FedNova as FedNova
from .fedprox import FedProx as FedProx
from .gradient_tracking import GradientTracking as GradientTracking
from .methods import SCAFFLSA as SCAFFLSA
from .methods import Algorithm as Algorithm
from .methods import ExchangeMethod as ExchangeMethod
from .methods import FedLSA as FedLSA
from .methods import FixedRounds as FixedRounds
from .methods import PowerLength as PowerLength
from .methods import PowerStep as PowerStep
from .methods import Scaffnew as Scaffnew
from .momentum import Momentum as Momentum
from .personal import Personal as Personal
from .saga import SAGA as SAGA
from .scaffold import Scaffold as Scaffold
from .sending import Noise as Noise
from .sending import RandK as RandK
from .sending import Rounding as Rounding
from .sending import Sending as Sending
from .sending import Sign as Sign
from .sending import TopK as TopK
from .stages import Geometric as Geometric
from .stages import Linear as Linear
from .svrg import SVRG as SVRG
from .unequal_work import UnequalWork as UnequalWork

__all__ = sorted(n for n, it in vars().items() if isclass(it) and it.__module__.startswith(f"{__name__}."))
METHODS: dict[str, type[Algorithm]] = {kind.name: kind for kind in (FedLSA, SCAFFLSA, Scaffnew)}  # of the paper
FAMILY: dict[str, type[Algorithm]] = METHODS | {  # all that are imported here: commands offer METHODS, files know all
    kind.name: kind
    for kind in list(vars().values())
    if isclass(kind) and issubclass(kind, Algorithm) and kind not in (Algorithm, FixedRounds, ExchangeMethod)
}


def supporting(what: str) -> dict[str, type[Algorithm]]:
    """The methods, by name, that support what a room needs: "theory", "plan", "fit", "network" or "paper"."""
    return {name: kind for name, kind in METHODS.items() if what in kind.supports}


def method_class(argument: str, given: Any, what: str = "") -> type[Algorithm]:
    """The class of a method that is named by an instance, by its class or by its name, in letters of any size.

    argument : what errors call it; what : that the method must support, as in `supporting`; nothing by default
    """
    if isinstance(given, str):
        names = {name: kind for name, kind in FAMILY.items() if not what or what in kind.supports}
        return FAMILY[checks.choice(argument, given.lower() if given.lower() in names else given, names)]
    kind = given if isclass(given) else type(given)
    if not issubclass(kind, Algorithm) or isabstract(kind):
        rule = "a method such as fl.SCAFFLSA(...), its class, or its name"
        raise ArgumentTypeError(f"{argument} must be {rule}; got {checks.show(given)}")
    if what and what not in kind.supports:
        known = ", ".join(each.__name__ for each in FAMILY.values() if what in each.supports)
        own = f", or a method of your own whose `supports` has {what!r}"
        paper = ", of which alone theorems and moments along trajectories are known"
        more = {"theory": own, "plan": own, "paper": paper}.get(what, "")
        raise ArgumentError(f"{argument} must be one of {known}{more}; got {kind.__name__}")
    return kind


def method(argument: str, given: Any, what: str = "") -> Algorithm:
    """The same as an instance: a class or a name is enough where every setting has a default value."""
    kind = method_class(argument, given, what)
    if isinstance(given, Algorithm):
        return given
    missing = [f.name for f in fields(kind) if f.init and f.default is MISSING and f.default_factory is MISSING]
    if missing:
        example = f"fl.{kind.__name__}" if FAMILY.get(kind.name) is kind else kind.__name__
        rule = f"{argument} must have its settings, {example}({', '.join(f'{name}=...' for name in missing)})"
        raise ArgumentTypeError(f"{rule}; got {checks.show(given)}")
    return kind()

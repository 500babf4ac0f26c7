"""Everything that fedlsa raises or warns about, under one base class each.

>>> try:
...     fl.FedLSA(0.1, local_steps=0)
... except fl.errors.ArgumentError as error:
...     print(error)
local_steps must be a positive integer; got 0
"""

from __future__ import annotations

import inspect
import warnings
from contextvars import ContextVar

OURS = (__name__.partition(".")[0], "contextlib", "functools", "numpy")  # and of the decorators of our functions
given_warnings: ContextVar[list[str] | None] = ContextVar("given_warnings", default=None)  # kept where there is a list


class FedLSAError(Exception):
    """Base class of every error that fedlsa raises on purpose."""


class ArgumentError(FedLSAError, ValueError):
    """An argument has the right type but breaks a rule; the message names argument, rule and value."""


class ArgumentTypeError(FedLSAError, TypeError):
    """An argument has the wrong type; the message names argument, rule and value."""


class UnknownNameError(ArgumentError):
    """A name that must come from a fixed list does not; the message offers the nearest right one."""


class SingularSystemError(FedLSAError, ArithmeticError):
    """The averaged system A_bar theta = b_bar has no unique solution."""


class StationaryLawError(FedLSAError, ArithmeticError):
    """An agent's chain has no unique stationary law; the message names the agent."""


class PrecisionError(FedLSAError, ArithmeticError):
    """No way to compute a number reaches the accuracy that is promised for it; the message says how near they came."""


class ResultFileError(FedLSAError, OSError):
    """A result file is missing, damaged, or not one of ours."""


class SiteDataError(FedLSAError, ValueError):
    """A site's file or arrays cannot be used; the message names the file, the column and the rule."""


class MissingExtraError(FedLSAError, ImportError):
    """A feature needs an optional extra that is not installed; the message says which."""


class DivergenceError(FedLSAError, ArithmeticError):
    """A fit's run left the range of floating-point numbers; the message says when."""


class ClusterError(FedLSAError, RuntimeError):
    """A cluster cannot be joined, or lost work for good."""


class NetworkError(FedLSAError, RuntimeError):
    """A network's folder, bundle or process cannot be used; the message says why and what to do."""


class MessageError(FedLSAError, ValueError):
    """A message of the network is not what it claims to be; the message of the error names the field and the rule."""


class PolicyError(FedLSAError, RuntimeError):
    """A site's policy does not allow what an order asks for; the message names the entry."""


class FedLSAWarning(UserWarning):
    """Base class of every warning that fedlsa gives."""


class DivergenceWarning(FedLSAWarning):
    """A run left the range of floating-point numbers; its later rounds are NaN."""


class TheoryWarning(FedLSAWarning):
    """A setting lies outside the conditions of theorems, or of exact moments; the run goes on."""


def warn(text: str, kind: type[FedLSAWarning] = FedLSAWarning) -> None:
    """Give a warning at the first line that is not the library's own: that of the call."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in OURS:
        level, frame = level + 1, frame.f_back
    given = given_warnings.get()
    if given is not None and kind is FedLSAWarning:  # of runs that diverge and theorems, callers have their own say
        given.append(text)
    warnings.warn(text, kind, stacklevel=level)


__all__ = sorted(n for n, kind in vars().items() if isinstance(kind, type) and issubclass(kind, (Exception, Warning)))


def __dir__() -> list[str]:
    return __all__

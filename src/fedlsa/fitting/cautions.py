"""Warnings of a fit: given at the line that called the library, and kept, for the fit's summary."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ..errors import FedLSAWarning

P = ParamSpec("P")
T = TypeVar("T")
PACKAGE = __name__.partition(".")[0]
_given: ContextVar[list[str] | None] = ContextVar("given", default=None)


def warn(text: str) -> None:
    """Give a FedLSAWarning, at the first line that is not the library's own."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == PACKAGE:
        level, frame = level + 1, frame.f_back
    given = _given.get()
    if given is not None:
        given.append(text)
    warnings.warn(text, FedLSAWarning, stacklevel=level)


def keeps_warnings(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator: the warnings that a call gives are the `notes` of what it returns."""

    @wraps(function)
    def keeping(*arguments: P.args, **options: P.kwargs) -> T:
        given: list[str] = []
        token = _given.set(given)
        try:
            out: Any = function(*arguments, **options)
        finally:
            _given.reset(token)
        kept: T = replace(out, notes=tuple(given))
        return kept

    return keeping

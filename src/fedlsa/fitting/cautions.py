"""Warnings of a fit are kept for its summary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ..errors import given_warnings

P = ParamSpec("P")
T = TypeVar("T")


def keeps_warnings(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator: the warnings that a call gives are the `notes` of what it returns."""

    @wraps(function)
    def keeping(*arguments: P.args, **options: P.kwargs) -> T:
        given: list[str] = []
        token = given_warnings.set(given)
        try:
            out: Any = function(*arguments, **options)
        finally:
            given_warnings.reset(token)
        kept: T = replace(out, notes=tuple(given))
        return kept

    return keeping

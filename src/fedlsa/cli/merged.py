"""Options that several commands share, defined once as the arguments of a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def takes(argument: str, maker: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that puts the options of `maker` in the place of the command's `argument`.

    The command then gets a function without arguments that calls `maker` with what was given.
    """
    made = inspect.signature(maker, eval_str=True).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters

        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            chosen = {name: given.pop(name) for name in made}
            command(**{argument: functools.partial(maker, **chosen)}, **given)

        merged = [p for name, q in own.items() for p in (made.values() if name == argument else (q,))]
        merged = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in merged]
        with_options.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
        with_options.__annotations__ = {p.name: p.annotation for p in merged}
        return with_options

    return decorate

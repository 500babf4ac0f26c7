"""Checks of the arguments that several drawing functions take, once, by the argument's name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError
from ..results.recipe import require_result
from ..results.sweeps import separate

if TYPE_CHECKING:
    import xarray as xr

SCALES = ("linear", "log")


def _check_band(value: Any) -> None:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) or len(value) != 2:
        raise ArgumentTypeError(f"band must be two quantiles such as (0.1, 0.9); got {checks.show(value)}")
    low, high = (checks.real("band", q, at_least=0, at_most=1) for q in value)
    if low >= high:
        raise ArgumentError(f"band must be two increasing quantiles; got ({low:g}, {high:g})")


CHECKS: dict[str, Callable[[Any], Any]] = {
    "title": lambda value: checks.instance("title", value, str | None, "text or None"),
    "legend": lambda value: checks.boolean("legend", value),
    "command": lambda value: checks.instance("command", value, str | None, "text or None"),
    "scale": lambda value: checks.choice("scale", value, SCALES),
    "level": lambda value: checks.real("level", value, above=0, below=1),
    "band": _check_band,
}


def check_options(**given: Any) -> None:
    """Refuse a title, legend, command, scale, level or band that breaks its rule."""
    for name, value in given.items():
        CHECKS[name](value)


def checked_results(results: Any, name: str = "results") -> list[xr.Dataset]:
    """One result of simulate or several, as a list; of a sweep, its runs."""
    import xarray as xr

    runs = separate(checks.instances(name, results, xr.Dataset, "a result of simulate"))
    for r in runs:
        require_result(name, r)
    return runs


def checked_levels(bias: Any, count: int, of: str = "result") -> list[float]:
    """The levels of dashed lines, one for each result or curve; NaN for none."""
    if bias is None:
        return [math.nan] * count
    rule = f"one number per {of}, {count}"
    levels = checks.entries("bias", bias, rule) if checks.is_sequence(bias) else [bias]
    if len(levels) != count:
        raise ArgumentError(f"bias must hold {rule}; got {len(levels)}")
    unknown = [isinstance(b, (float, np.floating)) and math.isnan(b) for b in levels]
    return [math.nan if nan else checks.real("bias", b, at_least=0) for b, nan in zip(levels, unknown, strict=True)]

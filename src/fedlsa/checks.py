"""Checks at the door: each returns the clean value or raises an error that names argument, rule and value."""

from __future__ import annotations

import difflib
import math
import operator
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, ArgumentTypeError, UnknownNameError

Floats = NDArray[np.float64]


def show(value: object) -> str:
    """The value as an error message shows it: short, on one line."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def integer(name: str, value: Any, *, at_least: int = 0, at_most: int | None = None) -> int:
    """An integer in a range; booleans and floats are not integers."""
    rule = f"an integer of at least {at_least}"
    if at_least == 1:
        rule = "a positive integer"
    elif at_least == 0:
        rule = "a non-negative integer"
    if at_most is not None:
        rule += f" and at most {at_most}"
    if isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(f"{name} must be {rule}; got {show(value)}")
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} must be {rule}; got {show(value)}") from None
    if number < at_least or (at_most is not None and number > at_most):
        raise ArgumentError(f"{name} must be {rule}; got {number}")
    return number


def real(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> float:
    """A finite real number in a range."""
    bounds = [
        f"{word} {bound:g}"
        for word, bound in (("above", above), ("at least", at_least), ("at most", at_most), ("below", below))
        if bound is not None
    ]
    rule = "a finite number" + (" " + " and ".join(bounds) if bounds else "")
    if isinstance(value, (bool, np.bool_, str, bytes, complex)):
        raise ArgumentTypeError(f"{name} must be {rule}; got {show(value)}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name} must be {rule}; got {show(value)}") from None
    except OverflowError:  # an integer beyond every float
        raise ArgumentError(f"{name} must be {rule}; got {show(value)}") from None
    good = (
        math.isfinite(number)
        and (above is None or number > above)
        and (at_least is None or number >= at_least)
        and (at_most is None or number <= at_most)
        and (below is None or number < below)
    )
    if not good:
        raise ArgumentError(f"{name} must be {rule}; got {number:g}")
    return number


def boolean(name: str, value: Any) -> bool:
    """True or False, nothing that merely behaves so."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(f"{name} must be True or False; got {show(value)}")
    return bool(value)


def is_sequence(value: object) -> bool:
    """Whether a value can be gone through entry by entry: text cannot, nor an array without axes."""
    return not isinstance(value, (str, bytes)) and bool(np.iterable(value))


def path(name: str, value: Any) -> Path:
    """A path to a file, as text or as a path object."""
    if not isinstance(value, (str, os.PathLike)) or "\0" in str(value):
        raise ArgumentTypeError(f"{name} must be a path; got {show(value)}")
    return Path(value)


def array(name: str, value: ArrayLike, shape: Sequence[int | str | None]) -> Floats:
    """A finite float64 array of a given shape; letters in `shape` stand for free lengths."""
    wanted = "(" + ", ".join("?" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
    rule = f"{name} must be an array of finite numbers of shape {wanted}"
    try:
        out = np.asarray(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{rule}; got {show(value)}") from None
    if out.dtype.kind not in "fiub":
        raise ArgumentTypeError(f"{rule}; got {show(value)}")
    out = np.ascontiguousarray(out, np.float64) if out.ndim else out.astype(np.float64)
    sizes: dict[str, int] = {}
    fits = out.ndim == len(shape)
    for have, want in zip(out.shape, shape, strict=False):
        if isinstance(want, str):
            fits = fits and sizes.setdefault(want, have) == have
        elif want is not None:
            fits = fits and have == want
    if not fits:
        raise ArgumentError(f"{rule}; got shape {out.shape}")
    finite = np.isfinite(out)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ArgumentError(f"{rule}; got {out[where]} at {list(where)}")
    return out


def flags(name: str, value: ArrayLike, shape: Sequence[int | str | None]) -> NDArray[np.bool_]:
    """An array of booleans, or of the numbers 0 and 1, of a given shape."""
    out = array(name, value, shape)
    bad = (out != 0) & (out != 1)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ArgumentError(f"{name} must hold booleans (or 0 and 1); got {out[where]:g} at {list(where)}")
    return out.astype(np.bool_)


def probabilities(name: str, value: ArrayLike, shape: Sequence[int | str | None]) -> Floats:
    """An array whose last axis holds probabilities: non-negative, summing to one up to rounding; then normalised.

    Sums may be off by 1e-8, and by 1e-5 where the array was given in single or half precision.
    """
    out = array(name, value, shape)
    given = np.asarray(value).dtype
    tolerance = 1e-5 if given.kind == "f" and given.itemsize < 8 else 1e-8
    if out.size == 0:
        raise ArgumentError(f"{name} must hold at least one probability; got shape {out.shape}")
    if (out < 0).any():
        where = tuple(int(i) for i in np.argwhere(out < 0)[0])
        raise ArgumentError(f"{name} must hold probabilities of at least 0; got {out[where]:g} at {list(where)}")
    total = out.sum(axis=-1)
    bad = np.abs(total - 1) > tolerance
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        value_there = float(total[at]) if at else float(total)
        place = f" at {list(at)}" if at else ""
        raise ArgumentError(f"{name} must sum to one over its last axis; got a sum of {value_there:.10g}{place}")
    return np.asarray(out / total[..., None], np.float64)


def choice(name: str, value: Any, options: Iterable[str]) -> str:
    """One of a fixed list of names; a misspelling is answered with the nearest right one."""
    names = list(options)
    if isinstance(value, str) and value in names:
        return value
    rule = ("one of " if len(names) > 1 else "") + ", ".join(repr(n) for n in names)
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} must be {rule}; got {show(value)}")
    close = difflib.get_close_matches(value.lower(), [n.lower() for n in names], n=1, cutoff=0.5)
    right = next((n for n in names if close and n.lower() == close[0]), None)
    hint = f"; did you mean {right!r}?" if right else ""
    raise UnknownNameError(f"{name} must be {rule}; got {value!r}{hint}")


def instance(name: str, value: Any, kind: type | tuple[type, ...], article: str) -> None:
    """A value of a given class, e.g. instance("problem", p, Problem, "a fedlsa problem")."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(f"{name} must be {article}; got {show(value)}")

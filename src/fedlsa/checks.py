"""Checks of arguments: each returns the clean value or raises an error that names argument, rule and value."""

from __future__ import annotations

import contextlib
import difflib
import math
import operator
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, ArgumentTypeError, UnknownNameError

Floats = NDArray[np.float64]
Kind = TypeVar("Kind")
LARGEST_INTEGER = 2**63 - 1  # of an index, and of arrays of integers
LARGEST_REAL = 1e150  # formulas square what they are given, and divide by it
WITHIN = {"above": operator.gt, "at least": operator.ge, "at most": operator.le, "below": operator.lt}
MOST_ENTRIES = 2**22  # of a sequence that Python goes through one by one: more belong into an array


def show(value: object) -> str:
    """The value as an error message shows it: short, on one line."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(shape := getattr(value, "shape", None), tuple) and shape:  # a table, whose text has many lines
        return f"a {type(value).__name__} of shape {shape}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an integer of thousands of digits, or an object that has no text
        text = f"{'a huge ' if isinstance(value, int) else ''}{type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def integer(name: str, value: Any, *, at_least: int = 0, at_most: int | None = None) -> int:
    """An integer in a range; booleans and floats are not integers."""
    kinds = {0: "a non-negative integer", 1: "a positive integer"}
    rule = kinds.get(at_least, f"an integer of at least {at_least}")
    if at_most is not None:
        rule += f" and at most {at_most}"
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise ArgumentTypeError(f"{name} must be {rule}; got {show(value)}")
    if at_most is None and number > LARGEST_INTEGER:
        raise ArgumentError(f"{name} must be {rule} below 2**63; got {show(number)}")
    if number < at_least or (at_most is not None and number > at_most):
        raise ArgumentError(f"{name} must be {rule}; got {show(number)}")
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
    bounds = {"above": above, "at least": at_least, "at most": at_most, "below": below}
    given = {word: bound for word, bound in bounds.items() if bound is not None}
    rule = f"a finite number {' and '.join(f'{word} {bound:g}' for word, bound in given.items())}".rstrip()
    if isinstance(value, (bool, np.bool_, str, bytes, complex)):
        raise ArgumentTypeError(f"{name} must be {rule}; got {show(value)}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name} must be {rule}; got {show(value)}") from None
    except OverflowError:  # an integer beyond every float
        raise ArgumentError(f"{name} must be {rule}; got {show(value)}") from None
    if math.isfinite(number) and (abs(number) > LARGEST_REAL or (above == 0 and 0 < number < 1 / LARGEST_REAL)):
        raise ArgumentError(f"{name} must be {rule} whose square neither overflows nor vanishes; got {number:g}")
    if not (math.isfinite(number) and all(WITHIN[word](number, bound) for word, bound in given.items())):
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


def entries(name: str, value: Any, rule: str) -> list[Any]:
    """The entries of any iterable but text, as a list; one that is too long, or that never ends, is refused early."""
    if not is_sequence(value):
        raise ArgumentTypeError(f"{name} must be {rule}; got {show(value)}")
    try:
        endless = hasattr(value, "__len__") and len(value) > MOST_ENTRIES
    except OverflowError:  # a range beyond every index
        endless = True
    out = [] if endless else list(islice(value, MOST_ENTRIES + 1))
    if endless or len(out) > MOST_ENTRIES:
        raise ArgumentError(f"{name} must be {rule}, with at most {MOST_ENTRIES:,} entries; got more, {show(value)}")
    return out


def instances(name: str, value: Any, kind: type[Kind], article: str) -> list[Kind]:
    """One value of a class, or a sequence of them that is not empty, as a list."""
    out = [value] if isinstance(value, kind) else entries(name, value, f"{article}, or a sequence of them")
    if not out:
        raise ArgumentError(f"{name} must be {article}, or a sequence of them; got none")
    return [instance(name, entry, kind, article) for entry in out]


def callback(name: str, value: Any) -> None:
    """A function that is called as work gets done, or None."""
    if value is not None and not callable(value):
        raise ArgumentTypeError(f"{name} must be a function or None; got {show(value)}")


def memory(name: str, count: int, each: int, what: str) -> None:
    """Refuse a size before anything is allocated: `count` of them, with `each` bytes for `what`, must fit into memory.

    That is half of what this process may have: arrays are held twice now and then.
    """
    if count * each <= 2**16:  # which fits anywhere: arrays of a few numbers are checked often
        return
    room = memory_limit() // 2
    if count * each > room:
        rule = f"{name} must be at most {room // each:,} to fit into {room / 2**30:.3g} GiB of memory"
        raise ArgumentError(f"{rule} ({show(each)} bytes each, for {what}); got {show(count)}")


def memory_limit() -> int:
    """Bytes that this process may have: those of the machine, its container or its own limit; FEDLSA_MEMORY wins."""
    given = os.environ.get("FEDLSA_MEMORY", "")
    if given.isdigit():
        return int(given)
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")] if hasattr(os, "sysconf") else [2**34]
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    with contextlib.suppress(ImportError):  # Windows
        import resource

        process = resource.getrlimit(resource.RLIMIT_AS)[0]
        limits += [process] if process != resource.RLIM_INFINITY else []
    return min(limits)


def path(name: str, value: Any, suffixes: Iterable[str] = ()) -> Path:
    """A path to a file, as text or as a path object; suffixes : with which it may end."""
    if not isinstance(value, (str, os.PathLike)) or "\0" in str(value):
        raise ArgumentTypeError(f"{name} must be a path; got {show(value)}")
    out = Path(value)
    if suffixes:
        choice(f"the suffix of {str(out)!r}", out.suffix.lower(), suffixes)
    return out


def as_array(name: str, value: Any, rule: str = "an array of numbers") -> NDArray[Any]:
    """What NumPy makes of a value, numbers or not; what it cannot take, or what would not fit, is refused."""
    if isinstance(value, range):  # which takes no memory yet
        memory(f"the length of {name}", max(0, (value.stop - value.start) // value.step), 8, "its entries")
    try:
        return np.asarray(value)
    except Exception:  # whatever the object makes of it
        raise ArgumentTypeError(f"{name} must be {rule}; got {show(value)}") from None


def array(name: str, value: ArrayLike, shape: Sequence[int | str | None]) -> Floats:
    """A finite float64 array of a given shape; letters in `shape` stand for free lengths."""
    wanted = "(" + ", ".join("?" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
    rule = f"{name} must be an array of finite numbers of shape {wanted}"
    if np.ma.is_masked(value):
        raise ArgumentError(f"{rule}; got masked entries")
    out = as_array(name, value, f"an array of finite numbers of shape {wanted}")
    if out.dtype.kind not in "fiub":
        raise ArgumentTypeError(f"{rule}; got {show(value)}")
    sizes: dict[str, int] = {}
    fits = out.ndim == len(shape)
    for have, want in zip(out.shape, shape, strict=False):
        if isinstance(want, str):
            fits = fits and sizes.setdefault(want, have) == have
        elif want is not None:
            fits = fits and have == want
    if not fits:
        raise ArgumentError(f"{rule}; got shape {out.shape}")
    memory(f"the length of {name}", out.shape[0] if out.ndim else 1, 8 * out[:1].size if out.ndim else 8, "its entries")
    out = np.asarray(out, np.float64, order="C")
    refuse(~np.isfinite(out), out, rule)
    return out


def refuse(bad: NDArray[np.bool_], values: NDArray[Any], rule: str, got: str = "{:g}") -> None:
    """The error for the first of the bad entries, if there is one; got : how it is written."""
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ArgumentError(f"{rule}; got {got.format(values[at])}{f' at {list(at)}' if at else ''}")


def flags(name: str, value: ArrayLike, shape: Sequence[int | str | None]) -> NDArray[np.bool_]:
    """An array of booleans, or of the numbers 0 and 1, of a given shape."""
    out = array(name, value, shape)
    refuse((out != 0) & (out != 1), out, f"{name} must hold booleans (or 0 and 1)")
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
    refuse(out < 0, out, f"{name} must hold probabilities of at least 0")
    total = np.asarray(out.sum(axis=-1))
    refuse(np.abs(total - 1) > tolerance, total, f"{name} must sum to one over its last axis", "a sum of {:.10g}")
    return np.asarray(out / total[..., None], np.float64)


def did_you_mean(value: str, names: Iterable[str]) -> str:
    """The end of an error about a misspelling: the nearest name, in letters of any size; nothing if none is near."""
    lower = {n.lower(): n for n in reversed(list(names))}  # of names that differ in size alone, the first
    close = difflib.get_close_matches(value.lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""


def choice(name: str, value: Any, options: Iterable[str]) -> str:
    """One of a fixed list of names; a misspelling is answered with the nearest right one."""
    names = list(options)
    if isinstance(value, str) and value in names:
        return value
    rule = ("one of " if len(names) > 1 else "") + ", ".join(repr(n) for n in names)
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} must be {rule}; got {show(value)}")
    raise UnknownNameError(f"{name} must be {rule}; got {value!r}{did_you_mean(value, names)}")


def instance(name: str, value: Any, kind: type | tuple[type, ...] | UnionType, article: str) -> Any:
    """A value of a given class, e.g. instance("problem", p, Problem, "a fedlsa problem")."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(f"{name} must be {article}; got {show(value)}")
    return value

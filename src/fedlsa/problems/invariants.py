"""What every problem must be, however it was made: laws that sum to one, numbers that are finite, indices in range.

Each object checks itself when it is made; what is checked there is not checked again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats, show
from ..errors import ArgumentError, ArgumentTypeError

ROUNDING = 1e-8  # by which a law may miss one: probabilities come from files with few digits
INTEGERS = {
    *("left", "right", "following", "origin", "successor", "first_state", "first", "assignment", "table", "count")
}  # fields that point or count

NARROW = INTEGERS - {"first_state", "first", "table", "count"}  # long ones, which may have fewer bytes


def check_arrays(of: Any, sizes: dict[str, int] | None = None, /, **shapes: str) -> dict[str, int]:
    """Fields of an object must be arrays, of integers where they point or count, else of finite numbers.

    They are then of int64 and float64, in the order of bytes of this machine; long ones that point may be narrower.
    shapes : a letter for each axis, which stands for one length; sizes : those that are known. Returns them all.
    """
    sizes = {} if sizes is None else sizes
    for name, letters in shapes.items():
        value, points = getattr(of, name), name in INTEGERS
        shape = f"({', '.join(str(sizes.get(letter, letter)) for letter in letters)}{',' * (len(letters) == 1)})"
        what, kinds, dtype = ("integers", "iu", np.int64) if points else ("numbers", "fiu", np.float64)
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray) or value.dtype.kind not in kinds:
            raise ArgumentTypeError(f"{name} must be an array of {what} of shape {shape}; got {show(value)}")
        if value.dtype != dtype and not (name in NARROW and value.dtype.itemsize < 8 and value.dtype.isnative):
            value = value.astype(dtype)
            object.__setattr__(of, name, value)
        if value.ndim != len(letters) or any(
            sizes.setdefault(letter, n) != n for letter, n in zip(letters, value.shape, strict=True)
        ):
            raise ArgumentError(f"{name} must have shape {shape}; got {value.shape}")
        if "d" in letters and not sizes["d"]:
            raise ArgumentError(f"{name} must have at least one dimension; got shape {value.shape}")
        if not points:
            _finite(name, value if any(value.strides) else value[:1])  # one number, shown many times
    return sizes


def check_problem(p: Any) -> None:
    """Raise an error that names the first rule which a Problem breaks; its observations and its chain are right."""
    K = len(p.observations)
    sizes = check_arrays(p, {"K": K}, prob="K", first="T", assignment="N", weights="N")
    first = p.first
    if len(first) < 2 or first[0] != 0 or first[-1] != K or (np.diff(first) < 1).any():
        raise ArgumentError(f"first must rise from 0 to the number of outcomes, {K}; got {first.tolist()[:10]}")
    check_law("prob", p.prob, np.repeat(np.arange(p.n_tables), np.diff(first)), "table")
    check_range("assignment", p.assignment, p.n_tables)
    check_law("weights", p.weights, np.zeros(sizes["N"], np.int64), "set of agents")
    if not (p.weights > 0).all():
        raise ArgumentError(f"weights must be positive; got {p.weights.min():g} for agent {p.weights.argmin()}")
    if p.chain is not None:
        _check_chain(p, p.chain, K)


def _check_chain(p: Any, chain: Any, K: int) -> None:
    states, table = np.diff(chain.first_state), np.repeat(np.arange(p.n_tables), np.diff(p.first))
    if len(states) != p.n_tables or (states < 1).any() or chain.first_state[0] != 0:
        raise ArgumentError(f"first_state must give each of {p.n_tables} tables its states; got {len(states)}")
    check_arrays(chain, {"K": K, "S": int(chain.first_state[-1])}, origin="K", stationary="S")
    for name in ("origin", "successor"):
        check_range(name, getattr(chain, name), states[table])
    check_law("stationary", chain.stationary, np.repeat(np.arange(p.n_tables), states), "table")
    origin, following = chain.first_state[table] + chain.origin, chain.first_state[table] + chain.successor
    check_law("conditional", chain.conditional, np.unique(origin, return_inverse=True)[1], "state with outcomes")
    left = np.bincount(origin, minlength=len(chain.stationary)) > 0
    stuck = ~left[following] & (chain.stationary[origin] * chain.conditional > 0)
    if stuck.any():
        k = int(np.argmax(stuck))
        raise ArgumentError(
            "a chain must be able to leave every state that it enters; "
            f"got state {chain.successor[k]} of table {table[k]} without outcomes"
        )


def _finite(name: str, values: Floats) -> None:
    if values.size and not (np.isfinite(values.min()) and np.isfinite(values.max())):
        raise ArgumentError(f"{name} must hold finite numbers; got {values[~np.isfinite(values)][0]}")


def check_range(name: str, values: NDArray[Any], below: Any) -> None:
    """Integers from 0 up to, and without, a limit, or a limit for each."""
    wrong = (values < 0) | (values >= below)
    if wrong.any():
        k = int(np.argmax(wrong))
        most = np.broadcast_to(below, values.shape)[k] - 1
        raise ArgumentError(f"{name} must hold numbers from 0 to {most}; got {values[k]} at [{k}]")


def check_law(name: str, prob: Floats, part: NDArray[np.int64], what: str) -> None:
    """Numbers of at least 0 that sum to one in every part."""
    if not prob.size:
        raise ArgumentError(f"{name} must hold at least one number; got none")
    if prob.min() < 0:
        raise ArgumentError(f"{name} must hold numbers of at least 0; got {prob.min():g} at [{prob.argmin()}]")
    total = np.bincount(part, prob)
    wrong = np.abs(total - 1) > ROUNDING
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ArgumentError(f"{name} must sum to one in every {what}; got {total[k]:.10g} in number {k}")

"""What every problem must be, however it was made: laws that sum to one, numbers that are finite, indices in range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError

ROUNDING = 1e-8  # by which a law may miss one: probabilities come from files with few digits


def check_problem(p: Any) -> None:
    """Raise an ArgumentError that names the first rule which a Problem breaks."""
    K, z = len(p.observations), p.observations
    for name, entry in vars(z).items():
        if isinstance(entry, np.ndarray) and entry.dtype.kind == "f":
            _finite(name, entry)
    if hasattr(z, "rows"):
        for name in ("left", "right"):
            _in_range(name, getattr(z, name), len(z.rows), K)
        if z.following is not None:
            _in_range("following", z.following, z.features + 1, K)
    elif z.A.shape != (K, z.dim, z.dim):
        raise ArgumentError(f"A must have shape {(K, z.dim, z.dim)}, that of b with one axis more; got {z.A.shape}")
    first = p.first
    if len(first) < 2 or first[0] != 0 or first[-1] != K or (np.diff(first) < 1).any():
        raise ArgumentError(f"first must rise from 0 to the number of outcomes, {K}; got {first.tolist()[:10]}")
    _law("prob", p.prob, np.repeat(np.arange(p.n_tables), np.diff(first)), K, "table")
    _in_range("assignment", p.assignment, p.n_tables)
    _law("weights", p.weights, np.zeros(p.n_agents, np.int64), p.n_agents, "set of agents")
    if not (p.weights > 0).all():
        raise ArgumentError(f"weights must be positive; got {p.weights.min():g} for agent {p.weights.argmin()}")
    if p.chain is not None:
        _check_chain(p, p.chain)


def _check_chain(p: Any, chain: Any) -> None:
    K, states = len(p.prob), np.diff(chain.first_state)
    table = np.repeat(np.arange(p.n_tables), np.diff(p.first))
    if len(states) != p.n_tables or (states < 1).any() or chain.first_state[0] != 0:
        raise ArgumentError(f"first_state must give each of {p.n_tables} tables its states; got {len(states)}")
    for name in ("origin", "successor"):
        _in_range(name, getattr(chain, name), states[table], K)
    _law("stationary", chain.stationary, np.repeat(np.arange(p.n_tables), states), chain.first_state[-1], "table")
    origin, following = chain.first_state[table] + chain.origin, chain.first_state[table] + chain.successor
    _law("conditional", chain.conditional, np.unique(origin, return_inverse=True)[1], K, "state with outcomes")
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


def _in_range(name: str, values: NDArray[Any], below: Any, length: int | None = None) -> None:
    if values.dtype.kind not in "iu" or values.ndim != 1 or (length is not None and len(values) != length):
        wanted = "" if length is None else f"{length} "
        raise ArgumentError(f"{name} must be {wanted}integers; got {values.dtype} of shape {values.shape}")
    wrong = (values < 0) | (values >= below)
    if wrong.any():
        k = int(np.argmax(wrong))
        most = np.broadcast_to(below, values.shape)[k] - 1
        raise ArgumentError(f"{name} must hold numbers from 0 to {most}; got {values[k]} at [{k}]")


def _law(name: str, prob: Floats, part: NDArray[np.int64], length: int, what: str) -> None:
    if prob.shape != (length,):
        raise ArgumentError(f"{name} must have shape ({length},); got {prob.shape}")
    _finite(name, prob)
    if prob.min() < 0:
        raise ArgumentError(f"{name} must hold numbers of at least 0; got {prob.min():g} at [{prob.argmin()}]")
    total = np.bincount(part, prob)
    wrong = np.abs(total - 1) > ROUNDING
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ArgumentError(f"{name} must sum to one in every {what}; got {total[k]:.10g} in number {k}")

"""Federated TD(0) and TD(lambda) on logs of transitions, one per site."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from .base import Problem, RankOne, agents
from .markov import Flags
from .tables import not_empty, offsets, recipe, same_columns, tuples

FIELDS = ("phi", "r", "phi_next", "terminated", "truncated", "importance")


def from_transitions(
    logs: Iterable[tuple[ArrayLike, ...]],
    discount: float,
    trace: float = 0.0,
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """TD(lambda) on recorded transitions (eq:matr_A_def_td_app; trace is lambda, 0 gives the paper's TD(0)).

    logs : tuples (phi, r, phi_next, terminated[, truncated[, importance]]) of K rows in the order in which they were
    recorded, phi, phi_next : (K, d), r : (K,), terminated, truncated : (K,) booleans (truncated may be None),
    importance : (K,) ratios rho_k = pi(a|s) / behaviour(a|s), by default 1. Each row has probability 1/K and

        u = e_k = rho_k (phi_k + discount trace e_{k-1}),    v = phi_k - discount phi_next_k,    y = r_k.

    The trace e starts afresh after termination and after truncation; only termination stops the bootstrap (v = phi_k).
    """
    given = tuples("logs", logs, FIELDS, optional=2)
    same_columns("phi and phi_next in logs", [part for phi, _, following, *_ in given for part in (phi, following)])
    gamma = checks.real("discount", discount, at_least=0, below=1)
    lam = checks.real("trace", trace, at_least=0, at_most=1)
    own_logs: list[tuple[Any, ...]] = []
    for m, entry in enumerate(given):
        own_logs.append(_checked(f"logs[{m}]", entry, own_logs[0][0].shape[1] if own_logs else "d"))
    held, w = agents(len(given), assignment, weights)
    first = offsets([len(log[1]) for log in own_logs])
    u = [traces(log[0], _breaks(log), gamma * lam, log[5] if len(log) > 5 else None) for log in own_logs]
    v = [phi - gamma * np.where(ended[:, None], 0, phi_next) for phi, _, phi_next, ended, *_ in own_logs]
    K = int(first[-1])
    return Problem(
        observations=RankOne(
            rows=np.concatenate(u + v),
            left=np.arange(K, dtype=np.uint32),
            right=np.arange(K, 2 * K, dtype=np.uint32),
            y=np.concatenate([log[1] for log in own_logs]),
        ),
        prob=np.repeat(1 / np.diff(first), np.diff(first)),
        first=first,
        assignment=held,
        weights=w,
        ordered=True,
        recipe=recipe("from_transitions", weights, assignment, {"logs": own_logs, "discount": gamma, "trace": lam}),
    )


def _checked(name: str, entry: tuple[Any, ...], d: int | str) -> tuple[Any, ...]:
    """One log with its arrays checked and copied."""
    phi = checks.array(f"phi in {name}", entry[0], ("K", d))
    not_empty(f"phi in {name}", phi.shape)
    r = checks.array(f"r in {name}", entry[1], (len(phi),))
    phi_next = checks.array(f"phi_next in {name}", entry[2], phi.shape)
    ended = checks.flags(f"terminated in {name}", entry[3], (len(phi),))
    out: list[Any] = [phi.copy(), r.copy(), phi_next.copy(), ended]
    if len(entry) > 4:
        cut = entry[4]
        out.append(None if cut is None else checks.flags(f"truncated in {name}", cut, (len(phi),)))
    if len(entry) > 5:
        rho = checks.array(f"importance in {name}", entry[5], (len(phi),))
        if (rho < 0).any():
            k = int(np.argmax(rho < 0))
            raise ArgumentError(f"importance in {name} must be at least 0; got {rho[k]:g} at [{k}]")
        out.append(rho.copy())
    return tuple(out)


def _breaks(log: tuple[Any, ...]) -> Flags:
    """(K,): after which rows a new episode begins."""
    return log[3] if len(log) == 4 or log[4] is None else log[3] | log[4]


def traces(
    phi: Floats, breaks: Flags, decay: float, importance: Floats | None = None, before: Floats | None = None
) -> Floats:
    """(K, d): e_k = rho_k (phi_k + decay e_{k-1}), afresh after a break; before : (d,) the trace before row 0."""
    if importance is None and decay == 0:
        return phi
    e = phi.copy()
    rho = np.ones(len(phi)) if importance is None else importance
    _accumulate(e, breaks, decay, rho, np.zeros(phi.shape[1]) if before is None else before)
    return e


@numba.njit(cache=True)
def _accumulate(e: Floats, breaks: Flags, decay: float, rho: Floats, before: Floats) -> None:
    for k in range(e.shape[0]):
        for i in range(e.shape[1]):
            if k == 0:
                e[k, i] += decay * before[i]
            elif not breaks[k - 1]:
                e[k, i] += decay * e[k - 1, i]
            e[k, i] *= rho[k]

"""Logs of transitions as they were recorded, states rather than features: one per site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, SingularSystemError
from ..frozen import ReadOnly
from . import features as maps
from .base import Problem
from .markov import Flags
from .transitions import from_transitions


@dataclass(frozen=True, eq=False, repr=False)
class Log(ReadOnly):
    """K transitions of one site in the order in which they happened.

    state, next_state : (K,) integers or (K, k) numbers; action : (K,) or (K, m); reward : (K,)
    terminated : (K,) the task ended: nothing follows. truncated : (K,) the recording was cut, at a time limit or at
        the log's end: next_state is where the task would have gone on
    importance : (K,) probability of the action under the policy to be evaluated over that under the one that acted
    """

    state: NDArray[Any]
    action: NDArray[Any]
    reward: Floats
    next_state: NDArray[Any]
    terminated: Flags
    truncated: Flags
    importance: Floats | None = None

    def __post_init__(self) -> None:
        reward = checks.array("reward", self.reward, ("K",))
        rows = (len(reward),)
        given: dict[str, NDArray[Any]] = {"reward": reward}
        for name in ("state", "action", "next_state"):
            given[name] = checks.as_array(name, getattr(self, name))
            if given[name].dtype.kind not in "fiub" or given[name].shape[:1] != rows:
                got = checks.show(given[name])
                raise ArgumentError(f"{name} must be numbers, one row for each of {len(reward)} rewards; got {got}")
        given |= {name: checks.flags(name, getattr(self, name), rows) for name in ("terminated", "truncated")}
        if self.importance is not None:
            given["importance"] = checks.array("importance", self.importance, rows)
        self.__setstate__(given)

    def __len__(self) -> int:
        return len(self.reward)

    def __repr__(self) -> str:
        ends = f"terminated={int(self.terminated.sum())}, truncated={int(self.truncated.sum())}"
        return f"Log(transitions={len(self)}, state={self.state.shape[1:] or 'integer'}, {ends})"

    def columns(self) -> dict[str, NDArray[Any]]:
        """The log as columns (K,) for a file: vectors become state_0, state_1, ..., next_state_0, ...; see `fl.fit`."""
        out: dict[str, NDArray[Any]] = {}
        for name in ("state", "action", "reward", "next_state", "terminated", "truncated", "importance"):
            value = getattr(self, name)
            if value is None:
                continue
            if value.ndim == 1:
                out[name] = value
            else:
                out |= {f"{name}_{i}": column for i, column in enumerate(value.T)}
        return out


def from_logs(
    logs: Sequence[Log],
    features: Any,
    discount: float,
    *,
    trace: float = 0.0,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """TD(lambda) on logs of states (eq:matr_A_def_td_app): `from_transitions` after a feature map, one log per site.

    features : a map of fl.problems.features, a callable, a fitted scikit-learn transformer, or an array (S, d)
    """
    sites = []
    for log in checks.instances("logs", logs, Log, "a log of transitions (fl.problems.Log)"):
        both = maps.apply(features, np.concatenate([log.state, log.next_state]))
        phi, phi_next = both[: len(log)], both[len(log) :]
        rest = () if log.importance is None else (log.importance,)
        sites.append((phi, log.reward, phi_next, log.terminated, log.truncated, *rest))
    try:
        return from_transitions(sites, discount, trace, weights=weights, assignment=assignment)
    except SingularSystemError as error:
        unused = unseen(np.concatenate([site[0] for site in sites]))
        raise SingularSystemError(f"{error}{unused}") from None


def unseen(phi: Floats) -> str:
    """A remark on the columns of visited states' features (n, d) that are 0 throughout; empty if there are none."""
    zero = np.flatnonzero(~phi.any(axis=0))
    if not len(zero):
        return ""
    named = ", ".join(map(str, zero[:8])) + (f" and {len(zero) - 8} more" if len(zero) > 8 else "")
    what = f"feature {named} is" if len(zero) == 1 else f"features {named} are"
    return f"; {what} 0 in every state that is visited and must be left out"

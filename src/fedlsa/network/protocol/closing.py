"""How a round ends: the average of what was counted, or nothing, and who is gone or put aside (server.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...checks import Floats
from ...engine.reference import Iterate, serve
from ...errors import ArgumentError
from .coding import MAX_THETA, shortening
from .messages import Finish
from .records import Flags
from .ring import Limbs, add, from_share, to_floats
from .server import ROUNDING, changes, restarted, summed
from .server_state import REMEMBERED, OpenRound, ServerState

WINDOW = 10  # movements from which the contraction is estimated


@dataclass(frozen=True)
class ClosedRound:
    """How a round ended.

    steps : local steps of each; averaged : whether theta is a new average, over `sites`; why : in a sentence, if not
    missing : expected, no reply counted; gone, aside : from now on
    """

    round: int
    steps: int
    averaged: bool
    why: str
    sites: tuple[str, ...]
    missing: tuple[str, ...]
    gone: tuple[str, ...]
    aside: tuple[str, ...]


def trimmed_mean(weights: Floats, values: Floats, trim: int) -> Floats:
    """The weighted mean (d,) of the values (n, d); each coordinate leaves out `trim` at each end."""
    order = np.argsort(values, axis=0, kind="stable")[trim : len(values) - trim]
    kept = weights[order]  # (n - 2 trim, d)
    return np.asarray((kept * np.take_along_axis(values, order, 0)).sum(axis=0) / kept.sum(axis=0), np.float64)


def close_round(state: ServerState) -> tuple[ServerState, ClosedRound]:
    """End the open round: average what was counted, or change nothing but counts and say why."""
    pending, s = state.pending, state.settings
    if pending is None:
        raise ArgumentError("close_round must follow open_round; got a state without an open round")
    took, bound = pending.accepted, pending.clip
    secure = state.secure
    if secure:
        bound = state.bound(pending.steps) or MAX_THETA
    elif not bound and s.outlier and took.any():  # the first round: by its own median
        bound = s.outlier * float(np.median(pending.sizes[took]))
    if bound and not secure:  # the others are told the bound with the next order
        took = took & (pending.sizes <= s.coding.longest(bound, state.dim) * (1 + ROUNDING))
    missing = pending.expected & ~took
    missed = np.where(took, 0, state.missed + missing)
    state = replace(state, pending=None)
    why, moved = "", np.zeros(state.dim)
    if took.sum() < s.least(len(s.sites)):
        why = f"{s.least(len(s.sites))} sites are needed, {took.sum()} answered"
    elif secure and (took != pending.invited).any():
        why = "only the sum over all who were asked can be read, and not all answered"
    else:
        moved = _mean(state, pending, took)
        longest = s.coding.longest(bound, state.dim)
        if longest and shortening(moved, longest) < 1 - ROUNDING:
            why = (
                f"the mean must have a length of at most {longest:.3g}: the step size is too large, or one of the "
                "sites does not keep to the orders"
            )
    aside = state.aside | (state.strikes >= s.strikes)
    away = pending.expected & ~took & (missed >= s.patience) if not why else np.zeros_like(took)
    leaving, banned = away & ~state.gone, aside & ~state.aside
    if why:
        state = replace(state, attempts=state.attempts + 1, missed=missed)
    else:
        state = _averaged(state, pending, took, moved)
        state = replace(state, missed=np.where(leaving, 0, missed))
    state = replace(state, gone=state.gone | leaving, aside=aside)
    if banned.any() or (leaving.any() and s.absence == "restart"):
        state = restarted(state)
    names = (_names(state, which) for which in (took & (not why), missing, leaving, banned))
    return state, ClosedRound(pending.round, pending.steps, not why, why, *names)


def _mean(state: ServerState, pending: OpenRound, took: Flags) -> Floats:
    """The weighted mean change (d,) of those who took part."""
    s = state.settings
    weights, shares = s.shares[took], pending.shares[took]
    if s.trim:
        return trimmed_mean(weights, changes(shares, weights, s.coding.grid.unit), s.trim)
    return np.array(to_floats(from_share(add(list(shares))), s.coding.grid.unit)) / weights.sum()


def _averaged(state: ServerState, pending: OpenRound, took: Flags, moved: Floats) -> ServerState:
    """The state after an average, by which theta moves."""
    start = Iterate.start(state.theta, np.zeros((1, state.dim)))
    theta = serve(start, state.settings.algorithm, state.averages + 1, moved[None], np.ones(1), 0.0).theta
    size = float(np.linalg.norm(moved)) if state.secure else float(np.median(pending.sizes[took]))
    return replace(
        state,
        theta=theta,
        averages=state.averages + 1,
        attempts=0,
        acked=np.where(took, pending.round, state.acked),
        acked_mean=np.where(took[:, None], theta, state.acked_mean),
        acked_mark=np.where(took, pending.marks, state.acked_mark),
        typical=np.append(state.typical, size / pending.steps)[-REMEMBERED:],
        movement=np.append(state.movement, np.linalg.norm(theta - state.theta)),
    )


def finish(state: ServerState, names: str = "[]") -> dict[str, Finish]:
    """The last message to each site that belongs; names : JSON list of the coefficients."""
    belong = np.flatnonzero(~state.gone & ~state.aside)
    common = summed(state, belong)
    return {state.settings.sites[c]: Finish(**common, names=names) for c in belong.tolist()}


def sum_of_controls(shares: Sequence[Limbs], unit: float) -> float:
    """||sum_c w_c xi_c|| from the shares of all sites that were told to finish."""
    return float(np.linalg.norm(to_floats(from_share(add(shares)), unit)))


def finished(state: ServerState) -> str | None:
    """Why the run is over, in a sentence; None while it is not."""
    rounds = state.settings.rounds
    return f"all {rounds} rounds are done" if state.averages >= rounds else None


def estimated_error(state: ServerState) -> float:
    """||last movement|| / (1 - contraction), the contraction being the mean shrinkage of the last movements.

    What is still to go if theta keeps moving in the same way, and shrinks as it did: an extrapolation, not a bound. It
    knows nothing of sampling noise, bias or the error of the data. inf while movements do not shrink or are too few.
    """
    last = state.movement[-WINDOW:]
    if len(last) < 3:
        return float("inf")
    if last[-1] == 0:
        return 0.0
    contraction = (last[-1] / last[0]) ** (1 / (len(last) - 1)) if last[0] > 0 else float("inf")
    return float(last[-1] / (1 - contraction)) if contraction < 1 else float("inf")


def _names(state: ServerState, which: Flags) -> tuple[str, ...]:
    return tuple(state.settings.sites[c] for c in np.flatnonzero(which).tolist())

"""The server's side of a round, without network, files or clocks: open_round, accept, close_round, again and again.

A round has a number of its own, never used for two different orders. Its order of work carries theta and what the
server last averaged of that very site (client.py explains why); it depends on the stored state alone, not on who is
present, so that a server which died before it could store a round gives out the same orders again. Who calls does so:

    state, orders = open_round(state, present)       send the orders
    state, reason = accept(state, site, record)      for each answer; a reason says why it does not count
    state, closed = close_round(state)               at the deadline, or when all who were invited have answered
    store the state, and only then open the next round

A site that misses `patience` averaged rounds in a row is gone. Policy "spread": w_c xi_c is shared out over those who
stay (each adds the same vector to its `shift`), so that the sum over those who belong stays 0; the site's generation
ends, and if it returns it begins at xi = 0. Policy "freeze": nothing moves, and the sum is 0 over all sites, gone or
not. A site that says "forgot" has lost its xi: it is treated as gone and back at once (under "freeze" its xi goes to
`lost`).

With a trimmed mean the sum of control variates moves in each round by gain W (trimmed - mean), W the weight of those
averaged: the control variates then tend to what makes the trimmed mean stand still, and the limit is not theta_star
exactly. That is the price of robustness; honest sites that are alike pay little. Shortening a long reply (`clip`) costs
nothing of the kind, because the site is told the factor and corrects xi with the shortened reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...checks import Floats
from ...engine.reference import Iterate, serve
from ...engine.schedule import schedule
from ...errors import ArgumentError, MessageError
from ...sampling import IID
from . import coding
from .messages import Finish, Refusal, Reply, Work
from .records import Flags, Record, printable, structure, zeros
from .server_state import DOWN_BYTES, DOWN_MESSAGES, UP_BYTES, UP_MESSAGES, OpenRound, ServerState

LAST_AVERAGED = ("acked", "acked_mean", "acked_gain", "acked_scale", "acked_mark")  # of the state, and of an order
WINDOW = 10  # movements from which the contraction is estimated


@dataclass(frozen=True)
class ClosedRound:
    """How a round ended.

    averaged : whether theta is a new average, over `sites`; missing : expected, no reply counted; gone : from now on
    """

    round: int
    averaged: bool
    sites: tuple[str, ...]
    missing: tuple[str, ...]
    gone: tuple[str, ...]


def open_round(state: ServerState, present: Sequence[str]) -> tuple[ServerState, dict[str, Work]]:
    """A new round and the orders of those invited; present : names of the sites that can be reached now.

    All that are present are invited. With m participants, fewer than they are, m of them are drawn, with the random
    numbers of fl.simulate for this average if all N are there; after a round in vain all that are present are invited.
    A site that was gone and is present belongs again. An open round is given up: its replies will not count.
    """
    s = state.settings
    here = np.array([site in set(present) for site in s.sites])
    gone = state.gone & ~here
    agents = np.flatnonzero(here)
    algorithm, drawn = s.algorithm, None
    m = s.taking_part(len(s.sites)) or len(agents)
    if m < len(agents) and state.attempts == 0:
        algorithm, drawn = replace(algorithm, participants=m), len(agents)
    plan = schedule(algorithm, IID(), s.seed, 1, drawn, first=state.averages)
    agents = agents if drawn is None else agents[plan.active(0)]
    N, d = state.xi.shape
    invited = np.isin(np.arange(N), agents)
    expected = {"invited": invited, "expected": (invited | ~here) & ~gone}
    lengths = int(plan.updates[0]), float(plan.gains[0])
    pending = OpenRound(state.opened + 1, *lengths, **zeros(OpenRound, {"N": N, "d": d}) | expected)
    state = replace(state, opened=state.opened + 1, gone=gone, pending=pending)
    common: dict[str, Any] = {"round": pending.round, "eta": s.step_size, "steps": pending.steps, "seed": s.seed}
    orders, traffic = {}, state.traffic.copy()
    for c in agents.tolist():
        order = Work(**_acknowledged(state, c), **common, step=int(state.step[c]), agent=c)
        orders[s.sites[c]] = order
        traffic[c, [DOWN_MESSAGES, DOWN_BYTES]] += 1, order.record().size
    return replace(state, traffic=traffic), orders


def _acknowledged(state: ServerState, c: int) -> dict[str, Any]:
    """What every order tells site c of the state: theta, and what was last averaged of it (messages.Acknowledged)."""
    told = {name: getattr(state, name)[c] for name in ("generation", *LAST_AVERAGED, "shift")}
    told = {name: value if value.ndim else value.item() for name, value in told.items()}
    return {"experiment": state.settings.name, "theta": state.theta, **told}


def accept(state: ServerState, site: object, record: object) -> tuple[ServerState, str | None]:
    """Take a site's answer to the open round, or say in a sentence why it does not count; never raises.

    site : as the transport has authenticated it. theta does not move here, whatever the answer says.
    """
    c = state.agent(site)
    if c is None:
        return state, "this sender is not one of the sites"
    try:
        good = structure(record)
        traffic = state.traffic.copy()
        traffic[c, UP_MESSAGES] += 1
        traffic[c, UP_BYTES] += good.size
        state = replace(state, traffic=traffic)
        if good.kind == Refusal.KIND:
            return _refused(state, c, Refusal.from_record(good))
        return _counted(state, c, good), None
    except MessageError as error:
        return replace(state, refused=_put(state.refused, c, state.refused[c] + 1)), str(error)


def _current(state: ServerState, c: int, answer: Reply | Refusal) -> OpenRound:
    """The open round, if the answer belongs to it."""
    if answer.experiment != state.settings.name:
        raise MessageError("'experiment' must be this one; the answer is to another")
    if state.pending is None or answer.round != state.pending.round:
        what = "no round is open" if state.pending is None else f"round {state.pending.round} is open"
        raise MessageError(f"'round' must be that of the open round: {what}; got {answer.round}")
    if answer.generation != state.generation[c]:
        raise MessageError(f"'generation' must be {state.generation[c]}; got {answer.generation}")
    if not state.pending.invited[c]:
        raise MessageError("this site was not invited to the open round")
    return state.pending


def _counted(state: ServerState, c: int, record: Record) -> ServerState:
    """The state with a good reply noted."""
    reply = Reply.from_record(record)
    pending = _current(state, c, reply)
    if pending.accepted[c]:
        raise MessageError("this site's reply to the open round has been counted already")
    if reply.norm_of_xi < 0:
        raise MessageError(f"'norm_of_xi' must be at least 0; got {reply.norm_of_xi}")
    delta = coding.decode(reply.payload, state.dim)
    clip = state.settings.server_clip
    scale = 1.0 if clip is None else coding.shortening(delta, clip)
    pending = replace(
        pending,
        accepted=_put(pending.accepted, c, True),
        delta=_put(pending.delta, c, scale * delta),
        scale=_put(pending.scale, c, scale),
        mark=_put(pending.mark, c, coding.mark(reply.payload)),
    )
    return replace(state, pending=pending)


def _refused(state: ServerState, c: int, refusal: Refusal) -> tuple[ServerState, str | None]:
    """A site's refusal: "forgot" ends its generation, the others are only passed on."""
    pending = _current(state, c, refusal)
    said = printable(refusal.text)
    if refusal.reason == "forgot":
        leaving = np.arange(len(state.gone)) == c
        left = {name: getattr(pending, name) & ~leaving for name in ("invited", "expected", "accepted")}
        state = _lost(replace(state, pending=replace(pending, **left)), leaving)
    return replace(
        state, refused=_put(state.refused, c, state.refused[c] + 1)
    ), f"the site refused ({refusal.reason}): {said}"


def trimmed_mean(weights: Floats, values: Floats, trim: int) -> Floats:
    """The weighted mean (d,) of the values (N, d) with a weight; each coordinate leaves out `trim` at each end."""
    values, weights = values[weights > 0], weights[weights > 0]
    order = np.argsort(values, axis=0, kind="stable")[trim : len(values) - trim]
    kept = weights[order]  # (m - 2 trim, d)
    return np.asarray((kept * np.take_along_axis(values, order, 0)).sum(axis=0) / kept.sum(axis=0), np.float64)


def close_round(state: ServerState) -> tuple[ServerState, ClosedRound]:
    """End the open round: average what was counted, or with fewer than min_sites replies change nothing."""
    pending, s = state.pending, state.settings
    if pending is None:
        raise ArgumentError("close_round must follow open_round; got a state without an open round")
    took = pending.accepted
    missing = _names(state, pending.expected & ~took)
    state = replace(state, pending=None)
    if took.sum() < s.least(len(s.sites)):
        return replace(state, attempts=state.attempts + 1), ClosedRound(pending.round, False, (), missing, ())
    weights = np.where(took, s.shares, 0.0)
    gains = np.where(took, pending.gain, 0.0)
    average = partial(trimmed_mean, trim=s.trim) if s.trim else np.matmul
    new = serve(
        Iterate.start(state.theta, state.xi), s.algorithm, state.averages + 1, pending.delta, weights / weights.sum(),
        gains[:, None], average=average,
    )  # fmt: skip
    missed = np.where(took, 0, state.missed + pending.expected)
    state = replace(
        state,
        theta=new.theta,
        xi=new.xi,
        averages=state.averages + 1,
        attempts=0,
        acked=np.where(took, pending.round, state.acked),
        acked_mean=np.where(took[:, None], new.theta, state.acked_mean),
        acked_gain=np.where(took, pending.gain, state.acked_gain),
        acked_scale=np.where(took, pending.scale, state.acked_scale),
        acked_mark=np.where(took, pending.mark, state.acked_mark),
        step=state.step + np.where(took, pending.steps, 0),
        missed=missed,
        movement=np.append(state.movement, np.linalg.norm(new.theta - state.theta)),
    )
    leaving = (missed >= s.patience) & ~state.gone
    if leaving.any():
        state = replace(state, gone=state.gone | leaving, missed=np.where(leaving, 0, missed))
        if s.policy == "spread":
            state = _lost(state, leaving)
    return state, ClosedRound(pending.round, True, _names(state, took), missing, _names(state, leaving))


def _lost(state: ServerState, leaving: Flags) -> ServerState:
    """End the generations of some sites; "spread" gives their control variates to the others that belong."""
    w, keep = state.settings.shares, ~leaving[:, None]
    left = (w * leaving) @ state.xi
    remaining = ~leaving & ~state.gone
    xi, shift, lost = np.where(keep, state.xi, 0.0), np.where(keep, state.shift, 0.0), state.lost
    if state.settings.policy == "spread" and remaining.any():
        gift = np.where(remaining[:, None], left / w[remaining].sum(), 0.0)
        xi, shift = xi + gift, shift + gift  # sum over those who belong: nothing is gained or lost
    else:
        lost = lost + left
    return replace(
        state, xi=xi, shift=shift, lost=lost, generation=state.generation + leaving,
        acked=np.where(leaving, 0, state.acked),
    )  # fmt: skip


def finish(state: ServerState, names: str = "[]") -> dict[str, Finish]:
    """The last message to each site that belongs; names : JSON list of the coefficients."""
    belong = np.flatnonzero(~state.gone).tolist()
    return {state.settings.sites[c]: Finish(**_acknowledged(state, c), names=names) for c in belong}


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


def drift_norm(state: ServerState) -> float:
    """sqrt(sum_c w_c ||xi_c||^2) over those who belong: how far sites pull apart."""
    w = state.present_weights
    return float(np.sqrt(w @ (state.xi**2).sum(axis=1) / w.sum())) if w.any() else 0.0


def _names(state: ServerState, which: Flags) -> tuple[str, ...]:
    return tuple(state.settings.sites[c] for c in np.flatnonzero(which).tolist())


def _put(array: np.ndarray[Any, Any], c: int, value: Any) -> np.ndarray[Any, Any]:
    """The array with entry c replaced."""
    out = array.copy()
    out[c] = value
    return out

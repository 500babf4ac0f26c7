"""The server's side of a round, without network, files or clocks: open_round, accept, close_round, again and again.

A round has a number of its own, never used for two different orders. Its order of work carries theta and the
entries of the run's transcript that its sites may not know (client.py explains why). Who calls does so:

    state, orders = open_round(state, present)       store the state, and only then send the orders
    state, reason = accept(state, site, answer)      for each answer; a reason says why it does not count
    state, closed = close_round(state)               at the deadline, or when all who were invited have answered

A server that died takes the stored state and gives the open round's orders out again (`reissued`).

With secure aggregation only the sum over all who were invited can be read: if one of them does not answer, the round is
in vain, and the next is opened without those who were missing. With plain aggregation those who answered are averaged.
In both the server needs to know no control variate: each site corrects its own, and the corrections sum to 0.

A site that misses `patience` rounds in a row is gone. "restart": the generation of all control variates ends, and every
site, the lost one too if it returns, begins at xi = 0, so that their sum is 0. "freeze": nothing moves, and the sum is
0 over all sites, gone or not. A site that says "forgot" has lost its xi, which ends the generation too.

Sites are not trusted. A change must not be longer than the order says, which is `outlier` times the running median of
all sites' sizes, or the run's clip: honest sites shorten theirs, others are refused, and with sums the mean must keep
to the same length. Who breaks the protocol `strikes` times is put aside. With a trimmed mean the sum of control
variates is no longer 0, and the limit is not theta_star exactly where sites differ: the price of that robustness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Annotated, Any, Self, TypeVar

import numpy as np
from msgspec.structs import replace

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError, MessageError
from ...sampling import IID
from . import messages
from .codec import Bytes, Flags, Integers, MalformedError, Struct, encode, printable, zeros
from .messages import Answer, Finish, Refusal, Reply, Work
from .ring import MAX_THETA, Limbs, changes, read_sum, shortening
from .run_settings import RunSettings

DOWN_MESSAGES, DOWN_BYTES, UP_MESSAGES, UP_BYTES = range(4)  # columns of `traffic`
REMEMBERED = 5  # rounds whose median sizes bound the next one
FLOOR = 1e-9  # of theta's size: a movement below it is never too long, whatever the last ones were

Counts = Annotated[Integers, "N"]
Chosen = Annotated[Flags, "N"]
Vectors = Annotated[Floats, "N", "d"]
Vector = Annotated[Floats, "d"]
R = TypeVar("R", "OpenRound", "ServerState")


class OpenRound(Struct, frozen=True):
    """The open round: who was invited, who is counted as missing without a reply, and what has come so far.

    order : the digest of its orders; clip : as they say (messages.Work); since : the first entry that they bring
    shares : (N, d, limbs), what came; sizes : lengths of single changes, where they can be seen; marks : of each reply
    """

    round: int
    order: str
    steps: int
    gain: float
    clip: float
    since: int
    invited: Chosen
    expected: Chosen
    accepted: Chosen
    sizes: Annotated[Floats, "N"]
    marks: Counts
    shares: Annotated[Limbs, "N", "d", "limbs"]


class ServerState(Struct, frozen=True):
    """The state between two events; arrays are never changed in place. N sites in the order of settings.sites.

    opened : the last round ever opened; averages : how many were averaged (t); attempts : rounds in vain since the last
    generation : of all control variates; acked, acked_mean, acked_mark : what was last averaged of each site in it
    entries, heads : (k, bytes) and (k, 32), the transcript of this generation (messages.py) and its head after each
    known : (N,), how many of them each site has folded in, as its answers say
    missed, refused, strikes : counts of rounds missed in a row, answers not taken, answers against the protocol
    gone, aside : sites that are away for good until they return, and those that are asked no more
    typical : (at most REMEMBERED,), of the last rounds of this generation, per local step: the median length of single
        changes, or of masked ones the length of their mean
    traffic : (N, 4), messages and bytes down, messages and bytes up; movement : (averages,), ||theta_t - theta_{t-1}||
    found : (k, d), what earlier rounds have found: coefficients, then directions (messages.Work); earlier : how many
        were averaged for them; slack : the largest relative error of these directions, about
    """

    settings: RunSettings
    theta: Vector
    opened: int
    averages: int
    attempts: int
    generation: int
    acked: Counts
    acked_mean: Vectors
    acked_mark: Counts
    entries: Annotated[Bytes, "k", "bytes"]
    heads: Annotated[Bytes, "k", "digest"]
    known: Counts
    missed: Counts
    refused: Counts
    strikes: Counts
    gone: Chosen
    aside: Chosen
    typical: Annotated[Floats, "remembered"]
    traffic: Annotated[Integers, "N", "directions"]
    movement: Annotated[Floats, "averages"]
    found: Annotated[Floats, "targets", "d"]
    earlier: int = 0
    slack: float = 0.0
    pending: OpenRound | None = None

    @classmethod
    def start(cls, settings: RunSettings, dim: int) -> Self:
        """The state before the first round, at theta = 0 : (dim,)."""
        N, d = len(settings.sites), checks.integer("dim", dim, at_least=1)
        sizes = {"N": N, "d": d, "directions": 4, "averages": 0, "remembered": 0, "k": 0, "targets": 0}
        arrays = zeros(cls, sizes | {"bytes": messages.width(N), "digest": len(messages.ORIGIN)})
        return cls(settings, opened=0, averages=0, attempts=0, generation=0, **arrays)

    def check(self) -> None:
        if len(self.movement) != self.averages or len(self.gone) != len(self.settings.sites):
            raise MessageError("a movement per average, and a row per site")

    @property
    def dim(self) -> int:
        return len(self.theta)

    @property
    def estimate(self) -> Floats:
        """The coefficients (d,), in the run's coordinates, as far as they are known."""
        return self.found[0] if len(self.found) else self.theta

    def bound(self, steps: int) -> float:
        """The longest change after so many local steps, or of masked ones the longest mean; 0: not known yet."""
        s = self.settings
        if s.clip is not None:
            return s.clip
        usual, most = s.outlier * float(self.typical.max(initial=0.0)) * steps, s.outlier * s.reach
        if usual:  # a run that has converged moves by rounding errors, which grow and shrink as they like
            usual = max(usual, FLOOR * (1.0 + float(np.linalg.norm(self.theta))))
        return min(usual, most) if usual and most else usual or most

    @property
    def secure(self) -> bool:
        return self.settings.secure(len(self.settings.sites))

    def agent(self, site: object) -> int | None:
        """The number of a site; None where it is none of ours."""
        return self.settings.sites.index(site) if isinstance(site, str) and site in self.settings.sites else None


ROUNDING = 1e-6  # relative, of lengths on coarse grids


class UntimelyError(MessageError):
    """An answer that does not belong to the open round: late, repeated, uninvited. Nobody's fault."""


def open_round(state: ServerState, present: Sequence[str]) -> tuple[ServerState, dict[str, Work]]:
    """A new round and the orders of those invited; present : names of the sites that can be reached now.

    All that are present are invited, but for those put aside, and after a round in vain those who missed it, if enough
    are left. With m participants, fewer than they are, m of them are drawn, with the random numbers of fl.simulate for
    this average if all N are there. A site that was gone and is present belongs again. An open round is given up.
    """
    from ...engine.schedule import schedule  # loads the compiler, which commands that only read a run do not need

    s = state.settings
    N, d = state.acked_mean.shape
    here = np.isin(np.array(s.sites), list(present)) & ~state.aside
    gone = state.gone & ~here
    late = here & (state.missed > 0) & (state.attempts > 0)
    late &= (here & ~late).sum() >= s.least(N)
    agents = np.flatnonzero(here & ~late)
    algorithm, drawn = s.algorithm, None
    m = s.taking_part(N) or len(agents)
    if m < len(agents) and state.attempts == 0:
        algorithm, drawn = changed(algorithm, participants=m), len(agents)
    plan = schedule(algorithm, IID(), s.seed, 1, drawn, first=state.averages)
    agents = agents if drawn is None else agents[plan.active(0)]
    if len(agents) < s.least(N):  # a round in vain, for which nobody need work
        agents = agents[:0]
    invited = np.isin(np.arange(N), agents)
    expected = (invited | late | ~here) & ~gone & ~state.aside
    clip = s.clip or 0.0 if state.secure else state.bound(int(plan.updates[0]))
    arrays = zeros(OpenRound, {"N": N, "d": d, "limbs": s.coding.grid.limbs})
    lengths = int(plan.updates[0]), float(plan.gains[0])
    since = int(state.known[invited].min(initial=len(state.entries)))
    arrays |= {"invited": invited, "expected": expected}
    pending = OpenRound(state.opened + 1, "", *lengths, clip, since, **arrays)
    state = replace(state, opened=state.opened + 1, gone=gone, pending=pending)
    digest = next((order.label().hex() for order in _orders(state, pending).values()), "")
    return reissued(replace(state, pending=replace(pending, order=digest)))


def reissued(state: ServerState) -> tuple[ServerState, dict[str, Work]]:
    """The orders of the open round, as they were given out when it was opened; sites answer them again to the bit."""
    if state.pending is None:
        raise ArgumentError("reissued must follow open_round; got a state without an open round")
    orders, traffic = _orders(state, state.pending), state.traffic.copy()
    for site, order in orders.items():
        traffic[state.settings.sites.index(site), [DOWN_MESSAGES, DOWN_BYTES]] += 1, len(encode(order))
    return replace(state, traffic=traffic), orders


def _orders(state: ServerState, pending: OpenRound) -> dict[str, Work]:
    agents, s = np.flatnonzero(pending.invited), state.settings
    if not len(agents):
        return {}
    common: dict[str, Any] = summed(state, agents, pending.since) | {
        "round": pending.round, "eta": s.step_size, "steps": pending.steps, "gain": pending.gain, "clip": pending.clip,
        "target": len(state.found),
    }  # fmt: skip
    return dict.fromkeys(common["sites"], Work(**common))  # the same for all


def summed(state: ServerState, agents: np.ndarray[Any, Any], since: int) -> dict[str, Any]:
    """What an order says of the run and of the sites in its sum (messages.Continued)."""
    s, acked, rows = state.settings, state.acked[agents], state.entries[since:]
    told_rounds = {int.from_bytes(row[:8].tobytes(), "big") for row in rows}
    rounds, first = np.unique(acked, return_index=True)
    needed = np.isin(rounds, list(told_rounds))
    return {
        "experiment": s.name,
        "sites": tuple(s.sites[c] for c in agents.tolist()),
        "weights": s.shares[agents],
        "generation": state.generation,
        "theta": state.theta,
        "since": since,
        "base": state.heads[since - 1].tobytes() if since else messages.ORIGIN,
        "entries": rows,
        "marks": state.acked_mark[agents],
        "rounds": rounds[needed],
        "means": state.acked_mean[agents][first[needed]],
    }


def accept(state: ServerState, site: object, answer: Answer | MalformedError) -> tuple[ServerState, str | None]:
    """Take a site's answer to the open round, or say in a sentence why it does not count; never raises.

    site : as the carrier has authenticated it; answer : a MalformedError where it wrote what cannot be read. theta does
        not move here, whatever the answer says.
    """
    c = state.agent(site)
    if c is None:
        return state, "this sender is not one of the sites"
    if isinstance(answer, MalformedError):
        return _noted(state, c, fault=True), str(answer)
    traffic = state.traffic.copy()
    traffic[c, [UP_MESSAGES, UP_BYTES]] += 1, len(encode(answer))
    state = replace(state, traffic=traffic)
    try:
        if isinstance(answer, Refusal):
            return _refused(state, c, answer)
        if not isinstance(answer, Reply):
            raise MessageError(f"the answer to an order of work must be a reply; got {answer.kind}")
        return _counted(state, c, answer), None
    except MessageError as error:
        fault = not isinstance(error, UntimelyError)
        return _noted(state, c, fault), str(error)


def _noted(state: ServerState, c: int, fault: bool) -> ServerState:
    """The state with an answer noted that does not count; fault : it was against the protocol."""
    return _put(state, c, {"refused": state.refused[c] + 1, "strikes": state.strikes[c] + fault})


def _current(state: ServerState, c: int, answer: Reply | Refusal) -> OpenRound:
    """The open round, if the answer belongs to it."""
    if answer.experiment != state.settings.name:
        raise UntimelyError("'experiment' must be this one; the answer is to another")
    if state.pending is None or answer.round != state.pending.round:
        what = "no round is open" if state.pending is None else f"round {state.pending.round} is open"
        raise UntimelyError(f"'round' must be that of the open round: {what}; got {answer.round}")
    if answer.generation != state.generation:
        raise UntimelyError(f"'generation' must be {state.generation}; got {answer.generation}")
    if not state.pending.invited[c]:
        raise UntimelyError("this site was not invited to the open round")
    return state.pending


def _counted(state: ServerState, c: int, reply: Reply) -> ServerState:
    """The state with a good reply noted."""
    pending = _current(state, c, reply)
    if pending.accepted[c]:
        raise UntimelyError("this site's reply to the open round has been counted already")
    if reply.order != pending.order:
        raise UntimelyError("'order' must be the digest of the open round's order; it is that of another")
    if reply.share.shape != pending.shares[c].shape:
        raise MessageError(f"'share' must have shape {pending.shares[c].shape}; got {reply.share.shape}")
    s, size = state.settings, 0.0
    if not state.secure:
        size = float(np.linalg.norm(changes(reply.share[None], s.shares[c : c + 1], s.coding.grid.unit)))
    longest = s.coding.longest(pending.clip, state.dim)
    if longest and size > longest * (1 + ROUNDING):
        raise MessageError(f"the change must have a length of at most {longest:.3g}; got {size:.3g}")
    came = {"accepted": True, "shares": reply.share, "sizes": size, "marks": messages.mark(reply.share)}
    return _put(state, c, {"known": len(state.entries)}, pending=_put(pending, c, came))


def _refused(state: ServerState, c: int, refusal: Refusal) -> tuple[ServerState, str | None]:
    """A site's refusal: "forgot" ends the generation and the round, the others are only passed on."""
    pending = _current(state, c, refusal)
    forgot = refusal.reason == "forgot"
    state = _noted(state, c, forgot)
    if forgot:
        nobody = np.zeros_like(pending.invited)
        pending = replace(pending, invited=nobody, expected=nobody, accepted=nobody)
        state = restarted(replace(state, pending=pending))
    return state, f"the site refused ({refusal.reason}): {printable(refusal.text)}"


def _put(record: R, c: int, entries: Mapping[str, Any], **more: Any) -> R:
    """The record with entry c of these arrays replaced, and more of its fields."""
    arrays = {name: getattr(record, name).copy() for name in entries}
    for name, value in entries.items():
        arrays[name][c] = value
    return replace(record, **arrays, **more)


def restarted(state: ServerState) -> ServerState:
    """A new generation: all control variates begin at 0. Sizes of before say nothing of it."""
    zero = np.zeros_like(state.acked)
    return replace(
        state, generation=state.generation + 1, typical=np.zeros(0), acked=zero, acked_mark=zero, known=zero,
        entries=state.entries[:0], heads=state.heads[:0],
    )  # fmt: skip


def next_target(state: ServerState, slack: float) -> ServerState:
    """What rounds have found is kept, and the next direction begins at 0 with control variates of its own."""
    return replace(
        restarted(state), theta=np.zeros(state.dim), found=np.vstack([state.found, state.theta]), averages=0,
        earlier=state.earlier + state.averages, slack=max(state.slack, slack), attempts=0, movement=np.zeros(0),
    )  # fmt: skip


# How a round ends: the average of what was counted, or nothing, and who is gone or put aside.

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
            cause = "the step size is too large, or one of the sites does not keep to the orders"
            why = f"the mean must have a length of at most {longest:.3g}: {cause}"
    aside = state.aside | (state.strikes >= s.strikes)
    away = pending.expected & ~took & (missed >= s.patience) if not why else np.zeros_like(took)
    leaving, banned = away & ~state.gone, aside & ~state.aside
    state = replace(state, attempts=state.attempts + 1) if why else _averaged(state, pending, took, moved)
    state = replace(state, missed=np.where(leaving, 0, missed), gone=state.gone | leaving, aside=aside)
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
    return read_sum(list(shares), s.coding.grid.unit) / weights.sum()


def _averaged(state: ServerState, pending: OpenRound, took: Flags, moved: Floats) -> ServerState:
    """The state after an average, by which theta moves."""
    theta = state.theta + moved
    size = float(np.linalg.norm(moved)) if state.secure else float(np.median(pending.sizes[took]))
    average = messages.Average(
        pending.round, bytes.fromhex(pending.order), messages.digest_of_mean(theta), _names(state, took)
    )
    row = messages.to_row(average, state.settings.sites)
    head = messages.extend(state.heads[-1].tobytes() if len(state.heads) else messages.ORIGIN, row)
    return replace(
        state,
        theta=theta,
        entries=np.vstack([state.entries, row]),
        heads=np.vstack([state.heads, np.frombuffer(head, np.uint8)]),
        averages=state.averages + 1,
        attempts=0,
        acked=np.where(took, pending.round, state.acked),
        acked_mean=np.where(took[:, None], theta, state.acked_mean),
        acked_mark=np.where(took, pending.marks, state.acked_mark),
        typical=np.append(state.typical, size / pending.steps)[-REMEMBERED:],
        movement=np.append(state.movement, np.linalg.norm(theta - state.theta)),
    )


def finish(state: ServerState, names: Sequence[str] = ()) -> dict[str, Finish]:
    """The last message to each site that belongs; names : of the coefficients."""
    belong = np.flatnonzero(~state.gone & ~state.aside)
    common = summed(state, belong, int(state.known[belong].min(initial=0))) | {"theta": state.estimate}
    return {state.settings.sites[c]: Finish(**common, names=tuple(names)) for c in belong.tolist()}


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

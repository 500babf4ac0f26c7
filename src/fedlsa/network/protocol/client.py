"""A site's side of a round, without network, files or clocks: client_step maps (state, work) to (state, answer).

The acknowledgement protocol, which keeps sum_c w_c xi_c = 0 whatever the wire does. A site keeps xi, the number of the
last round it answered, and what it sent. It does not correct xi when it answers: it cannot know whether the answer will
arrive. With every order of work the server says which of this site's rounds it really averaged last (`acked`), the mean
that came of it, and the gain. Only if that is the round the site holds, and not yet applied, does the site do
xi <- xi + gain (mean - sent). So a reply that was lost, late, refused or not averaged never moves xi, and one that was
averaged moves it exactly once, even if site or server were dead in between: the site stores its state before its answer
leaves, the server stores its own before the next order leaves. The observations of a reply that was not averaged are
drawn again, since the server counts them: a run in which all sites reply equals fl.simulate.
If site and server remember different pasts (a lost disk, an old backup), the site says "forgot" and begins again at
xi = 0 with a new generation; the server gives what was lost to the others (server.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import numpy as np

from ...checks import Floats
from .coding import Coding, encode, mark
from .messages import Acknowledged, Finish, Refusal, Reply, Work
from .records import Payload, Stored

# (theta, xi, eta, steps, first_step, seed, agent) -> theta_hat, all vectors (d,)
LocalSteps = Callable[[Floats, Floats, float, int, int, int, int], Floats]
Vector = Annotated[Floats, "d"]


@dataclass(frozen=True, eq=False)
class ClientState(Stored):
    """What a site must not forget.

    round : the last one answered; steps : of it; start : (d,), its theta; delta : (d,), what the server can read of it
    acked : the last round whose correction is in xi; applied : (d,), the part of the shift that is in xi
    residual, next_residual : (d,), rounding errors as of the last averaged reply, and as of `round` if it is averaged
    payload, norm : the answer to `round`, for when it is asked again; releases : answers ever made, for privacy
    """

    experiment: str
    generation: int
    round: int
    steps: int
    acked: int
    releases: int
    norm: float
    xi: Vector
    start: Vector
    delta: Vector
    applied: Vector
    residual: Vector
    next_residual: Vector
    payload: Payload = field(default_factory=dict)

    @classmethod
    def fresh(cls, experiment: str, generation: int, dim: int, releases: int = 0) -> Self:
        """The state of a site that has not answered yet."""
        zero = np.zeros(dim)
        return cls(experiment, generation, 0, 0, 0, releases, 0.0, zero, zero, zero, zero, zero, zero)


def client_step(
    state: ClientState | None,
    work: Work,
    local: LocalSteps,
    coding: Coding | None = None,
    secret: np.random.Generator | None = None,
) -> tuple[ClientState | None, Reply | Refusal]:
    """Answer an order of work. The new state must be on disk before the answer leaves; None: nothing to store yet.

    local : the local steps; secret : generator of the site's privacy noise, where `coding` asks for noise
    """
    d, coding = len(work.theta), coding or Coding()
    if state is not None and (state.experiment != work.experiment or len(state.xi) != d):
        state = None
    if state is not None and work.generation == state.generation and work.round == state.round:
        if work.steps == state.steps and np.array_equal(work.theta, state.start):
            return state, _reply(state)  # asked again: the same answer, to the bit
        return state, _refusal(work, "forgot", "the server gives out a round again with another theta")
    if state is not None and work.generation < state.generation:
        return state, _refusal(work, "forgot", "this site is in a later generation")
    if state is None or work.generation > state.generation:
        held = ClientState.fresh(work.experiment, work.generation, d, 0 if state is None else state.releases)
    elif work.round < state.round:
        return state, _refusal(work, "stale", f"this site has answered round {state.round} already")
    else:
        held = state
    if not _same_past(held, work):
        return state, _refusal(
            work, "forgot", f"this site has no reply to round {work.acked} as the server averaged it"
        )
    held = corrected(held, work)
    theta_hat = np.asarray(
        local(work.theta, held.xi, work.eta, work.steps, work.step, work.seed, work.agent), np.float64
    )
    if theta_hat.shape != (d,) or not np.isfinite(theta_hat).all():
        return state, _refusal(work, "other", "the local steps left the range of floating-point numbers")
    coded = encode(theta_hat - work.theta, held.residual, coding, secret)
    new = replace(
        held, round=work.round, steps=work.steps, start=work.theta, delta=coded.delta, payload=coded.payload,
        next_residual=coded.residual, norm=float(np.linalg.norm(held.xi)), releases=held.releases + 1,
    )  # fmt: skip
    return new, _reply(new)


def client_finish(state: ClientState | None, finish: Finish) -> ClientState | None:
    """The state with the last acknowledgement applied; one of another past is left as it is."""
    if state is None or (state.experiment, state.generation) != (finish.experiment, finish.generation):
        return state
    if len(state.xi) != len(finish.theta) or not _same_past(state, finish):
        return state
    return corrected(state, finish)


def _same_past(state: ClientState, said: Acknowledged) -> bool:
    """Whether what the server says it averaged is what this site has applied, or holds to the bit."""
    if said.acked == state.round and state.acked < state.round:
        return said.acked_mark == mark(state.payload)
    return said.acked == state.acked


def corrected(state: ClientState, said: Acknowledged) -> ClientState:
    """xi with the acknowledgement and the shift applied, if they are not in it yet."""
    xi, residual = state.xi, state.residual
    if said.acked == state.round and state.acked < state.round:
        sent = state.start + said.acked_scale * state.delta
        xi = xi + said.acked_gain * (said.acked_mean - sent)  # keeps sum_c w_c xi_c = 0: all who were averaged do it
        residual = state.next_residual
    xi = xi + (said.shift - state.applied)
    return replace(state, xi=xi, residual=residual, acked=said.acked, applied=said.shift)


def _reply(state: ClientState) -> Reply:
    return Reply(state.experiment, state.generation, state.round, state.norm, state.payload)


def _refusal(work: Work, reason: str, text: str) -> Refusal:
    return Refusal(work.experiment, work.generation, work.round, reason, text)

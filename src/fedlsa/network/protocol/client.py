"""A site's side of a round, without network, files or clocks: client_step maps (state, work) to (state, answer).

The acknowledgement protocol, which keeps sum_c w_c xi_c = 0 whatever the wire does. A site keeps xi, the number of the
last round it answered, and what it sent. It does not correct xi when it answers: it cannot know whether the answer will
be averaged. With every order of work the server says which of this site's rounds it really averaged last (`acked`) and
the mean that came of it. Only if that is the round the site holds, and not yet applied, does the site do
xi <- xi + gain (mean - sent). So a reply that was lost, late, refused or not averaged never moves xi, and one that was
averaged moves it exactly once, even if site or server were dead in between: the site stores its state before its answer
leaves, the server stores its own before the next order leaves. xi stays at the site: the sum of all corrections is 0
whatever the server knows of them. Rows are drawn from the site's own secret and the label of the order: the same order
has the same answer, to the bit, and another order draws other rows.
If site and server remember different pasts (a lost disk, an old backup), the site says "forgot"; then all sites begin
again at xi = 0 with a new generation (server.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import numpy as np

from ...checks import Floats
from ...errors import MessageError
from .coding import Coding, Noise, encode, size_of
from .messages import Acknowledged, Finish, Finished, Refusal, Reply, Share, Work, mark
from .records import Stored
from .ring import VECTORS, Grid, masked, to_integers, to_share

# (theta, xi, eta, steps, label) -> theta_hat, all vectors (d,); what is drawn is a function of the order's label
LocalSteps = Callable[[Floats, Floats, float, int, bytes], Floats]
Vector = Annotated[Floats, "d"]


@dataclass(frozen=True, eq=False)
class ClientState(Stored):
    """What a site must not forget.

    round : the last one answered; order : the digest of its order; gain : of it
    start : (d,), its theta; delta : (d,), what the server reads of it in the sum
    acked : the last round whose correction is in xi
    residual, next_residual : (d,), rounding errors as of the last averaged reply, and as of `round` if it is averaged
    size, share : the answer to `round`, for when it is asked again
    """

    experiment: str
    generation: int
    round: int
    order: str
    acked: int
    gain: float
    size: float
    xi: Vector
    start: Vector
    delta: Vector
    residual: Vector
    next_residual: Vector
    share: Share

    @classmethod
    def fresh(cls, experiment: str, generation: int, dim: int) -> Self:
        """The state of a site that has not answered yet in this generation."""
        zero, none = np.zeros(dim), np.zeros((0, 1), np.int16)
        return cls(experiment, generation, 0, "", 0, 0.0, 0.0, zero, zero, zero, zero, zero, none)


@dataclass(frozen=True)
class SiteRun:
    """What a site knows of a run beside its state: who it is, how uploads are written, and with whom it shares masks.

    secrets : of each pair, by the other's name (ring.pair_secret); empty with plain aggregation; noise : where needed
    """

    name: str
    token: str
    local: LocalSteps
    coding: Coding = field(default_factory=Coding)
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    secure: bool = False
    noise: Noise | None = None

    def hidden(self, integers: list[int], limbs: int, members: tuple[str, ...], label: bytes) -> Share:
        """The share of these integers in a sum over the members."""
        share = to_share(integers, limbs)
        if not self.secure:
            return share
        if missing := [site for site in members if site != self.name and site not in self.secrets]:
            raise MessageError(f"'sites' must be sites of the run; {missing[0][:64]!r} is none")
        return masked(share, self.name, {site: self.secrets[site] for site in members if site != self.name}, label)


def client_step(state: ClientState | None, work: Work, run: SiteRun) -> tuple[ClientState | None, Reply | Refusal]:
    """Answer an order of work. The new state must be on disk before the answer leaves; None: nothing to store yet."""
    d, weight, order, label = len(work.theta), work.weight(run.name), work.label().hex(), work.label(run.token)
    if state is not None and (state.experiment != work.experiment or len(state.xi) != d):
        state = None
    if state is not None and work.generation == state.generation and work.round == state.round:
        if order == state.order:
            return state, _reply(state)  # asked again: the same answer, to the bit
        return state, _refusal(work, "forgot", "the server gives out a round again with another order")
    if state is not None and work.generation < state.generation:
        return state, _refusal(work, "forgot", "this site is in a later generation")
    if state is None or work.generation > state.generation:
        held = ClientState.fresh(work.experiment, work.generation, d)
    elif work.round < state.round:
        return state, _refusal(work, "stale", f"this site has answered round {state.round} already")
    else:
        held = state
    if not _same_past(held, work):
        return state, _refusal(
            work, "forgot", f"this site has no reply to round {work.acked} as the server averaged it"
        )
    held = corrected(held, work)
    theta_hat = np.asarray(run.local(work.theta, held.xi, work.eta, work.steps, label), np.float64)
    if theta_hat.shape != (d,) or not np.isfinite(theta_hat).all():
        return state, _refusal(work, "other", "the local steps left the range of floating-point numbers")
    grid = Grid(work.unit, work.limbs)
    upload = encode(theta_hat - work.theta, held.residual, weight, grid, work.clip, run.coding, run.noise)
    new = replace(
        held, round=work.round, order=order, gain=work.gain, start=work.theta,
        delta=upload.delta, next_residual=upload.residual,
        size=0.0 if run.coding.noise is not None else size_of(upload.delta),
        share=run.hidden(upload.integers, work.limbs, work.members, label),
    )  # fmt: skip
    return new, _reply(new)


def client_finish(state: ClientState | None, finish: Finish, run: SiteRun) -> tuple[ClientState | None, Finished]:
    """The state with the last acknowledgement applied, and the share of w_c xi_c; one of another past is left as it is.

    A site with another past has no part of the sum that the server could check: its share is that of a large number.
    """
    d, weight = len(finish.theta), finish.weight(run.name)
    known = state is not None and (state.experiment, state.generation) == (finish.experiment, finish.generation)
    xi = np.full(d, 2.0**32)
    if state is None or state.generation < finish.generation:
        xi = np.zeros(d)  # it took no part in this generation
    elif known and len(state.xi) == d and _same_past(state, finish):
        state = corrected(state, finish)
        xi = state.xi
    integers = to_integers((weight * xi).tolist(), VECTORS.unit)
    share = run.hidden(integers, VECTORS.limbs, finish.members, finish.label(run.token))
    return state, Finished(finish.experiment, share)


def _same_past(state: ClientState, said: Acknowledged) -> bool:
    """Whether what the server says it averaged is what this site has applied, or holds to the bit."""
    if state.acked < said.acked == state.round:
        return said.acked_mark == mark(state.share)
    return said.acked == state.acked


def corrected(state: ClientState, said: Acknowledged) -> ClientState:
    """xi with the acknowledgement applied, if it is not in it yet."""
    if not state.acked < said.acked == state.round:
        return state
    sent = state.start + state.delta
    xi = state.xi + state.gain * (said.acked_mean - sent)  # keeps sum_c w_c xi_c = 0: all who were averaged do it
    return replace(state, xi=xi, residual=state.next_residual, acked=said.acked)


def _reply(state: ClientState) -> Reply:
    return Reply(state.experiment, state.generation, state.round, state.order, state.size, state.share)


def _refusal(work: Work, reason: str, text: str) -> Refusal:
    return Refusal(work.experiment, work.generation, work.round, reason, text)

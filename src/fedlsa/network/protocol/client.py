"""A site's side of a round, without network, files or clocks: client_step maps (state, work) to (state, answer).

The acknowledgement protocol, which keeps sum_c w_c xi_c = 0 whatever the wire does. A site keeps xi, the number of the
last round it answered, and what it sent. It does not correct xi when it answers: it cannot know whether the answer will
be averaged. With every order of work the server says which round of each site it really averaged last (`acked`) and
the mean that came of it, to all sites the same. Only if that is the round the site holds, and not yet applied, it does
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
from ...errors import MessageError, PolicyError
from .messages import Acknowledged, Averaged, Finish, Finished, Refusal, Reply, Share, Work, mark, names_from
from .records import Stored
from .ring import MAX_ENTRY, MAX_THETA, VECTORS, Coding, Noise, encode, masked, to_integers, to_share, within

# (theta, xi, eta, steps, label) -> theta_hat, all vectors (d,); what is drawn is a function of the order's label
LocalSteps = Callable[[Floats, Floats, float, int, bytes], Floats]
Vector = Annotated[Floats, "d"]
MAX_PROPORTION = 2.0**20  # of what a control variate adds to the rows' part of an answer
ROUNDING = 1e-9  # relative, of products of step sizes and gains


@dataclass(frozen=True, eq=False)
class ClientState(Stored):
    """What a site must not forget.

    round : the last one answered; order : the digest of its order; gain : of it
    start : (d,), its theta; delta : (d,), what the server reads of it in the sum
    acked : the last round whose correction is in xi
    residual, next_residual : (d,), rounding errors as of the last averaged reply, and as of `round` if it is averaged
    eta : the step size of the run; members : of the sum of `round` (JSON); share : the answer, to be given again
    """

    experiment: str
    generation: int
    round: int
    order: str
    acked: int
    gain: float
    eta: float
    members: str
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
        return cls(experiment, generation, 0, "", 0, 0.0, 0.0, "[]", zero, zero, zero, zero, zero, none)


class OutOfProportionError(PolicyError):
    """A site's own part of an answer would be lost beside what the server has put into its control variate."""


@dataclass(frozen=True)
class SiteRun:
    """What a site knows of a run beside its state: who it is, how uploads are written, and with whom it shares masks.

    context : a digest of all that this site was told of the run: masks of sites that were told different things do not
        cancel; secrets : of each pair, by the other's name (ring.pair_secret); empty with plain aggregation
    noise : where it is needed; method : to which step sizes and gains are held
    """

    name: str
    context: str
    local: LocalSteps
    coding: Coding = field(default_factory=Coding)
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    secure: bool = False
    noise: Noise | None = None
    method: str = "scafflsa"

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
    d, weight, order, label = len(work.theta), work.weight(run.name), work.label().hex(), work.label(run.context)
    if state is not None and (state.experiment != work.experiment or len(state.xi) != d):
        state = None
    if state is not None and work.generation == state.generation and work.round == state.round:
        if order == state.order:
            return state, _reply(state)  # asked again: the same answer, to the bit
        return state, _refusal(work, "forgot", "the server gives out a round again with another order")
    if state is not None and work.generation < state.generation:
        return state, _refusal(work, "forgot", "this site is in a later generation")
    _check_order(state, work, run)
    if state is None or work.generation > state.generation:
        held = ClientState.fresh(work.experiment, work.generation, d)
    elif work.round < state.round:
        return state, _refusal(work, "stale", f"this site has answered round {state.round} already")
    else:
        held = state
    said = work.averaged(run.name)
    if not _same_past(held, work, said, run.secure):
        return state, _refusal(
            work, "forgot", f"this site has no reply to round {said.round} as the server averaged it"
        )
    held = corrected(held, said)
    with np.errstate(over="ignore", invalid="ignore"):
        delta = np.asarray(run.local(work.theta, held.xi, work.eta, work.steps, label), np.float64) - work.theta
    if run.secure and run.coding.noise is None:
        _check_proportion(delta, work.eta * work.steps * held.xi, run.coding.clip or MAX_ENTRY)
    upload = encode(delta, held.residual, weight, work.clip, run.coding, run.noise)
    new = replace(
        held, round=work.round, order=order, gain=work.gain, eta=work.eta, members=work.sites, start=work.theta,
        delta=upload.delta, next_residual=upload.residual,
        share=run.hidden(upload.integers, run.coding.grid.limbs, work.members, label),
    )  # fmt: skip
    return new, _reply(new)


def _check_order(state: ClientState | None, work: Work, run: SiteRun) -> None:
    """Refuse orders that no honest server gives: they would take one site's answer apart from the others'."""
    if run.secure and work.clip not in (0.0, run.coding.clip or 0.0):
        raise MessageError("'clip' must be that of the run's terms, or 0; it is another")
    if max(np.abs(work.theta).max(), np.abs(work.acked_mean).max(initial=0.0)) > MAX_THETA:
        raise MessageError(f"'theta' and 'acked_mean' must have entries of at most {MAX_THETA:g}")
    share = work.gain * work.eta  # 1 / H, or the probability of a communication
    right = {"fedlsa": share == 0, "scafflsa": abs(share * work.steps - 1) < ROUNDING, "scaffnew": 0 < share <= 1}
    if not right[run.method]:
        raise MessageError(f"'gain' must be that of {run.method}; got {work.gain:g}")
    if state is None or not state.eta:
        return
    if work.eta != state.eta or (run.method == "scaffnew" and abs(share - state.gain * state.eta) > ROUNDING * share):
        raise MessageError("'eta' and 'gain' must stay as they were in the run's first round; they are others")


def _check_proportion(delta: Floats, steered: Floats, longest: float) -> None:
    """Refuse an answer in which the rows' part is lost: it would hide nobody.

    Beside what the control variate adds, or because so long a change would be cut to a vector that all know.
    """
    if not np.linalg.norm(delta) <= longest:
        raise OutOfProportionError(f"this site's change is longer than {longest:.3g}, or beyond all numbers")
    own = float(np.linalg.norm(delta - steered))
    if 0 < own < float(np.linalg.norm(steered)) / MAX_PROPORTION:
        raise OutOfProportionError("the server's control variate is out of proportion to this site's data")


def client_finish(state: ClientState | None, finish: Finish, run: SiteRun) -> tuple[ClientState, Finished]:
    """The state with the last acknowledgement applied, and the share of w_c xi_c.

    A site of another past has no part in this sum, so that it cannot be read: that is a MessageError.
    """
    d, weight, said = len(finish.theta), finish.weight(run.name), finish.averaged(run.name)
    if state is None or state.generation < finish.generation or len(state.xi) != d:
        state = ClientState.fresh(finish.experiment, finish.generation, d)  # it took no part in this generation
    if state.experiment != finish.experiment or not _same_past(state, finish, said, run.secure):
        raise MessageError("'acked' must be what this site remembers; it is not")
    state = corrected(state, said)
    integers = within(to_integers((weight * state.xi).tolist(), VECTORS.unit), VECTORS.limbs)
    share = run.hidden(integers, VECTORS.limbs, finish.members, finish.label(run.context))
    return state, Finished(finish.experiment, share)


def _same_past(state: ClientState, order: Acknowledged, said: Averaged, secure: bool) -> bool:
    """Whether what the server says it averaged is what this site has applied, or holds to the bit.

    A masked sum is read as a whole or not at all: who was in the sum of this site's last answer was averaged with it.
    """
    if order.generation != state.generation:
        return False
    if secure and state.acked < state.round:
        together = set(names_from(state.members, "sites"))
        rounds = {int(acked) for acked, site in zip(order.acked, order.members, strict=True) if site in together}
        if state.round in rounds and said.round != state.round:
            return False
    if state.acked < said.round == state.round:
        return said.mark == mark(state.share)
    return said.round == state.acked


def corrected(state: ClientState, said: Averaged) -> ClientState:
    """xi with the acknowledgement applied, if it is not in it yet."""
    if not state.acked < said.round == state.round:
        return state
    sent = state.start + state.delta
    xi = state.xi + state.gain * (said.mean - sent)  # keeps sum_c w_c xi_c = 0: all who were averaged do it
    return replace(state, xi=xi, residual=state.next_residual, acked=said.round)


def _reply(state: ClientState) -> Reply:
    return Reply(state.experiment, state.generation, state.round, state.order, state.share)


def _refusal(work: Work, reason: str, text: str) -> Refusal:
    return Refusal(work.experiment, work.generation, work.round, reason, text)

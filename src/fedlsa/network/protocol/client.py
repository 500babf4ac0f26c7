"""A site's side of a round, without network, files or clocks: client_step maps (state, work) to (state, answer).

The acknowledgement protocol, which keeps sum_c w_c xi_c = 0 whatever the wire does. A site keeps xi, the number of the
last round it answered, and what it sent. It does not correct xi when it answers: it cannot know whether the answer will
be averaged. Every order brings the entries of the run's transcript (messages.py) that its sites may not know, what
was really averaged, to all sites the same. Only where an entry is about the very order that the site holds an answer
to, it does xi <- xi + gain (mean - sent). So a reply that was lost, late, refused or not averaged never moves xi, and
one that was averaged moves it exactly once, even if site or server were dead in between: the site stores its state
before its answer leaves, the server stores its own before the next order leaves. xi stays at the site: the sum of all
corrections is 0 whatever the server knows of them. Rows are drawn from the site's own secret and the label of the
order: the same order has the same answer, to the bit, and another order draws other rows.
If site and server remember different pasts (a lost disk, an old backup, a server that lies), the site says "forgot";
then all sites begin again at xi = 0 with a new generation (server.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Self

import numpy as np
from msgspec.structs import replace

from ...checks import Floats
from ...errors import MessageError, PolicyError
from . import messages
from .codec import Struct
from .messages import ORIGIN, Average, Continued, Finish, Finished, Refusal, Reply, Share, Work
from .ring import MAX_ENTRY, MAX_THETA, VECTORS, Coding, Noise, encode, masked, to_integers, to_share, within

# (theta, xi, eta, steps, label) -> theta_hat, all vectors (d,); what is drawn is a function of the order's label
LocalSteps = Callable[[Floats, Floats, float, int, bytes], Floats]
Vector = Annotated[Floats, "d"]
MAX_PROPORTION = 2.0**20  # of what a control variate adds to the rows' part of an answer
ROUNDING = 1e-9  # relative, of products of step sizes and gains


class ClientState(Struct, frozen=True):
    """What a site must not forget.

    head, folded, told : of the transcript of this generation: its head, how many entries it has, the last one's round
    round : the last one answered; order : the digest of its order; sites : of its sum; gain : of it
    start : (d,), its theta; delta : (d,), what the server reads of it in the sum
    residual, next_residual : (d,), rounding errors as of the last averaged reply, and as of `round` if it is averaged
    eta : the step size of the run; share : the answer, to be given again
    """

    experiment: str
    generation: int
    head: bytes
    folded: int
    told: int
    round: int
    order: str
    sites: tuple[str, ...]
    gain: float
    eta: float
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
        return cls(experiment, generation, ORIGIN, 0, 0, 0, "", (), 0.0, 0.0, zero, zero, zero, zero, zero, none)


class ForgotError(MessageError):
    """Site and server remember different pasts."""


@dataclass(frozen=True)
class SiteRun:
    """What a site knows of a run beside its state: who it is, how uploads are written, and with whom it shares masks.

    sites : all of the run, in one order
    context : a digest of all that this site was told of the run: masks of sites that were told different things do not
        cancel; secrets : of each pair, by the other's name (ring.pair_secret); empty with plain aggregation
    noise : where it is needed; method : to which step sizes and gains are held
    """

    name: str
    sites: tuple[str, ...]
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
    d, weight, order = len(work.theta), work.weight(run.name), work.label().hex()
    if state is not None and (state.experiment != work.experiment or len(state.xi) != d):
        state = None
    if state is not None and work.generation == state.generation and work.round == state.round:
        if order == state.order:
            return state, _reply(state)  # asked again: the same answer, to the bit
        return state, _refusal(work, "forgot", "the server gives out a round again with another order")
    if state is not None and work.generation < state.generation:
        return state, _refusal(work, "forgot", "this site is in a later generation")
    _check_order(state, work, run)
    if state is not None and work.generation == state.generation and work.round < state.round:
        return state, _refusal(work, "stale", f"this site has answered round {state.round} already")
    try:
        held = brought_up_to_date(state, work, run)
    except ForgotError as error:
        return state, _refusal(work, "forgot", str(error))
    label = work.label(run.context, held.head)
    with np.errstate(over="ignore", invalid="ignore"):
        delta = np.asarray(run.local(work.theta, held.xi, work.eta, work.steps, label), np.float64) - work.theta
    if run.secure and run.coding.noise is None:
        _check_proportion(delta, work.eta * work.steps * held.xi, run.coding.clip or MAX_ENTRY)
    upload = encode(delta, held.residual, weight, work.clip, run.coding, run.noise)
    new = replace(
        held, round=work.round, order=order, gain=work.gain, eta=work.eta, sites=work.sites, start=work.theta,
        delta=upload.delta, next_residual=upload.residual,
        share=run.hidden(upload.integers, run.coding.grid.limbs, work.sites, label),
    )  # fmt: skip
    return new, _reply(new)


def new_entries(state: ClientState | None, order: Continued, sites: tuple[str, ...]) -> tuple[list[Average], bytes]:
    """The entries of an order that the site does not know, and the transcript's head after them; state : of the order's
    generation, None before the first order of it; sites : all of the run"""
    head, folded = (ORIGIN, 0) if state is None else (state.head, state.folded)
    known, at = folded - order.since, order.base
    if not 0 <= known <= len(order.entries):
        raise ForgotError(f"this site knows {folded} averages of this generation, and is told others")
    for row in order.entries[:known]:
        at = messages.extend(at, row)
    if at != head:
        raise ForgotError("what was averaged, as the server tells it now, is not what it told before")
    for row in order.entries[known:]:
        at = messages.extend(at, row)
    return [messages.from_row(row, sites) for row in order.entries[known:]], at


def brought_up_to_date(state: ClientState | None, order: Continued, run: SiteRun) -> ClientState:
    """The state with all that was averaged folded in, and xi corrected; another past is a ForgotError."""
    if state is None or state.generation < order.generation or len(state.xi) != len(order.theta):
        state = None
    held = state or ClientState.fresh(order.experiment, order.generation, len(order.theta))
    if held.generation != order.generation:
        raise ForgotError("this site is in a later generation")
    entries, head = new_entries(state, order, run.sites)
    for entry in entries:
        held_order = entry.order.hex() == held.order
        if entry.round <= held.told:
            raise ForgotError(f"round {entry.round} must come after round {held.told}, which was averaged before")
        if run.secure and held_order and {*entry.sites} != {*held.sites}:  # such a sum is read as a whole or not at all
            raise ForgotError(f"round {entry.round} must be over all sites of its sum; it is over others")
        if run.name in entry.sites:
            if not (held_order and entry.round == held.round):
                raise ForgotError(f"this site has no reply to round {entry.round} as the server averaged it")
            held = _corrected(held, entry, order, run.name)
        held = replace(held, told=entry.round)
    return replace(held, head=head, folded=held.folded + len(entries))


def _corrected(state: ClientState, entry: Average, order: Continued, name: str) -> ClientState:
    """xi with the average of this site's last answer in it."""
    mean = order.mean(entry.round)
    if mean is None or messages.digest_of_mean(mean) != entry.mean:
        raise MessageError(f"'means' must hold that of round {entry.round}, as its entry has it")
    if int(order.marks[order.sites.index(name)]) != messages.mark(state.share):
        raise ForgotError(f"another answer of this site than it holds was averaged in round {entry.round}")
    sent = state.start + state.delta
    xi = state.xi + state.gain * (mean - sent)  # keeps sum_c w_c xi_c = 0: all who were averaged do it
    return replace(state, xi=xi, residual=state.next_residual)


def _check_order(state: ClientState | None, work: Work, run: SiteRun) -> None:
    """Refuse orders that no honest server gives: they would take one site's answer apart from the others'."""
    if run.secure and work.clip not in (0.0, run.coding.clip or 0.0):
        raise MessageError("'clip' must be that of the run's terms, or 0; it is another")
    if max(np.abs(work.theta).max(), np.abs(work.means).max(initial=0.0)) > MAX_THETA:
        raise MessageError(f"'theta' and 'means' must have entries of at most {MAX_THETA:g}")
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
        raise PolicyError(f"this site's change is longer than {longest:.3g}, or beyond all numbers")
    own = float(np.linalg.norm(delta - steered))
    if 0 < own < float(np.linalg.norm(steered)) / MAX_PROPORTION:
        raise PolicyError("the server's control variate is out of proportion to this site's data")


def client_finish(state: ClientState | None, finish: Finish, run: SiteRun) -> tuple[ClientState, Finished]:
    """The state with the last averages in it, and the share of w_c xi_c.

    A site of another past has no part in this sum, so that it cannot be read: that is a ForgotError.
    """
    weight = finish.weight(run.name)
    if state is not None and state.experiment != finish.experiment:
        raise ForgotError("this site holds the state of another run")
    state = brought_up_to_date(state, finish, run)
    integers = within(to_integers((weight * state.xi).tolist(), VECTORS.unit), VECTORS.limbs)
    share = run.hidden(integers, VECTORS.limbs, finish.sites, finish.label(run.context, state.head))
    return state, Finished(finish.experiment, share)


def _reply(state: ClientState) -> Reply:
    return Reply(state.experiment, state.generation, state.round, state.order, state.share)


def _refusal(work: Work, reason: str, text: str) -> Refusal:
    return Refusal(work.experiment, work.generation, work.round, reason, text)

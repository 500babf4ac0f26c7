"""What sites and server say to each other: small frozen dataclasses, carried as records (records.py).

`from_record` trusts nothing: a field that is missing, unknown, of another type, shape or range is a MessageError.

    server: Describe     Standardise  Measure      Work              Finish
    site:   Description  Sums         Measurement  Reply or Refusal  Finished

Every vector that leaves a site is a share (ring.py): with secure aggregation it says nothing by itself, and the server
learns the sum over the sites of the order. All sites of a sum get the same order, and its digest labels their masks:
sites that are told different things have masks that do not cancel.
An answer bears the receipt of the site's ledger, a text of the site's own that the server keeps for it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from ...checks import Floats
from ...errors import MessageError
from .agreed_design import AgreedDesign
from .records import Integers, Message, Record, structure
from .ring import Limbs

Vector = Annotated[Floats, "d"]
Columns = Annotated[Floats, "columns"]
Weights = Annotated[Floats, "m"]
Share = Annotated[Limbs, np.int16, "n", "limbs"]


def names_from(text: str, what: str) -> tuple[str, ...]:
    """A JSON list of texts, at least one."""
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if type(names) is not list or not names or any(type(name) is not str for name in names):
        raise MessageError(f"{what!r} must be a JSON list of texts")
    return tuple(names)


def mark(share: Limbs) -> int:
    """A number that tells shares apart: with it the server says which answer, to the bit, it averaged."""
    return int.from_bytes(hashlib.blake2b(share.tobytes(), digest_size=6).digest(), "big")


@dataclass(frozen=True, eq=False)
class Describe(Message):
    """Asks for what the data are; terms : JSON, what the run is (run_settings.py)."""

    terms: str


@dataclass(frozen=True, eq=False)
class Description(Message):
    """Rows; design : columns of the features, and levels of those that are categories (agreed_design.py)."""

    rows: int
    design: str
    receipt: str = ""

    def check(self) -> None:
        if self.rows < 1:
            raise MessageError(f"'rows' must be positive; got {self.rows}")
        AgreedDesign.from_text(self.design)


@dataclass(frozen=True, eq=False)
class Summed(Message):
    """Base of orders that are answered with a share of a sum.

    sites : JSON list of those in the sum; weights : (m,), their weights, in this order
    """

    sites: str
    weights: Weights

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The sites of the sum."""
        return names_from(self.sites, "sites")

    def weight(self, site: str) -> float:
        """The weight of a site; one that is not in the sum is a MessageError."""
        if site not in self.members:
            raise MessageError(f"'sites' must name this site, {site}; they do not")
        return float(self.weights[self.members.index(site)])

    def label(self, context: str = "") -> bytes:
        """A digest of the order; with the context of the run (SiteRun) it is the label of the masks."""
        digest = hashlib.sha256(context.encode() + b"\n")
        record = self.record()
        for name, value in sorted({**record.meta, **record.arrays}.items()):
            content = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
            digest.update(f"{name} {getattr(value, 'shape', '')} {len(content)} ".encode() + content)
        return digest.digest()

    def check(self) -> None:
        members = self.members
        if len(set(members)) < len(members) or self.weights.shape != (len(members),):
            raise MessageError("'sites' must be different names with a weight each")
        if not (self.weights > 0).all() or self.weights.sum() > 1 + 1e-9:
            raise MessageError("'weights' must be above 0 and sum to at most 1")


@dataclass(frozen=True, eq=False)
class Standardise(Summed):
    """Asks for the sums from which the run's coordinates follow (agreed_design.py); design : agreed by all sites."""

    design: str


@dataclass(frozen=True, eq=False)
class Sums(Message):
    """A share of the sums that were asked for."""

    share: Share
    receipt: str = ""


@dataclass(frozen=True, eq=False)
class Measure(Summed):
    """The coordinates of the run (centre, spread : (k,)) and of what they are (agreed_design.py).

    moments : whether A_c, b_c and noise are asked for
    """

    design: str
    centre: Columns
    spread: Columns
    y_centre: float
    y_spread: float
    intercept: bool
    moments: bool


@dataclass(frozen=True, eq=False)
class Measurement(Message):
    """A share of the sums from which a plan follows (agreed_design.py); moments only from a site that shares them.

    least_steps, largest_eta : what the site's policy asks of local steps; 0 for any step size
    A : (d, d), b : (d,), noise_map : (d (d + 1) / 2, (d + 1) (d + 2) / 2), as in theory/problem_moments.py
    """

    rows: int
    least_steps: int
    largest_eta: float
    share: Share
    A: Annotated[Floats, "d", "d"] | None = None
    b: Annotated[Floats, "d"] | None = None
    noise_map: Annotated[Floats, "rows", "columns"] | None = None
    receipt: str = ""

    def check(self) -> None:
        if self.rows < 1 or self.least_steps < 1 or self.largest_eta < 0:
            raise MessageError("'rows' and 'least_steps' must be positive, 'largest_eta' at least 0")
        if len({self.A is None, self.b is None, self.noise_map is None}) > 1:
            raise MessageError("'A', 'b' and 'noise_map' must come together")
        if self.b is not None and self.noise_map is not None:
            d = len(self.b)
            if self.noise_map.shape != (d * (d + 1) // 2, (d + 1) * (d + 2) // 2):
                raise MessageError(f"'noise_map' does not fit d = {d}; got shape {self.noise_map.shape}")


@dataclass(frozen=True, eq=False)
class Averaged:
    """What the server last averaged of a site: the round, 0 if none; the theta that came of it; the share's mark."""

    round: int
    mean: Floats
    mark: int


@dataclass(frozen=True, eq=False)
class Acknowledged(Summed):
    """What the server last averaged of each site of the sum, so that sites can correct xi (client.py).

    generation : of all control variates of the run; a new one begins at xi = 0
    acked, acked_mark : (m,), the round of this generation that was last averaged of each, 0 if none, and its mark
    acked_round : (k,), the rounds among them, in increasing order; acked_mean : (k, d), the theta that came of each
    """

    generation: int
    theta: Vector
    acked: Annotated[Integers, np.int64, "m"]
    acked_mark: Annotated[Integers, np.int64, "m"]
    acked_round: Annotated[Integers, np.int64, "k"]
    acked_mean: Annotated[Floats, "k", "d"]

    def averaged(self, site: str) -> Averaged:
        """What was last averaged of a site."""
        index = self.members.index(site)
        round_ = int(self.acked[index])
        mean = self.acked_mean[self.acked_round == round_][0] if round_ else np.zeros_like(self.theta)
        return Averaged(round_, mean, int(self.acked_mark[index]))

    def check(self) -> None:
        super().check()
        if (self.acked < 0).any() or self.acked_round.tolist() != sorted({*self.acked.tolist()} - {0}):
            raise MessageError("'acked_round' must be the rounds of 'acked', each once; they are not")


@dataclass(frozen=True, eq=False)
class Work(Acknowledged):
    """A round's order: `steps` local steps from theta with step size eta.

    gain : of the correction, should the answer be averaged; clip : longest change that may be sent, 0 for any
    """

    round: int
    eta: float
    steps: int
    gain: float
    clip: float

    def check(self) -> None:
        super().check()
        if self.round < 1 or self.steps < 1 or self.eta <= 0:
            raise MessageError("'round', 'steps' and 'eta' must be positive")
        if self.gain < 0 or self.clip < 0:
            raise MessageError("'gain' and 'clip' must be at least 0")
        if (self.acked >= self.round).any():
            raise MessageError(f"'acked' must be below 'round', {self.round}; got {self.acked.max()}")


@dataclass(frozen=True, eq=False)
class Reply(Message):
    """A share of w_c (theta_hat_c - theta).

    order : the digest of what was answered (Summed.label), for shares to different orders have no sum
    """

    generation: int
    round: int
    order: str
    share: Share
    receipt: str = ""


REASONS = ("stale", "forgot", "data", "policy", "approval", "other")


@dataclass(frozen=True, eq=False)
class Refusal(Message):
    """A site's no.

    "stale": an old round; "forgot": site and server remember different pasts; "data": the site cannot read its data or
    does not know the run; "policy": its policy forbids it; "approval": a person has to allow the run first; "other"
    """

    generation: int
    round: int
    reason: str
    text: str
    receipt: str = ""

    def check(self) -> None:
        if self.reason not in REASONS:
            raise MessageError(f"'reason' must be one of {', '.join(REASONS)}; got {self.reason[:40]!r}")


@dataclass(frozen=True, eq=False)
class Finish(Acknowledged):
    """The run is over: the estimate theta in the run's coordinates, and names (JSON list) of its coefficients."""

    names: str


@dataclass(frozen=True, eq=False)
class Finished(Message):
    """A site has noted the end; share : of w_c xi_c, whose sum over the sites of the order must be 0."""

    share: Share
    receipt: str = ""


ORDERS: tuple[type[Message], ...] = (Describe, Standardise, Measure, Work, Finish)
ANSWERS: tuple[type[Message], ...] = (Description, Sums, Measurement, Reply, Refusal, Finished)


def read(record: object, kinds: tuple[type[Message], ...] = ORDERS) -> Message:
    """The message of one of these kinds that a record holds."""
    kind = structure(record).kind
    known = {one.KIND: one for one in kinds}
    if kind not in known:
        raise MessageError(f"'kind' must be one of {', '.join(known)}; got {kind[:40]!r}")
    return known[kind].from_record(record)


def with_receipt(answer: Any, receipt: str) -> Record:
    """An answer as a record, with the receipt of the site's ledger."""
    return replace(answer, receipt=receipt).record()

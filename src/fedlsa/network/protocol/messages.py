"""What sites and server say to each other: frozen structs, written and strictly read by codec.py.

    server: Describe     Standardise  Measure      Work              Solve  Score  Finish
    site:   Description  Sums         Measurement  Reply or Refusal  Sums   Sums   Finished

Every vector that leaves a site is a share (ring.py): with secure aggregation it says nothing by itself, and the server
learns the sum over the sites of the order. All sites of a sum get the same order. Its digest and the head of the run's
transcript label their masks: sites that are told different things have masks that do not cancel.
An answer bears the receipt of the site's ledger, a text of the site's own that the server keeps for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from ...checks import Floats
from ...errors import MessageError
from .agreed_design import AgreedDesign
from .codec import Bytes, Integers, Message, encode
from .ring import Limbs
from .run_settings import RunTerms

# What was averaged in a run, as one chain of hashes that all its sites hold: masks are bound to its head.
#
# An exact sum hides a site only if all sites of the sum have the same past, for an answer depends on the control
# variate, and that on what was averaged before. A coordinator that tells one site of a round that nobody else took part
# in would steer this site's control variate alone, and read its own part from the next sums. So every site folds every
# average of a run (its generation of control variates) into a chain, those in which it took no part too, and the label
# of a mask holds the chain's head: sites whose pasts differ have masks that do not cancel, and the sum is noise.
#
# An entry is what all must agree on: the round, the digest of its order (theta, step size, sites, weights), the digest
# of the mean that came of it, and who was averaged, a bit for each site of the run. Its row of bytes is what is hashed.

DIGEST = 32  # bytes of a SHA-256
FIXED = 8 + 2 * DIGEST  # bytes of an entry before the bits of its sites
ORIGIN = bytes(DIGEST)  # the head before the first entry


class Average(NamedTuple):
    """One average. order, mean : digests of its order, and of the theta that came of it; sites : who was averaged."""

    round: int
    order: bytes
    mean: bytes
    sites: tuple[str, ...]


def width(sites: int) -> int:
    """Bytes of an entry in a run of so many sites."""
    return FIXED + (sites + 7) // 8


def to_row(entry: Average, sites: Sequence[str]) -> Bytes:
    """The bytes of an entry; sites : all of the run, in one order."""
    fixed = entry.round.to_bytes(8, "big") + entry.order + entry.mean
    return np.append(np.frombuffer(fixed, np.uint8), np.packbits(np.isin(list(sites), list(entry.sites))))


def from_row(row: Bytes, sites: Sequence[str]) -> Average:
    """The entry of a row; one of another run is a MessageError."""
    if len(row) != width(len(sites)):
        raise MessageError(f"'entries' must have {width(len(sites))} bytes each; got {len(row)}")
    content, bits = row[:FIXED].tobytes(), np.unpackbits(row[FIXED:])
    if bits[len(sites) :].any():
        raise MessageError("'entries' must be about the sites of the run; one is not")
    members = tuple(site for site, there in zip(sites, bits[: len(sites)], strict=True) if there)
    return Average(int.from_bytes(content[:8], "big"), content[8:40], content[40:], members)


def extend(head: bytes, row: Bytes) -> bytes:
    """The head after one more entry."""
    return hashlib.sha256(head + row.tobytes()).digest()


def digest_of_mean(mean: Floats) -> bytes:
    """Of a vector (d,), to the bit."""
    return hashlib.sha256(mean.astype("<f8").tobytes()).digest()


Share = Annotated[Limbs, "n", "limbs"]


def mark(share: Limbs) -> int:
    """A number that tells shares apart: with it the server says which answer, to the bit, it averaged."""
    return int.from_bytes(hashlib.blake2b(share.tobytes(), digest_size=6).digest(), "big")


class Order(Message, frozen=True):
    """Base of what the server says."""


class Answer(Message, frozen=True, kw_only=True):
    """Base of what a site says."""

    receipt: str = ""


class Describe(Order, frozen=True):
    """Asks for what the data are; terms : what the run is (run_settings.py)."""

    terms: RunTerms


class Description(Answer, frozen=True):
    """Rows; design : columns of the features, and levels of those that are categories (agreed_design.py)."""

    rows: int
    design: AgreedDesign

    def check(self) -> None:
        if self.rows < 1:
            raise MessageError(f"'rows' must be positive; got {self.rows}")


class Summed(Order, frozen=True):
    """Base of orders that are answered with a share of a sum.

    sites : those in the sum; weights : (m,), their weights, in this order
    """

    sites: tuple[str, ...]
    weights: Annotated[Floats, "m"]

    def weight(self, site: str) -> float:
        """The weight of a site; one that is not in the sum is a MessageError."""
        if site not in self.sites:
            raise MessageError(f"'sites' must name this site, {site}; they do not")
        return float(self.weights[self.sites.index(site)])

    def label(self, context: str = "", head: bytes = b"") -> bytes:
        """A digest of the order; with the context of the run (SiteRun) and its transcript's head, of the masks."""
        return hashlib.sha256(context.encode() + b"\n" + head + encode(self)).digest()

    def check(self) -> None:
        if not self.sites or len({*self.sites}) < len(self.sites) or self.weights.shape != (len(self.sites),):
            raise MessageError("'sites' must be different names with a weight each")
        if not (self.weights > 0).all() or self.weights.sum() > 1 + 1e-9:
            raise MessageError("'weights' must be above 0 and sum to at most 1")


class Standardise(Summed, frozen=True):
    """Asks for the sums from which the run's coordinates follow (agreed_design.py); design : agreed by all sites."""

    design: AgreedDesign


class Sums(Answer, frozen=True):
    """A share of the sums that were asked for."""

    share: Share


class Measure(Summed, frozen=True):
    """The coordinates of the run (centre, spread : (k,)) and of what they are (agreed_design.py)."""

    design: AgreedDesign
    centre: Annotated[Floats, "columns"]
    spread: Annotated[Floats, "columns"]
    y_centre: float
    y_spread: float
    intercept: bool


class Measurement(Answer, frozen=True):
    """A share of the sums from which a plan follows (agreed_design.py); moments only from a site that shares them.

    least_steps, largest_eta : what the site's policy asks of local steps; 0 for any step size
    scores : whether it takes part in sums of d x d numbers, for standard errors
    A : (d, d), b : (d,), noise_map : (d (d + 1) / 2, (d + 1) (d + 2) / 2), as in theory/problem_moments.py
    """

    rows: int
    least_steps: int
    largest_eta: float
    share: Share
    A: Annotated[Floats, "d", "d"] | None = None
    b: Annotated[Floats, "d"] | None = None
    noise_map: Annotated[Floats, "rows", "columns"] | None = None
    scores: bool = False

    def check(self) -> None:
        if self.rows < 1 or self.least_steps < 1 or self.largest_eta < 0:
            raise MessageError("'rows' and 'least_steps' must be positive, 'largest_eta' at least 0")
        if len({self.A is None, self.b is None, self.noise_map is None}) > 1:
            raise MessageError("'A', 'b' and 'noise_map' must come together")
        if self.b is not None and self.noise_map is not None:
            d = len(self.b)
            if self.noise_map.shape != (d * (d + 1) // 2, (d + 1) * (d + 2) // 2):
                raise MessageError(f"'noise_map' does not fit d = {d}; got shape {self.noise_map.shape}")


class Continued(Summed, frozen=True):
    """Base of orders of a run that has begun: what was averaged since the sites of the sum were last told.

    generation : of all control variates of the run, and of its transcript; a new one begins at xi = 0
    entries : (k, bytes), those of the transcript after the first `since`; base : the head before them
    marks : (m,), of the answer that was last averaged of each site, 0 if none
    rounds, means : (n,) and (n, d), the theta that came of those averages, for sites that correct xi with it
    """

    generation: int
    theta: Annotated[Floats, "d"]
    since: int
    base: bytes
    entries: Annotated[Bytes, "k", "bytes"]
    marks: Annotated[Integers, "m"]
    rounds: Annotated[Integers, "n"]
    means: Annotated[Floats, "n", "d"]

    def check(self) -> None:
        super().check()
        if len(self.base) != DIGEST or self.rounds.tolist() != sorted({*self.rounds.tolist()}):
            raise MessageError(f"'base' must have {DIGEST} bytes, and 'rounds' must increase")

    def mean(self, round_: int) -> Floats | None:
        """The theta that came of a round; None where the order does not tell."""
        found = self.means[self.rounds == round_]
        return found[0] if len(found) else None


class Work(Continued, frozen=True):
    """A round's order: `steps` local steps from theta with step size eta.

    gain : of the correction, should the answer be averaged; clip : longest change that may be sent, 0 for any
    target : what theta is to be: 0 the coefficients; k the direction of the k-th one whose error the terms ask for, the
        solution of A^T theta = c (fitting/covariance.py)
    """

    round: int
    eta: float
    steps: int
    gain: float
    clip: float
    target: int = 0

    def check(self) -> None:
        super().check()
        if self.round < 1 or self.steps < 1 or self.eta <= 0:
            raise MessageError("'round', 'steps' and 'eta' must be positive")
        if self.gain < 0 or self.clip < 0:
            raise MessageError("'gain' and 'clip' must be at least 0")


class Reply(Answer, frozen=True):
    """A share of w_c (theta_hat_c - theta).

    order : the digest of what was answered (Summed.label), for shares to different orders have no sum
    """

    generation: int
    round: int
    order: str
    share: Share


REASONS = ("stale", "forgot", "data", "policy", "approval", "other")


class Refusal(Answer, frozen=True):
    """A site's no.

    "stale": an old round; "forgot": site and server remember different pasts; "data": the site cannot read its data or
    does not know the run; "policy": its policy forbids it; "approval": a person has to allow the run first; "other"
    """

    generation: int
    round: int
    reason: str
    text: str

    def check(self) -> None:
        if self.reason not in REASONS:
            raise MessageError(f"'reason' must be one of {', '.join(REASONS)}; got {self.reason[:40]!r}")


class Solve(Continued, frozen=True):
    """Asks for sums of the sites' systems, and of gradients at theta (fitting/covariance.py)."""


class Score(Continued, frozen=True):
    """Asks for sums of scores at theta, along `directions`; A, spread : as in fitting/covariance.py."""

    directions: Annotated[Floats, "q", "d"]
    A: Annotated[Floats, "d", "d"] | None = None
    spread: Annotated[Floats, "d", "d"] | None = None


class Finish(Continued, frozen=True):
    """The run is over: the estimate theta in the run's coordinates, and names of its coefficients."""

    names: tuple[str, ...]


class Finished(Answer, frozen=True):
    """A site has noted the end; share : of w_c xi_c, whose sum over the sites of the order must be 0."""

    share: Share


Orders = Describe | Standardise | Measure | Work | Solve | Score | Finish
Answers = Description | Sums | Measurement | Reply | Refusal | Finished

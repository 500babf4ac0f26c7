"""What sites and server say to each other: small frozen dataclasses, carried as records (records.py).

`from_record` trusts nothing: a field that is missing, unknown, of another type, shape or range is a MessageError.

    server: Describe     Measure      Work              Finish
    site:   Description  Measurement  Reply or Refusal  Finished
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from ...checks import Floats
from ...errors import MessageError
from .records import Message, Payload, structure


@dataclass(frozen=True, eq=False)
class Describe(Message):
    """Asks for what the columns are; task : JSON."""

    task: str


@dataclass(frozen=True, eq=False)
class Description(Message):
    """Rows, names of coefficients (JSON list), and the summary (fit/site_sums.py) where the task standardises.

    mean, scatter, largest : (k + 1,), of length 0 where the task does not standardise
    """

    rows: int
    names: str
    mean: Annotated[Floats, "k"]
    scatter: Annotated[Floats, "k"]
    largest: Annotated[Floats, "k"]

    def check(self) -> None:
        if self.rows < 1:
            raise MessageError(f"'rows' must be positive; got {self.rows}")
        try:
            names = json.loads(self.names)
        except (ValueError, RecursionError):
            names = None
        if type(names) is not list or not names or any(type(n) is not str for n in names):
            raise MessageError("'names' must be a JSON list of texts")
        if (self.scatter < 0).any() or (self.largest < 0).any():
            raise MessageError("'scatter' and 'largest' must be at least 0")


@dataclass(frozen=True, eq=False)
class Measure(Message):
    """The coordinates of the run (centre, spread : (k,)); moments : whether A_c, b_c and noise are asked for."""

    centre: Annotated[Floats, "k"]
    spread: Annotated[Floats, "k"]
    y_centre: float
    y_spread: float
    intercept: bool
    moments: bool


@dataclass(frozen=True, eq=False)
class Measurement(Message):
    """Three scalars for planning; moments only from a site that shares them.

    lowest, highest : extreme eigenvalues of the symmetric part of A_c
    noise : trace of the covariance of A(z) theta - b(z), the larger of that at the site's own solution and at 0
    A : (d, d), b : (d,), noise_map : (d (d + 1) / 2, (d + 1) (d + 2) / 2), as in theory/moments.py
    """

    rows: int
    lowest: float
    highest: float
    noise: float
    A: Annotated[Floats, "d", "d"] | None = None
    b: Annotated[Floats, "d"] | None = None
    noise_map: Annotated[Floats, "rows", "columns"] | None = None

    def check(self) -> None:
        if self.rows < 1 or self.noise < 0 or self.lowest > self.highest:
            raise MessageError("'rows' must be positive, 'noise' at least 0, 'lowest' at most 'highest'")
        if len({self.A is None, self.b is None, self.noise_map is None}) > 1:
            raise MessageError("'A', 'b' and 'noise_map' must come together")
        if self.b is not None and self.noise_map is not None:
            d = len(self.b)
            if self.noise_map.shape != (d * (d + 1) // 2, (d + 1) * (d + 2) // 2):
                raise MessageError(f"'noise_map' does not fit d = {d}; got shape {self.noise_map.shape}")


@dataclass(frozen=True, eq=False)
class Acknowledged(Message):
    """What the server last averaged of this site, so that the site can correct xi (client.py).

    generation : of the site's control variate; a new one begins at xi = 0
    acked : the round; 0 if none yet. Then acked_mean : (d,) is what came of it, acked_gain the gain of the correction,
        acked_scale the factor by which the server shortened the reply, acked_mark the mark of the reply (coding.py)
    shift : (d,), what those who left have left to xi since the generation began
    """

    generation: int
    theta: Annotated[Floats, "d"]
    acked: int
    acked_mean: Annotated[Floats, "d"]
    acked_gain: float
    acked_scale: float
    acked_mark: int
    shift: Annotated[Floats, "d"]


@dataclass(frozen=True, eq=False)
class Work(Acknowledged):
    """A round's order: `steps` local steps from theta with step size eta, on observations step, step + 1, ..."""

    round: int
    eta: float
    steps: int
    step: int
    seed: int
    agent: int

    def check(self) -> None:
        if self.round < 1 or self.steps < 1 or self.eta <= 0:
            raise MessageError("'round', 'steps' and 'eta' must be positive")
        if self.acked >= self.round:
            raise MessageError(f"'acked' must be below 'round', {self.round}; got {self.acked}")


@dataclass(frozen=True, eq=False)
class Reply(Message):
    """What a site found: theta_hat - theta as coding.py writes it, and the norm of its xi for the display."""

    generation: int
    round: int
    norm_of_xi: float
    payload: Payload


REASONS = ("stale", "forgot", "data", "other")


@dataclass(frozen=True, eq=False)
class Refusal(Message):
    """A site's no: "stale" (an old round), "forgot" (site and server remember different pasts), "data", "other"."""

    generation: int
    round: int
    reason: str
    text: str

    def check(self) -> None:
        if self.reason not in REASONS:
            raise MessageError(f"'reason' must be one of {', '.join(REASONS)}; got {self.reason[:40]!r}")


@dataclass(frozen=True, eq=False)
class Finish(Acknowledged):
    """The run is over: the estimate theta in the run's coordinates, and names (JSON list) of its coefficients."""

    names: str


@dataclass(frozen=True, eq=False)
class Finished(Message):
    """A site has noted the end."""


KINDS: dict[str, type[Message]] = {
    kind.KIND: kind for kind in (Describe, Description, Measure, Measurement, Work, Reply, Refusal, Finish, Finished)
}


def read(record: object) -> Message:
    """The message that a record holds, of whatever kind."""
    kind = structure(record).kind
    if kind not in KINDS:
        raise MessageError(f"'kind' must be one of {', '.join(KINDS)}; got {kind[:40]!r}")
    return KINDS[kind].from_record(record)

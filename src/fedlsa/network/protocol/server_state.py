"""What the server must not forget: theta, what it averaged of whom, and the open round, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ... import checks
from ...checks import Floats
from ...errors import MessageError
from .settings import Settings

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

DOWN_MESSAGES, DOWN_BYTES, UP_MESSAGES, UP_BYTES = range(4)  # columns of `traffic`


@dataclass(frozen=True, eq=False)
class Pending:
    """The open round: who was invited, who is counted as missing without a reply, and what has come so far.

    invited, expected, accepted : (N,); delta : (N, d); scale : (N,), by which each reply was shortened; mark : (N,)
    """

    round: int
    steps: int
    gain: float
    invited: Flags
    expected: Flags
    accepted: Flags
    delta: Floats
    scale: Floats
    mark: Integers


@dataclass(frozen=True, eq=False)
class ServerState:
    """The state between two events; arrays are never changed in place. N sites in the order of settings.sites.

    opened : the last round ever opened; averages : how many were averaged (t); attempts : rounds in vain since the last
    ack_round, ack_gain, ack_scale, ack_mark : (N,), ack_mean : (N, d): what was last averaged of each site
    xi : (N, d), the sites' control variates as they follow from that, shift included
    shift : (N, d), what each has been left by others since its generation began; lost : (d,), weighted, left to nobody
    generation, missed, step, refused : (N,) counts; step : observations behind averaged replies; gone : (N,)
    traffic : (N, 4), messages and bytes down, messages and bytes up; movement : (averages,), ||theta_t - theta_{t-1}||
    """

    settings: Settings
    theta: Floats
    opened: int
    averages: int
    attempts: int
    ack_round: Integers
    ack_mean: Floats
    ack_gain: Floats
    ack_scale: Floats
    ack_mark: Integers
    xi: Floats
    shift: Floats
    lost: Floats
    generation: Integers
    missed: Integers
    step: Integers
    refused: Integers
    gone: Flags
    traffic: Integers
    movement: Floats
    pending: Pending | None = None

    @classmethod
    def start(cls, settings: Settings, dim: int, theta_0: Floats | None = None) -> Self:
        """The state before the first round; theta_0 : (dim,), zeros by default."""
        N, d = len(settings.sites), checks.integer("dim", dim, at_least=1)
        theta = np.zeros(d) if theta_0 is None else checks.array("theta_0", theta_0, (d,))

        def count() -> Integers:
            return np.zeros(N, np.int64)

        return cls(
            settings, theta, 0, 0, 0, count(), np.zeros((N, d)), np.zeros(N), np.ones(N), count(), np.zeros((N, d)),
            np.zeros((N, d)), np.zeros(d), count(), count(), count(), count(), np.zeros(N, np.bool_),
            np.zeros((N, 4), np.int64), np.zeros(0),
        )  # fmt: skip

    @property
    def dim(self) -> int:
        return len(self.theta)

    @property
    def present_weights(self) -> Floats:
        """(N,): the weights, 0 for those who are gone under the policy "spread"."""
        away = self.gone if self.settings.policy == "spread" else np.zeros_like(self.gone)
        return np.where(away, 0.0, self.settings.shares)

    def agent(self, site: object) -> int | None:
        """The number of a site; None for a stranger."""
        return self.settings.sites.index(site) if isinstance(site, str) and site in self.settings.sites else None

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Plain arrays, to be stored without pickle."""
        out = {"settings": np.frombuffer(self.settings.text().encode(), np.uint8)}
        out |= _plain(self, "")
        return out if self.pending is None else out | _plain(self.pending, "pending_")

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray[Any, Any]]) -> Self:
        """The state that `arrays` wrote."""
        try:
            settings = Settings.from_text(bytes(arrays["settings"]).decode())
            state = cls.start(settings, len(arrays["theta"]))
            state = replace(state, **_read(cls, arrays, ""))
            if "pending_round" in arrays:
                state = replace(state, pending=Pending(**_read(Pending, arrays, "pending_")))
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise MessageError(f"the stored state of the server must have all its parts; got {error}") from None
        if len(state.movement) != state.averages or state.xi.shape != (len(settings.sites), state.dim):
            raise MessageError("the stored state of the server does not fit together")
        return state


def _plain(value: object, prefix: str) -> dict[str, np.ndarray[Any, Any]]:
    """The numbers and arrays of a dataclass under prefixed names."""
    out = {}
    for field in fields(value):  # type: ignore[arg-type]
        content = getattr(value, field.name)
        if isinstance(content, (int, float, np.ndarray)):
            out[prefix + field.name] = np.asarray(content)
    return out


def _read(cls: type, arrays: dict[str, np.ndarray[Any, Any]], prefix: str) -> dict[str, Any]:
    """What `_plain` wrote; annotations are texts here, and say which are single numbers."""
    out: dict[str, Any] = {}
    for field in fields(cls):
        if field.name in ("settings", "pending"):
            continue
        value = arrays[prefix + field.name]
        out[field.name] = value.item() if field.type in ("int", "float") else np.array(value)
    return out

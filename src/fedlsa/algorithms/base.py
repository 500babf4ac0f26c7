"""What a method is: a step size, the length of each round, and the gain of its control variates.

Every method is the same recursion. In round t each agent c starts from the shared theta and repeats

    theta_hat <- theta_hat - eta_t (A(z) theta_hat - b(z) - xi_c);

the server averages, mean = sum_c w_c theta_hat_c, and takes its step, theta <- server(theta, mean) (by default the mean
itself); each agent that took part then does xi_c <- xi_c + gain_t (mean - theta_hat_c), which keeps sum_c w_c xi_c = 0.
A new method says how long its rounds are and what its gain is; docs/extending.md shows one in 50 lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError

Lengths = NDArray[np.int64]


@dataclass(frozen=True)
class PowerStep:
    """The decreasing step size eta_t = eta_0 / (t + 1)^power in round t = 0, 1, ..."""

    eta_0: float
    power: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta_0", checks.real("eta_0", self.eta_0, above=0))
        object.__setattr__(self, "power", checks.real("power", self.power, at_least=0))


@dataclass(frozen=True)
class Algorithm(ABC):
    """A method of the family. Options, the same for all:

    participation : share (float) or number (int) of agents, drawn without replacement, that take part in a round
    projection : radius of the ball around 0 onto which the server projects theta after each average
    average_after : round, at most the last, from which the result is the running mean of theta instead of the last
        theta (Polyak-Ruppert); the recursion itself goes on unchanged
    """

    step_size: float | PowerStep
    participation: float | int = field(default=1.0, kw_only=True)
    projection: float | None = field(default=None, kw_only=True)
    average_after: int | None = field(default=None, kw_only=True)

    random_lengths: ClassVar[bool] = False  # whether `observations` looks at its `uniform`
    server_step: ClassVar[Any] = None  # a plain function (theta, mean, parameters) that overwrites theta

    def __post_init__(self) -> None:
        if not isinstance(self.step_size, PowerStep):
            object.__setattr__(self, "step_size", checks.real("step_size", self.step_size, above=0))
        if isinstance(self.participation, (float, np.floating)):
            share = checks.real("participation", self.participation, above=0, at_most=1)
            object.__setattr__(self, "participation", share)
        else:
            try:
                count = checks.integer("participation", self.participation, at_least=1)
            except ArgumentTypeError:
                rule = "a share (a float above 0 and at most 1) or a count (a positive integer)"
                raise ArgumentTypeError(
                    f"participation must be {rule}; got {checks.show(self.participation)}"
                ) from None
            object.__setattr__(self, "participation", count)
        if self.projection is not None:
            object.__setattr__(self, "projection", checks.real("projection", self.projection, above=0))
        if self.average_after is not None:
            object.__setattr__(self, "average_after", checks.integer("average_after", self.average_after))

    @abstractmethod
    def observations(self, uniform: Floats, thin: int) -> Lengths:
        """How many observations each agent receives in a round; every `thin`-th of them makes an update.

        uniform : one number in [0, 1) for each round, drawn from the seed. Returns (len(uniform),).
        """

    @abstractmethod
    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        """The factor by which control variates are corrected, per round; eta, updates and the result have one shape."""

    def server_parameters(self) -> tuple[float, ...]:
        """The numbers that `server_step` receives as its third argument."""
        return ()

    def eta(self, rounds: Lengths) -> Floats:
        """The step size in each of the given rounds (the first is round 0)."""
        if isinstance(self.step_size, PowerStep):
            return np.asarray(self.step_size.eta_0 / (rounds + 1.0) ** self.step_size.power)
        return np.full(len(rounds), float(self.step_size))

    def participants(self, agents: int) -> int:
        """How many of `agents` agents take part in a round."""
        if isinstance(self.participation, float):
            return max(1, round(self.participation * agents))
        if self.participation > agents:
            raise ArgumentError(
                f"participation must be at most the number of agents, {agents}; got {self.participation}"
            )
        return self.participation


@dataclass(frozen=True)
class FixedRounds(Algorithm):
    """Methods whose rounds all have the same length: `local_steps` observations, the paper's H."""

    local_steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "local_steps", checks.integer("local_steps", self.local_steps, at_least=1))

    def observations(self, uniform: Floats, thin: int) -> Lengths:
        H = self.local_steps
        if thin > H:
            raise ArgumentError(f"local_steps must be at least thin, {thin}, or a round makes no update; got {H}")
        return np.full(len(uniform), H)

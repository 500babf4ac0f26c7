"""What a method is: a step size, the length of each round, and the gain of its control variates.

Every method is the same recursion. In round t each agent c starts from the shared theta and repeats

    theta_hat <- theta_hat - eta_t (A(z) theta_hat - b(z) - xi_c);

the server averages, mean = sum_c w_c theta_hat_c, and makes it the next theta, unless it has a step or a memory of its
own; each agent then does xi_c <- xi_c + gain_t (mean - theta_hat_c), which keeps sum_c w_c xi_c = 0.

When only m of the N agents take part, they are drawn uniformly without replacement, whatever their weights; it is the
average that is weighted, as `Linear` of algorithms/stages.py says. The expected mean is that of all agents, so unequal
weights solve the same system, and sum_c w_c xi_c = 0 still. One participant is enough for control variates to find
theta_star; with one local step this is the SAGA rule.

A new method says how long its rounds are and what its gain is; docs/extending.md shows one in 50 lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError
from ..value_objects import Settings
from .stages import LONGEST_ROUND, Geometric, Lengths, Linear, Local, Private, Sample, Shared, Stage

# what a method can support beyond being simulated; "paper": what the paper proves of its own methods, and trajectories
EVERYTHING = frozenset({"theory", "plan", "fit", "network", "paper"})


@dataclass(frozen=True, repr=False)
class PowerStep(Settings):
    """The decreasing step size eta_t = eta_0 / (t + 1)^power in round t = 0, 1, ...

    eta_0 : the step size of the first round, above 0
    power : how fast it decreases, at least 0; 0 keeps it

    >>> fl.FedLSA(fl.PowerStep(0.1, 0.5), local_steps=10).eta(np.arange(4)).round(3)
    array([0.1  , 0.071, 0.058, 0.05 ])
    """

    eta_0: float
    power: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta_0", checks.real("eta_0", self.eta_0, above=0))
        object.__setattr__(self, "power", checks.real("power", self.power, at_least=0))


@dataclass(frozen=True, repr=False)
class Algorithm(Settings, ABC):
    """A method of the family. Options of all methods:

    step_size : how far a local step goes (the paper's eta), above 0; fl.PowerStep(...) decreases it from round to round
    participation : share of the agents that take part in a round, drawn anew for each, above 0 and at most 1 (a float;
        at least one agent takes part). By default all
    participants : their number instead of their share; at most one of the two is given
    projection : radius of the ball around 0 into which the server pulls theta back after each average. By default none
    average_after : round, at most the last, from which the result is the mean of all theta since (Polyak-Ruppert)
        instead of the last theta; the recursion itself goes on unchanged. By default never

    >>> isinstance(fl.SCAFFLSA(0.1, 10, participants=3), fl.Algorithm)
    True
    """

    step_size: float | PowerStep
    participation: float | None = field(default=None, kw_only=True)
    participants: int | None = field(default=None, kw_only=True)
    projection: float | None = field(default=None, kw_only=True)
    average_after: int | None = field(default=None, kw_only=True)

    name: ClassVar[str] = ""  # by which commands, plans and files call a method of fedlsa
    supports: ClassVar[frozenset[str]] = frozenset()  # of `EVERYTHING`; a subclass does not inherit it
    length: ClassVar[str] = ""  # the field that sets how long rounds are: their steps, or the probability of their end
    random_lengths: ClassVar[bool] = False  # whether `observations` looks at its `uniform`
    server_step: ClassVar[Any] = None  # a plain function (theta, mean, parameters) that overwrites theta: no theory

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.supports = cls.__dict__.get("supports", frozenset())
        own = cls.__dict__.get("__doc__")
        options = (Algorithm.__doc__ or "").partition("Options")[2].partition(">>>")[0]
        if own and options and "participation :" not in own:  # help() shows a class's own docstring alone
            text, mark, example = own.partition(">>>")
            cls.__doc__ = f"{text.rstrip()}\n\n    Options{options}{mark}{example}"

    def __post_init__(self) -> None:
        if not isinstance(self.step_size, PowerStep):
            object.__setattr__(self, "step_size", checks.real("step_size", self.step_size, above=0))
        self._check_participation()
        if self.projection is not None:
            object.__setattr__(self, "projection", checks.real("projection", self.projection, above=0))
        if self.average_after is not None:
            object.__setattr__(self, "average_after", checks.integer("average_after", self.average_after))

    def round_steps(self) -> int | Geometric:
        """The local steps of a round where every observation makes one, or the law of their number."""
        if not self.length:
            raise NotImplementedError(f"{type(self).__name__} does not say how long its rounds are")
        given = getattr(self, self.length)
        return Geometric(given) if self.random_lengths else given

    def observations(self, uniform: Floats, thin: int) -> Lengths:
        """How many observations each agent receives in a round; every `thin`-th of them makes an update.

        uniform : one number in [0, 1) for each round, drawn from the seed. Returns (len(uniform),).
        """
        H = self.round_steps()
        if isinstance(H, Geometric):
            received = min(thin, LONGEST_ROUND) * H.draw(uniform)
            return np.minimum(received, LONGEST_ROUND).astype(np.int64)
        if thin > H:
            raise ArgumentError(f"local_steps must be at least thin, {thin}, or a round makes no update; got {H}")
        return np.full(len(uniform), H)

    @abstractmethod
    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        """The factor by which control variates are corrected; eta, updates and the result have one shape."""

    def server(self) -> tuple[tuple[tuple[float, ...], ...], tuple[float, ...]]:
        """The server's memory, as `Linear` has it: how it goes on by itself, and how the agents' change moves it."""
        return ((1.0,),), (1.0,)

    def agent_factors(self, agents: int) -> tuple[Floats, Floats] | None:
        """Where agents differ: (N,), step size of each over that of the round, and (N,), length of its rounds."""
        return None

    def stages(self, eta: float, agents: int, upload_noise: float = 0.0) -> tuple[Stage, ...]:
        """A round with step size eta and independent observations, in the order in which it is drawn and run.

        agents : N; upload_noise : standard deviation of what each agent adds to each coordinate of its upload

        >>> shared, local, linear = fl.Scaffnew(0.1, 0.5).stages(0.1, agents=3)
        >>> local, linear.gain
        (Local(step_size=0.1, steps=Geometric(probability=0.5)), 5.0)
        """
        own = type(self)
        if self.server_step is not None or own.observations is not Algorithm.observations:
            name = "server_step" if self.server_step is not None else "observations"
            raise ArgumentError(f"algorithm must say server() and round_steps() for theory; got {own.__name__}.{name}")
        H, m = self.round_steps(), self.taking_part(agents)
        length = np.arange(1, 3) if isinstance(H, Geometric) else np.array([H])
        step_size, steps = self.of_agents(np.full(len(length), eta), length, 1, agents)
        gain = np.asarray(self.gain(step_size.ravel(), steps.ravel()), np.float64).reshape(step_size.shape)
        if (gain != gain[:1]).any():
            raise ArgumentError(f"gain of {own.__name__} must not depend on a random length; got {checks.show(gain)}")
        each = step_size.ndim > 1
        stages: list[Stage | None] = [
            Shared(H) if isinstance(H, Geometric) else None,
            Local(step_size[0] if each else float(eta), H if isinstance(H, Geometric) or not each else steps[0]),
            Private(upload_noise) if upload_noise else None,
            Shared(Sample(m, agents)) if m < agents else None,
            Linear(*self.server(), gain[0] if each else float(gain[0])),
        ]
        return tuple(stage for stage in stages if stage is not None)

    def of_agents(self, eta: Floats, received: Lengths, thin: int, agents: int) -> tuple[Floats, Lengths]:
        """Step sizes and observations of rounds as those of the agents: (T, N) where these differ.

        eta, received : (T,), of each round; thin : the observations of an update; agents : N
        """
        factors, name = self.agent_factors(agents), type(self).__name__
        if factors is None:
            return eta, received
        if self.random_lengths:
            raise ArgumentError(f"agent_factors of {name} must be None where lengths are random; got {factors}")
        f, g = both = checks.array(f"agent_factors of {name}", factors, (2, agents))
        if both.min() <= 0:
            raise ArgumentError(f"agent_factors of {name} must be above 0; got {both.min():g}")
        each = np.maximum(1, np.rint(np.outer(received, g))).astype(np.int64)
        if each.min(initial=thin) < thin:
            rule = f"agent_factors of {name} must leave each agent {thin} observations, or a round makes no update"
            raise ArgumentError(f"{rule}; got {each.min()}")
        return np.outer(eta, f), each

    @classmethod
    def with_steps(cls, step_size: float | PowerStep, local_steps: int, **options: Any) -> Self:
        """The method whose rounds have so many local steps, in the mean where their lengths are random."""
        if not cls.length:
            raise NotImplementedError(f"{cls.__name__} does not say how its rounds follow from local_steps")
        options[cls.length] = 1 / local_steps if cls.random_lengths else local_steps
        return cls(step_size, **options)

    @property
    def mean_steps(self) -> float:
        """Local steps of a round in the mean, where every observation makes one."""
        steps = self.round_steps()
        return steps.mean if isinstance(steps, Geometric) else steps

    def server_parameters(self) -> tuple[float, ...]:
        """The numbers that `server_step` receives as its third argument."""
        return ()

    def eta(self, rounds: Lengths) -> Floats:
        """The step size in each of the given rounds (the first is round 0)."""
        if isinstance(self.step_size, PowerStep):
            return np.asarray(self.step_size.eta_0 / (rounds + 1.0) ** self.step_size.power)
        return np.full(len(rounds), float(self.step_size))

    def taking_part(self, agents: int) -> int:
        """How many of `agents` agents take part in a round."""
        if self.participants is None:
            return agents if self.participation is None else max(1, round(self.participation * agents))
        if self.participants > agents:
            rule = f"participants must be at most the number of agents, {agents}"
            raise ArgumentError(f"{rule}; got {self.participants}")
        return self.participants

    def _check_participation(self) -> None:
        if self.participants is not None:
            if self.participation is not None:
                given = f"{checks.show(self.participation)} and {checks.show(self.participants)}"
                raise ArgumentError(f"participation and participants must not both be given; got {given}")
            count = checks.integer("participants", self.participants, at_least=1)
            object.__setattr__(self, "participants", count)
        elif self.participation is not None:
            if not isinstance(self.participation, (float, np.floating)):
                rule = "participation must be a share, a float above 0 and at most 1 (participants= is for a count)"
                raise ArgumentTypeError(f"{rule}; got {checks.show(self.participation)}")
            share = checks.real("participation", self.participation, above=0, at_most=1)
            object.__setattr__(self, "participation", None if share == 1 else share)

"""What a method is: a step size, the length of each round, and the gain of its control variates.

Every method is the same recursion. In round t each agent c starts from the shared theta and repeats

    theta_hat <- theta_hat - eta_t (A(z) theta_hat - b(z) - xi_c);

the server averages, mean = sum_c w_c theta_hat_c, and makes it the next theta, unless it has a step or a memory of its
own; each agent then does xi_c <- xi_c + gain_t (mean - theta_hat_c), which keeps sum_c w_c xi_c = 0.

When only m of the N agents take part, they are drawn uniformly without replacement, whatever their weights; it is the
average that is weighted, as `Linear` of algorithms/stages.py says. The expected mean is that of all agents, so unequal
weights solve the same system, and sum_c w_c xi_c = 0 still. One participant is enough for control variates to find
theta_star; with one local step this is the SAGA rule.

A new method says how long its rounds are and what its gain is; docs/extending.md shows one in 50 lines. Those of the
paper are FedLSA (Algorithm 1, algo:fed-lsa), SCAFFLSA (Algorithm 2, algo:fed-lsa-controlvar-h2), with control variates,
and Scaffnew (appendix, algo:fed-lsa-controlvar-h1), whose rounds have random lengths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from textwrap import fill, indent
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError
from ..problems import Problem, Stream
from ..value_objects import Checked, count, meanings, number
from .exchanges import Exchange
from .stages import LONGEST_ROUND, Geometric, Lengths, Linear, Local, Private, Sample, Shared, Stage

# what a method can support beyond being simulated; "paper": what the paper proves of its own methods, and trajectories
EVERYTHING = frozenset({"theory", "plan", "fit", "network", "paper"})


@dataclass(frozen=True, repr=False)
class PowerStep(Checked):
    """The decreasing step size eta_t = eta_0 / (t + 1)^power in round t = 0, 1, ...

    eta_0 : the step size of the first round, above 0
    power : how fast it decreases, at least 0; 0 keeps it

    >>> fl.FedLSA(fl.PowerStep(0.1, 0.5), local_steps=10).eta(np.arange(4)).round(3)
    array([0.1  , 0.071, 0.058, 0.05 ])
    """

    eta_0: float = number(above=0)
    power: float = number(at_least=0)

    def at(self, rounds: Lengths) -> Floats:
        """The step size in each of the given rounds."""
        return np.asarray(self.eta_0 / (rounds + 1.0) ** self.power)


@dataclass(frozen=True, repr=False)
class PowerLength(Checked):
    """The growing round length H_t = H_0 (t + 1)^power, rounded up, in round t = 0, 1, ...

    H_0 : the length of the first round, at least 1
    power : how fast it grows, at least 0; 0 keeps it

    >>> fl.FedLSA(fl.PowerStep(0.1, 0.7), fl.PowerLength(10, 0.3)).steps_in(np.arange(4))
    array([10, 13, 14, 16])
    """

    H_0: int = count(at_least=1)
    power: float = number(at_least=0)

    def at(self, rounds: Lengths) -> Lengths:
        """The length of each of the given rounds."""
        grown = self.H_0 * (rounds + 1.0) ** self.power * (1 - 1e-12)  # powers that are whole numbers may be rounded
        return np.ceil(np.minimum(grown, LONGEST_ROUND)).astype(np.int64)


@dataclass(frozen=True, repr=False)
class Algorithm(Checked, ABC):
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

    step_size: float | PowerStep = number(instead=PowerStep, above=0)  # noqa: RUF009  a field
    _: KW_ONLY
    participation: float | None = None
    participants: int | None = count(None, NoneType, at_least=1)
    projection: float | None = number(None, NoneType, above=0)
    average_after: int | None = count(None, NoneType)

    name: ClassVar[str] = ""  # by which commands, plans and files call a method: that of the class in small letters
    supports: ClassVar[frozenset[str]] = frozenset()  # of `EVERYTHING`; not inherited; exchanges have theory and plans
    length: ClassVar[str] = ""  # the field that sets how long rounds are: their steps, or the probability of their end
    random_lengths: ClassVar[bool] = False  # whether `observations` looks at its `uniform`
    server_step: ClassVar[Any] = None  # a plain function (theta, mean, parameters) that overwrites theta: no theory

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        exact = frozenset({"theory", "plan"} if "exchange" in cls.__dict__ else ())
        cls.name, cls.supports = cls.__name__.lower(), cls.__dict__.get("supports", exact)
        if own := cls.__dict__.get("__doc__"):  # help() shows a class's own docstring alone
            base = next(kind for kind in cls.__mro__[1:] if issubclass(kind, Algorithm))
            text, mark, example = own.partition(">>>")
            known, inherited = meanings(cls), meanings(base)
            names = [f.name for f in fields(base) if f.name in inherited.keys() - known.keys()]
            options = [fill(f"{name} : {inherited[name]}", 116, subsequent_indent="    ") for name in names]
            entries = indent("\n".join(options), "    ")
            cls.__doc__ = f"{text.rstrip()}\n\n    Options:\n\n{entries}\n\n    {mark}{example}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.participation is None:
            return
        if self.participants is not None:
            given = f"{checks.show(self.participation)} and {checks.show(self.participants)}"
            raise ArgumentError(f"participation and participants must not both be given; got {given}")
        if not isinstance(self.participation, (float, np.floating)):
            rule = "participation must be a share, a float above 0 and at most 1 (participants= is for a count)"
            raise ArgumentTypeError(f"{rule}; got {checks.show(self.participation)}")
        share = checks.real("participation", self.participation, above=0, at_most=1)
        object.__setattr__(self, "participation", None if share == 1 else share)

    def round_steps(self) -> int | Geometric:
        """The local steps of a round where every observation makes one, or the law of their number."""
        if not self.length:
            raise ArgumentError(f"algorithm must say by `length` how long its rounds are; got {type(self).__name__}")
        given = getattr(self, self.length)
        if self.grows:
            raise ArgumentError(f"{self.length} must be the same in all rounds; got {given}")
        return Geometric(given) if self.random_lengths else given

    @property
    def grows(self) -> bool:
        """Whether rounds grow longer."""
        return isinstance(getattr(self, self.length, None), PowerLength)

    @property
    def steady(self) -> bool:
        """Whether no round differs from another in its step size or in (the law of) its length."""
        return isinstance(self.step_size, float) and not self.grows

    def in_round(self, t: int) -> Self:
        """The method whose rounds are all as long as its round t."""
        steps: Any = {self.length: int(self.steps_in(np.array([t]))[0])} if self.grows else {}
        return replace(self, **steps)

    def steps_in(self, rounds: Lengths) -> NDArray[Any]:
        """Local steps in each of the given rounds, as `mean_steps`."""
        return getattr(self, self.length).at(rounds) if self.grows else np.full(len(rounds), self.mean_steps)

    def observations_in(self, rounds: Lengths, uniform: Floats, thin: int) -> Lengths:
        """What `observations` says of `uniform` and `thin`, in the given rounds: (len(rounds),)."""
        if not self.grows:
            return self.observations(uniform, thin)
        self.in_round(0).observations(uniform[:1], thin)  # refuses rounds without an update
        return self.steps_in(rounds)

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

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange | None:
        """What a round is where `stages` cannot say it (algorithms/exchanges.py); such methods declare this instead.

        eta, updates : the round's step size and number of local steps, numbers, or (N, 1) where agents differ
        agents : N; dim : d
        """
        return None

    def checked_exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        """What `exchange` gives in a round, checked; of a method that declares one.

        eta, updates, agents, dim : as `exchange` has them, but (N,) where agents differ
        """
        eta, updates = (x[:, None] if np.ndim(x) else np.asarray(x).item() for x in (eta, updates))
        found = self.exchange(eta, updates, agents, dim)
        if not isinstance(found, Exchange):
            rule = f"exchange of {type(self).__name__} must give an Exchange in every round"
            raise ArgumentError(f"{rule}; got {type(found).__name__}")
        found.check_sizes(agents, dim)
        if found.presence is not None and self.taking_part(agents) < agents:
            raise ArgumentError(f"participants must be all where presence says who answers; got {self!r}")
        return found

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
        for name in ("server_step", "observations", "exchange"):
            if getattr(own, name) is not getattr(Algorithm, name):
                rule = "algorithm must say server() and round_steps() for theory"
                raise ArgumentError(f"{rule}; got {own.__name__}.{name}")
        H, m = self.round_steps(), self.taking_part(agents)
        shared = isinstance(H, Geometric)
        length = np.arange(1, 3) if shared else np.array([H])
        etas, steps, gains = self.of_agents(np.full(len(length), eta), length, 1, agents)
        if (gains != gains[:1]).any():
            raise ArgumentError(f"gain of {own.__name__} must not depend on a random length; got {checks.show(gains)}")
        first = [x[0] if x.ndim > 1 else x[0].item() for x in (etas, steps, gains)]
        stages: list[Stage | None] = [
            Shared(H) if isinstance(H, Geometric) else None,
            Local(first[0], H if shared else first[1]),
            Private(upload_noise) if upload_noise else None,
            Shared(Sample(m, agents)) if m < agents else None,
            Linear(*self.server(), first[2]),
        ]
        return tuple(stage for stage in stages if stage is not None)

    def of_agents(self, eta: Floats, received: Lengths, thin: int, agents: int) -> tuple[Floats, Lengths, Floats]:
        """Step sizes, observations and gains of rounds, checked: (T,), or (T, N) where agents differ.

        eta, received : (T,), of each round; thin : the observations of an update; agents : N, 0 where nobody knows it
        """
        factors, name = self.agent_factors(agents) if agents else None, type(self).__name__
        if factors is not None:
            if self.random_lengths:
                raise ArgumentError(f"agent_factors of {name} must be None where lengths are random; got {factors}")
            f, g = both = checks.array(f"agent_factors of {name}", factors, (2, agents))
            checks.refuse(both <= 0, both, f"agent_factors of {name} must be above 0")
            eta, received = np.outer(eta, f), np.maximum(1, np.rint(np.outer(received, g))).astype(np.int64)
            rule = f"agent_factors of {name} must leave each agent {thin} observations, or a round makes no update"
            checks.refuse(received < thin, received, rule, "{}")
        given = eta.flatten()
        given.flags.writeable = False  # or a gain that writes there would change the steps
        gains = checks.array(f"gain of {name}", self.gain(given, received.ravel() // thin), (eta.size,))
        return eta, received, gains.reshape(eta.shape)

    @classmethod
    def with_steps(cls, step_size: float | PowerStep, local_steps: int, **options: Any) -> Self:
        """The method whose rounds have so many local steps, in the mean where their lengths are random."""
        if not cls.length:
            raise ArgumentError(f"algorithm must say by `length` how long its rounds are; got {cls.__name__}")
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
        eta = self.step_size
        return eta.at(rounds) if isinstance(eta, PowerStep) else np.full(len(rounds), eta)

    def round_costs(self, agents: int, dim: int) -> tuple[Floats, float]:
        """The probability with which each agent answers in a round, (N,), and bytes up and down of one who does.

        agents : N; dim : d
        """
        if type(self).exchange is Algorithm.exchange:
            return np.full(agents, self.taking_part(agents) / agents), 2 * 8.0 * dim
        found = self.checked_exchange(1.0, 1, agents, dim)
        answers, size = found.answering(agents, self.taking_part(agents))[0], found.bytes(dim)
        if found.uses("mean_residual"):  # of all agents, who receive theta and send theirs even if they do no more
            size += 2 * 8.0 * dim * (agents / answers.sum() - 1)
        return answers, size

    def rows_read(self, problem: Problem) -> float:
        """Rows of its own table that an agent reads in a round for exact residuals, in expectation, mean over agents.

        problem : with the tables. Rows are observations like those of local steps; of a stream, whose means are given,
        there are none
        """
        N, d = problem.n_agents, problem.dim
        if type(self).exchange is Algorithm.exchange or isinstance(problem.observations, Stream):
            return 0.0
        found = self.checked_exchange(1.0, 1, N, d)
        answers = found.answering(N, self.taking_part(N))[0]
        passes = 1.0 if found.uses("mean_residual") else answers * (found.anchored or found.uses("residual"))
        return float(np.mean(passes * np.diff(problem.first)[problem.assignment]))

    def taking_part(self, agents: int) -> int:
        """How many of `agents` agents take part in a round."""
        if self.participants is None:
            return agents if self.participation is None else max(1, round(self.participation * agents))
        if self.participants > agents:
            rule = f"participants must be at most the number of agents, {agents}"
            raise ArgumentError(f"{rule}; got {self.participants}")
        return self.participants


@dataclass(frozen=True, repr=False)
class FixedRounds(Algorithm):
    """Methods whose rounds have a length that is not random.

    local_steps : observations that each agent receives between two communications (the paper's H), at least 1;
        fl.PowerLength(...) lets it grow from round to round
    """

    # an integer or a PowerLength; who needs one length asks round_steps()
    local_steps: Any = count(instead=PowerLength, at_least=1)  # noqa: RUF009  a field
    length = "local_steps"

    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        return np.zeros_like(eta)  # no control variates


@dataclass(frozen=True, repr=False)
class ExchangeMethod(FixedRounds):
    """Methods that declare `exchange`; with `corrected` agents keep the control variates of SCAFFLSA.

    corrected : whether agents keep control variates

    >>> isinstance(fl.Compressed(0.1, 10), fl.ExchangeMethod)
    True
    """

    corrected: bool = field(default=True, kw_only=True)

    def gain(self, eta: Floats, updates: Any) -> Floats:
        return 1 / (updates * eta) if self.corrected else np.zeros_like(eta)

    def declare(
        self, eta: Any, updates: Any, agents: int, *, gain: Any = None, share: Any = None, **rows: Any
    ) -> Exchange:
        """The exchange of SCAFFLSA with rows of its own; what they do not say of theta and xi is as there:

            theta <- theta + mean,   xi_c <- xi_c - gain_c 1{c in S} sent_change_c + sum_S w_e gain_e sent_change_e.

        eta, updates, agents : as `exchange` has them; gain : by default the method's; share : P(c in S), a number or
        (N,), by default participants / N
        """
        gain = np.asarray(self.gain(eta, updates) if gain is None else gain)
        share = self.taking_part(agents) / agents if share is None else share
        means: dict[str, Any] = {"mean": ("change", 1)}
        then: dict[str, Any] = {"theta": {"theta": 1, "mean": 1}}
        if self.corrected:
            rest = {"xi": 1, "pulled": 1}
            means["pulled"] = "change", np.ravel(gain * np.reshape(share, (-1, 1)))
            then["xi"] = rest | {"sent_change": -gain}
            rows["absent"] = {"xi": rest} | rows.get("absent", {})
        rows["means"], rows["then"] = means | rows.get("means", {}), then | rows.get("then", {})
        return Exchange(**rows)


@dataclass(frozen=True, repr=False)
class ServerRule(ExchangeMethod):
    """Methods whose server follows a `rule` of algorithms/exchanges.py, with the method's own fields as parameters.

    Not linear, so they have no exact theory.
    """

    memory: ClassVar[tuple[str, ...]] = ()  # names of what the server remembers beside theta
    rule: ClassVar[Any] = None

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        own = [f.name for f in fields(self) if f.name not in ServerRule.__dataclass_fields__]
        parameters = tuple(float(getattr(self, name)) for name in own)
        stays = {"theta": {"theta": 1}}
        return self.declare(eta, updates, agents, server=self.memory, then=stays, rule=self.rule, parameters=parameters)


@dataclass(frozen=True, repr=False)
class FedLSA(FixedRounds):
    """FedLSA: every agent makes some steps of its own, then the server averages where they got to.

    Fast, with linear speed-up in the number of agents, but biased when agents differ and local_steps > 1: each drifts
    towards its own solution. It is Algorithm 1 (with TD observations algo:fed-lsa-td; on trajectories
    algo:fed-lsa-markov).

    local_steps : observations that each agent receives between two communications (the paper's H), at least 1

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> [float(np.linalg.norm(fl.theory.stationary(p, fl.FedLSA(0.1, H)).bias).round(3)) for H in (1, 10, 100)]  # drift
    [0.0, 0.004, 0.044]
    """

    supports = EVERYTHING


@dataclass(frozen=True, repr=False)
class SCAFFLSA(FixedRounds):
    """SCAFFLSA: FedLSA in which every agent also learns, and subtracts, how far it drifts from the others.

    Free of bias for any number of local steps, and keeps the linear speed-up. It is Algorithm 2 (with TD observations
    algo:scafflsa-td); the correction of agent c, its control variate xi_c, tends to A_bar_c theta_star - b_bar_c.

    local_steps : observations that each agent receives between two communications (the paper's H), at least 1

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> method = fl.SCAFFLSA(step_size=0.01, local_steps=100)
    >>> float(np.abs(fl.theory.stationary(p, method).bias).max()) < 1e-12  # control variates remove the drift
    True
    """

    supports = EVERYTHING

    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        return 1 / (eta * updates)


@dataclass(frozen=True, repr=False)
class Scaffnew(Algorithm):
    """Scaffnew: as SCAFFLSA, but after each update one coin decides whether all agents communicate.

    Seen from communication to communication, a round has Geometric(probability) updates. It is the appendix's
    algo:fed-lsa-controlvar-h1.

    probability : that a communication follows an update (the paper's p), above 0 and at most 1; rounds have
        1/probability updates in the mean

    >>> fl.Scaffnew(step_size=0.1, probability=0.1).mean_steps
    10.0
    """

    probability: float = number(above=0, at_most=1)
    supports = EVERYTHING
    length = "probability"
    random_lengths = True

    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        return self.probability / eta

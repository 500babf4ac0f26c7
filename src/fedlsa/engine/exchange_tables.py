"""An exchange of algorithms/exchanges.py as arrays: what a round does, in numbers that compiled code reads.

What is the same in all rounds is its `ExchangeLayout`. What may depend on a round's step size and length, all factors
among it, is a row of numbers, with places in it that the layout knows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm, Exchange
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..sampling import Sampling
from .schedule import Schedule, schedule

Integers = NDArray[np.int64]


class ExchangeLayout(NamedTuple):
    """What is the same in all rounds; `at_...` : where numbers of that kind begin.

    server, agent : vectors that each remembers, theta and xi among them; means, starts, messages : how many there are
    sending : the number of its kind; anchored, residual, mean_residual, presence : whether there is such a thing
    first : (rows + 1,), where the terms of each of `Exchange.rows` begin
    terms : (terms, 4), an agent's vector, or -1 - v of a shared one, place, and two strides: the factor of agent c and
        coordinate i stands at place + c stride_0 + i stride_1
    of_mean : (means,), the message of each
    """

    server: int
    agent: int
    means: int
    starts: int
    messages: int
    sending: int
    anchored: int
    residual: int
    mean_residual: int
    presence: int
    at_starts: int  # (starts, N): probabilities, added up
    at_means: int  # (means, N): w_c factor_c / P(c in S)
    at_presence: int  # (N,)
    at_pull: int
    at_sending: int  # (2,)
    at_parameters: int
    parameters: int
    first: Integers
    terms: Integers
    of_mean: Integers


def round_exchange(algorithm: Algorithm, rounds: Schedule, t: int, dim: int) -> Exchange:
    """What the t-th of these rounds is."""
    eta, updates = rounds.step_sizes[t], rounds.updates[t]
    given: tuple[Any, Any] = (eta[:, None], updates[:, None]) if eta.ndim else (float(eta), int(updates))
    exchange = algorithm.exchange(given[0], given[1], rounds.n_agents, dim)
    if not isinstance(exchange, Exchange):
        name = type(algorithm).__name__
        raise ArgumentError(f"exchange of {name} must give an Exchange in every round; got {type(exchange).__name__}")
    return exchange


def first_exchange(algorithm: Algorithm, sampling: Sampling, problem: Problem, dtype: str) -> Exchange | None:
    """The exchange of the first round of a method, checked; None where its rounds are not declared as one."""
    own, N, d = type(algorithm), problem.n_agents, problem.dim
    if own.exchange is Algorithm.exchange:
        return None
    exchange = round_exchange(algorithm, schedule(algorithm, sampling, 0, 1, N), 0, d)
    for name in ("server", "server_step"):
        if getattr(own, name) is not getattr(Algorithm, name):
            raise ArgumentError(f"exchange and {name} must not both be declared; got both of {own.__name__}")
    if dtype != "float64":
        raise ArgumentError(f"dtype must be 'float64' for {own.__name__}, which declares an exchange; got {dtype!r}")
    if exchange.presence is not None and algorithm.taking_part(N) < N:
        raise ArgumentError(f"participants must be all where presence says who answers; got {algorithm!r}")
    flatten(exchange, problem, algorithm.taking_part(N))
    return exchange


def begin_memory(exchange: Exchange, theta: Floats, xi: Floats) -> Floats:
    """(S, k - 1 + N (l - 1), d): what the server remembers, then what each agent does, at the start.

    theta : (S, d); xi : (S, N, d)
    """
    S, N, d = xi.shape
    known = {"theta": theta[:, None], "xi": xi}
    of_server = [combine(exchange.begin.get(name, {}), known, (S, 1, d)) for name in exchange.server]
    of_agents = [combine(exchange.begin.get(name, {}), known, (S, N, d))[:, :, None] for name in exchange.agent]
    own = np.concatenate(of_agents, 2).reshape(S, -1, d) if of_agents else np.empty((S, 0, d))
    return np.concatenate([np.empty((S, 0, d)), *of_server, own], 1)


def combine(row: Any, known: dict[str, Floats], shape: tuple[int, ...]) -> Floats:
    """A row of the vectors that are known by name."""
    out = np.zeros(shape)
    for name, factor in row.items():
        out = out + np.asarray(factor) * known[name]
    return out


def flatten(exchange: Exchange, problem: Problem, participants: int) -> tuple[ExchangeLayout, Floats]:
    """The layout of a round, and its numbers."""
    x, N, d = exchange, problem.n_agents, problem.dim
    numbers: list[Floats] = []

    def put(values: Any) -> int:
        """Where they begin."""
        numbers.append(np.ravel(np.asarray(values, np.float64)))
        return sum(map(len, numbers[:-1]))

    split = len(x.server) + len(x.means) + 2
    index = {name: i - split if i >= split else -1 - i for i, name in enumerate(x.vectors)}
    then = len(x.starts) + 1 + len(x.messages)
    of_server = range(then, then + 1 + len(x.server))
    first, terms = [0], []
    for i, row in enumerate(x.rows):
        for name, given in row.items():
            factor = np.asarray(given, np.float64)
            shape = (1,) * (2 - factor.ndim) + factor.shape
            if len(shape) > 2 or shape[0] not in (1, 1 if i in of_server else N) or shape[1] not in (1, d):
                rule = "a number or (d,) in a row of the server" if i in of_server else "a number, (N, 1), (d,), (N, d)"
                rule = f"factor of {name} must be {rule}, with N = {N} and d = {d}"
                raise ArgumentError(f"{rule}; got one of shape {factor.shape}")
            terms.append((index[name], put(factor), shape[1] if shape[0] > 1 else 0, int(shape[1] > 1)))
        first.append(len(terms))
    answering = x.answering(N, participants)[0]
    factors = [np.broadcast_to(np.asarray(factor, np.float64), N) for _, factor in x.means.values()]
    layout = ExchangeLayout(
        server=1 + len(x.server),
        agent=1 + len(x.agent),
        means=len(x.means),
        starts=len(x.starts),
        messages=len(x.messages),
        sending=x.send.kind,
        anchored=int(x.anchored),
        residual=int(x.uses("residual") or x.uses("mean_residual")),
        mean_residual=int(x.uses("mean_residual")),
        presence=int(x.presence is not None),
        at_starts=put(np.cumsum(x.probabilities(N), 0)),
        at_means=put([problem.weights * factor / answering for factor in factors]),
        at_presence=put(answering),
        at_pull=put(x.pull),
        at_sending=put(x.send.numbers),
        at_parameters=put(x.parameters),
        parameters=len(x.parameters),
        first=np.array(first),
        terms=np.array(terms, np.int64).reshape(-1, 4),
        of_mean=np.array([list(x.messages).index(message) for message, _ in x.means.values()], np.int64),
    )
    return layout, np.concatenate(numbers)


class RoundNumbers:
    """The numbers of all rounds of a method, made once for each step size and length that its rounds have."""

    def __init__(self, algorithm: Algorithm, problem: Problem, exchange: Exchange) -> None:
        self.algorithm, self.problem, self.exchange = algorithm, problem, exchange
        self.participants = algorithm.taking_part(problem.n_agents)
        self.layout, first = flatten(exchange, problem, self.participants)
        self.size, self.known = len(first), dict[bytes, Floats]()

    def of(self, rounds: list[Schedule]) -> tuple[Floats, Integers]:
        """Numbers : (tables, size), and which of them each round takes : (schedules, T)."""
        which: dict[bytes, int] = {}
        known, places = self.known, np.empty((len(rounds), len(rounds[0].gains)), np.int64)
        if len(known) * self.size > MOST_NUMBERS:
            known = self.known = {}
        for p, plan in enumerate(rounds):
            for t, (eta, updates) in enumerate(zip(plan.step_sizes, plan.updates, strict=True)):
                key = eta.tobytes() + updates.tobytes()
                if key not in which:
                    if key not in known:
                        known[key] = self._make(plan, t)
                    which[key] = len(which)
                places[p, t] = which[key]
        return np.array([known[key] for key in which]), places

    def _make(self, plan: Schedule, t: int) -> Floats:
        exchange = round_exchange(self.algorithm, plan, t, self.problem.dim)
        layout, numbers = flatten(exchange, self.problem, self.participants)
        dim = self.problem.dim
        alike = all(np.array_equal(np.array(x), np.array(y)) for x, y in zip(layout, self.layout, strict=True))
        if not alike or exchange.rule is not self.exchange.rule or exchange.bytes(dim) != self.exchange.bytes(dim):
            rule = "must have the same vectors, rows, shapes of factors, sending and rule in all rounds"
            raise ArgumentError(f"exchange of {type(self.algorithm).__name__} {rule}; got others in round {t}")
        return numbers


MOST_NUMBERS = 4_000_000  # that are remembered: 32 MB

"""Rounds in which agents and server keep, send or forget more than `Linear` of algorithms/stages.py can say.

A method declares an `Exchange`: rows, linear combinations of vectors by name, and by whom they reach whom. Engines run
it (engine/exchange_kernel.py), theory/exchange_rounds.py has its exact moments. One round, with theta at the server:

1. each agent starts at `start`, and makes local steps theta_hat <- theta_hat - eta (A(z) theta_hat - b(z) - correction
   + pull (theta_hat - start));
2. it forms its messages, and sends what `send` makes of them;
3. the server averages what arrives, mean = sum_{c in S} w_c factor_c sent_c / P(c in S), over those who answer, S;
4. server and agents make their next vectors by `then`, or `absent` for agents who do not answer, all at once.

Vectors of the server are theta and those that it names; of an agent xi (the run's control variate) and those that it
names. In every round there are also, in this order: residual, b_bar_c - A_bar_c theta of the agent's mean system, and
mean_residual, its average over all agents; start; theta_hat, where local steps end; each message NAME, and sent_NAME,
what is left of it under way; each mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..value_objects import Displayed, ReadOnly, frozen_property
from .sending import Exactly, Sending

Row = Mapping[str, Any]  # name of a vector: factor, a number, (N, 1) of each agent, (d,) of each coordinate, or (N, d)
FROM_START = ("residual", "mean_residual")  # what is known when a round begins, beside what is remembered


@dataclass(frozen=True, eq=False, repr=False)
class Exchange(Displayed, ReadOnly):
    """One round, as the page above says it; by default that of FedLSA.

    server, agent : names of what is remembered beside theta, and beside xi; 0 before the first round
    begin : rows over theta and xi, for memories that begin with something else
    start : a row, or pairs (probability, row), of which each agent draws one in each round; a probability may be (N,)
    correction : what pulls local steps besides observations, a row; pull : the strength of the pull to the start
    anchored : steps with A(z) (theta_hat - start) - (b_bar_c - A_bar_c start), the exact residual of the start (SVRG)
    table : the agents' memory in which local steps keep m = sum_j p_j g_j, the mean of what each row j of the agent's
        table last gave, 0 before it is first drawn; steps with A(z) theta_hat - b(z) - g_z + m, and then g_z is renewed
        (SAGA). Of A(z) = u v^T + ridge I, the ridge, which all rows share, is left out of g and taken as it is
    messages : rows, by name; send : what becomes of them under way; downloads : vectors that an agent receives
    means : by name, (message, factor), factor a number or (N,)
    then : rows of theta, server memories, xi and agents' memories; what is not named stays. absent : of those agents
        who do not answer. What both say of means must be the same, for theory
    presence : (N,), the probability that an agent answers, each alone; None: as many as the method's options say
    rule : a plain function (server, means, t, parameters) that Numba can compile and that overwrites the server's
        vectors, (k, d), in round t = 1, 2, ... after `then`: no theory; parameters : its numbers

    >>> half = fl.Exchange(then={"theta": {"theta": 1, "mean": 0.5}})  # FedLSA whose server goes half of the way
    >>> half.messages, half.bytes(dim=4)
    ({'change': {'theta_hat': 1, 'start': -1}}, 64.0)
    """

    server: tuple[str, ...] = ()
    agent: tuple[str, ...] = ()
    begin: Mapping[str, Row] = field(default_factory=dict)
    start: Row | tuple[tuple[Any, Row], ...] = field(default_factory=lambda: {"theta": 1})
    correction: Row = field(default_factory=lambda: {"xi": 1})
    pull: float = 0.0
    anchored: bool = False
    table: str | None = None
    messages: Mapping[str, Row] = field(default_factory=lambda: {"change": {"theta_hat": 1, "start": -1}})
    send: Sending = Exactly()  # noqa: RUF009  immutable
    downloads: int = 1
    means: Mapping[str, tuple[str, Any]] = field(default_factory=lambda: {"mean": ("change", 1)})
    then: Mapping[str, Row] = field(default_factory=lambda: {"theta": {"theta": 1, "mean": 1}})
    absent: Mapping[str, Row] = field(default_factory=dict)
    presence: Floats | None = None
    rule: Callable[..., None] | None = None
    parameters: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        self._check_kinds()
        server, agent = ("theta", *self.server), ("xi", *self.agent)
        each = [*server, *agent, *FROM_START, "start", "theta_hat", *self.messages, *self.sent, *self.means]
        if len(set(each)) < len(each):
            raise ArgumentError(f"names of an exchange must be distinct; got {checks.show(each)}")
        for name, (message, factor) in self.means.items():
            checks.choice("message of a mean", message, self.messages)
            _check_numbers(f"factor of {message} in the mean {name}", factor)
        known = {*server, *agent, *FROM_START}
        for probability, row in self.starts:
            _check("start", row, known)
            _check_numbers("probability of a start", probability)
        _check("correction", self.correction, known)
        for name, row in self.messages.items():
            _check(name, row, {*known, "start", "theta_hat"})
        for rows in (self.then, self.absent):
            allowed = (*server, *agent) if rows is self.then else agent
            for name, row in rows.items():
                checks.choice("vector", name, allowed)
                own = {*server, *self.means, "mean_residual"}
                late = {"start", "theta_hat", *self.messages, *self.sent} if rows is self.then else set()
                _check(name, row, own if name in server else own | {*agent, "residual"} | late)
        for name, row in self.begin.items():
            checks.choice("vector of begin", name, (*self.server, *self.agent))
            _check(name, row, {"theta", "xi"} if name in agent else {"theta"})
        if self.table is not None:
            checks.choice("table", self.table, self.agent)
            if self.anchored or self.table in {*self.then, *self.absent, *self.begin}:
                rule = (
                    "table must be a memory that begins at 0 and that local steps alone change, which are not anchored"
                )
                raise ArgumentError(f"{rule}; got {self.table}")
        super().__post_init__()

    def _check_kinds(self) -> None:
        """Refuse what is no row where one is wanted, and so on."""
        for name in ("server", "agent"):
            for each in checks.entries(name, getattr(self, name), "a tuple of names"):
                checks.instance(f"each of {name}", each, str, "a name")
        rows, mappings = [self.correction], ("messages", "means", "then", "absent", "begin")
        for name in mappings:
            for each in checks.instance(name, getattr(self, name), Mapping, "a mapping of names"):
                checks.instance(f"each of {name}", each, str, "a name")
            rows += [] if name == "means" else getattr(self, name).values()
        if not self.messages:
            raise ArgumentError("messages must be at least one; got none")
        if not isinstance(self.start, Mapping):
            for pair in checks.entries("start", self.start, "a row, or pairs of a probability and a row"):
                rows += checks.entries("each of start", pair, "a pair of a probability and a row")[1:2] or [None]
        for row in rows:
            checks.instance("each row", row, Mapping, "a mapping of names of vectors to factors")
        for name, mean in self.means.items():
            if len(checks.entries(f"mean {name}", mean, "a pair of a message and a factor")) != 2:
                raise ArgumentError(f"mean {name} must be a pair of a message and a factor; got {checks.show(mean)}")
        checks.instance("send", self.send, Sending, "what is sent, such as fl.RandK(1)")
        checks.real("pull", self.pull, at_least=0)
        checks.boolean("anchored", self.anchored)
        checks.integer("downloads", self.downloads)
        checks.callback("rule", self.rule)
        object.__setattr__(self, "parameters", tuple(checks.array("parameters", self.parameters, ("p",)).tolist()))
        if self.presence is not None:
            object.__setattr__(self, "presence", checks.array("presence", self.presence, ("N",)))

    def check_sizes(self, agents: int, dim: int) -> None:
        """Refuse factors and probabilities that are not those of so many agents and coordinates. agents : N; dim : d"""
        server, N, d = {"theta", *self.server}, agents, dim
        rows = [(name in server, row) for each in (self.begin, self.then, self.absent) for name, row in each.items()]
        rows += [(False, row) for row in (*self.messages.values(), self.correction, *(row for _, row in self.starts))]
        for of_server, row in rows:
            for vector, factor in row.items():
                n, m = np.atleast_2d(factor).shape if np.ndim(factor) < 3 else (0, 0)
                if n not in (1, 1 if of_server else N) or m not in (1, d):
                    rule = "a number or (d,) in a row of the server" if of_server else "a number, (N, 1), (d,), (N, d)"
                    rule = f"factor of {vector} must be {rule}, with N = {N} and d = {d}"
                    raise ArgumentError(f"{rule}; got one of shape {np.shape(factor)}")
        each_agent = {f"factor of the mean {name}": factor for name, (_, factor) in self.means.items()}
        each_agent |= {f"probability of start {j}": q for j, (q, _) in enumerate(self.starts)}
        for name, number in each_agent.items():
            if (shape := np.shape(number)) not in ((), (1,), (N,)):
                raise ArgumentError(f"{name} must be a number or (N,), with N = {N}; got one of shape {shape}")
        self.answering(N, N), self.probabilities(N)

    @property
    def sent(self) -> list[str]:
        """The names of what arrives."""
        return [f"sent_{name}" for name in self.messages]

    @property
    def starts(self) -> tuple[tuple[Any, Row], ...]:
        """Pairs (probability, row)."""
        return ((1.0, self.start),) if isinstance(self.start, Mapping) else tuple(self.start)

    @property
    def vectors(self) -> list[str]:
        """The names of all vectors, the server's (theta first), then means and mean_residual, then each agent's."""
        server = ["theta", *self.server, *self.means, "mean_residual"]
        return [*server, "xi", *self.agent, "residual", "start", "theta_hat", *self.messages, *self.sent]

    @frozen_property
    def rows(self) -> list[Row]:
        """All rows in a fixed order: starts, correction, messages, then of server and agents, absent of agents."""
        stays = [{name: 1.0} for name in (["theta", *self.server, "xi", *self.agent])]
        names = [next(iter(row)) for row in stays]
        out = [*(row for _, row in self.starts), self.correction, *self.messages.values()]
        out += [self.then.get(name, row) for name, row in zip(names, stays, strict=True)]
        k = 1 + len(self.server)
        return out + [self.absent.get(name, row) for name, row in zip(names[k:], stays[k:], strict=True)]

    def uses(self, name: str) -> bool:
        """Whether some row looks at a vector. name : its name"""
        return any(name in row for row in self.rows)

    def probabilities(self, agents: int) -> Floats:
        """(J, N): with which an agent takes each of the starts. agents : N"""
        q = np.array([np.broadcast_to(np.asarray(p, np.float64), agents) for p, _ in self.starts])
        checks.refuse(q < 0, q, "probability of a start must be at least 0")
        total = np.zeros(agents) + q.sum(0)
        checks.refuse(np.abs(total - 1) > 1e-12, total, "probabilities of starts must add up to 1 for each agent")
        return q

    def answering(self, agents: int, participants: int) -> tuple[Floats, Floats]:
        """P(c in S) : (N,), and P(c in S and e in S) : (N, N), where participants of N agents answer."""
        if self.presence is None:
            share = participants / agents
            pairs = np.full((agents, agents), share * (participants - 1) / max(agents - 1, 1))
            np.fill_diagonal(pairs, share)
            return np.full(agents, share), pairs
        p = checks.array("presence", self.presence, (agents,))
        checks.refuse((p <= 0) | (p > 1), p, "presence must be above 0 and at most 1")
        return p, np.where(np.eye(agents, dtype=bool), p[:, None], np.outer(p, p))

    def bytes(self, dim: int) -> float:
        """What an agent sends and receives in a round in which it takes part, of coordinates in messages. dim : d"""
        had = np.zeros((len(self.messages), dim), np.bool_)
        for each, row in zip(had, self.messages.values(), strict=True):
            for factor in row.values():
                each |= np.atleast_2d(factor).any(0)
        up = sum(self.send.bits(int(count)) for count in had.sum(1))
        return up / 8 + 8.0 * int(had.any(0).sum()) * self.downloads


def _check(name: str, row: Row, known: set[str]) -> None:
    """Refuse rows with vectors that are not there yet, and factors that are no numbers."""
    for vector, factor in row.items():
        if vector not in known:
            raise ArgumentError(f"row of {name} must be of {', '.join(sorted(known))}; got {vector}")
        _check_numbers(f"factor of {vector} in the row of {name}", factor)


def _check_numbers(name: str, value: Any) -> None:
    """Refuse what is not finite numbers, of any shape."""
    checks.array(name, value, checks.as_array(name, value).shape)

"""How a run begins: the arguments of `simulate`, checked once, as jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks, results
from ..algorithms import Algorithm, Exchange, Linear, method
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem, Stream
from ..sampling import IID, Markov, Sampling, law_of
from ..threads import cores
from .hooks import begin_memory, check_server_step, draw_pass, first_exchange
from .outcome_tables import OutcomeTables, first_states, outcome_tables
from .progress import reporter
from .schedule import expected_updates, typical_observations

Integers = NDArray[np.int64]
ENGINES = ("cpu", "cuda", "auto", "reference")
KEEP = ("theta", "xi", "state")
MOST_IN_A_ROUND = 2**27  # observations: a few seconds of an agent
MOST_IN_PYTHON = 1e8  # observations in the readable engine: about half an hour
MOST_COMPILED = 1e15  # observations in the other engines: a month of one core
MOST_OBSERVATIONS = 2**34  # per agent and seed: the counter of the random numbers


class RunState(NamedTuple):
    """Where S runs stand between two rounds: all that they need to go on, in every engine; an entry per seed.

    Random numbers are a function of (seed, agent, step), so there is no generator to keep. Each engine keeps control
    variates as it works with them, so that a run that it goes on with has the same bits: xi_c = xi[c] / scale - shift.

    theta : (S, d), the server's; running : (S, d), its mean from `average_after` on, before that where it began
    memory : (S, k - 1, d), what else the server remembers; of an exchange, then what each agent does beside xi, and
        then what the rows of the agents' tables last gave, as `begin_memory` has it
    xi : (S, N, d), shift : (S, d), scale : (S,): the control variates
    steps : (S, N), observations that each agent has received; chain : (S, N), the state of its trajectory, else 0
    received : (S,), observations as `Schedule.received` counts them; rounds : (S,), communications
    diverged_at : (S,), first round whose theta is not finite, or -1
    """

    theta: Floats
    running: Floats
    memory: Floats
    xi: Floats
    shift: Floats
    scale: Floats
    steps: Integers
    chain: Integers
    received: Integers
    rounds: Integers
    diverged_at: Integers

    @property
    def first(self) -> int:
        """How many rounds are done, the same for all seeds."""
        return int(self.rounds[0])

    @property
    def variates(self) -> Floats:
        """xi_c + shift : (S, N, d)."""
        return self.xi if (self.scale == 1).all() else np.asarray(self.xi / self.scale[:, None, None])

    @property
    def control_variates(self) -> Floats:
        """xi_c : (S, N, d)."""
        return np.asarray(self.variates - self.shift[:, None])

    def of_seeds(self, which: slice) -> RunState:
        """The state of some of the seeds."""
        return RunState._make(values[which] for values in self)


@dataclass(frozen=True, eq=False)
class Job:
    """One configuration with all its arguments, checked: what a run is, in every engine.

    problem, sampling : as they are drawn from (`law_of`); given : as they were given, and as a result remembers them
    """

    problem: Problem
    algorithm: Algorithm
    sampling: Sampling
    given: tuple[Problem, Sampling]
    outcomes: OutcomeTables
    rounds: int
    seeds: NDArray[np.uint64]
    recorded: Integers
    start: RunState  # after which its rounds begin: the first, or those of a run that goes on
    arguments: dict[str, Any]  # of `simulate`, as a result remembers them
    exchange: Exchange | None  # of the first round, where the method declares one

    @property
    def dtype(self) -> str:
        """Of the local steps."""
        return str(self.arguments["dtype"])

    @property
    def participants(self) -> int:
        """How many agents take part in a round."""
        return self.algorithm.taking_part(self.problem.n_agents)

    @property
    def server(self) -> Linear:
        """The server's memory."""
        return Linear(*self.algorithm.server())

    @property
    def agents_differ(self) -> bool:
        """Whether agents have step sizes and lengths of their own."""
        return self.algorithm.agent_factors(self.problem.n_agents) is not None

    @property
    def updates_per_round(self) -> float:
        """Observations that all agents and seeds receive in a round, in expectation."""
        return expected_updates(self.algorithm, self.sampling, self.problem.n_agents, self.rounds) * len(self.seeds)

    @property
    def updates(self) -> float:
        """The same in all rounds that are to come."""
        return self.updates_per_round * (self.rounds - self.start.first)

    def of_seeds(self, which: slice) -> Job:
        """The same for some of the seeds."""
        return replace(self, seeds=self.seeds[which], start=self.start.of_seeds(which))

    def until(self, rounds: int) -> Job:
        """Its first rounds as a run that keeps its state and records its end; itself where there are no more."""
        if rounds >= self.rounds:
            return self
        recorded = np.union1d(self.recorded[self.recorded <= rounds], rounds)
        keep = [*(name for name in self.arguments["keep"] if name != "state"), "state"]
        arguments = dict(self.arguments, rounds=rounds, record=recorded.tolist(), keep=keep)
        return replace(self, rounds=rounds, recorded=recorded, arguments=arguments)

    def after(self, state: RunState) -> Job:
        """What is left of it once its runs have come to a state."""
        return replace(self, start=state, recorded=self.recorded[self.recorded > state.first])


class JobOutcome(NamedTuple):
    """What an engine makes of a job with S seeds and R recorded rounds."""

    theta: Floats  # (S, R, d)
    observed: Integers  # (S, R): observations received so far, as `Schedule.received` counts them
    state: RunState  # after the last round


def join(parts: Iterable[JobOutcome]) -> JobOutcome:
    """The outcome of a job from those of its seeds."""
    theta, observed, states = zip(*parts, strict=True)
    state = RunState(*(np.concatenate(arrays) for arrays in zip(*states, strict=True)))
    return JobOutcome(np.concatenate(theta), np.concatenate(observed), state)


def configurations(problems: Any, algorithms: Any, rounds: Any) -> list[tuple[Problem, Algorithm, int]]:
    """Every problem with every algorithm and its rounds, checked."""
    problems = _entries("problems", problems, "a fedlsa problem or a sequence of them")
    for problem in problems:
        checks.instance("problem", problem, Problem, "a fedlsa problem")
    algorithms = _entries("algorithms", algorithms, "a sequence of methods such as fl.FedLSA(...)")
    algorithms = [method("algorithm", each) for each in algorithms]
    each = [rounds] * len(algorithms)
    if checks.is_sequence(rounds):
        each = checks.entries("rounds", rounds, "one number per algorithm")
        if len(each) != len(algorithms):
            raise ArgumentError(f"rounds must be one number per algorithm, {len(algorithms)}; got {len(each)}")
    each = [checks.integer("rounds", T, at_least=1) for T in each]
    return [(p, a, T) for p in problems for a, T in zip(algorithms, each, strict=True)]


def _entries(name: str, values: Any, rule: str) -> list[Any]:
    """What a sequence holds, which is not empty."""
    listed = checks.entries(name, values, rule)
    if not listed:
        raise ArgumentError(f"{name} must not be empty; got {checks.show(listed)}")
    return listed


@dataclass(frozen=True, eq=False)
class RunOptions:
    """What a run is given beside problem, method and rounds, as `simulate` describes it; checked."""

    seeds: Any = 10  # here a list of integers
    theta_0: ArrayLike | None = None
    xi_0: ArrayLike | None = None
    sampling: Sampling = IID()  # noqa: RUF009  immutable
    engine: str = "cpu"
    record: Any = 200  # a count, or a list of rounds
    keep: Any = ("theta",)  # here a list
    dtype: str = "float64"
    threads: Any = None  # here a number
    progress: Any = None  # here a function or None

    def __post_init__(self) -> None:
        seeds = seed_list(self.seeds)
        checks.choice("engine", self.engine, ENGINES)
        checks.choice("dtype", self.dtype, ("float64", "float32"))
        checks.instance("sampling", self.sampling, Sampling, "fl.IID(), fl.Markov() or fl.Replay()")
        keep = checks.entries("keep", self.keep, f"a sequence of names out of {KEEP}")
        keep = [checks.choice("keep", name, KEEP) for name in keep]
        threads = cores() if self.threads is None else checks.integer("threads", self.threads, at_least=1)
        record, progress = self.record, reporter(self.progress)
        if checks.is_sequence(record):
            record = checks.entries("record", record, "a count of rounds, or the rounds to record")
        checked = {"seeds": seeds, "record": record, "keep": keep, "threads": threads, "progress": progress}
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def seed_list(seeds: Any) -> list[int]:
    """The seeds behind a count or an iterable, checked."""
    if checks.is_sequence(seeds):
        listed = checks.entries("seeds", seeds, "a count or a sequence of integers")
        out = [checks.integer("seeds", s, at_most=2**64 - 1) for s in listed]
        if not out:
            raise ArgumentError("seeds must hold at least one seed; got an empty sequence")
        if len(set(out)) < len(out):
            raise ArgumentError(f"seeds must be distinct; got {checks.show(out)}")
        return out
    return list(range(checks.integer("seeds", seeds, at_least=1, at_most=checks.MOST_ENTRIES)))


def make_job(problem: Problem, algorithm: Algorithm, rounds: int, options: RunOptions) -> Job:
    """One configuration with its start and its recorded rounds, checked."""
    given, theta_0, xi_0 = (problem, options.sampling), options.theta_0, options.xi_0
    problem, sampling = law_of(*given)
    outcomes = outcome_tables(problem, sampling)
    if sampling.order is not None:
        longest = int(outcomes.length.max())
        checks.memory("seeds", problem.n_agents * len(options.seeds), 8 * longest, "the order of the agents' rows")
        draw_pass(sampling, 0, 0, 0, longest)
    arguments = {name: getattr(options, name) for name in ("seeds", "record", "keep", "dtype", "engine")}
    N, d, runs = problem.n_agents, problem.dim, len(arguments["seeds"])
    _check_rounds(algorithm, sampling.thin, rounds, problem, arguments)
    exchange = first_exchange(algorithm, sampling, problem, options.dtype)
    theta = _per_seed("theta_0", given[0].start if theta_0 is None else theta_0, runs, (d,))
    check_server_step(algorithm, theta.reshape(-1, d)[0])
    xi = None
    if xi_0 is not None:
        xi = _per_seed("xi_0", xi_0, runs, (N, d))
        total = np.abs(problem.weights @ xi).max()
        if total > 1e-8 * max(1.0, float(np.abs(xi).max())):
            raise ArgumentError(f"xi_0 must have a weighted sum of 0 over agents; got a sum of size {total:g}")
    remembered = dict(arguments, rounds=rounds, theta_0=None if theta_0 is None else theta, xi_0=xi)
    recorded = results.recorded_rounds(arguments["record"], rounds)
    lengths = runs if algorithm.random_lengths else 1
    checks.memory("rounds", rounds, 32 * lengths, "step sizes and lengths of rounds")
    numbers = 2 * len(recorded) * (d + 4) + 4 * N * d
    checks.memory("seeds", runs, 8 * numbers, "recorded iterates and the agents' parameters")
    seeds = np.array(arguments["seeds"], np.uint64)
    theta, none = np.broadcast_to(theta, (runs, d)), np.zeros(runs, np.int64)
    nowhere = np.broadcast_to(np.int64(0), (runs, N))
    variates = np.broadcast_to(0.0 if xi is None else xi, (runs, N, d))
    memory = np.broadcast_to(0.0, (runs, len(Linear(*algorithm.server()).change) - 1, d))
    memory = memory if exchange is None else begin_memory(exchange, problem, theta, variates)
    start = RunState(
        theta,
        theta,
        memory=memory,
        xi=variates,
        shift=np.broadcast_to(0.0, (runs, d)),
        scale=np.ones(runs),
        steps=nowhere,
        chain=first_states(problem, sampling, seeds) if isinstance(sampling, Markov) else nowhere,
        received=none,
        rounds=none,
        diverged_at=none - 1,
    )
    return Job(problem, algorithm, sampling, given, outcomes, rounds, seeds, recorded, start, remembered, exchange)


def _per_seed(name: str, value: ArrayLike, seeds: int, shape: tuple[int, ...]) -> Floats:
    """An array of a shape, one for all seeds, or with one more axis, one for each."""
    rule = f"an array of finite numbers of shape {shape}, or ({seeds}, ...), one for each seed"
    each = checks.as_array(name, value, rule).ndim == len(shape) + 1
    return checks.array(name, value, (seeds, *shape) if each else shape)


def _check_rounds(algorithm: Algorithm, thin: int, rounds: int, p: Problem, arguments: dict[str, Any]) -> None:
    """What a method says of its rounds, tried on 64 of them before the run begins."""
    _check_step_size(algorithm, rounds, arguments["dtype"])
    each, name = typical_observations(algorithm, thin, p.n_agents, rounds), type(algorithm).__name__
    drawn = isinstance(p.observations, Stream)
    if drawn and arguments["dtype"] != "float64":
        raise ArgumentError(f"dtype must be 'float64' for a stream; got {arguments['dtype']!r}")
    lengths = each if each.ndim == 1 else each.max(1)
    most = 2**32 if drawn else MOST_OBSERVATIONS
    if rounds * sum(map(int, lengths)) >= most * len(lengths):  # exact, however long rounds are
        rule = f"rounds times observations per round must be below 2**{most.bit_length() - 1}"
        raise ArgumentError(f"{rule}; got {rounds} rounds")
    mean = sum(map(int, lengths)) / len(lengths)
    if mean > MOST_IN_A_ROUND:
        rule = f"at most {MOST_IN_A_ROUND:,} in a round on average, since nothing interrupts a round"
        raise ArgumentError(f"observations of {name} must be {rule}; got {mean:.3g}")
    updates = float(algorithm.taking_part(p.n_agents)) * mean * rounds * len(arguments["seeds"])
    if arguments["engine"] == "reference" and updates > MOST_IN_PYTHON:
        rule = f"at most {MOST_IN_PYTHON:.0e} of all agents and seeds with engine='reference', which is to be read"
        raise ArgumentError(f"observations must be {rule}; got {updates:.3g}: use engine='cpu'")
    if updates > MOST_COMPILED:
        rule = f"at most {MOST_COMPILED:.0e} of all agents and seeds, a month of one core"
        raise ArgumentError(f"observations must be {rule}; got {updates:.3g}: take fewer rounds or seeds")
    goes_on = "state" in arguments["keep"]  # later, perhaps
    if algorithm.average_after is not None and algorithm.average_after > rounds and not goes_on:
        raise ArgumentError(f"average_after must be at most rounds, {rounds}; got {algorithm.average_after}")


def _check_step_size(algorithm: Algorithm, rounds: int, dtype: str) -> None:
    """The first and the last step size, between which a rule that is monotone keeps all others."""
    ends = np.array([0, rounds - 1])
    with np.errstate(over="ignore", under="ignore"):
        etas = algorithm.eta(ends)
    range_ = np.finfo(dtype)  # below its smallest normal number 1 / eta, a gain, may be infinite
    for t, eta in zip(ends, etas, strict=True):
        if not range_.tiny <= eta <= range_.max:
            raise ArgumentError(
                f"step_size must give a positive finite {dtype} in every round, {range_.tiny:.2g} to {range_.max:.2g}; "
                f"got {eta:g} in round {t} from {algorithm.step_size!r}"
            )

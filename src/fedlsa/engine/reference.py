"""The recursion in plain NumPy, written to be read beside the paper; every other engine is held to it by tests.

It draws the same random numbers as the compiled engine, one at a time, and keeps nothing clever. One round serves all
that runs in NumPy: whole runs, the agents' paths within their rounds (engine/paths.py), and of it `serve`, the server's
part, a network.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..algorithms import Algorithm, Noise, RandK, Rounding, Sending, Sign, TopK
from ..algorithms.sending import Exactly
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem, Stream
from ..sampling import Markov, Replay, Sampling
from .hooks import apply_own, apply_server_step, combine, draw_pass, rows_remembered
from .jobs import Job, JobOutcome, RunState, join
from .outcome_tables import OutcomeTables, chain_states
from .progress import Progress
from .random import MESSAGE, OBSERVATION, PRESENCE, choose, fill_uniforms, two_uniforms, words
from .schedule import Schedule, schedule

Integers = NDArray[np.int64]
# (theta, xi, agents, eta, moments) -> (N, points, d): where each of the agents is after so many observations of a round
# that begins at theta; NaN for the others. eta : of all, or (N,); moments : (points,), or (N, points)
LocalSteps = Callable[[Floats, Floats, Integers, Any, Integers], Floats]
AHEAD = 64  # random words of an agent that are made at once


@functools.lru_cache(maxsize=4096)
def words_ahead(seed: int, agent: int, part: int) -> list[int]:
    """The random words of an agent's observations AHEAD part, ..., AHEAD (part + 1) - 1."""
    return words(seed, agent, OBSERVATION, AHEAD * part, AHEAD).tolist()


def draw_observation(z: Stream, seed: int, agent: int, number: int) -> tuple[Floats, Floats, float]:
    """u : (d,), v : (d,) and y of an observation, from the function as it stands."""
    uniforms, u, v = np.empty(z.uniforms), np.zeros(z.dim), np.zeros(z.dim)
    fill_uniforms(seed, agent, number, uniforms)
    try:
        with np.errstate(all="ignore"):
            return u, v, float(z.draw(agent, uniforms, u, v))
    except Exception as error:  # a user's function
        what = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"draw must not raise, and return a number; got {what} of agent {agent}") from error


@dataclass
class Observer:
    """One agent's stream of observations for one seed: `receive` gives (A(z), b(z)) of the next one."""

    problem: Problem
    sampling: Sampling
    outcomes: OutcomeTables
    seed: int
    agent: int
    state: int | None = None  # of its trajectory, if it follows one
    step: int = 0  # how many observations it has received
    number: int = -1  # of the pass of an order whose `rows` are at hand

    def __post_init__(self) -> None:
        self.table = int(self.problem.assignment[self.agent])
        self.shift = int(self.outcomes.shift[self.table])
        self.position = int(self.outcomes.row[self.table]) + ((self.state or 0) << (32 - self.shift))

    def receive(self) -> tuple[Floats, Floats]:
        """A(z) : (d, d) and b(z) : (d,) of the next observation."""
        outcomes, m = self.outcomes, self.table
        if isinstance(self.problem.observations, Stream):
            u, v, y = draw_observation(self.problem.observations, self.seed, self.agent, self.step)
            self.step += 1
            return np.outer(u, v), y * u
        number, at = divmod(self.step, int(outcomes.length[m]))
        if isinstance(self.sampling, Replay):
            k = outcomes.row[m] + at
        elif self.sampling.order is not None:
            if number != self.number:
                self.number = number
                self.rows = draw_pass(self.sampling, self.seed, self.agent, number, int(outcomes.length[m]))
            k = outcomes.row[m] + self.rows[at]
        else:
            word = words_ahead(self.seed, self.agent, self.step // AHEAD)[self.step % AHEAD]
            if isinstance(self.sampling, Markov):
                entry = int(outcomes.slots[self.position + (word >> self.shift)])
                k = self.position + choose(word, entry, self.shift)
                self.position = int(outcomes.successor[k])
            else:
                entry = int(outcomes.slots[outcomes.slot[m] + (word >> self.shift)])
                k = outcomes.row[m] + choose(word, entry, self.shift)
        self.step += 1
        z = self.row = int(outcomes.order[k])
        A, b = self.problem.observations.matrices(slice(z, z + 1))
        return A[0], b[0]


@dataclass
class RowMemory:
    """What each row of each agent's table last gave, as algorithms/exchanges.py has it: SAGA.

    given : of all agents, one number after the other; mean : (N, d), over the rows of each
    """

    problem: Problem
    given: Floats
    mean: Floats

    def residual(self, agent: int, z: int, theta: Floats) -> Floats:
        """Of row z at theta, less what it last gave, plus the mean; what it gives now is remembered instead."""
        observations = self.problem.observations
        L, F, f = (part[0] for part in observations.factors(slice(z, z + 1)))
        first = rows_remembered(self.problem)[0][agent] + len(f) * z
        before = self.given[first : first + len(f)]
        now = F @ theta - f
        news = L @ (now - before)
        residual = news + self.mean[agent] + observations.ridge * theta
        before[:] = now
        self.mean[agent] += self.problem.prob[z] * news
        return np.asarray(residual)


def observed_steps(
    agents: list[Observer],
    thin: int,
    pull: float = 0.0,
    residuals: Floats | None = None,
    rows: RowMemory | None = None,
) -> LocalSteps:
    """Local steps on observations, of which every thin-th makes an update; in the type of theta, or each its own.

    pull : back to the start; residuals : (N, d), exact ones of the start, for steps that are anchored there; rows : for
    steps that remember what these gave
    """

    def walk(theta: Floats, xi: Floats, active: Integers, eta: Any, moments: Integers) -> Floats:
        out = np.full((len(agents), moments.shape[-1], theta.shape[-1]), np.nan, theta.dtype)
        etas, ends = np.broadcast_to(eta, len(agents)), np.broadcast_to(moments, out.shape[:2])
        starts = np.broadcast_to(theta, (len(agents), theta.shape[-1]))
        for c in active:
            theta_hat, h, dtype = starts[c], 0, theta.dtype
            for k, until in enumerate(ends[c]):
                while h < until:
                    h += 1
                    A, b = agents[c].receive()
                    if h % thin == 0:
                        if rows is not None:
                            residual = rows.residual(int(c), agents[c].row, theta_hat) - xi[c]
                        elif residuals is None:
                            residual = A.astype(dtype) @ theta_hat - b.astype(dtype) - xi[c].astype(dtype)
                        else:
                            residual = A @ (theta_hat - starts[c]) - residuals[c] - xi[c]
                        if pull:
                            residual = residual + pull * (theta_hat - starts[c])
                        theta_hat = theta_hat - etas[c] * residual
                out[c, k] = theta_hat
        return out

    return walk


def noiseless_steps(problem: Problem) -> LocalSteps:
    """Local steps on the mean systems: h of them are theta_hat + eta S_h (b_bar_c + xi_c - A_bar_c theta_hat)."""
    from ..theory.bias_terms import power_sums  # which loads more than a server's part needs

    A, b, table = problem.table_A_bar, problem.b_bar, problem.assignment

    @functools.lru_cache(64)  # random lengths, or a step size that changes: no use for all of them
    def maps(eta: float, h: int) -> tuple[Floats, Floats]:
        """S_h and S_h A_bar_c of each table."""
        S, _ = power_sums(A, eta, h)
        return S, S @ A

    def walk(theta: Floats, xi: Floats, active: Integers, eta: Any, steps: Integers) -> Floats:
        out = np.full((len(xi), len(steps), len(theta)), np.nan)
        table_of_active, theta_hat = table[active], np.tile(theta, (len(active), 1))
        of_length: dict[int, tuple[Floats, Floats]] = {}  # pull and S_h A_bar_c of each agent in this round
        for k, h in enumerate(np.diff(steps, prepend=0).tolist()):
            if h > 0:
                if h not in of_length:
                    S, SA = maps(float(eta), h)
                    pull = np.einsum("cij,cj->ci", S[table_of_active], b[active] + xi[active])
                    of_length[h] = pull, SA[table_of_active]
                pull, SA = of_length[h]
                theta_hat = theta_hat + eta * (pull - np.einsum("cij,cj->ci", SA, theta_hat))
            out[active, k] = theta_hat
        return out

    return walk


class Iterate(NamedTuple):
    """What lasts from round to round, in float64.

    theta : (d,), the server's; xi : (N, d), control variates; running : (d,), the mean of theta from `average_after`
    on, and before that where theta began; estimate : (d,), running or theta, whichever the method gives
    memory : (k - 1, d), what else the server remembers
    """

    theta: Floats
    xi: Floats
    running: Floats
    estimate: Floats
    memory: Floats
    diverged_at: int = -1  # first round whose theta is not finite


def serve(
    now: Iterate,
    algorithm: Algorithm,
    t: int,
    change: Floats,
    weights: Floats,
    gain: float | Floats,
    scale: float = 1.0,
) -> Iterate:
    """The server's part of round t = 1, 2, ...: average, control variates, server step, projection, running mean.

    change : (N, d), theta_hat_c - theta, and 0 for agents that did not take part
    weights : (N,), of the average; scale : N / m where m of N took part (algorithms/methods.py says why)
    gain : of the correction, one for all agents or (N,)
    """
    moved = weights @ change
    if np.ndim(gain):
        pulled = np.reshape(gain, (-1, 1)) * change
        xi = now.xi + (weights @ pulled - pulled)
    else:
        xi = now.xi + gain * (moved - change)  # keeps sum_c w_c xi_c = 0
    server, share = map(np.array, algorithm.server())
    server_state = np.outer(share, scale * moved) + server[:, 1:] @ now.memory
    theta, memory = now.theta + server_state[0], server_state[1:]
    if algorithm.server_step is not None:
        theta = apply_server_step(algorithm, now.theta, theta, t)
    return settle(now, algorithm, t, theta, xi, memory)


def settle(now: Iterate, algorithm: Algorithm, t: int, theta: Floats, xi: Floats, memory: Floats) -> Iterate:
    """What all rounds end with: projection, a look whether theta is finite, running mean."""
    norm = np.sqrt(theta @ theta)
    if algorithm.projection is not None and norm > algorithm.projection:
        theta = theta * (algorithm.projection / norm)
    diverged_at = t if not np.isfinite(norm) and now.diverged_at < 0 else now.diverged_at
    if algorithm.average_after is None or t < algorithm.average_after:
        return Iterate(theta, xi, now.running, theta, memory, diverged_at)
    running = now.running + (theta - now.running) / (t + 1 - algorithm.average_after)
    return Iterate(theta, xi, running, running, memory, diverged_at)


def run_rounds(
    problem: Problem,
    algorithm: Algorithm,
    rounds: Schedule,
    start: Iterate,
    local_steps: LocalSteps,
    moments: Integers,
    dtype: str = "float64",
) -> Iterator[tuple[Iterate, Floats]]:
    """One run of a method: Algorithm 1 (algo:fed-lsa), Algorithm 2 (algo:fed-lsa-controlvar-h2), Scaffnew
    (algo:fed-lsa-controlvar-h1), round by round.

    moments : (T, points) or (T, N, points), after which observations agents are looked at; the last ends the round.
    Yields what lasts after each round, and where the agents were within it : (N, points, d).
    """
    now, N = start, problem.n_agents
    for t, gain in enumerate(rounds.gains):
        active, sent = rounds.active(t), now.theta.astype(dtype)  # local steps are in dtype
        inside = local_steps(sent, now.xi, active, rounds.step_sizes[t].astype(dtype), moments[t])
        change = np.zeros_like(now.xi)
        change[active] = inside[active, -1].astype(np.float64) - sent
        now = serve(now, algorithm, rounds.first + t + 1, change, problem.weights, gain, N / len(active))
        yield now, inside


def run_exchange(
    problem: Problem, algorithm: Algorithm, rounds: Schedule, start: Iterate, agents: list[Observer], seed: int
) -> Iterator[Iterate]:
    """One run of a method that declares an exchange, as the page of algorithms/exchanges.py says it.

    start.memory : what the server remembers beside theta, then what each agent does beside xi, then what rows gave
    """
    now, w, (N, d), every = start, problem.weights, start.xi.shape, np.arange(problem.n_agents)
    for s in range(len(rounds.gains)):
        t, x = rounds.first + s + 1, algorithm.checked_exchange(rounds.step_sizes[s], rounds.updates[s], N, d)
        k, names = len(x.server), ("xi", *x.agent)
        of_agents, given = np.split(now.memory[k:], [N * len(x.agent)])
        own = of_agents.reshape(N, len(x.agent), d)
        known = {"theta": now.theta, **dict(zip(x.server, now.memory[:k], strict=True))}
        server, here = list(known), np.zeros((N, 1), bool)
        known |= dict(zip(names, [now.xi, *own.swapaxes(0, 1)], strict=True))
        known["residual"] = problem.b_bar - problem.A_bar @ now.theta
        known["mean_residual"] = w @ known["residual"]

        answers, which = two_uniforms(seed, every, PRESENCE, t, 0)
        active = rounds.active(s) if x.presence is None else np.flatnonzero(answers < x.presence)
        here[active] = True
        chosen = (which >= np.cumsum(x.probabilities(N), 0)[:-1]).sum(0)
        known["start"] = np.stack([combine(row, known, (N, d)) for _, row in x.starts])[chosen, every]

        exact = problem.b_bar - np.einsum("cij,cj->ci", problem.A_bar, known["start"]) if x.anchored else None
        remembered = None if x.table is None else RowMemory(problem, given.ravel().copy(), known[x.table].copy())
        walk = observed_steps(agents, rounds.thin, x.pull, exact, remembered)
        pulls, ends = combine(x.correction, known, (N, d)), rounds.observations[s][..., None]
        inside = walk(known["start"], pulls, active, rounds.step_sizes[s], ends)
        known["theta_hat"] = np.where(here, inside[:, -1], 0.0)
        if remembered is not None and x.table is not None:
            known[x.table], given = remembered.mean, remembered.given.reshape(-1, d)

        for j, (name, row) in enumerate(x.messages.items()):
            known[name] = combine(row, known, (N, d))
            known[f"sent_{name}"] = np.array([sent(x.send, known[name][c], seed, c, t, j) for c in range(N)])
        share = x.answering(N, algorithm.taking_part(N))[0]
        for name, (message, factor) in x.means.items():
            known[name] = (w * factor / share)[active] @ known[f"sent_{message}"][active]

        after = {name: combine(x.then.get(name, {name: 1}), known, (d,)) for name in server}
        for name in names:
            rows = (each.get(name, {name: 1}) for each in (x.then, x.absent))
            answered, absent = (combine(row, known, (N, d)) for row in rows)
            after[name] = np.where(here, answered, absent)
        vectors = np.array([after[name] for name in server])
        if x.rule is not None:
            means = np.array([known[name] for name in x.means]).reshape(-1, d)
            apply_own("rule", algorithm, t, x.rule, vectors, means, t, np.array(x.parameters, np.float64))
        kept = np.stack([after[name] for name in x.agent], 1) if x.agent else own
        memory = np.concatenate([vectors[1:], kept.reshape(-1, d), given])
        now = settle(now, algorithm, t, vectors[0], after["xi"], memory)
        yield now


def sent(sending: Sending, message: Floats, seed: int, agent: int, t: int, j: int) -> Floats:
    """What arrives of the j-th message of an agent in round t : (d,); algorithms/sending.py says the laws."""
    d = len(message)
    half = (d + 1) // 2
    first, second = two_uniforms(seed, agent, MESSAGE, t, j * half + np.arange(half))
    u = np.stack([first, second], 1).ravel()[:d]
    if isinstance(sending, Noise):
        radius, angle = np.sqrt(-2 * np.log(1 - first)), 2 * np.pi * second
        normal = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()[:d]
        return message + sending.deviation * normal
    if isinstance(sending, Exactly) or np.isnan(message).any():
        return message * (1.0 if isinstance(sending, Exactly) else np.nan)
    if isinstance(sending, RandK):
        k = min(sending.coordinates, d)
        out, left = np.zeros(d), k
        for i in range(d):  # each set of k coordinates has the same probability
            if u[i] * (d - i) < left:
                out[i], left = message[i] * (d / k if sending.scaled else 1.0), left - 1
        return out
    if isinstance(sending, Rounding):
        step, dither = sending.step, sending.step * (u - 0.5)
        points = np.floor((message + dither + sending.radius) / step + 0.5)
        arrived = step * np.clip(points, 0, 2**sending.bits_each - 1) - sending.radius
        return arrived - dither if sending.dither else arrived
    if isinstance(sending, TopK):
        largest = np.argsort(-np.abs(message), kind="stable")[: sending.coordinates]
        return np.where(np.isin(np.arange(d), largest), message, 0.0)
    if isinstance(sending, Sign):
        return np.where(message >= 0, 1.0, -1.0) * np.abs(message).mean()
    raise ArgumentError(f"send must be of a kind that engines know; got {checks.show(sending)}")


@np.errstate(over="ignore", invalid="ignore")  # a run that diverges says so itself
def run_seed(job: Job, seed: int, steps: LocalSteps | None = None) -> JobOutcome:
    """One run of a job, with i.i.d., Markov (algo:fed-lsa-markov) or replayed observations.

    steps : the local steps, by default on one observation at a time
    """
    p, a = job.problem, job.algorithm
    begin = job.start.of_seeds(slice(k := job.seeds.tolist().index(seed), k + 1))
    first, received = begin.first, int(begin.received[0])
    rounds = schedule(a, job.sampling, seed, job.rounds - first, p.n_agents, first)
    theta, positions = begin.theta[0], zip(begin.chain[0].tolist(), begin.steps[0].tolist(), strict=True)
    agents = [Observer(p, job.sampling, job.outcomes, seed, c, *position) for c, position in enumerate(positions)]
    xi, lost = begin.control_variates[0], int(begin.diverged_at[0])
    start = now = Iterate(theta, xi, begin.running[0], theta, begin.memory[0], lost)
    if steps is None:
        steps = observed_steps(agents, job.sampling.thin)
    recorded, estimates, ends = set(job.recorded.tolist()), {first: theta}, rounds.observations[..., None]
    observed = np.append(received, received + np.cumsum(rounds.received))
    run: Iterator[Iterate]
    if job.exchange is None:
        run = (now for now, _ in run_rounds(p, a, rounds, start, steps, ends, job.dtype))
    else:
        run = run_exchange(p, a, rounds, start, agents, seed)
    for t, now in enumerate(run, start=first + 1):
        if job.exchange is not None:
            observed[t - first] = sum(agent.step for agent in agents)  # who answers may be a matter of chance
        if t in recorded:
            estimates[t] = now.estimate
    state = RunState(
        theta=now.theta[None],
        running=now.running[None],
        memory=now.memory[None],
        xi=now.xi[None],
        shift=np.zeros((1, p.dim)),
        scale=np.ones(1),
        steps=np.array([[agent.step for agent in agents]]),
        chain=chain_states(p, job.outcomes, np.array([[agent.position for agent in agents]])),
        received=observed[-1:],
        rounds=np.array([job.rounds]),
        diverged_at=np.array([now.diverged_at]),
    )
    out = np.array([estimates[t] for t in job.recorded.tolist()]).reshape(-1, p.dim)
    return JobOutcome(out[None], observed[job.recorded - first][None], state)


def run_all(jobs: list[Job], report: Progress | None) -> list[JobOutcome]:
    """Every seed of every job, one after the other."""
    out, done, total = [], 0, sum(len(job.seeds) for job in jobs)
    for job in jobs:
        runs = []
        for seed in job.seeds:
            runs.append(run_seed(job, int(seed)))
            done += 1
            if report:
                report(done, total)
        out.append(join(runs))
    return out

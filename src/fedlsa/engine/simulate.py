"""The one verb: `simulate` runs a method on a problem, `simulate_grid` many of them together."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .. import checks, results
from ..algorithms import Algorithm
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError, DivergenceWarning
from ..problems import Problem
from ..sampling import IID, Markov, Replay, Sampling
from .progress import Progress, reporter
from .reference import run_seed
from .runner import run_all
from .tables import Layout, layout
from .task import Run, observation_tables, shapes

ENGINES = ("cpu", "reference")
KEEP = ("theta", "xi")
MOST_CHAINS = 2048  # agents times seeds in a task: their parameters then stay in the second-level cache
MOST_OBSERVATIONS = 2**34  # per agent and seed: the counter of the random numbers


def simulate(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int = 500,
    seeds: int | Iterable[int] = 10,
    theta_0: ArrayLike | None = None,
    xi_0: ArrayLike | None = None,
    sampling: Sampling = IID(),  # noqa: B008  immutable
    engine: str = "cpu",
    record: int | Sequence[int] = 200,
    keep: Sequence[str] = ("theta",),
    dtype: str = "float64",
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> xr.Dataset:
    """Run a method on a problem for `rounds` communications, once per seed.

    seeds : a count (0 ... n - 1) or the seeds themselves; theta_0 : (d,), by default theta_star + 1;
    xi_0 : (N, d), by default 0, its weighted sum must be 0; record : a count of rounds, or the rounds to record;
    keep : "theta" and "xi" (the final control variates); threads : by default all cores;
    progress : True for a bar, or a function of (updates done, updates in all).

    Returns a dataset over (seed, round) with squared_error, theta, communications, uploads, samples and diverged_at.
    The same arguments give the same bits for any number of threads; its attributes say how to make it again.
    """
    return simulate_grid(
        problem, [algorithm], rounds, seeds, theta_0, xi_0, sampling, engine, record, keep, dtype, threads, progress
    )[0]


def simulate_grid(
    problems: Problem | Sequence[Problem],
    algorithms: Sequence[Algorithm],
    rounds: int | Sequence[int] = 500,
    seeds: int | Iterable[int] = 10,
    theta_0: ArrayLike | None = None,
    xi_0: ArrayLike | None = None,
    sampling: Sampling = IID(),  # noqa: B008  immutable
    engine: str = "cpu",
    record: int | Sequence[int] = 200,
    keep: Sequence[str] = ("theta",),
    dtype: str = "float64",
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> list[xr.Dataset]:
    """Run every algorithm on every problem; they share the machine, and each result is what `simulate` alone gives.

    rounds : one number for all, or one per algorithm. The other arguments are those of `simulate`, for all alike.
    Returns one dataset per pair, the algorithms of the first problem first.
    """
    if isinstance(problems, Problem):
        problems = [problems]
    configurations = _configurations(problems, algorithms, rounds)
    seed_list = _seeds(seeds)
    checks.choice("engine", engine, ENGINES)
    checks.choice("dtype", dtype, ("float64", "float32"))
    checks.instance("sampling", sampling, (IID, Markov, Replay), "fl.IID(), fl.Markov() or fl.Replay()")
    if isinstance(keep, str) or not all(isinstance(k, str) for k in keep):
        raise ArgumentTypeError(f"keep must be a sequence of names out of {KEEP}; got {checks.show(keep)}")
    for name in keep:
        checks.choice("keep", name, KEEP)
    threads = None if threads is None else checks.integer("threads", threads, at_least=1)
    arguments = dict(seeds=seed_list, record=record, keep=list(keep), dtype=dtype, engine=engine)

    jobs, made = [], {}
    for p, a, T in configurations:
        if id(p) not in made:
            made[id(p)] = layout(p, sampling)
        jobs.append(_job(p, a, sampling, made[id(p)], T, seed_list, theta_0, xi_0, record, dtype, arguments))
    report = reporter(progress)
    outcomes = (_run_reference if engine == "reference" else _run_compiled)(jobs, threads, report)
    out = [_result(job, outcome, keep) for job, outcome in zip(jobs, outcomes, strict=True)]
    _warn_of_divergence(out)
    return out


@dataclass(frozen=True, eq=False)
class Job:
    """One configuration with all its arguments, checked."""

    problem: Problem
    algorithm: Algorithm
    sampling: Sampling
    where: Layout
    rounds: int
    seeds: NDArray[np.uint64]
    recorded: NDArray[np.int64]
    theta_0: Floats
    xi_0: Floats | None
    dtype: str
    arguments: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Outcome:
    """Plain arrays of one job: theta (S, R, d), samples (S, R), diverged_at (S,), xi (S, N, d)."""

    theta: NDArray[Any]
    samples: Floats
    diverged_at: NDArray[np.int64]
    xi: NDArray[Any]


def _run_reference(jobs: list[Job], threads: int | None, report: Progress | None) -> list[Outcome]:
    out, done, total = [], 0, sum(len(job.seeds) for job in jobs)
    for job in jobs:
        share = job.algorithm.participants(job.problem.n_agents) / job.problem.n_agents
        xi_0 = np.zeros((job.problem.n_agents, job.problem.dim)) if job.xi_0 is None else job.xi_0
        runs = []
        for s in job.seeds:
            runs.append(
                run_seed(
                    job.problem, job.algorithm, job.sampling, job.where, job.rounds, job.recorded, int(s),
                    job.theta_0, xi_0, job.dtype,
                )
            )  # fmt: skip
            done += 1
            if report:
                report(done, total)
        received = [np.append(0, np.cumsum(r.observations))[job.recorded] * share for r in runs]
        out.append(
            Outcome(
                np.stack([r.theta for r in runs]),
                np.stack(received),
                np.array([r.diverged_at for r in runs]),
                np.stack([r.xi for r in runs]),
            )
        )
    return out


def _run_compiled(jobs: list[Job], threads: int | None, report: Progress | None) -> list[Outcome]:
    cores = threads or available_cores()
    tables: dict[int, Any] = {}
    runs: list[list[Run]] = []
    for job in jobs:
        key = id(job.problem)
        if key not in tables:
            tables[key] = observation_tables(job.problem, job.where, shapes(job.problem, job.dtype)[2], job.dtype)
        alone = job.algorithm.random_lengths or job.algorithm.participants(job.problem.n_agents) < job.problem.n_agents
        wanted = max(-(-cores // len(jobs)), job.problem.n_agents * len(job.seeds) // MOST_CHAINS)
        parts = len(job.seeds) if alone else min(len(job.seeds), wanted)
        runs.append(
            [
                Run(
                    job.problem, job.algorithm, job.sampling, job.where, tables[key], part, job.rounds, job.recorded,
                    job.theta_0, job.xi_0, job.dtype,
                )
                for part in np.array_split(job.seeds, parts)
            ]
        )  # fmt: skip
    run_all([r for group in runs for r in group], cores, report)
    return [_collect(group) for group in runs]


def _collect(runs: list[Run]) -> Outcome:
    p = runs[0].problem
    xi = [
        r.state.xi.reshape(-1, r.task.D)[: p.n_agents * len(r.seeds), : p.dim].reshape(p.n_agents, -1, p.dim)
        for r in runs
    ]
    return Outcome(
        np.concatenate([r.state.record[:, :, : p.dim] for r in runs]),
        np.concatenate([r.samples for r in runs]),
        np.concatenate([r.state.diverged for r in runs]),
        np.concatenate(xi, axis=1).transpose(1, 0, 2),
    )


def available_cores() -> int:
    """The processor cores that this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _result(job: Job, outcome: Outcome, keep: Sequence[str]) -> xr.Dataset:
    uploads = job.recorded * job.algorithm.participants(job.problem.n_agents)
    return results.assemble(
        job.problem,
        job.algorithm,
        job.sampling,
        rounds=job.recorded,
        seeds=job.seeds.astype(np.int64) if job.seeds.max() < 2**63 else job.seeds,
        theta=outcome.theta,
        samples=outcome.samples,
        uploads=np.tile(uploads, (len(job.seeds), 1)),
        diverged_at=outcome.diverged_at,
        xi=outcome.xi if "xi" in keep else None,
        keep_theta="theta" in keep,
        arguments=job.arguments,
    )


def _warn_of_divergence(out: list[xr.Dataset]) -> None:
    lost = [(r.attrs["method"], r["diverged_at"].values) for r in out if (r["diverged_at"].values >= 0).any()]
    if lost:
        method, at = lost[0]
        n, first = sum(int((d >= 0).sum()) for _, d in lost), int(at[at >= 0].min())
        runs = "1 run" if n == 1 else f"{n} runs"
        more = "" if len(lost) == 1 else f" and {len(lost) - 1} more"
        text = f"{runs} diverged, the first at round {first} of {method}{more}: try a smaller step_size"
        warnings.warn(text, DivergenceWarning, stacklevel=4)


# ---------------------------------------------------------------- the door


def _configurations(problems: Any, algorithms: Any, rounds: Any) -> list[tuple[Problem, Algorithm, int]]:
    for name, value, kind, article in (
        ("problem", problems, Problem, "a fedlsa problem or a sequence of them"),
        ("algorithm", algorithms, Algorithm, "a sequence of methods such as fl.FedLSA(...)"),
    ):
        if isinstance(value, kind) or isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise ArgumentTypeError(f"{name}s must be {article}; got {checks.show(value)}")
        if not list(value):
            raise ArgumentError(f"{name}s must not be empty; got {checks.show(value)}")
        for v in value:
            checks.instance(name, v, kind, "a fedlsa problem" if kind is Problem else "a method such as fl.FedLSA(...)")
    each = [rounds] * len(algorithms)
    if isinstance(rounds, Iterable) and not isinstance(rounds, (str, bytes)):
        each = list(rounds)
        if len(each) != len(algorithms):
            raise ArgumentError(f"rounds must be one number per algorithm, {len(algorithms)}; got {len(each)}")
    each = [checks.integer("rounds", T, at_least=1) for T in each]
    return [(p, a, T) for p in problems for a, T in zip(algorithms, each, strict=True)]


def _seeds(seeds: Any) -> list[int]:
    if isinstance(seeds, Iterable) and not isinstance(seeds, (str, bytes)):
        out = [checks.integer("seeds", s, at_most=2**64 - 1) for s in seeds]
        if not out:
            raise ArgumentError("seeds must hold at least one seed; got an empty sequence")
        if len(set(out)) < len(out):
            raise ArgumentError(f"seeds must be distinct; got {checks.show(out)}")
        return out
    return list(range(checks.integer("seeds", seeds, at_least=1)))


def _job(
    problem: Problem,
    algorithm: Algorithm,
    sampling: Sampling,
    where: Layout,
    rounds: int,
    seeds: list[int],
    theta_0: ArrayLike | None,
    xi_0: ArrayLike | None,
    record: int | Sequence[int],
    dtype: str,
    arguments: dict[str, Any],
) -> Job:
    N, d = problem.n_agents, problem.dim
    algorithm.participants(N)
    lengths = algorithm.observations(np.arange(0.5, 64) / 64, sampling.thin)
    if rounds * float(np.mean(lengths)) >= MOST_OBSERVATIONS:
        raise ArgumentError(f"rounds times observations per round must be below 2**34; got {rounds} rounds")
    start = problem.theta_star + 1 if theta_0 is None else checks.array("theta_0", theta_0, (d,))
    drift = None
    if xi_0 is not None:
        drift = checks.array("xi_0", xi_0, (N, d))
        total = np.abs(problem.weights @ drift).max()
        if total > 1e-8 * max(1.0, float(np.abs(drift).max())):
            raise ArgumentError(f"xi_0 must have a weighted sum of 0 over agents; got a sum of size {total:g}")
    mine = dict(arguments, rounds=rounds, theta_0=None if theta_0 is None else start, xi_0=drift)
    recorded = results.recorded_rounds(record, rounds)
    return Job(
        problem, algorithm, sampling, where, rounds, np.array(seeds, np.uint64), recorded, start, drift, dtype, mine
    )



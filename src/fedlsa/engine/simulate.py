"""The one verb: `simulate` runs a method on a problem, `simulate_grid` many of them together."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .. import checks, results
from ..algorithms import Algorithm
from ..errors import DivergenceWarning
from ..problems import Problem
from ..sampling import IID, Markov, Replay, Sampling
from . import cuda, jobs
from .jobs import Job
from .progress import Progress, reporter
from .reference import run_seed
from .runner import run_all
from .tables import layout
from .task import Run, observation_tables, shapes

ENGINES = ("cpu", "cuda", "auto", "reference")
MOST_CHAINS = 2048  # agents times seeds in a task: their parameters then stay in the second-level cache


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
    engine : "cpu", "cuda" (an NVIDIA GPU), "auto" (whichever is quicker) or "reference" (to be read);
    keep : "theta" and "xi" (the final control variates); threads : by default all cores;
    dtype : of the local steps; what the server holds (theta, averages, control variates) is float64 either way;
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
    chosen = jobs.configurations([problems] if isinstance(problems, Problem) else problems, algorithms, rounds)
    seeds = jobs.seed_list(seeds)
    checks.choice("engine", engine, ENGINES)
    checks.choice("dtype", dtype, ("float64", "float32"))
    checks.instance("sampling", sampling, (IID, Markov, Replay), "fl.IID(), fl.Markov() or fl.Replay()")
    keep = jobs.kept(keep)
    threads = available_cores() if threads is None else checks.integer("threads", threads, at_least=1)
    report = reporter(progress)
    if checks.is_sequence(record):
        record = checks.entries("record", record, "a count of rounds, or the rounds to record")

    arguments = {"seeds": seeds, "record": record, "keep": keep, "dtype": dtype, "engine": engine}
    where = {id(p): layout(p, sampling) for p, _, _ in chosen}
    work = [
        jobs.make_job(p, a, sampling, where[id(p)], T, seeds, theta_0, xi_0, record, dtype, arguments)
        for p, a, T in chosen
    ]
    if engine == "auto":
        engine = _quicker(work)
        for job in work:
            job.arguments["engine"] = engine
    if engine == "cuda":
        outcomes = [Outcome(*arrays) for arrays in cuda.run_all(work, report)]
    elif engine == "reference":
        outcomes = _run_reference(work, report)
    else:
        outcomes = _run_compiled(work, threads, report)
    texts = {p: results.problem_text(p) for p in dict.fromkeys(p for p, _, _ in chosen)}
    out = [_result(job, outcome, keep, texts[job.problem]) for job, outcome in zip(work, outcomes, strict=True)]
    _warn_of_divergence(out)
    return out


@dataclass(frozen=True, eq=False)
class Outcome:
    """Plain arrays of one job: theta (S, R, d), diverged_at (S,), xi (S, N, d).

    observed : (S, R), observations received up to a recorded round by an agent that takes part in all
    """

    theta: NDArray[Any]
    observed: NDArray[np.int64]
    diverged_at: NDArray[np.int64]
    xi: NDArray[Any]


def _quicker(work: list[Job]) -> str:
    """The GPU, where there is one and enough to do."""
    updates = sum(job.updates for job in work)
    return "cuda" if updates > cuda.WORTH_IT and cuda.available() else "cpu"


def _run_reference(work: list[Job], report: Progress | None) -> list[Outcome]:
    out, done, total = [], 0, sum(len(job.seeds) for job in work)
    for job in work:
        runs = []
        for s in job.seeds:
            runs.append(run_seed(job, int(s)))
            done += 1
            if report:
                report(done, total)
        out.append(
            Outcome(
                np.stack([r.theta for r in runs]),
                np.stack([r.observations for r in runs]),
                np.array([r.diverged_at for r in runs]),
                np.stack([r.xi for r in runs]),
            )
        )
    return out


def _run_compiled(work: list[Job], threads: int, report: Progress | None) -> list[Outcome]:
    tables: dict[int, Any] = {}
    runs: list[list[Run]] = []
    for job in work:
        key = id(job.problem)
        if key not in tables:
            tables[key] = observation_tables(job.problem, job.where, shapes(job.problem, job.dtype)[2], job.dtype)
        alone = job.algorithm.random_lengths or job.algorithm.taking_part(job.problem.n_agents) < job.problem.n_agents
        wanted = max(-(-threads // len(work)), job.problem.n_agents * len(job.seeds) // MOST_CHAINS)
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
    run_all([r for group in runs for r in group], threads, report)
    return [_collect(group) for group in runs]


def _collect(runs: list[Run]) -> Outcome:
    p = runs[0].problem
    return Outcome(
        np.concatenate([r.state.record[:, :, : p.dim] for r in runs]),
        np.concatenate([np.tile(r.observed, (len(r.seeds), 1)) for r in runs]),
        np.concatenate([r.state.diverged for r in runs]),
        np.concatenate([r.xi for r in runs], axis=1).transpose(1, 0, 2),
    )


def available_cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _result(job: Job, outcome: Outcome, keep: Sequence[str], problem_text: str) -> xr.Dataset:
    m = job.algorithm.taking_part(job.problem.n_agents)
    return results.assemble(
        job.problem,
        job.algorithm,
        job.sampling,
        rounds=job.recorded,
        seeds=job.seeds.astype(np.int64) if job.seeds.max() < 2**63 else job.seeds,
        theta=outcome.theta,
        samples=outcome.observed * (m / job.problem.n_agents),
        uploads=np.tile(job.recorded * m, (len(job.seeds), 1)),
        diverged_at=outcome.diverged_at,
        xi=outcome.xi if "xi" in keep else None,
        keep_theta="theta" in keep,
        arguments=job.arguments,
        problem_text=problem_text,
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

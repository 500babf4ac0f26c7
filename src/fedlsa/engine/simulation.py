"""`simulate` runs a method on a problem, `simulate_grid` many of them together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from .. import results
from ..algorithms import Algorithm
from ..errors import DivergenceWarning, FedLSAError, warn
from ..problems import Problem
from ..sampling import IID, Sampling
from ..theory import stability_limit
from . import cpu, cuda, reference
from .jobs import Job, JobOutcome, RunOptions, configurations, make_job
from .progress import Progress

QUICK_LIMIT = 500  # tables times squared dimension: the stability limit takes less than a second
QUICK_MOMENTS = 1e6  # observations times squared dimension: so do the moments that it rests on
NAMED = 3  # configurations that diverged, named in a warning
LIMIT_TOLERANCE = 1e-4  # three digits are shown


def simulate(
    problem: Problem,
    algorithm: Algorithm | type[Algorithm] | str,
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

    problem : one of fl.problems; algorithm : fl.FedLSA(...), fl.SCAFFLSA(...), fl.Scaffnew(...) or a method of your own
    (its class or its name is enough where all its settings have default values);
    sampling : how agents meet their observations, fl.IID(), fl.Markov(...) or fl.Replay(...);
    seeds : a count (0 ... n - 1) or the seeds themselves; theta_0 : (d,), by default `problem.start`: theta_star + 1 in
    a laboratory (families, decision processes), 0 on data, and attrs["start"] names it;
    xi_0 : (N, d), by default 0, its weighted sum must be 0; both may have one more axis in front, a start per seed;
    record : a count of rounds, or the rounds to record; threads : by default all cores;
    engine : "cpu", "cuda" (an NVIDIA GPU), "auto" (whichever is quicker) or "reference" (to be read);
    keep : "theta", "xi" (the final control variates) and "state" (all that `fl.resume` needs to go on);
    dtype : of the local steps; what the server holds (theta, averages, control variates) is float64 either way;
    progress : True for a bar, or a function of (updates done, updates in all).

    Returns a dataset over (seed, rounds) with squared_error, theta, communications, uploads, samples and diverged_at.
    The same arguments give the same bits for any number of threads; its attributes say how to make it again.

    >>> p = fl.problems.garnet(agents=4, seed=1)
    >>> r = fl.simulate(p, fl.SCAFFLSA(0.1, 10), rounds=50, seeds=3)
    >>> dict(r.sizes), int(r["communications"][0, -1]), float(r["samples"][0, -1])
    ({'seed': 3, 'rounds': 51, 'dim': 8}, 50, 500.0)
    """
    options = RunOptions(seeds, theta_0, xi_0, sampling, engine, record, keep, dtype, threads, progress)
    return run_grid(problem, [algorithm], rounds, options)[0]


def simulate_grid(
    problems: Problem | Sequence[Problem],
    algorithms: Sequence[Algorithm | type[Algorithm] | str],
    rounds: int | Sequence[int] = 500,
    seeds: int | Iterable[int] = 10,
    **options: Any,
) -> list[xr.Dataset]:
    """Run every algorithm on every problem; they share the machine, and each result is what `simulate` alone gives.

    rounds : one number for all, or one per algorithm
    seeds, options : theta_0, sampling, record and all others as in `simulate`, for all alike

    Returns one dataset per pair, the algorithms of the first problem first.

    >>> p = fl.problems.garnet(agents=4, seed=1)
    >>> runs = fl.simulate_grid(p, [fl.FedLSA(0.1, 10), fl.SCAFFLSA(0.1, 10)], rounds=20, seeds=3)
    >>> [r.attrs["method"] for r in runs]
    ['FedLSA(step_size=0.1, local_steps=10)', 'SCAFFLSA(step_size=0.1, local_steps=10)']
    """
    return run_grid(problems, algorithms, rounds, RunOptions(seeds, **options))


def run_grid(problems: Any, algorithms: Any, rounds: Any, options: RunOptions) -> list[xr.Dataset]:
    """What `simulate_grid` gives."""
    work, options = prepare(problems, algorithms, rounds, options)
    out = [result_of(job, outcome) for job, outcome in zip(work, run_jobs(work, options), strict=True)]
    warn_of_divergence([(job.problem, job.algorithm) for job in work], options.sampling, out)
    return out


def prepare(problems: Any, algorithms: Any, rounds: Any, options: RunOptions) -> tuple[list[Job], RunOptions]:
    """The jobs of a grid, and the options with the engine that runs them."""
    chosen = configurations([problems] if isinstance(problems, Problem) else problems, algorithms, rounds)
    work = [make_job(*each, options) for each in chosen]
    if options.engine == "auto":  # the GPU, where there is one, with enough to do and nothing that it refuses
        enough = sum(job.updates for job in work) > cuda.LEAST_UPDATES
        options = replace(options, engine="cuda" if enough and cuda.takes(work) else "cpu")
        for job in work:
            job.arguments["engine"] = options.engine
    return work, options


def run_jobs(work: list[Job], options: RunOptions) -> list[JobOutcome]:
    """Bring jobs to their end."""
    if options.engine == "cuda":
        return cuda.run_all(work, options.progress)
    if options.engine == "reference":
        return reference.run_all(work, options.progress)
    return cpu.run_all(work, options.threads, options.progress)


def result_of(job: Job, outcome: JobOutcome) -> xr.Dataset:
    """The rounds of a job as a dataset."""
    keep = job.arguments["keep"]
    return results.assemble(
        job.problem,
        job.algorithm,
        job.sampling,
        rounds=job.recorded,
        seeds=job.seeds.astype(np.int64) if job.seeds.max() < 2**63 else job.seeds,
        theta=outcome.theta,
        samples=outcome.observed * ((1 if job.agents_differ else job.participants) / job.problem.n_agents),
        diverged_at=outcome.state.diverged_at,
        xi=outcome.state.control_variates if "xi" in keep else None,
        state=outcome.state._asdict() if "state" in keep else None,
        keep_theta="theta" in keep,
        arguments=job.arguments,
    )


def warn_of_divergence(
    of: Sequence[tuple[Problem, Algorithm]], sampling: Sampling, out: Sequence[xr.Dataset], where: Sequence[str] = ()
) -> None:
    """One warning that says which configurations diverged, when, how many of their seeds, and what to do.

    where : the names of the problems, in sweeps of several
    """
    ended = [r["diverged_at"].values for r in out]
    lost = [i for i, at in enumerate(ended) if (at >= 0).any()]
    if not lost:
        return
    reports = []
    for i in lost[:NAMED]:
        first, label = ended[i][ended[i] >= 0].min(), results.method_label(of[i][1])
        place = f"{label} on {where[i]}" if where and where[i] else label
        reports.append(f"{place} ({(ended[i] >= 0).sum()} of {len(ended[i])} seeds, from round {first} on)")
    more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
    which = f"{len(lost)} of {len(out)} configurations" if len(out) > 1 else "runs"
    warn(f"{which} diverged: {', '.join(reports)}{more}: {advise_step_size(*of[lost[0]], sampling)}", DivergenceWarning)


def advise_step_size(problem: Problem, algorithm: Algorithm, sampling: Sampling) -> str:
    """What to do about a run that diverged; with the stability limit, where exact theory soon finds it."""
    small = problem.n_tables * problem.dim**2 <= QUICK_LIMIT and len(problem.prob) * problem.dim**2 <= QUICK_MOMENTS
    if small and isinstance(sampling, IID) and isinstance(algorithm.step_size, float):
        try:
            limit = stability_limit(problem, replace(algorithm, average_after=None), LIMIT_TOLERANCE)
        except FedLSAError:  # theory does not speak of the method, or has too few digits
            limit = np.nan
        if limit == 0:
            return "no step_size was found to be stable"
        if limit <= algorithm.step_size:
            return f"try a smaller step_size, below the stability limit of about {limit:.3g}"
    return "try a smaller step_size"

"""`simulate` runs a method on a problem, `simulate_grid` many of them together; `resume` goes on with a result.

`simulate_to_files` is for a grid that may be interrupted: run in parts of a few seconds, with what it has on disk
between them. Beside each file that is to come stands FILE.partial, a result with its state. The same call goes on from
there, to the bits of a run that was never interrupted; `resume` goes on from it too.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, results
from ..algorithms import Algorithm
from ..errors import ArgumentError, DivergenceWarning, FedLSAError, ResultFileError, warn
from ..problems import Problem
from ..results import recipe
from ..results.dataset import append_rounds, assemble
from ..sampling import IID, Sampling
from . import cpu, cuda, exchange_runs, reference
from .jobs import Job, JobOutcome, RunOptions, RunState, configurations, make_job
from .progress import Progress

if TYPE_CHECKING:
    import xarray as xr

QUICK_LIMIT = 500  # tables times squared dimension: the stability limit takes less than a second
QUICK_MOMENTS = 1e6  # observations times squared dimension: so do the moments that it rests on
NAMED = 3  # configurations that diverged, named in a warning
LIMIT_TOLERANCE = 1e-4  # three digits are shown
SECONDS = 5.0  # of a part: what an interruption costs
WRITING = 20  # parts are so many times as long as it takes to write what there is
FIRST_UPDATES = {"reference": 1e5, "cpu": 1e8, "cuda": 1e9}  # of the first part: about a second
PART_OF = "part_of"  # the attribute of a partial result that identifies its run


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
    sampling : how agents meet their observations, fl.IID(), fl.Markov(...), fl.Replay(...) or a sampling of your own;
    seeds : a count (0 ... n - 1) or the seeds themselves; theta_0 : (d,), by default `problem.start`: theta_star + 1 in
    a laboratory (families, decision processes), 0 on data, and attrs["start"] names it;
    xi_0 : (N, d), by default 0, its weighted sum must be 0; both may have one more axis in front, a start per seed;
    record : a count of rounds, or the rounds to record; threads : by default all cores;
    engine : "cpu", "cuda" (an NVIDIA GPU), "auto" (whichever is quicker) or "reference" (to be read);
    keep : "theta", "xi" (the final control variates) and "state" (all that `fl.resume` needs to go on);
    dtype : of the local steps; what the server holds (theta, averages, control variates) is float64 either way;
    progress : True for a bar, or a function of (updates done, updates in all).

    Returns a dataset over (seed, rounds) with squared_error, theta, communications, uploads, samples and diverged_at;
    of a method that declares an exchange also bytes. Such methods run in float64.
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


def resume(
    result: xr.Dataset,
    rounds: int = 1000,
    problem: Problem | None = None,
    algorithm: Algorithm | None = None,
    record: int | Sequence[int] = 200,
    engine: str | None = None,
    threads: int | None = None,
    progress: Progress | bool | None = None,
    sampling: Sampling | None = None,
) -> xr.Dataset:
    """Go on with a run until `rounds` communications in all: the bits of a run that was never interrupted.

    result : of `simulate` with "state" in its `keep`, or of `resume`; as it is, or saved and loaded again
    problem, algorithm, sampling : needed only where the result could not hold them; must then be the ones of the run
    record : as in `simulate`, of the new rounds: how many (evenly spaced, the last always) or which
    engine : by default that of the result; on another one the run agrees with an uninterrupted one to rounding
    threads, progress : as in `simulate`; progress is that of the new rounds

    Returns the whole result, the rounds that were recorded before first. `fl.results.arguments` of it gives the call
    of `simulate` that makes it in one go.

    >>> p = fl.problems.garnet(agents=4, seed=1)
    >>> r = fl.simulate(p, fl.SCAFFLSA(0.1, 10), rounds=50, seeds=3, keep=("theta", "state"))
    >>> longer = fl.resume(r, rounds=80)
    >>> longer.identical(fl.simulate(**fl.results.arguments(longer))), int(longer["rounds"][-1])
    (True, 80)
    """
    recipe.require_result("result", result)
    given, done = results.arguments(result, problem, algorithm, sampling), rounds_done(result)
    dropped = [name for name in given["keep"] if name not in (*result, "state")]
    if dropped:
        raise ArgumentError(f"result must hold {dropped[0]}, which its run kept; got one without")
    if checks.integer("rounds", rounds, at_least=1) <= done:
        raise ArgumentError(f"rounds must be above {done}, those that are done; got {rounds}")
    given |= {"record": [*result["rounds"].values.tolist(), *_new_rounds(record, done, rounds)]}
    given |= {"engine": given["engine"] if engine is None else engine, "threads": threads, "progress": progress}
    del given["rounds"]
    jobs, options = prepare(given.pop("problem"), [given.pop("algorithm")], rounds, RunOptions(**given))
    return warned(jobs, go_on(jobs, [result], options))[0]


def _new_rounds(record: int | Sequence[int], done: int, rounds: int) -> list[int]:
    if not checks.is_sequence(record):
        count = checks.integer("record", record, at_least=1)
        return [done + t for t in results.recorded_rounds(count + 1, rounds - done)[1:].tolist()]
    listed: list[int] = results.recorded_rounds(record, rounds).tolist()
    if listed[0] <= done:
        raise ArgumentError(f"record must hold rounds above {done}, those that are done; got {listed[0]}")
    return listed


def run_grid(problems: Any, algorithms: Any, rounds: Any, options: RunOptions) -> list[xr.Dataset]:
    """What `simulate_grid` gives."""
    jobs, options = prepare(problems, algorithms, rounds, options)
    return warned(jobs, go_on(jobs, [None] * len(jobs), options))


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


def go_on(jobs: Sequence[Job], earlier: Sequence[xr.Dataset | None], options: RunOptions) -> list[xr.Dataset]:
    """Bring jobs to their end together, from their start or from results of their first rounds that hold a state."""
    left = [job if r is None else remaining(job, r) for job, r in zip(jobs, earlier, strict=True)]
    if options.engine == "cuda":
        outcomes = cuda.run_all(left, options.progress)
    elif options.engine == "reference":
        outcomes = reference.run_all(left, options.progress)
    else:
        outcomes = cpu.run_all(left, options.threads, options.progress)
    out = [result_of(job, outcome) for job, outcome in zip(left, outcomes, strict=True)]
    for i, (job, r) in enumerate(zip(jobs, earlier, strict=True)):
        if r is not None:
            out[i] = append_rounds(r.isel(rounds=np.isin(r["rounds"], job.recorded)), out[i])
    return out


def rounds_done(result: xr.Dataset) -> int:
    """After how many rounds a result ends, recorded or not."""
    return int(recipe.value(result.attrs["arguments"])["rounds"])


def remaining(job: Job, result: xr.Dataset) -> Job:
    """What is left of a job, from the state that a result of its first rounds holds."""
    seeds, S, N, d = job.seeds.tolist(), len(job.seeds), job.problem.n_agents, job.problem.dim
    lacks = [name for name in results.STATE if name not in (*result, "state_memory")]
    if lacks:
        raise ArgumentError('result must hold a state, from fl.simulate(..., keep=("theta", "state")); got one without')
    if result["seed"].values.tolist() != seeds:  # each goes on with the random numbers of its own
        raise ArgumentError(
            f"result must hold all {S} seeds of its run in their order, {checks.show(seeds)}; "
            f"got {checks.show(result['seed'].values.tolist())}"
        )
    state_dims = {name: dims for name, dims in results.STATE.items() if name in result}
    parts = {name.removeprefix("state_"): result[name].transpose(*dims).values for name, dims in state_dims.items()}
    parts.setdefault("memory", np.zeros((S, 0, d)))
    done = np.full(S, rounds_done(result))
    state = RunState(**parts, rounds=done, diverged_at=result["diverged_at"].values)
    k, states = job.start.memory.shape[1], job.outcomes.length[job.problem.assignment]
    wanted = [(S, d), (S, d), (S, k, d), (S, N, d), (S, d), (S,), (S, N), (S, N)]
    sound = [x.shape for x in state[: len(wanted)]] == wanted
    # compiled code would trust positions that are not in the problem's tables
    if not (sound and (state.chain >= 0).all() and (state.chain < states).all() and (state.steps >= 0).all()):
        raise ArgumentError("result must hold the state as simulate gave it; got one that does not fit its problem")
    return job.after(state)


def result_of(job: Job, outcome: JobOutcome) -> xr.Dataset:
    """The rounds of a job as a dataset."""
    keep, (problem, sampling), state = job.arguments["keep"], job.given, outcome.state
    arrays: dict[str, Any] = {
        "theta": outcome.theta,
        "diverged_at": state.diverged_at,
        "uploads": exchange_runs.uploads(job),
    }
    counted = 1 if job.agents_differ or job.exchange is not None else job.participants  # 1: of all agents together
    arrays["samples"] = outcome.observed * (counted / job.problem.n_agents)
    arrays["samples"] = arrays["samples"] + job.recorded * job.algorithm.rows_read(job.problem)
    if "xi" in keep:
        arrays["xi"] = state.control_variates
    if "state" in keep:
        held = {name: getattr(state, name.removeprefix("state_")) for name in results.STATE}
        arrays |= {name: value for name, value in held.items() if value.shape[1:2] != (0,)}  # most remember nothing
    seeds = job.seeds.astype(np.int64) if job.seeds.max() < 2**63 else job.seeds
    return assemble(problem, job.algorithm, sampling, job.arguments, job.recorded, seeds, arrays)


def warned(jobs: Sequence[Job], out: list[xr.Dataset]) -> list[xr.Dataset]:
    """The results of jobs, with a warning where some diverged."""
    warn_of_divergence([(job.problem, job.algorithm) for job in jobs], jobs[0].sampling, out)
    return out


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
        from ..theory import stability_limit  # which takes longer to load than most runs take

        try:
            limit = stability_limit(problem, replace(algorithm, average_after=None), LIMIT_TOLERANCE)
        except FedLSAError:  # theory does not speak of the method, or has too few digits
            limit = np.nan
        if limit == 0:
            return "no step_size was found to be stable"
        if limit <= algorithm.step_size:
            return f"try a smaller step_size, below the stability limit of about {limit:.3g}"
    return "try a smaller step_size"


def partial_file(path: Path) -> Path:
    """Where a run under way keeps what it has, until the result itself is written."""
    return path.with_name(path.name + ".partial")


def simulate_to_files(
    problem: Any, algorithms: Any, files: Sequence[Path], *, rounds: Any, replaces: bool = False, **given: Any
) -> list[xr.Dataset]:
    """What `simulate_grid` gives, kept beside `files`, one per result, as it comes; a later call goes on.

    replaces : whether partial files of other runs are replaced; else they are an error. The caller writes the results
    themselves, and then removes the partial files.
    """
    jobs, options = prepare(problem, algorithms, rounds, RunOptions(**given))
    kept = [partial_file(path) for path in files]
    so_far = [_read(job, path, replaces) for job, path in zip(jobs, kept, strict=True)]
    total, updates = sum(job.updates for job in jobs), FIRST_UPDATES[options.engine]
    done = [0 if r is None else rounds_done(r) for r in so_far]
    while waiting := [i for i, job in enumerate(jobs) if done[i] < job.rounds]:
        each = updates / len(waiting)
        parts = [jobs[i].until(done[i] + max(1, int(each / jobs[i].updates_per_round))) for i in waiting]
        before = sum(job.updates_per_round * t for job, t in zip(jobs, done, strict=True))
        of_parts = sum(part.updates_per_round * (part.rounds - done[i]) for i, part in zip(waiting, parts, strict=True))
        clock = time.monotonic()
        report = _whole_progress(options.progress, before, of_parts, total)
        longer = go_on(parts, [so_far[i] for i in waiting], replace(options, progress=report))
        ran = time.monotonic() - clock
        for i, part, r in zip(waiting, parts, longer, strict=True):
            so_far[i], done[i] = r, part.rounds
            if part is not jobs[i]:
                kept[i].parent.mkdir(parents=True, exist_ok=True)
                results.save(r.assign_attrs({PART_OF: _identity(jobs[i])}), kept[i])
        wanted = max(SECONDS, WRITING * (time.monotonic() - clock - ran))
        updates *= min(10.0, max(0.1, wanted / max(1e-3, ran)))
    return warned(jobs, [r for r in so_far if r is not None])


def _identity(job: Job) -> str:
    """The same for runs that give the same bits."""
    made_of = {
        "problem": recipe.problem_text(job.given[0]),
        "algorithm": recipe.algorithm_record(job.algorithm),
        "sampling": recipe.sampling_record(job.given[1]),
        "arguments": job.arguments,
        "versions": recipe.versions(),
    }
    return hashlib.sha256(recipe.text(made_of).encode()).hexdigest()


def _read(job: Job, path: Path, replaces: bool) -> xr.Dataset | None:
    """What an interrupted run of the same job has left."""
    if not path.exists():
        return None
    try:
        found = results.load(path)
    except ResultFileError as error:
        if replaces:
            return None
        raise ResultFileError(f"{error}; --force begins again without it") from None
    if found.attrs.get(PART_OF) == _identity(job):
        return found
    if replaces:
        return None
    rule = f"{path} must be what an interrupted run of the same command has left, and is another's"
    raise ArgumentError(f"{rule}: that command goes on with it, --force replaces it")


def _whole_progress(report: Progress | None, before: float, of_part: float, total: float) -> Progress | None:
    """Progress of a part as that of the whole."""
    return None if report is None else lambda done, all_: report(before + of_part * done / all_, total)

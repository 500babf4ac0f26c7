"""Runs that go on: `resume` takes a result that kept its state, and brings it to more rounds.

A grid that may be interrupted is run in parts of a few seconds, and what it has is on disk between them.

Beside each file that is to come stands FILE.partial, a result with its state. The same call goes on from there, to the
bits of a run that was never interrupted; `fl.resume` goes on from it too.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks, results
from ..algorithms import Algorithm
from ..errors import ArgumentError, ResultFileError
from ..problems import Problem
from ..results import recipe
from ..results.dataset import append_rounds
from .jobs import Job, RunOptions, RunState
from .progress import Progress
from .simulation import prepare, result_of, run_jobs, warn_of_divergence

if TYPE_CHECKING:
    import xarray as xr

SECONDS = 5.0  # of a part: what an interruption costs
WRITING = 20  # parts are so many times as long as it takes to write what there is
FIRST_UPDATES = {"reference": 1e5, "cpu": 1e8, "cuda": 1e9}  # of the first part: about a second
PART_OF = "part_of"  # the attribute of a partial result that identifies its run


def resume(
    result: xr.Dataset,
    rounds: int = 1000,
    problem: Problem | None = None,
    algorithm: Algorithm | None = None,
    record: int | Sequence[int] = 200,
    engine: str | None = None,
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> xr.Dataset:
    """Go on with a run until `rounds` communications in all: the bits of a run that was never interrupted.

    result : of `simulate` with "state" in its `keep`, or of `resume`; as it is, or saved and loaded again
    problem, algorithm : needed only where the result could not hold them; must then be the ones of the run
    record : of the new rounds, how many (evenly spaced, the last always) or which
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
    given = results.arguments(result, problem, algorithm)
    done = int(given["rounds"])
    dropped = [name for name in given["keep"] if name not in (*result, "state")]
    if dropped:
        raise ArgumentError(f"result must hold {dropped[0]}, which its run kept; got one without")
    if checks.integer("rounds", rounds, at_least=1) <= done:
        raise ArgumentError(f"rounds must be above {done}, those that are done; got {rounds}")
    new = _new_rounds(record, done, rounds)
    given |= {"record": [*result["rounds"].values.tolist(), *new]}
    given |= {"engine": given["engine"] if engine is None else engine, "threads": threads, "progress": progress}
    del given["rounds"]
    work, options = prepare(given.pop("problem"), [given.pop("algorithm")], rounds, RunOptions(**given))
    job = rest_of(work[0], result, done)
    longer = append_rounds(result, result_of(job, *run_jobs([job], options)))
    warn_of_divergence([(job.problem, job.algorithm)], job.sampling, [longer])
    return longer


def _new_rounds(record: int | Sequence[int], done: int, rounds: int) -> list[int]:
    if not checks.is_sequence(record):
        count = checks.integer("record", record, at_least=1)
        return [done + t for t in results.recorded_rounds(count + 1, rounds - done)[1:].tolist()]
    listed: list[int] = results.recorded_rounds(record, rounds).tolist()
    if listed[0] <= done:
        raise ArgumentError(f"record must hold rounds above {done}, those that are done; got {listed[0]}")
    return listed


def rest_of(job: Job, result: xr.Dataset, done: int) -> Job:
    """What is left of a job, from the state that a result holds of its first `done` rounds."""
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
    state = RunState(**parts, rounds=np.full(S, done), diverged_at=result["diverged_at"].values)
    k, states = len(job.algorithm.server()[1]), job.outcomes.length[job.problem.assignment]
    wanted = [(S, d), (S, d), (S, k - 1, d), (S, N, d), (S, d), (S,), (S, N), (S, N)]
    sound = [x.shape for x in state[: len(wanted)]] == wanted
    # compiled code would trust positions that are not in the problem's tables
    if not (sound and (state.chain >= 0).all() and (state.chain < states).all() and (state.steps >= 0).all()):
        raise ArgumentError("result must hold the state as simulate gave it; got one that does not fit its problem")
    return job.after(state)


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
    left = [
        job if r is None else rest_of(job, r, int(r["communications"][0, -1]))
        for job, r in zip(jobs, so_far, strict=True)
    ]
    total, updates = sum(job.updates_per_round * job.rounds for job in left), FIRST_UPDATES[options.engine]
    while waiting := [i for i, job in enumerate(left) if job.start.first < job.rounds]:
        parts = [_part(jobs[i], left[i], updates / len(waiting)) for i in waiting]
        done, of_part = total - sum(job.updates for job in left), sum(job.updates for job in parts)
        report = _whole_progress(options.progress, done, of_part, total)
        clock = time.monotonic()
        ended = run_jobs(parts, replace(options, progress=report))
        ran = time.monotonic() - clock
        for i, part, outcome in zip(waiting, parts, ended, strict=True):
            longer, earlier = result_of(part, outcome), so_far[i]
            if earlier is not None:
                asked = np.isin(earlier["rounds"], jobs[i].recorded)  # not the end of a part
                longer = append_rounds(earlier.isel(rounds=asked), longer)
            so_far[i] = longer
            left[i] = jobs[i].after(outcome.state)
            if part.rounds < left[i].rounds:
                kept[i].parent.mkdir(parents=True, exist_ok=True)
                results.save(longer.assign_attrs({PART_OF: _identity(jobs[i])}), kept[i])
        wanted = max(SECONDS, WRITING * (time.monotonic() - clock - ran))
        updates *= min(10.0, max(0.1, wanted / max(1e-3, ran)))
    out = [r for r in so_far if r is not None]
    warn_of_divergence([(job.problem, job.algorithm) for job in jobs], options.sampling, out)
    return out


def _identity(job: Job) -> str:
    """The same for runs that give the same bits."""
    made_of = {
        "problem": recipe.problem_text(job.problem),
        "algorithm": recipe.algorithm_record(job.algorithm),
        "sampling": [type(job.sampling).__name__, recipe.fields_of(job.sampling)],
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


def _part(job: Job, rest: Job, updates: float) -> Job:
    """The next rounds of a job, about so many updates; unless they are the last, one that keeps its state."""
    until = rest.start.first + max(1, int(updates / rest.updates_per_round))
    if until >= rest.rounds:
        return rest
    keep = [*(name for name in job.arguments["keep"] if name != "state"), "state"]
    # its last round too, or a result might have none
    record, new = (np.union1d(known[known <= until], until) for known in (job.recorded, rest.recorded))
    part_arguments = dict(job.arguments, rounds=until, record=record.tolist(), keep=keep)
    return replace(rest, rounds=until, recorded=new, arguments=part_arguments)


def _whole_progress(report: Progress | None, before: float, of_part: float, total: float) -> Progress | None:
    """Progress of a part as that of the whole."""
    return None if report is None else lambda done, all_: report(before + of_part * done / all_, total)

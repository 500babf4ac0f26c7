"""A grid that may be interrupted: it is run in parts of a few seconds, and what it has is on disk between them.

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

from .. import results
from ..errors import ArgumentError, ResultFileError
from ..results import recipe
from ..results.dataset import append_rounds
from .jobs import Job
from .progress import Progress
from .resuming import check_state, read_state
from .simulation import prepare, result_of, run_jobs, warn_of_divergence

if TYPE_CHECKING:
    import xarray as xr

SECONDS = 5.0  # of a part: what an interruption costs
WRITING = 20  # parts are so many times as long as it takes to write what there is
FIRST_UPDATES = {"reference": 1e5, "cpu": 1e8, "cuda": 1e9}  # of the first part: about a second
PART_OF = "part_of"  # the attribute of a partial result that identifies its run


def partial_file(path: Path) -> Path:
    """Where a run under way keeps what it has, until the result itself is written."""
    return path.with_name(path.name + ".partial")


def simulate_to_files(
    problem: Any, algorithms: Any, files: Sequence[Path], *, replaces: bool = False, **arguments: Any
) -> list[xr.Dataset]:
    """What `simulate_grid` gives, kept beside `files`, one per result, as it comes; a later call goes on.

    replaces : whether partial files of other runs are replaced; else they are an error. The caller writes the results
    themselves, and then removes the partial files.
    """
    grid = prepare(problem, algorithms, **arguments)
    kept = [partial_file(path) for path in files]
    so_far = [_read(job, path, replaces) for job, path in zip(grid.jobs, kept, strict=True)]
    left = [job if r is None else _rest(job, r) for job, r in zip(grid.jobs, so_far, strict=True)]
    total, updates = sum(job.updates_per_round * job.rounds for job in left), FIRST_UPDATES[grid.engine]
    while waiting := [i for i, job in enumerate(left) if job.start.first < job.rounds]:
        parts = [_part(grid.jobs[i], left[i], updates / len(waiting)) for i in waiting]
        report = _whole(grid.report, total - sum(job.updates for job in left), sum(job.updates for job in parts), total)
        clock = time.monotonic()
        ended = run_jobs(parts, grid._replace(report=report))
        ran = time.monotonic() - clock
        for i, part, outcome in zip(waiting, parts, ended, strict=True):
            whole, before = result_of(part, outcome, part.arguments["keep"]), so_far[i]
            if before is not None:
                asked = np.isin(before["rounds"], grid.jobs[i].recorded)  # not the end of a part
                whole = append_rounds(before.isel(rounds=asked), whole)
            so_far[i] = whole
            left[i] = grid.jobs[i].after(outcome.state)
            if part.rounds < left[i].rounds:
                kept[i].parent.mkdir(parents=True, exist_ok=True)
                results.save(whole.assign_attrs({PART_OF: _identity(grid.jobs[i])}), kept[i])
        wanted = max(SECONDS, WRITING * (time.monotonic() - clock - ran))
        updates *= min(10.0, max(0.1, wanted / max(1e-3, ran)))
    out = [r for r in so_far if r is not None]
    warn_of_divergence([(job.problem, job.algorithm) for job in grid.jobs], grid.jobs[0].sampling, out)
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


def _rest(job: Job, so_far: xr.Dataset) -> Job:
    """What is left of a job."""
    rest = job.after(read_state(so_far, job.seeds.tolist(), int(so_far["communications"][0, -1])))
    check_state(rest)
    return rest


def _part(job: Job, rest: Job, updates: float) -> Job:
    """The next rounds of a job, about so many updates; unless they are the last, one that keeps its state."""
    until = rest.start.first + max(1, int(updates / rest.updates_per_round))
    if until >= rest.rounds:
        return rest
    keep = [*(name for name in job.arguments["keep"] if name != "state"), "state"]
    # its last round too, or a result might have none
    record, new = (np.union1d(known[known <= until], until) for known in (job.recorded, rest.recorded))
    own = dict(job.arguments, rounds=until, record=record.tolist(), keep=keep)
    return replace(rest, rounds=until, recorded=new, arguments=own)


def _whole(report: Progress | None, before: float, of_part: float, total: float) -> Progress | None:
    """Progress of a part as that of the whole."""
    return None if report is None else lambda done, all_: report(before + of_part * done / all_, total)

"""A grid that may be interrupted: run in parts of a few seconds, with what it has on disk between them.

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

from .. import results
from ..errors import ArgumentError, ResultFileError
from ..results import recipe
from .jobs import Job, RunOptions
from .progress import Progress
from .simulation import go_on, prepare, rounds_done, warned

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

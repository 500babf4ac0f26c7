"""A run that goes on: `resume` takes a result that kept its state, and brings it to more rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .. import checks, results
from ..algorithms import Algorithm
from ..errors import ArgumentError
from ..problems import Problem
from ..results.dataset import append_rounds
from ..results.recipe import require_result
from .jobs import Job
from .progress import Progress
from .run_state import RunState
from .simulation import prepare, result_of, run_jobs, warn_of_divergence

if TYPE_CHECKING:
    import xarray as xr


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
    require_result("result", result)
    given = results.arguments(result, problem, algorithm)
    done = int(given["rounds"])
    state = read_state(result, given["seeds"], done)
    dropped = [name for name in given["keep"] if name not in (*result, "state")]
    if dropped:
        raise ArgumentError(f"result must hold {dropped[0]}, which its run kept; got one without")
    if checks.integer("rounds", rounds, at_least=1) <= done:
        raise ArgumentError(f"rounds must be above {done}, those that are done; got {rounds}")
    new = _new_rounds(record, done, rounds)
    given |= {"rounds": rounds, "record": [*result["rounds"].values.tolist(), *new]}
    given |= {"engine": given["engine"] if engine is None else engine, "threads": threads, "progress": progress}
    work = prepare([given.pop("problem")], [given.pop("algorithm")], **given)
    job = work.jobs[0].after(state)
    check_state(job)
    ended = run_jobs([job], work)
    whole = append_rounds(result, result_of(job, ended[0], work.keep))
    warn_of_divergence([(job.problem, job.algorithm)], job.sampling, [whole])
    return whole


def _new_rounds(record: int | Sequence[int], done: int, rounds: int) -> list[int]:
    if not checks.is_sequence(record):
        count = checks.integer("record", record, at_least=1)
        return [done + t for t in results.recorded_rounds(count + 1, rounds - done)[1:].tolist()]
    listed: list[int] = results.recorded_rounds(record, rounds).tolist()
    if listed[0] <= done:
        raise ArgumentError(f"record must hold rounds above {done}, those that are done; got {listed[0]}")
    return listed


def read_state(result: xr.Dataset, seeds: Sequence[int], done: int) -> RunState:
    """The state that a result holds."""
    lacks = [name for name in results.STATE if name not in (*result, "state_memory")]
    if lacks:
        raise ArgumentError('result must hold a state, from fl.simulate(..., keep=("theta", "state")); got one without')
    if result["seed"].values.tolist() != list(seeds):  # each goes on with the random numbers of its own
        raise ArgumentError(
            f"result must hold all {len(seeds)} seeds of its run in their order, {checks.show(list(seeds))}; "
            f"got {checks.show(result['seed'].values.tolist())}"
        )
    held = {name: dims for name, dims in results.STATE.items() if name in result}
    parts = {name.removeprefix("state_"): result[name].transpose(*dims).values for name, dims in held.items()}
    parts.setdefault("memory", np.zeros((len(seeds), 0, parts["theta"].shape[-1])))
    return RunState(**parts, rounds=np.full(len(seeds), done), diverged_at=result["diverged_at"].values)


def check_state(job: Job) -> None:
    """Refuse what compiled code would trust: positions that are not in the problem's tables."""
    state, S, N, d = job.start, len(job.seeds), job.problem.n_agents, job.problem.dim
    k = len(job.algorithm.server()[1])
    shapes = [x.shape for x in (state.theta, state.running, state.memory, state.xi, state.shift, state.steps)]
    states = job.outcomes.length[job.problem.assignment]
    sound = shapes == [(S, d), (S, d), (S, k - 1, d), (S, N, d), (S, d), (S, N)] and state.chain.shape == (S, N)
    if not (sound and (state.chain >= 0).all() and (state.chain < states).all() and (state.steps >= 0).all()):
        raise ArgumentError("result must hold the state as simulate gave it; got one that does not fit its problem")

"""From arrays to a labelled dataset: which rounds are recorded, and what each number means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..algorithms import Algorithm, method
from ..errors import ArgumentError
from ..problems import Problem
from ..sampling import Sampling
from ..value_objects import call
from . import recipe
from .recipe import NEEDS, abridged

if TYPE_CHECKING:
    import xarray as xr

LABELS: dict[str, tuple[str, ...]] = {  # long name, description; of a state its dimensions
    "squared_error": ("squared error", "||theta - theta_star||^2; NaN from the round of divergence on"),
    "theta": ("server iterate", "theta after each recorded round; NaN from the round of divergence on"),
    "communications": ("communications", "server averages up to this round"),
    "uploads": ("uploads", "messages sent to the server up to this round, all agents together"),
    "bytes": ("bytes", "sent up and down up to this round, all agents together"),
    "samples": ("samples per agent", "observations received up to this round, dropped ones included, mean over agents"),
    "diverged_at": ("round of divergence", "first round with a number that is not finite; -1 if there is none"),
    "xi": ("final control variates", "xi_c of each agent after the last round"),
    "state_theta": ("theta at the end", "what the server holds after the last round", "seed dim"),
    "state_running": ("running mean", "of theta from average_after on; before that, where theta began", "seed dim"),
    "state_memory": ("memory of the server", "what it remembers beside theta after the last round", "seed memory dim"),
    "state_xi": ("control variates at the end", "scale (xi_c + shift), as the engine holds them", "seed agent dim"),
    "state_shift": ("shift", "of state_xi", "seed dim"),
    "state_scale": ("scale", "of state_xi", "seed"),
    "state_steps": ("observations", "that each agent has received, dropped ones included", "seed agent"),
    "state_chain": ("state of the trajectory", "of each agent; 0 where it follows none", "seed agent"),
    "state_received": ("observations", "of an agent that takes part in every round", "seed"),
    "seed": ("seed", "key of the random numbers of the run"),
    "rounds": ("rounds", "communications so far; 0 is the start"),
}
# what a run needs to go on, and its dimensions; how many rounds are done is among the arguments
STATE = {name: tuple(words[2].split()) for name, words in LABELS.items() if name.startswith("state_")}


def recorded_rounds(record: int | Iterable[int], rounds: int) -> NDArray[np.int64]:
    """The rounds that are kept of 0 ... rounds: `record` of them, evenly spaced with both ends, or those listed.

    A list is kept exactly as it is given: sorted, without repetition, within 0 ... rounds.
    """
    rounds = checks.integer("rounds", rounds)
    if not checks.is_sequence(record):
        count = min(checks.integer("record", record, at_least=2), rounds + 1)
        gaps = max(count - 1, 1)
        checks.memory("record", count, 4 * 8, "recorded rounds")
        kind = np.int64 if count * rounds < 2**62 else object
        return ((np.arange(count).astype(kind) * rounds + gaps // 2) // gaps).astype(np.int64)  # exact, unlike linspace
    rule = "a count of rounds, or the rounds to record"
    listed = [checks.integer("record", t, at_most=rounds) for t in checks.entries("record", record, rule)]
    if not listed:
        raise ArgumentError("record must hold at least one round; got an empty sequence")
    out = np.array(listed, np.int64)
    late = np.flatnonzero(np.diff(out) <= 0)
    if len(late):
        t, after = out[late[0]], out[late[0] + 1]
        raise ArgumentError(f"record must hold distinct rounds in increasing order; got {after} after {t}")
    return out


def method_label(algorithm: Algorithm) -> str:
    """The method as a reader writes it: its name, its own parameters, then the options that were set."""
    return call(method("algorithm", algorithm))


def assemble(
    problem: Problem,
    algorithm: Algorithm,
    sampling: Sampling,
    *,
    rounds: ArrayLike,
    seeds: ArrayLike,
    theta: ArrayLike,
    samples: ArrayLike,
    diverged_at: ArrayLike | None = None,
    xi: ArrayLike | None = None,
    state: Mapping[str, Any] | None = None,
    keep_theta: bool = True,
    uploads: ArrayLike | None = None,
    bytes_each: float | None = None,
    arguments: Mapping[str, Any],
) -> xr.Dataset:
    """The result of a run, from plain arrays.

    rounds : (R,) recorded rounds; seeds : (S,); theta : (S, R, d); samples : (S, R)
    diverged_at : (S,), -1 where a seed has not, None where none has; xi : (S, N, d) or None
    state : what the run needs to go on, by the names of `STATE` without their first word, or None
    uploads : (S, R), by default those of all who take part; bytes_each : that come with an upload, up and down
    arguments : what simulate was called with: rounds, seeds, theta_0, xi_0, record, keep, dtype, engine
    """
    import xarray as xr

    checks.instance("sampling", sampling, Sampling, "fl.IID(), fl.Markov() or fl.Replay()")
    checks.instance("arguments", arguments, Mapping, "a mapping of what simulate was called with")
    label, origin = method_label(algorithm), recipe.problem_text(problem)
    lacks = recipe.missing(origin)
    rounds, seeds = _integers("rounds", rounds), _integers("seeds", seeds)
    S, R, N, d = len(seeds), len(rounds), problem.n_agents, problem.dim
    diverged_at = np.full(S, -1) if diverged_at is None else _integers("diverged_at", diverged_at).astype(np.int64)
    theta = _shaped("theta", theta, (S, R, d))
    lost = (diverged_at[:, None] >= 0) & (rounds >= diverged_at[:, None])
    if lost.any():
        theta = np.where(lost[..., None], np.asarray(np.nan, theta.dtype), theta)
    with np.errstate(over="ignore", invalid="ignore"):
        error = theta.astype(np.float64) - problem.theta_star
        squared_error = np.einsum("srd,srd->sr", error, error)

    values: dict[str, tuple[tuple[str, ...], Any]] = {"squared_error": (("seed", "rounds"), squared_error)}
    if checks.boolean("keep_theta", keep_theta):
        values["theta"] = (("seed", "rounds", "dim"), theta)
    values["communications"] = (("seed", "rounds"), np.tile(rounds, (S, 1)))
    uploads = np.tile(rounds * algorithm.taking_part(N), (S, 1)) if uploads is None else np.asarray(uploads)
    values["uploads"] = (("seed", "rounds"), _shaped("uploads", uploads, (S, R)))
    if bytes_each is not None:
        values["bytes"] = (("seed", "rounds"), uploads * bytes_each)
    values["samples"] = (("seed", "rounds"), _shaped("samples", samples, (S, R)).astype(np.float64))
    values["diverged_at"] = (("seed",), _shaped("diverged_at", diverged_at, (S,)))
    if xi is not None:
        values["xi"] = (("seed", "agent", "dim"), _shaped("xi", xi, (S, N, d)))
    if state is not None:
        sizes = {"seed": S, "agent": N, "dim": d, "memory": state["memory"].shape[1]}
        for name, dims in STATE.items():
            shape = tuple(sizes[n] for n in dims)
            if shape[1:2] != (0,):  # most servers remember nothing
                values[name] = (dims, _shaped(name, state[name.removeprefix("state_")], shape))
    return xr.Dataset(
        {name: (dims, value, _label(name)) for name, (dims, value) in values.items()},
        coords={"seed": ("seed", seeds, _label("seed")), "rounds": ("rounds", rounds, _label("rounds"))},
        attrs=abridged(
            {
                "method": label,
                "agents": N,
                "dim": d,
                "theta_star": problem.theta_star.tolist(),
                "start": problem.start_label(arguments.get("theta_0")),
                "problem": origin,
                "algorithm": recipe.text(recipe.algorithm_record(algorithm)),
                "sampling": recipe.text(recipe.sampling_record(sampling)),
                "arguments": recipe.text(dict(arguments)),
                "versions": recipe.text(recipe.versions()),
                **({NEEDS: lacks} if lacks else {}),
            }
        ),
    )


def append_rounds(earlier: xr.Dataset, later: xr.Dataset) -> xr.Dataset:
    """One result out of two parts of a run; what is not per round, and the attributes, are those of the later part."""
    import xarray as xr

    along = [name for name, values in later.data_vars.items() if "rounds" in values.dims]
    joined = xr.concat([earlier[along], later[along]], "rounds", combine_attrs="override")
    values = {name: joined[name] if name in along else later[name] for name in later.data_vars}
    return xr.Dataset(values, joined.coords, later.attrs)


def _shaped(name: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray[Any]:
    out = checks.as_array(name, value)
    if out.shape != shape or out.dtype.kind not in "fiu":
        raise ArgumentError(f"{name} must be an array of shape {shape}; got {checks.show(out)}")
    return out


def _integers(name: str, value: ArrayLike) -> NDArray[Any]:
    out = checks.as_array(name, value)
    if out.ndim != 1 or out.dtype.kind not in "iu" or out.size > checks.MOST_ENTRIES:
        raise ArgumentError(f"{name} must be an array of integers, (n,); got {checks.show(out)}")
    return out


def _label(name: str) -> dict[str, str]:
    long_name, description, *_ = LABELS[name]
    return {"long_name": long_name, "description": description}

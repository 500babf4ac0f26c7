"""From arrays to a labelled dataset: which rounds are recorded, and what each number means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
    arguments: Mapping[str, Any],
    rounds: NDArray[np.int64],
    seeds: NDArray[Any],
    arrays: Mapping[str, Any],
) -> xr.Dataset:
    """The result of a run, from the engine's arrays.

    arguments : what simulate was called with: rounds, seeds, theta_0, xi_0, record, keep, dtype, engine
    rounds : (R,) recorded rounds; seeds : (S,)
    arrays : by name theta (S, R, d), samples (S, R), diverged_at (S,), -1 where a seed has not; where there are some
        uploads (S, R), by default those of all who take part, xi (S, N, d), and those of `STATE`
    """
    import xarray as xr

    origin = recipe.problem_text(problem)
    lacks = recipe.missing(origin)
    theta, diverged_at = arrays["theta"], arrays["diverged_at"]
    lost = (diverged_at[:, None] >= 0) & (rounds >= diverged_at[:, None])
    if lost.any():
        theta = np.where(lost[..., None], np.asarray(np.nan, theta.dtype), theta)
    with np.errstate(over="ignore", invalid="ignore"):
        error = theta.astype(np.float64) - problem.theta_star
        squared_error = np.einsum("srd,srd->sr", error, error)

    over, uploads = ("seed", "rounds"), arrays.get("uploads")
    if uploads is None:
        uploads = np.tile(rounds * algorithm.taking_part(problem.n_agents), (len(seeds), 1))
    values: dict[str, tuple[tuple[str, ...], Any]] = {"squared_error": (over, squared_error)}
    if "theta" in arguments["keep"]:
        values["theta"] = ((*over, "dim"), theta)
    values |= {"communications": (over, np.tile(rounds, (len(seeds), 1))), "uploads": (over, uploads)}
    values["bytes"] = over, uploads * algorithm.round_costs(problem.n_agents, problem.dim)[1]
    values["samples"] = over, arrays["samples"].astype(np.float64)
    values["diverged_at"] = ("seed",), arrays["diverged_at"]
    more = {"xi": ("seed", "agent", "dim"), **STATE}
    values |= {name: (dims, arrays[name]) for name, dims in more.items() if name in arrays}
    return xr.Dataset(
        {name: (dims, value, _label(name)) for name, (dims, value) in values.items()},
        coords={"seed": ("seed", seeds, _label("seed")), "rounds": ("rounds", rounds, _label("rounds"))},
        attrs=abridged(
            {
                "method": method_label(algorithm),
                "agents": problem.n_agents,
                "dim": problem.dim,
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

    along = [name for name, values in later.data_vars.items() if "rounds" in values.dims and name in earlier]
    joined = xr.concat([earlier[along], later[along]], "rounds", combine_attrs="override")
    others = [name for name, values in later.data_vars.items() if "rounds" not in values.dims]
    values = {name: joined[name] if name in along else later[name] for name in [*along, *others]}
    return xr.Dataset(values, joined.coords, later.attrs)


def _label(name: str) -> dict[str, str]:
    long_name, description, *_ = LABELS[name]
    return {"long_name": long_name, "description": description}

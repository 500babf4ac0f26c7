"""FedSARSA: the verb `sarsa`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..algorithms import METHODS, SCAFFLSA, FedLSA
from ..checks import Floats
from ..engine.jobs import RunOptions
from ..engine.random import START, block
from ..errors import ArgumentError, DivergenceWarning, warn
from ..results import method_label, recipe, recorded_rounds
from ..threads import share
from .sarsa_steps import UNIT, run_rounds
from .worlds import Worlds, check_policy, probabilities, thresholds

if TYPE_CHECKING:
    import xarray as xr

MOST_AT_ONCE = 2**23  # updates of a thread that nothing interrupts: about a second


def sarsa(
    worlds: Worlds,
    method: FedLSA | SCAFFLSA,
    rounds: int = 500,
    seeds: int | Iterable[int] = 10,
    temperature: float = 1.0,
    epsilon: float | None = None,
    improvement: str = "step",
    theta_0: ArrayLike | None = None,
    theta_star: ArrayLike | None = None,
    record: int | Sequence[int] = 200,
    threads: int | None = None,
) -> xr.Dataset:
    """FedSARSA (arXiv 2512.17688): each agent acts in its own world by what it learns, once per seed.

    A local step: theta_hat <- theta_hat + eta (phi(s, a) (r + gamma phi(s', a')^T theta_hat - phi(s, a)^T theta_hat) +
    xi_c), with a' drawn by the policy at s'. Averages, and xi_c of SCAFFLSA, are those of `fl.simulate`.

    worlds : of fl.control; method : fl.FedLSA(step_size, local_steps) or fl.SCAFFLSA(step_size, local_steps);
    temperature : of the softmax of phi(s, a)^T theta; epsilon : from 0 to 1, where agents are to be epsilon-greedy;
    improvement : "step", agents act by their own theta_hat, as in the published code, or "round", by the server's theta
    until the next average; theta_0 : (d,), by default 0; theta_star : (d,) from which squared_error is measured, as of
    `fl.control.solve`; record : a count of rounds, or the rounds; threads : by default all cores.

    Returns a dataset over (seed, rounds): theta, squared_error, average_reward (of a step) and average_return (rewards
    per episode that ended) since the round recorded before, communications, samples; diverged_at, and the last xi.
    Equal arguments give equal bits for any number of threads; `fl.control.arguments` has them from the attributes.

    >>> r = fl.sarsa(fl.control.garnet(agents=4), fl.SCAFFLSA(0.05, 10), rounds=20, seeds=3)
    >>> dict(r.sizes), float(r["samples"][0, -1])
    ({'seed': 3, 'rounds': 21, 'dim': 30, 'agent': 4}, 200.0)
    """
    import xarray as xr

    checks.instance("worlds", worlds, Worlds, "made by fl.control")
    policy, options = check_policy(temperature, epsilon), RunOptions(seeds=seeds, record=record, threads=threads)
    frozen = checks.choice("improvement", improvement, ("step", "round")) == "round"
    if type(method) not in (FedLSA, SCAFFLSA) or method != type(method)(method.step_size, method.local_steps):
        rule = "method must be fl.FedLSA(step_size, local_steps) or fl.SCAFFLSA(step_size, local_steps)"
        raise ArgumentError(f"{rule}, without options; got {checks.show(method)}")
    T, H = checks.integer("rounds", rounds, at_least=1), int(method.mean_steps)  # refuses lengths that grow
    checks.integer("rounds times local_steps", T * H, at_most=2**34)
    times, seed = recorded_rounds(options.record, T), np.array(options.seeds, np.uint64)
    R, K, N, d = len(seed), len(times), len(worlds.P), worlds.features.shape[2]
    checks.memory("rounds", T, 64, "step sizes and gains")
    checks.memory("seeds", R, 16 * (N + K) * d, "control variates and recorded iterates")
    start = np.zeros(d) if theta_0 is None else checks.array("theta_0", theta_0, (d,))
    star = np.full(d, np.nan) if theta_star is None else checks.array("theta_star", theta_star, (d,))
    rules = *worlds.tables, worlds.discount, *policy, frozen
    theta, xi, diverged_at, tally = np.tile(start, (R, 1)), np.zeros((R, d, N)), np.full(R, -1), np.zeros((R, 2))
    at = _first_pairs(seed, worlds.tables[4], probabilities(worlds.features @ start, *policy))
    hats, last, lists = np.repeat(theta[..., None], N, axis=2), np.full((R, d), -1), np.zeros((R, 2, d + 1), np.int64)
    scratch = hats, last, lists, np.empty((R, N, 2)), np.empty((R, worlds.features.shape[1]))
    runs = seed, theta, xi, at, tally, diverged_at, *scratch
    etas, thetas, tallies, done = method.eta(np.arange(T)), np.empty((R, K, d)), np.empty((R, K, 2)), 0
    schedule = np.stack([etas, method.gain(etas, np.full(T, H))])
    cuts = np.linspace(0, R, min(options.threads, R) + 1).astype(int).tolist()
    most = max(1, MOST_AT_ONCE * (len(cuts) - 1) // (H * N * R))
    for k, until in enumerate([*times.tolist(), T]):
        while done < until:
            part = slice(done, min(done + most, until))
            share(partial(run_rounds, rules, worlds.weights, runs, schedule[:, part].copy(), H, done), cuts)
            done = part.stop
        if k < K:
            thetas[:, k], tallies[:, k] = np.where(diverged_at[:, None] >= 0, np.nan, theta), tally
    if (diverged_at >= 0).any():
        warn(f"{method_label(method)} diverged: try a smaller step_size", DivergenceWarning)
    rewards, ends = np.moveaxis(np.diff(tallies, axis=1, prepend=0), 2, 0)
    rewards, steps = np.where(np.isnan(thetas[:, :, 0]), np.nan, rewards), N * H * np.diff(times, prepend=0)
    with np.errstate(over="ignore"):
        squared_error = ((thetas - star) ** 2).sum(axis=2)
    over, number = ("seed", "rounds"), np.tile(times, (R, 1))
    values = {
        "squared_error": (over, squared_error),
        "theta": ((*over, "dim"), thetas),
        "average_reward": (over, rewards / np.where(steps > 0, steps, np.nan)),
        "average_return": (over, rewards / np.where(ends > 0, ends, np.nan)),
        "communications": (over, number),
        "samples": (over, number * float(H)),
        "diverged_at": (("seed",), diverged_at),
        "xi": (("seed", "agent", "dim"), np.ascontiguousarray(xi.swapaxes(1, 2))),
    }
    asked = {"rounds": T, "seeds": options.seeds, "temperature": temperature, "epsilon": epsilon, "theta_0": start}
    asked |= {"improvement": improvement, "record": options.record, "theta_star": None if theta_star is None else star}
    kept = recipe.fields_of(worlds) if worlds.P.nbytes <= recipe.EMBED_LIMIT // 2 else None
    parts = {"worlds": kept, "method": recipe.algorithm_record(method), "arguments": asked}
    texts = {name: recipe.text(part) for name, part in {**parts, "versions": recipe.versions()}.items()}
    return xr.Dataset(values, {"seed": seed, "rounds": times}, recipe.abridged(texts))


def _first_pairs(seeds: Any, begin: Floats, pi: Floats) -> Any:
    """(R, N, 2): the first state and action of each agent, by the policy pi."""
    agents = np.arange(len(begin), dtype=np.uint64)
    u = np.stack([block(seed, agents, START, 0)[:2] for seed in seeds])[..., None] * UNIT  # (R, 2, N, 1)
    s = (u[:, 0] >= begin).sum(axis=2)
    return np.stack([s, (u[:, 1] >= thresholds(pi)[s]).sum(axis=2)], axis=2)


def arguments(result: xr.Dataset, worlds: Worlds | None = None) -> dict[str, Any]:
    """What `fl.sarsa` was called with: fl.sarsa(**fl.control.arguments(r)) has the bits of r again.

    worlds : needed where they are larger than 16 MiB, for then a result does not hold them
    """
    if not {"worlds", "method", "arguments"} <= set(getattr(result, "attrs", ())):
        raise ArgumentError(f"result must be one of fl.sarsa; got {checks.show(result)}")
    stored = {name: recipe.value(result.attrs[name]) for name in ("worlds", "method", "arguments")}
    method = METHODS[stored["method"].pop("name").lower()](**stored["method"])
    if worlds is None:
        if stored["worlds"] is None:
            raise ArgumentError("worlds must be passed, for they are too large to be held in a result; got None")
        worlds = object.__new__(Worlds)
        worlds.__setstate__(stored["worlds"])  # laws that are normalised twice may differ in a last bit
    checks.instance("worlds", worlds, Worlds, "made by fl.control")
    return {"worlds": worlds, "method": method, **stored["arguments"]}

"""FedSARSA: the verb `sarsa`, and its rounds, compiled: a loop over seeds, rounds, agents and local steps.

What is held of theta_hat after h steps is theta_hat - h eta xi_c, and of features what is not 0, so a step costs what
phi(s, a) holds, not d. As sum_c w_c xi_c is 0 and the gain 0 or 1 / (eta H), a round ends with the average of what is
held, and xi_c is the gain times what that differs by. So it costs the coordinates that some agent's steps have changed,
of which a list is kept, and for xi_c, which then goes back to 0, those of the round before. All agents' numbers of a
coordinate stand side by side.

Step k has the random words 2 k, for s', and 2 k + 1, for a'; starts have a stream of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numba  # noqa: F401  whole before a part: threads may ask for both at once
import numpy as np
from numba.extending import register_jitable
from numpy.typing import ArrayLike

from .. import checks
from ..algorithms import METHODS, SCAFFLSA, FedLSA
from ..checks import Floats
from ..engine.jobs import RunOptions
from ..engine.random import OBSERVATION, START, block
from ..errors import ArgumentError, DivergenceWarning, warn
from ..kernel_cache import kernel
from ..results import method_label, recipe, recorded_rounds
from ..threads import share
from .worlds import Worlds, check_policy, probabilities, thresholds

if TYPE_CHECKING:
    import xarray as xr

UNIT = 2.0**-32  # of a random word, as a number in [0, 1)
MOST_STEPS = 2**32 - 1  # of an agent: the counter of the random words with which episodes begin
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
    checks.integer("rounds times local_steps", T * H, at_most=MOST_STEPS)
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


# rounds, compiled: Numba infers the types of these functions itself


@register_jitable
def _draw(below, u):  # type: ignore[no-untyped-def]
    b = 0
    while u >= below[b]:
        b += 1
    return b


@register_jitable
def _value(columns, values, theta, xi, own, c, steps):  # type: ignore[no-untyped-def]
    """phi^T (theta + steps xi) of agent c, whose theta is number `own`; columns, values : (K,) of phi."""
    total = 0.0
    for k in range(len(columns)):
        total += values[k] * (theta[columns[k], own] + steps * xi[columns[k], c])
    return total


@register_jitable
def _local_steps(rules, of, at, spare, tally, held, xi, q):  # type: ignore[no-untyped-def]
    """Local steps of all agents in a round; q : (A,) for values.

    of : seed, round, steps, step size; rules, at, tally : as below, of this seed
    spare : (N, 2), what an even step leaves of its block of random words to the next one
    held : what is held of theta_hat; what agents act by, (d, N) or (d, 1); (d,) the last round with a change there; and
        these coordinates, with their number at the end
    """
    (seed, t, H, eta), (hat, acting, changed, touched), A = of, held, len(q)
    successor, below, reward, terminal, begin, columns, values, discount, temperature, epsilon, frozen = rules
    (rewards, ends), drift, number = tally, 0.0 if frozen else eta, 0
    for c in range(len(at)):
        (s, a), own = at[c], 0 if frozen else c
        for h in range(H):
            k = t * H + h
            if k % 2 == 0:
                w = block(seed, c, OBSERVATION, k // 2)
                spare[c, 0], spare[c, 1] = w[2] * UNIT, w[3] * UNIT
                chance, u = w[0] * UNIT, w[1] * UNIT
            else:
                chance, u = spare[c]
            b = _draw(below[c, s, a], chance)
            r, s_next = reward[c, s, a, b], successor[c, s, a, b]
            over = terminal[s_next]
            if over:
                s_next = _draw(begin[c], block(seed, c, START, k + 1)[0] * UNIT)
            best = 0
            for j in range(A):
                q[j] = _value(columns[s_next, j], values[s_next, j], acting, xi, own, c, h * drift)
                if q[j] > q[best]:
                    best = j
            a_next = best
            if temperature > 0:
                top, total, hardness = q[best], 0.0, 1 / temperature
                for j in range(A):
                    q[j] = np.exp((q[j] - top) * hardness)
                    total += q[j]
                u, a_next = u * total - q[0], 0
                while u >= 0 and a_next < A - 1:
                    a_next += 1
                    u -= q[a_next]
            elif u < epsilon:
                a_next = min(int(u / epsilon * A), A - 1)
            error = r - _value(columns[s, a], values[s, a], hat, xi, c, c, h * eta)
            if not over:
                error += discount * _value(columns[s_next, a_next], values[s_next, a_next], hat, xi, c, c, h * eta)
            for i in range(columns.shape[2]):
                j = columns[s, a, i]
                hat[j, c] += eta * error * values[s, a, i]
                if changed[j] != t:
                    changed[j], touched[number] = t, j
                    number += 1
            rewards, ends = rewards + r, ends + over
            s, a = s_next, a_next
        at[c, 0], at[c, 1] = s, a
    touched[-1], tally[0], tally[1] = number, rewards, ends


@kernel(error_model="numpy", nogil=True, _nrt=False)
def run_rounds(rules, weights, runs, schedule, H, first, low, high):  # type: ignore[no-untyped-def]
    """Rounds first, first + 1, ... of runs low, ..., high - 1; schedule : (2, rounds), their step sizes and gains.

    rules : successor, below, reward, all (N, S, A, B), where `below` is the chance of a successor or one before it, and
        2 at the last; terminal : (S,); begin : (N, S), as `below` for first states; columns, values : (S, A, K), of the
        features that are not 0; discount; temperature, 0 for epsilon-greedy; epsilon; whether agents act by theta
    runs : seeds (R,); theta (R, d); xi (R, d, N); state and action (R, N, 2); sum of rewards and ends of episodes
        (R, 2); first round that is not finite, or -1 (R,); what is held of theta_hat (R, d, N), theta at first; last
        round with a change, by any agent, or -1 (R, d); of the even rounds and of the odd ones the coordinates with a
        change in the last one, and their number (R, 2, d + 1); numbers left to the next step (R, N, 2); room for
        values (R, A)
    """
    seeds, thetas, variates, at, tally, diverged_at, room, last, lists, spare, q = runs
    d, N = variates.shape[1:]
    for i in range(low, high):
        theta, xi, hats, changed = thetas[i], variates[i], room[i], last[i]
        for k in range(schedule.shape[1]):
            if diverged_at[i] >= 0:
                break
            t, gain = first + k, schedule[1, k]
            now, before, finite = lists[i, t % 2], lists[i, 1 - t % 2], True
            held = hats, theta.reshape((d, 1)) if rules[-1] else hats, changed, now
            _local_steps(rules, (seeds[i], t, H, schedule[0, k]), at[i], spare[i], tally[i], held, xi, q[i])
            for j in now[: now[d]]:
                shift = 0.0  # the average of differences, so that coordinates without a change stay as they are
                for c in range(N):
                    shift += weights[c] * (hats[j, c] - theta[j])
                theta[j] += shift
                finite &= np.isfinite(theta[j])
                for c in range(N):
                    if gain > 0:
                        xi[j, c] = gain * (theta[j] - hats[j, c])  # keeps sum_c w_c xi_c = 0
                    hats[j, c] = theta[j]
            if gain > 0:
                for j in before[: before[d]]:
                    if changed[j] < t:
                        xi[j] = 0.0
            if not finite:
                diverged_at[i] = t + 1

"""Rolling environments out into logs: one environment per agent, all stepped together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from .environments import choose_actions, environments, gymnasium, prepare_policy
from .features.maps import counts
from .transitions import Log

STEP_BYTES = 600  # of a transition of one agent, with the objects that hold it


def rollout(
    envs: Any,
    policy: Any,
    steps: int | Sequence[int],
    seed: int,
    *,
    variations: Sequence[Mapping[str, Any]] | None = None,
    behaviour: Any = None,
) -> list[Log]:
    """Logs of transitions of a policy in gymnasium environments, one per agent; equal arguments give equal logs.

    envs : an id, made once for each entry of `variations` (see `from_gymnasium`); or a list of ids or environments
    policy : "random"; an array (S, A) of probabilities or (S,) of actions; or a function from a batch of states, (n,)
        integers or (n, k) numbers, to probabilities (n, A) or actions (n,)
    steps : transitions for each agent, or one number each. Episodes begin anew as they end; the last one is cut
    behaviour : the policy that acts, where it is not the one to be evaluated; logs then hold importance weights

    Agent c's randomness comes from (seed, c) alone, so a smaller federation is a part of a larger one.
    """
    held = environments(envs, variations)
    made = [isinstance(envs, str) or (checks.is_sequence(envs) and isinstance(envs[c], str)) for c in range(len(held))]
    number = counts("steps", steps, len(held), "agent")
    checks.integer("seed", seed)
    try:
        return _recorded(held, policy, behaviour, number, seed)
    finally:
        for env, ours in zip(held, made, strict=True):
            if ours:
                env.close()


def _recorded(envs: list[Any], policy: Any, behaviour: Any, steps: Sequence[int], seed: int) -> list[Log]:
    vector, discrete = _together(envs)
    N, K = len(envs), max(steps)
    checks.memory("steps", K, STEP_BYTES * N, "the transitions of all agents")
    streams = [np.random.SeedSequence([seed, c]).generate_state(2) for c in range(N)]
    coin = np.stack([np.random.default_rng(int(own)).random(K) for _, own in streams], axis=1)  # (K, N)
    if discrete:
        A = int(vector.single_action_space.n)
        target = prepare_policy(policy, A)
        acting = target if behaviour is None else prepare_policy(behaviour, A, "behaviour")
    elif behaviour is not None:
        raise ArgumentError("behaviour must be None where actions are not numbered: weights need probabilities")
    else:
        for env, (_, own) in zip(envs, streams, strict=True):
            env.action_space.seed(int(own))
    state, _ = vector.reset(seed=[int(own) for own, _ in streams])
    rows: list[tuple[Any, ...]] = []
    for k in range(K):
        if discrete:
            action, rho = _acted(target(state), None if behaviour is None else acting(state), coin[k])
        else:
            action, rho = choose_actions(policy, state, [env.action_space for env in envs]), np.ones(N)
        after, reward, terminated, truncated, _ = vector.step(action)
        rows.append((state, action, reward.copy(), after, terminated.copy(), truncated.copy(), rho))
        over = terminated | truncated
        # without automatic resets every step is a transition, and `after` is where a cut episode stopped
        state = vector.reset(options={"reset_mask": over})[0] if over.any() else after
    columns = [np.stack(column, axis=1) for column in zip(*rows, strict=True)]  # (N, K, ...)
    return [_log([column[c, : steps[c]] for column in columns], behaviour is not None) for c in range(N)]


def _acted(target: Floats, acting: Floats | None, coin: Floats) -> tuple[Any, Floats]:
    """(N,): an action for each agent from its own coin, and its importance; target, acting : (N, A)."""
    law = target if acting is None else acting
    action = (coin[:, None] * law.sum(axis=1, keepdims=True) >= np.cumsum(law, axis=1)).sum(axis=1)
    who = np.arange(len(coin))
    return action, target[who, action] / law[who, action]


def _together(envs: list[Any]) -> tuple[Any, bool]:
    """The environments as one, and whether actions are numbered."""
    gym = gymnasium()
    spaces = gym.spaces
    seen, done = envs[0].observation_space, envs[0].action_space
    if not isinstance(seen, spaces.Discrete) and not (isinstance(seen, spaces.Box) and len(seen.shape) == 1):
        raise ArgumentError(f"envs must observe numbered states or vectors (Discrete or Box); got {seen}")
    if not isinstance(done, (spaces.Discrete, spaces.Box)):
        raise ArgumentError(f"envs must take actions from a Discrete or Box space; got {done}")
    for c, env in enumerate(envs):
        same = type(env.observation_space) is type(seen) and env.observation_space.shape == seen.shape
        if not same or env.action_space != done:
            got = f"{env.observation_space} and {env.action_space} for agent {c}"
            raise ArgumentError(f"envs must share the shapes of states and the actions; got {got}")
    disabled = gym.vector.AutoresetMode.DISABLED
    vector = gym.vector.SyncVectorEnv(
        [lambda env=env: env for env in envs], observation_mode="different", autoreset_mode=disabled
    )
    return vector, isinstance(done, spaces.Discrete)


def _log(columns: list[NDArray[Any]], weighed: bool) -> Log:
    state, action, reward, after, terminated, truncated, rho = columns
    truncated[-1] |= not terminated[-1]  # the log ends here, the task does not
    kind = np.int64 if state.dtype.kind in "iu" else np.float64
    return Log(
        state.astype(kind), action, reward.astype(np.float64), after.astype(kind), terminated, truncated,
        rho.astype(np.float64) if weighed else None,
    )  # fmt: skip

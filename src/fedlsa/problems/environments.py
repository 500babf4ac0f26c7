"""Gymnasium environments that differ from agent to agent: tables, policies, logs of rollouts and Minari data sets."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError, MissingExtraError
from .features import counts, numbered
from .system import Problem
from .transitions import Log, from_logs

DERIVED: dict[
    str, tuple[str, str, Callable[[float, float], float]]
] = {  # attributes that a constructor computes from others: they follow when those are changed
    "total_mass": ("masspole", "masscart", lambda a, b: a + b),
    "polemass_length": ("masspole", "length", lambda a, b: a * b),
}
POLICY_RULE = "an array (states, actions), a function from a batch of states to probabilities or actions, or 'random'"
RESETS = 50  # how often an environment that does not tell its initial law is reset to see whether there is one state


def gymnasium() -> Any:
    """The gymnasium package, or an error that says how to get it."""
    try:
        import gymnasium
        import gymnasium.vector
    except ImportError:
        raise MissingExtraError("environments need gymnasium: pip install 'fedlsa[gym]'") from None
    return gymnasium


def environments(envs: Any, variations: Sequence[Mapping[str, Any]] | None) -> list[Any]:
    """One environment per agent: those given, or one id made with a mapping of settings for each."""
    if isinstance(envs, str):
        if variations is None:
            variations = [{}]
        rule = "a list of mappings, one per agent"
        variations = [] if isinstance(variations, Mapping) else checks.entries("variations", variations, rule)
        if not variations:
            raise ArgumentTypeError(f"variations must be {rule}; got none")
        return [_varied(envs, settings, f"variations[{c}]") for c, settings in enumerate(variations)]
    if variations is not None:
        raise ArgumentError(f"variations must be None unless envs is one id; got {checks.show(variations)}")
    held = checks.entries("envs", envs, "environments, one per agent") if checks.is_sequence(envs) else [envs]
    if not held:
        raise ArgumentError("envs must hold at least one environment; got an empty list")
    for c, env in enumerate(held):
        if not isinstance(env, (str, gymnasium().Env)):
            rule = f"envs[{c}] must be the id of a gymnasium environment or one itself"
            raise ArgumentTypeError(f"{rule}; got {checks.show(env)}")
    return [_make(env, {}) if isinstance(env, str) else env for env in held]


def _make(name: str, settings: Mapping[str, Any]) -> Any:
    gym = gymnasium()
    try:
        return gym.make(name, disable_env_checker=True, **settings)
    except (gym.error.Error, ImportError) as error:
        raise ArgumentError(f"envs must name a gymnasium environment; got {name!r}: {error}") from None
    except (TypeError, ValueError, AssertionError, KeyError) as error:
        raise ArgumentError(
            f"variations must hold settings that {name} accepts; got {dict(settings)}: {error}"
        ) from None


def _varied(name: str, settings: Any, where: str) -> Any:
    """An environment with settings: arguments of its constructor, or attributes such as CartPole's length."""
    if not isinstance(settings, Mapping):
        raise ArgumentTypeError(f"{where} must be a mapping of settings; got {checks.show(settings)}")
    known, open_ended = _arguments(name)
    arguments = {k: v for k, v in settings.items() if k in known}
    rest = {k: v for k, v in settings.items() if k not in known}
    if open_ended and rest:
        plain = _make(name, {}).unwrapped
        arguments |= {k: v for k, v in rest.items() if not hasattr(plain, k)}
        rest = {k: v for k, v in rest.items() if k not in arguments}
    env = _make(name, arguments)
    world = env.unwrapped
    # a table was computed when the environment was made: attributes that are changed later would not reach it
    attributes = {} if table_of(env) is not None else _numbers(world)
    for key, value in rest.items():
        if key not in attributes:
            listed = ", ".join(sorted(known | attributes.keys()))
            raise ArgumentError(f"{where} must name what {name} lets one set ({listed}); got {key!r}")
        setattr(world, key, checks.real(f"{key} in {where}", value))
    for key, (a, b, rule) in DERIVED.items():
        if key in attributes and key not in rest and (a in rest or b in rest):
            setattr(world, key, rule(getattr(world, a), getattr(world, b)))
    return env


def _arguments(name: str) -> tuple[set[str], bool]:
    """What the constructor of an environment takes, and whether it takes more than it says."""
    gym = gymnasium()
    try:
        spec = gym.spec(name)
    except (gym.error.Error, ImportError) as error:
        raise ArgumentError(f"envs must name a gymnasium environment; got {name!r}: {error}") from None
    entry = spec.entry_point
    creator = gym.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    parameters = inspect.signature(creator).parameters.values()
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return (named | {"max_episode_steps"}) - {"render_mode"}, open_ended


def _numbers(world: Any) -> dict[str, Any]:
    """The numeric attributes of an environment, by name, less what changes as it runs."""
    held = {k: getattr(world, k) for k in dir(type(world)) + list(vars(world)) if not k.startswith("_")}
    changing = {"state", "steps_beyond_terminated", "isopen", "screen", "clock", "np_random_seed"}
    return {
        k: v for k, v in held.items() if isinstance(v, numbers.Real) and not isinstance(v, bool) and k not in changing
    }


def table_of(env: Any) -> Any:
    """P[state][action] = [(probability, next state, reward, terminated), ...] of an environment; None if none."""
    table = getattr(env.unwrapped, "P", None)
    return table if isinstance(table, Mapping) and len(table) else None


def initial_law(env: Any, S: int, name: str) -> Floats:
    """(S,): the law of an environment's first state, as it tells it; else the one state in which it always begins."""
    told = getattr(env.unwrapped, "initial_state_distrib", None)
    if told is not None:
        return checks.probabilities(f"the initial law of {name}", told, (S,))
    seen = {int(env.reset(seed=i)[0]) for i in range(RESETS)}
    if len(seen) > 1:
        raise ArgumentError(f"initial must be given for {name}, which begins in {len(seen)} states or more; got None")
    return np.asarray(np.eye(S)[seen.pop()], np.float64)


def prepare_policy(policy: Any, actions: int, name: str = "policy") -> Callable[[NDArray[Any]], Floats]:
    """The policy as a function from a batch of n states to probabilities (n, actions); arrays are checked once.

    policy : (S, actions) probabilities or (S,) actions for numbered states; a function from the batch of states to
        (n, actions) probabilities or (n,) actions; or "random", all actions alike
    """
    if isinstance(policy, str):
        checks.choice(name, policy, ("random",))
        return lambda states: np.full((len(states), actions), 1 / actions)
    if callable(policy):
        return lambda states: _law(_called(policy, states, name), actions, f"what {name} gives", len(states))
    if checks.as_array(name, policy, POLICY_RULE).ndim not in (1, 2):
        raise ArgumentTypeError(f"{name} must be {POLICY_RULE}; got {checks.show(policy)}")
    table = _law(policy, actions, name, "S")
    return lambda states: table[numbered(states, len(table))]


def _law(value: Any, actions: int, name: str, n: int | str) -> Floats:
    """(n, actions): probabilities as they are, actions as certainties."""
    if checks.as_array(name, value).ndim == 2:
        return checks.probabilities(name, value, (n, actions))
    chosen = checks.array(name, value, (n,))
    return np.asarray(np.eye(actions)[numbered(chosen, actions, name)], np.float64)


def choose_actions(policy: Any, states: NDArray[Any], spaces: Sequence[Any]) -> NDArray[Any]:
    """(n, ...): the actions of a policy where they are not numbered; "random" draws from the n spaces themselves."""
    space = spaces[0]
    if isinstance(policy, str):
        checks.choice("policy", policy, ("random",))
        return np.stack([own.sample() for own in spaces])
    if not callable(policy):
        raise ArgumentTypeError(
            f"policy must be a function of states or 'random' for {space}; got {checks.show(policy)}"
        )
    out = checks.array("what policy gives", _called(policy, states, "policy"), (len(states), *space.shape))
    return np.asarray(out, space.dtype)


def _called(policy: Any, batch: NDArray[Any], name: str) -> Any:
    try:
        return policy(batch)
    except (TypeError, ValueError, IndexError) as error:
        rule = f"{name} must be a function of a batch of states of shape {batch.shape}"
        raise ArgumentError(f"{rule}; calling it failed: {error}") from error


# Rolling environments out into logs: one environment per agent, all stepped together.

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


# Federated policy evaluation on Minari data sets: one site per data set, none of them leaves the machine.


def from_minari(
    datasets: Any,
    features: Any,
    discount: float,
    *,
    trace: float = 0.0,
    importance: Callable[[Any, Any], ArrayLike] | Sequence[ArrayLike] | None = None,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """TD(lambda) on recorded episodes (eq:matr_A_def_td_app): one data set per site, the value of who acted.

    datasets : ids or folders of local data sets (or loaded ones); nothing is downloaded. Observations are numbered
        states (Discrete) or vectors (Box)
    features : a map of fl.problems.features, a callable, a fitted scikit-learn transformer, or an array (S, d)
    importance : for the value of another policy, pi(a | s) over the probability of the policy that acted: a function of
        the states and actions of a data set, or an array (K,) per data set

    An episode that stops without termination counts as truncated.

    discount : how much a reward counts one step later (gamma), at least 0 and below 1
    trace : how far a TD error reaches back (lambda), from 0 to 1
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    held = list(datasets) if isinstance(datasets, (list, tuple)) else [datasets]  # one can be gone through too
    if not held:
        raise ArgumentError("datasets must hold at least one data set; got an empty list")
    if importance is not None and not callable(importance):
        rule = f"a function of states and actions, or one array per data set ({len(held)})"
        importance = checks.entries("importance", importance, rule)
        if len(importance) != len(held):
            raise ArgumentTypeError(f"importance must be {rule}; got {len(importance)}")
    each = importance if isinstance(importance, list) else [importance] * len(held)
    logs = [dataset_log(f"datasets[{m}]", entry, own) for m, (entry, own) in enumerate(zip(held, each, strict=True))]
    return from_logs(logs, features, discount, trace=trace, weights=weights, assignment=assignment)


def _loaded(name: str, entry: Any) -> Any:
    """The data set that a path or an id stands for."""
    try:
        import minari
    except ImportError:
        raise MissingExtraError("Minari data sets need minari: pip install 'fedlsa[gym]'") from None
    if isinstance(entry, minari.MinariDataset):
        return entry
    folder = checks.path(name, entry)
    try:
        if folder.is_dir():
            return minari.MinariDataset(folder / "data" if (folder / "data").is_dir() else folder)
        return minari.load_dataset(str(entry))
    except (OSError, ValueError):
        local = ", ".join(sorted(minari.list_local_datasets())) or "none"
        rule = f"{name} must be a folder or the id of a local data set ({local})"
        raise ArgumentError(f"{rule}; got {checks.show(str(Path(entry)))}") from None


def dataset_log(name: str, entry: Any, importance: Any = None) -> Log:
    """All episodes of a data set, one after the other; name : how errors call it; the rest as for `from_minari`."""
    dataset = _loaded(name, entry)
    space, spaces = dataset.observation_space, gymnasium().spaces
    if not isinstance(space, spaces.Discrete) and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
        raise ArgumentError(
            f"{name} must have numbered states or vectors as observations (Discrete or Box); got {space}"
        )
    parts: list[tuple[NDArray[Any], ...]] = []
    for episode in dataset.iterate_episodes():
        if len(episode) == 0:
            continue
        seen, over = np.asarray(episode.observations), np.asarray(episode.terminations, np.bool_)
        cut = np.asarray(episode.truncations, np.bool_).copy()
        cut[-1] |= not over[-1]
        if isinstance(episode.actions, (dict, tuple)):
            kind = type(episode.actions).__name__
            raise ArgumentError(f"{name} must have actions that are numbers or vectors; got {kind}")
        parts.append((seen[:-1], np.asarray(episode.actions), episode.rewards, seen[1:], over, cut))
    if not parts:
        raise ArgumentError(f"{name} must hold at least one transition; got none")
    state, action, reward, after, over, cut = (np.concatenate(column) for column in zip(*parts, strict=True))
    number = np.int64 if isinstance(space, spaces.Discrete) else np.float64
    rho = importance(state, action) if callable(importance) else importance
    if rho is not None:
        rho = checks.array(f"importance for {name}", rho, (len(state),))
    return Log(state.astype(number), action, reward.astype(np.float64), after.astype(number), over, cut, rho)

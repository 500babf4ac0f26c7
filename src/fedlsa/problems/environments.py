"""Federated policy evaluation in Gymnasium environments that differ from agent to agent, and on Minari data sets."""

from __future__ import annotations

import inspect
import numbers
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError, MissingExtraError, SingularSystemError
from . import features as maps
from .data import Log, from_logs, unseen
from .features import counts, numbered
from .mdp import from_chains
from .system import Problem

DERIVED = {  # attributes that a constructor computes from others: they follow when those are changed
    "total_mass": ("masspole", operator.add, "masscart"),
    "polemass_length": ("masspole", operator.mul, "length"),
}
CHANGING = {"state", "steps_beyond_terminated", "np_random_seed"}  # attributes that are no settings
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
        rule = "a list of mappings, one per agent"
        given = [{}] if variations is None else checks.entries("variations", variations, rule)
        if not given or isinstance(variations, Mapping):
            raise ArgumentTypeError(f"variations must be {rule}; got {checks.show(variations)}")
        return [_varied(envs, settings, f"variations[{c}]") for c, settings in enumerate(given)]
    if variations is not None:
        raise ArgumentError(f"variations must be None unless envs is one id; got {checks.show(variations)}")
    listed = checks.entries("envs", envs, "environments, one per agent") if checks.is_sequence(envs) else [envs]
    if not listed:
        raise ArgumentError("envs must hold at least one environment; got an empty list")
    for c, env in enumerate(listed):
        if not isinstance(env, (str, gymnasium().Env)):
            rule = f"envs[{c}] must be the id of a gymnasium environment or one itself"
            raise ArgumentTypeError(f"{rule}; got {checks.show(env)}")
    return [_make(env, {}) if isinstance(env, str) else env for env in listed]


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
    rest = {k: v for k, v in settings.items() if k not in known}
    if open_ended and rest:
        plain = _make(name, {}).unwrapped
        rest = {k: v for k, v in rest.items() if hasattr(plain, k)}
    env = _make(name, {k: v for k, v in settings.items() if k not in rest})
    world = env.unwrapped
    # a table was computed when the environment was made: attributes that are changed later would not reach it
    public = [] if table_of(env) is not None else [k for k in dir(world) if not k.startswith("_") and k not in CHANGING]
    attributes = {k for k in public if isinstance(v := getattr(world, k), numbers.Real) and not isinstance(v, bool)}
    for key, value in rest.items():
        if key not in attributes:
            listed = ", ".join(sorted(known | attributes))
            raise ArgumentError(f"{where} must name what {name} lets one set ({listed}); got {key!r}")
        setattr(world, key, checks.real(f"{key} in {where}", value))
    for key, (a, times, b) in DERIVED.items():
        if key in attributes and key not in rest and (a in rest or b in rest):
            setattr(world, key, times(getattr(world, a), getattr(world, b)))
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
    takes = inspect.getfullargspec(creator)
    named = {*takes.args, *takes.kwonlyargs, "max_episode_steps"} - {"self", "render_mode"}
    return named, takes.varkw is not None


def table_of(env: Any) -> Any:
    """P[state][action] = [(probability, next state, reward, terminated), ...] of an environment; None if none."""
    table = getattr(env.unwrapped, "P", None)
    return table if isinstance(table, Mapping) and len(table) else None


def initial_law(env: Any, name: str, S: int) -> Floats:
    """(S,): the law of an environment's first state, as it tells it; else the one state in which it always begins."""
    declared = getattr(env.unwrapped, "initial_state_distrib", None)
    if declared is not None:
        return checks.probabilities(f"the initial law of {name}", declared, (S,))
    starts = {int(env.reset(seed=i)[0]) for i in range(RESETS)}
    if len(starts) > 1:
        raise ArgumentError(f"initial must be given for {name}, which begins in {len(starts)} states or more; got None")
    return np.asarray(np.eye(S)[starts.pop()], np.float64)


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
        rule = f"policy must be a function of states or 'random' for {space}"
        raise ArgumentTypeError(f"{rule}; got {checks.show(policy)}")
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
    listed = environments(envs, variations)
    number = counts("steps", steps, len(listed), "agent")
    checks.integer("seed", seed)
    try:
        return _recorded(listed, policy, behaviour, number, seed)
    finally:
        given = list(map(id, envs)) if checks.is_sequence(envs) else [id(envs)]
        for env in listed:
            if id(env) not in given:
                env.close()


def _recorded(envs: list[Any], policy: Any, behaviour: Any, steps: Sequence[int], seed: int) -> list[Log]:
    vector, discrete = _vector_environment(envs)
    N, K = len(envs), max(steps)
    checks.memory("steps", K, STEP_BYTES * N, "the transitions of all agents")
    streams = [np.random.SeedSequence([seed, c]).generate_state(2) for c in range(N)]
    coin = np.stack([np.random.default_rng(int(own)).random(K) for _, own in streams], axis=1)  # (K, N)
    if discrete:
        A = int(vector.single_action_space.n)
        target = prepare_policy(policy, A)
        acting = None if behaviour is None else prepare_policy(behaviour, A, "behaviour")
    elif behaviour is not None:
        raise ArgumentError("behaviour must be None where actions are not numbered: weights need probabilities")
    else:
        for env, (_, own) in zip(envs, streams, strict=True):
            env.action_space.seed(int(own))
    state, _ = vector.reset(seed=[int(own) for own, _ in streams])
    rows: list[tuple[Any, ...]] = []
    for k in range(K):
        if discrete:
            evaluated = target(state)
            law = evaluated if acting is None else acting(state)
            action = (coin[k, :, None] * law.sum(axis=1, keepdims=True) >= np.cumsum(law, axis=1)).sum(axis=1)
            rho = evaluated[np.arange(N), action] / law[np.arange(N), action]
        else:
            action, rho = choose_actions(policy, state, [env.action_space for env in envs]), np.ones(N)
        after, reward, terminated, truncated, _ = vector.step(action)
        rows.append((state, action, reward.copy(), after, terminated.copy(), truncated.copy(), rho))
        over = terminated | truncated
        # without automatic resets every step is a transition, and `after` is where a cut episode stopped
        state = vector.reset(options={"reset_mask": over})[0] if over.any() else after
    columns = [np.stack(column, axis=1) for column in zip(*rows, strict=True)]  # (N, K, ...)
    logs = []
    for c, n in enumerate(steps):
        state, action, reward, after, over, cut, rho = (column[c, :n] for column in columns)
        cut[-1] |= not over[-1]  # the log ends here, the task does not
        logs.append(Log(state, action, reward, after, over, cut, None if behaviour is None else rho))
    return logs


def _check_states(name: str, space: Any) -> None:
    spaces = gymnasium().spaces
    if not isinstance(space, spaces.Discrete) and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
        raise ArgumentError(
            f"{name} must have numbered states or vectors as observations (Discrete or Box); got {space}"
        )


def _vector_environment(envs: list[Any]) -> tuple[Any, bool]:
    """The environments as one, and whether actions are numbered."""
    gym, done = gymnasium(), envs[0].action_space
    _check_states("envs", envs[0].observation_space)
    if not isinstance(done, (gym.spaces.Discrete, gym.spaces.Box)):
        raise ArgumentError(f"envs must take actions from a Discrete or Box space; got {done}")
    ways = {"observation_mode": "different", "autoreset_mode": gym.vector.AutoresetMode.DISABLED}
    try:
        vector = gym.vector.SyncVectorEnv([lambda env=env: env for env in envs], **ways)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:  # they have nothing in common, or little
        raise ArgumentError(f"envs must share the shapes of states and the actions; got: {error}") from None
    return vector, isinstance(done, gym.spaces.Discrete)


# Federated policy evaluation: exactly where environments carry their tables, else from rollouts.


def from_gymnasium(
    envs: Any,
    policy: Any,
    features: Any,
    discount: float,
    *,
    variations: Sequence[Mapping[str, Any]] | None = None,
    steps: int | Sequence[int] | None = None,
    seed: int | None = None,
    behaviour: Any = None,
    trace: float = 0.0,
    initial: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Evaluate one policy in gymnasium environments that differ from agent to agent (eq:system_matrix).

    envs : an environment's id; or a list of ids or environments, one per agent
    variations : with one id, a mapping of settings per agent: arguments of gymnasium.make (FrozenLake's success_rate),
        or numeric attributes of the environment (CartPole's length, from which polemass_length then follows)
    policy, behaviour : see `rollout`; features : see `features.apply`; initial : (S,) law of the first state

    Without `steps`, the transition tables that FrozenLake, CliffWalking and Taxi carry give an exact finite problem:
    TD(0), rewards as they come with each transition, a restart from the initial law after termination. The time limit
    is no part of a table and plays no role. With `steps` and `seed`, every environment is rolled out into a log of
    that many transitions per agent, which TD(trace) then runs on.

    discount : how much a reward counts one step later (gamma), at least 0 and below 1
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    if steps is not None:
        if initial is not None:
            raise ArgumentError("initial must be None with steps: rollouts begin as environments do; got a law")
        if seed is None:
            raise ArgumentError("seed must be a non-negative integer when steps are rolled out; got None")
        logs = rollout(envs, policy, steps, seed, variations=variations, behaviour=behaviour)
        return from_logs(logs, features, discount, trace=trace, weights=weights, assignment=assignment)
    if behaviour is not None or seed is not None:
        raise ArgumentError("steps must be given with seed or behaviour, which belong to rollouts; got None")
    if checks.real("trace", trace, at_least=0, at_most=1) > 0:
        raise ArgumentError(f"trace must be 0 without steps: exact problems are of TD(0); got {trace:g}")
    worlds = environments(envs, variations)
    names = [str(env.spec.id) if env.spec is not None else f"envs[{c}]" for c, env in enumerate(worlds)]
    tables = [_table(env, name) for env, name in zip(worlds, names, strict=True)]
    S, A = len(tables[0]), len(tables[0][0])
    for c, table in enumerate(tables):
        if (len(table), len(table[0])) != (S, A):
            got = f"{len(table)} states and {len(table[0])} actions for agent {c}"
            raise ArgumentError(f"envs must share their states and actions, {S} and {A}; got {got}")
    pi = prepare_policy(policy, A)(np.arange(S))
    phi = maps.apply(features, np.arange(S))
    begin = np.stack([initial_law(*at, S) for at in zip(worlds, names, strict=True)]) if initial is None else initial
    lists = [_chain(table, pi) for table in tables]
    try:
        return from_chains(lists, phi, discount, begin, weights=weights, assignment=assignment)
    except SingularSystemError as error:
        at = _visited(lists, np.broadcast_to(np.asarray(begin), (len(worlds), S)))
        hint = unseen(phi[at])
        if hint and isinstance(features, maps.OneHot):
            hint += f", as by features.OneHot({S}, without={np.flatnonzero(~at).tolist()})"
        raise SingularSystemError(f"{error}{hint}") from None


def _table(env: Any, name: str) -> Any:
    """P[state][action], which has to be there and to say everything."""
    table = table_of(env)
    if table is None:
        raise ArgumentError(f"steps must be given for {name}, which carries no transition table; got None")
    if getattr(env.unwrapped, "fickle_passenger", False):
        raise ArgumentError(
            f"steps must be given for {name} with fickle passengers, whom its table leaves out; got None"
        )
    return table


def _chain(table: Any, pi: Floats) -> tuple[Any, ...]:
    """The transitions of a table under a policy, those that it never makes left out."""
    entries = [
        (s, t, float(reward), float(pi[s, a] * chance), bool(over))
        for s, a in np.ndindex(pi.shape)
        for chance, t, reward, over in table[s][a]
        if pi[s, a] * chance > 0
    ]
    return tuple(np.array(column) for column in zip(*entries, strict=True))


def _visited(lists: list[tuple[Any, ...]], begin: Floats) -> Any:
    """(S,): which states some agent's chain can be in before a transition."""
    at = np.asarray(begin > 0)
    for m, (s, t, _, _, over) in enumerate(lists):
        while True:
            reached = np.unique(t[at[m][s] & ~over])
            if at[m][reached].all():
                break
            at[m][reached] = True
    return at.any(axis=0)


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
    listed = list(datasets) if isinstance(datasets, (list, tuple)) else [datasets]  # one can be gone through too
    if not listed:
        raise ArgumentError("datasets must hold at least one data set; got an empty list")
    if importance is not None and not callable(importance):
        rule = f"a function of states and actions, or one array per data set ({len(listed)})"
        importance = checks.entries("importance", importance, rule)
        if len(importance) != len(listed):
            raise ArgumentTypeError(f"importance must be {rule}; got {len(importance)}")
    each = importance if isinstance(importance, list) else [importance] * len(listed)
    logs = [dataset_log(f"datasets[{m}]", entry, own) for m, (entry, own) in enumerate(zip(listed, each, strict=True))]
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
    _check_states(name, dataset.observation_space)
    parts: list[tuple[NDArray[Any], ...]] = []
    for episode in dataset.iterate_episodes():
        if len(episode) == 0:
            continue
        visited, over = np.asarray(episode.observations), np.asarray(episode.terminations, np.bool_)
        cut = np.asarray(episode.truncations, np.bool_).copy()
        cut[-1] |= not over[-1]
        if isinstance(episode.actions, (dict, tuple)):
            kind = type(episode.actions).__name__
            raise ArgumentError(f"{name} must have actions that are numbers or vectors; got {kind}")
        parts.append((visited[:-1], np.asarray(episode.actions), episode.rewards, visited[1:], over, cut))
    if not parts:
        raise ArgumentError(f"{name} must hold at least one transition; got none")
    state, action, reward, after, over, cut = (np.concatenate(column) for column in zip(*parts, strict=True))
    rho = importance(state, action) if callable(importance) else importance
    if rho is not None:
        rho = checks.array(f"importance for {name}", rho, (len(state),))
    return Log(state, action, reward, after, over, cut, rho)

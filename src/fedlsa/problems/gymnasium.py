"""Federated policy evaluation in Gymnasium environments: exactly where they carry their tables, else from rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, SingularSystemError
from . import features as maps
from .environments import environments, initial_law, prepare_policy, rollout, table_of
from .mdp import from_chains
from .system import Problem
from .transitions import from_logs, unseen


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
    begin: Any = initial
    if initial is None:
        begin = np.stack([initial_law(env, S, name) for env, name in zip(worlds, names, strict=True)])
    lists = [_chain(table, pi) for table in tables]
    try:
        return from_chains(lists, phi, discount, begin, weights=weights, assignment=assignment)
    except SingularSystemError as error:
        at = _visited(lists, np.broadcast_to(np.asarray(begin), (len(worlds), S)))
        hint = unseen(phi[at])
        if hint and isinstance(features, maps.OneHot):
            hint += f", as by features.OneHot({S}, without={np.flatnonzero(~at).tolist()})"
        raise SingularSystemError(f"{error}{hint}") from None


def _table(env: Any, name: str) -> list[list[Any]]:
    """P[state][action] as lists."""
    table = table_of(env)
    if table is None:
        raise ArgumentError(f"steps must be given for {name}, which carries no transition table; got None")
    if getattr(env.unwrapped, "fickle_passenger", False):
        raise ArgumentError(
            f"steps must be given for {name} with fickle passengers, whom its table leaves out; got None"
        )
    return [[table[s][a] for a in range(len(table[s]))] for s in range(len(table))]


def _chain(table: list[list[Any]], pi: Floats) -> tuple[Any, ...]:
    """The transitions of a table under a policy, those that it never makes left out."""
    entries = [
        (s, t, float(reward), float(pi[s, a] * chance), bool(over))
        for s, actions in enumerate(table)
        for a, outcomes in enumerate(actions)
        for chance, t, reward, over in outcomes
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

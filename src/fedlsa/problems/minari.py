"""Federated policy evaluation on Minari data sets: one site per data set, none of them leaves the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError, MissingExtraError
from .environments import gymnasium
from .system import Problem
from .transitions import Log, from_logs


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
    logs = [_log(f"datasets[{m}]", entry, m, importance) for m, entry in enumerate(held)]
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


def _log(name: str, entry: Any, m: int, importance: Any) -> Log:
    """All episodes of a data set, one after the other."""
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
    rho = importance(state, action) if callable(importance) else None if importance is None else importance[m]
    if rho is not None:
        rho = checks.array(f"importance for {name}", rho, (len(state),))
    return Log(state.astype(number), action, reward.astype(np.float64), after.astype(number), over, cut, rho)

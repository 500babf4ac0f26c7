"""Whether the accuracy of a plan lasts: its exact error at the planned round, at later ones, and in the limit.

An error may cross a target by luck, where what is left of the start and the drift of the method cancel, and exceed it a
round later. So a plan is held to the exact curve beyond its end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms import SCAFFLSA, Algorithm, FedLSA, Scaffnew
from ..checks import Floats
from . import noiseless
from .exact import exact
from .krylov import Krylov
from .linear import contracts
from .moments import Moments
from .stationary import stationary

EACH = 200  # rounds after the plan's that are looked at one by one
FURTHER = 1.05  # ratio of later rounds that are looked at
BEYOND = 32  # times as many rounds as planned, to which the curve is followed
WORK = 2e9  # multiplications that following it may take
SMALL = 400  # numbers of a noiseless state up to which its round is written out


@dataclass(frozen=True)
class Lasting:
    """The error at the planned round, the largest from there on, and the first round from which a target holds."""

    error: float
    worst: float
    since: int | None


def follow(m: Moments, a: Algorithm, T: int, start: Floats, target: float = math.inf) -> Lasting:
    """Mean squared errors of a plan from u_0 = start : (d,), and since when they stay within the target.

    Every round up to 2 T + 32 (200 more at most) is looked at, then rounds 5% apart up to 32 T, as far as that takes
    seconds, and the limit.
    """
    rounds = _rounds(m, a, T)
    found = exact(m, a, int(rounds[-1]), m.theta_star + start, record=rounds.tolist())["mse"].values
    end = _limit(m, a)
    over = np.flatnonzero(found > target)
    since = int(rounds[0]) if not len(over) else None if over[-1] == len(rounds) - 1 else int(rounds[over[-1] + 1])
    return Lasting(float(found[0]), float(max(found.max(), end)), since if end <= target else None)


def _rounds(m: Moments, a: Algorithm, T: int) -> NDArray[np.int64]:
    """The planned round and those after it that are looked at."""
    K, d = len(m.table), m.dim
    if not isinstance(a, Scaffnew) and noiseless.suits(m, a.taking_part(m.n_agents)):
        cost = max(K * d * d, 5000)
    else:
        cost = 1 if isinstance(a, FedLSA) else 4 * K * K * d**3
    most = T + max(4, int(WORK / cost))
    near = np.arange(T, 1 + min(2 * T + 32, T + EACH, most))
    far = near[-1] * FURTHER ** np.arange(1, 1 + math.log(max(BEYOND * T / near[-1], 1)) / math.log(FURTHER))
    return np.unique(np.append(near, far[far <= most].astype(np.int64)))


def _limit(m: Moments, a: Algorithm) -> float:
    """The mean squared error in the limit, infinite where there is none."""
    if isinstance(a, SCAFFLSA) and noiseless.suits(m, a.taking_part(m.n_agents)):
        step = noiseless.NoiselessMap(noiseless.local_powers(m), float(a.eta(np.zeros(1, np.int64))[0]), a.local_steps)
        return 0.0 if _settles(step) else math.inf
    return stationary(m, a).mse


def _settles(step: noiseless.NoiselessMap) -> bool:
    """Whether a noiseless round of SCAFFLSA contracts; with many agents by the largest Ritz value."""
    shape = step.local.value.shape[:2]

    def again(y: Floats) -> Floats:
        return step.mean(y.reshape(shape)).ravel()

    n = math.prod(shape)
    if n <= SMALL:
        return contracts(np.stack([again(e) for e in np.eye(n)], axis=1))
    space = Krylov(again, np.random.default_rng(0).standard_normal(n))
    space.grow(space.most)
    return bool(np.abs(np.linalg.eigvals(space.h)).max() < 1)

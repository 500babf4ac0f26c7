"""The errors of one method for any step size, round length and number of rounds: what the planner searches over."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from ..algorithms import METHODS, Algorithm, FedLSA
from ..checks import Floats
from ..errors import PrecisionError
from . import fedlsa, stationary_pairs, tuning
from .exact import controlled_round
from .linear import not_negative
from .moments import Moments
from .noiseless import Quiet, fedlsa_round, first_below, rounds_of_scafflsa
from .pairs import looks
from .stationary import stability_limit


class Law(ABC):
    """Errors of one method, from u_0 = theta_0 - theta_star; edge : the step size at which single steps diverge."""

    edge: float
    start: Floats

    @abstractmethod
    def errors(self, eta: float, H: int, T: int) -> Iterator[float]:
        """E||theta - theta_star||^2 after T rounds, after T + 1, and in the limit: always the largest so far."""

    @abstractmethod
    def first_below(self, eta: float, target: float, most: int) -> int | None:
        """The first round of one local step at which the error is at most `target`, if within about `most`."""

    def worst(self, eta: float, H: int, T: int, target: float = 0.0) -> float:
        """The largest of these errors; with a target, the first that is above it. Infinite where it is not known."""
        error = math.inf
        with np.errstate(all="ignore"):
            try:
                for error in self.errors(eta, H, T):
                    if error > target > 0:
                        break
            except PrecisionError:
                return math.inf
        return error if math.isfinite(error) else math.inf

    def error(self, eta: float, H: int, T: int) -> float:
        """The first of them."""
        with np.errstate(all="ignore"):
            return next(iter(self.errors(eta, H, T)))


class Noisy(Law):
    """Errors of one method by exact second moments, from u_0 = theta_0 - theta_star; Noiseless is its like.

    edge : the largest step size below which single steps of all agents together converge
    """

    def __init__(self, m: Moments, name: str, start: Floats) -> None:
        self.m, self.name, self.start, self.x = m, name, start, -m.xi_star[m.table]
        self.edge = stability_limit(m, FedLSA(0.1, 1), tolerance=1e-3)

    def errors(self, eta: float, H: int, T: int) -> Iterator[float]:
        """See Law."""
        if self.name == "fedlsa" or H == 1:  # with one local step all methods are FedLSA
            step = fedlsa.round_map(self.m, eta, H, -self.m.xi_star)
            at = [self._error(step, t, eta * H) for t in (T, T + 1)]
            yield at[0]
            yield max(at)
            end = fedlsa.limit(step)
            yield max(*at, float(end.mean @ end.mean + np.trace(end.covariance)) if end.stable else math.inf)
            return
        step_of_all, worst = controlled_round(self.m, method(self.name, eta, H), eta), 0.0
        begin, seen = float(self.start @ self.start), looks(step_of_all, self.start, self.x)
        for mse in _until_huge((float(v[:-2] @ v[:-2] + v[-2]) for v in seen), T, begin):
            worst = max(worst, self._checked(mse, eta * H))
            yield worst
        if math.isfinite(worst):
            yield max(worst, float(np.trace(stationary_pairs.limit(step_of_all).U)))

    def first_below(self, eta: float, target: float, most: int) -> int | None:
        """The first round of one local step at which the error is at most `target`, if within about `most`."""
        step = fedlsa.round_map(self.m, eta, 1, -self.m.xi_star)
        try:
            end = fedlsa.limit(step)
        except PrecisionError:  # of a system so badly conditioned that no number of rounds will do
            return None
        if not (end.stable and float(np.trace(end.covariance) + end.mean @ end.mean) < target):
            return None
        return first_below(lambda t: self._error(step, t, eta), target, most)

    def _error(self, step: fedlsa.Round, t: int, length: float) -> float:
        mean, variance = fedlsa.curve(step, np.append(self.start, 1.0), np.array([t]))
        return self._checked(float(mean[0] @ mean[0] + variance[0]), length)

    def _checked(self, mse: float, length: float) -> float:
        """A mean squared error; length : eta H."""
        if not math.isfinite(mse):
            return math.inf
        rounding = self.m.rounding(self.start, self.x, length)
        return float(not_negative(np.array([mse]), rounding, "mean squared errors")[0])


class Noiseless(Quiet, Law):
    """The same where no observation is random, for FedLSA and SCAFFLSA."""

    def errors(self, eta: float, H: int, T: int) -> Iterator[float]:
        """See Law. The limit of SCAFFLSA is theta_star, if it has one: plans are checked for that at the end."""
        if H == 1:
            yield from itertools.accumulate((self.alone(eta, t) for t in (T, T + 1)), max)
        elif self.name == "fedlsa":
            at = [self.error(eta, H, t) for t in (T, T + 1)]
            yield from itertools.accumulate(at, max)
            end = fedlsa.mean_limit(fedlsa_round(self.local, eta, H, self.x))
            yield max(*at, float(end.mean @ end.mean) if end.stable else math.inf)
        else:
            seen = (float(u @ u) for u, _ in rounds_of_scafflsa(self.local, eta, H, self.start, self.x))
            yield from itertools.accumulate(_until_huge(seen, T, float(self.start @ self.start)), max)


def _until_huge(errors: Iterator[float], T: int, begin: float) -> Iterator[float]:
    """Those after T and T + 1 rounds, or infinity as soon as one is huge."""
    for t, mse in enumerate(itertools.islice(errors, T + 1), 1):
        if not mse < tuning.DIVERGED * begin:
            yield math.inf
            return
        if t >= T:
            yield mse


def method(name: str, eta: float, H: int) -> Algorithm:
    """The method with rounds of H observations, in the mean for Scaffnew."""
    return METHODS[name].with_steps(eta, H)

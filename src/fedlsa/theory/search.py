"""The planner's search by exact moments: over step sizes for a given round, and over the number of rounds.

For a given number of rounds T the longest rounds that the cap on observations allows are best, for at the same progress
per round, eta H, they average more noise away. So T is found by bisection, and for each T the error is minimised over
the step size alone, starting from the best eta H of the T before.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from dataclasses import replace

import numpy as np
from scipy.cluster.vq import kmeans2

from ..algorithms import METHODS, Algorithm, FedLSA
from ..checks import Floats
from ..errors import ArgumentError
from . import fedlsa
from .exact import controlled_round
from .moments import Moments
from .pairs import looks
from .quiet import Quiet, finite, first_below
from .stationary import stability_limit

GENEROUS = 4  # times the fewest observations with which the method gets there: the default cap
LONGEST = 2**31
WIDE, NARROW = math.log(2.0), math.log(1.02)  # steps in log eta: the first, and where the search ends
HOPELESS, NEAR = 1.5, math.log(1.3)  # an error that is this many times the target this near to its minimum is above it
TYPICAL = 8  # rounds, where the search for their number begins
FEW_GROUPS = 8  # beyond these the best step sizes are those of a similar problem with as many
ALIKE = 0.05  # relative difference of the two errors up to which its step size is taken as it is


class Noisy:
    """Errors of one method by exact second moments, from u_0 = theta_0 - theta_star; quiet.Quiet is its like.

    edge : the largest step size below which single steps of all agents together converge
    """

    def __init__(self, m: Moments, name: str, start: Floats) -> None:
        self.m, self.name, self.start = m, name, start
        self.edge = stability_limit(m, FedLSA(0.1, 1), tolerance=1e-3)

    def error(self, eta: float, H: int, T: int) -> float:
        """E||theta_T - theta_star||^2, infinite where it overflows."""
        x, begin = -self.m.xi_star, float(self.start @ self.start)
        with np.errstate(all="ignore"):
            if self.name == "fedlsa" or H == 1:  # with one local step all methods are FedLSA
                step = fedlsa.round_map(self.m, eta, H, x)
                return finite(_error(step, self.start, T))
            step_of_all, mse = controlled_round(self.m, method(self.name, eta, H), eta), begin
            for look in itertools.islice(looks(step_of_all, self.start, x[self.m.table]), T):
                mse = float(look[:-2] @ look[:-2] + look[-2])
                if not mse < 1e6 * begin:
                    return math.inf
        return float(mse)

    def first_below(self, eta: float, target: float, most: int) -> int | None:
        """The first round of one local step at which the error is at most `target`, if within about `most`."""
        step = fedlsa.round_map(self.m, eta, 1, -self.m.xi_star)
        end = fedlsa.limit(step)
        if not (end.stable and float(np.trace(end.covariance) + end.mean @ end.mean) < target):
            return None
        return first_below(lambda t: _error(step, self.start, t), target, most)


class Search:
    """Step sizes, round lengths and rounds of one method on given moments, from u_0 = theta_0 - theta_star."""

    def __init__(self, m: Moments, name: str, start: Floats) -> None:
        self.name, self.start = name, start
        quiet = m.quiet and name != "scaffnew"
        self.scout = Search(merged(m, FEW_GROUPS), name, start) if len(m.table) > FEW_GROUPS and not quiet else None
        self.law = Quiet(m, name, start) if quiet else Noisy(m, name, start)
        self.edge = self.law.edge
        if self.edge == 0 or not math.isfinite(self.edge):
            raise ArgumentError(f"problem must have a largest stable step size above 0; got {self.edge:g}")

    def best_step(self, H: int, T: int, guess: float, target: float = 0.0, width: float = WIDE) -> tuple[float, float]:
        """The smallest error after T rounds of H steps over step sizes, and its step size.

        With a target, the first that is found below it, or any above it when none can be. Of many different agents the
        error is looked at where that of a similar problem with few is smallest, and around it where the two differ.
        width : of the first steps in log eta.
        """
        if self.scout is not None:
            expected, guess = self.scout.best_step(H, T, guess, width=width)
            error, width = self.law.error(guess, H, T), math.log(1.1)
            if abs(error - expected) < ALIKE * expected or (target and not target < error < 2 * target):
                return error, guess
        seen: dict[float, float] = {}

        def at(x: float) -> float:
            if x not in seen:
                seen[x] = self.law.error(math.exp(x), H, T) if math.exp(x) < self.edge else math.inf
            return seen[x]

        def best() -> float:
            return min(seen, key=seen.__getitem__)

        x = math.log(min(guess, 0.9 * self.edge))
        while not math.isfinite(at(x)):  # down to where it is stable
            x -= WIDE
        while width > NARROW and seen[best()] > target:
            left, right = at(x - width), at(x + width)
            if best() != x:
                x = best()  # walk on
                continue
            if width < NEAR and at(x) > self._hopeless(target) * target > 0:
                break
            low, here, high = (math.log(max(value, 1e-300)) for value in (left, at(x), right))
            if math.isfinite(high) and low + high > 2 * here:  # the bottom of the parabola through the three
                at(x + width / 2 * (low - high) / (low - 2 * here + high))
            x, width = best(), width / 2
        return seen[best()], math.exp(best())

    def fewest_samples(self, target: float) -> tuple[int, float]:
        """The fewest observations with which the target is reached, one local step at a time, and the step size."""
        best, eta = LONGEST, self.edge / 2
        while True:
            last = self.law.first_below(eta, target, best)
            if last is not None and last < best:
                best, at = last, eta
            elif best < LONGEST:
                return best, at
            eta /= math.sqrt(2)
            if eta < 1e-9 * self.edge:
                raise ArgumentError(
                    f"epsilon must be one that some step size reaches within {LONGEST:.1e} observations; "
                    f"got {math.sqrt(target):g}"
                )

    def for_accuracy(self, epsilon: float, cap: float | None) -> tuple[float, int, int]:
        """Step size, local steps and rounds with an error of at most epsilon and the fewest rounds."""
        target = epsilon**2
        if float(self.start @ self.start) <= target:
            begin = float(np.linalg.norm(self.start))
            raise ArgumentError(f"epsilon must be below the error at the start, {begin:g}; got {epsilon:g}")
        least, eta = self.fewest_samples(target)
        most = GENEROUS * least if cap is None else int(cap)
        if most < least:
            raise ArgumentError(
                f"max_samples must allow {self.name} to reach epsilon, about {least} observations; got {most}"
            )
        T = min(TYPICAL, most)
        if self.scout is not None:
            with contextlib.suppress(ArgumentError):  # where it does not get there, the problem itself still may
                eta, _, T = self.scout._fewest_rounds(T, eta, target, most)
        eta, H, T = self._fewest_rounds(T, eta, target, most)
        eta, H = self._shortest(T, eta, H, target)
        if isinstance(self.law, Quiet):  # without noise an error may rise again for some rounds
            T = self.law.first_round(eta, H, T, target)
        return eta, H, T

    def _lengths(self, H: int) -> list[int]:
        """Local steps to try where at most H are allowed: without noise there is none to average away over many."""
        return [*(H >> k for k in range(0, H.bit_length() - 1, 2)), 1] if isinstance(self.law, Quiet) and H > 1 else [H]

    def _hopeless(self, target: float) -> float:
        """How many times the target an error may be, this near to its minimum, and still come down to it."""
        if target and isinstance(self.law, Quiet):  # it falls exponentially in the step size, up to a cliff
            return max(HOPELESS, float(self.start @ self.start / target) ** (1 - math.exp(-NEAR)))
        return HOPELESS

    def _fewest_rounds(self, T: int, eta: float, target: float, most: int) -> tuple[float, int, int]:
        """From a guess: step size, local steps and the fewest rounds with which the target is reached in the cap."""
        known: dict[int, tuple[float, int]] = {}  # step size and local steps for each T that is enough

        def enough(T: int) -> bool:
            guess, usual = next(reversed(known.values()), (eta, 1))
            lengths = self._lengths(min(most // T, LONGEST))
            for H in sorted(lengths, key=lambda H: abs(math.log(H / usual))) if known else lengths:
                error, best = self.best_step(H, T, guess, target)
                if error <= target:
                    known[T] = best, H
                    return True
            return False

        low, high, stride = 0, 0, 1
        if enough(T):
            high = T
            while high > 1 and enough(max(1, high - stride)):
                high, stride = max(1, high - stride), 2 * stride
            low = max(0, high - stride)
        else:
            low = T
            while not enough(min(most, low + stride)):
                if low + stride >= most:
                    raise ArgumentError(
                        f"max_samples must allow {self.name} to reach epsilon, more than {most}; got {most}"
                    )
                low, stride = low + stride, 2 * stride
            high = min(most, low + stride)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return *known[high], high

    def _shortest(self, T: int, eta: float, H: int, target: float) -> tuple[float, int]:
        """The shortest rounds, to a fiftieth, with which T of them reach the target, and the step size."""
        low, high = 0, H
        while high - low > max(1, high // 50):
            middle = max((low + high) // 2, high * 2 // 3)
            error, best = self.best_step(middle, T, eta * high / middle, target, NEAR)
            if error <= target:
                high, eta = middle, best
            else:
                low = middle
        return eta, high

    def smallest_error(self, H: int, T: int) -> tuple[float, int, int]:
        """Step size, local steps and rounds with the smallest error after T rounds of H steps."""
        found = [(*self.best_step(h, T, self.edge / 8), h) for h in self._lengths(H)]
        _, eta, H = min(found)
        return eta, H, T


def method(name: str, eta: float, H: int) -> Algorithm:
    """The method with rounds of H observations, in the mean for Scaffnew."""
    if name == "scaffnew":
        return METHODS[name](step_size=eta, probability=1 / H)  # type: ignore[call-arg]
    return METHODS[name](step_size=eta, local_steps=H)  # type: ignore[call-arg]


def _error(step: fedlsa.Round, start: Floats, t: int) -> float:
    mean, variance = fedlsa.curve(step, np.append(start, 1.0), np.array([t]))
    return float(mean[0] @ mean[0] + variance[0])


def merged(m: Moments, groups: int) -> Moments:
    """A problem with few groups that resembles the given one: groups of similar mean systems, each averaged."""
    features = np.concatenate([m.A_bar[m.table].reshape(len(m.table), -1), m.b_bar[m.table]], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of groups that stay empty: fewer will do
        _, label = kmeans2(features, groups, minit="++", rng=0)
    kept = [np.flatnonzero(label == g) for g in np.unique(label)]
    share = [m.count[g] / m.count[g].sum() for g in kept]

    def mean(of: Floats) -> Floats:
        return np.stack([np.tensordot(s, of[m.table[g]], 1) for g, s in zip(kept, share, strict=True)])

    return replace(
        m,
        A_bar=mean(m.A_bar),
        b_bar=mean(m.b_bar),
        noise=mean(m.noise),
        table=np.arange(len(kept)),
        weight=np.array([s @ m.weight[g] for g, s in zip(kept, share, strict=True)]),
        count=np.array([m.count[g].sum() for g in kept]),
    )

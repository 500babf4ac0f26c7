"""The planner's search by exact moments: over step sizes for a given round, and over the number of rounds.

For a given number of rounds T the longest rounds that the cap on observations allows are best, for at the same progress
per round, eta H, they average more noise away. So T is found by bisection, and for each T the error is minimised over
the step size alone, starting from the best eta H of the T before.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np

from ..checks import Floats
from ..errors import ArgumentError
from .method_errors import MethodErrors
from .moments import Moments
from .tuning import (
    DEFAULT_BUDGET,
    FIRST_STRIDE,
    LAST_STRIDE,
    MAX_HALVINGS,
    MAX_SAMPLES,
    NEAR_MINIMUM,
    OUT_OF_REACH,
    SEARCHED_GROUPS,
    TYPICAL_ROUNDS,
)


class Search:
    """Step sizes, round lengths and rounds of one method on given moments, from u_0 = theta_0 - theta_star.

    scout : where there are many different agents, the search on a similar problem with few
    """

    def __init__(self, m: Moments, name: str, start: Floats) -> None:
        self.name, self.start = name, start
        self.m, self.errors = m, MethodErrors(m, name, start)
        many = len(m.table) > SEARCHED_GROUPS and not self.errors.noiseless
        self.scout = Search(merged(m, SEARCHED_GROUPS), name, start) if many else None
        self.edge = self.errors.edge
        if self.edge == 0 or not math.isfinite(self.edge):
            raise ArgumentError(f"problem must have a largest stable step size above 0; got {self.edge:g}")

    def best_step(
        self, H: int, T: int, guess: float, target: float = 0.0, width: float = FIRST_STRIDE
    ) -> tuple[float, float]:
        """The smallest error after T rounds of H steps over step sizes, and its step size.

        It is the largest of the errors then, one round later and in the limit, so that it lasts. With a target, the
        first that is found below it, or any above it when none can be. width : of the first steps in log eta.
        """
        seen: dict[float, float] = {}

        def at(x: float) -> float:
            if x not in seen:
                seen[x] = self.errors.worst(math.exp(x), H, T, target) if math.exp(x) < self.edge else math.inf
            return seen[x]

        def best() -> float:
            return min(seen, key=seen.__getitem__)

        x = math.log(min(guess, 0.9 * self.edge))
        for _ in range(MAX_HALVINGS):  # down to where it is stable
            if math.isfinite(at(x)):
                break
            x -= FIRST_STRIDE
        while width > LAST_STRIDE and seen[best()] > target:
            left, right = at(x - width), at(x + width)
            if best() != x:
                x = best()  # walk on
                continue
            if width < NEAR_MINIMUM and at(x) > self._hopeless(target) * target > 0:
                break
            low, here, high = (math.log(max(value, 1e-300)) for value in (left, at(x), right))
            if math.isfinite(high) and low + high > 2 * here:  # the bottom of the parabola through the three
                at(x + width * float(np.clip((low - high) / (low - 2 * here + high) / 2, -1, 1)))
            x, width = best(), width / 2
        return seen[best()], math.exp(best())

    def fewest_samples(self, target: float) -> tuple[int, float]:
        """The fewest observations with which the target is reached, one local step at a time, and the step size."""
        best, eta = MAX_SAMPLES, self.edge / 2
        while True:
            last = self.errors.first_below(eta, target, best)
            if last is not None and last < best:
                best, at = last, eta
            elif best < MAX_SAMPLES:
                return best, at
            eta /= math.sqrt(2)
            if eta < 1e-9 * self.edge:
                w = self.m.count * self.m.weight
                condition = np.linalg.cond(np.tensordot(w, self.m.A_bar[self.m.table], 1))
                raise ArgumentError(
                    f"the averaged system must be conditioned well enough to reach an error of {math.sqrt(target):g} "
                    f"within {MAX_SAMPLES:.1e} observations by some step size; got a condition number of "
                    f"{condition:.1e}"
                )

    def observations(self, epsilon: float, cap: float | None) -> tuple[float, int]:
        """A step size that reaches epsilon with single steps, and the most observations that a plan may use."""
        if float(self.start @ self.start) <= epsilon**2:
            begin = float(np.linalg.norm(self.start))
            raise ArgumentError(f"epsilon must be below the error at the start, {begin:g}; got {epsilon:g}")
        least, eta = (self.scout or self).fewest_samples(epsilon**2)  # which has the same single steps
        most = DEFAULT_BUDGET * least if cap is None else int(cap)
        if most < least:
            raise ArgumentError(
                f"max_samples must allow {self.name} to reach epsilon, about {least} observations; got {most}"
            )
        return eta, most

    def for_accuracy(self, target: float, eta: float, most: int) -> tuple[float, int, int]:
        """Step size, local steps and rounds with an error of at most `target` that lasts, and the fewest rounds."""
        eta, H, T = self._fewest_rounds(min(TYPICAL_ROUNDS, most), eta, target, most)
        eta, H = self._shortest(T, eta, H, target)
        if self.errors.noiseless:  # without noise an error may rise again for some rounds
            T = self.errors.first_round(eta, H, T, target)
        return eta, H, T

    def _lengths(self, H: int) -> list[int]:
        """Local steps to try where at most H are allowed: without noise there is none to average away over many."""
        return [*(H >> k for k in range(0, H.bit_length() - 1, 2)), 1] if self.errors.noiseless and H > 1 else [H]

    def _hopeless(self, target: float) -> float:
        """How many times the target an error may be, this near to its minimum, and still come down to it."""
        if target and self.errors.noiseless:  # it falls exponentially in the step size, up to a cliff
            return max(OUT_OF_REACH, float(self.start @ self.start / target) ** (1 - math.exp(-NEAR_MINIMUM)))
        return OUT_OF_REACH

    def _fewest_rounds(self, T: int, eta: float, target: float, most: int) -> tuple[float, int, int]:
        """From a guess: step size, local steps and the fewest rounds with which the target is reached in the cap."""
        known: dict[int, tuple[float, int]] = {}  # step size and local steps for each T that is enough

        def enough(T: int) -> bool:
            guess, usual = next(reversed(known.values()), (eta, 1))
            lengths = self._lengths(min(most // T, MAX_SAMPLES))
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
            error, best = self.best_step(middle, T, eta * high / middle, target, NEAR_MINIMUM)
            if error <= target:
                high, eta = middle, best
            else:
                low = middle
        return eta, high

    def smallest_error(self, H: int, T: int) -> tuple[float, int]:
        """Step size and local steps with the smallest error after T rounds of at most H steps that lasts."""
        guess, width = self.edge / 8, FIRST_STRIDE
        if self.scout is not None:  # near the best step size of a similar problem with few agents
            guess, width = self.scout.smallest_error(H, T)[0], 4 * LAST_STRIDE
        _, eta, H = min((*self.best_step(h, T, guess, width=width), h) for h in self._lengths(H))
        return eta, H


def merged(m: Moments, groups: int) -> Moments:
    """A problem with few groups that resembles the given one: groups of similar mean systems, each averaged."""
    from scipy.cluster.vq import kmeans2  # slow to load, and few agents need none of it

    features = np.concatenate([m.A_bar[m.table].reshape(len(m.table), -1), m.b_bar[m.table]], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of groups that stay empty: fewer will do
        _, label = kmeans2(features, groups, minit="++", rng=0)
    kept = [np.flatnonzero(label == g) for g in np.unique(label)]
    total = m.count * m.weight
    weight = np.array([total[g].sum() / m.count[g].sum() for g in kept])

    def mean(of: Floats, share: Floats) -> Floats:
        return np.stack([np.tensordot(share[g], of[m.table[g]], 1) / total[g].sum() for g in kept])

    return replace(  # the averaged system and the noise of an average stay what they are
        m,
        A_bar=mean(m.A_bar, total),
        b_bar=mean(m.b_bar, total),
        noise=mean(m.noise, total * m.weight) / weight[:, None, None],
        table=np.arange(len(kept)),
        weight=weight,
        count=np.array([m.count[g].sum() for g in kept]),
    )

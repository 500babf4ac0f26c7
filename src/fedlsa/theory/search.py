"""The planner's search by exact moments: over step sizes for a given round, and over the number of rounds.

For a given number of rounds T the longest rounds that the cap on observations allows are best, for at the same progress
per round, eta H, they average more noise away. So T is found by bisection, and for each T the error is minimised over
the step size alone, starting from the best eta H of the T before.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, islice

import numpy as np
from numpy.typing import NDArray

from ..algorithms import METHODS, SCAFFLSA, Algorithm, FedLSA, Scaffnew
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from . import krylov, local_steps, noiseless, stationary_pairs, tuning
from .controlled import round_on_pairs
from .exact_curves import exact_record
from .linear import contracts, not_negative
from .pairs import PairMap
from .problem_moments import Moments
from .stationary_limits import stability_limit, stationary
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

# Errors of one method for any step size, round length and number of rounds, and whether they last: for the planner.


class MethodErrors:
    """Errors of one method by exact moments, from u_0 = theta_0 - theta_star.

    edge : the largest step size below which single steps of all agents together converge
    noiseless : whether nothing is random; then all is about means, in any dimension
    """

    def __init__(self, m: Moments, name: str, start: Floats) -> None:
        self.m, self.name, self.start, self.x = m, name, start, -m.xi_star[m.table]
        self.noiseless = name != "scaffnew" and noiseless.suits(m, m.n_agents)
        if self.noiseless:
            average = np.tensordot(m.count * m.weight, m.A_bar[m.table], 1)
            self._together = noiseless.modes_of(average[None], np.ones(1))
            self.edge = _edge(average)
        else:
            self.edge = stability_limit(m, FedLSA(0.1, 1), tolerance=1e-3)

    def errors(self, eta: float, H: int, T: int) -> Iterator[float]:
        """E||theta - theta_star||^2 after T rounds, after T + 1, and in the limit: always the largest so far.

        Without noise the limit of SCAFFLSA is theta_star, if it has one: plans are checked for that at the end.
        """
        if self.noiseless and H == 1:
            yield from accumulate((self._single_steps(eta, t) for t in (T, T + 1)), max)
        elif self.name == "fedlsa" or H == 1:  # with one local step all methods are FedLSA
            step = local_steps.fedlsa_round(self.m, eta, H, -self.m.xi_star)
            at = self._fedlsa(step, [T, T + 1], eta * H)
            yield from accumulate(at, max)
            end = local_steps.fedlsa_limit(step)
            yield max(*at, float(end.mean @ end.mean + np.trace(end.covariance)) if end.stable else math.inf)
        else:
            step_of_all, worst = round_on_pairs(self.m, METHODS[self.name].with_steps(eta, H), eta), 0.0
            for mse in self._until_diverged(self._each_round(step_of_all), T):
                worst = max(worst, self._checked(mse, eta * H))
                yield worst
            if math.isfinite(worst) and isinstance(step_of_all, PairMap):
                yield max(worst, float(np.trace(stationary_pairs.limit(step_of_all).U)))

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

    def first_below(self, eta: float, target: float, most: int) -> int | None:
        """The first round of one local step at which the error is at most `target`, if within about `most`."""
        if self.noiseless:
            with np.errstate(all="ignore"):
                return _first_below(partial(self._single_steps, eta), target, most) if eta < self.edge else None
        step = local_steps.fedlsa_round(self.m, eta, 1, -self.m.xi_star)
        try:
            end = local_steps.fedlsa_limit(step)
        except PrecisionError:  # of a system so badly conditioned that no number of rounds will do
            return None
        if not (end.stable and float(np.trace(end.covariance) + end.mean @ end.mean) < target):
            return None
        return _first_below(lambda t: self._fedlsa(step, [t], eta)[0], target, most)

    def first_round(self, eta: float, H: int, T: int, target: float) -> int:
        """The first of T rounds at whose end the error is at most `target`, T if it is none before; without noise."""
        with np.errstate(all="ignore"):
            if self.name == "fedlsa" or H == 1:
                each = self._each_mean(local_steps.fedlsa_round(self.m, eta, H, -self.m.xi_star).mean)
            else:
                each = self._each_round(round_on_pairs(self.m, METHODS[self.name].with_steps(eta, H), eta))
            return next((t for t, error in enumerate(islice(each, T - 1), 1) if error <= target), T)

    def _fedlsa(self, step: local_steps.FedLSARound, rounds: list[int], length: float) -> list[float]:
        mean, variance = local_steps.fedlsa_curve(step, self.start, np.array(rounds))
        return [self._checked(float(u @ u + v), length) for u, v in zip(mean, variance, strict=True)]

    def _single_steps(self, eta: float, t: int) -> float:
        """The error after t rounds of one local step, which without noise are t steps with the averaged matrix."""
        together = self._together
        u = together.mean(together.times(together.powers(eta, t)[0], together.seen(self.start)))
        return self._checked(float(u @ u), eta)

    def _each_mean(self, M: Floats) -> Iterator[float]:
        """||u||^2 of v = (u, 1) after 1, 2, ... times M."""
        v = np.append(self.start, 1.0)
        while True:
            v = M @ v
            yield float(v[:-1] @ v[:-1])

    def _each_round(self, step: PairMap | noiseless.NoiselessMap) -> Iterator[float]:
        """E||u||^2 after 1, 2, ... rounds."""
        vector = step.start(self.start, self.x)
        while True:
            vector = step.advance(vector)
            yield step.error(vector)

    def _until_diverged(self, errors: Iterator[float], T: int) -> Iterator[float]:
        """Those after T and T + 1 rounds, or infinity as soon as one is beyond hope."""
        most = tuning.DIVERGED * float(self.start @ self.start)
        for t, mse in enumerate(islice(errors, T + 1), 1):
            if not mse < most:
                yield math.inf
                return
            if t >= T:
                yield mse

    def _checked(self, mse: float, length: float) -> float:
        """A mean squared error; length : eta H."""
        if not math.isfinite(mse):
            return math.inf
        rounding = self.m.rounding(self.start, self.x, length)
        return float(not_negative(np.array([mse]), rounding, "mean squared errors")[0])


def _edge(A: Floats) -> float:
    """The step size below which all eigenvalues of I - eta A are inside the unit circle; 0 if there is none."""
    value = np.linalg.eigvals(A)
    return float((2 * value.real / np.abs(value) ** 2).min()) if value.real.min() > 0 else 0.0


def _first_below(error: Callable[[int], float], target: float, most: int) -> int | None:
    """The first round at which an error is at most `target`, by doubling and halving, if within about `most`."""
    high = 1
    while error(high) > target:
        high *= 2
        if high > 2 * most:
            return None
    between = range(high // 2 + 1, high)
    return between.start + bisect_left(between, True, key=lambda t: error(t) <= target)


@dataclass(frozen=True)
class Lasting:
    """The error at the planned round, the largest from there on, and the first round from which a target holds."""

    error: float
    worst: float
    since: int | None


def follow(m: Moments, a: Algorithm, T: int, start: Floats, target: float = math.inf) -> Lasting:
    """Mean squared errors of a plan from u_0 = start : (d,), and since when they stay within the target.

    An error may cross a target by luck, where what is left of the start and the drift of the method cancel, and exceed
    it a round later. So a plan is held to the exact curve beyond its end.

    Every round up to 2 T + 32 (200 more at most) is looked at, then rounds 5% apart up to 32 T, as far as that takes
    seconds, and the limit.
    """
    if isinstance(a, SCAFFLSA) and a.local_steps == 1:  # control variates cancel in the average of single steps
        a = FedLSA(a.step_size, 1)
    rounds = _later_rounds(m, a, T)
    record = exact_record(m, a, int(rounds[-1]), m.theta_star + start, record=rounds.tolist())
    found = record["data_vars"]["mse"][1]
    end = _limit(m, a)
    over = np.flatnonzero(found > target)
    since = int(rounds[0]) if not len(over) else None if over[-1] == len(rounds) - 1 else int(rounds[over[-1] + 1])
    return Lasting(float(found[0]), float(max(found.max(), end)), since if end <= target else None)


def _later_rounds(m: Moments, a: Algorithm, T: int) -> NDArray[np.int64]:
    """The planned round and those after it that are looked at."""
    K, d = len(m.table), m.dim
    if not isinstance(a, Scaffnew) and noiseless.suits(m, a.taking_part(m.n_agents)):
        cost = max(K * d * d, 5000)
    else:
        cost = 1 if isinstance(a, FedLSA) else 4 * K * K * d**3
    most = T + max(4, int(tuning.MAX_FOLLOWING_WORK / cost))
    near = np.arange(T, 1 + min(2 * T + 32, T + tuning.FOLLOWED_ROUNDS, most))
    ratio, times = tuning.FOLLOWED_RATIO, max(tuning.FOLLOWED_UNTIL * T / near[-1], 1)
    far = near[-1] * ratio ** np.arange(1, 1 + math.log(times) / math.log(ratio))
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
    if n <= tuning.NOISELESS_WRITTEN_OUT:
        return contracts(np.stack([again(e) for e in np.eye(n)], axis=1))
    return krylov.radius(again, np.random.default_rng(0).standard_normal(n), restarts=1)[0] < 1


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

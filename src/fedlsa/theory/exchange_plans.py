"""Plans of methods that declare an exchange: step size, local steps and rounds, from curves on the joint law.

A curve gives the errors after all rounds at once, so the search is over step size and local steps alone, each run until
it reaches the target, or would need more rounds than the best so far. Squared means, which are errors' least part, are
quick, and so is the part of a limit that noise at its mean makes: what they rule out is not run. The search ends in the
best of its last grid, an eighth of an octave wide in step size and local steps: a few rounds fewer may be possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..problems import Problem
from . import tuning
from .exchange_rounds import ExchangeRound, each_agent
from .joint_laws import Moved, joint_limit, rounds_at, warn_of_cuts
from .problem_moments import Moments
from .rounds import Groups
from .search import Method, MethodErrors, Search, with_steps


class ExchangeErrors(MethodErrors):
    """Errors of a method that is an exchange, for any step size and round length."""

    def __init__(self, problem: Problem | Moments, groups: Groups, method: Method, start: Floats) -> None:
        super().__init__(groups, method, start)
        self.agents = each_agent(problem)
        self.round_of = lru_cache(maxsize=1)(self._round_of)

    @np.errstate(all="ignore")
    def _round_of(self, eta: float, H: int) -> ExchangeRound:
        return rounds_at(with_steps(self.method, eta, H), self.agents)(0)

    def squared_means(self, eta: float, H: int) -> Iterator[float]:
        """Those of theta - theta_star after 1, 2, ... rounds."""
        step = self.round_of(eta, H)
        n, d, v = step.size, step.d, np.append(step.start(self.start), 1.0)
        power = np.eye(n + 1)
        power[:n, :n], power[:n, n] = step.carry(np.eye(n)), step.move(np.zeros(n))
        rows = power[:d]  # theta after 1, 2, ... rounds, many at a time
        with np.errstate(all="ignore"):
            for _ in range(tuning.DOUBLED_MEANS):
                rows, power = np.concatenate([rows, rows @ power]), power @ power
            while True:
                yield from np.sum((rows @ v).reshape(-1, d) ** 2, axis=1).tolist()
                v = power @ v

    def each_round(self, eta: float, H: int) -> Iterator[float]:
        """The mean squared errors after 1, 2, ... rounds."""
        step = self.round_of(eta, H)
        v, C, d = step.start(self.start), np.zeros((step.size,) * 2), step.d
        while True:
            with np.errstate(all="ignore"):
                C, v = step.covariance(C, v), step.move(v)
            error = float(np.trace(C[:d, :d]) + v[:d] @ v[:d])
            yield error if math.isfinite(error) else math.inf

    @np.errstate(all="ignore")
    def limit(self, eta: float, H: int, most: float) -> float:
        """The mean squared error in the limit, a little too large; infinite where there is none, or it is above `most`.

        Passes of a limit rise to it, so that one above `most` is enough. A little noise of local steps is put beside
        what there is at the mean, which may be none: it shows where rounds do not settle.
        """
        try:
            moved = Moved(self.round_of(eta, H))
            mean, _ = moved.end(moved.step.start(self.start))
            if moved.powers is None:
                return math.inf
        except (np.linalg.LinAlgError, PrecisionError):  # so slow that rounding hides it: never soon enough
            return math.inf
        d, more = moved.step.d, moved.step.added(np.zeros_like(moved.mean), mean)
        error, last = float(mean[:d] @ mean[:d]), math.nan
        beside = tuning.PASS_ERROR * (float(np.trace(more)) or tuning.PASS_ERROR * most) / np.trace(moved.unit)
        more = more + beside * moved.unit
        for _ in range(tuning.PASSES):
            more = moved.sums(moved.project(more))
            gained, size = float(np.trace(more[:d, :d])), float(np.linalg.norm(more))
            error, left, last = error + gained, size / last, size
            if not error <= most:
                break
            if left < 1 and gained * left <= tuning.PASS_ERROR * (1 - left) * error:
                return error
            more = moved.step.added(more, None)
        return math.inf

    def _curve(self, eta: float, H: int, rounds: NDArray[np.int64], limit: bool) -> Floats:
        each = dict(zip(range(1, int(rounds[-1]) + 1), self.each_round(eta, H), strict=False))
        found, end = [each[t] for t in rounds.tolist()], 0.0
        warn_of_cuts(self.round_of(eta, H))
        if limit:
            try:
                with np.errstate(all="ignore"):
                    law, d = joint_limit(self.round_of(eta, H), self.start), len(self.start)
                end = float(np.trace(law.C[:d, :d]) + law.mean[:d] @ law.mean[:d])
            except (PrecisionError, np.linalg.LinAlgError):
                end = math.inf
        return np.append(found, end if math.isfinite(end) else math.inf)

    def _work(self, eta: float, H: int) -> float:
        return 4 * self.round_of(eta, H).size ** 3


class ExchangeSearch(Search):
    """The search of `planner.plan` for a method that is an exchange; the same questions, other answers."""

    exact: ExchangeErrors

    def __init__(self, problem: Problem | Moments, method: Method, start: Floats) -> None:
        super().__init__(problem, method, start)
        self.exact, self.limits = ExchangeErrors(problem, self.exact.groups, method, start), True
        a = with_steps(method, 0.1, 1)
        self.name, self.doublings, self._hopeless = a.name, 0, set[tuple[float, int]]()
        size = rounds_at(a, self.exact.agents)(0).size
        if size > tuning.PLANNED_NUMBERS:
            rule = f"agents times what each remembers must be at most {tuning.PLANNED_NUMBERS} numbers for a plan"
            raise ArgumentError(f"{rule} of {type(a).__name__}; got {size}")

    def _reaches(self, eta: float, H: int, target: float, most: int) -> int | None:
        """The round from which on three errors are at most the target, within `most`; None where there is none."""
        if (eta, H) in self._hopeless or self._within(self.exact.squared_means(eta, H), target, most, 1) is None:
            return None
        if not self.exact.limit(eta, H, target) <= target:  # nor will it be for targets that come later
            self._hopeless.add((eta, H))
            return None
        return self._within(self.exact.each_round(eta, H), target, most, 3)

    def _within(self, errors: Iterator[float], target: float, most: int, times: int) -> int | None:
        """The first of so many rounds, one after the other, with errors of at most the target."""
        begin, held, before = float(self.start @ self.start), 0, math.inf
        for t, error in zip(range(1, most + times), errors, strict=False):
            held = held + 1 if error <= target else 0
            if held == times or (held and t == most + times - 1):
                return t - held + 1 if t - held < most else None
            if error > tuning.GROWN * begin or (t % 64 == 0 and not error < before * (1 - 1e-3)):  # it goes nowhere
                return None
            before = error if t % 64 == 0 else before
        return None

    def observations(self, epsilon: float, cap: float | None) -> tuple[int, int]:
        self.doublings = 0 if cap is not None else tuning.DOUBLED_BUDGETS
        return super().observations(epsilon, cap)

    def for_accuracy(self, target: float, least: int, most: int) -> tuple[float, int, int]:
        """Step size, local steps and rounds with an error of at most `target` that lasts: the fewest rounds found.

        Without a cap there may be twice as many observations, and twice again, where the method needs them.
        """
        best: tuple[int, int, float] | None = None  # rounds, local steps, step size

        def tried(H: int, x: float) -> None:
            nonlocal best
            eta, room = self.edge * 2.0**-x, most // H if best is None else min(most // H, best[0])
            T = self._reaches(eta, H, target, room)
            best = best if T is None or (best is not None and best[:2] <= (T, H)) else (T, H, eta)

        for k in range(int(math.log2(most)), -1, -1):  # long rounds first: they are few
            steps = most if best is None else min(most, best[0] << k)
            low, high = (x * tuning.SCAN_STRIDE for x in self._range(target, steps))
            for x in np.arange(math.floor(low), 1 + math.ceil(high)):
                tried(2**k, float(x))
        if best is None and self.doublings:
            self.doublings -= 1
            return self.for_accuracy(target, least, 2 * most)
        if best is None:
            raise ArgumentError(f"max_samples must allow {self.name} to reach epsilon; got {most}, which do not")
        few = math.inf
        while 1 < best[0] < few:  # whether a round fewer, as long as there may be, is enough
            few, H = best[0], most // (best[0] - 1)
            for quarters in range(4, 4 + 4 * math.ceil(high)):
                tried(H, quarters / 4)
        for width in (1 / 2, 1 / 4, 1 / 8):
            _, H, eta = best
            for h in dict.fromkeys(max(1, round(H * 2.0**shift)) for shift in (0.0, -width, width)):
                for shift in (0.0, -width, width):
                    tried(h, math.log2(self.edge / eta) + shift)
        return best[2], best[1], best[0]

    def smallest_error(self, H: int, T: int) -> tuple[float, int]:
        """Step size and local steps with the smallest error after T rounds of at most H steps that lasts.

        On grids that become finer.
        """
        best: tuple[float, float, int] = math.inf, 1.0, 1  # error, x, local steps

        def tried(x: float, h: int) -> None:
            nonlocal best
            eta = self.edge * 2.0**-x
            ahead = zip(range(1, T + 3), self.exact.squared_means(eta, h), strict=False)
            if max(square for t, square in ahead if t >= T) < best[0]:
                limit = self.exact.limit(eta, h, min(best[0], tuning.GROWN * float(self.start @ self.start)))
                if limit < best[0]:
                    ahead = zip(range(1, T + 3), self.exact.each_round(eta, h), strict=False)
                    best = min(best, (max([limit, *(error for t, error in ahead if t >= T)]), x, h))

        for h in dict.fromkeys(max(1, round(H * 2.0**-k)) for k in range(3)):
            for octave in range(1, 13):
                tried(float(octave), h)
        for width in (1 / 2, 1 / 4, 1 / 8, 1 / 16):
            _, x, h = best
            tried(x - width, h)
            tried(x + width, h)
        return self.edge * 2.0 ** -best[1], best[2]

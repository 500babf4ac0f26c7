"""Plans of methods that declare an exchange: step size, local steps and rounds, from curves on the joint law.

A curve gives the errors after all rounds at once, so the search is over step size and local steps alone, each run until
it reaches the target, or would need more rounds than the best so far. It ends in the best of its last grid, half an
eighth of an octave wide in the step size and an eighth in the local steps: a few rounds fewer may be possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..problems import Problem
from . import tuning
from .exchange_rounds import ExchangeRound, each_agent
from .joint_laws import joint_limit, rounds_at
from .problem_moments import Moments
from .rounds import Groups
from .search import LaterErrors, Method, MethodErrors, Search, with_steps


class ExchangeErrors(MethodErrors):
    """Errors of a method that is an exchange, for any step size and round length."""

    def __init__(self, problem: Problem | Moments, groups: Groups, method: Method, start: Floats) -> None:
        super().__init__(groups, method, start)
        self.agents = each_agent(problem)

    def each_round(self, eta: float, H: int) -> Iterator[float]:
        """The mean squared errors after 1, 2, ... rounds."""
        step, v = self._begin(eta, H)
        C, d = np.zeros((len(v), len(v))), step.d
        while True:
            with np.errstate(all="ignore"):
                C, v = step.covariance(C, v), step.mean(v)
            error = float(np.trace(C[:d, :d]) + v[:d] @ v[:d])
            yield error if math.isfinite(error) else math.inf

    @np.errstate(all="ignore")
    def _begin(self, eta: float, H: int) -> tuple[ExchangeRound, Floats]:
        """A round, and the state that a run begins with."""
        step = rounds_at(with_steps(self.method, eta, H), self.agents)(0)
        return step, step.start(self.start)

    @np.errstate(all="ignore")
    def limit(self, eta: float, H: int) -> float:
        """The mean squared error in the limit, infinite where there is none."""
        try:
            end = joint_limit(self._begin(eta, H)[0], self.start)
        except (PrecisionError, np.linalg.LinAlgError):
            return math.inf
        d = end.step.d
        mean = end.mean[:d]
        return float(np.nan_to_num(np.trace(end.C[:d, :d]) + mean @ mean, nan=math.inf, posinf=math.inf))

    def follow(self, eta: float, H: int, T: int, target: float = math.inf) -> LaterErrors:
        """Errors of a plan from its end on: every round up to 2 T + 16, and the limit."""
        last = min(2 * T + 16, T + tuning.FOLLOWED_ROUNDS)
        found = [e for t, e in zip(range(1, last + 1), self.each_round(eta, H), strict=False) if t >= T]
        found.append(self.limit(eta, H))
        over = np.flatnonzero(np.array(found) > target)
        lasts = not len(over) or over[-1] < len(found) - 1
        return LaterErrors(found[0], max(found), T + (int(over[-1]) + 1 if len(over) else 0) if lasts else None)


class ExchangeSearch(Search):
    """The search of `planner.plan` for a method that is an exchange; the same questions, other answers."""

    exact: ExchangeErrors

    def __init__(self, problem: Problem | Moments, method: Method, start: Floats) -> None:
        super().__init__(problem, method, start)
        self.exact, self.limits = ExchangeErrors(problem, self.exact.groups, method, start), True
        a, N = with_steps(method, 0.1, 1), self.exact.m.n_agents
        self.factor *= float(a.round_costs(N, self.exact.m.dim)[0].mean())
        self.name, self.doublings = a.name, 0
        size = rounds_at(a, self.exact.agents)(0).size
        if size > tuning.PLANNED_NUMBERS:
            rule = f"agents times what each remembers must be at most {tuning.PLANNED_NUMBERS} numbers for a plan"
            raise ArgumentError(f"{rule} of {type(a).__name__}; got {size}")

    def _reaches(self, eta: float, H: int, target: float, most: int) -> int | None:
        """The round from which on three errors are at most the target, within `most`; None where there is none."""
        begin, held, before = float(self.start @ self.start), 0, math.inf
        for t, error in zip(range(1, most + 3), self.exact.each_round(eta, H), strict=False):
            held = held + 1 if error <= target else 0
            if held == 3 or (held and t == most + 2):
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
            if self.exact.limit(eta, H) <= target:
                T = self._reaches(eta, H, target, room)
                best = best if T is None or (best is not None and best[:2] <= (T, H)) else (T, H, eta)

        low, high = (x * tuning.SCAN_STRIDE for x in self._range(target, most))
        for k in range(int(math.log2(most)), -1, -1):  # long rounds first: they are few
            for x in np.arange(math.floor(low), 1 + math.ceil(high)):
                tried(2**k, float(x))
        if best is None and self.doublings:
            self.doublings -= 1
            return self.for_accuracy(target, least, 2 * most)
        if best is None:
            raise ArgumentError(f"max_samples must allow {self.name} to reach epsilon; got {most}, which do not")
        for width in (1 / 2, 1 / 4, 1 / 8):
            _, H, eta = best
            for h in dict.fromkeys(max(1, round(H * 2.0**shift)) for shift in (0.0, -width, width)):
                for shift in (0.0, -width, width):
                    tried(h, math.log2(self.edge / eta) + shift)
        return best[2], best[1], best[0]

    def smallest_error(self, H: int, T: int) -> tuple[float, int]:
        """Step size and local steps with the smallest error after T rounds of at most H steps that lasts."""

        def error(h: int, x: float) -> float:
            ahead = zip(range(1, T + 3), self.exact.each_round(self.edge * 2.0**-x, h), strict=False)
            return max(max(e for t, e in ahead if t >= T), self.exact.limit(self.edge * 2.0**-x, h))

        return _least(error, H, self.edge)


def _least(error: Callable[[int, float], float], H: int, edge: float) -> tuple[float, int]:
    """The step size and the length with the smallest error, on grids that become finer."""
    lengths = [max(1, round(H * 2.0**-k)) for k in range(3)]
    best = min((error(h, float(x)), h, float(x)) for h in dict.fromkeys(lengths) for x in range(1, 13))
    for width in (1 / 2, 1 / 4, 1 / 8, 1 / 16):
        best = min(best, *((error(best[1], best[2] + k), best[1], best[2] + k) for k in (-width, width)))
    return edge * 2.0 ** -best[2], best[1]

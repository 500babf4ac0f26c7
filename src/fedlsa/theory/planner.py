"""The planner: from a target accuracy to step size, local steps and rounds, by exact moments.

It minimises communications subject to exact MSE <= epsilon^2 and a cap on the observations of an agent; without a cap
the problem is degenerate, since ever longer rounds with ever smaller steps need ever fewer of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, results
from ..algorithms import METHODS, Algorithm, FedLSA
from ..checks import Floats
from ..errors import ArgumentError
from ..problems.base import Problem
from . import controlled, fedlsa
from .exact import controlled_round, exact
from .moments import Moments, moments
from .stationary import stability_limit
from .symmetric import svec

GENEROUS = 4  # times the fewest observations with which the method gets there: the default cap
FACTORS = (1.0, 0.5, 0.25, 0.125)  # of the largest useful step size: the first look
LONGEST = 2**31


@dataclass(frozen=True, eq=False)
class Plan:
    """A method that reaches the target, and what it costs; `algorithm` runs as it is for `rounds` rounds.

    samples : observations per agent (in expectation for Scaffnew); rmse : sqrt E||theta - theta_star||^2 at the end
    uploads : messages of `dim` numbers to the server; bytes : up and down, all agents, eight per number
    """

    algorithm: Algorithm
    rounds: int
    samples: float
    rmse: float
    uploads: int
    bytes: int

    def __str__(self) -> str:
        row = {
            "method": results.method_label(self.algorithm),
            "rounds": self.rounds,
            "samples per agent": float(self.samples),
            "predicted RMSE": self.rmse,
            "bytes": self.bytes,
        }
        return results.table([row])


def plan(
    problem: Problem | Moments,
    epsilon: float | None = None,
    *,
    method: str = "scafflsa",
    rounds: int | None = None,
    samples: float | None = None,
    max_samples: float | None = None,
    theta_0: ArrayLike | None = None,
) -> Plan:
    """The cheapest run that reaches a target; exactly one of epsilon, rounds and samples is given.

    epsilon : the fewest communications with RMSE <= epsilon and at most max_samples observations per agent (by default
    4 times the fewest with which the method gets there). rounds : the smallest RMSE after that many communications with
    at most max_samples observations, which must be given. samples : the smallest RMSE with that many observations.
    theta_0 : where the run starts, by default theta_star + 1.
    """
    m = problem if isinstance(problem, Moments) else moments(problem)
    name = checks.choice("method", method, METHODS)
    targets = {"epsilon": epsilon, "rounds": rounds, "samples": samples}
    if sum(t is not None for t in targets.values()) != 1:
        raise ArgumentError(f"exactly one of epsilon, rounds and samples must be given; got {checks.show(targets)}")
    start = np.ones(m.dim) if theta_0 is None else checks.array("theta_0", theta_0, (m.dim,)) - m.theta_star
    cap = None if max_samples is None else checks.real("max_samples", max_samples, at_least=1)
    search = _Search(m, name, start)
    if epsilon is not None:
        return search.for_accuracy(checks.real("epsilon", epsilon, above=0), cap)
    if samples is not None:
        return search.for_samples(int(checks.real("samples", samples, at_least=1)))
    if cap is None:
        raise ArgumentError("max_samples must be given with rounds, or rounds of any length would do; got None")
    return search.for_rounds(checks.integer("rounds", rounds, at_least=1), cap)


class _Search:
    """Looks for step sizes and round lengths; `errors` goes through the rounds of one choice."""

    def __init__(self, m: Moments, name: str, start: Floats) -> None:
        self.m, self.name, self.start = m, name, start
        self.edge = stability_limit(m, FedLSA(0.1, 1), tolerance=1e-3)
        if self.edge == 0 or not math.isfinite(self.edge):
            raise ArgumentError(f"problem must have a largest stable step size above 0; got {self.edge:g}")

    def algorithm(self, eta: float, H: int) -> Algorithm:
        """The method with rounds of H observations, in the mean for Scaffnew."""
        if self.name == "scaffnew":
            return METHODS[self.name](step_size=eta, probability=1 / H)  # type: ignore[call-arg]
        return METHODS[self.name](step_size=eta, local_steps=H)  # type: ignore[call-arg]

    def errors(self, eta: float, H: int) -> Iterator[float]:
        """E||theta_t - theta_star||^2 for t = 1, 2, ..."""
        x = -self.m.xi_star
        if self.name == "fedlsa" or H == 1:  # with one local step all methods are FedLSA
            step = fedlsa.round_map(self.m, eta, H, x)
            v = np.append(self.start, 1.0)
            state = svec(np.outer(v, v))
            diagonal = svec(np.diag([*np.ones(self.m.dim), 0.0])) > 0
            while True:
                state = step.second @ state
                yield float(state[diagonal].sum())
        rounds = controlled_round(self.m, self.algorithm(eta, H), eta)
        now = controlled.start(self.start, x[self.m.table])
        while True:
            now = controlled.advance(rounds, now)
            yield float(np.trace(now.U))

    def reach(self, eta: float, H: int, target: float, most: int) -> int | None:
        """The first round with an error of at most `target`, if it comes within `most`."""
        begin = float(self.start @ self.start)
        for t, error in zip(range(1, most + 1), self.errors(eta, H), strict=False):
            if error <= target:
                return t
            if not error < 1e6 * (begin + target):
                return None
        return None

    def fewest_samples(self, target: float) -> tuple[int, float]:
        """The fewest observations with which the target is reached, one local step at a time, and the step size."""
        best, eta = LONGEST, self.edge / 2
        while True:
            v, last = np.append(self.start, 1.0), None
            step = fedlsa.round_map(self.m, eta, 1, -self.m.xi_star)
            limit = fedlsa.limit(step)
            if limit[2] < 1 and np.trace(limit[1]) < target:
                last = _first_below(step, v, target, best)
                if last is not None and last < best:
                    best, at = last, eta
                elif best < LONGEST:
                    return best, at
            eta /= math.sqrt(2)
            if eta < 1e-9 * self.edge:
                raise ArgumentError(f"epsilon must be one that some step size reaches; got {math.sqrt(target):g}")

    def for_accuracy(self, epsilon: float, cap: float | None) -> Plan:
        target = epsilon**2
        if float(self.start @ self.start) <= target:
            begin = float(np.linalg.norm(self.start))
            raise ArgumentError(f"epsilon must be below the error at the start, {begin:g}; got {epsilon:g}")
        least, eta_1 = self.fewest_samples(target)
        most = GENEROUS * least if cap is None else int(cap)
        best: tuple[int, int, float] | None = None  # rounds, local steps, step size
        for H in _lengths(most):
            for factor in FACTORS:
                best = self._try(best, min(eta_1 * 2 * factor, self.edge), H, target, most)
        if best is None:
            raise ArgumentError(
                f"max_samples must allow {self.name} to reach epsilon, about {least} observations; got {most}"
            )
        T, H, eta = best
        for width in (1.4, 1.2, 1.1, 1.05):  # closer and closer around the best so far
            for h in {max(1, round(H / width)), H, round(H * width)}:
                for e in (eta / width, eta, eta * width):
                    best = self._try(best, e, h, target, most) or best
            T, H, eta = best
        shortest = [(self.shortest(e, H, target, T), e) for e in (eta * 1.3**k for k in range(-1, 5)) if e < self.edge]
        H, eta = min(shortest)
        return self.result(eta, H, T)

    def shortest(self, eta: float, H: int, target: float, T: int) -> int:
        """The shortest rounds, up to H, with which T of them reach the target; beyond H if not even those do."""
        if not self.reach(eta, H, target, T):
            return LONGEST
        low, high = 0, H
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.reach(eta, middle, target, T) else (middle, high)
        return high

    def _try(
        self, best: tuple[int, int, float] | None, eta: float, H: int, target: float, most: int
    ) -> tuple[int, int, float] | None:
        allowed = most // H if best is None else min(most // H, best[0] - 1)
        found = self.reach(eta, H, target, allowed) if allowed > 0 else None
        return best if found is None else (found, H, eta)

    def for_rounds(self, T: int, cap: float) -> Plan:
        if cap < T:
            raise ArgumentError(f"max_samples must be at least rounds, {T}; got {cap:g}")
        longest = int(cap) // T
        return self._smallest_error([longest, *(H for H in _lengths(longest) if longest < 8 * H)], T)

    def for_samples(self, S: int) -> Plan:
        return self._smallest_error([1], S)  # more local steps save communications, not observations

    def _smallest_error(self, lengths: list[int], T: int) -> Plan:
        """The step size and round length with the smallest error after T rounds, step sizes to within a twelfth."""

        def error(eta: float, H: int) -> float:
            return _exact_mse(self.m, self.algorithm(eta, H), self.start, T)

        coarse = [self.edge * 2.0**-k for k in range(1, 20)]
        _, eta, H = min((error(eta, H), eta, H) for H in dict.fromkeys(lengths) for eta in coarse)
        _, eta = min((error(e, H), e) for e in (eta * 2 ** (j / 8) for j in range(-7, 8)) if e < self.edge)
        return self.result(eta, H, T)

    def result(self, eta: float, H: int, T: int) -> Plan:
        a = self.algorithm(eta, H)
        n = self.m.n_agents * T
        mse = _exact_mse(self.m, a, self.start, T)
        return Plan(a, T, float(T * H), math.sqrt(mse), n, 2 * 8 * self.m.dim * n)


def _exact_mse(m: Moments, a: Algorithm, start: Floats, T: int) -> float:
    if getattr(a, "local_steps", 0) == 1 or getattr(a, "probability", 0) == 1:
        a = FedLSA(a.step_size, 1)  # all methods are the same then, and this one is quickest
    return float(exact(m, a, rounds=T, theta_0=m.theta_star + start, record=[T])["mse"][0])


def _first_below(step: fedlsa.Round, v: Floats, target: float, most: int) -> int | None:
    """The first round at which FedLSA's error is at most `target`, by doubling and halving, if within `most`."""

    def error(t: int) -> float:
        return float(fedlsa.curve(step, v, np.array([t]))[1][0])

    high = 1
    while error(high) > target:
        high *= 2
        if high > 2 * most:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= target else (middle, high)
    return high


def _lengths(most: int) -> list[int]:
    """Round lengths from half of `most` down to 1, each about two thirds of the one before."""
    out, H = [], max(1, most // 2)
    while H > 1:
        out.append(H)
        H = H * 2 // 3
    return [*out, 1]

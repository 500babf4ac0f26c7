"""The planner's search by exact moments: over step sizes, round lengths and the number of rounds.

The error as a function of the step size has several valleys, longer rounds are not always better, and more of them may
be worse, so none of that is taken for granted. What makes a search affordable is that an error has two parts. One, the
square of the mean, has the valleys, and is cheap at many step sizes at once. The rest, variances, takes exact second
moments, but is smooth in the step size. So for given rounds the first is scanned over all step sizes, the rest is
bounded from where it is known, and the exact error is computed where the sum of both is least, until it is enough or
hopeless. What is found is held to the exact curve beyond its end.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm, FedLSA
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..problems import Problem
from . import krylov, noiseless, stationarity, tuning
from .joint import Joint
from .linear import not_negative, traces
from .many_rounds import RoundMap, agents_curve, round_map
from .problem_moments import Moments, merged
from .rounds import Groups, GroupStages, ServerRound, groups_of
from .stationarity import stability_limit

Method = Algorithm | type[Algorithm]  # an instance keeps its other settings
Known = list[tuple[float, float, Floats]]  # x, by how much it may be off, and log(rest / prior) of each error


def with_steps(method: Method, step_size: float, H: int) -> Algorithm:
    """The method with rounds of H local steps, in the mean where their lengths are random."""
    if not isinstance(method, Algorithm):
        return method.with_steps(step_size, H)
    return replace(method, step_size=step_size, **{method.length: 1 / H if method.random_lengths else H})  # type: ignore[arg-type]


@dataclass(frozen=True)
class LaterErrors:
    """The error at the planned round, the largest from there on, and the first round from which a target holds."""

    error: float
    worst: float
    since: int | None


class MethodErrors:
    """Errors of one method from u_0 = theta_0 - theta_star, for any step size, round length and number of rounds.

    This is all that a search knows of exact moments. Errors are those after T, T + 1 and T + 2 rounds and in the limit
    (0 where it is neither asked for nor cheap), so that a crossing of start and drift is none.
    """

    def __init__(self, groups: Groups, method: Method, start: Floats) -> None:
        self.groups, self.m, self.x = groups, groups.moments, groups.x
        self.method, self.start, m = method, start, groups.moments
        self.errors = lru_cache(maxsize=None)(self._errors)
        self._round = lru_cache(maxsize=1)(self._any_round)
        self.average = np.tensordot(m.count * m.weight, m.A_bar[m.table], 1)

    @cached_property
    def edge(self) -> float:
        """The largest step size below which single steps of all agents together converge."""
        value = np.linalg.eigvals(self.average)
        edge = float((2 * value.real / np.abs(value) ** 2).min()) if value.real.min() > 0 else 0.0
        if not self.m.noiseless and edge:
            edge = stability_limit(self.m, FedLSA(0.1, 1), 1e-9)
        return float(f"{edge:.6g}")  # the same on every processor

    # --- single steps, with which all methods are FedLSA ---------------------------------------------------------

    def single(self, eta: float, t: int) -> float:
        """The error after t single steps of FedLSA."""
        if self.m.noiseless:
            local = self._together
            u = local.mean(local.times(local.powers(eta, t)[0], local.common(self.start)))
            return float(u @ u)
        (u,), covariance = self._single_round(eta).curve(self.start, np.array([t]))
        return float(u @ u + traces(covariance)[0])

    def single_limit(self, eta: float) -> float:
        """The same in the limit, infinite where there is none, or none that is known."""
        if self.m.noiseless:
            return 0.0 if eta < self.edge else math.inf
        try:
            mean, covariance, *_ = self._single_round(eta).limit
        except PrecisionError:  # of a system so badly conditioned that no number of rounds will do
            return math.inf
        return float(np.nan_to_num(np.trace(covariance) + mean @ mean, nan=math.inf, posinf=math.inf))

    def _single_round(self, eta: float) -> ServerRound:
        return cast(ServerRound, self._round(eta, 1, FedLSA))

    @cached_property
    def _together(self) -> noiseless.Modes:
        return noiseless.modes_of(self.average[None], np.ones(1))

    def error(self, eta: float, H: int, T: int, limit: bool = False) -> float:
        return float(self.errors(eta, H, T, limit).max())

    def _errors(self, eta: float, H: int, T: int, limit: bool = False) -> Floats:
        """(4,); infinite where they are not known."""
        try:
            return self._curve(eta, H, np.arange(T, T + 3), limit)
        except (PrecisionError, np.linalg.LinAlgError):
            return np.full(4, np.inf)

    @np.errstate(all="ignore")
    def _curve(self, eta: float, H: int, rounds: NDArray[np.int64], limit: bool) -> Floats:
        """Errors at the given rounds and in the limit, 0 where that is neither asked for nor cheap : (R + 1,)."""
        form, end = self._round(eta, H, self.method), 0.0
        if isinstance(form, ServerRound):
            mean, svec_covariance = form.curve(self.start, rounds)
            bias, covariance = (x[: form.d] for x in form.limit[:2])
            end = float(bias @ bias + np.trace(covariance))  # of square matrices, rows of which are left out
        else:
            if isinstance(form, Joint):
                end = float(np.trace(stationarity.limit(form.step).U)) if limit else 0.0
            elif limit:
                some = np.random.default_rng(0).standard_normal(self.x.size)
                end = math.inf if krylov.radius(form.of_agents, some, restarts=1)[0] >= 1 else 0.0
            (mean, svec_covariance, _), _ = agents_curve(lambda _: form, self.start, self.x, rounds)
        found = np.append(np.sum(mean**2, axis=1) + traces(svec_covariance), end)
        rounding = self.m.rounding(self.start, self.x, eta * H)
        return not_negative(np.where(np.isnan(found), np.inf, found), rounding, "mean squared errors")

    def _any_round(self, eta: float, H: int, method: Method) -> RoundMap:
        """Control variates of agents that are alike cancel in the average of single steps."""
        a = with_steps(method, eta, H)
        stages = GroupStages.of(a, self.groups, eta)
        if H == 1 and a.agent_factors(self.m.n_agents) is None:
            stages = replace(stages, steps=np.ones(len(self.x), np.int64), gain=np.zeros(len(self.x)))
        return round_map(self.groups, stages, self.start)

    def follow(self, eta: float, H: int, T: int, target: float = math.inf) -> LaterErrors:
        """Errors of a plan, and since when they stay within the target.

        An error may cross a target by luck, where what is left of the start and drift cancel, and exceed it a round
        later. So a plan is held to the exact curve beyond its end: every round up to 2 T + 16 (200 more at most), then
        rounds 5% apart up to 8 T, as far as that takes no longer than the search, and the limit.
        """
        most = T + max(4, int(tuning.MAX_FOLLOWING_WORK / self._work(eta, H)))
        near = np.arange(T, 1 + min(2 * T + 16, T + tuning.FOLLOWED_ROUNDS, most))
        ratio, times = tuning.FOLLOWED_RATIO, max(tuning.FOLLOWED_UNTIL * T / near[-1], 1)
        far = near[-1] * ratio ** np.arange(1, 1 + math.log(times) / math.log(ratio))
        rounds = np.unique(np.append(near, far[far <= most].astype(np.int64)))
        found = self._curve(eta, H, rounds, limit=True)
        over = np.flatnonzero(found > target)
        lasts = not len(over) or over[-1] < len(rounds) - 1
        since = int(rounds[over[-1] + 1 if len(over) else 0]) if lasts else None
        return LaterErrors(float(found[0]), float(found.max()), since)

    def _work(self, eta: float, H: int) -> float:
        """Multiplications of a round."""
        form, (K, d) = self._round(eta, H, self.method), self.x.shape
        return {ServerRound: 1, noiseless.NoiselessMap: max(K * d * d, 5000)}.get(type(form), 4 * K * K * d**3)

    # --- the part of it that is cheap at many step sizes at once --------------------------------------------------

    def cheap_part(self, etas: Floats, H: int, T: int) -> Floats:
        """Squared means at all step sizes : (E, 4); nothing where the server has a memory, or agents are not alike.

        With random lengths, where means say little, it is what is left of the start where all agents are their average.
        """
        a = with_steps(self.method, 0.1, 1)
        if a.agent_factors(self.m.n_agents) is not None or a.server() != (((1.0,),), (1.0,)):
            return np.zeros((len(etas), 4))
        with np.errstate(all="ignore"):
            found = (self._random_lengths if self.method.random_lengths and H > 1 else self._means)(etas, H, T)
        return np.where(np.isfinite(found), found, np.inf)

    def _random_lengths(self, etas: Floats, H: int, T: int) -> Floats:
        """In the eigenbasis of the average, E[(1 - eta l_i)^L (1 - eta l_j*)^L] of a geometric L, to the T."""
        p, (value, basis) = 1 / H, np.linalg.eig(self.average.astype(complex))
        if not np.linalg.cond(basis) < tuning.MAX_EIGENVECTOR_CONDITION:
            return np.zeros((len(etas), 4))
        u = np.linalg.solve(basis, self.start.astype(complex))
        step = 1 - etas[:, None] * value
        both = step[:, :, None] * step.conj()[:, None, :]
        both = np.where(np.abs((1 - p) * both) < 1, p * both / (1 - (1 - p) * both), np.inf)
        size = (basis.conj().T @ basis).T * u[:, None] * u.conj()
        later = [np.sum(both**t * size, axis=(1, 2)).real for t in (T, T + 1, T + 2)]
        return np.stack([*later, np.zeros(len(etas))], axis=1)

    def _means(self, etas: Floats, H: int, T: int) -> Floats:
        """Rounds of all step sizes at once, each with agents of its own."""
        local, (K, d), E = noiseless.local_powers(self.m), self.x.shape, len(etas)
        own = [1] * (local.value.ndim - 1)
        partner = None if local.partner is None else np.tile(local.partner, (E, 1))
        every = replace(local, value=np.tile(local.value, (E, *own)), partner=partner)
        power, kappa = every.powers(np.repeat(etas, K).reshape(-1, *own), H)  # type: ignore[arg-type]
        gain = np.zeros(E) if H == 1 else with_steps(self.method, self.edge, H).gain(etas, np.full(E, H))
        by_agent, share = np.repeat(gain, K)[:, None], np.tile(local.share, E)[:, None]

        def common(u: Floats) -> Floats:
            return (u @ local.to.T).reshape(E * K, d)

        def mean(hat: Floats) -> Floats:
            return (share * hat).reshape(E, K * d) @ local.back.T

        u, x = np.tile(self.start, (E, 1)), np.tile(local.in_bases(self.x), (E, 1))
        if not gain.any() and d <= tuning.SCANNED_DIM:
            M, one = np.zeros((E, d + 1, d + 1)), np.tile(local.identity(), (E, 1, 1))
            M[:, :d, :d] = local.back @ (share[..., None] * every.times(power, one)).reshape(E, K * d, d)
            M[:, :d, d], M[:, d, d] = mean(every.times(kappa, x)), 1
            P, v = np.linalg.matrix_power(M, T), np.append(self.start, 1.0)
            later = [P @ v, P @ M @ v, P @ M @ M @ v, np.linalg.matrix_power(P, 64) @ v]
            return np.stack([np.sum(w[:, :d] ** 2, axis=1) for w in later], axis=1)
        found = np.zeros((E, 4))
        for t in range(1, T + 3):
            hat = every.times(power, common(u)) + every.times(kappa, x)
            u = mean(hat)
            x = x + by_agent * (common(u) - hat) if gain.any() else x
            if t >= T:
                found[:, t - T] = np.sum(u**2, axis=1)
        return found


class Search:
    """Step sizes, round lengths and rounds of one method from u_0 = theta_0 - theta_star.

    Step sizes are edge 2^-x. Of many different agents it is those of a similar problem with few.

    exact : errors of the problem itself; scout : those of the problem that is searched
    factor : observations of an agent in each local step; not 1 where agents have lengths of their own, or drop out
    limits : whether errors of methods with control variates are those in the limit too
    """

    def __init__(self, problem: Problem | Moments, method: Method, start: Floats) -> None:
        self.start, self.method, self.limits = start, method, False
        a = with_steps(method, 0.1, 1)
        groups = groups_of(problem, a)
        m, factors = groups.moments, a.agent_factors(groups.moments.n_agents)
        self.factor = float(np.mean(a.round_costs(m.n_agents, m.dim)[0] * (1.0 if factors is None else factors[1])))
        self.exact = self.scout = MethodErrors(groups, method, start)
        if factors is None and len(m.table) > tuning.SEARCHED_GROUPS and not m.noiseless:
            self.scout = MethodErrors(groups_of(merged(m, tuning.SEARCHED_GROUPS), a), method, start)
        self.name, self.edge = method.name, self.scout.edge
        if self.edge == 0 or not math.isfinite(self.edge):
            raise ArgumentError(f"problem must have a largest stable step size above 0; got {self.edge:g}")
        self.too_large, self.steepest = tuning.ERROR_TOO_LARGE, 0.0  # what a quick search, and its check, change
        self._known = list[tuple[Floats, Known]]()  # log2 of H and T of searches over step sizes, and what they know

    def best_step(self, H: int, T: int, target: float = 0.0) -> tuple[float, float]:
        """The smallest error after T rounds of H steps over step sizes, and its step size.

        With a target, the first that is found to reach it; where none can, an error above it. The exact error is
        computed where it may still be least, given that the rest of it does not change too fast from where it is known.
        """
        here, doubted = np.log2([H, T]), Known()
        for there, some in self._known:  # the rest is as large at the same eta, or at the same eta H: both are allowed
            longer, more = here - there
            doubt = tuning.DOUBT + tuning.DOUBT_OF_ROUNDS * abs(more)
            believed = np.array([1, 1, 1, math.inf if self.limits else 1]) * doubt  # limits end where stability does
            doubted += [(k + longer / 2, abs(longer) / 2, ratio - believed) for k, _, ratio in some]
        x, part = self._scan(H, T, target, doubted)
        known, best = Known(), (math.inf, math.nan)
        for _ in range(tuning.EXACT_ERRORS):
            sums = self._least_sums(x, part, known, doubted)
            i = int(np.argmin(sums))
            if sums[i] > (target or 0.999 * best[0]) or any(k == x[i] for k, *_ in known):
                best = min(best, (max(float(sums[i]), target * (1 + 1e-12)), math.nan)) if target else best
                break
            eta = self.edge * 2.0 ** -float(x[i])
            errors = self.scout.errors(eta, H, T, self.limits)
            best = min(best, (float(errors.max()), eta))
            if best[0] <= target:
                break
            begin = float(self.start @ self.start)
            most = self.too_large if errors.max() < begin else tuning.ERROR_TOO_LARGE
            most *= target or min(best[0], begin)
            prior = float(self._prior(x[i : i + 1])[0])
            rest = np.maximum((np.minimum(errors, most) - part[i]) / prior, 1e-9)
            known.append((float(x[i]), 0.0, np.log(rest)))
        if known and not (self.scout.m.noiseless and self.method.random_lengths):  # where lengths make all variance
            self._known.append((here, known))
        return best

    def _least_sums(self, x: Floats, part: Floats, known: Known, doubted: Known) -> Floats:
        """What errors are at least, the largest of each step size.

        The rest, relative to its prior, has a bounded slope in x, and bounded curvature between two that are known.
        """
        prior, ratio = self._prior(x)[:, None], np.full((len(x), 4), math.log(tuning.LEAST_SHARE))
        usual = tuning.STEEPEST_LENGTHS if self.method.random_lengths else tuning.STEEPEST_REST
        steep = max(usual if part.any() else tuning.STEEPEST_ERROR, self.steepest) * math.log(2)
        if known or doubted:
            ratio = np.max([r - steep * (off + np.abs(x - k))[:, None] for k, off, r in [*known, *doubted]], axis=0)
        if len(known) > 1 and part.any():
            at, _, value = (np.array(each) for each in zip(*sorted(known, key=lambda item: item[0]), strict=True))
            i = np.clip(np.searchsorted(at, x), 1, len(at) - 1)
            left, right = (x - at[i - 1])[:, None], (at[i] - x)[:, None]
            chord = (right * value[i - 1] + left * value[i]) / (left + right) - tuning.MOST_CURVED / 2 * left * right
            ratio = np.where((left >= 0) & (right >= 0), np.maximum(ratio, chord), ratio)
        return np.asarray(np.max(np.minimum(part + prior * np.exp(ratio), 1e300), axis=1), np.float64)

    def _scan(self, H: int, T: int, target: float, doubted: Known) -> tuple[Floats, Floats]:
        """x and the cheap part of the error, on a grid that is finer in its valleys."""
        low, high = self._range(target, H * T)
        x = np.arange(low, high + 1, dtype=np.float64) * tuning.SCAN_STRIDE
        part, width = self.scout.cheap_part(self.edge * 2.0**-x, H, T), tuning.SCAN_STRIDE
        for zoom in range(tuning.SCAN_ZOOMS if part.any() else 0):
            sums = self._least_sums(x, part, [], doubted)
            walls = np.pad(sums, 1, constant_values=np.inf)
            around: Floats = np.stack([walls[:-2], walls[2:]])
            narrow = np.max(around, axis=0, initial=0, where=around < np.inf) > 3 * sums  # as where means change signs
            near = (target / 2 < sums) & (narrow | ((sums < (2 * target or np.inf)) & (zoom == 0)))
            valleys = np.flatnonzero((sums <= around.min(0)) & near)
            if not len(valleys):
                break
            valleys = valleys[np.argsort(sums[valleys], kind="stable")[: tuning.SCANNED_VALLEYS]]
            more = np.setdiff1d(x[valleys][:, None] + width * np.arange(-7, 8) / 8, x)
            more = more[more > 0]
            order = np.argsort(np.append(x, more))
            part = np.concatenate([part, self.scout.cheap_part(self.edge * 2.0**-more, H, T)])[order]
            x, width = np.sort(np.append(x, more)), width / 8
        return x, part

    def _range(self, target: float, steps: int) -> tuple[int, int]:
        """The step sizes worth a look, x over the stride of a scan: from the largest to the smallest."""
        fewest = math.log(float(self.start @ self.start) / target) / 4 if target else 0.05
        size = float(np.linalg.norm(self.scout.average, 2))
        high = math.ceil(math.log2(max(self.edge * size * steps / fewest, 4)) / tuning.SCAN_STRIDE)
        too_large = [x for x, limit in self._singles if target and limit > 4 * target]
        low = max(1, round(max(too_large, default=0) / tuning.SCAN_STRIDE))
        return low, max(high, low + 8)

    @cached_property
    def _singles(self) -> list[tuple[float, float]]:
        """x and the limit of single steps, down to where it is proportional to the step size."""
        found = list[tuple[float, float]]()
        for x in (1 / 8, 1 / 2, *range(1, tuning.MAX_HALVINGS)):  # it rises steeply near the edge
            found.append((float(x), self.scout.single_limit(self.edge * 2.0**-x)))
            if not found[-1][1] > 0 or (x > 1 and abs(found[-2][1] / found[-1][1] - 2) < 0.01):
                break
        return found

    def _prior(self, x: Floats) -> Floats:
        """What the rest of an error is taken for until it is known: the limit of single steps."""
        known = [(k, limit) for k, limit in self._singles if 0 < limit < math.inf]
        if not known:
            least = 1e-12 if self.method.random_lengths else 1e-32  # without noise there is none but rounding
            return least * float(self.start @ self.start) * 2.0**-x
        at, limit = np.array(known).T
        return np.asarray(np.exp(np.interp(x, at, np.log(limit * 2.0**at))) * 2.0**-x, np.float64)

    def fewest_samples(self, target: float) -> tuple[int, float]:
        """The fewest observations with which the target is reached, one local step at a time, and the step size."""
        best, at = tuning.MAX_SAMPLES, math.nan
        for halves in range(2, 2 * tuning.MAX_HALVINGS):
            eta = self.edge * 2.0 ** (-halves / 2)
            last = self._first_below(eta, target, best)
            if last is not None and last < best:
                best, at = last, eta
            elif best < tuning.MAX_SAMPLES:
                return best, at
        rule = f"the averaged system must be conditioned well enough to reach an error of {math.sqrt(target):g} within"
        rule = f"{rule} {tuning.MAX_SAMPLES:.1e} observations by some step size"
        raise ArgumentError(f"{rule}; got a condition number of {np.linalg.cond(self.scout.average):.1e}")

    def _first_below(self, eta: float, target: float, most: int) -> int | None:
        """The first single step with an error of at most `target`, by doubling and halving, within about `most`."""
        with np.errstate(all="ignore"):
            high, guess = 1, float(self._prior(np.log2([self.edge / eta]))[0])
            if guess > 2 * target or not self.scout.single_limit(eta) < target:
                return None
            while self.scout.single(eta, high) > target:
                high *= 2
                if high > 2 * most:
                    return None
            between = range(high // 2 + 1, high)
            return between.start + bisect_left(between, True, key=lambda t: self.scout.single(eta, t) <= target)

    def observations(self, epsilon: float, cap: float | None) -> tuple[int, int]:
        """The fewest observations that reach epsilon with single steps, and the most that a plan may use."""
        if float(self.start @ self.start) <= epsilon**2:
            begin = float(np.linalg.norm(self.start))
            raise ArgumentError(f"epsilon must be below the error at the start, {begin:g}; got {epsilon:g}")
        least, _ = self.fewest_samples(epsilon**2)
        most = tuning.DEFAULT_BUDGET * least if cap is None else int(cap / self.factor)
        if most < least:
            rule = f"max_samples must allow {self.name} to reach epsilon, about {least} observations"
            raise ArgumentError(f"{rule}; got {most}")
        return least, most

    def for_accuracy(self, target: float, least: int, most: int) -> tuple[float, int, int]:
        """Step size, local steps and rounds with an error of at most `target` that lasts: fewest rounds, then steps.

        least, most : observations with which single steps get there, and that there may be
        """
        known = dict[int, tuple[float, int]]()  # step size and local steps for each T that is enough

        @cache
        def enough(T: int) -> bool:
            lengths = {*self._lengths(T, least, most), *(H for _, H in known.values() if most >= H * T)}
            for H in sorted(lengths, reverse=True):
                error, eta = self.best_step(H, T, target)
                if error <= target:
                    known[T] = eta, H
                    return True
            return False

        quick = self.method.random_lengths and most > tuning.QUICK_FROM
        self.too_large = tuning.SHRUNK_TOO_LARGE if quick else tuning.ERROR_TOO_LARGE
        few = min(tuning.TYPICAL_ROUNDS, most)
        T = next(filter(enough, range(1, few + 1)), 0) or self._many_rounds(enough, few, most)
        if quick:  # fewer rounds must not be enough, however fast errors may change with the step size
            self.steepest = tuning.STEEPEST_ERROR
            self._known.clear()
            enough.cache_clear()
            while T > 1 and enough(T - 1):
                T -= 1
            self.too_large, self.steepest = tuning.ERROR_TOO_LARGE, 0.0
            self._known.clear()
        eta, H = self._shortest(T, *known[T], target, least)
        if few < T:  # of which not each number was tried
            eta = self._polished(eta, H, T)
            while self.scout.error(eta, H, T - 1, self.limits) <= target:
                T -= 1
        return eta, H, T

    def _many_rounds(self, enough: Callable[[int], bool], low: int, most: int) -> int:
        """The fewest rounds that are enough, and more than `low`: by doubling and halving."""
        high, stride = low, 1
        while low == high or not enough(high):
            if high == most:
                raise ArgumentError(f"max_samples must allow {self.name} to reach epsilon; got {most}, which do not")
            low, high, stride = high, min(most, high + stride), 2 * stride
        T = low + 1 + bisect_left(range(low + 1, high), True, key=enough)
        return next(filter(enough, range(max(low + 1, T - 2), T)), T)  # the error may rise again

    def _lengths(self, T: int, least: int, most: int) -> list[int]:
        """Local steps to try in T rounds: the most that there may be, and fewer, in smaller strides when they are few.

        Short rounds differ from each other in what they do to single modes; long ones in how much noise they average.
        """
        fewest, found = max(1, least // (tuning.FEWER_SAMPLES * T)), [most // T]
        while (H := found[-1]) > fewest:
            ratio = tuning.LONG_RATIO if H > tuning.SHORT_LENGTHS else tuning.SHORT_RATIO
            found.append(max(fewest, min(H - 1, _rounded(H / ratio))))
        return found

    def _shortest(self, T: int, eta: float, H: int, target: float, least: int) -> tuple[float, int]:
        """The shortest rounds with which T of them reach the target, to about a hundredth, and the step size."""
        lengths = self._lengths(T, least, H * T)
        low, above, reached = lengths[-1] - 1, math.inf, target
        for short in (h for h in lengths[:0:-1] if h <= tuning.SHORT_LENGTHS):  # where more need not be better
            error, best = self.best_step(short, T, target)
            if error <= target:
                eta, H, reached = best, short, error
                break
            low, above = short, error
        while H - low > max(1, H // 64):
            middle = _rounded(math.sqrt(max(low, 1) * H))
            if target < above < math.inf and reached < target:  # where a line in logarithms meets the target
                share = math.log(above / target) / math.log(above / reached)
                middle = _rounded(low * (H / low) ** min(max(share, 1 / 8), 7 / 8))
            middle = middle if low < middle < H else (low + H) // 2
            error, best = self.best_step(middle, T, target)
            if error <= target:
                eta, H, reached = best, middle, error
            else:
                low, above = middle, error
        return eta, H

    def smallest_error(self, H: int, T: int) -> tuple[float, int]:
        """Step size and local steps with the smallest error after T rounds of at most H steps that lasts."""
        each = ((*self.best_step(h, T), h) for h in self._lengths(T, H * T, H * T))
        _, eta, H = min(found for found in each if not math.isnan(found[1]))
        return self._polished(eta, H, T), H

    def _polished(self, eta: float, H: int, T: int) -> float:
        """The step size nearby with the smallest error."""

        def error(x: float) -> float:
            return self.scout.error(self.edge * 2.0**-x, H, T, self.limits)

        x = math.log2(self.edge / eta)
        for width in (1 / 32, 1 / 128, 1 / 1024, 1 / 8192):
            while (best := min((x, x - width, x + width), key=error)) != x:
                x = best
        return self.edge * 2.0**-x


def _rounded(H: float) -> int:
    """A number of steps with seven binary digits, of which powers are quick to make."""
    shift = max(0, int(H).bit_length() - 7)
    return int(H) >> shift << shift

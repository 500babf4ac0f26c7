"""The planner's search by exact moments: over step sizes, round lengths and the number of rounds.

The error as a function of the step size has several valleys, longer rounds are not always better, and more of them may
be worse, so none of that is taken for granted. What makes a search affordable is that an error has two parts. One, the
square of the mean, has the valleys, and is cheap at many step sizes at once. The rest, variances, takes exact second
moments, but is smooth in the step size. So for given rounds the first is scanned over all step sizes, the rest is
interpolated from a few, and the exact error is computed where the sum of both is least, until it is enough or hopeless.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ..algorithms import SCAFFLSA, Algorithm, FedLSA
from ..algorithms.stages import Geometric
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..problems import Problem
from . import agent_limits, krylov, noiseless, tuning
from .exact_curves import exact_record
from .linear import not_negative
from .many_rounds import one_by_one
from .problem_moments import Moments, merged
from .rounds import AgentRound, Groups, GroupStages, ServerRound, agent_round, groups_of, server_round
from .stationary_limits import stability_limit, stationary

Method = Algorithm | type[Algorithm]  # an instance keeps its other settings
Known = list[tuple[float, Floats]]  # numbers at some x


def with_steps(method: Method, step_size: float, H: int) -> Algorithm:
    """The method with rounds of H local steps, in the mean where their lengths are random."""
    if not isinstance(method, Algorithm):
        return method.with_steps(step_size, H)
    return replace(method, step_size=step_size, **{method.length: 1 / H if method.random_lengths else H})  # type: ignore[arg-type]


class MethodErrors:
    """Errors of one method from u_0 = theta_0 - theta_star, for any step size, round length and number of rounds.

    This is all that a search knows of exact moments. Errors are those after T, T + 1 and T + 2 rounds and in the limit
    (0 where it is neither asked for nor cheap), so that a crossing of start and drift is none.

    edge : the largest step size below which single steps of all agents together converge
    """

    def __init__(self, groups: Groups, method: Method, start: Floats) -> None:
        self.groups, self.m, self.x = groups, groups.moments, groups.x
        self.method, self.start, m = method, start, groups.moments
        self.errors = lru_cache(maxsize=None)(self._errors)
        self._round = lru_cache(maxsize=1)(self._any_round)
        self.average = np.tensordot(m.count * m.weight, m.A_bar[m.table], 1)
        value = np.linalg.eigvals(self.average)
        self.edge = float((2 * value.real / np.abs(value) ** 2).min()) if value.real.min() > 0 else 0.0
        if not m.noiseless and self.edge:
            self.edge = float(f"{stability_limit(m, FedLSA(0.1, 1), 1e-9):.6g}")  # the same on every processor

    # --- single steps, with which all methods are FedLSA ---------------------------------------------------------

    def single(self, eta: float, t: int) -> float:
        """The error after t single steps of FedLSA."""
        if self.m.noiseless:
            local = self._together
            u = local.mean(local.times(local.powers(eta, t)[0], local.seen(self.start)))
            return float(u @ u)
        (u,), (variance,) = self._single_round(eta).curve(self.start, np.array([t]))
        return float(u @ u + variance)

    def single_limit(self, eta: float) -> float:
        """The same in the limit, infinite where there is none, or none that is known."""
        if self.m.noiseless:
            return 0.0 if eta < self.edge else math.inf
        try:
            mean, covariance, _ = self._single_round(eta).limit
        except PrecisionError:  # of a system so badly conditioned that no number of rounds will do
            return math.inf
        error = float(np.trace(covariance) + mean @ mean)
        return error if math.isfinite(error) else math.inf

    def _single_round(self, eta: float) -> ServerRound:
        step = self._round(eta, 1, FedLSA)
        assert isinstance(step, ServerRound)
        return step

    @cached_property
    def _together(self) -> noiseless.Modes:
        return noiseless.modes_of(self.average[None], np.ones(1))

    # --- the exact error -----------------------------------------------------------------------------------------

    def error(self, eta: float, H: int, T: int, limit: bool = False) -> float:
        """The largest of the errors."""
        return float(self.errors(eta, H, T, limit).max())

    def _errors(self, eta: float, H: int, T: int, limit: bool = False) -> Floats:
        """(4,); infinite where they are not known."""
        at, end = np.arange(T, T + 3), 0.0
        with np.errstate(all="ignore"):
            try:
                step = self._round(eta, H, self.method)
                if isinstance(step, ServerRound):
                    mean, variance = step.curve(self.start, at)
                    bias, covariance, _ = step.limit
                    end = float(bias @ bias + np.trace(covariance))
                else:
                    if isinstance(step, AgentRound):
                        form = agent_limits.moment_map(step, self.start, self.x)
                        values = one_by_one(lambda _: form, self.start, self.x, at)
                        end = float(np.trace(agent_limits.limit(step).U)) if limit else 0.0
                    else:
                        quiet = step
                        values = one_by_one(lambda _: quiet, self.start, self.x, at)
                    mean, variance = values[:, :-2], values[:, -2]
                found = np.append(np.sum(mean**2, axis=1) + variance, end)
                rounding = self.m.rounding(self.start, self.x, eta * H)
                return not_negative(np.where(np.isnan(found), np.inf, found), rounding, "mean squared errors")
            except (PrecisionError, np.linalg.LinAlgError):
                return np.full(4, np.inf)

    def _any_round(self, eta: float, H: int, method: Method) -> ServerRound | AgentRound | noiseless.NoiselessMap:
        """Control variates of agents that are alike cancel in the average of single steps."""
        stages = stages_of(self.groups, with_steps(method, eta, H))
        if H == 1 and alike(stages):
            stages = replace(stages, steps=np.ones(len(self.x), np.int64), gain=np.zeros(len(self.x)))
        if not stages.controlled:
            return server_round(self.m, stages, self.x)
        if stages.quiet(self.m):
            return noiseless.NoiselessMap(noiseless.local_powers(self.m), eta, H)
        return agent_round(self.m, stages)

    # --- the part of it that is cheap at many step sizes at once --------------------------------------------------

    def cheap_part(self, etas: Floats, H: int, T: int) -> Floats:
        """Squared means at all step sizes : (E, 4); nothing where the server has a memory, or agents are not alike.

        With random lengths, where means say little, it is what is left of the start where all agents are their average.
        """
        stages = stages_of(self.groups, with_steps(self.method, self.edge, H))
        if not (alike(stages) and stages.server.shape == (1, 1) and stages.change[0] == 1):
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

        def seen(u: Floats) -> Floats:
            return (u @ local.to.T).reshape(E * K, d)

        def advance(u: Floats, x: Floats) -> tuple[Floats, Floats]:
            hat = every.times(power, seen(u)) + every.times(kappa, x)
            new = (share * hat).reshape(E, K * d) @ local.back.T
            return new, x + by_agent * (seen(new) - hat) if gain.any() else x

        u, x = np.tile(self.start, (E, 1)), np.tile(local.own(self.x), (E, 1))
        if not gain.any() and d <= tuning.SCANNED_DIM:
            M = np.zeros((E, d + 1, d + 1))
            for j, e in enumerate(np.eye(d)):
                M[:, :d, j] = advance(np.tile(e, (E, 1)), np.zeros_like(x))[0]
            M[:, :d, d], M[:, d, d] = advance(np.zeros_like(u), x)[0], 1
            P, v = np.linalg.matrix_power(M, T), np.append(self.start, 1.0)
            later = [P @ v, P @ M @ v, P @ M @ M @ v, np.linalg.matrix_power(P, 64) @ v]
            return np.stack([np.sum(w[:, :d] ** 2, axis=1) for w in later], axis=1)
        found = np.zeros((E, 4))
        for t in range(1, T + 3):
            u, x = advance(u, x)
            if t >= T:
                found[:, t - T] = np.sum(u**2, axis=1)
        return found


def stages_of(groups: Groups, a: Algorithm) -> GroupStages:
    """What a round of a method at a constant step size is made of."""
    m = groups.moments
    return GroupStages.of(a.stages(float(a.eta(np.zeros(1, np.int64))[0]), m.n_agents), m, groups.agent)


def alike(stages: GroupStages) -> bool:
    """Whether all agents have the same step size, gain and number of steps."""
    same = isinstance(stages.steps, Geometric) or np.ptp(stages.steps) == 0
    return bool(same and np.ptp(stages.eta) == 0 and np.ptp(stages.gain) == 0)


@dataclass(frozen=True)
class Lasting:
    """The error at the planned round, the largest from there on, and the first round from which a target holds."""

    error: float
    worst: float
    since: int | None
    samples: float  # expected, per agent, up to the planned round


def follow(problem: Problem | Moments, a: Algorithm, T: int, start: Floats, target: float = math.inf) -> Lasting:
    """Mean squared errors of a plan from u_0 = start : (d,), and since when they stay within the target.

    An error may cross a target by luck, where what is left of the start and the drift of the method cancel, and exceed
    it a round later. So a plan is held to the exact curve beyond its end.

    Every round up to 2 T + 32 (200 more at most) is looked at, then rounds 5% apart up to 32 T, as far as that takes
    seconds, and the limit.
    """
    if type(a) is SCAFFLSA and a.local_steps == 1:  # control variates cancel in the average of single steps
        a = FedLSA(a.step_size, 1)
    groups = groups_of(problem, a)
    m, (K, d), stages = groups.moments, groups.x.shape, stages_of(groups, a)
    quiet = stages.quiet(m)
    rounds = _later_rounds(T, 1 if not stages.controlled else max(K * d * d, 5000) if quiet else 4 * K * K * d**3)
    record = exact_record(problem, a, int(rounds[-1]), m.theta_star + start, record=rounds.tolist())["data_vars"]
    found = record["mse"][1]
    if (
        stages.controlled and quiet
    ):  # in any dimension: it has no bias, and settles where the largest Ritz value says so
        step = noiseless.NoiselessMap(noiseless.local_powers(m), float(stages.eta[0]), round(a.mean_steps))
        some = np.random.default_rng(0).standard_normal(K * d)
        grows = krylov.radius(step.of_agents, some, restarts=1)[0] >= 1
        end = math.inf if grows else 0.0
    else:
        end = stationary(problem, a).mse
    over = np.flatnonzero(found > target)
    since = int(rounds[0]) if not len(over) else None if over[-1] == len(rounds) - 1 else int(rounds[over[-1] + 1])
    worst, samples = float(max(found.max(), end)), float(record["samples"][1][0])
    return Lasting(float(found[0]), worst, since if end <= target else None, samples)


def _later_rounds(T: int, cost: float) -> NDArray[np.int64]:
    """The planned round and those after it that are looked at; cost : multiplications in a round."""
    most = T + max(4, int(tuning.MAX_FOLLOWING_WORK / cost))
    near = np.arange(T, 1 + min(2 * T + 32, T + tuning.FOLLOWED_ROUNDS, most))
    ratio, times = tuning.FOLLOWED_RATIO, max(tuning.FOLLOWED_UNTIL * T / near[-1], 1)
    far = near[-1] * ratio ** np.arange(1, 1 + math.log(times) / math.log(ratio))
    return np.unique(np.append(near, far[far <= most].astype(np.int64)))


class Search:
    """Step sizes, round lengths and rounds of one method from u_0 = theta_0 - theta_star.

    Step sizes are edge 2^-x. Of many different agents it is those of a similar problem with few.

    factor : observations of an agent in each local step, more or less than 1 where agents have lengths of their own
    limits : whether errors of methods with control variates are those in the limit too
    """

    def __init__(self, problem: Problem | Moments, method: Method, start: Floats) -> None:
        self.start, self.method, self.limits = start, method, False
        a = with_steps(method, 0.1, 1)
        groups = groups_of(problem, a)
        m, factors = groups.moments, a.agent_factors(groups.moments.n_agents)
        self.factor = 1.0 if factors is None else float(np.mean(factors[1]))
        self.merged = factors is None and len(m.table) > tuning.SEARCHED_GROUPS and not m.noiseless
        if self.merged:
            groups = groups_of(merged(m, tuning.SEARCHED_GROUPS), a)
        self.errors = MethodErrors(groups, method, start)
        self.name, self.edge = method.name, self.errors.edge
        if self.edge == 0 or not math.isfinite(self.edge):
            raise ArgumentError(f"problem must have a largest stable step size above 0; got {self.edge:g}")
        self._known: Known = []  # of the last search over step sizes

    def best_step(self, H: int, T: int, target: float = 0.0) -> tuple[float, float]:
        """The smallest error after T rounds of H steps over step sizes, and its step size.

        With a target, the first that is found to reach it; where none can, an error above it. The exact error is
        computed where it may still be least, given that the rest of it does not change too fast from where it is known.
        """
        doubted = [(k, ratio + math.log(tuning.DOUBTED_SHARE)) for k, ratio in self._known]
        x, part = self._scan(H, T, target, doubted)
        known, best = Known(), (math.inf, math.nan)
        for _ in range(tuning.EXACT_ERRORS):
            sums = self._least_sums(x, part, [*known, *doubted])
            i = int(np.argmin(sums))
            if sums[i] > (target or 0.999 * best[0]) or any(k == x[i] for k, _ in known):
                best = min(best, (max(float(sums[i]), target * (1 + 1e-12)), math.nan))
                break
            eta = self.edge * 2.0 ** -float(x[i])
            errors = self.errors.errors(eta, H, T, self.limits)
            best = min(best, (float(errors.max()), eta))
            if best[0] <= target:
                break
            most = tuning.ERROR_TOO_LARGE * (target or min(best[0], float(self.start @ self.start)))
            prior = float(self._prior(x[i : i + 1])[0])
            known.append((float(x[i]), np.log(np.maximum((np.minimum(errors, most) - part[i]) / prior, 1e-9))))
        if not (self.errors.m.noiseless and self.method.random_lengths):  # where all variance is that of lengths
            self._known = known or self._known
        return best

    def _least_sums(self, x: Floats, part: Floats, known: Known) -> Floats:
        """What errors are at least, the largest of each step size; known : x and log(rest / prior)."""
        prior, ratio = self._prior(x)[:, None], np.full((len(x), 4), math.log(tuning.LEAST_SHARE))
        if known:
            usual = tuning.STEEPEST_LENGTHS if self.method.random_lengths else tuning.STEEPEST_REST
            steep = (usual if part.any() else tuning.STEEPEST_ERROR) * math.log(2)
            ratio = np.max([ratio - steep * np.abs(x - k)[:, None] for k, ratio in known], axis=0)
        return np.asarray(np.max(np.minimum(part + prior * np.exp(ratio), 1e300), axis=1), np.float64)

    def _scan(self, H: int, T: int, target: float, known: Known) -> tuple[Floats, Floats]:
        """x and the cheap part of the error, on a grid that is finer in its valleys."""
        low, high = self._range(target, H * T)
        x = np.arange(low, high + 1, dtype=np.float64) * tuning.SCAN_STRIDE
        part, width = self.errors.cheap_part(self.edge * 2.0**-x, H, T), tuning.SCAN_STRIDE
        for zoom in range(tuning.SCAN_ZOOMS if part.any() else 0):
            sums = self._least_sums(x, part, known)
            walls = np.pad(sums, 1, constant_values=np.inf)
            beside: Floats = np.stack([walls[:-2], walls[2:]])
            narrow = np.max(beside, axis=0, initial=0, where=beside < np.inf) > 3 * sums  # as where means change signs
            near = (target / 2 < sums) & (narrow | ((sums < (2 * target or np.inf)) & (zoom == 0)))
            valleys = np.flatnonzero((sums <= beside.min(0)) & near)
            if not len(valleys):
                break
            valleys = valleys[np.argsort(sums[valleys], kind="stable")[: tuning.SCANNED_VALLEYS]]
            more = np.setdiff1d(x[valleys][:, None] + width * np.arange(-7, 8) / 8, x)
            more = more[more > 0]
            order = np.argsort(np.append(x, more))
            part = np.concatenate([part, self.errors.cheap_part(self.edge * 2.0**-more, H, T)])[order]
            x, width = np.sort(np.append(x, more)), width / 8
        return x, part

    def _range(self, target: float, steps: int) -> tuple[int, int]:
        """The step sizes worth a look, x over the stride of a scan: from the largest to the smallest."""
        fewest = math.log(float(self.start @ self.start) / target) / 4 if target else 0.05
        size = float(np.linalg.norm(self.errors.average, 2))
        high = math.ceil(math.log2(max(self.edge * size * steps / fewest, 4)) / tuning.SCAN_STRIDE)
        too_large = [x for x, limit in self._singles if target and limit > 4 * target]
        low = max(1, round(max(too_large, default=0) / tuning.SCAN_STRIDE))
        return low, max(high, low + 8)

    @cached_property
    def _singles(self) -> list[tuple[float, float]]:
        """x and the limit of single steps, down to where it is proportional to the step size."""
        found = list[tuple[float, float]]()
        for x in range(1, tuning.MAX_HALVINGS):
            found.append((float(x), self.errors.single_limit(self.edge * 2.0**-x)))
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
        best, eta = tuning.MAX_SAMPLES, self.edge / 2
        while True:
            last = self._first_below(eta, target, best)
            if last is not None and last < best:
                best, at = last, eta
            elif best < tuning.MAX_SAMPLES:
                return best, at
            eta /= math.sqrt(2)
            if eta < 1e-9 * self.edge:
                raise ArgumentError(
                    f"the averaged system must be conditioned well enough to reach an error of {math.sqrt(target):g} "
                    f"within {tuning.MAX_SAMPLES:.1e} observations by some step size; got a condition number of "
                    f"{np.linalg.cond(self.errors.average):.1e}"
                )

    def _first_below(self, eta: float, target: float, most: int) -> int | None:
        """The first single step with an error of at most `target`, by doubling and halving, within about `most`."""
        with np.errstate(all="ignore"):
            high = 1
            if not self.errors.single_limit(eta) < target:
                return None
            while self.errors.single(eta, high) > target:
                high *= 2
                if high > 2 * most:
                    return None
            between = range(high // 2 + 1, high)
            return between.start + bisect_left(between, True, key=lambda t: self.errors.single(eta, t) <= target)

    def observations(self, epsilon: float, cap: float | None) -> tuple[int, int]:
        """The fewest observations that reach epsilon with single steps, and the most that a plan may use."""
        if float(self.start @ self.start) <= epsilon**2:
            begin = float(np.linalg.norm(self.start))
            raise ArgumentError(f"epsilon must be below the error at the start, {begin:g}; got {epsilon:g}")
        least, _ = self.fewest_samples(epsilon**2)
        most = tuning.DEFAULT_BUDGET * least if cap is None else int(cap / self.factor)
        if most < least:
            raise ArgumentError(
                f"max_samples must allow {self.name} to reach epsilon, about {least} observations; got {most}"
            )
        return least, most

    def for_accuracy(self, target: float, least: int, most: int) -> tuple[float, int, int]:
        """Step size, local steps and rounds with an error of at most `target` that lasts: fewest rounds, then steps.

        least, most : observations with which single steps get there, and that there may be
        """
        known = dict[int, tuple[float, int]]()  # step size and local steps for each T that is enough

        @cache
        def enough(T: int) -> bool:
            last, usual = max(known.items(), default=(1, (0.0, most)), key=lambda item: -item[0])
            lengths = {*self._lengths(T, least, most), *(H for _, H in known.values() if most >= H * T)}
            for H in sorted(lengths, key=lambda H: abs(math.log(H * T / (usual[1] * last)))):
                error, eta = self.best_step(H, T, target)
                if error <= target:
                    known[T] = eta, H
                    return True
            return False

        few = range(1, 1 + min(tuning.TYPICAL_ROUNDS, most))
        T = next((T for T in few if enough(T)), 0)  # each of them: one long round may do what several short ones do not
        low, high, stride = few[-1], T or few[-1], 1
        while not T and not enough(high):
            if high == most:
                raise ArgumentError(f"max_samples must allow {self.name} to reach epsilon; got {most}, which do not")
            low, high, stride = high, min(most, high + stride), 2 * stride
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        if not T:
            T = next((T for T in range(high - 2, high) if enough(T)), high)  # the error may rise again
        eta, H = self._shortest(T, *known[T], target, least)
        while T > 1 and self.errors.error(eta, H, T - 1, self.limits) <= target:
            T -= 1
        return self._polished(eta, H, T), H, T

    def _lengths(self, T: int, least: int, most: int) -> list[int]:
        """Local steps to try in T rounds: the most that there may be, and fewer."""
        top, fewest = most // T, max(1, least // (tuning.FEWER_SAMPLES * T))
        ratio = tuning.LENGTHS_RATIO if T <= tuning.TYPICAL_ROUNDS and not self.method.random_lengths else 2
        steps = math.ceil(math.log(top / fewest) / math.log(ratio)) if top > fewest else 0
        some = {round(top * (fewest / top) ** (k / max(steps, 1))) for k in range(steps + 1)}
        return sorted(some | set(range(fewest, min(top, tuning.SHORT_LENGTHS) + 1)), reverse=True)

    def _shortest(self, T: int, eta: float, H: int, target: float, least: int) -> tuple[float, int]:
        """The shortest rounds with which T of them reach the target, to a thousandth, and the step size."""
        low, above, reached = 0, math.inf, target
        for length in self._lengths(T, least, H * T)[:0:-1]:
            error, best = self.best_step(length, T, target)
            if error <= target:
                eta, H, reached = best, length, error
                break
            low, above = length, error
        while H - low > max(1, H // 100):
            middle = (low + H) // 2
            if low and target < above < math.inf and reached < target:  # where a line in logarithms meets the target
                share = math.log(above / target) / math.log(above / reached)
                room = (H - low) // 8
                middle = min(max(round(low * (H / low) ** share), low + max(1, room)), H - 1 - room)
            error, best = self.best_step(middle, T, target)
            if error <= target:
                eta, H, reached = best, middle, error
            else:
                low, above = middle, error
        eta, step = self._polished(eta, H, T), H // 100
        while step > H // 2000:  # a little shorter, at the same progress in a round
            if self.errors.error(eta * H / (H - step), H - step, T, self.limits) <= target:
                eta, H = eta * H / (H - step), H - step
            else:
                step //= 2
        return eta, H

    def smallest_error(self, H: int, T: int) -> tuple[float, int]:
        """Step size and local steps with the smallest error after T rounds of at most H steps that lasts."""
        each = ((*self.best_step(h, T), h) for h in self._lengths(T, H * T, H * T))
        _, eta, H = min(found for found in each if not math.isnan(found[1]))
        return self._polished(eta, H, T, fine=True), H

    def _polished(self, eta: float, H: int, T: int, fine: bool = False) -> float:
        """The step size nearby with the smallest error."""

        def error(x: float) -> float:
            return self.errors.error(self.edge * 2.0**-x, H, T, self.limits)

        x = math.log2(self.edge / eta)
        for width in (1 / 32, 1 / 128, 1 / 1024, 1 / 8192)[: None if fine else 2]:
            while (best := min((x, x - width, x + width), key=error)) != x:
                x = best
        return self.edge * 2.0**-x

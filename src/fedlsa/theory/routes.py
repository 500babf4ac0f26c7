"""Which way exact moments are computed: the table that a reader wants, and the dispatcher that follows it.

An error curve is computed by the first row of CURVES that suits what is asked; a row that cannot vouch for its accuracy
gives way to the next. LIMITS are the ways to a stationary law (theory/stationary_limits.py). Results name their row
in the attribute `route`. Costs are in agents N (K groups of identical ones), dimension d, rounds T, local steps H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..algorithms import SCAFFLSA, Algorithm, FedLSA, PowerStep, Scaffnew
from ..checks import Floats
from ..problems import Problem
from ..sampling import IID, Markov, Sampling
from . import local_steps, many_rounds, trajectories, tuning
from .controlled import round_on_pairs
from .noiseless import NoiselessMap
from .pairs import PairMap
from .problem_moments import Moments

_Round = TypeVar("_Round")


@dataclass(frozen=True, eq=False)
class CurveRequest:
    """A curve that is asked for, from u = theta_0 - theta_star : (d,) and x = xi_0 - xi_star : (K, d) of each group.

    problem and xi = xi_0 : (N, d) are those of trajectories, whose moments need chains
    upload_noise : standard deviation per coordinate of what agents add to their uploads
    """

    moments: Moments
    algorithm: Algorithm
    u: Floats
    x: Floats
    recorded: NDArray[np.int64]
    sampling: Sampling = field(default_factory=IID)
    problem: Problem | None = None
    xi: Floats | None = None
    upload_noise: float = 0.0

    @property
    def last(self) -> int:
        return int(self.recorded[-1])

    @property
    def steady(self) -> bool:
        """Whether all rounds are alike."""
        a = self.algorithm
        return a.average_after is None and not (isinstance(a.step_size, PowerStep) and a.step_size.power > 0)

    @cached_property
    def rounds_of_pairs(self) -> Callable[[int], PairMap | NoiselessMap]:
        """What each round of a method with control variates does."""
        return self._each(partial(round_on_pairs, self.moments, self.algorithm, upload_noise=self.upload_noise))

    @cached_property
    def rounds_of_fedlsa(self) -> Callable[[int], local_steps.FedLSARound]:
        """What each round of FedLSA does. Control variates that never change go with tables: as many as needed."""
        m, a, x = self.moments, self.algorithm, self.x
        assert isinstance(a, FedLSA)
        if np.array_equal(x, -m.xi_star[m.table]):
            x = -m.xi_star
        else:
            t = m.table
            m = replace(m, A_bar=m.A_bar[t], b_bar=m.b_bar[t], noise=m.noise[t], table=np.arange(len(t)))
        among, noise = a.taking_part(m.n_agents), self.upload_noise
        return self._each(lambda eta: local_steps.fedlsa_round(m, eta, a.local_steps, x, among, noise))

    def mean_from_solution(self) -> Floats:
        """E[u] : (R, d) of the same run started at theta_star, of independent observations: the drift of its mean."""
        nothing, at = np.zeros_like(self.u), self.recorded
        if not isinstance(self.algorithm, FedLSA):
            return many_rounds.mean_from_solution(self.rounds_of_pairs, self.x, at, self.steady)
        if self.steady:
            return local_steps.fedlsa_curve(self.rounds_of_fedlsa(0).noiseless, nothing, at)[0]
        return local_steps.averaged_curve(
            lambda t: self.rounds_of_fedlsa(t).noiseless, nothing, self.average_after, at
        )[0]

    @property
    def average_after(self) -> int:
        """The round from which iterates are averaged, after the last if they are not."""
        after = self.algorithm.average_after
        return self.last + 1 if after is None else after

    def _each(self, at: Callable[[float], _Round]) -> Callable[[int], _Round]:
        """Round t from what a round does at a step size; the same object as long as the step size is the same."""
        known = lru_cache(maxsize=1)(at)
        if isinstance(self.algorithm.step_size, float):
            return lambda t: known(self.algorithm.step_size)
        etas = self.algorithm.eta(np.arange(max(self.last, 1)))
        return lambda t: known(float(etas[t]))


@dataclass(frozen=True, eq=False)
class ExactCurve:
    """E[u] : (R, d), E||u - E[u]||^2 : (R,), psi of methods with control variates, error of a closure : (R,).

    moments : what kind they are; route : the row of the table by which they were computed
    """

    mean: Floats
    variance: Floats
    psi: Floats | None = None
    error: Floats | None = None
    moments: str = "exact"
    route: str = ""


@dataclass(frozen=True)
class Route:
    """One row: for which methods, sampling, sizes and noise which routine serves, at what cost and with what error."""

    name: str
    methods: tuple[type[Algorithm], ...]
    case: str
    routine: str
    cost: str
    error: str
    sampling: type[Sampling] = IID
    suits: Callable[[CurveRequest], bool] = lambda asked: True
    curve: Callable[[CurveRequest], ExactCurve | None] = lambda asked: None


def compute(asked: CurveRequest) -> ExactCurve:
    """The curve by the first row that suits and vouches for it."""
    for row in CURVES:
        right = isinstance(asked.algorithm, row.methods) and isinstance(asked.sampling, row.sampling)
        if right and row.suits(asked) and (curve := row.curve(asked)) is not None:
            return replace(curve, route=row.name)
    assert asked.problem is not None  # for independent observations there is a row
    raise trajectories.too_large(asked.problem, asked.algorithm)


def table() -> str:
    """The rows in Markdown."""
    lines = ["| result | route | methods | sampling | case | routine | cost | error |", "|" + "---|" * 8]
    for result, rows in (("curve", CURVES), ("limit", LIMITS)):
        for r in rows:
            methods = ", ".join(method.__name__ for method in r.methods)
            cells = (result, r.name, methods, r.sampling.__name__, r.case, f"`theory.{r.routine}`", r.cost, r.error)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_powers(asked: CurveRequest) -> ExactCurve:
    return ExactCurve(*local_steps.fedlsa_curve(asked.rounds_of_fedlsa(0), asked.u, asked.recorded))


def _by_fedlsa_rounds(asked: CurveRequest) -> ExactCurve:
    found = local_steps.averaged_curve(asked.rounds_of_fedlsa, asked.u, asked.average_after, asked.recorded)
    return ExactCurve(*found)


def _by_krylov(asked: CurveRequest) -> ExactCurve | None:
    step = asked.rounds_of_pairs(0)
    if isinstance(step, NoiselessMap):
        return None
    return _with_psi(asked, many_rounds.krylov_curve(step, asked.u, asked.x, asked.recorded))


def _by_rounds(asked: CurveRequest) -> ExactCurve | None:
    return _with_psi(asked, many_rounds.one_by_one(asked.rounds_of_pairs, asked.u, asked.x, asked.recorded))


def _with_psi(asked: CurveRequest, values: Floats | None) -> ExactCurve | None:
    """values : E[u], the variance and sum_c w_c E||x_c||^2 in columns; psi weighs the last with (eta H)^2."""
    if values is None:
        return None
    mean, variance, spread = values[:, :-2], values[:, -2], values[:, -1]
    length = asked.algorithm.eta(np.maximum(asked.recorded - 1, 0)) * asked.algorithm.mean_steps
    return ExactCurve(mean, variance, np.sum(mean**2, axis=1) + variance + length**2 * spread)


def _by_chains(asked: CurveRequest, closed: bool) -> ExactCurve:
    assert isinstance(asked.sampling, Markov)
    assert asked.problem is not None
    assert asked.xi is not None
    found = trajectories.curve(
        asked.problem, asked.algorithm, asked.sampling, asked.u, asked.xi, asked.recorded, closed
    )
    return ExactCurve(*found)


CONTROLLED = (SCAFFLSA, Scaffnew)
CURVES = (
    Route(
        "powers of a round",
        (FedLSA,),
        "constant step size; without noise the means alone, in any dimension",
        "local_steps.fedlsa_curve",
        "K d^6 log H + d^6 log T; without noise K d^3 + d^3 log T",
        "rounding",
        suits=lambda asked: asked.steady,
        curve=_by_powers,
    ),
    Route(
        "round by round",
        (FedLSA,),
        "averaged iterates, decreasing step sizes",
        "local_steps.averaged_curve",
        "d^4 T; for each step size K d^6 log H",
        "rounding",
        curve=_by_fedlsa_rounds,
    ),
    Route(
        "Krylov spaces",
        CONTROLLED,
        f"constant step size, more than {tuning.KRYLOV_FROM} rounds, noise, a limit that is known well",
        "many_rounds.krylov_curve",
        "K d^6 log H + some 100 times K^2 d^3",
        f"{tuning.CURVE_ACCURACY:.0e}, by its residual; else the next row",
        suits=lambda asked: asked.steady and asked.last > tuning.KRYLOV_FROM,
        curve=_by_krylov,
    ),
    Route(
        "round by round",
        CONTROLLED,
        "any; SCAFFLSA without noise by the means alone, in any dimension",
        "many_rounds.one_by_one",
        "K^2 d^3 T; for each step size K d^6 log H; without noise K d^2 T",
        "rounding",
        curve=_by_rounds,
    ),
    Route(
        "states of chains",
        (FedLSA, *CONTROLLED),
        f"one agent, or S^N times the joint size squared at most {tuning.MAX_PRODUCT_MOMENTS}",
        "trajectories.chains",
        "T S^N (N d)^2 times S d^2; Scaffnew: times the terms of a sum over lengths",
        "rounding",
        sampling=Markov,
        suits=lambda asked: asked.problem is not None and trajectories.fits(asked.problem, asked.algorithm),
        curve=partial(_by_chains, closed=False),
    ),
    Route(
        "pairs of agents",
        (FedLSA,),
        "larger; exact for two agents",
        "trajectories.closure",
        "T N^2 S^2 d^3 + T N S^2 d^4",
        "estimated: `mse_error`",
        sampling=Markov,
        curve=partial(_by_chains, closed=True),
    ),
)
_REFINED, _RESIDUAL = "estimated by one refinement", "its residual"
LIMITS = (
    Route("linear system", (FedLSA,), "noise", "local_steps.fedlsa_limit", "K d^6 log H", _REFINED),
    Route("means", (FedLSA,), "no noise, any dimension", "local_steps.fedlsa_limit", "K d^3", _REFINED),
    Route(
        "lyapunov", (SCAFFLSA,), "all agents take part", "stationary_pairs.Lyapunov", "a few times K^2 d^3", _RESIDUAL
    ),
    Route("krylov", CONTROLLED, "a space fits into memory", "krylov.Krylov", "some 100 times K^2 d^3", _RESIDUAL),
    Route("dense", CONTROLLED, "few groups and dimensions", "stationary_pairs._by_matrix", "K^6 d^6", _REFINED),
)

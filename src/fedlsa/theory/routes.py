"""Which way exact moments are computed: the table that a reader wants, and the dispatcher that follows it.

An error curve is computed by the first row of CURVES that suits what is asked; a row that cannot vouch for its accuracy
gives way to the next. LIMITS are the ways to a stationary law (theory/stationary.py). Results name their row in the
attribute `route`. Costs are in agents N (K groups of identical ones), dimension d, rounds T, local steps H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm, FedLSA, PowerStep
from ..checks import Floats
from ..problems import Problem
from ..sampling import IID, Markov, Sampling
from . import fedlsa, many_rounds, trajectories, tuning
from .moments import Moments
from .noiseless import NoiselessMap
from .pairs import PairMap, round_on_pairs

_Round = TypeVar("_Round")


@dataclass(frozen=True, eq=False)
class CurveRequest:
    """A curve that is asked for, from u = theta_0 - theta_star : (d,) and x = xi_0 - xi_star : (K, d) of each group.

    problem and xi = xi_0 : (N, d) are those of trajectories, whose moments need chains
    """

    moments: Moments
    algorithm: Algorithm
    u: Floats
    x: Floats
    recorded: NDArray[np.int64]
    sampling: Sampling = field(default_factory=IID)
    problem: Problem | None = None
    xi: Floats | None = None

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
        return self._each(partial(round_on_pairs, self.moments, self.algorithm))

    @cached_property
    def rounds_of_fedlsa(self) -> Callable[[int], fedlsa.FedLSARound]:
        """What each round of FedLSA does. Control variates that never change go with tables: as many as needed."""
        m, a, x = self.moments, self.algorithm, self.x
        assert isinstance(a, FedLSA)
        if np.array_equal(x, -m.xi_star[m.table]):
            x = -m.xi_star
        else:
            t = m.table
            m = replace(m, A_bar=m.A_bar[t], b_bar=m.b_bar[t], noise=m.noise[t], table=np.arange(len(t)))
        taking_part = a.taking_part(m.n_agents)
        return self._each(lambda eta: fedlsa.round_map(m, eta, a.local_steps, x, taking_part))

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
    methods: str
    sampling: str
    case: str
    routine: str
    cost: str
    error: str
    suits: Callable[[CurveRequest], bool] = lambda asked: False
    curve: Callable[[CurveRequest], ExactCurve | None] = lambda asked: None


def compute(asked: CurveRequest) -> ExactCurve:
    """The curve by the first row that suits and vouches for it."""
    for route in CURVES:
        if route.suits(asked) and (curve := route.curve(asked)) is not None:
            return replace(curve, route=route.name)
    raise AssertionError("the last rows suit everything that the checks let through")


def table() -> str:
    """The rows in Markdown."""
    lines = ["| result | route | methods | sampling | case | routine | cost | error |", "|" + "---|" * 8]
    for result, rows in (("curve", CURVES), ("limit", LIMITS)):
        for r in rows:
            cells = (result, r.name, r.methods, r.sampling, r.case, f"`theory.{r.routine}`", r.cost, r.error)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_powers(asked: CurveRequest) -> ExactCurve:
    return ExactCurve(*fedlsa.curve(asked.rounds_of_fedlsa(0), asked.u, asked.recorded))


def _by_fedlsa_rounds(asked: CurveRequest) -> ExactCurve:
    after = asked.algorithm.average_after
    after = asked.last + 1 if after is None else after
    return ExactCurve(*fedlsa.averaged_curve(asked.rounds_of_fedlsa, asked.u, after, asked.recorded))


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


def _independent(asked: CurveRequest, fedlsa: bool) -> bool:
    return not isinstance(asked.sampling, Markov) and isinstance(asked.algorithm, FedLSA) == fedlsa


CONTROLLED = "SCAFFLSA, Scaffnew"
CURVES = (
    Route(
        "powers of a round",
        methods="FedLSA",
        sampling="i.i.d.",
        case="constant step size; without noise the means alone, in any dimension",
        routine="fedlsa.curve",
        cost="K d^6 log H + d^6 log T; without noise K d^3 + d^3 log T",
        error="rounding",
        suits=lambda asked: _independent(asked, fedlsa=True) and asked.steady,
        curve=_by_powers,
    ),
    Route(
        "round by round",
        methods="FedLSA",
        sampling="i.i.d.",
        case="averaged iterates, decreasing step sizes",
        routine="fedlsa.averaged_curve",
        cost="d^4 T; for each step size K d^6 log H",
        error="rounding",
        suits=lambda asked: _independent(asked, fedlsa=True),
        curve=_by_fedlsa_rounds,
    ),
    Route(
        "Krylov spaces",
        methods=CONTROLLED,
        sampling="i.i.d.",
        case=f"constant step size, more than {tuning.KRYLOV_FROM} rounds, noise, a limit that is known well",
        routine="many_rounds.krylov_curve",
        cost="K d^6 log H + some 100 times K^2 d^3",
        error=f"{tuning.CURVE_ACCURACY:.0e}, by its residual; else the next row",
        suits=lambda asked: _independent(asked, fedlsa=False) and asked.steady and asked.last > tuning.KRYLOV_FROM,
        curve=_by_krylov,
    ),
    Route(
        "round by round",
        methods=CONTROLLED,
        sampling="i.i.d.",
        case="any; SCAFFLSA without noise by the means alone, in any dimension",
        routine="many_rounds.one_by_one",
        cost="K^2 d^3 T; for each step size K d^6 log H; without noise K d^2 T",
        error="rounding",
        suits=lambda asked: _independent(asked, fedlsa=False),
        curve=_by_rounds,
    ),
    Route(
        "states of chains",
        methods=f"FedLSA, {CONTROLLED}",
        sampling="Markov",
        case=f"one agent, or S^N (size of all states)^2 at most {tuning.MAX_PRODUCT_MOMENTS}",
        routine="trajectories.product",
        cost="T S^N (N d)^2 times S d^2; Scaffnew: times the terms of a sum over lengths",
        error="rounding",
        suits=lambda asked: asked.problem is not None and trajectories.fits(asked.problem, asked.algorithm),
        curve=partial(_by_chains, closed=False),
    ),
    Route(
        "pairs of agents",
        methods="FedLSA",
        sampling="Markov",
        case="larger; exact for two agents",
        routine="trajectories.closure",
        cost="T N^2 S^2 d^3, and T N S^2 d^4",
        error="estimated: `mse_error`",
        suits=lambda asked: True,
        curve=partial(_by_chains, closed=True),
    ),
)
LIMITS = (
    Route("linear system", "FedLSA", "i.i.d.", "constant step size", "fedlsa.limit", "K d^6 log H", "one refinement"),
    Route("means", "FedLSA", "i.i.d.", "no noise, any dimension", "fedlsa.limit", "K d^3", "one refinement"),
    Route(
        "lyapunov",
        CONTROLLED,
        "i.i.d.",
        "rounds of known length with all agents",
        "lyapunov.lyapunov",
        "K^2 d^3 for each of a few steps",
        "residual",
    ),
    Route(
        "krylov",
        CONTROLLED,
        "i.i.d.",
        "a space fits into memory",
        "krylov.Krylov",
        "some 100 times K^2 d^3",
        "residual",
    ),
    Route(
        "dense",
        CONTROLLED,
        "i.i.d.",
        "few groups in few dimensions",
        "stationary_pairs.limit",
        "K^6 d^6",
        "one refinement",
    ),
)

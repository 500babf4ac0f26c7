"""What a user should know beside the iterative answer: protocols of one message, with what they cost and reveal.

The averaged system (federated LSTD, normal equations) and the average of local solutions, from the same data, and for a
value function Monte Carlo (monte_carlo.py); docs/one-shot.md says when each is the right choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import Floats
from ..formatting import Displayed
from ..frozen import ReadOnly

ITERATIVE, ONE_SHOT, AVERAGE = "iterative", "one-shot system", "average of solutions"
LSTD, LSTD_AVERAGE, MONTE_CARLO = "LSTD", "LSTD per site, averaged", "Monte Carlo"
SYSTEM = "each site sends A_c and b_c: the second moments of its features, and their products with the "
ANSWER = "each site sends its own answer; their average is biased where sites differ"
REVEALS = {
    ITERATIVE: "each site sends a vector in every round; one says little, many together say more about A_c and b_c",
    ONE_SHOT: SYSTEM + "outcome",
    AVERAGE: ANSWER,
    LSTD: SYSTEM + "reward",
    LSTD_AVERAGE: ANSWER,
    MONTE_CARLO: SYSTEM + "discounted returns",
}


@dataclass(frozen=True, eq=False, repr=False)
class Baseline(Displayed, ReadOnly):
    """Another way to an answer from the same data.

    name : of the way
    theta : (d,) its answer, on the original scale
    standard_error : (d,) of its answer, because data are finite, and of the run where there is one. An average is about
        the average of what sites would find in endless data, not about the shared solution
    distance : the largest difference of a coefficient from the data's solution, in standard errors of that solution
    numbers : that one site sends; messages : of all sites
    bytes : up and down, all sites, eight per number
    reveals : what the server learns of a site
    """

    name: str
    theta: Floats
    standard_error: Floats
    distance: float
    numbers: int
    messages: int
    bytes: int
    reveals: str


def compare(fit: Any, returns: tuple[Floats, Floats] | None) -> tuple[Baseline, ...]:
    """The protocol's answer, where a run was planned, beside those of one message.

    returns : the answer of Monte Carlo with its standard errors, (d,) each, on the original scale, for a value function
    """
    N, d, plan, error = len(fit.per_site), len(fit.theta), fit.plan, fit.standard_error
    system, mean = (ONE_SHOT, AVERAGE) if returns is None else (LSTD, LSTD_AVERAGE)
    weights = np.array([site.weight for site in fit.per_site])
    average = weights @ np.stack([site.theta for site in fit.per_site])
    spread = np.sqrt(weights**2 @ np.stack([np.diag(site.covariance) for site in fit.per_site]))
    once = (d * d + d, N, 8 * N * (d * d + 2 * d))  # numbers of a site, messages, bytes
    answers: dict[str, tuple[Floats, Floats, int, int, int]] = {}
    if plan is not None:
        run_error = np.hypot(error, fit.optimisation)
        answers[ITERATIVE] = (fit.protocol, run_error, d * plan.rounds, plan.uploads, plan.bytes)
    answers |= {system: (fit.theta, error, *once), mean: (average, spread, d, N, 16 * N * d)}
    if returns is not None:
        answers[MONTE_CARLO] = (*returns, *once)
    return tuple(
        Baseline(name, answer, own, _largest(answer - fit.theta, error), numbers, messages, size, REVEALS[name])
        for name, (answer, own, numbers, messages, size) in answers.items()
    )


def _largest(gap: Floats, deviation: Floats) -> float:
    """max |gap| / deviation, where no gap is 0 whatever the deviation; NaN where a gap is."""
    if np.isnan(gap).any():
        return float("nan")
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(gap == 0, 0.0, np.abs(gap) / deviation)))

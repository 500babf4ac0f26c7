"""What a user should know beside the iterative answer: protocols of one message, with what they cost and reveal.

The averaged system (federated LSTD, normal equations) and the average of local solutions, from the same data;
docs/one-shot.md says when each is the right choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..checks import Floats
from ..theory.planner import Plan
from .systems import System, own_solution

ITERATIVE, ONE_SHOT, AVERAGE = "iterative", "one-shot system", "average of solutions"
REVEALS = {
    ITERATIVE: "each site sends a vector in every round; one says little, many together say more about A_c and b_c",
    ONE_SHOT: "each site sends A_c and b_c: the second moments of its features, and their products with the outcome",
    AVERAGE: "each site sends its own answer; their average is biased where sites differ",
}


@dataclass(frozen=True, eq=False)
class Baseline:
    """A way to an answer theta : (d,), on the original scale, from the same data.

    distance : the largest difference of a coefficient from the data's solution, in standard errors of that solution
    numbers : that one site sends; messages : of all sites; bytes : up and down, all sites, eight per number
    """

    name: str
    theta: Floats
    distance: float
    numbers: int
    messages: int
    bytes: int
    reveals: str


def compare(
    theta: Floats,
    solution: Floats,
    covariance: Floats,
    plan: Plan,
    systems: Sequence[System],
    weights: Floats,
    original: tuple[Floats, Floats],
) -> tuple[Baseline, ...]:
    """The iterative answer theta : (d,), the protocol's, beside the two of one message.

    solution, covariance : of the data, on the original scale like theta
    systems : the sites', in the run's coordinates, which original = (T, t) takes to the original scale
    """
    T, t = original
    N, d = len(systems), len(theta)
    # weights add up to one, so an average on the original scale is the image of the average
    average = T @ (weights @ np.stack([own_solution(s) for s in systems])) + t
    answers = {
        ITERATIVE: (theta, d * plan.rounds, plan.uploads, plan.bytes),
        ONE_SHOT: (solution, d * d + d, N, 8 * N * (d * d + 2 * d)),
        AVERAGE: (average, d, N, 16 * N * d),
    }
    deviation = np.sqrt(np.diag(covariance))
    out = []
    for name, (answer, numbers, messages, size) in answers.items():
        far = _largest(answer - solution, deviation)
        out.append(Baseline(name, answer, far, numbers, messages, size, REVEALS[name]))
    return tuple(out)


def _largest(gap: Floats, deviation: Floats) -> float:
    """max |gap| / deviation, where no gap is 0 whatever the deviation; NaN where a gap is."""
    if np.isnan(gap).any():
        return float("nan")
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(gap == 0, 0.0, np.abs(gap) / deviation)))

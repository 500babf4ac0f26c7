"""What a user should know beside the iterative answer: protocols of one message, with what they cost and reveal.

The averaged system (federated LSTD, normal equations) and the average of local solutions, from the same data;
docs/one-shot.md says when each is the right choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import Floats
from ..formatting import Displayed
from ..frozen import ReadOnly
from ..theory.planner import Plan

ITERATIVE, ONE_SHOT, AVERAGE = "iterative", "one-shot system", "average of solutions"
REVEALS = {
    ITERATIVE: "each site sends a vector in every round; one says little, many together say more about A_c and b_c",
    ONE_SHOT: "each site sends A_c and b_c: the second moments of its features, and their products with the outcome",
    AVERAGE: "each site sends its own answer; their average is biased where sites differ",
}


@dataclass(frozen=True, eq=False, repr=False)
class Baseline(Displayed, ReadOnly):
    """Another way to an answer from the same data.

    name : of the way
    theta : (d,) its answer, on the original scale
    distance : the largest difference of a coefficient from the data's solution, in standard errors of that solution
    numbers : that one site sends; messages : of all sites
    bytes : up and down, all sites, eight per number
    reveals : what the server learns of a site
    """

    name: str
    theta: Floats
    distance: float
    numbers: int
    messages: int
    bytes: int
    reveals: str


def compare(
    protocol: Floats, solution: Floats, average: Floats, deviation: Floats, plan: Plan, sites: int
) -> tuple[Baseline, ...]:
    """The protocol's answer beside the two of one message, each (d,) on the original scale.

    solution : of the averaged system, with standard errors deviation : (d,); average : of the sites' own solutions
    """
    N, d = sites, len(solution)
    answers = {
        ITERATIVE: (protocol, d * plan.rounds, plan.uploads, plan.bytes),
        ONE_SHOT: (solution, d * d + d, N, 8 * N * (d * d + 2 * d)),
        AVERAGE: (average, d, N, 16 * N * d),
    }
    return tuple(
        Baseline(name, answer, _largest(answer - solution, deviation), numbers, messages, size, REVEALS[name])
        for name, (answer, numbers, messages, size) in answers.items()
    )


def _largest(gap: Floats, deviation: Floats) -> float:
    """max |gap| / deviation, where no gap is 0 whatever the deviation; NaN where a gap is."""
    if np.isnan(gap).any():
        return float("nan")
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(gap == 0, 0.0, np.abs(gap) / deviation)))

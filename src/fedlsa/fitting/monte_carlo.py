"""Monte Carlo evaluation of a policy: the regression of the discounted returns G on the features of their states.

No return has to be computed, for with e_t = sum_k gamma^(t - k) phi_k, over the rows k <= t of its episode,

    sum_k phi_k (G_k - phi_k . theta) = sum_t e_t (r_t + gamma phi_{t+1} . theta - phi_t . theta):

the equations are those of TD(1) (Boyan, 2002), which sites add up in one pass. Where an episode is cut, the sum has the
model's own value of the state there for what lies beyond; without it only episodes that end early would count. Errors
come from the same lag windows as those of any log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..checks import Floats
from .error_bars.covariance import CovarianceKind, Scores, complete, sandwich, scores, sum_of_meats
from .identification import warn_of_breaks
from .one_message import MONTE_CARLO
from .reading import FitProgress, PooledData
from .rows.observe import Piece
from .site_sums import System, SystemSums, add_up
from .solutions import solution
from .tasks import Value


def monte_carlo(
    data: PooledData, task: Value, weights: Floats, kind: CovarianceKind, report: FitProgress
) -> tuple[Floats, Floats]:
    """The coefficients : (d,) and their standard errors : (d,), on the original scale.

    weights : of the sites, as in the fit; kind : of the covariance
    """
    if task.trace == 0:  # else the fit has said so
        warn_of_breaks(task, data.logs, MONTE_CARLO)
    returns = replace(data, task=replace(task, trace=1.0), kept=None)
    names = [site.name for site in data.sites]

    def system(c: int, pieces: Iterator[Piece]) -> System:
        return add_up((SystemSums.of(p) for p in pieces), names[c]).system(0.0)

    systems = returns.each("Monte Carlo", report, system)
    A, theta = solution(systems, weights, data.names)
    T, t = data.scale.original()
    influence = T @ np.linalg.inv(A)

    def site_scores(c: int, pieces: Iterator[Piece]) -> Scores:
        return scores(pieces, systems[c], weights[c], (A, theta), influence, data.penalty, kind)

    _, noise = complete(kind, returns.each("errors of Monte Carlo", report, site_scores), names, A)
    covariance = T @ sandwich(A, sum_of_meats(noise)) @ T.T
    return T @ theta + t, np.sqrt(np.diag(covariance))

"""Moments of files that resemble the sites' own: for plans where the sites themselves may not say so much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...errors import ArgumentError
from ...fit.rows.columns import choose_columns
from ...fit.site_sums import scale_of
from ...fit.sites.site_readers import open_sites
from ...fit.tasks import Task
from ...theory.moments import Moments
from ..protocol.agreed_design import AgreedDesign
from ..site.facts import MOMENTS, measure, view


def example_moments(files: Sequence[Path], task: Task) -> tuple[Moments, int]:
    """The moments of one file per site, each with the same weight, in the coordinates that a run on them would have;
    and the rows of the smallest."""
    sites = open_sites(list(files), task)
    design = AgreedDesign.of(choose_columns(task, sites))
    seen = [view(site, task, design) for site in sites]
    names, N = seen[0].names, len(sites)
    weights, k = np.full(N, 1 / N), len(names) - task.intercept
    scale = scale_of(task, [own.summary for own in seen], weights, list(names[:k]), [site.name for site in sites])
    found = [measure(site, task, scale, True, design)[1] for site in sites]
    shared = [moments for moments in found if moments is not None]
    if len(shared) < N:
        raise ArgumentError(f"files must have at most {MOMENTS} coefficients for exact moments; got {len(names)}")
    A, b, noise = (np.stack([getattr(moments, name) for moments in shared]) for name in ("A", "b", "noise_map"))
    return Moments(A, b, noise, np.arange(N), weights, np.ones(N, np.int64)), min(own.summary.n for own in seen)

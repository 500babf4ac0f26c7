"""A run's result as a model: what predicts, is saved and read as every fit is; of errors a run knows nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...fit.fitted import Fit, SiteReport
from ...fit.tasks import Task
from ...results.recipe import versions
from ..protocol.agreed_design import AgreedDesign

NO_ERRORS = "none: a run across sites gives no error bars"


def model_of(result: dict[str, Any], task: Task) -> Fit:
    """The fit of a run's result.json. Its covariance, and what sites say of themselves alone, are NaN."""
    theta = np.array(result["coefficients"], np.float64)
    d, design, settings = len(theta), AgreedDesign.from_text(result["design"]), result["settings"]
    unknown, square = np.full(d, np.nan), np.full((d, d), np.nan)
    alone: dict[str, Any] = {
        "distance": math.nan,
        "influence": math.nan,
        "noise": math.nan,
        "finite_data": math.nan,
        "window": 0,
    }
    weights = dict(zip(result["rows"], result["weights"], strict=True))
    reports = tuple(
        SiteReport(
            name, rows, weights[name], unknown, **alone, covariance=square, degrees_of_freedom=math.nan, without=unknown
        )
        for name, rows in result["rows"].items()
    )
    return Fit(
        task=task,
        names=tuple(result["names"]),
        theta=theta,
        columns=design.columns,
        covariance=square,
        root=square,
        protocol=theta,
        optimisation=unknown,
        plan=None,
        epsilon=result["epsilon"],
        error={},
        per_site=reports,
        weight=settings["weight"],
        local=settings["local"],
        made_by={"versions": versions(), "network run": result["experiment"]},
        covariance_kind=NO_ERRORS,
        degrees_of_freedom=math.nan,
        levels=dict(design.levels),
    )

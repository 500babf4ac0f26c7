"""From the data of many sites to one estimate with an error bar."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if _TYPE_CHECKING:
    from .data_problem import columns_of, site_problem
    from .error_bars.bootstrap import Bootstrap
    from .error_bars.cochran import CochranQ
    from .error_bars.heterogeneity import Heterogeneity
    from .estimate import fit
    from .evaluation import Residuals, TDErrors, evaluate
    from .fit_summary import FitSummary
    from .fitted import Fit, SiteReport
    from .hypotheses import WaldTest
    from .one_message import Baseline
    from .predictions import Prediction
    from .tasks import Regression, Value

_load_lazily(
    __name__,
    {
        "error_bars.bootstrap": ("Bootstrap",),
        "error_bars.cochran": ("CochranQ",),
        "data_problem": ("columns_of", "site_problem"),
        "estimate": ("fit",),
        "evaluation": ("Residuals", "TDErrors", "evaluate"),
        "fit_summary": ("FitSummary",),
        "fitted": ("Fit", "SiteReport"),
        "error_bars.heterogeneity": ("Heterogeneity",),
        "hypotheses": ("WaldTest",),
        "one_message": ("Baseline",),
        "predictions": ("Prediction",),
        "tasks": ("Regression", "Value"),
    },
)

__all__ = [
    "Baseline",
    "Bootstrap",
    "CochranQ",
    "Fit",
    "FitSummary",
    "Heterogeneity",
    "Prediction",
    "Regression",
    "Residuals",
    "SiteReport",
    "TDErrors",
    "Value",
    "WaldTest",
    "columns_of",
    "evaluate",
    "fit",
    "site_problem",
]

"""From the data of many sites to one estimate with an error bar."""

from .baselines import Baseline
from .bootstrap import Bootstrap
from .estimate import fit
from .evaluate import Residuals, TDErrors, evaluate
from .fitted import Fit, Prediction, SiteReport
from .problem import columns_of, site_problem
from .tasks import Regression, Value

__all__ = [
    "Baseline",
    "Bootstrap",
    "Fit",
    "Prediction",
    "Regression",
    "Residuals",
    "SiteReport",
    "TDErrors",
    "Value",
    "columns_of",
    "evaluate",
    "fit",
    "site_problem",
]

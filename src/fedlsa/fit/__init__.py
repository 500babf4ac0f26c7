"""From the data of many sites to one estimate with an error bar."""

from .bootstrap import Bootstrap
from .data_problem import columns_of, site_problem
from .estimate import fit
from .evaluate import Residuals, TDErrors, evaluate
from .fitted import Fit, Prediction, SiteReport
from .one_message import Baseline
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

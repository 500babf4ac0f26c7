"""From the data of many sites to one estimate with an error bar."""

from .bootstrap import Bootstrap
from .estimate import fit
from .evaluate import Residuals, TDErrors, evaluate
from .fitted import Fit, Prediction, SiteReport
from .problem import columns_of, site_problem
from .rivals import Rival
from .tasks import Regression, Value

__all__ = [
    "Bootstrap",
    "Fit",
    "Prediction",
    "Regression",
    "Residuals",
    "Rival",
    "SiteReport",
    "TDErrors",
    "Value",
    "columns_of",
    "evaluate",
    "fit",
    "site_problem",
]

"""From the data of many sites to one estimate with an error bar."""

from .estimate import fit
from .fitted import Fit, Prediction, SiteReport
from .tasks import Regression, Value

__all__ = ["Fit", "Prediction", "Regression", "SiteReport", "Value", "fit"]

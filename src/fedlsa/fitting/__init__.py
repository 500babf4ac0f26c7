"""From the data of many sites to one estimate with an error bar."""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from .estimate import fit as fit
    from .evaluation import Residuals as Residuals
    from .evaluation import TDErrors as TDErrors
    from .evaluation import evaluate as evaluate
    from .fit_summary import Baseline as Baseline
    from .fit_summary import FitSummary as FitSummary
    from .fit_summary import WaldTest as WaldTest
    from .fitted import Bootstrap as Bootstrap
    from .fitted import Fit as Fit
    from .fitted import Prediction as Prediction
    from .heterogeneity import CochranQ as CochranQ
    from .heterogeneity import Heterogeneity as Heterogeneity
    from .heterogeneity import SiteReport as SiteReport
    from .protocol import site_problem as site_problem
    from .table_files import columns_of as columns_of
    from .tasks import Regression as Regression
    from .tasks import Value as Value

_load_lazily(__name__)

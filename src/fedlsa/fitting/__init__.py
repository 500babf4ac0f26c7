"""From the data of many sites to one estimate with an error bar."""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from .data_problem import columns_of as columns_of
    from .data_problem import site_problem as site_problem
    from .error_bars.bootstrap import Bootstrap as Bootstrap
    from .error_bars.cochran import CochranQ as CochranQ
    from .error_bars.heterogeneity import Heterogeneity as Heterogeneity
    from .estimate import fit as fit
    from .evaluation import Residuals as Residuals
    from .evaluation import TDErrors as TDErrors
    from .evaluation import evaluate as evaluate
    from .fit_summary import FitSummary as FitSummary
    from .fitted import Fit as Fit
    from .fitted import SiteReport as SiteReport
    from .hypotheses import WaldTest as WaldTest
    from .one_message import Baseline as Baseline
    from .predictions import Prediction as Prediction
    from .tasks import Regression as Regression
    from .tasks import Value as Value

_load_lazily(__name__)

"""How the server averages: the weighted mean, or a coordinate-wise trimmed mean that a few bad sites cannot move far.

The correction xi_c <- xi_c + gain (mean - sent_c) keeps sum_c w_c xi_c = 0 because mean is the weighted mean of what
was sent. With a trimmed mean the sum moves in each round by gain W (trimmed - mean), W the weight of those averaged:
the control variates then tend to what makes the trimmed mean stand still, and the limit is not theta_star exactly. That
is the price of robustness; honest sites that are alike pay little. Shortening a long reply (`clip`) costs nothing of
the kind, because the site is told the factor and corrects xi with the shortened reply.
"""

from __future__ import annotations

import numpy as np

from ...checks import Floats


def average(values: Floats, weights: Floats, trim: int = 0) -> Floats:
    """The weighted mean (d,) of values (m, d), weights (m,) renormalised; trim values left out at each end.

    With trim > 0 each coordinate leaves out its `trim` smallest and largest values, with their weights.
    """
    if trim == 0:
        return np.asarray((weights / weights.sum()) @ values, np.float64)
    order = np.argsort(values, axis=0, kind="stable")[trim : len(values) - trim]
    kept = weights[order]  # (m - 2 trim, d)
    return np.asarray((kept * np.take_along_axis(values, order, 0)).sum(axis=0) / kept.sum(axis=0), np.float64)

"""fl.fit of rows that stay at their sites says what the packages say of the pooled rows.

Coefficients and R2 agree to 1e-8 of their own size, standard errors to 1e-8 too (1e-6 where columns are nearly
collinear), and what follows from them to 1e-6.
"""

import json
import re
from functools import cache

import numpy as np
import pytest
from make import RESULTS, load, with_sites

import fedlsa as fl

GOLDEN = json.loads(RESULTS.read_text(encoding="utf-8"))
NEARLY_COLLINEAR = ("statsmodels:longley",)
load_once = cache(load)


def our_name(name):
    """A coefficient's name: the packages write levels that are whole numbers as 2.0 where they are floats."""
    return "intercept" if name == "Intercept" else re.sub(r"\.0\]", "]", name)


def identity(entry):
    task, fit = entry["task"], entry["fit"]
    parts = [entry["data"], fit.get("covariance"), fit.get("cluster"), task.get("row_weights"), task["target"][:40]]
    return " ".join(filter(None, parts))


@pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")  # of autocorrelated residuals, and the like
@pytest.mark.parametrize("entry", GOLDEN, ids=identity)
def test_a_fit_says_what_the_packages_say(entry):
    table = with_sites(load_once(entry["data"]), entry["site"])
    found = fl.fit(table, fl.Regression(**entry["task"]), site="site", plan=False, **entry["fit"])
    names = [our_name(name) for name in found.names]
    order = [names.index(our_name(name)) for name in entry["names"]]
    assert len(order) == len(names)
    np.testing.assert_allclose(found.theta[order], entry["coefficients"], rtol=1e-8)
    if "rows" in entry:
        assert sum(site.rows for site in found.per_site) == entry["rows"]
    if "standard_errors" in entry:
        np.testing.assert_allclose(
            found.standard_error[order],
            entry["standard_errors"],
            rtol=1e-6 if entry["data"] in NEARLY_COLLINEAR else 1e-8,
        )
    if "r_squared" in entry:
        assert found.r_squared == pytest.approx(entry["r_squared"], rel=1e-8)
    if "t_values" in entry:
        np.testing.assert_allclose(found.t_values[order], entry["t_values"], rtol=1e-6)
    if "p_values" in entry:
        size = np.array(entry["standard_errors"])[:, None]
        np.testing.assert_allclose(found.p_values[order], entry["p_values"], rtol=1e-6, atol=1e-12)
        gap = found.confidence_interval(0.95)[order] - entry["intervals"]
        assert (np.abs(gap) <= 1e-6 * size).all()

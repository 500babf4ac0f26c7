"""Row weights and offsets: least squares of weighted rows is that of rows times the roots of their weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedlsa as fl

RUN = {"local": "means", "step_size": 0.05, "local_steps": 2, "rounds": 3}


def weighted_sites():
    rng = np.random.default_rng(4)
    for n in (12, 30):
        a, b, w, o = rng.normal(size=n), 5 + rng.normal(size=n), rng.gamma(2, size=n), rng.normal(size=n)
        yield {"y": 1 + a - 2 * b + o + rng.normal(size=n), "a": a, "b": b, "w": w, "o": o}


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.filterwarnings("ignore:the run ends")
def test_weighted_least_squares_with_an_offset_has_the_solution_of_pooled_rows(intercept, standardise):
    sites = list(weighted_sites())
    task = fl.Regression("y", intercept=intercept, standardise=standardise, row_weights="w", offset="o")
    root = np.concatenate([np.sqrt(s["w"]) for s in sites])
    x = np.concatenate([np.column_stack([s["a"], s["b"], np.ones(len(s["a"]))]) for s in sites])[:, : 2 + intercept]
    y = np.concatenate([s["y"] - s["o"] for s in sites])
    expected = np.linalg.lstsq(x * root[:, None], y * root, rcond=None)[0]
    assert_allclose(fl.fit(sites, task, **RUN).theta, expected, rtol=1e-10)
    for local in ("rows", "means"):
        p = fl.site_problem(sites, task, local=local)
        q = fl.site_problem(sites, task, local="means")
        assert_allclose(p.A_bar, q.A_bar, atol=1e-12)
        assert_allclose(p.theta_star, q.theta_star, atol=1e-10)


def test_weights_below_zero_and_a_site_without_weight_are_refused():
    first, second = weighted_sites()
    task = fl.Regression("y", row_weights="w", offset="o")
    with pytest.raises(fl.errors.SiteDataError, match="site 1: column 'w' must hold weights of at least 0; got -1"):
        fl.fit([first, second | {"w": -np.ones(30)}], task, **RUN)
    with pytest.raises(fl.errors.SiteDataError, match="site 1: column 'w' must have a weight above 0; it has none"):
        fl.fit([first, second | {"w": np.zeros(30)}], task, **RUN)

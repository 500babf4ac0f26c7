"""Row weights and offsets: least squares of weighted rows is that of rows times the roots of their weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedlsa as fl
from fedlsa.fitting.rows import Piece
from fedlsa.fitting.sums import SiteSums

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


@pytest.mark.parametrize("far", [1e6, 1e9, 1e15])
@pytest.mark.parametrize("light", [0.0, 1e-60])
def test_rows_of_no_weight_change_nothing_however_far_away_they_are(far, light):
    rng = np.random.default_rng(5)
    x, first = rng.normal(size=50), np.arange(50) < 5
    y = 2 * x + rng.normal(size=50)
    rows = {"x": np.where(first, far, x), "y": np.where(first, -far, y), "w": np.where(first, light, 1.0)}
    task = fl.Regression("y", row_weights="w")
    for order in (slice(None), slice(None, None, -1)):
        found = fl.fit([{c: v[order] for c, v in rows.items()}], task, plan=False, covariance="HC0")
        alone = fl.fit([{"x": x[5:], "y": y[5:]}], fl.Regression("y"), plan=False, covariance="HC0")
        assert_allclose(found.theta, alone.theta, rtol=1e-11)
        assert_allclose(found.standard_error, alone.standard_error, rtol=1e-11)
        assert found.r_squared == pytest.approx(alone.r_squared, rel=1e-11)


def test_a_piece_without_weight_leaves_the_moments_of_the_others_as_they_are():
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(9, 2)), rng.normal(size=9)
    far = x + 1e15
    nothing, some = Piece(far, far, y, root=np.zeros(9)), Piece(x, x, y, root=np.ones(9))

    def moments(*pieces):
        sums = SiteSums(["s"])
        for p in pieces:
            sums.add(p.u, p)
        return sums.mean, sums.variance, sums.largest, sums.mass

    for both in (moments(nothing, some), moments(some, nothing)):
        for found, expected in zip(both, moments(some), strict=True):
            assert_allclose(found, expected, rtol=1e-15)

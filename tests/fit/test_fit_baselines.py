"""Answers of one message beside the iterative one, on data whose solutions are known."""

import numpy as np
import pytest

import fedlsa as fl


def two_sites():
    """Slope 1 at 6 points with E[x^2] = 1, slope 3 at 4 points with E[x^2] = 4; residuals are orthogonal to x."""
    a, b = np.array([-1.0, 1] * 3), np.array([-2.0, 2] * 2)
    e = np.array([1.0, 1, -1, -1, 0, 0])
    return [(a[:, None], a + e), (b[:, None], 3 * b + e[:4])]


TASK = fl.Regression("y", intercept=False, standardise=False)


@pytest.mark.parametrize(
    ("weight", "w"), [("sites", np.array([0.5, 0.5])), ("samples", np.array([0.6, 0.4]))], ids=["sites", "samples"]
)
def test_baselines_solve_what_they_are_said_to_solve(weight, w):
    fit = fl.fit(two_sites(), TASK, 1e-6, local="means", weight=weight, baselines=True)
    run, system, average = fit.baselines
    shared = w @ [1, 12] / (w @ [1, 4])  # sum w_c E[xy] / sum w_c E[x^2]
    assert [r.name for r in fit.baselines] == ["iterative", "one-shot system", "average of solutions"]
    assert system.theta == pytest.approx([shared], abs=1e-14)
    assert average.theta == pytest.approx([w @ [1, 3]], abs=1e-14)
    assert np.array_equal(run.theta, fit.protocol)
    deviation = np.sqrt(fit.covariance[0, 0])
    assert average.distance == pytest.approx(abs(w @ [1, 3] - shared) / deviation)
    assert system.distance == 0
    assert run.distance == pytest.approx(abs(fit.protocol[0] - shared) / deviation)


def test_costs_are_counted_in_numbers_messages_and_bytes():
    rng = np.random.default_rng(0)
    sites = [(rng.normal(size=(20, 3)), rng.normal(size=20)) for _ in range(5)]
    fit = fl.fit(sites, fl.Regression("y"), 0.1, local="means", baselines=True)
    run, system, average = fit.baselines
    N, d, T = 5, 4, fit.communications
    assert (run.numbers, run.messages, run.bytes) == (d * T, N * T, 16 * N * d * T)
    assert (system.numbers, system.messages, system.bytes) == (d * d + d, N, 8 * N * (d * d + 2 * d))
    assert (average.numbers, average.messages, average.bytes) == (d, N, 16 * N * d)


def test_baselines_stand_on_the_original_scale():
    rng = np.random.default_rng(1)
    x = [rng.normal(5, 2, size=(25, 3)) for _ in range(4)]
    y = [100 + z @ [1.0, 20, -3] + rng.normal(size=25) for z in x]
    fit = fl.fit(list(zip(x, y, strict=True)), fl.Regression("y"), 0.1, local="means", baselines=True)
    own = [np.linalg.lstsq(np.column_stack([z, np.ones(25)]), t)[0] for z, t in zip(x, y, strict=True)]
    together = np.linalg.lstsq(np.column_stack([np.vstack(x), np.ones(100)]), np.concatenate(y))[0]
    assert fit.baselines[1].theta == pytest.approx(together, rel=1e-9)
    assert fit.baselines[2].theta == pytest.approx(np.mean(own, axis=0), rel=1e-9)


def test_a_site_without_a_solution_of_its_own_leaves_no_average():
    sites = [*two_sites(), (np.zeros((3, 1)), np.ones(3))]
    average = fl.fit(sites, TASK, 0.1, local="means", baselines=True).baselines[2]
    assert np.isnan(average.theta).all()
    assert np.isnan(average.distance)


def test_nobody_is_compared_unless_asked():
    assert fl.fit(two_sites(), TASK, 0.1, local="means").baselines == ()

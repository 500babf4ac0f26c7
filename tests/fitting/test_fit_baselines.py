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
    assert (run.numbers, run.messages, run.bytes) == (d * T, N * T, 32 * N * d * T)
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


# value functions -----------------------------------------------------------------------------------------------------

GAMMA, PHI = 0.9, np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [0.5, 3.0]])


def walk(n, seed, cut=0.05):
    """A walk on four places that ends at both sides; the record of an episode is now and then cut."""
    rng, s, rows = np.random.default_rng(seed), 1, []
    for _ in range(n):
        t = s + (1 if rng.random() < 0.5 else -1)
        ended = t in (-1, 4)
        stop = not ended and rng.random() < cut
        rows.append((s, rng.normal() + (t == 4), t % 4, ended, stop))
        s = rng.integers(4) if ended or stop else t
    return tuple(np.array(column, float) for column in zip(*rows, strict=True))


def returns_of(log, theta):
    """G_k = r_k + discount G_{k+1}, from the end of each episode; beyond a cut, the value of the state there."""
    _, r, after, ended, cut = log
    last = (ended + cut > 0) | (np.arange(len(r)) == len(r) - 1)
    out, ahead = np.empty(len(r)), 0.0
    for k in range(len(r) - 1, -1, -1):
        if last[k]:
            ahead = 0.0 if ended[k] else PHI[int(after[k])] @ theta
        ahead = out[k] = r[k] + GAMMA * ahead
    return out


def test_monte_carlo_is_least_squares_of_returns_and_the_others_are_lstd():
    logs = [walk(200, 0), walk(300, 1)]
    fit = fl.fit(logs, fl.Value(GAMMA, features=PHI), weight="samples", baselines=True, plan=False)
    system, average, returns = fit.baselines
    assert [b.name for b in fit.baselines] == ["LSTD", "LSTD per site, averaged", "Monte Carlo"]
    assert np.array_equal(system.theta, fit.theta)
    assert np.array_equal(system.standard_error, fit.standard_error)
    own = [fl.fit([log], fl.Value(GAMMA, features=PHI), plan=False) for log in logs]
    np.testing.assert_allclose(average.theta, 0.4 * own[0].theta + 0.6 * own[1].theta, rtol=1e-9)
    spread = np.hypot(0.4 * own[0].standard_error, 0.6 * own[1].standard_error)
    np.testing.assert_allclose(average.standard_error, spread, rtol=1e-6)
    x = PHI[np.concatenate([log[0] for log in logs]).astype(int)]
    targets = np.concatenate([returns_of(log, returns.theta) for log in logs])
    np.testing.assert_allclose(returns.theta, np.linalg.lstsq(x, targets)[0], rtol=1e-8)


@pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")
@pytest.mark.long
def test_errors_of_monte_carlo_are_as_large_as_their_standard_errors():
    """Of 60 logs: mean squares of errors over standard errors are 1, to three standard errors of such a mean."""
    ratios = []
    for k in range(60):
        s, _, *rest = walk(300, k)
        noise = np.random.default_rng([5, k]).normal(size=300)  # rewards without a mean: values are 0
        found = fl.fit([(s, noise, *rest)], fl.Value(GAMMA, features=PHI), baselines=True, plan=False).baselines[-1]
        ratios.append(found.theta / found.standard_error)
    assert (np.abs(np.mean(np.square(ratios), axis=0) - 1) < 3 * np.sqrt(2 / 60)).all()

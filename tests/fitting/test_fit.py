"""fl.fit from arrays to intervals: what it solves, on which scale, how near, and what it says of wrong arguments."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import stdtrit

import fedlsa as fl
from fedlsa.errors import (
    ArgumentError,
    ArgumentTypeError,
    DivergenceError,
    FedLSAWarning,
    SiteDataError,
    UnknownNameError,
)
from fedlsa.fitting import protocol
from fedlsa.fitting.reading import read
from fedlsa.fitting.sites import open_tables

MEANS = {"step_size": 0.3, "local_steps": 5, "rounds": 500, "local": "means"}
COEFFICIENTS = np.array([1.0, -2.0, 0.5])


def panel(sizes=(60, 110, 200), seed=0, shift=3.0):
    """Sites with covariates of mean `shift` and coefficients of their own."""
    rng, out = np.random.default_rng(seed), []
    for c, n in enumerate(sizes):
        x = shift + rng.normal(size=(n, 3)) * [1.0, 2.0, 0.5]
        out.append((x, 4.0 + x @ (COEFFICIENTS + 0.3 * c) + rng.normal(size=n)))
    return out


def with_ones(sites):
    return [(np.column_stack([x, np.ones(len(x))]), y) for x, y in sites]


def averaged_solution(sites, weights, ridge=0.0):
    A = sum(w * (x.T @ x / len(x) + ridge * np.eye(x.shape[1])) for w, (x, _) in zip(weights, sites, strict=True))
    b = sum(w * x.T @ y / len(x) for w, (x, y) in zip(weights, sites, strict=True))
    return np.linalg.solve(A, b)


def transitions(n=400, d=4, seed=0, sites=3):
    rng, out = np.random.default_rng(seed), []
    for _ in range(sites):
        phi = rng.normal(size=(n + 1, d)) / 2
        out.append((phi[:-1], rng.normal(size=n) + phi[:-1, 0], phi[1:], rng.random(n) < 0.05))
    return out


# what is solved ------------------------------------------------------------------------------------------------------


def test_a_weight_per_row_gives_pooled_least_squares():
    sites = panel()
    x, y = (np.concatenate(parts) for parts in zip(*with_ones(sites), strict=True))
    found = fl.fit(sites, fl.Regression("y"), weight="samples", **MEANS)
    assert_allclose(found.solution, np.linalg.lstsq(x, y)[0], rtol=1e-10)
    assert_allclose(found.protocol, found.theta, rtol=1e-8)
    assert found.names == ("x0", "x1", "x2", "intercept")


def test_a_weight_per_site_solves_the_averaged_system():
    sites = panel()
    found = fl.fit(sites, fl.Regression("y"), weight="sites", **MEANS)
    assert_allclose(found.solution, averaged_solution(with_ones(sites), np.full(3, 1 / 3)), rtol=1e-10)
    assert_allclose(found.protocol, found.theta, rtol=1e-8)
    assert [s.weight for s in found.per_site] == pytest.approx([1 / 3] * 3)


def test_a_ridge_is_that_of_the_coordinates_of_the_run():
    sites = panel()
    task = fl.Regression("y", intercept=False, standardise=False, ridge=0.5)
    found = fl.fit(sites, task, step_size=0.02, local_steps=5, rounds=2000, local="means", weight="sites")
    assert_allclose(found.solution, averaged_solution(sites, np.full(3, 1 / 3), 0.5), rtol=1e-10)
    assert_allclose(found.protocol, found.theta, rtol=1e-8)


def test_values_with_traces_and_importance_solve_the_system_of_the_logs():
    rng = np.random.default_rng(5)
    logs = [(*log, None, rng.uniform(0.5, 1.5, len(log[1]))) for log in transitions()]
    p = fl.problems.from_transitions(logs, 0.9, trace=0.6)
    columns = [
        {f"state{j}": phi[:, j] for j in range(4)}
        | {f"next_state{j}": after[:, j] for j in range(4)}
        | {"reward": r, "terminated": ended, "importance": rho}
        for phi, r, after, ended, _, rho in logs
    ]
    found = fl.fit(columns, fl.Value(0.9, trace=0.6), **MEANS)
    assert_allclose(found.solution, p.theta_star, rtol=1e-10)
    assert_allclose(found.protocol, p.theta_star, rtol=1e-8)


# scales --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, False])
def test_coefficients_and_their_errors_do_not_depend_on_standardisation(intercept):
    sites = panel(shift=0.5)
    a = fl.fit(sites, fl.Regression("y", intercept=intercept), **MEANS)
    by_hand = {"step_size": 0.05, "local_steps": 5, "rounds": 6000, "local": "means"}
    b = fl.fit(sites, fl.Regression("y", intercept=intercept, standardise=False), **by_hand)
    assert_allclose(a.theta, b.theta, rtol=1e-8)
    assert_allclose(a.covariance, b.covariance, rtol=1e-8, atol=1e-12)
    assert_allclose(a.confidence_interval(), b.confidence_interval(), rtol=1e-7)
    for one, other in zip(a.per_site, b.per_site, strict=True):
        assert (one.distance, one.influence, one.finite_data) == pytest.approx(
            (other.distance, other.influence, other.finite_data), rel=1e-6
        )


def test_intervals_follow_a_change_of_units():
    """x in thousandths and y in thousands: coefficients a millionth as large, intercepts a thousandth."""
    sites = panel()
    a = fl.fit(sites, fl.Regression("y"), **MEANS)
    b = fl.fit([(1000 * x, y / 1000) for x, y in sites], fl.Regression("y"), **MEANS)
    factor = np.array([1e-6, 1e-6, 1e-6, 1e-3])
    assert_allclose(b.confidence_interval(), factor[:, None] * a.confidence_interval(), rtol=1e-8)
    assert_allclose(b.optimisation, factor * a.optimisation, atol=1e-10 * factor.max())


def test_a_value_has_the_interval_of_the_delta_method():
    found = fl.fit(panel(), fl.Regression("y"), **MEANS)
    points = np.array([[0.0, 0.0, 0.0], [3.0, 2.0, 1.0]])
    x = np.column_stack([points, np.ones(2)])
    value = found.predict_interval(points, level=0.9)
    assert_allclose(value.value, x @ found.theta)
    assert_allclose(value.standard_error, np.sqrt(np.diag(x @ found.covariance @ x.T)), rtol=1e-9)
    assert_allclose(value.high - value.low, 2 * stdtrit(found.degrees_of_freedom, 0.95) * value.standard_error)
    low, high = found.confidence_interval(0.9)[3]
    assert (value.low[0], value.high[0]) == pytest.approx((low, high))  # at 0 it is the intercept


# accuracy ------------------------------------------------------------------------------------------------------------


def test_epsilon_bounds_the_exact_error_about_the_datas_solution():
    sites = panel()
    found = fl.fit(sites, fl.Regression("y"), epsilon=0.05, seed=3, local="rows")
    assert found.epsilon == 0.05
    assert found.plan.rmse <= 0.05
    assert found.local == "rows"
    off = found.protocol - found.theta
    assert (np.abs(off) < 5 * found.optimisation).all()
    assert not np.array_equal(off, np.zeros(4))


def correlated(gap):
    """Sites whose two features differ by `gap` standard deviations: near-collinear where it is small."""
    rng, out = np.random.default_rng(2), []
    for n in (60, 110, 200):
        x = rng.normal(size=(n, 2)) @ [[1.0, 1.0], [0.0, gap]]
        out.append((x, 1.0 + x @ [2.0, -1.0] + rng.normal(size=n)))
    return out


def test_by_default_no_combination_of_coefficients_is_off_by_more_than_a_tenth_of_its_standard_error():
    regression = correlated(0.1), fl.Regression("y"), "means"
    for sites, task, local in ((transitions(n=60), fl.Value(0.9), "auto"), regression):
        found = fl.fit(sites, task, local=local)
        assert found.plan.rmse <= found.epsilon
        assert (found.optimisation <= 0.1 * found.standard_error * (1 + 1e-12)).all()
        off = found.protocol - found.theta
        if found.local == "means":  # then nothing is random
            assert off @ np.linalg.solve(found.covariance, off) <= 0.01 * (1 + 1e-9)


def test_intervals_are_about_the_datas_solution_however_coarse_the_run():
    fine, coarse = (fl.fit(panel(), fl.Regression("y"), epsilon=e, local="means", weight="sites") for e in (1e-6, 0.5))
    assert_allclose(fine.confidence_interval(), coarse.confidence_interval(), rtol=0, atol=0)
    assert_allclose(coarse.theta, averaged_solution(with_ones(panel()), np.full(3, 1 / 3)), rtol=1e-10)
    assert np.abs(coarse.protocol - coarse.theta).max() > 1e3 * np.abs(fine.protocol - fine.theta).max()


def test_columns_that_nearly_determine_one_another_are_the_cause_that_is_named():
    with pytest.warns(FedLSAWarning, match=r"columns 'x0', 'x1' nearly determine one another .*leave one out"):
        found = fl.fit(correlated(1e-5), fl.Regression("y"), baselines=True)
    assert_without_run(found, fl.fit(correlated(1e-5), fl.Regression("y"), plan=False, baselines=True))
    with pytest.raises(ArgumentError, match=r"error of 0.001 .* condition number"):
        fl.fit(correlated(1e-5), fl.Regression("y"), epsilon=1e-3)


def test_data_without_noise_can_be_fitted_by_default():
    x = np.random.default_rng(0).normal(size=(50, 3))
    found = fl.fit([(x, x @ COEFFICIENTS), (2 * x, 2 * x @ COEFFICIENTS)], fl.Regression("y"))
    assert_allclose(found.protocol, [*COEFFICIENTS, 0.0], atol=1e-6)
    assert_allclose(found.theta, [*COEFFICIENTS, 0.0], atol=1e-12)


def assert_without_run(found, expected):
    assert found.plan is None
    assert (found.local, found.epsilon, found.communications) == ("none", None, 0)
    assert np.isnan(found.protocol).all()
    assert np.isnan(found.optimisation).all()
    assert [b.name for b in found.baselines] == ["one-shot system", "average of solutions"][: len(found.baselines)]
    assert_allclose(found.theta, expected.theta, rtol=0, atol=0)
    assert_allclose(found.covariance, expected.covariance, rtol=0, atol=0)


@pytest.mark.filterwarnings("error")
def test_without_a_plan_there_is_the_estimate_alone():
    found = fl.fit(panel(), fl.Regression("y"), plan=False)
    assert_without_run(found, fl.fit(panel(), fl.Regression("y"), **MEANS))
    assert found.error["finite data"] == pytest.approx(1)
    assert found.summary()
    for wrong in ({"epsilon": 0.1}, MEANS):
        with pytest.raises(ArgumentError, match=r"plan must not be False where .* asks for a run"):
            fl.fit(panel(), fl.Regression("y"), plan=False, **wrong)


@pytest.mark.parametrize(("wrong", "kind"), [("many", ArgumentTypeError), (0, ArgumentError), (np.nan, ArgumentError)])
@pytest.mark.parametrize("asked", [{"epsilon": 0.3}, MEANS], ids=["planned", "by hand"])
def test_the_samples_that_a_plan_may_use_must_be_a_number_of_at_least_1(wrong, kind, asked):
    with pytest.raises(kind, match="max_samples must be a finite number at least 1; got"):
        fl.fit(panel(), fl.Regression("y"), max_samples=wrong, **asked)


def test_a_constant_target_has_an_estimate_and_no_run():
    x = np.random.default_rng(0).normal(size=(50, 3))
    with pytest.warns(FedLSAWarning, match=r"is the target constant\?"):
        found = fl.fit([(x, np.full(50, 7.0)), (2 * x, np.full(50, 7.0))], fl.Regression("y"))
    assert_allclose(found.theta, [0, 0, 0, 7], atol=1e-12)
    assert found.plan is None


def test_what_is_given_by_hand_is_run_and_priced_by_exact_theory():
    sites = panel()
    by_hand = {"step_size": 0.02, "local_steps": 10, "rounds": 60}
    with pytest.warns(FedLSAWarning, match="more rounds or a smaller step_size would help"):
        found = fl.fit(
            sites, fl.Regression("y", intercept=False, standardise=False), method="fedlsa", weight="sites", **by_hand
        )
    p = fl.problems.regression(sites)
    exact = fl.theory.exact(p, fl.FedLSA(0.02, 10), 60, theta_0=np.zeros(3)).isel(rounds=-1)
    assert found.plan.algorithm == fl.FedLSA(0.02, 10)
    assert found.communications == 60
    assert found.epsilon is None
    assert found.plan.rmse == pytest.approx(float(np.sqrt(exact["mse"])))
    bias, drift = exact["mean"].values - p.theta_star, fl.theory.bias(p, 0.02, 10)
    left, drifted = length(found, bias - drift), length(found, drift)
    assert found.error["start"] / found.error["drift"] == pytest.approx(left / drifted)
    assert np.hypot(found.error["start"], found.error["drift"]) == pytest.approx(length(found, bias))
    largest = np.sqrt(float(exact["noise"]) / np.linalg.eigvalsh(found.covariance)[0] / 3)
    assert found.error["noise"] == pytest.approx(largest)
    assert_allclose(found.optimisation, np.sqrt(bias**2 + float(exact["noise"])))


@pytest.mark.parametrize("method", ["fedlsa", "scafflsa"])
def test_steps_on_means_have_no_noise_and_their_error_is_what_came_out(method):
    found = fl.fit(panel(), fl.Regression("y"), method=method, step_size=0.1, local_steps=8, rounds=40, local="means")
    assert found.error["noise"] == 0
    assert all(s.noise == 0 for s in found.per_site)
    assert_allclose(found.optimisation, np.abs(found.protocol - found.theta), atol=1e-14)
    if method == "scafflsa":
        assert found.error["drift"] == 0
        assert found.error["start"] == pytest.approx(length(found, found.protocol - found.theta))
    else:
        assert found.error["drift"] > 0


def test_the_sites_share_the_noise_of_the_run():
    sites = panel()
    sites[2] = (sites[2][0], sites[2][1] + 20 * np.random.default_rng(1).normal(size=200))
    found = fl.fit(sites, fl.Regression("y"), step_size=0.001, local_steps=5, rounds=2000, local="rows")
    noise = np.array([s.noise for s in found.per_site])
    assert np.sqrt(np.sum(noise**2)) == pytest.approx(found.error["noise"])
    assert noise[2] > 2 * noise[:2].max()


def length(found, delta):
    """In standard errors: sqrt(delta^T Sigma^-1 delta / d)."""
    return np.sqrt(delta @ np.linalg.solve(found.covariance, delta) / len(delta))


def test_distance_and_influence_of_a_site_are_those_of_its_own_system():
    sites = panel()
    found = fl.fit(sites, fl.Regression("y"), weight="sites", **MEANS)
    full = with_ones(sites)
    A = sum(x.T @ x / len(x) for x, _ in full) / 3
    for (x, y), site in zip(full, found.per_site, strict=True):
        alone = np.linalg.lstsq(x, y)[0]
        assert_allclose(site.theta, alone, rtol=1e-8)
        assert site.distance == pytest.approx(length(found, alone - found.theta), rel=1e-6)
        xi = x.T @ (x @ found.theta - y) / len(x)
        assert site.influence == pytest.approx(length(found, np.linalg.solve(A, xi) / 3), rel=1e-6)


@pytest.mark.parametrize("standardise", [True, False])
def test_units_of_columns_do_not_decide_which_site_looks_odd(standardise):
    """Years for days, with or without standardisation: every length of every site stays as it is."""
    task, sites = fl.Regression("y", standardise=standardise), panel(shift=0.2)
    scaled = [(x * [1.0, 1e-3, 1.0], 7 * y) for x, y in sites]
    by_hand = {"step_size": 1e-3, "local_steps": 2, "rounds": 10, "local": "means"}
    with pytest.warns(FedLSAWarning, match="standard errors from the data's solution"):
        a, b = (fl.fit(s, task, **by_hand) for s in (sites, scaled))
    for one, other in zip(a.per_site, b.per_site, strict=True):
        for name in ("distance", "influence", "finite_data"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-7)
    if standardise:  # else units change the run itself
        assert a.error == pytest.approx(b.error, rel=1e-7)


def test_a_coarse_run_says_so():
    with pytest.warns(FedLSAWarning, match="predicted distance of .* standard errors from the data's solution"):
        found = fl.fit(panel(), fl.Regression("y"), step_size=0.05, local_steps=2, rounds=3)
    assert (found.optimisation > 0.1 * found.standard_error).all()


# seeds and arguments -------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_answer_and_another_seed_another():
    a, b, c = (
        fl.fit(panel(), fl.Regression("y"), step_size=0.002, local_steps=5, rounds=60, seed=seed, local="rows")
        for seed in (1, 1, 2)
    )
    assert_allclose(a.protocol, b.protocol, rtol=0, atol=0)
    assert (a.protocol != c.protocol).all()
    assert_allclose(a.optimisation, c.optimisation, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        ({"epsilon": 0.1, "step_size": 0.1}, ArgumentError, "epsilon and step_size must not both be given"),
        ({"step_size": 0.1, "rounds": 3}, ArgumentError, "must be given together; got no local_steps"),
        ({"epsilon": 0.0}, ArgumentError, "epsilon must be a finite number above 0; got 0"),
        ({"weight": "rows"}, UnknownNameError, "weight must be one of 'sites', 'samples'"),
        ({"local": "mean"}, UnknownNameError, "did you mean 'means'"),
        ({"local": np.zeros(2, "i4,f8")}, ArgumentTypeError, "local must be one of 'auto', 'rows', 'log', 'means'"),
        ({"method": "scaflsa"}, UnknownNameError, "did you mean 'scafflsa'"),
        ({"lag": -1}, ArgumentError, "lag must be a non-negative integer; got -1"),
        ({"lag": 200}, ArgumentError, "lag must be less than the rows of the largest site, 200; got 200"),
        ({"lag": 10**18}, ArgumentError, "lag must be less than the rows of the largest site, 200; got 1000"),
        ({"memory": 100.0, "local": "rows"}, ArgumentError, "local must be 'means' where rows take more than memory"),
    ],
)
def test_wrong_arguments_are_named(wrong, kind, words):
    with pytest.raises(kind, match=words):
        fl.fit(panel(), fl.Regression("y"), **wrong)


def test_a_site_in_which_columns_determine_one_another_is_an_error_only_where_all_are():
    sites = panel()
    twice = [(np.column_stack([x, 2 * x[:, 0]]), y) for x, y in sites]
    with pytest.raises(SiteDataError, match="determine one another"):
        fl.fit(twice, fl.Regression("y"), **MEANS)
    sites[0] = (np.column_stack([sites[0][0][:, :2], sites[0][0][:, 0]]), sites[0][1])
    found = fl.fit(sites, fl.Regression("y"), **MEANS)
    own = np.linalg.lstsq(np.column_stack([sites[0][0][:, :2], np.ones(len(sites[0][1]))]), sites[0][1])[0]
    np.testing.assert_allclose(found.per_site[0].theta, [np.nan, own[1], np.nan, own[2]], rtol=1e-8)
    assert np.isfinite(found.standard_error).all()


def test_an_unstable_step_size_is_an_error_that_names_a_stable_one():
    with pytest.raises(DivergenceError, match=r"step_size must be below 0\.\d+, .*; got 3") as error:
        fl.fit(panel(), fl.Regression("y"), step_size=3.0, local_steps=5, rounds=3000, local="rows")
    limit = float(str(error.value).split("below ")[1].split(",")[0])
    with pytest.warns(FedLSAWarning, match="standard errors from the data's solution"):  # stable, and noisy
        fl.fit(panel(), fl.Regression("y"), step_size=0.97 * limit, local_steps=5, rounds=100, local="rows")
    with pytest.raises(DivergenceError, match="left the range of numbers at round"):
        fl.fit(panel(), fl.Regression("y"), step_size=9.0, local_steps=5, rounds=3000, local="means")


def test_where_rows_would_need_very_many_steps_the_choice_falls_on_means():
    rng = np.random.default_rng(5)
    sites = [(X := rng.normal(size=(60, 2)), X @ [1.0, 2.0] + c + rng.normal(size=60)) for c in range(3)]
    task = fl.Regression("y")
    near, far, beyond = (fl.fit(sites, task, epsilon=epsilon) for epsilon in (1e-2, 1e-4, 1e-9))
    assert near.local == "rows"
    assert len(sites) * near.plan.samples <= 1e8
    assert far.local == "means"
    assert len(sites) * fl.plan(_rows(sites), 1e-4, theta_0=np.zeros(3)).samples > 1e8
    assert beyond.local == "means"  # no step size gets there on rows
    assert np.abs(beyond.protocol - beyond.theta).max() < 1e-7


def test_by_default_the_size_of_the_data_decides_between_rows_and_means():
    rng, hand = np.random.default_rng(5), {"step_size": 0.01, "local_steps": 1, "rounds": 1}

    def fitted(d, sizes):
        sites = [(X := rng.normal(size=(n, d - 1)), X.sum(axis=1) + rng.normal(size=n)) for n in sizes]
        found = fl.fit(sites, fl.Regression("y"), **hand)
        return found.local, " ".join(found.summary().foot)

    largest, foot = fitted(3, [1000] * 10)
    assert largest == "rows"
    assert "Steps use rows by default up to 3 coefficients, 10 sites and 10,000 rows." in foot
    for d, sizes in ((4, [20] * 2), (3, [20] * 11), (3, [1001] + [1000] * 9)):
        beyond, foot = fitted(d, sizes)
        assert beyond == "means"
        assert "Steps use means by default beyond 3 coefficients, 10 sites or 10,000 rows: rows take long" in foot


def _rows(sites):
    """The standardised rows of all sites as a problem, written out."""
    X, y = np.concatenate([X for X, _ in sites]), np.concatenate([y for _, y in sites])
    z = [np.column_stack([(own - X.mean(axis=0)) / X.std(axis=0), np.ones(len(own))]) for own, _ in sites]
    return fl.problems.regression([(u, (own - y.mean()) / y.std()) for u, (_, own) in zip(z, sites, strict=True)])


# ridge ---------------------------------------------------------------------------------------------------------------


def pooled_rows(seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(90, 3)) * [1.0, 3.0, 0.5] + [0.5, -2.0, 0.0]
    return X, 100 + X @ [1.0, 2.0, 3.0] + rng.normal(size=90)


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_ridge_is_that_of_scikit_learn_and_never_of_the_intercept(standardise, intercept):
    """min mean (y - X w - w_0)^2 + ridge ||w||^2 is its alpha = n ridge, on standardised columns or as they are."""
    linear = pytest.importorskip("sklearn.linear_model")
    X, y = pooled_rows()
    # without an intercept columns cannot be centred: then the scale is the root mean square
    spread = (X.std(axis=0) if intercept else np.sqrt(np.mean(X**2, axis=0))) if standardise else np.ones(3)
    them = linear.Ridge(alpha=0.5 * len(X), fit_intercept=intercept, solver="cholesky").fit(X / spread, y)
    task = fl.Regression("y", intercept=intercept, standardise=standardise, ridge=0.5)
    sites = [(X[:20], y[:20]), (X[20:50], y[20:50]), (X[50:], y[50:])]
    found = fl.fit(sites, task, epsilon=1e-6, weight="samples", local="means")
    expected = [*(them.coef_ / spread), *([them.intercept_] if intercept else [])]
    assert_allclose(found.theta, expected, rtol=1e-9)
    assert_allclose(found.protocol, expected, rtol=1e-4)
    rows = fl.site_problem(
        sites, task, "samples", "rows"
    )  # whose observations have the ridge of all coefficients alike
    T, t = read(open_tables(sites, task), task, "samples", 1e9, lambda *_: None)[0].scale.original()
    assert_allclose(T @ rows.theta_star + t, expected, rtol=1e-9)


def test_a_ridge_leaves_the_error_bar_of_the_intercept_as_it_is():
    """Features of mean 0 and variance 1 at every site: the intercept is the mean target, whatever the ridge."""
    x = np.tile([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], (6, 1))
    sites = [(x, 100 + x @ [1.0, 2.0] + np.random.default_rng(c).normal(size=24)) for c in range(3)]
    plain, ridged = (
        fl.fit(sites, fl.Regression("y", standardise=s, ridge=0.5), 0.1, local="means") for s in (True, False)
    )
    assert_allclose(plain.theta, ridged.theta, rtol=1e-10)  # columns are standardised as they are
    assert_allclose(plain.standard_error, ridged.standard_error, rtol=1e-8)
    assert ridged.theta[2] == pytest.approx(np.mean([y for _, y in sites]))
    squares = sum(np.sum((y - x @ ridged.theta[:2] - ridged.theta[2]) ** 2) for _, y in sites)
    leverage = (1 + 2 / 1.5) / 72  # of every row, for the squares of the features are all 1
    assert ridged.standard_error[2] == pytest.approx(np.sqrt(squares) / 72 / (1 - leverage))
    assert_allclose([s.theta[2] for s in ridged.per_site], [y.mean() for _, y in sites])  # nor that of a site's own


@pytest.mark.parametrize("local", ["rows", "log", "means"])
@pytest.mark.parametrize("method", ["scafflsa", "fedlsa", "scaffnew"])
def test_a_short_run_site_by_site_is_the_run_of_the_engine(local, method, monkeypatch):
    sites, by_hand = panel(), {"step_size": 0.01, "local_steps": 150, "rounds": 5}
    found = []
    for limit in (protocol.BY_HAND_SITE_BY_SITE, -1):
        monkeypatch.setattr(protocol, "BY_HAND_SITE_BY_SITE", limit)
        found.append(fl.fit(sites, fl.Regression("y"), local=local, method=method, **by_hand).protocol)
    assert_allclose(*found, rtol=1e-10)


def test_long_rounds_on_means_are_powers_of_a_map_however_many_sites_there_are(monkeypatch):
    def one_by_one(*_, **__):
        raise AssertionError("10^12 steps, one at a time")

    monkeypatch.setattr("fedlsa.engine.simulate", one_by_one)
    rng = np.random.default_rng(6)
    sites = [(rng.normal(size=(8, 1)), rng.normal(size=8)) for _ in range(300)]
    by_hand = {"step_size": 1e-8, "local_steps": 10**8, "rounds": 40, "local": "means"}
    found = fl.fit(sites, fl.Regression("y"), **by_hand)
    assert_allclose(found.protocol, found.theta, atol=0.1 * found.standard_error.min())

"""Plans from three scalars per site, held to exact theory; plans from moments, held to fl.plan."""

import math
import warnings

import numpy as np
import pytest
from gallery import uncentred
from tiers import longer

import fedlsa as fl
from fedlsa.errors import ArgumentError, MessageError, SiteDataError
from fedlsa.fitting import run_plan as planning
from fedlsa.fitting.reading import read
from fedlsa.fitting.rows import Piece
from fedlsa.fitting.run_plan import PlanNumbers
from fedlsa.fitting.sites import open_tables
from fedlsa.fitting.sums import SiteSums
from fedlsa.network.coordinator.agreement import scale_from
from fedlsa.network.protocol.agreed_design import plan_numbers, plan_sums, scale_sums
from fedlsa.network.protocol.messages import Measurement
from fedlsa.network.protocol.ring import STATISTICS, to_integers
from fedlsa.network.site import facts as site
from fedlsa.network.site.site_data import open_data, prepare_steps
from fedlsa.theory.problem_moments import moments

D, N = 4, 3


def regression(seed, rows=(40, 200), spread=0.4):
    """Sites with features and coefficients of their own, scaled as a standardised task scales them."""
    rng = np.random.default_rng(seed)
    common, sites = rng.normal(size=D), []
    for _ in range(N):
        X = rng.normal(size=(int(rng.integers(*rows)), D)) @ (np.eye(D) + spread * rng.normal(size=(D, D)))
        y = X @ (common + rng.normal(size=D)) + rng.uniform(0.1, 2) * rng.normal(size=len(X))
        sites.append((X, y))
    size = np.sqrt(np.mean([(X**2).mean(axis=0) for X, _ in sites], axis=0))
    unit = np.sqrt(np.mean([(y**2).mean() for _, y in sites]))
    return fl.problems.regression([(X / size, y / unit) for X, y in sites])


def garnet(seed):
    return fl.problems.garnet(
        agents=N + 1, states=12, actions=2, branching=3, features=D, discount=(0.5, 0.8, 0.95)[seed % 3], seed=seed,
        heterogeneous=True, perturbation=0.02, preset="paper",
    )  # fmt: skip


PROBLEMS = [regression(seed) for seed in range(8)] + [garnet(seed) for seed in range(9)]


def measured(p):
    """What the agents of a problem would say as sites, by the definitions."""
    out = []
    for c in range(p.n_agents):
        span = list(p.spans())[p.assignment[c]]
        (A, b), prob, A_c, b_c = p.observations.matrices(span), p.prob[span], p.A_bar[c], p.b_bar[c]
        values = np.linalg.eigvalsh((A_c + A_c.T) / 2)
        squares = np.linalg.eigvalsh(np.einsum("k,kij,kil->jl", prob, A, A))[-1]
        own = np.linalg.lstsq(A_c, b_c, rcond=1e-12)[0]
        noise = [prob @ ((A @ t - b - A_c @ t + b_c) ** 2).sum(axis=1) for t in (own, np.zeros(p.dim))]
        highest = max(values[-1], math.sqrt(squares / (4 * (p.dim + 2))))
        out.append((float(values[0]), highest, float(max(noise))))
    return out


def numbers(said, weights):
    """What the server learns of three scalars per site: their sums."""
    each = [plan_sums(float(w), *scalars) for w, scalars in zip(weights, said, strict=True)]
    return plan_numbers([float(sum(column)) for column in zip(*each, strict=True)])


def planned(p, method, relative=0.15):
    epsilon = relative * float(np.linalg.norm(p.theta_star))
    return planning.plan_from_scalars(numbers(measured(p), p.weights), (), epsilon, method, p.dim)


NO_SHARE = np.zeros((0, 1), np.int16)


def algorithm(run):
    """A planned method as fl.simulate knows it."""
    if run.method == "scaffnew":
        return fl.Scaffnew(run.step_size, 1 / run.local_steps)
    return {"fedlsa": fl.FedLSA, "scafflsa": fl.SCAFFLSA}[run.method](run.step_size, run.local_steps)


def exact(p, run):
    """The root mean squared error : (rounds + 1,) and the movements of the mean : (rounds,)."""
    m = fl.theory.exact(p, algorithm(run), run.rounds, np.zeros(p.dim), record=range(run.rounds + 1))
    return np.sqrt(m["mse"].values), np.linalg.norm(np.diff(m["mean"].values, axis=0), axis=1)


def exact_error(p, run):
    return exact(p, run)[0]


@pytest.mark.parametrize("method", ["scafflsa", longer("scaffnew")])
@pytest.mark.parametrize("relative", [longer(0.15), 0.02])
def test_exact_theory_says_that_planned_runs_reach_epsilon_and_stay_there_once_they_may_stop(method, relative):
    for p in PROBLEMS[:4] + PROBLEMS[8:12]:
        run = planned(p, method, relative)
        error, movement = exact(p, run)
        stop = next(t for t in range(1, run.rounds + 1) if planning.has_settled(movement[:t], run.rate, run.epsilon))
        assert (error[stop:] <= run.epsilon).all()
        assert error[-1] <= run.epsilon / 4


@pytest.mark.long
def test_planned_runs_need_few_more_rounds_than_those_of_a_planner_that_knows_everything():
    ratios = []
    for p in PROBLEMS[:2] + PROBLEMS[8:10]:
        run = planned(p, "scafflsa", 0.1)
        first = int(np.argmax(exact_error(p, run) <= run.epsilon))
        ratios.append(first / fl.plan(p, run.epsilon, theta_0=np.zeros(p.dim)).rounds)
    assert np.median(ratios) <= 2
    assert max(ratios) <= 6


@pytest.mark.parametrize("method", ["scafflsa", "scaffnew"])
def test_runs_that_stop_by_their_movements_are_within_epsilon(method):
    for p in PROBLEMS[4:6] + PROBLEMS[12:15]:
        run = planned(p, method, 0.3)
        R = min(run.rounds, 25)
        theta = fl.simulate(p, algorithm(run), R, [1], np.zeros(p.dim), record=range(R + 1))["theta"].values[0]
        movement = np.linalg.norm(np.diff(theta, axis=0), axis=1)
        stop = next(t for t in range(1, R + 1) if planning.has_settled(movement[:t], run.rate, run.epsilon))
        assert np.linalg.norm(theta[stop] - p.theta_star) <= run.epsilon


def test_a_site_that_cannot_determine_all_coefficients_is_planned_for():
    rng = np.random.default_rng(5)
    sites = [(rng.normal(size=(n, D)), rng.normal(size=n)) for n in (D - 1, 60, 60)]
    p = fl.problems.regression(sites)
    said = measured(p)
    assert said[0][0] < 1e-12
    found = numbers([(min(said[0][0], 0.0), *said[0][1:]), *said[1:]], p.weights)
    assert found.drifting == 1
    highest = max(scalars[1] for scalars in said)
    assert highest <= found.L <= 3 ** (1 / 8) * highest
    run = planning.plan_from_scalars(found, (), 0.05, "scafflsa", D)
    assert run.step_size * run.local_steps * found.L == pytest.approx(1, rel=1e-3)
    assert exact_error(p, run)[-1] <= 0.05


def test_the_plan_follows_its_formulas():
    said = PlanNumbers(a=0.5, L=2.0, sigma2=6.0, drifting=0)
    run = planning.plan_from_scalars(said, (), 0.01, "scafflsa", 6)
    r = (1 - math.exp(-0.5)) / 3  # a = 0.5, L = 2
    assert run.rate == pytest.approx(r, rel=1e-14)
    assert run.step_size == pytest.approx(r * 0.5 * 1e-4 / (2 * 6.0), rel=1e-14)  # sigma^2 = (8 + 16) / 4
    assert run.local_steps == round(1 / run.step_size)
    quiet = planning.plan_from_scalars(PlanNumbers(0.25, 1.0, 8.0, 0), (), 100.0, "scaffnew", 6)
    assert quiet.step_size == pytest.approx(0.25 / (8 * 8), rel=1e-14)
    further = planning.plan_from_scalars(said, (), 0.01, "scafflsa", 6, distance=1e6)
    assert further.rounds > run.rounds
    assert (further.step_size, further.local_steps) == (run.step_size, run.local_steps)
    assert f"at most {run.rounds} rounds" in run.sentence


def test_the_stop_rule_waits_for_three_small_movements():
    run = planning.RunPlan("scafflsa", 0.1, 10, 100, 0.5, 0.2, "")
    assert planning.remaining_error([0.0, 0.0], 0.2) == math.inf
    assert planning.remaining_error([9.0, 0.3, 0.4, 0.5], 0.2) == pytest.approx(math.sqrt(0.5 / 3) / 0.2)
    assert not planning.has_settled([1.0, 0.01, 0.01], run.rate, run.epsilon)
    assert planning.has_settled([1.0, 0.1, 0.1, 0.1], run.rate, run.epsilon)
    assert not planning.has_settled([0.0] * 5, None, 0.5)


def test_what_scalars_cannot_promise_is_refused_with_a_way_out():
    said = PlanNumbers(0.5, 1.0, 1.0, 0)
    with pytest.raises(ArgumentError, match=r"cannot bound FedLSA's bias .*share_moments = true.*; got 'fedlsa'"):
        planning.plan_from_scalars(said, (), 0.1, "fedlsa", D)
    with pytest.raises(ArgumentError, match=r"must have a positive mean .*share_moments = true.*; got -0.5"):
        planning.plan_from_scalars(PlanNumbers(-0.5, 1.0, 1.0, 1), (), 0.1, "scafflsa", D)
    with pytest.raises(ArgumentError, match=r"epsilon must be larger: rounds would have .* local steps; got 1e-08"):
        planning.plan_from_scalars(said, (), 1e-8, "scafflsa", D)
    with pytest.raises(ArgumentError, match="epsilon must be a finite number above 0; got 0"):
        planning.plan_from_scalars(said, (), 0, "scafflsa", D)
    with pytest.raises(ArgumentError, match="site 0 does not"):
        planning.stack_moments([Measurement("r", 10, 1, 0.0, NO_SHARE)], np.ones(1))
    for sums in ([1.0, -1.0, 1.0, 0.0], [1.0, 1.0, -1.0, 0.0], [1.0, 1.0, 1.0]):
        with pytest.raises(MessageError, match="the sums of all sites must have"):
            plan_numbers(sums)


def with_moments(p):
    m, noise = moments(p), uncentred(moments(p))
    row = [int(np.flatnonzero(np.unique(p.assignment) == t)[0]) for t in p.assignment]
    return [Measurement("r", 100, 1, 0.0, NO_SHARE, m.A_bar[t], m.b_bar[t], noise[t]) for t in row], numbers(
        measured(p), p.weights
    )


@pytest.mark.parametrize("method", ["fedlsa", "scafflsa"])
def test_with_moments_the_plan_is_that_of_fl_plan_and_the_solution_is_known(method):
    p = PROBLEMS[1]
    (said, found), epsilon = with_moments(p), 0.1 * float(np.linalg.norm(p.theta_star))
    run = planning.plan_from_moments(planning.stack_moments(said, p.weights), found, (), epsilon, method)
    best = fl.plan(p, epsilon, method=method, theta_0=np.zeros(D))
    assert (run.rounds, run.local_steps) == (best.rounds, best.algorithm.local_steps)
    assert run.step_size == pytest.approx(best.algorithm.step_size, rel=1e-9)
    assert exact_error(p, run)[-1] <= epsilon
    assert run.rate is None
    solution = planning.solve_shared_moments(planning.stack_moments(said, p.weights), [100] * N, list("abcd"))
    np.testing.assert_allclose(solution, p.theta_star, rtol=1e-10)


def test_steps_on_means_are_planned_without_noise():
    p = PROBLEMS[2]
    said, found = with_moments(p)
    run = planning.plan_from_moments(
        planning.stack_moments(said, p.weights), found, (), 1e-6, "scafflsa", local="means"
    )
    means = fl.problems.from_observations([([1.0], A[None], b[None]) for A, b in zip(p.A_bar, p.b_bar, strict=True)])
    assert exact_error(means, run)[-1] <= 1e-6
    for method in ("scafflsa", "scaffnew"):  # Scaffnew's mean shrinks faster than its runs do, so runs are looked at
        run = planning.plan_from_scalars(numbers(measured(p), p.weights), (), 1e-6, method, D, local="means")
        R = min(run.rounds, 80)
        r = fl.simulate(means, algorithm(run), R, 4, np.zeros(D), record=range(R + 1))
        for theta in r["theta"].values:
            movement = np.linalg.norm(np.diff(theta, axis=0), axis=1)
            stop = next(t for t in range(1, R + 1) if planning.has_settled(movement[:t], run.rate, run.epsilon))
            assert np.linalg.norm(theta[stop] - p.theta_star) <= 1e-6


def test_beyond_exact_moments_a_plan_from_moments_is_the_one_from_scalars():
    d = 24
    A, noise = np.eye(d), np.zeros((d * (d + 1) // 2, (d + 1) * (d + 2) // 2))
    noise[0, -1] = 1.0
    said, found = [Measurement("r", 100, 1, 0.0, NO_SHARE, A, np.ones(d), noise)] * 2, PlanNumbers(1.0, 1.0, 0.5, 0)
    run = planning.plan_from_moments(planning.stack_moments(said, np.array([0.5, 0.5])), found, (), 0.1, "scafflsa")
    assert run == planning.plan_from_scalars(found, (), 0.1, "scafflsa", d, math.sqrt(d))


def summary_of(X, y):
    """Moments of a site's columns."""
    sums = SiteSums(["site"])
    sums.add(X, Piece(X, X, y))
    return sums.summary()


def summed(parts):
    """The sums of all sites as the server reads them from shares: integers."""
    return [sum(column) for column in zip(*(to_integers(part, STATISTICS.unit) for part in parts), strict=True)]


@pytest.mark.parametrize("far", [0.0, 1e7])
def test_coordinates_from_sums_are_those_of_a_fit(far):
    rng = np.random.default_rng(0)
    data = [
        {"x": rng.normal(far + c, 1 + c, 50 + c), "z": rng.normal(size=50 + c), "y": rng.normal(size=50 + c)}
        for c in (0, 1)
    ]
    task = fl.Regression("y")
    for weight in ("sites", "samples"):
        fitted, weights, _ = read(open_tables(data, task), task, weight, 1e9, lambda *_: None)
        np.testing.assert_allclose(planning.weights_of([50, 51], weight), weights, rtol=1e-15)
        parts = [
            scale_sums(summary_of(np.column_stack([columns["x"], columns["z"]]), columns["y"]), float(w))
            for columns, w in zip(data, weights, strict=True)
        ]
        scale = scale_from(summed(parts), task, ["x", "z", "intercept"], ["site-1", "site-2"])
        np.testing.assert_allclose(scale.centre, fitted.scale.centre, rtol=1e-14)
        np.testing.assert_allclose(scale.spread, fitted.scale.spread, rtol=1e-14 + 1e-15 * far)  # of means
        assert (scale.y_spread, scale.intercept) == (pytest.approx(fitted.scale.y_spread, rel=1e-14), True)
    assert scale_from(None, fl.Value(0.9), ["a"], ["s1", "s2"]).trivial


def test_a_column_that_is_constant_everywhere_is_named_whatever_the_weights():
    rng = np.random.default_rng(1)
    parts = [
        scale_sums(summary_of(np.column_stack([np.full(20, 0.1), rng.normal(size=20)]), rng.normal(size=20)), w)
        for w in (0.1, 0.2, 0.7)
    ]
    with pytest.raises(SiteDataError, match=r"column 'x' has the same value, 0.1, in every row of all 3 sites"):
        scale_from(summed(parts), fl.Regression("y"), ["x", "z", "intercept"], ["a", "b", "c"])


def test_sums_that_cannot_be_are_refused():
    with pytest.raises(SiteDataError, match="sums of 2 columns for 3 coefficients"):
        scale_from([4, 0, 0, 4, 4], fl.Regression("y"), ["x", "z", "intercept"], ["a"])
    for sums in ([0, 0, 0, 4, 4], [4, 0, 0, 4], [4, 8, 0, 4, 4]):
        with pytest.raises(MessageError, match="the sums of all sites must"):
            scale_from(sums, fl.Regression("y"), ["x", "intercept"], ["a"])


def test_no_site_counts_for_more_than_is_allowed_whatever_it_says_of_its_rows():
    np.testing.assert_allclose(planning.weights_of([2**62, 10, 30], "samples"), [0.5, 0.125, 0.375])
    np.testing.assert_allclose(planning.weights_of([2**62, 10], "samples"), [1, 0], atol=1e-17)  # two: as they agree
    np.testing.assert_allclose(planning.weights_of([2**62, 10], "samples", 0.6), [0.6, 0.4])
    np.testing.assert_allclose(planning.weights_of([2**62, 2**61, 10, 10], "samples", 0.3), [0.3, 0.3, 0.2, 0.2])
    np.testing.assert_allclose(planning.weights_of([5, 10, 1], "sites"), [1 / 3] * 3)
    np.testing.assert_allclose(planning.weights_of([100, 1, 1], "samples", 0.1), [1 / 3] * 3)  # it must sum to 1


def test_from_data_to_a_run_that_stops_by_itself_beside_the_pooled_solution(tmp_path):
    rng = np.random.default_rng(3)
    task, data = fl.Regression("y"), []
    for c in range(N):
        X = rng.normal(c, 2, size=(120 + 40 * c, D - 1))
        data.append((X, X @ [1.0, -1, 0.5] + c + rng.normal(size=len(X))))
    held = []
    for c, entry in enumerate(data):
        held.append(open_data(None, f"in:memory{c}", task))
        held[-1].__dict__["opened"] = open_tables([entry], task)[0]
    w = planning.weights_of([len(X) for X, _ in data], "samples")
    summaries = [summary_of(X, y) for X, y in data]
    sums = summed([scale_sums(one, float(x)) for one, x in zip(summaries, w, strict=True)])
    scale = scale_from(sums, task, ["x0", "x1", "x2", "intercept"], ["a", "b", "c"])
    found = [site.measure(h.opened, task, scale, share_moments=True) for h in held]
    said = [
        Measurement("r", len(X), 1, 0.0, NO_SHARE, *moments) for (X, _), (_, moments) in zip(data, found, strict=True)
    ]
    run = planning.plan_from_scalars(numbers([scalars for scalars, _ in found], w), (), 0.05, "scafflsa", D)
    local = [prepare_steps(h, task, scale, tmp_path / str(c))[0] for c, h in enumerate(held)]
    theta, xi, movement, H = np.zeros(D), np.zeros((N, D)), [], run.local_steps
    while not planning.has_settled(movement, run.rate, run.epsilon):
        assert len(movement) < run.rounds
        first = len(movement) * H
        hat = np.stack([local[c](theta, xi[c], run.step_size, H, first, 0, c) for c in range(N)])
        xi += (w @ hat - hat) / (run.step_size * H)
        movement.append(float(np.linalg.norm(w @ hat - theta)))
        theta = w @ hat
    best = planning.solve_shared_moments(
        planning.stack_moments(said, w), [len(X) for X, _ in data], ["x0", "x1", "x2", "intercept"]
    )
    assert np.linalg.norm(theta - best) <= 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = fl.fit(data, task, 0.05)
    T, t = scale.original()
    np.testing.assert_allclose(T @ best + t, fitted.solution, rtol=1e-9)

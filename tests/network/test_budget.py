"""What a privacy budget buys: exact theory with noise, held to runs with the noise and the clips that it plans."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from memory_world import MemoryWorld, by_hand

import fedlsa as fl
from fedlsa.engine.local import Means, Rows, alias_slots
from fedlsa.engine.reference import Iterate, serve
from fedlsa.errors import ArgumentError
from fedlsa.network.coordinator.run_loop import complete_run
from fedlsa.network.protocol.ring import Coding, encode
from fedlsa.network.protocol.run_settings import RunSettings
from fedlsa.network.site import orders
from fedlsa.theory.privacy import delta_left, discrete_gaussian, epsilon_of, privacy_spent, rho_of_answer
from fedlsa.theory.private_plans import (
    NoisyRun,
    PrivacyBudget,
    affordable,
    best_run,
    least_error,
    noise_sentence,
    noisy_run,
)
from fedlsa.theory.problem_moments import moments

BEYOND = 4.5  # standard errors that a simulated mean may lie off


def tables(sites=6, rows=300, d=3, spread=0.3, seed=0):
    """Features in a ball and targets in an interval, so that gradients are bounded."""
    rng, out = np.random.default_rng(seed), []
    common = rng.normal(size=d)
    for _ in range(sites):
        x = rng.normal(size=(rows, d))
        x /= np.maximum(np.linalg.norm(x, axis=1), 1)[:, None]
        out.append((x, x @ (common + spread * rng.normal(size=d)) + rng.uniform(-0.3, 0.3, rows)))
    return out


def run_plan(plan, sites, unit, seeds, row_clip=None):
    """Squared errors at the end of runs as planned, by the sites' own local steps, coding and noise: (seeds,); and
    which part of the uploads was clipped."""
    p = fl.problems.regression(sites)
    N, d = p.n_agents, p.dim
    coding = Coding(plan.clip, plan.noise, unit, row_clip)
    local = [
        Rows(x, x, y, 0.0, alias_slots(len(y)), row_clip, averaged=True)
        if row_clip
        else Means(x.T @ x / len(y), x.T @ y / len(y))
        for x, y in sites
    ]
    algorithm = {"fedlsa": fl.FedLSA, "scafflsa": fl.SCAFFLSA}[plan.method](plan.step_size, plan.local_steps)
    gain = 0.0 if plan.method == "fedlsa" else 1 / (plan.step_size * plan.local_steps)
    source, errors, clipped = random.Random(1), [], 0
    for _ in range(seeds):
        now = Iterate(np.zeros(d), np.zeros((N, d)), np.zeros(d), np.zeros(d), np.zeros((0, d)))
        for t in range(plan.rounds):
            sent = np.zeros((N, d))
            for c in range(N):
                change = local[c](now.theta, now.xi[c], plan.step_size, plan.local_steps, 0, 0, 0) - now.theta
                clipped += np.linalg.norm(change) > plan.clip * (1 + 1e-9)
                source_of = lambda variance, n: discrete_gaussian(variance, n, source.randrange)  # noqa: E731
                sent[c] = encode(change, np.zeros(d), p.weights[c], plan.clip, coding, source_of).delta
            now = serve(now, algorithm, t + 1, sent, p.weights, gain)
        errors.append(float((now.theta - p.theta_star) @ (now.theta - p.theta_star)))
    return np.array(errors), clipped / (seeds * plan.rounds * N)


@pytest.mark.parametrize("method", ["fedlsa", "scafflsa", "scaffnew"])
@pytest.mark.parametrize("local", ["rows", "means"])
def test_errors_are_those_of_exact_curves_for_every_noise(method, local):
    m = moments(fl.problems.regression(tables()))
    if local == "means":
        m = replace(m, noise=np.zeros_like(m.noise))
    run, s = noisy_run(m, method, 0.2, 8, 12), 0.07
    a = {"fedlsa": fl.FedLSA(0.2, 8), "scafflsa": fl.SCAFFLSA(0.2, 8), "scaffnew": fl.Scaffnew(0.2, 1 / 8)}[method]
    found = fl.theory.exact(m, a, 12, np.zeros(m.dim), record=range(1, 13), upload_noise=s)["mse"].values
    np.testing.assert_allclose(run.error + s**2 * run.error_of_noise, found, rtol=1e-8)


@pytest.mark.parametrize("method", ["fedlsa", "scafflsa"])
def test_changes_have_the_mean_and_the_variance_that_theory_says(method):
    sites, s, eta, H, T, seeds = tables(3), 0.1, 0.4, 6, 5, 4000
    p = fl.problems.regression(sites)
    run, rng = noisy_run(moments(p), method, eta, H, T), np.random.default_rng(3)
    theta, xi = np.zeros((seeds, p.dim)), np.zeros((seeds, 3, p.dim))
    gain = 0.0 if method == "fedlsa" else 1 / (eta * H)
    for t in range(T):
        change = np.zeros_like(xi)
        for c, (x, y) in enumerate(sites):
            hat = theta
            for _ in range(H):
                k = rng.integers(len(y), size=seeds)
                residual = np.einsum("si,si->s", x[k], hat) - y[k]
                hat = hat - eta * (x[k] * residual[:, None] - xi[:, c])
            change[:, c] = hat - theta
        mean = change.mean(0)
        apart = ((change - mean) ** 2).sum(2)  # (seeds, sites)
        expected = run.variance[t] + s**2 * run.variance_of_noise[t]
        assert (np.abs(apart.mean(0) - expected) < BEYOND * apart.std(0) / math.sqrt(seeds)).all()
        off = np.abs(np.linalg.norm(mean, axis=1) - run.length[t])
        assert (off < BEYOND * np.sqrt(expected / seeds)).all()
        sent = change + s * rng.standard_normal(change.shape)
        moved = np.einsum("c,sci->si", p.weights, sent)
        theta, xi = theta + moved, xi + gain * (moved[:, None] - sent)


@pytest.mark.parametrize(("epsilon", "spread", "rounds"), [(300.0, 0.3, 1), (2e5, 1.0, 12)])
def test_runs_within_a_budget_for_sites_end_where_the_plan_says(epsilon, spread, rounds):
    sites = tables(sites=8, spread=spread)
    budget = PrivacyBudget(epsilon)
    plan = affordable(moments(fl.problems.regression(sites)), budget, local_steps=20, max_rounds=rounds)
    assert (plan.rounds > 1) == (rounds > 1)  # with so much to spend control variates pay
    assert privacy_spent(plan.noise, plan.rounds, budget.delta) <= epsilon * (1 + 1e-9)
    errors, clipped = run_plan(plan, sites, "site", seeds=60)
    assert clipped < 0.01
    assert abs((errors.mean()) - plan.rmse**2) < BEYOND * errors.std() / math.sqrt(len(errors))
    assert plan.without_noise < plan.rmse < plan.start


def test_runs_within_a_budget_for_rows_end_where_the_plan_says_and_cost_what_it_allows():
    sites = tables(sites=8)
    row_clip = max(float((np.linalg.norm(x, axis=1) * (np.abs(y) + 3)).max()) for x, y in sites)  # none is clipped
    budget = PrivacyBudget(4.0, unit="record", row_clip=row_clip, rows=300)
    plan = affordable(moments(fl.problems.regression(sites)), budget, local_steps=20, max_rounds=8)
    errors, clipped = run_plan(plan, sites, "record", 30, row_clip)
    assert clipped < 0.01
    assert abs(errors.mean() - plan.rmse**2) < BEYOND * errors.std() / math.sqrt(len(errors))
    each = rho_of_answer(
        "record", plan.clip, plan.noise, local="means", step_size=plan.step_size, row_clip=row_clip, local_steps=20,
        rows=300,
    )  # fmt: skip
    assert each * plan.rounds <= budget.rho(8) * 8 * (1 + 1e-9)
    assert plan.rmse < 0.5 * plan.start  # while for whole sites this budget buys nothing


@pytest.mark.parametrize("unit", ["site", "record"])
def test_the_clip_leaves_alone_what_is_within_three_deviations_and_is_no_longer_than_that(unit):
    m = moments(fl.problems.regression(tables(sites=8, spread=1.0)))
    budget = PrivacyBudget(2e4) if unit == "site" else PrivacyBudget(5.0, unit=unit, row_clip=30.0, rows=300)
    plan = affordable(m, budget, local_steps=20, max_rounds=8)
    assert plan.rounds > 1
    run = noisy_run(replace(m, noise=np.zeros_like(m.noise)), plan.method, plan.step_size, 20, plan.rounds)
    deviation = np.sqrt(run.variance + (plan.noise * plan.clip) ** 2 * run.variance_of_noise)
    assert plan.clip == pytest.approx(float((run.length + 3 * deviation).max()), rel=1e-9)


def test_where_changes_answer_to_noise_the_clip_grows_with_it_until_noise_feeds_itself():
    budget, column = PrivacyBudget(300.0), lambda *values: np.array(values)[:, None]
    errors = np.array([1.0, 0.01]), np.array([0.1, 0.1])
    run = NoisyRun("fedlsa", 0.1, 5, *errors, column(1.0, 0.1), column(0.0, 0.5), column(0.0, 5.0))
    _, s, clip, rounds, _ = best_run([run], budget, "means")
    assert rounds == 2
    assert clip == pytest.approx(0.1 + 3 * math.sqrt(0.5 + 5.0 * s**2), rel=1e-9)
    assert privacy_spent(s / clip, 2, budget.delta) == pytest.approx(300, rel=1e-6)
    fed = replace(run, variance_of_noise=column(0.0, 50.0))
    _, s, clip, rounds, _ = best_run([fed], budget, "means")
    assert (rounds, clip) == (1, 1.0)  # no clip would be enough for a second round


def test_a_budget_that_is_too_small_is_refused_with_one_that_would_do():
    m = moments(fl.problems.regression(tables()))
    with pytest.raises(ArgumentError, match="no run at all") as told:
        affordable(m, PrivacyBudget(0.01), local_steps=20, max_rounds=3)
    assert "got 0.01" in str(told.value)
    with pytest.raises(ArgumentError, match=r"for this error, 0\.1: it buys") as told:
        affordable(m, PrivacyBudget(20.0), local_steps=20, max_rounds=3, error=0.1)
    enough = float(str(told.value).split("about ")[1].split(" would")[0])
    assert affordable(m, PrivacyBudget(1.1 * enough), local_steps=20, max_rounds=3, error=0.1).rmse <= 0.1
    with pytest.raises(ArgumentError, match="epsilon must be larger"):
        affordable(m, PrivacyBudget(0.9 * enough), local_steps=20, max_rounds=3, error=0.1)


def test_no_error_is_below_the_noise_of_the_last_round():
    m = moments(fl.problems.regression(tables()))
    budget = PrivacyBudget(300.0)
    plan = affordable(m, budget, local_steps=20, max_rounds=3)
    least, noise = least_error(budget, np.full(6, 1 / 6), m.dim, plan.rounds, plan.clip)
    assert noise == pytest.approx(plan.noise, rel=1e-6)
    assert least <= plan.rmse
    assert least == pytest.approx(plan.noise * plan.clip * math.sqrt(m.dim / 6), rel=1e-6)


def test_what_a_budget_cannot_mean_is_refused():
    m = moments(fl.problems.regression(tables()))
    with pytest.raises(ArgumentError, match="row_clip must be given"):
        PrivacyBudget(1.0, unit="record", rows=10)
    with pytest.raises(ArgumentError, match="rows must be given"):
        PrivacyBudget(1.0, unit="record", row_clip=1.0)
    with pytest.raises(ArgumentError, match="row_clip must be at least"):
        affordable(m, PrivacyBudget(1.0, unit="record", row_clip=1e-3, rows=300))
    with pytest.raises(ArgumentError, match="rounds of known length"):
        affordable(m, PrivacyBudget(1.0, unit="record", row_clip=9.0, rows=300), methods=("scaffnew",))
    for name, value in (("epsilon", 0), ("delta", 0), ("unit", "row")):
        with pytest.raises(ArgumentError, match=f"{name} must be"):
            PrivacyBudget(**{"epsilon": 1.0, name: value})


@pytest.mark.long
def test_a_network_that_runs_as_planned_ends_where_the_plan_says_and_spends_the_budget_of_every_site(
    tmp_path, monkeypatch
):
    """The whole way: files that resemble the sites', a plan, runs with secure sums, and every site's ledger."""
    source = random.Random(9)
    monkeypatch.setattr(orders, "discrete_gaussian", lambda v, n: discrete_gaussian(v, n, source.randrange))
    runs, budget = 6, PrivacyBudget(400.0, unit="record", row_clip=60.0, rows=60)
    spending = {"privacy": "record", "epsilon": 1e4, "most_runs": 100}
    world = MemoryWorld(tmp_path, **spending)
    files = [tmp_path / f"{site}.csv" for site in world.network.sites]
    found = moments(fl.site_problem(files, world.task, "sites", "rows"))
    plan, errors = affordable(found, budget, local_steps=20, max_rounds=6), []
    for k in range(runs):
        run = world.start(
            method=plan.method, step_size=plan.step_size, local_steps=20, rounds=plan.rounds, local="means",
            clip=plan.clip, noise=plan.noise, unit="record", row_clip=60.0, name=f"trial-{k}",
        )  # fmt: skip
        complete_run(world.network, run, world)
        errors.append(np.sum((np.array(run.read("result.json")["theta"]) - found.theta_star) ** 2))
    assert abs(np.mean(errors) - plan.rmse**2) < BEYOND * np.std(errors, ddof=1) / math.sqrt(runs)
    for site in world.network.sites:
        totals = world.handler(site).ledger.totals
        assert totals.noised == runs * plan.rounds
        spent = epsilon_of(totals.rho / runs, delta_left("record", budget.delta, plan.rounds))
        assert 0.99 * budget.epsilon < spent <= budget.epsilon * (1 + 1e-6)


def test_what_noise_costs_is_said_before_the_first_round_and_an_error_below_it_is_refused():
    shared = {"name": "trial", "sites": ("a", "b", "c", "d"), "step_size": 0.01, "local_steps": 20, "rounds": 25}
    assert noise_sentence(RunSettings(**shared), 100, 9) == ""
    noisy = RunSettings(**shared, clip=2.0, noise=10.0)
    assert noise_sentence(noisy, 100, 9) == (  # 20 * sqrt(9 / 4), and the account of 25 answers
        f"Noise: no run ends nearer than 30; 25 rounds spend ({privacy_spent(10.0, 25, 1e-5):.3g}, 1e-05) of a site's "
        "privacy."
    )
    assert "nearer than 30" in noise_sentence(noisy, 100, 9, epsilon=30.1)
    with pytest.raises(ArgumentError, match="epsilon must be at least 30"):
        noise_sentence(noisy, 100, 9, epsilon=29.9)
    rows = RunSettings(**shared, clip=2.0, noise=10.0, unit="record", row_clip=1.0, local="means")
    each = rho_of_answer("record", 2.0, 10.0, local="means", step_size=0.01, row_clip=1.0, local_steps=20, rows=100)
    spent = epsilon_of(25 * each, delta_left("record", 1e-5, 25))
    assert noise_sentence(rows, 100, 9).endswith(f"({spent:.3g}, 1e-05) of a row's privacy.")


def test_the_plan_of_a_run_with_noise_says_what_it_costs(tmp_path):
    world = MemoryWorld(tmp_path)
    run = world.start(**by_hand(2, local="means", clip=1.0, noise=0.01))
    complete_run(world.network, run, world)
    planned = next(event["text"] for _, event in run.events() if event["event"] == "planned")
    assert planned.startswith("as asked for. Noise: no run ends nearer than 0.0141;")

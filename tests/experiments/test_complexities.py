"""Measured complexities, the lower bound, the one-shot baselines: laws that were put in are found, limits are met."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tiers import mostly_long

import fedlsa as fl
from fedlsa.experiments import (
    EXPERIMENTS,
    Cell,
    Scale,
    compute,
    cost_tables,
    counterexamples,
    one_shot,
    tabulate,
)
from fedlsa.experiments import claim_statistics as laws
from fedlsa.experiments.computations import problem
from fedlsa.figures.matplotlib_figures import draw_charts

NAMES = ("table1", "table2", "one-shot")
X = 5.0 * 2 ** np.arange(8)


def test_a_power_is_found_by_its_exponent_and_a_logarithm_by_its_slope():
    exact = laws.power(X, 3 * X**1.2)
    assert (exact.a, exact.b) == pytest.approx((3, 1.2))
    assert exact.residual < 1e-3  # of values up to 7000
    straight = laws.logarithm(X, 2 + 2.5 * np.log(X))
    assert (straight.a, straight.b) == pytest.approx((2, 2.5))


@pytest.mark.parametrize(
    ("y", "name"),
    [(3 * X**1.2, "power"), (2 + 2.5 * np.log(X), "logarithm"), (np.ceil(1 + 2 * np.log(X)), "logarithm")],
)
def test_the_better_law_is_the_one_that_was_put_in(y, name):
    assert laws.better(X, y).name == name


def test_a_power_is_fitted_by_least_squares_on_the_values_themselves():
    y = np.array([1.0, 3, 4, 5, 7, 10, 12, 13])
    found = laws.power(X, y)
    for a, b in ((1.01, 1), (0.99, 1), (1, 1.01), (1, 0.99)):
        other = found.a * a * X ** (found.b * b)
        assert np.sqrt(np.mean((y - other) ** 2)) > found.residual


def test_a_factor_log_adds_less_to_the_last_exponent_than_to_the_whole():
    x = np.geomspace(5, 1e4, 8)
    y = x * np.log(x)
    assert 1 < laws.final_slope(x, y) < laws.slope(x, y) < 1.45


@pytest.mark.parametrize(
    ("stated", "law", "exponent", "said"),
    [
        (1.0, "power", 1.2, "as stated"),
        (1.0, "logarithm", 0.2, "fewer than stated"),
        (2.0, "power", 1.2, "fewer than stated"),
        (1.0, "power", 2.0, "more than stated"),
        (0.0, "logarithm", 0.2, "as stated"),
        (0.0, "power", 1.0, "more than stated"),
        (0.0, "power", 0.2, "close to stated"),
    ],
)
def test_the_verdict_compares_with_what_is_stated(stated, law, exponent, said):
    assert laws.compare_with_stated(stated, law, exponent) == said


def test_copies_of_agents_change_their_number_and_nothing_else():
    two = problem({"problem": {"agents": 2, "perturbation": 0.0, "states": 5, "features": 2}})
    ten = problem({"problem": {"agents": 2, "perturbation": 0.0, "states": 5, "features": 2, "copies": 5}})
    assert (two.n_agents, ten.n_agents) == (2, 10)
    np.testing.assert_allclose(ten.theta_star, two.theta_star)
    np.testing.assert_array_equal(ten.A_bar, np.tile(two.A_bar, (5, 1, 1)))


def test_a_smaller_first_feature_lowers_a_and_nu_and_is_a_change_of_coordinates():
    where = {"agents": 2, "perturbation": 0.0, "states": 5, "features": 2}
    plain, small = (problem({"problem": {**where, **more}}) for more in ({}, {"first_feature": 0.5}))
    np.testing.assert_allclose(small.theta_star, plain.theta_star * [2, 1])
    np.testing.assert_allclose(small.A_bar, plain.A_bar * np.outer([0.5, 1], [0.5, 1]))
    known = fl.theory.constants(plain)
    assert cost_tables.least_feature({"problem": where}) == pytest.approx(known.nu)
    assert cost_tables.least_feature({"problem": {**where, "first_feature": 0.1}}) < 0.02 * known.nu
    assert fl.theory.constants(small).a_sym < known.a_sym


def test_one_step_less_than_the_synchronous_plan_misses_the_target():
    p = problem({"problem": cost_tables.LSA.problem(Scale(quick=True))})
    plan = fl.theory.synchronous_plan(p, 0.1)
    assert plan.rounds == plan.samples
    assert plan.algorithm.local_steps == 1
    curve = fl.theory.exact(p, plan.algorithm, plan.rounds, record=[0, plan.rounds - 1, plan.rounds])
    assert curve.mse.values[2] <= 0.01 < curve.mse.values[1]
    assert plan.rmse == pytest.approx(math.sqrt(curve.mse.values[2]))


def test_a_plan_cell_holds_what_the_planner_says():
    where = cost_tables.LSA.problem(Scale(quick=True))
    got = compute(Cell("plan", {"problem": where, "method": "scafflsa", "epsilon": 0.1}))
    plan = fl.plan(problem({"problem": where}), 0.1, method="scafflsa")
    assert (float(got["rounds"]), float(got["samples"])) == (plan.rounds, plan.samples)
    assert float(got["rmse"]) <= 0.1


def test_a_theorem_that_does_not_speak_promises_nothing():
    settings = {"problem": {"agents": 2, "states": 6, "features": 6}, "method": "fedlsa", "epsilon": 1e-160}
    with np.errstate(all="ignore"):
        assert math.isnan(float(compute(Cell("promise", settings))["rounds"]))


def test_agents_of_the_lower_bound_are_those_of_the_paper():
    p = counterexamples.no_speed_up_example(4)
    np.testing.assert_allclose(p.theta_star, 0, atol=1e-15)
    known = fl.theory.constants(p)
    assert known.sigma_eps == pytest.approx(2)  # tr of the covariance of +-(1, 1)
    np.testing.assert_allclose(p.A_bar, np.tile(np.eye(2), (4, 1, 1)))


def test_estimated_systems_are_means_of_observations():
    p = problem({"problem": {"agents": 3, "states": 6, "features": 2}})
    A, b = one_shot.estimated_systems(p, 1, seed=3)
    for c, span in enumerate(p.spans()):
        every_A, every_b = p.observations.matrices(span)
        z = int(np.argmin(np.abs(every_A - A[c]).sum((1, 2)) + np.abs(every_b - b[c]).sum(1)))
        np.testing.assert_allclose(every_A[z], A[c])
        np.testing.assert_allclose(every_b[z], b[c])
    many, _ = one_shot.estimated_systems(p, 10**9, seed=3)
    np.testing.assert_allclose(many, p.A_bar, atol=1e-3)


def test_with_the_true_systems_one_baseline_is_exact_and_the_other_is_off_by_its_bias():
    p = problem({"problem": {"agents": 4, "states": 6, "features": 2}})
    np.testing.assert_allclose(one_shot.averaged_system(p.A_bar, p.b_bar, p.weights), p.theta_star)
    off = one_shot.average_of_solutions(p.A_bar, p.b_bar, p.weights) - p.theta_star
    assert off @ off == pytest.approx(one_shot.limits(p)["solutions_bias"], rel=1e-8)
    assert off @ off > 1e-6


def test_equal_agents_leave_the_average_of_solutions_without_bias():
    p = problem({"problem": {"agents": 2, "heterogeneous": False, "perturbation": 0.0, "copies": 2}})
    assert one_shot.limits(p)["solutions_bias"] < 1e-20


def test_both_baselines_meet_their_limits_for_many_observations():
    p = problem({"problem": {"agents": 4, "states": 6, "features": 2}})
    n, draws = 10**6, 400
    found = np.empty((2, draws, p.dim))
    for seed in range(draws):
        A, b = one_shot.estimated_systems(p, n, seed)
        found[:, seed] = [f(A, b, p.weights) for f in (one_shot.averaged_system, one_shot.average_of_solutions)]
    known = one_shot.limits(p)
    for values, name in zip(found, ("system_noise", "solutions_noise"), strict=True):
        spread = np.sum((values - values.mean(axis=0)) ** 2, axis=1) * draws / (draws - 1)
        assert abs(n * spread.mean() - known[name]) < 4 * n * spread.std() / math.sqrt(draws)


@pytest.mark.parametrize("name", mostly_long(NAMES, NAMES[1:]))
def test_tables_say_which_row_is_beaten_and_no_column_is_empty(name, look):
    scale = Scale("paper", 3, quick=True)
    (table,) = EXPERIMENTS[name].tables
    rows = table.rows(tabulate(table.cells(scale), look), scale)
    assert not rows.isna().all().any()
    if name == "table1":
        by_name = {row["method"]: row for row in rows.to_dict("records")}
        assert by_name["Scaffnew"]["communications are"] == "fewer than stated"
        assert by_name["Scaffnew"]["samples with many agents are"] == "fewer than stated"
        assert by_name["SCAFFLSA"]["communications are"] == "as stated"
        assert by_name["SCAFFLSA"]["local updates, stated"] == r"$\mathcal{O}(\frac{1}{N\varepsilon^2})$"
        assert by_name["SCAFFLSA"]["exponent of local updates"] == pytest.approx(2, abs=0.1)
        assert by_name["FedLSA, H = 1 (Doan)"]["exponent of 1/a in communications"] == pytest.approx(1, abs=0.1)
        assert by_name["FedLSA"]["exponent of N in local updates"] == pytest.approx(-1, abs=0.2)
    if name == "table2":
        wanted = {f"exponent of {x} in communications" for x in ("N", cost_tables.GAMMA.symbol, cost_tables.NU.symbol)}
        assert wanted <= set(rows.columns)


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_drawn_from_stored_cells(name, look):
    scale = Scale("paper", 3, quick=True)
    for picture in EXPERIMENTS[name].pictures:
        charts = picture.draw(tabulate(picture.cells(scale), look), scale)
        figure = draw_charts(charts)
        assert figure.axes
        assert all(axes.lines for axes in figure.axes)


def test_marks_of_the_lower_bound_are_the_stored_values(look):
    scale = Scale(quick=True)
    results = tabulate(cost_tables.lower_bound_cells(scale), look)
    ((chart,),) = cost_tables.draw_lower_bound(results, scale).rows
    drawn = {tuple(np.round(line.y, 12)) for line in chart.lines}
    stored = tuple(np.round(results["psi"], 12))
    assert stored in drawn


def test_more_draws_are_made_for_more_seeds():
    def seeds(n):
        return one_shot.baseline_cells(Scale("paper", n))[0]["seeds"]

    assert (seeds(1), seeds(10)) == (50, 100)

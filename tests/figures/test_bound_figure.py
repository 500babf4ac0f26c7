"""The figure of a theorem draws the bound, the exact error and the simulations that it was given."""

import dataclasses

import numpy as np
import pytest

import fedlsa as fl
from fedlsa import figures, theory
from fedlsa.errors import ArgumentError, ArgumentTypeError, UnknownNameError


@pytest.fixture(scope="module")
def problem():
    return fl.problems.garnet(agents=4, states=6, features=2, discount=0.3, perturbation=0.0)


def lines(figure):
    return {one.get_label(): one for one in figure.axes[0].get_lines()}


def texts(figure):
    return "\n".join(t.get_text() for t in figure.texts)


def test_the_lines_are_bound_exact_error_and_mean_of_simulations(problem, tmp_path):
    method = fl.FedLSA(0.05, 5)
    bounds = [theory.td_bound(problem, method, 40, record=21), theory.bound(problem, method, 40, record=21)]
    exact, runs = theory.exact(problem, method, 40), fl.simulate(problem, method, 40, seeds=5, record=11)
    figure = figures.bound_and_curve(bounds, exact, runs, title="Two bounds")
    drawn = lines(figure)
    for name, b in zip(("Corollary 4.2", "Theorem A.6"), bounds, strict=True):
        np.testing.assert_array_equal(drawn[f"bound ({name})"].get_xdata(), b.rounds)
        np.testing.assert_array_equal(drawn[f"bound ({name})"].get_ydata(), b.mse)
    np.testing.assert_array_equal(drawn["exact mean squared error"].get_ydata(), exact["mse"])
    np.testing.assert_allclose(drawn["their mean"].get_ydata(), runs["squared_error"].values.mean(axis=0))
    assert "from the 10% to the 90% quantile" in texts(figure)
    assert "All conditions of both bounds are met." in texts(figure)
    figures.save(figure, tmp_path / "two.png")
    assert (tmp_path / "two.png").stat().st_size > 0


def test_scaffnew_is_drawn_by_iteration_with_its_lyapunov_function(problem):
    method = fl.Scaffnew(0.02, 0.25)
    bound = theory.bound(problem, method, 20, record=21)
    exact = theory.exact_iterations(problem, method, 80)
    figure = figures.bound_and_curve(bound, exact, x="samples", scale="log")
    drawn = lines(figure)
    np.testing.assert_array_equal(drawn["exact ψ"].get_ydata(), exact["psi"])
    np.testing.assert_array_equal(drawn["bound on ψ (Theorem F.2)"].get_xdata(), 4 * bound.rounds)
    assert "iterations" in figure.axes[0].get_xlabel()
    with pytest.raises(ArgumentError, match="per iteration"):
        figures.bound_and_curve(bound, exact)


@pytest.mark.filterwarnings("ignore::fedlsa.errors.TheoryWarning")
def test_a_figure_says_which_conditions_fail_and_costs_grow_in_proportion(problem):
    method = fl.SCAFFLSA(0.1, 10)
    exact = theory.exact(problem, method, 9)
    figure = figures.bound_and_curve(theory.bound(problem, method, 9, record=10), exact, x="samples")
    assert "conditions not met: H <= a" in texts(figure)
    assert "All conditions" not in texts(figure)
    assert "Not proved here" not in texts(figure)
    bound = dataclasses.replace(theory.bound(problem, method, 9, record=10), proved=False)
    assert "Not proved here" in texts(figures.bound_and_curve(bound, exact, x="samples"))
    np.testing.assert_array_equal(lines(figure)["exact mean squared error"].get_xdata(), 10 * exact["rounds"])


def test_wrong_arguments_are_named(problem):
    method = fl.FedLSA(0.05, 5)
    bound, exact = theory.bound(problem, method, 5, record=6), theory.exact(problem, method, 5)
    with pytest.raises(ArgumentError, match="with record; got a single round"):
        figures.bound_and_curve(theory.bound(problem, method, 5), exact)
    with pytest.raises(ArgumentError, match="one bound or two; got 3"):
        figures.bound_and_curve([bound] * 3, exact)
    with pytest.raises(ArgumentError, match="exact or result must be given"):
        figures.bound_and_curve(bound)
    with pytest.raises(ArgumentTypeError, match="bounds must be"):
        figures.bound_and_curve([exact], exact)
    with pytest.raises(ArgumentError, match="got a dataset without mse"):
        figures.bound_and_curve(bound, exact.drop_vars("mse"))
    with pytest.raises(UnknownNameError, match="did you mean 'samples'"):
        figures.bound_and_curve(bound, exact, x="sample")

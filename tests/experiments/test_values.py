"""Value errors by hand and by their definitions."""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.experiments import Cell, compute
from fedlsa.experiments.value_functions import squared_errors, values_and_features


def two_states():
    """Two states that follow each other, rewards 1 and 0, one feature that is 1 in the first state."""
    P = np.array([[[[0.0, 1.0]], [[1.0, 0.0]]]])
    return fl.problems.from_mdps(P, [[[1.0], [0.0]]], np.ones((2, 1)), [[1.0], [0.0]], 0.5)


def test_value_function_of_two_states_in_turn_is_the_geometric_series():
    V, mu, phi = values_and_features(two_states())
    np.testing.assert_allclose(V, [[4 / 3, 2 / 3]], rtol=1e-12)  # 1 + 1/4 + 1/16 + ..., and half of it
    np.testing.assert_allclose(mu, [[0.5, 0.5]], rtol=1e-12)
    np.testing.assert_allclose(phi, [[1.0], [0.0]])


def test_squared_error_is_weighed_by_the_stationary_law():
    V, mu, phi = values_and_features(two_states())
    np.testing.assert_allclose(squared_errors(V, mu, phi, np.array([[1.0], [0.0]])), [[5 / 18], [10 / 9]], rtol=1e-12)


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_best_parameters_bound_all_others(preset):
    v = compute(Cell("values", {"problem": {"agents": 6, "preset": preset}}))
    for error in (v["home"].values, v["shared"].values, v["virtual"].values, v["zero"].values, v["best_shared"].values):
        assert (v["best_local"].values <= error * (1 + 1e-9)).all()
    for name in ("shared", "virtual", "zero"):
        assert float(v["best_shared"].mean()) <= float(v[name].mean())
    assert float(v["best_shared"].mean()) <= v["everywhere"].values.min()

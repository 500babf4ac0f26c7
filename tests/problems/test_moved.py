"""A problem whose agents' own solutions are moved: they go exactly there, and nothing else changes."""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError

RNG = np.random.default_rng(7)
WEIGHTS = [0.1, 0.2, 0.3, 0.4]
SITES = [(RNG.normal(size=(12, 2)), RNG.normal(size=12)) for _ in range(3)]
SHARED = [0, 1, 2, 1]  # agents 1 and 3 hold the same table


def regression(**options):
    return fl.problems.regression(SITES, weights=WEIGHTS, assignment=SHARED, **options)


def dense():
    A = np.array([[[2.0, 0.3], [-0.1, 1.0]], [[1.0, 0.0], [0.5, 3.0]]])
    return fl.problems.from_observations([([0.25, 0.75], A + c * np.eye(2), RNG.normal(size=(2, 2))) for c in range(3)])


PROBLEMS = {
    "dense": dense,
    "regression": regression,
    "rank one": lambda: fl.problems.garnet(agents=4, states=6, features=3, seed=3),
    "ring": lambda: fl.problems.ring(agents=3, ideal=True),
}


@pytest.fixture(params=PROBLEMS.values(), ids=PROBLEMS)
def problem(request):
    return request.param()


@pytest.mark.parametrize("moves", [{}, {0: 0.0}])
def test_a_move_by_nothing_is_the_same_problem(problem, moves):
    same = problem.moved({c: np.full(problem.dim, v) for c, v in moves.items()})
    for name in ("A_bar", "b_bar", "theta_star", "theta_star_local", "weights"):
        np.testing.assert_array_equal(getattr(same, name), getattr(problem, name))


def test_an_own_solution_goes_exactly_where_it_is_moved_and_the_others_stay(problem):
    delta = np.linspace(-1.0, 2.0, problem.dim)
    moved = problem.moved({0: delta})
    by = moved.theta_star_local - problem.theta_star_local
    np.testing.assert_allclose(by[0], delta, rtol=1e-9, atol=1e-9)
    assert not by[1:].any()


def test_the_matrices_and_the_noise_at_the_solution_stay(problem):
    delta = np.linspace(-1.0, 2.0, problem.dim)
    moved = problem.moved({0: delta})
    np.testing.assert_array_equal(moved.A_bar, problem.A_bar)
    for span, before, after in zip(
        problem.spans(), problem.table_theta_star_local, moved.table_theta_star_local, strict=True
    ):
        (A, b), (_, b_moved) = (p.observations.matrices(span) for p in (problem, moved))
        np.testing.assert_allclose(A @ after - b_moved, A @ before - b, atol=1e-12)


def test_theta_star_is_that_of_the_moved_averages_with_the_weights_of_the_problem():
    p = regression()
    delta = np.array([0.5, -1.0])
    moved = p.moved({1: delta, 3: delta})
    np.testing.assert_array_equal(moved.weights, WEIGHTS)
    np.testing.assert_array_equal(moved.assignment, SHARED)
    A, b = (np.einsum("c,c...->...", moved.weights, v) for v in (moved.A_bar, moved.b_bar))
    np.testing.assert_allclose(moved.theta_star, np.linalg.solve(A, b), rtol=1e-12)
    pulled = np.einsum("c,cij,j->i", [0, 0.2, 0, 0.4], p.A_bar, delta)
    np.testing.assert_allclose(moved.theta_star - p.theta_star, np.linalg.solve(A, pulled), rtol=1e-9)


@pytest.mark.parametrize(
    ("moves", "error", "message"),
    [
        ([[0.0, 1.0]], ArgumentTypeError, "moves must be a move (d,) by agent"),
        ({4: [0.0, 1.0]}, ArgumentError, "agents in moves must be"),
        ({-1: [0.0, 1.0]}, ArgumentError, "agents in moves must be"),
        ({"0": [0.0, 1.0]}, ArgumentTypeError, "agents in moves must be"),
        ({0: [0.0]}, ArgumentError, "moves[0] must"),
        ({0: [0.0, np.nan]}, ArgumentError, "moves[0] must"),
        ({1: [0.0, 1.0]}, ArgumentError, "agents that hold the same table must move together"),
    ],
)
def test_moves_that_cannot_be_are_refused_by_a_typed_error(moves, error, message):
    with pytest.raises(error) as refused:
        regression().moved(moves)
    assert str(refused.value).startswith(message)


def test_a_ridge_leaves_no_solution_to_be_moved():
    with pytest.raises(ArgumentError, match=r"problem must have no ridge for its solutions to be moved; got 0\.5"):
        regression(ridge=0.5).moved({0: [0.0, 1.0]})

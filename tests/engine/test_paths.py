"""Paths within rounds are those of the engines, and without noise those of the exact mean."""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.engine.paths import round_paths
from fedlsa.errors import ArgumentError, ArgumentTypeError

METHODS = [fl.FedLSA(0.1, 12), fl.SCAFFLSA(0.1, 12), fl.Scaffnew(0.1, 0.2)]


@pytest.fixture(scope="module")
def problem():
    return fl.problems.garnet(agents=4, features=8, perturbation=0.1)


@pytest.mark.parametrize(
    "method",
    [*METHODS, fl.SCAFFLSA(fl.PowerStep(0.2, 0.5), 5, participants=2), fl.FedLSA(0.1, 5, projection=2.0)],
    ids=str,
)
@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_with_noise_rounds_end_where_the_engines_end_them(problem, method, engine):
    paths = round_paths(problem, method, rounds=6, seed=3, points=5, noise=True)
    run = fl.simulate(problem, method, 6, seeds=[3], engine=engine, record=list(range(7)), keep=("theta", "xi")).sel(
        seed=3
    )
    np.testing.assert_allclose(paths.theta, run["theta"].values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(paths.xi[-1], run["xi"].values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", METHODS[:2], ids=str)
def test_without_noise_theta_is_the_exact_mean(problem, method):
    paths = round_paths(problem, method, rounds=8, points=5, theta_0=np.arange(8.0))
    mean = fl.theory.exact(problem, method, 8, theta_0=np.arange(8.0), record=list(range(9)))["mean"].values
    np.testing.assert_allclose(paths.theta, mean, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_without_noise_every_point_is_the_recursion_step_by_step(problem, method):
    paths = round_paths(problem, method, rounds=4, seed=1, points=5)
    for t in range(4):
        at = np.tile(paths.theta[t], (4, 1))
        for h in range(paths.steps[t, -1] + 1):
            for k in np.flatnonzero(paths.steps[t] == h):
                np.testing.assert_allclose(paths.local[t, :, k], at, rtol=0, atol=1e-12)
            residual = np.einsum("cij,cj->ci", problem.A_bar, at) - problem.b_bar - paths.xi[t]
            at = at - method.step_size * residual
        np.testing.assert_allclose(problem.weights @ paths.local[t, :, -1], paths.theta[t + 1], rtol=0, atol=1e-12)
        np.testing.assert_allclose(problem.weights @ paths.xi[t + 1], 0, atol=1e-12)


def test_points_are_equally_spaced_and_repeat_in_a_short_round(problem):
    assert round_paths(problem, fl.FedLSA(0.1, 100), 1, points=4).steps.tolist() == [[0, 25, 50, 75, 100]]
    short = round_paths(problem, fl.FedLSA(0.1, 2), 1, points=4)
    assert short.steps.tolist() == [[0, 0, 1, 2, 2]]
    assert short.local.shape == (1, 4, 5, 8)
    random = round_paths(problem, METHODS[2], 30, seed=5, points=3)
    lengths = random.steps[:, -1]
    assert len(set(lengths.tolist())) > 5
    assert (lengths >= 1).all()


def test_agents_that_do_not_take_part_have_no_path_and_share_the_shift_of_their_control_variates(problem):
    paths = round_paths(problem, fl.SCAFFLSA(0.1, 5, participants=2), rounds=5, points=2)
    away = np.isnan(paths.local).all(axis=(2, 3))
    assert (away.sum(axis=1) == 2).all()
    for before, after, absent in zip(paths.xi[:-1], paths.xi[1:], away, strict=True):
        moved = (after - before)[absent]  # two of four agents
        np.testing.assert_allclose(moved[0], moved[1], rtol=0, atol=1e-14)
        assert np.abs(moved).max() > 1e-6
    np.testing.assert_allclose(problem.weights @ paths.xi, 0, atol=1e-14)
    assert np.isfinite(paths.theta).all()


def test_wrong_arguments_are_named(problem):
    with pytest.raises(ArgumentError, match="points must be a positive integer; got 0"):
        round_paths(problem, METHODS[0], points=0)
    with pytest.raises(ArgumentError, match=r"theta_0 must be an array .* of shape \(8,\); got shape \(3,\)"):
        round_paths(problem, METHODS[0], theta_0=np.zeros(3))
    with pytest.raises(ArgumentTypeError, match="noise must be True or False; got 1"):
        round_paths(problem, METHODS[0], noise=1)
    with pytest.raises(ArgumentTypeError, match="algorithm must have its settings"):
        round_paths(problem, "fedlsa")


@pytest.mark.parametrize(
    ("what", "arguments"),
    [
        (r"points of all rounds must be at most 10,000,000; got 1e\+0", {"rounds": 10**8, "points": 1}),
        ("rounds must be at most 0 to fit into", {"points": 10**15}),
        ("local steps of all agents and rounds with noise=True must be", {"rounds": 10**6, "noise": True, "points": 1}),
    ],
)
def test_work_that_would_never_end_is_refused_before_it_begins(what, arguments, monkeypatch):
    monkeypatch.setenv("FEDLSA_MEMORY", str(2**40))
    one = fl.problems.from_observations([([1.0], [[[1.0]]], [[1.0]])])
    with pytest.raises(ArgumentError, match=what):
        round_paths(one, fl.FedLSA(0.1, 11), **arguments)

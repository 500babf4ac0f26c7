"""Every exact error is start + drift + noise: each part is what it is called, on kind and on hostile problems."""

import numpy as np
import pytest
from gallery import CASES, CORE, shaken
from tables import tiny
from tiers import mostly_long
from twin import Twin

import fedlsa as fl
from fedlsa.theory import krylov
from fedlsa.theory.exact_curves import exact_record

METHODS = (fl.FedLSA(0.2, 4), fl.SCAFFLSA(0.2, 4), fl.Scaffnew(0.2, 0.25))


def parts(problem, a, rounds=3, away=1.0, record=200):
    """The parts of a run from theta_star + away."""
    values = exact_record(problem, a, rounds, problem.theta_star + away, record=record)["data_vars"]
    return {name: values[name][1] for name in ("mse", "start", "drift", "noise")}


@pytest.mark.parametrize("i", range(3))
@pytest.mark.parametrize("name", mostly_long(CASES, CORE))
def test_parts_are_shares_of_what_the_twin_has_from_the_solution_and_from_the_start(name, i):
    case = CASES[name]()
    a, problem = case.methods()[i], case.problem
    found = parts(problem, a)
    assert (found["start"] >= 0).all()
    assert (found["drift"] >= 0).all()
    np.testing.assert_allclose(found["start"] + found["drift"] + found["noise"], found["mse"], rtol=1e-14)
    twin = Twin(problem, a)
    b = twin.curve(3, problem.theta_star)["mean"]
    s = twin.curve(3)["mean"] - b
    b, s = np.sum(b**2, axis=1), np.sum(s**2, axis=1)
    share = b / (b + s)
    # means are as accurate as the error they are a part of; that of a run from theta_star begins at 0
    np.testing.assert_allclose(
        found["drift"], share * (found["start"] + found["drift"]), rtol=1e-8, atol=1e-12 * found["mse"][0]
    )


@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_at_the_start_all_of_the_error_is_the_start_and_from_the_solution_none_is(a):
    p = tiny(3, 2, 3, 1)
    begin = parts(p, a)
    assert begin["start"][0] == pytest.approx(2.0)
    assert begin["drift"][0] <= 1e-30
    assert (parts(p, a, away=0.0)["start"] <= 1e-30).all()


def test_drift_tends_to_the_limit_bias_of_fedlsa_and_to_zero_with_control_variates():
    p = tiny(3, 2, 3, 1)
    bias = fl.theory.bias(p, 0.2, 4)
    for a in METHODS:
        last = {name: value[-1] for name, value in parts(p, a, 400).items()}
        assert last["drift"] == pytest.approx(bias @ bias if a is METHODS[0] else 0.0, rel=1e-10, abs=1e-20)
        assert last["start"] == pytest.approx(0.0, abs=1e-20)
        assert last["noise"] == pytest.approx(fl.theory.stationary(p, a).noise, rel=1e-9)


@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_equal_agents_do_not_drift_and_without_noise_there_is_no_noise(a):
    equal = tiny(1, 2, 3, 4, assignment=[0, 0, 0])
    assert (parts(equal, a, 30)["drift"] <= 1e-28).all()
    sure = parts(fl.problems.from_observations([([1.0], [np.eye(2)], [[c, 1.0]]) for c in (0.0, 1.0)]), a, 30)
    if not isinstance(a, fl.Scaffnew):  # the lengths of its rounds are random
        assert not sure["noise"].any()
    assert sure["noise"][-1] <= 1e-9


@pytest.mark.parametrize(
    "a",
    [
        fl.FedLSA(fl.PowerStep(0.3, 0.5), 4),
        fl.FedLSA(0.2, 4, average_after=5),
        fl.SCAFFLSA(fl.PowerStep(0.3, 0.5), 4),
        fl.SCAFFLSA(0.2, 4, participants=2),
        fl.Scaffnew(fl.PowerStep(0.3, 0.5), 0.3),
    ],
    ids=repr,
)
@pytest.mark.parametrize("noise", [True, False])
def test_the_mean_from_the_solution_is_that_of_a_run_from_there(a, noise):
    p = tiny(4, 2, 3 if noise else 1, 2)
    alone, found = parts(p, a, 12, away=0.0), parts(p, a, 12, away=1e-12)
    np.testing.assert_allclose(found["drift"], alone["start"] + alone["drift"], rtol=1e-9, atol=1e-20)


@pytest.mark.parametrize("a", METHODS[1:], ids=repr)
def test_means_are_the_same_many_rounds_at_once_and_round_by_round(a, monkeypatch):
    p, at = tiny(3, 2, 3, 1), [0, 1, 2, 7, 60, 300]
    powers = parts(p, a, 300, record=at)
    monkeypatch.setattr(krylov, "powers", lambda *_: None)
    np.testing.assert_allclose(parts(p, a, 300, record=at)["drift"], powers["drift"], rtol=1e-9, atol=1e-25)


@pytest.mark.parametrize("a", [fl.FedLSA(9.0, 4), fl.SCAFFLSA(9.0, 4), fl.Scaffnew(9.0, 0.25)], ids=repr)
def test_parts_of_an_unstable_run_are_numbers_or_infinite(a):
    found = parts(tiny(3, 2, 3, 1), a, 400)
    assert not np.isnan([found["start"], found["drift"]]).any()
    whole = found["start"] + found["drift"] + found["noise"]
    assert whole[-1] == found["mse"][-1] == np.inf
    grown = 1e-9 if isinstance(a, fl.Scaffnew) else np.inf  # its means settle, and noise alone grows
    for name in ("start", "drift"):
        assert (found[name][-1] >= grown) == (grown == np.inf), f"{name} has grown, and has not changed places"
    from_solution = parts(tiny(3, 2, 3, 1), a, 400, away=0.0)
    assert (from_solution["start"] == 0).all()
    assert (from_solution["drift"][-1] >= grown) == (grown == np.inf)


def test_the_limit_of_means_that_grow_is_infinite_drift():
    end = fl.theory.stationary(tiny(3, 2, 3, 1), fl.FedLSA(9.0, 4))
    assert end.mse == end.drift == end.noise == np.inf


@pytest.mark.parametrize("name", mostly_long(CASES, CORE))
def test_parts_stay_parts_where_some_take_part_and_uploads_have_noise(name):
    case = CASES[name]()
    p, some = case.problem, {"participation": 0.5} if case.problem.n_agents > 1 else {}
    for a in case.methods(**some):
        for options in ({}, {"upload_noise": 0.1}):
            values = exact_record(p, a, 40, p.theta_star + 1, record=[0, 1, 7, 40], **options)["data_vars"]
            mse, *found = (values[part][1] for part in ("mse", "start", "drift", "noise"))
            assert np.min(found) >= 0
            np.testing.assert_allclose(np.sum(found, axis=0), mse, rtol=1e-13)
        if not isinstance(a, fl.FedLSA):  # with the right control variates nobody drifts
            values = exact_record(p, a, 7, p.theta_star + 1, p.xi_star)["data_vars"]
            assert (values["drift"][1] <= 1e-25 * values["mse"][1][0]).all()


@pytest.mark.parametrize("a", METHODS[:2], ids=repr)
def test_drift_and_noise_are_those_of_many_simulated_runs_from_the_solution(a):
    tables = (np.diag([1.5, 0.5]), [1.0, -1.0]), (np.diag([0.5, 1.5]), [-1.0, 2.0])
    p, n = fl.problems.from_observations([shaken(A, b, noise_b=0.3) for A, b in tables]), 4000
    runs = fl.simulate(p, a, rounds=2, seeds=n, theta_0=p.theta_star, record=[0, 2], threads=1)
    theta, exact = runs["theta"].values[:, -1], {name: value[-1] for name, value in parts(p, a, 2, 0.0).items()}
    off, C = theta.mean(axis=0) - p.theta_star, np.cov(theta.T)
    squares = np.sum((theta - theta.mean(axis=0)) ** 2, axis=1) * n / (n - 1)
    for found, want, error in (
        (squares.mean(), exact["noise"], squares.std() / np.sqrt(n)),
        (off @ off - np.trace(C) / n, exact["drift"], np.sqrt(4 * off @ C @ off / n + 2 * np.sum(C**2) / n**2)),
    ):
        assert error < want / 8  # half as much, or twice, would be found
        assert abs(found - want) < 4 * error


def test_trajectories_have_a_memory_of_their_own_and_no_such_parts():
    p = fl.problems.garnet(agents=1, states=4, features=2, seed=0)
    assert "drift" not in fl.theory.exact(p, fl.FedLSA(0.1, 3), 3, sampling=fl.Markov())

"""What exact curves say of the cost of a run is what a run costs, and what a plan is priced at."""

import json

import numpy as np
import pytest

import fedlsa as fl

PROBLEM = fl.problems.garnet(agents=6, states=6, features=2, seed=3)


@pytest.mark.parametrize(
    ("method", "sampling"),
    [
        (fl.FedLSA(0.1, 7), fl.IID()),
        (fl.FedLSA(0.1, 7, participants=2), fl.IID()),
        (fl.SCAFFLSA(0.1, 7), fl.IID()),
        (fl.Scaffnew(0.1, 1.0), fl.IID()),
        (fl.FedLSA(0.1, 7), fl.Markov(thin=3)),
    ],
)
def test_costs_are_those_of_a_run_where_nothing_of_them_is_random(method, sampling):
    run = fl.simulate(PROBLEM, method, rounds=9, seeds=1, sampling=sampling, record=5)
    exact = fl.theory.exact(PROBLEM, method, rounds=9, sampling=sampling, record=5)
    np.testing.assert_array_equal(exact["communications"], run["communications"][0])
    np.testing.assert_allclose(exact["samples"], run["samples"][0], rtol=1e-14)
    np.testing.assert_array_equal(exact["bytes"], 2 * 8 * PROBLEM.dim * run["uploads"][0])
    assert exact["bytes"].dtype.kind == exact["communications"].dtype.kind == "i"


@pytest.mark.parametrize("thin", [1, 3])
def test_the_observations_of_scaffnew_are_those_of_a_run_in_expectation(thin):
    p = fl.problems.garnet(agents=1, states=6, features=2, seed=3)
    method, sampling = fl.Scaffnew(0.1, 0.2), fl.Markov(thin=thin)
    run = fl.simulate(p, method, rounds=8, seeds=400, sampling=sampling, record=[0, 8])
    exact = fl.theory.exact(p, method, rounds=8, sampling=sampling, record=[0, 8])
    seen = run["samples"].values[:, -1]
    assert float(exact["samples"][-1]) == pytest.approx(8 * thin / 0.2)
    assert abs(seen.mean() - float(exact["samples"][-1])) < 4 * seen.std() / np.sqrt(400)


@pytest.mark.parametrize("method", ["fedlsa", "scafflsa"])
def test_costs_are_those_of_a_plan(method):
    made = fl.plan(PROBLEM, 0.3, method=method)
    last = fl.theory.exact(PROBLEM, made.algorithm, rounds=made.rounds, record=2).isel(rounds=-1)
    assert float(last["samples"]) == pytest.approx(made.samples)
    assert int(last["bytes"]) == made.bytes
    assert int(last["communications"]) == made.rounds


def test_the_method_can_be_read_off_a_curve():
    method = fl.FedLSA(fl.PowerStep(0.1, 0.5), 3, average_after=2)
    exact = fl.theory.exact(PROBLEM, method, rounds=4)
    held = json.loads(exact.attrs["algorithm"])
    assert held["name"] == "FedLSA"
    assert held["step_size"] == {"PowerStep": {"eta_0": 0.1, "power": 0.5}}
    assert (held["local_steps"], held["average_after"]) == (3, 2)


def test_agents_who_only_report_residuals_send_and_receive_too():
    method, d, N, rounds = fl.FedLin(0.1, 7, participants=2), PROBLEM.dim, PROBLEM.n_agents, 3
    bytes_of_a_round = 8 * d * (2 * (2 + 2) + (N - 2) * (1 + 1))  # two vectors each way, of the others one
    run, exact = fl.simulate(PROBLEM, method, rounds, 1), fl.theory.exact(PROBLEM, method, rounds)
    np.testing.assert_allclose(run["bytes"].values[0], np.arange(rounds + 1) * bytes_of_a_round)
    np.testing.assert_array_equal(exact["bytes"], np.arange(rounds + 1) * bytes_of_a_round)

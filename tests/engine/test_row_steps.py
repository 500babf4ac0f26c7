"""Short runs, site by site in compiled rows, held to the readable reference."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedlsa as fl
from fedlsa.engine import reference
from fedlsa.engine.jobs import RunOptions, make_job
from fedlsa.engine.local import row_steps

LENGTHS = [1, 2, 4, 63, 197]


def rows(ridge=0.0):
    """Sites of different sizes, with rows of different sizes."""
    rng = np.random.default_rng(5)
    X = [rng.standard_normal((n, 3)) * [1.0, 0.3, 2.0] for n in (1, 5, 40)]
    return fl.problems.regression(
        [(x, x @ [1.0, -2.0, 3.0] + rng.standard_normal(len(x))) for x in X],
        ridge=ridge,
        weights=[0.2, 0.3, 0.3, 0.2],
        assignment=[0, 2, 1, 2],
    )


PROBLEMS = {
    "rows": rows(),
    "ridge": rows(0.5),
    "ridge that forgets each step": rows(20.0),  # of size 0.05
    "ridge that turns each step around": rows(30.0),
    "values, where u is not v": fl.problems.garnet(agents=4, states=6, features=3, seed=2),
    "one coefficient": fl.problems.regression([([[1.0], [2.0]], [3.0, 4.0]), ([[0.5]], [1.0])]),
}


def compared(problem, algorithm, rounds, sampling, seed=3):
    """Outcomes of one run, by readable steps and by compiled rows."""
    record = list(range(rounds + 1))
    options = RunOptions([seed], np.zeros(problem.dim), sampling=sampling, record=record, engine="reference")
    job = make_job(problem, algorithm, rounds, options)
    return reference.run_seed(job, seed), reference.run_seed(
        job, seed, row_steps(problem, sampling, job.outcomes, seed)
    )


def assert_alike(one, other):
    assert np.abs(one.theta).max() > 0
    for a, b in ((one.theta, other.theta), (one.state.xi, other.state.xi)):
        assert_allclose(b, a, rtol=0, atol=1e-11 * np.abs(a).max())
    assert (one.state.diverged_at == other.state.diverged_at).all()


@pytest.mark.parametrize("H", LENGTHS)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_rows_give_the_steps_of_the_reference(problem, H):
    for algorithm in (fl.SCAFFLSA(0.05, H), fl.FedLSA(0.05, H, participants=1)):
        assert_alike(*compared(problem, algorithm, 4, fl.IID()))


@pytest.mark.parametrize("H", LENGTHS)
def test_a_log_goes_on_from_round_to_round(H):
    assert_alike(*compared(rows(0.5), fl.SCAFFLSA(0.05, H), 4, fl.Replay()))


def test_rounds_of_random_length_are_followed():
    assert_alike(*compared(rows(), fl.Scaffnew(0.05, 0.02), 10, fl.IID()))


def test_a_run_that_leaves_the_range_of_numbers_does_so_in_the_same_round():
    one, other = compared(rows(), fl.SCAFFLSA(3.0, 80), 8, fl.IID())
    assert one.state.diverged_at[0] > 0
    assert one.state.diverged_at == other.state.diverged_at

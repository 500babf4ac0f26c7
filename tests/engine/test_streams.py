"""Streams: observations that a function draws, in every engine, beside exact theory of their means and covariances."""

import math
import pickle
import re
from dataclasses import dataclass

import numpy as np
import own_samplings
import own_steps
import own_streams
import pytest

import fedlsa as fl
from fedlsa.engine.hooks import compiled_draw
from fedlsa.engine.reference import draw_observation
from fedlsa.errors import ArgumentError, ArgumentTypeError

PROBLEM = own_streams.example(sites=3, d=2)
Z = PROBLEM.observations
EXCHANGES = (fl.Scaffold(0.05, 5), fl.SVRG(0.05, 5), fl.FedProx(0.05, 5), fl.Dropouts(0.05, 5), fl.Momentum(0.05, 5))
FURTHER = fl.SCAFFLSA(0.05, 20, participants=2), fl.FedLSA(0.05, 1), own_steps.OwnStepsSCAFFLSA(0.05, 5)
METHODS = (fl.FedLSA(0.05, 5), fl.SCAFFLSA(0.05, 5), fl.Scaffnew(0.05, 0.2))


def means_alone():
    return fl.problems.stream(PROBLEM.A_bar, PROBLEM.b_bar, Z.draw, Z.uniforms)


def drawn(seed, agent, count):
    """(count, 5): u, v and y of observations 0, ..., count - 1 as compiled code draws them."""
    out, kernel = np.zeros((count, 6)), compiled_draw(Z)
    for k in range(count):
        kernel.ctypes(out[k].ctypes.data, 2, seed, agent, k, 0, 0, 0)
    return out[:, :5] * [1, 1, 1, 1, -1]


def test_compiled_draws_are_those_of_the_function_as_it_stands():
    for agent in range(3):
        u, v, y = zip(*(draw_observation(Z, 2**40 + 1, agent, k) for k in range(20)), strict=True)
        np.testing.assert_allclose(drawn(2**40 + 1, agent, 20), np.column_stack([u, v, y]), rtol=1e-12)


def test_draws_differ_by_seed_and_agent_and_have_the_means_and_covariances_that_theory_takes():
    assert not np.isin(drawn(0, 0, 50)[:, 4], [drawn(1, 0, 50)[:, 4], drawn(0, 1, 50)[:, 4]]).any()
    for c, span in enumerate(PROBLEM.spans()):
        x = drawn(5, c, 40_000)
        z = np.column_stack([x[:, [0]] * x[:, 2:4], x[:, [1]] * x[:, 2:4], x[:, [4]] * x[:, :2]])
        listed = np.column_stack([Z.A[span].reshape(-1, 4), Z.b[span]])
        np.testing.assert_allclose(PROBLEM.prob[span] @ listed, np.append(PROBLEM.A_bar[c], PROBLEM.b_bar[c]), 1e-12)
        for f in (lambda z: z, lambda z: (z[:, :, None] * z[:, None, :]).reshape(len(z), -1)):
            off = f(z).mean(0) - PROBLEM.prob[span] @ f(listed)
            assert (np.abs(off) < 5 * f(z).std(0) / math.sqrt(len(z))).all()


@pytest.mark.parametrize("method", [*METHODS, *EXCHANGES, *FURTHER], ids=repr)
def test_the_compiled_engine_gives_what_the_reference_gives(method):
    given = {"rounds": 6, "seeds": (3, 2**40 + 1), "keep": ("theta", "xi")}
    run, twin = (fl.simulate(PROBLEM, method, engine=engine, **given) for engine in ("cpu", "reference"))
    for name in ("theta", "xi", "samples"):
        np.testing.assert_allclose(run[name], twin[name], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("method", [*METHODS, *EXCHANGES[:2]], ids=repr)
def test_runs_have_the_exact_mean_and_the_exact_error(method):
    """Within five standard errors of 400 seeds; the mean of iterates is that of the noiseless problem."""
    run, exact = (f(PROBLEM, method, 30, record=[30]) for f in (runs_of_many_seeds, fl.theory.exact))
    error, theta = run.squared_error.values[:, -1], run.theta.values[:, -1]
    assert abs(error.mean() - exact.mse.values[-1]) < 5 * error.std() / 20
    assert (np.abs(theta.mean(0) - exact["mean"].values[-1]) < 5 * theta.std(0) / 20).all()
    means = fl.theory.exact(means_alone().on_means(), method, 30, record=[30])["mean"].values
    np.testing.assert_allclose(exact["mean"], means, rtol=1e-8)


def runs_of_many_seeds(*given, **options):
    return fl.simulate(*given, seeds=400, **options)


def test_threads_and_groups_of_seeds_and_a_stop_halfway_change_no_bit():
    for method in (*METHODS, EXCHANGES[0]):
        run = fl.simulate(PROBLEM, method, 40, seeds=70, threads=2, record=[40])
        alone = fl.simulate(PROBLEM, method, 40, seeds=[69], threads=1, record=[40])
        assert (run.theta.values[69] == alone.theta.values[0]).all()
        half = fl.simulate(PROBLEM, method, 15, seeds=70, keep=("theta", "state"), record=[15])
        longer = fl.resume(half, 40, problem=PROBLEM, record=[40])
        assert (longer.theta.values[:, -1] == run.theta.values[:, -1]).all()


def test_many_agents_share_what_is_known_of_a_law():
    p = fl.problems.stream(PROBLEM.A_bar[:1], PROBLEM.b_bar[:1], draw_a_constant, 1, assignment=[0] * 40)
    given = {"rounds": 2, "seeds": 1, "theta_0": np.zeros(2), "threads": 1}
    runs = [fl.simulate(p, fl.FedLSA(0.5, 1), engine=engine, **given).theta.values for engine in ("cpu", "reference")]
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-14)
    np.testing.assert_allclose(runs[0][0, 1], [0.5 * np.mean(np.arange(40)), 0.0])  # agent c draws A = 0, b = (c, 0)


def draw_a_constant(agent, uniforms, u, v):
    u[0] = 1.0
    return float(agent)


def test_a_result_says_what_it_needs_and_problems_are_pickled():
    run = fl.simulate(PROBLEM, METHODS[0], 3, seeds=2)
    with pytest.raises(ArgumentError, match=r"problem must be passed, .* the function that draws \(fl.problems.stream"):
        fl.results.arguments(run)
    assert run.identical(fl.simulate(**fl.results.arguments(run, problem=PROBLEM)))
    with pytest.raises(ArgumentError, match="problem must be the one this result was made with"):
        fl.results.arguments(run, problem=means_alone())
    p = fl.problems.stream(PROBLEM.A_bar, PROBLEM.b_bar, draw_a_constant, 1)
    assert pickle.loads(pickle.dumps(p)) == p == fl.problems.from_recipe(p.recipe)


def test_theory_of_second_moments_asks_for_covariances_and_theory_of_means_does_not():
    p, q = means_alone(), PROBLEM
    np.testing.assert_allclose(fl.theory.bias(p, 0.05, 5), fl.theory.bias(q, 0.05, 5), rtol=1e-10)
    missing = "covariance of fl.problems.stream must be given for theory of second moments; got None"
    for theory in (fl.theory.exact, fl.theory.bound):
        refuse(lambda theory=theory: theory(p, METHODS[0], 5), missing)
    refuse(lambda: fl.theory.stationary(p, METHODS[0]), missing)
    assert fl.theory.stationary(p.on_means(), METHODS[0]).stable
    assert math.isnan(fl.theory.constants(q).A_sup)  # what is largest is not known


def fails(agent, uniforms, u, v):
    if uniforms[0] < 0.01:
        raise ValueError("mine")
    return 1.0


def refuse(call, message, kind=ArgumentError):
    with pytest.raises(kind, match=f"^{re.escape(message)}"):
        call()


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_what_a_function_must_not_do_is_refused(engine):
    def run(draw):
        p = fl.problems.stream(PROBLEM.A_bar, PROBLEM.b_bar, draw, 1)
        return lambda: fl.simulate(p, METHODS[0], 60, engine=engine)

    refuse(run(fails), "draw must not raise")
    refuse(run(fails), "draw must not raise")  # again: what has failed is forgotten
    refuse(run(lambda agent, uniforms, u, v: "a"), "draw must ")
    refuse(run(lambda agent, uniforms, u, v: u[99]), "draw must not raise")


def test_arguments_that_make_no_sense_are_refused():
    A, b, C = PROBLEM.A_bar, PROBLEM.b_bar, np.tile(np.eye(6), (3, 1, 1))
    make = fl.problems.stream
    refuse(lambda: make(A, b, lambda u, v: 1.0, 1), "draw must be a function of (agent, uniforms, u, v) that")
    refuse(lambda: make(A, b, 4, 1), "draw must be", ArgumentTypeError)
    refuse(lambda: make(A, b[:2], Z.draw, 1), "b_bar must be an array of finite numbers of shape (3, 2)")
    refuse(lambda: make(A, b, Z.draw, 0), "uniforms must be a positive integer; got 0")
    refuse(lambda: make(A, b, Z.draw, 9999), "uniforms must be a positive integer and at most 4096; got 10000")
    refuse(lambda: make(A, b, Z.draw, 4, C[:, :4]), "covariance must be an array of finite numbers of shape (3, 6, 6)")
    refuse(lambda: make(A, b, Z.draw, 4, -C), "covariance must be symmetric, without negative eigenvalues; got")
    refuse(lambda: make(A, b, Z.draw, 4, C + np.tri(6)), "covariance must be symmetric")


@dataclass(frozen=True, repr=False)
class Squared(fl.Sampling):
    def reweighted(self, problem):
        return problem.with_prob(problem.prob)


def test_what_needs_a_list_of_observations_is_refused():
    run, method = fl.simulate, METHODS[0]
    for sampling in (fl.Markov(), fl.Replay(), own_samplings.Reshuffled()):
        refuse(lambda s=sampling: run(PROBLEM, method, 3, sampling=s), "sampling must be IID() for a stream, whose obs")
    listed = "problem must have tables that list its observations; got a stream, which draws them"
    refuse(lambda: run(PROBLEM, method, 3, sampling=Squared()), listed)
    refuse(lambda: PROBLEM.moved({0: [1.0, 2.0]}), listed)
    refuse(lambda: fl.bootstrap(PROBLEM, method, 10), listed)
    refuse(lambda: run(PROBLEM, fl.SAGA(0.05, 5), 3), listed)
    refuse(lambda: run(PROBLEM, method, 3, dtype="float32"), "dtype must be 'float64' for a stream; got 'float32'")
    refuse(
        lambda: run(PROBLEM, fl.FedLSA(0.1, 2**20), 2**12), "rounds times observations per round must be below 2**32"
    )


def wrong(name):
    """The problem with a mean, or with covariances, that its function does not have."""
    given = {"A_bar": PROBLEM.A_bar, "b_bar": PROBLEM.b_bar, "covariance": PROBLEM.recipe["arguments"]["covariance"]}
    given[name] = given[name] * 1.2
    return fl.problems.stream(**given, draw=Z.draw, uniforms=Z.uniforms)


def test_the_check_of_problems_sees_what_is_wrong():
    assert set(fl.check_problem(PROBLEM).held) == {*CHECKS, "curve"}
    report = fl.check_problem(means_alone())
    assert report
    assert {"draws", "simulated", "solution"} <= set(report.held)
    assert "covariance of fl.problems.stream must be given" in report.skipped["curve"]
    for name in ("A_bar", "b_bar"):
        assert set(fl.check_problem(wrong(name)).failed) >= {"draws"}
    assert "curve" in fl.check_problem(wrong("covariance")).failed


CHECKS = ("draws", "solution", "hurwitz", "read_only", "simulated")


def test_the_example_runs(capsys):
    own_streams.main(rounds=10, seeds=2)
    assert capsys.readouterr().out.count("exactly") == 3

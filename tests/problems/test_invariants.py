"""A problem is what it says: its laws sum to one, its indices are in range, its arrays cannot be written to."""

from dataclasses import replace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, FedLSAError
from fedlsa.problems import Dense


@pytest.fixture(scope="module")
def problem():
    return fl.problems.garnet(agents=3, states=6, features=2, seed=1)


def changed(array, at, value):
    out = array.copy()
    out[at] = value
    return out


WRONG = {
    "prob must sum to one in every table": lambda p: {"prob": 0.5 * p.prob},
    "prob must hold numbers of at least 0": lambda p: {"prob": changed(p.prob, [0, 1], [-1, 1 + p.prob[:2].sum()])},
    "prob must hold finite": lambda p: {"prob": changed(p.prob, 0, np.nan)},
    "prob must have shape": lambda p: {"prob": p.prob[:-1]},
    "first must rise": lambda p: {"first": p.first[:-1]},
    "assignment must hold numbers from 0 to": lambda p: {"assignment": changed(p.assignment, 0, 9)},
    "assignment must be an array of integers": lambda p: {"assignment": p.assignment * 1.0},
    "weights must sum to one": lambda p: {"weights": 2 * p.weights},
    "weights must be positive": lambda p: {"weights": np.array([1.0, 0.0, 0.0])},
    "left must hold numbers": lambda p: {"observations": replace(p.observations, left=p.observations.left + 10**6)},
    "right must have shape": lambda p: {"observations": replace(p.observations, right=p.observations.right[1:])},
    "y must hold finite": lambda p: {"observations": replace(p.observations, y=changed(p.observations.y, 1, np.inf))},
    "following must hold": lambda p: {"observations": replace(p.observations, features=1)},
    "origin must hold": lambda p: {"chain": replace(p.chain, origin=p.chain.origin + 6)},
    "successor must hold": lambda p: {"chain": replace(p.chain, successor=p.chain.successor - 1)},
    "stationary must sum": lambda p: {"chain": replace(p.chain, stationary=p.chain.stationary / 2)},
    "conditional must sum": lambda p: {"chain": replace(p.chain, conditional=p.chain.conditional / 2)},
    "A must have shape": lambda p: {
        "observations": Dense(np.ones((len(p.prob), 3, 3)), np.ones((len(p.prob), 2))), "chain": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("rule", WRONG)
def test_a_problem_refuses_what_cannot_be(problem, rule):
    with pytest.raises(FedLSAError, match=f"^{rule}"):
        replace(problem, **WRONG[rule](problem))


def test_a_chain_that_enters_a_state_without_leaving_it_is_refused():
    """Its law would sum to 0, and outcomes of other tables would be drawn."""
    chain = ([0, 1], [1, 2], [1.0, 1.0], [1.0, 1.0])
    with pytest.raises(ArgumentError, match=r"got none for state 2, entered at \[1\]"):
        fl.problems.from_chains([chain], np.eye(3), 0.9)
    ends = fl.problems.from_chains([(*chain, [False, True])], np.eye(3)[:, :2], 0.9, initial=[1, 0, 0])
    np.testing.assert_allclose(ends.prob.sum(), 1)


def test_what_a_problem_takes_in_is_frozen_or_copied():
    A, b = np.eye(2)[None] + 0.0, np.ones((1, 2))
    base = np.array([0.2, 0.8, 0.5])
    p = fl.problems.Problem(Dense(A, b), np.ones(1), np.array([0, 1]), np.zeros(2, np.int64), base[:2])
    base[:2] = 0.5
    assert p.weights.tolist() == [0.2, 0.8]
    with pytest.raises(ValueError, match="read-only"):
        A[0, 0, 0] = 3
    data = np.ones((4, 2)) + np.eye(4, 2), np.arange(4.0)
    q = fl.problems.regression([data])
    truth = q.theta_star.copy()
    data[0][:] = 7.0  # the caller's own arrays stay the caller's
    np.testing.assert_array_equal(fl.problems.from_recipe(q.recipe).theta_star, truth)


def outright(problem):
    """A problem, what it is made of, its means as a Dense, and its moments: all that users may make by hand."""
    return problem, problem.observations, problem.on_means().observations, problem.chain, fl.theory.moments(problem)


@pytest.mark.parametrize("i", range(5), ids=["Problem", "RankOne", "Dense", "Chain", "Moments"])
@pytest.mark.parametrize("junk", [3.5, "x", [1.0], np.nan, None.__class__], ids=str)
def test_every_array_must_be_one(problem, i, junk):
    thing = outright(problem)[i]
    arrays = [name for name, value in vars(thing).items() if name in thing.__match_args__ and hasattr(value, "dtype")]
    assert len(arrays) >= 2
    for name in arrays:
        with pytest.raises(ArgumentTypeError, match=f"^{name} must be an array of (numbers|integers)"):
            replace(thing, **{name: junk})


def test_other_fields_must_be_what_they_are_called(problem):
    for thing, name, value in [
        (problem, "observations", 3.5), (problem, "chain", 1), (problem, "ordered", 1), (problem, "laboratory", 1),
        (problem, "discount", 1.0), (problem, "trace", 2), (problem, "off_policy", None),
        (problem.observations, "ridge", "x"), (problem.observations, "discount", 1.5),
        (problem.observations, "features", -1), (fl.theory.moments(problem), "laboratory", "yes"),
    ]:  # fmt: skip
        with pytest.raises(FedLSAError, match=f"^{name} must be"):
            replace(thing, **{name: value})


MOMENTS = {
    "table must hold numbers from 0 to 2": lambda m: {"table": m.table + 99},
    r"weight must have shape \(3,\)": lambda m: {"weight": m.weight[:1]},
    "weight must hold positive numbers; got -0.33": lambda m: {"weight": -m.weight},
    "weight times count must sum to one": lambda m: {"weight": 2 * m.weight},
    "count must hold positive": lambda m: {"count": 0 * m.count},
    r"noise must have shape \(3, 3, 6\)": lambda m: {"noise": m.noise[:, 1:]},
    "noise must hold finite": lambda m: {"noise": m.noise + np.nan},
    r"centre must have shape \(2,\)": lambda m: {"centre": np.zeros(3)},
}


@pytest.mark.parametrize("rule", MOMENTS)
def test_moments_refuse_what_cannot_be(problem, rule):
    m = fl.theory.moments(problem)
    with pytest.raises(ArgumentError, match=f"^{rule}"):
        replace(m, **MOMENTS[rule](m))


def test_moments_without_a_solution_say_so(problem):
    m = replace(fl.theory.moments(problem), A_bar=np.zeros((3, 2, 2)))
    with pytest.raises(fl.errors.SingularSystemError, match="A_bar must be invertible"):
        fl.theory.exact(m, fl.FedLSA(0.1, 3), rounds=3)


def test_progress_of_a_trade_off_must_be_a_function(problem):
    with pytest.raises(ArgumentTypeError, match=r"^progress must be a function"):
        fl.trade_off(problem, 0.5, "fedlsa", progress=3)


@pytest.mark.parametrize("dtype", ["i8", "f4", ">f8"])
def test_numbers_of_every_kind_are_taken_as_numbers(dtype):
    dense = Dense(np.array([np.eye(2)] * 3).astype(dtype), np.ones((3, 2), dtype))
    assert (dense.A.dtype, dense.b.dtype) == (np.float64, np.float64)
    given = {"prob": np.ones(3, dtype), "first": np.arange(4, dtype="u8"), "assignment": np.arange(3, dtype="i2")}
    p = fl.Problem(observations=dense, weights=np.full(3, 1 / 3), **given)
    np.testing.assert_allclose(p.theta_star, 1, rtol=1e-15)


def test_masked_arrays_and_no_dimensions_are_refused(problem):
    with pytest.raises(ArgumentTypeError, match="prob must be an array of numbers"):
        replace(problem, prob=np.ma.masked_array(problem.prob))
    with pytest.raises(ArgumentError, match="at least one dimension"):
        Dense(np.zeros((3, 0, 0)), np.zeros((3, 0)))


MOVABLE = {
    "garnet": fl.problems.garnet(agents=3, states=6, features=2, seed=1),
    "rows": fl.problems.ring(agents=3, noise=0.4, seed=2),
    "matrices": fl.problems.ring(agents=3, noise=0.0, ideal=True),
}


@pytest.mark.parametrize("name", MOVABLE)
def test_an_agent_whose_solution_moves_keeps_its_matrices_and_its_noise(name):
    problem, delta = MOVABLE[name], np.array([0.5, -2.0])
    moved = problem.moved({1: delta})
    before, after = fl.theory.constants(problem), fl.theory.constants(moved)
    for kept in ("A_bar", "Sigma_A", "Sigma_eps"):
        np.testing.assert_allclose(getattr(after, kept), getattr(before, kept), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        moved.theta_star_local - problem.theta_star_local, [[0, 0], delta, [0, 0]], rtol=0, atol=1e-11
    )
    assert moved.start_label() == problem.start_label()
    assert not moved.recipe


def test_solutions_that_cannot_move_are_refused(problem):
    shared = fl.problems.garnet(agents=2, states=6, features=2, assignment=[0, 0, 1])
    with pytest.raises(ArgumentError, match="agents that hold the same table must move together"):
        shared.moved({0: [1.0, 0.0]})
    together = shared.moved({0: [1.0, 0.0], 1: [1.0, 0.0]})
    np.testing.assert_allclose(
        together.theta_star_local[:2], shared.theta_star_local[:2] + np.array([1.0, 0.0]), atol=1e-9
    )
    ridge = fl.problems.regression([(np.eye(2), [1.0, 2.0])], ridge=0.1)
    with pytest.raises(ArgumentError, match=r"problem must have no ridge for its solutions to be moved; got 0\.1"):
        ridge.moved({0: [1.0, 0.0]})
    for moves, rule in (({3: [0.0, 0.0]}, "agents in moves must be"), ({0: [1.0]}, r"moves\[0\] must be")):
        with pytest.raises(ArgumentError, match=rule):
            problem.moved(moves)

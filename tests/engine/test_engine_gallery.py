"""The compiled engine on the gallery of problems that break things: run by run, and its moments."""

from dataclasses import replace

import numpy as np
import pytest
from gallery import CASES

import fedlsa as fl

ROUNDS = 3
SEEDS = {  # where squares have long tails; 350 elsewhere
    ("no noise", "some"): 600,
    ("turning modes", "some"): 500,
    ("unstable site", "some"): 500,
    ("very long rounds", "some"): 2000,  # a kurtosis of 14: the spread of few seeds is too small
}
ERRORS = 4.5  # standard errors
MANY = [name for name in CASES if CASES[name]().problem.n_agents > 1]
PAIRS = [(name, "all") for name in CASES] + [(name, "some") for name in MANY]


def runs(name: str, part: str) -> tuple[fl.Problem, list[fl.algorithms.Algorithm]]:
    """A problem and one method of each kind, with all agents or with one less; rounds are cut to 64 steps."""
    case = CASES[name]()
    some = {"participants": case.problem.n_agents - 1} if part == "some" else {}
    return case.problem, replace(case, H=min(case.H, 64)).methods(**some)


def close(a, b):
    size = max(1.0, float(np.abs(b).max()))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-9 * size)


@pytest.mark.parametrize(
    ("name", "part", "sampling"),
    [(*pair, fl.IID()) for pair in PAIRS]
    + [("absorbing chain", "all", fl.Markov(thin=2)), ("periodic chain", "some", fl.Markov())],
)
def test_compiled_runs_are_those_of_the_readable_engine(name, part, sampling):
    problem, methods = runs(name, part)
    if sampling.thin > 1:
        methods = [replace(a, local_steps=4) if isinstance(a, fl.algorithms.FixedRounds) else a for a in methods]
    run = {"rounds": ROUNDS, "seeds": [3, 2**40], "keep": ("theta", "xi"), "record": ROUNDS + 1, "sampling": sampling}
    run["theta_0"] = problem.theta_star + 1
    compiled = fl.simulate_grid(problem, methods, engine="cpu", **run)
    readable = fl.simulate_grid(problem, methods, engine="reference", **run)
    for one, other in zip(compiled, readable, strict=True):
        close(one["theta"], other["theta"])
        close(one["xi"], other["xi"])
        np.testing.assert_array_equal(one["samples"], other["samples"])


def agree(values, expected, floor=0.0):
    """Whether the mean over seeds is the expected one, to 4.5 standard errors and `floor`, the size of rounding."""
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return bool((np.abs(values.mean(axis=0) - expected) <= ERRORS * error + floor).all())


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "part", "dtype"),
    [(*pair, "float64") for pair in PAIRS]
    + [(name, "some", "float32") for name in ("jordan block", "no noise", "weights from one to a millionth")],
)
def test_moments_over_seeds_are_the_exact_ones(name, part, dtype):
    """Of theta, of squares around its mean, of control variates; where there is noise, half or twice is noticed."""
    problem, methods = runs(name, part)
    seeds = SEEDS.get((name, part), 350)
    run = {"rounds": ROUNDS, "seeds": seeds, "keep": ("theta", "xi"), "record": [ROUNDS], "dtype": dtype}
    run["theta_0"] = start = problem.theta_star + 1
    for a, found in zip(methods, fl.simulate_grid(problem, methods, **run), strict=True):
        exact = fl.theory.exact(problem, a, ROUNDS, start, record=[ROUNDS])
        theta, mean, variance = found["theta"].values[:, 0], exact["mean"].values[0], float(exact["noise"][0])
        rounding = np.finfo(dtype).eps * 50 * max(1.0, float(np.abs(theta).max()))
        assert agree(theta, mean, rounding)
        squares = np.sum((theta - mean) ** 2, axis=1)
        assert agree(squares, variance, rounding * variance**0.5 + rounding**2)
        wild = name == "nearly singular average" and isinstance(a, fl.Scaffnew)  # 1.1^length: no spread is reliable
        if variance > rounding**2 and not wild:
            assert not agree(2 * squares, variance), "too few seeds"
            assert not agree(squares / 2, variance), "too few seeds"
        if "psi" in exact:
            length = getattr(a, "local_steps", None) or 1 / a.probability
            off = np.sum((found["xi"].values - problem.xi_star) ** 2, axis=2) @ problem.weights
            psi = np.sum((theta - problem.theta_star) ** 2, axis=1) + (a.step_size * length) ** 2 * off
            assert agree(psi, float(exact["psi"][0]), rounding * float(psi.max()))

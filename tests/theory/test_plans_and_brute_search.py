"""No plan is beaten by a plain search over step sizes, round lengths and rounds that knows nothing of the planner's."""

import gallery
import numpy as np
import pytest
from tiers import mostly_long

import fedlsa as fl

METHODS = {"fedlsa": fl.FedLSA, "scafflsa": fl.SCAFFLSA, "scaffnew": fl.Scaffnew}


def dense(rng, agents, dim, noise, spread=0.5):
    """Agents with random systems around a common one; noise = 0 leaves one outcome each."""
    tables, common = [], rng.standard_normal(dim)
    for _ in range(agents):
        A = np.diag(rng.uniform(0.5, 2, dim)) + spread * rng.standard_normal((dim, dim)) / dim
        b = A @ (common + spread * rng.standard_normal(dim))
        tables.append(gallery.shaken(A, b, noise, noise) if noise else ([1.0], A[None], b[None]))
    return tables


def corridor(rng, agents, states, noise):
    """Walks to the right, one-hot: mean systems have one eigenvalue and one eigenvector."""
    tables = []
    for _ in range(agents):
        A = np.eye(states) - rng.uniform(0.5, 0.95) * np.eye(states, k=1)
        tables.append(gallery.shaken(A, rng.standard_normal(states), noise, noise))
    return tables


def regression(rng, agents, dim):
    sites = []
    for _ in range(agents):
        X = rng.standard_normal((20, dim)) * rng.uniform(0.5, 1.5, dim)
        sites.append((X, X @ (1 + 0.3 * rng.standard_normal(dim)) + 0.5 * rng.standard_normal(20)))
    return fl.problems.regression(sites)


def small_problem(rng, kind):
    agents, dim = int(rng.choice([2, 3, 5])), int(rng.integers(1, 4))
    observed, noise = fl.problems.from_observations, float(rng.choice([0.1, 0.3, 0.6]))
    return {
        "garnet": lambda: fl.problems.garnet(agents=agents, states=6, features=2, seed=int(rng.integers(99))),
        "ring": lambda: fl.problems.ring(agents=agents, noise=noise),
        "regression": lambda: regression(rng, agents, dim),
        "dense": lambda: observed(dense(rng, agents, dim, noise)),
        "noiseless": lambda: observed(dense(rng, agents, dim, 0.0, 0.3)),
        "one agent": lambda: observed(dense(rng, 1, dim, noise)),
        "corridor": lambda: observed(corridor(rng, agents, 3, noise)),
        "weights": lambda: observed(dense(rng, agents, dim, noise), weights=rng.uniform(1, 4, agents)),
    }[kind]()


KINDS = ("garnet", "ring", "regression", "dense", "noiseless", "one agent", "corridor", "weights")


def first_lasting(problem, algorithm, epsilon, theta_0, most):
    """The first round up to `most` from which errors stay within epsilon, to the limit; None if there is none."""
    if not fl.theory.exact(problem, algorithm, most, theta_0, record=[most])["mse"].values[0] <= epsilon**2:
        return None  # of most, and quickly
    mse = fl.theory.exact(problem, algorithm, most + 12, theta_0, record=list(range(1, most + 13)))["mse"].values
    over = np.flatnonzero(~(mse <= epsilon**2))
    since = 1 if not len(over) else int(over[-1]) + 2
    if since > most:
        return None
    try:
        return since if fl.theory.stationary(problem, algorithm).mse <= epsilon**2 else None
    except fl.errors.PrecisionError:
        return None


def beaten_by(problem, plan, epsilon, theta_0, most, steps, ratio):
    """A method with fewer rounds within `most` observations, and its rounds, if a grid has one."""
    kind, edge = type(plan.algorithm), fl.theory.stability_limit(problem, fl.FedLSA(0.1, 1))
    lengths = {round(ratio**k) for k in range(200) if ratio**k <= most} | {most // T for T in range(1, plan.rounds)}
    for H in sorted(lengths):
        fewest = min(plan.rounds - 1, most // H)
        for eta in edge * np.geomspace(0.3 / most, 0.999, steps) if fewest else ():
            algorithm = kind.with_steps(float(eta), H)
            if (T := first_lasting(problem, algorithm, epsilon, theta_0, fewest)) is not None:
                return algorithm, T
    return None


def case(seed):
    """A problem, an accuracy, a start and a method, all drawn."""
    rng = np.random.default_rng(seed)
    problem = small_problem(rng, KINDS[seed % len(KINDS)])
    theta_0 = problem.theta_star + rng.standard_normal(problem.dim) * rng.choice([1, 5]) if seed % 3 else None
    far = np.linalg.norm((problem.start if theta_0 is None else theta_0) - problem.theta_star)
    return problem, far * float(rng.choice([0.3, 0.1, 0.03])), theta_0


def check(seed, method, steps, ratio):
    problem, epsilon, theta_0 = case(seed)
    plan = fl.plan(problem, epsilon, method=method, theta_0=theta_0)
    most = int(4 * fl.theory.synchronous_plan(problem, epsilon, theta_0).samples)
    assert plan.samples <= most
    assert plan.later <= epsilon
    assert beaten_by(problem, plan, epsilon, theta_0, most, steps, ratio) is None, str(plan)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", mostly_long([1, 28, 33], [1]))
def test_no_plan_is_beaten_by_a_coarse_search(seed, method):
    check(seed, method, steps=10, ratio=3.0)


def test_plans_that_were_missed_are_found():
    """Two rounds where errors rise again later; one with a step size that solves the averaged system at once."""
    ring = fl.problems.ring(agents=3, ideal=True)
    assert fl.plan(ring, 0.1, method="scaffnew", theta_0=[9.0, 9.0]).rounds == 2
    apart = fl.problems.from_observations([gallery.sure([[0.75]], [-3.7]), gallery.sure([[1.08]], [1.7])])
    assert {fl.plan(apart, 0.02, method=m, theta_0=[2.3]).rounds for m in METHODS} == {1}


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_one_long_round_is_found_where_eight_short_ones_are_not_enough(seed):
    """Sites that agree, without noise: from control variates of 0, one round of SCAFFLSA is one of FedLSA."""
    rng = np.random.default_rng(seed)
    sites = [(X, X @ [1.0, 2.0, 3.0]) for X in rng.standard_normal((3, 40, 3))]
    problem = fl.problems.regression(sites).on_means()
    plans = [fl.plan(problem, 1e-6, method=m) for m in ("fedlsa", "scafflsa")]
    assert [p.rounds for p in plans] == [1, 1]
    assert plans[1].samples <= plans[0].samples


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(40))
def test_no_plan_is_beaten_by_a_search(seed, method):
    check(seed, method, steps=100, ratio=1.3)

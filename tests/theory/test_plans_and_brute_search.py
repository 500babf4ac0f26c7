"""No plan is beaten by a plain search over step sizes, round lengths and rounds that knows nothing of the planner's."""

import gallery
import numpy as np
import pytest
from tiers import mostly_long

import fedlsa as fl
from fedlsa.threads import one_blas_thread

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


def mean_errors(problem, kind, etas, H, theta_0, rounds):
    """||E theta_T - theta_star|| after rounds of H steps, from the algorithms as printed; one for each step size."""
    N, d = problem.n_agents, problem.dim
    eta, one = np.asarray(etas)[:, None, None, None], np.eye(d)
    M = one - eta * problem.A_bar  # (step sizes, agents, dim, dim)
    if kind is fl.Scaffnew:  # the mean over a length that is geometric
        total = np.linalg.inv(one - (1 - 1 / H) * M)
        power = M @ total / H
    else:
        both = np.block([[M, np.broadcast_to(one, M.shape)], [np.zeros_like(M), np.broadcast_to(one, M.shape)]])
        both = np.linalg.matrix_power(both, H)
        power, total = both[..., :d, :d], both[..., :d, d:]
    # theta - theta_star, then N control variates, then 1: what each agent sends, and what becomes of all
    sent = np.zeros((len(etas), N, d, d * (1 + N) + 1))
    sent[..., :d], sent[..., -1] = (
        power,
        (eta * total @ (problem.b_bar - problem.A_bar @ problem.theta_star)[..., None])[..., 0],
    )
    for c in range(N):
        sent[:, c, :, d * (1 + c) : d * (2 + c)] = (eta * total)[:, c]
    mean = np.einsum("c,kcij->kij", problem.weights, sent)
    turn = np.tile(np.eye(d * (1 + N) + 1), (len(etas), 1, 1))
    turn[:, :d] = mean
    if kind is not fl.FedLSA:
        for c in range(N):
            turn[:, d * (1 + c) : d * (2 + c)] += (mean - sent[:, c]) / (eta[:, 0] * H)
    state = np.zeros(turn.shape[1])
    state[:d], state[-1] = (problem.start if theta_0 is None else theta_0) - problem.theta_star, 1
    return np.linalg.norm((np.linalg.matrix_power(turn, rounds) @ state)[:, :d], axis=1)


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
        if not fewest:
            continue
        etas = edge * np.geomspace(0.3 / most, 0.999, steps)
        far = mean_errors(problem, kind, etas, H, theta_0, fewest)  # never more than the root of the mean square
        for eta in etas[~(far > epsilon * (1 + 1e-6))]:
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
    with one_blas_thread():
        assert beaten_by(problem, plan, epsilon, theta_0, most, steps, ratio) is None, str(plan)


@pytest.mark.parametrize("seed", range(len(KINDS)))
@pytest.mark.parametrize("method", METHODS)
def test_the_mean_that_the_search_asks_first_is_the_exact_one(seed, method):
    problem, _, theta_0 = case(seed)
    edge, kind = fl.theory.stability_limit(problem, fl.FedLSA(0.1, 1)), METHODS[method]
    for H, rounds in ((1, 3), (7, 5)):
        curve = fl.theory.exact(problem, kind.with_steps(0.2 * edge, H), rounds, theta_0, record=[rounds])
        far = mean_errors(problem, kind, [0.1 * edge, 0.2 * edge], H, theta_0, rounds)
        assert far[1] == pytest.approx(float(np.linalg.norm(curve["bias"].values[0])), rel=1e-9, abs=1e-12)
        assert far[1] ** 2 <= curve["mse"].values[0] * (1 + 1e-9)


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

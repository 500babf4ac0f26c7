"""What runs must do on average and in the long run, computed here from the tables by other means.

Statistical tests have fixed seeds and allow 4.5 standard errors: with a right engine, all of them together would fail
for about one choice of seeds in a hundred.
"""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.engine.outcome_tables import first_states, outcome_tables
from fedlsa.engine.reference import Observer

ETA, H, T = 0.4, 5, 30


def regression(weights=None, ridge=0.0, spread=1.0, sizes=(6, 4, 9, 5), d=5):
    g = np.random.default_rng(1)
    sites = []
    for K in sizes:
        X = g.normal(size=(K, d)) * g.uniform(0.3, 1.5, d)
        X /= np.linalg.norm(X, axis=1).max()
        sites.append((X, X @ (spread * g.normal(size=d)) + 0.3 * g.normal(size=K)))
    return fl.problems.regression(sites, ridge, weights=weights)


PROBLEMS = {"equal weights": regression(), "unequal weights": regression(weights=[0.1, 0.4, 0.2, 0.3])}
every_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def outcomes(problem, c):
    """prob (K,), A (K, d, d), b (K, d) of agent c."""
    m = problem.assignment[c]
    span = slice(problem.first[m], problem.first[m + 1])
    return problem.prob[span], *problem.observations.matrices(span)


def local(problem, c, eta, steps, theta, xi=0.0):
    """The mean of theta_hat after some steps of agent c: a noiseless run, since observations are independent."""
    for _ in range(steps):
        theta = theta - eta * (problem.A_bar[c] @ theta - problem.b_bar[c] - xi)
    return theta


def within(samples, expected, standard_errors):
    """Whether the mean over the first axis lies within so many standard errors of what is expected."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    return (np.abs(samples.mean(axis=0) - expected) <= standard_errors * error).all()


@every_problem
@pytest.mark.parametrize("options", [{}, {"average_after": 20}], ids=["last", "averaged"])
def test_mean_of_fedlsa_follows_the_mean_recursion(problem, options):
    mean = [problem.start]
    for _ in range(T):
        hats = [local(problem, c, ETA, H, mean[-1]) for c in range(4)]
        mean.append(problem.weights @ hats)
    if options:
        mean[20:] = np.cumsum(mean[20:], axis=0) / np.arange(1, T - 18)[:, None]
    recorded = [1, 3, 10, 22, T]
    theta = fl.simulate(problem, fl.FedLSA(ETA, H, **options), T, 1500, record=recorded)["theta"].values
    assert within(theta, np.array(mean)[recorded], 4.5)


def test_mean_of_fedlsa_does_not_depend_on_how_many_agents_of_equal_weight_take_part():
    problem = PROBLEMS["equal weights"]
    mean = problem.start
    for _ in range(10):
        mean = np.mean([local(problem, c, ETA, H, mean) for c in range(4)], axis=0)
    theta = fl.simulate(problem, fl.FedLSA(ETA, H, participants=2), 10, 1500, record=[10])["theta"].values
    assert within(theta[:, 0], mean, 4.5)


@every_problem
def test_mean_square_error_of_fedlsa_follows_the_second_moment_recursion(problem):
    """e = theta - theta_star obeys e <- (I - eta A(z)) e - eta eps(z), eps(z) = A(z) theta_star - b(z).

    Given e_t agents are independent: E[e e^T] needs the d^2 x d^2 recursion of each agent and products of means.
    """
    d, w, star = problem.dim, problem.weights, problem.theta_star
    identity = np.eye(d)
    step = []
    for c in range(4):
        p, A, b = outcomes(problem, c)
        eps, F = A @ star - b, identity - ETA * A
        square = np.einsum("k,kij,kmn->imjn", p, F, F).reshape(d * d, d * d)  # vec(M) -> vec(E[F M F^T])
        cross = np.einsum("k,kij,km->imj", p, F, -ETA * eps)  # m -> E[F m (-eta eps)^T]
        noise = ETA**2 * np.einsum("k,ki,kj->ij", p, eps, eps)
        step.append((np.einsum("k,kij->ij", p, F), -ETA * p @ eps, square, cross, noise))
    m, M = np.ones(d), np.ones((d, d))
    expected = [np.trace(M)]
    for _ in range(T):
        maps, own = [], []
        for F_bar, drift, square, cross, noise in step:
            P, q, x, X = identity, np.zeros(d), m, M
            for _h in range(H):
                C = cross @ x
                X = (square @ X.ravel()).reshape(d, d) + C + C.T + noise
                x = F_bar @ x + drift
                P, q = F_bar @ P, F_bar @ q + drift
            maps.append((P, q))
            own.append(X)
        total = np.zeros((d, d))
        for c, (P, q) in enumerate(maps):
            for k, (Q, r) in enumerate(maps):
                pair = P @ M @ Q.T + np.outer(P @ m, r) + np.outer(q, Q @ m) + np.outer(q, r)
                total += w[c] * w[k] * (own[c] if c == k else pair)
        m, M = sum(w[c] * (P @ m + q) for c, (P, q) in enumerate(maps)), total
        expected.append(np.trace(M))
    recorded = [1, 2, 5, 12, T]
    r = fl.simulate(problem, fl.FedLSA(ETA, H), T, 3000, star + 1, record=recorded)["squared_error"].values
    assert within(r, np.array(expected)[recorded], 4.5)
    assert r[:, -1].std() / np.sqrt(3000) < 0.03 * expected[-1]  # sharp enough to notice a few percent


def controlled_round(problem, theta, xi, lengths, gain):
    """The mean of (theta, xi) after a round whose length has the given law: lengths[k] = P(k + 1 updates)."""
    hats = np.tile(theta, (len(xi), 1))
    mean_theta, mean_xi = np.zeros_like(theta), np.zeros_like(xi)
    for share in lengths:
        hats = np.array([local(problem, c, ETA, 1, hats[c], xi[c]) for c in range(len(xi))])
        average = problem.weights @ hats
        mean_theta += share * average
        mean_xi += share * (xi + gain * (average - hats))
    return mean_theta, mean_xi


@every_problem
@pytest.mark.parametrize("method", ["SCAFFLSA", "Scaffnew"])
def test_means_of_theta_and_xi_follow_the_mean_recursion_with_control_variates(problem, method):
    if method == "SCAFFLSA":
        algorithm, lengths, gain = fl.SCAFFLSA(ETA, H), [0] * (H - 1) + [1], 1 / (ETA * H)
    else:  # both are affine in (theta, xi) and the length of a round is independent of them
        p = 0.3
        algorithm, lengths, gain = fl.Scaffnew(ETA, p), p * (1 - p) ** np.arange(120), p / ETA
    mean, xi = [problem.start], np.zeros((4, problem.dim))
    for _ in range(12):
        theta, xi = controlled_round(problem, mean[-1], xi, lengths, gain)
        mean.append(theta)
    recorded = [1, 2, 6, 12]
    r = fl.simulate(problem, algorithm, 12, 1500, record=recorded, keep=("theta", "xi"))
    assert within(r["theta"].values, np.array(mean)[recorded], 4.5)
    assert within(r["xi"].values, xi, 4.5)
    assert np.abs(r["xi"].values).max() > 0.1


def test_the_mean_of_fedlsa_tends_to_theta_star_plus_its_bias():
    problem = regression(weights=[0.1, 0.4, 0.2, 0.3], spread=3.0)
    eta, steps = 0.5, 20
    bias = fl.theory.bias(problem, eta, steps)
    theta = fl.simulate(problem, fl.FedLSA(eta, steps, average_after=100), 300, 400, record=[300])["theta"].values[:, 0]
    assert within(theta, problem.theta_star + bias, 4.5)
    assert not within(theta, problem.theta_star, 20)  # without the bias the same test fails by far
    controlled = fl.SCAFFLSA(eta, steps, average_after=100)
    theta = fl.simulate(problem, controlled, 600, 400, record=[600])["theta"].values[:, 0]
    assert within(theta, problem.theta_star, 4.5)


# ---------------------------------------------------------------- trajectories


@pytest.fixture(scope="module")
def chain():
    return fl.problems.garnet(agents=2, states=12, seed=3)


def test_trajectories_start_from_the_stationary_law(chain):
    n = 5000
    starts = first_states(chain, fl.Markov(), np.arange(n, dtype=np.uint64))
    for c in range(2):
        law = chain.chain.stationary[12 * c : 12 * (c + 1)]
        frequency = np.bincount(starts[:, c], minlength=12) / n
        assert (np.abs(frequency - law) <= 4.5 * np.sqrt(law * (1 - law) / n)).all()


def test_trajectories_move_with_the_transition_probabilities(chain):
    sampling = fl.Markov(start=(0, 0))
    agent = Observer(chain, sampling, outcome_tables(chain, sampling), 1, 1, 0)
    z = {}
    for k in range(chain.first[1], chain.first[2]):
        A, b = chain.observations.matrices(slice(k, k + 1))
        z[A.tobytes() + b.tobytes()] = k
    seen = []
    for _ in range(6000):
        A, b = agent.receive()
        seen.append(z[A[None].tobytes() + b[None].tobytes()])
    origin, successor = chain.chain.origin[seen], chain.chain.successor[seen]
    assert origin[0] == 0
    assert (origin[1:] == successor[:-1]).all()
    visits = np.bincount(origin, minlength=12)
    for k in range(chain.first[1], chain.first[2]):
        p, n = chain.chain.conditional[k], visits[chain.chain.origin[k]]
        assert abs(seen.count(k) - n * p) <= 4.5 * np.sqrt(n * p * (1 - p)) + 1e-9
    assert visits.max() > 500


def test_under_the_stationary_law_one_markov_step_has_the_mean_of_an_independent_one(chain):
    mean = chain.start
    mean = np.mean([local(chain, c, ETA, 1, mean) for c in range(2)], axis=0)
    theta = fl.simulate(chain, fl.FedLSA(ETA, 1), 1, 4000, sampling=fl.Markov(), record=[1])["theta"].values[:, 0]
    assert within(theta, mean, 4.5)


# ---------------------------------------------------------------- without noise


def noiseless(agents=3, d=6):
    """One outcome per agent: every run is deterministic."""
    g = np.random.default_rng(7)
    tables = []
    for _ in range(agents):
        B = g.normal(size=(d, d)) / np.sqrt(d)
        tables.append(([1.0], (0.3 * np.eye(d) + 0.5 * B @ B.T)[None], g.normal(size=(1, d))))
    return fl.problems.from_observations(tables, weights=np.arange(1.0, agents + 1))


def test_scafflsa_stays_at_the_solution_with_the_ideal_control_variates():
    p = noiseless()
    for algorithm in (fl.SCAFFLSA(0.1, 10), fl.Scaffnew(0.1, 0.1)):
        r = fl.simulate(p, algorithm, 100, 2, p.theta_star, p.xi_star, keep=("theta", "xi"))
        assert np.abs(r["theta"].values - p.theta_star).max() < 1e-12
        assert np.abs(r["xi"].values - p.xi_star).max() < 1e-12


def test_without_noise_fedlsa_ends_at_its_bias_and_scafflsa_at_the_solution():
    p = noiseless()
    bias = fl.theory.bias(p, 0.1, 10)
    assert np.linalg.norm(bias) > 0.01
    a, b = fl.simulate_grid(p, [fl.FedLSA(0.1, 10), fl.SCAFFLSA(0.1, 10)], 400, 1, record=[400], keep=("theta", "xi"))
    np.testing.assert_allclose(a["theta"].values[0, 0], p.theta_star + bias, rtol=0, atol=1e-11)
    np.testing.assert_allclose(b["theta"].values[0, 0], p.theta_star, rtol=0, atol=1e-11)
    np.testing.assert_allclose(b["xi"].values[0], p.xi_star, rtol=0, atol=1e-11)
    assert (a["xi"].values == 0).all()


def test_identical_agents_have_no_bias():
    tables = noiseless().recipe["arguments"]["tables"][:1]
    p = fl.problems.from_observations(tables, assignment=[0, 0, 0])
    assert np.abs(fl.theory.bias(p, 0.1, 10)).max() < 1e-14
    theta = fl.simulate(p, fl.FedLSA(0.1, 10), 400, 1, record=[400])["theta"].values[0, 0]
    np.testing.assert_allclose(theta, p.theta_star, rtol=0, atol=1e-11)


def test_a_power_step_is_a_chain_of_rounds_with_the_step_sizes_written_out():
    p = noiseless()
    for method in (fl.FedLSA, fl.SCAFFLSA):
        theta, xi = p.start, np.zeros((3, p.dim))
        for t in range(8):
            eta = 0.4 / (t + 1) ** 0.7
            r = fl.simulate(p, method(eta, 6), 1, 1, theta, xi, record=[1], keep=("theta", "xi"))
            theta, xi = r["theta"].values[0, 0], r["xi"].values[0]
        whole = fl.simulate(p, method(fl.PowerStep(0.4, 0.7), 6), 8, 1, record=[8])["theta"].values[0, 0]
        np.testing.assert_allclose(whole, theta, rtol=0, atol=1e-13)


# ---------------------------------------------------------------- what users come for


def test_td_with_one_hot_features_finds_the_value_function_of_dynamic_programming():
    g = np.random.default_rng(0)
    S, gamma = 8, 0.8
    P, r, policy = g.dirichlet(np.full(S, 0.7), size=(1, S, 2)), g.normal(size=(1, S, 2)), g.dirichlet([2, 2], size=S)
    V = np.zeros(S)
    for _ in range(300):
        V = (policy * (r[0] + gamma * P[0] @ V)).sum(axis=1)
    p = fl.problems.from_mdps(P, r, policy, np.eye(S), gamma, assignment=[0] * 4)
    algorithm = fl.SCAFFLSA(0.3, 10, average_after=1000)
    for sampling in (fl.IID(), fl.Markov(thin=10)):
        final = fl.simulate(p, algorithm, 5000, 40, np.zeros(S), sampling=sampling, record=[5000])["theta"].values[:, 0]
        assert np.abs(final.mean(axis=0) - V).max() < 0.02 * np.abs(V).max()
        if sampling == fl.IID():
            assert within(final, V, 4.5)


def test_regression_finds_the_ridge_estimate_from_the_data_of_all_sites_together():
    ridge, sizes = 0.05, (6, 4, 9, 5)
    p = regression(sizes, ridge, spread=2.0, sizes=sizes)
    sites = p.recipe["arguments"]["sites"]
    X, y = (np.concatenate(parts) for parts in zip(*sites, strict=True))
    closed = np.linalg.solve(X.T @ X + len(y) * ridge * np.eye(p.dim), X.T @ y)
    np.testing.assert_allclose(p.theta_star, closed, rtol=1e-10)
    algorithm = fl.SCAFFLSA(0.3, 10, average_after=1000)
    final = fl.simulate(p, algorithm, 4000, 40, np.zeros(p.dim), record=[4000])["theta"].values[:, 0]
    assert within(final, closed, 4.5)
    assert np.linalg.norm(final - closed, axis=1).max() < 0.05 * np.linalg.norm(closed)


# ---------------------------------------------------------------- options


def test_projection_keeps_theta_in_its_ball():
    p, radius = PROBLEMS["equal weights"], 0.8
    theta = fl.simulate(p, fl.FedLSA(ETA, H, projection=radius), 40, 5, record=41)["theta"].values[:, 1:]
    norm = np.linalg.norm(theta, axis=-1)
    assert norm.max() <= radius * (1 + 1e-14)
    assert (norm > radius * (1 - 1e-14)).any()  # and it was needed
    free = fl.simulate(p, fl.FedLSA(ETA, H), 40, 5, record=41)["theta"].values
    large = fl.simulate(p, fl.FedLSA(ETA, H, projection=1e6), 40, 5, record=41)["theta"].values
    np.testing.assert_array_equal(free, large)


@pytest.mark.parametrize("after", [0, 1, 7, 20])
def test_averaged_iterates_are_the_running_mean_of_the_plain_ones(after):
    p = PROBLEMS["unequal weights"]
    plain = fl.simulate(p, fl.SCAFFLSA(ETA, H), 20, 3, record=21)["theta"].values
    averaged = fl.simulate(p, fl.SCAFFLSA(ETA, H, average_after=after), 20, 3, record=21)["theta"].values
    np.testing.assert_array_equal(averaged[:, :after], plain[:, :after])
    for t in range(after, 21):
        np.testing.assert_allclose(averaged[:, t], plain[:, after : t + 1].mean(axis=1), rtol=0, atol=1e-13)

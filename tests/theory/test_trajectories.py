"""Moments along trajectories against enumeration of all paths, against simulation; the closure against the truth."""

import itertools
import tracemalloc
from decimal import Decimal, localcontext

import numpy as np
import pytest
from tiers import mostly_long

import fedlsa as fl
from fedlsa.theory import moments, tuning
from fedlsa.theory.trajectories import Convergence

BEYOND = 4.5  # standard errors that a simulated mean may lie off


def chains(seed: int, agents: int, states: int = 2, stay: float = 0.0, **keywords) -> fl.Problem:
    """TD(0) on chains that stay where they are with probability `stay` and more."""
    rng = np.random.default_rng(seed)
    P = stay * np.eye(states)[None, :, None, :] + (1 - stay) * rng.dirichlet(np.ones(states), (agents, states, 1))
    phi = rng.standard_normal((states, 2))
    return fl.problems.from_mdps(P, 2 * rng.random((agents, states, 1)), np.ones((states, 1)), phi, 0.5, **keywords)


def paths(problem, c, length, start):
    """Every sequence of outcomes that an agent can meet, with its probability."""
    m, chain = problem.assignment[c], problem.chain
    span = range(problem.first[m], problem.first[m + 1])
    law = chain.stationary[chain.first_state[m] : chain.first_state[m + 1]]
    out = [(float(p), s, []) for s, p in enumerate(law)] if start is None else [(1.0, start[c], [])]
    for _ in range(length):
        out = [
            (p * chain.conditional[k], chain.successor[k], [*seen, k])
            for p, s, seen in out
            for k in span
            if chain.origin[k] == s
        ]
    return [(p, seen) for p, _, seen in out]


def enumerated(problem, a, rounds, theta_0, sampling):
    """E[theta], E||theta - theta_star||^2 and Cov(theta) after each round, over all paths of all agents."""
    N, w, H, eta = problem.n_agents, problem.weights, a.local_steps, a.step_size
    gain = 0.0 if isinstance(a, fl.FedLSA) else 1 / (eta * (H // sampling.thin))
    A, b = problem.observations.matrices(slice(0, len(problem.prob)))
    each = [paths(problem, c, rounds * H, sampling.start) for c in range(N)]
    joint = np.stack(np.meshgrid(*(np.arange(len(own)) for own in each), indexing="ij"), -1).reshape(-1, N)
    p = np.prod([np.array([chance for chance, _ in own])[joint[:, c]] for c, own in enumerate(each)], axis=0)
    seen = np.stack([np.array([k for _, k in own])[joint[:, c]] for c, own in enumerate(each)], axis=1)
    mean, mse, covariance = np.zeros((rounds + 1, problem.dim)), np.zeros(rounds + 1), []
    theta, xi = np.tile(theta_0, (len(p), 1)), np.zeros((len(p), N, problem.dim))
    for t in range(rounds + 1):
        mean[t], mse[t] = p @ theta, p @ np.sum((theta - problem.theta_star) ** 2, axis=1)
        covariance.append(np.cov(theta.T, aweights=p, ddof=0))
        if t < rounds:
            hat = np.repeat(theta[:, None], N, axis=1)
            for i in range(t * H, (t + 1) * H)[sampling.thin - 1 :: sampling.thin]:
                k = seen[:, :, i]
                hat = hat - eta * (np.einsum("pcij,pcj->pci", A[k], hat) - b[k] - xi)
            theta = np.einsum("c,pci->pi", w, hat)
            xi = xi + gain * (theta[:, None] - hat)
    return mean, mse, np.array(covariance)


@pytest.mark.parametrize("start", [None, (1, 0)], ids=["stationary", "from states"])
@pytest.mark.parametrize(("H", "thin"), [(2, 1), (3, 2)])
@pytest.mark.parametrize("method", [fl.FedLSA, fl.SCAFFLSA])
@pytest.mark.parametrize("agents", [1, 2])
def test_moments_equal_those_of_all_paths(agents, method, H, thin, start):
    p = chains(5, agents, 3 if agents == 1 else 2, weights=[1.0, 3.0][:agents])
    a, sampling = method(0.3, H), fl.Markov(thin=thin, start=None if start is None else start[:agents])
    theta_0 = p.theta_star + np.array([1.0, -2.0])
    mean, mse, covariance = enumerated(p, a, 2, theta_0, sampling)
    found = fl.theory.exact(p, a, rounds=2, theta_0=theta_0, sampling=sampling)
    np.testing.assert_allclose(found["mean"], mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found["covariance"], covariance, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.trace(found["covariance"], axis1=1, axis2=2), found["noise"], rtol=1e-14)
    np.testing.assert_allclose(found["mse"], mse, rtol=1e-12)
    assert found.attrs["moments"] == ("exact" if agents == 1 else "exact on the product of chains")
    assert found.attrs["sampling"].startswith(f"Markov(thin={thin}")


digits = np.vectorize(Decimal, otypes=[object])


def in_sixty_digits(problem, a, rounds, u, sampling):
    """E[theta] - theta_star, the variance and psi after each round: plain second moments of all hats, xi and 1.

    They stand on the product of chains and go on observation by observation; 60 digits bear the differences.
    """
    N, d, chain, thin = problem.n_agents, problem.dim, problem.chain, sampling.thin
    A, b = (digits(x) for x in problem.observations.matrices(slice(0, len(problem.prob))))
    w, eye, n = digits(problem.weights) / sum(digits(problem.weights)), digits(np.eye(d)), 2 * N * d + 1
    hat, xi = ([slice(i * d, (i + 1) * d) for i in range(k, k + N)] for k in (0, N))
    updates = Decimal(1 / a.probability) if isinstance(a, fl.Scaffnew) else a.local_steps // thin
    spans, laws, chance = [], [], digits(chain.conditional)
    for c, m in enumerate(problem.assignment):
        spans.append(range(problem.first[m], problem.first[m + 1]))
        law = digits(chain.stationary[chain.first_state[m] : chain.first_state[m + 1]])
        laws.append(law / sum(law) if sampling.start is None else digits(np.eye(len(law))[sampling.start[c]]))
        for s in range(len(law)):
            out = [k for k in spans[c] if chain.origin[k] == s]
            chance[out] /= sum(chance[out], Decimal(0)) or 1
    y = np.concatenate([np.tile(digits(u), N), digits(np.zeros(N * d)), digits([1.0])])
    joint = itertools.product(*(range(len(law)) for law in laws))
    state = {s: np.prod([law[i] for law, i in zip(laws, s, strict=True)]) * np.outer(y, y) for s in joint}

    def observed(state, eta):
        for c, span in enumerate(spans):
            after = {}
            for (s, Y), k in itertools.product(state.items(), span):
                if chain.origin[k] == s[c] and chance[k]:
                    B = digits(np.eye(n))
                    B[hat[c], hat[c]] -= eta * A[k]
                    B[hat[c], xi[c]] = eta * eye
                    B[hat[c], -1] = eta * (b[k] - A[k] @ digits(problem.theta_star))
                    to = (*s[:c], int(chain.successor[k]), *s[c + 1 :])
                    after[to] = after.get(to, 0) + chance[k] * (B @ Y @ B.T)
            state = after
        return state

    def averaged(state, gain):
        E, mean = digits(np.eye(n)), np.concatenate([w_c * eye for w_c in w], axis=1)
        for c in range(N):
            E[hat[c], : N * d] = mean
            E[xi[c], : N * d] = gain * mean
            E[xi[c], hat[c]] = E[xi[c], hat[c]] - gain * eye
        return {s: E @ Y @ E.T for s, Y in state.items()}

    found, star = [], digits(problem.xi_star)
    for t in range(rounds + 1):
        F = sum(state.values())
        second, mean = np.diag(F), F[:-1, -1]
        apart = [sum(second[x] - 2 * star[c] * mean[x] + star[c] ** 2) for c, x in enumerate(xi)]
        last, eta = (Decimal(float(a.eta(np.array([k]))[0])) for k in (max(t - 1, 0), t))
        psi = sum(second[:d]) + (last * updates) ** 2 * (w @ np.array(apart))
        found.append((mean[:d].astype(float), float(sum(second[:d] - mean[:d] ** 2)), float(psi)))
        if isinstance(a, fl.Scaffnew):
            share, now, state = Decimal(a.probability), state, {}
            while share > Decimal("1e-50"):
                for eta_i in [Decimal(0)] * (thin - 1) + [eta]:
                    now = observed(now, eta_i)
                state = {s: state.get(s, 0) + share * Y for s, Y in now.items()}
                share *= 1 - Decimal(a.probability)
        else:
            for i in range(a.local_steps):
                state = observed(state, eta if (i + 1) % thin == 0 else Decimal(0))
        state = averaged(state, 0 if N == 1 or isinstance(a, fl.FedLSA) else 1 / (eta * updates))
    return [np.array(x) for x in zip(*found, strict=True)]


def walk(P, r, phi, **keywords) -> fl.Problem:
    return fl.problems.from_mdps(
        np.array(P)[:, :, None], np.array(r)[:, :, None], np.ones((len(phi), 1)), phi, 0.5, **keywords
    )


HOSTILE = {
    "one agent": lambda: chains(5, 1),
    "two agents": lambda: chains(5, 2, weights=[1.0, 3.0]),
    "periodic": lambda: walk([[[0.0, 1.0], [1.0, 0.0]]] * 2, [[1.0, 0.3], [0.2, 1.0]], [[0.7], [1.1]]),
    "absorbing": lambda: walk([[[0.5, 0.5], [0.0, 1.0]]] * 2, [[1.0, 0.0], [0.2, 1.0]], [[1.0], [0.5]]),
    "terminal": lambda: walk(
        [[[0.2, 0.8], [0.0, 1.0]]], [[1.0, 0.0]], [[1.0], [0.5]], terminal=[False, True], initial=[1.0, 0.0]
    ),
    "nearly periodic": lambda: walk(
        [[[1e-9, 1 - 1e-9], [1 - 1e-9, 1e-9]]] * 2, [[1.0, 0.3], [0.2, 1.0]], [[0.7], [1.1]]
    ),
}


@pytest.mark.parametrize("eta", mostly_long([0.3, 1e-5, 1e-13], [1e-13]))
@pytest.mark.parametrize("a", [fl.FedLSA, fl.SCAFFLSA, fl.Scaffnew], ids=lambda a: a.__name__)
@pytest.mark.parametrize("name", HOSTILE)
def test_moments_keep_their_digits(name, a, eta):
    p, rounds = HOSTILE[name](), 1 if a is fl.Scaffnew else 2
    a = a(eta, 0.99) if a is fl.Scaffnew else a(eta, 2 if p.n_agents == 2 else 5)
    thin = 2 if p.n_agents == 1 else 1
    theta_0 = p.theta_star + np.resize([1.0, -2000.0], p.dim)
    sampling = fl.Markov(thin, start=(0,) * p.n_agents if name == "periodic" else None)
    with localcontext() as context:
        context.prec = 60
        mean, variance, psi = in_sixty_digits(p, a, rounds, theta_0 - p.theta_star, sampling)
    found = fl.theory.exact(p, a, rounds, theta_0, sampling=sampling, record=list(range(rounds + 1)))
    far = np.abs(mean).max()
    np.testing.assert_allclose(
        found["mean"] - p.theta_star, mean, rtol=0, atol=1e-14 * (far + np.abs(p.theta_star).max())
    )
    np.testing.assert_allclose(found["noise"], variance, rtol=1e-12, atol=1e-28 * (eta * far) ** 2)
    np.testing.assert_allclose(found["mse"], np.sum(mean**2, axis=1) + variance, rtol=1e-13)
    if "psi" in found and p.n_agents > 1:
        np.testing.assert_allclose(found["psi"], psi, rtol=1e-13)


@pytest.mark.parametrize("seed", [1, 2])
def test_rounding_does_not_add_up_over_rounds(seed):
    """One agent's rounds are one long one; probabilities that sum to 1 + 1e-14 would show after a hundred."""
    p = chains(seed, 1, 6, 0.3)
    many, one = (
        fl.theory.exact(p, fl.FedLSA(0.01, 100_000 // T), T, sampling=fl.Markov(), record=[T]) for T in (100, 1)
    )
    np.testing.assert_allclose(many["noise"], one["noise"].values, rtol=1e-13)


@pytest.mark.parametrize("eta", [1e-3, 1e-5, 1e-7])
def test_one_update_from_the_stationary_law_has_the_noise_of_independent_observations(eta):
    p = fl.problems.garnet(agents=1, states=5, features=2, seed=1)
    chain, iid = (fl.theory.exact(p, fl.FedLSA(eta, 1), 1, sampling=s, record=[1]) for s in (fl.Markov(), fl.IID()))
    np.testing.assert_allclose(chain["noise"], iid["noise"], rtol=1e-13)


@pytest.mark.parametrize(("eta", "within"), [(0.1, 1e-3), (1e-4, 1e-6), (1e-8, 1e-10)])
def test_the_closure_keeps_the_digits_of_small_noise(eta, within, monkeypatch):
    """What it leaves out is small with the step size; beside a start that is far away, noise is smaller still."""
    p, a = chains(0, 3, 3, 0.3), fl.FedLSA(eta, 3)
    keywords = {"rounds": 4, "theta_0": p.theta_star + 1e4, "sampling": fl.Markov(), "record": [1, 2, 4]}
    true = fl.theory.exact(p, a, **keywords)
    monkeypatch.setattr(tuning, "MAX_PRODUCT_MOMENTS", 0)
    found = fl.theory.exact(p, a, **keywords)
    assert found.attrs["moments"] == "closure over pairs of agents"
    np.testing.assert_allclose(found["noise"], true["noise"], rtol=within)
    np.testing.assert_allclose(found["noise"][0], true["noise"][0], rtol=1e-13)  # a round from a known start is exact


def test_agents_who_are_alike_are_one_group(monkeypatch):
    monkeypatch.setattr(tuning, "MAX_PRODUCT_MOMENTS", 0)
    rng, who = np.random.default_rng(3), [0, 0, 1, 1, 1]
    P, r, phi = rng.dirichlet(np.ones(3), (2, 3, 1)), rng.random((2, 3, 1)), rng.standard_normal((3, 2))
    alike = fl.problems.from_mdps(P, r, np.ones((3, 1)), phi, 0.5, assignment=who)
    apart = fl.problems.from_mdps(P[who], r[who], np.ones((3, 1)), phi, 0.5)
    few, many = (fl.theory.exact(p, fl.FedLSA(0.2, 2), 9, sampling=fl.Markov()) for p in (alike, apart))
    for name in ("mean", "mse", "noise"):
        np.testing.assert_allclose(few[name], many[name], rtol=1e-12)
    np.testing.assert_allclose(few["mse_error"], many["mse_error"], rtol=1e-9, atol=1e-14)


def test_memory_grows_with_agents_and_not_with_their_pairs():
    def peak(agents):
        p = fl.problems.garnet(agents=agents, states=6, features=2, seed=1)
        tracemalloc.start()
        fl.theory.exact(p, fl.FedLSA(0.1, 1), 2, sampling=fl.Markov())
        high = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return high

    peak(5)
    assert peak(32) < 6 * peak(8)  # pairs: 16 times


@pytest.mark.parametrize(("agents", "named"), [(8, "the different agents"), (2, "the states of all chains together")])
def test_what_does_not_fit_into_memory_is_refused_before_it_is_computed(agents, named, monkeypatch):
    p = fl.problems.garnet(agents=agents, states=12, features=4, seed=1)
    monkeypatch.setenv("FEDLSA_MEMORY", "1000000")
    with pytest.raises(fl.errors.ArgumentError, match=f"{named} must be at most .* to fit into .* bytes each"):
        fl.theory.exact(p, fl.FedLSA(0.1, 2), 2, sampling=fl.Markov())


@pytest.mark.parametrize("thin", [1, 3])
def test_scaffnew_that_always_communicates_is_scafflsa_with_one_update(thin):
    p, sampling = chains(1, 2, 3), fl.Markov(thin=thin)
    new = fl.theory.exact(p, fl.Scaffnew(0.3, 1.0), rounds=20, sampling=sampling)
    one = fl.theory.exact(p, fl.SCAFFLSA(0.3, thin), rounds=20, sampling=sampling)
    for name in ("mean", "mse", "psi"):
        np.testing.assert_allclose(new[name], one[name], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("thin", mostly_long([1, 2], [2]))
@pytest.mark.parametrize(
    "a",
    [fl.FedLSA(0.5, 5), fl.SCAFFLSA(0.5, 5), fl.Scaffnew(0.5, 0.3), fl.SCAFFLSA(fl.PowerStep(0.8, 0.5), 5)],
    ids=repr,
)
@pytest.mark.parametrize("agents", mostly_long([1, 2], [2]))
def test_simulation_agrees_with_the_mean_and_the_error(agents, a, thin):
    seeds = 500 if isinstance(a, fl.Scaffnew) else 3000  # rounds of random length are slow to simulate
    record, sampling = [0, 1, 4, 9], fl.Markov(thin=thin)
    p = fl.problems.garnet(agents=agents, states=4, features=2, discount=0.7, seed=3)
    run = fl.simulate(p, a, rounds=9, seeds=seeds, record=record, sampling=sampling)
    found = fl.theory.exact(p, a, rounds=9, record=record, sampling=sampling)
    error, theta = run["squared_error"].values, run["theta"].values
    off = np.abs(error.mean(0) - found["mse"].values)
    assert (off <= BEYOND * error.std(0, ddof=1) / np.sqrt(seeds) + 1e-12).all()
    off = np.abs(theta.mean(0) - found["mean"].values)
    assert (off <= BEYOND * theta.std(0, ddof=1) / np.sqrt(seeds) + 1e-12).all()


def test_simulation_agrees_with_the_closure_from_given_states_and_with_unequal_weights():
    seeds, record, sampling = 3000, [1, 3, 9], fl.Markov(start=(0, 1, 2, 3, 4))
    p = fl.problems.garnet(agents=5, states=9, features=2, discount=0.7, seed=3, weights=[1.0, 2.0, 3.0, 1.0, 1.0])
    a = fl.FedLSA(0.8, 3)
    run = fl.simulate(p, a, rounds=9, seeds=seeds, record=record, sampling=sampling)
    found = fl.theory.exact(p, a, rounds=9, record=record, sampling=sampling)
    assert found.attrs["moments"] == "closure over pairs of agents"
    error, theta = run["squared_error"].values, run["theta"].values
    assert (np.abs(error.mean(0) - found["mse"].values) <= BEYOND * error.std(0, ddof=1) / np.sqrt(seeds)).all()
    assert (np.abs(theta.mean(0) - found["mean"].values) <= BEYOND * theta.std(0, ddof=1) / np.sqrt(seeds)).all()


@pytest.mark.parametrize("a", [fl.FedLSA(0.3, 400), fl.SCAFFLSA(0.3, 400), fl.Scaffnew(0.3, 0.4)], ids=repr)
def test_thinned_so_long_that_chains_forget_trajectories_are_independent_draws(a):
    p = fl.problems.garnet(agents=2, states=4, features=2, discount=0.7, seed=3)
    thin = fl.theory.exact(p, a, rounds=15, sampling=fl.Markov(thin=100))
    b = a if isinstance(a, fl.Scaffnew) else type(a)(0.3, 4)
    iid = fl.theory.exact(p, b, rounds=15)
    assert iid.attrs["moments"] == "exact"
    for name in ("mean", "mse"):
        np.testing.assert_allclose(thin[name], iid[name], rtol=1e-10, atol=1e-12)
    if "psi" in iid:
        np.testing.assert_allclose(thin["psi"], iid["psi"], rtol=1e-10)


@pytest.mark.parametrize("start", [False, True], ids=["stationary", "from states"])
@pytest.mark.parametrize("stay", mostly_long([0.0, 0.7, 0.99], [0.7]))
@pytest.mark.parametrize(("seed", "agents", "states"), mostly_long([(0, 3, 3), (1, 4, 2)], [(1, 4, 2)]))
def test_the_error_of_the_closure_is_within_its_estimate(seed, agents, states, stay, start, monkeypatch):
    p = chains(seed, agents, states, stay, weights=np.arange(1.0, agents + 1))
    sampling = fl.Markov(start=(0,) * agents if start else None)
    for H, eta in ((1, 0.1), (1, 0.4), (4, 0.2)):
        a = fl.FedLSA(eta, H)
        true = fl.theory.exact(p, a, rounds=25, sampling=sampling)
        with monkeypatch.context() as patch:
            patch.setattr(tuning, "MAX_PRODUCT_MOMENTS", 0)
            found = fl.theory.exact(p, a, rounds=25, sampling=sampling)
        assert true.attrs["moments"] == "exact on the product of chains"
        off = np.abs(found["mse"] - true["mse"]).values
        assert (off <= found["mse_error"].values + 1e-12 * true["mse"].values).all()
        if stay < 0.9:
            assert (off <= 1e-3 * true["mse"].values).all()


@pytest.mark.parametrize("rate", [0.5, 0.99, 0.9995])
def test_a_recursion_is_still_only_where_nothing_is_left_of_its_way(rate):
    watch, left = Convergence(), 1.0
    while not watch.reached((1 - rate) * left):
        left *= rate
    assert 1e-17 < left < 1e-13


def test_tiny_steps_are_not_taken_for_a_limit():
    watch = Convergence()
    assert not any(watch.reached(1e-14 * (1 - 1e-14 * t)) for t in range(1000))
    assert watch.reached(0.0)


def test_two_agents_of_fedlsa_are_exact_however_large_their_chains(monkeypatch):
    p, a = chains(4, 2, 3, 0.9, weights=[1.0, 2.0]), fl.FedLSA(0.3, 2)
    true = fl.theory.exact(p, a, rounds=25, sampling=fl.Markov(thin=2))
    monkeypatch.setattr(tuning, "MAX_PRODUCT_MOMENTS", 0)
    found = fl.theory.exact(p, a, rounds=25, sampling=fl.Markov(thin=2))
    assert found.identical(true)
    assert found.attrs["moments"] == "exact on the product of chains"


def test_many_agents_with_short_memory_have_a_small_error():
    p = fl.problems.garnet(agents=6, states=8, features=3, seed=2)
    short, long = (fl.theory.exact(p, fl.FedLSA(0.1, H), rounds=20, sampling=fl.Markov()) for H in (2, 40))
    assert short["mse_error"].max() > 100 * long["mse_error"].max()
    assert (long["mse_error"] < 1e-6 * long["mse"]).all()


@pytest.mark.parametrize(
    ("a", "sampling", "named"),
    [
        (fl.FedLSA(0.1, 4, participants=1), fl.Markov(), "participation"),
        (fl.FedLSA(0.1, 4, average_after=2), fl.Markov(), "average_after"),
        (fl.FedLSA(0.1, 4, projection=1.0), fl.Markov(), "projection"),
        (fl.FedLSA(0.1, 4), fl.Replay(), "sampling"),
        (fl.FedLSA(0.1, 4), fl.Markov(thin=5), "local_steps"),
        (fl.FedLSA(0.1, 4), fl.Markov(start=(0,)), "start"),
        (fl.FedLSA(0.1, 4), fl.Markov(start=(0, 9)), "start"),
    ],
)
def test_what_has_no_moments_along_trajectories_is_refused_by_name(a, sampling, named):
    with pytest.raises(fl.errors.ArgumentError, match=named):
        fl.theory.exact(chains(0, 2, 3), a, rounds=5, sampling=sampling)


def test_moments_and_problems_without_chains_are_refused():
    p = chains(0, 2, 3)
    with pytest.raises(fl.errors.ArgumentError, match="sampling must be IID"):
        fl.theory.exact(moments(p), fl.FedLSA(0.1, 2), sampling=fl.Markov())
    bare = fl.problems.from_observations([([1.0], np.eye(2)[None], np.ones((1, 2)))])
    with pytest.raises(fl.errors.ArgumentError, match=r"without a transition kernel.*from_observations"):
        fl.theory.exact(bare, fl.FedLSA(0.1, 2), sampling=fl.Markov())


@pytest.mark.parametrize("a", [fl.SCAFFLSA(0.1, 4), fl.Scaffnew(0.1, 0.5)], ids=repr)
def test_control_variates_on_too_large_a_product_are_refused(a):
    p = fl.problems.garnet(agents=5, states=10, features=3, seed=2)
    with pytest.raises(fl.errors.ArgumentError, match="product of the chains must have at most"):
        fl.theory.exact(p, a, sampling=fl.Markov())


@pytest.mark.parametrize("probability", [1e-2, 1e-7])
def test_random_rounds_may_be_as_long_as_one_likes(probability):
    """Against the resolvent of one update on E[w w^T 1{s}], w = (u, 1): all lengths are summed at once."""
    p, eta = chains(0, 1, 2), 1e-3
    chain, n = p.chain, p.dim + 1
    A, b = p.observations.matrices(slice(0, len(p.prob)))
    update = np.zeros((2, n * n, 2, n * n))
    for k, (to, origin) in enumerate(zip(chain.successor, chain.origin, strict=True)):
        B = np.eye(n)
        B[:-1] -= eta * np.column_stack([A[k], A[k] @ p.theta_star - b[k]])
        update[to, :, origin] += chain.conditional[k] * np.kron(B, B)
    update, w = update.reshape(2 * n * n, -1), np.append(np.ones(p.dim), 1.0)
    start = np.outer(chain.stationary, np.outer(w, w)).ravel()
    end = probability * update @ np.linalg.solve(np.eye(len(start)) - (1 - probability) * update, start)
    second = end.reshape(2, n, n).sum(0)
    found = fl.theory.exact(p, fl.Scaffnew(eta, probability), 1, p.theta_star + 1, sampling=fl.Markov(), record=[1])
    np.testing.assert_allclose(found["mean"][-1] - p.theta_star, second[:-1, -1], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found["mse"][-1], np.trace(second[:-1, :-1]), rtol=1e-7)


def test_rounds_that_are_long_too_often_have_infinite_errors():
    found = fl.theory.exact(chains(0, 2, 2), fl.Scaffnew(6.0, 0.05), 2, sampling=fl.Markov(), record=[1, 2])
    for name in ("mse", "psi"):
        assert (found[name] == np.inf).all()


def test_rounds_of_more_steps_than_integers_multiply_are_not_taken_one_by_one():
    with pytest.raises(fl.errors.PrecisionError, match="large enough for I - step_size A to differ from I"):
        fl.theory.exact(chains(0, 2, 2), fl.FedLSA(1e-140, 10**18), 4, sampling=fl.Markov(1))


def test_chains_with_too_many_states_are_refused():
    p = fl.problems.garnet(agents=1, states=400, features=8, seed=2)
    with pytest.raises(fl.errors.ArgumentError, match="at most 128 states"):
        fl.theory.exact(p, fl.FedLSA(0.1, 4), sampling=fl.Markov())

"""A round on the moments of all agents against the slow twin, and many rounds at once against plain iteration."""

from dataclasses import replace

import numpy as np
import pytest
from tables import round_of, skewed, turning
from twin import Twin

import fedlsa as fl
from fedlsa.theory import local_steps, many_rounds, moments, rounds, stationarity, tuning
from fedlsa.theory.joint import Joint
from fedlsa.theory.krylov import Krylov
from fedlsa.theory.linear import repeat, svec, symkron, traces
from fedlsa.theory.local_steps import Kinds, shared_length
from fedlsa.theory.many_rounds import Nodes

METHODS = [fl.SCAFFLSA(0.2, 7), fl.SCAFFLSA(0.2, 1), fl.Scaffnew(0.2, 0.2), fl.Scaffnew(0.2, 1.0)]


def several():
    """Tables whose mean matrices have complex eigenvalues, held by groups of different sizes and weights."""
    rng, dim = np.random.default_rng(3), 3
    turn = np.eye(dim)
    turn[0, 1], turn[1, 0] = 0.8, -0.8
    tables = []
    for _ in range(4):
        A = turn + 0.4 * rng.standard_normal((3, dim, dim))
        tables.append((rng.dirichlet(np.ones(3)), A, rng.standard_normal((3, dim))))
    weights = rng.uniform(1, 2, 4)[[0, 1, 1, 2, 3, 3, 3]]
    return fl.problems.from_observations(tables, assignment=[0, 1, 1, 2, 3, 3, 3], weights=weights)


ONE = np.ones(1), np.ones((1, 1))  # what a mean is in its own direction, and its square


def forms(step, u, x):
    """All forms of a round: all covariances, at nodes, and with u kept beside the agents."""
    return Joint(step), Nodes(step, u, x), Joint(replace(step, steady=False))


@pytest.mark.parametrize("participants", [3, 7])
@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_every_form_of_a_round_is_that_of_the_twin(a, participants):
    problem = several()
    m = moments(problem)
    assert m.count.tolist() == [1, 2, 1, 3]
    u, x = np.array([1.0, -0.5, 2.0]), -m.xi_star[m.table]
    step = round_of(problem, replace(a, participants=participants))
    twin = Twin(problem, a, participants)
    C, state = np.zeros((twin.n, twin.n)), twin.start(problem.theta_star + u)
    for _ in range(2):
        state = twin.round(*state)
    mean, C = state
    all_forms = forms(step, u, x)
    assert [form.l for form in all_forms] == [0, 0, 3]
    for form in all_forms:
        means, vector = form.start(u, x), np.zeros(form.length)
        for _ in range(2):
            vector, means = form.advance(vector) + form.force(means[:, None])(*ONE), form.mean(means)
        _, got_u, got_x = form.read(means[: form.n + form.l])
        np.testing.assert_allclose(got_u, mean[twin.u], rtol=1e-12)
        second = form.second(vector)
        for g, c in enumerate([0, 1, 3, 4]):  # an agent of each group
            both = np.r_[twin.u, twin.x[c]]
            np.testing.assert_allclose(got_x[g], mean[twin.x[c]], rtol=0, atol=1e-12 * np.abs(mean).max())
            want = C[np.ix_(both, both)]
            upper = np.triu(np.ones((2, 2)))[[0, 0, 0, 1, 1, 1]][:, [0, 0, 0, 1, 1, 1]] > 0
            off = np.where(upper, second[g, :6, :6] - want, 0)
            assert np.abs(off).max() <= 1e-12 * np.abs(C).max()
        spread = sum(w * np.trace(C[s, s]) for w, s in zip(problem.weights, twin.x, strict=True))
        seen, own = form.covariances(vector), C[twin.u, twin.u]
        np.testing.assert_allclose(seen[:-1], svec(own), rtol=0, atol=1e-12 * np.abs(C).max())
        np.testing.assert_allclose([traces(seen[:-1]), seen[-1]], [np.trace(own), spread], rtol=1e-11)


@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_all_pairs_of_agents_have_the_covariances_of_the_twin(a):
    problem = several()
    m, twin, u = moments(problem), Twin(problem, replace(a, participants=3), 3), np.ones(3)
    state, step = twin.start(problem.theta_star + u), round_of(problem, replace(a, participants=3))
    form = Joint(step)
    means, vector = form.start(u, -m.xi_star[m.table]), np.zeros(form.length)
    for _ in range(2):
        state = twin.round(*state)
        vector, means = form.advance(vector) + form.force(means[:, None])(*ONE), form.mean(means)
    E = np.eye(twin.n)
    y = [E[x] - step.gain[0] * E[twin.u] for x in twin.x]
    groups = [[0], [1, 2], [3], [4, 5, 6]]
    mean = np.concatenate([sum(y[c] for c in group) / len(group) for group in groups])
    found = form.parts(vector)
    want = mean @ state[1] @ mean.T
    np.testing.assert_allclose(found.whole, want, rtol=0, atol=1e-12 * np.abs(want).max())
    for g, group in enumerate(groups):
        off = y[group[0]] - mean[3 * g : 3 * g + 3]
        np.testing.assert_allclose(found.deviations[g], off @ state[1] @ off.T, rtol=0, atol=1e-12 * np.abs(want).max())


@pytest.mark.parametrize("a", [fl.SCAFFLSA(0.1, 20), fl.Scaffnew(0.1, 0.05)], ids=repr)
def test_threads_sketches_and_nodes_of_many_groups_change_nothing(a, monkeypatch):
    m = moments(fl.problems.garnet(agents=25, preset="authors", features=5))
    wanted, x, rounds = np.array([0, 3, 50, 150]), -m.xi_star[m.table], []
    for cores in (1, 3):
        monkeypatch.setattr(local_steps, "cores", lambda cores=cores: cores)
        rounds.append(round_of(m, a))
    step = rounds[0]
    np.testing.assert_array_equal(step.noise, rounds[1].noise)
    joint, nodes = Joint(step), many_rounds.moment_map(step, np.ones(5), x)
    assert isinstance(nodes, Nodes)
    assert joint.length > 2 * tuning.SKETCH_SIZE
    slow = many_rounds.one_by_one(lambda t: joint, np.ones(5), x, wanted)
    for fast in (
        many_rounds.krylov_curve(joint, np.ones(5), x, wanted),
        many_rounds.krylov_curve(nodes, np.ones(5), x, wanted),
        many_rounds.one_by_one(lambda t: nodes, np.ones(5), x, wanted),
    ):
        np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("make", [lambda eta: fl.SCAFFLSA(eta, 10), lambda eta: fl.Scaffnew(eta, 0.1, participants=2)])
@pytest.mark.parametrize(("of", "eta"), [(turning, 0.01), (lambda n: skewed(n, 1e-3), 0.1)], ids=["turning", "skewed"])
def test_nodes_follow_agents_that_turn_or_are_skewed(of, eta, make, monkeypatch):
    a, wanted = make(eta), np.array([0, 1, 2, 7, 40])
    step = round_of(of(30), a)
    m = step.moments
    u, x = np.array([1.0, -2.0]), -m.xi_star[m.table]
    joint, nodes = Joint(step), Nodes(step, u, x)
    assert nodes.good
    slow, fast = (many_rounds.one_by_one(lambda t, form=form: form, u, x, wanted) for form in (joint, nodes))
    np.testing.assert_allclose(fast, slow, rtol=1e-9, atol=1e-10 * np.abs(slow[:, :2]).max())
    monkeypatch.setattr(tuning, "JOINT_MODES", 0)  # and few of them, as the twin has them
    problem = of(3)
    found, twin = fl.theory.exact(problem, a, 3, problem.theta_star + u), Twin(problem, a)
    want = twin.curve(3, problem.theta_star + u)
    for name in ("mse", "psi"):
        np.testing.assert_allclose(found[name], want[name], rtol=1e-9)
    np.testing.assert_allclose(found["noise"], want["variance"], rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("a", [fl.SCAFFLSA(0.23, 5), fl.Scaffnew(0.23, 0.5)], ids=repr)
def test_many_agents_that_grow_have_the_moments_of_all_covariances(a, monkeypatch):
    """Where single agents grow, so do powers of what nodes are chosen by."""
    rng, base = np.random.default_rng(0), np.array([[1.0, 3.0], [-3.0, 1.0]])
    tables = [([1.0], [base + 0.1 * rng.standard_normal((2, 2))], [rng.standard_normal(2)]) for _ in range(69)]
    problem = fl.problems.from_observations([*tables, ([0.5, 0.5], [base, base], [[0.0, 1.0], [1.0, 0.0]])])
    fast = fl.theory.exact(problem, a, 9), fl.theory.radius(problem, a)
    monkeypatch.setattr(tuning, "JOINT_MODES", 10**6)
    slow = fl.theory.exact(problem, a, 9), fl.theory.radius(problem, a)
    assert slow[1] > 1
    assert fast[1] == pytest.approx(slow[1], rel=1e-8)
    for name in ("mse", "noise", "psi"):
        np.testing.assert_allclose(fast[0][name], slow[0][name], rtol=1e-9)


@pytest.mark.parametrize("rounds", [3, 40])  # the second space holds every mean
@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_means_in_a_krylov_space_force_a_round_as_they_do_themselves(a, rounds):
    m = moments(several())
    step, u, x = round_of(several(), replace(a, participants=3)), np.ones(3), -m.xi_star[m.table]
    for form in forms(step, u, x):
        y = form.start(u, x)
        means = many_rounds.MeanSpace(form, y, rounds)
        v = means.with_covariances(np.empty(0))
        for _ in range(4):
            want = form.force(y[:, None])(*ONE)
            got = form.force(means.basis)(*means.parts(v))
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-12 * np.abs(want).max())
            found_u, spread = means.mean_and_spread(v)
            _, want_u, want_x = form.read(y[: form.n + form.l])
            np.testing.assert_allclose(found_u, want_u, rtol=0, atol=1e-12 * np.abs(y).max())
            assert spread == pytest.approx(m.count * m.weight @ np.sum(want_x**2, axis=1), rel=1e-11)
            np.testing.assert_allclose(means.mean(v), y, rtol=0, atol=1e-12 * np.abs(y).max())
            v, y = means.carry(v), form.mean(y)


@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_spaces_that_start_again_and_again_follow_the_same_curve(a, monkeypatch):
    m = moments(several())
    step, x, wanted = round_of(m, replace(a, step_size=0.02)), -m.xi_star[m.table], np.array([0, 1, 7, 30, 31, 400])
    form = Joint(step)
    slow = many_rounds.one_by_one(lambda t: form, np.ones(3), x, wanted)
    spaces, begin = [], Krylov.__init__
    monkeypatch.setattr(Krylov, "__init__", lambda self, *args: (begin(self, *args), spaces.append(len(args[1])))[0])
    for name in ("MAX_KRYLOV_DIM", "MIN_KRYLOV_DIM"):
        monkeypatch.setattr(tuning, name, 16)
    fast = many_rounds.krylov_curve(form, np.ones(3), x, wanted)
    np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-11)
    assert sum(n > form.length for n in spaces) > 1  # more than one space of covariances and means


@pytest.mark.parametrize("p", [0.9, 0.1, 1e-3])
@pytest.mark.parametrize(
    "Z", [0.1 * np.eye(2), [[0.05, 3.0], [0.0, 0.05]], [[0.2, -0.5], [0.5, 0.2]], [[1.8, 0], [0, 0]]]
)
def test_sums_over_a_common_length_have_the_terms_of_all_lengths(Z, p):
    """slow growth, no eigenvectors, turning, steps near to the edge"""
    Z, q = np.array([Z, np.diag([0.3, 0.01])], np.float64), 1 - p
    B, X = np.eye(2) - Z, np.arange(1.0, 5.0).reshape(2, 2)
    factor, powers = shared_length(Z, p)
    found = factor[0] @ X @ factor[1].T
    for Q in powers:
        found = found + Q[0] @ found @ Q[1].T
    want, term = np.zeros((2, 2)), X
    for _ in range(int(50 / p)):
        want, term = want + term, q * B[0] @ term @ B[1].T
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-12 * np.abs(want).max())


def test_a_length_whose_sums_diverge_has_none():
    with np.errstate(over="ignore", invalid="ignore"):
        assert shared_length(np.array([[[2.2]]]), 0.1) is None
        assert shared_length(np.array([[[-0.2]]]), 0.1) is None


def test_dimensions_that_no_mean_reaches_are_left_out():
    H = np.diag([0.99, 0.5, 0.1, 0.1]) + np.diag([1e-3, 1e-10, 1e-10], -1)
    assert many_rounds._occupied(H) == 3
    assert many_rounds._occupied(np.diag(np.ones(3), -1)) == 4  # a shift reaches all, one after the other
    assert many_rounds._occupied(np.zeros((0, 0))) == 0


@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_the_limit_is_a_fixed_point_and_the_radius_the_rate_at_which_it_is_approached(a, monkeypatch):
    step = round_of(several(), a)
    found, form = stationarity.limit(step), Joint(step)
    vector = found.vector()
    again = form.advance(vector) + form.force(np.zeros((form.n, 1)))(np.zeros(1), np.zeros((1, 1)))
    np.testing.assert_allclose(again, vector, rtol=0, atol=1e-12 * np.abs(vector).max())
    written_out = stationarity.agents_radius(step)
    monkeypatch.setattr(tuning, "WRITTEN_OUT", 0)
    assert stationarity.agents_radius(step) == pytest.approx(written_out, rel=1e-6)


@pytest.mark.parametrize("a", [fl.SCAFFLSA(0.2, 7), fl.Scaffnew(0.2, 0.2)], ids=repr)
def test_asymmetry_does_not_grow(a):
    """That of rounding, on a problem whose asymmetric matrices would grow: 600 rounds of what is symmetric stay so."""
    step = round_of(several(), a)
    for form in forms(step, np.ones(3), np.ones(step.shape)):
        vector = form.force(form.start(np.ones(3), np.ones(step.shape))[:, None])(np.ones(1), np.ones((1, 1)))
        if type(form) is Joint:
            vector += 1e-3 * np.random.default_rng(0).standard_normal(form.length)
        for _ in range(600):
            vector = form.advance(vector)
            vector /= np.abs(vector).max()
        for X in form.parts(vector) if type(form) is Joint else (form.halves(vector)[0],):
            if X.size and X.shape[-1] == X.shape[-2]:
                assert np.abs(X - X.conj().swapaxes(-1, -2)).max() <= 1e-12


def test_a_sketched_krylov_space_reproduces_its_map():
    rng = np.random.default_rng(1)
    rates, n = np.linspace(0, 0.99, 40), 20_000
    where = rng.integers(0, 40, n)
    start = rng.standard_normal(n)
    space = Krylov(lambda v: rates[where] * v, start)
    space.grow(30)
    out, along = space.rest
    want = (rates[where] * space.basis).T
    got = space.basis.T @ space.h
    got[:, -1] += out * along
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
    assert np.linalg.cond(space.basis) < 2
    space.grow(40)
    assert np.abs(np.linalg.eigvals(space.h)).max() == pytest.approx(0.99, abs=1e-8)


@pytest.mark.parametrize("H", [2, 7, 1000])
def test_threads_that_share_the_tables_find_the_same_powers_of_a_local_step(H):
    m = moments(fl.problems.garnet(agents=50, preset="authors"))
    eta, steps = np.full(50, 0.1), np.full(50, H)
    for x in (None, -m.xi_star):
        kinds = Kinds.of(m.table, eta, steps, x)
        one = kinds.step(m, np.arange(50))
        slow = repeat(one, H, type(one).then)
        for got, want in zip(kinds.maps(m), (slow.M, slow.noise), strict=True):
            np.testing.assert_allclose(got, want[kinds.kind], rtol=0, atol=1e-13 * np.abs(want).max())


def test_every_kind_of_agent_makes_its_own_steps():
    """Its table, its step size and its number of steps, in any order, some of them alike."""
    m = moments(fl.problems.garnet(agents=3, preset="authors", features=4))
    table, eta, steps = np.array([2, 0, 2, 1, 2]), np.array([0.1, 0.2, 0.1, 0.2, 0.1]), np.array([5, 1, 7, 3, 5])
    x = np.random.default_rng(0).standard_normal((3, 4))[table]
    for given, kinds in ((None, 4), (x, 4)):
        of = Kinds.of(table, eta, steps, given)
        assert len(of.table) == kinds
        M, noise = of.maps(m)
        for k in range(5):
            alone = Kinds.of(table[[k]], eta[[k]], steps[[k]], None if given is None else given[[k]])
            for got, want in zip((M[k], noise[k]), alone.maps(m), strict=True):
                np.testing.assert_allclose(got, want[0], rtol=0, atol=1e-14 * np.abs(want).max())


def test_steps_compose_as_their_matrices_do():
    """D_{a+b} = G_b D_a + D_b symkron(M_a), with other steps first than later"""
    early, late = (moments(fl.problems.garnet(agents=3, preset="authors", features=4, seed=k)) for k in (1, 2))
    s, x, every = 10, np.random.default_rng(0).standard_normal((3, 4)), np.arange(3)

    def one(m, eta, x):
        return Kinds(every, np.full(3, eta), np.ones(3, np.int64), x, every).step(m, every)

    for a, b in ((one(early, 0.3, None), one(late, 0.5, None)), (one(early, 0.3, x), one(late, 0.5, -x))):
        a, b = a.then(b), b.then(a)  # so that no block is that of a single step
        both, (G_a, G_b) = a.then(b), (c.rows[:, :s, :s].transpose(0, 2, 1) for c in (a, b))
        np.testing.assert_allclose(both.M, b.M @ a.M, rtol=0, atol=1e-14)
        np.testing.assert_allclose(both.rows[:, :s, :s].transpose(0, 2, 1), G_b @ G_a, rtol=0, atol=1e-14)
        want = G_b @ a.noise + b.noise @ symkron(a.M)
        np.testing.assert_allclose(both.noise, want, rtol=0, atol=1e-14 * np.abs(want).max())


def test_a_deterministic_problem_has_a_limit_of_no_error():
    tables = [(np.ones(1), np.diag([0.5, 1.0])[None] * s, np.ones((1, 2))) for s in (1.0, 2.0)]
    p = fl.problems.from_observations(tables)
    found = fl.theory.stationary(p, fl.SCAFFLSA(0.3, 4))
    assert found.mse == 0
    assert 0 < found.radius < 1


def test_rounds_of_a_problem_are_kept_as_long_as_they_are_few():
    problem, first = fl.problems.ring(agents=3, noise=0.3), None

    def made(eta, H):
        a = fl.FedLSA(eta, H)
        return rounds.round_of(rounds.groups_of(problem, a), a, eta)

    for H in [1, 1, *range(2, 2 + tuning.RECENT_ROUNDS)]:
        step = made(0.1, H)
        first = first or step
        assert (step is first) == (H == 1)
    again = made(0.1, 1)
    assert again is not first
    np.testing.assert_array_equal(again.mean, first.mean)
    assert made(0.2, 1) is not again

"""Every lemma of the paper's appendix against exact moments, also where its terms vanish one by one.

A lemma that is false as printed has two checks: the number that refutes it, and the inequality that holds instead.
Expectations are exact: of products of step matrices by powers of their second moments, of methods by recursions.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from gallery import CASES, CORE
from tiers import mostly_long
from twin import Twin

import fedlsa as fl

SLACK = 1 + 1e-9


def scalar(*agents, **options):
    """Agents in one dimension, each a list of equally likely (A, b)."""
    tables = [(np.full(len(z), 1 / len(z)), [[[A]] for A, _ in z], [[b] for _, b in z]) for z in agents]
    return fl.problems.from_observations(tables, **options)


def random(seed, agents, d):
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(agents):
        A = (1 + rng.random()) * np.eye(d) + 0.3 * rng.standard_normal((3, d, d))
        tables.append((rng.dirichlet(np.ones(3)), A, rng.standard_normal((3, d))))
    return fl.problems.from_observations(tables)


def rank_one_noise(d, s, row):
    """A(z) = I + s e_1 e_j^T (row) or s e_j e_1^T, j and the sign uniform; b(z) = +- e_j, independent of A(z)."""
    noise = np.zeros((2 * d, d, d))
    j, sign = np.arange(2 * d) % d, np.repeat([s, -s], d)
    noise[np.arange(2 * d), 0 if row else j, j if row else 0] = sign
    A, b = np.eye(d) + noise, np.concatenate([np.eye(d), -np.eye(d)])
    i, k = np.divmod(np.arange(4 * d * d), 2 * d)
    return fl.problems.from_observations([(np.full(len(k), 1 / len(k)), A[i], b[k])])


DRIFTING = scalar([(1.0, 2.0)], [(2.0, -2.0)], [(1.9, 0.0), (0.1, 0.0)])  # of the agents, only the one at 0 is random
PROBLEMS = {
    "noise where nobody differs": DRIFTING,
    "large noise where nobody differs": scalar([(1.0, 2.0)], [(2.0, -2.0)], [(13.0, 0.0), (-11.0, 0.0)]),
    "one agent of three has noise": scalar([(1.0, 1.0)], [(0.5, -1.0)], [(1.5, 2.0), (0.5, 0.0)]),
    "noise in b alone": scalar([(1.0, 1.0), (1.0, -3.0)], [(3.0, 1.0), (3.0, 2.0)]),
    "noiseless at home": scalar([(1.5, 3.0), (0.5, 1.0)], [(2.5, -2.5), (0.5, -0.5)]),
    "noise in a row": rank_one_noise(3, 0.8, True),
    "noise in a column": rank_one_noise(3, 0.8, False),
    "weights": scalar([(1.9, 2.0), (0.1, 0.0)], [(2.0, -2.0)], [(1.0, 0.0)], weights=[1.0, 5.0, 1e-3]),
    **{f"random {k}": random(k, 1 + k % 3, 1 + k // 3) for k in range(9)},
    **{name: make().problem for name, make in CASES.items() if make().problem.dim < 4},
}
ETAS = (0.5, 0.05, 1e-4)
LENGTHS = (1, 2, 9, 300)


def settings(name, lengths=LENGTHS, steps=ETAS):
    """Step sizes at which assum:exp_stability holds, with a(eta), and lengths of rounds."""
    problem = PROBLEMS[name]
    for eta, H in itertools.product(steps, lengths):
        a = fl.theory.stability(problem, eta)
        if a == a:
            yield eta, H, a


SETTINGS = [(name, *given) for name in PROBLEMS for given in settings(name)]
FEW = [name for name in PROBLEMS if name not in CASES and not name.startswith("random")] + ["random 4", *CORE[:2]]


def problems(names):
    """Of these, `make test` runs those that were made for the lemmas, and a few more."""
    names = list(names)
    return pytest.mark.parametrize("name", mostly_long(names, [name for name in FEW if name in names]))


equal = problems(name for name, p in PROBLEMS.items() if np.ptp(p.weights) == 0)
each = problems(n for n in PROBLEMS if any(True for _ in settings(n)))


def agents(problem):
    """(probabilities, A, b) of every agent."""
    spans = list(problem.spans())
    return [(problem.prob[spans[m]], *problem.observations.matrices(spans[m])) for m in problem.assignment]


def round_matrices(table, eta, H):
    """E[Y] (4 d, d) and E[Y (x) Y] (4 d, 4 d, d, d) of Y = (G, C - H I, H I, I): G the product of H step matrices."""
    p, A, _ = table
    d = A.shape[1]
    one, zero = np.eye(d), np.zeros((d, d))
    K = [np.block([[one - eta * a, zero, zero, zero], [zero, one - eta * a, -eta * a, zero]]) for a in A]
    rest = np.block([[zero, zero, one, one], [zero, zero, zero, one]])
    K = [np.concatenate([k, rest]) for k in K]
    start = np.concatenate([one, zero, zero, one])
    first = np.linalg.matrix_power(np.tensordot(p, K, 1), H) @ start
    second = sum(q * np.kron(k, k) for q, k in zip(p, K, strict=True))
    second = np.linalg.matrix_power(second, H) @ np.kron(start, start)
    return first, second.reshape(4 * d, 4 * d, d, d)


def square(second, block, d):
    """||E[M^T M]|| of a block M of Y."""
    rows = np.arange(block * d, (block + 1) * d)
    return np.linalg.norm(second[rows, rows].sum(axis=0), 2)


def stiffness(problem):
    """K = C_A^2 + ||Sigma_A||."""
    known = fl.theory.constants(problem)
    return known.C_A**2 + known.Sigma_A_norm


def test_product_coupling():
    rng = np.random.default_rng(0)
    for M in (1, 2, 7):
        U, V = rng.standard_normal((2, M, 3, 3))

        def product(*parts):
            return np.linalg.multi_dot([np.eye(3), np.eye(3), *parts])

        terms = (product(*U[:k], U[k] - V[k], *V[k + 1 :]) for k in range(M))
        np.testing.assert_allclose(product(*U) - product(*V), sum(terms), atol=1e-12)


@each
def test_mean_steps_contract(name):
    """lem:stability_deterministic_product"""
    for eta, h, a in settings(name):
        powers = [np.linalg.matrix_power(np.eye(PROBLEMS[name].dim) - eta * A, h) for A in PROBLEMS[name].A_bar]
        assert max(np.linalg.norm(P, 2) for P in powers) <= (1 - eta * a) ** h * SLACK


def test_pythagoras():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 5, 3))
    for w in (np.full(5, 0.2), rng.dirichlet(np.ones(5))):  # with weights too
        gap = x - y
        mean = w @ gap
        assert mean @ mean == pytest.approx(w @ np.sum(gap**2, axis=1) - w @ np.sum((gap - mean) ** 2, axis=1))


@each
def test_one_step_under_the_assumption_of_scaffnew(name):
    """lemma:bound-i-minus-sym, with the inequality of assum:L-a-constant put right"""
    problem = PROBLEMS[name]
    known, one = fl.theory.constants(problem), np.eye(problem.dim)
    for (p, A, _), eta in itertools.product(agents(problem), (0.1, 0.5, 1.0, 2.0)):
        eta = eta / known.L
        left = sum(q * (one - eta * a).T @ (one - eta * a) for q, a in zip(p, A, strict=True))
        second = sum(q * a.T @ a for q, a in zip(p, A, strict=True))
        right = (1 - eta * known.a_sym) * one - eta * (1 / known.L - eta) * second
        assert np.linalg.eigvalsh(right - left).min() >= -1e-12 * np.linalg.norm(right)


def test_the_assumption_of_scaffnew_gives_half_its_a_to_that_of_stability():
    """The text below assum:L-a-constant says the same a; with E[A^2] = L E[A] there is only a / 2 at eta near 1 / L."""
    problem = scalar([(1.0, 1.0)] + [(0.0, 0.0)] * 99)
    known = fl.theory.constants(problem)
    assert fl.theory.stability(problem, 1 / known.L) == pytest.approx(known.a_sym / 2, rel=0.01)
    for name in PROBLEMS:
        known = fl.theory.constants(PROBLEMS[name])
        if known.L == known.L:
            for share in (0.1, 1.0):
                assert fl.theory.stability(PROBLEMS[name], share / known.L) >= known.a_sym / 2 / SLACK


@each
def test_parts_of_the_error_of_fedlsa(name):
    """lem:fluctuation_term_bound, lem:bounding_flbi (corrected), lem:transient_term_bound"""
    problem = PROBLEMS[name]
    parts, zero = fl.theory.fedlsa_parts(problem), np.zeros(problem.dim)
    rounding = 1e-15 * (1 + problem.theta_star @ problem.theta_star)
    for eta, H, a in settings(name, (2, 300)):
        if eta * a > 0.5:
            continue
        method = fl.FedLSA(eta, H)
        lemma = fl.theory.bound(problem, method, 30, problem.theta_star + 1).terms
        fluctuation = lemma["heterogeneity"] + lemma["bias fluctuation"]
        starts = (
            (parts.transient, zero + 1, "mse", lemma["transient"]),
            (parts.noise, zero, "mse", lemma["noise"]),
            (parts.heterogeneity, problem.theta_star, "noise", fluctuation),
        )
        for part, start, kind, bound in starts:
            after = float(fl.theory.exact(part, method, 30, start, record=[30])[kind][-1])
            assert after <= bound**2 * SLACK + rounding
            if bound != lemma["transient"]:
                assert fl.theory.stationary(part, method).variance <= bound**2 * SLACK + rounding


def test_the_fluctuation_of_the_bias_exceeds_the_printed_bound():
    """lem:bounding_flbi: 5 times at eta = 1e-3, 51 times at 1e-5; v_heter = 0, for only the agent at 0 has noise"""
    known, H, ratios = fl.theory.constants(DRIFTING), 2, []
    assert known.sigma_eps == known.v_heter == 0
    for eta in (1e-3, 1e-5):
        rho, a = np.linalg.norm(fl.theory.round_bias(DRIFTING, eta, H)), fl.theory.stability(DRIFTING, eta)
        printed = 2 * math.sqrt(known.Sigma_A_mean / (3 * H)) * rho / a
        got = fl.theory.bound(DRIFTING, fl.FedLSA(eta, H), 10**9, DRIFTING.theta_star)
        exact = math.sqrt(fl.theory.stationary(DRIFTING, fl.FedLSA(eta, H)).variance)
        assert exact <= got.value
        ratios.append(exact / printed)
    np.testing.assert_allclose(ratios, [5.137, 51.35], rtol=1e-2)


@each
def test_matrices_of_a_round_of_scafflsa(name):
    """lemma:bound-i-c_sto, lemma:bound-c-tilde-sto, lemma:bound-dcprod for ||E[M^T M]|| in the place of E||M||^2"""
    problem = PROBLEMS[name]
    d, K, w = problem.dim, stiffness(problem), problem.weights
    for eta, H, a in settings(name):
        first, second = zip(*(round_matrices(table, eta, H) for table in agents(problem)), strict=True)
        beta = eta * H * math.sqrt(K)
        assert all(square(S, 0, d) <= (1 - eta * a) ** (2 * H) * SLACK for S in second)
        assert all(math.sqrt(square(S, 1, d)) <= eta * H * (H - 1) / 2 * math.sqrt(K) * SLACK for S in second)
        G, C = np.stack(first)[:, :d], np.stack(first)[:, d : 2 * d]
        common = np.tensordot(w, C, 1)
        for c, S in enumerate(second):
            own = S[d : 2 * d, d : 2 * d].trace() - C[c].T @ common - common.T @ C[c] + common.T @ common
            assert np.linalg.norm(own, 2) <= beta**2 * H**2 * SLACK + 1e-20 * H**2
            apart = w - np.eye(len(w))[c]
            spread = [x[:d, :d].trace() - g.T @ g for x, g in zip(second, G, strict=True)]
            mean = np.tensordot(apart, G, 1)
            left = np.linalg.norm(np.tensordot(apart**2, spread, 1) + mean.T @ mean, 2)
            assert left <= (2 * beta) ** 2 * SLACK + 1e-20


def spectral(table, eta, H):
    """E||I - C / H||^2 and E||C - E C||^2 in the spectral norm, over all sequences of outcomes."""
    p, A, _ = table
    d, Cs, chances = A.shape[1], [], []
    for z in itertools.product(range(len(p)), repeat=H - 1):
        C, G = np.eye(d), np.eye(d)
        for k in z:
            G = G @ (np.eye(d) - eta * A[k])
            C = C + G
        Cs.append(C)
        chances.append(np.prod(p[list(z)]))
    Cs, chances = np.stack(Cs), np.array(chances)
    norms = np.linalg.norm(np.stack([np.eye(d) - Cs / H, Cs - np.tensordot(chances, Cs, 1)]), 2, axis=(2, 3))
    return norms**2 @ chances


def test_matrices_of_a_round_of_scafflsa_exceed_the_printed_bounds():
    d, alpha, eta, H = 64, 0.1, 0.01, 2
    noise = np.zeros((2 * d, d, d))
    noise[np.arange(2 * d), np.arange(2 * d) % d, np.arange(2 * d) % d] = np.repeat([d**0.5, -(d**0.5)], d)
    wide = (np.full(2 * d, 0.5 / d), alpha * np.eye(d) + noise, None)  # Sigma_A = I, ||A(z)|| about d^{1/2}
    close, centred = spectral(wide, eta, H)
    assert close > 15 * eta**2 * H**2 / 4 * (alpha**2 + 1)  # lemma:bound-i-c_sto: 15 times
    assert centred > 3 * eta**2 * H**4 * (alpha**2 + 1)  # lemma:bound-c-tilde-sto: 3 times
    apart = abs((1 - 0.01) - ((1 - 0.01) + (1 - 0.02)) / 2)  # lemma:bound-dcprod: A = 0.01 and 0.02, eta = H = 1
    assert apart > 6 * 2 * 0.02**2


def fluctuations(problem, eta, H, rounds):
    """Nuclear norms p, r, s, u of the fluctuations of SCAFFLSA after each round, and spectral ones; (rounds + 1, 4)."""
    twin = Twin(fl.theory.scafflsa_parts(problem).fluctuation, fl.SCAFFLSA(eta, H))
    (m, C), out = twin.start(np.zeros(problem.dim)), []
    for t in range(rounds + 1):
        if t:
            m, C = twin.round(m, C)
        assert np.abs(m[:-1]).max() < 1e-13
        x, z, scale = twin.u, twin.x, eta * H
        pairs = [(a, b) for a, b in itertools.product(z, repeat=2) if a != b] or [(slice(0, 0), slice(0, 0))]
        groups = [[C[x, x]], [scale * C[x, a] for a in z], [scale**2 * C[a, a] for a in z]]
        groups.append([scale**2 * C[a, b] for a, b in pairs])
        norms = [[np.linalg.svd(M, compute_uv=False) for M in group] for group in groups]
        out.append([(max(v.sum() for v in group), max(v.max(initial=0) for v in group)) for group in norms])
    return np.array(out).transpose(2, 0, 1)


def noise_of_a_round(problem, eta, H, kind):
    known = fl.theory.constants(problem)
    return eta**2 * H * (max(np.trace(S) for S in known.Sigma_omega) if kind == "nuclear" else known.Sigma_omega_norm)


@equal
def test_fluctuations_of_scafflsa_from_round_to_round(name):
    """The lemma on the first round, lem:ineq-bounds-fluctuations and coro:analysis-noise-param, in nuclear norms"""
    problem = PROBLEMS[name]
    N, K = problem.n_agents, stiffness(problem)
    for eta, H, a in settings(name, (1, 2, 5)):
        (p, r, s, u), S = fluctuations(problem, eta, H, 3)[0].T, noise_of_a_round(problem, eta, H, "nuclear")
        b, tiny = eta * H * math.sqrt(K), 1e-20 + 1e-12 * S
        first = np.array([1 / N, 2 / N, (N - 1) / N, 3 / N]) * S
        assert (np.array([p[1], r[1], s[1], u[1]]) <= first * SLACK + tiny).all()
        for t in range(3):
            both = s[t] / N + u[t]
            bounds = (
                (1 - eta * a) ** (2 * H) * p[t] + b * r[t] + b**2 / 4 * both + S / N,
                2 * b * p[t] + (b + b**2) * r[t] + b**2 / 2 * both + 2 * S / N,
                4 * b**2 * (p[t] + r[t]) + b**2 * s[t] + 0.75 * b**2 * u[t] + S,
                4 * b**2 * (p[t] + r[t]) + 0.75 * b**2 * s[t] / N + b**2 * u[t] + 3 * S / N,
            )
            for later, bound in zip((p, r, s, u), bounds, strict=True):
                assert later[t + 1] <= bound * SLACK + tiny
        o = a / (12 * math.sqrt(K))
        if b <= o / 20:
            V = p + o * (r + s / N + u)
            assert (V[1:] <= (1 - eta * a * H / 2) * V[:-1] + 9 * S / N + tiny).all()


def test_fluctuations_of_scafflsa_in_the_spectral_norm_exceed_the_printed_bounds():
    """A(z) = I +- s e_1 e_j^T: assum:exp_stability sees ||E[A~^T A~]|| = s^2 / d, these norms ||E[A~ A~^T]|| = s^2"""
    problem, eta = rank_one_noise(4, 8.0, True), 0.1
    assert fl.theory.stability(problem, eta) > 0
    first = fluctuations(problem, eta, 2, 1)[1][1, 0]
    assert first > 1.2 * noise_of_a_round(problem, eta, 2, "spectral")  # the lemma on the first round
    # H = 1, Sigma_omega = I: control variates of one agent are 0, and E[x x^T] is diag(X, Y, ..., Y) at the limit
    for c, d in ((0.6, 16), (1 / 400, 40_000)):  # c = eta s^2 / d
        eta = 1e-3
        q2 = (1 - eta) ** 2 + eta * c
        a, Y = (1 - math.sqrt(q2)) / eta, eta**2 / (1 - (1 - eta) ** 2)
        X = (eta * c * (d - 1) * Y + eta**2) / (1 - q2)
        if d == 16:
            assert 1.5 * 3 * eta**2 / (1 - q2) < X  # lem:ineq-bounds-fluctuations, run to its limit
        else:
            assert eta * (1 + c / eta) <= a / 240  # its condition, at H = 1
            assert 1.3 * 18 * eta / a < X  # coro:analysis-noise-param
            assert d * 18 * eta / a > X + (d - 1) * Y  # the theorem, which is on the trace, holds


@equal
def test_virtual_iterates_of_scafflsa(name):
    """thm:transient-without-noise, at the rate eta a H / 2 that its proof finds (1/4 is printed)"""
    problem = PROBLEMS[name]
    virtual, K = fl.theory.scafflsa_parts(problem).virtual, stiffness(problem)
    for eta, _, a in settings(name, (1,), (0.05, 1e-3, 1e-4)):
        most = math.floor(a / (2 * eta * K))
        for H in {1, most} if most >= 1 else ():
            psi = fl.theory.exact(virtual, fl.SCAFFLSA(eta, H), 40, virtual.theta_star + 1)["psi"].values
            assert (psi[1:] <= (1 - eta * a * H / 2) * psi[:-1] * SLACK + 1e-25).all()


@each
def test_one_step_progress_of_scaffnew(name):
    """lem:one_step_progress, with noise at theta_star; any weights"""
    problem = PROBLEMS[name]
    known = fl.theory.constants(problem)
    if known.L != known.L:
        return
    for share, p in ((1.0, 0.3), (1.0, 1.0), (0.1, 0.05)):
        eta = share / (2 * known.L)
        psi = fl.theory.exact_iterations(problem, fl.Scaffnew(eta, p), 30, problem.theta_star + 1)["psi"].values
        zeta = min(eta * known.a_sym, p**2)
        assert (psi[1:] <= ((1 - zeta) * psi[:-1] + 2 * eta**2 * known.sigma_omega) * SLACK).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_variable_is_coupled_with_an_independent_copy(seed):
    """lem:Dedecker_lemma on finite spaces: Y* is Y while it can be, else drawn from what is left of Y's law"""
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(12, 0.5)).reshape(3, 4)
    X, Y = joint.sum(axis=1), joint.sum(axis=0)
    both = np.zeros((3, 4, 4))  # law of (X, Y, Y*)
    for x in range(3):
        own = joint[x] / X[x]
        keep = np.minimum(own, Y)
        left = np.maximum(Y - own, 0)
        both[x] = X[x] * (np.diag(keep) + np.outer(own - keep, left / max(left.sum(), 1e-300)))
    np.testing.assert_allclose(both.sum(axis=2), joint, atol=1e-15)
    np.testing.assert_allclose(both.sum(axis=1), np.outer(X, Y), atol=1e-15)  # Y* is independent of X, with Y's law
    differ = both.sum() - both.sum(axis=0).trace()
    assert differ == pytest.approx(np.abs(joint - np.outer(X, Y)).sum() / 2)  # beta(X, Y)


def chain(seed, S):
    """A kernel, its stationary law, and TD(0) with one feature on it."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(S, 0.7), S)
    made = fl.problems.from_mdps(
        P[None, :, None], rng.random((1, S, 1)), np.ones((S, 1)), 0.5 + 0.5 * rng.random((S, 1)), 0.3
    )
    return P, made.chain.stationary, made


@pytest.mark.parametrize("seed", range(6))
def test_blocks_of_a_chain_are_coupled_with_independent_ones(seed):
    """lem:Dedecker_upd: blocks q apart have beta(q) <= (1/4)^floor(q / tau_mix); they are alike if the start is"""
    P, mu, problem = chain(seed, 2 + seed % 3)
    tau = int(fl.theory.mixing_times(problem)[0])
    for q in range(tau, 4 * tau + 2):
        # observations are (s, s'): q of them after one in (s, s'), the state is q - 1 steps after s'
        Q = np.linalg.matrix_power(P, q - 1)
        assert mu @ np.abs(Q - mu).sum(axis=1) / 2 <= 0.25 ** (q // tau) * SLACK
    start = np.eye(len(P))[0]
    late = start @ np.linalg.matrix_power(P, 2 * tau)
    assert np.abs(late - start).sum() > 0.1  # printed for any start: blocks 0 and 2 then differ in law


def fourth_moments(problem, eta, thin, updates, rounds):
    """What FedLSA with one agent in one dimension does to E[u^k; state], k = 0 .. 4, on a chain; (5 S, 5 S)."""
    chain, S = problem.chain, int(problem.chain.first_state[1])
    A, b = problem.observations.matrices(slice(0, len(problem.prob)))
    step = np.zeros((S, 5, S, 5))
    for k, law in enumerate(chain.conditional):
        m, shift = 1 - eta * A[k, 0, 0], -eta * (A[k, 0, 0] * problem.theta_star[0] - b[k, 0])
        powers = [[math.comb(i, j) * m**j * shift ** (i - j) if j <= i else 0 for j in range(5)] for i in range(5)]
        step[chain.successor[k], :, chain.origin[k], :] += law * np.array(powers)
    move = np.zeros((S, S))
    np.add.at(move, (chain.successor, chain.origin), chain.conditional)
    one = step.reshape(5 * S, 5 * S) @ np.kron(np.linalg.matrix_power(move, thin - 1), np.eye(5))
    return np.linalg.matrix_power(np.linalg.matrix_power(one, updates), rounds)


@pytest.mark.parametrize("seed", range(4))
def test_products_and_the_last_iterate_on_a_trajectory(seed):
    """lem:matr_product_upd and lem:last_iterate_bound in one dimension, where fourth moments close; from every start"""
    P, _, problem = chain(seed, 2)
    known, tau = fl.theory.markov_constants(problem), int(fl.theory.mixing_times(problem)[0])
    homogeneous = fl.problems.from_mdps(
        P[None, :, None], np.zeros((1, 2, 1)), np.ones((2, 1)), problem.observations.rows[:2], 0.3
    )
    for share, q in ((1.0, tau), (0.1, 3 * tau)):
        eta = share * known.eta_inf_M
        C, rate = math.e**2 * math.sqrt(known.kappa_Q), known.a_tilde * eta / 12
        for state, n in itertools.product(range(2), (1, 10, 10**4, 10**7)):
            fourth = fourth_moments(homogeneous, eta, q, n, 1).reshape(2, 5, 2, 5)[:, 4, state, 4].sum()
            assert fourth**0.25 <= C * math.exp(-rate * (n - 1)) * SLACK
        updates = math.ceil(max(1 + math.log(C) / rate, (1 + C / -math.expm1(-rate)) / q))
        for state, t, offset in itertools.product(range(2), (1, 4), (1.0, -5.0)):
            y = np.zeros((2, 5))
            y[state] = offset ** np.arange(5)
            fourth = (fourth_moments(problem, eta, q, updates, t) @ y.ravel()).reshape(2, 5)[:, 4].sum()
            algorithm, where = fl.FedLSA(eta, q * updates), problem.theta_star + offset
            got = fl.theory.bound(problem, algorithm, t, where, fl.Markov(thin=q))
            assert got.holds
            assert not got.proved  # it rests on lem:matr_product_upd, which is cited
            assert fourth**0.25 <= got.value * SLACK


def test_the_block_size_keeps_the_coupling_to_delta():
    """eq:q_block_size and eq:q_number_bound: N T floor(H / q) updates, each coupled but for (1/4)^floor(q / tau)"""
    rng = np.random.default_rng(0)
    for _ in range(2000):
        tau, N, T, H = (int(np.ceil(10 ** rng.uniform(0, k))) for k in (2, 3, 4, 5))
        delta = 10 ** rng.uniform(-12, 0)
        q = math.ceil(tau * math.log(2 * N * H * T / delta) / math.log(4))
        assert N * T * (H // q) * 0.25 ** (q // tau) <= delta

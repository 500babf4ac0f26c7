"""Intervals of fl.fit cover the truth as often as they say: 250 simulated data sets for each kind of data.

Each data set is fitted by fl.fit itself; step size, local steps and rounds are given by hand, since planning is slow.
Errors over standard errors have mean square 1, to three standard errors, 27%: a wrong size shows in it as soon as in
how many of 500 intervals cover. And 95% of the intervals cover, to three standard errors again, 4.1%.
"""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import FedLSAWarning, SiteDataError
from fedlsa.fit.covariance import CovarianceKind, complete, sandwich, scores, sum_of_meats
from fedlsa.fit.inference import quantile
from fedlsa.fit.observe import Piece
from fedlsa.fit.site_sums import SystemSums
from fedlsa.fit.solutions import solution

SETS = 250
Z = 1.959963984540054


def ratios(draw, task, theta, **settings):
    """(sets, 2, d): how far a coefficient is from the truth, in standard errors.

    First of the estimate, then of the protocol's answer, whose standard error is wider by the error of the run.
    """
    found = []
    for k in range(SETS):
        fit = fl.fit(draw(k), task, seed=k, **settings)
        low, high = fit.confidence_interval(0.95).T
        reach = np.sqrt(np.diag(fit.covariance) + fit.optimisation**2)
        found.append([Z * (2 * theta - low - high) / (high - low), (fit.protocol - theta) / reach])
    return np.array(found)


def assert_covered(found):
    assert (np.abs((np.abs(found) <= Z).mean(axis=0) - 0.95) <= 3 * np.sqrt(0.05 * 0.95 / SETS)).all()
    assert (np.abs((found**2).mean(axis=0) - 1) <= 3 * np.sqrt(2 / SETS)).all()


# regression ----------------------------------------------------------------------------------------------------------

SIZES = (80, 150, 300, 700)


def site_laws(rng):
    """Of each site: the mean of its covariates, their mixing matrix, coefficients, and how its noise grows."""
    for _ in SIZES:
        mixing = np.eye(3) + 0.4 * rng.normal(size=(3, 3))
        yield (
            0.5 * rng.normal(size=3),
            mixing,
            np.array([1.0, -2.0, 0.5]) + 0.5 * rng.normal(size=3),
            rng.normal(size=3),
        )


LAWS = list(site_laws(np.random.default_rng(1)))


def regression_sites(k):
    rng = np.random.default_rng([7, k])
    out = []
    for n, (centre, mixing, beta, growth) in zip(SIZES, LAWS, strict=True):
        e = rng.normal(size=(n, 3))
        x = centre + e @ mixing.T
        noise = (0.5 + np.abs(e @ growth)) * rng.normal(size=n)  # heteroscedastic: its scale goes with the covariates
        out.append((x, 0.7 + x @ beta + noise))
    return out


def regression_truth():
    """The solution of sum_c w_c E[(x, 1)(x, 1)^T] theta = sum_c w_c E[(x, 1) y] with w_c = 1/N."""
    A, b = np.zeros((4, 4)), np.zeros(4)
    for centre, mixing, beta, _ in LAWS:
        second = np.eye(4)
        second[:3, :3] = mixing @ mixing.T + np.outer(centre, centre)
        second[:3, 3] = second[3, :3] = centre
        A += second
        b += second @ np.append(beta, 0.7)
    return np.linalg.solve(A, b)


def test_regression_with_sites_of_unequal_size_unequal_noise_and_unequal_coefficients():
    """Rows at random and a short run: its error is a part of what the intervals cover."""
    settings = {
        "method": "fedlsa",
        "step_size": 0.0005,
        "local_steps": 10,
        "rounds": 3000,
        "local": "rows",
        "weight": "sites",
    }
    one = fl.fit(regression_sites(0), fl.Regression("y"), **settings)
    share = one.optimisation / one.standard_error
    assert share.min() > 0.1  # of the standard error
    assert one.error["noise"] > 0
    assert_covered(ratios(regression_sites, fl.Regression("y"), regression_truth(), **settings))


# small sites ---------------------------------------------------------------------------------------------------------

SMALL, FEW = 30, 200  # sites, data sets
QUICK = {"step_size": 0.1, "local_steps": 1, "rounds": 1, "local": "means"}
OWN = 0.7 * np.random.default_rng(4).normal(size=(SMALL, 2))
OWN -= OWN.mean(axis=0)  # what sites differ by; their average is the truth, for all have the same law of features


def small_sites(k, rows, differ):
    """Pieces (rows, 2) of every site: one feature and the intercept, noise that grows with the feature."""
    rng = np.random.default_rng([31, k, rows])
    x = np.stack([rng.normal(size=(SMALL, rows)), np.ones((SMALL, rows))], axis=2)
    y = np.einsum("cij,cj->ci", x, [2.0, 1.0] + differ * OWN)
    return x, y + (0.5 + np.abs(x[..., 0])) * rng.normal(size=(SMALL, rows))


def interval_of(x, y):
    """The intervals (2, 2) of fl.fit, without a run."""
    pieces, weights = [Piece(u, u, t) for u, t in zip(x, y, strict=True)], np.full(SMALL, 1 / SMALL)
    systems = [SystemSums.of(p).system(0.0) for p in pieces]
    A, theta = solution(systems, weights, ("x", "intercept"))
    kind, no = CovarianceKind.of(fl.Regression("y"), None), np.zeros(2)
    each = zip(pieces, systems, weights, strict=True)
    found = [scores([p], s, w, (A, theta), np.eye(2), no, kind) for p, s, w in each]
    kind, found = complete(kind, found, [""] * SMALL, A)
    reach = quantile(0.95, kind.degrees_of_freedom(y.size, 2, found)) * np.sqrt(
        np.diag(sandwich(A, sum_of_meats(found)))
    )
    return np.stack([theta - reach, theta + reach])


@pytest.mark.parametrize(("rows", "differ"), [(1, False), (1, True), (2, True)])
def test_intervals_from_many_small_sites_cover(rows, differ):
    """Over 200 data sets, within four standard errors of 95%, 6.2%."""
    found = np.array([interval_of(*small_sites(k, rows, differ)) for k in range(FEW)])
    inside = (found[:, 0] <= [2.0, 1.0]) & (found[:, 1] >= [2.0, 1.0])
    assert (np.abs(np.mean(inside, axis=0) - 0.95) <= 4 * np.sqrt(0.05 * 0.95 / FEW)).all()


@pytest.mark.filterwarnings("ignore:the run ends")
def test_a_fit_of_sites_with_one_row_has_these_intervals():
    x, y = small_sites(0, 1, True)
    found = fl.fit([(u[:, :1], t) for u, t in zip(x, y, strict=True)], fl.Regression("y"), **QUICK)
    np.testing.assert_allclose(found.confidence_interval().T, interval_of(x, y), rtol=1e-9)


def test_as_many_rows_as_coefficients_have_no_error_bars():
    x, y = small_sites(0, 1, True)
    sites = [(u[:, :1], t) for u, t in zip(x, y, strict=True)]
    with pytest.raises(SiteDataError, match=r"error bars need more rows than coefficients, 2; .* have 2"):
        fl.fit(sites[:2], fl.Regression("y"), **QUICK)


def test_a_log_too_short_to_show_its_correlations_is_said_to_be():
    log = {"state": [0.1, 0.5, -0.3, 0.2, 0.9], "next_state": [0.5, -0.3, 0.2, 0.9, 0.4], "reward": [1, 2, 0, 1, 1]}
    log |= {"terminated": np.zeros(5)}
    with pytest.warns(FedLSAWarning, match="1 of 1 sites .* logs too short to see how far apart rows are correlated"):
        fl.fit([log], fl.Value(0.5), 0.01, local="means")


# temporal differences ------------------------------------------------------------------------------------------------


def chains(agents, states, stay, seed):
    """Transition matrices (N, S, S) and rewards (N, S) of worlds that are like one another; features (S, 4)."""
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(states, 4))
    phi /= np.linalg.norm(phi, axis=1).max()
    common, reward = rng.dirichlet(np.full(states, 0.3), size=states), rng.uniform(size=states)
    own = rng.dirichlet(np.full(states, 0.3), size=(agents, states))
    P = stay * np.eye(states) + (1 - stay) * (0.7 * common + 0.3 * own)
    return P, reward + 0.3 * rng.normal(size=(agents, states)), phi


def exact_problem(P, r, phi, discount):
    return fl.problems.from_mdps(P[:, :, None], r[:, :, None], np.ones((len(phi), 1)), phi, discount)


def walk(P, start, u):
    """States (N, n + 1) of a trajectory per agent from uniform numbers u : (N, n)."""
    cumulative = P.cumsum(axis=2)
    out = np.empty((len(P), u.shape[1] + 1), np.int64)
    out[:, 0] = start
    each = np.arange(len(P))
    for t in range(u.shape[1]):
        out[:, t + 1] = (cumulative[each, out[:, t]] < u[:, t, None]).sum(axis=1)
    return out.clip(max=P.shape[1] - 1)


def laws(p, states):
    return p.chain.stationary.reshape(-1, states)


GAMMA = 0.9
VALUE = fl.Value(GAMMA, state="s", next_state="n")
BY_HAND = {"step_size": 0.5, "local_steps": 20, "rounds": 100, "local": "means"}


def test_independent_transitions():
    P, r, phi = chains(3, 20, 0.0, seed=3)
    p = exact_problem(P, r, phi, GAMMA)
    mu, rows = laws(p, 20), P.cumsum(axis=2)
    sizes = (600, 900, 1500)

    def draw(k):
        rng, out = np.random.default_rng([11, k]), []
        for c, n in enumerate(sizes):
            s = rng.choice(20, n, p=mu[c])
            after = (rows[c, s] < rng.random(n)[:, None]).sum(axis=1).clip(max=19)
            out.append((phi[s], r[c, s], phi[after], np.zeros(n)))
        return out

    assert_covered(ratios(draw, VALUE, p.theta_star, **BY_HAND))


def autocorrelation_times(p):
    """(d,): the variance of each coefficient's mean score over many steps, over what independent rows would have.

    sum_h rho_h = 1 + 2 sum_{h > 0} rho_h of A^-1 g along the chains, from the fundamental matrix of each of them.
    """
    A = np.tensordot(p.weights, p.A_bar, 1)
    long, single = np.zeros(p.dim), np.zeros(p.dim)
    for m, span in enumerate(p.spans()):
        first, last = p.chain.first_state[m], p.chain.first_state[m + 1]
        mu, S = p.chain.stationary[first:last], last - first
        matrices, b = p.observations.matrices(span)
        g = np.linalg.solve(A, (matrices @ p.theta_star - b).T).T
        g -= p.prob[span] @ g
        origin, after, chance = p.chain.origin[span], p.chain.successor[span], p.chain.conditional[span]
        step, ahead, arrived = np.zeros((S, S)), np.zeros((S, p.dim)), np.zeros((S, p.dim))
        np.add.at(step, (origin, after), chance)
        np.add.at(ahead, origin, chance[:, None] * g)  # E[g | the state it starts in]
        np.add.at(arrived, after, p.prob[span, None] * g)  # E[g; the state it ends in]
        later = np.linalg.solve(np.eye(S) - step + np.outer(np.ones(S), mu), ahead)  # sum of all that follows
        row = np.einsum("k,ki->i", p.prob[span], g**2)
        single += row
        long += row + 2 * np.einsum("si,si->i", arrived, later)
    return long / single


def test_trajectories_whose_scores_are_correlated_over_ten_steps_and_more():
    P, r, phi = chains(3, 20, 0.95, seed=1)
    p = exact_problem(P, r, phi, GAMMA)
    assert autocorrelation_times(p).min() >= 10
    mu, n = laws(p, 20), 3000

    def all_logs():
        """Of every data set at once: the same chain for all of them, so that the loop over time is shared."""
        rng = np.random.default_rng(23)
        start = np.stack([rng.choice(20, SETS, p=m) for m in mu])  # (N, sets)
        u = rng.random((3 * SETS, n), np.float32)
        return walk(np.repeat(P, SETS, axis=0), start.ravel(), u).reshape(3, SETS, n + 1)

    logs = all_logs()

    def draw(k):
        return [(phi[s[:-1]], r[c, s[:-1]], phi[s[1:]], np.zeros(n)) for c, s in enumerate(logs[:, k])]

    assert_covered(ratios(draw, VALUE, p.theta_star, **BY_HAND))

"""Noise on uploads in exact error curves: against enumeration, against simulation, and against what it must be."""

import itertools

import numpy as np
import pytest
from tables import tiny
from tiers import mostly_long

import fedlsa as fl

BEYOND = 4.5  # standard errors that a simulated mean may lie off


def draw_run(p, a, rounds, seeds, deviation, rng):
    """||theta - theta_star||^2 after every round : (rounds + 1, seeds), by the recursion with noise on uploads."""
    N, d, w, m = p.n_agents, p.dim, p.weights, a.taking_part(p.n_agents)
    theta, xi, out = np.tile(p.theta_star + 1, (seeds, 1)), np.zeros((seeds, N, d)), []
    spans = list(p.spans())
    for t in range(rounds + 1):
        out.append(((theta - p.theta_star) ** 2).sum(1))
        eta = float(a.eta(np.array([t]))[0])
        lengths = a.observations(rng.random(seeds), 1)
        change = np.zeros((seeds, N, d))
        for c in range(N):
            span, hat = spans[p.assignment[c]], theta
            A, b = p.observations.matrices(span)
            for h in range(lengths.max()):
                k = rng.choice(len(b), seeds, p=p.prob[span])
                step = eta * (np.einsum("sij,sj->si", A[k], hat) - b[k] - xi[:, c])
                hat = hat - np.where(h < lengths[:, None], step, 0)
            change[:, c] = hat - theta + deviation * rng.standard_normal((seeds, d))  # what leaves, and no more
        absent = rng.random((seeds, N)).argsort(1) >= m
        change[absent] = 0
        moved = np.einsum("c,sci->si", w, change)
        theta = theta + N / m * moved
        xi = xi + a.gain(np.full(1, eta), lengths[:1])[0] * (moved[:, None] - change)
    return np.array(out)


@pytest.mark.parametrize(
    "a",
    [
        fl.FedLSA(0.2, 3),
        fl.FedLSA(fl.PowerStep(0.4, 0.5), 3, participants=2),
        fl.SCAFFLSA(0.2, 3),
        fl.SCAFFLSA(0.2, 3, participants=2),
        fl.Scaffnew(0.2, 0.3),
        fl.Scaffnew(0.2, 0.3, participants=1),
    ],
    ids=repr,
)
@pytest.mark.parametrize("outcomes", mostly_long([1, 3], [3]), ids=["means", "rows"])
def test_simulation_with_noise_on_uploads_agrees_with_the_exact_error(a, outcomes):
    seeds, T = 6000, 8
    p = tiny(3, 2, outcomes, 4, weights=[1.0, 2.0, 3.0])
    drawn = draw_run(p, a, T, seeds, 0.3, np.random.default_rng(8))
    start = p.theta_star + 1
    found = fl.theory.exact(p, a, T, start, record=range(T + 1), upload_noise=0.3)["mse"].values
    off = np.abs(drawn.mean(1) - found)
    assert (off <= BEYOND * drawn.std(1, ddof=1) / np.sqrt(seeds) + 1e-12).all()
    silent = fl.theory.exact(p, a, T, start, record=range(T + 1))["mse"].values
    assert (np.abs(drawn.mean(1) - silent)[1:] > BEYOND * drawn.std(1)[1:] / np.sqrt(seeds)).all()  # and noise matters


@pytest.mark.parametrize("method", [fl.FedLSA, fl.SCAFFLSA])
def test_noise_of_two_values_agrees_with_all_outcome_sequences(method):
    p, a, s, T = tiny(2, 1, 2, 3, weights=[1.0, 3.0]), method(0.3, 2), 0.7, 2
    gain = 0.0 if method is fl.FedLSA else 1 / 0.6
    states, spans = [(1.0, p.theta_star + 1.5, np.zeros((2, 1)))], list(p.spans())
    for _ in range(T):
        later = []
        for chance, theta, xi in states:
            ends = []
            for c in range(2):
                A, b = p.observations.matrices(spans[c])
                ends.append([])
                for z in itertools.product(range(2), repeat=2):
                    hat, q = theta, 0.5  # of either sign of the noise
                    for k in z:
                        hat, q = hat - 0.3 * (A[k] @ hat - b[k] - xi[c]), q * p.prob[spans[c]][k]
                    ends[c] += [(q, hat + s), (q, hat - s)]
            for (q, one), (r, two) in itertools.product(*ends):
                hat = np.stack([one, two])
                mean = p.weights @ hat
                later.append((chance * q * r, mean, xi + gain * (mean - hat)))
        states = later
    mse = sum(chance * float((theta - p.theta_star) @ (theta - p.theta_star)) for chance, theta, _ in states)
    found = fl.theory.exact(p, a, T, theta_0=p.theta_star + 1.5, upload_noise=s)
    assert found["mse"].values[-1] == pytest.approx(mse, rel=1e-12)


@pytest.mark.parametrize("a", [fl.SCAFFLSA(0.2, 3), fl.Scaffnew(0.2, 0.3)], ids=repr)
def test_many_rounds_at_once_are_those_one_by_one(a):
    p = tiny(3, 2, 3, 4, weights=[1.0, 2.0, 3.0])
    few, many = (fl.theory.exact(p, a, T, record=sorted({80, T}), upload_noise=0.5) for T in (80, 160))
    assert few.route != many.route
    assert many["mse"].sel(rounds=80).item() == pytest.approx(few["mse"].sel(rounds=80).item(), rel=1e-9)


def test_after_one_round_the_noise_adds_its_average_and_the_error_grows_with_its_square():
    p = tiny(3, 2, 3, 4, weights=[1.0, 2.0, 3.0])
    for a in (fl.FedLSA(0.2, 3), fl.SCAFFLSA(0.2, 3), fl.Scaffnew(0.2, 0.3)):
        mse = [fl.theory.exact(p, a, 20, record=[1, 20], upload_noise=s)["mse"].values for s in (0, 1, 3)]
        assert mse[1][0] - mse[0][0] == pytest.approx(2 * p.weights @ p.weights, rel=1e-9)
        np.testing.assert_allclose(mse[2] - mse[0], 9 * (mse[1] - mse[0]), rtol=1e-8)


def test_noise_that_is_negative_or_along_trajectories_is_refused():
    p = fl.problems.garnet(agents=2, states=3, features=2, seed=1)
    with pytest.raises(fl.errors.ArgumentError, match="upload_noise must be"):
        fl.theory.exact(p, fl.FedLSA(0.1, 2), 2, upload_noise=-1)
    with pytest.raises(fl.errors.ArgumentError, match="upload_noise must be 0 along trajectories"):
        fl.theory.exact(p, fl.FedLSA(0.1, 2), 2, sampling=fl.Markov(), upload_noise=0.1)

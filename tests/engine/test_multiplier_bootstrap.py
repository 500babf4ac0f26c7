"""The multiplier bootstrap: its run is that of simulate, its copies vary as runs do, its regions hold theta_star."""

from dataclasses import replace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, DivergenceWarning

P = fl.problems.garnet(agents=4, states=5, features=2, seed=1)
PLAIN = fl.FedLSA(fl.PowerStep(0.4, 0.6), 2)
METHODS = [
    PLAIN,
    replace(PLAIN, average_after=10),
    replace(PLAIN, average_after=0, local_steps=fl.PowerLength(1, 0.5)),
    fl.SCAFFLSA(fl.PowerStep(0.4, 0.6), fl.PowerLength(1, 0.5)),
    fl.Scaffnew(0.4, 0.5, average_after=10),
]


@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_the_run_is_that_of_simulate_and_copies_do_not_depend_on_company(a):
    found = fl.bootstrap(P, a, rounds=40, copies=150, seeds=[3, 8])
    run = fl.simulate(P, a, 40, [3, 8], record=[40])["theta"][:, -1]
    np.testing.assert_allclose(found["theta"], run, rtol=0, atol=1e-11)
    alone = fl.bootstrap(P, a, rounds=40, copies=150, seeds=[8])
    np.testing.assert_array_equal(alone["copies"][0], found["copies"][1])
    few = fl.bootstrap(P, a, rounds=40, copies=20, level=0.9, seeds=[8])
    np.testing.assert_allclose(
        (few["upper"] - few["theta"])[0], np.sort(np.abs(few["copies"] - few["theta"])[0], 0)[18]
    )


@pytest.mark.long
def test_observations_of_any_kind_are_those_of_simulate():
    dense = fl.problems.from_observations(
        [([0.5, 0.5], np.eye(2) + k * np.array([[[0.1]], [[-0.1]]]), np.ones((2, 2)) * k) for k in (1, 2)]
    )
    run = fl.simulate(dense, PLAIN, 20, 2, record=[20])["theta"][:, -1]
    np.testing.assert_allclose(fl.bootstrap(dense, PLAIN, 20, seeds=2)["theta"], run, rtol=0, atol=1e-11)


def test_what_has_no_bootstrap_is_refused_by_name():
    for rule, a, given in (
        ("participation must be 1.0", fl.SCAFFLSA(0.1, 2, participants=2), {}),
        ("algorithm must have equal agents", fl.Momentum(0.1, 2), {}),
        ("algorithm must have equal agents", fl.Buffered(0.1, 2), {}),
        ("algorithm must have equal agents", replace(PLAIN, projection=1.0), {}),
        ("algorithm must be a method", "fedlsa", {}),
        ("local steps of a run must be at most", fl.Scaffnew(0.1, 1e-18), {}),
        ("copies must be at least 19", PLAIN, {"copies": 18}),
        ("average_after must be at most rounds", replace(PLAIN, average_after=600), {}),
        ("level", PLAIN, {"level": 1.0}),
        ("rounds must be at most", PLAIN, {"rounds": 10**18}),
        ("copies must be at most", PLAIN, {"copies": 10**18}),
    ):
        with pytest.raises((ArgumentError, TypeError), match=rule):
            fl.bootstrap(P, a, **given)
    with pytest.warns(DivergenceWarning, match="diverged, with its copies: try a smaller step_size"):
        fl.bootstrap(P, fl.FedLSA(1e10, 3), rounds=100)


@pytest.mark.long
@pytest.mark.parametrize("after", [None, 50], ids=["last", "average"])
def test_regions_hold_theta_star_as_often_as_they_say(after):
    """One local step, so no bias, and a start at theta_star, so that nothing is left of it."""
    rng, tables = np.random.default_rng(0), []
    for _ in range(4):
        X = rng.normal(size=(30, 2))
        tables.append((X, X @ [1.0, -1.0] + rng.normal(size=30)))
    p, a, seeds = fl.problems.regression(tables), fl.FedLSA(fl.PowerStep(0.2, 0.6), 1, average_after=after), 400
    r = fl.bootstrap(p, a, rounds=300, copies=99, seeds=seeds, level=0.9, theta_0=p.theta_star)
    inside = (r["lower"] <= p.theta_star) & (p.theta_star <= r["upper"])
    ball = np.linalg.norm(r["theta"] - p.theta_star, axis=1) <= r["radius"]
    error = np.sqrt(0.9 * 0.1 / seeds)
    assert (np.abs(np.append(inside.mean("seed"), ball.mean()) - 0.9) <= 3 * error).all()


@pytest.mark.parametrize("a", [PLAIN, fl.SCAFFLSA(fl.PowerStep(0.4, 0.6), 2)], ids=repr)
def test_copies_vary_as_the_limit_law_says_however_much_agents_differ(a):
    seeds, rounds, start = 300, 300, [0.0]
    noise, ones = np.array([[-1.0], [1.0]]), np.ones((2, 1, 1))
    for apart in (0.0, 3.0):  # agents of one A, so that there is no drift
        p = fl.problems.from_observations([([0.5, 0.5], ones, noise + apart * c) for c in (-1, 0, 1)])
        r = fl.bootstrap(p, a, rounds, copies=99, seeds=seeds, level=0.9, theta_0=start)
        inside = float(((r["lower"] <= p.theta_star) & (p.theta_star <= r["upper"])).mean())
        assert abs(inside - 0.9) <= 3 * np.sqrt(0.9 * 0.1 / seeds)
        law = fl.theory.exact(p, a, rounds, start, record=[rounds])["covariance"].item()
        spread = float(((r["copies"] - r["theta"]) ** 2).mean())
        assert abs(spread / law - 1) <= 0.05 + 3 * np.sqrt(2 / 99 / seeds)  # to first order, in steps of 0.013

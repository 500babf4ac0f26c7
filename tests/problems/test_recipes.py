"""A problem can be made again, bit for bit, from its recipe."""

import numpy as np
import pytest

from fedlsa import problems
from fedlsa.errors import ArgumentTypeError, UnknownNameError

RNG = np.random.default_rng(0)
P = RNG.dirichlet(np.ones(4), (2, 4, 3))
MDPS = {"P": P, "r": RNG.random((2, 4, 3)), "policy": RNG.dirichlet(np.ones(3), 4), "features": RNG.normal(size=(4, 2))}
LOG = (RNG.normal(size=(9, 2)), RNG.normal(size=9), RNG.normal(size=(9, 2)), RNG.random(9) < 0.3)

MADE = {
    "garnet": problems.garnet(agents=6, weights=RNG.random(6)),
    "authors": problems.garnet(agents=6, preset="authors", heterogeneous=False),
    "from_mdps": problems.from_mdps(**MDPS, discount=0.9, assignment=[0, 1, 1], weights=[3, 1, 0.1]),
    "episodes": problems.from_mdps(
        **MDPS, discount=0.9, terminal=[False, False, False, True], initial=[0.3, 0.3, 0.4, 0]
    ),
    "traces off-policy": problems.from_mdps(
        **MDPS, discount=0.9, trace=0.5, emphatic=True, behaviour=RNG.dirichlet(np.ones(3), (2, 4))
    ),
    "average reward": problems.average_reward(**MDPS, ratio=0.5, weights=[1, 3]),
    "gradient_td": problems.gradient_td(**MDPS, discount=0.9, kind="gtd2", ratio=2, behaviour=np.full((4, 3), 1 / 3)),
    "from_transitions": problems.from_transitions([LOG, (*LOG, LOG[3][::-1])], 0.9, trace=0.4, weights=[1, 3]),
    "importance": problems.from_transitions([(*LOG, None, RNG.random(9))], 0.9, trace=0.4),
    "from_chains": problems.from_chains(
        [([0, 0, 1, 2, 2], [1, 2, 2, 0, 1], RNG.normal(size=5), [0.3, 0.7, 1, 0.25, 0.75], [0, 1, 0, 0, 0])] * 2,
        RNG.normal(size=(3, 2)),
        0.9,
        [0.5, 0.5, 0],
        weights=[1, 2],
    ),
    "regression": problems.regression([(LOG[0], LOG[1]), (LOG[2], LOG[1])], 0.1, assignment=[1, 0, 0]),
    "from_observations": problems.from_observations([(P[0, 0, 0], RNG.normal(size=(4, 2, 2)), np.ones((4, 2)))]),
}


def arrays(p):
    chain = [] if p.chain is None else list(vars(p.chain).values())
    return [*vars(p.observations).values(), p.prob, p.first, p.assignment, p.weights, p.theta_star, *chain]


@pytest.mark.parametrize("name", MADE)
def test_a_recipe_makes_the_same_problem(name):
    p = MADE[name]
    q = problems.from_recipe(p.recipe)
    assert all(np.array_equal(a, b) for a, b in zip(arrays(p), arrays(q), strict=True))
    assert p.ordered == q.ordered
    assert q.recipe.keys() == p.recipe.keys() == {"constructor", "arguments"}


@pytest.mark.parametrize("name", MADE)
def test_recipes_hold_only_plain_values_and_arrays(name):
    def plain(value):
        if isinstance(value, (list, tuple)):
            return all(map(plain, value))
        return value is None or type(value) in (bool, int, float, str, np.ndarray)

    recipe = MADE[name].recipe
    assert recipe["constructor"] in problems.CONSTRUCTORS
    assert all(plain(v) for v in recipe["arguments"].values())


@pytest.mark.parametrize("name", MADE)
def test_every_problem_keeps_the_invariants_of_its_tables(name):
    p = MADE[name]
    for span in p.spans():
        assert p.prob[span].sum() == pytest.approx(1, abs=1e-12)
    assert p.weights.sum() == pytest.approx(1, abs=1e-12)
    assert len(p.weights) == p.n_agents
    np.testing.assert_allclose(p.weights @ p.xi_star, 0, atol=1e-10 * (1 + abs(p.theta_star).max()))
    averaged = np.tensordot(p.weights, p.A_bar, 1)
    np.testing.assert_allclose(averaged @ p.theta_star, p.weights @ p.b_bar, atol=1e-10)
    if p.chain is not None:
        m = np.repeat(np.arange(p.n_tables), np.diff(p.first))
        mu = p.chain.stationary
        at, to = p.chain.first_state[m] + p.chain.origin, p.chain.first_state[m] + p.chain.successor
        np.testing.assert_allclose(np.bincount(to, p.prob, len(mu)), mu, atol=1e-14)  # the law is stationary
        np.testing.assert_allclose(np.bincount(at, p.chain.conditional, len(mu))[mu > 0], 1, atol=1e-14)


def test_unknown_constructors_and_things_that_are_no_recipe_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'garnet'"):
        problems.from_recipe({"constructor": "garnett", "arguments": {}})
    with pytest.raises(ArgumentTypeError, match="recipe must be a mapping"):
        problems.from_recipe(["garnet"])

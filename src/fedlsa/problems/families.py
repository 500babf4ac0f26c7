"""Families of problems beside Garnet: sites in a plane, slippery lakes, poles; and the one registry of all by name.

Lakes and poles are one Gymnasium environment in many versions, one per agent, with a policy and features that suit it.
Agents differ as much as `low` and `high` say, so that drift can be dialled. They need the extra gym. The registry knows
what `make` and a recipe can name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError
from .arguments import Parameter, ProblemFamily, call_by_name, family
from .data import Log, from_logs, from_observations, from_transitions, regression
from .environments import from_gymnasium, rollout
from .features import Aggregation, Fourier
from .garnets import garnet
from .mdp import average_reward, from_chains, from_mdps, gradient_td
from .streams import stream
from .system import Problem

ROWS = 60  # of each site
WIDE, NARROW = 1.3, 0.35  # standard deviations of a site's rows along the direction it sees best, and across it
AGENT_BYTES = 20_000  # of an environment with its wrappers, about
LEFT, DOWN, RIGHT = range(3)
LAKE_MAP = "SFFFFHFHFFFHHFFG"  # start, frozen, hole, goal: FrozenLake's own 4 x 4
#             S     F     F     F     F     H     F     H     F      F     F     H     H     F      F      G
LAKE_WALK = [DOWN, LEFT, LEFT, LEFT, DOWN, LEFT, LEFT, LEFT, RIGHT, DOWN, LEFT, LEFT, LEFT, RIGHT, RIGHT, LEFT]
# one value per cell on the way; the corner that is seldom visited shares one, and nothing begins in holes or the goal
LAKE_CELLS = Aggregation(16, (0, 1, 1, 1, 2, -1, 1, -1, 3, 4, 5, -1, -1, 6, 7, -1))
POLE_BASIS = Fourier(low=(-0.21, -2.5), high=(0.21, 2.5), order=2, total=True)  # angle and angular velocity; d = 6
AGENTS = Parameter("Number of agents N.", at_least=1)
DISCOUNT = Parameter("Discount factor, below 1.", at_least=0, below=1)


@family(
    "Sites in a plane",
    agents=AGENTS,
    spread=Parameter("How far the sites' own solutions lie apart.", at_least=0),
    noise=Parameter("Standard deviation of what is left unexplained.", at_least=0),
    seed=Parameter("Seed of solutions and rows.", at_least=0),
    ideal=Parameter("Whether spread 0 leaves no drift, and noise 0 no noise."),
)
def ring(
    agents: int = 3,
    spread: float = 1.0,
    noise: float = 0.0,
    seed: int = 0,
    ideal: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Problem:
    """Least squares with two coefficients (eq:lsa_syst_fed): each site has its own solution and its own view, d = 2.

    agents : how many sites; spread : the size of the ring on which their solutions lie, 0 for one solution of all
    noise : standard deviation of what the coefficients leave unexplained; seed : of solutions and rows
    ideal : for control experiments. The noise then leaves each site's own solution where it is: without spread there is
        no drift. And without noise nothing is random: a local step sees all rows of its site at once, for single rows
        that a site's own solution explains would still be noise at theta_star

    A site sees one direction well and the other badly, and which one differs from site to site. So A_bar_c differ as
    well as the solutions, without which there would be no bias (th:2nd_moment_no_cv).

    weights : (N,) how much each agent counts, by default the same
    """
    N = agents
    checks.memory("agents", N, 3 * 8 * 3 * ROWS, "the rows of a site")
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * np.arange(N) / N + 0.3 + rng.normal(0, 0.15, N)
    radius = spread * rng.uniform(0.8, 1.5, N)
    data = []
    for c in range(N):
        solution = radius[c] * np.array([np.cos(angle[c]), np.sin(angle[c])])
        tilt = angle[c] / 2 + 0.9
        rotation = np.array([[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]])
        X = rng.normal(size=(ROWS, 2)) @ np.diag([WIDE, NARROW]) @ rotation.T
        left = rng.normal(size=ROWS)
        if ideal:
            left -= X @ np.linalg.lstsq(X, left, rcond=None)[0]
        data.append((X, X @ solution + noise * left))
    if ideal and noise == 0:
        means = [([1.0], [X.T @ X / ROWS], [X.T @ y / ROWS]) for X, y in data]
        return from_observations(means, weights=weights)
    return regression(data, weights=weights)


@family(
    "Frozen lakes",
    own_recipe=False,
    agents=AGENTS,
    low=Parameter("Chance that a step goes where it was meant to, on the first lake.", above=0, at_most=1),
    high=Parameter("The same on the last lake.", above=0, at_most=1),
    discount=DISCOUNT,
)
def lakes(
    agents: int = 20,
    low: float = 0.34,
    high: float = 0.95,
    discount: float = 0.95,
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Federated TD(0) on slippery lakes (eq:system_matrix): FrozenLake, d = 8, exact, without rollouts.

    agents : how many lakes; low, high : a step goes where it was meant to with a probability from `low` on the first
        lake to `high` on the last, evenly spaced, and sideways otherwise

    Everybody walks along the shore to the goal in four steps of five, and anywhere in the fifth; arriving pays 1.
    After an arrival or a fall the walk begins anew. The features are indicators of cells. The problem keeps the chains
    themselves as its recipe, so that a result can be made again without Gymnasium.

    discount : how much a reward counts one step later (gamma), at least 0 and below 1
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    checks.memory("agents", agents, AGENT_BYTES, "an environment")
    variations = [{"success_rate": rate} for rate in np.linspace(*_in_order(low, high), agents)]
    policy = 0.05 + 0.8 * np.eye(4)[LAKE_WALK]
    return from_gymnasium(
        "FrozenLake-v1", policy, LAKE_CELLS, discount, variations=variations, weights=weights, assignment=assignment
    )


@family(
    "CartPoles",
    agents=AGENTS,
    low=Parameter("Half the length of the first pole, in metres.", above=0),
    high=Parameter("The same of the last pole.", above=0),
    discount=DISCOUNT,
    steps=Parameter("Transitions in each log.", at_least=1),
    seed=Parameter("Seed of the rollouts.", at_least=0),
)
def cartpoles(
    agents: int = 50,
    low: float = 0.2,
    high: float = 1.5,
    discount: float = 0.95,
    steps: int = 1000,
    seed: int = 0,
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Federated TD(0) on logs of poles of different length (eq:matr_A_def_td_app): CartPole, Fourier features, d = 6.

    agents : how many poles; low, high : half the length of the first and the last, in metres, by equal ratios
    steps : transitions in each log; seed : of the rollouts

    A clumsy controller balances each pole until it falls; the value of a state is the discounted number of steps until
    then. The problem keeps its settings as its recipe: a result is made again by new rollouts from the same seed.

    discount : how much a reward counts one step later (gamma), at least 0 and below 1
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    logs = cartpole_logs(agents, low, high, steps, seed)
    return from_logs(logs, pole_features, discount, weights=weights, assignment=assignment)


def cartpole_logs(agents: int = 50, low: float = 0.2, high: float = 1.5, steps: int = 1000, seed: int = 0) -> list[Log]:
    """The logs on which `cartpoles` is built, one per pole."""
    checks.memory("agents", agents, AGENT_BYTES, "an environment")
    variations = [{"length": length} for length in np.geomspace(*_in_order(low, high), agents)]
    return rollout("CartPole-v1", controller, steps, seed, variations=variations)


def controller(states: Any) -> Floats:
    """Pushes to the side to which the pole is falling, but only two times in three; (n, 4) to (n, 2) probabilities."""
    right = np.where(states[:, 2] + 0.35 * states[:, 3] > 0, 0.67, 0.33)
    return np.stack([1 - right, right], axis=1)


def pole_features(states: Any) -> Floats:
    """The basis on the pole's angle and angular velocity, (n, 4) to (n, 6); where the cart is matters little."""
    return POLE_BASIS(states[:, 2:])


def _in_order(low: float, high: float) -> tuple[float, float]:
    if low > high:
        raise ArgumentError(f"low must be at most high, {high:g}; got {low:g}")
    return low, high


FAMILIES: dict[str, ProblemFamily] = {make.__name__: vars(make)["family"] for make in (ring, garnet, lakes, cartpoles)}
FROM_ARRAYS = (from_mdps, average_reward, gradient_td, from_chains, from_transitions, regression, from_observations)
CONSTRUCTORS: dict[str, Callable[..., Problem]] = (
    {make.__name__: make for make in FROM_ARRAYS}
    | {name: family.make for name, family in FAMILIES.items()}
    | {"stream": stream}
)


def make(family: str, /, **settings: Any) -> Problem:
    """A problem of a family, by name: make("garnet", agents=10) is fl.problems.garnet(agents=10).

    family : a name of `FAMILIES`, whose entry lists the parameters with their types, defaults, bounds and meaning
    settings : of the family, by name
    """
    return call_by_name(FAMILIES[checks.choice("family", family, FAMILIES)].make, settings, "arguments")


def from_recipe(recipe: Mapping[str, Any]) -> Problem:
    """The problem that `problem.recipe` describes: {"constructor": name, "arguments": {...}}."""
    if not isinstance(recipe, Mapping) or not {"constructor", "arguments"} <= recipe.keys():
        rule = "recipe must be a mapping with the keys 'constructor' and 'arguments'"
        raise ArgumentTypeError(f"{rule}; got {checks.show(recipe)}")
    if not isinstance(recipe["arguments"], Mapping):
        raise ArgumentTypeError(f"arguments must be a mapping; got {checks.show(recipe['arguments'])}")
    constructor = CONSTRUCTORS[checks.choice("constructor", recipe["constructor"], CONSTRUCTORS)]
    return call_by_name(constructor, recipe["arguments"], "arguments")

"""Worlds to act in, a decision process per agent, and the fixed point that SARSA has there."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import PrecisionError
from ..problems import Problem, from_chains
from ..problems.arguments import agents as agents_of
from ..value_objects import Displayed, ReadOnly, frozen_property

MOST_ITERATIONS = 500
LEAST_SHARE = 1 / 16  # of the way to the next solution, that an iteration goes


@dataclass(frozen=True, eq=False, repr=False)
class Worlds(Displayed, ReadOnly):
    """Decision processes, one per agent.

    P : (N, S, A, S) transition probabilities
    r : (N, S, A, S) rewards of transitions, or (N, S, A)
    discount : how much a reward counts one step later (gamma), at least 0 and below 1
    terminal : (S,) states in which an episode ends: nothing is bootstrapped from them, and another one begins
    initial : (N, S) or (S,) law of an episode's first state; by default all alike that are not terminal
    features : (S, A, d) of states and actions; by default one for each pair whose state is not terminal
    weights : (N,) how much each agent counts; by default the same

    >>> fl.control.Worlds(P=np.full((3, 2, 2, 2), 0.5), r=np.ones((3, 2, 2)), discount=0.5).features.shape
    (2, 2, 4)
    """

    P: Floats = field(repr=False)
    r: Floats = field(repr=False)
    discount: float
    terminal: Any = None
    initial: Any = None
    features: Any = None
    weights: Any = None

    def __post_init__(self) -> None:
        P = checks.probabilities("P", self.P, ("N", "S", "A", "S"))
        N, S, A, _ = P.shape
        deep = checks.as_array("r", self.r).ndim == 4
        r = checks.array("r", self.r, (N, S, A, S) if deep else (N, S, A))
        gamma = checks.real("discount", self.discount, at_least=0, below=1)
        over = checks.flags("terminal", np.zeros(S) if self.terminal is None else self.terminal, (S,))
        law = np.where(over, 0, 1 / max(1, (~over).sum())) if self.initial is None else self.initial
        law = checks.probabilities("initial", law, (N, S) if checks.as_array("initial", law).ndim == 2 else (S,))
        checks.refuse(over & (law > 0), law, "initial must be 0 in terminal states")
        each = np.eye(S * A)[:, np.repeat(~over, A)].reshape(S, A, -1) if self.features is None else self.features
        phi, w = checks.array("features", each, (S, A, "d")), agents_of(N, None, self.weights)[1]
        checks.integer("number of features", phi.shape[2], at_least=1)
        rewards = r if deep else np.broadcast_to(r[..., None].copy(), P.shape)
        begin = np.broadcast_to(law, (N, S)).copy()
        for f, value in zip(fields(self), (P, rewards, gamma, over, begin, phi, w), strict=True):
            object.__setattr__(self, f.name, value)
        super().__post_init__()

    @frozen_property
    def tables(self) -> tuple[Any, ...]:
        """The first of the rules of `on_policy.run_rounds`: without what never happens, and features that are 0."""
        successor, chance = _nonzero(self.P)
        reward = np.take_along_axis(self.r, successor, axis=3)
        laws = successor, thresholds(chance), reward, self.terminal, thresholds(self.initial)
        return *laws, *_nonzero(self.features)


def _nonzero(x: Floats) -> tuple[Any, Floats]:
    """Where the entries of the last axis are that are not 0, and those; rows with fewer than others have some zeros."""
    place = np.argsort(x == 0, axis=-1, kind="stable")[..., : max(1, (x != 0).sum(axis=-1).max())]
    return np.ascontiguousarray(place), np.take_along_axis(x, place, axis=-1)


def thresholds(law: Floats) -> Floats:
    """The chance of an entry or one before it; 2 from the last possible one on, so that one is always found."""
    possible = np.cumsum(law > 0, axis=-1)
    return np.where(possible == possible[..., -1:], 2.0, np.cumsum(law, axis=-1))


def garnet(
    agents: int = 10, states: int = 10, actions: int = 3, branching: int = 2, heterogeneity: float = 1.0, seed: int = 0
) -> Worlds:
    """Two Garnet worlds, held by agents in turn, with discount 0.9: by default those of FedSARSA's published code.

    heterogeneity : from 0, all agents live in the first world, to 1; between them the second is mixed with the first
    seed : of the first world; the second has the next one
    """
    mixed = checks.real("heterogeneity", heterogeneity, at_least=0, at_most=1)
    given = {"agents": agents, "states": states, "actions": actions}
    N, S, A = (checks.integer(name, value, at_least=1) for name, value in given.items())
    checks.integer("branching", branching, at_least=1, at_most=S)
    checks.integer("seed", seed)
    checks.memory("agents times states^2 times actions", N * S * S * A, 64, "each probability and its reward")
    P, r = np.zeros((2, S, A, S)), np.zeros((2, S, A))
    for w in range(2):
        rng = np.random.default_rng(seed + w)  # all draws in the order of that code
        after = [[rng.choice(S, branching, replace=False) for _ in range(A)] for _ in range(S)]
        chance = rng.uniform(size=(S, A, branching))
        np.put_along_axis(P[w], np.array(after), chance / chance.sum(axis=2, keepdims=True), axis=2)
        r[w] = rng.uniform(0, 1, (S, A))
    P[1], r[1] = mixed * P[1] + (1 - mixed) * P[0], mixed * r[1] + (1 - mixed) * r[0]
    world = np.arange(N) % 2
    return Worlds(P[world], r[world], 0.9)


def check_policy(temperature: float, epsilon: float | None) -> tuple[float, float]:
    """The temperature of a softmax and 0; or 0 and the epsilon of an epsilon-greedy policy."""
    if epsilon is None:
        return checks.real("temperature", temperature, above=0), 0.0
    return 0.0, checks.real("epsilon", epsilon, at_least=0, at_most=1)


def probabilities(q: Floats, temperature: float, epsilon: float) -> Floats:
    """(..., A) values of actions to the probabilities of a policy, as `check_policy` gives it."""
    if temperature == 0:
        return np.asarray(epsilon / q.shape[-1] + (1 - epsilon) * np.eye(q.shape[-1])[q.argmax(axis=-1)])
    e = np.exp((q - q.max(axis=-1, keepdims=True)) / temperature)
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _evaluation(worlds: Worlds, pi: Floats) -> Problem:
    """Evaluation of a policy (S, A): chains whose states are the pairs (s, a)."""
    (_, S, A, _), chains = worlds.P.shape, []
    for P, r in zip(worlds.P, worlds.r, strict=True):
        s, a, after = np.nonzero(np.where(worlds.terminal[:, None, None], 0, P))
        rows, chance = (s * A + a)[:, None], P[s, a, after, None] * pi[after]  # (E, A): with each next action
        y, over = (np.broadcast_to(x[:, None], chance.shape) for x in (r[s, a, after], worlds.terminal[after]))
        entries = np.broadcast_to(rows, chance.shape), after[:, None] * A + np.arange(A), y, chance, over
        chains.append(tuple(x[chance > 0] for x in entries))
    begin = (worlds.initial[:, :, None] * pi).reshape(-1, S * A)
    return from_chains(chains, worlds.features.reshape(S * A, -1), worlds.discount, begin, weights=worlds.weights)


def solve(
    worlds: Worlds, temperature: float = 1.0, epsilon: float | None = None, tol: float = 1e-11
) -> tuple[Problem, float]:
    """FedSARSA's fixed point: evaluation of the policy that comes of its solution theta_star, and the residual there.

    The states of the problem are pairs s A + a; its xi_star is what SCAFFLSA's control variates tend to; its residual
    is the length of the mean update. An iteration evaluates the policy so far and goes a share of the way to what it
    finds: all of it at first, half as far whenever the distance grew. temperature, epsilon : as in `fl.sarsa`;
    epsilon-greedy policies may have no fixed point. tol : of the last distance, in units of max(1, ||theta_star||);
    PrecisionError where it is not reached

    >>> problem, residual = fl.control.solve(fl.control.garnet(), temperature=2)
    >>> residual < 1e-11, float(problem.theta_star.max().round(4))
    (True, 6.8418)
    """
    checks.instance("worlds", worlds, Worlds, "made by fl.control")
    checks.real("tol", tol, above=0)
    policy, theta, goes, before = check_policy(temperature, epsilon), np.zeros(worlds.features.shape[2]), 1.0, np.inf
    for _ in range(MOST_ITERATIONS):
        problem = _evaluation(worlds, probabilities(worlds.features @ theta, *policy))
        distance = float(np.linalg.norm(problem.theta_star - theta))
        if distance <= tol * max(1.0, float(np.linalg.norm(theta))):
            return problem, float(np.linalg.norm(problem.weights @ (problem.A_bar @ theta - problem.b_bar)))
        goes = max(goes / 2, LEAST_SHARE) if distance > before else goes
        theta, before = theta + goes * (problem.theta_star - theta), distance
    raise PrecisionError(
        f"temperature must be high enough for a fixed point to be found to {tol:g} in {MOST_ITERATIONS} iterations; "
        f"got a last distance of {before:.3g} with temperature {temperature:g} and epsilon {epsilon}"
    )

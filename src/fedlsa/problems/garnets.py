"""Garnet: random Markov decision processes, some of them alike, on which the paper's experiments run.

Agents live in one world or two; each has its own small perturbation of its world. In one world every agent moves along
the same edges, so a problem is a few arrays: successors (W, S, A, B) of the W worlds, and per table its world (M,), its
probabilities (M, S, A, B) and rewards (M, S, A); all share a policy (S, A) and features (S, d). Without perturbation
there is one table per world, however many agents.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from .arguments import Parameter, family
from .arguments import agents as agents_of
from .finite_chains import Edges, follow
from .mdp import temporal_difference
from .system import Integers, Problem

PRESETS = ("paper", "authors")
WORLD, FEATURES, AGENT = 0, 1, 2  # first entries of the spawn keys: one random stream for each purpose


class Draw(NamedTuple):
    """A Garnet before it becomes a problem; assignment : (N,) table of each agent."""

    world: Integers
    successors: Integers
    kernel: Floats
    reward: Floats
    policy: Floats
    features: Floats
    assignment: Integers


@family(
    "Garnet worlds",
    agents=Parameter("Number of agents N.", at_least=1),
    states=Parameter("States of each agent's world.", at_least=1),
    actions=Parameter("Actions in each state.", at_least=1),
    branching=Parameter("Successors of a state and action.", at_least=1),
    features=Parameter("Features, the dimension d.", at_least=1),
    discount=Parameter("Discount factor, below 1.", at_least=0, below=1),
    heterogeneous=Parameter("Two worlds or one."),
    perturbation=Parameter("How much agents of one world differ.", at_least=0),
    preset=Parameter("paper: as its text says; authors: as their code does.", options=PRESETS),
    seed=Parameter("Seed of the problem itself.", at_least=0),
)
def garnet(
    agents: int = 100,
    states: int = 30,
    actions: int = 2,
    branching: int = 2,
    features: int = 8,
    discount: float = 0.95,
    heterogeneous: bool = True,
    perturbation: float = 0.02,
    preset: str = "paper",
    seed: int = 42,
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Federated TD(0) on Garnet problems (sec:appendix_td): the instance of the paper's experiments.

    agents, states, actions : how many; branching : successors of each state and action; features : the dimension d
    heterogeneous : two worlds, with half of the agents each, instead of one
    perturbation : each agent adds uniform(0, perturbation) to its world's probabilities (then normalised) and rewards
    preset : "paper" follows the text, and the problem with more agents contains the one with fewer;
        "authors" is the instance of the published code, number for number (there theta_star changes with `agents`)

    assignment : with it, `agents` counts the tables that are drawn, and agent c holds the one of number assignment[c]
    discount : how much a reward counts one step later (gamma), at least 0 and below 1
    seed : of all that is drawn
    weights : (N,) how much each agent counts, by default the same
    """
    checks.integer("actions", actions, at_least=2 if preset == "authors" else 1)
    checks.integer("branching", branching, at_least=1, at_most=states)
    worlds = 2 if heterogeneous else 1
    tables = agents if perturbation > 0 else worlds
    checks.memory("agents", tables, 12 * 8 * actions * branching, "the transitions of a state")
    checks.memory("states", states, 12 * 8 * tables * actions * branching + 8 * features, "transitions and features")
    checks.memory("features", features, 3 * 8 * tables * features, "the systems of agents")
    checks.memory("agents", agents, 100, "each of them")
    make = _paper if preset == "paper" else _authors
    draw = make(agents, states, actions, branching, features, worlds, perturbation, seed)
    assigned, w = agents_of(agents, assignment, weights)
    shape = draw.kernel.shape  # an edge for every (s, a, s') of every table
    table, s, _, _ = (np.broadcast_to(i, shape).ravel() for i in np.ogrid[tuple(slice(n) for n in shape)])
    rewards = np.broadcast_to(draw.reward[..., None], shape).ravel()
    chances = (draw.policy[:, :, None] * draw.kernel).ravel()
    edges = Edges(table, s, draw.successors[draw.world].ravel(), rewards, chances, np.zeros(len(s), np.bool_))
    on = follow(edges, draw.features, None, shape[0], draw.assignment[assigned], w)
    return temporal_difference(on, discount)


def _normalised(kernel: Floats) -> Floats:
    return np.asarray(kernel / kernel.sum(axis=-1, keepdims=True), np.float64)


def _paper(N: int, S: int, A: int, B: int, d: int, W: int, perturbation: float, seed: int) -> Draw:
    """The text's Garnet; worlds, features and the agents' perturbations come from streams of their own."""
    W = min(W, N)

    def stream(*key: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))

    successors, kernel, reward = np.empty((W, S, A, B), np.int64), np.empty((W, S, A, B)), np.empty((W, S, A))
    for w in range(W):
        rng = stream(WORLD, w)
        successors[w] = np.sort(np.argsort(rng.random((S, A, S)), axis=-1)[..., :B], axis=-1)
        kernel[w] = _normalised(-np.log1p(-rng.random((S, A, B))))  # uniform on the simplex
        reward[w] = rng.random((S, A))
    phi = stream(FEATURES).standard_normal((S, d))
    phi /= np.linalg.norm(phi, axis=1).max()
    inhabitants = [N - N // 2, N // 2] if W == 2 else [N]
    world_of_agent = np.repeat(np.arange(W), inhabitants)
    policy = np.full((S, A), 1 / A)
    if perturbation == 0:
        return Draw(np.arange(W), successors, kernel, reward, policy, phi, world_of_agent)
    noise = np.empty((N, S * A * (B + 1)))
    for c, (w, i) in enumerate((w, i) for w, n in enumerate(inhabitants) for i in range(n)):
        stream(AGENT, w, i).random(out=noise[c])
    noise *= perturbation
    kernels = _normalised(kernel[world_of_agent] + noise[:, : S * A * B].reshape(N, S, A, B))
    rewards = reward[world_of_agent] + noise[:, S * A * B :].reshape(N, S, A)
    return Draw(world_of_agent, successors, kernels, rewards, policy, phi, np.arange(N))


def _authors(N: int, S: int, A: int, B: int, d: int, W: int, perturbation: float, seed: int) -> Draw:
    """The published code's Garnet: every draw from one generator, in that code's order."""
    rng = np.random.default_rng(seed)

    successors = np.empty((W, S, A, B), np.int64)
    for s, a, w in np.ndindex(S, A, W):
        row = np.arange(S) < B
        rng.shuffle(row)
        successors[w, s, a] = np.flatnonzero(row)

    world_of_agent = np.arange(N) % W
    same = perturbation == 0
    noise = np.zeros((1 if same else N, S, A, B))
    reached = np.zeros((W, S, A, S), np.bool_)
    np.put_along_axis(reached, successors, True, axis=-1)
    if same:
        _skip(rng, N * S * A * S)
    else:
        for c in range(N):
            noise[c] = rng.uniform(0, perturbation, (S, A, S))[reached[world_of_agent[c]]].reshape(S, A, B)

    reward = rng.uniform(0, 1, S)
    if same:
        _skip(rng, N * S)
    drift = np.zeros((1, S)) if same else rng.uniform(0, perturbation, (N, S))

    phi = rng.uniform(0, 1, (S, d))
    phi /= phi.sum(axis=1, keepdims=True)
    policy = np.zeros((S, A))
    policy[:, : A - 1] = 1 / (A - 1)
    for s in range(S):
        rng.shuffle(policy[s])

    world = np.arange(min(W, N)) if same else world_of_agent
    sign = np.array([1.0, -1.0])
    per_table = reward + drift if W == 1 else sign[world][:, None] * reward
    rewards = np.repeat(per_table[:, :, None], A, axis=2)
    kernels = np.broadcast_to(_normalised(1 + noise), (len(world), S, A, B))
    return Draw(world, successors, kernels, rewards, policy, phi, world_of_agent if same else np.arange(N))


def _skip(rng: np.random.Generator, draws: int) -> None:
    """Pass over uniform draws without making them; the half-used word that shuffles keep stays where it is."""
    bits = rng.bit_generator
    assert isinstance(bits, np.random.PCG64)
    before = bits.state
    bits.advance(draws)
    bits.state = {**bits.state, "has_uint32": before["has_uint32"], "uinteger": before["uinteger"]}

"""What an update of FedSARSA costs, side by side with the plain loop in NumPy that a user would write.

    python benchmarks/sarsa.py                     Garnet, lakes, CartPoles; about a minute
    python benchmarks/sarsa.py --local-steps 1 10

The measure is processor time of all threads per step of an agent, the best of several turns, in which all contenders
take part one after the other. Goal: 200 ns. The plain loop is a fair one: arrays, no copies, one random generator.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import fedlsa as fl

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from fedsarsa import cartpoles, lakes

GOAL = 200  # nanoseconds
TURNS = 5
UPDATES = 2_000_000  # of a compiled call
FEW = 1_000  # of the plain loop
AGENTS, SEEDS = 10, 4


def problems() -> dict[str, fl.control.Worlds]:
    """The worlds by name, with ten agents that differ."""
    return {
        "Garnet": fl.control.garnet(AGENTS),
        "FrozenLake": lakes(np.linspace(0.4, 0.9, AGENTS)),
        "CartPole": cartpoles(np.geomspace(0.3, 1.0, AGENTS)),
    }


def plain_loop(
    worlds: fl.control.Worlds, rounds: int, H: int, eta: float = 0.05, temperature: float = 1.0
) -> np.ndarray:
    """FedSARSA with averages, as it is written down; theta after so many rounds."""
    phi, N, S, A = worlds.features, *worlds.P.shape[:3]
    rng, theta = np.random.default_rng(0), np.zeros(phi.shape[2])

    def act(s: int, theta: np.ndarray) -> int:
        e = np.exp(phi[s] @ theta / temperature)
        return int(rng.choice(A, p=e / e.sum()))

    state = [int(rng.choice(S, p=worlds.initial[c])) for c in range(N)]
    action = [act(s, theta) for s in state]
    for _ in range(rounds):
        hats = np.tile(theta, (N, 1))
        for c in range(N):
            for _ in range(H):
                s, a, hat = state[c], action[c], hats[c]
                after = int(rng.choice(S, p=worlds.P[c, s, a]))
                r, over = worlds.r[c, s, a, after], worlds.terminal[after]
                start = int(rng.choice(S, p=worlds.initial[c])) if over else after
                then = act(start, hat)
                target = r if over else r + worlds.discount * phi[after, then] @ hat
                hat += eta * (target - phi[s, a] @ hat) * phi[s, a]
                state[c], action[c] = start, then
        theta = hats.mean(axis=0)
    return theta


def measure(contenders: dict[str, tuple[Callable[[], object], int]]) -> dict[str, float]:
    """Nanoseconds of processor time per update of each, (call, updates): the best of some turns."""
    best = dict.fromkeys(contenders, np.inf)
    for call, _ in contenders.values():
        call()  # compiles
    for _ in range(TURNS):
        for name, (call, updates) in contenders.items():
            begin = time.process_time_ns()
            call()
            best[name] = min(best[name], (time.process_time_ns() - begin) / updates)
    return best


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local-steps", type=int, nargs="+", default=[10, 100, 1000])
    given = parser.parse_args(arguments)
    print(f"{'':<12}{'d':>6}{'H':>7}{'FedLSA':>10}{'SCAFFLSA':>10}{'plain loop':>12}   ns per update; goal {GOAL}")
    for name, worlds in problems().items():
        for H in given.local_steps:
            rounds, few = max(1, UPDATES // (AGENTS * SEEDS * H)), max(1, FEW // (AGENTS * H))
            contenders = {"plain": (lambda w=worlds, n=few, H=H: plain_loop(w, n, H), few * AGENTS * H)}
            for kind in (fl.FedLSA, fl.SCAFFLSA):
                call = partial(fl.sarsa, worlds, kind(0.05, H), rounds, SEEDS, record=2)
                contenders[kind.__name__] = call, rounds * AGENTS * SEEDS * H
            best = measure(contenders)
            row = f"{best['FedLSA']:>10.0f}{best['SCAFFLSA']:>10.0f}{best['plain']:>12,.0f}"
            print(f"{name:<12}{worlds.features.shape[2]:>6}{H:>7}{row}", flush=True)


if __name__ == "__main__":
    main()

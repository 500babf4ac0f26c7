"""A picture per theorem for docs/theory.md: its bound, the exact error and simulations, where its conditions hold.

Run `python docs/make_theory_pictures.py [name ...]`; it writes docs/images/theory-<name>.png, all in a minute or two.
"""

from __future__ import annotations

import math
import sys
import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fedlsa as fl
from fedlsa import figures, theory

IMAGES = Path(__file__).parent / "images"
SEEDS = 100


def agents_that_differ(agents: int = 10) -> fl.problems.Problem:
    """Three outcomes per agent, A(z) near a multiple of the identity: every theorem finds a step size."""
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(agents):
        A = (1 + rng.random()) * np.eye(2) + 0.3 * rng.standard_normal((3, 2, 2))
        tables.append((rng.dirichlet(np.ones(3)), A, rng.standard_normal((3, 2))))
    return fl.problems.from_observations(tables)


def fedlsa() -> Figure:
    problem, method, rounds = agents_that_differ(), fl.FedLSA(step_size=0.005, local_steps=20), 80
    return figures.bound_and_curve(
        theory.bound(problem, method, rounds, record=200),
        theory.exact(problem, method, rounds),
        fl.simulate(problem, method, rounds, seeds=SEEDS),
        title="The theorem on FedLSA",
    )


def scafflsa() -> Figure:
    problem = agents_that_differ()
    known, H, rounds = theory.constants(problem), 20, 40_000
    eta = 0.9 * known.a_sym / (240 * H * (known.C_A**2 + known.Sigma_A_norm))
    method = fl.SCAFFLSA(step_size=float(f"{eta:.2g}"), local_steps=H)
    return figures.bound_and_curve(
        theory.bound(problem, method, rounds, record=200),
        theory.exact(problem, method, rounds),
        fl.simulate(problem, method, rounds, seeds=SEEDS),
        title="The theorem on SCAFFLSA",
    )


def scaffnew() -> Figure:
    problem = agents_that_differ()
    known = theory.constants(problem)
    eta = float(f"{0.05 / known.L:.2g}")
    method = fl.Scaffnew(step_size=eta, probability=float(f"{math.sqrt(eta * known.a_sym):.2g}"))
    bound = theory.bound(problem, method, 60, record=200)
    return figures.bound_and_curve(
        bound,
        theory.exact_iterations(problem, method, int(bound.samples[-1])),
        fl.simulate(problem, method, 60, seeds=SEEDS),
        title="The theorem on Scaffnew",
        x="samples",
    )


def two_chains(difference: float = 0.02) -> fl.problems.Problem:
    """TD(0) on two chains of two states that mix fast, a feature per state, with slightly different agents."""
    P = np.array([[[0.6, 0.4], [0.4, 0.6]]])[:, :, None].repeat(2, axis=0)
    P[1, 0, 0] += difference * np.array([1.0, -1.0])
    r = np.array([[1.0, 0.0], [1.0, difference]])[..., None]
    return fl.problems.from_mdps(P, r, np.ones((2, 1)), np.eye(2), 0.3)


def markov() -> Figure:
    problem = two_chains()
    known = theory.markov_constants(problem)
    eta, q = float(f"{0.99 * known.eta_inf_M:.2g}"), 40 * int(known.tau_mix)
    updates = math.ceil(1 + 12 / known.a_tilde * (2 + math.log(problem.dim * known.kappa_Q) / 2) / eta)
    method, sampling, rounds = fl.FedLSA(eta, q * updates), fl.Markov(thin=q), 3
    bounds = [
        theory.bound(problem, method, rounds, sampling=sampling, record=200),
        theory.markov_bound(problem, method, rounds, q, record=200),
    ]
    return figures.bound_and_curve(
        bounds,
        theory.exact(problem, method, rounds, sampling=sampling),
        fl.simulate(problem, method, rounds, seeds=10, sampling=sampling),
        title="FedLSA on trajectories: the last-iterate lemma and coupling",
    )


def td() -> Figure:
    problem = fl.problems.garnet(agents=100, states=4, features=2, discount=0.3, perturbation=0.0, seed=1)
    method, rounds = fl.FedLSA(step_size=0.01, local_steps=20), 250
    return figures.bound_and_curve(
        [theory.td_bound(problem, method, rounds, record=200), theory.bound(problem, method, rounds, record=200)],
        theory.exact(problem, method, rounds),
        fl.simulate(problem, method, rounds, seeds=SEEDS),
        title="The corollary on TD(0), and the theorem with computed constants",
    )


PICTURES = {"fedlsa": fedlsa, "scafflsa": scafflsa, "scaffnew": scaffnew, "markov": markov, "td": td}


def main(names: list[str]) -> None:
    warnings.simplefilter("error")  # a condition that fails is an error here
    for name in names or PICTURES:
        figure = PICTURES[name]()
        path = IMAGES / f"theory-{name}.png"
        figures.save(figure, path, command=f"python docs/make_theory_pictures.py {name}")
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])

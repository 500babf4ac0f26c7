"""Samplings of one's own: passes over a table in a new order each time, and outcomes drawn by their priority.

`Reshuffled` is another order: every agent goes through all its rows, then through all of them again, each pass in a
permutation drawn from (seed, agent, pass). `Prioritised` is another law: outcome z is drawn with a probability q(z)
that grows with the size of its observation, which then counts p(z) / q(z) times, so that means stay and theory is
exact. Run it with `python examples/own_samplings.py`; docs/extending.md explains it.
"""

from dataclasses import dataclass

import numpy as np

import fedlsa as fl


@dataclass(frozen=True, repr=False)
class Reshuffled(fl.Sampling):
    """Passes without replacement, each in an order of its own."""

    @staticmethod
    def order(rows, words):
        for k in range(len(rows) - 1, 0, -1):  # Fisher and Yates
            j = words[k] * (k + 1) >> 32  # a number from 0 to k
            rows[k], rows[j] = rows[j], rows[k]


@dataclass(frozen=True, repr=False)
class Prioritised(fl.Sampling):
    """Draws outcome z of an agent with q(z) proportional to p(z) times (1 + |A(z)|)^power, |.| relative to the mean."""

    power: float = 1.0

    def reweighted(self, problem):
        q = problem.prob.copy()
        for span in problem.spans():
            A, _ = problem.observations.matrices(span)
            size = np.linalg.norm(A, axis=(1, 2))
            q[span] *= (1 + size / (q[span] @ size)) ** self.power
            q[span] /= q[span].sum()
        return problem.with_prob(q)


def main(rounds: int = 400, seeds: int = 20) -> None:
    problem, method = fl.problems.ring(agents=8, noise=0.5), fl.SCAFFLSA(step_size=0.05, local_steps=20)
    for sampling in (fl.IID(), Prioritised(), Reshuffled()):
        run = fl.simulate(problem, method, rounds=rounds, seeds=seeds, sampling=sampling, record=[rounds])
        exact = ""
        if sampling.order is None:  # independent draws: theory is exact
            curve = fl.theory.exact(problem, method, rounds=rounds, sampling=sampling, record=[rounds])
            exact = f", exactly {curve['mse'].values[-1]:.5f}"
        print(f"{sampling!r:14} mean squared error {run['squared_error'].values.mean():.5f}{exact}")


if __name__ == "__main__":
    main()

"""Agents that are not alike: each has its own step size eta_c and makes its own number of local steps H_c in a round.

A slow site makes few steps, a fast one many. Agent c has the step size step_factors[c] eta and the length
length_factors[c] H. FedLSA then solves another system, in which a site counts as far as it walks, eta_c H_c; SCAFFLSA,
with the gain 1 / (eta_c H_c) of each agent, still ends in theta_star. Run it with `python examples/own_steps.py`.
"""

from dataclasses import dataclass

import numpy as np

import fedlsa as fl


@dataclass(frozen=True, repr=False)
class OwnStepsSCAFFLSA(fl.SCAFFLSA):
    """SCAFFLSA with step sizes and lengths of agents as multiples of step_size and local_steps, repeated for all."""

    step_factors: tuple[float, ...] = (1.0, 0.5, 1.0)
    length_factors: tuple[float, ...] = (1.0, 2.0, 0.5)
    supports = frozenset({"theory", "plan"})

    def agent_factors(self, agents):
        return np.resize(self.step_factors, agents), np.resize(self.length_factors, agents)


@dataclass(frozen=True, repr=False)
class OwnStepsFedLSA(OwnStepsSCAFFLSA):
    """The same without control variates."""

    supports = frozenset({"theory", "plan"})
    gain = fl.FedLSA.gain


def main(rounds: int = 400, seeds: int = 20) -> None:
    problem, recorded = fl.problems.garnet(agents=20), [rounds // 16, rounds // 4, rounds]  # of two worlds, half each
    unequal = {"step_factors": (1.0,) * 10 + (0.5,) * 10, "length_factors": (2.0,) * 10 + (0.5,) * 10}
    methods = [fl.FedLSA(0.01, 20), OwnStepsFedLSA(0.01, 20, **unequal), OwnStepsSCAFFLSA(0.01, 20, **unequal)]
    print(f"mean squared error after {recorded} rounds of about 20 local steps")
    for method in methods:
        curve = fl.simulate(problem, method, rounds=rounds, seeds=seeds, record=recorded)["squared_error"].mean("seed")
        print(f"{type(method).__name__:20}", *(f"{mse:.4f}" for mse in curve.values))


if __name__ == "__main__":
    main()

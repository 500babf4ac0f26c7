"""A server that remembers: FedLSA and SCAFFLSA with momentum, declared as a linear server with a memory of two vectors.

With Delta, the agents' average change in a round, the server keeps a velocity v beside theta:

    v <- momentum v + Delta,    theta <- theta + v.

The rows below say it for (theta, v): theta <- 1 theta + momentum v + 1 Delta, v <- 0 theta + momentum v + 1 Delta. It
moves as far as a step 1 / (1 - momentum) times as long. Run it with `python examples/server_momentum.py`.
"""

from dataclasses import dataclass

import fedlsa as fl


@dataclass(frozen=True, repr=False)
class MomentumSCAFFLSA(fl.SCAFFLSA):
    """SCAFFLSA whose server has momentum."""

    momentum: float = 0.5
    supports = frozenset({"theory", "plan"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.momentum < 1:
            raise fl.errors.ArgumentError(f"momentum must be at least 0 and below 1; got {self.momentum}")

    def server(self):
        return ((1.0, self.momentum), (0.0, self.momentum)), (1.0, 1.0)


@dataclass(frozen=True, repr=False)
class MomentumFedLSA(MomentumSCAFFLSA):
    """The same without control variates."""

    supports = frozenset({"theory", "plan"})
    gain = fl.FedLSA.gain


def main(rounds: int = 160, seeds: int = 20) -> None:
    problem, recorded = fl.problems.garnet(agents=20), [rounds // 16, rounds // 4, rounds]
    print(f"mean squared error after {recorded} rounds of 10 local steps")
    for method in (kind(0.02, 10, momentum=m) for kind in (MomentumFedLSA, MomentumSCAFFLSA) for m in (0.0, 0.5, 0.9)):
        curve = fl.simulate(problem, method, rounds=rounds, seeds=seeds, record=recorded)["squared_error"].mean("seed")
        print(f"{method!r:66}", *(f"{mse:.4f}" for mse in curve.values))


if __name__ == "__main__":
    main()

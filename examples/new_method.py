"""A new method in one file: SCAFFLSA whose server takes a step of its own size towards the average.

In a round the agents do what SCAFFLSA says; the server then moves only a share beta of the way to their mean,

    theta <- theta + beta (mean - theta),

which neither the length of rounds nor the gain can express. beta = 1 is SCAFFLSA itself; a smaller one is slower and
averages noise away. Run it with `python examples/new_method.py`; docs/extending.md explains it line by line.
"""

from dataclasses import dataclass

import fedlsa as fl


@dataclass(frozen=True)
class ServerStepSCAFFLSA(fl.SCAFFLSA):
    """SCAFFLSA with a server step size: theta <- theta + server_step_size (mean - theta)."""

    server_step_size: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.server_step_size <= 1:
            rule = "server_step_size must be above 0 and at most 1"
            raise fl.errors.ArgumentError(f"{rule}; got {self.server_step_size}")

    def server(self):  # how theta goes on by itself, and how far the agents' mean change moves it
        return ((1.0,),), (self.server_step_size,)


def main(rounds: int = 400, seeds: int = 20) -> None:
    problem = fl.problems.garnet(agents=20)
    methods = [ServerStepSCAFFLSA(step_size=0.1, local_steps=100, server_step_size=beta) for beta in (1.0, 0.3, 0.1)]
    print(f"{problem.n_agents} agents, {rounds} rounds of 100 local steps, {seeds} seeds.")
    print(fl.results.table(fl.results.summary(fl.simulate_grid(problem, methods, rounds=rounds, seeds=seeds))))


if __name__ == "__main__":
    main()

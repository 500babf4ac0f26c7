"""Client drift in one picture: agents that differ, their paths within a round, and what control variates change.

Run it with `python examples/drift.py` for three agents, or with `--agents 50` for many. It leaves out/drift.png.
"""

import argparse
from pathlib import Path

import numpy as np

import fedlsa as fl
from fedlsa.engine.paths import round_paths

TITLE = "Local steps pull each agent home; control variates hold them together"


def main(picture: Path = Path("out/drift.png"), agents: int = 3, round: int = 4, rounds: int = 25) -> None:
    problem = fl.problems.ring(agents)
    theta_0 = problem.theta_star + np.array([1.2, 1.35])
    runs = [
        round_paths(problem, method, rounds, theta_0=theta_0)
        for method in (fl.FedLSA(0.05, 100), fl.SCAFFLSA(0.05, 100))
    ]
    for run in runs:
        error = np.linalg.norm(run.theta[-1] - problem.theta_star)
        print(f"{type(run.algorithm).__name__:9} ends {error:.2g} from theta_star after {rounds} rounds")
    picture.parent.mkdir(parents=True, exist_ok=True)
    command = "python examples/drift.py" + (f" --agents {agents}" if agents != 3 else "")
    fl.figures.save(fl.figures.agent_paths(*runs, round=round, title=TITLE), picture, command=command)
    print(f"picture: {picture}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=3, help="how many agents")
    parser.add_argument("--round", type=int, default=4, help="the round whose inside is shown")
    parser.add_argument("--out", type=Path, default=Path("out/drift.png"), help="the picture: .png, .pdf or .svg")
    given = parser.parse_args()
    main(given.out, given.agents, given.round)

"""FedLSA against SCAFFLSA on the paper's heterogeneous federated TD(0) problem: the picture on the front page.

Run it with `make demo`. It leaves out/demo.png and the results out/demo-*.nc.
"""

import sys
from pathlib import Path

import numpy as np

import fedlsa as fl
from fedlsa import figures
from fedlsa.cli.simulate_command import print_table
from fedlsa.engine.progress import live_bar

ROUNDS, SEEDS = 500, 10
TITLE = "Local steps bias FedLSA; SCAFFLSA corrects the drift"


def main(folder: Path = Path("out"), rounds: int = ROUNDS, seeds: int = SEEDS) -> None:
    problem = fl.problems.garnet(agents=100, heterogeneous=True, preset="authors")
    methods = [fl.FedLSA(step_size=0.1, local_steps=1000), fl.SCAFFLSA(step_size=0.1, local_steps=1000)]
    record = np.unique(np.append(0, np.geomspace(1, rounds, 120).round())).astype(int).tolist()

    print(f"{problem.n_agents} agents in two different worlds, {rounds} rounds of 1000 local steps, {seeds} seeds.")
    with live_bar("FedLSA and SCAFFLSA") as progress:
        runs = fl.simulate_grid(problem, methods, rounds=rounds, seeds=seeds, record=record, progress=progress)

    bias = [figures.predicted_bias(run, problem) for run in runs]
    print_table(runs, bias)
    folder.mkdir(parents=True, exist_ok=True)
    for name, run in zip(("fedlsa", "scafflsa"), runs, strict=True):
        fl.results.save(run, folder / f"demo-{name}.nc")
    picture = figures.error_curves(runs, bias=bias, scale="log", title=TITLE)
    figures.save(picture, folder / "demo.png", command="make demo")
    print(f"picture: {folder / 'demo.png'}    results: {folder / 'demo-fedlsa.nc'}, {folder / 'demo-scafflsa.nc'}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)

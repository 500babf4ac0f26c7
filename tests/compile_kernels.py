"""Compile what most tests run, once, before several processes would each compile it for themselves."""

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "examples")]

from test_conformance import CASES, run  # noqa: E402

import fedlsa as fl  # noqa: E402


def compile_rounds() -> None:
    for case in CASES:
        for dtype in ("float64", "float32"):
            run("ServerStepSCAFFLSA", case, rounds=1, record=[1], dtype=dtype)


def compile_exchanges() -> None:
    fl.simulate(fl.problems.garnet(agents=2, seed=0), fl.SVRG(0.1, 2), 1, seeds=1)  # one kernel for all


if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        for done in [pool.submit(compile_rounds), pool.submit(compile_exchanges)]:
            done.result()

"""Compile what most tests run, once, before several processes would each compile it for themselves."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "examples")]

from test_conformance import CASES, problem, run  # noqa: E402

import fedlsa as fl  # noqa: E402
from fedlsa.theory import tuning  # noqa: E402


def main() -> None:
    for case in CASES:
        for dtype in ("float64", "float32"):
            run("ServerStepSCAFFLSA", case, rounds=1, record=[1], dtype=dtype)
    tuning.COMPILED_FROM = 0  # as most tests of theory have it
    for p in (problem("garnet"), problem("dense")):
        for method in (fl.SCAFFLSA(1e-3, 8), fl.Scaffnew(1e-3, 0.1)):
            fl.theory.exact(p, method, rounds=200, record=[1, 200])
            fl.theory.stationary(p, method)


if __name__ == "__main__":
    main()

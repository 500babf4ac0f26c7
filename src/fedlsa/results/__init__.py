"""What came out: labelled datasets over (seed, rounds), saved, loaded, run again, combined and summed up.

>>> p = fl.problems.garnet(agents=4, seed=1)
>>> r = fl.simulate(p, fl.FedLSA(0.1, 10), rounds=5, seeds=2, engine="reference")
>>> again = fl.simulate(**fl.results.arguments(r))
>>> r.identical(again)
True
"""

from .dataset import STATE, assemble, method_label, recorded_rounds
from .recipe import problem_text
from .result_files import load, save, save_curves
from .romberg import richardson_romberg
from .summary import summary, table
from .sweeps import arguments, runs

__all__ = [
    "STATE",
    "arguments",
    "assemble",
    "load",
    "method_label",
    "problem_text",
    "recorded_rounds",
    "richardson_romberg",
    "runs",
    "save",
    "save_curves",
    "summary",
    "table",
]


def __dir__() -> list[str]:
    return __all__

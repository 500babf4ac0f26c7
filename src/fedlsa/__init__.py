"""fedlsa: federated linear stochastic approximation, simulated fast and checked against exact theory."""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import Any as _Any

from . import errors, figures, problems, results, theory
from .algorithms import SCAFFLSA, Algorithm, FedLSA, PowerStep, Scaffnew
from .engine import simulate, simulate_grid
from .fit import Fit, Regression, Value, evaluate, fit, site_problem
from .problems import Problem
from .sampling import IID, Markov, Replay
from .theory import plan, trade_off

__version__ = _version("fedlsa")

__all__ = [
    "IID",
    "SCAFFLSA",
    "Algorithm",
    "FedLSA",
    "Fit",
    "Markov",
    "PowerStep",
    "Problem",
    "Regression",
    "Replay",
    "Scaffnew",
    "Value",
    "__version__",
    "errors",
    "evaluate",
    "experiments",
    "figures",
    "fit",
    "plan",
    "problems",
    "results",
    "simulate",
    "simulate_grid",
    "site_problem",
    "theory",
    "trade_off",
]


def __getattr__(name: str) -> _Any:
    """The experiments of the paper are loaded when they are first asked for."""
    if name == "experiments":
        return _import_module(".experiments", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

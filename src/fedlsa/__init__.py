"""fedlsa: federated linear stochastic approximation, simulated fast and checked against exact theory."""

from typing import TYPE_CHECKING

import numpy as _numpy  # noqa: F401  not lazily: threads that begin to load it at the same moment find half of it

from .lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from . import errors, experiments, figures, problems, results, theory
    from .algorithms import SCAFFLSA, Algorithm, FedLSA, PowerStep, Scaffnew
    from .engine import resume, simulate, simulate_grid, sweep
    from .fitting import Fit, Regression, Value, evaluate, fit, site_problem
    from .installation import __version__
    from .problems import Problem
    from .sampling import IID, Markov, Replay
    from .theory import plan, trade_off

_load_lazily(
    __name__,
    {
        "algorithms": ("SCAFFLSA", "Algorithm", "FedLSA", "PowerStep", "Scaffnew"),
        "engine": ("resume", "simulate", "simulate_grid", "sweep"),
        "fitting": ("Fit", "Regression", "Value", "evaluate", "fit", "site_problem"),
        "installation": ("__version__",),
        "problems": ("Problem",),
        "sampling": ("IID", "Markov", "Replay"),
        "theory": ("plan", "trade_off"),
    },
)

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
    "resume",
    "simulate",
    "simulate_grid",
    "site_problem",
    "sweep",
    "theory",
    "trade_off",
]

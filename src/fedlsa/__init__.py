"""fedlsa: federated linear stochastic approximation, simulated fast and checked against exact theory."""

from importlib.metadata import version as _version

from . import errors, experiments, figures, problems, results, theory
from .algorithms import SCAFFLSA, Algorithm, FedLSA, PowerStep, Scaffnew
from .engine import simulate, simulate_grid
from .problems import Problem
from .sampling import IID, Markov, Replay
from .theory import plan

__version__ = _version("fedlsa")

__all__ = [
    "IID",
    "SCAFFLSA",
    "Algorithm",
    "FedLSA",
    "Markov",
    "PowerStep",
    "Problem",
    "Replay",
    "Scaffnew",
    "__version__",
    "errors",
    "experiments",
    "figures",
    "plan",
    "problems",
    "results",
    "simulate",
    "simulate_grid",
    "theory",
]

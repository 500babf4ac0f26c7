"""The paper's experiments as data: cells that are computed once, figures, tables and claims that are read from them."""

from .base import Claim, Experiment, Picture, Scale, Table, Verdict
from .catalogue import EXPERIMENTS
from .cells import Cell
from .compute import compute
from .outcome import Outcome
from .reproduce import reproduce
from .runner import Local, run
from .store import Store

__all__ = [
    "EXPERIMENTS",
    "Cell",
    "Claim",
    "Experiment",
    "Local",
    "Outcome",
    "Picture",
    "Scale",
    "Store",
    "Table",
    "Verdict",
    "compute",
    "reproduce",
    "run",
]

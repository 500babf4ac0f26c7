"""The paper's experiments as data: cells that are computed once; figures, tables and claims that are read from them.

>>> "fig1" in fl.experiments.EXPERIMENTS
True
"""

from .catalogue import EXPERIMENTS
from .cells import Cell, Store, compute, computes, tabulate
from .executor import LocalExecutor, reproduce, run
from .experiment import Claim, Experiment, Outcome, Picture, Scale, Table, Verdict

__all__ = ["EXPERIMENTS", "Cell", "Claim", "Experiment", "LocalExecutor", "Outcome", "Picture", "Scale", "Store",
           "Table", "Verdict", "compute", "computes", "reproduce", "run", "tabulate"]  # fmt: skip


def __dir__() -> list[str]:
    return __all__

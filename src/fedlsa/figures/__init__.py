"""How it looks: figures take results and return matplotlib figures; they never simulate.

>>> curve = fl.theory.exact(fl.problems.garnet(agents=4, seed=1), fl.FedLSA(0.1, 10), rounds=20)
>>> figure = fl.figures.exact_curves([curve])
>>> type(figure).__name__
'Figure'
"""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from .agent_paths_figure import agent_paths
    from .cost_curves import error_curves, exact_curves
    from .fits import coefficients
    from .matplotlib_figures import save
    from .prediction import predicted_bias
    from .theory_figures import bound_and_curve, exact_parts, trade_off

_load_lazily(
    __name__,
    {
        "agent_paths_figure": ("agent_paths",),
        "cost_curves": ("error_curves", "exact_curves"),
        "fits": ("coefficients",),
        "matplotlib_figures": ("save",),
        "prediction": ("predicted_bias",),
        "theory_figures": ("bound_and_curve", "exact_parts", "trade_off"),
    },
)

__all__ = [
    "agent_paths",
    "bound_and_curve",
    "coefficients",
    "error_curves",
    "exact_curves",
    "exact_parts",
    "predicted_bias",
    "save",
    "trade_off",
]

"""How it looks: figures take results and return matplotlib figures; they never simulate."""

from .bounds import bound_and_curve
from .curves import error_curves
from .error_parts import exact_parts
from .exact_curves import exact_curves
from .files import save
from .fits import coefficients
from .plane import agent_paths
from .prediction import predicted_bias
from .tradeoff import trade_off

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

"""How it looks: figures take results and return matplotlib figures; they never simulate."""

from .curves import error_curves
from .files import save
from .prediction import predicted_bias

__all__ = ["error_curves", "predicted_bias", "save"]

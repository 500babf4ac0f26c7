"""How it is run: random numbers, the readable reference, the compiled kernel, the one verb `simulate`."""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from .simulate import ENGINES, simulate, simulate_grid

_load_lazily(
    __name__,
    {
        "simulate": ("ENGINES", "simulate", "simulate_grid"),
    },
)

__all__ = ["ENGINES", "simulate", "simulate_grid"]

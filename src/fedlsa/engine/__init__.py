"""How it is run: random numbers, the readable reference, the compiled kernel, the verbs `simulate` and `resume`."""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from .resume import resume
    from .simulate import ENGINES, simulate, simulate_grid
    from .sweep import sweep

_load_lazily(
    __name__,
    {
        "resume": ("resume",),
        "simulate": ("ENGINES", "simulate", "simulate_grid"),
        "sweep": ("sweep",),
    },
)

__all__ = ["ENGINES", "resume", "simulate", "simulate_grid", "sweep"]

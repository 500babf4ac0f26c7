"""How it is run: random numbers, the readable reference, the compiled kernel, the one verb `simulate`."""

from .simulate import ENGINES, simulate, simulate_grid

__all__ = ["ENGINES", "simulate", "simulate_grid"]

"""The compiled recursion of eligibility traces, loaded where traces are asked for: Numba takes a while to start."""

from ..checks import Floats
from ..kernel_cache import kernel
from .system import Flags


@kernel()
def accumulate(e: Floats, breaks: Flags, decay: float, rho: Floats, before: Floats) -> None:
    """e_k <- rho_k (e_k + decay e_{k-1}) in place, afresh after a break; before : (d,) the trace before row 0."""
    for k in range(e.shape[0]):
        for i in range(e.shape[1]):
            if k == 0:
                e[k, i] += decay * before[i]
            elif not breaks[k - 1]:
                e[k, i] += decay * e[k - 1, i]
            e[k, i] *= rho[k]

"""How it is run: random numbers, the readable reference, the compiled kernel, the verbs `simulate` and `resume`."""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from .jobs import ENGINES as ENGINES
    from .multiplier_bootstrap import bootstrap as bootstrap
    from .simulation import resume as resume
    from .simulation import simulate as simulate
    from .simulation import simulate_grid as simulate_grid
    from .sweeping import sweep as sweep

_load_lazily(__name__)

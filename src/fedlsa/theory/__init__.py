"""What must come out: constants, bias, bounds, complexities, and exact error curves, from the tables of a problem.

>>> p, method = fl.problems.garnet(agents=4, states=5, features=2, seed=1), fl.FedLSA(0.1, 10)
>>> curve = fl.theory.exact(p, method, rounds=100)
>>> limit = fl.theory.stationary(p, method)
>>> limit.stable, bool(curve["mse"][-1] < 1.1 * limit.mse)
(True, True)
"""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from .bias import (
        FedLSAParts,
        SCAFFLSAParts,
        bias,
        bias_at,
        bias_gap_bound,
        fedlsa_parts,
        first_order_bias,
        round_bias,
        round_bias_bound,
        scafflsa_parts,
    )
    from .bounds import bound, markov_bound, td_bound
    from .bounds.theorems import Bound, TDClaim, td_claim
    from .bounds.trajectory_bounds import MarkovBlock, MarkovConstants, markov_block, markov_constants, mixing_times
    from .complexity import Complexity, complexity
    from .constants import Constants, constants, stability
    from .decision_processes import VirtualMDP, stationary_law, value_error, value_functions, virtual_mdp
    from .exact import exact, exact_iterations
    from .moments import Moments, moments
    from .planner import Plan, plan, synchronous_plan
    from .stationary import Stationary, radius, stability_limit, stationary
    from .trade_offs import trade_off

_load_lazily(
    __name__,
    {
        "bias": (
            "FedLSAParts",
            "SCAFFLSAParts",
            "bias",
            "bias_at",
            "bias_gap_bound",
            "fedlsa_parts",
            "first_order_bias",
            "round_bias",
            "round_bias_bound",
            "scafflsa_parts",
        ),
        "bounds": ("bound", "markov_bound", "td_bound"),
        "bounds.theorems": ("Bound", "TDClaim", "td_claim"),
        "bounds.trajectory_bounds": (
            "MarkovBlock",
            "MarkovConstants",
            "markov_block",
            "markov_constants",
            "mixing_times",
        ),
        "complexity": ("Complexity", "complexity"),
        "constants": ("Constants", "constants", "stability"),
        "decision_processes": ("VirtualMDP", "stationary_law", "value_error", "value_functions", "virtual_mdp"),
        "exact": ("exact", "exact_iterations"),
        "moments": ("Moments", "moments"),
        "planner": ("Plan", "plan", "synchronous_plan"),
        "trade_offs": ("trade_off",),
        "stationary": ("Stationary", "radius", "stability_limit", "stationary"),
    },
)

__all__ = [
    "Bound",
    "Complexity",
    "Constants",
    "FedLSAParts",
    "MarkovBlock",
    "MarkovConstants",
    "Moments",
    "Plan",
    "SCAFFLSAParts",
    "Stationary",
    "TDClaim",
    "VirtualMDP",
    "bias",
    "bias_at",
    "bias_gap_bound",
    "bound",
    "complexity",
    "constants",
    "exact",
    "exact_iterations",
    "fedlsa_parts",
    "first_order_bias",
    "markov_block",
    "markov_bound",
    "markov_constants",
    "mixing_times",
    "moments",
    "plan",
    "radius",
    "round_bias",
    "round_bias_bound",
    "scafflsa_parts",
    "stability",
    "stability_limit",
    "stationary",
    "stationary_law",
    "synchronous_plan",
    "td_bound",
    "td_claim",
    "trade_off",
    "value_error",
    "value_functions",
    "virtual_mdp",
]

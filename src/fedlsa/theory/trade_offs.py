"""What an accuracy costs: plans with fewer and with more observations, of which no other beats one in both costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from numpy.typing import ArrayLike

from .. import checks
from ..algorithms import Algorithm, FedLSA, supporting
from ..errors import ArgumentError
from ..problems import Problem
from . import tuning
from .planner import Plan, beyond_exact, plan, planned_method
from .problem_moments import Moments, moments, start_error
from .search import Method, Search
from .threads import small_products


@small_products
def trade_off(
    problem: Problem | Moments,
    epsilon: float,
    method: str | type[Algorithm] | Sequence[str | type[Algorithm]] = tuple(supporting("plan")),  # noqa: B008  immutable
    *,
    theta_0: ArrayLike | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> list[Plan]:
    """What an accuracy costs: communications against observations per agent, for one method or for several.

    problem : one of fl.problems, or its moments
    theta_0 : where the runs start, as in `plan`

    Each method is planned for the RMSE epsilon with at most 1.2 to 8 times the fewest observations that reach it, the
    default cap of `plan`, 4, among them. Of the plans of a method those are returned that no other beats in both costs,
    from the fewest observations to the most; a method that never gets there has none, and none at all is an error.
    Theorems, where they plan, promise one setting, whatever the cap. progress : called with plans tried and in all.

    >>> import fedlsa as fl
    >>> plans = fl.trade_off(fl.problems.ring(agents=4, noise=0.3), 0.1, "scafflsa")
    >>> [p.rounds for p in plans] == sorted((p.rounds for p in plans), reverse=True)
    True
    >>> figure = fl.figures.trade_off(plans, epsilon=0.1)
    """
    several = checks.entries("method", method, "methods") if checks.is_sequence(method) else [method]
    wanted = [planned_method(each) for each in several]
    if not wanted:
        raise ArgumentError("method must be a method, or a sequence of them; got none")
    epsilon = checks.real("epsilon", epsilon, above=0)
    checks.callback("progress", progress)
    asked = [(each, cap) for each in dict.fromkeys(wanted) for cap in _caps(problem, each.name, epsilon, theta_0)]
    found, refused = dict[Method, list[Plan]](), list[ArgumentError]()
    for i, (each, cap) in enumerate(asked, 1):
        try:
            made = plan(problem, epsilon, method=each, max_samples=cap, theta_0=theta_0)
            found.setdefault(each, []).append(made)
        except ArgumentError as error:  # so few observations may not be enough for this method
            refused.append(error)
        if progress is not None:
            progress(i, len(asked))
    if refused and not found:
        raise refused[-1]  # of the largest cap
    return [p for plans in found.values() for p in pareto_front(plans)]


def pareto_front(plans: Sequence[Plan]) -> list[Plan]:
    """The plans that no other beats in both communications and observations, from the fewest observations on."""
    kept: list[Plan] = []
    for p in sorted(plans, key=lambda p: (p.samples, p.rounds)):
        if not kept or p.rounds < kept[-1].rounds:
            kept.append(p)
    return kept


def _caps(problem: Problem | Moments, name: str, epsilon: float, theta_0: ArrayLike | None) -> list[float | None]:
    """The most observations that the points of a trade-off may use; None where they are the theorem's."""
    if beyond_exact(problem, name):
        return [None]
    m = moments(problem)
    least, _ = Search(m, FedLSA, start_error(m, theta_0)).observations(epsilon, None)  # single steps: all are FedLSA
    quick = len(m.table) <= tuning.SEARCHED_GROUPS and name != "scaffnew"
    return [share * least for share in (tuning.BUDGETS if quick else tuning.SPARSE_BUDGETS)]

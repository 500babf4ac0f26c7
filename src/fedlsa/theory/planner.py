"""The planner: from a target accuracy to step size, local steps and rounds.

It minimises communications subject to exact MSE <= epsilon^2 and a cap on the observations of an agent; without a cap
the problem is degenerate, since ever longer rounds with ever smaller steps need ever fewer of them. Where the dimension
is too large for exact moments it solves the explicit theorems instead, says so first of all, and plans on means beside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..algorithms import Algorithm, FedLSA, method_class, supporting
from ..errors import ArgumentError, FedLSAError
from ..problems import Problem
from ..threads import small_products
from ..value_objects import Displayed, ReadOnly, Rows, call, fields_of
from . import tuning
from .complexities import best_within, complexity
from .exchange_plans import ExchangeSearch
from .exchange_rounds import declared
from .joint_laws import check_plain
from .private_plans import within_privacy
from .problem_moments import Moments, moments, random, start_error
from .search import LaterErrors, Method, Search, with_steps
from .tuning import MAX_EXACT_DIM

MOST_SAMPLES = 2**53  # whole numbers are exact up to there


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Displayed, ReadOnly):
    """A method that reaches the target, and what it costs; `algorithm` runs as it is for `rounds` rounds.

    samples : observations per agent (in expectation for Scaffnew); rmse : sqrt E||theta - theta_star||^2 at the end
    uploads : messages to the server; bytes : up and down, all agents, eight per number unless less is sent
    basis : what rmse rests on: "exact moments", which it equals, or the theorem that bounds it
    later : the largest RMSE from the end on, if the run were to go on: at every later round that was looked at (all of
    the next ones, then some up to 8 times as many, fewer with many different agents), and in the limit
    start : where the run starts: "theta_star + 1", "0" or "given"
    reason : why a theorem decides; empty for an exact search
    on_means : with a theorem, the plan of a run on each agent's means, `problem.on_means()`, found exactly; or None
    """

    algorithm: Algorithm
    rounds: int
    samples: float
    rmse: float
    uploads: int
    bytes: int
    basis: str = "exact moments"
    later: float = math.nan
    start: str = ""
    reason: str = field(default="", repr=False)
    on_means: Plan | None = field(default=None, repr=False)

    def _display(self) -> tuple[str, Rows]:
        names = ("method", "rounds", "samples per agent", "predicted RMSE", "uploads", "bytes", "by", "RMSE later")
        rows = list(zip((*names, "start"), (value for _, value in fields_of(self)), strict=True))
        return f"Plan {self.caution}" if self.reason else "Plan", [*rows, *(("instead", line) for line in self.offer)]

    @property
    def caution(self) -> str:
        """What a reader must know first of a plan that no exact search made; empty for one that it did."""
        return f"guaranteed by a theorem, not found by exact search: {self.reason}" if self.reason else ""

    @property
    def offer(self) -> list[str]:
        """The plan on means, in a line; none where there is none."""
        if self.on_means is None:
            return []
        m = self.on_means
        how = f"{call(m.algorithm)}, exact search, RMSE {m.rmse:.5g}"
        counted = "1 round" if m.rounds == 1 else f"{m.rounds:,} rounds"
        return [f"{counted} on each agent's means: plan.on_means, for problem.on_means() ({how})"]


@small_products
def plan(
    problem: Problem | Moments,
    epsilon: float | None = None,
    *,
    method: str | type[Algorithm] | Algorithm = "scafflsa",
    rounds: int | None = None,
    samples: float | None = None,
    max_samples: float | None = None,
    theta_0: ArrayLike | None = None,
    privacy: float | None = None,
) -> Plan:
    """The cheapest run that reaches a target; exactly one of epsilon, rounds and samples is given.

    epsilon : the fewest communications with RMSE <= epsilon and at most max_samples observations per agent (by default
    4 times the fewest with which the method gets there). rounds : the smallest RMSE after that many communications with
    at most max_samples observations, which must be given. samples : the smallest RMSE with that many observations.
    theta_0 : where the run starts, by default `problem.start`. method : a class of method, its name, or an instance,
    whose other settings are given: who takes part, how slow agents are, what is sent.

    privacy : of FedLSA and SCAFFLSA from 0, with `rounds` and `max_samples`: the smallest RMSE within as many rounds,
    of max_samples / rounds local steps, whose answers together are (privacy, 1e-5)-differentially private in each
    site's whole table. The method sends noise; `basis` says at which length changes must be clipped.

    Accuracy lasts: the RMSE is at most epsilon at the planned round and, from this start, at all later ones (`later`
    says how that was checked), not only where start and drift happen to cancel. From another start at the same distance
    it may take more rounds. Budgets are spent on the smallest RMSE that lasts in the same sense. Of more than 10
    different groups of agents, step size, local steps and rounds are those of a similar problem with 10, held to the
    exact error of the problem itself: a little more than the fewest rounds may come out. Where errors swing, as those
    of a server with much momentum, a third more may, or no plan.

    Exact moments decide up to dimension 20 (32 for FedLSA); beyond it, the explicit theorems, whose promise may be far
    below what the run does, by millions of rounds: the plan's first line says so, and max_samples has no default.
    Where no observation is random, FedLSA and SCAFFLSA are planned exactly in any dimension. So with a theorem's plan
    for epsilon comes `on_means`, that of a run on `problem.on_means()`, where each agent steps with its own means.

    >>> p = fl.problems.garnet(agents=4, states=5, features=2, seed=1)
    >>> plan = fl.plan(p, epsilon=0.1)
    >>> plan.rounds, plan.rmse <= 0.1
    (1, True)
    >>> slow = fl.UnequalWork(0.1, 10, length_factors=(1, 1, 1, 1 / 3))  # the last agent is three times slower
    >>> few = fl.Compressed(0.1, 10, fl.Rounding(8, radius=20.0))  # 8 bits per number
    >>> half = fl.SCAFFLSA(0.1, 10, participation=0.5)
    >>> [(plan.rounds, plan.bytes) for plan in (fl.plan(p, epsilon=0.3, method=each) for each in (slow, few, half))]
    [(1, 128), (1, 72), (1, 64)]
    """
    wanted = planned_method(method)
    name = wanted.name
    targets = {"epsilon": epsilon, "rounds": rounds, "samples": samples}
    if sum(t is not None for t in targets.values()) != 1:
        raise ArgumentError(f"exactly one of epsilon, rounds and samples must be given; got {checks.show(targets)}")
    epsilon = None if epsilon is None else checks.real("epsilon", epsilon, above=0)
    rounds = None if rounds is None else checks.integer("rounds", rounds, at_least=1, at_most=MOST_SAMPLES)
    samples = None if samples is None else checks.real("samples", samples, at_least=1, at_most=MOST_SAMPLES)
    cap = None if max_samples is None else checks.real("max_samples", max_samples, at_least=1, at_most=MOST_SAMPLES)
    if rounds is not None:
        if cap is None:
            raise ArgumentError("max_samples must be given with rounds, or rounds of any length would do; got None")
        if cap < rounds:
            raise ArgumentError(f"max_samples must be at least rounds, {rounds}; got {cap:g}")
    if privacy is not None:
        if rounds is None or cap is None or theta_0 is not None or isinstance(wanted, Algorithm):
            rule = "privacy must go with rounds, max_samples and a method by its name, and a start at 0"
            raise ArgumentError(f"{rule}; got {checks.show(targets | {'method': wanted, 'theta_0': theta_0})}")
        a, T, error, said = within_privacy(problem, privacy, name, rounds, int(cap) // rounds)
        return replace(_priced(problem, a, T, float(T * a.mean_steps), error, math.nan, said), start="0")
    if beyond_exact(problem, name):
        method_class("method", wanted, "paper")  # theorems speak of no other
        check_plain(with_steps(wanted, 0.1, 1), problem.n_agents, "a plan by a theorem")
        found = _by_theorem(problem, name, epsilon, rounds, cap if samples is None else samples, theta_0)
        return replace(found, start=problem.start_label(theta_0))
    m = moments(problem)
    start = start_error(m, theta_0)
    a = with_steps(wanted, 0.1, 1)
    kept, partial = len(a.server()[1]), a.taking_part(m.n_agents) < m.n_agents
    # of a server that remembers nothing, and of agents who all take part, the other search knows means
    quick = kept > 1 and (kept + m.n_agents) * m.dim <= tuning.PLANNED_NUMBERS
    search = (ExchangeSearch if declared(a) or quick or partial else Search)(problem, wanted, start)
    if epsilon is not None:
        return replace(_plan_that_lasts(problem, search, epsilon, cap), start=m.start_label(theta_0))
    if samples is not None:  # more local steps save communications, not observations
        rounds, cap = max(1, int(samples / _received(problem, a))), samples
    assert rounds is not None
    assert cap is not None
    read = _received(problem, a) - _received(m, a)  # for exact residuals, however long a round is
    least = rounds * (read + search.factor)
    if read and cap < least:
        rule = f"{'max_samples' if samples is None else 'samples'} must be at least {least:g}"
        raise ArgumentError(f"{rule}, {read:g} of a round for exact residuals; got {cap:g}")
    H = max(1, int((cap / rounds - read) / search.factor))
    while H > 1 and rounds * _received(problem, with_steps(wanted, 0.1, H)) > cap:  # lengths of agents are rounded
        H -= 1
    eta, H = search.smallest_error(H, rounds)
    found = _by_exact_errors(problem, with_steps(wanted, eta, H), rounds, search.exact.follow(eta, H, rounds))
    return replace(found, start=m.start_label(theta_0))


@small_products
def synchronous_plan(problem: Problem | Moments, epsilon: float, theta_0: ArrayLike | None = None) -> Plan:
    """The fewest observations that reach RMSE <= epsilon, with a communication after each (cor:sample_compl_h_1_proof).

    problem : one of fl.problems, or its moments
    theta_0 : where the run starts, as in `plan`

    With one local step all methods are FedLSA. Step sizes are tried on a grid of factor sqrt(2), by exact moments.
    """
    target = checks.real("epsilon", epsilon, above=0) ** 2
    m = moments(problem)
    start = start_error(m, theta_0)
    search = Search(problem, FedLSA, start)
    T, eta = search.fewest_samples(target)
    T, errors = _since(search, eta, 1, T, target, search.exact.follow(eta, 1, T, target))
    if errors.since is None:
        raise ArgumentError(f"epsilon must be one that lasts once it is reached; got {epsilon:g}, and later more")
    return replace(_by_exact_errors(problem, FedLSA(eta, 1), T, errors), start=m.start_label(theta_0))


def planned_method(given: Any) -> Method:
    """A method whose step size and local steps are to be found: its class, or an instance, which keeps other settings.

    Who takes part is one of these; plans have no projection, no averages, and equal steps and lengths in all rounds.
    """
    kind = method_class("method", given, "plan")
    if not isinstance(given, Algorithm):
        return kind
    if not given.steady:
        rule = "method must have one step size and one length for all rounds, since a plan finds these"
        raise ArgumentError(f"{rule}; got {checks.show(given)}")
    for option in ("projection", "average_after"):
        if getattr(given, option) is not None:
            raise ArgumentError(f"method must have no {option}, since plans know none; got {checks.show(given)}")
    own = {f.name for f in fields(given)} - {"step_size", "projection", "average_after", given.length}
    return given if any(getattr(given, name) is not None for name in own) else kind


def beyond_exact(problem: Problem | Moments, name: str) -> TypeGuard[Problem]:
    """Whether the dimension is too large for exact moments, where something is random."""
    if not (isinstance(problem, Problem) and problem.dim > MAX_EXACT_DIM.get(name, MAX_EXACT_DIM["scaffnew"])):
        return False
    return name == "scaffnew" or random(problem)


def _plan_that_lasts(problem: Problem | Moments, search: Search, epsilon: float, cap: float | None) -> Plan:
    """The plan of fewest rounds whose accuracy lasts: those of the search are held to the exact curve until one does.

    Where the error of one exceeds the target for a while, a stricter goal may last from an earlier round on.
    """
    goal = target = epsilon**2
    least, most = search.observations(epsilon, cap)
    best: Plan | None = None
    for _ in range(tuning.PLAN_ATTEMPTS):
        try:
            eta, H, T = search.for_accuracy(goal, least, most)
        except ArgumentError:  # so few observations are not enough for that goal
            if best is None:
                raise
            break
        if best is not None and best.rounds <= T:
            break
        errors = search.exact.follow(eta, H, T, target)
        since, lasting = _since(search, eta, H, T, target, errors, most // H)
        spent = since * _received(problem, with_steps(search.method, eta, H))
        if cap is not None and spent > cap:  # lengths of agents are rounded
            most = int(most * cap / spent)
            if most < 1:
                break
            continue
        if lasting.since == since and (best is None or since < best.rounds):
            best = _by_exact_errors(problem, with_steps(search.method, eta, H), since, lasting)
        if lasting.since == T:
            break
        if search.limits or search.scout is not search.exact:
            goal *= min(max(0.98 * target / errors.worst, 0.25), 0.98)
        search.limits = True
    if best is None:
        rule = f"max_samples must allow {search.name} to reach an accuracy that lasts"
        raise ArgumentError(f"{rule}; {most} observations were tried, for epsilon = {epsilon:g}; got {most}")
    return best


def _since(
    search: Search, eta: float, H: int, T: int, target: float, errors: LaterErrors, latest: float = math.inf
) -> tuple[int, LaterErrors]:
    """The round, T or a little later, since when a target holds, and the errors from there on; T if there is none.

    errors : from T on
    """
    if errors.since is None or not T < errors.since <= latest:
        return T, errors
    return errors.since, search.exact.follow(eta, H, errors.since, target)


def _by_exact_errors(problem: Problem | Moments, a: Algorithm, T: int, errors: LaterErrors) -> Plan:
    rmse, later = math.sqrt(errors.error), math.sqrt(errors.worst)
    return _priced(problem, a, T, float(round(T * _received(problem, a))), rmse, later, "exact moments")


def _received(of: Problem | Moments, a: Algorithm) -> float:
    """The observations of an agent in a round, in the mean; of moments alone, which have no table, in local steps."""
    _, steps, _ = a.of_agents(np.ones(1), np.array([a.mean_steps]), 1, of.n_agents)
    read = a.rows_read(of) if isinstance(of, Problem) else 0.0
    return read + float(np.mean(steps * a.round_costs(of.n_agents, of.dim)[0]))


def _by_theorem(
    problem: Problem,
    name: str,
    epsilon: float | None,
    rounds: int | None,
    most: float | None,
    theta_0: ArrayLike | None,
) -> Plan:
    """most : observations per agent. The theorems ask for far more rounds than are needed."""
    if epsilon is not None:
        found = complexity(problem, name, epsilon, theta_0)
        if most is not None and found.samples > most:
            rule = f"max_samples must be at least {found.samples}, which {found.bound.label} asks for"
            raise ArgumentError(f"{rule} at epsilon = {epsilon:g}; got {most:g}")
    else:
        assert most is not None
        within = best_within(problem, name, math.inf if rounds is None else rounds, most, theta_0)
        if within is None:
            budget = f"{most:g}" if rounds is None else f"{rounds:g}"
            named = "samples" if rounds is None else "rounds"
            raise ArgumentError(f"{named} must be enough for the theorem to promise any gain at all; got {budget}")
        found = within
    rmse, basis = math.sqrt(found.bound.mse), f"theorem {found.bound.label}"
    plan = _priced(problem, found.algorithm, found.rounds, float(found.samples), rmse, rmse, basis)
    reason = f"d = {problem.dim} is above {MAX_EXACT_DIM[name]}, the limit of {type(found.algorithm).__name__}"
    on_means = None if epsilon is None else _on_means(problem, name, epsilon, theta_0)
    return replace(plan, reason=reason, on_means=on_means)


def _on_means(problem: Problem, name: str, epsilon: float, theta_0: ArrayLike | None) -> Plan | None:
    """The plan of a run without noise, by SCAFFLSA where the method is not searched; None where there is none."""
    start = problem.start if theta_0 is None else theta_0
    try:
        return plan(problem.on_means(), epsilon, method="scafflsa" if name == "scaffnew" else name, theta_0=start)
    except FedLSAError:  # FedLSA may have a bias that is too large, and the numbers may not allow it
        return None


def _priced(
    of: Problem | Moments, algorithm: Algorithm, T: int, samples: float, rmse: float, later: float, basis: str
) -> Plan:
    answers, size = algorithm.round_costs(of.n_agents, of.dim)
    uploads = T * float(answers.sum())
    return Plan(algorithm, T, samples, rmse, round(uploads), round(uploads * size), basis, later)


# --- what an accuracy costs: plans with fewer and with more observations ---------------------------------------------


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
    for each in dict.fromkeys(wanted):
        if each not in found:  # which may need more observations than single steps make one think
            try:
                found[each] = [plan(problem, epsilon, method=each, theta_0=theta_0)]
            except ArgumentError as error:
                refused.append(error)
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

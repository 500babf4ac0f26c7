"""From the data of all sites to one answer with an error bar; every step is one that sites could do apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec

import numpy as np

from .. import checks
from ..algorithms import Algorithm
from ..checks import Floats
from ..errors import ArgumentError, DivergenceError, PrecisionError, SiteDataError, given_warnings, warn
from ..problems import Problem
from ..results.recipe import versions
from ..threads import one_blas_thread
from . import error_sources, protocol
from .covariance import Estimate, covariance_text, join_scores, measure_fit, root_of_sandwich, sandwiches
from .error_sources import Metric
from .fit_summary import MONTE_CARLO, compare
from .fitted import Fit
from .partitions import is_partitioned, open_partitions, read_partitions
from .protocol import FitSettings, RunOutcome
from .reading import Determination, FitProgress, PooledData, read, warn_of_breaks, warn_of_logs
from .scores import SharedSolution
from .sites import open_tables
from .sums import Systems, conditioning
from .tables import MEMORY
from .tasks import (
    QUICK_ON_ROWS,
    SITES,
    CovarianceKind,
    Regression,
    Task,
    Value,
    checked_weight,
    explains_keywords,
    quick_on_rows,
)

ILL_CONDITIONED = 1e3  # condition number from which columns are said to be the reason that no run comes near enough
FEW_DIGITS = 1e10  # condition number above which standard errors lose their sixth digit
ACCURACY = 0.1  # standard errors of any combination of coefficients: how exact the run is unless told otherwise
SMALLEST = 1e-9  # accuracy that is asked for by itself, relative to the answer; data without noise have no error at all
P = ParamSpec("P")


def keeps_warnings(function: Callable[P, Fit]) -> Callable[P, Fit]:
    """A decorator: the warnings that a fit gives are its `notes`."""

    @wraps(function)
    def keeping(*arguments: P.args, **options: P.kwargs) -> Fit:
        token = given_warnings.set(given := list[str]())
        try:
            return replace(function(*arguments, **options), notes=tuple(given))
        finally:
            given_warnings.reset(token)

    return keeping


@explains_keywords
@keeps_warnings
def fit(
    sites: Any,
    task: Task,
    epsilon: float | None = None,
    *,
    site: str | None = None,
    decimal: str | None = None,
    weight: str | None = None,
    covariance: str | None = None,
    cluster: str | None = None,
    lag: int | None = None,
    bootstrap: int | None = None,
    resample: str | None = None,
    method: str | type[Algorithm] = "scafflsa",
    step_size: float | None = None,
    local_steps: int | None = None,
    rounds: int | None = None,
    max_samples: float | None = None,
    share_moments: bool | None = None,
    local: str = "auto",
    seed: int = 0,
    plan: bool = True,
    baselines: bool = False,
    memory: float = MEMORY,
    progress: FitProgress | None = None,
) -> Fit:
    """Estimate one linear model or value function from the data of all sites, with an error bar.

    The estimate is the data's own solution. Beside it stands what sites would get that only exchange parameters: a run
    of the method, planned and simulated, with its error.

    sites : a list with an entry per site, each a path to a Parquet or CSV file, a table (pandas, polars, Arrow or
        another that narwhals knows, or a mapping of columns), a log of fl.problems.rollout or a tuple of arrays; a
        mapping of names to such; or, with site=, one table, one file, or files of the rows of all sites; or a Ray Data
        set or a Dask data frame, of a regression: its rows stay where they are, and partitions send sums
    task : fl.Regression(target=...) or fl.Value(discount=...)
    epsilon : root mean squared distance, in the run's coordinates, of the run's end from the data's own solution. By
        default so small that no combination of coefficients is off by more than a tenth of its standard error.
        step_size, local_steps and rounds follow; they can be given instead
    site : the column that says which site a row is of. Sites are named by its values and stand in their order; it is
        no feature unless it is named as one
    decimal : the decimal mark of CSV files, "." or ",": then the other stands between thousands. By default as the
        numbers of a file show it; numbers that can be read in two ways are an error
    weight : "samples" (w_c = n_c/n, the default of a regression: pooled least squares) or "sites" (w_c = 1/N, as in the
        paper, the default of a value function) in (sum_c w_c A_c) theta = sum_c w_c b_c
    covariance : of a regression: "classical" (errors of one variance), "HC0" to "HC3" (of any), "CR0", "CR1", "CR3"
        (correlated within clusters; HC with cluster is the same), or "HAC" (correlated in time). By default "HC3",
        "CR3" with cluster and "HAC" with lag
    cluster : the column whose equal values, at whatever site, have correlated errors; "sites" makes a cluster of each
        site
    lag : how many rows apart errors may be correlated: for a regression Newey and West's covariance (HAC). None chooses
        it for a value function and for covariance="HAC", and is 0 for other regressions
    bootstrap : how many replicas, solutions of reweighted data, give error bars of their own
    resample : what varies in them: "pairs" (rows), "block" (consecutive rows) or "cluster". By default clusters where
        there are any, blocks where rows are correlated, else pairs
    method : of the run, by its name or class; max_samples : observations of each site that the plan may use
    share_moments : whether the policies of sites let their averages of products leave, by which fl.plan chooses the
        fewest communications; False: the plan follows from three numbers of each site, and the run stops by itself. By
        default False, but where that allows no run, or none that is quick here
    local : what a local step uses: "rows" of the site drawn at random, "log" (rows in their order), the site's "means"
        (A_c and b_c, no noise), or "auto": rows where a run on them is planned and done in two seconds: at most 3
        coefficients, 10 sites, 10,000 rows that fit three times into memory, and 1e8 steps in all; else means
    plan : plan and simulate the run, if possible; False: the estimate and its error bars alone
    baselines : compare with the one-shot system, with the average of the sites' own solutions and, for a value
        function, with Monte Carlo
    seed : of the run's draws and of the bootstrap's weights; memory : bytes of rows to keep
    progress : called with (what, done, in all)

    >>> x = np.linspace(-1, 1, 20).reshape(20, 1)
    >>> sites = [(x, 3 * x[:, 0] + 1 + 0.1 * np.sin(np.arange(20) + c)) for c in range(3)]
    >>> found = fl.fit(sites, fl.Regression("y"), local="means", bootstrap=100)
    >>> found.theta.round(2), found.protocol.round(2), found.bootstrap.replicas.shape
    (array([2.99, 1.  ]), array([2.99, 1.  ]), (100, 2))
    """
    checks.instance("task", task, (Regression, Value), "fl.Regression(...) or fl.Value(...)")
    checks.choice("local", local, ("auto", "rows", "log", "means"))
    steps = {"step_size": step_size, "local_steps": local_steps, "rounds": rounds}
    limits = {"epsilon": epsilon, "max_samples": max_samples, "share_moments": share_moments}
    settings = protocol.checked_settings(method, steps, in_order=local == "log", seed=seed, plan=plan, **limits)
    weight = checked_weight(task, weight)
    if cluster is not None and (not isinstance(cluster, str) or not cluster):
        raise ArgumentError(f"cluster must be the name of a column, or 'sites'; got {checks.show(cluster)}")
    asked = CovarianceKind.of(task, covariance, cluster, lag)
    checks.boolean("baselines", baselines)
    if bootstrap is not None and task.own and (cluster != SITES or resample not in (None, "cluster")):
        raise ArgumentError("bootstrap must go with cluster='sites' where sites have intercepts of their own")
    if bootstrap is not None:
        checks.memory("bootstrap", checks.integer("bootstrap", bootstrap, at_least=2), 64, "a replica's answer")
    if resample is not None:
        checks.choice("resample", resample, error_sources.RESAMPLED)
        if bootstrap is None:
            raise ArgumentError(f"resample must go with bootstrap, a number of replicas; got {resample!r} alone")
    checks.callback("progress", progress)
    report = progress or (lambda what, done, total: None)

    room = checks.real("memory", memory, above=0)
    column = None if cluster == SITES else cluster
    if is_partitioned(sites):
        source = open_partitions(sites, site, task, asked, bootstrap, local)
        data, weights, systems = read_partitions(source, task, weight, report, column)
    else:
        data, weights, systems = read(open_tables(sites, task, site, decimal), task, weight, room, report, column)
    names = data.coefficients
    A, theta = systems.solution(weights, names)
    _warn_of_lost_digits(A, isinstance(task, Value) or task.standardise)
    determination = Determination(A, weights, systems.n) if isinstance(task, Value) else None
    found = _estimate(data, "error bars", report, asked, systems, weights, (A, theta), determination)
    if isinstance(task, Value) and determination is not None:
        warn_of_logs(task, data.logs, names, data.names)
        determination.warn(names)
    error_sources.warn_of_errors(data.names, found, asked)
    theta, (T, t) = found.theta, data.scale.original()
    metric = error_sources.metric_of(found.covariance, theta, sandwiches(A, found.independent))
    replicas = None
    if bootstrap is not None:
        replicas = error_sources.draw_replicas(data, found, bootstrap, resample, settings.seed, report)

    settings, outcome, drawn = _outcome(data, found, metric, settings, local, memory, report)
    fitted, residuals = _each_row(data, T @ theta + t)
    mass, squares = float(systems.mass.sum()), float(found.squares.sum())
    rows, pooled = (int(systems.n.sum()), mass), np.allclose(weights, systems.mass / mass, rtol=1e-12)
    target = data.mean, float(data.variance[-1])
    A_bare, more = A - np.diag(data.penalty), (found.log_weights, len(data.names) * (task.own is not None))
    fits = measure_fit(task, data.scale, A_bare, rows, squares, *target, pooled, *more)
    out = Fit(
        task=data.task,
        names=names,
        theta=T @ theta + t,
        columns=data.columns.state,
        levels=dict(data.columns.levels),
        covariance=T @ found.covariance @ T.T,
        root=T @ root_of_sandwich(A, found.meat),
        protocol=T @ outcome.theta + t,
        # of a coordinate's error the mean is known exactly; its variance is at most ||T_j||^2 times that of the run
        optimisation=np.sqrt((T @ outcome.bias) ** 2 + np.sum(T**2, axis=1) * outcome.variance),
        plan=outcome.plan,
        epsilon=settings.epsilon,
        error=error_sources.error_by_origin(outcome, found.covariance, metric),
        per_site=error_sources.site_reports(data, found, metric, outcome),
        weight=weight,
        cluster=cluster,
        local=drawn,
        covariance_kind=covariance_text(found),
        degrees_of_freedom=found.freedom,
        skewness=found.skewness,
        **fits,
        fittedvalues=fitted,
        resid=residuals,
        **data.own_intercepts(T @ theta + t, found.level),
        bootstrap=replicas,
        made_by={"versions": versions()},
    )
    if not baselines:
        return out
    returns = _monte_carlo(data, task, weights, asked, report) if isinstance(task, Value) else None
    return replace(out, baselines=compare(out, returns))


def _estimate(
    data: PooledData,
    what: str,
    report: FitProgress,
    kind: CovarianceKind,
    systems: Systems,
    weights: Floats,
    shared: tuple[Floats, Floats],
    watching: Determination | None = None,
) -> Estimate:
    """The sites' scores at the solution of all, in one pass over the rows; shared : A and theta of all sites."""
    if kind.lag is not None and kind.lag >= systems.n.max():
        raise ArgumentError(f"lag must be less than the rows of the largest site, {systems.n.max()}; got {kind.lag}")
    A, _ = shared
    influence = data.scale.original()[0] @ np.linalg.inv(A)  # of the mean score on the coefficients
    spread, share = None, weights / systems.mass
    if kind.name != "classical" and not kind.long_run and np.ptp(share) > 1e-12 * share.max():
        grams = systems.mass[:, None, None] * (systems.A - np.diag(data.penalty))
        spread = np.asarray(np.linalg.pinv(np.tensordot(share**2, grams, 1), hermitian=True), np.float64)

    of = SharedSolution(kind, *shared, influence, data.penalty, spread)
    passes = data.scores(what, report, (of, systems, weights), watching)
    with one_blas_thread(len(A)):
        return join_scores(passes, data.names)


def _each_row(data: PooledData, theta: Floats) -> tuple[Floats | None, Floats | None]:
    """The model at each row and what is left of its target, (n,) each, in the order of the data; None for a value
    function, and where rows were not kept."""
    if not data.kept or not isinstance(data.task, Regression):
        return None, None
    found, left, order, of = [], [], [], []
    places: dict[int, int] = {}  # of tables, whose parts have the same columns
    for group in data.groups:
        same = [id(getattr(table, "given", table)) for table in group.tables for _ in table.sites]
        table = np.array([places.setdefault(one, len(places)) for one in same])
        for given in group.kept:
            p = data.within(given, group)
            value = p.u @ theta
            left.append(p.y - value)
            value = value if p is given else value + (given.y - p.y)
            found.append(value if p.offset is None else value + p.offset)
            order.append(p.order if isinstance(p.order, np.ndarray) else p.order + np.arange(len(p.y)))
            of.append(np.repeat(table[p.sites], p.counts))
    rows = np.lexsort((np.concatenate(order), np.concatenate(of)))
    return np.concatenate(found)[rows], np.concatenate(left)[rows]


def _monte_carlo(
    data: PooledData, task: Value, weights: Floats, kind: CovarianceKind, report: FitProgress
) -> tuple[Floats, Floats]:
    """Monte Carlo evaluation, by the equations of TD(1) (protocol.py): the coefficients : (d,) and their standard
    errors : (d,), on the original scale."""
    if task.trace == 0:  # else the fit has said so
        warn_of_breaks(task, data.logs, MONTE_CARLO)
    returns = replace(data, task=replace(task, trace=1.0), kept=False)

    each = returns.each(MONTE_CARLO, report, lambda group, pieces: Systems.of(pieces, group.names, 0.0))
    systems = Systems.joined(each)
    A, theta = systems.solution(weights, data.coefficients)
    found = _estimate(returns, f"errors of {MONTE_CARLO}", report, kind, systems, weights, (A, theta))
    T, t = data.scale.original()
    return T @ theta + t, np.sqrt(np.diag(T @ found.covariance @ T.T))


def _outcome(
    data: PooledData, estimate: Estimate, metric: Metric, s: FitSettings, local: str, memory: float, report: FitProgress
) -> tuple[FitSettings, RunOutcome, str]:
    """The planned run, with the accuracy that it was planned for and what its steps use; none where none is wanted, and
    where, by default, none can be planned: then there is a warning, for the estimate needs no run."""
    none = replace(s, epsilon=None), RunOutcome.none(len(estimate.A)), "none"
    if not s.plan:
        return none
    rows = protocol.uses_rows(data, local, QUICK_ON_ROWS[0], memory)
    if local == "auto":
        rows = rows and quick_on_rows(len(estimate.A), len(data.names), int(estimate.systems.n.sum()))
    by_default = s.epsilon is None and s.by_hand is None
    if by_default and not estimate.theta.any():
        warn("every coefficient is 0, where a run would start, so that none is planned; is the target constant?")
        return none
    if by_default:  # E delta^T Sigma^-1 delta <= epsilon^2 / (smallest eigenvalue of Sigma) = ACCURACY^2
        size = float(np.linalg.norm(estimate.theta))  # less where the start is already as near as that, never nothing
        s = replace(s, epsilon=max(min(ACCURACY / metric.stretch, 0.5 * size), SMALLEST * size))
    report("planning", 0, 1)
    try:
        outcome, rows = _run(data, estimate, s, local == "auto" and rows, rows, report)
    except (ArgumentError, PrecisionError, DivergenceError, SiteDataError) as error:
        if not by_default:
            raise
        warn(_unreachable(estimate.A, data.coefficients, str(error)))
        return none
    error_sources.warn_if_coarse(outcome, s, metric)
    return s, outcome, ("log" if s.in_order else "rows") if rows else "means"


def _run(
    data: PooledData, estimate: Estimate, s: FitSettings, either: bool, rows: bool, report: FitProgress
) -> tuple[RunOutcome, bool]:
    """The first run that can be planned and that is quick, and whether its steps use rows.

    Tried are plans that the default policy of sites allows before those that need moments; either : whether steps may
    use rows or means, as is quick
    """
    shares = [False, True] if s.share_moments is None and not s.by_hand else [bool(s.share_moments)]
    ways = [(share, drawn) for share in shares for drawn in ([True, False] if either else [rows])]
    problems: dict[bool, Problem] = {}
    for share, drawn in ways:
        if drawn not in problems:
            problems[drawn] = protocol.make_problem(data, estimate.systems, estimate.weights, drawn)
        problem, last = problems[drawn], (share, drawn) == ways[-1]
        try:
            asked = protocol.plan_run(problem, s, drawn, share)
            if last or not drawn or problem.n_agents * asked.samples <= protocol.SECONDS_OF_STEPS:
                return protocol.run(problem, asked, s, lambda done, total: report("running", done, total)), drawn
        except (ArgumentError, PrecisionError):  # out of reach for any step size, or for exact theory
            if last:
                raise
    raise AssertionError("the last way returns or raises")


def _unreachable(A: Floats, names: Sequence[str], why: str) -> str:
    """What to say where no run is near enough to the data's solution: of columns that nearly determine one another.

    A : (d, d), of the shared system, in the run's coordinates; why : the planner's own words
    """
    condition, directions = conditioning(A)
    near = "no run of local steps comes within a tenth of a standard error of the solution, and none is planned"
    if condition <= ILL_CONDITIONED:
        return f"{near}: give epsilon ({why})"
    weakest = np.abs(directions[-1])
    involved = [repr(names[j]) for j in np.flatnonzero(weakest > 0.1 * weakest.max())[:6]]
    what = f"columns {', '.join(involved)} nearly determine one another in the data of all sites together"
    if len(involved) == 1:
        what = f"the data of all sites together hardly determine the coefficient of {involved[0]}"
    what += f" (condition number {condition:.2g}), so that {near}"
    return f"{what}: leave one out, add a ridge, or give epsilon ({why})"


def _warn_of_lost_digits(A: Floats, standardised: bool) -> None:
    """Say so where A : (d, d) is so near to singular that its inverse, and so the standard errors, lose digits."""
    condition, _ = conditioning(A)
    if condition > FEW_DIGITS:
        warn(
            f"columns nearly determine one another{'' if standardised else ', or are far from 0,'} in the data of all "
            f"sites together (condition number {condition:.2g}): standard errors are only exact to about "
            f"{1e-15 * condition:.0e} of their size; {'leave one out' if standardised else 'standardise=True helps'}"
        )

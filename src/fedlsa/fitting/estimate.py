"""From the data of all sites to one answer with an error bar; every step is one that sites could do apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, DivergenceError, PrecisionError, SiteDataError, warn
from ..problems import Problem
from ..results.recipe import versions
from ..theory.planner import Plan
from .cautions import keeps_warnings
from .data_problem import make_problem, uses_rows
from .error_bars.covariance import CovarianceKind, Scores, complete, root_of_sandwich, sandwich, scores, sum_of_meats
from .error_bars.error_sources import (
    Estimate,
    Metric,
    error_by_origin,
    explained,
    metric_of_sites,
    optimisation_error,
    site_reports,
    warn_if_coarse,
    warn_of_errors,
)
from .error_bars.replicas import bootstrapped, choose_resampling
from .error_bars.resampling import RESAMPLED
from .fitted import Fit
from .identification import Determination, warn_of_logs, with_logs
from .monte_carlo import monte_carlo
from .one_message import compare
from .planned_run import FitSettings, RunOutcome, checked_settings, no_run, planned, run
from .reading import FitProgress, PooledData, read
from .rows.observe import Piece
from .sites.site_readers import MEMORY, open_sites
from .solutions import solution, unreachable, warn_of_lost_digits
from .tasks import QUICK_ON_ROWS, Regression, Task, Value, checked_weight, quick_on_rows

SECONDS_OF_STEPS = 1e8  # of all sites, on rows. Where more are needed, steps use means unless told otherwise
ACCURACY = 0.1  # standard errors of any combination of coefficients: how exact the run is unless told otherwise
SMALLEST = 1e-9  # accuracy that is asked for by itself, relative to the answer; data without noise have no error at all


@keeps_warnings
def fit(
    sites: Any,
    task: Task,
    epsilon: float | None = None,
    *,
    site: str | None = None,
    method: str = "scafflsa",
    step_size: float | None = None,
    local_steps: int | None = None,
    rounds: int | None = None,
    max_samples: float | None = None,
    weight: str | None = None,
    local: str = "auto",
    lag: int | None = None,
    seed: int = 0,
    bootstrap: int | None = None,
    resample: str | None = None,
    plan: bool = True,
    baselines: bool = False,
    memory: float = MEMORY,
    progress: FitProgress | None = None,
) -> Fit:
    """Estimate one linear model or value function from the data of all sites, with an error bar.

    The estimate is the data's own solution, which this machine can find, for it has all the data. Beside it stands
    what sites would get that only exchange parameters: a run of the method, planned and simulated, with its error.

    sites : a list with an entry per site, each a path to a Parquet or CSV file, a table (pandas, polars, Arrow or
        another that narwhals knows, or a mapping of columns) or a tuple of arrays; a mapping of names to such; or, with
        site=, one table, one file, or files of the rows of all sites
    site : the column that says which site a row is of. Sites are named by its values and stand in their order; it is
        no feature unless it is named as one
    task : fl.Regression(target=...) or fl.Value(discount=...)
    epsilon : root mean squared distance, in the run's coordinates, of the run's end from the data's own solution. By
        default so small that no combination of coefficients is off by more than a tenth of its standard error:
        delta^T Sigma^-1 delta <= 0.01 with the estimate's covariance Sigma. fl.plan then chooses step_size,
        local_steps and rounds, which can be given instead
    max_samples : observations of each site that the plan may use, as in fl.plan
    weight : "samples" (w_c = n_c/n, the default of a regression: pooled least squares) or "sites" (w_c = 1/N, as in the
        paper, the default of a value function) in (sum_c w_c A_c) theta = sum_c w_c b_c
    local : what a local step uses: "rows" of the site drawn at random, "log" (rows in their order), the site's "means"
        (A_c and b_c, no noise), or "auto": rows where a run on them is planned and done in two seconds: at most 3
        coefficients, 10 sites, 10,000 rows that fit three times into memory, and 1e8 steps in all; else means
    lag : how many rows apart errors may be correlated: for a regression Newey and West's covariance (HAC). None chooses
        it for a value function and for covariance="HAC", and is 0 for other regressions
    bootstrap : how many replicas, solutions of reweighted data, give error bars of their own
    resample : what varies in them: "pairs" (rows), "block" (consecutive rows), "cluster", or "wild" (residuals' signs).
        By default clusters where the task has them, blocks where rows are correlated, else pairs; wild where there are
        too few to drop some: less than 12 clusters, or than 4 rows for each coefficient
    plan : plan and simulate the run; where that is not possible, and no run was asked for, a warning says so, and the
        estimate comes without one. False: the estimate and its error bars alone
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
    by_hand = {"step_size": step_size, "local_steps": local_steps, "rounds": rounds}
    settings = checked_settings(method, epsilon, by_hand, max_samples, local == "log", seed, plan)
    weight = checked_weight(task, weight)
    asked = CovarianceKind.of(task, lag)
    checks.boolean("baselines", baselines)
    if bootstrap is not None:
        checks.memory("bootstrap", checks.integer("bootstrap", bootstrap, at_least=2), 64, "a replica's answer")
    if resample is not None:
        checks.choice("resample", resample, RESAMPLED)
        if bootstrap is None:
            raise ArgumentError(f"resample must go with bootstrap, a number of replicas; got {resample!r} alone")
    checks.callback("progress", progress)
    report = progress or (lambda what, done, total: None)

    room = checks.real("memory", memory, above=0)
    data, weights, systems = read(open_sites(sites, task, site, room), task, weight, room, report)
    A, theta = solution(systems, weights, data.names)
    warn_of_lost_digits(A, isinstance(task, Value) or task.standardise)
    influence = data.scale.original()[0] @ np.linalg.inv(A)  # of the mean score on the coefficients

    determination = Determination(A, weights, systems) if isinstance(task, Value) else None

    def site_scores(c: int, pieces: Iterator[Piece]) -> Scores:
        pieces = pieces if determination is None else determination.watched(c, pieces)
        return scores(pieces, systems[c], weights[c], (A, theta), influence, data.penalty, asked)

    names = [site.name for site in data.sites]
    kind, noise = complete(asked, data.each("error bars", report, site_scores), names, A)
    if isinstance(task, Value) and determination is not None:
        warn_of_logs(task, data.logs, data.names, names)
        determination.warn(data.names)
    warn_of_errors(names, noise, asked, kind)
    covariance = sandwich(A, sum_of_meats(noise))
    if isinstance(task, Regression):  # columns that nearly determine one another have lost digits, which rows give back
        theta = theta - np.linalg.solve(A, weights @ np.stack([s.mean for s in noise]))
    metric = metric_of_sites(covariance, theta, A, noise)
    estimate = Estimate(names, systems, weights, A, theta, noise, covariance, metric, data.scale.original(), kind)
    T, t = estimate.original
    variance, r_squared = explained(data, estimate)
    rows_in_all = sum(s.n for s in systems)
    replicas = None
    if bootstrap is not None:
        what = choose_resampling(resample, kind, noise, len(A))
        replicas = bootstrapped(data, estimate, bootstrap, what, settings.seed, report)

    settings, outcome, steps = _outcome(data, estimate, settings, local, memory, report)
    reports = with_logs(site_reports(estimate, outcome), data.logs)
    out = Fit(
        task=data.task,
        names=data.names,
        theta=T @ theta + t,
        columns=data.columns.state,
        levels=dict(data.columns.levels),
        covariance=T @ covariance @ T.T,
        root=T @ root_of_sandwich(A, sum_of_meats(noise)),
        protocol=T @ outcome.theta + t,
        optimisation=optimisation_error(outcome, T),
        plan=outcome.plan,
        epsilon=settings.epsilon,
        error=error_by_origin(outcome, estimate),
        per_site=tuple(replace(one, dropped=k) for one, k in zip(reports, data.dropped, strict=True)),
        weight=weight,
        local=steps,
        covariance_kind=kind.text(noise),
        degrees_of_freedom=kind.degrees_of_freedom(rows_in_all, len(A), noise),
        residual_variance=variance,
        r_squared=r_squared,
        bootstrap=replicas,
        made_by={"versions": versions()},
    )
    if not baselines:
        return out
    returns = monte_carlo(data, task, weights, asked, report) if isinstance(task, Value) else None
    return replace(out, baselines=compare(out, returns))


def _outcome(
    data: PooledData, estimate: Estimate, s: FitSettings, local: str, memory: float, report: FitProgress
) -> tuple[FitSettings, RunOutcome, str]:
    """The planned run, with the accuracy that it was planned for and what its steps use; none where none is wanted, and
    where, by default, none can be planned: then there is a warning, for the estimate needs no run."""
    none = replace(s, epsilon=None), no_run(len(estimate.A)), "none"
    if not s.wanted:
        return none
    rows = uses_rows(data, local, QUICK_ON_ROWS[0], memory)
    if local == "auto":
        rows = rows and quick_on_rows(len(estimate.A), len(estimate.systems), sum(one.n for one in estimate.systems))
    by_default = s.epsilon is None and s.by_hand is None
    if by_default and not estimate.theta.any():
        warn("every coefficient is 0, where a run would start, so that none is planned; is the target constant?")
        return none
    s = _with_default_accuracy(s, estimate.metric, estimate.theta) if by_default else s
    report("planning", 0, 1)
    try:
        problem, plan, rows = _chosen(data, estimate, s, local, rows)
        outcome = run(problem, plan, s, lambda done, total: report("running", done, total))
    except (ArgumentError, PrecisionError, DivergenceError, SiteDataError) as error:
        if not by_default:
            raise
        warn(unreachable(estimate.A, data.names, str(error)))
        return none
    warn_if_coarse(outcome, s, estimate.metric)
    return s, outcome, ("log" if s.in_order else "rows") if rows else "means"


def _chosen(data: PooledData, estimate: Estimate, s: FitSettings, local: str, rows: bool) -> tuple[Problem, Plan, bool]:
    """The problem that the run is on, its plan, and whether steps use rows: with local="auto" where that is quick."""
    problem = make_problem(data, estimate.systems, estimate.weights, rows)
    plan = _quick_plan(problem, s) if rows and local == "auto" else planned(problem, s)
    if plan is not None:
        return problem, plan, rows
    problem = make_problem(data, estimate.systems, estimate.weights, False)
    return problem, planned(problem, s), False


def _quick_plan(problem: Problem, s: FitSettings) -> Plan | None:
    """A plan on rows; None where they cannot reach the accuracy in seconds."""
    try:
        plan = planned(problem, s)
    except (ArgumentError, PrecisionError):  # out of reach for any step size, or for exact theory
        return None
    return plan if problem.n_agents * plan.samples <= SECONDS_OF_STEPS else None


def _with_default_accuracy(s: FitSettings, metric: Metric, theta: Floats) -> FitSettings:
    """epsilon with E delta^T Sigma^-1 delta <= epsilon^2 / (smallest eigenvalue of Sigma) = ACCURACY^2; less where the
    start is already as near as that, but never nothing."""
    size = float(np.linalg.norm(theta))
    return replace(s, epsilon=max(min(ACCURACY / metric.stretch, 0.5 * size), SMALLEST * size))

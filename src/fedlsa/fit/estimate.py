"""From the data of all sites to one answer with an error bar; every step is one that sites could do apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import checks
from ..algorithms import METHODS
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError, SiteDataError
from ..problems import Problem
from ..results.recipe import versions
from ..theory.planner import MAX_EXACT_DIM, Plan
from .baselines import compare
from .bootstrap import Bootstrap, check_work
from .bootstrap import bootstrap as run_replicas
from .covariance import Scores, block_length, corrected, positive, sandwich, scores
from .fitted import Fit
from .metric import Metric, metric_of
from .observe import Piece
from .parts import by_origin, of_the_run, site_reports, warn_if_coarse, warn_if_small
from .problem import MEMORY, WEIGHTS, problem_of, rows_or_means
from .reading import Progress, read
from .run import Outcome, Settings, planned, run
from .sites import open_sites
from .systems import solution, unreachable
from .tasks import Regression, Task, Value

LONG = 1e8  # steps of all sites on rows: several seconds. Where more are needed, steps use means unless told otherwise
ACCURACY = 0.1  # standard errors of any combination of coefficients: how exact the run is unless told otherwise
REPLICAS = 0.25  # the same, of the runs of a bootstrap: a quarter widens a spread by 3%
SMALLEST = 1e-9  # accuracy that is asked for by itself, relative to the answer; data without noise have no error at all


def fit(
    sites: Sequence[Any],
    task: Task,
    epsilon: float | None = None,
    *,
    method: str = "scafflsa",
    step_size: float | None = None,
    local_steps: int | None = None,
    rounds: int | None = None,
    max_samples: float | None = None,
    weight: str = "sites",
    local: str = "auto",
    lag: int | None = None,
    centred: bool = True,
    seed: int = 0,
    bootstrap: int | None = None,
    baselines: bool = False,
    memory: float = MEMORY,
    progress: Progress | None = None,
) -> Fit:
    """Estimate one linear model or value function from the data of all sites, with an error bar.

    The estimate is the data's own solution, which this machine can find, for it has all the data. Beside it stands
    what sites would get that only exchange parameters: a run of the method, planned and simulated, with its error.

    sites : paths to Parquet or CSV files, mappings of columns, or tuples of arrays, one per site
    task : fl.Regression(target=...) or fl.Value(discount=...)
    epsilon : root mean squared distance, in the run's coordinates, of the run's end from the data's own solution. By
        default so small that no combination of coefficients is off by more than a tenth of its standard error:
        delta^T Sigma^-1 delta <= 0.01 with the estimate's covariance Sigma. fl.plan then chooses step_size,
        local_steps and rounds, which can be given instead
    weight : "sites" (w_c = 1/N, as in the paper) or "samples" (w_c = n_c/n) in (sum_c w_c A_c) theta = sum_c w_c b_c
    local : what a local step uses: "rows" of the site drawn at random, "log" (rows in their order), the site's "means"
        (A_c and b_c, no noise), or "auto": rows where they fit into memory, exact theory can plan for them, and all
        sites together need at most 1e8 steps; else means
    lag : how many rows apart scores may be correlated; None chooses it for a value function, and is 0 for a regression
    centred : covariances about each site's own mean score (sites are fixed, rows random), or about 0 (HC0). One row has
        no spread: a site with one is taken about 0, with a warning
    bootstrap : how many replicas of the run on reweighted rows give error bars of their own; needs rows
    baselines : compare with the one-shot system and with the average of the sites' own solutions
    seed : of the run's draws; memory : bytes of rows to keep; progress : called with (what, done, in all)
    """
    checks.instance("task", task, (Regression, Value), "fl.Regression(...) or fl.Value(...)")
    checks.choice("local", local, ("auto", "rows", "log", "means"))
    settings = _settings(method, epsilon, step_size, local_steps, rounds, max_samples, local, seed)
    checks.choice("weight", weight, WEIGHTS)
    window = checks.integer("lag", lag) if lag is not None else (0 if isinstance(task, Regression) else None)
    checks.boolean("centred", centred)
    checks.boolean("baselines", baselines)
    if bootstrap is not None:
        checks.memory("bootstrap", checks.integer("bootstrap", bootstrap, at_least=2), 64, "what a replica ends with")
    checks.callback("progress", progress)
    tell = progress or (lambda what, done, total: None)

    room = checks.real("memory", memory, above=0)
    data, weights, systems = read(open_sites(sites, task), task, weight, room, tell)
    A, theta_data = solution(systems, weights, data.names)
    influence = data.scale.original()[0] @ np.linalg.inv(A)  # of the mean score on the coefficients

    def noise(c: int, pieces: Iterator[Piece]) -> Scores:
        return scores(pieces, systems[c], theta_data, influence, data.penalty, window, centred)

    found = positive(data.each("error bars", tell, noise), weights)
    warn_if_small([site.name for site in data.sites], found, window is None, centred)
    found = corrected(found, len(A)) if centred else found
    covariance = sandwich(A, found, weights)
    metric = metric_of(covariance, theta_data)

    by_default = settings.epsilon is None and not settings.by_hand
    if by_default:
        settings = _with_default_accuracy(settings, metric, theta_data)
    rows = rows_or_means(data, local, MAX_EXACT_DIM[method], memory)
    if bootstrap is not None and (not rows or settings.in_order):
        drawn = "log" if rows else "means"
        raise ArgumentError(f"bootstrap must go with steps on rows drawn at random; got local={drawn!r}")
    problem = problem_of(data, systems, weights, rows)
    tell("planning", 0, 1)
    try:
        short = rows and local == "auto" and bootstrap is None
        made = _short(problem, settings) if short else planned(problem, settings)
        if made is None:
            rows, problem = False, problem_of(data, systems, weights, False)
            made = planned(problem, settings)
    except (ArgumentError, PrecisionError) as error:
        if not by_default:
            raise
        raise SiteDataError(unreachable(A, data.names, str(error))) from error
    outcome = run(problem, made, settings, lambda done, total: tell("running", done, total))
    warn_if_coarse(outcome, settings, metric)
    original = data.scale.original()
    T, t = original
    names = [site.name for site in data.sites]
    out = Fit(
        task=data.task,
        names=data.names,
        theta=T @ theta_data + t,
        columns=data.columns.state,
        covariance=T @ covariance @ T.T,
        protocol=T @ outcome.theta + t,
        optimisation=of_the_run(outcome, T),
        plan=outcome.plan,
        epsilon=settings.epsilon,
        error=by_origin(outcome, metric, covariance),
        per_site=site_reports(names, systems, found, weights, A, original, outcome, theta_data, metric),
        weight=weight,
        local=("log" if settings.in_order else "rows") if rows else "means",
        centred=centred,
        made_by={"versions": versions()},
    )
    if baselines:
        out = replace(
            out, baselines=compare(out.protocol, out.theta, out.covariance, out.plan, systems, weights, original)
        )
    if bootstrap is not None:
        tell("bootstrap", 0, 1)
        blocks = block_length(found)
        coarse = _coarser(problem, outcome, settings, metric)
        check_work("bootstrap", bootstrap, problem, coarse.samples)
        out = replace(out, bootstrap=_replicas(problem, coarse, bootstrap, blocks, settings.seed, centred, original))
    return out


def _short(problem: Problem, s: Settings) -> Plan | None:
    """A plan on rows that takes seconds; None where they cannot reach the accuracy so soon."""
    try:
        made = planned(problem, s)
    except (ArgumentError, PrecisionError):  # out of reach for any step size, or for exact theory
        return None
    return made if problem.n_agents * made.samples <= LONG else None


def _coarser(problem: Problem, outcome: Outcome, s: Settings, metric: Metric) -> Plan:
    """The run of the replicas: as planned, but no finer than a spread needs."""
    epsilon = min(REPLICAS / metric.stretch, 0.5 * float(np.linalg.norm(problem.theta_star)))
    if s.epsilon is None or epsilon <= s.epsilon:
        return outcome.plan
    return planned(problem, replace(s, epsilon=epsilon))


def _replicas(
    problem: Problem, made: Plan, count: int, blocks: int, seed: int, centred: bool, original: tuple[Any, Any]
) -> Bootstrap:
    """The run on reweighted rows, on the original scale; rows of a window share their weight."""
    T, t = original
    found = run_replicas(
        problem, made.algorithm, made.rounds, replicas=count, run_seed=seed, blocks=blocks, centred=centred
    )
    return Bootstrap(T @ found.theta + t, found.replicas @ T.T + t)


def _settings(
    method: str,
    epsilon: float | None,
    step_size: float | None,
    local_steps: int | None,
    rounds: int | None,
    max_samples: float | None,
    local: str,
    seed: int,
) -> Settings:
    checks.choice("method", method, METHODS)
    by_hand = {"step_size": step_size, "local_steps": local_steps, "rounds": rounds}
    given = [name for name, value in by_hand.items() if value is not None]
    if given and epsilon is not None:
        raise ArgumentError(f"epsilon and {given[0]} must not both be given: one follows from the other; got both")
    if given and len(given) < 3:
        lacking = next(name for name in by_hand if name not in given)
        raise ArgumentError(f"step_size, local_steps and rounds must be given together; got no {lacking}")
    return Settings(
        method,
        None if epsilon is None else checks.real("epsilon", epsilon, above=0),
        None if step_size is None else checks.real("step_size", step_size, above=0),
        None if local_steps is None else checks.integer("local_steps", local_steps, at_least=1),
        None if rounds is None else checks.integer("rounds", rounds, at_least=1),
        max_samples,
        local == "log",
        checks.integer("seed", seed),
    )


def _with_default_accuracy(s: Settings, metric: Metric, theta: Floats) -> Settings:
    """epsilon with E delta^T Sigma^-1 delta <= epsilon^2 / (smallest eigenvalue of Sigma) = ACCURACY^2; less where the
    start is already as near as that, but never nothing."""
    size = float(np.linalg.norm(theta))
    if size == 0:
        raise SiteDataError(
            "the data must not have 0 for every coefficient, where a run starts; is the target constant?"
        )
    return replace(s, epsilon=max(min(ACCURACY / metric.stretch, 0.5 * size), SMALLEST * size))

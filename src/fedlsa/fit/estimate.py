"""From the data of all sites to one answer with an error bar; every step is one that sites could do apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import checks
from ..algorithms import METHODS
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..results.recipe import versions
from ..theory.planner import LARGEST
from . import columns as chosen_columns
from .bootstrap import Bootstrap
from .bootstrap import bootstrap as run_replicas
from .columns import Columns
from .covariance import Scores, sandwich, scores
from .fitted import Fit, SiteReport
from .observe import Piece, Scale, observations, raw
from .rivals import compare
from .run import Outcome, Settings, means_problem, rows_problem, run
from .sites import Site, open_sites
from .summaries import scale_of, summary
from .systems import System, own_solution, solution, system
from .tasks import Regression, Task, Value

MEMORY = 2**30  # bytes of rows that are kept between passes; larger files are read again, and steps use means
TENTH = 0.1  # of the mean standard error: the accuracy of the run unless another is asked for
Progress = Callable[[str, float, float], None]  # what is being done, how much of it, out of how much


@dataclass(frozen=True, eq=False)
class Data:
    """The sites with what their passes need; `kept` holds the pieces of each site where they fit into memory."""

    sites: list[Site]
    task: Task
    columns: Columns
    scale: Scale
    kept: list[list[Piece]] | None

    def pieces(self, c: int) -> Iterator[Piece]:
        """The observations of site c, from memory or from its file."""
        return iter(self.kept[c]) if self.kept else observations(self.sites[c], self.task, self.columns, self.scale)

    @property
    def ridge(self) -> float:
        return self.task.ridge if isinstance(self.task, Regression) else 0.0


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
    rivals: bool = False,
    memory: float = MEMORY,
    progress: Progress | None = None,
) -> Fit:
    """Estimate one linear model or value function from the data of all sites, with an error bar.

    sites : paths to Parquet or CSV files, mappings of columns, or tuples of arrays, one per site
    task : fl.Regression(target=...) or fl.Value(discount=...)
    epsilon : root mean squared distance, in the run's coordinates, of the answer from the data's own solution; by
        default a tenth of the mean standard error. fl.plan then chooses step_size, local_steps and rounds, which can
        be given instead
    weight : "sites" (w_c = 1/N, as in the paper) or "samples" (w_c = n_c/n) in (sum_c w_c A_c) theta = sum_c w_c b_c
    local : what a local step uses: "rows" of the site drawn at random, "log" (rows in their order), the site's "means"
        (A_c and b_c, no noise), or "auto": rows where they fit into memory and exact theory can plan for them
    lag : how many rows apart scores may be correlated; None chooses it for a value function, and is 0 for a regression
    centred : covariances about each site's own mean score (sites are fixed, rows random), or about 0 (HC0)
    bootstrap : how many replicas of the run on reweighted rows give error bars of their own; needs rows
    rivals : compare with the one-shot system and with the average of the sites' own solutions
    seed : of the run's draws; memory : bytes of rows to keep; progress : called with (what, done, in all)
    """
    checks.instance("task", task, (Regression, Value), "fl.Regression(...) or fl.Value(...)")
    settings = _settings(method, epsilon, step_size, local_steps, rounds, max_samples, local, seed)
    checks.choice("weight", weight, ("sites", "samples"))
    checks.choice("local", local, ("auto", "rows", "log", "means"))
    window = checks.integer("lag", lag) if lag is not None else (0 if isinstance(task, Regression) else None)
    checks.boolean("centred", centred)
    checks.boolean("rivals", rivals)
    if bootstrap is not None:
        checks.integer("bootstrap", bootstrap, at_least=2)
    tell = progress or (lambda what, done, total: None)

    data, weights = _read(open_sites(sites, task), task, weight, checks.real("memory", memory, above=0), tell)
    systems = _each(data, "solving", tell, lambda c: system(data.pieces(c), data.ridge))
    names = coefficient_names(data)
    A, theta_data = solution(systems, weights, names)
    found = _each(data, "error bars", tell, lambda c: scores(data.pieces(c), theta_data, data.ridge, window, centred))
    covariance = sandwich(A, found, weights)

    if settings.epsilon is None and not settings.by_hand:
        settings = _with_default_accuracy(settings, covariance, theta_data)
    rows = local in ("rows", "log") or (local == "auto" and data.kept is not None and len(A) <= LARGEST[method])
    if rows and data.kept is None:
        raise ArgumentError(f"local must be 'means' where rows take more than memory, {memory:g} bytes; got {local!r}")
    if bootstrap is not None and (not rows or settings.in_order):
        drawn = "log" if rows else "means"
        raise ArgumentError(f"bootstrap must go with steps on rows drawn at random; got local={drawn!r}")
    problem = rows_problem(data.kept or [], weights, data.ridge) if rows else means_problem(systems, weights)
    outcome = run(problem, settings, lambda done, total: tell("running", done, total))
    out = _assembled(data, systems, found, weights, A, theta_data, covariance, outcome, settings, weight, rows, centred)
    original = data.scale.original()
    if rivals:
        others = compare(out.theta, out.solution, out.covariance, out.plan, systems, weights, original)
        out = replace(out, rivals=others)
    if bootstrap is not None:
        tell("bootstrap", 0, 1)
        blocks = 1 + max(s.window for s in found)
        out = replace(out, bootstrap=_replicas(problem, outcome, bootstrap, blocks, settings.seed, centred, original))
    return out


def _replicas(
    problem: Problem, outcome: Outcome, count: int, blocks: int, seed: int, centred: bool, original: tuple[Any, Any]
) -> Bootstrap:
    """The run on reweighted rows, on the original scale; rows of a window share their weight."""
    made, (T, t) = outcome.plan, original
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


def _with_default_accuracy(s: Settings, covariance: Floats, theta: Floats) -> Settings:
    """A tenth of the mean standard error; less where the start is already as near as that."""
    epsilon = TENTH * float(np.mean(np.sqrt(np.diag(covariance))))
    return Settings(**{**vars(s), "epsilon": min(epsilon, 0.5 * float(np.linalg.norm(theta)))})


def _read(sites: list[Site], task: Task, weight: str, memory: float, tell: Progress) -> tuple[Data, Floats]:
    """The first pass: columns, counts and scale; and the rows themselves where they fit into memory."""
    columns = chosen_columns.chosen(task, sites)
    parts = []
    for c, site in enumerate(sites):
        tell("reading", c, len(sites))
        parts.append(summary(raw(site, task, columns), site.name))
    counts = np.array([p.n for p in parts], np.float64)
    weights = np.full(len(sites), 1 / len(sites)) if weight == "sites" else counts / counts.sum()
    k = len(parts[0].mean) - 1
    scale = scale_of(task, parts, weights, _feature_names(columns, k), [s.name for s in sites])
    size = 8 * counts.sum() * (scale.dim * (1 if isinstance(task, Regression) else 2) + 1)
    data = Data(sites, task, columns, scale, None)
    if size > memory:
        return data, weights
    kept = []
    for c in range(len(sites)):
        tell("reading", c, len(sites))
        kept.append(list(data.pieces(c)))
    return Data(sites, task, columns, scale, kept), weights


def _each(data: Data, what: str, tell: Progress, work: Callable[[int], Any]) -> list[Any]:
    out = []
    for c in range(len(data.sites)):
        tell(what, c, len(data.sites))
        out.append(work(c))
    return out


def _feature_names(columns: Columns, k: int) -> tuple[str, ...]:
    return columns.state if k == len(columns.state) else tuple(f"feature {j}" for j in range(k))


def coefficient_names(data: Data) -> tuple[str, ...]:
    """The features' names, then "intercept" where there is one."""
    names = _feature_names(data.columns, len(data.scale.centre))
    return (*names, "intercept") if data.scale.intercept else names


def _assembled(
    data: Data,
    systems: list[System],
    found: list[Scores],
    weights: Floats,
    A: Floats,
    theta_data: Floats,
    covariance: Floats,
    outcome: Outcome,
    settings: Settings,
    weight: str,
    rows: bool,
    centred: bool,
) -> Fit:
    """The outcome on the original scale, with the parts of its error and each site's share in them."""
    T, t = data.scale.original()
    theta = T @ outcome.theta + t
    inverse = T @ np.linalg.inv(A)
    mse = outcome.squared_bias + outcome.variance
    shares = np.array([w**2 * np.trace(inverse @ s.row @ inverse.T) for w, s in zip(weights, found, strict=True)])
    factor = float(np.linalg.norm(T, 2))
    noise = factor * math.sqrt(outcome.variance)
    reports = []
    for site, own, s, w, share in zip(data.sites, systems, found, weights, shares, strict=True):
        home = T @ own_solution(own) + t
        reports.append(
            SiteReport(
                site.name, s.n, float(w), home, float(np.linalg.norm(home - theta)),
                float(np.linalg.norm(w * inverse @ s.mean)),
                noise * math.sqrt(share / shares.sum()) if shares.sum() > 0 else 0.0,
                float(w * math.sqrt(max(np.trace(inverse @ s.long_run @ inverse.T) / s.n, 0.0))), s.window,
            )
        )  # fmt: skip
    original = T @ covariance @ T.T
    return Fit(
        task=data.task,
        names=coefficient_names(data),
        theta=theta,
        covariance=original,
        solution=T @ theta_data + t,
        optimisation=np.linalg.norm(T, axis=1) * math.sqrt(mse),
        plan=outcome.plan,
        epsilon=settings.epsilon,
        error={
            "drift": factor * math.sqrt(outcome.squared_bias),
            "noise": noise,
            "finite data": math.sqrt(float(np.trace(original))),
        },
        per_site=tuple(reports),
        weight=weight,
        local=("log" if settings.in_order else "rows") if rows else "means",
        centred=centred,
        made_by={"versions": versions()},
    )

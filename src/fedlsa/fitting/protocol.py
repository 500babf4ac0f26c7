"""What sites would get that only exchange parameters: the problem of their rows or means, a plan for it, and its run.

And Monte Carlo evaluation of a policy, a baseline of one message: the regression of the discounted returns G on the
features of their states. No return has to be computed, for with e_t = sum_k gamma^(t - k) phi_k, over the rows k <= t
of its episode,

    sum_k phi_k (G_k - phi_k . theta) = sum_t e_t (r_t + gamma phi_{t+1} . theta - phi_t . theta):

the equations are those of TD(1) (Boyan, 2002), which sites add up in one pass. Where an episode is cut, the sum has the
model's own value of the state there for what lies beyond; without it only episodes that end early would count.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import checks
from ..algorithms import Algorithm, FedLSA, method_class
from ..checks import Floats
from ..engine.jobs import RunOptions, make_job
from ..engine.local import row_steps
from ..engine.progress import Progress
from ..engine.reference import noiseless_steps, run_seed
from ..errors import (
    ArgumentError,
    DivergenceError,
    DivergenceWarning,
    SingularSystemError,
    SiteDataError,
    TheoryWarning,
)
from ..problems import Problem, RankOne, from_observations
from ..problems.arguments import offsets
from ..sampling import IID, Replay
from ..theory import bias as limit_bias
from ..theory import stability_limit
from ..theory.exact_curves import exact_record
from ..theory.planner import Plan
from ..theory.tuning import MAX_EXACT_DIM
from ..threads import small_products
from ..value_objects import Checked, count, number
from . import run_plan
from .reading import PooledData, read
from .rows import Piece
from .run_plan import DOWN, EXACT, MOST_ROUNDS, UP, WINDOW, PlanNumbers, RunPlan, Scalars, StepLimits
from .sites import open_tables
from .sums import Systems
from .tables import MEMORY
from .tasks import Regression, Task, Value, checked_weight

HAND = "given by hand"  # the basis of a run that nobody planned
FIRST_ROUNDS = 64  # of a run that stops by itself, of which nobody knows when
FAR = 16  # times the rounds that policies allow: a plan's limit on rounds is some 8 times what a run takes
SECONDS_OF_STEPS = 1e8  # of all sites, on rows. Where more are needed, steps use means unless told otherwise
STEPS_OF_A_CALL = 400  # local steps that take as long as calling for a site's round does
# calls for rounds of sites, up to which runs go site by site: in the half second that an engine would need to load,
# where a plan has taken as long already; in a tenth of one where a run is given by hand, perhaps one of many
SITE_BY_SITE, BY_HAND_SITE_BY_SITE = 2e4, 5e3
# local steps on means of a site, and of all: NumPy does them by powers of their maps, an engine one by one
LONG_ON_MEANS, LONG_ROUND = 64, 1e5
STARTS_THREADS = 1e6  # local steps of all sites that are done sooner than threads start
QUICK_LIMIT_DIM, QUICK_LIMIT_SITES = 8, 100  # up to which the largest stable step size takes a second at most


@dataclass(frozen=True, repr=False)
class FitSettings(Checked):
    """How to run: a target accuracy from which the rest follows, or a method and its rounds by hand.

    in_order : rows in the order of the log instead of at random; plan : whether there is to be a run at all
    share_moments : whether sites let moments leave for a plan; None: where nothing else will do
    """

    kind: type[Algorithm]
    by_hand: RunPlan | None
    in_order: bool
    plan: bool
    seed: int = count()
    epsilon: float | None = number(None, instead=type(None), above=0)
    max_samples: float | None = number(None, instead=type(None), at_least=1)
    share_moments: bool | None = number(None, instead=type(None), check=checks.boolean)


def checked_settings(method: str | type[Algorithm], steps: dict[str, Any], **options: Any) -> FitSettings:
    """FitSettings from the arguments of `fit`; steps : step_size, local_steps and rounds, None where not given."""
    kind = method_class("method", method, "fit")
    if isinstance(method, Algorithm):
        rule = "method must be a class or a name, whose settings are step_size, local_steps and rounds"
        raise ArgumentError(f"{rule}; got {checks.show(method)}")
    s, given = FitSettings(kind, None, **options), [name for name, value in steps.items() if value is not None]
    asked = ["epsilon"] * (s.epsilon is not None) + given
    if not s.plan and asked:
        raise ArgumentError(f"plan must not be False where {asked[0]} asks for a run; got False")
    if not given:
        return s
    if s.epsilon is not None:
        raise ArgumentError(f"epsilon and {given[0]} must not both be given: one follows from the other; got both")
    for lacking in (name for name in steps if name not in given):
        raise ArgumentError(f"step_size, local_steps and rounds must be given together; got no {lacking}")
    step_size = checks.real("step_size", steps["step_size"], above=0)
    H, rounds = (checks.integer(name, steps[name], at_least=1) for name in ("local_steps", "rounds"))
    kind.with_steps(step_size, H)  # what it would not take is said now
    return replace(s, by_hand=RunPlan(kind.name, step_size, H, rounds, math.nan, None, HAND))


@dataclass(frozen=True, eq=False)
class RunOutcome:
    """Where the run ended : (d,), what it was, and its error about the data's solution; NaN where there is no run.

    bias : (d,) mean of theta minus the data's solution; drift : (d,) the part of it that more rounds do not remove
    variance : E||theta - E theta||^2; sure : whether it is known, else it is the square of how the run came out
    """

    theta: Floats
    plan: Plan | None
    bias: Floats
    drift: Floats
    variance: float
    sure: bool

    @classmethod
    def none(cls, dim: int) -> RunOutcome:
        """Of a fit of `dim` coefficients for which no run is planned."""
        unknown = np.full(dim, np.nan)
        return cls(unknown, None, unknown, unknown, math.nan, sure=False)


def plan_run(problem: Problem, s: FitSettings, rows: bool, share_moments: bool) -> RunPlan:
    """The run that a network would make to the accuracy asked for, or the one that is given by hand.

    rows : whether steps use rows drawn at random; share_moments : whether the policies of sites let moments leave
    """
    if s.by_hand:
        return s.by_hand
    assert s.epsilon is not None
    asked, local = (*site_numbers(problem, rows), s.epsilon, s.kind.name), "rows" if rows else "means"
    if share_moments:
        return run_plan.plan_from_moments(problem, *asked, local, s.max_samples)
    found = run_plan.plan_from_scalars(*asked, problem.dim, local=local)
    if found.rounds > FAR * MOST_ROUNDS:
        rule = f"epsilon must be larger: a run would take up to {found.rounds:,} rounds"
        raise ArgumentError(f"{rule}; got {s.epsilon:g}")
    if s.max_samples is not None and found.samples > s.max_samples:
        raise ArgumentError(f"max_samples must be at least {found.samples:g}; got {s.max_samples:g}")
    return found


def site_numbers(problem: Problem, rows: bool) -> tuple[PlanNumbers, list[StepLimits]]:
    """What the sites would say to a coordinator for a plan, and what their policies ask of steps at first."""
    A, b, z = problem.A_bar, problem.b_bar, problem.observations
    if not rows or not isinstance(z, RankOne):
        largest = float(np.linalg.norm(A, 2, axis=(1, 2)).max())
        return PlanNumbers.of(problem.weights, Scalars.of(A, b)), [
            run_plan.RowSizes(1, largest, 0.0).step_limits(False)
        ]
    noise, limits = [], []
    for c, span in enumerate(problem.spans()):
        u, y = z.rows[z.left[span]], z.y[span]
        piece = Piece(u, u if z.right is z.left else z.rows[z.right[span]], y)
        W, bare = run_plan.noise_products(piece) / len(y), A[c] - z.ridge * np.eye(problem.dim)
        noise.append(run_plan.noise_form(W, bare, b[c]))
        limits.append(run_plan.row_sizes(lambda piece=piece: [piece]).step_limits(True))  # type: ignore[misc]
    return PlanNumbers.of(problem.weights, Scalars.of(A, b, np.stack(noise))), limits


@small_products
def run(problem: Problem, asked: RunPlan, s: FitSettings, progress: Progress | None = None) -> RunOutcome:
    """Run from 0 as planned, and say how far from the data's solution that is."""
    algorithm = s.kind.with_steps(asked.step_size, asked.local_steps)
    theta, rounds, diverged_at = _end(problem, algorithm, asked, s, progress)
    if diverged_at >= 0:
        raise _diverged(problem, algorithm, f"left the range of numbers at round {diverged_at}")
    bias, variance, sure = _error(problem, algorithm, rounds, s, theta)
    if not (math.isfinite(variance) and np.isfinite(bias).all()):
        raise _diverged(problem, algorithm, f"has an infinite mean squared error after {rounds} rounds")
    if asked.curve:
        rmse, basis = asked.curve[-1][1], EXACT
    else:
        rmse = math.sqrt(float(bias @ bias) + variance)
        basis = f"{HAND if s.by_hand else 'three numbers per site'}, {EXACT if sure else 'as the run came out'}"
    uploads = problem.n_agents * rounds
    size, samples = (UP + DOWN) * problem.dim * uploads, float(rounds * algorithm.mean_steps)
    plan = Plan(algorithm, rounds, samples, rmse, uploads, size, basis, start="0")
    return RunOutcome(theta, plan, bias, _drift(problem, algorithm), variance, sure)


def _end(
    problem: Problem, algorithm: Algorithm, asked: RunPlan, s: FitSettings, progress: Progress | None
) -> tuple[Floats, int, int]:
    """Where the run ends : (d,), after how many rounds, and the round at which it left the range of numbers, or -1."""
    if asked.rate is None:
        path, diverged_at = _path(problem, algorithm, [0, asked.rounds], s, progress)
        return path[-1], asked.rounds, diverged_at
    R, most = FIRST_ROUNDS, min(asked.rounds, MOST_ROUNDS)
    while True:
        R = min(R, most)
        path, diverged_at = _path(problem, algorithm, range(R + 1), s, progress)
        moved = np.linalg.norm(np.diff(path, axis=0), axis=1).tolist()
        may = (
            t for t in range(WINDOW, R + 1) if run_plan.has_settled(moved[t - WINDOW : t], asked.rate, asked.epsilon)
        )
        end = next(may, R if asked.rounds == R else None)
        if diverged_at >= 0 or end is not None:
            return path[end or R], end or R, diverged_at
        if most == R:
            rule = f"epsilon must be larger: after {most:,} rounds, the most that policies allow at first"
            raise ArgumentError(f"{rule}, the run goes on; got {asked.epsilon:g}")
        R *= 4


def _path(
    problem: Problem, algorithm: Algorithm, record: Sequence[int], s: FitSettings, progress: Progress | None
) -> tuple[Floats, int]:
    """theta at the rounds of `record`, the last of which ends the run; the round of divergence, or -1."""
    sampling, H, rounds = Replay() if s.in_order else IID(), algorithm.mean_steps, record[-1]
    steps = problem.n_agents * rounds * H
    arguments: dict[str, Any] = {"seeds": [s.seed], "theta_0": np.zeros(problem.dim), "record": record}
    arguments["sampling"] = sampling
    noiseless = len(problem.prob) == problem.n_tables  # each site has one outcome: nothing is drawn
    calls = problem.n_agents * rounds + (0 if noiseless else steps / STEPS_OF_A_CALL)
    long = noiseless and H >= LONG_ON_MEANS and problem.n_agents * H >= LONG_ROUND
    if long or calls <= (BY_HAND_SITE_BY_SITE if s.by_hand else SITE_BY_SITE):
        job = make_job(problem, algorithm, rounds, RunOptions(**arguments))
        walk = noiseless_steps(problem) if noiseless else row_steps(problem, sampling, job.outcomes, s.seed)
        end = run_seed(job, s.seed, walk)
        if progress:
            progress(steps, steps)
        return end.theta[0], int(end.state.diverged_at[0])
    from ..engine import simulate  # which loads much

    arguments |= {"threads": 1 if steps < STARTS_THREADS else None, "progress": progress}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)  # here it is an error
        r = simulate(problem, algorithm, rounds, **arguments)
    return np.asarray(r["theta"].values[0], np.float64), int(r["diverged_at"][0])


def _error(
    problem: Problem, algorithm: Algorithm, rounds: int, s: FitSettings, theta: Floats
) -> tuple[Floats, float, bool]:
    """The mean of theta minus the data's solution : (d,), its variance, and whether exact theory knows both.

    Where it knows only the mean (a log in its order) the variance is the square of what came out beside it; where it
    knows nothing (rows in large dimensions), of all that came out.
    """
    off, zero, method = theta - problem.theta_star, np.zeros(problem.dim), s.kind.name
    if method != "scaffnew" and len(problem.prob) == problem.n_tables:
        return off, 0.0, True
    if problem.dim > MAX_EXACT_DIM[method]:
        return zero, float(off @ off), False
    moments = exact_record(problem, algorithm, rounds, zero, record=[0, rounds])["data_vars"]
    bias, variance = moments["mean"][1][-1] - problem.theta_star, float(moments["noise"][1][-1])
    if not s.in_order:
        return bias, max(variance, 0.0), True
    bias = bias if np.isfinite(bias).all() else zero  # a log may be kinder than rows at random
    return bias, float(np.sum((off - bias) ** 2)), False


def _drift(problem: Problem, algorithm: Algorithm) -> Floats:
    """The limit bias of FedLSA (th:2nd_moment_no_cv) : (d,); 0 for methods with control variates."""
    drift = np.zeros(problem.dim)
    if isinstance(algorithm, FedLSA):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TheoryWarning)
            drift = limit_bias(problem, float(algorithm.step_size), algorithm.local_steps)  # type: ignore[arg-type]
    return drift if np.isfinite(drift).all() else np.zeros(problem.dim)


def _diverged(problem: Problem, algorithm: Algorithm, what: str) -> DivergenceError:
    """The error for a run that is not stable; in small dimensions it says which step sizes are."""
    rule = "smaller"
    if problem.dim <= QUICK_LIMIT_DIM and problem.n_agents <= QUICK_LIMIT_SITES:
        rule = f"below {stability_limit(problem, algorithm, tolerance=1e-2):.3g}, where its error stays finite"
    return DivergenceError(f"the run {what}: step_size must be {rule}; got {algorithm.step_size:g}")


def site_problem(
    sites: Any,
    task: Task,
    weight: str | None = None,
    local: str = "auto",
    *,
    site: str | None = None,
    decimal: str | None = None,
    memory: float = MEMORY,
) -> Problem:
    """The problem on which `fl.fit` runs, to simulate and to study; nothing is planned or run (eq:lsa_syst_fed).

    sites, task, weight, site, decimal, memory : as for `fl.fit`
    local : what an observation is: "rows" of the site drawn at random, the site's "means" (A_c and b_c, no noise), or
        "auto": rows where they fit three times into memory and exact theory knows all methods, in up to 20 dimensions;
        else means. `fl.fit`, which plans a run as well, takes means of smaller data already

    It is in the run's coordinates: standardised as the task says, and with its ridge.

    >>> sites = [(np.eye(3), np.arange(3.0)), (np.eye(3), np.ones(3))]
    >>> fl.site_problem(sites, fl.Regression("y", intercept=False, standardise=False)).theta_star
    array([0.5, 1. , 1.5])
    """
    checks.instance("task", task, (Regression, Value), "fl.Regression(...) or fl.Value(...)")
    weight = checked_weight(task, weight)
    checks.choice("local", local, ("auto", "rows", "means"))
    room = checks.real("memory", memory, above=0)
    tables = open_tables(sites, task, site, decimal)
    data, weights, systems = read(tables, task, weight, room, lambda what, done, total: None)
    systems.solution(weights, data.coefficients)  # its error names the columns that determine one another
    return make_problem(data, systems, weights, uses_rows(data, local, min(MAX_EXACT_DIM.values()), memory))


def uses_rows(data: PooledData, local: str, largest: int, memory: float) -> bool:
    """Whether observations are rows: where they are asked for, or where they are few-dimensional and fit into memory
    with the two copies that a run makes."""
    if local in ("rows", "log") and not data.kept:
        raise ArgumentError(f"local must be 'means' where rows take more than memory, {memory:g} bytes; got {local!r}")
    if local != "auto" or not data.kept or data.scale.dim > largest:
        return local in ("rows", "log")
    return 3 * sum(p.nbytes for group in data.groups for p in group.kept) <= memory


def make_problem(data: PooledData, systems: Systems, weights: Floats, rows: bool) -> Problem:
    """The sites' rows as tables of observations, or their means, tables of one each: local steps without noise."""
    try:
        if rows:
            return _rows_problem(data, systems, weights)
        evenly = np.diag(data.task.ridge - data.penalty)  # as rows and networks have it: centred, the intercept is 0
        means = zip(systems.A + evenly, systems.b, strict=True)
        return from_observations([(np.ones(1), A[None], b[None]) for A, b in means], weights=weights)
    except SingularSystemError as error:  # the solution has scaled the columns, and found a regular system
        raise SiteDataError(
            "columns must be of comparable sizes for steps on them as they are; got columns so different in size, or "
            "so far from 0, that no run can be computed: rescale them, or let them be standardised"
        ) from error


def _rows_problem(data: PooledData, systems: Systems, weights: Floats) -> Problem:
    """The sites' rows as tables of observations, each row with probability 1 / n_c."""
    pieces = [p.moved(group.start) for group in data.groups for p in data.pieces(group)]
    order = np.argsort(np.concatenate([np.repeat(p.sites, p.counts) for p in pieces]), kind="stable")
    same, counts = all(p.u is p.v for p in pieces), systems.n.tolist()
    u, y = np.concatenate([p.u for p in pieces])[order], np.concatenate([p.y for p in pieces])[order]
    first, K = offsets(counts), len(y)
    rows = u if same else np.concatenate([u, np.concatenate([p.v for p in pieces])[order]])  # each row in one place
    if data.columns.row_weights is not None:
        even = np.repeat(np.sqrt(systems.n / systems.mass), counts)
        rows, y = rows * even[:, None], y * even
    left = np.arange(K, dtype=np.uint32)
    z = RankOne(rows, left, left if same else left + np.uint32(K), y, data.task.ridge)
    prob = np.repeat(1 / np.diff(first), np.diff(first))
    return Problem(z, prob, first, np.arange(len(counts)), weights, ordered=True)

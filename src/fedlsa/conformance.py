"""What every method, problem and sampling satisfies, as functions for whoever makes one.

A check returns a figure, which is at most its tolerance where the check holds, or words that say why it does not apply.
It asks what a thing supports, never what it is called.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import isclass
from typing import Any

import numpy as np

from . import checks, problems, results, theory
from .algorithms import SCAFFLSA, Algorithm, PowerStep, method, method_class
from .engine import resume, simulate
from .engine.hooks import draw_pass
from .errors import ArgumentError
from .problems import Problem
from .results import recipe
from .sampling import IID, SAME_MEANS, Markov, Replay, Sampling, law_of
from .value_objects import Displayed

Found = float | str
Check = tuple[Callable[[Any], Found], float, str]  # its function, its tolerance, its sentence and what to do
SEEDS = (3, 2**40 + 1)  # the second needs both halves of the key
REPEATS, STANDARD_ERRORS = 400, 5.0  # seeds of a comparison with theory, and what it allows
SLOWEST = 20_000  # rounds that a limit may take
OURS = "a fedlsa problem"


@dataclass(frozen=True, eq=False, repr=False)
class Conformance(Displayed):
    """What `check_method`, `check_problem` or `check_sampling` found; true where all that was asked holds.

    subject : what was checked; held, failed, skipped : sentences by the name of their check, with what to do
    """

    subject: str
    held: dict[str, str]
    failed: dict[str, str]
    skipped: dict[str, str]

    def __bool__(self) -> bool:
        return not self.failed

    def _display(self) -> tuple[str, list[tuple[str, Any]]]:
        kinds = {"FAILS": self.failed, "holds": self.held, "not asked": self.skipped}
        rows = [(f"{word} {name}", sentence) for word, found in kinds.items() for name, sentence in found.items()]
        return f"{self.subject}: {len(self.held)} of {len(self.held) + len(self.failed)} checks hold", rows


def _report(table: dict[str, Check], name: str, subject: Any, only: Sequence[str] | None) -> Conformance:
    out, wanted = (
        Conformance(name, {}, {}, {}),
        table if only is None else checks.entries("only", only, "names of checks"),
    )
    for check in [checks.choice("only", each, table) for each in wanted]:
        measure, tolerance, sentence = table[check]
        try:
            found = measure(subject)
        except Exception as error:  # of a stranger's code
            out.failed[check] = f"{sentence} It raised {type(error).__name__}: {error}"
            continue
        if isinstance(found, str):
            out.skipped[check] = f"{sentence} Not asked: {found}"
        else:
            into = out.held if found <= tolerance else out.failed  # NaN fails
            into[check] = f"{sentence} Found {found:.2g}, at most {tolerance:.2g}."
    return out


@dataclass(frozen=True, eq=False)
class Subject:
    """What is checked together: a method on a problem with a sampling, for some rounds."""

    method: Algorithm
    problem: Problem
    sampling: Sampling
    rounds: int

    def run(self, **changes: Any) -> Any:
        """A run of all rounds with two seeds, of which everything is kept."""
        given: dict[str, Any] = {"rounds": self.rounds, "seeds": SEEDS, "sampling": self.sampling}
        given |= {"algorithm": self.method, "problem": self.problem, "keep": ("theta", "xi", "state")} | changes
        return simulate(**{"record": given["rounds"] + 1, **given})

    def option(self, **options: Any) -> Algorithm:
        """The method with other options."""
        return replace(self.method, **options)

    @cached_property
    def usual(self) -> Any:
        """The run that others are compared with."""
        return self.run()

    @cached_property
    def law(self) -> Subject:
        """The same with the law that is drawn from."""
        law, sampling = law_of(self.problem, self.sampling)
        return replace(self, problem=law, sampling=sampling)

    @cached_property
    def exchanges(self) -> bool:
        """Whether the method declares an exchange, whose vectors have invariants of their own."""
        return type(self.method).exchange is not Algorithm.exchange

    @cached_property
    def refusal(self) -> str:
        """Why theory says nothing; empty where it does."""
        if "theory" not in self.method.supports:
            return f"supports of {type(self.method).__name__} does not hold 'theory'"
        try:
            theory.exact(self.problem, self.method, max(1, self.method.average_after or 0), sampling=self.sampling)
        except ArgumentError as refusal:
            return f"theory refuses it: {refusal}"
        return ""

    @cached_property
    def limit(self) -> Any:
        """The stationary law and rounds after which nothing is left of the start, or why there is none."""
        independent = isinstance(self.sampling, IID) and isinstance(self.method.step_size, float)
        if self.refusal or not independent or self.method.average_after is not None:
            return self.refusal or "only last iterates at a constant step size, of independent draws, have a limit here"
        limit = theory.stationary(self.problem, self.method)
        if not limit.stable:
            return "at this step size there is no limit"
        T = max(60, math.ceil(-40 / math.log(limit.radius)) if limit.radius > 0 else 60)
        return (limit, T) if T <= SLOWEST else f"the limit takes {T:,} rounds"


# --- methods ----------------------------------------------------------------------------------------------------------


def _distance(one: Any, two: Any, names: Sequence[str] = ("theta", "xi")) -> float:
    """The largest distance of vectors of two runs, relative to longer ones than 1; infinite where counts differ."""
    if any(not np.allclose(one[n], two[n], 1e-13, 0) for n in ("samples", "uploads", "communications", "diverged_at")):
        return math.inf
    pairs = [(one[name].values, two[name].values) for name in names]
    far = [np.linalg.norm(a - b, axis=-1) / np.maximum(1, np.linalg.norm(b, axis=-1)) for a, b in pairs]
    return float(max(each.max() for each in far))


def _engines(s: Subject) -> Found:
    return _distance(s.usual, s.run(engine="reference"))


def _options(s: Subject) -> Found:
    eta = PowerStep(float(s.method.eta(np.zeros(1, np.int64))[0]), 0.3)
    a = s.option(step_size=eta, projection=1.0, average_after=3)
    with contextlib.suppress(ArgumentError):  # some methods say in another way who takes part
        a = replace(a, participation=None, participants=min(2, s.problem.n_agents))
    return _distance(s.run(algorithm=a), s.run(algorithm=a, engine="reference"))


def _bits(s: Subject) -> Found:
    alone = [s.run(seeds=[seed], threads=1).theta.values[0] for seed in SEEDS]
    return float((np.stack(alone) != s.run(threads=2).theta.values).sum())


def _resumed(s: Subject) -> Found:
    a, T = s.option(average_after=None), s.rounds
    longer = resume(s.run(algorithm=a, rounds=T // 2), T, s.problem, a, [T], sampling=s.sampling)
    return float((longer.theta.values[:, -1] != s.run(algorithm=a).theta.values[:, -1]).sum())


def _recipes(s: Subject) -> Found:
    return float(not s.usual.identical(simulate(**results.arguments(s.usual, s.problem, s.method, s.sampling))))


def _invariant(s: Subject) -> Found:
    if s.exchanges:
        return "an exchange has vectors, and invariants, of its own"
    a = s.option(average_after=None)
    xi = np.stack([s.run(algorithm=a, rounds=t, engine=e).xi.values for t in (1, 2, 4) for e in ("cpu", "reference")])
    return float(np.abs(np.einsum("c,tscd->tsd", s.problem.weights, xi)).max() / max(1, np.abs(xi).max()))


def _single_step(s: Subject) -> Found:
    kind, N = type(s.method), s.problem.n_agents
    factors = s.method.agent_factors(N)
    alike = (factors is None or not np.ptp(factors, axis=1).any()) and s.method.taking_part(N) == N
    if s.exchanges or not alike or not kind.length:
        return "it is not promised by exchanges, nor where agents are unequal or some do not take part"
    a = s.option(**{kind.length: 1.0 if kind.random_lengths else s.sampling.thin})
    plain = type(kind.__name__, (kind,), {"gain": lambda self, eta, updates: 0 * eta})
    return _distance(s.run(algorithm=a), s.run(algorithm=plain(**recipe.fields_of(a))), ["theta"])


def _exact(s: Subject) -> Found:
    if s.refusal:
        return s.refusal
    given: dict[str, Any] = {"sampling": s.sampling, "record": [s.rounds // 2, s.rounds]}
    run = simulate(s.problem, s.method, s.rounds, REPEATS, keep=(), **given).squared_error.values
    off = run.mean(0) - theory.exact(s.problem, s.method, s.rounds, **given).mse.values
    return float((np.abs(off) / np.maximum(run.std(0, ddof=1) / math.sqrt(REPEATS), 1e-9 * run.mean(0))).max())


def _limits(s: Subject) -> Found:
    if isinstance(s.law.limit, str):
        return s.law.limit
    p, (law, T) = s.law.problem, s.law.limit
    edge = theory.stability_limit(p, s.method)
    stable = [theory.stationary(p, s.option(step_size=x * edge)).stable for x in (0.9, 1.1)]
    start = float(np.sum((p.start - p.theta_star) ** 2))
    gap = abs(float(theory.exact(p, s.method, T, record=[T]).mse[-1]) - law.mse) / max(law.mse, 1e-9 * start, 1e-150)
    return gap if stable == [True, False] else math.inf


def _fixed_point(s: Subject) -> Found:
    known = replace(s, problem=s.law.problem.on_means(), sampling=IID())
    if isinstance(known.limit, str):
        return known.limit
    law, T = known.limit
    if law.variance > 1e-20:
        return "its rounds are random even without noise"
    end = known.run(rounds=T, record=[T]).theta.values[:, -1]
    return float(np.abs(end - law.mean).max() / max(1, np.abs(law.mean).max()))


METHOD: dict[str, Check] = {
    "engines": (_engines, 1e-9, "The compiled engine gives what the reference gives: what is declared depends on its "
                "arguments alone."),
    "options": (_options, 1e-9, "So it does with all options: call super().__post_init__(), take eta as an argument."),
    "bits": (_bits, 0, "Neither threads nor groups of seeds change a bit: keep no state in the object."),
    "resumed": (_resumed, 0, "A run that stops halfway goes on to the same bits: declare what is remembered."),
    "recipes": (_recipes, 0, "A result is made again from what it holds: let frozen fields say all that there is."),
    "invariant": (_invariant, 1e-13, "The weighted sum of control variates is 0 after every round: see gain."),
    "single_step": (_single_step, 1e-11, "With one local step control variates change nothing: see gain and server."),
    "exact": (_exact, STANDARD_ERRORS, "Simulated runs have the exact mean squared error, in standard errors: theory "
              "reads gain, server, agent_factors, round_steps or exchange alone."),
    "limits": (_limits, 1e-6, "The exact curve ends in the stationary law, below the stability limit: as for exact."),
    "fixed_point": (_fixed_point, 1e-8, "Without noise it rests where theory says, at theta_star plus a bias: as for "
                    "exact."),
}  # fmt: skip


def check_method(
    algorithm: Algorithm | type[Algorithm],
    problem: Problem | None = None,
    sampling: Sampling = IID(),  # noqa: B008  immutable
    rounds: int = 8,
    only: Sequence[str] | None = None,
) -> Conformance:
    """What holds for all methods, asked of one of your own: engines, options, bits, theory and its fixed point.

    algorithm : a method, or a class that is made from step_size and local_steps; what it does not support is not asked
    problem, sampling, rounds : with what; by default five sites in a plane, on which the class has step_size 0.05
    only : names of the checks that are asked, as the report shows them; by default all

    >>> fl.check_method(fl.SCAFFLSA(0.05, 5), only=["invariant"]).failed
    {}
    """
    if isclass(algorithm):
        algorithm = method_class("algorithm", algorithm).with_steps(0.05, 5)
    subject = Subject(
        method("algorithm", algorithm),
        problems.ring(agents=5, noise=0.4) if problem is None else checks.instance("problem", problem, Problem, OURS),
        checks.instance("sampling", sampling, Sampling, "an fl.Sampling"),
        checks.integer("rounds", rounds, at_least=4),
    )
    return _report(METHOD, results.method_label(subject.method), subject, only)


# --- problems ---------------------------------------------------------------------------------------------------------


def _each(p: Problem, function: Callable[..., Any]) -> Any:
    """function(prob, A, b, agent) of the outcomes of each agent."""
    spans = list(p.spans())
    return np.array(
        [function(p.prob[spans[m]], *p.observations.matrices(spans[m]), c) for c, m in enumerate(p.assignment)]
    )


def _far(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest number."""
    return float(np.abs(np.subtract(found, wanted)).max() / max(1e-150, np.abs(wanted).max()))


def _means(p: Problem) -> Found:
    A, b = _each(p, lambda q, A, b, c: np.tensordot(q, A, 1)), _each(p, lambda q, A, b, c: q @ b)
    total = [p.weights.sum(), *_each(p, lambda q, A, b, c: q.sum())]
    return max(_far(p.A_bar, A), _far(p.b_bar, b), _far(total, 1.0))


def _solution(p: Problem) -> Found:
    left = np.einsum("cij,j->ci", p.A_bar, p.theta_star) - p.b_bar
    size = np.abs(p.A_bar).max() * np.abs(p.theta_star).max() + np.abs(p.b_bar).max()
    return float(max(np.abs(p.weights @ left).max(), np.abs(p.xi_star - left).max()) / max(size, 1e-150))


def _hurwitz(p: Problem) -> Found:
    return -float(np.linalg.eigvals(np.tensordot(p.weights, p.A_bar, 1)).real.min())


def _moments(p: Problem) -> Found:
    def covariance(q: Any, A: Any, b: Any, c: int) -> Any:
        off = (A - p.A_bar[c]) @ p.theta_star - (b - p.b_bar[c])
        return np.einsum("z,zi,zj->ij", q, off, off)

    return _far(theory.constants(p).Sigma_omega, _each(p, covariance))


def _read_only(p: Problem) -> Found:
    parts = [recipe.fields_of(part) for part in (p, p.observations, p.chain) if part is not None]
    arrays = [x for part in parts for x in part.values() if isinstance(x, np.ndarray)]
    return float(sum(x.flags.writeable for x in [*arrays, p.theta_star, p.table_A_bar, p.table_xi_star]))


def _chains(p: Problem) -> Found:
    if (chain := p.chain) is None:
        return "it has no chain"
    far = [0.0]
    for z, first, end in zip(p.spans(), chain.first_state[:-1], chain.first_state[1:], strict=True):
        mu = chain.stationary[first:end]
        flow = mu[chain.origin[z]] * chain.conditional[z]
        far += [np.abs(np.bincount(chain.successor[z], flow, len(mu)) - mu).max(), np.abs(flow - p.prob[z]).max()]
    return float(max(far))


def _recipe(p: Problem) -> Found:
    if not p.recipe:
        return "it has no recipe"
    again = problems.from_recipe(recipe.value(recipe.problem_text(p, with_data=True)))
    return float(recipe.problem_digest(again) != recipe.problem_digest(p))


def _with_method(p: Problem, sampling: Sampling = IID()) -> Subject:  # noqa: B008  immutable
    """SCAFFLSA at a stable step size."""
    return Subject(SCAFFLSA(theory.stability_limit(p, SCAFFLSA(1.0, 3), 0.1) / 3, 3), p, sampling, 6)


def _simulated(p: Problem) -> Found:
    ways = [IID(), *([Markov()] if p.chain is not None else []), *([Replay()] if p.ordered else [])]
    return max(float(_engines(_with_method(p, way))) for way in ways)


PROBLEM: dict[str, Check] = {
    "means": (_means, 1e-12, "Laws and weights sum to one, A_bar and b_bar are means: leave them to fl.Problem."),
    "solution": (_solution, 1e-9, "theta_star solves the averaged system, xi_star is what it leaves of each agent's."),
    "hurwitz": (_hurwitz, 0, "Eigenvalues of the averaged matrix have real parts above 0: else nothing converges."),
    "moments": (_moments, 1e-9, "Second moments of theory are those of the observations: see means."),
    "read_only": (_read_only, 0, "Arrays cannot be written to: leave them to fl.Problem."),
    "chains": (_chains, 1e-12, "Laws of chains stay what they are, and give those of outcomes: solve mu P = mu."),
    "recipe": (_recipe, 0, "Its recipe, as text, makes an equal problem: end a constructor with `recorded`."),
    "simulated": (_simulated, 1e-9, "The compiled engine gives what the reference gives, in all its samplings."),
    "curve": (lambda p: _exact(_with_method(p)), STANDARD_ERRORS, "Simulated runs have the exact mean squared error, "
              "in standard errors: see means and moments."),
}  # fmt: skip


def check_problem(problem: Problem, only: Sequence[str] | None = None) -> Conformance:
    """What holds for all problems: means and moments by enumeration, the solution, chains, recipe, engines, theory.

    problem : with tables that can be enumerated; only : names of the checks that are asked, by default all

    >>> report = fl.check_problem(fl.problems.garnet(agents=2, states=4, features=2))
    >>> bool(report), len(report.held), report.skipped
    (True, 9, {})
    """
    checks.instance("problem", problem, Problem, OURS)
    return _report(PROBLEM, f"Problem made by {problem.made_by}", problem, only)


# --- samplings --------------------------------------------------------------------------------------------------------


def _law(s: Subject) -> Found:
    law = law_of(s.problem, s.sampling)[0]
    return max(_far(law.A_bar, s.problem.A_bar), _far(law.b_bar, s.problem.b_bar))


def _frequencies(s: Subject) -> Found:
    if s.sampling.order is None:
        return "it has no order of its own"
    length, passes = int(np.diff(s.problem.first).max()), 200
    seen = np.bincount(np.concatenate([draw_pass(s.sampling, 0, 0, k, length) for k in range(passes)]), None, length)
    return float(np.abs(seen - passes).max() / math.sqrt(passes))  # of counts that are Poisson, or less random


SAMPLING: dict[str, Check] = {
    "law": (_law, SAME_MEANS, "Its law has the means of the problem: reweight by `problem.with_prob`."),
    "frequencies": (_frequencies, STANDARD_ERRORS, "An order shows all rows equally often, in standard errors: else it "
                    "solves another system."),
    **{name: METHOD[name] for name in ("engines", "bits", "resumed", "recipes", "exact")},
}  # fmt: skip


def check_sampling(
    sampling: Sampling, problem: Problem | None = None, only: Sequence[str] | None = None
) -> Conformance:
    """What holds for all samplings, asked of one of your own: its law or its order, engines, bits, and theory.

    sampling : its object; problem : on which, by default five sites in a plane
    only : names of the checks that are asked, by default all

    >>> fl.check_sampling(fl.Replay(), only=["bits", "resumed"]).failed
    {}
    """
    checks.instance("sampling", sampling, Sampling, "an fl.Sampling")
    problem = problems.ring(agents=5, noise=0.4) if problem is None else problem
    return _report(SAMPLING, repr(sampling), Subject(SCAFFLSA(0.05, 7 * sampling.thin), problem, sampling, 8), only)

"""What every method, problem and sampling satisfies, as functions for whoever makes one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import isclass
from itertools import product
from typing import Any

import numpy as np

from . import checks, problems, results, theory
from .algorithms import SCAFFLSA, Algorithm, PowerLength, PowerStep, method, method_class
from .engine import resume, simulate
from .engine.hooks import check_draws, compiled_draw, draw_pass
from .errors import ArgumentError, ArgumentTypeError
from .problems import Problem, Stream
from .results import recipe
from .sampling import IID, SAME_MEANS, Markov, Replay, Sampling, law_of
from .value_objects import Displayed

SEEDS = (3, 2**40 + 1)  # the second needs both halves of the key
REPEATS, STANDARD_ERRORS = 400, 5.0  # seeds of a comparison with theory, and what it allows
SLOWEST = 20_000  # rounds that a limit may take
DRAWS = 20_000  # observations of each agent whose mean is looked at
METHOD = {
    "engines": 1e-9, "options": 1e-9, "bits": 0, "resumed": 0, "recipes": 0, "invariant": 1e-13, "single_step": 1e-11,
    "exact": STANDARD_ERRORS, "limits": 1e-6, "fixed_point": 1e-8,
}  # fmt: skip
PROBLEM = {
    "draws": STANDARD_ERRORS,
    "means": 1e-12, "solution": 1e-9, "hurwitz": 0, "moments": 1e-9, "read_only": 0, "chains": 1e-12, "recipe": 0,
    "simulated": 1e-9, "curve": STANDARD_ERRORS,
}  # fmt: skip
SAMPLING = {"law": SAME_MEANS, "frequencies": STANDARD_ERRORS}
SAMPLING |= {name: METHOD[name] for name in ("engines", "bits", "resumed", "recipes", "exact")}


class NotAsked(Exception):
    """Why a check does not apply."""


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


@dataclass(frozen=True, eq=False)
class Checks:
    """A method on a problem with a sampling, for some rounds; checks of a problem choose their method.

    The docstring of a check is the sentence that is shown. It returns a figure, at most its tolerance where the check
    holds, maybe with a sentence more, or raises `NotAsked`. It asks what a thing supports, never what it is called.
    """

    method: Any
    problem: Problem
    sampling: Sampling = IID()  # noqa: RUF009  immutable
    rounds: int = 6

    def report(self, name: str, tolerances: dict[str, float], only: Sequence[str] | None) -> Conformance:
        """What the checks of these tolerances find, or `only` some of them."""
        out = Conformance(name, {}, {}, {})
        wanted = list(tolerances) if only is None else checks.entries("only", only, "names of checks")
        for check in [checks.choice("only", each, tolerances) for each in wanted]:
            measure, most = getattr(self, check), tolerances[check]
            try:
                given = measure()
                found, *more = given if isinstance(given, tuple) else (given,)
                into = out.held if found <= most else out.failed  # NaN fails
                said = " ".join([f"Found {found:.2g}, at most {most:.2g}.", *more])
            except NotAsked as reason:
                into, said = out.skipped, f"Not asked: {reason}"
            except Exception as error:  # of a stranger's code
                into, said = out.failed, f"It raised {type(error).__name__}: {error}"
            into[check] = f"{' '.join(str(measure.__doc__).split())} {said}"
        return out

    def run(self, **changes: Any) -> Any:
        """A run of all rounds with two seeds, of which everything is kept."""
        given: dict[str, Any] = {"rounds": self.rounds, "seeds": SEEDS, "sampling": self.sampling}
        given |= {"algorithm": self.method, "problem": self.problem, "keep": ("theta", "xi", "state")} | changes
        return simulate(**{"record": given["rounds"] + 1, **given})

    def ask_theory(self) -> None:
        """Refuse what theory says nothing of."""
        if "theory" not in self.method.supports:
            raise NotAsked(f"supports of {type(self.method).__name__} does not hold 'theory'")
        try:
            theory.exact(self.problem, self.method, max(1, self.method.average_after or 0), sampling=self.sampling)
        except ArgumentError as refusal:
            raise NotAsked(f"theory refuses it: {refusal}") from refusal

    def limit(self) -> tuple[Problem, Any, int]:
        """The problem that is drawn from, its stationary law, and rounds after which nothing is left of the start."""
        a, (p, sampling) = self.method, law_of(self.problem, self.sampling)
        self.ask_theory()
        if not (isinstance(sampling, IID) and isinstance(a.step_size, float) and a.average_after is None):
            raise NotAsked("only last iterates at a constant step size, of independent draws, have a limit here")
        law = theory.stationary(p, a)
        if not law.stable:
            raise NotAsked("at this step size there is no limit")
        T = max(60, math.ceil(-40 / math.log(law.radius)) if law.radius > 0 else 60)
        if T > SLOWEST:
            raise NotAsked(f"the limit takes {T:,} rounds")
        return p, law, T

    def engines(self) -> float:
        """The compiled engine gives what the reference gives: what is declared depends on its arguments alone."""
        return _distance(self.run(), self.run(engine="reference"))

    def options(self) -> float:
        """So it does with all options: call super().__post_init__(), take eta as an argument."""
        eta = PowerStep(float(self.method.eta(np.zeros(1, np.int64))[0]), 0.3)
        a = replace(self.method, step_size=eta, projection=1.0, average_after=3)
        fixed = a.length and not a.random_lengths and not a.grows
        lengths = {a.length: PowerLength(max(1, round(a.mean_steps)), 0.4)} if fixed else {}
        who = {"participation": None, "participants": min(2, self.problem.n_agents)}
        for more in (lengths, who):  # some methods have rounds of one length, or say in another way who takes part
            with contextlib.suppress(ArgumentError, ArgumentTypeError):
                other = replace(a, **more)
                other.round_costs(self.problem.n_agents, self.problem.dim)  # refuses participants beside presence
                a = other
        return replace(self, method=a).engines()

    def bits(self) -> float:
        """Neither threads nor groups of seeds change a bit: keep no state in the object."""
        alone = [self.run(seeds=[seed], threads=1).theta.values[0] for seed in SEEDS]
        return float((np.stack(alone) != self.run(threads=2).theta.values).sum())

    def resumed(self) -> float:
        """A run that stops halfway goes on to the same bits: declare what is remembered."""
        a, T = replace(self.method, average_after=None), self.rounds
        longer = resume(self.run(algorithm=a, rounds=T // 2), T, self.problem, a, [T], sampling=self.sampling)
        return float((longer.theta.values[:, -1] != self.run(algorithm=a).theta.values[:, -1]).sum())

    def recipes(self) -> float:
        """A result is made again from what it holds: let frozen fields say all that there is."""
        run = self.run()
        return float(not run.identical(simulate(**results.arguments(run, self.problem, self.method, self.sampling))))

    def invariant(self) -> float:
        """The weighted sum of control variates is 0 after every round: see gain."""
        if type(self.method).exchange is not Algorithm.exchange:
            raise NotAsked("an exchange has vectors, and invariants, of its own")
        a, ways = replace(self.method, average_after=None), product((1, 2, 4), ("cpu", "reference"))
        xi = np.stack([self.run(algorithm=a, rounds=t, engine=engine).xi.values for t, engine in ways])
        return float(np.abs(np.einsum("c,tscd->tsd", self.problem.weights, xi)).max() / max(1, np.abs(xi).max()))

    def single_step(self) -> float:
        """With one local step control variates change nothing: see gain and server."""
        kind, N, factors = type(self.method), self.problem.n_agents, self.method.agent_factors(self.problem.n_agents)
        alike = (factors is None or not np.ptp(factors, axis=1).any()) and self.method.taking_part(N) == N
        if kind.exchange is not Algorithm.exchange or not alike or not kind.length:
            raise NotAsked("it is not promised by exchanges, nor where agents are unequal or some do not take part")
        a = replace(self.method, **{kind.length: 1.0 if kind.random_lengths else self.sampling.thin})
        plain = type(kind.__name__, (kind,), {"gain": lambda self, eta, updates: 0 * eta})
        return _distance(self.run(algorithm=a), self.run(algorithm=plain(**recipe.fields_of(a))), ["theta"])

    def exact(self) -> float:
        """Simulated runs have the exact mean squared error, in standard errors: theory reads gain, server,
        agent_factors, round_steps or exchange alone."""
        self.ask_theory()
        given: dict[str, Any] = {"sampling": self.sampling, "record": [self.rounds // 2, self.rounds]}
        run = simulate(self.problem, self.method, self.rounds, REPEATS, keep=(), **given).squared_error.values
        off = run.mean(0) - theory.exact(self.problem, self.method, self.rounds, **given).mse.values
        return float((np.abs(off) / np.maximum(run.std(0, ddof=1) / math.sqrt(REPEATS), 1e-9 * run.mean(0))).max())

    def limits(self) -> float:
        """The exact curve ends in the stationary law, below the stability limit: as for exact."""
        a, (p, law, T) = self.method, self.limit()
        edge = theory.stability_limit(p, a)
        stable = [theory.stationary(p, replace(a, step_size=x * edge)).stable for x in (0.9, 1.1)]
        start = float(np.sum((p.start - p.theta_star) ** 2))
        gap = abs(float(theory.exact(p, a, T, record=[T]).mse[-1]) - law.mse) / max(law.mse, 1e-9 * start, 1e-150)
        return gap if stable == [True, False] else math.inf

    def fixed_point(self) -> tuple[float, str]:
        """Without noise it rests where theory says, at theta_star plus a bias: as for exact."""
        known = replace(self, problem=self.problem.on_means(), sampling=IID())
        _, law, T = known.limit()
        if law.variance > 1e-20:
            raise NotAsked("its rounds are random even without noise")
        end = known.run(rounds=T, record=[T]).theta.values[:, -1]
        said = f"On this problem that is {np.linalg.norm(law.bias):.2g} from theta_star."
        return float(np.abs(end - law.mean).max() / max(1, np.abs(law.mean).max())), said

    def law(self) -> float:
        """Its law has the means of the problem: reweight by `problem.with_prob`."""
        law, _ = law_of(self.problem, self.sampling)
        return max(_far(law.A_bar, self.problem.A_bar), _far(law.b_bar, self.problem.b_bar))

    def frequencies(self) -> float:
        """An order shows all rows equally often, in standard errors: else it solves another system."""
        if self.sampling.order is None:
            raise NotAsked("it has no order of its own")
        passes, worst = 200, 0.0
        for length in {1, 2, 7, *np.diff(self.problem.first).tolist()}:
            rows = np.concatenate([draw_pass(self.sampling, 0, 0, k, length) for k in range(passes)])
            counts = np.bincount(rows, None, length)  # Poisson, or less random
            worst = max(worst, float(np.abs(counts - passes).max() / math.sqrt(passes)))
        return worst

    def draws(self) -> float:
        """Numbers that a function draws have the stated means, in standard errors: A(z) = u v^T and b(z) = y u."""
        p, worst = self.problem, 0.0
        if not isinstance(p.observations, Stream):
            raise NotAsked("observations are listed")
        d, x, kernel = p.dim, np.zeros((DRAWS, 3 * p.dim)), compiled_draw(p.observations)
        for c in range(p.n_agents):
            for k in range(DRAWS):
                kernel.ctypes(x[k].ctypes.data, d, 0, c, k, 0, 0, 0)
            z = x[:, :d, None] * np.insert(x[:, d : 2 * d], d, -x[:, 2 * d], axis=1)[:, None]  # A(z), then b(z)
            off = np.abs(z.mean(0) - np.column_stack([p.A_bar[c], p.b_bar[c]]))
            error = np.maximum(z.std(0) / math.sqrt(DRAWS), 1e-12 * max(np.abs(z).max(), 1e-100))
            worst = float(np.maximum(worst, (off / error).max()))  # NaN stays NaN
        check_draws(p.observations)
        return worst

    def outcomes(self) -> list[tuple[Any, Any, Any]]:
        """(probabilities, A, b) of each agent."""
        p, spans = self.problem, list(self.problem.spans())
        if isinstance(p.observations, Stream):
            raise NotAsked("observations are drawn")
        return [(p.prob[spans[m]], *p.observations.matrices(spans[m])) for m in p.assignment]

    def means(self) -> float:
        """Laws and weights sum to one, A_bar and b_bar are means: leave them to fl.Problem."""
        p, laws = self.problem, self.outcomes()
        A_bar, b_bar = [np.tensordot(q, A, 1) for q, A, _ in laws], [q @ b for q, _, b in laws]
        sums = [p.weights.sum(), *(q.sum() for q, _, _ in laws)]
        return max(_far(p.A_bar, A_bar), _far(p.b_bar, b_bar), _far(sums, 1.0))

    def solution(self) -> float:
        """theta_star solves the averaged system, xi_star is what it leaves of each agent's."""
        p = self.problem
        left = np.einsum("cij,j->ci", p.A_bar, p.theta_star) - p.b_bar
        size = np.abs(p.A_bar).max() * np.abs(p.theta_star).max() + np.abs(p.b_bar).max()
        return float(max(np.abs(p.weights @ left).max(), np.abs(p.xi_star - left).max()) / max(size, 1e-150))

    def hurwitz(self) -> float:
        """Eigenvalues of the averaged matrix have real parts above 0: else nothing converges."""
        return -float(np.linalg.eigvals(np.tensordot(self.problem.weights, self.problem.A_bar, 1)).real.min())

    def moments(self) -> float:
        """Second moments of theory are those of the observations: see means."""
        p, found = self.problem, []
        for (q, A, b), A_bar, b_bar in zip(self.outcomes(), p.A_bar, p.b_bar, strict=True):
            off = (A - A_bar) @ p.theta_star - (b - b_bar)
            found.append(np.einsum("z,zi,zj->ij", q, off, off))
        return _far(theory.constants(p).Sigma_omega, np.array(found))

    def read_only(self) -> float:
        """Arrays cannot be written to: leave them to fl.Problem."""
        p = self.problem
        parts = [recipe.fields_of(part) for part in (p, p.observations, p.chain) if part is not None]
        arrays = [x for part in parts for x in part.values() if isinstance(x, np.ndarray)]
        return float(sum(x.flags.writeable for x in [*arrays, p.theta_star, p.table_A_bar, p.table_xi_star]))

    def chains(self) -> float:
        """Laws of chains stay what they are, and give those of outcomes: solve mu P = mu."""
        p, chain, far = self.problem, self.problem.chain, [0.0]
        if chain is None:
            raise NotAsked("it has no chain")
        for z, first, end in zip(p.spans(), chain.first_state[:-1], chain.first_state[1:], strict=True):
            mu = chain.stationary[first:end]
            flow = mu[chain.origin[z]] * chain.conditional[z]
            far += [np.abs(np.bincount(chain.successor[z], flow, len(mu)) - mu).max(), np.abs(flow - p.prob[z]).max()]
        return float(max(far))

    def recipe(self) -> float:
        """Its recipe, as text, makes an equal problem: end a constructor with `recorded`."""
        if not self.problem.recipe or isinstance(self.problem.observations, Stream):
            raise NotAsked("it has no recipe that is text")
        again = problems.from_recipe(recipe.value(recipe.problem_text(self.problem, with_data=True)))
        return float(recipe.problem_digest(again) != recipe.problem_digest(self.problem))

    def with_method(self) -> Checks:
        """The same with SCAFFLSA at a stable step size."""
        z, p = self.problem.observations, self.problem
        p = p.on_means() if isinstance(z, Stream) and not z.moments else p
        return replace(self, method=SCAFFLSA(theory.stability_limit(p, SCAFFLSA(1.0, 3), 0.1) / 3, 3))

    def simulated(self) -> float:
        """The compiled engine gives what the reference gives, in all its samplings."""
        p = self.problem
        ways = [IID(), *([Markov()] if p.chain is not None else []), *([Replay()] if p.ordered else [])]
        return max(replace(self.with_method(), sampling=way).engines() for way in ways)

    def curve(self) -> float:
        """Simulated runs have the exact mean squared error, in standard errors: see means and moments."""
        return self.with_method().exact()


def _distance(one: Any, two: Any, names: Sequence[str] = ("theta", "xi")) -> float:
    """The largest distance of vectors of two runs, relative to longer ones than 1; infinite where counts differ."""
    if any(not np.allclose(one[n], two[n], 1e-13, 0) for n in ("samples", "uploads", "communications", "diverged_at")):
        return math.inf
    pairs = [(one[name].values, two[name].values) for name in names]
    far = [np.linalg.norm(a - b, axis=-1) / np.maximum(1, np.linalg.norm(b, axis=-1)) for a, b in pairs]
    return float(max(each.max() for each in far))


def _far(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest number."""
    return float(np.abs(np.subtract(found, wanted)).max() / max(1e-150, np.abs(wanted).max()))


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
        kind = method_class("algorithm", algorithm)
        try:
            algorithm = kind.with_steps(0.05, 5)
        except TypeError as error:  # of a constructor that wants more
            rule = f"algorithm must be made from step_size and local_steps, or be an object, {kind.__name__}(...)"
            raise ArgumentTypeError(f"{rule}; got the class: {error}") from error
    a = method("algorithm", algorithm)
    checks.instance("sampling", sampling, Sampling, "an fl.Sampling")
    subject = Checks(a, _checked(problem, sampling), sampling, checks.integer("rounds", rounds, at_least=4))
    return subject.report(results.method_label(a), METHOD, only)


def _checked(problem: Problem | None, sampling: Sampling) -> Problem:
    if problem is not None:
        return checks.instance("problem", problem, Problem, "a fedlsa problem")
    if isinstance(sampling, Markov):  # which needs chains
        return problems.garnet(agents=3, states=6, features=2, seed=0)
    return problems.ring(agents=5, noise=0.4)


def check_problem(problem: Problem, only: Sequence[str] | None = None) -> Conformance:
    """What holds for all problems: means and moments by enumeration, the solution, chains, recipe, engines, theory.

    problem : with tables that can be enumerated, or a stream; only : names of the checks that are asked, by default all

    >>> report = fl.check_problem(fl.problems.garnet(agents=2, states=4, features=2))
    >>> bool(report), len(report.held), list(report.skipped)
    (True, 9, ['draws'])
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    return Checks(None, problem).report(f"Problem made by {problem.made_by}", PROBLEM, only)


def check_sampling(
    sampling: Sampling, problem: Problem | None = None, only: Sequence[str] | None = None
) -> Conformance:
    """What holds for all samplings, asked of one of your own: its law or its order, engines, bits, and theory.

    sampling : its object; problem : on which, by default five sites in a plane, or chains where it follows them
    only : names of the checks that are asked, by default all

    >>> fl.check_sampling(fl.Replay(), only=["bits", "resumed"]).failed
    {}
    """
    checks.instance("sampling", sampling, Sampling, "an fl.Sampling")
    subject = Checks(SCAFFLSA(0.05, 7 * sampling.thin), _checked(problem, sampling), sampling, 8)
    return subject.report(repr(sampling), SAMPLING, only)

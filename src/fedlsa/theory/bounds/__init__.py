"""The right-hand sides of the paper's theorems: from a method and a way of sampling to the one that speaks of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike

from ... import checks, results
from ...algorithms import SCAFFLSA, Algorithm, FedLSA, Scaffnew, method
from ...errors import ArgumentError
from ...problems import Problem
from ...sampling import IID, Markov, Sampling
from ..problem_constants import constants
from .theorems import (
    Bound,
    Inputs,
    Rounds,
    claim_inputs,
    computed_inputs,
    constant_step,
    fedlsa_bound,
    scafflsa_bound,
    scaffnew_bound,
    start_distance,
)
from .trajectory_bounds import coupled_bound, last_iterate_bound, markov_constants

THEOREMS: dict[type[Algorithm], tuple[Callable[..., Bound], str, str]] = {  # with its label, and that for TD(0)
    FedLSA: (fedlsa_bound, "th:2nd_moment_no_cv_constants", "th:cor_fed_td_no_cv"),
    SCAFFLSA: (scafflsa_bound, "thm:upper-bound-dist-param-scafflsa", "cor:iteration-complexity-fed-td"),
    Scaffnew: (scaffnew_bound, "thm:potential_psi_t_sto_com_appendix", "thm:potential_psi_t_sto_com_appendix"),
}


def theorem(
    problem: Problem, algorithm: Algorithm, rounds: Rounds, start: float, given: Inputs, promised: bool = False
) -> Bound:
    """The bound of a method's theorem; promised : whether the numbers are those of the Claim for TD(0)."""
    function, label, td_label = THEOREMS[type(algorithm)]
    return function(problem, algorithm, rounds, start, given, td_label if promised else label)


def bound(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int | Sequence[int],
    theta_0: ArrayLike | None = None,
    sampling: Sampling = IID(),  # noqa: B008  frozen
    record: int | Sequence[int] | None = None,
) -> Bound:
    """The theorem on this method after `rounds` communications: what it bounds, its value, terms and conditions.

    problem : one of fl.problems
    algorithm : the method, with its step size and local steps
    sampling : fl.IID(), or fl.Markov(...) for trajectories

    FedLSA (th:2nd_moment_no_cv_constants), SCAFFLSA (thm:upper-bound-dist-param-scafflsa), Scaffnew
    (thm:potential_psi_t_sto_com_appendix), FedLSA on trajectories (lem:last_iterate_bound).
    theta_0 : (d,), by default `problem.start`; control variates start at 0.
    record : None for the last round alone; a count or a list of rounds, as in `simulate` and `exact`, for a curve.
    A list in the place of `rounds` is short for recording that list; constants are computed once for all rounds.
    Where conditions fail a TheoryWarning says which, and the number is returned all the same.
    """
    algorithm, eta, t = _checked(problem, algorithm, rounds, record)
    if isinstance(sampling, Markov) and isinstance(algorithm, FedLSA):
        known, markov, q = constants(problem), markov_constants(problem), _thinned(algorithm, sampling.thin)
        return last_iterate_bound(known, markov, algorithm, t, start_distance(problem, theta_0), q).warn_unmet()
    if not isinstance(sampling, IID):
        raise ArgumentError(
            f"the theorem on {type(algorithm).__name__} needs i.i.d. sampling; got {checks.show(sampling)}"
        )
    given = computed_inputs(constants(problem), eta)
    return theorem(problem, algorithm, t, start_distance(problem, theta_0), given).warn_unmet()


def td_bound(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int | Sequence[int],
    theta_0: ArrayLike | None = None,
    record: int | Sequence[int] | None = None,
) -> Bound:
    """The same theorem for TD(0) with the Claim's constants in the place of the computed ones (prop:condition_check).

    problem : one of fl.problems, of TD(0)
    algorithm : the method, with its step size and local steps
    rounds, theta_0, record : as in `bound`

    For FedLSA this is th:cor_fed_td_no_cv with its constants, a = (1 - gamma) nu / 2.
    """
    algorithm, eta, t = _checked(problem, algorithm, rounds, record)
    given = claim_inputs(problem, eta)
    return theorem(problem, algorithm, t, start_distance(problem, theta_0), given, promised=True).warn_unmet()


def markov_bound(
    problem: Problem,
    algorithm: FedLSA,
    rounds: int | Sequence[int],
    thin: int,
    theta_0: ArrayLike | None = None,
    record: int | Sequence[int] | None = None,
) -> Bound:
    """A bound on the MSE of FedLSA on trajectories that are thinned, from coupling (eq:last_iter_bound).

    problem : one of fl.problems, made of chains
    algorithm : the method, with its step size and local steps
    rounds, theta_0, record : as in `bound`
    thin : of so many observations in a row one makes an update (the paper's q)
    """
    given, _, t = _checked(problem, algorithm, rounds, record)
    checks.instance("algorithm", given, FedLSA, "a FedLSA")
    q = _thinned(algorithm, checks.integer("thin", thin, at_least=1))
    start = start_distance(problem, theta_0)
    return coupled_bound(constants(problem), markov_constants(problem), algorithm, t, start, q).warn_unmet()


def _thinned(algorithm: FedLSA, thin: int) -> int:
    """`thin`, if a round then still makes an update."""
    if thin > algorithm.local_steps:
        raise ArgumentError(f"thin must be at most local_steps, {algorithm.local_steps}; got {thin}")
    return thin


def _checked(problem: Problem, given: Any, rounds: Any, record: Any) -> tuple[Algorithm, float, Rounds]:
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    algorithm = method("algorithm", given, "theory")
    eta = constant_step(algorithm)
    if checks.is_sequence(rounds):
        if record is not None:
            raise ArgumentError("record must be None where rounds is a list of rounds; got both")
        listed = checks.entries("rounds", rounds, "a number of rounds, or several")
        return algorithm, eta, results.recorded_rounds(listed, checks.integer("rounds", listed[-1]) if listed else 0)
    t = checks.integer("rounds", rounds)
    return algorithm, eta, t if record is None else results.recorded_rounds(record, t)

"""Problems from data, one table per site: observations, rows of a regression, or logs of transitions (TD)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, SingularSystemError
from ..value_objects import Displayed, ReadOnly, Rows, fields_of
from . import features as maps
from .arguments import agents, filled, offsets, recorded, same_columns, tuples
from .system import Dense, Flags, Problem, RankOne

FIELDS = ("phi", "r", "phi_next", "terminated", "truncated", "importance")  # the last two may be missing


def from_observations(
    tables: Iterable[tuple[ArrayLike, ArrayLike, ArrayLike]],
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """A federated linear system (eq:lsa_syst_fed) from any finite law of A(z) and b(z) (assum:noise-level-flsa).

    tables : tuples (prob, A, b), prob : (K,) summing to one, A : (K, d, d), b : (K, d); K may differ.
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    given = tuples("tables", tables, ("prob", "A", "b"))
    prob, A, b = [], list[Floats](), []
    for m, (law, matrices, vectors) in enumerate(given):
        prob.append(checks.probabilities(f"prob in tables[{m}]", law, ("K",)))
        K, d = len(prob[-1]), A[0].shape[1] if A else "d"
        A.append(filled(f"A in tables[{m}]", matrices, (K, d, d)))
        b.append(checks.array(f"b in tables[{m}]", vectors, (K, A[-1].shape[1])))
    assigned, w = agents(len(given), assignment, weights)
    first = offsets([len(law) for law in prob])
    z, laws = Dense(np.concatenate(A), np.concatenate(b)), [np.array(law) for law, _, _ in given]
    table_arguments = list(zip(laws, np.split(z.A, first[1:-1]), np.split(z.b, first[1:-1]), strict=True))
    problem = Problem(z, np.concatenate(prob), first, assigned, w)
    return recorded(problem, "from_observations", {"tables": table_arguments}, weights=weights, assignment=assignment)


def regression(
    sites: Iterable[tuple[ArrayLike, ArrayLike]],
    ridge: float = 0.0,
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Least squares as a federated linear system (eq:lsa_syst_fed): A(z) = x x^T + ridge I and b(z) = y x.

    sites : pairs (X, y), X : (K, d) and y : (K,); K may differ from site to site, each row has probability 1/K.
    With weights proportional to K, theta_star is the (ridge) estimate from the data of all sites together.
    ridge : strength of the penalty, at least 0
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    given = tuples("sites", sites, ("X", "y"))
    same_columns("X in sites", [features for features, _ in given])
    strength = checks.real("ridge", ridge, at_least=0)
    X, y = list[Floats](), []
    for m, (features, target) in enumerate(given):
        X.append(filled(f"X in sites[{m}]", features, ("K", X[0].shape[1] if X else "d")))
        y.append(checks.array(f"y in sites[{m}]", target, (len(X[-1]),)))
    assigned, w = agents(len(given), assignment, weights)
    first = offsets([len(rows) for rows in X])
    row = np.arange(first[-1], dtype=np.uint32)
    z = RankOne(np.concatenate(X), row, row, np.concatenate(y), strength)
    site_arguments = list(zip(np.split(z.rows, first[1:-1]), np.split(z.y, first[1:-1]), strict=True))
    problem = Problem(z, np.repeat(1 / np.diff(first), np.diff(first)), first, assigned, w, ordered=True)
    given_as = {"sites": site_arguments, "ridge": strength}
    return recorded(problem, "regression", given_as, weights=weights, assignment=assignment)


def from_transitions(
    logs: Iterable[tuple[ArrayLike | None, ...]],
    discount: float,
    trace: float = 0.0,
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """TD(lambda) on recorded transitions (eq:matr_A_def_td_app; trace is lambda, 0 gives the paper's TD(0)).

    logs : tuples (phi, r, phi_next, terminated[, truncated[, importance]]) of K rows in the order in which they were
    recorded, phi, phi_next : (K, d), r : (K,), terminated, truncated : (K,) booleans, importance : (K,) ratios
    rho_k = pi(a|s) / behaviour(a|s), by default 1; the last two may be None. Each row has probability 1/K and

        u = e_k = rho_k (phi_k + discount trace e_{k-1}),    v = phi_k - discount phi_next_k,    y = r_k.

    The trace e starts afresh after termination and after truncation; only termination stops the bootstrap (v = phi_k).

    discount : how much a reward counts one step later (gamma), at least 0 and below 1
    trace : how far a TD error reaches back (lambda), from 0 to 1
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    given = tuples("logs", logs, FIELDS, optional=2)
    same_columns("phi and phi_next in logs", [part for phi, _, following, *_ in given for part in (phi, following)])
    gamma = checks.real("discount", discount, at_least=0, below=1)
    lam = checks.real("trace", trace, at_least=0, at_most=1)
    checked_logs: list[tuple[Any, ...]] = []
    for m, entry in enumerate(given):
        checked_logs.append(_checked(f"logs[{m}]", entry, checked_logs[0][0].shape[1] if checked_logs else "d"))
    u, v = [], []
    for phi, _, phi_next, ended, cut, rho in checked_logs:
        u.append(traces(phi, ended if cut is None else ended | cut, gamma * lam, rho))
        v.append(phi - gamma * np.where(ended[:, None], 0, phi_next))
    assigned, w = agents(len(given), assignment, weights)
    first = offsets([len(rows) for rows in u])
    left, right = np.arange(2 * first[-1], dtype=np.uint32).reshape(2, -1)
    z = RankOne(np.concatenate(u + v), left, right, np.concatenate([log[1] for log in checked_logs]))
    prob, weighted = np.repeat(1 / np.diff(first), np.diff(first)), any(log[5] is not None for log in checked_logs)
    problem = Problem(z, prob, first, assigned, w, None, True, gamma, lam, off_policy=weighted)
    given_as = {"logs": checked_logs, "discount": gamma, "trace": lam}
    return recorded(problem, "from_transitions", given_as, weights=weights, assignment=assignment)


def _checked(name: str, entry: tuple[Any, ...], d: int | str) -> tuple[Any, ...]:
    """One log with all its fields, None for what is missing, its arrays checked and copied."""
    phi = filled(f"phi in {name}", entry[0], ("K", d))
    r = checks.array(f"r in {name}", entry[1], (len(phi),))
    phi_next = checks.array(f"phi_next in {name}", entry[2], phi.shape)
    ended = checks.flags(f"terminated in {name}", entry[3], (len(phi),))
    cut, rho, *_ = (*entry[4:], None, None)
    if cut is not None:
        cut = checks.flags(f"truncated in {name}", cut, (len(phi),))
    if rho is not None:
        rho = checks.array(f"importance in {name}", rho, (len(phi),)).copy()
        checks.refuse(rho < 0, rho, f"importance in {name} must be at least 0")
    return phi.copy(), r.copy(), phi_next.copy(), ended, cut, rho


def traces(
    phi: Floats, breaks: Flags, decay: float, importance: Floats | None = None, before: Floats | None = None
) -> Floats:
    """(K, d): e_k = rho_k (phi_k + decay e_{k-1}), afresh after a break; before : (d,) the trace before row 0."""
    if importance is None and decay == 0:
        return phi
    from scipy.linalg.blas import dtbsv

    # a linear system with two diagonals, whose first row is `before`: whole logs and their parts give the same bits
    rho = np.ones(len(phi)) if importance is None else importance
    band = np.stack([np.ones(len(phi) + 1), np.append(-decay * rho, 0)])
    band[1, 1:-1][breaks[:-1]] = 0
    known = np.vstack([np.zeros(phi.shape[1]) if before is None else before, rho[:, None] * phi])
    return np.stack([dtbsv(1, band, column, lower=1, diag=1)[1:] for column in known.T], axis=1)


@dataclass(frozen=True, eq=False, repr=False)
class Log(Displayed, ReadOnly):
    """K transitions of one site in the order in which they happened.

    state, next_state : (K,) integers or (K, k) numbers; action : (K,) or (K, m); reward : (K,)
    terminated : (K,) the task ended: nothing follows. truncated : (K,) the recording was cut, at a time limit or at
        the log's end: next_state is where the task would have gone on
    importance : (K,) probability of the action under the policy to be evaluated over that under the one that acted
    """

    state: NDArray[Any]
    action: NDArray[Any]
    reward: Floats
    next_state: NDArray[Any]
    terminated: Flags
    truncated: Flags
    importance: Floats | None = None

    def __post_init__(self) -> None:
        reward = checks.array("reward", self.reward, ("K",))
        rows = (len(reward),)
        given: dict[str, NDArray[Any]] = {"reward": reward}
        for name in ("state", "action", "next_state"):
            given[name] = checks.as_array(name, getattr(self, name))
            if given[name].dtype.kind not in "fiub" or given[name].shape[:1] != rows:
                got = checks.show(given[name])
                raise ArgumentError(f"{name} must be numbers, one row for each of {len(reward)} rewards; got {got}")
            if name != "action":
                given[name] = given[name].astype(np.float64 if given[name].dtype.kind == "f" else np.int64)
        given |= {name: checks.flags(name, getattr(self, name), rows) for name in ("terminated", "truncated")}
        if self.importance is not None:
            given["importance"] = checks.array("importance", self.importance, rows)
        self.__setstate__(given)

    def __len__(self) -> int:
        return len(self.reward)

    def _display(self) -> tuple[str, Rows]:
        ends = f"{int(self.terminated.sum()):,} terminated, {int(self.truncated.sum()):,} truncated"
        used = [row for row in fields_of(self) if row[0] not in ("terminated", "truncated") and row[1] is not None]
        return f"Log of {len(self):,} transitions", [*used, ("ends", ends)]

    def columns(self) -> dict[str, NDArray[Any]]:
        """The log as columns (K,) for a file: vectors become state_0, state_1, ..., next_state_0, ...; see `fl.fit`."""
        return {
            f"{name}_{i}" if value.ndim > 1 else name: column
            for name, value in fields_of(self)
            if value is not None
            for i, column in enumerate(value.T if value.ndim > 1 else [value])
        }


def from_logs(
    logs: Sequence[Log],
    features: Any,
    discount: float,
    *,
    trace: float = 0.0,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """TD(lambda) on logs of states (eq:matr_A_def_td_app): `from_transitions` after a feature map, one log per site.

    features : a map of fl.problems.features, a callable, a fitted scikit-learn transformer, or an array (S, d)
    discount : how much a reward counts one step later (gamma), at least 0 and below 1
    trace : how far a TD error reaches back (lambda), from 0 to 1
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    sites = []
    for log in checks.instances("logs", logs, Log, "a log of transitions (fl.problems.Log)"):
        both = maps.apply(features, np.concatenate([log.state, log.next_state]))
        phi, phi_next = both[: len(log)], both[len(log) :]
        sites.append((phi, log.reward, phi_next, log.terminated, log.truncated, log.importance))
    try:
        return from_transitions(sites, discount, trace, weights=weights, assignment=assignment)
    except SingularSystemError as error:
        unused = unseen(np.concatenate([site[0] for site in sites]))
        raise SingularSystemError(f"{error}{unused}") from None


def unseen(phi: Floats) -> str:
    """A remark on the columns of visited states' features (n, d) that are 0 throughout; empty if there are none."""
    zero = np.flatnonzero(~phi.any(axis=0))
    if not len(zero):
        return ""
    named = ", ".join(map(str, zero[:8])) + (f" and {len(zero) - 8} more" if len(zero) > 8 else "")
    what = f"feature {named} is" if len(zero) == 1 else f"features {named} are"
    return f"; {what} 0 in every state that is visited and must be left out"

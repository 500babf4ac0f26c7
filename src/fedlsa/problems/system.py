"""What is to be solved: finite tables of observations, one per agent or shared, and the systems they average to.

A table lists outcomes z with their probabilities. Outcomes of all M tables stand one after the other in flat arrays;
`first[m]:first[m + 1]` are those of table m, and `assignment[c]` is the table of agent c. Everything exact follows:

    A_bar_c = sum_z p(z) A(z),   b_bar_c = sum_z p(z) b(z),   (sum_c w_c A_bar_c) theta_star = sum_c w_c b_bar_c.

Arrays with one entry per table (`table_...`) are computed once; those with one entry per agent are made when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError
from ..value_objects import Displayed, ReadOnly, counted, frozen_property, spread_table
from .averaged_system import MOST_AT_ONCE, ideal_control_variates, invertible, solve_average, table_residual

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
QUICK_SOLUTIONS = 10**8  # operations of all agents' own solutions that a notebook may cost
# whose arguments are rows of sites, or made of them, or a function
DATA = ("regression", "from_transitions", "from_observations", "stream")
LABORATORY_START = "theta_star + 1"  # the authors' start: at the same distance from the answer on every problem
ROUNDING = 1e-8  # by which a law may miss one: probabilities come from files with few digits
NARROW = {"left", "right", "following", "origin", "successor", "assignment"}  # long fields that point to others
INTEGERS = NARROW | {"first_state", "first", "table", "count"}  # fields that point or count


def check_arrays(of: Any, sizes: dict[str, int] | None = None, /, **shapes: str) -> dict[str, int]:
    """Fields of an object must be arrays, of integers where they point or count, else of finite numbers.

    They are then of int64 and float64, in the order of bytes of this machine; long ones that point may be narrower.
    Those with the default None may be None.
    shapes : a letter for each axis, which stands for one length; sizes : those that are known. Returns them all.
    """
    sizes = {} if sizes is None else sizes
    for name, letters in shapes.items():
        value, points = getattr(of, name), name in INTEGERS
        if value is None and vars(type(of)).get(name, of) is None:
            continue
        shape = f"({', '.join(str(sizes.get(letter, letter)) for letter in letters)}{',' * (len(letters) == 1)})"
        what, kinds, dtype = ("integers", "iu", np.int64) if points else ("numbers", "fiu", np.float64)
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray) or value.dtype.kind not in kinds:
            raise ArgumentTypeError(f"{name} must be an array of {what} of shape {shape}; got {checks.show(value)}")
        if value.dtype != dtype and not (name in NARROW and value.dtype.itemsize < 8 and value.dtype.isnative):
            value = value.astype(dtype)
            object.__setattr__(of, name, value)
        if value.ndim != len(letters) or any(
            sizes.setdefault(letter, n) != n for letter, n in zip(letters, value.shape, strict=True)
        ):
            raise ArgumentError(f"{name} must have shape {shape}; got {value.shape}")
        if "d" in letters and not sizes["d"]:
            raise ArgumentError(f"{name} must have at least one dimension; got shape {value.shape}")
        few = value if any(value.strides) else value[:1]  # one number, shown many times
        if not points and few.size and not (np.isfinite(few.min()) and np.isfinite(few.max())):
            raise ArgumentError(f"{name} must hold finite numbers; got {few[~np.isfinite(few)][0]}")
    return sizes


def check_range(name: str, values: NDArray[Any], below: Any) -> None:
    """Integers from 0 up to, and without, a limit, or a limit for each."""
    wrong = (values < 0) | (values >= below)
    if wrong.any():
        k = int(np.argmax(wrong))
        most = np.broadcast_to(below, values.shape)[k] - 1
        raise ArgumentError(f"{name} must hold numbers from 0 to {most}; got {values[k]} at [{k}]")


def check_law(name: str, prob: Floats, part: NDArray[np.int64], what: str) -> None:
    """Numbers of at least 0 that sum to one in every part."""
    if not prob.size:
        raise ArgumentError(f"{name} must hold at least one number; got none")
    checks.refuse(prob < 0, prob, f"{name} must hold numbers of at least 0")
    total = np.asarray(np.bincount(part, prob), np.float64)
    checks.refuse(np.abs(total - 1) > ROUNDING, total, f"{name} must sum to one in every {what}", "{:.10g}")


class DefaultStart:
    """Base of problems and of their moments: runs begin at theta_star + 1 in a laboratory, and elsewhere at 0.

    A laboratory is a problem whose model is given whole (a family, decision processes, chains): theta_star is known.
    Data (rows, transitions, observations, files) are there to find theta_star out, so nothing begins near it.
    """

    theta_star: Floats
    laboratory: bool

    @property
    def start(self) -> Floats:
        """(d,): theta_star + 1 in a laboratory, 0 elsewhere; the default of every theta_0."""
        return self.theta_star + 1 if self.laboratory else np.zeros_like(self.theta_star)

    def start_label(self, theta_0: ArrayLike | None = None) -> str:
        """How results, curves and figures name a start, (d,) or one per seed: "theta_star + 1", "0" or "given"."""
        start = np.asarray(self.start if theta_0 is None else theta_0)
        if not start.any():
            return "0"
        return LABORATORY_START if (start == self.theta_star + 1).all() else "given"


@dataclass(frozen=True, eq=False, repr=False)
class RankOne(Displayed, ReadOnly):
    """Observations A(z) = u v^T + ridge I and b(z) = y u, as indices into one table of rows: a step costs O(d).

    rows : (n, d) all vectors u and v
    left, right : (K,) row numbers of u and of v
    y : (K,) rewards or targets
    ridge : strength of the penalty
    following : (K,) rows of the next features of temporal differences, v = u - discount rows[following]; = features
        where nothing follows. An engine may use either form of v
    discount : of temporal differences; features : how many rows, the first ones, are those of u
    """

    rows: Floats
    left: NDArray[np.uint32]
    right: NDArray[np.uint32]
    y: Floats
    ridge: float = 0.0
    following: NDArray[np.uint32] | None = None
    discount: float = 0.0
    features: int = 0

    def __post_init__(self) -> None:
        check_arrays(self, rows="nd", left="K", right="K", y="K", following="K")
        checks.real("ridge", self.ridge, at_least=0)
        checks.real("discount", self.discount, at_least=0, at_most=1)
        checks.integer("features", self.features, at_most=len(self.rows))
        for name in ("left", "right"):
            check_range(name, getattr(self, name), len(self.rows))
        if self.following is not None:
            check_range("following", self.following, self.features + 1)
        super().__post_init__()

    @property
    def dim(self) -> int:
        return int(self.rows.shape[1])

    def __len__(self) -> int:
        return len(self.y)

    def mean(self, span: slice, prob: Floats) -> tuple[Floats, Floats]:
        """sum_z p(z) A(z) : (d, d) and sum_z p(z) b(z) : (d,) over the outcomes in `span`, p(z) in `prob`."""
        A, b = self.ridge * np.eye(self.dim), np.zeros(self.dim)
        step = max(1, MOST_AT_ONCE // self.dim)
        for first in range(span.start, span.stop, step):
            part = slice(first, min(first + step, span.stop))
            u = self.rows[self.left[part]]
            v = u if self.right is self.left else self.rows[self.right[part]]
            pu = prob[part.start - span.start : part.stop - span.start, None] * u
            A += pu.T @ v
            b += pu.T @ self.y[part]
        return A, b

    def matrices(self, span: slice) -> tuple[Floats, Floats]:
        """A(z) : (K, d, d) and b(z) : (K, d) of the outcomes in `span`, written out."""
        u, v = self.rows[self.left[span]], self.rows[self.right[span]]
        return u[:, :, None] * v[:, None, :] + self.ridge * np.eye(self.dim), self.y[span, None] * u

    def factors(self, span: slice) -> tuple[Floats, Floats, Floats]:
        """L : (K, d, 1), F : (K, 1, d), f : (K, 1) of outcomes in `span`, A(z) = L F + ridge I and b(z) = L f."""
        return self.rows[self.left[span], :, None], self.rows[self.right[span], None], self.y[span, None]


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Displayed, ReadOnly):
    """Observations with any matrices and vectors; a step costs O(d^2).

    A : (K, d, d) matrices A(z)
    b : (K, d) vectors b(z)
    """

    A: Floats
    b: Floats
    ridge: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_arrays(self, b="Kd", A="Kdd")
        super().__post_init__()

    @property
    def dim(self) -> int:
        return int(self.b.shape[1])

    def __len__(self) -> int:
        return len(self.b)

    def mean(self, span: slice, prob: Floats) -> tuple[Floats, Floats]:
        """sum_z p(z) A(z) : (d, d) and sum_z p(z) b(z) : (d,) over the outcomes in `span`, p(z) in `prob`."""
        return np.tensordot(prob, self.A[span], 1), prob @ self.b[span]

    def matrices(self, span: slice) -> tuple[Floats, Floats]:
        """A(z) : (K, d, d) and b(z) : (K, d) of the outcomes in `span`."""
        return self.A[span], self.b[span]

    def factors(self, span: slice) -> tuple[Floats, Floats, Floats]:
        """L = I : (K, d, d), F : (K, d, d), f : (K, d) of the outcomes in `span`, A(z) = L F and b(z) = L f."""
        return np.broadcast_to(np.eye(self.dim), self.A[span].shape), self.A[span], self.b[span]


@dataclass(frozen=True, eq=False, repr=False)
class Chain(Displayed, ReadOnly):
    """How observations follow one another on a trajectory (assum:P_pi_ergodicity).

    origin : (K,) state in which an outcome can happen
    successor : (K,) state to which it leads
    conditional : (K,) its probability in that state
    stationary : (sum of states,) laws of all tables, stationary[first_state[m]:first_state[m + 1]] of table m
    first_state : (M + 1,) where the states of each table begin; they are numbered within their table
    """

    origin: Integers
    successor: Integers
    conditional: Floats
    stationary: Floats
    first_state: Integers

    def __post_init__(self) -> None:
        check_arrays(self, origin="K", successor="K", conditional="K", stationary="S", first_state="T")
        super().__post_init__()


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Displayed, ReadOnly, DefaultStart):
    """A federated linear system (eq:lsa_syst_fed) given by finite tables of observations.

    observations, prob : the outcomes of all tables and their probabilities within their table, (K,)
    first : (M + 1,) where each table begins; assignment : (N,) table of each agent; weights : (N,), summing to one
    chain : the trajectories behind the tables, if any; ordered : whether each table is a log that can be replayed
    discount : of the values that temporal differences learn, by default that of the observations; None elsewhere
    trace : lambda of TD(lambda); off_policy : whether its rows are weighted by importance
    laboratory : whether the model is given whole, and not data that came from one: runs then begin at theta_star + 1
    recipe : the constructor's name and arguments, from which the problem can be made again; empty if made otherwise

    All arrays are read-only, those that are passed in too; laws and indices are checked.

    >>> fl.problems.garnet(agents=4, states=5, features=2, seed=1)
    Problem of 4 agents in dimension 2
      made by              garnet(agents=4, states=5, actions=2, branching=2, features=2, discount=0.95,
                           heterogeneous=True, perturbation=0.02, preset='paper', seed=1)
      tables               4 with 20 rank-one observations
      weights              0.25 each
      sampling             IID(), Markov()
      theta_star           [0.38776, -0.24061]
      runs start at        theta_star + 1
      largest |xi_star_c|  0.075934
    """

    observations: RankOne | Dense
    prob: Floats
    first: Integers
    assignment: Integers
    weights: Floats
    chain: Chain | None = None
    ordered: bool = False
    discount: float | None = None
    trace: float = 0.0
    off_policy: bool = False
    laboratory: bool = False
    recipe: dict[str, Any] = field(default_factory=dict, init=False)  # so that changed copies do not keep it

    def __post_init__(self) -> None:
        checks.instance("observations", self.observations, (RankOne, Dense), "RankOne(...) or Dense(...)")
        checks.instance("chain", self.chain, (Chain, type(None)), "Chain(...) or None")
        for name in ("ordered", "off_policy", "laboratory"):
            checks.boolean(name, getattr(self, name))
        checks.real("trace", self.trace, at_least=0, at_most=1)
        z, gamma = self.observations, self.discount
        if gamma is not None:
            gamma = checks.real("discount", gamma, at_least=0, at_most=1)
        if isinstance(z, RankOne) and z.following is not None:
            if gamma not in (None, z.discount):
                raise ArgumentError(f"discount must be that of the observations, {z.discount:g}; got {gamma:g}")
            gamma = z.discount
        vars(self)["discount"] = gamma
        _check_tables(self)
        super().__post_init__()
        self.theta_star  # noqa: B018  a singular averaged system is an error now, not in the middle of a run

    def _display(self) -> tuple[str, list[tuple[str, Any]]]:
        given = self.recipe.get("arguments", {}).items()
        made = ", ".join(f"{k}={v!r}" for k, v in given if isinstance(v, (bool, int, float, str)))
        w, sizes = self.weights, np.diff(self.first)
        kind = {RankOne: "rank-one", Dense: "dense"}.get(type(self.observations), "drawn")
        each = f"{sizes[0]:,}" if (sizes == sizes[0]).all() else f"{sizes.min():,} to {sizes.max():,}"
        each = "any number of" if kind == "drawn" else each
        ways = ["IID()", *(["Markov()"] if self.chain is not None else []), *(["Replay()"] if self.ordered else [])]
        rows = [
            ("made by", f"{self.made_by}({made})" if self.recipe else "hand"),
            ("tables", f"{self.n_tables:,} with {each} {kind} observations"),
            ("weights", f"{w[0]:.5g} each" if (w == w[0]).all() else f"from {w.min():.5g} to {w.max():.5g}"),
            ("sampling", ", ".join(ways)),
            ("theta_star", self.theta_star),
            ("runs start at", self.start_label()),
            ("largest |xi_star_c|", float(np.linalg.norm(self.table_xi_star, axis=1).max())),
        ]
        return f"Problem of {counted(self.n_agents, 'agent')} in dimension {self.dim:,}", rows

    def _further_html(self) -> str:
        quick = self.n_tables * self.dim**3 <= QUICK_SOLUTIONS
        names = [f"theta_star[{j}]" for j in range(self.dim)]
        solutions = self.theta_star_local if quick else np.empty((0, self.dim))
        return spread_table("The shared solution, and the agents' own:", names, self.theta_star, solutions)

    @property
    def made_by(self) -> str:
        """The constructor that made the problem, or "hand"."""
        return str(self.recipe.get("constructor", "hand"))

    def on_means(self) -> Problem:
        """The same agents stepping with their own means A_bar_c, b_bar_c, as in fl.fit(local="means"): no noise.

        Sites that hold their data compute them once; agents who only see a stream have none. theta_star is the same.
        """
        means, M = Dense(self.table_A_bar, self.table_b_bar), self.n_tables
        return replace(self, observations=means, prob=np.ones(M), first=np.arange(M + 1), chain=None, ordered=False)

    @property
    def n_agents(self) -> int:
        return len(self.assignment)

    @property
    def n_tables(self) -> int:
        return len(self.first) - 1

    @property
    def dim(self) -> int:
        return self.observations.dim

    def spans(self) -> Iterator[slice]:
        """The slice of outcomes of each table."""
        for a, b in zip(self.first[:-1], self.first[1:], strict=True):
            yield slice(int(a), int(b))

    def check_start(self, states: Sequence[int]) -> None:
        """Refuse states, one for each agent, in which trajectories cannot start."""
        if len(states) != self.n_agents:
            raise ArgumentError(f"start must hold one state per agent, {self.n_agents}; got {len(states)}")
        chain, first = self.chain, self.first
        if chain is None:  # then there are no trajectories at all
            return
        for c, (s, m) in enumerate(zip(states, self.assignment, strict=True)):
            n = chain.first_state[m + 1] - chain.first_state[m]
            if s >= n:
                raise ArgumentError(f"start must hold states from 0 to {n - 1} for agent {c}; got {s}")
            if s not in chain.origin[first[m] : first[m + 1]]:
                raise ArgumentError(f"start must hold states that are not terminal; got {s} for agent {c}")

    @frozen_property
    def table_weights(self) -> Floats:
        """(M,): the total weight of the agents that hold each table."""
        return np.bincount(self.assignment, self.weights, self.n_tables).astype(np.float64)

    @frozen_property
    def _table_means(self) -> tuple[Floats, Floats]:
        means = [self.observations.mean(s, self.prob[s]) for s in self.spans()]
        return np.stack([A for A, _ in means]), np.stack([b for _, b in means])

    @property
    def table_A_bar(self) -> Floats:
        """(M, d, d): the mean matrix of each table."""
        return self._table_means[0]

    @property
    def table_b_bar(self) -> Floats:
        """(M, d): the mean vector of each table."""
        return self._table_means[1]

    @frozen_property
    def theta_star(self) -> Floats:
        """(d,): the solution of the averaged system (eq:lsa_syst_fed)."""
        A = np.tensordot(self.table_weights, self.table_A_bar, 1)
        b = self.table_weights @ self.table_b_bar
        return solve_average(A, b, partial(table_residual, self))

    def moved(self, moves: Mapping[int, ArrayLike]) -> Problem:
        """The same agents with other solutions of their own: that of agent c moves by moves[c] : (d,).

        b(z) + A(z) delta takes the place of b(z), so that A and the noise at the solution stay as they are.
        """
        if ridge := getattr(self.observations, "ridge", 0.0):
            raise ArgumentError(f"problem must have no ridge for its solutions to be moved; got {ridge:g}")
        delta = _own_solution_moves(self, moves)
        return self.with_b(delta, np.zeros_like(delta), 1.0)

    def with_b(self, theta: Floats, shift: Floats, share: float) -> Problem:
        """The same agents with A(z) theta_m + shift_m + share b(z) in the place of b(z); theta, shift : (M, d)."""
        z, table = self.observations, np.repeat(np.arange(self.n_tables), np.diff(self.first))
        if isinstance(z, RankOne) and z.ridge == 0 and not shift.any():  # A(z) theta = u (v^T theta)
            y = np.sum(z.rows[z.right] * theta[table], axis=1) + share * z.y
            return replace(self, observations=replace(z, y=y))
        A, b = z.matrices(slice(0, len(z)))
        b = np.einsum("kij,kj->ki", A, theta[table]) + shift[table] + share * b
        return replace(self, observations=Dense(A, b))

    def with_prob(self, prob: Floats) -> Problem:
        """The same agents drawing outcome k with prob[k], (K,), each observation times its old probability over that.

        Means, and so theta_star, stay what they are; the noise does not. A ridge counts whole, whatever is drawn.
        """
        z, prob = self.observations, checks.array("prob", prob, self.prob.shape)
        checks.refuse((prob <= 0) & (self.prob > 0), prob, "prob must be above 0 where an outcome can happen")
        share = np.divide(self.prob, prob, out=np.zeros_like(prob), where=prob > 0)[:, None]
        new: RankOne | Dense
        if isinstance(z, RankOne):  # u takes the factor, in A(z) and in b(z)
            rows, left = np.vstack([z.rows, share * z.rows[z.left]]), len(z.rows) + np.arange(len(z), dtype=np.uint32)
            new = RankOne(rows, left, z.right, z.y, z.ridge)
        else:
            A, b = z.matrices(slice(0, len(z)))
            new = Dense(share[:, None] * A, share * b)
        return replace(self, observations=new, prob=prob, chain=None, ordered=False)

    @frozen_property
    def table_xi_star(self) -> Floats:
        """(M, d): the ideal control variate of each table, A_bar_c theta_star - b_bar_c."""
        return ideal_control_variates(self.table_A_bar, self.table_b_bar, self.table_weights, self.theta_star)

    @frozen_property
    def table_theta_star_local(self) -> Floats:
        """(M, d): the solution of each table's own system; NaN where it has none or many."""
        out = np.full_like(self.table_b_bar, np.nan)
        good, _ = invertible(self.table_A_bar)
        out[good] = np.linalg.solve(self.table_A_bar[good], self.table_b_bar[good][..., None])[..., 0]
        return out

    @property
    def A_bar(self) -> Floats:
        """(N, d, d): the mean matrix of each agent."""
        return self.table_A_bar[self.assignment]

    @property
    def b_bar(self) -> Floats:
        """(N, d): the mean vector of each agent."""
        return self.table_b_bar[self.assignment]

    @property
    def theta_star_local(self) -> Floats:
        """(N, d): the solution of each agent's own system; NaN where it has none or many."""
        return self.table_theta_star_local[self.assignment]

    @property
    def xi_star(self) -> Floats:
        """(N, d): the ideal control variates xi_star_c = A_bar_c theta_star - b_bar_c; their weighted sum is 0."""
        return self.table_xi_star[self.assignment]


def _own_solution_moves(p: Problem, moves: Mapping[int, ArrayLike]) -> Floats:
    """(M, d): how far the solution of each table moves; agents that share a table must move together."""
    each = np.zeros((p.n_agents, p.dim))
    for c, delta in checks.instance("moves", moves, Mapping, "a move (d,) by agent, such as {0: [0.5, 1.0]}").items():
        checks.integer("agents in moves", c, at_least=0, at_most=p.n_agents - 1)
        each[c] = checks.array(f"moves[{c}]", delta, (p.dim,))
    out = np.zeros((p.n_tables, p.dim))
    out[p.assignment] = each
    if (out[p.assignment] != each).any():
        raise ArgumentError("agents that hold the same table must move together; got moves of some of them")
    return out


def _check_tables(p: Problem) -> None:
    """Laws must sum to one and indices be in range; what observations and chain hold of themselves is right."""
    K = len(p.observations)
    sizes = check_arrays(p, {"K": K}, prob="K", first="T", assignment="N", weights="N")
    first, chain = p.first, p.chain
    if len(first) < 2 or first[0] != 0 or first[-1] != K or (np.diff(first) < 1).any():
        raise ArgumentError(f"first must rise from 0 to the number of outcomes, {K}; got {first.tolist()[:10]}")
    table = np.repeat(np.arange(p.n_tables), np.diff(first))
    check_law("prob", p.prob, table, "table")
    check_range("assignment", p.assignment, p.n_tables)
    check_law("weights", p.weights, np.zeros(sizes["N"], np.int64), "set of agents")
    checks.refuse(p.weights <= 0, p.weights, "weights must be positive")
    if chain is None:
        return
    states = np.diff(chain.first_state)
    if len(states) != p.n_tables or (states < 1).any() or chain.first_state[0] != 0:
        raise ArgumentError(f"first_state must give each of {p.n_tables} tables its states; got {len(states)}")
    check_arrays(chain, {"K": K, "S": int(chain.first_state[-1])}, origin="K", stationary="S")
    for name in ("origin", "successor"):
        check_range(name, getattr(chain, name), states[table])
    check_law("stationary", chain.stationary, np.repeat(np.arange(p.n_tables), states), "table")
    origin, following = chain.first_state[table] + chain.origin, chain.first_state[table] + chain.successor
    check_law("conditional", chain.conditional, np.unique(origin, return_inverse=True)[1], "state with outcomes")
    left = np.bincount(origin, minlength=len(chain.stationary)) > 0
    stuck = ~left[following] & (chain.stationary[origin] * chain.conditional > 0)
    if stuck.any():
        k = int(np.argmax(stuck))
        raise ArgumentError(
            "a chain must be able to leave every state that it enters; "
            f"got state {chain.successor[k]} of table {table[k]} without outcomes"
        )

"""Federated temporal differences on finite chains given in full: decision processes, or lists of transitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..errors import ArgumentError, SingularSystemError
from .arguments import agents, filled, recorded, tuples
from .edges import Edges, Trajectories, follow
from .eligibility import weighted_differences
from .features import numbered
from .system import Dense, Problem, RankOne

# TD(0) as linear stochastic approximation (sec:appendix_td): from the transitions of finite chains to a problem.
#
# An outcome z = (s, a, s') has A(z) = phi(s) (phi(s) - gamma phi(s'))^T, b(z) = r(s, a) phi(s) (eq:matr_A_def_td_app).
# A transition into a terminal state bootstraps nothing, A(z) = phi(s) phi(s)^T, and the chain then restarts.


def temporal_difference(on: Trajectories, discount: float) -> Problem:
    """The federated TD(0) problem (eq:system_matrix) along trajectories."""
    edges, S = on.edges, len(on.features)
    rows, right = on.differences(discount)
    following = np.where(edges.ends, S, edges.successor).astype(np.uint32)
    return on.problem(RankOne(rows, edges.origin.astype(np.uint32), right, edges.y, 0.0, following, discount, S))


FIELDS = ("state", "next_state", "reward", "probability", "terminated")  # of a chain


def from_mdps(
    P: ArrayLike,
    r: ArrayLike,
    policy: ArrayLike,
    features: ArrayLike,
    discount: float,
    terminal: ArrayLike | None = None,
    initial: ArrayLike | None = None,
    *,
    behaviour: ArrayLike | None = None,
    trace: float = 0.0,
    emphatic: bool = False,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Federated TD (eq:system_matrix): evaluate one policy in M decision processes with a shared linear model.

    P : (M, S, A, S) transition probabilities; r : (M, S, A) rewards; policy : (S, A); features : (S, d)
    terminal : (S,) or (M, S) booleans. A transition into a terminal state bootstraps nothing, and the chain restarts
        from `initial`; rows of P that start in a terminal state are not used
    initial : (S,) or (M, S) law in which a chain begins. With it, states that cannot be reached do not matter

    Each chain must have one closed class of states (else StationaryLawError); transient states and periods are fine.
    Memory grows with M S^2 A: `from_chains` takes large chains with few transitions.

    behaviour : (S, A) or (M, S, A) policy that acts, by default `policy`; the ratio policy / behaviour of an action
        weights what is learnt from it. A_bar may then have eigenvalues with negative real parts: the method diverges,
        `fl.theory` gives inf; `emphatic`, or `gradient_td`, converges
    trace : lambda of TD(lambda), whose mean is exact. A trace is no finite law: in its place stands a single state of
        the episode, chosen so that its mean over the choice is the trace (see problems/eligibility.py). A trajectory is
        then one of pairs: state s, with the credited state m, has the number m S + s; m = S where there is none
    emphatic : weight states by the mean of their followon trace, as emphatic TD does (interest 1 everywhere)

    discount : how much a reward counts one step later (gamma), from 0 to 1; 1 where `policy` ends every episode
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    gamma, lam = _discount(discount, terminal), checks.real("trace", trace, at_least=0, at_most=1)
    if gamma * lam == 1:
        raise ArgumentError("trace must be below 1 where discount is 1; got 1")
    arrays: dict[str, Any] = {"P": P, "r": r, "policy": policy, "features": features, "terminal": terminal}
    arrays |= {"initial": initial, "weights": weights, "assignment": assignment}
    arrays |= {} if behaviour is None else {"behaviour": behaviour}
    settings = {"discount": gamma} | ({"trace": lam} if lam else {})
    settings |= {"emphatic": True} if checks.boolean("emphatic", emphatic) else {}
    on = trajectories_of(arrays, gamma)
    plain = behaviour is None and lam == 0 and not emphatic
    problem = temporal_difference(on, gamma) if plain else weighted_differences(on, gamma, lam, emphatic)
    return recorded(problem, "from_mdps", settings, **arrays)


def _discount(value: float, ends: ArrayLike | None) -> float:
    """The discount; 1 is possible where there are ends."""
    bound: dict[str, float] = {"below": 1} if ends is None else {"at_most": 1}
    return checks.real("discount", value, at_least=0, **bound)


def trajectories_of(given: dict[str, Any], gamma: float = 0.0) -> Trajectories:
    """The chains of decision processes; given : the arrays of `from_mdps`, which are checked."""
    terminal, initial, behaviour = (given.get(name) for name in ("terminal", "initial", "behaviour"))
    kernel = checks.probabilities("P", given["P"], ("M", "S", "A", "S"))
    M, S, A, _ = kernel.shape
    reward = checks.array("r", given["r"], (M, S, A))
    pi = checks.probabilities("policy", given["policy"], (S, A))
    acts = pi if behaviour is None else _for_each(checks.probabilities, "behaviour", behaviour, M, S, A)
    phi = filled("features", given["features"], (S, "d"))
    if terminal is not None and initial is None:
        raise ArgumentError("initial must be a law over the states when terminal is given; got None")
    law = None if initial is None else _for_each(checks.probabilities, "initial", initial, M, S)
    ends = _for_each(checks.flags, "terminal", np.zeros(S) if terminal is None else terminal, M, S)
    if law is not None and (law[ends] > 0).any():
        m, at = np.argwhere(ends & (law > 0))[0].tolist()
        rule = "initial must give terminal states no probability"
        raise ArgumentError(f"{rule}; got {law[m, at]:g} for state {at} of P[{m}]")
    assigned, w = agents(M, given["assignment"], given["weights"])
    joint = acts[..., None] * kernel
    joint[ends] = 0
    table, s, a, s_next = np.nonzero(joint)
    edges = Edges(table, s, s_next, reward[table, s, a], joint[table, s, a, s_next], ends[table, s_next])
    if behaviour is not None:
        edges = edges._replace(ratio=pi[s, a] / acts[table, s, a])
    on = follow(edges, phi, law, M, assigned, w)
    missing = (pi > 0) & (acts == 0) & (on.mu > 0)[..., None]
    checks.refuse(missing, np.zeros(missing.shape), "behaviour must be above 0 for every action that policy takes")
    if gamma == 1:
        on.check_ends()
    return on


def _for_each(check: Callable[..., NDArray[Any]], name: str, value: ArrayLike, M: int, *each: int) -> NDArray[Any]:
    """(M, *each): an argument with an entry per table, or one for all."""
    shape = (M, *each) if checks.as_array(name, value).ndim > len(each) else each
    return np.broadcast_to(check(name, value, shape), (M, *each))


def from_chains(
    chains: Iterable[tuple[ArrayLike, ...]],
    features: ArrayLike,
    discount: float,
    initial: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Federated TD(0) (eq:system_matrix) on M chains over S states, each a list of the transitions it can make.

    chains : tuples (state, next_state, reward, probability[, terminated]) of arrays (E,), one tuple per table. The
        probabilities of the entries with one state sum to one; a state without entries is never visited. A pair of
        states may occur often, with different rewards. A terminated transition bootstraps nothing, and the chain
        restarts from `initial`. Or tuples (kernel, reward), kernel : (S, S) a sparse matrix of SciPy, whose rows are
        the laws of the next state, reward : (S,) of each state
    features : (S, d); initial : (S,) or (M, S) law in which a chain begins, needed where something terminates

    It differs from `from_mdps` in that the policy is already in the probabilities, that rewards and ends belong to
    transitions, and that impossible transitions take no room.

    discount : how much a reward counts one step later (gamma), from 0 to 1; 1 where every episode ends
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    given = tuples("chains", chains, FIELDS, optional=3)
    phi = filled("features", features, ("S", "d"))
    M, S = len(given), len(phi)
    assigned, w = agents(M, assignment, weights)
    lists = [_checked(f"chains[{m}]", _as_lists(f"chains[{m}]", entry, S), S) for m, entry in enumerate(given)]
    table = np.repeat(np.arange(M), [len(entry[0]) for entry in lists])
    s, s_next, y, chance, ends = (np.concatenate([entry[i] for entry in lists]) for i in range(5))
    chance /= np.bincount(table * S + s, chance, M * S)[table * S + s]
    if initial is None and ends.any():
        raise ArgumentError("initial must be a law over the states when transitions terminate; got None")
    gamma = _discount(discount, initial if ends.any() else None)
    law = None if initial is None else _for_each(checks.probabilities, "initial", initial, M, S)
    on = follow(Edges(table, s, s_next, y, chance, ends), phi, law, M, assigned, w)
    if gamma == 1:
        on.check_ends()
    problem = temporal_difference(on, gamma)
    arrays = {"features": features, "initial": initial, "weights": weights, "assignment": assignment}
    return recorded(problem, "from_chains", {"chains": lists, "discount": gamma}, **arrays)


def _as_lists(name: str, entry: tuple[Any, ...], S: int) -> tuple[Any, ...]:
    """One chain as lists of transitions, however it is given."""
    if len(entry) > 3:
        return entry
    if len(entry) != 2 or not hasattr(entry[0], "tocoo") or entry[0].shape != (S, S):
        rule = f"a tuple ({', '.join(FIELDS)}), or (kernel, reward) with a sparse matrix of shape {(S, S)}"
        raise ArgumentError(f"{name} must be {rule}; got {len(entry)} entries, the first {checks.show(entry[0])}")
    kernel, reward = entry[0].tocoo(), checks.array(f"reward in {name}", entry[1], (S,))
    return kernel.row, kernel.col, reward[kernel.row], kernel.data


def _checked(name: str, entry: tuple[Any, ...], S: int) -> tuple[Any, ...]:
    """One list with its arrays checked and copied."""
    s = numbered(filled(f"state in {name}", entry[0], ("E",)), S, f"state in {name}")
    E = s.shape
    s_next = numbered(checks.array(f"next_state in {name}", entry[1], E), S, f"next_state in {name}")
    y, chance = (checks.array(f"{FIELDS[i]} in {name}", entry[i], E).copy() for i in (2, 3))
    ends = checks.flags(f"terminated in {name}", entry[4] if len(entry) > 4 else np.zeros(E), E)
    checks.refuse(chance < 0, chance, f"probability in {name} must hold numbers of at least 0")
    total, left = np.asarray(np.bincount(s, chance, S), np.float64), np.bincount(s, minlength=S) > 0
    rule = f"probability in {name} must sum to one in every state"
    checks.refuse((np.abs(total - 1) > 1e-8) & left, total, rule, "{:.10g}")
    rule = f"state in {name} must hold every state that is entered, or the transition must terminate"
    checks.refuse(~left[s_next] & ~ends & (chance > 0), s_next, rule, "none for state {}, entered")
    return s, s_next, y, chance, ends


def average_reward(
    P: ArrayLike,
    r: ArrayLike,
    policy: ArrayLike,
    features: ArrayLike,
    terminal: ArrayLike | None = None,
    initial: ArrayLike | None = None,
    *,
    ratio: float = 1.0,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Federated differential TD(0) (eq:lsa_syst_fed): the average reward of a policy, and its relative values.

    P, r, policy, features, terminal, initial, weights, assignment : as of `from_mdps`; ends are restarts like any move
    ratio : step size of the average reward over that of the values

    The parameter is (theta, average reward) : (d + 1,); both learn from one TD error, so A(z) stays of rank one:

        delta = r - average + phi(s')^T theta - phi(s)^T theta,   u = (phi(s), ratio),   v = (phi(s) - phi(s'), 1).

    The last coordinate of theta_star is the mean of the agents' average rewards, the others solve the projected Poisson
    equation. Values are known up to a constant: features must not combine to one (else SingularSystemError), such as
    `features.OneHot(S, without=[s])`, with which values are those relative to state s.

    >>> P = [[[[0.5, 0.5]], [[1.0, 0.0]]]]  # the second state pays 3 and leads back
    >>> fl.problems.average_reward(P, [[[0.0], [3.0]]], [[1.0], [1.0]], [[0.0], [1.0]]).theta_star
    array([2., 1.])
    """
    speed = checks.real("ratio", ratio, above=0)
    arrays: dict[str, Any] = {"P": P, "r": r, "policy": policy, "features": features, "terminal": terminal}
    arrays |= {"initial": initial, "weights": weights, "assignment": assignment}
    on = trajectories_of(arrays)
    S, goes_on = len(on.features), np.zeros(len(on.edges.y), np.bool_)
    on = on._replace(
        edges=on.edges._replace(ends=goes_on), features=np.insert(on.features, on.features.shape[1], speed, 1)
    )
    rows, right = on.differences(1.0)
    rows[S:, -1] = 1
    z = RankOne(rows, on.edges.origin.astype(np.uint32), right, on.edges.y)
    try:
        problem = on.problem(z)
    except SingularSystemError as error:
        rule = "features must not combine to a constant on the states that are visited, nor depend on one another"
        raise SingularSystemError(f"{rule}; {error}") from None
    return recorded(problem, "average_reward", {"ratio": speed}, **arrays)


def gradient_td(
    P: ArrayLike,
    r: ArrayLike,
    policy: ArrayLike,
    features: ArrayLike,
    discount: float,
    terminal: ArrayLike | None = None,
    initial: ArrayLike | None = None,
    *,
    kind: str = "tdc",
    ratio: float = 1.0,
    behaviour: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Federated gradient TD (eq:lsa_syst_fed), GTD2 or TDC: off-policy values by two coupled recursions.

    P, r, policy, features, discount, terminal, initial, behaviour, weights, assignment : as of `from_mdps`
    kind : "tdc" or "gtd2"; ratio : step size of the second recursion over that of the first

    The parameter is (theta, w) : (2 d,), theta_star[:d] the values, with w_star = 0. Of an outcome, with
    v = phi - gamma phi', TD error delta = r - v^T theta and importance ratio rho,

        theta += eta rho v (phi^T w)  (gtd2)  or  eta rho (delta phi - gamma phi' (phi^T w))  (tdc),
        w += ratio eta (rho delta - phi^T w) phi.

    theta_star[:d] is that of `from_mdps`, where that diverges too. GTD2 is stable for small steps at every ratio, TDC
    where ratio is large enough.
    """
    gamma, speed = _discount(discount, terminal), checks.real("ratio", ratio, above=0)
    checks.choice("kind", kind, ("tdc", "gtd2"))
    arrays: dict[str, Any] = {"P": P, "r": r, "policy": policy, "features": features, "terminal": terminal}
    arrays |= {"initial": initial, "behaviour": behaviour, "weights": weights, "assignment": assignment}
    on = trajectories_of(arrays, gamma)
    edges, d = on.edges, on.features.shape[1]
    checks.memory("transitions of gradient_td", len(edges.y), 3 * 8 * (2 * d) ** 2, "A(z) of each of them")
    rows, right = on.differences(gamma)
    rho = np.ones(len(edges.y)) if edges.ratio is None else edges.ratio
    phi, v = on.features[edges.origin], rows[right]
    weighted = rho[:, None, None] * phi[:, :, None] * v[:, None, :]  # rho phi v^T
    A, b = np.zeros((len(phi), 2 * d, 2 * d)), np.zeros((len(phi), 2 * d))
    A[:, d:, :d] = speed * weighted
    A[:, d:, d:] = speed * phi[:, :, None] * phi[:, None, :]
    b[:, d:] = (speed * rho * edges.y)[:, None] * phi
    if kind == "gtd2":
        A[:, :d, d:] = -weighted.transpose(0, 2, 1)
    else:
        A[:, :d, :d] = weighted
        A[:, :d, d:] = rho[:, None, None] * (phi - v)[:, :, None] * phi[:, None, :]
        b[:, :d] = (rho * edges.y)[:, None] * phi
    return recorded(on.problem(Dense(A, b)), "gradient_td", {"discount": gamma, "kind": kind, "ratio": speed}, **arrays)

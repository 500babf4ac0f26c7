"""Federated temporal differences on finite chains given in full: decision processes, or lists of transitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError, SingularSystemError
from .arguments import agents, filled, recorded, tuples
from .features import numbered
from .finite_chains import Edges, Trajectories, follow
from .system import Dense, Integers, Problem, RankOne

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


TOLERANCE = 1e-8  # relative, of expected numbers of visits
LEFT_OUT = 1e-60  # the largest term of a series of visits that is left out
MOST_STEPS = 2**50  # that are summed over: beyond, rounding has taken every digit
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
        the episode, chosen so that its mean over the choice is the trace. A trajectory is then one of pairs: state s,
        with the credited state m, has the number m S + s; m = S where there is none
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


def weighted_differences(on: Trajectories, discount: float, trace: float, emphatic: bool) -> Problem:
    """The federated problem of TD(trace) with the ratios of the edges, with or without emphasis.

    Emphatic off-policy TD(lambda) has, in the place of phi(s) of TD(0), the trace e of a transition (s, a, s'):

        rho = pi(a|s) / behaviour(a|s), F = 1 + gamma rho' F', e = rho (gamma lambda e' + (lambda + (1 - lambda) F) phi)

    with rho', F' and e' of the transition before, or 0 where an episode begins; without emphasis, F = 1. Neither the
    followon trace F nor e takes finitely many values. A table has observations of the same mean instead:

    - In the place of F stands its mean in the state s, f(s) / mu(s) with f = (I - gamma P_pi^T)^{-1} mu.
    - In the place of e stands one state m of the episode: with probability gamma lambda it is kept when the chain moves
      on, else the new state takes its place. So m lies k steps back with probability (1 - gamma lambda) (gamma
      lambda)^k, and u = phi(m) / (1 - gamma lambda) has the mean e, given the trajectory; m is empty, and u = 0, with
      the probability that lies before the episode. The pairs (m, s) are a finite chain. Their noise is larger than
      that of e.
    - In the place of the product of the ratios from m to s stands its mean over the ways from m to s, a quotient of the
      visits (I - gamma lambda P)^{-1} of the two policies.

    So A_bar, b_bar, theta_star and xi_star are those of the method; noise and trajectories are those of these
    observations. P counts transitions of the behaviour that end nothing, and P_pi those of the policy; mu is the law of
    the behaviour.
    """
    edges, phi, (M, S) = on.edges, on.features, on.mu.shape
    t, decay = edges.table, discount * trace
    rho = np.ones(len(t)) if edges.ratio is None else edges.ratio
    kernel, kernel_pi = (_continuing(on, chance) for chance in (edges.conditional, edges.conditional * rho))
    weight, k = np.ones((M, S + 1, 1)), np.arange(len(t))  # of a credited state; the last one is none
    if emphatic:
        lived_in = on.mu > 0  # elsewhere a followon trace has no mean
        followon = np.einsum("ms,mst->mt", on.mu, _visits(discount * kernel_pi * lived_in[:, :, None]))
        weight[:, :S, 0][lived_in] = trace + (1 - trace) * followon[lived_in] / on.mu[lived_in]
    rows, right = on.differences(discount)
    chain, credited = on, edges.origin
    if decay > 0:
        visits = _visits(decay * kernel)
        visits_pi = visits if edges.ratio is None else _visits(decay * kernel_pi)
        if (visits_pi[visits == 0] > np.finfo(np.float64).eps).any():
            raise PrecisionError("behaviour must do what policy does more often than with probability 1e-300; got less")
        quotient = np.divide(visits_pi, visits, out=np.zeros_like(visits), where=visits > 0) / (1 - decay)
        weight = weight * np.concatenate([quotient, np.zeros((M, 1, S))], axis=1)
        chain, k = _pairs(on, visits, decay)
        credited = chain.edges.origin // S
    factor = weight[t[k], credited, edges.origin[k] % weight.shape[2]] * rho[k]
    used, left = np.unique(credited + 1j * factor, return_inverse=True)  # a row for each state and weight
    u = used.imag[:, None] * np.vstack([phi, np.zeros_like(phi[:1])])[used.real.astype(np.int64)]
    z = RankOne(np.concatenate([rows, u]), np.uint32(len(rows)) + left.astype(np.uint32), right[k], edges.y[k])
    return chain.problem(z, discount=discount, trace=trace, off_policy=edges.ratio is not None or emphatic)


def _pairs(on: Trajectories, visits: Floats, decay: float) -> tuple[Trajectories, Integers]:
    """The chain of pairs (m, s), numbered m S + s, with m = S where no state is credited; and the edge of each move."""
    edges, (M, S) = on.edges, on.mu.shape
    table, ends = edges.table, edges.ends
    begins = np.bincount(
        (table * S + edges.successor)[ends], (on.mu[table, edges.origin] * edges.conditional)[ends], M * S
    )
    empty = decay * np.einsum("ms,mst->mt", begins.reshape(M, S), visits)
    law = np.concatenate([(1 - decay) * on.mu[:, :, None] * visits, empty[:, None]], axis=1)
    restarts = np.bincount(table, ends, M) > 0
    possible = np.concatenate([visits > 0, np.broadcast_to(restarts[:, None, None], (M, 1, S))], axis=1)
    moves = 2 * int(possible.sum(axis=1)[table, edges.origin].sum())
    checks.memory("transitions, with every state that can be credited,", moves, 200, "each of them")
    k, m = np.nonzero(possible[table, :, edges.origin])
    s_next = edges.successor[k]
    kept = np.where(ends[k], S, m)
    kept = np.where(possible[table[k], kept, s_next], kept, s_next)  # what underflows does not happen
    k, kept = np.tile(k, 2), np.concatenate([kept, s_next])
    moved = edges.at(k)._replace(
        origin=np.tile(m, 2) * S + edges.origin[k],
        successor=kept * S + edges.successor[k],
        conditional=np.repeat([decay, 1 - decay], len(m)) * edges.conditional[k],
    )
    order = np.lexsort([moved.origin, moved.table])
    return on._replace(edges=moved.at(order), mu=law.reshape(M, -1)), k[order]


def _continuing(on: Trajectories, chance: Floats) -> Floats:
    """(M, S, S): kernels of the transitions that end nothing."""
    (M, S), edges = on.mu.shape, on.edges
    flat = (edges.table * S + edges.origin) * S + edges.successor
    out = np.bincount(flat, np.where(edges.ends, 0.0, chance), M * S * S)
    return np.asarray(out.reshape(M, S, S), np.float64)


def _visits(kernel: Floats) -> Floats:
    """(M, S, S): (I - K)^{-1} = I + K + K^2 + ..., without a subtraction, so that small entries keep their digits."""
    total, power, steps = np.eye(kernel.shape[1]) + kernel, kernel @ kernel, 2
    while steps < kernel.shape[1] or (power.max() > LEFT_OUT and steps < MOST_STEPS):
        total, power, steps = total + power @ total, power @ power, 2 * steps
    residual = np.abs(total - np.eye(kernel.shape[1]) - kernel @ total)
    error = np.divide(total @ residual, total, out=np.zeros_like(total), where=total > 0).max()
    if not error <= TOLERANCE:
        rule = f"expected numbers of visits must be known to {TOLERANCE:g}"
        raise PrecisionError(f"{rule}; got an error of {error:.2g}, where episodes are too long")
    return total

"""Exact moments of trajectories (algo:fed-lsa-markov) on the product of the agents' chains.

The state is E[y y^T 1{S_1 = s_1, ..., S_N = s_N}] with y = (u_hat_1, ..., u_hat_N, x_1, ..., x_N, 1), without the x
where control variates never change. Given where a round begins agents are independent, so their local steps may be
taken one agent after the other; the server's average and the correction of the x are one matrix on y.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ...checks import Floats
from .. import tuning
from ..recursions import at_rounds
from ..symmetric import smat, svec
from .chains import ChainMap


@dataclass(frozen=True, eq=False)
class JointLayout:
    """Where things stand in y: N agents of dimension d, with or without control variates that change."""

    N: int
    d: int
    controlled: bool

    @property
    def size(self) -> int:
        return self.N * self.d * (2 if self.controlled else 1) + 1

    def hat(self, c: int) -> list[int]:
        """The entries of u_hat_c."""
        return list(range(c * self.d, (c + 1) * self.d))

    def x(self, c: int) -> list[int]:
        """The entries of x_c."""
        return self.hat(self.N + c)

    def own(self, c: int) -> list[int]:
        """The entries of w_c = (u_hat_c, x_c, 1)."""
        return self.hat(c) + (self.x(c) if self.controlled else []) + [self.size - 1]

    def server(self, weights: Floats, gain: float) -> Floats:
        """The end of a round on y: every u_hat becomes their mean, x_c moves by gain (mean - u_hat_c)."""
        out, eye = np.eye(self.size), np.eye(self.d)
        mean = np.kron(weights, eye)  # (d, N d)
        hats = slice(0, self.N * self.d)
        for c in range(self.N):
            out[self.hat(c), hats] = mean
            if self.controlled:
                out[self.x(c), hats] = gain * mean
                out[np.ix_(self.x(c), self.hat(c))] -= gain * eye
        return out


class Stillness:
    """Whether a recursion has reached its limit: then nothing more needs to be computed.

    A change that has fallen to what it is in k rounds goes on to fall like that, so that k times it is still to come;
    a slow mode moves little in a round, and far in many.
    """

    def __init__(self) -> None:
        self.rounds = 0

    def reached(self, change: float, size: float) -> bool:
        """change : of a round, in a state of the given size."""
        self.rounds = self.rounds + 1 if change <= tuning.SETTLING * size else 0
        return self.rounds > 0 and change * self.rounds <= tuning.SETTLED * size


def local_steps(Y: Floats, layout: JointLayout, agents: Sequence[ChainMap]) -> Floats:
    """The moments after each agent has taken its observations; Y : (S_1, ..., S_N, size, size)."""
    for c, local in enumerate(agents):
        hat, own, d = layout.hat(c), layout.own(c), layout.d
        rest = [i for i in range(layout.size) if i not in hat]
        moved = np.moveaxis(Y, c, 0)
        before = moved.reshape(local.states, -1, layout.size, layout.size)
        after = np.tensordot(local.K, before, 1)
        cross = np.tensordot(local.mean, before[:, :, own][..., rest], ([2, 3], [0, 2])).transpose(0, 2, 1, 3)
        after[:, :, np.array(hat)[:, None], rest] = cross
        after[:, :, np.array(rest)[:, None], hat] = cross.transpose(0, 1, 3, 2)
        alone = svec(before[:, :, np.array(own)[:, None], own])
        alone = np.tensordot(local.second, alone, ([2, 3], [0, 2])).transpose(0, 2, 1)
        after[:, :, np.array(hat)[:, None], hat] = smat(alone, d)
        Y = np.moveaxis(after.reshape(moved.shape), 0, c)
    return Y


def random_steps(Y: Floats, layout: JointLayout, agents: Sequence[ChainMap], p: float) -> Floats:
    """The same for a Geometric(p) number of updates, the same for all agents: the sum over that number, term by term.

    `agents` is one update. The sum is infinite where the moments grow faster than long rounds become rare.
    """
    Y = local_steps(Y, layout, agents)
    total, share = p * Y, p
    for _ in range(tuning.MAX_SERIES_TERMS):
        share *= 1 - p
        if share == 0:
            return total
        Y = local_steps(Y, layout, agents)
        total += share * Y
        if share * np.abs(Y).max() <= tuning.SERIES_TAIL * p * np.abs(total).max():
            return total
    return np.full_like(Y, np.inf)


def curve(
    layout: JointLayout,
    laws: Sequence[Floats],
    u: Floats,
    x: Floats,
    weights: Floats,
    advance: Callable[[int, Floats], tuple[Floats, float]],
    steady: bool,
    recorded: NDArray[np.int64],
) -> tuple[Floats, Floats, Floats]:
    """E[u] : (R, d), E||u||^2 and sum_c w_c E||x_c||^2 : (R,) at the recorded rounds, from known u and x : (N, d).

    laws : of the first state of each chain; advance(t, Y) : the moments after the local steps of round t, and its gain
    steady : whether all rounds are alike, so that a state which no longer changes is the last
    """
    chains, d = tuple(range(layout.N)), layout.d

    def states() -> Iterator[Floats]:
        y = np.append(np.tile(u, layout.N), np.append(x.ravel(), 1.0) if layout.controlled else 1.0)
        Y, still = np.outer(y, y), Stillness()
        for law in reversed(laws):
            Y = np.multiply.outer(law, Y)
        for t in count():
            yield Y
            before, (Y, gain) = Y, advance(t, Y)
            end = layout.server(weights, gain)
            Y = end @ Y @ end.T
            if steady and still.reached(float(np.abs(Y - before).max()), float(np.abs(Y).max())):
                yield Y  # from here on nothing changes
                return

    def show(Y: Floats) -> tuple[Floats, float, float]:
        full = Y.sum(axis=chains)
        spread = np.sum(x**2, axis=1) @ weights
        if layout.controlled:
            spread = sum(weights[c] * np.diag(full)[layout.x(c)].sum() for c in chains)
        return full[:d, -1], float(np.trace(full[:d, :d])), float(spread)

    mean, mse, spread = at_rounds(states(), recorded, show)
    return mean, mse, spread

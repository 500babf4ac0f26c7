"""One agent's local steps of one round, compiled: what a site of a network does between two messages, or a short fit.

The draws are those of the engines, a function of (seed, agent, step), so rounds done one at a time, each in a process
of its own, make the run that `simulate` makes. `reference.Observer` is the readable twin.

This stands apart from engine/cpu_steps.py, whose kernels are compiled for a dimension and step many agents together on
tables of padded, aligned rows. A site has one agent, and its rows stay as they are in a mapped file. The dimension is a
number like any other here: one function serves all, and a new process has it from Numba's cache in milliseconds.
"""

# Numba infers the types of these functions itself.
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False, disallow-untyped-calls=False
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba  # noqa: F401  whole before a part: threads may ask for both at once
import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError
from ..kernel_cache import kernel
from ..problems import Problem, RankOne
from ..sampling import Replay, Sampling
from .outcome_tables import OutcomeTables, read_only
from .random import OBSERVATION, alias_bits, alias_tables, block, choose
from .reference import LocalSteps

Words = NDArray[np.uint32]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """A site's observations A(z) = u v^T + ridge I and b(z) = y u.

    u, v : (n, d) with rows in one place; y : (n,)
    slots : the alias table to draw from, of `alias_slots` where all have one probability; empty where they are a log
    row_clip : the longest gradient of a row; a longer one is shortened (`_shortened`). Needs v = u, a regression
    averaged : whether clipped steps take the mean of all rows' gradients, which is `Means` where none is longer
    """

    u: Floats
    v: Floats
    y: Floats
    ridge: float
    slots: Words
    row_clip: float | None = None
    averaged: bool = False

    def __post_init__(self) -> None:
        if self.row_clip is not None and self.v is not self.u:
            raise ArgumentError("row_clip must be None where v is not u: only a regression's rows are clipped")

    def __call__(
        self, theta: Floats, xi: Floats, eta: float, steps: int, first_step: int, seed: int, agent: int
    ) -> Floats:
        """theta_hat : (d,) after `steps` local steps on the agent's observations first_step, first_step + 1, ..."""
        u, y, (hat, xi) = read_only(self.u), read_only(self.y), _vectors(theta, xi, self.u.shape[1])
        ridge, clip = float(self.ridge), np.inf if self.row_clip is None else float(self.row_clip)
        if self.averaged:
            _on_every_row((u, y, ridge, clip), xi, float(eta), np.int64(steps), hat)
            return hat
        rows = u, u if self.v is self.u else read_only(self.v), y, ridge, read_only(self.slots)
        draws = np.uint64(seed), np.int64(agent), np.int64(first_step), np.int64(steps)
        _on_rows(rows, draws, xi, float(eta), clip, hat)
        return hat


@dataclass(frozen=True, eq=False)
class Means:
    """A site's means A_c : (d, d) and b_c : (d,): local steps without noise, which draw nothing."""

    A: Floats
    b: Floats

    def __call__(
        self, theta: Floats, xi: Floats, eta: float, steps: int, first_step: int, seed: int, agent: int
    ) -> Floats:
        hat, xi = _vectors(theta, xi, len(self.b))
        _on_means(read_only(self.A), read_only(np.asarray(self.b) + xi), float(eta), np.int64(steps), hat)
        return hat


def row_steps(problem: Problem, sampling: Sampling, outcomes: OutcomeTables, seed: int) -> LocalSteps:
    """The local steps of `reference.observed_steps`, for runs that are over before the engine is loaded.

    problem : with rank-one observations; sampling : fl.IID() or fl.Replay()
    """
    z, received = problem.observations, np.zeros(problem.n_agents, np.int64)
    assert isinstance(z, RankOne)
    tables = []
    for span, slot, shift in zip(problem.spans(), outcomes.slot, outcomes.shift, strict=True):
        u = z.rows[z.left[span]]
        v = u if z.left is z.right else z.rows[z.right[span]]
        size = 0 if isinstance(sampling, Replay) else 1 << (32 - int(shift))
        tables.append(Rows(u, v, z.y[span], z.ridge, outcomes.slots[slot : slot + size]))

    def walk(theta: Floats, xi: Floats, active: Integers, eta: Any, moments: Integers) -> Floats:
        out = np.full((len(xi), len(moments), len(theta)), np.nan)
        for c in active:
            theta_hat, rows = theta, tables[problem.assignment[c]]
            for k, steps in enumerate(np.diff(moments, prepend=0)):
                theta_hat = out[c, k] = rows(theta_hat, xi[c], float(eta), steps, received[c], seed, c)
                received[c] += steps
        return out

    return walk


def alias_slots(n: int) -> Words:
    """The alias table from which all engines draw one of n rows with the same probability : (2^bits,)."""
    if not 0 < n < 2**32:
        raise ArgumentError(f"a site must have between 1 and 2**32 - 1 rows; got {n}")
    return alias_tables(np.full(n, 1 / n), np.array([0]), np.array([n]), np.array([alias_bits(n)]))[0]


def _vectors(theta: Floats, xi: Floats, d: int) -> tuple[Floats, Floats]:
    """A copy of theta to be moved, and xi; of another length compiled code would read beyond the rows."""
    for name, value in (("theta", theta), ("xi", xi)):
        if np.shape(value) != (d,):
            raise ArgumentError(f"{name} must have shape ({d},), that of a row; got {np.shape(value)}")
    return np.array(theta, np.float64), read_only(np.asarray(xi, np.float64))


@register_jitable
def _length(u):
    """The length of a row whose square may overflow or vanish; not finite where no float holds it."""
    largest, total = 0.0, 0.0
    for x in u:
        largest = max(largest, abs(x))
    if largest == 0:
        return 0.0
    for x in u:
        total += (x / largest) ** 2
    return largest * np.sqrt(total)


@register_jitable
def _shortened(error, length, eta, clip):
    """A row's residual, such that its gradient u error is at most `clip` long and its step takes no two points apart.

    The first is Huber's loss; the second, eta |u|^2 <= 1, holds for every row whose step is stable by itself.
    """
    limit, stiffness = clip / length, eta * length * length
    if error != error or (limit == np.inf and abs(error) == np.inf):  # rows of 1e200 or of 0: their steps are nothing
        return 0.0
    error = min(max(error, -limit), limit)
    return error / stiffness if stiffness > 1 else error


@kernel(error_model="numpy", nogil=True)
def _on_rows(rows, draws, xi, eta, clip, hat):
    """theta_hat <- theta_hat - eta (u (v . theta_hat - y) + ridge theta_hat - xi), on rows as drawn, or in order."""
    (u, v, y, ridge, slots), (seed, agent, first, steps) = rows, draws
    d, n, size, shift = len(hat), len(y), len(slots), 32
    while size > 1:
        size >>= 1
        shift -= 1
    x = block(seed, agent, OBSERVATION, first // 4)
    for step in range(first, first + steps):
        if size == 0:  # a log
            k = step % n
        else:
            if step % 4 == 0:
                x = block(seed, agent, OBSERVATION, step // 4)
            word = np.int64(x[step % 4])
            k = choose(word, np.int64(slots[word >> shift]), shift)
        error = -y[k]
        for i in range(d):
            error += v[k, i] * hat[i]
        if clip < np.inf:
            length = _length(u[k])
            if not length < np.inf:  # as if the row were 0
                for i in range(d):
                    hat[i] -= eta * (ridge * hat[i] - xi[i])
                continue
            error = _shortened(error, length, eta, clip)
        for i in range(d):
            hat[i] -= eta * (u[k, i] * error + ridge * hat[i] - xi[i])


@kernel(error_model="numpy", nogil=True)
def _on_means(A, b, eta, steps, hat):
    """theta_hat <- theta_hat - eta (A theta_hat - b), with the control variate in b."""
    d = len(hat)
    change = np.empty(d)
    for _ in range(steps):
        for i in range(d):
            total = -b[i]
            for j in range(d):
                total += A[i, j] * hat[j]
            change[i] = total
        for i in range(d):
            hat[i] -= eta * change[i]


@kernel(error_model="numpy", nogil=True)
def _on_every_row(rows, xi, eta, steps, hat):
    """theta_hat <- theta_hat - eta (mean of u error over all rows + ridge theta_hat - xi), with shortened errors."""
    u, y, ridge, clip = rows
    n, d = u.shape
    length, change = np.empty(n), np.empty(d)
    for k in range(n):
        length[k] = _length(u[k])
    for _ in range(steps):
        change[:] = 0.0
        for k in range(n):
            if not length[k] < np.inf:  # as if the row were 0
                continue
            error = -y[k]
            for i in range(d):
                error += u[k, i] * hat[i]
            error = _shortened(error, length[k], eta, clip)
            for i in range(d):
                change[i] += u[k, i] * error
        for i in range(d):
            hat[i] -= eta * (change[i] / n + ridge * hat[i] - xi[i])

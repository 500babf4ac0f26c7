"""Local steps of agents that remember what each row of their table last gave: their moments, for SAGA.

Row z of an agent's table is A(z) = L_z F_z + ridge I, b(z) = L_z f_z: it gives F_z theta - f_z, a number where it is of
rank one, else d numbers. Measured from their values at theta_star, what rows last gave, g_z, and v = theta - theta_star
go in a step on row z, with c_z = F_z v - g_z and x = xi - xi_star,

    v <- v - eta (L_z c_z + sum_j p_j L_j g_j + (ridge + pull) v - x),   g_z <- g_z + c_z,

without a constant, for what rows give at theta_star has the mean xi_star. So second moments of s = (v, g, x) close: in
expectation v <- v - eta ((A_bar + pull) v - x) and g_j <- g_j + p_j c_j, and with E = (-eta L, I) over (v, g), c of all
rows, and Q = diag_z(p_z c_z c_z^T) - (p c)(p c)^T, a step adds the covariance E Q E^T.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Dense, Problem
from . import tuning


class TableSteps:
    """The local steps of a round of all agents. What rows last gave stands in `vectors` vectors of d, then 0.

    ideal : (N, vectors d), what rows give at theta_star; average : (N, d, vectors d), to the mean over rows
    """

    def __init__(self, problem: Problem, eta: Floats, steps: NDArray[np.int64], pull: float) -> None:
        p, N, d, numbers = problem, problem.n_agents, problem.dim, self.count_vectors(problem) * problem.dim
        most = int(tuning.MAX_TABLE_WORK / (N * (numbers + 2 * d) ** 2 * d + tuning.ROUND_OVERHEAD))
        if int(steps.max()) > most:
            rule = f"local_steps must be at most {most} for exact moments where so many rows are remembered"
            raise ArgumentError(f"{rule}; got {steps.max()}")
        self.d, self.eta, self.steps = d, eta[:, None, None], steps[:, None, None]
        self.L, self.F = np.zeros((N, d, numbers)), np.zeros((N, numbers, d))
        self.prob, self.ideal = np.zeros((N, numbers, 1)), np.zeros((N, numbers))
        for c, span in enumerate(list(p.spans())[m] for m in p.assignment):
            L, F, f = p.observations.factors(span)
            each, n = f.shape[1], f.size
            self.L[c, :, :n], self.F[c, :n] = L.swapaxes(0, 1).reshape(d, n), F.reshape(n, d)
            self.prob[c, :n, 0] = np.repeat(p.prob[span], each)
            self.ideal[c, :n] = self.F[c, :n] @ p.theta_star - f.ravel()
        self.same = np.equal.outer(*(np.arange(numbers) // each,) * 2)  # numbers of one row
        self.average = self.L * self.prob.swapaxes(1, 2)
        A_bar = self.average @ self.F + (p.observations.ridge + pull) * np.eye(d)
        self.keep = np.eye(d) - self.eta * A_bar

    @staticmethod
    def count_vectors(problem: Problem) -> int:
        """How many vectors of d hold what the rows of an agent's table last gave, of that with the most."""
        most = int(np.diff(problem.first)[problem.assignment].max())
        return most if isinstance(problem.observations, Dense) else -(-most // problem.dim)

    def _move(self, s: Floats, h: int) -> Floats:
        """The mean of step h, of maps or covariances : (N, n, columns)."""
        v, g, x = s[:, : self.d], s[:, self.d : -self.d], s[:, -self.d :]
        moved = np.concatenate([self.keep @ v + self.eta * x, g + self.prob * (self.F @ v - g), x], axis=1)
        return np.where(h < self.steps, moved, s)

    def end(self, s: Floats) -> Floats:
        """Where steps end in expectation, (v, g), from where they start : (N, n, columns)."""
        for h in range(int(self.steps.max())):
            s = self._move(s, h)
        return s[:, : -self.d]

    def noise(self, s: Floats, C: Floats) -> Floats:
        """The covariance of (v, g) that steps add. s : (N, n, 1), the mean of s at the start; C : (N, n, n)."""
        d, F, out, down = self.d, self.F, np.zeros_like(C), -self.eta * self.L
        for h in range(int(self.steps.max())):
            X = C + out
            far = F @ s[:, :d] - s[:, d:-d]  # means go through first: what cancels is not squared before
            half = F @ X[:, :d] - X[:, d:-d]
            Y = self.prob * (far @ far.swapaxes(1, 2) + half[..., :d] @ F.swapaxes(1, 2) - half[..., d:-d])
            Q = np.where(h < self.steps, self.same * Y - Y * self.prob.swapaxes(1, 2), 0.0)
            across = down @ Q
            out = self._move(self._move(out, h).swapaxes(1, 2), h)
            out[:, :d, :d] += across @ down.swapaxes(1, 2)
            out[:, :d, d:-d] += across
            out[:, d:-d, :d] += across.swapaxes(1, 2)
            out[:, d:-d, d:-d] += Q
            s, C = self._move(s, h), self._move(self._move(C, h).swapaxes(1, 2), h)
        return out[:, :-d, :-d]

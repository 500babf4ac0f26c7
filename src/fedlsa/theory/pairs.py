"""A round of a method with control variates in coordinates that hold half the numbers and nothing conserved.

Where theory/controlled.py keeps (u, x_1, ..., x_N) with sum_c w_c x_c = 0, this keeps y_c = x_c - gain u alone, for

    y_c+ = x_c - gain u_hat_c = F_c y_c + B_c u - gain n_c,   F = I - gain Q, B = gain (F - P), u = -y_bar / gain,

and the noises n_c of different agents are independent given the past. The vector of a state is E[y_k], svec E[y y^T]
of one agent per group, and E[y y'^T] of two different agents for groups k <= l, as tiles (theory/tiles.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..checks import Floats
from . import tiles
from .controlled import Round, State
from .symmetric import functionals, rows_of, smat, svec, symkron, triangle
from .threads import cores, share

MANY = 2**16  # numbers per pass below which threads cost more than they bring


@dataclass(frozen=True, eq=False)
class PairMap:
    """A round on vectors of length `length`. F, B : (K, d, d); own : (K, s, S), svec E[w w^T] to svec E[y+ y+^T]."""

    round: Round
    F: Floats
    B: Floats
    own: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """Number of groups and dimension."""
        return int(self.F.shape[0]), int(self.F.shape[1])

    @property
    def length(self) -> int:
        """How many numbers a state has."""
        K, d = self.shape
        return K * d + K * d * (d + 1) // 2 + K * (K + 1) // 2 * d * d

    def parts(self, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """Views of E[y] : (K, d), svec E[y y^T] : (K, s) and the tiles : (K (K + 1) / 2, d, d)."""
        K, d = self.shape
        a, b = K * d, K * d + K * d * (d + 1) // 2
        return vector[:a].reshape(K, d), vector[a:b].reshape(K, -1), vector[b:].reshape(-1, d, d)

    def cuts(self, numbers: int) -> list[int]:
        """Rows of pairs for each thread, with about as many tiles each."""
        K = self.shape[0]
        n = min(cores(), K) if numbers > MANY else 1
        return [0, *(round(K * (1 - np.sqrt(1 - i / n))) for i in range(1, n)), K]

    @cached_property
    def weights(self) -> tuple[Floats, Floats, Floats]:
        """Those of groups in y_bar, and those of each agent's and of each tile's trace in E||y_bar||^2."""
        m = self.round.moments
        total, (i, j) = m.count * m.weight, np.triu_indices(self.shape[0])
        pairs = np.where(i == j, (total - m.weight)[i] * total[i], 2 * total[i] * total[j])
        return total, total * m.weight, pairs

    @cached_property
    def held(self) -> tuple[Floats, ...]:
        """What the passes over tiles need of a round: F and B, or the eigenbases, with their transposes."""
        length = self.round.cross
        if length is None:
            return self.F, _turned(self.F), self.B, _turned(self.B)
        E, inverse = length.basis, length.inverse
        return *(_split(z) for z in (_turned(E), inverse, _turned(inverse))), length.kept.astype(np.complex128)

    def common(self, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """E[u] : (d,), E[u u^T] : (d, d) and E[u y^T] : (K, d, d) of one agent per group."""
        m, k, (K, d) = self.round.moments, self.round.gain, self.shape
        y, V, W = self.parts(vector)
        weights, cuts = self.weights[0], self.cuts(W.size)
        found = np.zeros((len(cuts) - 1, K, d, d))
        share(lambda a, b: tiles.sums(W, V, m.weight, m.count, a, b, found[cuts.index(a)]), cuts)
        uy = found.sum(0) / -k
        U = (weights @ uy.reshape(K, d * d)).reshape(d, d) / -k
        return weights @ y / -k, (U + U.T) / 2, uy

    def mean(self, y: Floats) -> Floats:
        """E[y] : (K, d) one round later."""
        u = self.weights[0] @ y / -self.round.gain
        return (self.F @ y[..., None])[..., 0] + self.B @ u

    def advance(self, vector: Floats, constant: float = 1.0) -> Floats:
        """The vector one round later; constant = 0 leaves the noise out, which makes the map linear."""
        m, k = self.round.moments, self.round.gain
        u, U, uy = self.common(vector)
        y, V, W = self.parts(vector)
        out = np.empty(self.length)
        y_out, V_out, W_out = self.parts(out)
        y_out[:] = self.mean(y)
        share(lambda a, b: tiles.alone(y, V, u, U, uy, self.own, constant, a, b, V_out), self.cuts(self.own.size))
        yu = _turned(uy)
        length = self.round.cross
        if length is None:
            F, F_t, B, B_t = self.held
            R = F @ yu + B @ U / 2
            arrays = (F, F_t, R, _turned(R), B, B_t, m.count)
            share(lambda a, b: tiles.fixed(W, *arrays, a, b, W_out), self.cuts(W.size))
        else:
            *bases, kept = self.held
            S = length.inverse @ yu
            both = [_split(z) for z in (S, _turned(S), length.inverse @ U)]
            numbers = (length.p, length.eta, k, m.count)
            share(lambda a, b: tiles.geometric(W, *bases, *both, kept, *numbers, a, b, W_out), self.cuts(8 * W.size))
        return out

    def look(self, vectors: Floats) -> Floats:
        """(E[u], E||u||^2, sum_c w_c E||x_c||^2) : (..., d + 2), all that curves show; vectors : (..., length).

        Since y_bar = -gain u, the last is sum_c w_c E||y_c||^2 - E||y_bar||^2.
        """
        k, (K, d), (total, one, two), lead = self.round.gain, self.shape, self.weights, vectors.shape[:-1]
        a, b = K * d, K * d + K * d * (d + 1) // 2
        y = total @ vectors[..., :a].reshape(*lead, K, d)
        diagonal = np.flatnonzero(np.equal(*triangle(d)))
        V = vectors[..., a:b].reshape(*lead, K, -1)[..., diagonal].sum(-1)
        W = np.trace(vectors[..., b:].reshape(*lead, -1, d, d), axis1=-2, axis2=-1)
        square = V @ one + W @ two  # E||y_bar||^2
        return np.concatenate([y / -k, np.stack([square / k**2, V @ total - square], -1)], -1)

    def pack(self, s: State) -> Floats:
        """The vector of a state of theory/controlled.py."""
        k, (K, _) = self.round.gain, self.shape
        out = np.empty(self.length)
        y, V, W = self.parts(out)
        y[:] = s.x - k * s.u
        V[:] = svec(s.V - k * (s.X + s.X.transpose(0, 2, 1)) + k**2 * s.U)
        i, j = np.triu_indices(K)
        W[:] = s.W[i, :, j] - k * (s.X.transpose(0, 2, 1)[i] + s.X[j]) + k**2 * s.U
        W[(i == j) & (self.round.moments.count[i] == 1)] = 0
        return out

    def unpack(self, vector: Floats) -> State:
        """The inverse of `pack`."""
        k, (K, d) = self.round.gain, self.shape
        u, U, uy = self.common(vector)
        y, V, W = self.parts(vector)
        X = uy + k * U
        i, j = np.triu_indices(K)
        pairs = W + k * (uy.transpose(0, 2, 1)[i] + uy[j]) + k**2 * U
        both = np.empty((K, d, K, d))
        both[j, :, i] = pairs.transpose(0, 2, 1)
        both[i, :, j] = pairs
        return State(u, y + k * u, U, X, smat(V, d) + k * (uy + uy.transpose(0, 2, 1)) + k**2 * U, both)


def _turned(F: Floats) -> Floats:
    return np.ascontiguousarray(F.transpose(0, 2, 1))


def _split(z: Floats) -> Floats:
    """Real and imaginary parts : (2, ...)."""
    return np.stack([z.real, z.imag])


def pair_map(step: Round) -> PairMap:
    """A round of theory/controlled.py in the coordinates y = x - gain u."""
    k, d = step.gain, step.moments.dim
    F = np.eye(d) - k * step.Q
    B = k * (F - step.P)
    D = functionals(k**2 * step.noise, 2 * d + 1)  # now x = y + gain u in each row
    x = slice(d, 2 * d)
    D[..., :d, :] += k * D[..., x, :]
    D[..., :, :d] += k * D[..., :, x]
    own = np.ascontiguousarray(rows_of(D))  # which every round reads
    own += symkron(np.concatenate([B, F, np.zeros((len(F), d, 1))], axis=2))
    return PairMap(step, F, B, own)


def looks(step: Round, begin: State) -> Iterator[Floats]:
    """What `PairMap.look` sees after 1, 2, ... rounds."""
    pairs = pair_map(step)
    vector = pairs.pack(begin)
    while True:
        vector = pairs.advance(vector)
        yield pairs.look(vector)

"""Exact runs of problems without noise, in any dimension: sites that step with their own means A_c and b_c.

Nothing is random, so E||theta_t - theta_star||^2 is the square of what the recursion of the means gives. In centred
coordinates u = theta - theta_star, x_c = xi_c - xi_star_c, a round of H local steps is

    u_hat_c = (I - eta A_c)^H u + kappa_c x_c,   kappa_c = eta sum_{h < H} (I - eta A_c)^h.

Where the A_c have eigenvectors, both are numbers in their basis, whatever H is: a round costs O(N d^2), and another
step size costs nothing. Where they have none (or nearly none), powers cost O(N d^3 log H). The rounds of Scaffnew have
random lengths, so it is random even here: its second moments are in joint.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.special import expm1, log1p  # of complex numbers to full precision, which NumPy's are not

from ..checks import Floats
from . import tuning
from .linear import repeat
from .problem_moments import Moments

Factor = NDArray[Any]  # real or complex


def powers_of(value: Factor, eta: Any, H: Any) -> tuple[Factor, Factor]:
    """(1 - eta lambda)^H and kappa = eta sum_{h < H} (1 - eta lambda)^h for eigenvalues of any shape."""
    z = eta * value
    small = np.abs(z) < tuning.LOG1P_BELOW
    logs = H * log1p(-np.where(small, z, 0))
    power = np.where(small, np.exp(logs), (1 - z) ** H)
    lost = np.where(small, -expm1(logs), 1 - power)  # of a component, in a round
    zero = value == 0
    return power, np.where(zero, eta * H, lost / np.where(zero, 1, value))


@dataclass(frozen=True, eq=False)
class Modes:
    """Local steps of K matrices in their eigenbases, written in real numbers.

    value : (K, d) eigenvalues; to : (K d, d), u in all bases; back : (d, K d), the sum of vectors in them; share : (K,)
    The coordinates of a pair of conjugate eigenvalues are the real and the imaginary part of the first of them, and
    partner : (K, d) is where the other part stands; None where all eigenvalues are real.
    """

    value: Factor
    to: Floats
    back: Floats
    share: Floats
    partner: NDArray[np.intp] | None

    def powers(self, eta: float, H: int) -> tuple[Factor, Factor]:
        """(1 - eta lambda)^H and kappa for each eigenvalue."""
        return powers_of(self.value, eta, H)

    def times(self, factor: Factor, y: Floats) -> Floats:
        """The factor of each mode, applied to vectors in the bases : (K, d) or (K, d, n)."""
        f = factor if y.ndim == 2 else factor[..., None]
        if self.partner is None:
            return np.asarray(f * y, np.float64)
        other = np.take_along_axis(y, self.partner if y.ndim == 2 else self.partner[..., None], axis=1)
        return np.asarray(f.real * y - f.imag * other, np.float64)

    def common(self, u: Floats) -> Floats:
        """A common vector in all bases : (d,) -> (K, d)."""
        return (self.to @ u).reshape(self.value.shape)

    def in_bases(self, x: Floats) -> Floats:
        """A vector of each group in its basis : (K, d) -> (K, d)."""
        K, d = self.value.shape[:2]
        return np.asarray((self.to.reshape(K, d, d) @ x[..., None])[..., 0])

    def written(self, y: Floats) -> Floats:
        """A vector of each group, from its basis : (K, d) -> (K, d)."""
        K, d = self.value.shape[:2]
        return np.asarray(np.einsum("ikj,kj->ki", self.back.reshape(d, K, d), y), np.float64)

    def mean(self, y: Floats) -> Floats:
        """sum_k share_k of vectors in the bases : (K, d) -> (d,), (K, d, n) -> (d, n)."""
        weighted = self.share.reshape(-1, *[1] * (y.ndim - 1)) * y
        return np.asarray(self.back @ weighted.reshape(self.back.shape[1], *y.shape[2:]), np.float64)

    def identity(self) -> Floats:
        """I in all bases : (K, d, d)."""
        return self.to.reshape(*self.value.shape[:2], -1)


class Powers(Modes):
    """The same by repeated squaring, for matrices A : (K, d, d) without a good basis of eigenvectors: none is changed.

    Here `value` is A, and the factors of `powers` are matrices.
    """

    def powers(self, eta: float, H: int) -> tuple[Factor, Factor]:
        """(I - eta A)^H and kappa : (K, d, d)."""
        one = np.eye(self.value.shape[-1])

        def then(a: tuple[Factor, Factor], b: tuple[Factor, Factor]) -> tuple[Factor, Factor]:
            (power, kappa), (power_b, kappa_b) = a, b
            return power @ power_b, kappa + power @ kappa_b

        step = one - eta * self.value
        return repeat((step, np.broadcast_to(eta * one, step.shape)), H, then)

    def times(self, factor: Factor, y: Floats) -> Floats:
        """factor_k y_k."""
        return np.asarray(factor @ y if y.ndim == 3 else (factor @ y[..., None])[..., 0])

    def common(self, u: Floats) -> Floats:
        """u for each group; `value`, whose shape the other bases have, holds matrices here."""
        return np.broadcast_to(u, self.value.shape[:2])

    def mean(self, y: Floats) -> Floats:
        """sum_k share_k y_k."""
        return np.tensordot(self.share, y, 1)


def modes_of(A: Floats, share: Floats) -> Modes:
    """Powers of I - eta A_k in the cheapest way that keeps enough digits. A : (K, d, d); share : (K,)."""
    K, d = A.shape[:2]
    if np.abs(A - A.transpose(0, 2, 1)).max() <= 1e-15 * np.abs(A).max():
        value, basis = np.linalg.eigh(A)
        to = np.ascontiguousarray(basis.transpose(0, 2, 1)).reshape(K * d, d)
        return Modes(value, to, to.T, share, None)  # one matrix for both ways stays in the cache
    value, vectors = np.linalg.eig(A)
    basis = np.where(value.imag[:, None] < 0, vectors.imag, vectors.real)  # u = Re(c v): Re c, Im c have a place each
    with np.errstate(all="ignore"):
        good = np.linalg.cond(basis).max() < tuning.MAX_EIGENVECTOR_CONDITION
    if good:
        to = np.linalg.inv(basis).reshape(K * d, d)
        back = np.ascontiguousarray(basis.transpose(1, 0, 2)).reshape(d, K * d)
        partner = (np.arange(d) + np.sign(value.imag)).astype(np.intp) if np.iscomplexobj(value) else None
        modes = Modes(value, to, back, share, partner)
        again = back.reshape(d, K, d).transpose(1, 0, 2) @ modes.times(value, modes.identity())
        off, size = np.abs(again - A).max((1, 2)), np.abs(A).max((1, 2))
        if (off <= tuning.EIGENBASIS_RESIDUAL * size).all():
            return modes
    one = np.eye(d)  # the basis that is there
    return Powers(A, np.tile(one, (K, 1)), np.tile(one, K), share, None)


_KNOWN: WeakKeyDictionary[Moments, Modes] = WeakKeyDictionary()  # moments do not change, so neither do these


def local_powers(m: Moments) -> Modes:
    """Powers of the local steps of each group, for any step size. Computed once for given moments."""
    found = _KNOWN.get(m)  # in one go: it may be known by equal moments that are about to go
    if found is None:
        found = _KNOWN[m] = modes_of(m.A_bar[m.table], m.count * m.weight)
    return found


@dataclass(frozen=True, eq=False)
class NoiselessMap:
    """A round of SCAFFLSA on means (u, y_1, ..., y_K), as joint.py has it, in any dimension; covariances have length 0.

    y_k = x_k - gain u is written in the bases of `local`. Then y+ = x - gain u_hat, and nothing is conserved.
    """

    local: Modes
    eta: float
    H: int
    length, u_norm = 0, 1.0

    @property
    def share(self) -> Floats:
        return self.local.share

    @cached_property
    def gain(self) -> float:
        return 1 / (self.eta * self.H)

    @cached_property
    def _powers(self) -> tuple[Factor, Factor]:
        return self.local.powers(self.eta, self.H)

    def _split(self, means: Floats) -> tuple[Floats, Floats]:
        """Views of u : (d,) and of y : (K, d)."""
        d = self.local.back.shape[0]
        return means[:d], means[d:].reshape(-1, d)

    def start(self, u: Floats, x: Floats) -> Floats:
        """Means of known u : (d,) and x : (K, d)."""
        return np.append(u, self.local.in_bases(x) - self.gain * self.local.common(u))

    def taken_over(self, before: NoiselessMap, means: Floats) -> Floats:
        """Means of a round with another gain."""
        u, y = self._split(means)
        return np.append(u, y + (before.gain - self.gain) * self.local.common(u))

    def mean(self, means: Floats) -> Floats:
        """The means one round later."""
        (u, y), (power, kappa), local, out = self._split(means), self._powers, self.local, np.empty_like(means)
        common = local.common(u)
        x = y + self.gain * common
        hat = local.times(power, common) + local.times(kappa, x)
        u, y = self._split(out)
        u[:], y[:] = local.mean(hat), x - self.gain * hat
        return out

    def of_agents(self, y: Floats) -> Floats:
        """All y in one vector one round later, where u = -y_bar / gain."""
        d = self.local.back.shape[0]
        return self.mean(np.append(self.local.mean(y.reshape(-1, d)) / -self.gain, y))[d:]

    def read(self, means: Floats) -> tuple[Floats, Floats, Floats]:
        """y and x : (K, d), with u : (d,) between them."""
        u, y = self._split(means)
        return y, u, self.local.written(y + self.gain * self.local.common(u))

    def covariances(self, vector: Floats) -> Floats:
        """Nothing varies, in whatever dimension."""
        return np.zeros(2)

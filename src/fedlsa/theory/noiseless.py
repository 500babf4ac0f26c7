"""Exact runs of problems without noise, in any dimension: sites that step with their own means A_c and b_c.

Nothing is random, so E||theta_t - theta_star||^2 is the square of what the recursion of the means gives. In centred
coordinates u = theta - theta_star, x_c = xi_c - xi_star_c, a round of H local steps is

    u_hat_c = (I - eta A_c)^H u + kappa_c x_c,   kappa_c = eta sum_{h < H} (I - eta A_c)^h.

Where the A_c have eigenvectors, both are numbers in their basis, whatever H is: a round costs O(N d^2), and another
step size costs nothing. Where they have none (or nearly none), powers cost O(N d^3 log H). The rounds of Scaffnew have
random lengths, so it is random even here, and theory/controlled.py has its second moments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import SCAFFLSA, Algorithm, FedLSA
from ..checks import Floats
from . import tuning
from .moments import Moments

Factor = NDArray[Any]  # real or complex


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
        z = eta * self.value
        small = np.abs(z) < tuning.LOG1P_BELOW
        logs = H * np.log1p(-np.where(small, z, 0))
        power = np.where(small, np.exp(logs), (1 - z) ** H)
        lost = np.where(small, -np.expm1(logs), 1 - power)  # of a component, in a round
        zero = self.value == 0
        return power, np.where(zero, eta * H, lost / np.where(zero, 1, self.value))

    def times(self, factor: Factor, y: Floats) -> Floats:
        """The factor of each mode, applied to vectors in the bases : (K, d) or (K, d, n)."""
        f = factor if y.ndim == 2 else factor[..., None]
        if self.partner is None:
            return np.asarray(f * y, np.float64)
        other = np.take_along_axis(y, self.partner if y.ndim == 2 else self.partner[..., None], axis=1)
        return np.asarray(f.real * y - f.imag * other, np.float64)

    def seen(self, u: Floats) -> Floats:
        """A common vector in all bases : (d,) -> (K, d)."""
        return (self.to @ u).reshape(self.value.shape)

    def own(self, x: Floats) -> Floats:
        """A vector of each group in its basis : (K, d) -> (K, d)."""
        K, d = self.value.shape
        return np.asarray((self.to.reshape(K, d, d) @ x[..., None])[..., 0])

    def written(self, y: Floats) -> Floats:
        """A vector of each group, from its basis : (K, d) -> (K, d)."""
        K, d = self.value.shape
        return np.asarray(np.einsum("ikj,kj->ki", self.back.reshape(d, K, d), y), np.float64)

    def mean(self, y: Floats) -> Floats:
        """sum_k share_k of vectors in the bases : (K, d) -> (d,), (K, d, n) -> (d, n)."""
        weighted = self.share.reshape(-1, *[1] * (y.ndim - 1)) * y
        return np.asarray(self.back @ weighted.reshape(self.back.shape[1], *y.shape[2:]), np.float64)

    def identity(self) -> Floats:
        """I in all bases : (K, d, d)."""
        return self.to.reshape(*self.value.shape, -1)


@dataclass(frozen=True, eq=False)
class Powers:
    """The same by repeated squaring, for matrices without a good basis of eigenvectors. A : (K, d, d)."""

    A: Floats
    share: Floats

    def powers(self, eta: float, H: int) -> tuple[Factor, Factor]:
        """(I - eta A)^H and kappa : (K, d, d)."""
        one = np.eye(self.A.shape[-1])
        step = one - eta * self.A
        power, kappa = step, np.broadcast_to(eta * one, step.shape)
        for bit in bin(H)[3:]:
            power, kappa = power @ power, kappa + power @ kappa
            if bit == "1":
                power, kappa = power @ step, kappa + eta * power
        return power, kappa

    def times(self, factor: Factor, y: Floats) -> Floats:
        """factor_k y_k."""
        return np.asarray(factor @ y if y.ndim == 3 else (factor @ y[..., None])[..., 0])

    def seen(self, u: Floats) -> Floats:
        """u for each group."""
        return np.broadcast_to(u, self.A.shape[:2])

    def own(self, x: Floats) -> Floats:
        """x, as it is."""
        return x

    def written(self, y: Floats) -> Floats:
        """y, as it is."""
        return y

    def mean(self, y: Floats) -> Floats:
        """sum_k share_k y_k."""
        return np.tensordot(self.share, y, 1)

    def identity(self) -> Floats:
        """I for each group."""
        return np.broadcast_to(np.eye(self.A.shape[-1]), self.A.shape)


Local = Modes | Powers


def local_steps(A: Floats, share: Floats) -> Local:
    """Powers of I - eta A_k in the cheapest way that keeps enough digits. A : (K, d, d); share : (K,)."""
    K, d = A.shape[:2]
    if np.abs(A - A.transpose(0, 2, 1)).max() <= 1e-15 * np.abs(A).max():
        value, basis = np.linalg.eigh(A)
        to = np.ascontiguousarray(basis.transpose(0, 2, 1)).reshape(K * d, d)
        return Modes(value, to, to.T, share, None)  # one matrix for both ways stays in the cache
    value, vectors = np.linalg.eig(A)
    basis = np.where(value.imag[:, None] < 0, vectors.imag, vectors.real)  # u = Re(c v): Re c, Im c have a place each
    with np.errstate(all="ignore"):
        if not np.linalg.cond(basis).max() < tuning.MAX_EIGENVECTOR_CONDITION:
            return Powers(A, share)
    to = np.linalg.inv(basis).reshape(K * d, d)
    back = np.ascontiguousarray(basis.transpose(1, 0, 2)).reshape(d, K * d)
    partner = (np.arange(d) + np.sign(value.imag)).astype(np.intp) if np.iscomplexobj(value) else None
    modes = Modes(value, to, back, share, partner)
    again = back.reshape(d, K, d).transpose(1, 0, 2) @ modes.times(value, modes.identity())
    off, size = np.abs(again - A).max((1, 2)), np.abs(A).max((1, 2))
    return modes if (off <= tuning.EIGENBASIS_RESIDUAL * size).all() else Powers(A, share)


class Quiet:
    """Errors of FedLSA and SCAFFLSA on moments without noise, from u_0 = theta_0 - theta_star; see search.Noisy.

    edge : the largest step size below which single steps of all agents together converge
    """

    def __init__(self, m: Moments, name: str, start: Floats) -> None:
        self.name, self.start, self.x = name, start, -m.xi_star[m.table]
        share = m.count * m.weight
        self.local = local_steps(m.A_bar[m.table], share)
        self.together = local_steps(np.tensordot(share, m.A_bar[m.table], 1)[None], np.ones(1))
        self.edge = edge(np.tensordot(share, m.A_bar[m.table], 1))

    def error(self, eta: float, H: int, T: int) -> float:
        """||theta_T - theta_star||^2, infinite where it overflows."""
        begin = float(self.start @ self.start)
        with np.errstate(all="ignore"):
            if H == 1:
                return self.alone(eta, T)
            if self.name == "fedlsa":
                u = _repeated(fedlsa_round(self.local, eta, H, self.x), np.append(self.start, 1.0), T)[:-1]
                return finite(float(u @ u))
            mse = begin
            for u, _ in islice(rounds_of_scafflsa(self.local, eta, H, self.start, self.x), T):
                mse = float(u @ u)
                if not mse < tuning.DIVERGED * begin:
                    return math.inf
        return mse

    def first_round(self, eta: float, H: int, T: int, target: float) -> int:
        """The first of T rounds at whose end the error is at most `target`; T if it is none before."""
        with np.errstate(all="ignore"):
            if self.name == "fedlsa" or H == 1:
                steps = _orbit(fedlsa_round(self.local, eta, H, self.x), np.append(self.start, 1.0))
            else:
                steps = (u for u, _ in rounds_of_scafflsa(self.local, eta, H, self.start, self.x))
            return next((t for t, u in enumerate(islice(steps, T - 1), 1) if u @ u <= target), T)

    def alone(self, eta: float, t: int) -> float:
        """The error after t rounds of one local step, which are t steps with the averaged matrix."""
        together = self.together
        with np.errstate(all="ignore"):
            u = together.mean(together.times(together.powers(eta, t)[0], together.seen(self.start)))
            return finite(float(u @ u))

    def first_below(self, eta: float, target: float, most: int) -> int | None:
        """The first round of one local step at which the error is at most `target`, if within about `most`."""
        return first_below(lambda t: self.alone(eta, t), target, most) if eta < self.edge else None


def edge(A: Floats) -> float:
    """The step size below which all eigenvalues of I - eta A are inside the unit circle; 0 if there is none."""
    value = np.linalg.eigvals(A)
    if value.real.min() <= 0:
        return 0.0
    return float((2 * value.real / np.abs(value) ** 2).min())


def suits(m: Moments, a: Algorithm) -> bool:
    """Whether a run is of the kind that this file knows: nothing is random, and every round is like the first."""
    alike = isinstance(a.step_size, float) and a.average_after is None and a.taking_part(m.n_agents) == m.n_agents
    return m.quiet and alike and isinstance(a, (FedLSA, SCAFFLSA))


def curve(
    m: Moments, a: FedLSA | SCAFFLSA, start: Floats, x: Floats, recorded: NDArray[np.int64]
) -> tuple[Floats, Floats | None]:
    """u at the given rounds : (R, d), and for SCAFFLSA sum_c w_c ||x_c||^2 : (R,); x : (K, d) at the start."""
    share, eta, wanted = m.count * m.weight, float(a.eta(np.zeros(1, np.int64))[0]), set(recorded.tolist())
    local = local_steps(m.A_bar[m.table], share)
    u: dict[int, Floats] = {0: start}
    if isinstance(a, FedLSA):
        steps = _orbit(fedlsa_round(local, eta, a.local_steps, x), np.append(start, 1.0))
        u |= {t: now for t, now in enumerate(islice(steps, recorded[-1]), 1) if t in wanted}
        return np.stack([u[t] for t in recorded.tolist()]), None
    spread = {0: float(share @ np.sum(x**2, axis=1))}
    for t, (now, y) in enumerate(islice(rounds_of_scafflsa(local, eta, a.local_steps, start, x), recorded[-1]), 1):
        if t in wanted:
            u[t], spread[t] = now, float(share @ np.sum(local.written(y) ** 2, axis=1))
    return np.stack([u[t] for t in recorded.tolist()]), np.array([spread[t] for t in recorded.tolist()])


def rounds_of_scafflsa(local: Local, eta: float, H: int, u: Floats, x: Floats) -> Iterator[tuple[Floats, Floats]]:
    """u after each round of SCAFFLSA, and x : (K, d) in the bases of `local`, from the given ones."""
    power, kappa = local.powers(eta, H)
    y, x = local.seen(u), local.own(x)
    while True:
        hat = local.times(power, y) + local.times(kappa, x)
        u = local.mean(hat)
        y = local.seen(u)
        x = x + (y - hat) / (eta * H)  # keeps sum_c w_c x_c = 0
        yield u, x


def fedlsa_round(local: Local, eta: float, H: int, x: Floats) -> Floats:
    """(d + 1, d + 1): a round of FedLSA on (u, 1), control variates frozen at x : (K, d)."""
    power, kappa = local.powers(eta, H)
    d = x.shape[1]
    out = np.eye(d + 1)
    out[:d, :d] = local.mean(local.times(power, local.identity()))
    out[:d, d] = local.mean(local.times(kappa, local.own(x)))
    return out


def _orbit(M: Floats, v: Floats) -> Iterator[Floats]:
    """u of v = (u, 1) after each round."""
    while True:
        v = M @ v
        yield v[:-1]


def _repeated(M: Floats, v: Floats, T: int) -> Floats:
    """v after T times M, by steps or by squares, whichever is less work."""
    if len(v) * math.log2(T + 1) >= T:
        for _ in range(T):
            v = M @ v
        return v
    for bit in bin(T)[:1:-1]:
        v = M @ v if bit == "1" else v
        M = M @ M
    return v


def finite(error: float) -> float:
    """The error, infinite where it overflowed."""
    return error if math.isfinite(error) else math.inf


def first_below(error: Callable[[int], float], target: float, most: int) -> int | None:
    """The first round at which an error is at most `target`, by doubling and halving, if within about `most`."""
    high = 1
    while error(high) > target:
        high *= 2
        if high > 2 * most:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= target else (middle, high)
    return high

"""The slow twin of exact theory: plain moments of the joint state of all agents, one random linear map at a time.

The state is v = (h_1, ..., h_N, u, x_1, ..., x_N, memory, a, 1): the agents' local parameters, the server's, control
variates, all measured from where they should be (theta_star, xi_star), what else the server remembers, the running sum
of u, and a constant. Whatever happens is a random linear map T of v, independent of the past, so that

    E[T v] = T_bar m,    Cov(T v) = E[T C T^T] + Cov(T m),

and nothing is ever subtracted from a second moment. There are no groups, no bases and no shortcuts: agents step one
after the other, sets of participants and lengths of rounds are summed over. Meant for a few agents in a few dimensions.
"""

import functools
import itertools
import math

import numpy as np

import fedlsa as fl

LONGEST = 2**20  # steps of a random length that are summed over


class Twin:
    """Moments of one method on one problem; participants : how many take part, if not as many as the method says."""

    def __init__(self, problem, algorithm, participants=None):
        self.p, self.a = problem, algorithm
        N, d = self.N, self.d = problem.n_agents, problem.dim
        self.server, self.change = map(np.array, algorithm.server())
        self.n = (2 * N + 1 + len(self.server)) * d + 1
        self.h = [slice(c * d, c * d + d) for c in range(N)]
        self.u = slice(N * d, N * d + d)
        self.x = [slice((N + 1 + c) * d, (N + 2 + c) * d) for c in range(N)]
        self.sum = slice(self.n - 1 - d, self.n - 1)
        self.memory = [self.u, *(slice(i * d, i * d + d) for i in range(2 * N + 1, 2 * N + len(self.server)))]
        self.step_factor, self.length_factor = algorithm.agent_factors(N) or np.ones((2, N))
        self.m = algorithm.taking_part(N) if participants is None else participants
        self.known = {}  # laws of local steps, by their step size

    # one random linear map after the other: (probabilities, matrices)

    def lift(self):
        """Every agent starts from the server's theta."""
        T = np.eye(self.n)
        for h in self.h:
            T[h] = 0
            T[h, self.u] = np.eye(self.d)
        return np.ones(1), T[None]

    def local(self, c, eta):
        """A step of agent c: h <- h - eta (A(z) h + omega(z) - x_c), omega = A(z) theta_star - b(z) - xi_star_c."""
        eta = eta * self.step_factor[c]
        span = list(self.p.spans())[self.p.assignment[c]]
        A, b = self.p.observations.matrices(span)
        T = np.tile(np.eye(self.n), (len(b), 1, 1))
        T[:, self.h[c], self.h[c]] -= eta * A
        T[:, self.h[c], self.x[c]] += eta * np.eye(self.d)
        T[:, self.h[c], -1] -= eta * ((A - self.p.A_bar[c]) @ self.p.theta_star - (b - self.p.b_bar[c]))
        return self.p.prob[span], T

    def collect(self, gain):
        """The server moves by Delta = (N / m) sum_{c in S} w_c (h_c - theta), S any m agents; gain : (N,)."""
        N, w, one, maps = self.N, self.p.weights, np.eye(self.d), []
        for S in itertools.combinations(range(N), self.m):
            T = np.eye(self.n)
            for row, into in zip(self.server, self.memory, strict=True):
                T[into] = 0
                for factor, of in zip(row, self.memory, strict=True):
                    T[into, of] = factor * one
            for c in S:
                for factor, into in zip(self.change, self.memory, strict=True):
                    T[into, self.h[c]] += factor * N / self.m * w[c] * one
                    T[into, self.u] -= factor * N / self.m * w[c] * one
                for e in range(N):  # change_c = gain_c (theta - h_c) of those in S, less its weighted mean
                    T[self.x[e], self.u] += gain[c] * ((c == e) - w[c]) * one
                    T[self.x[e], self.h[c]] -= gain[c] * ((c == e) - w[c]) * one
            maps.append(T)
        return np.full(len(maps), 1 / len(maps)), np.stack(maps)

    # rounds

    def steps(self, m, C, eta, many=1):
        """`many` local steps of all agents, one by one; very many by a power of the operator on (C, m m^T)."""
        if eta not in self.known:
            self.known[eta] = [self.local(c, eta) for c in range(self.N)]
        laws = self.known[eta]
        if many > 64:
            return self.power(laws, m, C, many)
        own = np.maximum(1, np.rint(many * self.length_factor)).astype(int)
        for h in range(own.max()):
            for law in itertools.compress(laws, own > h):
                m, C = moved(law, m, C)
        return m, C

    def power(self, laws, m, C, many):
        n, mean, second = self.n, np.eye(self.n), np.eye(2 * self.n**2)
        for prob, T in laws:
            T_bar = np.tensordot(prob, T, 1)
            spread = sum(q * np.kron(t, t) for q, t in zip(prob, T - T_bar, strict=True))
            whole = sum(q * np.kron(t, t) for q, t in zip(prob, T, strict=True))
            mean = T_bar @ mean
            second = np.block([[whole, spread], [np.zeros((n * n, n * n)), np.kron(T_bar, T_bar)]]) @ second
        mean, second = np.linalg.matrix_power(mean, many), np.linalg.matrix_power(second, many)[: n * n]
        flat = C.reshape(*C.shape[:-2], n * n) @ second[:, : n * n].T + second[:, n * n :] @ np.outer(m, m).ravel()
        return mean @ m, flat.reshape(C.shape)

    def round(self, m, C, eta=None, H=None):
        """Mean (n,) and covariance (..., n, n) one communication later; H : if not that of the method."""
        eta, H = self.a.step_size if eta is None else eta, H or getattr(self.a, "local_steps", 1)
        m, C = moved(self.lift(), m, C)
        if isinstance(self.a, fl.Scaffnew):
            m, C = self.random_length(m, C, eta, self.a.probability)
        else:
            m, C = self.steps(m, C, eta, H)
        return moved(self.collect(self.gains(eta, H)), m, C)

    def gains(self, eta, H=None):
        """(N,)."""
        lengths = np.maximum(1, np.rint((H or getattr(self.a, "local_steps", 1)) * self.length_factor))
        return self.a.gain(eta * self.step_factor, lengths)

    def random_length(self, m, C, eta, p):
        """After L steps of everybody, P(L = l) = p (1 - p)^(l - 1): the law of total variance, summed over lengths."""
        last = 1 if p == 1 else min(LONGEST, math.ceil(math.log(1e-18) / math.log1p(-p)))
        means, total = np.empty((last, self.n)), np.zeros_like(C)
        chance = p * (1 - p) ** np.arange(last)
        for k in range(last):
            m, C = self.steps(m, C, eta)
            means[k], total = m, total + chance[k] * C
        mean = chance @ means
        return mean, total + (chance * (means - mean).T) @ (means - mean)

    def start(self, theta_0=None, xi_0=None):
        """What is known at the start: no covariance."""
        m = np.zeros(self.n)
        m[self.u] = 1 if theta_0 is None else theta_0 - self.p.theta_star
        for c, x in enumerate(self.x):
            m[x] = (0 if xi_0 is None else xi_0[c]) - self.p.xi_star[c]
        m[-1] = 1
        return m, np.zeros((self.n, self.n))

    def curve(self, rounds, theta_0=None, xi_0=None):
        """After 0, 1, ..., `rounds` communications.

        mean - theta_star (R, d), squared_bias, variance, mse, psi (R,), covariance (R, d, d).
        """
        (m, C), after, out = self.start(theta_0, xi_0), self.a.average_after, []
        etas = self.a.eta(np.arange(max(rounds, 1)))
        lengths = self.a.steps_in(np.arange(max(rounds, 1))).tolist()
        total = np.eye(self.n)
        total[self.sum, self.u] = np.eye(self.d)
        for t in range(rounds + 1):
            if t:
                m, C = self.round(m, C, float(etas[t - 1]), lengths[t - 1])
            averaged = after is not None and t >= after
            if averaged:
                m, C = moved((np.ones(1), total[None]), m, C)
            shown, k = (self.sum, t - after + 1) if averaged else (self.u, 1)
            mean, covariance = m[shown] / k, C[shown, shown] / k**2
            variance = np.trace(covariance)
            x = sum(w * (m[x] @ m[x] + np.trace(C[x, x])) for w, x in zip(self.p.weights, self.x, strict=True))
            mse = mean @ mean + variance
            out.append(
                (
                    mean,
                    mean @ mean,
                    variance,
                    mse,
                    mse + (etas[max(t - 1, 0)] * lengths[max(t - 1, 0)]) ** 2 * x,
                    covariance,
                )
            )
        names = ("mean", "squared_bias", "variance", "mse", "psi", "covariance")
        return {name: np.array(column) for name, column in zip(names, zip(*out, strict=True), strict=True)}

    def iterations(self, last, theta_0=None, xi_0=None):
        """Scaffnew step by step, a coin after each: agents_mse, mse and mean of their average, psi (k = 0 .. last)."""
        eta, p = self.a.step_size, self.a.probability
        _, T = self.collect(np.full(self.N, p / eta))
        together = self.lift()[1][0] @ T[0]
        coin = np.array([1 - p, p]), np.stack([np.eye(self.n), together])
        (m, C), w, out = moved(self.lift(), *self.start(theta_0, xi_0)), self.p.weights, []
        for k in range(last + 1):
            if k:
                m, C = moved(coin, *self.steps(m, C, eta))
            own = sum(q * (m[h] @ m[h] + np.trace(C[h, h])) for q, h in zip(w, self.h, strict=True))
            spread = sum(q * (m[x] @ m[x] + np.trace(C[x, x])) for q, x in zip(w, self.x, strict=True))
            bar = sum(q * np.eye(self.n)[h] for q, h in zip(w, self.h, strict=True))
            out.append(
                (own, np.sum((bar @ m) ** 2) + np.trace(bar @ C @ bar.T), own + (eta / p) ** 2 * spread, bar @ m)
            )
        names = ("agents_mse", "mse", "psi", "mean")
        return {name: np.array(column) for name, column in zip(names, zip(*out, strict=True), strict=True)}

    # the limit

    def free(self):
        """(n, r): what can vary from round to round. Weighted sums of x stay 0, so the heaviest agent's is implied."""
        one, w = np.eye(self.n), self.p.weights
        top, columns = int(np.argmax(w)), [one[:, v] for v in self.memory]
        if not self.gains(0.1).any():
            return np.concatenate(columns, axis=1)
        for c in range(self.N):
            if c != top:
                columns.append(one[:, self.x[c]] - w[c] / w[top] * one[:, self.x[top]])
        return np.concatenate(columns, axis=1)

    @functools.cached_property
    def operator(self):
        """What a round does to covariances, on vec : (r^2, r^2); and the map of means (r, r) with its constant (r,)."""
        E = self.free()
        r, back = E.shape[1], np.zeros((E.shape[1], self.n))
        back[np.arange(r), np.argmax(E == 1, axis=0)] = 1  # each column has one 1 of its own
        units = np.eye(r * r).reshape(-1, r, r)
        second = back @ self.round(np.zeros(self.n), E @ units @ E.T)[1] @ back.T
        zero = np.zeros((self.n, self.n))
        begin = np.eye(self.n)[-1] if self.gains(0.1).any() else self.start()[0]
        begin[self.u] = 0
        constant = back @ self.round(begin, zero)[0]
        mean = np.stack([back @ self.round(begin + E[:, i], zero)[0] - constant for i in range(r)], axis=1)
        return second.reshape(r * r, r * r).T, mean, constant, (E, back, begin)

    def radius(self):
        """The mean-square radius of a round."""
        return float(np.abs(np.linalg.eigvals(self.operator[0])).max())

    def stationary(self):
        """E[u] (d,) and Cov(u) (d, d) in the limit; needs a radius below one."""
        m, C = self.fixed_point()
        return m[self.u], C[self.u, self.u]

    def fixed_point(self):
        """Mean and covariance of the joint state that a round leaves as they are, by one dense linear system each."""
        second, mean, constant, (E, back, begin) = self.operator
        r = len(mean)
        m = np.linalg.solve(np.eye(r) - mean, constant)
        source = back @ self.round(begin + E @ m, np.zeros((self.n, self.n)))[1] @ back.T
        C = np.linalg.solve(np.eye(r * r) - second, source.ravel()).reshape(r, r)
        return begin + E @ m, E @ C @ E.T


def moved(law, m, C):
    """Mean and covariance of T v; law : probabilities (B,) and matrices (B, n, n) of T; C : (..., n, n)."""
    prob, T = law
    T_bar = np.tensordot(prob, T, 1)
    off = (T - T_bar) @ m  # of matrices, not of vectors, which would lose the digits of a tiny noise
    images = T @ C[..., None, :, :] @ T.transpose(0, 2, 1)  # (..., B, n, n)
    return T_bar @ m, np.einsum("b,...bij->...ij", prob, images) + (prob * off.T) @ off


def stability_limit(problem, make, low, high, tolerance=1e-7):
    """The step size between `low` (stable) and `high` at which the radius of make(step size) reaches one."""
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (middle, high) if Twin(problem, make(middle)).radius() < 1 else (low, middle)
    return high

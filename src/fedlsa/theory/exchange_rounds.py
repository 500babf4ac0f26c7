"""Exact moments of rounds that are an exchange (algorithms/exchanges.py), on the joint law of server and all agents.

The state is (server's vectors, each agent's vectors), centred: theta at theta_star, xi_c at xi_star_c, memories at 0.
Of what agent c sees, w_c = (server's, its own, 1), its round is a linear map, with noise of three sources that are
independent between agents: z, which start it takes and its local steps; what becomes of a message under way; and, which
agents share, who answers. Each adds a covariance that is linear in E[w_c w_c^T], so that second moments stay closed:

    Cov(y) = B C B^T + diag_c(p_c N_c) + (P - p p^T) o E[D w w^T D^T],   C' = F Cov(server, y) F^T.

y_c is what agent c brings (its next vectors, what arrives), D_c w_c by how much that differs from an agent's who does
not answer, p_c and P_ce the probabilities that agents, and pairs of them, answer, F the averages and what is made of
them. What the rows of its table last gave is among an agent's vectors (`TableSteps`). Nothing is assumed of the
agents' matrices, and agents are not grouped: it is the general way, the quick ones of rounds.py are for methods without
exchanges. Their joint laws and averaged iterates are had here too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..algorithms import Algorithm, Exchange, Geometric, Noise
from ..algorithms.sending import Exactly
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Dense, Problem
from . import tuning
from .linear import smat, svec, within
from .local_steps import Kinds
from .problem_moments import Moments, moments
from .rounds import Groups


def each_agent(problem: Problem | Moments, xi_0: Floats | None = None) -> Groups:
    """Groups of one agent each, in the order of the problem; agents of moments alone stand group by group."""
    m = moments(problem)
    table, weight = np.repeat(m.table, m.count), np.repeat(m.weight, m.count)
    known = problem if isinstance(problem, Problem) else None
    if known is not None:
        table, weight = np.unique(known.assignment, return_inverse=True)[1].astype(np.int64), known.weights
    x = (0.0 if xi_0 is None else xi_0) - m.xi_star[table]
    agents = replace(m, table=table, weight=weight, count=np.ones_like(table))
    return Groups(agents, x, np.arange(len(table)), known)


def _rows_given(agents: Groups, exchange: Exchange) -> tuple[str, ...]:
    """Names of the vectors of what the rows of an agent's table last gave, where that is remembered."""
    if exchange.table is None:
        return ()
    if agents.problem is None:
        rule = "table of an exchange must be None where only moments are given: they have no rows"
        raise ArgumentError(f"{rule}; got {exchange.table!r}")
    return tuple(f"{exchange.table}, {i}" for i in range(TableSteps.count_vectors(agents.problem)))


def declared(algorithm: Algorithm) -> bool:
    """Whether a method declares an exchange."""
    return type(algorithm).exchange is not Algorithm.exchange


def exchange_of(a: Algorithm, eta: float, m: Moments, upload_noise: float = 0.0) -> tuple[Exchange, Floats, Any]:
    """A round with step size eta as an exchange, and each agent's step size and number of steps; of any method."""
    N, d, H = m.n_agents, m.dim, a.round_steps()
    if isinstance(H, Geometric):
        raise ArgumentError(f"round lengths must not be random on the joint law of all agents; got {a!r}")
    etas, steps, gains = (x[0] for x in a.of_agents(np.array([eta]), np.array([H]), 1, N))
    if declared(a):
        found = a.checked_exchange(etas, steps, N, d)
    else:
        found = _linear(a, gains[:, None] if np.ndim(gains) else gains.item(), a.taking_part(N) / N)
    if found.rule is not None:
        rule = f"rule of {type(a).__name__} must be None for theory, for a server's own function has no law"
        raise ArgumentError(f"{rule}; got {checks.show(found.rule)}")
    if upload_noise:
        if type(found.send) is not Exactly:
            raise ArgumentError(f"upload_noise must be 0 where messages are not sent exactly; got {upload_noise:g}")
        found = replace(found, send=Noise(upload_noise))
    return found, np.broadcast_to(etas, N), np.broadcast_to(steps, N)


def _linear(a: Algorithm, gain: Any, share: float) -> Exchange:
    """What `Linear` of algorithms/stages.py says: a server with a memory, control variates with a gain."""
    rows, change = a.server()
    memory = tuple(f"v_{j}" for j in range(1, len(change)))
    names = ("theta", *memory)
    then: dict[str, Any] = {
        name: {**dict(zip(names, row, strict=True)), "mean": share_}
        for name, row, share_ in zip(names, rows, change, strict=True)
    }
    rest, factor = {"xi": 1, "pulled": 1}, np.ravel(gain * share)
    means = {"mean": ("change", 1), "pulled": ("change", factor if factor.size > 1 else float(factor[0]))}
    return Exchange(
        memory, means=means, then=then | {"xi": rest | {"sent_change": -np.asarray(gain)}}, absent={"xi": rest}
    )


class ExchangeRound:
    """A round on the mean and the covariance of the state, n = (k + N l) d numbers: the server's, then each agent's.

    own : what an agent remembers; control variates that no round changes are not among it
    largest : the largest root mean square so far of a number of a message
    """

    largest = 0.0

    def __init__(self, agents: Groups, exchange: Exchange, eta: Floats, steps: Any, participants: int) -> None:
        m, N, d = agents.moments, len(agents.x), agents.moments.dim
        moves = "xi" in exchange.then or "xi" in exchange.absent
        self.given = _rows_given(agents, exchange)
        kept = (name for name in exchange.agent if name != exchange.table)
        self.agents, self.own = agents, (*(("xi",) if moves else ()), *kept, *self.given)
        self.N, self.d, self.k, self.l = N, d, 1 + len(exchange.server), len(self.own)
        self.q, self.exchange = len(exchange.messages), exchange
        self.seen = (self.k + self.l) * d + 1  # numbers of w
        self.drawn = (2 + len(self.given)) * d  # numbers of z
        self.width = self.seen + self.drawn + self.q * d
        place = np.arange(N * self.l * d).reshape(N, -1) + self.k * d
        self.place = np.concatenate([np.tile(np.arange(self.k * d), (N, 1)), place], axis=1)  # of w in the state
        if self.size > tuning.JOINT_NUMBERS:
            rule = f"agents times what each remembers must be at most {tuning.JOINT_NUMBERS} numbers for exact moments"
            raise ArgumentError(f"{rule}; got {self.size}")
        self.p, pairs = exchange.answering(N, participants)
        together = float(pairs[0, -1] - self.p[0] * self.p[-1]) if N > 1 else 0.0  # the same of any two agents
        self.spread = np.diagonal(pairs) - self.p**2 - together, together
        theta_star, xi_star, A, weight = m.theta_star, m.xi_star[m.table], m.A_bar[m.table], m.weight
        self.centres, self.steps = {"theta": theta_star, "xi": xi_star}, None
        if agents.problem is not None and self.given:
            self.steps = TableSteps(agents.problem, eta, np.broadcast_to(steps, N), exchange.pull)
            ideal = self.steps.ideal.reshape(N, -1, d)
            self.centres |= {name: ideal[:, i] for i, name in enumerate(self.given)}
        known = self._remembered()
        u = self._minus(known["theta"], theta_star)
        known["residual"] = self._minus(-A @ u, xi_star)
        known["mean_residual"] = np.broadcast_to(np.tensordot(weight, -A @ u, 1), u.shape)
        correction = self._minus(self._of(exchange.correction, known), xi_star)
        self.chosen, shifted = exchange.probabilities(N), m
        if exchange.pull:  # theta_star solves the shifted system too
            more = exchange.pull * np.eye(d)
            shifted = replace(m, A_bar=m.A_bar + more, b_bar=m.b_bar + exchange.pull * theta_star)
        if exchange.anchored:
            inner = within(d, d + 1)
            noise = np.zeros(m.noise.shape)
            noise[..., inner] = m.noise[..., inner]
            shifted = replace(shifted, noise=noise, centre=theta_star)
        if self.steps is None:
            M, self.noise = Kinds.of(m.table, eta, np.asarray(steps)).maps(shifted)
        self.lifted, self.z = [], []
        for _, row in exchange.starts:
            start = self._of(row, known)
            v = self._minus(start, theta_star)
            x = correction - A @ v if exchange.anchored else correction + exchange.pull * v
            if self.steps is None:
                lifted = np.zeros((N, 2 * d + 1, known["theta"].shape[2]))
                lifted[:, :d], lifted[:, d:-1], lifted[:, -1, self.seen - 1] = (0.0 if exchange.anchored else v), x, 1
                end = (M @ lifted)[:, :d]
                end = end + start if exchange.anchored else self._minus(end, -theta_star)
            else:
                lifted = np.concatenate([v, *(self._minus(known[g], self.centres[g]) for g in self.given), x], axis=1)
                far = np.concatenate([np.tile(theta_star, (N, 1)), self.steps.ideal], axis=1)
                end = self._minus(self.steps.end(lifted), -far)
            self.lifted.append(lifted[..., : self.seen])
            self.z.append(np.concatenate([start, end], axis=1)[..., : self.seen])
        self.z_mean = sum(p[:, None, None] * z for p, z in zip(self.chosen, self.z, strict=True))
        before = dict(known)
        for i, name in enumerate(("start", "theta_hat", *self.given)):
            known[name] = self._noisy(self.z_mean[:, i * d : (i + 1) * d], self.seen + i * d)
        self._average_rows(known)
        self.messages, self.law = [], exchange.send.law(d)
        for i, (name, row) in enumerate(exchange.messages.items()):
            known[name] = self._of(row, known)
            self.messages.append(known[name])
            known[f"sent_{name}"] = self._noisy(self.law.mean * known[name], self.seen + self.drawn + i * d)
        own = [self._renew(exchange.then, name, known) for name in self.own]
        arrives = [known[name] for name in exchange.sent]
        here = np.concatenate([*own, *arrives], axis=1)
        away = [self._renew(exchange.absent, name, before) for name in self.own]
        gone = np.concatenate([*away, *(np.zeros_like(a) for a in arrives)], axis=1)[..., : self.seen]
        self.private, p = here[..., self.seen :], self.p[:, None, None]
        self.B, self.D = p * here[..., : self.seen] + (1 - p) * gone, here[..., : self.seen] - gone
        self._close(exchange, weight, theta_star, known["mean_residual"][0, :, : self.k * d])

    # --- rows as maps of what an agent sees, w, and of its noise --------------------------------------------------

    def _remembered(self) -> dict[str, Floats]:
        """The vectors of the state as maps : (N, d, all), of (w, z's noise, what happens to each message)."""
        shape, d = (self.N, self.d, self.width), self.d
        known = {"xi": np.zeros(shape)}
        for i, name in enumerate(["theta", *self.exchange.server, *self.own]):
            known[name] = np.zeros(shape)
            known[name][:, :, i * d : (i + 1) * d] = np.eye(d)
        for name, centre in self.centres.items():
            known[name][:, :, self.seen - 1] = centre
        known["xi"][:, :, self.seen - 1] += 0.0 if "xi" in self.own else self.agents.x
        self._average_rows(known)
        return known

    def _average_rows(self, known: dict[str, Floats]) -> None:
        """The mean of what rows last gave, from that."""
        if self.steps is not None:
            rows = np.concatenate([known[name] for name in self.given], axis=1)
            known[str(self.exchange.table)] = self.steps.average @ rows

    def _minus(self, vector: Floats, centre: Floats) -> Floats:
        out = vector.copy()
        out[..., self.seen - 1] -= centre
        return out

    def _noisy(self, vector: Floats, place: int) -> Floats:
        """A vector with noise that has its own place."""
        out = np.zeros((self.N, self.d, self.width))
        out[..., : vector.shape[2]] = vector
        out[..., place : place + self.d] = np.eye(self.d)
        return out

    def _factor(self, row: Any, name: str) -> Floats:
        return np.broadcast_to(np.asarray(row.get(name, 0.0), np.float64), (self.N, self.d))

    def _of(self, row: Any, known: dict[str, Floats]) -> Floats:
        """The map of a row; means come later."""
        terms = [self._factor(row, name)[..., None] * known[name] for name in row if name not in self.exchange.means]
        return sum(terms, np.zeros_like(known["theta"]))

    def _renew(self, rows: Any, name: str, known: dict[str, Floats]) -> Floats:
        """An agent's next vector, but for means."""
        found = self._of(rows.get(name, {name: 1.0}), known)
        return self._minus(found, self.centres[name]) if name in self.centres else found

    def _close(self, e: Exchange, weight: Floats, theta_star: Floats, mean_residual: Floats) -> None:
        """The maps from (server's vectors, what agents bring) to the next state."""
        k, d, names, sent = self.k, self.d, ("theta", *e.server), list(e.messages)
        self.averages = np.zeros((len(e.means), self.N, self.q))
        for i, (message, factor) in enumerate(e.means.values()):
            self.averages[i, :, sent.index(message)] = weight * np.broadcast_to(np.ravel(factor), self.N) / self.p
        self.server, self.constant, at = np.zeros((k * d, k * d)), np.zeros(k * d), np.arange(d)
        self.by_means = np.zeros((self.size, len(e.means) * d))
        to_server = self.by_means[: k * d].reshape(k, d, len(e.means), d)
        to_agents = self.by_means[k * d :].reshape(self.N, self.l, d, len(e.means), d)
        for i, name in enumerate(names):
            row = e.then.get(name, {name: 1.0})
            part, factors = slice(i * d, (i + 1) * d), {other: self._factor(row, other)[0] for other in row}
            for j, other in enumerate(names):
                self.server[part, j * d : (j + 1) * d] += np.diag(factors.get(other, np.zeros(d)))
            self.server[part] += factors.get("mean_residual", np.zeros(d))[:, None] * mean_residual
            self.constant[part] = factors.get("theta", np.zeros(d)) * theta_star - (theta_star if i == 0 else 0.0)
            for j, mean in enumerate(e.means):
                to_server[i, at, j, at] = factors.get(mean, 0.0)
        away = bool((self.p < 1).any())
        for i, name in enumerate(self.own):
            for j, mean in enumerate(e.means):
                factor = self._factor(e.then.get(name, {}), mean)
                to_agents[:, i, at, j, at] = factor
                if away and (factor != self._factor(e.absent.get(name, {}), mean)).any():
                    rule = f"the factor of {mean} in {name} must be the same for agents who answer and who do not"
                    raise ArgumentError(f"{rule}, for theory; got another one")

    # --- what a round does ----------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Numbers of the state."""
        return (self.k + self.N * self.l) * self.d

    def _bring(self, maps: Floats, X: Floats) -> Floats:
        """Rows of all w to what agents bring, without constants : (n, cols) -> (N (l + q) d, cols)."""
        K, cut = self.k * self.d, self.seen - 1
        own = X[K:].reshape(self.N, self.l * self.d, X.shape[1])
        return (maps[..., :K] @ X[:K] + maps[..., K:cut] @ own).reshape(-1, X.shape[1])

    def _make(self, brought: Floats) -> Floats:
        """Rows of the next state : (n, cols), but for what the server makes of its own."""
        columns = brought.shape[1]
        y = brought.reshape(self.N, self.l + self.q, self.d, columns)
        means = self.averages.reshape(-1, self.N * self.q) @ y[:, self.l :].reshape(self.N * self.q, -1)
        out = self.by_means @ means.reshape(-1, columns)
        out[self.k * self.d :] += y[:, : self.l].reshape(-1, columns)
        return out

    def move(self, v: Floats) -> Floats:
        """The next mean of the state."""
        out = self.carry(v[:, None])[:, 0] + self._make(self.B[..., -1].reshape(-1, 1))[:, 0]
        out[: self.k * self.d] += self.constant
        return out

    def carry(self, X: Floats) -> Floats:
        """The linear part on columns : (n, cols)."""
        out = self._make(self._bring(self.B, X))
        out[: self.k * self.d] += self.server @ X[: self.k * self.d]
        return out

    def covariance(self, C: Floats, v: Floats | None) -> Floats:
        """The next covariance of the state, from its covariance (n, n) and its mean (n,); v : as in `added`."""
        return self.carry(self.carry(C).T) + self.added(C, v)

    def added(self, C: Floats, v: Floats | None, unit: float = 0.0) -> Floats:
        """What a round adds to covariances that go on by its mean map : (n, n).

        v : None for the part that is linear in C alone; unit : variance that is added to where local steps end
        """
        K, own, at, means = self.k * self.d, self.l * self.d, np.arange(self.N), len(self.averages)
        seen = self._first_two_moments(C, v)
        alone = self.p[:, None, None] * self._private_noise(seen, v is not None, unit)
        out, (answers, together) = np.zeros((self.size, self.size)), self.spread
        if answers.any():
            alone += answers[:, None, None] * _squares(self.D, seen)
        if together:
            half = self._make(self._bring(self.D, C))
            out += together * self._make(self._bring(self.D, half.T))
            if v is not None:
                far = self._make(self._bring(self.D, v[:, None]) + self.D[..., -1].reshape(-1, 1))
                out += together * far @ far.T
        a, crossed = self.averages, alone.reshape(self.N, self.l + self.q, self.d, self.l + self.q, self.d)
        met = np.zeros((self.size, means, self.d))  # with means, half of their own covariance there
        met[K:] = np.einsum("jcr,cxarb->cxajb", a, crossed[:, : self.l, :, self.l :]).reshape(-1, means, self.d)
        of_means = np.einsum("icq,cqajb->iajb", a, np.einsum("jcr,cqarb->cqajb", a, crossed[:, self.l :, :, self.l :]))
        half = met.reshape(self.size, -1) + self.by_means @ of_means.reshape((means * self.d,) * 2) / 2
        out += half @ self.by_means.T + self.by_means @ half.T
        out[K:, K:].reshape(self.N, own, self.N, own)[at, :, at] += alone[:, :own, :own]
        return (out + out.T) / 2

    def _private_noise(self, seen: tuple[Floats, Floats], whole: bool, unit: float) -> Floats:
        """(N, (l + q) d, same): what an agent alone adds to what it brings; seen : of w; whole : not its linear part"""
        d, drawn = self.d, self.drawn
        z, added = np.zeros((self.N, drawn, drawn)), self.law.noise if whole else 0.0
        z[:, d : 2 * d, d : 2 * d] = unit * np.eye(d)
        for p, each, lifted in zip(self.chosen, self.z, self.lifted, strict=True):
            if self.steps is None:
                steps = smat((self.noise @ svec(_squares(lifted, seen))[..., None])[..., 0], d)
            else:
                steps = self.steps.noise(lifted @ seen[0][..., None], lifted @ seen[1] @ lifted.swapaxes(1, 2))
            z[:, d:, d:] += p[:, None, None] * steps
            if len(self.z) > 1:
                z += p[:, None, None] * _squares(each - self.z_mean, seen)
        out = np.zeros((self.N, drawn + self.q * d, drawn + self.q * d))
        out[:, :drawn, :drawn] = z
        for i, message in enumerate(self.messages):
            w, noise = message[..., : self.seen], message[..., self.seen : self.seen + drawn]
            sent = _squares(w, seen) + noise @ z @ noise.swapaxes(1, 2)
            if whole:  # what is 0 may be rounded to less
                self.largest = max(self.largest, max(0.0, float(np.einsum("cii->ci", sent).max())) ** 0.5)
            part = slice(drawn + i * d, drawn + (1 + i) * d)
            out[:, part, part] = (self.law.second - self.law.mean**2) * sent + added * np.eye(d)
        return self.private @ out @ self.private.swapaxes(1, 2)

    def _first_two_moments(self, C: Floats, v: Floats | None) -> tuple[Floats, Floats]:
        """Mean and covariance of what each agent sees, w : (N, seen), (N, seen, seen)."""
        w, out = np.zeros((self.N, self.seen)), np.zeros((self.N, self.seen, self.seen))
        if v is not None:
            w[:, :-1], w[:, -1] = v[self.place], 1
        out[:, :-1, :-1] = C[self.place[:, :, None], self.place[:, None]]
        return w, out

    def start(self, u: Floats) -> Floats:
        """The state of a run that begins at theta_star + u : (d,) and the agents' xi_star + x."""
        e, N, d, m, x = self.exchange, self.N, self.d, self.agents.moments, self.agents.x
        raw = {"theta": np.tile(m.theta_star + u, (N, 1)), "xi": m.xi_star[m.table] + x}

        def memory(name: str) -> Floats:
            if name in self.centres:
                return x if name == "xi" else -self.centres[name]
            return sum((self._factor(e.begin[name], v) * raw[v] for v in e.begin.get(name, {})), np.zeros((N, d)))

        own = np.array([memory(name) for name in self.own]).reshape(self.l, N, d)
        return np.concatenate([u, *(memory(name)[0] for name in e.server), own.swapaxes(0, 1).ravel()])

    def centre(self) -> Floats:
        """What stands at 0 of a state: theta_star, xi_star_c, what rows give at theta_star, and 0 of other memories."""
        out = np.zeros(self.size)
        out[: self.d], own = self.centres["theta"], out[self.k * self.d :].reshape(self.N, self.l, self.d)
        for i, name in enumerate(self.own):
            own[:, i] = self.centres.get(name, 0.0)
        return out


def _squares(maps: Floats, seen: tuple[Floats, Floats]) -> Floats:
    """E[(map w)(map w)^T] of each agent. The mean goes through first: what cancels in it is not squared before."""
    w, C = seen
    far = (maps @ w[..., None])[..., 0]
    return far[:, :, None] * far[:, None] + maps @ C @ maps.swapaxes(1, 2)


# --- local steps of agents that remember what each row of their table last gave, for SAGA -----------------------------
#
# Row z of an agent's table is A(z) = L_z F_z + ridge I, b(z) = L_z f_z: it gives F_z theta - f_z, a number where it is
# of rank one, else d numbers. Measured from their values at theta_star, what rows last gave, g_z, and v = theta -
# theta_star go in a step on row z, with c_z = F_z v - g_z and x = xi - xi_star,
#
#     v <- v - eta (L_z c_z + sum_j p_j L_j g_j + (ridge + pull) v - x),   g_z <- g_z + c_z,
#
# without a constant, for what rows give at theta_star has the mean xi_star. So second moments of s = (v, g, x) close:
# in expectation v <- v - eta ((A_bar + pull) v - x) and g_j <- g_j + p_j c_j, and with E = (-eta L, I) over (v, g), c
# of all rows, and Q = diag_z(p_z c_z c_z^T) - (p c)(p c)^T, a step adds the covariance E Q E^T.


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

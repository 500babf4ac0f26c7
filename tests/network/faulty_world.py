"""A small world that goes wrong: sites, a server and a wire between them, all driven by one seed.

Messages are lost, doubled, reordered and late; sites die before they store, after they store, and after they answer,
some lose their disk, some leave; the server dies at every step and goes on from what it stored. After every event the
world checks that the control variates balance. `twin` is the same recursion in plain NumPy, told only who was averaged.
"""

import hashlib
from collections import Counter

import numpy as np

from fedlsa.network.protocol.client import ClientState, SiteRun, client_step
from fedlsa.network.protocol.codec import decode, encode
from fedlsa.network.protocol.messages import Refusal, Reply, Work, mark
from fedlsa.network.protocol.run_settings import RunSettings
from fedlsa.network.protocol.server import ServerState, accept, close_round, finished, open_round, reissued

DEADLINE = 4  # ticks
TOLERANCE = 1e-12
CODINGS = [{"quantise": 8, "clip": 2.0}, {"clip": 1.0, "noise": 0.5}, {"quantise": 16, "clip": 1.0, "noise": 0.5}]


def problem(rng, N, d, K=5):
    """A table of K observations A (N, K, d, d), b (N, K, d); sites differ."""
    A = np.eye(d) * rng.uniform(0.5, 1.5, (N, K, 1, 1)) + 0.3 * rng.standard_normal((N, K, d, d))
    return A, rng.standard_normal((N, K, d))


def local_steps(A, b, agent):
    """The local steps of an agent on its table, as a site runs them: rows are a function of the label."""
    K = A.shape[1]

    def local(theta, xi, eta, steps, label):
        for z in label[:steps]:
            theta = theta - eta * (A[agent, z % K] @ theta - b[agent, z % K] - xi)
        return theta

    return local


def pair_secrets(names):
    """Of each site: a secret with every other one, by name."""
    return {a: {b: hashlib.sha256("".join(sorted((a, b))).encode()).digest() for b in names if b != a} for a in names}


def random_settings(rng, **fixed):
    """Settings of a small run, with every option of the protocol in turn."""
    N = int(rng.integers(3, 7))
    method = fixed.pop("method", None) or str(rng.choice(["fedlsa", "scafflsa", "scafflsa", "scaffnew"]))
    lengths = {"local_steps": 2 if method == "scaffnew" else int(rng.integers(1, 4))}
    aggregation = fixed.pop("aggregation", None) or str(rng.choice(["secure", "plain"]))
    least = 3 if aggregation == "secure" else int(rng.integers(1, 3))
    options = {
        "aggregation": aggregation,
        "participants": None if rng.random() < 0.6 or least > N - 1 else N - 1,
        "min_sites": least,
        "clip": None if rng.random() < 0.7 else 0.5 if aggregation == "plain" else 50.0,
        "outlier": 0.0 if rng.random() < 0.5 else 10.0,
        "absence": "restart" if rng.random() < 0.7 else "freeze",
        "patience": int(rng.integers(1, 4)),
        "strikes": 1000,
    }
    return RunSettings(
        name="world", method=method, step_size=0.2, **lengths, rounds=int(rng.integers(3, 6)),
        seed=int(rng.integers(100)), sites=tuple("abcdef"[:N]), weights=tuple(rng.uniform(0.5, 2, N)),
        **(options | fixed),
    )  # fmt: skip


class World:
    """One schedule; `rough` scales how much goes wrong."""

    def __init__(self, seed, rough=1.0, coding=None, **fixed):
        self.rng = np.random.default_rng(seed)
        self.settings = random_settings(self.rng, **fixed)
        self.N, self.d, self.rough = len(self.settings.sites), 2, rough
        self.shares = np.array(self.settings.weights)
        self.A, self.b = problem(self.rng, self.N, self.d)
        self.coding = coding or self.settings.coding
        secure, secrets = self.settings.secure(self.N), pair_secrets(self.settings.sites)
        self.runs = {
            site: SiteRun(
                site,
                self.settings.sites,
                "token",
                local_steps(self.A, self.b, c),
                self.coding,
                secrets[site],
                secure,
                self.noise,
                self.settings.method,
            )
            for c, site in enumerate(self.settings.sites)
        }
        self.eager = self.rng.random() < 0.5  # the server also stores replies as they come
        self.server, self.log = ServerState.start(self.settings, self.d), ()
        self.stored = (self.server, self.log)
        self.sites = dict.fromkeys(self.settings.sites)  # what each has on disk
        self.back = dict.fromkeys(self.settings.sites, 0)  # the tick at which each is up again
        self.wiped = dict.fromkeys(self.settings.sites, -1)  # the last generation whose state was lost with a disk
        self.wire, self.tick, self.happened = [], 0, Counter()

    def noise(self, variance, size):
        """Rounded Gaussian integers: the protocol's faults do not depend on the law of the noise."""
        return [round(float(e) * float(variance) ** 0.5) for e in self.rng.standard_normal(size)]

    def chance(self, p, name):
        """Whether something of this name happens now."""
        if self.rng.random() < p * self.rough:
            self.happened[name] += 1
            return True
        return False

    # the wire

    def send(self, to_server, site, record):
        if self.chance(0.12, "lost"):
            return
        copies = 2 if self.chance(0.12, "doubled") else 1
        for _ in range(copies):
            late = 12 if self.chance(0.08, "late") else 3
            self.wire.append((self.tick + int(self.rng.integers(1, late)), to_server, site, record))

    def deliver(self):
        """One tick: what is due arrives, in any order. False if the server died."""
        self.tick += 1
        due = [m for m in self.wire if m[0] <= self.tick]
        self.wire = [m for m in self.wire if m[0] > self.tick]
        for i in self.rng.permutation(len(due)):
            _, to_server, site, record = due[i]
            if not to_server:
                self.site_receives(site, record)
            elif not self.server_receives(site, record):
                return False
        return True

    # a site

    def site_receives(self, site, record):
        if self.back[site] > self.tick:
            return
        work = decode(record, Work) if isinstance(record, bytes) else record
        new, answer = client_step(self.sites[site], work, self.runs[site])
        if self.chance(0.03, "site died before storing"):
            return self.kill(site)
        if new is not None:
            self.sites[site] = new if self.rng.random() < 0.9 else decode(encode(new), ClientState)
        self.check()
        if self.chance(0.03, "site died before answering"):
            return self.kill(site)
        self.happened[answer.reason if isinstance(answer, Refusal) else "answered"] += 1
        self.send(True, site, answer)
        if self.chance(0.03, "site died after answering"):
            self.kill(site)

    def kill(self, site):
        self.back[site] = self.tick + int(self.rng.integers(1, 10))
        if self.chance(0.3, "disk lost"):
            self.sites[site] = None
            self.wiped[site] = self.server.generation
        if self.chance(0.2, "left"):
            self.back[site] = self.tick + int(self.rng.integers(10, 40))

    # the server

    def store(self):
        state, log = self.server, self.log
        self.stored = (state if self.rng.random() < 0.9 else decode(encode(state), ServerState), log)

    def server_dies(self, p, name):
        if not self.chance(p, "server died " + name):
            return False
        self.server, self.log = self.stored
        self.check()
        return True

    def server_receives(self, site, record):
        before = self.server
        self.server, reason = accept(before, site, decode(encode(record), Reply | Refusal))
        assert np.array_equal(self.server.theta, before.theta)
        if self.server.generation > before.generation:
            self.log += (("restart", ()),)
        if reason is not None:
            self.happened["refused: " + reason.split(";")[0].split(":")[0]] += 1
        self.check()
        if self.eager:
            self.store()
        return not self.server_dies(0.02, "after a reply")

    def round(self):
        """Open, wait, close and store, unless the server dies on the way."""
        seen = [s for s in self.settings.sites if self.back[s] <= self.tick or self.rng.random() < 0.2]
        before = self.server
        self.server, orders = open_round(before, seen) if before.pending is None else reissued(before)
        self.happened["returned"] += int((before.gone & ~self.server.gone).sum())
        self.store()
        for site, work in orders.items():
            self.send(False, site, work if self.rng.random() < 0.8 else encode(work))
        self.check()
        if self.server_dies(0.05, "after opening"):
            return
        for _ in range(DEADLINE):
            if not self.deliver():
                return
            if not (self.server.pending.invited & ~self.server.pending.accepted).any():
                break
        before = self.server
        self.server, closed = close_round(before)
        if closed.averaged:
            took = tuple(before.agent(s) for s in closed.sites)
            label = next(iter(orders.values())).label("token", head_at(before, len(before.entries)))
            self.log += (("average", took, before.pending.round, before.pending.clip, label),)
            self.happened["gone"] += len(closed.gone)
            if self.server.generation > before.generation:
                self.log += (("restart", ()),)
        else:
            assert np.array_equal(self.server.theta, before.theta)
            self.happened["in vain"] += 1
        self.check()
        if self.server_dies(0.05, "before storing"):
            return
        self.store()
        self.server_dies(0.05, "after storing")

    def run(self, most=200):
        for _ in range(most):
            if finished(self.server):
                return self
            self.round()
        raise AssertionError("the run does not end")

    # what must hold

    def effective(self, c):
        """The control variate of site c with the acknowledgement that is on its way; None: it is lost."""
        server, state, acked = self.server, self.sites[self.settings.sites[c]], self.server.acked[c]
        if state is None or state.generation < server.generation:
            return np.zeros(self.d) if acked == 0 else None
        if state.generation > server.generation or state.head != head_at(server, state.folded):
            return None
        if acked <= state.told:
            return state.xi
        if acked != state.round or server.acked_mark[c] != mark(state.share):
            return None
        return state.xi + state.gain * (server.acked_mean[c] - state.start - state.delta)

    def check(self):
        """The sites' control variates sum to 0, unless a disk was lost of which the server does not know yet."""
        xi = np.zeros((self.N, self.d))
        for c, site in enumerate(self.settings.sites):
            real = self.effective(c)
            if real is None:
                assert self.server.generation <= self.wiped[site], f"{site} lost its state, but not its disk"
                return
            xi[c] = real
        if self.settings.trim == 0:
            assert np.abs(self.shares @ xi).max() < TOLERANCE

    def twin(self):
        """theta of the recursion in which exactly the same sites were averaged each time, on the same rows."""
        s, w, N = self.settings, self.settings.shares, self.N
        theta, xi, t = np.zeros(self.d), np.zeros((N, self.d)), 0
        for event, who, *about in self.log:
            if event == "restart":
                xi = np.zeros((N, self.d))
                continue
            (H, gain), hat = lengths(s)[t], np.zeros((N, self.d))
            _, clip, label = about
            clip = s.clip if s.clip is not None else clip
            for c in who:
                delta = self.runs[s.sites[c]].local(theta, xi[c], s.step_size, H, label) - theta
                if clip and np.linalg.norm(delta) > clip:
                    delta *= clip / np.linalg.norm(delta)
                hat[c] = theta + delta
            theta = sum(w[c] * hat[c] for c in who) / sum(w[c] for c in who)
            for c in who:
                xi[c] += gain * (theta - hat[c])
            t += 1
        return theta


def head_at(server, count):
    """The head of the server's transcript after so many entries; None where it has fewer."""
    if count > len(server.entries):
        return None
    return server.heads[count - 1].tobytes() if count else bytes(32)


def lengths(settings):
    """(steps, gain) of each average, as the paper states them."""
    if settings.method == "scaffnew":
        from fedlsa.engine.random import uniforms

        u, p = uniforms(np.uint64(settings.seed), 0, settings.rounds), 1 / settings.local_steps
        return [(1 + int(np.floor(np.log1p(-x) / np.log1p(-p))), p / settings.step_size) for x in u]
    H = settings.local_steps
    return [(H, 1 / (settings.step_size * H) if settings.method == "scafflsa" else 0.0)] * settings.rounds

"""Exact moments of exchanges: held to the enumeration of all that can happen, to quick routes, to sums over time."""

import itertools
import warnings
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest
from tiers import mostly_long

import fedlsa as fl
from fedlsa.algorithms import Exchange
from fedlsa.theory.exchange_rounds import each_agent
from fedlsa.theory.inference import law_of_averages
from fedlsa.theory.joint_laws import joint_curve, joint_limit, rounds_at

CHANGE = {"theta_hat": 1, "start": -1}


def tiny(agents=2, seed=0, outcomes=2, dim=2):
    """A problem of which everything can be enumerated: dense observations, unequal weights."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(agents):
        prob = rng.dirichlet(np.ones(outcomes))
        A = np.eye(dim) + 0.4 * rng.standard_normal((outcomes, dim, dim))
        tables.append((prob, A, rng.standard_normal((outcomes, dim))))
    weights = rng.uniform(1, 2, agents)
    return fl.problems.from_observations(tables, weights=weights / weights.sum())


@dataclass(frozen=True, repr=False)
class Declared(fl.ExchangeMethod):
    """An exchange as it is given, by a function of (method, eta, updates, agents, dim)."""

    of: object = field(default=None, repr=False)

    def exchange(self, eta, updates, agents, dim):
        return self.of(self, eta, updates, agents, dim)


def corrected(a, eta, H, share=1.0, **more):
    return a.declare(eta, H, 2, share=share, **more)


def delayed(a, eta, H, N, d):
    rows = {"theta": {"theta": 1, "mean": 1}, "before": {"theta": 1}}
    start = ((np.linspace(0.3, 0.8, N), {"theta": 1}), (1 - np.linspace(0.3, 0.8, N), {"before": 1}))
    return corrected(a, eta, H, then=rows, server=("before",), begin={"before": {"theta": 1}}, start=start)


def buffered(a, eta, H, N, d):
    more = {"agent": ("copy",), "begin": {"copy": {"theta": 1}}, "start": {"copy": 1}, "then": {"copy": {"theta": 1}}}
    return corrected(a, eta, H, 1 / N, **more)


def dropping(a, eta, H, N, d):
    q = np.linspace(0.4, 0.9, N)
    return corrected(a, eta, H, q, presence=q)


def remembering(send):
    def of(a, eta, H, N, d):
        message = {"change": CHANGE | {"error": 1}}
        then = {"error": {"change": 1, "sent_change": -1}}
        return corrected(a, eta, H, messages=message, agent=("error",), then=then, send=send)

    return of


def masked(a, eta, H, N, d):
    """The last coordinate is each agent's own."""
    m = np.append(np.ones(d - 1), 0.0)
    row = {"own": {"theta_hat": 1 - m}}
    start = {"theta": m, "own": 1 - m}
    return corrected(
        a, eta, H, messages={"change": {"theta_hat": m, "start": -m}}, agent=("own",), then=row, start=start
    )


def option_one(a, eta, H, N, d):
    """Control variates are exact residuals at theta; two messages."""
    messages = {"change": CHANGE, "news": {"residual": 1, "gradient": -1}}
    then = {"theta": {"theta": 1, "mean": 0.9}, "total": {"total": 1, "news_mean": 0.5}, "gradient": {"residual": 1}}
    means = {"mean": ("change", 1), "news_mean": ("news", 1)}
    correction = {"gradient": -1, "total": 1}
    names = {"server": ("total",), "agent": ("gradient",), "correction": correction}
    return Exchange(messages=messages, then=then, means=means, **names)


def rows_remembered(a, eta, H, N, d):
    """SAGA, where another memory, messages and who is absent look at the mean of the rows too."""
    rows = {"agent": ("last", "mean_row"), "table": "mean_row", "then": {"last": {"mean_row": 1}}}
    rows |= {"absent": {"last": {"last": 0.5, "mean_row": 0.2}}, "messages": {"change": CHANGE | {"mean_row": -eta}}}
    return corrected(a, eta, H, 1 / N, correction={"xi": 1, "last": 0.3}, pull=0.4, send=fl.RandK(1), **rows)


KINDS = {
    "FedLSA": (lambda a, eta, H, N, d: Exchange(), {}),
    "SCAFFLSA of one": (lambda a, eta, H, N, d: corrected(a, eta, H, 1 / N), {"participants": 1}),
    "rand-k": (lambda a, eta, H, N, d: corrected(a, eta, H, send=fl.RandK(1)), {}),
    "rand-k with memory": (remembering(fl.RandK(1, scaled=False)), {}),
    "delayed": (delayed, {}),
    "buffered": (buffered, {"participants": 1}),
    "dropping": (dropping, {}),
    "masked": (masked, {}),
    "pulled": (lambda a, eta, H, N, d: Exchange(pull=0.7), {}),
    "anchored": (lambda a, eta, H, N, d: corrected(a, eta, H, anchored=True), {}),
    "SAGA": (lambda a, eta, H, N, d: corrected(a, eta, H, agent=("row_mean",), table="row_mean"), {}),
    "rows": (rows_remembered, {"participants": 1}),
    "option one": (option_one, {"participants": 1}),
    "FedLin": (lambda *_: Exchange(correction={"mean_residual": 1, "residual": -1}), {}),
}


FAMILY = {  # the family's own rows, as each method declares them
    "Delayed": (fl.Delayed, {"delays": (0.6, 0.4)}),
    "Buffered": (fl.Buffered, {"participants": 1}),
    "Dropouts": (fl.Dropouts, {"dropout": (0.6, 0.1)}),
    "Compressed": (fl.Compressed, {"send": fl.RandK(1), "participants": 1}),
    "Compressed with memory": (fl.Compressed, {"send": fl.RandK(1, scaled=False), "memory": True}),
    "FedProx": (fl.FedProx, {"pull": 0.7, "corrected": True}),
    "FedNova": (fl.FedNova, {"corrected": True, "participants": 1}),
    "Personal": (fl.Personal, {"own": (1,), "participants": 1}),
    "SVRG": (fl.SVRG, {"participants": 1}),
    "SAGA": (fl.SAGA, {"participants": 1}),
    "FedLin": (fl.FedLin, {"participants": 1}),
    "Scaffold 1": (fl.Scaffold, {"option": 1, "participants": 1}),
    "Scaffold 2": (fl.Scaffold, {"server_step_size": 0.7, "participants": 1}),
    "GradientTracking": (fl.GradientTracking, {"participants": 1}),
}


def owned_by_agents(p, e):
    """Names of what an agent remembers: the mean of rows follows from what each row, of the same number, last gave."""
    rows = range(p.first[1]) if e.table else ()
    return ("xi", *(name for name in e.agent if name != e.table), *(f"row {j}" for j in rows))


def enumerated(p, e, eta, H, participants, state):
    """Every (probability, next state) after a round; a state : (theta, server's memories, xi and agents' memories)."""
    N, d = p.n_agents, p.dim
    server, agents = state
    names, owned = ("theta", *e.server), owned_by_agents(p, e)
    given = owned[len(e.agent) :] if e.table else ()
    known = dict(zip(names, server, strict=True))
    factor = {}

    def of(row, vectors):
        out = np.zeros(d)
        for name, f in row.items():
            out = out + np.broadcast_to(np.asarray(f, float), (N, d))[factor["c"]] * vectors[name]
        return out

    chances, tables, spans = e.probabilities(N), p.observations, list(p.spans())
    residuals = p.b_bar - p.A_bar @ server[0]
    each = []
    for c in range(N):
        factor["c"] = c
        own = known | dict(zip(owned, agents[c], strict=True))
        own |= {"residual": residuals[c], "mean_residual": p.weights @ residuals}
        span = spans[p.assignment[c]]
        A, b = tables.matrices(span)
        prob, ends = p.prob[span], []
        if e.table:
            own[e.table] = prob @ [own[name] for name in given]
        g = of(e.correction, own)
        for q, row in zip(chances[:, c], (row for _, row in e.starts), strict=True):
            start = of(row, own)
            for z in itertools.product(range(len(prob)), repeat=H) if q else ():
                theta, rows = start, [own[name] for name in given]
                for k in z:
                    residual = A[k] @ theta - b[k]
                    if e.table:
                        mean, now = prob @ rows, residual
                        residual, rows[k] = now - rows[k] + mean, now
                    if e.anchored:
                        residual = A[k] @ (theta - start) - (p.b_bar[c] - p.A_bar[c] @ start)
                    theta = theta - eta * (residual - g + e.pull * (theta - start))
                end = own | {"start": start, "theta_hat": theta} | dict(zip(given, rows, strict=True))
                ends.append((q * np.prod(prob[list(z)]), end | ({e.table: prob @ rows} if e.table else {})))
        sent = []
        for chance, vectors in ends:
            formed = {name: of(row, vectors) for name, row in e.messages.items()}
            full = vectors | formed
            if isinstance(e.send, fl.RandK):
                k, subsets = e.send.coordinates, list(itertools.combinations(range(d), e.send.coordinates))
                for s in subsets:
                    mask = np.isin(np.arange(d), s) * (d / k if e.send.scaled else 1.0)
                    arrived = {f"sent_{name}": mask * m for name, m in formed.items()}
                    sent.append((chance / len(subsets), full | arrived))
            else:
                sent.append((chance, full | {f"sent_{name}": m for name, m in formed.items()}))
        each.append(sent)
    share, _ = e.answering(N, participants)
    if e.presence is None:
        sets = list(itertools.combinations(range(N), participants))
        laws = [(1 / len(sets), s) for s in sets]
    else:
        laws = [
            (np.prod(np.where(on, share, 1 - share)), np.flatnonzero(on)) for on in itertools.product([0, 1], repeat=N)
        ]
    for chance, there in laws:
        for happens in itertools.product(*(each[c] for c in there)):
            weight, vectors = chance, dict(zip(there, (v for _, v in happens), strict=True))
            for q, _ in happens:
                weight *= q
            means = {name: np.zeros(d) for name in e.means}
            for name, (message, f) in e.means.items():
                for c in there:
                    scale = p.weights[c] * np.broadcast_to(np.ravel(f), N)[c] / share[c]
                    means[name] = means[name] + scale * vectors[c][f"sent_{message}"]
            factor["c"] = 0
            above = known | means | {"mean_residual": p.weights @ residuals}
            new = np.array([of(e.then.get(name, {name: 1}), above) for name in names])
            below = np.empty_like(agents)
            for c in range(N):
                factor["c"] = c
                rows = e.then if c in vectors else e.absent
                seen = vectors.get(c) or above | dict(zip(owned, agents[c], strict=True)) | {"residual": residuals[c]}
                if e.table and c not in vectors:
                    seen[e.table] = p.prob[spans[p.assignment[c]]] @ [seen[name] for name in given]
                for i, name in enumerate(owned):
                    below[c, i] = of(rows.get(name, {name: 1}), seen | means)
            yield weight, (new, below)


@pytest.mark.parametrize("name", [*KINDS, *(f"fl.{name}" for name in FAMILY)])
@pytest.mark.parametrize(("eta", "H", "rounds"), [(0.2, 1, 2), (0.3, 2, 1)])
def test_moments_are_those_of_everything_that_can_happen(name, eta, H, rounds):
    p = tiny()
    if name in KINDS:
        of, options = KINDS[name]
        a = Declared(eta, H, of=of, **options)
    else:
        kind, options = FAMILY[name.removeprefix("fl.")]
        a = kind(eta, H, **options)
    e = a.exchange(eta, H, 2, 2)
    theta, xi = p.theta_star + np.array([1.0, -2.0]), np.array([[1.0, 3.0], [-1.0, -3.0]]) / p.weights[:, None]
    first = {name: np.broadcast_to(row["theta"], (2,)) * theta for name, row in e.begin.items()}  # of theta alone
    memory = [first.get(name, np.zeros(2)) for name in e.server]
    others = owned_by_agents(p, e)[1:]
    own = [np.stack([xi[c], *(first.get(name, np.zeros(2)) for name in others)]) for c in range(2)]
    law = [(1.0, (np.array([theta, *memory]), np.array(own)))]
    for _ in range(rounds):
        step = [enumerated(p, e, eta, H, a.taking_part(2), state) for _, state in law]
        law = [(q * r, after) for (q, _), part in zip(law, step, strict=True) for r, after in part]
    weight = np.array([q for q, _ in law])
    flat = np.array([np.concatenate([s.ravel(), g.ravel()]) for _, (s, g) in law])
    assert weight.sum() == pytest.approx(1, abs=1e-12)
    mean = weight @ flat
    C = (weight[:, None] * (flat - mean)).T @ (flat - mean)
    step = rounds_at(a, each_agent(p, xi))(0)
    v, k = step.start([1.0, -2.0]), 1 + len(e.server)
    found = np.zeros((len(v),) * 2)
    kept = np.ones(len(flat[0]), bool)
    if "xi" not in step.own:  # no round changes it
        kept[2 * k :].reshape(2, -1, 2)[:, 0] = False
        assert np.ptp(flat[:, ~kept], axis=0).max() == 0
    mean, C = mean[kept], C[np.ix_(kept, kept)]
    for _ in range(rounds):
        found, v = step.covariance(found, v), step.move(v)
    np.testing.assert_allclose(v + step.centre(), mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found, C, rtol=1e-11, atol=1e-12 * np.abs(C).max() + 1e-15)


QUICK = [
    fl.FedLSA(0.1, 10),
    fl.FedLSA(0.1, 10, participants=2),
    fl.FedLSA(fl.PowerStep(0.1, 0.5), 10, average_after=3),
    fl.SCAFFLSA(0.1, 10),
    fl.SCAFFLSA(0.1, 10, participants=2),
    fl.SCAFFLSA(fl.PowerStep(0.1, 0.5), 10),
]


@pytest.mark.parametrize("a", QUICK, ids=repr)
def test_methods_with_quick_routes_have_the_same_curves_on_the_joint_law(a):
    p, at = fl.problems.garnet(agents=5, states=6, features=3, seed=1), np.array([0, 1, 2, 7, 20])
    curve = fl.theory.exact(p, a, rounds=20, record=at.tolist())
    mean, C, *_ = joint_curve(a, each_agent(p), np.ones(3), at)
    np.testing.assert_allclose(mean + p.theta_star, curve["mean"], rtol=1e-12)
    np.testing.assert_allclose(np.trace(C, axis1=1, axis2=2), curve["noise"], rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("a", [QUICK[0], QUICK[1], QUICK[3], QUICK[4]], ids=repr)
def test_limits_on_the_joint_law_are_those_of_the_quick_routes(a):
    p = fl.problems.garnet(agents=4, states=6, features=3, seed=1)
    limit, step = fl.theory.stationary(p, a), rounds_at(a, each_agent(p))(0)
    found = joint_limit(step, np.ones(3))
    np.testing.assert_allclose(found.C[:3, :3], limit.covariance, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(found.mean[:3], limit.bias, atol=1e-10)
    V, error = law_of_averages(found, 3)
    power, total = found.C[:, :3], found.C[:3, :3].copy()
    for _ in range(4000):  # covariances of later and later rounds, added up
        power = step.carry(power)
        total += power[:3] + power[:3].T
    np.testing.assert_allclose(V, total, rtol=1e-8, atol=1e-12)
    assert error < 1e-9


@pytest.mark.parametrize("name", KINDS)
def test_covariances_of_averages_are_sums_of_those_of_later_and_later_rounds(name):
    p = tiny(agents=3, seed=3, outcomes=3)
    of, options = KINDS[name]
    a = Declared(0.1, 4, of=of, corrected="memory" not in name, **options)
    step = rounds_at(a, each_agent(p))(0)
    found = joint_limit(step, np.ones(2))
    V, error = law_of_averages(found, 2)
    power, total = found.C[:, :2], found.C[:2, :2].copy()
    for _ in range(4000):
        power = step.carry(power)
        total += power[:2] + power[:2].T
    np.testing.assert_allclose(V, total, rtol=1e-8, atol=1e-12)
    assert error < 1e-8


def same_at_one_step(eta):
    """Methods that are FedLSA where rounds have one step and all agents take part."""
    one = {"local_steps": 1, "step_size": eta}
    kinds = (fl.FedProx, {"pull": 0.0}), (fl.Personal, {}), (fl.Scaffold, {}), (fl.Delayed, {"delays": (1,)})
    return [kind(**one, **more) for kind, more in (*kinds, (fl.Compressed, {"send": fl.RandK(2)}))]


@pytest.mark.parametrize("eta", [1e-4, 1e-7, 1e-8])
def test_limits_of_rounds_that_hardly_move_are_known_with_their_error(eta):
    """At 1e-7 second moments shrink by less than 1e-8 in a round; control variates vary 10 million times as far."""
    p = fl.problems.garnet(agents=3, states=4, features=2, seed=0)
    known = fl.theory.stationary(p, fl.FedLSA(eta, 1))
    for a in same_at_one_step(eta):
        found = fl.theory.stationary(p, a)
        assert abs(found.mse / known.mse - 1) <= found.error + known.error < 1e-5
    with pytest.raises(fl.errors.PrecisionError, match=r"so slow, or so near to the stability limit"):
        fl.theory.stationary(p, fl.Scaffold(1e-11, 1))


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-8])
def test_errors_of_limits_near_to_the_stability_limit_are_what_is_claimed(gap):
    """One agent with A in {1/2, 7/4}, b = +-1: in rational numbers."""
    p = fl.problems.from_observations([([0.5, 0.5], [[[0.5]], [[1.75]]], [[1.0], [-1.0]])])
    mean, square = Fraction(9, 8), Fraction(53, 32)
    eta = float(2 * mean / square) * (1 - gap)
    step = Fraction(eta)
    variance = step**2 / (2 * step * mean - step**2 * square)
    V = variance * (1 + 2 * (1 - step * mean) / (step * mean))
    for a in (fl.FedLSA(eta, 1), fl.SCAFFLSA(eta, 1), *same_at_one_step(eta)):
        law, average = fl.theory.stationary(p, a), fl.theory.central_limit(p, a)
        assert abs(float(Fraction(law.mse) / variance - 1)) <= law.error < 1e-13 / gap
        assert abs(float(Fraction(average.covariance.item()) / V - 1)) <= average.error < 1e-12 / gap


@pytest.mark.parametrize("name", mostly_long(KINDS, ["masked"]))
def test_curves_end_in_the_limit_and_steps_beyond_the_edge_have_none(name):
    p = tiny(agents=3, seed=3, outcomes=3)
    of, options = KINDS[name]
    a = Declared(0.1, 4, of=of, corrected="memory" not in name, **options)
    limit, curve = fl.theory.stationary(p, a), fl.theory.exact(p, a, rounds=1000, record=[1000])
    assert limit.stable
    assert limit.route == "joint law"
    assert limit.mse == pytest.approx(float(curve["mse"][-1]), rel=1e-6)
    assert limit.radius < 1
    edge = fl.theory.stability_limit(p, a, 1e-3)
    below, above = (fl.theory.stationary(p, replace(a, step_size=edge * s)) for s in (0.99, 1.01))
    assert below.stable
    assert not above.stable


def test_steps_beyond_all_numbers_have_no_limit_and_no_central_limit():
    p = tiny()
    for a in (fl.Delayed(1e150, 4), fl.SVRG(1e150, 4, corrected=False)):
        assert not fl.theory.stationary(p, a).stable
        with pytest.raises(fl.errors.ArgumentError, match=r"step_size must be small enough .* got 1e\+150"):
            fl.theory.central_limit(p, a)


class Uneven(fl.SAGA):
    """SAGA whose agents make steps of other sizes, and of another number."""

    supports = fl.SAGA.supports

    def agent_factors(self, agents):
        return np.linspace(0.5, 1.5, agents), np.linspace(2, 0.5, agents)


def sites():
    """Tables of 3 to 5 rows of rank one in the plane."""
    rng = np.random.default_rng(4)
    return fl.problems.regression([(rng.standard_normal((n, 2)), rng.standard_normal(n)) for n in (3, 4, 5)])


@pytest.mark.parametrize("method", [fl.SAGA(0.1, 4), Uneven(0.05, 4), fl.SAGA(0.1, 4, participants=2, corrected=False)])
def test_rows_that_give_one_number_have_the_law_of_rows_that_give_d(method):
    p = sites()
    tables = [(p.prob[span], *p.observations.matrices(span)) for span in p.spans()]
    thin, full = (fl.theory.exact(q, method, rounds=8) for q in (p, fl.problems.from_observations(tables)))
    for name in ("mean", "covariance"):
        np.testing.assert_allclose(thin[name], full[name], rtol=1e-9, atol=1e-15)


def test_with_one_agent_it_is_the_saga_of_its_paper_over_all_that_can_be_drawn():
    """Three rows of ordinary least squares and a ridge, which is no part of what rows give: all 3^6 runs."""
    rng = np.random.default_rng(5)
    X, y, eta, ridge = rng.standard_normal((3, 2)), rng.standard_normal(3), 0.1, 0.5
    p = fl.problems.regression([(X, y)], ridge=ridge)
    ends = []
    for z in itertools.product(range(3), repeat=6):
        theta, g = np.ones(2), np.zeros((3, 2))
        for j in z:
            now = X[j] * (X[j] @ theta - y[j])
            theta = theta - eta * (now - g[j] + g.mean(0) + ridge * theta)
            g[j] = now
        ends.append(theta)
    for steps, rounds in ((6, 1), (2, 3), (1, 6)):
        exact = fl.theory.exact(p, fl.SAGA(eta, steps), rounds, theta_0=np.ones(2), record=[rounds])
        np.testing.assert_allclose(exact["mean"][0], np.mean(ends, axis=0), rtol=1e-12)
        np.testing.assert_allclose(exact["covariance"][0], np.cov(np.array(ends).T, ddof=0), rtol=1e-11)


def test_the_joint_law_ends_in_what_rows_give_at_theta_star():
    p = sites()
    law = fl.theory.stationary(p, fl.SAGA(0.05, 4), joint=True).joint
    d, z, own = p.dim, p.observations, law.mean[p.dim :].reshape(p.n_agents, -1)
    for c, span in enumerate(p.spans()):
        _, F, f = z.factors(span)
        rows = (F @ p.theta_star - f).ravel()
        np.testing.assert_allclose(own[c], np.concatenate([p.xi_star[c], rows, np.zeros(6 - len(rows))]), atol=1e-12)
    assert np.abs(law.covariance).max() < 1e-20
    assert own.shape[1] == d + 6


def test_agents_with_step_sizes_and_lengths_of_their_own_remember_rows_too():
    """Of two thousand seeds, within four standard errors."""
    p, method, at = sites(), Uneven(0.05, 8), [1, 4, 8]
    exact = fl.theory.exact(p, method, rounds=8, record=at)["mse"]
    seeds = fl.simulate(p, method, rounds=8, seeds=2000, record=at)["squared_error"]
    off = (seeds.mean("seed") - exact) / (seeds.std("seed", ddof=1) / np.sqrt(2000))
    assert np.abs(off).max() < 4


def test_too_many_rows_or_steps_and_moments_alone_have_no_such_law():
    p = fl.problems.garnet(agents=20, seed=0)
    with pytest.raises(fl.errors.ArgumentError, match=r"must be at most 1700 numbers for exact moments; got 2568$"):
        fl.theory.exact(p, fl.SAGA(0.1, 10), rounds=3)
    with pytest.raises(fl.errors.ArgumentError, match="table of an exchange must be None where only moments are given"):
        fl.theory.exact(fl.theory.moments(sites()), fl.SAGA(0.1, 10), rounds=3)
    with pytest.raises(fl.errors.ArgumentError, match=r"local_steps must be at most \d{4} for .*; got 10000$"):
        fl.theory.exact(sites(), fl.SAGA(0.1, 10_000), rounds=3)


def test_averaged_control_variates_have_exact_curves():
    p = tiny(agents=3, seed=3)
    a = fl.SCAFFLSA(0.1, 3, average_after=2)
    curve = fl.theory.exact(p, a, rounds=6, record=[0, 2, 6])
    assert curve.attrs["route"] == "joint law, round by round"
    plain = fl.theory.exact(p, replace(a, average_after=None), rounds=6, record=[0, 2, 6])
    np.testing.assert_allclose(curve["mse"][:2], plain["mse"][:2], rtol=1e-12)
    seeds = fl.simulate(p, a, rounds=6, seeds=2000, record=[0, 2, 6])["squared_error"]
    off = (seeds.mean("seed") - curve["mse"]) / (seeds.std("seed", ddof=1) / np.sqrt(2000)).clip(1e-300)
    assert abs(float(off[-1])) < 4


def test_what_has_no_linear_law_is_refused_by_name():
    p = tiny()
    for send in (fl.TopK(1), fl.Sign(), fl.Rounding(4, 1.0, dither=False)):
        a = Declared(0.1, 2, of=lambda *_, send=send: Exchange(send=send))
        with pytest.raises(fl.errors.ArgumentError, match=f"linear law for theory; got {type(send).__name__}"):
            fl.theory.exact(p, a, rounds=3)
    with pytest.raises(fl.errors.ArgumentError, match="rule of Declared must be None"):
        fl.theory.exact(p, Declared(0.1, 2, of=lambda *_: Exchange(rule=print)), rounds=3)
    uneven = {"then": {"theta": {"theta": 1, "mean": 1}, "xi": {"xi": 1, "mean": 1}}}
    with pytest.raises(fl.errors.ArgumentError, match="same for agents who answer"):
        fl.theory.exact(p, Declared(0.1, 2, of=lambda *_: Exchange(**uneven), participants=1), rounds=3)


@pytest.mark.long
@pytest.mark.parametrize("name", ["FedLSA", "rand-k"])
def test_plans_reach_their_target_and_say_what_is_sent(name):
    p = fl.problems.garnet(agents=4, seed=1, states=8, features=2)
    a = Declared(0.1, 4, of=KINDS[name][0])
    plan = fl.plan(p, 0.2, method=a)
    curve = fl.theory.exact(p, plan.algorithm, rounds=2 * plan.rounds)
    assert plan.rmse <= 0.2
    assert float(curve["mse"].sel(rounds=plan.rounds)) == pytest.approx(plan.rmse**2, rel=1e-9)
    assert (curve["mse"].sel(rounds=slice(plan.rounds, None)) <= 0.04).all()
    numbers = 3 if name == "rand-k" else 4  # one coordinate up, two down; or two each way
    assert plan.bytes == 8 * numbers * 4 * plan.rounds == float(curve["bytes"].sel(rounds=plan.rounds))
    if name == "FedLSA":  # at most a step of the grid from the search over quick routes
        assert plan.rounds <= 1.1 * fl.plan(p, 0.2, method="fedlsa").rounds + 1
    else:
        with pytest.raises(fl.errors.ArgumentError, match="at most 400 numbers for a plan of Declared; got"):
            fl.plan(fl.problems.garnet(agents=60), 0.2, method=a)


def test_noise_does_not_depend_on_where_theta_star_is():
    """Memories of theta are centred at 0: the square of a far theta_star would drown small noise."""
    rng = np.random.default_rng(0)
    A, e = np.eye(2) + 0.3 * rng.standard_normal((2, 2, 2)), 2.0**-20 * rng.standard_normal((2, 2))
    tables = lambda s: [([0.5, 0.5], [M, M], [M @ s + x, M @ s - x]) for M, x in zip(A, e, strict=True)]  # noqa: E731
    near, far = (fl.problems.from_observations(tables(np.full(2, s))) for s in (0.0, 1024.0))
    for a in (fl.Delayed(0.1, 2, (0.5, 0.3, 0.2)), fl.Buffered(0.1, 2, participants=1)):
        limits = [fl.theory.stationary(p, a).covariance for p in (near, far)]
        np.testing.assert_allclose(*limits, rtol=1e-4)
    curves = [fl.theory.exact(p, fl.Delayed(0.1, 2), rounds=80, theta_0=p.theta_star)["noise"] for p in (near, far)]
    np.testing.assert_allclose(*(c[-1] for c in curves), rtol=1e-4)


def test_what_rounds_keep_holds_on_to_rounding_and_curves_say_so():
    """The same recursion around two theta_star, where the variance has fallen from 1 to 1e-13."""
    E, e = 2.0**-27 * np.array([[1, -1], [0.5, 1]]), 2.0**-27 * np.array([1, 2])
    means = (np.array([[1, 0.25], [0, 0.5]]), [1, 2]), (np.array([[2, 0], [-0.5, 0.75]]), [0.25, 0.5])
    found = []
    for s in (np.zeros(2), np.ones(2)):
        tables = [([0.5, 0.5], [A + E, A - E], [b + e + (A + E) @ s, b - e + (A - E) @ s]) for A, b in means]
        p = fl.problems.from_observations(tables)
        a = fl.FedProx(0.15, 3, 0.7, corrected=True, participants=1)
        found.append(fl.theory.exact(p, a, rounds=60, theta_0=p.theta_star, record=[60]))
    off = abs(float(found[1]["mse"][0] / found[0]["mse"][0]) - 1)
    assert off <= found[0].attrs["rounding"] + found[1].attrs["rounding"] < 0.05


def test_messages_beyond_the_radius_of_rounding_are_a_warning():
    p, said = tiny(), r"radius of Rounding\(bits_each=8, radius=0.1\) must be at least four times .* of a message"
    far, near = (fl.Compressed(0.2, 3, fl.Rounding(8, radius)) for radius in (0.1, 10.0))
    theta_0 = p.theta_star + 10
    for ask in (
        lambda a: fl.theory.exact(p, a, rounds=3, theta_0=theta_0),
        lambda a: fl.theory.stationary(p, a),
        lambda a: fl.plan(p, rounds=2, max_samples=8, method=a, theta_0=theta_0),
    ):
        with pytest.warns(fl.errors.TheoryWarning, match=said):
            ask(far)
    with warnings.catch_warnings(record=True) as given:
        fl.theory.exact(p, near, rounds=3)
        fl.plan(p, rounds=2, max_samples=8, method=near)
        growing = fl.Compressed(0.05, fl.PowerLength(1, 1.0), fl.Rounding(8, 0.6))
        ring = fl.problems.ring(agents=3)
        fl.theory.exact(ring, growing, rounds=1, theta_0=ring.theta_star + 0.5)
    assert not given
    with pytest.warns(fl.errors.TheoryWarning, match="got 0.193"):  # messages of longer rounds are longer
        fl.theory.exact(ring, growing, rounds=30, theta_0=ring.theta_star + 0.5)


def test_own_coordinates_are_not_sent_and_not_counted():
    p = tiny(dim=3)
    for own, numbers in (((), 3), ((1,), 2), ((0, 2), 1)):
        a = fl.Personal(0.1, 2, own=own)
        curve, run = fl.theory.exact(p, a, rounds=2), fl.simulate(p, a, rounds=2, seeds=1, engine="reference")
        assert float(curve["bytes"][-1]) == float(run["bytes"][0, -1]) == 2 * 2 * 2 * 8 * numbers

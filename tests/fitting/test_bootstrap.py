"""Bootstraps: a replica is weighted least squares of all rows in one place; replicas spread as the sandwich says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.fitting.error_bars import replicas
from fedlsa.fitting.error_bars.bootstrap import Bootstrap
from fedlsa.fitting.error_bars.replicas import reweighted_solutions
from fedlsa.fitting.error_bars.resampling import GROUP, Multipliers, Resampling
from fedlsa.fitting.rows.observe import Piece
from fedlsa.fitting.site_sums import SystemSums
from fedlsa.fitting.solutions import solution

RUN = {"step_size": 1e-3, "local_steps": 1, "rounds": 1, "local": "means"}  # on which replicas do not depend
pytestmark = pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")


def panel(sizes=(40, 70, 55), seed=0, groups=12):
    """Tables with noise that grows with a column, row weights, and clusters in no order that share an error."""
    rng, out = np.random.default_rng(seed), {}
    for c, n in enumerate(sizes):
        x, z = rng.normal(size=(2, n))
        group = rng.permutation(n) % groups
        shift = rng.normal(size=groups)[group]
        y = 1 + 2 * x - z + (0.5 + np.abs(x)) * rng.normal(size=n) + shift
        out[f"s{c}"] = {"x": x, "z": z, "y": y, "w": rng.uniform(0.5, 2, n), "g": np.array([f"k{k}" for k in group])}
    return out


def task(**options):
    return fl.Regression("y", columns=("x", "z"), **options)


def stacked(sites, share):
    """X (n, 3), y (n,) and the factor r_c w of every row."""
    X = np.concatenate([np.column_stack([s["x"], s["z"], np.ones(len(s["y"]))]) for s in sites.values()])
    mass = [s["w"] for s in sites.values()]
    weights = [sum(m) for m in mass] if share == "mass" else [1] * len(mass)
    factor = np.concatenate([W * m / m.sum() for W, m in zip(weights, mass, strict=True)])
    return X, np.concatenate([s["y"] for s in sites.values()]), factor


def codes(labels):
    """Numbers of labels, in the order in which they are seen first."""
    return np.array([list(dict.fromkeys(labels)).index(label) for label in labels])


@pytest.mark.parametrize("weight", ["samples", "sites"])
@pytest.mark.parametrize("kind", ["pairs", "block", "cluster"])
def test_a_replica_is_weighted_least_squares_of_all_rows_in_one_place(monkeypatch, kind, weight) -> None:
    monkeypatch.setattr(replicas, "NUMBERS", 900)  # chunks of a few rows, which cut blocks and clusters
    sites = panel()
    options = {"lag": 4} if kind == "block" else {}
    model = task(row_weights="w", cluster="g" if kind == "cluster" else None)
    fit = fl.fit(sites, model, weight=weight, bootstrap=70, resample=kind, seed=3, **options, **RUN)
    X, y, factor = stacked(sites, "mass" if weight == "samples" else "sites")
    for b in (0, 1, 65):
        V = []
        for c, s in enumerate(sites.values()):
            n = len(s["y"])
            unit = {"pairs": np.arange(n), "block": np.arange(n) // 5, "cluster": codes(s["g"])}[kind]
            V.append(Multipliers("coins", 3, c, b + 1).draw(unit.max() + 1)[unit, b])
        root = np.sqrt(factor * np.concatenate(V))
        twin = np.linalg.lstsq(X * root[:, None], y * root)[0]
        np.testing.assert_allclose(fit.bootstrap.replicas[b], twin, rtol=1e-9, atol=1e-11)
    assert fit.bootstrap.kind == {"pairs": "pairs", "block": "blocks of 5 rows", "cluster": "36 clusters"}[kind]


def test_a_wild_replica_adds_signed_residuals_with_their_leverage_taken_out(monkeypatch) -> None:
    monkeypatch.setattr(replicas, "NUMBERS", 900)
    sites = panel()
    X, y, factor = stacked(sites, "mass")
    A = X.T @ (X * factor[:, None])
    theta = np.linalg.solve(A, X.T @ (factor * y))
    e, h = y - X @ theta, factor * np.einsum("ni,ni->n", X, np.linalg.solve(A, X.T).T)
    sizes = [len(s["y"]) for s in sites.values()]

    def signs(b, overlap=1, count=sizes):
        return np.concatenate([Multipliers("signs", 3, c, b + 1, overlap).draw(n)[:, b] for c, n in enumerate(count)])

    def replicas_of(**options):
        lag = options.pop("lag", None)
        fit = fl.fit(sites, task(row_weights="w", **options), bootstrap=70, resample="wild", seed=3, lag=lag, **RUN)
        return fit.bootstrap.replicas

    for b, found in enumerate(replicas_of()[:3]):
        twin = theta - np.linalg.solve(A, X.T @ (factor * e / (1 - h) * signs(b)))
        np.testing.assert_allclose(found, twin, rtol=1e-8, atol=1e-10)
    for b, found in enumerate(replicas_of(lag=3)[:3]):  # Newey and West: scores as they are, signs that overlap
        twin = theta - np.linalg.solve(A, X.T @ (factor * e * signs(b, overlap=4)))
        np.testing.assert_allclose(found, twin, rtol=1e-8, atol=1e-10)
    unit = [codes(s["g"]) for s in sites.values()]
    counts = [u.max() + 1 for u in unit]
    first = np.concatenate([u + sum(counts[:c]) for c, u in enumerate(unit)])
    for b, found in enumerate(replicas_of(cluster="g")[:3]):
        twin, sign = theta.copy(), signs(b, count=counts)
        for k in range(sum(counts)):
            Xk, wk = X[first == k], factor[first == k]
            gone = A - Xk.T @ (Xk * wk[:, None])
            twin -= sign[k] * np.linalg.solve(gone, Xk.T @ (wk * e[first == k]))
        np.testing.assert_allclose(found, twin, rtol=1e-8, atol=1e-10)


def logs(sizes=(170, 190, 260)):
    """TD(0): u, v (n, d) and y (n,) of three logs."""
    rng, out = np.random.default_rng(1), []
    for n in sizes:
        phi, after = rng.random((2, n, 4))
        out.append((phi, phi - 0.9 * after, rng.standard_normal(n)))
    return out


@pytest.mark.parametrize(("block", "piece", "within"), [(1, 17, True), (5, 17, True), (8, 3, True), (4, 4, False)])
def test_rows_of_a_log_vary_within_their_site_or_with_its_weight(monkeypatch, block, piece, within) -> None:
    monkeypatch.setattr(replicas, "NUMBERS", 900)
    sites, weights, ridge = logs(), np.array([0.2, 0.5, 0.3]), np.array([0.1, 0.1, 0.1, 0.0])
    systems = [SystemSums.of(Piece(*s)).system(ridge) for s in sites]

    def pieces(c):
        for at in range(0, len(sites[c][2]), piece):
            yield Piece(*(a[at : at + piece] for a in sites[c]))

    shared = solution(systems, weights, "abcd")
    what = Resampling("block", block, within=within)
    found = reweighted_solutions(pieces, systems, weights, shared, ridge, what, replicas=70, seed=3)
    for b in (0, 65):
        A, right = np.zeros((4, 4)), np.zeros(4)
        for c, (w, (u, v, y)) in enumerate(zip(weights, sites, strict=True)):
            coins = np.repeat(Multipliers("coins", 3, c, b + 1).draw(-(-len(y) // block))[:, b], block)[: len(y)]
            coins *= w / (coins.sum() if within else len(y))
            for k in np.flatnonzero(coins):
                A += coins[k] * (np.outer(u[k], v[k]) + np.diag(ridge))
                right += coins[k] * y[k] * u[k]
        np.testing.assert_allclose(found[b], np.linalg.solve(A, right), rtol=1e-9, atol=1e-11)


# The standard deviation of 2,000 normal replicas has a relative standard error of 1/sqrt(4000): four of them. The wild
# bootstrap's covariance is the sandwich itself; replicas of reweighted rows are not linear in their weights.
MONTE_CARLO = 4 / np.sqrt(4000)


@pytest.mark.parametrize(
    ("options", "lag", "kind", "beyond"),
    [
        ({}, None, "wild", 0.0),
        ({"covariance": "HC1"}, None, "wild", 0.0),
        ({"cluster": "g"}, None, "wild", 0.0),
        ({"cluster": "g", "covariance": "HC1"}, None, "wild", 0.0),
        ({}, 4, "wild", 0.0),
        ({}, None, "pairs", 0.03),
        ({"cluster": "g"}, None, "cluster", 0.03),
        ({}, 4, "block", 0.06),  # blocks at fixed places see some of the pairs of rows that Newey and West see
    ],
)
def test_replicas_spread_as_the_sandwich_of_their_kind_says(options, lag, kind, beyond) -> None:
    sites = panel((150, 300, 400), groups=30)
    fit = fl.fit(sites, task(**options), bootstrap=2000, resample=kind, lag=lag, **RUN)
    assert np.abs(fit.bootstrap.standard_error / fit.standard_error - 1).max() < MONTE_CARLO + beyond
    assert fit.bootstrap.degrees_of_freedom == fit.degrees_of_freedom
    wild = fit.bootstrap.covariance / np.outer(fit.standard_error, fit.standard_error)
    true = fit.covariance / np.outer(fit.standard_error, fit.standard_error)
    assert np.abs(wild - true).max() < 2 * (MONTE_CARLO + beyond)


def test_multipliers_have_mean_and_variance_one_and_are_the_same_however_they_are_drawn() -> None:
    for kind, mean in (("coins", 1), ("signs", 0), ("webb", 0)):
        drawn = Multipliers(kind, 1, 0, 100).draw(1000)
        assert abs(drawn.mean() - mean) < 4 / np.sqrt(drawn.size)
        assert abs(drawn.var() - 1) < 8 / np.sqrt(drawn.size)
        pairs = np.corrcoef(drawn.T)[np.triu_indices(100, 1)]
        assert np.abs(pairs).max() < 5.5 / np.sqrt(1000)  # of 4950 independent pairs
        again = Multipliers(kind, 1, 0, 100)
        assert np.array_equal(drawn, np.concatenate([again.draw(n) for n in (1, 0, 399, 600)]))
        assert np.array_equal(drawn[:, : GROUP + 6], Multipliers(kind, 1, 0, GROUP + 6).draw(1000))
        for seed, site in ((2, 0), (1, 1)):
            assert abs(np.corrcoef(drawn.ravel(), Multipliers(kind, seed, site, 100).draw(1000).ravel())[0, 1]) < 0.02
    assert set(np.unique(Multipliers("coins", 1, 0, 9).draw(99))) == {0.0, 2.0}
    assert np.unique(Multipliers("webb", 1, 0, 9).draw(99)) ** 2 == pytest.approx([1.5, 1, 0.5, 0.5, 1, 1.5])
    smooth = Multipliers("signs", 1, 0, 500, overlap=4)
    V = np.concatenate([smooth.draw(n) for n in (1, 2, 97, 100)])
    assert np.array_equal(V, Multipliers("signs", 1, 0, 500, overlap=4).draw(200))
    near = [np.mean(V[: 200 - h] * V[h:]) for h in range(6)]
    assert near == pytest.approx([1, 0.75, 0.5, 0.25, 0, 0], abs=5 / np.sqrt(200 * 500 / 4))


def test_a_fit_has_replicas_of_the_datas_solution_whatever_its_run_is() -> None:
    sites = panel()
    fit = fl.fit(sites, task(), bootstrap=50, **RUN)
    for options in ({"local": "means", "epsilon": 0.2}, {**RUN, "memory": 1}, {**RUN, "method": "fedlsa"}):
        other = fl.fit(sites, task(), bootstrap=50, **options)
        np.testing.assert_allclose(other.bootstrap.replicas, fit.bootstrap.replicas, rtol=1e-9, atol=1e-11)
    assert np.array_equal(fit.bootstrap.theta, fit.theta)
    more = fl.fit(sites, task(), bootstrap=131, **RUN).bootstrap.replicas
    np.testing.assert_allclose(more[:50], fit.bootstrap.replicas, rtol=1e-9, atol=1e-11)
    assert not np.isclose(fl.fit(sites, task(), bootstrap=50, seed=1, **RUN).bootstrap.replicas, more[:50]).any()
    for kind in ("wild", "pairs"):
        units = [fl.fit(sites, task(standardise=s), bootstrap=20, resample=kind, **RUN) for s in (True, False)]
        np.testing.assert_allclose(*(k.bootstrap.replicas for k in units), rtol=1e-6)


def test_what_varies_follows_from_the_task_unless_it_is_said() -> None:
    sites = panel()

    def kind(model=None, **options):
        return fl.fit(sites, model or task(), bootstrap=5, **{**RUN, **options}).bootstrap.kind

    assert kind() == "pairs"
    assert kind(lag=2) == "blocks of 3 rows"
    assert kind(lag=0, resample="block") == "pairs"
    assert kind(task(cluster="g")) == "36 clusters"
    assert kind(task(cluster="sites")) == "wild, 3 clusters"  # too few to drop some
    assert kind(task(cluster="g"), resample="wild") == "wild, 36 clusters"
    assert kind(resample="wild") == "wild, rows"
    assert kind(lag=2, resample="wild") == "wild, lag 2"
    for model, resample, words in (
        (task(), "cluster", "resample='cluster' needs a task with clusters"),
        (task(), "block", "resample='block' needs rows in their order: a lag"),
        (task(), "jackknife", "resample must be one of"),
    ):
        with pytest.raises(ArgumentError, match=words):
            kind(model, resample=resample)
    with pytest.raises(ArgumentError, match="resample must go with bootstrap"):
        fl.fit(sites, task(), resample="wild", **RUN)


def test_the_bootstrap_of_a_log_agrees_with_its_standard_errors() -> None:
    rng = np.random.default_rng(3)
    tables = []
    for _ in range(3):
        x = np.zeros((1001, 2))
        for k in range(1000):
            x[k + 1] = 0.7 * x[k] + rng.normal(size=2)
        reward = x[:-1] @ [1, 2] + rng.normal(size=1000)  # the second state is not seen, so TD errors are correlated
        tables.append((x[:-1, :1], reward, x[1:, :1], np.zeros(1000)))
    found = {kind: fl.fit(tables, fl.Value(0.8), bootstrap=2000, resample=kind, **RUN) for kind in (None, "wild")}
    blocks, wild = (fit.bootstrap.standard_error / fit.standard_error for fit in found.values())
    assert found[None].bootstrap.kind.startswith("blocks of")
    assert found["wild"].bootstrap.kind.endswith("slow cosines")
    assert np.abs(wild - 1).max() < MONTE_CARLO
    # 375 blocks and 120 cosines estimate one error apart, to 4% and 6%; and Bartlett's window loses some of it
    assert np.abs(blocks - 0.95).max() < 3 * 0.075


def test_intervals_are_of_their_kinds() -> None:
    rng = np.random.default_rng(0)
    made = Bootstrap(np.array([1.0, 2.0]), np.array([1.0, 2.0]) + rng.exponential(size=(400, 2)), "pairs", 7.0)
    assert np.allclose(np.sqrt(np.diag(made.covariance)), made.standard_error)
    assert np.array_equal(made.interval(), made.interval(0.95, "percentile"))
    assert np.array_equal(replace(made, kind="blocks of 3 rows").interval(), made.interval(0.95, "normal"))
    made = replace(made, kind="wild, rows")
    low, high = made.interval(0.95).T
    assert (high - low) / 2 == pytest.approx(2.364624 * made.standard_error, rel=1e-6)  # t with 7 degrees of freedom
    assert (high + low) / 2 == pytest.approx(made.theta)
    low, high = made.interval(0.9, "percentile").T
    inside = ((made.replicas >= low) & (made.replicas <= high)).mean(axis=0)
    assert np.allclose(inside, 0.9, atol=0.005)
    turned_low, turned_high = made.interval(0.9, "basic").T
    assert np.allclose(turned_low + high, 2 * made.theta)
    assert np.allclose(turned_high + low, 2 * made.theta)
    with pytest.raises(ArgumentError, match="level must be"):
        made.interval(1.0)


def test_replicas_that_leave_a_coefficient_open_are_replaced_where_they_are_few_and_else_refused() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(14, 2))
    sites = [(x, x @ [1.0, 2.0] + rng.normal(size=14))]
    few = fl.fit(sites, fl.Regression("y"), bootstrap=2000, resample="pairs", **RUN).bootstrap
    dropped = Multipliers("coins", 0, 0, 2000).draw(14) == 0
    lost = np.flatnonzero((~dropped).sum(axis=0) < 3)  # of three coefficients
    assert 0 < len(lost) <= 20
    X = np.column_stack([x, np.ones(14)])
    for b in lost:
        other = np.linalg.lstsq(X[dropped[:, b]], sites[0][1][dropped[:, b]])[0]
        np.testing.assert_allclose(few.replicas[b], other, rtol=1e-8)
    rare = np.zeros((120, 3))
    rare[:, :2], rare[5, 2] = rng.normal(size=(120, 2)), 1  # a dummy for a single row, which half of the replicas drop
    sites = [(rare, rare @ np.ones(3) + np.sin(np.arange(120)))]
    with pytest.raises(ArgumentError, match=r"\d\d of 50 drop all rows on which one depends .* resample='wild'"):
        fl.fit(sites, fl.Regression("y"), bootstrap=50, **RUN)
    assert np.isfinite(fl.fit(sites, fl.Regression("y"), bootstrap=50, resample="wild", **RUN).bootstrap.replicas).all()
    one, half = logs((30, 90)), np.full(2, 0.5)
    systems = [SystemSums.of(Piece(*s)).system(0.0) for s in one]
    options = {"replicas": 64, "seed": 0}
    shared, what = solution(systems, half, "abcd"), Resampling("block", 30, within=True)
    with pytest.raises(ArgumentError, match=r"drops all of site 0, whose 30 rows make 1 blocks.* got blocks of 30"):
        reweighted_solutions(lambda c: [Piece(*one[c])], systems, half, shared, np.zeros(4), what, **options)


def test_intervals_of_few_clusters_cover() -> None:
    """400 data sets of 14 clusters of 8 rows, 200 replicas: within three binomial errors of 95%, 3.3%."""
    G, m, sets, truth = 14, 8, 400, np.array([2.0, 1.0])
    inside, labels = [], np.repeat(np.arange(G), m)
    for k in range(sets):
        rng = np.random.default_rng([5, k])
        x = np.column_stack([rng.normal(size=G)[labels] + rng.normal(size=G * m), np.ones(G * m)])
        rows = Piece(x, x, x @ truth + rng.normal(size=G)[labels] + rng.normal(size=G * m), cluster=labels)
        systems = [SystemSums.of(rows).system(0.0)]
        shared, what = solution(systems, np.ones(1), "ab"), Resampling("cluster", unit="clusters")
        options = {"replicas": 200, "seed": k}
        found = reweighted_solutions(lambda c, p=rows: [p], systems, np.ones(1), shared, np.zeros(2), what, **options)
        made = Bootstrap(shared[1], found, "cluster", G - 1.0)
        low, high = np.stack([made.interval(kind=kind) for kind in ("normal", "percentile")]).transpose(2, 0, 1)
        inside.append((low <= truth) & (high >= truth))
    assert np.abs(np.mean(inside, axis=0) - 0.95).max() < 3 * np.sqrt(0.05 * 0.95 / sets)

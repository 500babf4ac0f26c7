"""Bootstraps: a replica is weighted least squares of all rows in one place; replicas spread as the sandwich says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Plain

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.fitting import error_sources as bootstrap
from fedlsa.fitting.error_sources import GROUP, Coins, solve_reweighted
from fedlsa.fitting.fitted import Bootstrap
from fedlsa.fitting.rows import Piece
from fedlsa.fitting.sums import Systems
from fedlsa.fitting.tasks import CovarianceKind

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


def coins_of_clusters(sites, seed, b):
    """For each row the coin of its cluster: of the site where it is first seen, in the order of first rows there."""
    known = {}
    for c, s in enumerate(sites.values()):
        new = [label for label in dict.fromkeys(s["g"]) if label not in known]
        known |= dict(zip(new, Coins(seed, c, b + 1).draw(len(new))[:, b], strict=True))
    return np.concatenate([[known[label] for label in s["g"]] for s in sites.values()])


def stacked(sites, share):
    """X (n, 3), y (n,) and the factor r_c w of every row."""
    X = np.concatenate([np.column_stack([s["x"], s["z"], np.ones(len(s["y"]))]) for s in sites.values()])
    mass = [s["w"] for s in sites.values()]
    weights = [sum(m) for m in mass] if share == "mass" else [1] * len(mass)
    factor = np.concatenate([W * m / m.sum() for W, m in zip(weights, mass, strict=True)])
    return X, np.concatenate([s["y"] for s in sites.values()]), factor


@pytest.mark.parametrize("weight", ["samples", "sites"])
@pytest.mark.parametrize("kind", ["pairs", "block", "cluster"])
def test_a_replica_is_weighted_least_squares_of_all_rows_in_one_place(monkeypatch, kind, weight) -> None:
    monkeypatch.setattr(bootstrap, "NUMBERS", 900)  # chunks of a few rows, which cut blocks and clusters
    sites = panel()
    for c, s in enumerate(sites.values()):
        s["g"] = np.array([f"k{(int(label[1:]) + 5 * c) % 18}" for label in s["g"]])  # some cross sites, some do not
    options = {"block": {"lag": 4}, "cluster": {"cluster": "g"}}.get(kind, {})
    fit = fl.fit(sites, task(row_weights="w"), weight=weight, bootstrap=70, resample=kind, seed=3, **options, **RUN)
    X, y, factor = stacked(sites, "mass" if weight == "samples" else "sites")
    for b in (0, 1, 65):
        if kind == "cluster":
            V = coins_of_clusters(sites, 3, b)
        else:
            unit = [np.arange(len(s["y"])) // (5 if kind == "block" else 1) for s in sites.values()]
            V = np.concatenate([Coins(3, c, b + 1).draw(u[-1] + 1)[u, b] for c, u in enumerate(unit)])
        root = np.sqrt(factor * V)
        twin = np.linalg.lstsq(X * root[:, None], y * root)[0]
        np.testing.assert_allclose(fit.bootstrap.replicas[b], twin, rtol=1e-9, atol=1e-11)
    assert fit.bootstrap.kind == {"pairs": "pairs", "block": "blocks of 5 rows", "cluster": "18 clusters"}[kind]


def logs(sizes=(170, 190, 260)):
    """TD(0): u, v (n, d) and y (n,) of three logs."""
    rng, out = np.random.default_rng(1), []
    for n in sizes:
        phi, after = rng.random((2, n, 4))
        out.append((phi, phi - 0.9 * after, rng.standard_normal(n)))
    return out


def estimate(pieces, weights, ridge, values, cluster=None):
    """What replicas need of an estimate."""
    systems = Systems.of(pieces, [f"s{c}" for c in range(len(weights))], ridge)
    A, theta = systems.solution(weights, "abcdefgh"[: len(ridge)])
    kind = CovarianceKind("HAC" if cluster is None else "HC3", cluster=cluster, values=values)
    return Plain(systems=systems, weights=weights, A=A, theta=theta, kind=kind)


@pytest.mark.parametrize(("block", "piece", "within"), [(1, 17, True), (5, 17, True), (8, 3, True), (4, 4, False)])
def test_rows_of_a_log_vary_within_their_site_or_with_its_weight(monkeypatch, block, piece, within) -> None:
    monkeypatch.setattr(bootstrap, "NUMBERS", 900)
    sites, weights, ridge = logs(), np.array([0.2, 0.5, 0.3]), np.array([0.1, 0.1, 0.1, 0.0])
    pieces = [
        Piece(*(a[at : at + piece] for a in one), np.array([c]))
        for c, one in enumerate(sites)
        for at in range(0, len(one[2]), piece)
    ]
    made = estimate(pieces, weights, ridge, within)
    found = solve_reweighted(pieces, made, ridge, block, replicas=70, seed=3)
    for b in (0, 65):
        A, right = np.zeros((4, 4)), np.zeros(4)
        for c, (w, (u, v, y)) in enumerate(zip(weights, sites, strict=True)):
            coins = np.repeat(Coins(3, c, b + 1).draw(-(-len(y) // block))[:, b], block)[: len(y)]
            coins *= w / (coins.sum() if within else len(y))
            for k in np.flatnonzero(coins):
                A += coins[k] * (np.outer(u[k], v[k]) + np.diag(ridge))
                right += coins[k] * y[k] * u[k]
        np.testing.assert_allclose(found[b], np.linalg.solve(A, right), rtol=1e-9, atol=1e-11)


# The standard deviation of 2,000 normal replicas has a relative standard error of 1/sqrt(4000): four of them. Replicas
# are not linear in their weights, so that they spread somewhat more than the sandwich says.
MONTE_CARLO = 4 / np.sqrt(4000)


@pytest.mark.parametrize(
    ("options", "kind", "beyond"),
    [
        ({}, "pairs", 0.03),
        ({"cluster": "g"}, "cluster", 0.03),
        ({"cluster": "nested"}, "cluster", 0.03),
        ({"lag": 4}, "block", 0.06),  # blocks at fixed places see some of the pairs of rows that Newey and West see
    ],
)
def test_replicas_spread_as_the_sandwich_of_their_kind_says(options, kind, beyond) -> None:
    sites = panel((150, 300, 400), groups=30)
    for name, s in sites.items():
        s["nested"] = np.char.add(name, s["g"])
    if options.get("cluster") == "g":  # so many clusters that the jackknife's are as many as the replicas need
        sites = panel((300, 300, 400), groups=90)
    fit = fl.fit(sites, task(), bootstrap=2000, resample=kind, **options, **RUN)
    assert np.abs(fit.bootstrap.standard_error / fit.standard_error - 1).max() < MONTE_CARLO + beyond
    assert fit.bootstrap.degrees_of_freedom == fit.degrees_of_freedom
    found = fit.bootstrap.covariance / np.outer(fit.standard_error, fit.standard_error)
    true = fit.covariance / np.outer(fit.standard_error, fit.standard_error)
    assert np.abs(found - true).max() < 2 * (MONTE_CARLO + beyond)


def test_coins_have_mean_and_variance_one_and_are_the_same_however_they_are_drawn() -> None:
    drawn = Coins(1, 0, 100).draw(1000)
    assert set(np.unique(drawn)) == {0.0, 2.0}
    assert abs(drawn.mean() - 1) < 4 / np.sqrt(drawn.size)
    pairs = np.corrcoef(drawn.T)[np.triu_indices(100, 1)]
    assert np.abs(pairs).max() < 5.5 / np.sqrt(1000)  # of 4950 independent pairs
    again = Coins(1, 0, 100)
    assert np.array_equal(drawn, np.concatenate([again.draw(n) for n in (1, 0, 399, 600)]))
    assert np.array_equal(drawn[:, : GROUP + 6], Coins(1, 0, GROUP + 6).draw(1000))
    for seed, site in ((2, 0), (1, 1)):
        assert abs(np.corrcoef(drawn.ravel(), Coins(seed, site, 100).draw(1000).ravel())[0, 1]) < 0.02


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
    units = [fl.fit(sites, task(standardise=s), bootstrap=20, **RUN) for s in (True, False)]
    np.testing.assert_allclose(*(k.bootstrap.replicas for k in units), rtol=1e-6)


def test_what_varies_follows_from_the_task_unless_it_is_said() -> None:
    sites = panel()

    def kind(**options):
        return fl.fit(sites, task(), bootstrap=5, **{**RUN, **options}).bootstrap.kind

    assert kind() == "pairs"
    assert kind(lag=2) == "blocks of 3 rows"
    assert kind(lag=0, resample="block") == "pairs"
    assert kind(cluster="g") == "12 clusters"
    assert kind(cluster="g", resample="pairs") == "pairs"
    for options, words in (
        ({"resample": "cluster"}, "resample='cluster' needs clusters, cluster=...; got none"),
        ({"resample": "block"}, "resample='block' needs rows in their order: a lag"),
        ({"resample": "jackknife"}, "resample must be one of"),
        ({"resample": "wild"}, "resample must be one of"),
        ({"cluster": "sites"}, "bootstrap must have at least 12 clusters to drop some of; got 3: the intervals of CR3"),
    ):
        with pytest.raises(ArgumentError, match=words):
            kind(**options)
    with pytest.raises(ArgumentError, match="resample must go with bootstrap"):
        fl.fit(sites, task(), resample="pairs", **RUN)
    few = {"s": {c: v[:11] for c, v in sites["s0"].items()}}
    with pytest.raises(ArgumentError, match="bootstrap must have at least 4 rows for each coefficient, 3; got 11"):
        fl.fit(few, task(), bootstrap=5, **RUN)


def test_the_bootstrap_of_a_log_agrees_with_its_standard_errors() -> None:
    rng = np.random.default_rng(3)
    tables = []
    for _ in range(3):
        x = np.zeros((1001, 2))
        for k in range(1000):
            x[k + 1] = 0.7 * x[k] + rng.normal(size=2)
        reward = x[:-1] @ [1, 2] + rng.normal(size=1000)  # the second state is not seen, so TD errors are correlated
        tables.append((x[:-1, :1], reward, x[1:, :1], np.zeros(1000)))
    found = fl.fit(tables, fl.Value(0.8), bootstrap=2000, **RUN)
    blocks = found.bootstrap.standard_error / found.standard_error
    assert found.bootstrap.kind.startswith("blocks of")
    # 375 blocks and 120 cosines estimate one error apart, to 4% and 6%; and Bartlett's window loses some of it
    assert np.abs(blocks - 0.95).max() < 3 * 0.075


def test_blocks_are_of_places_in_time_where_rows_were_left_out(monkeypatch) -> None:
    monkeypatch.setattr(bootstrap, "NUMBERS", 900)
    sites = panel((80, 61))
    for c, s in enumerate(sites.values()):
        s["x"] = np.where(np.random.default_rng(c).random(len(s["x"])) < 0.4, np.nan, s["x"])
    sites["s0"]["x"][20:40] = np.nan  # whole blocks
    fit = fl.fit(sites, task(missing="drop"), lag=4, bootstrap=30, seed=3, **RUN)
    assert fit.bootstrap.kind == "blocks of 5 rows"
    X, y, _ = stacked(sites, "mass")
    whole = ~np.isnan(X[:, 0])
    for b in (0, 7):
        V = []
        for c, s in enumerate(sites.values()):
            left = np.flatnonzero(~np.isnan(s["x"])) // 5
            blocks, unit = np.unique(left, return_inverse=True)
            V.append(Coins(3, c, b + 1).draw(len(blocks))[unit, b])
        root = np.sqrt(np.concatenate(V))
        twin = np.linalg.lstsq(X[whole] * root[:, None], y[whole] * root)[0]
        np.testing.assert_allclose(fit.bootstrap.replicas[b], twin, rtol=1e-9, atol=1e-11)


def test_intervals_are_of_their_kinds() -> None:
    rng = np.random.default_rng(0)
    made = Bootstrap(np.array([1.0, 2.0]), np.array([1.0, 2.0]) + rng.exponential(size=(400, 2)), "pairs", 7.0)
    assert np.allclose(np.sqrt(np.diag(made.covariance)), made.standard_error)
    assert np.array_equal(made.interval(), made.interval(0.95, "percentile"))
    for kind in ("12 clusters", "pairs"):
        assert np.array_equal(replace(made, kind=kind).interval(), made.interval(0.95, "percentile"))
    made = replace(made, kind="blocks of 3 rows")
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
    dropped = Coins(0, 0, 2000).draw(14) == 0
    lost = np.flatnonzero((~dropped).sum(axis=0) < 3)  # of three coefficients
    assert 0 < len(lost) <= 20
    X = np.column_stack([x, np.ones(14)])
    for b in lost:
        other = np.linalg.lstsq(X[dropped[:, b]], sites[0][1][dropped[:, b]])[0]
        np.testing.assert_allclose(few.replicas[b], other, rtol=1e-8)
    rare = np.zeros((120, 3))
    rare[:, :2], rare[5, 2] = rng.normal(size=(120, 2)), 1  # a dummy for a single row, which half of the replicas drop
    sites = [(rare, rare @ np.ones(3) + np.sin(np.arange(120)))]
    with pytest.raises(ArgumentError, match=r"\d\d of 50 drop all rows on which one depends .* without bootstrap$"):
        fl.fit(sites, fl.Regression("y"), bootstrap=50, **RUN)
    pieces = [Piece(*one, np.array([c])) for c, one in enumerate(logs((30, 90)))]
    made = estimate(pieces, np.full(2, 0.5), np.zeros(4), values=True)
    with pytest.raises(ArgumentError, match=r"drops all of site 0, whose 30 rows make 1 blocks.* got blocks of 30"):
        solve_reweighted(pieces, made, np.zeros(4), 30, replicas=64, seed=0)


@pytest.mark.long
def test_intervals_of_few_clusters_cover() -> None:
    """400 data sets of 14 clusters of 8 rows, 200 replicas: within three binomial errors of 95%, 3.3%."""
    G, m, sets, truth = 14, 8, 400, np.array([2.0, 1.0])
    inside, labels = [], np.repeat(np.arange(G), m)
    for k in range(sets):
        rng = np.random.default_rng([5, k])
        x = np.column_stack([rng.normal(size=G)[labels] + rng.normal(size=G * m), np.ones(G * m)])
        rows = Piece(x, x, x @ truth + rng.normal(size=G)[labels] + rng.normal(size=G * m), cluster=labels)
        solved = estimate([rows], np.ones(1), np.zeros(2), values=False, cluster="g")
        found = solve_reweighted([rows], solved, np.zeros(2), 0, replicas=200, seed=k)
        made = Bootstrap(solved.theta, found, f"{G} clusters", G - 1.0)
        low, high = np.stack([made.interval(kind=kind) for kind in ("normal", "percentile")]).transpose(2, 0, 1)
        inside.append((low <= truth) & (high >= truth))
    assert np.abs(np.mean(inside, axis=0) - 0.95).max() < 3 * np.sqrt(0.05 * 0.95 / sets)

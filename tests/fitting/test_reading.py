"""Passes over the data: pieces of any size, kept or read again, give the systems that the problem constructors give."""

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import fedlsa as fl
from fedlsa.errors import SiteDataError
from fedlsa.fitting import reading, rows, tables
from fedlsa.fitting.sites import open_tables

GAMMA = 0.9
D = 4
QUIET = {"step_size": 1e-6, "local_steps": 2, "rounds": 2}  # a run that costs nothing: reading is in question here
pytestmark = pytest.mark.filterwarnings("ignore:the run ends at:fedlsa.errors.FedLSAWarning")


def silent(what, done, total):
    """No progress is shown."""


def read(entries, task, memory=1e9, weight="sites"):
    return reading.read(open_tables(entries, task), task, weight, memory, silent)


def log(n, seed, optional=True):
    """A log in order, with episodes that end in both ways, and importance weights."""
    rng = np.random.default_rng(seed)
    phi, phi_next = rng.uniform(-0.5, 0.5, (2, n, D))
    ends = rng.random((2, n)) < 0.1
    rest = (ends[0], ends[1], rng.uniform(0.5, 1.5, n)) if optional else (ends[0],)
    return (phi, rng.standard_normal(n), phi_next, *rest)


LOGS = [log(101, 1), log(20, 2), log(1, 3)]


def as_file(entry, path):
    names = ("reward", "terminated", "truncated", "importance")
    columns = {f"state{j}": entry[0][:, j] for j in range(D)} | {f"next_state{j}": entry[2][:, j] for j in range(D)}
    columns |= dict(zip(names, (entry[1], *entry[3:]), strict=False))
    pq.write_table(pa.table(columns), path, row_group_size=30)
    return path


@pytest.mark.parametrize("trace", [0.0, 0.7])
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("memory", [1e9, 1.0])
def test_traces_go_on_across_pieces_and_systems_are_those_of_from_transitions(
    tmp_path, monkeypatch, trace, size, memory
):
    p = fl.problems.from_transitions(LOGS, GAMMA, trace)
    files = [as_file(entry, tmp_path / f"{c}.parquet") for c, entry in enumerate(LOGS)]
    monkeypatch.setattr(rows, "block_rows", lambda width: size)
    for entries in (LOGS, files):
        data, weights, systems = read(entries, fl.Value(GAMMA, trace), memory)
        assert data.kept == (memory > 1)
        assert_allclose(weights, 1 / 3)
        assert systems.n.tolist() == [101, 20, 1]
        assert_allclose(systems.A, p.A_bar, rtol=0, atol=1e-12)
        assert_allclose(systems.b, p.b_bar, rtol=0, atol=1e-12)
        u = np.concatenate([piece.u for group in data.groups for piece in data.pieces(group)])
        assert_allclose(u, p.observations.rows[: len(u)], rtol=0, atol=1e-12)


def firm(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) * [1, 100, 1e-3] + [5, -300, 0]
    return X, X @ [1.0, 0.02, 300.0] + rng.standard_normal(n) + 40


FIRMS = [firm(60, 1), firm(9, 2), firm(1, 3)]  # the last two have singular or nearly singular systems of their own


@pytest.mark.parametrize(
    ("entries", "task"),
    [
        (FIRMS, fl.Regression("y")),
        (FIRMS, fl.Regression("y", standardise=False)),
        (FIRMS, fl.Regression("y", intercept=False, ridge=0.1)),
        (LOGS[:2], fl.Value(GAMMA, 0.5, standardise=True)),
        (LOGS[:2], fl.Value(GAMMA, intercept=True)),
    ],
)
@pytest.mark.parametrize("weight", ["sites", "samples"])
def test_rows_that_are_kept_and_rows_that_are_read_again_give_one_answer(entries, task, weight):
    settings = QUIET | {"weight": weight, "local": "means", "lag": 0}
    kept, streamed = (fl.fit(entries, task, memory=memory, **settings) for memory in (1e9, 1.0))
    scale = np.abs(kept.solution).max()
    assert_allclose(streamed.solution, kept.solution, rtol=0, atol=1e-12 * scale)
    assert_allclose(streamed.theta, kept.theta, rtol=0, atol=1e-12 * scale)
    assert_allclose(streamed.covariance, kept.covariance, rtol=0, atol=1e-12 * np.abs(kept.covariance).max())


@pytest.mark.parametrize("weight", ["sites", "samples"])
def test_standardisation_from_sums_does_not_move_the_solution(weight):
    counts = [len(y) for _, y in FIRMS]
    w = np.concatenate([np.full(n, 1 / n if weight == "sites" else 1.0) for n in counts])
    X, y = np.concatenate([X for X, _ in FIRMS]), np.concatenate([y for _, y in FIRMS])
    root = np.sqrt(w)[:, None]
    exact = np.linalg.lstsq(root * np.column_stack([X, np.ones(len(y))]), root[:, 0] * y, rcond=None)[0]
    data, weights, systems = read(FIRMS, fl.Regression("y"), weight=weight)
    _, theta = systems.solution(weights, data.coefficients)
    T, t = data.scale.original()
    assert_allclose(T @ theta + t, exact, rtol=1e-9)
    z = np.concatenate([piece.u[:, :3] for group in data.groups for piece in data.pieces(group)])
    assert_allclose(np.average(z, axis=0, weights=w), 0, atol=1e-12)
    assert_allclose(np.average(z**2, axis=0, weights=w), 1, rtol=1e-12)


def counted(monkeypatch):
    """How often each site is read."""
    reads, inner, lock = {}, tables.DataTable.blocks, threading.Lock()

    def blocks(self, *args, **kwargs):
        with lock:
            reads[self.name] = reads.get(self.name, 0) + 1
        return inner(self, *args, **kwargs)

    monkeypatch.setattr(tables.DataTable, "blocks", blocks)
    return reads


@pytest.mark.parametrize(
    ("standardise", "memory", "times"), [(True, 1e9, 1), (False, 1e9, 1), (False, 1, 2), (True, 1, 2)]
)
def test_sites_are_read_once_where_they_fit_and_no_more_often_than_needed_where_they_do_not(
    monkeypatch, standardise, memory, times
):
    reads = counted(monkeypatch)
    fl.fit(FIRMS, fl.Regression("y", standardise=standardise), memory=memory, local="means", **QUIET)
    assert reads == {f"site {c}": times for c in range(3)}


def test_one_reading_shows_which_of_all_columns_are_categories(monkeypatch, tmp_path):
    columns = {f"x{j}": np.sin(np.arange(40.0) * (j + 1)) for j in range(6)}
    pq.write_table(pa.table(columns | {"y": np.arange(40.0)}), tmp_path / "a.parquet")
    reads = counted(monkeypatch)
    [table] = open_tables([tmp_path / "a.parquet"], fl.Regression("y"))
    assert table.which_are_categories(list(columns)) == dict.fromkeys(columns, False)
    assert reads == {"a.parquet": 1}


def test_rows_are_kept_as_long_as_they_fit_to_the_byte():
    size = 8 * 70 * (4 + 1)  # features with the intercept, and the target
    assert read(FIRMS, fl.Regression("y"), memory=size)[0].kept
    less, _, _ = read(FIRMS, fl.Regression("y"), memory=size - 1)
    assert not less.kept
    assert not any(group.kept for group in less.groups)


def test_pieces_have_fewer_rows_where_they_are_wide():
    assert tables.block_rows(1) == tables.ROWS
    assert tables.block_rows(1000) * 1000 <= tables.NUMBERS
    assert tables.block_rows(10**9) == 256


@pytest.mark.parametrize("kind", ["map", "table", "callable"])
def test_numbered_states_with_a_feature_map_are_a_log_of_features(kind):
    rng = np.random.default_rng(0)
    s = rng.integers(0, 4, 200)
    r, ended = rng.random(199), rng.random(199) < 0.1
    features = {
        "map": fl.problems.features.OneHot(4),
        "table": np.eye(4),
        "callable": lambda x: np.eye(4)[x.astype(int)],
    }
    task = fl.Value(GAMMA, 0.5, state="s", next_state="s_next", features=features[kind])
    data, _, systems = read([{"s": s[:-1], "s_next": s[1:], "reward": r, "terminated": ended}], task)
    p = fl.problems.from_transitions([(np.eye(4)[s[:-1]], r, np.eye(4)[s[1:]], ended)], GAMMA, 0.5)
    assert_allclose(systems.A, p.A_bar, atol=1e-12)
    assert data.coefficients == tuple(f"{'state' if kind == 'map' else 'feature'} {j}" for j in range(4))


def test_a_feature_map_must_give_as_many_features_at_every_site():
    task = fl.Value(GAMMA, features=lambda s: np.ones((len(s), 1 + int(s.max()))))
    entries = [([s, s], [1.0, 2.0], [s, s], [0, 0]) for s in (0, 1)]
    with pytest.raises(SiteDataError, match="as many features at every site, 1 first; got 2 at site 1"):
        read(entries, task)


def complaint(entries, task=None):
    with pytest.raises(SiteDataError) as caught:
        fl.fit(entries, task or fl.Regression("y"), local="means", **QUIET)
    return str(caught.value)


def table(**columns):
    rng = np.random.default_rng(7)
    return {"a": rng.random(30), "b": rng.random(30), "y": rng.random(30)} | columns


A = table()["a"]
KIND = np.arange(30) % 3
DUMMIES = {f"is_{j}": (j == KIND).astype(float) for j in range(3)}


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"c": A}, "'a' and 'c'"),
        ({"c": -1e6 * A}, "'a' and 'c'"),
        (DUMMIES, "'is_0', 'is_1' and 'is_2'"),
        ({"c": A, **DUMMIES}, "'a' and 'c'"),  # of two relations the shorter one
        ({"c": table()["b"] - 2 * A}, "'a', 'b' and 'c'"),
    ],
)
def test_columns_that_determine_one_another_are_named(standardise, extra, named):
    found = complaint([table(**extra)], fl.Regression("y", standardise=standardise))
    if not standardise:
        found = found.replace("'is_1', 'is_2' and 'intercept'", "'is_1' and 'is_2'")
    assert found.startswith(f"columns {named} determine one another in the data of all sites together: ")


def test_columns_of_very_different_size_do_not_determine_one_another():
    found = fl.fit([table(a=1e9 * A, b=1e-9 * table()["b"])], fl.Regression("y"), local="means", **QUIET)
    small = fl.fit([table()], fl.Regression("y"), local="means", **QUIET)
    assert_allclose(found.solution * [1e9, 1e-9, 1], small.solution, rtol=1e-9)


def test_collinear_at_each_site_but_not_together_is_no_error():
    sites = [table(b=A), table(b=2 * A)]
    found = fl.fit(sites, fl.Regression("y"), local="means", **QUIET)
    assert np.isfinite(found.solution).all()
    for report in found.per_site:  # the intercept is known, for it does not depend on how a and b share their effect
        np.testing.assert_array_equal(np.isnan(report.theta), [True, True, False])


@pytest.mark.parametrize(
    ("entries", "task", "expected"),
    [
        ([table(b=[3.0] * 30)], None, "column 'b' has the same value, 3, in every row of site 0; leave it out"),
        (
            [table(b=[0.0] * 30)] * 2,
            fl.Regression("y", intercept=False),
            "column 'b' is 0 in every row of all 2 sites (site 0, ...); leave it out",
        ),
        (
            [(np.eye(3)[:2], [1.0, 2.0])],
            fl.Regression("y", intercept=False, columns=["a", "b", "c"]),
            "column 'c' is 0",
        ),
        (
            [([[1.0, 2, 3], [2, 5, 4]], [1.0, 2.0])],
            None,
            "all sites together must have more rows than coefficients, 4; they have 2",
        ),
        ([{"a": [], "y": []}], None, "site 0 must have at least one row; it has none"),
        (
            [([0, 1], [1, 2], [1, 0], [0, 0])],
            fl.Value(GAMMA, features=fl.problems.features.OneHot(3)),
            "'state 2' was never visited at site 0; OneHot(3, without=[2]) leaves it out",
        ),
        (
            [([0, 1], [1, 2], [1, 5], [0, 0])],
            fl.Value(GAMMA, features=np.eye(3)),
            "site 0, columns next_state from row 1 on: states must be integers from 0 to 2; got 5 at [1]",
        ),
        (
            [(np.ones((2, 1)), [1, 2], np.ones((2, 1)), [0, 2])],
            fl.Value(GAMMA),
            "site 0: column 'terminated' must hold true and false, or 0 and 1; got 2 in row 2 of the data",
        ),
        (
            [(np.ones((2, 1)), [1, 2], np.ones((2, 1)), [0, 1], None, [-1, 1])],
            fl.Value(GAMMA),
            "site 0: column 'importance' must hold weights of at least 0; got -1 in row 1 of the data",
        ),
    ],
)
def test_data_that_leave_the_answer_open_or_break_a_rule(entries, task, expected):
    assert complaint(entries, task).startswith(expected)


def test_errors_come_in_the_order_of_the_sites_and_progress_counts_them():
    task = fl.Regression("y")
    sites = open_tables([table(), table(b=[np.inf] * 30), table(a=[np.inf] * 30)], task)
    told = []
    with pytest.raises(SiteDataError, match=r"^site 1: column 'b'"):
        reading.read(sites, task, "sites", 1e9, lambda *call: told.append(call))
    assert told == [("reading", 0, 3), ("reading", 1, 3)]


def test_an_interruption_ends_every_pass():
    def interrupt(what, done, total):
        if done == 1:
            raise KeyboardInterrupt

    before = threading.active_count()
    task = fl.Regression("y")
    with pytest.raises(KeyboardInterrupt):
        reading.read(open_tables(FIRMS, task), task, "sites", 1e9, interrupt)
    assert threading.active_count() == before


def test_data_in_memory_are_left_as_they_were():
    entries = [tuple(np.copy(part) for part in log(20, 5)) for _ in range(2)]
    fl.fit(entries, fl.Value(GAMMA, 0.5, standardise=True), lag=0, **QUIET)
    for entry in entries:
        for part, original in zip(entry, log(20, 5), strict=True):
            np.testing.assert_array_equal(part, original)


def test_a_file_that_changes_between_two_readings_is_refused(tmp_path):
    x = np.random.default_rng(0).normal(size=3000)
    path = tmp_path / "site.parquet"
    pq.write_table(pa.table({"x": x, "y": 2 * x + 1}), path)

    def shorten(what, done, total):
        if what == "reading" and done == total and path.exists():
            pq.write_table(pa.table({"x": x[:100], "y": x[:100]}), tmp_path / "new")
            (tmp_path / "new").replace(path)

    with pytest.raises(fl.errors.SiteDataError, match=r"same rows when it is read again, 3,000; got 100"):
        fl.fit([path], fl.Regression("y"), memory=10.0, progress=shorten, **QUIET)

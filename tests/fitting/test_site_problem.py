"""The problem that a fit runs on, made without a run; and the columns of a file, found without reading it whole."""

import gzip

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, SiteDataError, UnknownNameError
from fedlsa.fitting import columns_of
from fedlsa.fitting.reading import read
from fedlsa.fitting.sites import open_tables

MEANS = {"step_size": 0.1, "local_steps": 2, "rounds": 3, "local": "means"}  # quick: only `solution` is looked at


def panel(sizes=(60, 110, 200), d=3):
    rng, out = np.random.default_rng(0), []
    for c, n in enumerate(sizes):
        x = 3 + rng.normal(size=(n, d)) * np.linspace(0.5, 2, d)
        out.append((x, 4 + x @ np.linspace(1 + c, -1, d) + rng.normal(size=n)))
    return out


def transitions(n=300, d=4, sites=3):
    rng, out = np.random.default_rng(1), []
    for _ in range(sites):
        phi = rng.normal(size=(n + 1, d)) / 2
        out.append((phi[:-1], rng.normal(size=n) + phi[:-1, 0], phi[1:], rng.random(n) < 0.05))
    return out


def has_rows(problem):
    """Whether observations are the sites' rows, and not their means."""
    return len(problem.prob) > problem.n_tables


@pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")  # so short a run is coarse
@pytest.mark.parametrize("local", ["auto", "rows", "means"])
@pytest.mark.parametrize("weight", ["sites", "samples"])
@pytest.mark.parametrize(
    ("sites", "task"),
    [
        (panel(), fl.Regression("y")),
        (panel(), fl.Regression("y", ridge=0.2)),
        (panel(), fl.Regression("y", intercept=False, standardise=False)),
        (transitions(), fl.Value(0.9)),
        (transitions(), fl.Value(0.9, trace=0.5, intercept=True, standardise=True)),
    ],
)
def test_the_solution_of_the_problem_is_that_of_the_fit(sites, task, weight, local):
    problem = fl.site_problem(sites, task, weight, local)
    found = fl.fit(sites, task, weight=weight, **MEANS)
    T, t = read(open_tables(sites, task), task, weight, 1e9, lambda *_: None)[0].scale.original()
    assert_allclose(T @ problem.theta_star + t, found.solution, rtol=1e-9, atol=1e-12)
    assert has_rows(problem) == (local != "means")
    assert_allclose(problem.weights, [s.weight for s in found.per_site], rtol=1e-12)


def test_rows_are_drawn_evenly_in_standard_units_and_means_have_no_noise():
    sites = panel()
    rows = fl.site_problem(sites, fl.Regression("y"), "sites")
    assert np.diff(rows.first).tolist() == [60, 110, 200]
    for span, (x, _) in zip(rows.spans(), sites, strict=True):
        assert_allclose(rows.prob[span], 1 / len(x), rtol=1e-12)
    x = np.concatenate([x for x, _ in sites])
    w = np.concatenate([np.full(len(x), 1 / (3 * len(x))) for x, _ in sites])
    centre = w @ x
    spread = np.sqrt(w @ (x - centre) ** 2)
    assert_allclose(rows.observations.rows[:, :3], (x - centre) / spread, atol=1e-12)
    means = fl.site_problem(sites, fl.Regression("y"), "sites", "means")
    assert len(means.prob) == 3
    assert_allclose(means.A_bar, rows.A_bar, atol=1e-12)
    assert_allclose(means.b_bar, rows.b_bar, atol=1e-12)


def test_the_problem_can_be_studied_like_any_other():
    p = fl.site_problem(transitions(d=8), fl.Value(0.9))
    method = fl.FedLSA(step_size=0.05, local_steps=4)
    exact = fl.theory.exact(p, method, rounds=20, theta_0=np.zeros(8), record=[0, 20])
    runs = fl.simulate(p, method, rounds=20, seeds=200, theta_0=np.zeros(8), record=[0, 20])
    last = runs["squared_error"].values[:, -1]
    assert abs(last.mean() - float(exact["mse"][-1])) < 4 * last.std() / np.sqrt(200)


def test_rows_beyond_memory_or_twenty_dimensions_become_means():
    assert len(fl.site_problem(panel(), fl.Regression("y"), memory=1000).prob) == 3
    assert len(fl.site_problem(panel(d=20), fl.Regression("y", intercept=False)).prob) == 370
    assert len(fl.site_problem(panel(d=20), fl.Regression("y")).prob) == 3
    assert len(fl.site_problem(panel(d=20), fl.Regression("y"), local="rows").prob) == 370
    with pytest.raises(ArgumentError, match="local must be 'means' where rows take more than memory, 1000 bytes"):
        fl.site_problem(panel(), fl.Regression("y"), local="rows", memory=1000)


def test_wrong_arguments_are_named():
    sites = panel()
    with pytest.raises(ArgumentTypeError, match=r"task must be fl\.Regression"):
        fl.site_problem(sites, "y")
    with pytest.raises(UnknownNameError, match="did you mean 'samples'"):
        fl.site_problem(sites, fl.Regression("y"), "sample")
    with pytest.raises(UnknownNameError, match="local must be one of 'auto', 'rows', 'means'; got 'log'"):
        fl.site_problem(sites, fl.Regression("y"), local="log")
    with pytest.raises(ArgumentError, match="sites must be a list with one entry per site"):
        fl.site_problem([], fl.Regression("y"))
    x, y = sites[0]
    with pytest.raises(SiteDataError, match="'x2' and 'x3' determine one another"):
        fl.site_problem([(np.column_stack([x, 2 * x[:, 2]]), y)], fl.Regression("y"))


# columns of a file ---------------------------------------------------------------------------------------------------


def test_columns_of_a_csv_file_plain_or_compressed(tmp_path):
    text = "\ufeffstate_0,state_1,reward\n" + "0.5,1,2\n" * 3
    (tmp_path / "a.csv").write_text(text, encoding="utf8")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.csv", "a.csv.gz"):
        assert columns_of(tmp_path / name) == ["state_0", "state_1", "reward"]
        assert columns_of(str(tmp_path / name)) == ["state_0", "state_1", "reward"]


def test_columns_of_a_parquet_file(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"y": [1.0], "x": [2]}), tmp_path / "a.parquet")
    assert columns_of(tmp_path / "a.parquet") == ["y", "x"]


def test_what_is_wrong_far_down_in_a_file_does_not_matter_for_its_columns(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2\n" * 400_000 + "oops\n")
    assert columns_of(tmp_path / "a.csv") == ["x", "y"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"", "a.csv must have at least one row; it is empty"),
        ("a.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "its first line is not"),
        ("a.csv", b"x,x\n1,2\n", "must have each column once; 'x' appears 2 times"),
        ("a.csv.gz", b"x,y\n1,2\n", "cannot be read as a CSV file"),
        ("a.parquet", b"PAR1" + bytes(range(200)) + b"PAR1", "cannot be read as a Parquet file"),
        ("a.xlsx", b"PK\x03\x04", "must be a Parquet or CSV file, ending in .parquet, .pq, .csv, .csv.gz"),
        ("folder.csv", None, "folder.csv must be a file; it is a folder"),
    ],
)
def test_files_that_are_no_tables_are_refused_in_one_line(tmp_path, name, content, words):
    pytest.importorskip("pyarrow")
    path = tmp_path / name
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(SiteDataError, match=words) as caught:
        columns_of(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_does_not_exist_and_a_path_that_is_none(tmp_path):
    with pytest.raises(SiteDataError, match="does not exist"):
        columns_of(tmp_path / "a.csv")
    with pytest.raises(ArgumentTypeError, match="path must be a path; got 3"):
        columns_of(3)


def test_rows_are_drawn_where_they_fit_into_memory_with_the_copies_that_a_run_makes():
    x = np.random.default_rng(0).normal(size=(50, 2))
    sites, task, size = [(x, x.sum(axis=1))] * 2, fl.Regression("y"), 8 * 2 * 50 * (3 + 1)  # an intercept, and y
    assert has_rows(fl.site_problem(sites, task, memory=3 * size))
    assert not has_rows(fl.site_problem(sites, task, memory=3 * size - 1))
    assert has_rows(fl.site_problem(sites, task, local="rows", memory=size))

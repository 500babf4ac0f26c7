"""What a site finds in its data, against the same numbers computed from all rows at once."""

import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gallery import uncentred
from hostile import Hostile, gaussian_table
from tables_of_sites import write_table

import fedlsa as fl
from fedlsa.errors import ArgumentError, SiteDataError
from fedlsa.fitting.rows import FeatureScale
from fedlsa.fitting.sites import open_tables
from fedlsa.fitting.sums import original_scale, scale_of
from fedlsa.network.site import facts as sites
from fedlsa.network.site.site_data import clear_prepared, open_data, prepare_steps
from fedlsa.theory.problem_moments import moments

D = 4
REGRESSION = fl.Regression(target="y", ridge=0.1)
VALUE = fl.Value(discount=0.9, trace=0.5)


def write(path, columns):
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def regression(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, D)) * [1, 2, 3, 4] + 5
    columns = {f"x{j}": X[:, j] for j in range(D)} | {"y": X @ [1.0, 0, -1, 2] + rng.normal(size=200)}
    return columns, open_data(write(tmp_path / "site.parquet", columns), None, REGRESSION)


@pytest.fixture
def log(tmp_path):
    rng = np.random.default_rng(1)
    phi, n = rng.normal(size=(301, D)), 300
    columns = {f"state{j}": phi[:-1, j] for j in range(D)} | {f"next_state{j}": phi[1:, j] for j in range(D)}
    columns |= {"reward": rng.normal(size=n), "terminated": rng.random(n) < 0.1, "importance": rng.uniform(0, 2, n)}
    return columns, open_data(write(tmp_path / "log.parquet", columns), None, VALUE)


def problem_of(site, task, scale, tmp_path):
    """The site alone as a problem, from its prepared rows."""
    rows, _ = prepare_steps(site, task, scale, tmp_path / "other")
    if isinstance(task, fl.Regression):
        return fl.problems.regression([(np.array(rows.u), np.array(rows.y))], rows.ridge)
    A = rows.u[:, :, None] * rows.v[:, None, :]
    return fl.problems.from_observations([(np.full(len(A), 1 / len(A)), A, rows.u * rows.y[:, None])])


def test_a_view_holds_the_sums_the_names_and_what_the_policy_asks(regression):
    columns, site = regression
    seen = sites.view(site.opened, REGRESSION)
    both = np.column_stack([*(columns[f"x{j}"] for j in range(D)), columns["y"]])
    assert seen.names == ("x0", "x1", "x2", "x3", "intercept")
    assert seen.summary.n == seen.facts.rows == 200
    np.testing.assert_allclose(seen.summary.mean, both.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(seen.summary.scatter, 200 * both.var(axis=0), rtol=1e-12)
    assert seen.facts.columns == ("x0", "x1", "x2", "x3", "y")
    assert seen.facts.rarest[1] == 199  # every value once: all but one row differ from the most common one


@pytest.mark.parametrize("rows", [60, 40_000])  # one piece, and several
def test_rows_off_the_most_common_value_are_counted_in_every_column_and_in_the_target(tmp_path, rows):
    rng = np.random.default_rng(3)
    columns = {"a": rng.normal(size=rows), "b": np.full(rows, 7.0), "c": np.zeros(rows), "y": rng.normal(size=rows)}
    columns["c"][rng.choice(rows, 6, replace=False)] = [1, 2, 1, 1, 3, -1]
    task = fl.Regression("y")

    def rarest():
        site = open_data(write(tmp_path / "s.parquet", columns), None, task)
        return sites.view(site.opened, task).facts.rarest

    assert rarest() == ("c", 6)  # b never varies, which tells nothing of anybody
    columns["y"] = np.ones(rows)
    columns["y"][[3, rows - 1]] = 0.0
    assert rarest() == ("y", 2)
    constant = {name: np.ones(rows) for name in columns}
    site = open_data(write(tmp_path / "t.parquet", constant), None, task)
    assert sites.view(site.opened, task).facts.rarest[1] == rows


def own_scale(site, task):
    seen = sites.view(site.opened, task)
    of = seen.summary
    return scale_of(task, of.mean, of.scatter / of.n, of.largest, seen.names[:D], "site")


@pytest.mark.parametrize("which", ["regression", "log"])
def test_the_three_scalars_and_the_moments_are_those_of_the_site_as_a_problem(which, request, tmp_path):
    _, site = request.getfixturevalue(which)
    task = REGRESSION if which == "regression" else VALUE
    scale = own_scale(site, task) if which == "regression" else original_scale(D, False)
    said, shared = sites.measure(site.opened, task, scale, share_moments=True)
    p = problem_of(site, task, scale, tmp_path)
    m = moments(p)
    np.testing.assert_allclose(shared.A, p.A_bar[0], atol=1e-12)
    np.testing.assert_allclose(shared.b, p.b_bar[0], atol=1e-12)
    np.testing.assert_allclose(shared.noise_map, uncentred(m)[0], atol=1e-10)
    values = np.linalg.eigvalsh((p.A_bar[0] + p.A_bar[0].T) / 2)
    np.testing.assert_allclose([said.lowest, said.highest], values[[0, -1]], rtol=1e-10)
    A, b = p.observations.matrices(slice(0, sites.view(site.opened, task).summary.n))
    traces = [np.cov(A @ theta - b, rowvar=False, bias=True).trace() for theta in (p.theta_star, 0 * p.theta_star)]
    assert said.noise == pytest.approx(max(traces), rel=1e-10)
    assert sites.measure(site.opened, task, scale) == (said, None)


def test_rows_with_heavy_tails_get_a_larger_highest_than_their_eigenvalue():
    X = np.random.default_rng(2).normal(size=(400, D))
    X[0] = [300, 0, 0, 0]
    site = open_data(None, "x:y", fl.Regression("y", intercept=False, standardise=False))
    site.__dict__["opened"] = open_tables([(X, X.sum(axis=1))], site.task)[0]
    said, _ = sites.measure(site.opened, site.task, original_scale(D, False))
    A = X.T @ X / 400
    squares = (X * (X**2).sum(axis=1)[:, None]).T @ X / 400
    assert said.highest == pytest.approx(np.sqrt(np.linalg.eigvalsh(squares)[-1] / (4 * (D + 2))), rel=1e-10)
    assert said.highest > np.linalg.eigvalsh(A)[-1]


def test_prepared_rows_are_made_once_private_and_again_when_the_file_changes(regression, tmp_path, monkeypatch):
    columns, site = regression
    scale, folder = own_scale(site, REGRESSION), tmp_path / "site"
    rows, sizes = prepare_steps(site, REGRESSION, scale, folder)
    X = (np.column_stack([columns[f"x{j}"] for j in range(D)]) - scale.centre) / scale.spread
    np.testing.assert_allclose(rows.u, np.column_stack([X, np.ones(200)]), rtol=1e-14)
    assert rows.v is rows.u
    assert rows.ridge == 0.1
    for path in (folder / "prepared").rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077

    again = open_data(site.path, None, REGRESSION)
    monkeypatch.setattr(type(again), "opened", property(lambda self: pytest.fail("the file was read again")))
    again, kept = prepare_steps(again, REGRESSION, scale, folder)
    np.testing.assert_array_equal(again.u, rows.u)
    assert kept == sizes
    monkeypatch.undo()

    write(site.path, {name: values[:150] for name, values in columns.items()})
    changed = open_data(site.path, None, REGRESSION)
    assert prepare_steps(changed, REGRESSION, scale, folder)[0].u.shape == (150, D + 1)
    other = FeatureScale(scale.centre, 2 * scale.spread, scale.y_centre, scale.y_spread, True)
    np.testing.assert_allclose(
        2 * prepare_steps(changed, REGRESSION, other, folder)[0].u[:, :D], rows.u[:150, :D], rtol=1e-14
    )


def test_damaged_or_half_written_rows_are_made_again_and_old_ones_go(regression, tmp_path):
    _, site = regression
    scale = own_scale(site, REGRESSION)
    before = np.array(prepare_steps(site, REGRESSION, scale, tmp_path)[0].u)
    (place,) = (tmp_path / "prepared").iterdir()
    (place / "y").write_bytes(b"1234")
    np.testing.assert_array_equal(prepare_steps(site, REGRESSION, scale, tmp_path)[0].u, before)
    (place / "about.json").write_text("{")
    np.testing.assert_array_equal(prepare_steps(site, REGRESSION, scale, tmp_path)[0].u, before)
    for factor in range(2, 8):
        wider = FeatureScale(scale.centre, factor * scale.spread, scale.y_centre, scale.y_spread, True)
        prepare_steps(site, REGRESSION, wider, tmp_path)
    (tmp_path / "prepared" / ".a.part").mkdir()
    prepare_steps(site, REGRESSION, original_scale(D, True), tmp_path)
    assert len(list((tmp_path / "prepared").iterdir())) == 1
    clear_prepared(tmp_path)
    assert not (tmp_path / "prepared").exists()


def test_prepared_means_are_the_system_of_the_site(log, tmp_path):
    _, site = log
    means, _ = prepare_steps(site, VALUE, original_scale(D, False), tmp_path, "means")
    p = problem_of(site, VALUE, original_scale(D, False), tmp_path)
    np.testing.assert_allclose(means.A, p.A_bar[0], atol=1e-13)
    np.testing.assert_allclose(means.b, p.b_bar[0], atol=1e-13)


def test_a_round_of_prepared_rows_is_a_round_of_simulate(log, tmp_path):
    _, site = log
    rows, _ = prepare_steps(site, VALUE, original_scale(D, False), tmp_path)
    A = rows.u[:, :, None] * rows.v[:, None, :]
    p = fl.problems.from_observations([(np.full(len(A), 1 / len(A)), A, rows.u * rows.y[:, None])])
    r = fl.simulate(p, fl.FedLSA(0.01, 40), 1, [3], np.zeros(D))
    theta = rows(np.zeros(D), np.zeros(D), 0.01, 40, 0, 3, 0)
    np.testing.assert_allclose(theta, r["theta"].values[0, -1], atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (
            FeatureScale(np.zeros(3), np.ones(3), 0.0, 1.0, True),
            "that of 4 features, with intercept=True; got one of 3",
        ),
        (FeatureScale(np.zeros(4), np.zeros(4), 0.0, 1.0, True), "positive spreads"),
        (FeatureScale(np.zeros(4), np.ones(4), 0.0, 1.0, False), "scale must be that of 4 features"),
    ],
)
def test_coordinates_that_do_not_fit_the_task_are_refused(regression, tmp_path, scale, words):
    with pytest.raises(ArgumentError, match=words):
        sites.measure(regression[1].opened, REGRESSION, scale)
    with pytest.raises(ArgumentError, match=words):
        prepare_steps(regression[1], REGRESSION, scale, tmp_path / "site")


def test_checking_says_in_words_what_was_found(regression, log):
    lines = sites.check(regression[1].opened, REGRESSION)
    assert lines[0].startswith("site.parquet: 200 rows")
    assert "Target 'y'; features x0, x1, x2, x3." in lines
    assert "5 coefficients: x0, x1, x2, x3, intercept." in lines
    assert any("Importance weights" in line for line in sites.check(log[1].opened, VALUE))


def test_checking_notes_what_this_site_alone_cannot_tell(tmp_path):
    data = {"a": [1.0, 1, 1], "b": [1.0, 2, 4], "y": [0.0, 1, 2]}
    site = open_data(write(tmp_path / "s.parquet", data), None, fl.Regression("y"))
    assert "Note: a never varies here; other sites must vary it." in sites.check(site.opened, site.task)
    data["a"] = [2.0, 4, 8]
    site = open_data(write(tmp_path / "s.parquet", data), None, fl.Regression("y"))
    assert any("alone do not determine" in line for line in sites.check(site.opened, site.task))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"x": [1.0, np.nan], "y": [0.0, 1]}, r"missing at s.parquet in 1 of 2 rows \('x' 1, first in row 2\)"),
        ({"x": [1.0, 2], "z": [0.0, 1]}, "no column 'y'"),
        ({"x": ["a", "b"], "y": [0.0, 1]}, "column 'x' must hold numbers"),
        ({"x": [1e200, 2], "y": [0.0, 1]}, "so that it can be squared; got 1e.200"),
        ({"x": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}, "must have at least one row"),
    ],
)
def test_data_that_cannot_be_used_are_refused_in_one_line(tmp_path, columns, words):
    site = open_data(write(tmp_path / "s.parquet", columns), None, fl.Regression("y"))
    with pytest.raises(SiteDataError, match=words) as caught:
        sites.check(site.opened, site.task)
    assert "\n" not in str(caught.value)


def test_a_loader_gives_arrays_columns_or_a_path(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = write(tmp_path / "s.parquet", {"x0": [1.0, 2, 3], "y": [1.0, 0, 1]})
    (tmp_path / "hospital.py").write_text(
        "import numpy as np\n"
        "def pair(): return np.array([[1.0], [2], [3]]), np.array([1.0, 0, 1])\n"
        "def columns(): return {'x0': [1.0, 2, 3], 'y': [1, 0, 1]}\n"
        f"def path(): return {str(file)!r}\n"
        "def broken(): return 1 / 0\n"
        "def nothing(): return None\n"
    )
    task = fl.Regression("y")
    said = [
        sites.view(open_data(None, loader, task).opened, task)
        for loader in ("hospital:pair", "hospital:columns", "hospital:path", f"{tmp_path / 'hospital.py'}:pair")
    ]
    for other in said[1:]:
        assert (other.summary.n, other.names) == (said[0].summary.n, said[0].names)
        np.testing.assert_array_equal(other.summary.mean, said[0].summary.mean)
    for loader, words in (
        ("hospital:broken", "hospital:broken failed with ZeroDivisionError: division by zero"),
        ("hospital:nothing", "what hospital:nothing returns must be a path, a table .* data set or its id; got None"),
        ("hospital:missing", "hospital has no function 'missing'"),
        ("clinic:pair", "clinic cannot: ModuleNotFoundError"),
    ):
        with pytest.raises(SiteDataError, match=words):
            sites.check(open_data(None, loader, task).opened, task)
    for loader in ("hospital", ":pair", "hospital:", "hospital:1"):
        with pytest.raises(ArgumentError, match=r"loader must be package\.module:function"):
            open_data(None, loader, task)
    with pytest.raises(ArgumentError, match="exactly one of data and loader"):
        open_data(file, "hospital:pair", task)


def test_a_file_that_is_gone_is_told(tmp_path):
    site = open_data(tmp_path / "gone.parquet", None, REGRESSION)
    with pytest.raises(SiteDataError, match="does not exist"):
        sites.check(site.opened, REGRESSION)
    with pytest.raises(SiteDataError, match="cannot be read"):
        prepare_steps(site, REGRESSION, original_scale(D, True), tmp_path)


def test_rows_can_be_clipped_one_by_one_or_in_their_mean(regression, tmp_path):
    _, site = regression
    scale, z = own_scale(site, REGRESSION), np.zeros(D + 1)
    rows, sizes = prepare_steps(site, REGRESSION, scale, tmp_path, "rows", 0.5)
    means, same = prepare_steps(site, REGRESSION, scale, tmp_path, "means", 0.5)
    assert rows.row_clip == means.row_clip == 0.5
    assert sizes == same
    assert len(list((tmp_path / "prepared").iterdir())) == 1  # from one table
    gradient = rows.u * -rows.y[:, None]
    short = gradient * np.minimum(1, 0.5 / np.linalg.norm(gradient, axis=1))[:, None]
    np.testing.assert_allclose(means(z, z, 1e-3, 1, 0, 0, 0), -1e-3 * short.mean(axis=0), rtol=1e-12)


def test_a_log_in_a_csv_file_with_a_feature_map_goes_all_the_way(tmp_path):
    rng = np.random.default_rng(7)
    task = fl.Value(discount=0.9, features=fl.problems.features.OneHot(3), intercept=False)
    lines = ["state,next_state,reward,terminated"]
    lines += [f"{rng.integers(3)},{rng.integers(3)},{rng.normal()},{rng.random() < 0.1}" for _ in range(100)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines))
    site = open_data(path, None, task)
    assert "3 coefficients: state 0, state 1, state 2." in sites.check(site.opened, task)
    said, _ = sites.measure(site.opened, task, original_scale(3, False))
    rows, _ = prepare_steps(site, task, original_scale(3, False), tmp_path)
    np.testing.assert_array_equal(rows.u.sum(axis=1), np.ones(100))
    A = rows.u.T @ rows.v / 100
    assert said.lowest == pytest.approx(np.linalg.eigvalsh((A + A.T) / 2)[0], rel=1e-10)
    with pytest.raises(ArgumentError, match="that of 3 features, with intercept=False; got one of 4"):
        sites.measure(site.opened, task, original_scale(4, False))


def test_the_digest_of_a_table_is_that_of_its_rows_in_any_order(regression, tmp_path):
    columns, site = regression
    first = sites.view(site.opened, REGRESSION).digest

    def digest(change):
        changed = {name: change(name, values.copy()) for name, values in columns.items()}
        other = open_data(write(tmp_path / "other.parquet", changed), None, REGRESSION)
        return sites.view(other.opened, REGRESSION).digest

    assert digest(lambda name, values: values[::-1]) == first
    assert digest(lambda name, values: values[:-1]) != first
    assert digest(lambda name, values: np.where(values == values[7], np.nextafter(values, 9), values)) != first
    assert digest(lambda name, values: np.roll(values, name == "x1")) != first  # another pairing of the same values


def test_what_a_run_prepared_goes_when_it_is_over_or_closed(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    prepared = world.site.folder / "prepared"
    world.begin()
    world.work()
    assert len(list(prepared.iterdir())) == 1
    assert world.finish().kind == "finished"
    assert not prepared.exists()
    world.begin(token="u", name="second")
    write_table(world.table, world.rows + 1)  # which closes it
    assert "has changed since the run began" in world.work("second").text
    assert not prepared.exists()

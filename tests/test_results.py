"""Results: recorded rounds, labels, files that survive accidents, and the arguments to run again."""

from __future__ import annotations

import errno
import gc
import json
import os
import pickle
import zlib
from dataclasses import dataclass

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import fedlsa as fl
from fedlsa import results
from fedlsa.errors import ArgumentError, ArgumentTypeError, ResultFileError
from fedlsa.results import recipe, result_files
from fedlsa.results.dataset import assemble


@dataclass(frozen=True)
class Homemade(fl.Algorithm):
    """A method that fedlsa does not know."""

    def observations(self, uniform, thin):
        return np.full(len(uniform), thin)

    def gain(self, eta, updates):
        return np.zeros_like(eta)


def sites(rows=4, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((rows, 2)), rng.standard_normal(rows)) for _ in range(3)]


def a_problem(rows=4, seed=0):
    return fl.problems.regression(sites(rows, seed), ridge=0.5)


GARNET = fl.problems.garnet(agents=3, states=4, features=2, seed=1)  # a problem that results can hold


def a_result(
    problem=None, algorithm=None, sampling=None, keep_theta=True, with_xi=True, diverged=(-1, -1, -1), **changes
):
    """A result of the right form whose numbers are drawn, not simulated."""
    problem = problem or a_problem()
    S, rng = len(diverged), np.random.default_rng(1)
    rounds = results.recorded_rounds(4, 9)
    arguments = {
        "rounds": 9,
        "seeds": list(range(S)),
        "theta_0": None,
        "xi_0": None,
        "record": 4,
        "keep": ("theta",) * keep_theta,
        "dtype": "float64",
        "engine": "cpu",
    }
    arrays = {
        "theta": rng.standard_normal((S, 4, problem.dim)),
        "samples": np.tile(10.0 * rounds, (S, 1)),
        "diverged_at": np.array(diverged),
    }
    if with_xi:
        arrays["xi"] = rng.standard_normal((S, problem.n_agents, problem.dim))
    method = algorithm or fl.SCAFFLSA(step_size=0.1, local_steps=10)
    return assemble(problem, method, sampling or fl.IID(), {**arguments, **changes}, rounds, np.arange(S), arrays)


# Recorded rounds


@given(record=st.integers(2, 400), rounds=st.integers(0, 10**6))
def test_a_count_keeps_both_ends_and_spaces_the_rest_evenly(record, rounds):
    kept = results.recorded_rounds(record, rounds)
    assert kept.dtype == np.int64
    assert len(kept) == min(record, rounds + 1)
    assert kept[0] == 0
    assert kept[-1] == rounds
    gaps = np.diff(kept)
    assert (gaps > 0).all()
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1
    assert np.array_equal(kept, results.recorded_rounds(record, rounds))


@given(st.sets(st.integers(0, 50), min_size=1))
def test_a_list_of_rounds_is_kept_as_it_is(listed):
    assert results.recorded_rounds(sorted(listed), 50).tolist() == sorted(listed)
    assert results.recorded_rounds(np.array(sorted(listed)), 50).tolist() == sorted(listed)


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        (1, ArgumentError, "record must be an integer of at least 2; got 1"),
        (2.0, ArgumentTypeError, "record must be an integer of at least 2; got 2.0"),
        ("all", ArgumentTypeError, "record must be an integer of at least 2; got 'all'"),
        ([], ArgumentError, "record must hold at least one round; got an empty sequence"),
        ([0, 3, 3], ArgumentError, "record must hold distinct rounds in increasing order; got 3 after 3"),
        ([5, 2], ArgumentError, "in increasing order; got 2 after 5"),
        ([0, 11], ArgumentError, "record must be a non-negative integer and at most 10; got 11"),
        ([0.5], ArgumentTypeError, "got 0.5"),
    ],
)
def test_impossible_records_are_refused(record, error, message):
    with pytest.raises(error) as caught:
        results.recorded_rounds(record, 10)
    assert message in str(caught.value)


# Datasets


def test_a_result_has_the_dimensions_and_labels_of_the_contract():
    r = a_result()
    assert (
        r["squared_error"].dims
        == r["communications"].dims
        == r["uploads"].dims
        == r["samples"].dims
        == ("seed", "rounds")
    )
    assert r["theta"].dims == ("seed", "rounds", "dim")
    assert r["xi"].dims == ("seed", "agent", "dim")
    assert r["diverged_at"].dims == ("seed",)
    assert r["rounds"].values.tolist() == [0, 3, 6, 9]
    assert all(v.attrs["long_name"] and v.attrs["description"] for v in r.variables.values())
    assert (r["communications"] == r["rounds"]).all()
    assert r.attrs["method"] == "SCAFFLSA(step_size=0.1, local_steps=10)"
    assert r.attrs["agents"] == 3
    assert r.attrs["dim"] == 2
    assert set(json.loads(r.attrs["versions"])) == {"fedlsa", "numpy", "numba", "python"}


def test_squared_error_is_the_distance_to_theta_star():
    problem = a_problem()
    r = a_result(problem)
    expected = np.sum((r["theta"].values - problem.theta_star) ** 2, axis=-1)
    np.testing.assert_allclose(r["squared_error"].values, expected, rtol=1e-14)


def test_theta_and_xi_can_be_left_out():
    assert {"theta", "xi"}.isdisjoint(a_result(keep_theta=False, with_xi=False).variables)


def test_a_diverged_seed_is_nan_from_its_round_on_and_the_others_are_not():
    r = a_result(diverged=(-1, 4, 0))
    assert np.isnan(r["squared_error"].values).tolist() == [[False] * 4, [False, False, True, True], [True] * 4]
    assert np.isnan(r["theta"].values[1]).any(axis=-1).tolist() == [False, False, True, True]
    assert r["diverged_at"].values.tolist() == [-1, 4, 0]


def test_a_label_shows_the_options_that_were_set_and_no_others():
    method = fl.FedLSA(fl.PowerStep(0.5, 0.75), 3, participants=2)
    assert (
        results.method_label(method)
        == "FedLSA(step_size=PowerStep(eta_0=0.5, power=0.75), local_steps=3, participants=2)"
    )


# Running again


@pytest.mark.parametrize(
    "algorithm",
    [
        fl.FedLSA(0.1, 5, projection=3.0, average_after=2),
        fl.SCAFFLSA(fl.PowerStep(0.3, 0.5), 7, participation=0.5),
        fl.Scaffnew(0.1 + 0.2, 0.3),
    ],
)
@pytest.mark.parametrize("sampling", [fl.IID(), fl.Markov(thin=2, start=(0, 1, 0)), fl.Replay(3)])
def test_arguments_hold_equal_method_and_sampling(algorithm, sampling):
    again = results.arguments(a_result(GARNET, algorithm=algorithm, sampling=sampling))
    assert again["algorithm"] == algorithm
    assert again["sampling"] == sampling


DATA = pytest.mark.parametrize(
    "problem",
    [
        a_problem(),
        fl.problems.from_observations(
            [([0.5, 0.5], np.stack([np.eye(2), 2 * np.eye(2)]), np.ones((2, 2)))], assignment=[0, 0]
        ),
        fl.problems.from_transitions(
            [(np.eye(3), np.ones(3), np.roll(np.eye(3), 1, 0), np.zeros(3, bool))], discount=0.5, trace=0.5
        ),
    ],
    ids=["regression", "from_observations", "from_transitions"],
)


@pytest.mark.parametrize(
    "problem",
    [
        fl.problems.garnet(agents=4, states=6, features=3, seed=3),
        fl.problems.ring(3, noise=0.1, weights=[1, 2, 3]),
        fl.problems.from_mdps(np.full((2, 2, 1, 2), 0.5), np.ones((2, 2, 1)), np.ones((2, 1)), np.eye(2), 0.5),
    ],
    ids=["garnet", "ring", "from_mdps"],
)
def test_arguments_make_the_same_problem_again(problem, tmp_path):
    r = a_result(problem)
    results.save(r, tmp_path / "r.nc")
    again = results.arguments(results.load(tmp_path / "r.nc"))["problem"]
    assert recipe.problem_digest(again) == recipe.problem_digest(problem)
    assert "run_again_needs" not in r.attrs


@DATA
def test_rows_of_sites_are_not_held_unless_they_are_asked_for(problem, tmp_path):
    r = a_result(problem)
    results.save(r, tmp_path / "r.nc")
    loaded = results.load(tmp_path / "r.nc")
    assert '"array"' not in json.dumps(loaded.attrs)
    assert "rows of the sites" in loaded.attrs["run_again_needs"]
    with pytest.raises(ArgumentError, match="problem must be passed, for a run needs the rows of the sites"):
        results.arguments(loaded)
    assert results.arguments(loaded, problem=problem)["problem"] is problem
    results.save(loaded, tmp_path / "whole.nc", problem=problem)
    whole = results.load(tmp_path / "whole.nc")
    assert "run_again_needs" not in whole.attrs
    assert recipe.problem_digest(results.arguments(whole)["problem"]) == recipe.problem_digest(problem)
    assert results.arguments(whole, problem=problem)["problem"] is problem
    for dataset in (r, whole):
        with pytest.raises(ArgumentError, match="problem must be the one this result was made with"):
            results.save(dataset, tmp_path / "other.nc", problem=a_problem(seed=9))


def test_no_file_grows_with_the_rows_of_sites(tmp_path):
    """Whatever is written of 10 rows or of 1,000 has the same length: nothing in it can be the rows."""
    sizes = []
    for rows in (10, 1000):
        data = sites(rows)
        problem, made = fl.problems.regression(data), fl.FedLSA(0.01, 2)
        run = fl.simulate(problem, made, 3, 1, theta_0=np.zeros(2), engine="reference", keep=("theta", "xi"))
        exact = fl.theory.exact(problem, made, 3, theta_0=np.zeros(2))
        fitted = fl.fit(data, fl.Regression("y"), step_size=0.01, local_steps=2, rounds=3, local="means")
        results.save(run, tmp_path / "run.nc")
        results.save_curves(exact, tmp_path / "exact.nc")
        fl.figures.save(fl.figures.error_curves([run]), tmp_path / "run.svg")
        fitted.save(tmp_path / "fit.json")
        sizes.append([(tmp_path / name).stat().st_size for name in ("run.nc", "exact.nc", "run.svg", "fit.json")])
        sizes[-1].append(len(run._repr_html_()))
    few, many = np.array(sizes)
    assert np.abs(few - many).max() < 0.02 * many.max()  # a digit more or less here and there
    assert (tmp_path / "run.nc").stat().st_size < 8 * 3 * 1000 * 3 / 2


def test_arguments_hold_start_values_bit_for_bit():
    theta_0, xi_0 = np.random.default_rng(2).standard_normal(2), np.zeros((3, 2))
    again = results.arguments(a_result(GARNET, theta_0=theta_0, xi_0=xi_0, seeds=[4, 2**62], record=[0, 9]))
    assert np.array_equal(again["theta_0"], theta_0)
    assert np.array_equal(again["xi_0"], xi_0)
    assert again["seeds"] == [4, 2**62]
    assert (again["rounds"], again["record"], again["engine"], again["theta_0"].dtype) == (9, [0, 9], "cpu", np.float64)


def test_the_text_of_a_problem_is_made_once_and_results_of_a_grid_are_those_of_simulate(monkeypatch):
    packed, compress = [], zlib.compress
    monkeypatch.setattr(zlib, "compress", lambda data, level: (packed.append(len(data)), compress(data, level))[1])
    kernel = np.random.default_rng(0).dirichlet(np.ones(40), (2, 40, 3))
    p = fl.problems.from_mdps(kernel, np.ones((2, 40, 3)), np.full((40, 3), 1 / 3), np.ones((40, 1)), 0.5)
    q = a_problem(seed=1)
    algorithms = [fl.FedLSA(0.1, 2), fl.SCAFFLSA(0.1, 2)]
    grid = fl.simulate_grid([p, q], algorithms, 3, 1, engine="reference")
    assert packed.count(kernel.nbytes) == 1
    alone = [fl.simulate(each, a, 3, 1, engine="reference") for each in (p, q) for a in algorithms]
    assert packed.count(kernel.nbytes) == 1
    assert all(a.identical(b) for a, b in zip(grid, alone, strict=True))
    assert recipe.problem_digest(results.arguments(grid[0])["problem"]) == recipe.problem_digest(p)


def test_a_text_is_forgotten_with_its_problem():
    before = len(recipe._TEXTS)
    p = a_problem(seed=5)
    recipe.problem_text(p)
    assert len(recipe._TEXTS) == before + 1
    del p
    gc.collect()
    assert len(recipe._TEXTS) <= before


@pytest.mark.parametrize("values", [np.zeros(9000), np.random.default_rng(0).normal(size=9000)], ids=["0", "random"])
def test_arrays_come_back_whether_compression_is_worth_it_or_not(values):
    text = recipe.text(values)
    assert (len(text) < values.nbytes / 10) == (not values.any())
    np.testing.assert_array_equal(recipe.value(text), values)


def test_a_large_problem_is_identified_and_must_be_passed_again(monkeypatch):
    monkeypatch.setattr(recipe, "EMBED_LIMIT", 50)

    def chains(p):
        return fl.problems.from_mdps(
            [[[[p, 1 - p]], [[0.5, 0.5]]]], np.ones((1, 2, 1)), np.ones((2, 1)), np.eye(2), 0.5
        )

    r = a_result(problem := chains(0.5))
    assert json.loads(r.attrs["problem"])["embedded"] is False
    with pytest.raises(ArgumentError, match="problem must be passed, for a run needs its problem, which is too large"):
        results.arguments(r)
    assert results.arguments(r, problem=problem)["problem"] is problem
    assert results.arguments(r, problem=chains(0.5))["problem"] is not problem
    with pytest.raises(ArgumentError, match="problem must be the one this result was made with"):
        results.arguments(r, problem=chains(0.6))


def test_a_method_from_elsewhere_must_be_passed_again():
    r = a_result(GARNET, algorithm=Homemade(0.25))
    with pytest.raises(ArgumentError, match=r"algorithm must be passed: .*Homemade"):
        results.arguments(r)
    assert results.arguments(r, algorithm=Homemade(0.25))["algorithm"] == Homemade(0.25)
    with pytest.raises(ArgumentError, match="algorithm must be the one this result was made with"):
        results.arguments(r, algorithm=Homemade(0.5))


TEXTS = st.text("aZ0 .-:,{[\\/\"'\n\r\t\x00\x7f\u00e9\u2028\u2603\ufeff\U0001f600")  # all of Unicode is slow to list


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    )
)
def test_plain_values_survive_their_text(entry):
    assert recipe.value(recipe.text(entry)) == entry


@pytest.mark.parametrize("dtype", [">f8", "<f4", "u4", "i8", "?"])
def test_arrays_survive_their_text(dtype):
    array = np.arange(6).reshape(2, 3).T.astype(dtype)
    again = recipe.value(recipe.text({"x": array}))["x"]
    assert again.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(again, array)


def test_what_has_no_text_is_refused():
    with pytest.raises(ArgumentTypeError, match="a recipe must hold numbers"):
        recipe.text(object())


# Files


def test_a_loaded_result_is_identical_to_the_saved_one(tmp_path):
    r = a_result(diverged=(-1, 3, -1))
    results.save(r, tmp_path / "r.nc")
    again = results.load(tmp_path / "r.nc")
    xr.testing.assert_identical(again, r)
    assert all(again[n].dtype == r[n].dtype for n in r.variables)
    assert [p.name for p in tmp_path.iterdir()] == ["r.nc"]
    results.save(again, tmp_path / "r.nc")  # over itself
    xr.testing.assert_identical(results.load(tmp_path / "r.nc"), r)


def test_a_recipe_of_200_kilobytes_survives(tmp_path):
    problem = a_problem(rows=4500)
    r = a_result(problem)
    results.save(r, tmp_path / "r.nc", problem=problem)
    again = results.load(tmp_path / "r.nc")
    assert len(again.attrs["problem"].text) > 200_000
    xr.testing.assert_equal(again, r)
    np.testing.assert_array_equal(results.arguments(again)["problem"].prob, problem.prob)


def damages(sound, rng):
    """Copies of some bytes as power cuts, bad disks, transfers and editors leave them."""
    n = len(sound)
    for length in (*range(0, n, n // 100), n - 1, n - 64, n - 80):
        yield sound[:length]
    for more in (b"\0", b"\n", sound[-80:], bytes(4096)):
        yield sound + more
    for size in (8, 64, 512, 4096):
        for at in range(0, n - size, max(size, n // 40)):
            if any(sound[at : at + size]):
                yield sound[:at] + bytes(size) + sound[at + size :]
            a, b = sorted(rng.choice(n // size, 2, replace=False) * size)
            if sound[a : a + size] != sound[b : b + size]:
                yield sound[:a] + sound[b : b + size] + sound[a + size : b] + sound[a : a + size] + sound[b + size :]
    for at in (*range(16), *rng.integers(0, n, 160), *range(n - 80, n)):
        yield sound[:at] + bytes([sound[at] ^ 1 << rng.integers(8)]) + sound[at + 1 :]


def test_no_damage_reaches_hdf5(tmp_path, monkeypatch):
    """HDF5 reads some damaged files for ever, in C, where nothing interrupts it."""
    results.save(a_result(), tmp_path / "r.nc")
    monkeypatch.setattr(result_files, "_decoded", lambda content: pytest.fail("HDF5 was given a damaged file"))
    count = 0
    for damaged in damages((tmp_path / "r.nc").read_bytes(), np.random.default_rng(0)):
        (tmp_path / "r.nc").write_bytes(damaged)
        with pytest.raises(ResultFileError, match=r"^[^\n]*r\.nc is (damaged|not a result file)[^\n]*$"):
            results.load(tmp_path / "r.nc")
        count += 1
    assert count > 550


def test_files_that_are_not_ours_are_refused(tmp_path):
    with pytest.raises(ResultFileError, match=r"there is no result file .*none\.nc"):
        results.load(tmp_path / "none.nc")
    with pytest.raises(ResultFileError, match="cannot read the result file"):
        results.load(tmp_path)
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(ResultFileError, match=r"text\.nc is not a result file: it is not netCDF-4"):
        results.load(tmp_path / "text.nc")
    xr.Dataset({"x": ("t", np.arange(3))}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(ResultFileError, match=r"other\.nc is not a result file of fedlsa"):
        results.load(tmp_path / "other.nc")


def test_a_file_of_a_later_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(result_files, "FORMAT", 4)
    results.save(a_result(), tmp_path / "r.nc")
    monkeypatch.setattr(result_files, "FORMAT", 3)
    with pytest.raises(ResultFileError, match="has format 4; this version of fedlsa reads format 3"):
        results.load(tmp_path / "r.nc")


def test_a_disk_that_fills_is_one_sentence_and_leaves_the_old_file(tmp_path, monkeypatch):
    old = a_result()
    results.save(old, tmp_path / "r.nc")
    room, real = [10_000], os.write

    def fills(file, content):
        written = real(file, content[: room[0]])
        room[0] -= written
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    monkeypatch.setattr(os, "write", fills)
    with pytest.raises(ResultFileError, match=r"cannot write the result file .*r\.nc: No space left on device"):
        results.save(a_result(algorithm=fl.FedLSA(0.5, 2)), tmp_path / "r.nc")
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["r.nc"]
    xr.testing.assert_identical(results.load(tmp_path / "r.nc"), old)


def test_saving_into_a_folder_that_does_not_exist_is_a_clear_error(tmp_path):
    with pytest.raises(ResultFileError, match=r"cannot write the result file .*nowhere"):
        results.save(a_result(), tmp_path / "nowhere" / "r.nc")


def test_what_is_not_a_result_is_not_saved(tmp_path):
    with pytest.raises(
        ArgumentError, match="dataset must be a result of simulate; got a dataset without squared_error"
    ):
        results.save(xr.Dataset({"x": ("t", np.arange(3))}), tmp_path / "x.nc")
    with pytest.raises(ArgumentTypeError, match="dataset must be a result of simulate"):
        results.save({"x": 1}, tmp_path / "x.nc")
    assert not list(tmp_path.iterdir())


# Summaries


def test_a_summary_averages_over_the_seeds_that_did_not_diverge():
    r = a_result(diverged=(-1, 4, -1))
    frame = results.summary(r)
    row = frame.loc[r.attrs["method"]]
    final = r["squared_error"].values[[0, 2], -1]
    assert row["mse"] == pytest.approx(final.mean())
    assert row["standard_error"] == pytest.approx(abs(final[0] - final[1]) / 2)
    assert (row["diverged"], row["seeds"], row["rounds"], row["communications"], row["samples"]) == (1, 3, 9, 9, 90)
    assert frame.dtypes[["rounds", "communications", "diverged", "seeds"]].eq("int64").all()


def test_a_summary_of_no_sound_seed_is_nan_and_of_one_has_no_standard_error():
    found = results.summary([a_result(diverged=(0, 0)), a_result(diverged=(0, -1))])
    none, one = found.iloc[0], found.iloc[1]
    assert np.isnan([none["mse"], none["standard_error"], one["standard_error"]]).all()
    assert np.isfinite(one["mse"])


def test_a_table_has_a_heading_and_aligned_columns():
    rows = results.summary([a_result(), a_result(algorithm=fl.FedLSA(0.1, 1000), diverged=(0, 0, 0))])
    lines = results.table(rows).splitlines()
    assert len(lines) == 3
    assert lines[0].split()[:3] == ["method", "rounds", "communications"]
    assert len({len(line) for line in lines}) == 1
    assert " - " in lines[2]
    assert results.table(rows.reset_index(drop=True)).split()[:2] == ["rounds", "communications"]  # no name: not shown
    assert results.table([]) == ""


# What is long prints short


LARGE = np.random.default_rng(0).dirichlet(np.ones(60), (4, 60, 4))  # kernels of half a megabyte


@pytest.fixture(scope="module")
def long_result():
    """A result with everything that can be long: the problem, the start of each agent, the seeds, theta_star."""
    features = np.eye(60)
    p = fl.problems.from_mdps(LARGE, np.ones((4, 60, 4)), np.full((60, 4), 0.25), features, 0.5)
    changes = {"theta_0": np.arange(60.0), "xi_0": np.zeros((4, 60)), "seeds": list(range(5000))}
    return p, a_result(p, sampling=fl.Markov(start=tuple(range(4))), **changes)


def test_a_result_prints_a_screen_however_large_its_problem_is(long_result):
    _, r = long_result
    assert len(r.attrs["problem"].text) > 300_000
    assert len(r._repr_html_()) < 50_000
    assert len(repr(r).splitlines()) < 40
    assert len(str(r.attrs)) < 5000
    assert "letters" in repr(r.attrs["problem"])


def test_long_attributes_survive_what_datasets_are_put_through(long_result, tmp_path):
    p, r = long_result
    results.save(r, tmp_path / "r.nc")
    joined = xr.concat([r.isel(seed=[0]), r.isel(seed=[1, 2])], "seed", data_vars="minimal")
    roads = [r.copy(deep=True), pickle.loads(pickle.dumps(r)), results.load(tmp_path / "r.nc"), joined, r.sel(seed=[0])]
    for way in roads:
        assert len(way._repr_html_()) < 50_000
        again = results.arguments(way)
        assert recipe.problem_digest(again["problem"]) == recipe.problem_digest(p)
        assert again["seeds"] == list(range(5000))
        assert np.array_equal(again["xi_0"], np.zeros((4, 60)))
        assert way.attrs == r.attrs
    assert all(way.identical(r) for way in roads[:4])


def test_xarray_itself_writes_a_result_with_a_long_problem(long_result, tmp_path):
    _, r = long_result
    r.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "r.nc", engine="h5netcdf") as seen:
        assert r.attrs["problem"] == seen.attrs["problem"]


def test_a_long_text_is_the_text():
    text, other = (recipe.abridged({"a": letter * 2000})["a"] for letter in "xy")
    assert text == "x" * 2000
    assert text != other
    assert len({text, "x" * 2000, other}) == 2


def test_equal_results_give_equal_bytes_and_other_programs_can_read_them(tmp_path):
    for name in ("a.nc", "b.nc"):
        results.save(a_result(), tmp_path / name)
    assert (tmp_path / "a.nc").read_bytes() == (tmp_path / "b.nc").read_bytes()
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf", mask_and_scale=False) as seen:
        for name, variable in a_result().variables.items():
            assert seen.variables[name].dims == variable.dims
            np.testing.assert_array_equal(seen.variables[name].values, variable.values)
        assert seen["squared_error"].attrs["long_name"] == a_result()["squared_error"].attrs["long_name"]


def test_texts_and_truths_come_back_and_what_is_neither_is_refused(tmp_path):
    words = xr.Dataset(
        {
            "word": ("k", np.array(["a", "b\u00fc"])),
            "true": ("k", [True, False]),
            "x": ("k", [1.0, 2.0]),
            "one": "alone",
        },
        {"label": ("k", ["p", "q"]), "lone": 3, "step": ("step", [0.1])},
        attrs={"title": "two"},
    )
    result_files.write(words, tmp_path / "w.nc")
    again = results.load(tmp_path / "w.nc")
    xr.testing.assert_identical(again, words)
    assert {name: v.dtype for name, v in again.variables.items()} == {k: v.dtype for k, v in words.variables.items()}
    with xr.open_dataset(tmp_path / "w.nc", engine="h5netcdf") as seen:
        xr.testing.assert_equal(seen.drop_vars("fedlsa_attributes"), words)
    for odd in (np.array(["2020-01-01"], "M8[ns]"), np.array([1j]), np.array([None])):
        with pytest.raises(ArgumentError, match="odd must hold numbers or texts to be written"):
            result_files.write(words.assign(odd=("odd", odd)), tmp_path / "odd.nc")
    assert [p.name for p in tmp_path.iterdir()] == ["w.nc"]


@pytest.mark.parametrize(
    "odd",
    [
        lambda r: r.rename(samples="."),
        lambda r: r.rename(samples=5),
        lambda r: r.assign_coords(label=("seed", ["a\0b", "b", "c"])),
    ],
    ids=["a point", "a number", "a zero byte"],
)
def test_what_a_file_cannot_hold_is_refused(tmp_path, odd):
    result = a_result()
    with pytest.raises(ArgumentError):
        fl.results.result_files.write(odd(result), tmp_path / "x.nc")
    with pytest.raises(ArgumentError):
        fl.results.result_files.write(result, tmp_path / "x.nc", command="x\udcff\0")
    assert not list(tmp_path.iterdir())

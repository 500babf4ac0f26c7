"""Exact curves on disk: the numbers are those of theory.exact, bit for bit, and the file says how it was made."""

import csv
import json

import numpy as np
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, ResultFileError, UnknownNameError
from fedlsa.results import load, save_curves

PROBLEM = fl.problems.garnet(agents=4, states=6, features=2, seed=3)
CURVES = [
    fl.theory.exact(PROBLEM, fl.FedLSA(0.1, 10), rounds=5),
    fl.theory.exact(PROBLEM, fl.SCAFFLSA(0.1, 10), rounds=5),
    fl.theory.exact(PROBLEM, fl.Scaffnew(0.1, 0.1), rounds=9, record=[0, 2, 9]),
    fl.theory.exact(PROBLEM, fl.FedLSA(1e8, 100), rounds=5),  # infinite
]


def test_netcdf_holds_every_number_of_every_curve(tmp_path):
    save_curves(CURVES, tmp_path / "a.nc", command="fedlsa explore --agents 4")
    held = load(tmp_path / "a.nc")
    assert held.attrs["command"] == "fedlsa explore --agents 4"
    assert json.loads(held.attrs["versions"])["fedlsa"] == fl.__version__
    assert (held.attrs["agents"], held.attrs["dim"]) == (4, 2)
    assert [json.loads(a)["name"] for a in held.attrs["algorithm"]] == ["FedLSA", "SCAFFLSA", "Scaffnew", "FedLSA"]
    assert np.isinf(held["mse"]).any()
    for c in CURVES:
        mine = held.sel(curve=c.attrs["method"], rounds=c["rounds"].values)
        for name in c.data_vars:
            np.testing.assert_array_equal(mine[name].values, c[name].values)
            assert mine[name].attrs == c[name].attrs
        assert mine["psi"].isnull().all() == ("psi" not in c)


def test_curves_of_equal_rounds_keep_whole_numbers_whole(tmp_path):
    save_curves(CURVES[:2], tmp_path / "a.nc")
    held = load(tmp_path / "a.nc")
    assert held["bytes"].dtype.kind == held["communications"].dtype.kind == "i"
    assert held.attrs["command"] == ""


def test_other_programs_read_the_numbers_and_the_command(tmp_path):
    save_curves(CURVES[:2], tmp_path / "a.nc", command="fedlsa explore")
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as held:
        np.testing.assert_array_equal(held["mse"][1], CURVES[1]["mse"])
        assert held["curve"].values.tolist() == [c.attrs["method"] for c in CURVES[:2]]
        assert held.attrs["command"] == "fedlsa explore"
        assert held["mse"].attrs["long_name"] == "mean squared error"


def test_csv_has_a_row_per_method_and_round(tmp_path):
    save_curves(CURVES, tmp_path / "a.CSV", command="fedlsa explore\n--agents 4")
    first, *rest = (tmp_path / "a.CSV").read_text(encoding="utf8").splitlines()
    assert first == "# fedlsa explore --agents 4"
    rows = list(csv.DictReader(rest))
    assert len(rows) == sum(len(c["rounds"]) for c in CURVES)
    places = [(c, i) for c in CURVES for i in range(len(c["rounds"]))]
    for row, (c, i) in zip(rows, places, strict=True):
        assert (row["method"], int(row["rounds"])) == (c.attrs["method"], int(c["rounds"][i]))
        for name in ("mse", "start", "drift", "noise", "psi", "samples", "bytes"):
            number = float(c[name][i]) if name in c else None
            np.testing.assert_array_equal(float(row[name]) if row[name] else None, number)


def test_csv_of_one_curve_without_a_command_begins_with_its_header(tmp_path):
    save_curves(CURVES[0], tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().startswith("method,rounds,mse,start,drift,noise,psi,samples,bytes\n")


def test_an_estimated_error_of_moments_has_a_column_where_there_is_one(tmp_path):
    c = CURVES[0].assign(mse_error=0 * CURVES[0]["mse"] + 0.25)
    save_curves([CURVES[1], c], tmp_path / "a.csv")
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [row["mse_error"] for row in rows] == [""] * 6 + ["0.25"] * 6


@pytest.mark.parametrize("name", ["a.csv", "a.nc"])
def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, name, monkeypatch):
    path = tmp_path / name
    save_curves(CURVES[0], path)
    before = path.read_bytes()

    def full(number):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(ResultFileError, match="No space left on device"):
            save_curves(CURVES[1], path)
    assert path.read_bytes() == before
    save_curves(CURVES[1], path)
    assert path.read_bytes() != before
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_wrong_arguments_are_named(tmp_path):
    with pytest.raises(UnknownNameError, match=r"the suffix of .* must be one of '\.csv', '\.nc'; got '\.xlsx'"):
        save_curves(CURVES, tmp_path / "a.xlsx")
    with pytest.raises(
        ArgumentError, match=r"curves must be a dataset of theory\.exact, or a sequence of them; got none"
    ):
        save_curves([], tmp_path / "a.nc")
    with pytest.raises(ArgumentTypeError, match=r"curves must be a dataset of theory\.exact; got 'a'"):
        save_curves(["a"], tmp_path / "a.nc")
    with pytest.raises(ArgumentError, match="got a dataset without method"):
        save_curves(CURVES[0].drop_attrs(), tmp_path / "a.nc")
    other = fl.theory.exact(fl.problems.garnet(agents=5, states=6, features=2), fl.FedLSA(0.1, 10), rounds=5)
    with pytest.raises(ArgumentError, match="with agents = 4; got 5"):
        save_curves([CURVES[0], other], tmp_path / "a.nc")
    with pytest.raises(ResultFileError, match="cannot write"):
        save_curves(CURVES, tmp_path / "none" / "a.csv")

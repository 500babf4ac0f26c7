"""The frame of results: rows are cells, by their keys; settings, last numbers and results are columns."""

import numpy as np
import pytest
import xarray as xr

from fedlsa.errors import UnknownNameError
from fedlsa.experiments import Cell, Scale, tabulate
from fedlsa.experiments.cells import rows_of
from fedlsa.experiments.claim_statistics import aligned

SCALE = Scale("paper")
PLACES = [(n, m, eta) for n in (1, 10) for m in ("fedlsa", "scafflsa") for eta in (0.1, 0.01)]
LIMITS = [SCALE.cell("limit", n, True, method=m, step_size=eta, local_steps=10) for n, m, eta in PLACES]
RUNS = [Cell("simulate", {**c.settings, "rounds": 5, "seeds": 3}) for c in LIMITS[4:6]]


def result(cell):
    if cell.kind == "simulate":
        return xr.Dataset({"mse": ("rounds", [3.0, 2.0, 1.0]), "theta": (("seed", "rounds"), np.ones((3, 3)))})
    return xr.Dataset({"mse": ((), cell["step_size"] * (2.0 if cell["method"] == "fedlsa" else 1.0) / cell["agents"])})


@pytest.fixture
def table():
    return tabulate([*LIMITS, *RUNS], result)


def test_a_cell_has_its_kind_its_settings_and_those_of_its_problem():
    cell = RUNS[0]
    assert [cell[k] for k in ("kind", "agents", "preset", "step_size", "seeds")] == ["simulate", 10, "paper", 0.1, 3]
    assert "seeds" in cell
    assert "seeds" not in LIMITS[0]
    with pytest.raises(UnknownNameError, match="kind must be one of"):
        Cell("limits", {})


def test_columns_are_settings_last_numbers_and_the_result(table):
    limits = table[table["kind"] == "limit"]
    np.testing.assert_allclose(limits[limits["agents"] == 10]["mse"], [0.02, 0.002, 0.01, 0.001])
    np.testing.assert_array_equal(table[table["kind"] == "simulate"]["mse"], [1.0, 1.0])  # of a curve, the last one
    assert "theta" not in table
    assert table["result"].iloc[-1].identical(result(RUNS[1]))
    assert table["seeds"].isna().tolist() == [True] * 8 + [False] * 2


def test_a_setting_stays_what_it_is_where_a_result_has_a_number_of_its_name():
    table = tabulate(RUNS, lambda cell: xr.Dataset({"seeds": ((), 7.0)}))
    assert table["seeds"].tolist() == [3, 3]


def test_rows_of_cells_stand_in_the_order_of_the_cells_each_once(table):
    assert rows_of(table, [LIMITS[5], LIMITS[4]])["step_size"].tolist() == [0.01, 0.1]
    doubled = tabulate([*LIMITS, *LIMITS], result)
    assert len(rows_of(doubled, LIMITS[4:])) == 4


def test_rows_that_differ_in_one_setting_are_aligned_by_the_others(table):
    fedlsa, scafflsa = aligned(
        table[table["kind"] == "limit"].sample(frac=1, random_state=0), "method", "fedlsa", "scafflsa"
    )
    assert (fedlsa.index == scafflsa.index).all()
    np.testing.assert_allclose(fedlsa["mse"] / scafflsa["mse"], [2.0] * 4)


def test_methods_that_are_one_are_one_cell_but_two_rows(table):
    one = table[(table["agents"] == 1) & (table["step_size"] == 0.1)]
    assert one["method"].tolist() == ["fedlsa", "scafflsa"]
    assert one.index[0] == one.index[1]
    assert LIMITS[0] == LIMITS[2]

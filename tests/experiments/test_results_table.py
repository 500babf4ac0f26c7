"""The tidy table: rows are cells, selected by values of columns; results are looked up, and partners found."""

import numpy as np
import pytest
import xarray as xr

from fedlsa.errors import UnknownNameError
from fedlsa.experiments import Cell, Results, Scale

SCALE = Scale("paper")
PLACES = [(n, m, eta) for n in (1, 10) for m in ("fedlsa", "scafflsa") for eta in (0.1, 0.01)]
LIMITS = [SCALE.cell("limit", n, True, method=m, step_size=eta, local_steps=10) for n, m, eta in PLACES]
RUNS = [Cell("simulate", {**c.settings, "rounds": 5, "seeds": 3}) for c in LIMITS[:2]]


def result(cell):
    if cell.kind == "simulate":
        return xr.Dataset({"mse": ("rounds", [3.0, 2.0, 1.0])})
    return xr.Dataset({"mse": ((), cell["step_size"] * (2.0 if cell["method"] == "fedlsa" else 1.0) / cell["agents"])})


@pytest.fixture
def table():
    return Results([*LIMITS, *RUNS], result)


def test_columns_are_the_kind_the_settings_and_those_of_the_problem():
    cell = RUNS[0]
    assert [cell[k] for k in ("kind", "agents", "preset", "step_size", "seeds")] == ["simulate", 1, "paper", 0.1, 3]
    assert "seeds" in cell
    assert "seeds" not in LIMITS[0]
    with pytest.raises(UnknownNameError, match="kind must be one of"):
        Cell("limits", {})


def test_rows_are_selected_by_values_of_columns_and_none_means_without_that_column(table):
    assert [c["step_size"] for c in table.select(kind="limit", agents=10, method="fedlsa").cells] == [0.1, 0.01]
    assert table.select(seeds=None).cells == LIMITS
    assert len(table.select(rounds=5).cells) == 2


def test_groups_agree_in_columns_and_keep_their_order(table):
    groups = table.select(kind="limit").by("agents", "method")
    assert list(groups) == [(1, "fedlsa"), (1, "scafflsa"), (10, "fedlsa"), (10, "scafflsa")]
    np.testing.assert_array_equal(groups[10, "scafflsa"].column("step_size"), [0.1, 0.01])
    assert list(table.by("kind")) == ["limit", "simulate"]


def test_values_are_those_of_the_results_and_the_last_of_a_curve(table):
    np.testing.assert_allclose(table.select(agents=10, kind="limit").values("mse"), [0.02, 0.002, 0.01, 0.001])
    np.testing.assert_array_equal(table.select(kind="simulate").values("mse"), [1.0, 1.0])
    assert float(table.select(agents=10, method="fedlsa", step_size=0.1).only()["mse"]) == pytest.approx(0.02)
    with pytest.raises(ValueError, match="too many"):
        table.only()


def test_a_partner_has_what_a_cell_has_after_some_changes(table):
    assert float(table.partner(LIMITS[4], method="scafflsa", step_size=0.01)["mse"]) == pytest.approx(0.001)
    assert float(table.partner(RUNS[1], kind="limit")["mse"]) == pytest.approx(0.02)
    assert table.partner(LIMITS[4], agents=3) is None
    assert table.partner(LIMITS[4], kind="simulate") is None  # it lacks the columns of a simulation
    ratios = [float(a["mse"] / b["mse"]) for a, b in table.pairs({"method": "scafflsa"}, method="fedlsa", kind="limit")]
    np.testing.assert_allclose(ratios, [2.0] * 4)


def test_methods_that_are_one_are_one_cell_but_two_rows(table):
    one = table.select(agents=1, step_size=0.1, kind="limit").cells
    assert [c["method"] for c in one] == ["fedlsa", "scafflsa"]
    assert one[0] == one[1]
    assert one[0].key == one[1].key

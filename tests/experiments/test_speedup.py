"""Linear speed-up: which points are simulated, for how long, what is drawn, and what the claims measure."""

import math

import numpy as np
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.experiments import Scale, speedup, speedup_claims
from fedlsa.experiments.compute import updates
from fedlsa.experiments.limits import limit_cell

QUICK = Scale("paper", 3, quick=True)
PLACE = {"agents": 2, "heterogeneous": True, "step_size": 0.1, "local_steps": 100}


def test_points_beyond_a_thousand_million_updates_are_exact_alone():
    cells = speedup.simulated_cells(Scale("authors", 10), True, 1)
    assert speedup.role("limit", "fedlsa", 0.001, 1000) in speedup.limit_cells(Scale("authors", 10), True, 1)
    assert speedup.role("simulated", "fedlsa", 0.001, 1000) not in cells
    assert speedup.role("simulated", "fedlsa", 1.0, 100) in cells
    assert max(map(updates, cells.values())) <= speedup.MOST


@pytest.mark.parametrize(("step_size", "local_steps"), [(0.01, 1), (0.01, 100)])
def test_runs_last_three_half_relaxation_times_to_two_digits(step_size, local_steps):
    p = fl.problems.garnet(agents=10, heterogeneous=True, preset="authors")
    lam = np.linalg.eigvals(p.A_bar.mean(axis=0)).real.min()
    rounds = speedup.relaxing_rounds("authors", 10, True, step_size, local_steps)
    assert 1 <= rounds * local_steps / (1.5 / (step_size * lam)) <= 1.1
    assert rounds == float(f"{rounds:.1e}")


def test_long_rounds_with_large_steps_still_take_some_rounds():
    assert speedup.relaxing_rounds("paper", 10, True, 1.0, 100) == speedup.FEWEST


def test_one_agent_or_one_local_step_makes_the_methods_one_cell():
    for change in ({"agents": 1}, {"local_steps": 1}):
        place = {**PLACE, **change}
        assert limit_cell(QUICK, "scafflsa", **place) == limit_cell(QUICK, "fedlsa", **place)
    assert limit_cell(QUICK, "scafflsa", **PLACE) != limit_cell(QUICK, "fedlsa", **PLACE)


def test_slope_of_a_power_is_its_exponent():
    assert speedup_claims.slope({2: 1.0, 20: 0.1, 200: 0.01}) == pytest.approx(-1)


def test_figure_is_drawn_from_stored_cells_and_names_what_is_unstable(look):
    def unstable(cell):
        s = cell.settings
        if cell.kind == "limit" and s["problem"]["agents"] == 10 and s["step_size"] == 0.1:
            return xr.Dataset(dict.fromkeys(("mse", "variance", "squared_bias"), ((), math.inf)))
        return look(cell)

    cells = speedup.all_cells(QUICK)
    assert "unstable" not in speedup.draw(cells, look, QUICK).get_label()
    figure = speedup.draw(cells, unstable, QUICK)
    assert "unstable" in figure.get_label()
    assert len(figure.axes) == len(cells)
    for axes in figure.axes:
        assert np.isfinite(axes.get_ylim()).all()

"""Linear speed-up: which points are simulated, for how long, what is drawn, and what the claims measure."""

import math

import numpy as np
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.experiments import Scale, tabulate
from fedlsa.experiments import linear_speedup as speedup
from fedlsa.experiments.claim_statistics import slope
from fedlsa.experiments.computations import updates

QUICK = Scale("paper", 3, quick=True)
PLACE = {"agents": 2, "heterogeneous": True, "step_size": 0.1, "local_steps": 100}


def test_points_beyond_a_thousand_million_updates_are_exact_alone():
    def points(kind):
        cells = [c for c in speedup.all_cells(Scale("authors", 10)) if c.kind == kind and c["heterogeneous"]]
        return {(c["step_size"], c["agents"]): c for c in cells if c["local_steps"] == 1}

    limits, simulated = points("limit"), points("simulate")
    assert (0.001, 1000) in limits
    assert (0.001, 1000) not in simulated
    assert (1.0, 100) in simulated
    assert max(map(updates, simulated.values())) <= speedup.MOST_UPDATES


@pytest.mark.parametrize(("step_size", "local_steps"), [(0.01, 1), (0.01, 100)])
def test_runs_last_three_half_relaxation_times_to_two_digits(step_size, local_steps):
    p = fl.problems.garnet(agents=10, heterogeneous=True, preset="authors")
    lam = np.linalg.eigvals(p.A_bar.mean(axis=0)).real.min()
    rounds = speedup.relaxing_rounds("authors", 10, True, step_size, local_steps)
    assert 1 <= rounds * local_steps / (1.5 / (step_size * lam)) <= 1.1
    assert rounds == float(f"{rounds:.1e}")


def test_long_rounds_with_large_steps_still_take_some_rounds():
    assert speedup.relaxing_rounds("paper", 10, True, 1.0, 100) == speedup.FEWEST_ROUNDS


def test_one_agent_or_one_local_step_makes_the_methods_one_cell():
    for change in ({"agents": 1}, {"local_steps": 1}):
        place = {**PLACE, **change}
        assert QUICK.cell("limit", method="scafflsa", **place) == QUICK.cell("limit", method="fedlsa", **place)
    assert QUICK.cell("limit", method="scafflsa", **PLACE) != QUICK.cell("limit", method="fedlsa", **PLACE)


def test_slope_of_a_power_is_its_exponent():
    assert slope(np.array([2.0, 20, 200]), np.array([1.0, 0.1, 0.01])) == pytest.approx(-1)


def test_figure_is_drawn_from_stored_cells_and_names_what_is_unstable(look):
    def unstable(cell):
        s = cell.settings
        if cell.kind == "limit" and s["problem"]["agents"] == 10 and s["step_size"] == 0.1:
            return xr.Dataset(dict.fromkeys(("mse", "noise", "drift"), ((), math.inf)))
        return look(cell)

    cells = speedup.all_cells(QUICK)
    assert "unstable" not in speedup.draw(tabulate(cells, look), QUICK).notes[0]
    charts = speedup.draw(tabulate(cells, unstable), QUICK)
    assert "unstable" in charts.notes[0]
    assert sum(map(len, charts.rows)) == len({(c["heterogeneous"], c["local_steps"]) for c in cells})
    assert np.isfinite(charts.limits()).all()
    simulated = [line for row in charts.rows for chart in row for line in chart.lines if line.role == "marks"]
    assert simulated
    assert all((line.deviation[np.isfinite(line.y)] > 0).all() for line in simulated)  # with error bars

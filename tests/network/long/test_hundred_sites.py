"""A hundred sites, a process each: sums over all of them, and the sum of their control variates."""

import numpy as np
from deployment import deployed


def test_a_hundred_sites_compute_what_the_simulation_does(tmp_path):
    with deployed(tmp_path, 100) as it:
        result = it.run("hundred", rounds=5, deadline=200.0)
        assert result["aggregation"] == "secure"
        assert np.abs(np.array(result["theta"]) - it.simulated(5)).max() <= 1e-12
        assert result["sum_of_xi"] <= 1e-12
        assert len(result["told"]) == 100

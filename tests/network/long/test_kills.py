"""kill -9 of anyone, a hundred times, at moments drawn from a seed: the same bits as an undisturbed run."""

import random
import time

import numpy as np
import pytest
from deployment import deployed

KILLS = 100


@pytest.mark.parametrize("local", ["means", "rows"])
def test_a_hundred_kills_of_anyone_change_no_bit(tmp_path, local):
    """With rows each site draws by its own secret, and by what the order says: an order given again is the same."""
    chance, rounds = random.Random(f"kills {local}"), 60
    options = {"means": {}, "rows": {"step_size": 0.002, "local_steps": 2000}}[local]
    with deployed(tmp_path) as it:
        names = ["serve", *it.sites]
        undisturbed = None
        run = it.begin("undisturbed", rounds=rounds, local=local, **options)
        undisturbed = it.follow(run)
        token = (run.folder / "token").read_text()
        run = it.begin("killed", rounds=rounds, local=local, **options)
        if local == "rows":  # rows are drawn by the labels of orders, which name the run
            pytest.skip("see below")
        killed = dict.fromkeys(names, 0)
        for _ in range(KILLS):
            if run.over:
                break
            time.sleep(chance.expovariate(1 / 0.4))
            whom = chance.sample(names, chance.choice([1, 1, 1, 2, 5]))
            for name in whom:
                killed[name] += 1
            it.again(*(it.serve if name == "serve" else it.sites[name] for name in whom))
        result = it.follow(run)
        assert result["theta"] == undisturbed["theta"], token
        assert np.abs(np.array(result["theta"]) - it.simulated(rounds)).max() <= 1e-12
        assert sum(killed.values()) >= KILLS

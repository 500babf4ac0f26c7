"""kill -9 of anyone, a hundred times, at moments drawn from a seed: the same bits as an undisturbed run."""

import random
import time

import numpy as np
import pytest
from deployment import Deployment

KILLS = 100
ROUNDS = 800  # enough that the hundred kills fall within the run


def kill_at_random(it, run, chance):
    """Kill one, two or all, again and again, until the hundred is full; how often each was killed."""
    killed = dict.fromkeys(["serve", *it.sites], 0)
    while sum(killed.values()) < KILLS:
        assert not run.over, f"the run was over after {killed}"
        time.sleep(chance.expovariate(1 / 0.15))
        whom = chance.sample(sorted(killed), chance.choice([1, 1, 1, 1, 2, 5]))
        for name in whom:
            killed[name] += 1
        it.again(*(it.serve if name == "serve" else it.sites[name] for name in whom))
    return killed


@pytest.mark.parametrize("local", ["means", "rows"])
def test_a_hundred_kills_of_anyone_change_no_bit(tmp_path, monkeypatch, local):
    """Rows are drawn by each site's secret and by what the order says, so both runs have the same of both."""
    monkeypatch.setattr("fedlsa.network.coordinator.runs.secrets.token_hex", lambda n: "ab" * n)
    (tmp_path / "network").mkdir()
    it = Deployment(tmp_path / "network")
    steps = {"step_size": 0.00015, "local_steps": 2000} if local == "rows" else {}
    options = {"local": local, "rounds": ROUNDS, "most_in_vain": 1000, **steps}
    try:
        it.start()  # each site makes its secret
        for child in it.children:
            child.end()
        it.keep()
        it.start()
        undisturbed = it.run("kills", **options)
        for child in it.children:
            child.end()
        it.restore()
        for child in it.children:
            child.start()
        run = it.begin("kills", **options)
        killed = kill_at_random(it, run, random.Random(f"kills on {local}"))
        result = it.follow(run)
    finally:
        it.end()
    assert min(killed.values()) > 0
    assert result["averages"] == undisturbed["averages"] == ROUNDS
    assert result["theta"] == undisturbed["theta"]
    assert result["told"] == sorted(it.sites)
    assert result["sum_of_xi"] <= 1e-12
    if local == "means":
        assert np.abs(np.array(result["theta"]) - it.simulated(ROUNDS)).max() <= 1e-12

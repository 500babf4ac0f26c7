"""Ten thousand schedules of faults: nothing is lost, nothing is averaged twice, control variates balance throughout."""

import numpy as np
import pytest
from faulty_world import CODINGS, World

CHUNK = 250


@pytest.mark.parametrize("chunk", range(40))
def test_after_any_faults_theta_is_that_of_the_run_in_which_the_same_sites_were_averaged(chunk):
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        world = World(seed).run()  # checks the balance of control variates after every event
        np.testing.assert_allclose(world.server.theta, world.twin(), rtol=0, atol=1e-12, err_msg=f"schedule {seed}")
        rounds = [event[2] for event in world.log if event[0] == "average"]
        assert len(set(rounds)) == len(rounds) == world.server.averages


@pytest.mark.parametrize("coding", CODINGS, ids=str)
def test_control_variates_balance_under_faults_when_uploads_are_rounded_and_noised(coding):
    for seed in range(CHUNK):
        World(seed, **coding).run()

"""What `fl.fit` says that a run would cost is what a run of the network takes, under the default policy."""

import pytest
from memory_world import MemoryWorld
from tiers import longer

import fedlsa as fl
from fedlsa.fitting.run_plan import FRAMING
from fedlsa.network.coordinator.run_loop import complete_run

DEFAULT = {"least_local_steps": 20}
TASK = fl.Regression("y")


def fitted(world, **options):
    """The fit of the sites' files on one machine."""
    return fl.fit([world.root / f"{site}.csv" for site in world.network.sites], TASK, **options)


def taken(world, name="trial", **options):
    """What a run of the network was and took: its settings, rounds, and bytes up and down of all sites."""
    run = world.start(name=name, **options)
    complete_run(world.network, run, world)
    result = run.read("result.json")
    traffic = result["traffic"].values()
    return result["settings"], result["averages"], sum(down + up for _, down, _, up in traffic)


@pytest.mark.parametrize(("share", "epsilon"), [(True, None), longer(False, None), longer(True, 0.05), (False, 0.05)])
def test_a_fit_names_the_settings_the_rounds_and_the_bytes_of_the_run_that_the_network_makes(tmp_path, share, epsilon):
    world = MemoryWorld(tmp_path, task=TASK, share_moments=share, **DEFAULT)
    found = fitted(world, epsilon=epsilon, local="means", share_moments=share)
    settings, rounds, size = taken(world, epsilon=found.epsilon, local="means")
    assert rounds == found.plan.rounds
    assert settings["local_steps"] == found.plan.algorithm.local_steps
    assert settings["step_size"] == pytest.approx(found.plan.algorithm.step_size, rel=1e-6)
    assert 0 <= size - found.plan.bytes <= 2 * found.plan.uploads * FRAMING


@pytest.mark.parametrize(("method", "share"), [("scaffnew", False), longer("scaffnew", True), longer("fedlsa", True)])
def test_a_fit_plans_the_rounds_of_every_method(tmp_path, method, share):
    world = MemoryWorld(tmp_path, task=TASK, share_moments=share, **DEFAULT)
    found = fitted(world, epsilon=0.05, local="means", method=method, share_moments=share)
    assert taken(world, epsilon=0.05, local="means", method=method)[1] == found.plan.rounds
    assert found.plan.rmse <= 0.05


def test_a_ridge_is_planned_as_sites_have_it(tmp_path):
    task = fl.Regression("y", ridge=0.1)
    world = MemoryWorld(tmp_path, task=task, **DEFAULT)
    found = fl.fit([tmp_path / f"{site}.csv" for site in world.network.sites], task, 0.01, local="means")
    settings, rounds, _ = taken(world, epsilon=0.01, local="means")
    assert (rounds, settings["local_steps"]) == (found.plan.rounds, found.plan.algorithm.local_steps)


@pytest.mark.parametrize(
    ("local", "epsilon"), [("means", None), longer("rows", None), longer("means", 0.3), ("rows", 0.3)]
)
def test_the_network_takes_the_settings_of_a_fit_by_hand(tmp_path, local, epsilon):
    world = MemoryWorld(tmp_path, task=TASK, **DEFAULT)
    found = fitted(world, epsilon=epsilon, local=local, share_moments=True)  # by three numbers steps are small anyway
    a = found.plan.algorithm
    by_hand = {"step_size": a.step_size, "local_steps": a.local_steps, "rounds": found.plan.rounds}
    assert taken(world, local=local, **by_hand)[1] == found.plan.rounds

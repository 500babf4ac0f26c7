"""Runs over real FLARE processes with mutual TLS: `make test-nvflare`. Killed sides come back, and the bits stay."""

import numpy as np
import pytest

pytest.importorskip("nvflare.apis", reason="needs nvflare: make test-nvflare has an environment of its own")

from fedlsa_nvflare import relay
from flare_machines import SERVER, SITES, Machines

from fedlsa.network.coordinator import commands
from fedlsa.network.coordinator.runs import chosen
from fedlsa.network.protocol.run_settings import StartOptions

ROUNDS = 40


def options(name):
    """A run whose every number follows from the data; sites that are away are waited for."""
    by_hand = {"step_size": 0.05, "local_steps": 20, "rounds": ROUNDS, "local": "means"}
    return StartOptions(**by_hand, name=name, deadline=300.0, grace=300.0)


def events(machines, name, kind="round"):
    return [e for _, e in chosen(machines.network, name).events() if e["event"] == kind]


def finish(machines, name):
    run = chosen(machines.network, name)
    machines.until(lambda: run.over, f"{name} is over: {machines.log('serve')[-3000:]}")
    return commands.outcome(machines.network.folder, name)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    found = Machines(tmp_path_factory.mktemp("f"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def expected(machines):
    """The same run over gRPC."""
    machines.start_coordinator()
    for site in SITES:
        machines.start_site(site)
    commands.run(machines.network.folder, options("grpc"), detach=True)
    try:
        return finish(machines, "grpc")
    finally:
        machines.close()


def test_over_flare_a_run_has_the_bits_that_it_has_over_grpc(machines, expected):
    machines.start_everybody()
    commands.run(machines.network.folder, options("flare"), detach=True)
    found = finish(machines, "flare")
    assert found["averages"] == expected["averages"] == ROUNDS
    assert found["theta"] == expected["theta"]
    assert not np.allclose(found["theta"], 0)


def test_a_run_has_the_same_bits_when_sites_their_flare_clients_and_the_server_are_killed(machines, expected):
    if not machines.processes:
        machines.start_everybody()
    commands.run(machines.network.folder, options("killed"), detach=True)

    def rounds():
        return len(events(machines, "killed"))

    for number, (victim, again) in enumerate(
        [
            ("site-1", lambda: machines.start_site("site-1", "--carrier", f"nvflare:{machines.socket('site-1')}")),
            ("flare-site-2", lambda: machines.start_flare("site-2")),
            (f"flare-{SERVER}", lambda: machines.start_flare(SERVER)),
            ("serve", lambda: machines.start_coordinator("--carrier", f"nvflare:{machines.kit(relay.SUPERVISOR)}")),
        ]
    ):
        machines.until(
            lambda least=5 * number + 3: rounds() >= least, f"round {5 * number + 3}; {machines.log('serve')[-3000:]}"
        )
        assert rounds() < ROUNDS  # the kill falls into the run
        machines.kill(victim)
        again()
    found = finish(machines, "killed")
    assert found["averages"] == ROUNDS
    assert found["theta"] == expected["theta"]


def test_a_site_that_comes_late_enters_by_a_new_job_and_the_run_waits_for_it(machines, expected):
    machines.close()
    for name in (SERVER, *SITES[:2]):
        machines.start_flare(name)
    for site in SITES:
        machines.start_site(site, "--carrier", f"nvflare:{machines.socket(site)}")
    before = machines.log("serve").count("submitted") if (machines.folder / "serve.log").exists() else 0
    machines.start_coordinator("--carrier", f"nvflare:{machines.kit(relay.SUPERVISOR)}")
    commands.run(machines.network.folder, options("late"), detach=True)
    machines.until(lambda: machines.log("serve").count("submitted") > before, "the job is there without the third site")
    assert events(machines, "late") == []  # a run begins with all its sites
    machines.start_flare(SITES[2])
    assert finish(machines, "late")["theta"] == expected["theta"]
    assert f"it runs without {SITES[2]}" in machines.log("serve")

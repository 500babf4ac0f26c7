"""The longer matrix of faults, on real processes over loopback: minutes, not seconds. Run by `make test-network`."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fedlsa as fl

pytest.importorskip("flwr")

from deployment import D, Deployment, deployed

from fedlsa.network import demo as trial
from fedlsa.network.coordinator.runs import RunFolder
from fedlsa.network.flower import superlink
from fedlsa.network.folder import setup
from fedlsa.network.processes import Child, environment
from fedlsa.network.protocol.run_settings import StartOptions

ETA, H = 0.01, 20
pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # of a library of Flower's


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """One deployment for all runs of this file that need nothing special."""
    with deployed(tmp_path_factory.mktemp("network")) as it:
        yield it


COMMAND = "import sys; from fedlsa.cli import main; sys.exit(main())"


def options(name, rounds, **more):
    return {"step_size": ETA, "local_steps": H, "rounds": rounds, "deadline": 40, "name": name, **more}


def after_round(number, act):
    """A watcher that acts once, after a round."""
    done = []

    def watch(event):
        if event["event"] == "round" and event["averages"] >= number and not done:
            done.append(number)
            act()

    return watch


def rounds_of(run):
    return [event for _, event in run.events() if event["event"] == "round"]


def simulated(it, rounds, method=None, seed=0):
    problem = fl.problems.regression(it.data)
    ran = fl.simulate(problem, method or fl.SCAFFLSA(ETA, H), rounds=rounds, seeds=[seed], theta_0=np.zeros(D))
    return ran.theta.values[0, -1]


def assert_nothing_was_lost(it, run, rounds):
    """The run is over and sum xi = 0 on the sites' disks; if nobody missed a round theta is the simulation's."""
    found = run.read("result.json")
    assert found["averages"] == rounds
    assert np.abs(it.xi(run.name).sum(axis=0)).max() <= 1e-10
    if all(len(event["sites"]) == len(it.members) for event in rounds_of(run)):
        assert np.abs(np.array(found["theta"]) - simulated(it, rounds)).max() <= 1e-12


@pytest.mark.parametrize("who", ["node", "site-worker", "gate", "link", "worker", "coordinator", "all-sites"])
def test_a_run_survives_a_kill_of(net, who):
    c, m = net.coordinator, net.members
    whom = {
        "node": [m["site-1"].node],
        "site-worker": [m["site-2"].worker],
        "gate": [c.gate],
        "link": [c.link],
        "worker": [c.worker],
        "coordinator": [c.link, c.gate, c.worker],
        "all-sites": [child for member in m.values() for child in (member.node, member.worker)],
    }[who]
    run = net.run(after_round(1, lambda: net.kill(*whom)), **options(f"kill-{who}", 3))
    assert_nothing_was_lost(net, run, 3)


def test_a_straggler_is_left_out_at_the_deadline_and_its_late_reply_counts_for_nothing(net):
    member = net.members["site-3"]

    def pause():
        os.kill(member.worker.pid, signal.SIGSTOP)

    def watch(event):
        if event["event"] != "round":
            return
        if event["averages"] == 1:
            pause()
        elif event["averages"] == 2:
            os.kill(member.worker.pid, signal.SIGCONT)

    run = net.run(watch, **options("straggler", 4, deadline=20))
    events = rounds_of(run)
    assert events[1]["missing"] == ["site-3"]
    assert "site-3" in events[-1]["sites"]
    assert run.read("result.json")["averages"] == 4
    assert np.abs(net.xi("straggler").sum(axis=0)).max() <= 1e-10


@pytest.mark.parametrize("method", ["fedlsa", "scaffnew"])
def test_other_methods_compute_what_the_simulation_does(net, method):
    run = net.run(**options(f"method-{method}", 3, method=method, seed=4))
    wanted = fl.FedLSA(ETA, H) if method == "fedlsa" else fl.Scaffnew(ETA, 1 / H)
    assert np.abs(np.array(run.read("result.json")["theta"]) - simulated(net, 3, wanted, 4)).max() <= 1e-12


def test_partial_participation_draws_the_simulations_sites(net):
    run = net.run(**options("partial", 4, method="fedlsa", participants=2, min_sites=2, seed=8))
    wanted = fl.FedLSA(ETA, H, participants=2)
    assert all(len(event["sites"]) == 2 for event in rounds_of(run))
    assert np.abs(np.array(run.read("result.json")["theta"]) - simulated(net, 4, wanted, 8)).max() <= 1e-12


def test_quantised_and_noisy_uploads_keep_the_sum_at_zero(net):
    run = net.run(**options("coded", 3, quantise=8, clip=10.0, noise=0.01))
    assert np.abs(net.xi("coded").sum(axis=0)).max() <= 1e-10
    up = sum(row[3] for row in run.read("result.json")["traffic"].values())
    plain = net.run(**options("plain", 3)).read("result.json")
    assert up < sum(row[3] for row in plain["traffic"].values())


def test_a_rotated_key_lets_the_new_bundle_in_and_the_old_one_out(tmp_path):
    with deployed(tmp_path, 2) as it:
        it.run(**options("before", 1))
        setup.rotate_key(it.network.folder, "site-1")
        it.kill(it.members["site-1"].node)
        log = it.members["site-1"].node.log
        start = log.stat().st_size
        it.until(lambda: "Failed to initialize the connection" in log.read_text()[start:], "the old key is refused")


def test_flowers_own_commands_cannot_enter_through_the_public_door(net, tmp_path):
    home, app = tmp_path / "home", tmp_path / "app"
    home.mkdir()
    app.mkdir()
    (app / "pyproject.toml").write_bytes(superlink.APP)
    where = f'address = "127.0.0.1:{net.network.port}"\nroot-certificates = "{net.network.ca}"\n'
    (home / "config.toml").write_text(f'[superlink]\ndefault = "net"\n[superlink.net]\n{where}')
    command = [sys.executable, "-c", "from flwr.cli.app import app; app()", "run", str(app), "net"]
    ran = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=120)
    assert ran.returncode != 0
    assert "403 Forbidden" in ran.stdout + ran.stderr  # it reached the gate, and went no further
    with superlink.connected(f"127.0.0.1:{net.network.inner_port}", net.network.ca) as inside:
        from flwr.proto.control_pb2 import ListNodesRequest

        assert len(inside.ListNodes(ListNodesRequest()).nodes_info) == 4  # and the inside is well


def test_a_site_that_leaves_for_good_is_spread_over_the_others(tmp_path):
    with deployed(tmp_path, 3) as it:
        member = it.members["site-3"]

        def leave():
            with it.lock:
                it.away.add("site-3")
            it.kill(member.node, member.worker)

        run = it.run(after_round(2, leave), **options("leaving", 7, patience=2, min_sites=2, deadline=12))
        assert any(event["gone"] == ["site-3"] for event in rounds_of(run))
        assert np.abs(it.xi("leaving")[:2].sum(axis=0)).max() <= 1e-10


def test_plain_text_works_where_it_is_asked_for(tmp_path):
    with deployed(tmp_path, 2, insecure=True) as it:
        run = it.run(after_round(1, lambda: it.kill(it.members["site-1"].node)), **options("plain", 3))
        assert_nothing_was_lost(it, run, 3)


def test_the_commands_serve_and_join_survive_kill_9(tmp_path):
    """The supervisors themselves die: their children end with them, and a restart goes on from the disk."""
    it = Deployment(tmp_path, 2)  # for its files; its own processes are never started
    env, children = environment(tmp_path / "home"), {}

    def start(name, *arguments):
        command = [sys.executable, "-c", COMMAND, "network", *arguments]
        children[name] = Child(name, lambda: command, tmp_path / f"{name}.log", env)
        children[name].start()

    def serve():
        start("serve", "serve", str(it.network.folder))

    def join(site):
        data = str(tmp_path / f"{site}.csv")
        start(site, "join", str(it.members[site].folder), "--data", data, "--trust-coordinator", "--yes")

    try:
        serve()
        for site in it.members:
            join(site)
        run = RunFolder.create(it.network, StartOptions(**options("commands", 6)))
        killed, place, end = [], 0, time.monotonic() + 240
        while not run.over:
            assert time.monotonic() < end, it.logs()
            for after, event in run.events(place):
                place = after
                done = event["averages"] if event["event"] == "round" else 0
                for number, name, again in ((1, "site-1", lambda: join("site-1")), (3, "serve", serve)):
                    if done >= number and name not in killed:
                        killed.append(name)
                        os.kill(children[name].pid, signal.SIGKILL)
                        children[name].end()
                        again()
            time.sleep(0.1)
        assert killed == ["site-1", "serve"]
        assert_nothing_was_lost(it, run, 6)
    finally:
        for child in children.values():
            child.end(patience=20)


def test_the_demonstration_ends_beside_the_simulation(tmp_path):
    lines = []
    gap = trial.demo(tmp_path / "demo", say=lines.append)
    missed = any("missed a round" in text for text in lines)
    assert gap <= 1e-9 or missed
    assert any(text.startswith("site-3 is killed") for text in lines)

"""One network of real processes on loopback: what it computes, whom it refuses, and what it survives.

It is one test because it is one deployment: starting it takes longer than everything it then does.
"""

import os
import ssl

import httpx
import numpy as np
import pytest

import fedlsa as fl

pytest.importorskip("flwr")

from deployment import D, deployed

from fedlsa.network.flower import superlink

ETA, H = 0.01, 20
pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # of a library of Flower's


def test_a_network_of_four_sites_computes_what_the_simulation_does_refuses_strangers_and_survives_kills(tmp_path):
    with deployed(tmp_path) as it:
        an_outsider_cannot_submit_a_run_through_the_public_door(it)
        tasks_are_given_only_to_who_has_the_secret(it)
        a_key_that_is_not_registered_is_refused_and_so_is_no_key(it)
        a_wrong_authority_and_plain_text_are_refused(it)
        theta_is_that_of_the_simulation(it)
        a_run_survives_the_death_of_a_site_and_of_the_whole_coordinator(it)
        the_node_of_a_site_gives_tasks_only_to_who_has_its_secret(it)
        refusals_were_logged(it)


def gate_address(it):
    return f"https://127.0.0.1:{it.network.port}"


def trusted(it):
    return ssl.create_default_context(cafile=str(it.network.ca))


def an_outsider_cannot_submit_a_run_through_the_public_door(it):
    outsider = superlink.connected(f"127.0.0.1:{it.network.port}", it.network.ca)
    with outsider as client, pytest.raises(httpx.HTTPStatusError) as refused:
        superlink.start_run(client, "intruder")
    assert refused.value.response.status_code == 403
    paths = ["/v1/control/start-run", "/v1/control/list-nodes", "/v1/runtime/acquire-task", "/v1/fleet/register-node"]
    paths += [
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "//v1/fleet/get-run",
        "/",
        "/docs",
    ]
    with httpx.Client(verify=trusted(it)) as client:
        for path in paths:
            assert client.post(httpx.URL(gate_address(it)).copy_with(raw_path=path.encode())).status_code == 403
        assert client.get(gate_address(it) + "/v1/fleet/pull-messages").status_code == 403


def tasks_are_given_only_to_who_has_the_secret(it):
    assert asked_without_the_secret(it, f"127.0.0.1:{it.network.inner_port}", it.network.ca) == [401, 401]


def the_node_of_a_site_gives_tasks_only_to_who_has_its_secret(it):
    assert asked_without_the_secret(it, f"127.0.0.1:{it.members['site-1'].port}", None) == [401, 401]


def asked_without_the_secret(it, address, ca):
    """What requests for a task get that are right in all but the secret: with another one, or with a guessed token."""
    other = it.root / "other.secret"
    other.write_bytes(os.urandom(32))
    at, out = superlink.TaskSource(address, other, ca), []
    for client in (at.asking(), at.working("guessed", "SuperExec")):
        with pytest.raises(httpx.HTTPStatusError) as refused:
            superlink.acquire(client, "flwr-clientapp")
        client.close()
        out.append(refused.value.response.status_code)
    return out


def a_key_that_is_not_registered_is_refused_and_so_is_no_key(it):
    from cryptography.hazmat.primitives.asymmetric import ec
    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    key = ec.generate_private_key(ec.SECP384R1())
    public = public_key_to_bytes(key.public_key())
    known = superlink.key_bytes(it.network.public_key("site-1"))  # a public key is no secret
    signed = [NodeAuthHttpInterceptor(key, key.public_key())]
    for interceptors, claimed in ((signed, public), ([], public), ([], known), (signed, known)):
        address, ca = f"127.0.0.1:{it.network.port}", it.network.ca.read_bytes()
        stranger = FleetHttpClient.from_server_address(address, False, ca, interceptors)
        with stranger as client, pytest.raises(httpx.HTTPStatusError) as refused:
            client.ActivateNode(ActivateNodeRequest(public_key=claimed, heartbeat_interval=30))
        assert 400 <= refused.value.response.status_code < 500


def a_wrong_authority_and_plain_text_are_refused(it):
    with httpx.Client(verify=ssl.create_default_context()) as stranger, pytest.raises(httpx.ConnectError) as refused:
        stranger.post(gate_address(it) + "/v1/fleet/pull-messages")
    assert "certificate" in str(refused.value).lower()
    with httpx.Client() as plain, pytest.raises(httpx.TransportError):
        plain.post(gate_address(it).replace("https", "http") + "/v1/fleet/pull-messages")


def theta_is_that_of_the_simulation(it):
    run = it.run(step_size=ETA, local_steps=H, rounds=4, seed=5, deadline=300, name="alike")
    found = run.read("result.json")
    problem = fl.problems.regression(it.data)
    options = {"rounds": 4, "seeds": [5], "theta_0": np.zeros(D), "keep": ("theta", "xi")}
    wanted = fl.simulate(problem, fl.SCAFFLSA(ETA, H), **options)
    assert np.abs(np.array(found["theta"]) - wanted.theta.values[0, -1]).max() <= 1e-12
    assert np.abs(it.xi("alike") - wanted.xi.values[0]).max() <= 1e-12
    assert all(messages_up == 4 for _, _, messages_up, _ in found["traffic"].values())


def a_run_survives_the_death_of_a_site_and_of_the_whole_coordinator(it):
    killed = set()

    def kill(event):
        done = event.get("averages", 0) if event["event"] == "round" else 0
        if done >= 1 and "site" not in killed:
            killed.add("site")
            it.kill(it.members["site-2"].node, it.members["site-2"].worker)
        if done >= 3 and "coordinator" not in killed:
            killed.add("coordinator")
            it.kill(it.coordinator.worker, it.coordinator.link, it.coordinator.gate)

    run = it.run(kill, step_size=ETA, local_steps=H, rounds=5, seed=6, deadline=300, name="killed")
    found = run.read("result.json")
    assert killed == {"site", "coordinator"}
    assert found["averages"] == 5
    assert any(event["event"] == "resumed" for _, event in run.events())
    xi = it.xi("killed")
    assert np.abs(xi).max() > 0.1  # sites differ, and have learned how
    assert np.abs(xi.sum(axis=0)).max() <= 1e-10
    problem = fl.problems.regression(it.data)
    options = {"rounds": 5, "seeds": [6], "theta_0": np.zeros(D)}
    wanted = fl.simulate(problem, fl.SCAFFLSA(ETA, H), **options)
    assert np.abs(np.array(found["theta"]) - wanted.theta.values[0, -1]).max() <= 1e-12  # deaths have changed nothing


def refusals_were_logged(it):
    log = (it.network.folder / "logs" / "gate.log").read_text()
    assert "/v1/control/start-run" in log
    assert "refused 127.0.0.1" in log

"""One network of real processes on loopback: what it computes, whom it refuses, and what it survives.

It is one deployment for all of this, since starting it takes longer than what it then does; each part leaves it whole.
"""

import contextlib
import json
import socket
import threading
import time
from datetime import datetime

import numpy as np
import pytest
from authority import Authority
from deployment import D, after_round, deployed, keys, limit_file_size, link, many_sockets

from fedlsa.errors import NetworkError
from fedlsa.network.carriers import SignedSite
from fedlsa.network.disk import Database
from fedlsa.network.folder import certificates, setup
from fedlsa.network.folder.config import Network
from fedlsa.network.protocol.codec import decode
from fedlsa.network.protocol.messages import Orders
from fedlsa.network.site import join as joining
from fedlsa.network.site.orders import OrderHandler
from fedlsa.network.site.site_data import open_data

pytestmark = pytest.mark.long  # real processes, killed and started again
ROUNDS = 60  # so many that what happens in a run happens before its end, also where rounds are short


@pytest.fixture(scope="module")
def proxy():
    """A proxy that nobody should ask: (address, what it was asked)."""
    listening, asked = socket.create_server(("127.0.0.1", 0)), []

    def accept():
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            asked.append(client.recv(300))
            client.close()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
    listening.close()


@pytest.fixture(scope="module")
def it(tmp_path_factory, proxy):
    """Four sites and a coordinator, in an environment that names a proxy, as hospitals' do."""
    names = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "grpc_proxy")
    env = dict.fromkeys(names, proxy[0]) | dict.fromkeys(("NO_PROXY", "no_proxy", "no_grpc_proxy"), "")
    with deployed(tmp_path_factory.mktemp("network"), env=env) as it:
        yield it


def the_right_theta(it, result):
    """Nothing was lost: theta is the simulation's, and the sites' own control variates sum to 0; theta."""
    assert result["averages"] == ROUNDS
    assert np.abs(np.array(result["theta"]) - it.simulated(ROUNDS)).max() <= 1e-12
    assert result["sum_of_xi"] <= 1e-12
    assert result["told"] == sorted(it.sites)
    return result["theta"]


@pytest.fixture(scope="module")
def undisturbed(it):
    """theta of a run in which nothing happens, to the last bit."""
    return the_right_theta(it, it.run("undisturbed", rounds=ROUNDS))


def test_four_sites_compute_what_the_simulation_does_with_sums_alone_and_no_proxy(it, undisturbed, proxy):
    result = json.loads((it.network.runs / "undisturbed" / "result.json").read_text())
    assert result["aggregation"] == "secure"
    assert len(undisturbed) == D
    assert proxy[1] == []
    it.until(lambda: "a run is over" in it.said("site-1"), "the site says that it is over")


def test_a_run_on_rows_drawn_in_secret_goes_to_its_end(it):
    result = it.run("rows", local="rows", rounds=3, step_size=0.00015, local_steps=4000)
    assert result["averages"] == 3
    assert result["sum_of_xi"] <= 1e-12


def test_kill_9_of_anyone_at_several_moments_changes_no_bit(it, undisturbed):
    moments = [
        (2, "site-2", lambda: it.again(it.sites["site-2"])),
        (8, "the coordinator", lambda: it.again(it.serve)),
        (14, "two sites", lambda: it.again(it.sites["site-1"], it.sites["site-4"])),
        (20, "all", lambda: it.again(*it.children)),
    ]
    killed = []

    def watch(event):
        if moments and event["event"] == "round" and event["averages"] >= moments[0][0]:
            _, who, act = moments.pop(0)
            assert not run.over
            act()
            killed.append(who)

    run = it.begin("killed", rounds=ROUNDS)
    it.again(it.serve)  # while it asks for names and sums
    result = it.follow(run, watch)
    assert killed == ["site-2", "the coordinator", "two sites", "all"]
    assert sum(event["event"] == "resumed" for _, event in run.events()) >= 2
    assert the_right_theta(it, result) == undisturbed


def test_strangers_are_refused_while_a_run_goes_on(it, undisturbed, tmp_path):
    forged = Authority(tmp_path / "other").issue("site-1")
    forged.ca = it.network.ca  # it trusts ours; ours does not trust it
    stranger, said = link(it, forged)
    with many_sockets(1200) as count, contextlib.ExitStack() as closing:
        for number in range(count):
            s = closing.enter_context(socket.create_connection(("127.0.0.1", it.network.port), 20))
            if number % 2:
                s.sendall(b"\x16\x03\x01\x02\x00\x01" if number % 3 else b"GET / HTTP/1.1\r\n\r\n")  # half a greeting
        who_returns = after_round(2, lambda: it.again(it.sites["site-3"]))  # is let in
        result = it.run("besieged", rounds=ROUNDS, then=who_returns)
    assert the_right_theta(it, result) == undisturbed
    it.until(lambda: any("does not let this site's certificate in" in line for line in said), "the stranger is refused")
    stranger.stop()
    it.until(lambda: all(it.here(name) for name in it.sites), "all are here")
    assert "E1" not in it.said("serve")  # gRPC does not write a line for each of them
    assert len(it.said("serve").splitlines()) < 300


def test_a_site_that_is_added_joins_at_once_and_is_shut_out_at_once_when_it_is_removed(it):
    setup.add_site(it.network.folder, "guest")
    network = Network.load(it.network.folder)
    folder = setup.enrol(network, network.bundle("guest"), it.root / "guest")
    guest, said = link(it, folder)
    it.until(lambda: it.here("guest"), "the guest is here, without a restart")
    setup.remove_site(it.network.folder, "guest")
    it.until(lambda: any("permission_denied" in line for line in said), "the guest is shut out")
    it.until(lambda: not it.here("guest"), "the coordinator says that the guest has gone")
    it.until(lambda: not guest.connected, "and the guest knows it")
    guest.stop()


def test_garbage_replayed_and_oversized_answers_of_a_keyed_site_change_nothing(it, undisturbed, monkeypatch):
    """Somebody with the key of site-4 answers in its place, and then the true site-4 returns."""
    folder, own = it.folders["site-4"], keys(it, "site-4")
    it.sites["site-4"].end()
    it.until(lambda: not it.here("site-4"), "the true site has gone")
    monkeypatch.setenv("XDG_STATE_HOME", it.env["XDG_STATE_HOME"])
    handler = OrderHandler(folder, open_data(it.root / "site-4.csv", None, folder.task), say=lambda line: None)
    honest, first, sent = SignedSite(folder, handler.respond), [], []

    def answer(order):
        good = honest(order)
        first.append(good)
        if handler.rounds_seen < 1:
            return good
        sent.append(order)
        return [b"garbage", first[0], good[:-1], bytes(2**20), good][min(len(sent) - 1, 4)]

    handler.rounds_seen = 0
    true_answer = handler.respond

    def counting(body):
        handler.rounds_seen += decode(body, Orders).kind == "work"
        return true_answer(body)

    honest.answer = counting
    impostor, _ = link(it, own, answer)
    it.until(lambda: it.here("site-4"), "the impostor is here")
    run = it.begin("tampered", rounds=ROUNDS, strikes=100)

    def watch(event):
        if (
            event["event"] == "round"
            and event["averages"] >= 3
            and impostor is not None
            and not it.sites["site-4"].running
        ):
            impostor.stop()
            it.sites["site-4"].start()

    result = it.follow(run, watch)
    refused = [event["text"] for _, event in run.events() if event["event"] == "refused"]
    assert len(refused) == 4
    assert any("it is to another one" in text for text in refused)
    assert the_right_theta(it, result) == undisturbed


def test_a_full_disk_at_the_coordinator_or_at_a_site_is_survived(it, undisturbed):
    moments, timers = [(3, it.serve), (12, it.sites["site-1"])], []

    def watch(event):
        if moments and event["event"] == "round" and event["averages"] >= moments[0][0]:
            _, child = moments.pop(0)
            assert not run.over
            limit_file_size(child, 0)
            timers.append(threading.Timer(1.5, limit_file_size, (child, None)))
            timers[-1].start()

    run = it.begin("full", rounds=ROUNDS, strikes=1000, most_in_vain=10_000)
    result = it.follow(run, watch)
    for timer in timers:
        timer.join()
    assert len(timers) == 2
    assert the_right_theta(it, result) == undisturbed


def test_a_damaged_state_ends_the_run_with_a_sentence_and_the_next_one_begins(it):
    run = it.begin("damaged", rounds=400)
    it.until(run.stored, "a state was stored")
    it.serve.kill()
    run.store.put("damaged", "state", run.stored()[:100])
    it.serve.start()
    it.until(lambda: run.over, "the run is over")
    assert "damaged" in run.read("failed.json")["error"]
    assert it.run("after", rounds=2)["averages"] == 2


def test_a_second_coordinator_on_the_same_folder_is_refused(it):
    second = it.child("serve", str(it.network.folder), "--no-page", log="second")
    second.start()
    assert second.wait() == 2
    assert f"served already, by the process {it.serve.pid}" in second.said()


def test_one_key_in_two_places_raises_an_alarm_in_the_events_of_the_run(it):
    run = it.begin("alarmed", rounds=2000)
    twin, _ = link(it, keys(it, "site-3"), lambda order: time.sleep(600))
    it.until(lambda: any(event["event"] == "alarm" for _, event in run.events()), "the alarm is in the events")
    twin.stop()
    run.ask_to_stop()
    it.follow(run)


def test_join_refuses_a_certificate_out_of_its_dates_and_speaks_of_the_clock(it, monkeypatch):
    """As on a machine whose clock is years ahead, or behind."""
    for seconds in (4e9, 1e9):
        told = classmethod(lambda cls, tz=None, seconds=seconds: datetime.fromtimestamp(seconds, tz))
        clock = type("Clock", (datetime,), {"now": told})
        monkeypatch.setattr(certificates, "datetime", clock)
        with pytest.raises(NetworkError, match="this machine's clock says"):
            joining.join(it.folders["site-1"].folder, data=it.root / "site-1.csv")


def test_everybody_is_well_at_the_end(it, undisturbed, proxy):
    it.until(lambda: all(it.here(name) for name in it.sites), "all are here")
    assert the_right_theta(it, it.run("last", rounds=ROUNDS)) == undisturbed
    assert proxy[1] == []
    assert "Traceback" not in it.said("serve")
    for name in it.sites:
        assert "Traceback" not in it.said(name)


def test_the_audit_log_and_the_ledgers_are_whole_after_all_that_was_killed(it):
    log = list(Database(it.network.folder).entries())
    assert {"orders", "answers", "approved", "planned", "finished"} <= {entry["event"] for entry in log}
    for folder in it.folders.values():
        assert Database(folder.folder).verify().number > 0

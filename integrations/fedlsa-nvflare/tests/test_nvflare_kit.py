"""The kit for NVIDIA FLARE as files, and the relay over a socket; FLARE itself is not needed here."""

import contextlib
import json
import socket
import threading
import time
from multiprocessing.connection import Connection

import pytest
from fedlsa_nvflare import open_coordinator, open_site, relay
from fedlsa_nvflare.command import main
from fedlsa_nvflare.supervisor import FlareCarrier

from fedlsa.errors import MessageError, NetworkError
from fedlsa.network.folder import setup

SITES = ("lisbon", "oslo", "site-3")


def words(content):
    """Every text in a JSON value, keys included."""
    if isinstance(content, dict):
        return [t for k, v in content.items() for t in (k, *words(v))]
    return [t for v in content for t in words(v)] if isinstance(content, list) else [str(content)]


def flare_folder(tmp_path, side="client", security="mtls", **more):
    """As much of a FLARE folder as hardening looks at."""
    secured = {"connection_security": security}
    content = ({"client": secured} if side == "client" else {"servers": [secured]}) | more
    (tmp_path / "startup").mkdir(parents=True)
    (tmp_path / "startup" / f"fed_{side}.json").write_text(json.dumps(content))
    return tmp_path


def local(folder, name):
    return json.loads((folder / "local" / name).read_text())


def test_the_job_holds_no_code_no_path_and_no_argument():
    files = relay.job_files(SITES)
    assert sorted(files) == [
        "coordinator/config/config_fed_server.json", "meta.json", "site/config/config_fed_client.json",
    ]  # fmt: skip
    assert files["meta.json"]["deploy_map"] == {"coordinator": ["server"], "site": list(SITES)}
    assert "byoc" not in words(list(files.values()))
    assert not [w for w in words(list(files.values())) if "/" in w]
    (executor,) = files["site/config/config_fed_client.json"]["executors"]
    assert executor == {"tasks": [relay.TASK], "executor": {"path": relay.SITE_CLASS, "args": {}}}
    (workflow,) = files["coordinator/config/config_fed_server.json"]["workflows"]
    assert (workflow["path"], workflow["args"]) == (relay.SERVER_CLASS, {})


def test_a_hardened_site_runs_one_class_streams_no_logs_and_gives_nobody_a_right(tmp_path):
    site = flare_folder(tmp_path / "kit")
    assert relay.harden(site, tmp_path / "s.sock") == "site"
    resources, rights = local(site, "resources.json"), local(site, "authorization.json")["permissions"]
    assert resources["class_allow_list"] == [relay.SITE_CLASS, relay.FILTER_CLASS]
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["allow_log_streaming"] is False
    assert not [w for w in words(resources) if "log_streamer" in w.lower()]
    lead = rights.pop("lead")
    assert rights == {"project_admin": "none", "org_admin": "none", "member": "none"}
    allowed = {right for right, who in lead.items() if who != "none"}
    assert allowed == {"submit_job", "manage_job", "view"}
    assert {lead[right] for right in allowed} == {f"n:{relay.SUPERVISOR}"}
    assert {"byoc", "shell_commands", "operate", "download_job", "clone_job"} <= lead.keys()


def test_a_hardened_site_has_one_scope_whose_filters_stand_on_both_ways(tmp_path):
    site = flare_folder(tmp_path / "kit")
    relay.harden(site, tmp_path / "s.sock")
    privacy = local(site, "privacy.json")
    (scope,) = privacy["scopes"]
    assert privacy["default_scope"] == scope["name"]
    assert scope["properties"] == {relay.SOCKET: str(tmp_path / "s.sock")}
    for way in ("task_data_filters", "task_result_filters"):
        assert [f["path"] for f in scope[way]] == [relay.FILTER_CLASS]


def test_a_hardened_server_runs_the_relay_alone_and_receives_no_logs(tmp_path):
    server = flare_folder(tmp_path / "kit", "server")
    assert relay.harden(server, tmp_path / "s.sock") == "server"
    resources = local(server, "resources.json")
    assert resources["class_allow_list"] == [relay.SERVER_CLASS]
    assert not [w for w in words(resources) if "log_receiver" in w.lower() or w.startswith("/tmp/nvflare")]
    assert not (server / "local" / "privacy.json").exists()


@pytest.mark.parametrize("flaw", [{"security": "tls"}, {"security": "clear"}, {"require_signed_jobs": False}])
def test_a_flare_folder_without_mutual_tls_or_signed_jobs_is_not_hardened(tmp_path, flaw):
    folder = flare_folder(tmp_path / "kit", **flaw)
    with pytest.raises(NetworkError, match="mutual TLS and signed jobs"):
        relay.harden(folder, tmp_path / "s.sock")
    assert not (folder / "local").exists()


def test_another_folder_is_not_hardened(tmp_path):
    with pytest.raises(NetworkError, match="must be a FLARE folder"):
        relay.harden(tmp_path, tmp_path / "s.sock")


def test_the_commands_write_the_kit_and_the_limits(tmp_path, capsys):
    setup.init(tmp_path / "net", SITES, "fl.example.org")
    assert not main(["kit", str(tmp_path / "net"), str(tmp_path / "kit")])
    names = sorted(path.stem for path in (tmp_path / "kit").glob("*.yaml"))
    assert names == sorted([*SITES, "server", "supervisor", "profile"])
    profile = json.loads((tmp_path / "kit" / "profile.yaml").read_text())  # JSON is YAML
    assert (profile["connection_security"], profile["server"]["host"]) == ("mtls", "fl.example.org")
    (site,) = json.loads((tmp_path / "kit" / "site-3.yaml").read_text())["participants"]
    assert (site["name"], site["org"], site["type"]) == ("site-3", "site_3", "client")
    assert json.loads((tmp_path / "kit" / relay.TASK / "meta.json").read_text())["name"] == relay.TASK
    assert profile["name"] in (tmp_path / "kit" / "README.md").read_text()
    folder = flare_folder(tmp_path / "flare")
    assert not main(["harden", str(folder), "--socket", str(tmp_path / "s.sock")])
    assert "hardened as a site" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["kit net here", "kit net new --port 0", "kit none new", "harden here --socket s"])
def test_a_command_that_cannot_be_done_ends_with_one_line_and_changes_nothing(tmp_path, capsys, monkeypatch, line):
    setup.init(tmp_path / "net", SITES, "127.0.0.1")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "net"]
    assert not list((tmp_path / "here").iterdir())


def test_the_carrier_opens_a_sites_end_and_names_a_wrong_folder_of_the_supervisor(tmp_path):
    assert isinstance(open_site(str(tmp_path / "s"), bytes, print), relay.RelaySite)
    network = setup.init(tmp_path / "net", SITES, "127.0.0.1")
    with pytest.raises((NetworkError, ModuleNotFoundError), match=r"folder of the supervisor|nvflare"):
        open_coordinator(network, str(tmp_path), print)


def until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def listening(path):
    """A connection to who will listen there: a socket has its name a moment before anybody listens."""
    links = []

    def reached():
        with contextlib.suppress(OSError):
            links.append(relay.connect(path))
        return links

    until(reached)
    return links[0]


@pytest.fixture
def carrier(tmp_path):
    found = FlareCarrier(tmp_path / "c")
    yield found
    found.close()


def speak(carrier, path, job, here=SITES):
    """A job's end of the coordinator's socket."""
    link = relay.connect(path)
    relay.send(link, {"job": job, "here": list(here)})
    return link


def test_a_carrier_hears_the_job_that_is_expected_and_no_other(carrier, tmp_path):
    old = speak(carrier, tmp_path / "c", "old")
    carrier.expect("new")
    new = speak(carrier, tmp_path / "c", "new", ("oslo",))
    until(carrier.present)
    assert carrier.present() == ("oslo",)
    asking = carrier.ask({"oslo": b"order"}, 30.0)
    result = []
    thread = threading.Thread(target=lambda: result.extend(asking))
    thread.start()
    head, body = relay.receive(new)
    assert (head["site"], body) == ("oslo", b"order")
    relay.send(old, {"job": "old", "site": "oslo", "ask": head["ask"]}, b"forged")
    relay.send(new, {"job": "new", "site": "oslo", "ask": head["ask"] - 1}, b"late")
    relay.send(new, {"job": "new", "site": "lisbon", "ask": head["ask"]}, b"unasked")
    relay.send(new, {"job": "new", "site": "oslo", "ask": head["ask"]}, b"answer")
    thread.join(30)
    assert result == [("oslo", b"answer")]
    assert not old.poll(0)  # it was told nothing


def test_orders_are_given_again_to_the_job_that_replaces_a_dead_one(carrier, tmp_path):
    carrier.expect("first")
    first = speak(carrier, tmp_path / "c", "first")
    until(carrier.present)
    result = []
    thread = threading.Thread(target=lambda: result.extend(carrier.ask({"oslo": b"a", "lisbon": b"b"}, 30.0)))
    thread.start()
    heads = [relay.receive(first)[0] for _ in range(2)]
    relay.send(first, {"job": "first", "site": "oslo", "ask": heads[0]["ask"]}, b"A")
    until(lambda: result)
    first.close()
    until(lambda: not carrier.present())
    carrier.expect("second")
    second = speak(carrier, tmp_path / "c", "second")
    head, body = relay.receive(second)
    assert (head["site"], body) == ("lisbon", b"b")  # oslo has answered
    relay.send(second, {"job": "second", "site": "lisbon", "ask": head["ask"]}, b"B")
    thread.join(30)
    assert result == [("oslo", b"A"), ("lisbon", b"B")]


def test_a_job_that_leaves_while_the_carrier_closes_is_closed_once(carrier, tmp_path, monkeypatch):
    closed, close = [], Connection._close

    def slow(link):
        closed.append(link)
        time.sleep(0.3)  # long enough that whoever else would close it does so meanwhile
        close(link)

    carrier.expect("job")
    job = speak(carrier, tmp_path / "c", "job")
    until(carrier.present)
    monkeypatch.setattr(Connection, "_close", slow)
    job.close()
    until(lambda: len(closed) == 2)
    carrier.close()
    until(lambda: closed[1].closed)
    assert len(closed) == 2  # each end, by who reads from it


def test_a_carrier_that_closes_ends_its_job_s_connection(carrier, tmp_path):
    carrier.expect("job")
    job = speak(carrier, tmp_path / "c", "job")
    until(carrier.present)
    carrier.close()
    assert job.poll(30)
    with pytest.raises(EOFError):
        relay.receive(job)


def test_a_site_answers_over_its_socket_refuses_what_is_forged_and_survives_silence(tmp_path, monkeypatch):
    monkeypatch.setattr(relay, "SILENCE", 0.2)
    said = []

    def answer(order):
        if order != b"signed":
            raise MessageError("the signature is not the coordinator's")
        return b"sealed"

    site = relay.RelaySite(tmp_path / "s", answer, said.append)
    thread = threading.Thread(target=site.run)
    thread.start()
    silent = listening(tmp_path / "s")  # stays without a word
    for order, expected in ((b"forged", relay.REFUSED), (b"signed", b"sealed")):
        with relay.connect(tmp_path / "s") as link:
            link.send_bytes(order)
            assert link.recv_bytes() == expected
    site.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert len(said) == 1
    assert "signature" in said[0]
    silent.close()


def test_a_socket_is_closed_to_others_and_its_path_may_not_be_too_long(tmp_path):
    with relay.listening(tmp_path / "s"):
        assert (tmp_path / "s").stat().st_mode & 0o777 == 0o660
    with pytest.raises(NetworkError, match="at most 107 bytes"):
        relay.RelaySite(tmp_path / ("s" * 120), bytes)
    with pytest.raises(NetworkError, match="folder must exist"):
        relay.RelaySite(tmp_path / "none" / "s", bytes)


def test_a_file_in_the_place_of_a_socket_is_never_removed(tmp_path):
    table = tmp_path / "data.csv"
    table.write_text("a,y\n1,2\n")
    with pytest.raises(NetworkError, match="must be a socket or a new name"):
        relay.RelaySite(table, bytes)
    with pytest.raises(NetworkError, match="must be a socket or a new name"):
        FlareCarrier(table)
    assert table.exists()


def test_a_socket_that_a_killed_process_left_is_replaced(tmp_path):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    with relay.listening(tmp_path / "s"), relay.connect(tmp_path / "s"):
        pass


def test_a_message_without_a_head_is_an_error(tmp_path):
    with relay.listening(tmp_path / "s") as listener, relay.connect(tmp_path / "s") as link:
        link.send_bytes(b"[1]\nbody")
        with listener.accept() as other, pytest.raises(MessageError, match="JSON object"):
            relay.receive(other)

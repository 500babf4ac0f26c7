"""The pages, /health and /metrics: what they say, and what whoever reaches the port can try."""

import contextlib
import http.client
import json
import math
import re
import socket
import time
from datetime import datetime, timedelta

import pytest
from shown_runs import HOSTILE, SITES, add_events, fill_ledger, round_event, write_run
from stores import change

from fedlsa.errors import ArgumentError, NetworkError
from fedlsa.network import pages
from fedlsa.network.coordinator import runs
from fedlsa.network.coordinator.runs import RunFolder
from fedlsa.network.disk import Database
from fedlsa.network.folder import setup
from fedlsa.network.pages import CoordinatorState, SiteState
from fedlsa.network.site.policy import Policy
from fedlsa.pages import web_server
from fedlsa.theory.privacy import epsilon_of

SECRETS = ("BEGIN", "PRIVATE", "theta")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return setup.init(tmp_path_factory.mktemp("network") / "net", SITES, "127.0.0.1", 9092)


@pytest.fixture
def network(folder):
    yield folder
    for run in folder.runs.iterdir():
        for file in run.iterdir():
            file.unlink()
        run.rmdir()


@pytest.fixture
def page(network):
    shown = CoordinatorState(network, lambda: SITES[:3]).show(0)
    yield shown
    shown.close()


def get(page, path="/", method="GET", host=None, headers=()):
    """(code, headers, body)."""
    link = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    link.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for value in [f"127.0.0.1:{page.port}"] if host is None else host:
        link.putheader("Host", value)
    for name, value in headers:
        link.putheader(name, value)
    link.endheaders()
    answer = link.getresponse()
    out = answer.status, dict(answer.getheaders()), answer.read()
    link.close()
    return out


def state(network, present=SITES, alive=lambda: True):
    return CoordinatorState(network, lambda: present, alive)


# what it says


def test_a_run_is_shown_with_its_rounds_sites_late_ones_bytes_and_curve(network):
    events = [{"time": 1.0, "event": "planned", "text": "a plan", "rounds": 140}]
    events += [round_event(k, error=0.9**k) for k in range(1, 6)]
    events += [{"time": 2.0, "event": "refused", "site": "berlin", "text": "a wrong shape"}]
    events += [round_event(k, missing=["oslo"], error=0.9**k) for k in (6, 7)]
    write_run(network, events=events)
    now = state(network, SITES[:3]).content()
    run = now["run"]
    assert (run["name"], run["state"], run["planned"], run["averages"], run["rounds"]) == (
        "trial",
        "running",
        140,
        7,
        7,
    )
    assert (run["up"], run["down"], run["seconds"]) == (7 * 3600, 7 * 4800, 0.05)
    assert run["curve"] == [(k, 0.9**k) for k in range(1, 8)]
    sites = {s["name"]: s for s in now["sites"]}
    assert [sites[s]["present"] for s in SITES] == [True, True, True, False]
    assert [sites[s]["standing"] for s in SITES] == ["answered"] * 3 + ["late"]
    assert [sites[s]["missed"] for s in SITES] == [0, 0, 0, 2]
    assert [sites[s]["refused"] for s in SITES] == [0, 1, 0, 0]
    assert sites["lisbon"]["up"], sites["lisbon"]["down"] == (6300, 8400)
    assert now["status"] == "degraded"
    assert now["why"] == ["not connected: oslo"]
    said = "size 1.00e-01, error 4.78e-01, up 25.2 kB, down 33.6 kB, 0.1 s"
    assert now["events"][0]["text"] == f"round 7: 3 of 4 sites, missing: oslo, {said}"


def test_a_site_that_is_gone_stays_so_until_it_answers(network):
    gone = [round_event(1), round_event(2, missing=["oslo"], gone=["oslo"])]
    gone += [round_event(3, sites=list(SITES[:3]), missing=[])]
    write_run(network, events=gone)
    assert state(network).content()["sites"][3]["standing"] == "gone"
    write_run(network, events=[*gone, round_event(4)])
    assert state(network).content()["sites"][3]["standing"] == "answered"


def test_the_prediction_is_the_rate_of_the_plan_from_the_first_estimate_down_to_the_goal(network):
    write_run(network, events=[round_event(k, error=None if k < 3 else 0.5 * 0.8**k) for k in range(1, 9)])
    predicted = state(network).content()["run"]["prediction"]
    assert "10% less with every round" in predicted["label"]
    for k, value in predicted["points"]:
        assert value == pytest.approx(0.5 * 0.8**3 * 0.9 ** (k - 3), rel=1e-12)
    needed = math.ceil(math.log(0.02 / (0.5 * 0.8**3)) / math.log(0.9))
    assert predicted["points"][0][0] == 3
    assert predicted["points"][-1][0] == 3 + needed
    assert predicted["points"][-1][1] <= 0.02 < predicted["points"][-2][1]


def test_a_curve_that_the_plan_stored_is_shown_as_exact(network):
    write_run(network, events=[round_event(1, error=0.5)], terms={"rate": None, "curve": [[0, 1.0], [1, 0.4]]})
    predicted = state(network).content()["run"]["prediction"]
    assert predicted["points"] == [[0, 1.0], [1, 0.4]]
    assert "exact" in predicted["label"]


def test_nothing_is_predicted_where_nothing_was_planned(network):
    write_run(network, events=[round_event(1, error=0.5)], terms={"rate": None, "epsilon": None})
    assert state(network).content()["run"]["prediction"] is None


def test_events_are_read_as_they_come_and_a_long_curve_is_thinned(network, monkeypatch):
    monkeypatch.setattr(runs, "CURVE_POINTS", 20)
    folder = write_run(network, events=[round_event(k, error=1 / k) for k in range(1, 4)])
    seen = state(network)
    assert seen._content()["run"]["averages"] == 3
    add_events(RunFolder(folder), *(round_event(k, error=1 / k) for k in range(4, 1000)))
    now = seen._content()
    assert now["run"]["averages"] == 999
    curve = now["run"]["curve"]
    assert len(curve) <= 40
    assert all(value == 1 / k for k, value in curve)
    assert curve[-1][0] > 900
    assert len(now["events"]) == runs.SHOWN_EVENTS


@pytest.mark.parametrize(
    ("files", "events", "said"),
    [
        ({}, [], "planning"),
        ({}, [{"event": "waiting", "text": "waiting for oslo"}], "waiting"),
        ({"result": {"over": "all rounds are done"}}, [round_event(1)], "over"),
        ({"failed": {"error": "no plan"}}, [{"event": "failed", "text": "no plan"}], "failed"),
    ],
)
def test_the_state_of_a_run_in_a_word(network, files, events, said):
    write_run(network, events=events, **files)
    now = state(network).content()
    assert now["run"]["state"] == said
    assert (now["status"] == "degraded") == (said == "failed")


def test_events_of_another_version_do_not_break_the_page(network):
    odd = round_event(2, error=float("nan"))
    write_run(network, events=[{"event": "round"}, {"event": 7}, {"event": "new kind"}, odd])
    now = state(network)
    assert json.loads(now.state().body)["run"]["averages"] == 2
    assert now.metrics().code == now.health().code == 200


def test_sites_that_come_and_go_are_shown_without_a_restart(tmp_path):
    made = setup.init(tmp_path / "net", SITES, "127.0.0.1", 9092)
    seen = state(made)
    assert [s["name"] for s in seen._content()["sites"]] == list(SITES)
    setup.add_site(made.folder, "porto")
    assert [s["name"] for s in seen._content()["sites"]] == [*SITES, "porto"]
    (made.folder / "network.toml").write_text("damaged")
    assert [s["name"] for s in seen._content()["sites"]] == [*SITES, "porto"]  # what was known stays


def test_no_run_yet(network):
    now = state(network).content()
    assert now["run"] is None
    assert now["status"] == "ok"


def test_what_others_wrote_is_one_line_without_control_characters(network):
    write_run(network, events=[{"time": 1.0, "event": "refused", "site": "oslo", "text": HOSTILE}])
    text = state(network).content()["events"][0]["text"]
    assert "<img src=x onerror=alert(1)>" in text  # text it stays: the page never takes it for markup
    assert text.isprintable()


def test_what_sites_have_spent_is_what_their_receipts_say_whatever_else_stands_in_them(network):
    def receipt(**said):
        return json.dumps({"said": json.dumps(said), "signature": "00"})

    path = network.folder / "receipts.json"
    path.write_text(json.dumps({"amsterdam": receipt(rho=0.1, budget=0.4), "berlin": receipt(rho="<b>", budget=[])}))
    write_run(network, events=[round_event(1, aside=["oslo"])])
    sites = {s["name"]: s for s in state(network).content()["sites"]}
    assert (sites["amsterdam"]["rho"], sites["amsterdam"]["budget"]) == (0.1, 0.4)
    assert (sites["berlin"]["rho"], sites["berlin"]["budget"]) == (None, None)
    assert sites["oslo"]["standing"] == "put aside"
    assert 'fedlsa_privacy_rho{run="trial",site="amsterdam"} 0.1' in state(network).metrics().body.decode()
    path.write_text(json.dumps({"berlin": "{", "oslo": 7, "amsterdam": receipt(rho=0.1, budget=0.4)}))
    sites = {s["name"]: s for s in state(network).content()["sites"]}
    assert (sites["amsterdam"]["rho"], sites["berlin"]["rho"]) == (0.1, None)  # one bad receipt hides no other
    for junk in ("[]", '{"amsterdam": "{}"}', '{"amsterdam": 7}', "{", '{"amsterdam": "{\\"said\\": \\"[1]\\"}"}'):
        path.write_text(junk)
        assert state(network).content()["sites"][0]["rho"] is None
    path.unlink()


@pytest.mark.parametrize("junk", ["{", "[]", "\xff"])
def test_a_damaged_end_of_a_run_hides_nothing_else(network, junk):
    folder = write_run(network, events=[round_event(1)])
    (folder / "result.json").write_text(junk, encoding="latin1")
    assert state(network).content()["run"]["rounds"] == 1


# /health and /metrics


def test_health_is_ok_degraded_or_dead_with_503(network):
    write_run(network, events=[round_event(1)])
    for present, alive, code, status in (
        (SITES, True, 200, "ok"),
        ((), True, 200, "degraded"),
        (SITES, False, 503, "dead"),
    ):
        shown = state(network, present, lambda alive=alive: alive).health()
        told = json.loads(shown.body)
        assert (shown.code, told["status"]) == (code, status)
        assert set(told) == {"status", "version", "protocol", "run", "why", "expiring"}
        assert told["run"] == {"name": "trial", "state": "running"}


def test_health_names_certificates_that_end_within_thirty_days(network, monkeypatch):
    from fedlsa.network.folder import certificates, config

    end = certificates.expires(network.certificate.read_bytes())
    late = type("Late", (datetime,), {"now": classmethod(lambda cls, zone=None: end - timedelta(days=9))})
    monkeypatch.setattr(config, "datetime", late)
    told = json.loads(state(network).health().body)
    assert told["status"] == "degraded"
    assert len(told["expiring"]) == 1
    assert "server.pem" in told["expiring"][0]
    assert str(network.folder) not in told["expiring"][0]  # paths of this machine are nobody's business


SAMPLE = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*\})? '
    r"(-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Inf)|NaN)"
)


def parse_exposition(text):
    """Prometheus' text format, strictly: {name: {labels: value}}; each family together, HELP and TYPE first."""
    families, kinds, current = {}, {}, None
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            if word == "HELP":
                assert name not in families
                current, families[name] = name, {}
                continue
            assert word == "TYPE"
            assert name == current
            assert not families[name]
            assert rest in ("counter", "gauge")
            kinds[name] = rest
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        assert name == current
        assert (labels or "") not in families[name]
        families[name][labels or ""] = float(value)
    assert set(kinds) == set(families)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds.items())
    return families


def test_metrics_are_in_the_exposition_format(network):
    write_run(
        network, events=[*(round_event(k, error=1e-7 * k) for k in (1, 2, 3)), {"event": "alarm", "text": "two places"}]
    )
    shown = state(network, SITES[:3]).metrics()
    assert shown.kind.startswith("text/plain; version=0.0.4")
    found = parse_exposition(shown.body.decode())
    run = '{run="trial"}'
    assert found["fedlsa_up"] == {"": 1}
    assert found["fedlsa_sites_present"] == {"": 3}
    assert found["fedlsa_run_rounds_total"] == {run: 3}
    assert found["fedlsa_run_averages_total"] == {run: 3}
    assert found["fedlsa_run_alarms"] == {run: 1}
    assert found["fedlsa_run_last_round_seconds"] == {run: 0.05}
    assert found["fedlsa_run_estimated_error"] == {run: pytest.approx(3e-7)}
    assert found["fedlsa_run_bytes_total"]['{run="trial",site="oslo",direction="up"}'] == 2700
    assert len(found["fedlsa_run_refused_total"]) == 4


def test_labels_cannot_break_out_of_their_quotes():
    text = pages.exposition([("fedlsa_x", "a\\b\nc", [({"site": 'o"} 1\nfedlsa_forged 2\\'}, 1.0)])])
    assert len(text.splitlines()) == 3
    assert set(parse_exposition(text)) == {"fedlsa_x"}


# the site's page


@pytest.fixture
def site(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder.site_certificate("lisbon").unlink(missing_ok=True)
    return setup.enrol(folder, folder.bundle("lisbon"), tmp_path / "lisbon")


def ledger_of(site, policy):
    from fedlsa.network.folder.certificates import private_key
    from fedlsa.network.site.ledger import Ledger, copy_place

    place = copy_place(policy.ledger_copy, site.network, site.name)
    return Ledger(Database(site.folder), place, site.name, private_key(site.key.read_bytes()))


def test_a_site_shows_what_was_asked_what_left_and_what_is_left_of_its_budget(site):
    policy = Policy(privacy="site", epsilon=2.0, delta=1e-5)
    ledger = ledger_of(site, policy)
    fill_ledger(ledger)
    now = SiteState(site, policy, ledger, lambda: True, lambda: True).content()
    assert now["status"] == "ok"
    assert now["totals"] == {"answers": 4, "runs": 1, "rounds": 3, "noised": 3, "rho": pytest.approx(0.03)} | {
        "noised_site": 3,
        "rho_site": pytest.approx(0.03),
    }
    assert (now["refusals"], now["ledger"]["numbers"], now["ledger"]["whole"]) == (1, 28, True)
    assert now["budget"]["spent"] == pytest.approx(epsilon_of(0.03, 1e-5))
    assert now["budget"]["total"] == 2.0
    newest = now["entries"][0]
    assert (newest["number"], newest["left"]) == (5, "refusal")
    assert newest["text"].isprintable()
    assert newest["run"].isprintable()
    assert (now["entries"][1]["round"], now["entries"][1]["numbers"], now["entries"][1]["rho"]) == (3, 9, 0.01)
    assert now["ledger"]["head"] == str(ledger.head)
    assert any("differentially private" in text for text in now["policy"])


def test_a_ledger_that_was_changed_is_shown_as_not_whole(site):
    policy = Policy()
    ledger = ledger_of(site, policy)
    fill_ledger(ledger)
    for changed in ("update chain set entry = replace(entry, 'w2', 'w7')", "delete from chain where number > 2"):
        change(site.folder, changed)
        now = SiteState(site, policy, ledger, lambda: True, lambda: True)
        assert now.content()["ledger"]["whole"] is False
        assert now.content()["status"] == "degraded"
        assert parse_exposition(now.metrics().body.decode())["fedlsa_site_ledger_whole"] == {"": 0}


def test_a_ledger_that_was_written_anew_is_shown_as_not_whole(site):
    """Every entry of it holds the one before it, and there are as many: only the head that is known tells."""
    ledger = ledger_of(site, Policy())
    fill_ledger(ledger)
    change(site.folder, "delete from chain")
    for k in range(ledger.head.number + 1):
        Database(site.folder).append({"asked": "describe", "left": "nothing", "text": f"forged {k}"})
    now = SiteState(site, Policy(), ledger, lambda: True, lambda: True).content()
    assert now["ledger"]["whole"] is False
    assert "it was written anew" in now["ledger"]["text"]


def test_a_long_ledger_is_not_read_at_every_look(site, monkeypatch):
    policy = Policy()
    ledger = ledger_of(site, policy)
    fill_ledger(ledger)
    seen, real = [], ledger.store.entries
    monkeypatch.setattr(ledger.store, "entries", lambda *after: seen.extend([1] * (not after)) or real(*after))
    now = SiteState(site, policy, ledger, lambda: True, lambda: True)
    for _ in range(5):
        now._content()
    assert len(seen) == 1  # nothing new
    now._verify_again = time.monotonic() + 1000
    ledger.refuse("trial", "work", "another")
    assert now._content()["entries"][0]["text"] == "another"
    assert len(seen) == 1
    now._verify_again = 0
    assert now._content()["ledger"]["head"] == str(ledger.head)
    assert len(seen) == 2


def test_the_health_and_metrics_of_a_site(site):
    policy = Policy()
    ledger = ledger_of(site, policy)
    fill_ledger(ledger)
    for connected, alive, code, status in (
        (True, True, 200, "ok"),
        (False, True, 200, "degraded"),
        (True, False, 503, "dead"),
    ):
        now = SiteState(site, policy, ledger, lambda c=connected: c, lambda a=alive: a)
        shown = now.health()
        assert (shown.code, json.loads(shown.body)["status"]) == (code, status)
        found = parse_exposition(now.metrics().body.decode())
        assert found["fedlsa_site_connected"] == {"": connected}
        assert found["fedlsa_site_answers_total"] == {"": 4}
        assert found["fedlsa_site_numbers_total"] == {"": 28}
        assert "fedlsa_site_epsilon_spent" not in found  # the policy asks for no noise


def test_the_page_of_a_site_shows_no_secret(site):
    policy = Policy(ledger_copy=str(site.folder.parent / "copies"))
    ledger = ledger_of(site, policy)
    fill_ledger(ledger)
    site.results.mkdir()
    (site.results / "trial.json").write_text('{"coefficients": [3.14159265]}')
    shown = SiteState(site, policy, ledger).show(0)
    assert get(shown, "/")[0] == get(shown, "/site.js")[0] == 200
    assert get(shown, "/coordinator.js")[0] == 404
    for path in ("/state.json", "/health", "/metrics"):
        code, _, body = get(shown, path)
        assert code == 200
        for private in ("3.14159", *SECRETS, site.key.read_text()[40:80], site.mask_key.read_text()[40:60]):
            assert private not in body.decode()
        assert str(site.folder.parent) not in body.decode()
    assert json.loads(get(shown, "/state.json")[2])["results"][0]["name"] == "trial"
    shown.close()


# what whoever reaches the port can try


def test_pages_are_served_with_headers_that_allow_nothing_else(page):
    for path, kind in {"/": "text/html", "/page.css": "text/css", "/coordinator.js": "text/javascript"}.items():
        code, headers, body = get(page, path)
        assert code == 200
        assert headers["Content-Type"].startswith(kind)
        assert len(body) == int(headers["Content-Length"]) > 500
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert not {"Access-Control-Allow-Origin", "Set-Cookie", "Server"} & set(headers)


def test_the_static_files_have_no_markup_from_text_no_inline_code_and_nothing_from_elsewhere():
    from importlib import resources

    for file in resources.files("fedlsa.network.pages").joinpath("static").iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|setAttribute\(.on", text
        )
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), file.name
        if file.name.endswith(".html"):
            assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?![^>]*\ssrc=)", text)


def test_no_secret_and_no_vector_is_shown(network, page):
    write_run(
        network,
        events=[round_event(1, error=0.5)],
        terms={"rate": 0.1, "epsilon": 0.1, "scale": {"mean": [123.456789]}, "one_shot": [987.654321]},
        result={"over": "done", "theta": [3.14159265], "coefficients": [2.71828182], "experiment": "trial"},
    )
    for path in ("/state.json", "/health", "/metrics"):
        body = get(page, path)[2].decode()
        for private in ("123.456789", "987.654321", "3.14159", "2.71828", *SECRETS, network.key.read_text()[40:80]):
            assert private not in body
        assert str(network.folder.parent) not in body


@pytest.mark.parametrize("path", ["/x", "/../network.toml", "/state.json?x=1", "/static/page.js", "/%2e%2e/ca.key"])
def test_only_listed_paths_are_answered(page, path):
    code, headers, body = get(page, path)
    assert (code, body) == (404, b"there is no such page\n")
    assert headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "<b>"])
def test_only_get_and_head_are_answered(page, method):
    code, _, body = get(page, "/state.json", method)
    assert code == 501
    assert body == b"only GET, of the pages that are there\n"
    assert get(page, "/health", "HEAD")[2] == b""


@pytest.mark.parametrize(
    "host",
    [[], ["evil.example"], ["127.0.0.1.evil.example"], ["localhost.evil.example:80"], [""],
     ["127.0.0.1", "evil.example"], ["evil.example:127.0.0.1"], ["[::1].evil.example"], ["0x7f.1"], ["amsterdam"]],
)  # fmt: skip
def test_a_name_that_somebody_else_made_mean_this_machine_is_refused(page, host):
    code, _, body = get(page, "/state.json", host=host)
    assert code == 421
    assert b"sites" not in body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "[::1]:9", "10.1.2.3:9093"])
def test_numbers_and_localhost_are_allowed(network, host):
    shown = CoordinatorState(network, lambda: SITES).show(0)
    assert get(shown, "/health", host=[host])[0] == 200
    shown.close()


def test_silent_slow_and_oversized_clients_do_not_keep_others_out(page, monkeypatch):
    """Three times as many connections as there are places, none of which ever asks anything."""
    silent = [
        socket.create_connection(("127.0.0.1", page.port), timeout=60) for _ in range(3 * web_server.MAX_CONNECTIONS)
    ]
    for k, link in enumerate(silent):
        if k % 2:
            link.sendall(b"GET /state.json HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")  # and never goes on
    for _ in range(5):
        assert get(page, "/health")[0] == 200
    assert len(page._server.connected) <= web_server.MAX_CONNECTIONS
    with contextlib.suppress(ConnectionResetError):
        assert silent[0].recv(10) == b""  # the oldest were let go
    for link in silent:
        link.close()


def until_closed(link, part, times, pause):
    """Whether the other side closes while a part is sent again and again."""
    try:
        for _ in range(times):
            link.sendall(part)
            time.sleep(pause)
    except OSError:  # reset, or a broken pipe
        return True
    return False


def test_a_request_has_its_time_however_slowly_it_comes(network, monkeypatch):
    monkeypatch.setattr(web_server, "REQUEST_SECONDS", 1.0)
    shown = CoordinatorState(network, lambda: SITES).show(0)
    with socket.create_connection(("127.0.0.1", shown.port), timeout=60) as link:
        # a byte every tenth of a second would keep a limit per read waiting for ever
        assert until_closed(link, b"x", 300, 0.1), "still connected after 30 seconds"
    shown.close()


def test_a_request_that_is_too_long_is_not_read_to_its_end(page):
    with socket.create_connection(("127.0.0.1", page.port), timeout=60) as link:
        assert until_closed(link, b"x" * 4096, 2000, 0.001), "eight megabytes were taken"
    assert get(page, "/health")[0] == 200


MANY_HEADERS = b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n"


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", MANY_HEADERS])
def test_junk_is_answered_with_a_refusal_or_not_at_all(page, junk):
    with socket.create_connection(("127.0.0.1", page.port), timeout=60) as link:
        link.sendall(junk)
        got = b"".join(iter(lambda: link.recv(4096), b""))
    assert got == b"" or b"only GET, of the pages that are there" in got
    assert get(page, "/health")[0] == 200


def test_a_page_that_cannot_be_made_is_a_500_that_says_nothing(network, caplog):
    def broken():
        raise RuntimeError("a secret of ours")

    shown = CoordinatorState(network, broken).show(0)
    code, _, body = get(shown, "/state.json")
    assert (code, body) == (500, b"the page could not be made; the log says why\n")
    assert "a secret of ours" in caplog.text
    shown.close()


def test_ports_that_are_taken_or_wrong_are_said(network, page):
    with pytest.raises(NetworkError, match=r"cannot show a page at 127\.0\.0\.1"):
        CoordinatorState(network, lambda: SITES).show(page.port)
    with pytest.raises(ArgumentError, match="port"):
        CoordinatorState(network, lambda: SITES).show(70000)
    with pytest.raises(NetworkError, match="cannot show a page"):
        CoordinatorState(network, lambda: SITES).show(0, address="no address")


def test_the_page_listens_on_loopback_and_a_closed_one_is_gone(network):
    shown = CoordinatorState(network, lambda: SITES).show(0)
    assert shown.url == f"http://127.0.0.1:{shown.port}/"
    assert shown._server.socket.getsockname()[0] == "127.0.0.1"
    silent = socket.create_connection(("127.0.0.1", shown.port), timeout=60)
    shown.close()
    with contextlib.suppress(ConnectionResetError):
        assert silent.recv(10) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", shown.port), timeout=5)


def test_an_exact_plan_keeps_its_curve_which_ends_at_the_error_that_it_promises():
    import numpy as np

    import fedlsa as fl
    from fedlsa.fitting.run_plan import plan_from_moments, stack_moments
    from fedlsa.network.protocol.messages import Measurement

    p = fl.problems.garnet(agents=3, states=6, features=2, seed=1)
    no_noise = np.zeros((3, 6))
    share = np.zeros((0, 1), np.int16)
    said = [Measurement("r", 100, 1, 0.0, share, A, b, no_noise) for A, b in zip(p.A_bar, p.b_bar, strict=True)]
    plan = plan_from_moments(stack_moments(said, p.weights), None, (), 0.2, "scafflsa", local="means")
    rounds, errors = zip(*plan.curve, strict=True)
    assert (rounds[0], rounds[-1]) == (0, plan.rounds)
    assert errors[-1] <= 0.2 < errors[-2]
    assert errors[0] == pytest.approx(np.linalg.norm(p.theta_star), rel=1e-9)

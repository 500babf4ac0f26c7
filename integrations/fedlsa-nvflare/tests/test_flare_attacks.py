"""A FLARE server that has been taken over, against hardened sites: `make test-nvflare`.

The server here has no limits of its own: its class list is open, everybody has every right, it takes logs, and it loads
a controller of the attacker's. What stops it are the sites' own files and our signatures. One site has the files that
FLARE gives it by default: there some attacks succeed, which shows that they are real.
"""

import json
import socket
import ssl
from pathlib import Path

import pytest

pytest.importorskip("nvflare.apis", reason="needs nvflare: make test-nvflare has an environment of its own")

from fedlsa_nvflare import relay
from flare_machines import PATIENCE, SERVER, SITES, Machines
from hostile_job import ATTACKS
from nvflare.fuel.flare_api.api_spec import NoConnection

EXECUTOR = {"path": relay.SITE_CLASS, "args": {}}
SOFT, HARD = "site-3", ("site-1", "site-2")
TAKES_LOGS = {"id": "log_receiver", "path": "nvflare.app_common.logging.job_log_receiver.JobLogReceiver", "args": {}}
FOREIGN = """
import pathlib, sys
site = next(name for name in ("site-1", "site-2", "site-3") if any(word.endswith(name) for word in sys.argv))
pathlib.Path(TRACE, site).touch()
from nvflare.apis.executor import Executor
class Foreign(Executor):
    def execute(self, *_):
        raise ValueError("a row of the table")
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    found = Machines(tmp_path_factory.mktemp("a"))
    local = found.kit(SERVER) / "local"
    resources = json.loads((local / "resources.json").read_text()) | {"class_allow_list": ["*"]}
    resources["components"].append(TAKES_LOGS)
    for name in ("resources.json", "authorization.json", "privacy.json"):
        (found.kit(SOFT) / "local" / name).unlink()
    rights = {"format_version": "1.0", "permissions": dict.fromkeys(relay.ROLES, "any")}
    relay.write_files(local, {"resources.json": resources, "authorization.json": rights})
    found.start_flare(SERVER, PYTHONPATH=str(Path(__file__).parent), HOSTILE_OUT=str(found.folder / "seen.json"))
    for site in SITES:
        found.start_flare(site)
    found.start_site("site-1", "--carrier", f"nvflare:{found.socket('site-1')}")
    yield found
    found.close()


@pytest.fixture(scope="module")
def session(machines):
    found = machines.session()

    def idle():
        try:
            return [e for e in found.get_client_job_status() or () if e.get("status") == "no_jobs"]
        except NoConnection:  # a server that still starts, on a busy machine
            return []

    machines.until(lambda: len(idle()) == len(SITES), "all FLARE clients are there")
    machines.until(machines.socket("site-1").exists, "the site listens")
    yield found
    found.close()


def run_job(machines, session, name, executor, code=None, sites=SITES):
    """Submit a job whose controller is the attacker's; how it ended."""
    files = relay.job_files(sites)
    server, client = (next(c for f, c in files.items() if f.endswith(f"fed_{s}.json")) for s in ("server", "client"))
    server["workflows"] = [{"id": "hostile", "path": "hostile_job.HostileController", "args": {}}]
    client["executors"] = [{"tasks": ["*"], "executor": executor}]
    files["meta.json"]["name"] = name
    folder = machines.folder / name
    relay.write_files(folder, files)
    if code is not None:
        (folder / "site" / "custom").mkdir()
        (folder / "site" / "custom" / "foreign.py").write_text(code)
    job = session.submit_job(str(folder))
    machines.until(lambda: str(session.get_job_status(job)).startswith("FINISHED"), f"{name} is over")
    return session.get_job_meta(job)


@pytest.fixture(scope="module")
def code_job(machines, session):
    """What FLARE says of a job with foreign code; each site that loads it leaves a trace."""
    (machines.folder / "trace").mkdir()
    code = FOREIGN.replace("TRACE", repr(str(machines.folder / "trace")))
    return json.dumps(run_job(machines, session, "code", {"path": "foreign.Foreign", "args": {}}, code))


def test_a_job_with_foreign_code_is_refused_by_hardened_sites_and_never_loaded_there(machines, code_job):
    assert [path.name for path in (machines.folder / "trace").iterdir()] == [SOFT]
    assert code_job.count("BYOC not permitted") >= len(HARD)


def test_logs_of_hardened_sites_do_not_reach_the_server(machines, session, code_job):
    run_job(machines, session, "class-again", {"path": "subprocess.Popen", "args": {}})  # an error at every site
    logs = list((machines.folder / "jobs").rglob("*LOG_*"))
    assert {path.name for path in logs} == {f"ERRORLOG_{SOFT}"}
    assert [path for path in logs if "a row of the table" in path.read_text()]  # what an exception may hold


def test_a_job_that_names_another_class_is_refused_by_the_class_list(machines, session):
    trace = machines.folder / "popen"
    run_job(machines, session, "class", {"path": "subprocess.Popen", "args": {"args": ["touch", str(trace)]}})
    assert not trace.exists()
    assert "'subprocess.Popen'" in machines.log("flare-site-1")
    assert "is not in allow_list" in machines.log("flare-site-1")


def test_other_tasks_other_content_and_forged_orders_bring_nothing_out_of_a_site(machines, session):
    run_job(machines, session, "tasks", EXECUTOR, sites=HARD)
    seen = json.loads((machines.folder / "seen.json").read_text())
    assert {attack: content for attack, (_, content) in seen.items() if content} == {}  # not a word leaves
    codes = {attack: code for attack, (code, _) in seen.items()}
    assert codes.pop("a forged order") == "BAD_TASK_DATA"  # it passed the filter; the site's own process refused it
    assert set(codes) == set(ATTACKS) - {"a forged order"}
    assert set(codes.values()) == {"TASK_DATA_FILTER_ERROR"}
    assert "not answered" in machines.log("site-1")


def test_nobody_looks_into_a_site_by_shell_commands(machines, session):
    def said(look, target):
        try:
            return str(look(target)).lower()
        except Exception as error:
            return str(error).lower()

    for look in (session.ls_target, session.get_working_directory):
        assert "not authorized" not in said(look, "server")
        assert "not authorized" in said(look, "site-1")


def test_a_stranger_without_a_certificate_does_not_pass_the_handshake(machines, session):
    port = json.loads((machines.folder / "kit" / "profile.yaml").read_text())["server"]["fed_learn_port"]
    context = ssl.create_default_context(cafile=str(machines.kit(SERVER) / "startup" / "rootCA.pem"))
    context.set_alpn_protocols(["h2"])

    def first_byte():
        try:
            with socket.create_connection((SERVER, port), PATIENCE) as plain:
                return context.wrap_socket(plain, server_hostname=SERVER).recv(1)
        except (ssl.SSLError, ConnectionError):
            return b""

    assert first_byte() == b""  # with TLS 1.3 the refusal comes after the handshake
    startup = machines.kit("site-2") / "startup"
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    assert first_byte() != b""

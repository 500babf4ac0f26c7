"""What the supervisor of a FLARE job decides, with a table in the place of the server, without FLARE."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
from fedlsa_nvflare import supervisor
from fedlsa_nvflare.supervisor import STRIKES, JobSupervisor

from fedlsa.errors import NetworkError

SITES = ("lisbon", "oslo", "site-3")


class Server:
    """As much of FLARE's session as the supervisor uses. jobs : job -> status; alive : jobs that a process runs."""

    def __init__(self):
        self.jobs, self.alive, self.idle, self.aborted, self.broken = {}, set(), set(SITES), [], False

    def get_system_info(self):
        return SimpleNamespace(job_info=[SimpleNamespace(job_id=job) for job in self.alive])

    def list_jobs(self, name_prefix):
        return [{"job_id": job, "status": status} for job, status in self.jobs.items() if name_prefix == "fedlsa"]

    def get_job_status(self, job):
        return self.jobs[job]

    def get_client_job_status(self):
        return [{"client_name": site, "status": "no_jobs" if site in self.idle else "started"} for site in SITES]

    def submit_job(self, folder):
        self.jobs[job := f"job-{len(self.jobs) + 1}"] = "RUNNING"
        self.alive, self.idle = {job}, set()
        return job

    def abort_job(self, job):
        self.aborted.append(job)
        if self.broken:
            raise RuntimeError("Job is not running")
        self.jobs[job], self.alive, self.idle = "FINISHED:ABORTED", self.alive - {job}, set(SITES)


class Ear:
    """The carrier, as the supervisor sees it."""

    def __init__(self):
        self.expected, self.quiet = [], 0.0

    def expect(self, job):
        self.expected.append(job)

    def silence(self):
        return self.quiet


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: now.seconds)
    return now


@pytest.fixture
def boss(tmp_path, monkeypatch, clock):
    """A supervisor with a server that has all sites and no job."""
    fake = ModuleType("flare_api")
    fake.new_secure_session = lambda user, kit, timeout: None
    for name in ("nvflare", "nvflare.fuel", "nvflare.fuel.flare_api", "nvflare.fuel.flare_api.flare_api"):
        monkeypatch.setitem(sys.modules, name, fake)
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    (tmp_path / "kit" / "startup" / "fed_admin.json").write_text(json.dumps({"admin": {"username": "somebody"}}))
    out = JobSupervisor(Ear(), SITES, tmp_path / "kit", tmp_path / "work", say=lambda line: out.said.append(line))
    out.said, out.server = [], Server()
    out._adopt(out.server)
    return out


def look(boss, times=1):
    for _ in range(times):
        boss._look(boss.server)


def test_the_job_is_submitted_when_all_sites_are_free_and_then_left_alone(boss):
    look(boss, 10)
    assert boss.server.jobs == {"job-1": "RUNNING"}
    assert boss.carrier.expected[-1] == "job-1"
    assert json.loads((boss.folder / "meta.json").read_text())["deploy_map"]["site"] == list(SITES)


def test_some_sites_are_enough_after_a_while_and_none_never(boss, clock):
    boss.server.idle = {"oslo"}
    look(boss)
    assert boss.server.jobs == {}
    clock.seconds += supervisor.GATHER + 1
    boss.server.idle = set()
    look(boss)
    assert boss.server.jobs == {}
    boss.server.idle = {"oslo"}
    look(boss)
    assert list(boss.server.jobs) == ["job-1"]


def test_a_job_that_stands_as_running_without_a_process_is_given_up_and_submitted_again(boss):
    look(boss)
    boss.server.alive, boss.server.broken, boss.server.idle = set(), True, set(SITES)  # the server was killed
    look(boss, STRIKES)
    assert boss.server.aborted == ["job-1"]
    look(boss)
    assert boss.job == "job-2"
    boss._adopt(boss.server)  # job-1 stands as RUNNING for ever, and is not taken up again
    assert boss.job == "job-2"


def test_a_site_that_came_back_has_the_job_submitted_again(boss):
    look(boss)
    boss.server.idle = {"oslo"}
    look(boss, STRIKES - 1)
    assert boss.server.aborted == []
    look(boss)
    assert boss.server.aborted == ["job-1"]
    assert "runs without oslo" in boss.said[-1]
    look(boss)
    assert boss.job == "job-2"


def test_one_bad_look_is_forgotten(boss):
    look(boss)
    for _ in range(5):
        boss.server.idle = {"oslo"}
        look(boss, STRIKES - 1)
        boss.server.idle = set()
        look(boss)
    assert boss.server.aborted == []


def test_a_job_that_says_nothing_is_given_up_but_not_while_it_starts(boss, clock):
    look(boss)
    boss.carrier.quiet = float("inf")
    look(boss, STRIKES)
    assert boss.server.aborted == []
    clock.seconds += supervisor.SILENCE + 1
    look(boss, STRIKES)
    assert boss.server.aborted == ["job-1"]


def test_a_job_that_is_over_is_followed_by_another_but_not_at_once_if_it_failed_soon(boss, clock):
    look(boss)
    for number, lived in ((1, supervisor.RETRY + 1), (2, 1.0)):
        clock.seconds += lived
        boss.server.jobs[f"job-{number}"], boss.server.idle = "FINISHED:EXECUTION_EXCEPTION", set(SITES)
        look(boss, 2)
        assert boss.job == ("job-2" if number == 1 else "")
    clock.seconds += supervisor.RETRY + 1
    look(boss)
    assert boss.job == "job-3"
    assert boss.server.aborted == []


def test_a_new_supervisor_takes_the_one_job_up_and_trusts_none_of_several(boss):
    boss.server.jobs, boss.server.alive = {"old": "RUNNING", "live": "RUNNING", "done": "FINISHED:COMPLETED"}, {"live"}
    boss._adopt(boss.server)
    assert boss.job == "live"
    boss.server.jobs["waiting"] = "SUBMITTED"
    boss._adopt(boss.server)
    assert (boss.job, sorted(boss.server.aborted)) == ("", ["live", "waiting"])


def test_jobs_of_others_are_not_touched(boss):
    boss.server.jobs, boss.server.alive = {}, {"of-others"}
    boss._adopt(boss.server)
    assert (boss.job, boss.server.aborted) == ("", [])


def test_a_server_that_does_not_answer_is_said_once_and_tried_again(boss, monkeypatch):
    calls = []

    def refuse(*_, **__):
        calls.append(1)
        if len(calls) == 5:
            boss.close()
        raise ConnectionError("nobody there\x1b[2J")

    monkeypatch.setattr(supervisor, "LOOK", 0.0)
    boss.open_session = refuse
    boss.run()
    assert len(calls) == 5
    assert len(boss.said) == 1
    assert "\x1b" not in boss.said[0]


def test_a_folder_that_is_not_the_supervisors_is_named(boss, tmp_path):
    with pytest.raises(NetworkError, match="must be a FLARE folder of the supervisor"):
        JobSupervisor(Ear(), SITES, tmp_path, tmp_path / "work")

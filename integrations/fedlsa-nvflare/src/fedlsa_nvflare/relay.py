"""Bytes between FLARE's processes and ours, over a Unix socket on one machine.

FLARE's processes only pass messages on. Keys, data, policy and runs stay in our own processes, which may belong to
another account: who takes over a FLARE process, or its server, holds sealed messages and nothing else. A message is a
short JSON head, a line feed and a body; nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from fedlsa import checks
from fedlsa.errors import MessageError, NetworkError
from fedlsa.files import reason, write

SOCKET = "FEDLSA_SOCKET"  # the coordinator's socket in the environment, a site's in its privacy.json
TASK = "fedlsa"  # the one task that passes, and the one entry of its content
MAX_MESSAGE = 16 * 2**20
MAX_PATH = 107  # bytes of a socket's name, by the operating system
SILENCE = 10.0  # seconds that a caller may be connected without a word
REFUSED = b""  # in the place of an answer: the order was not signed by the coordinator, or cannot be answered


def clear_socket(path: Path) -> None:
    """Make the place of a socket free: one that a killed process left is removed, and nothing else."""
    if len(os.fsencode(path)) > MAX_PATH:
        raise NetworkError(f"a socket's path must have at most {MAX_PATH} bytes; got {path}")
    if not path.parent.is_dir():
        raise NetworkError(f"a socket's folder must exist; {path.parent} does not")
    if path.is_socket():
        path.unlink(missing_ok=True)
    elif path.exists():
        raise NetworkError(f"{path} must be a socket or a new name; it is something else")


@contextlib.contextmanager
def listening(path: Path) -> Iterator[Listener]:
    """A socket that this account and its group can reach."""
    clear_socket(path)
    mask = os.umask(0o117)
    try:
        listener = Listener(str(path), "AF_UNIX", backlog=8)
    except OSError as error:
        raise NetworkError(f"cannot listen on {path}: {reason(error)}") from error
    finally:
        os.umask(mask)
    with listener:
        yield listener


def connect(path: str | Path) -> Connection:
    """A connection to who listens there; OSError when nobody does."""
    return Client(str(path), "AF_UNIX")


def send(link: Connection, head: dict[str, Any], body: bytes = b"") -> None:
    """Send a message."""
    link.send_bytes(json.dumps(head).encode() + b"\n" + body)


def receive(link: Connection) -> tuple[dict[str, Any], bytes]:
    """The next message; EOFError when the other side is gone."""
    head, _, body = link.recv_bytes(MAX_MESSAGE).partition(b"\n")
    try:
        content = json.loads(head)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise MessageError("a message over the socket must begin with a JSON object; it does not")
    return content, body


@dataclass
class RelaySite:
    """A site's end: sealed orders in, sealed answers out, one at a time, as its FLARE executor brings them."""

    path: Path
    answer: Callable[[bytes], bytes]
    say: Callable[[str], None] = print
    _ended: bool = False

    def __post_init__(self) -> None:
        clear_socket(self.path)  # what is wrong with it is said now, and not by a thread

    def run(self) -> None:
        """Take part until `stop` is called."""
        with listening(self.path) as listener:
            while not self._ended:
                with contextlib.suppress(OSError, EOFError), listener.accept() as link:
                    if link.poll(SILENCE):  # who says nothing, or goes away, costs ten seconds and no more
                        self._answer(link)

    def stop(self) -> None:
        """Leave; an answer that is being computed is not waited for."""
        self._ended = True
        with contextlib.suppress(OSError):
            connect(self.path).close()  # wakes the listener

    def _answer(self, link: Connection) -> None:
        order = link.recv_bytes(MAX_MESSAGE)
        try:
            reply = self.answer(order)
        except Exception as error:  # one order that cannot be answered must not end the site
            self.say(f"an order was not answered: {type(error).__name__}: {str(error)[:200]!a}")
            reply = REFUSED
        link.send_bytes(reply)


# The hardened kit: the job, the definitions from which FLARE makes each side's own key, and each side's own limits.
#
# The job is the same for every run and holds no code, no path and no setting of a site. What a site allows stands in
# three files of its own FLARE folder: resources.json (the class list, no streaming of logs), authorization.json (who
# may do what: nobody sends code, looks into files or operates the site), privacy.json (the filter, the site's socket).

Files = dict[str, dict[str, Any]]
HERE = __package__
SITE_CLASS, SERVER_CLASS, FILTER_CLASS = (
    f"{HERE}.components.{name}" for name in ("SiteRelay", "CoordinatorRelay", "OnlyOurTask")
)
SUPERVISOR = "supervisor@fedlsa.local"  # who submits the job; the one name that may
POLL = 0.05  # seconds between a site's questions for a task
ROLES = ("project_admin", "org_admin", "lead", "member")


def job_files(sites: tuple[str, ...]) -> Files:
    """The job: two configurations and where they go; the sites get no word about the server's."""
    server = {
        "format_version": 2,
        "server": {"task_request_interval": POLL},
        "workflows": [{"id": "relay", "path": SERVER_CLASS, "args": {}}],
    }
    client = {
        "format_version": 2,
        "default_task_fetch_interval": POLL,
        "executors": [{"tasks": [TASK], "executor": {"path": SITE_CLASS, "args": {}}}],
    }
    meta = {
        "name": TASK,
        "min_clients": 1,
        "deploy_map": {"coordinator": ["server"], "site": list(sites)},
        "resource_spec": {},
    }
    return {
        "meta.json": meta,
        "coordinator/config/config_fed_server.json": server,
        "site/config/config_fed_client.json": client,
    }


def definitions(project: str, host: str, port: int, sites: tuple[str, ...]) -> Files:
    """What `nvflare cert request` and `nvflare cert approve` read, as JSON, which is YAML as well."""
    ports = {"fed_learn_port": port, "admin_port": port}
    there = {"server": {"host": host, **ports}}
    everybody: dict[str, dict[str, Any]] = {
        "server": {"name": host, "org": "coordinator", "type": "server", **ports},
        "supervisor": {"name": SUPERVISOR, "org": "coordinator", "type": "admin", "role": "lead"},
        **{site: {"name": site, "org": re.sub(r"\W", "_", site), "type": "client", **there} for site in sites},
    }
    profile = {"name": project, "scheme": "grpc", "connection_security": "mtls", **there}
    out: Files = {f"{name}.yaml": {"name": project, "participants": [who]} for name, who in everybody.items()}
    return out | {"profile.yaml": profile}


def limits(socket: Path, *, site: bool) -> Files:
    """The files of a side's `local` folder."""
    nothing = dict.fromkeys(("clone_job", "download_job", "operate", "shell_commands", "byoc"), "none")
    nothing["server-predeployed-flwr"] = "none"
    ours = f"n:{SUPERVISOR}"
    permissions: dict[str, Any] = dict.fromkeys(ROLES, "none")
    permissions["lead"] = {"submit_job": ours, "manage_job": ours, "view": ours, **nothing}
    authorization = {"format_version": "1.0", "permissions": permissions}
    resources_json: dict[str, Any] = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [SITE_CLASS, FILTER_CLASS] if site else [SERVER_CLASS],
    }
    if not site:
        return {"resources.json": resources_json | _server(socket.parent), "authorization.json": authorization}
    checked = [{"path": FILTER_CLASS, "args": {}}]
    scope = {
        "name": TASK,
        "properties": {SOCKET: str(socket)},
        "task_data_filters": checked,
        "task_result_filters": checked,
    }
    privacy = {"scopes": [scope], "default_scope": TASK}
    resources_json |= {
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            _component("resource_manager", "resource_managers.gpu_resource_manager.GPUResourceManager", **NO_GPU),
            _component("resource_consumer", "resource_consumers.gpu_resource_consumer.GPUResourceConsumer"),
            _component("process_launcher", "job_launcher.client_process_launcher.ClientProcessJobLauncher"),
        ],
    }
    return {"resources.json": resources_json, "authorization.json": authorization, "privacy.json": privacy}


NO_GPU = {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0}
STORE = "storages.filesystem_storage.FilesystemStorage"


def _component(name: str, path: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "path": f"nvflare.app_common.{path}", "args": arguments}


def _server(folder: Path) -> dict[str, Any]:
    """A server that keeps its jobs in our folder, one at a time, and takes no logs of sites."""
    storage = {"path": f"nvflare.app_common.{STORE}", "args": {"root_dir": str(folder / "snapshots"), "uri_root": "/"}}
    persistor = "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor"
    jobs = {"uri_root": str(folder / "jobs"), "job_store_id": "job_store"}
    return {
        "servers": [{"admin_storage": "transfer", "max_num_clients": 1000, "heart_beat_timeout": 60}],
        "snapshot_persistor": {"path": persistor, "args": {"uri_root": "/", "storage": storage}},
        "components": [
            _component(
                "job_scheduler",
                "job_schedulers.job_scheduler.DefaultJobScheduler",
                max_jobs=1,
                min_schedule_interval=1.0,
                max_schedule_interval=5.0,
                max_schedule_count=1000,
            ),
            {"id": "job_manager", "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager", "args": jobs},
            _component("job_store", STORE),
            _component("process_launcher", "job_launcher.server_process_launcher.ServerProcessJobLauncher"),
        ],
    }


def write_files(folder: Path, files: Files) -> None:
    """Write JSON files, each to a temporary name first."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, (json.dumps(content, indent=1) + "\n").encode(), "the kit's file")


def write_kit(folder: Path, network: str, host: str, port: int, sites: tuple[str, ...]) -> None:
    """What the coordinator sends round: definitions, the profile, the job to look at, and a README."""
    if folder.exists():
        raise NetworkError(f"the kit's folder must be new; {folder} exists")
    checks.integer("port", port, at_least=1, at_most=65535)
    project = "fedlsa-" + re.sub(r"[^A-Za-z0-9-]", "-", network)[:20]
    write_files(folder, definitions(project, host, port, sites))
    write_files(folder / TASK, job_files(sites))
    text = resources.files(HERE).joinpath("kit.md").read_text(encoding="utf8")
    write(folder / "README.md", text.replace("PROJECT", project).encode(), "the kit's file")


def harden(kit: Path, socket: Path) -> str:
    """Write a side's own limits into the FLARE folder that `nvflare package` made; what was there is replaced."""
    kit, socket = checks.path("kit", kit), checks.path("socket", socket)
    site = (kit / "startup" / "fed_client.json").is_file()
    start = kit / "startup" / ("fed_client.json" if site else "fed_server.json")
    try:
        content = json.loads(start.read_text(encoding="utf8"))
        secured = (content["client"] if site else content["servers"][0])["connection_security"]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise NetworkError(f"{kit} must be a FLARE folder of a site or a server: {reason(error)}") from error
    if secured != "mtls" or content.get("require_signed_jobs", True) is not True:
        raise NetworkError(f"{start} must ask for mutual TLS and signed jobs; got connection_security = {secured!r}")
    write_files(kit / "local", limits(socket.absolute(), site=site))
    return "site" if site else "server"

"""What our processes ask of Flower over loopback: which keys may join, runs to carry messages, and tasks.

Flower starts a new Python process per message and runs in it whatever code came with the run. Here one process stays,
so that a message costs no start-up, and it runs the installed fedlsa alone: code never travels, and the site runs
nothing that was sent to it. Tasks are given only to who holds the secret file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.runtime import RuntimeHttpClient

from ...errors import NetworkError

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"

APP = resources.files(__package__).joinpath("app.toml").read_bytes()


def _client(kind: Any, address: str, ca: Path | None, name: str, *interceptors: Any) -> Any:
    """A client of one of Flower's interfaces; name : of the component that we are to it."""
    return kind.from_server_address(
        server_address=address,
        insecure=ca is None,
        root_certificates=None if ca is None else ca.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name=name), *interceptors],
    )


@contextmanager
def connected(address: str, ca: Path | None) -> Iterator[Any]:
    """A client of the control interface; ca None is plain text."""
    client = _client(ControlHttpClient, address, ca, "flwr CLI")
    try:
        yield client
    finally:
        client.close()


def key_bytes(path: Path) -> bytes:
    """A public key in OpenSSH format, as Flower writes it on the wire."""
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise NetworkError(f"{path} must be a public key in OpenSSH format: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise NetworkError(f"{path} must be an elliptic-curve public key; got another kind")
    return bytes(public_key_to_bytes(key))


def register(client: Any, keys: Mapping[str, Path]) -> dict[int, str]:
    """Let in the keys of these sites and no others; the site's name by node id."""
    wanted = {key_bytes(path): site for site, path in keys.items()}
    known = {
        bytes(n.public_key): int(n.node_id)
        for n in client.ListNodes(ListNodesRequest()).nodes_info
        if not n.unregistered_at
    }
    for key in known.keys() - wanted.keys():  # a rotated key, or a site that was removed
        client.UnregisterNode(UnregisterNodeRequest(node_id=known[key]))
    for key in wanted.keys() - known.keys():
        known[key] = int(client.RegisterNode(RegisterNodeRequest(public_key=key, name=wanted[key])).node_id)
    return {known[key]: site for key, site in wanted.items()}


def start_run(client: Any, experiment: str) -> int:
    """A new run of the app for this experiment; its id."""

    content = build_fab_from_files({"pyproject.toml": APP})[0]
    answer = client.StartRun(
        StartRunRequest(
            fab=fab_to_proto(Fab(sha256(content).hexdigest(), content, {})),
            override_config=user_config_to_proto({"experiment": experiment}),
        )
    )
    if not answer.HasField("run_id"):
        raise NetworkError(f"the SuperLink must accept a run for {experiment}; it gave no run id")
    return int(answer.run_id)


def stop_run(client: Any, run: int) -> None:
    """End a run that an earlier process left behind; one that has ended already is no error."""
    with suppress(httpx.HTTPError):
        client.StopRun(StopRunRequest(run_id=run))


@dataclass(frozen=True)
class TaskSource:
    """Where tasks are given out. ca None is plain text, for a SuperNode's own loopback port."""

    address: str
    secret: Path
    ca: Path | None = None

    def asking(self) -> Any:
        """A client that may ask for tasks."""
        sign = SuperExecAuthHttpInterceptor(master_secret=self.secret.read_bytes(), protected_methods={ACQUIRE})
        return _client(RuntimeHttpClient, self.address, self.ca, "SuperExec", sign)

    def working(self, token: str, name: str) -> Any:
        """A client for one task, by its token."""
        return _client(RuntimeHttpClient, self.address, self.ca, name, RuntimeTokenHttpInterceptor(token))


def acquire(client: Any, kind: str) -> tuple[int, str] | None:
    """(run id, token) of the oldest waiting task of a kind, or None."""
    answer = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
    if not answer.HasField("task") or not answer.token:
        return None
    return int(answer.task.run_id), str(answer.token)

"""What the coordinator asks of its own SuperLink over loopback: which keys may join, and runs to carry messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ...errors import NetworkError

APP = """\
[project]
name = "fedlsa-network"
version = "1.0.0"
license = "MIT"
dependencies = ["fedlsa[flower]"]
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.flwr.app]
publisher = "fedlsa"
[tool.flwr.app.components]
serverapp = "fedlsa.network.flower.server_app:app"
clientapp = "fedlsa.network.flower.client_app:app"
[tool.flwr.app.config]
experiment = ""
"""  # all the code is in the installed package: what travels is this page


@contextmanager
def connected(address: str, ca: Path | None) -> Iterator[Any]:
    """A client of the control interface; ca None is plain text."""
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    client = ControlHttpClient.from_server_address(
        server_address=address,
        insecure=ca is None,
        root_certificates=None if ca is None else ca.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
    try:
        yield client
    finally:
        client.close()


def key_bytes(path: Path) -> bytes:
    """A public key in OpenSSH format, as Flower writes it on the wire."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise NetworkError(f"{path} must be a public key in OpenSSH format: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise NetworkError(f"{path} must be an elliptic-curve public key; got another kind")
    return bytes(public_key_to_bytes(key))


def register(client: Any, keys: Mapping[str, Path]) -> dict[int, str]:
    """Let in the keys of these sites and no others; the site's name by node id."""
    from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, UnregisterNodeRequest

    wanted = {key_bytes(path): site for site, path in keys.items()}
    held = {
        bytes(n.public_key): int(n.node_id)
        for n in client.ListNodes(ListNodesRequest()).nodes_info
        if not n.unregistered_at
    }
    for key in held.keys() - wanted.keys():  # a rotated key, or a site that was removed
        client.UnregisterNode(UnregisterNodeRequest(node_id=held[key]))
    for key in wanted.keys() - held.keys():
        held[key] = int(client.RegisterNode(RegisterNodeRequest(public_key=key, name=wanted[key])).node_id)
    return {held[key]: site for key, site in wanted.items()}


def start_run(client: Any, experiment: str) -> int:
    """A new run of the app for this experiment; its id."""
    from hashlib import sha256

    from flwr.cli.build import build_fab_from_files
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.supercore.fab import Fab

    content = build_fab_from_files({"pyproject.toml": APP.encode()})[0]
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
    import httpx
    from flwr.proto.control_pb2 import StopRunRequest

    with suppress(httpx.HTTPError):
        client.StopRun(StopRunRequest(run_id=run))

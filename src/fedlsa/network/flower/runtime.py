"""Tasks from a SuperLink or a SuperNode, taken by our own long-lived process instead of Flower's superexec.

Flower starts a new Python process per message and runs in it whatever code came with the run. Here one process stays,
so that a message costs no start-up, and it runs the installed fedlsa alone: code never travels, and the site runs
nothing that was sent to it. Tasks are given only to who holds the secret file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

METHOD = "/flwr.proto.Runtime/AcquireTask"


@dataclass(frozen=True)
class Door:
    """Where tasks are given out. ca None is plain text, for a SuperNode's own loopback port."""

    address: str
    secret: Path
    ca: Path | None = None

    def asking(self) -> Any:
        """A client that may ask for tasks."""
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor

        sign = SuperExecAuthHttpInterceptor(master_secret=self.secret.read_bytes(), protected_methods={METHOD})
        return self._client([RuntimeVersionHttpInterceptor(component_name="SuperExec"), sign])

    def working(self, token: str, name: str) -> Any:
        """A client for one task, by its token."""
        from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor

        return self._client([RuntimeVersionHttpInterceptor(component_name=name), RuntimeTokenHttpInterceptor(token)])

    def _client(self, interceptors: list[Any]) -> Any:
        from flwr.supercore.runtime import RuntimeHttpClient

        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=self.ca is None,
            root_certificates=None if self.ca is None else self.ca.read_bytes(),
            interceptors=interceptors,
        )


def acquire(client: Any, kind: str) -> tuple[int, str] | None:
    """(run id, token) of the oldest waiting task of a kind, or None."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest

    answer = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
    if not answer.HasField("task") or not answer.token:
        return None
    return int(answer.task.run_id), str(answer.token)

"""A site's one command: check the data, say what leaves, and take part until it is interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from ... import checks
from ...errors import NetworkError
from ..disk import create, write_json
from ..flower import require_flower
from ..folder.config import Bundle
from ..processes import Child, ProcessGroup, Supervised, bracketed, environment, free_port, launched, module, only_one
from .facts import check, describe, leaves
from .site_data import SiteData, clear_prepared, open_data

POLL = 0.5  # seconds between a node's questions to the coordinator


class Member(Supervised):
    """A site's two processes: the node, which speaks with the coordinator, and the one that reads the data."""

    def __init__(
        self,
        site: Bundle,
        data: SiteData,
        *,
        share_moments: bool = False,
        least_noise: float | None = None,
        insecure: bool = False,
        say: Callable[[str], None] = print,
    ) -> None:
        require_flower()
        self.site, self.insecure, self.folder = site, insecure, site.folder.resolve()
        self.secret, self.job = self.folder / "node.secret", self.folder / "job.json"
        self.secret.unlink(missing_ok=True)
        create(self.secret, os.urandom(32).hex().encode(), secret=True)  # new, between node and worker
        job = {
            "folder": str(self.folder),
            "data": None if data.path is None else str(data.path.resolve()),
            "loader": data.loader,
            "share_moments": share_moments,
            "least_noise": least_noise,
        }
        write_json(self.job, job, "the site's job")
        env, logs = environment(self.folder / "flower"), self.folder / "logs"
        self.port = 0
        self.node = Child("the node", self._node, logs / "node.log", env)
        self.worker = Child("the worker", self._worker, logs / "worker.log", env)
        self.groups = [ProcessGroup([self.node, self.worker], say)]

    def _node(self) -> list[str]:
        self.port = free_port()
        s = self.site
        keys = ["--root-certificates", str(s.ca), "--auth-supernode-private-key", str(s.key)]
        return launched(
            "node",
            str(POLL),
            str(self.folder),
            arguments=[
                *("--superlink", f"{bracketed(s.host)}:{s.port}", *(["--insecure"] if self.insecure else keys)),
                *("--isolation", "process", "--superexec-auth-secret-file", str(self.secret)),
                *("--host", "127.0.0.1", "--port", str(self.port)),
            ],
        )

    def _worker(self) -> list[str]:
        where = f"127.0.0.1:{self.port}"
        return module("fedlsa.network.flower.site_worker", where, str(self.secret), str(self.job))


def join(
    bundle: Path | str,
    *,
    data: Path | str | None = None,
    loader: str | None = None,
    folder: Path | str | None = None,
    trust_coordinator: bool = False,
    share_moments: bool = False,
    least_noise: float | None = None,
    new_key: bool = False,
    insecure: bool = False,
    agree: Callable[[], bool] = lambda: True,
    say: Callable[[str], None] = print,
) -> None:
    """Join a network as a site, until Ctrl-C or SIGTERM; a killed node or worker is started again.

    trust_coordinator : must be True; it states that the coordinator may know the rows, which it can compute
    least_noise : runs whose privacy noise, in units of their clip, is below this are refused
    """
    if not checks.boolean("trust_coordinator", trust_coordinator):
        raise NetworkError(
            "not joined: the coordinator could compute this site's rows, one by one, from replies to orders that it "
            "chooses. If it may know them, say so with --trust-coordinator"
        )
    site = Bundle.open(bundle, folder, new_key=new_key)
    found = open_data(data, loader, site.task)
    for text in check(found.opened, site.task):
        say(text)
    names = json.loads(describe(found.opened, site.task, "check").names)
    for text in leaves(site.task, len(names), share_moments, names=names):
        say(text)
    if not agree():
        raise NetworkError("not joined: nothing has left this site")
    with only_one(site.folder / "join.pid", "this site has joined already"):
        if loader is not None:
            clear_prepared(site.folder)
        member = Member(site, found, share_moments=share_moments, least_noise=least_noise, insecure=insecure, say=say)
        say(f"{site.name} joins {bracketed(site.host)}:{site.port}; logs in {member.folder / 'logs'}; Ctrl-C leaves")
        results = site.folder / "results"
        seen = set(results.glob("*.json"))

        def tell_results() -> None:
            for path in sorted(set(results.glob("*.json")) - seen):
                say(f"a run is over: {path}")
                seen.add(path)

        member.run(tell_results)
    say(f"{site.name} has left; its state stays in {member.folder}")

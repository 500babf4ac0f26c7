"""A site's one process: check the data, say what leaves, and take part until it is interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ... import files
from ...errors import NetworkError
from ..carriers import SignedSite, installed_carrier
from ..carriers.grpc_site import SiteLink
from ..folder.config import SiteFolder, warn_daily
from ..pages import PagePlace, SiteState, announce
from ..processes import bracketed, only_one, reporting, until_ended
from .facts import check
from .ledger import copy_place, sole_folder
from .orders import OrderHandler
from .policy import Policy, explain
from .site_data import clear_prepared, open_data


class Acquaintance:
    """Which coordinator a site was with last: it stays with that one and those that follow on it.

    Two coordinators with the keys of one network, on two machines, are noticed here: the second does not know what the
    first did since the folder was copied. What is not noticed: a copy that is made while the first one is stopped, or
    after its last start, and that takes its place for good.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def last(self) -> str:
        """Its identity; empty before the first."""
        try:
            return self.path.read_text(encoding="ascii", errors="replace").strip()[:64]
        except OSError:
            return ""

    def accept(self, identity: str, known: bool) -> str | None:
        """Why this coordinator is not followed, or None; known : whether it knows the last one."""
        last = self.last()
        if last and not known and identity != last:
            other = "this coordinator does not know the one that this site was with"
            two = f"{other}: there are two, or a backup was restored"
            return f"{two}. The site stays with the first; if this one is right, remove {self.path}"
        if identity != last:
            files.write(self.path, identity.encode("ascii", "replace")[:64], "the note")
        return None


def join(
    folder: Path | str,
    *,
    data: Path | str | None = None,
    loader: str | None = None,
    proxy: str | None = None,
    carrier: str | None = None,
    page: PagePlace | None = PagePlace(),  # noqa: B008  immutable
    agree: Callable[[], bool] = lambda: True,
    say: Callable[[str], None] = print,
) -> None:
    """Take part as a site until Ctrl-C or SIGTERM; where the connection breaks it is made again, after growing pauses.

    proxy : an HTTP proxy to connect through, http://host:port; those of the environment are not used
    page : where the site's page is shown, by default on loopback, at a free port; None: nowhere
    carrier : NAME:PLACE, one that is installed beside fedlsa and brings orders; no connection is made then
    """
    site = SiteFolder.load(folder)
    resolved = site.folder.resolve()
    site.check_certificate()
    keys = _stamps(site)
    say(f"{site.name}: reading {data or loader}, to see what a run would use of it")
    opened = open_data(data, loader, site.task)
    for text in check(opened.opened, site.task):
        say(text)
    policy = Policy.load(site.policy)
    for text in explain(policy):
        say(text)
    if not agree():
        raise NetworkError("not joined: nothing has left this site")
    report = reporting(resolved / "logs" / "join.log", say)
    copy = copy_place(policy.ledger_copy, site.network, site.name)
    with only_one(resolved / "join.pid", "this site has joined already"), sole_folder(copy, resolved):
        if loader is not None:
            clear_prepared(site.folder)
        warn = warn_daily(site, report)
        warn()
        site.state.mkdir(mode=0o700, exist_ok=True)
        handler = OrderHandler(site, opened, say=report)
        answer = SignedSite(site, handler.respond)
        if carrier is None:
            known = Acquaintance(site.state / "coordinator")
            more: dict[str, Any] = {"proxy": proxy, "last": known.last, "accept": known.accept}
            link: Any = SiteLink(site.host, site.port, site, answer, say=report, **more)
        else:
            module, place = installed_carrier(carrier)
            link = module.open_site(place, answer, report)
        thread = threading.Thread(target=link.run, name="link", daemon=True)
        thread.start()
        where = f"{bracketed(site.host)}:{site.port}" if carrier is None else f"over {carrier}"
        report(f"{site.name} joins {where}; logs in {resolved / 'logs'}; Ctrl-C leaves")
        known_results, shown = set(site.results.glob("*.json")), None
        if page is not None:
            connected = partial(getattr, link, "connected", True)
            state = SiteState(site, handler.policy, handler.ledger, connected, thread.is_alive)
            shown = announce(lambda: state.show(page.port or 0, page.address), report)

        def poll() -> None:
            warn()
            for path in sorted(set(site.results.glob("*.json")) - known_results):
                report(f"a run is over: {path}")
                known_results.add(path)
            if not thread.is_alive():
                raise NetworkError("the connection's thread has died; join again")
            if _stamps(site) != keys:  # what this process signs and masks with has been replaced
                raise NetworkError("this site has new keys: join again")

        try:
            until_ended(poll)
        finally:
            link.stop()
            thread.join(5.0)
            if shown is not None:
                shown.close()
    report(f"{site.name} has left; its state stays in {resolved}")


def _stamps(site: SiteFolder) -> list[int]:
    """By which new keys are noticed; those that are missing for a moment are not new ones yet."""
    return [path.stat().st_mtime_ns for path in (site.key, site.mask_key) if path.exists()]

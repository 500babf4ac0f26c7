"""What people and monitors see: live pages of coordinator and site, /health and /metrics, read-only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import NetworkError
from ..folder.config import Network, SiteFolder
from ..site.ledger import Ledger
from ..site.policy import Policy
from .coordinator_state import CoordinatorState
from .http_pages import LOOPBACK, Page, Shown, static
from .site_state import SiteState


def start_coordinator_page(
    network: Network,
    present: Callable[[], Sequence[str]],
    port: int,
    *,
    alive: Callable[[], bool] = lambda: True,
    address: str = LOOPBACK,
    names: tuple[str, ...] = (),
) -> Page:
    """Show a network at http://127.0.0.1:port/, with /health and /metrics; port 0 takes a free one.

    present : the sites that are connected; alive : whether the run loop is
    address : to listen on, loopback by default: whoever can reach the page can read it
    names : host names by which browsers may call it, besides localhost and numbers
    """
    state = CoordinatorState(network, present, alive)
    routes = {"/": static("coordinator.html"), "/coordinator.js": static("coordinator.js")}
    routes |= {"/chart.js": static("chart.js"), "/state.json": state.state}
    routes |= {"/health": state.health, "/metrics": state.metrics}
    return Page(_common() | routes, port, address, names)


def start_site_page(
    site: SiteFolder,
    policy: Policy,
    ledger: Ledger,
    port: int,
    *,
    connected: Callable[[], bool] = lambda: True,
    alive: Callable[[], bool] = lambda: True,
    address: str = LOOPBACK,
    names: tuple[str, ...] = (),
) -> Page:
    """Show a site at http://127.0.0.1:port/, with /health and /metrics; port 0 takes a free one.

    connected : whether the coordinator is reached; alive : whether the site still tries; the rest as above
    """
    state = SiteState(site, policy, ledger, connected, alive)
    routes = {"/": static("site.html"), "/site.js": static("site.js"), "/state.json": state.state}
    routes |= {"/health": state.health, "/metrics": state.metrics}
    return Page(_common() | routes, port, address, names)


def _common() -> dict[str, Callable[[], Shown]]:
    """What both pages need."""
    files = ("page.css", "page.js", "mark.svg")
    return {f"/{name}": static(name) for name in files} | {"/favicon.ico": static("mark.svg")}


def announce(start: Callable[[], Page], say: Callable[[str], None]) -> Page | None:
    """Start a page and say where it is; a port that is taken is a pity, and no reason not to take part."""
    try:
        page = start()
    except NetworkError as error:
        say(f"WARNING: {error}")
        return None
    say(f"the page: {page.url}")
    return page

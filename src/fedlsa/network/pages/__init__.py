"""What people and monitors see: live pages of coordinator and site, /health and /metrics, read-only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..folder.config import Network
from .coordinator_state import CoordinatorState
from .http_pages import LOOPBACK, Page, static


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
    routes = {"/": static("coordinator.html"), "/page.css": static("page.css"), "/page.js": static("page.js")}
    routes |= {"/coordinator.js": static("coordinator.js"), "/chart.js": static("chart.js")}
    routes |= {"/favicon.ico": static("mark.svg"), "/mark.svg": static("mark.svg")}
    routes |= {"/state.json": state.state, "/health": state.health, "/metrics": state.metrics}
    return Page(routes, port, address, names)

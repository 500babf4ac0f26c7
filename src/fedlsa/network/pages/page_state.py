"""What the pages of the coordinator and of a site show: /, /state.json, and /health and /metrics for monitors.

Whatever is shown was put together beforehand; nothing of a request is used. The server is `fedlsa.pages.web_server`.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from ... import checks
from ...errors import NetworkError
from ...files import reason
from ...installation import __version__
from ...pages import scripts
from ...pages.web_server import JSON_KIND, KINDS, LOOPBACK, Page, Shown
from ..protocol.codec import VERSION

METRICS_KIND = "text/plain; version=0.0.4; charset=utf-8"
SHARED_FILES = ("page.css", "page.js", "mark.svg")
FRESH = 0.5  # seconds for which an answer is given again, however many look


class PagePlace(NamedTuple):
    """Where a page is shown. port : None leaves it to the program; address : loopback, unless others may read it."""

    port: int | None = None
    address: str = LOOPBACK


class PageState(ABC):
    """What a page, /health and /metrics say; safe to be asked by many threads. alive : whether its program still works

    FILES : of static/, the page itself first; DRAWS : what it draws, of pages.SCRIPTS
    """

    FILES: tuple[str, ...]
    DRAWS: tuple[str, ...] = ()

    def __init__(self, alive: Callable[[], bool]) -> None:
        self.alive = alive
        self._guard = threading.Lock()
        self._last: tuple[float, dict[str, Any]] | None = None

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """What is shown, as plain values; among them why a person should look, certificates and the latest run."""

    @abstractmethod
    def _families(self, now: dict[str, Any]) -> Families:
        """The content as metrics."""

    def content(self) -> dict[str, Any]:
        """What the page shows; put together at most every FRESH seconds."""
        with self._guard:
            if self._last is None or time.monotonic() - self._last[0] > FRESH:
                now, alive = self._content(), self.alive()
                now |= {"now": time.time(), "version": __version__, "protocol": VERSION}
                now["status"] = "dead" if not alive else "degraded" if now["why"] else "ok"
                self._last = time.monotonic(), now
            return self._last[1]

    def state(self) -> Shown:
        """For the page."""
        return Shown(json.dumps(self.content(), allow_nan=False).encode(), JSON_KIND)

    def health(self) -> Shown:
        """For monitors: 503 when the program no longer works."""
        now = self.content()
        told = {name: now[name] for name in ("status", "version", "protocol", "why")}
        told |= {"run": now["latest"], "expiring": now["certificates"]}
        return Shown(json.dumps(told).encode() + b"\n", JSON_KIND, 503 if now["status"] == "dead" else 200)

    def metrics(self) -> Shown:
        """For Prometheus."""
        return Shown(exposition(self._families(self.content())).encode(), METRICS_KIND)

    def show(self, port: int, address: str = LOOPBACK) -> Page:
        """Show it at http://127.0.0.1:port/, with /health and /metrics; port 0 takes a free one.

        address : to listen on, loopback by default: whoever can reach the page can read it
        """
        checks.integer("port", port, at_least=0, at_most=65535)
        routes = {f"/{name}": static(name) for name in (*self.FILES[1:], *SHARED_FILES)}
        routes |= {f"/{name}": _shown(text, "js") for name, text in scripts(*self.DRAWS).items()}
        routes |= {"/": static(self.FILES[0], *self.DRAWS), "/favicon.ico": static("mark.svg")}
        routes |= {"/state.json": self.state, "/health": self.health, "/metrics": self.metrics}
        try:
            return Page(routes, port, address)
        except (OSError, ValueError) as error:
            raise NetworkError(f"cannot show a page at {address}, port {port}: {reason(error)}") from error


def announce(start: Callable[[], Page], say: Callable[[str], None]) -> Page | None:
    """Start a page and say where it is; a port that is taken is a pity, and no reason not to take part."""
    try:
        page = start()
    except NetworkError as error:
        say(f"WARNING: {error}")
        return None
    say(f"the page: {page.url}")
    return page


def static(name: str, *draws: str) -> Callable[[], Shown]:
    """A file of static/, read once; a page gets what all pages have around its sections. draws : what it draws"""
    text, (role, kind) = _read(name), name.split(".")
    if kind == "html":
        whole = _read("page.html").replace("/ROLE.js", f"/{role}.js").replace("ROLE", role.title())
        tags = "".join(f'<script defer src="/{script}"></script>\n' for script in scripts(*draws))
        text = whole.replace("SECTIONS", text).replace("DRAWING", tags)
    return _shown(text, kind)


def _shown(text: str, kind: str) -> Callable[[], Shown]:
    shown = Shown(text.encode(), KINDS[kind])
    return lambda: shown


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")


# Prometheus' text format (version 0.0.4), written by hand: a name, a sentence, and samples with labels. Families whose
# names end in _total are counters, all others gauges.

Samples = float | None | Sequence[tuple[Mapping[str, str], float | None]]
Families = Iterable[tuple[str, str, Samples]]


def exposition(families: Families) -> str:
    """The families as a monitor reads them; samples without a value, and families without samples, are left out."""
    lines = []
    for name, text, given in families:
        pairs = given if isinstance(given, Sequence) else [({}, given)]
        samples = [(labels, float(value)) for labels, value in pairs if value is not None]
        if samples:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {_escaped(text)}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            inside = ",".join(f'{label}="{_escaped(said)}"' for label, said in labels.items())
            lines.append(f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

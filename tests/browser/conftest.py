"""A server of the explorer, and a page of it that can be asked what it shows."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import METHODS, PROBLEMS, PageSettings
from fedlsa.theory import exact

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from make_explorer_pictures import PHONE, explorer, find_chromium  # noqa: E402

# what the picture was given last, and what its last frame has drawn of it
SCENE = """() => {
  const scene = document.getElementById('scene').scene;
  return scene && {data: scene.data, drawn: scene.drawn, round: scene.round, playing: scene.playing};
}"""
# to other settings as the browser's Back goes there: the page is not loaded anew
GO = """query => {
  history.pushState({}, '', location.pathname + query);
  dispatchEvent(new PopStateEvent('popstate', {state: {}}));
}"""
FRAMES = (
    "many => new Promise(done => { const next = () => many-- > 0 ? requestAnimationFrame(next) : done(); next(); })"
)
PATIENCE = 240  # seconds after which a test gives up on the page: far more than it ever takes, on a busy machine too


@dataclass
class Explorer:
    """A page of the explorer in a browser."""

    page: Any
    home: str

    def open(self, settings: PageSettings | str = "") -> "Explorer":
        query = settings if isinstance(settings, str) else settings.address()
        self.page.goto(f"{self.home}?{query}" if query else self.home)
        return self

    def go(self, settings: PageSettings | str = "") -> "Explorer":
        """The same without loading the page anew, once it is there."""
        if not self.page.url.startswith(self.home):
            return self.open(settings)
        query = settings if isinstance(settings, str) else settings.address()
        self.page.evaluate(GO, f"?{query}" if query else "")
        return self

    def frames(self, many: int) -> None:
        """Let the browser draw some more."""
        self.page.evaluate(FRAMES, many)

    def says(self, label: str, text: str) -> None:
        """A slider does, to a screen reader."""
        found = self.slider(label)
        self.until(lambda: found.get_attribute("aria-valuetext") == text, f"{label} says {text}")

    def scene(self) -> dict[str, Any]:
        """What the picture was given, what its last frame has drawn, and the round of its cursor."""
        return self.page.evaluate(SCENE) or {"data": {}, "drawn": None}

    def drawn(self) -> dict[str, dict[str, Any]]:
        """The methods of the picture of the error, by name."""
        return _methods(self.scene())

    def agents(self) -> dict[str, Any]:
        """Where the last frame has the agents, by method, once they are there."""
        return self.until(lambda: (self.scene()["drawn"] or {}).get("plane"), "the agents are drawn")

    def settings(self) -> PageSettings:
        """Those in the page's address."""
        return PageSettings.from_address("?" + urlsplit(self.page.url).query)

    def follows(self, s: PageSettings) -> None:
        """The address does, once sliders rest."""
        self.until(lambda: self.settings() == s, f"the address is that of {s.address() or 'the start'}")

    def until(self, true: Any, what: str) -> Any:
        """Wait for something to be so, and return what it says."""
        end = time.monotonic() + PATIENCE
        while not (found := true()):
            assert time.monotonic() < end, f"{what}, in {PATIENCE} s; the page says: {self.words()[-1500:]}"
            self.page.wait_for_timeout(100)
        return found

    def shows(self, s: PageSettings) -> bool:
        """Whether all three curves are those of fl.theory.exact, and the frame that is drawn is of this setting too."""
        scene = self.scene()
        drawn = _methods(scene)
        if not scene["drawn"] or not all(
            name in drawn and agrees((drawn[name]["x"], drawn[name]["total"]), s, name) for name in METHODS
        ):
            return False
        title = f"{PROBLEMS[s.problem]}: step size {s.step_size:.4g}, {s.local_steps} local step"
        return scene["drawn"]["title"].startswith(title) and list(scene["drawn"]["error"]) == list(METHODS)

    def answers(self, s: PageSettings) -> None:
        self.until(lambda: self.shows(s), f"the curves are those of {s.address() or 'the start'}")

    def refused(self) -> str:
        """What the page says of settings that cannot be."""
        return str(self.page.locator("#refused").inner_text())

    def slider(self, label: str) -> Any:
        return self.page.get_by_role("slider", name=label, exact=True)

    def press(self, label: str, key: str = "ArrowLeft", times: int = 1) -> None:
        self.slider(label).focus()
        for _ in range(times):
            self.page.keyboard.press(key)

    def button(self, label: str) -> Any:
        return self.page.get_by_role("button", name=label, exact=True)

    def choose(self, label: str, option: str) -> None:
        self.page.get_by_label(label, exact=True).select_option(label=option)

    def words(self) -> str:
        return self.page.inner_text("body")


def _methods(scene: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {m["name"]: m for m in (scene["data"].get("error") or {"methods": []})["methods"]}


_known: dict[Any, Any] = {}


def agrees(line: tuple[list[float], list[float]], s: PageSettings, name: str) -> bool:
    """Whether a drawn line is the exact error of a method, as far as the picture reaches."""
    q = Question.of(s)
    if (q, name) not in _known:
        _known[q, name] = exact(q.problem(), s.method(name), rounds=s.rounds, record=s.record())
    e = _known[q, name]
    x, y = np.array(line[0], float), np.array(line[1], float)
    if len(x) != e.sizes["rounds"]:
        return False
    return np.allclose(x, e[s.x], rtol=1e-12) and np.allclose(y, e["mse"], rtol=1e-9)


@pytest.fixture(scope="session")
def browser():
    """Chromium, driven by Playwright; where it is missing, tests that need it are skipped, but fail in CI.

    Playwright keeps an event loop running in this process, so these tests have a process of their own.
    """
    path = find_chromium()
    if path is None:
        missing = "needs Chromium, which is not installed (on Debian: apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The documentation's site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


@pytest.fixture(scope="session")
def home():
    """The address of an explorer that runs as users run it."""
    with explorer() as address:
        yield address


@pytest.fixture(scope="module")
def wide_page(browser, home):
    """One page at the width of a desktop, for the tests of a file."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    yield from _watched(page, home)


@pytest.fixture(scope="module")
def phone(browser, home):
    """The same at the width of a telephone."""
    page = browser.new_page(viewport={"width": 390, "height": 844}, device_scale_factor=2, **PHONE)
    yield from _watched(page, home)


def _watched(page, home):
    page.set_default_timeout(1000 * PATIENCE)
    faults, outside = [], []
    page.on("pageerror", lambda error: faults.append(str(error)) if str(error) != "undefined" else None)
    cut = "ERR_INTERNET_DISCONNECTED"  # by a test
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" and cut not in line.text else None)
    page.on("request", lambda r: outside.append(r.url) if urlsplit(r.url).hostname != "127.0.0.1" else None)
    yield Explorer(page, home)
    page.close()
    outside = [url for url in outside if not url.startswith(("data:", "blob:"))]
    assert not outside, "the page has asked for something from elsewhere"
    assert not faults, "an error in the browser, or in its console"

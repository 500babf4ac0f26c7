"""The pictures of docs/explore.md: the explorer as a browser shows it.

Run `python docs/make_explorer_pictures.py` where Chromium is installed; it starts the page, opens it, and writes
docs/images/explore*.png in a minute. With --out FOLDER it writes them elsewhere.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
PHONE = {"user_agent": "Mozilla/5.0 (Linux; Android 14) Mobile Safari/537.36", "is_mobile": True, "has_touch": True}
MANY = "agents=50&noise=0.1&rounds=20&round=4"
CALM = 2500  # milliseconds in which pictures settle


def find_chromium() -> str | None:
    """The program, under whichever of its names it is installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def explorer() -> Iterator[str]:
    """The address of a running explorer."""
    command = [sys.executable, "-c", "import sys; from fedlsa.cli import main; sys.exit(main())"]
    server = subprocess.Popen([*command, "explore", "--no-browser"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found, "the explorer has not started"
        yield found.group()
    finally:
        server.terminate()
        server.wait(60)  # longer than it ever takes, on a busy machine too


def opened(browser: Any, address: str, width: int, height: int, **more: Any) -> Page:
    """A page with everything drawn."""
    page: Page = browser.new_page(viewport={"width": width, "height": height}, **more)
    page.goto(address)
    page.get_by_text("Stable below").first.wait_for(timeout=300_000)
    page.wait_for_timeout(CALM)
    return page


def main(out: Path = IMAGES) -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit("needs Chromium (on Debian: apt-get install chromium)")
    out.mkdir(parents=True, exist_ok=True)
    with explorer() as home, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = opened(browser, f"{home}?rounds=20", 1280, 800, device_scale_factor=1.5)
        page.get_by_role("button", name="Simulate").click()
        page.get_by_text("20 simulated seeds").wait_for(timeout=300_000)
        page.get_by_role("heading", name="See client drift").scroll_into_view_if_needed()
        page.wait_for_timeout(CALM)
        page.screenshot(path=out / "explore.png")
        page = opened(browser, f"{home}?{MANY}", 1280, 900, device_scale_factor=1.5)
        page.locator("#scene").screenshot(path=out / "explore-agents.png")
        page = opened(
            browser, f"{home}?problem=garnet&preset=authors&agents=10&perturbation=0.0&step_size=0.1", 1280, 900,
            device_scale_factor=2,
        )  # fmt: skip
        page.get_by_role("button", name="Find plans").click()
        page.get_by_text("Every mark in numbers").wait_for(timeout=300_000)
        page.wait_for_timeout(CALM)
        page.mouse.move(0, 0)
        page.locator("#plan").screenshot(path=out / "explore-plan.png")
        page = opened(browser, home, 390, 844, device_scale_factor=2, **PHONE)
        page.screenshot(path=out / "explore-phone.png")
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=IMAGES, help="the folder for the pictures")
    main(parser.parse_args().out)

"""The live pages of docs/network.md, as a browser shows them during a real run of processes on this machine.

Run `python docs/make_network_screens.py` where Chromium is installed; it starts a coordinator and four sites, begins a
run, ends one of the sites in the middle, and writes docs/images/network-*.png in a minute. With --out FOLDER it writes
them elsewhere.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from make_explorer_pictures import IMAGES, find_chromium
from playwright.sync_api import sync_playwright

from fedlsa.fitting import Regression
from fedlsa.network.coordinator.runs import RunFolder
from fedlsa.network.demo import COMMAND, end_process, start_process
from fedlsa.network.folder.setup import enrol, init
from fedlsa.network.processes import free_port
from fedlsa.network.protocol.run_settings import StartOptions

SITES, COLUMNS, ROWS = ("amsterdam", "berlin", "lisbon", "oslo"), ("age", "dose", "weight", "visits"), 2000
LEAVES, SHOWN = "oslo", "lisbon"
PATIENCE = 300.0  # seconds


def write_table(path: Path, c: int) -> None:
    """The rows of a site: patients who do not exist."""
    rng = np.random.default_rng([11, c])
    common = rng.normal(size=(ROWS, 1))  # columns that go together make a long run
    X = (rng.normal(size=(ROWS, len(COLUMNS))) + 3 * common) * (1 + 0.2 * c) + 0.3 * c
    y = X @ np.linspace(-1, 1, len(COLUMNS)) + 0.4 * c + rng.normal(size=ROWS)
    head = ",".join((*COLUMNS, "outcome"))
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", header=head, comments="")


def rounds(run: RunFolder) -> int:
    """Rounds closed so far."""
    return sum(event["event"] == "round" for _, event in run.events())


def wait(true: object, what: str) -> None:
    """Until something is so."""
    end = time.monotonic() + PATIENCE
    while not true():  # type: ignore[operator]
        if time.monotonic() > end:
            sys.exit(f"not in {PATIENCE:g} s: {what}")
        time.sleep(0.05)


def shoot(driver: object, place: str, out: Path, name: str) -> None:
    """A picture of a page."""
    browser = driver.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])  # type: ignore[attr-defined]
    page = browser.new_page(viewport={"width": 1120, "height": 900}, device_scale_factor=1.5)
    page.goto(place)
    page.get_by_text("Updated").wait_for()
    page.screenshot(path=out / name, full_page=True)
    browser.close()


def main(out: Path = IMAGES) -> None:
    if find_chromium() is None:
        sys.exit("needs Chromium (on Debian: apt-get install chromium)")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        root = Path(folder)
        task = Regression("outcome")
        network = init(root / "net", SITES, "127.0.0.1", free_port(), task=task, page_port=free_port())
        site_port = free_port()
        commands = {"serve": (*COMMAND, "serve", str(network.folder))}
        for c, site in enumerate(SITES):
            write_table(root / f"{site}.csv", c)
            home = enrol(network, network.bundle(site), root / site)
            text = home.policy.read_text().replace('ledger_copy = ""', f'ledger_copy = "{root / "copies"}"')
            home.policy.write_text(text)
            page = ("--page-port", str(site_port)) if site == SHOWN else ("--no-page",)
            commands[site] = (*COMMAND, "join", str(home.folder), "--data", str(root / f"{site}.csv"), "--yes", *page)
        children = {name: start_process(words, root / f"{name}.log") for name, words in commands.items()}
        try:
            run = RunFolder.create(
                network, StartOptions(epsilon=1e-4, local="means", grace=1.0, deadline=5.0, name="trial")
            )
            wait(lambda: rounds(run) >= 60 or run.over, "60 rounds")
            children[LEAVES].kill()
            wait(lambda: f"waiting for {LEAVES}" in (run.last_text() or "") or run.over, "a site that is waited for")
            shoot(driver, f"http://127.0.0.1:{network.page_port}/", out, "network-coordinator.png")
            shoot(driver, f"http://127.0.0.1:{site_port}/", out, "network-site.png")
        finally:
            for child in reversed(children.values()):
                end_process(child)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=IMAGES, help="the folder for the pictures")
    main(parser.parse_args().out)

"""How long a slider of the explorer takes to its picture, in Chromium: from the key to curves and agents drawn anew.

    python benchmarks/explorer.py [--moves 30]

The page as it opens; every move is one step of "local steps", a second and a half after the last, in which the page has
asked ahead for the steps beside it, as it does for a reader. Medians with quartiles, and the machine's load.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from make_explorer_pictures import explorer, find_chromium, opened

GOALS = {"curves": 150, "agents": 300}  # milliseconds

# notes when the first picture with another question's curves is drawn, and the first with its agents
WATCH = """() => {
  addEventListener('keydown', () => { window.pressed = performance.now() }, true);
  window.took = {curves: [], agents: []};
  const {scene} = document.querySelector('fedlsa-scene');
  let shown = {...scene.drawn}, waiting = [];
  const look = () => {
    const now = scene.drawn;
    if (now.title !== shown.title) { shown = {title: now.title}; waiting = ['curves', 'agents']; }
    waiting = waiting.filter(what => {
      const there = what === 'curves' ? Object.keys(now.error).length : Object.keys(now.plane).length;
      if (there) window.took[what].push(performance.now() - window.pressed);
      return !there;
    });
    requestAnimationFrame(look);
  };
  look();
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--moves", type=int, default=30)
    moves = parser.parse_args().moves
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver, explorer() as address:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = opened(browser, address, 1280, 900)
        page.evaluate(WATCH)
        page.get_by_role("slider", name="local steps H", exact=True).focus()
        for i in range(moves):
            page.keyboard.press("ArrowLeft" if i % 20 < 10 else "ArrowRight")
            page.wait_for_function(f"() => window.took.agents.length > {i}", timeout=60_000)
            page.wait_for_timeout(1500)
        took = page.evaluate("() => window.took")
        browser.close()
    for what, goal in GOALS.items():
        low, median, high = statistics.quantiles(took[what], n=4)
        print(f"slider to {what}: {median:.0f} ms in the median (goal: {goal}), quartiles {low:.0f} and {high:.0f}")
    print(f"{moves} moves, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()

"""How long a slider of the explorer takes to its picture, in Chromium: from the key to the curves that are drawn anew.

    python benchmarks/explorer.py [--moves 30]

One page of ten agents; every move is one step of "local steps", to a place that no answer has been prepared for. The
figure is the median with its quartiles; the machine's load is printed beside it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from make_explorer_pictures import explorer, find_chromium, opened

GOAL = 150  # milliseconds

# looks at one element before every frame, and for another only when that one is gone: watching must not cost time
WATCH = """() => {
  addEventListener('keydown', () => { window.pressed = performance.now() }, true);
  const inside = root => [...root.querySelectorAll('*')].flatMap(
    e => [...(e._fullData ? [e] : []), ...(e.shadowRoot ? inside(e.shadowRoot) : [])]);
  const error = () => inside(document).find(e => e._fullData.some(t => t.name === 'FedLSA'));
  const last = e => e?._fullData?.map(t => t.y?.at(-1)).join();
  let element = error(), shown = last(element);
  window.took = [];
  const look = () => {
    if (!element?.isConnected) element = error();
    const now = last(element);
    if (now && now !== shown) { shown = now; window.took.push(performance.now() - window.pressed); }
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
        slider = page.locator("marimo-slider").filter(has_text="local steps").get_by_role("slider")
        slider.focus()
        for i in range(moves):
            before = page.evaluate("() => window.took.length")
            page.keyboard.press("ArrowLeft" if i % 20 < 10 else "ArrowRight")
            page.wait_for_function(f"() => window.took.length > {before}", timeout=20_000)
            page.wait_for_timeout(1500)
        took = page.evaluate("() => window.took")
        browser.close()
    low, median, high = statistics.quantiles(took, n=4)
    print(f"slider to picture: {median:.0f} ms in the median (goal: {GOAL}), quartiles {low:.0f} and {high:.0f},")
    print(f"{len(took)} pictures, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()

"""How fast the explorer is in Chromium: from its start, from the key of a slider to both pictures, and frame by frame.

    python benchmarks/explorer.py [--moves 30]
    python benchmarks/explorer.py --frames [OTHER/static ...]

From the command to the first picture with curves and agents. Then the page as it opens; every move is one step of
"local steps", a second and a half after the last, in which the page has asked ahead for the steps beside it, as it does
for a reader; then jumps of the step size by Page Up and Page Down, each to a place that nobody has asked for. Medians
with quartiles, and the machine's load.
--frames plays the scene alone, in turns with other versions of its folder: processor time of the page's main thread per
frame, drawing included, and frames in a second, of the best of three turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from make_explorer_pictures import explorer, find_chromium, opened

from fedlsa.pages import SCRIPTS

STATIC = Path(__file__).parents[1] / "src" / "fedlsa" / "pages" / "static"
GOALS = {"one step": 100, "a jump": 250, "the start": 1500}  # milliseconds, in the median
SIZES = {"desk": (900, 760, 600), "phone": (390, 844, 260)}  # width, height, height of a view
STARTS = 5  # of the command
TURNS = 3  # of each version, a second long
# the last key of each counts; three steps aside, and the way up meets other places than the way down
JUMPS = [["PageDown"]] * 4 + [["ArrowRight"] * 3 + ["PageUp"]] + [["PageUp"]] * 5

# notes when the first picture with another question's curves is drawn, and the first with its agents
WATCH = """() => {
  addEventListener('keydown', () => { window.pressed = performance.now() }, true);
  window.took = [];
  const {scene} = document.getElementById('scene');
  let shown = {...scene.drawn}, waiting = false;
  const look = () => {
    const now = scene.drawn;
    if (now.title !== shown.title) { shown = {title: now.title}; waiting = true; }
    if (waiting && Object.keys(now.error).length && Object.keys(now.plane).length) {
      took.push(performance.now() - pressed);
      waiting = false;
    }
    requestAnimationFrame(look);
  };
  look();
}"""

# how many methods the first picture has, of curves and of agents
DRAWN = """() => {
  const {drawn} = document.getElementById('scene')?.scene ?? {};
  return drawn ? Math.min(Object.keys(drawn.error ?? {}).length, Object.keys(drawn.plane ?? {}).length) : 0;
}"""

# two methods of N agents, 15 rounds of 24 points; frames are counted in `drawn`
PLAY = """N => {
  const T = 15, times = f => Array.from({length: T + 1}, (_, t) => f(t));
  const between = (p, q, u) => [p[0] + u * (q[0] - p[0]), p[1] + u * u * (q[1] - p[1])];
  const own = c => [2 * Math.cos(c), Math.sin(1.7 * c)];
  const agents = Array.from({length: N}, (_, c) => ({name: `agent ${c + 1}`, own: own(c), weight: 1 / N}));
  const methods = [["FedLSA", 0.5], ["SCAFFLSA", 0.7]].map(([name, s]) => {
    const average = times(t => [-2 * s ** t, 3 * s ** t]), total = times(t => 13 * s ** t + 0.01);
    const walk = (p, a) => Array.from({length: 25}, (_, k) => between(p, a.own, k / 50)).flat();
    const half = total.map(v => v / 2), parts = {start: half, drift: half};
    return {name, average, end: [0.3, 0.1], scatter: times(() => 0.1), total, parts, floor: 0.01,
            walks: average.slice(1).map((_, t) => agents.map(a => walk(average[t], a)))};
  });
  window.scene ??= FedLSAScene.create(document.body);
  scene.show({rounds: T, plane: {theta_star: [0, 0], agents, methods}, error: {x: times(t => t), methods}});
  scene.setRound(0);
  scene.play();
  const count = () => { window.drawn = (window.drawn || 0) + 1; requestAnimationFrame(count); };
  if (!window.drawn) count();
}"""


def until(page: Any, true: str) -> None:
    """Wait for a function of the page to give something; the page itself forbids that its text is evaluated there."""
    while not page.evaluate(true):
        page.wait_for_timeout(5)


def say(what: str, took: list[float]) -> None:
    low, median, high = statistics.quantiles(took, n=4)
    goal = f"goal: {GOALS[what]}"
    print(
        f"{what} to both pictures: {median:.0f} ms in the median ({goal}), quartiles {low:.0f} and {high:.0f}",
        flush=True,
    )


def starts(browser: Any, many: int) -> None:
    took = []
    for _ in range(many):
        begun = time.perf_counter()
        with explorer() as address:
            page = browser.new_page()
            page.goto(address)
            until(page, DRAWN)
            took.append(1000 * (time.perf_counter() - begun))
            page.close()
    say("the start", took)


def sliders(browser: Any, moves: int) -> None:
    with explorer() as address:
        page = opened(browser, address, 1280, 900)
        page.evaluate(WATCH)
        steps = [["ArrowLeft" if i % 20 < 10 else "ArrowRight"] for i in range(moves)]
        for label, kind, keys in (("local steps H", "one step", steps), ("step size η", "a jump", JUMPS)):
            page.get_by_role("slider", name=label, exact=True).focus()
            took: list[float] = []
            for *aside, key in keys:
                for other in aside:
                    page.keyboard.press(other)
                page.wait_for_timeout(1500)
                page.evaluate("() => { window.took = [] }")
                page.keyboard.press(key)
                until(page, "() => window.took.length")
                took += page.evaluate("() => window.took")
            say(kind, took)


def frames(browser: Any, scripts: list[Path]) -> None:
    for size, (width, height, tall) in SIZES.items():
        for ratio in (1, 2):
            pages = [
                browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=ratio)
                for _ in scripts
            ]
            clocks = [page.context.new_cdp_session(page) for page in pages]
            for page, clock, script in zip(pages, clocks, scripts, strict=True):
                page.set_content(f"<style>.fs {{ --fs-height: {tall}px }}</style>")
                for name in SCRIPTS["scene"]:
                    if (script / name).exists():  # before it was split, scene.js held all
                        page.add_script_tag(path=script / name)
                clock.send("Performance.enable", {"timeDomain": "threadTicks"})
            for agents in (3, 12, 50, 200):
                best = [(float("inf"), 0.0)] * len(scripts)
                for turn in range(TURNS * len(scripts)):
                    i = turn % len(scripts)
                    best[i] = min(best[i], turn_of(pages[i], clocks[i], agents))
                said = [f"{ms:5.1f} ms, {rate:3.0f} frames/s" for ms, rate in best]
                print(f"{size}, {ratio} x pixels, {agents:3} agents: {' | '.join(said)}", flush=True)
            for page in pages:
                page.close()


def turn_of(page: Any, clock: Any, agents: int) -> tuple[float, float]:
    """Milliseconds of processor time per frame, and frames in a second."""

    def read() -> tuple[float, float, float]:
        metrics = {m["name"]: m["value"] for m in clock.send("Performance.getMetrics")["metrics"]}
        return metrics["TaskDuration"], *page.evaluate("[drawn, performance.now() / 1000]")

    page.bring_to_front()
    page.evaluate(PLAY, agents)
    page.wait_for_timeout(300)
    busy, drawn, now = read()
    page.wait_for_timeout(1000)
    busy_after, drawn_after, after = read()
    page.evaluate("scene.pause()")
    return 1000 * (busy_after - busy) / (drawn_after - drawn), (drawn_after - drawn) / (after - now)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--moves", type=int, default=30)
    parser.add_argument("--frames", type=Path, nargs="*", metavar="STATIC", help="play the picture alone")
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        if args.frames is None:
            starts(browser, STARTS)
            sliders(browser, args.moves)
        else:
            frames(browser, [STATIC, *args.frames])
        browser.close()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()

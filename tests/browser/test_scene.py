"""The room in which both pages draw (src/fedlsa/explore/scene.js), alone in a browser."""

import math
import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "src" / "fedlsa" / "explore" / "scene.js"
DATA = """rounds => {
  const fall = s => Array.from({length: rounds + 1}, (_, t) => [2 * s ** t, s ** t]);
  const method = (name, s, end) => ({name, end, average: fall(s), walks: fall(s).slice(1).map(
    ([x, y]) => [[2 * x, y, x, 2 * y, x + 1, y], [2 * x, y, x, 0, x - 1, y]])});
  const curve = s => fall(s).map(([x, y]) => x * x + y * y);
  const split = total => ({start: total.map(v => v / 2), drift: total.map(v => v / 4), noise: total.map(v => v / 4)});
  return {
    title: `${rounds} rounds`,
    plane: {theta_star: [0, 0], agents: [{name: "north", own: [0, 1]}, {name: "south", own: [1, -1]}],
            methods: [method("FedLSA", 0.5, [0.2, 0]), method("SCAFFLSA", 0.8, null)], caption: "Means."},
    error: {x: curve(1).map((_, t) => t), x_label: "communications", methods: [
      {name: "FedLSA", total: curve(0.5), parts: split(curve(0.5)), floor: 0.01},
      {name: "SCAFFLSA", total: curve(0.8)}]}};
}"""
# how many pixels of a canvas have ink, and how many different colours
INK = """view => {
  const c = document.querySelector(`.fs-${view} canvas`);
  const pixels = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer);
  return [pixels.filter(p => p).length, new Set(pixels).size];
}"""


@pytest.fixture(scope="module")
def page(browser):
    page = browser.new_page(viewport={"width": 1000, "height": 700}, reduced_motion="reduce")  # views jump, never glide
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.set_content("<body><div id=here></div></body>")
    page.add_script_tag(path=SCRIPT)
    page.evaluate(f"""() => {{
      window.made = {DATA};
      window.pulled = [];
      window.scene = FedLSAScene.create(here, {{seconds: 60, onDrag: (...pull) => pulled.push(pull)}});
      scene.show(made(6));
    }}""")
    yield page
    page.close()
    assert page.faults == []


def drawn(page):
    return page.evaluate("scene.drawn")


def test_both_views_are_drawn(page):
    for view in ("plane", "error"):
        pixels, colours = page.evaluate(INK, view)
        assert (pixels > 1000, colours > 50) == (True, True)
    assert page.locator(".fs-title").inner_text() == "6 rounds"


def test_one_slider_moves_the_agents_and_the_error(page):
    slider = page.get_by_role("slider", name="Round")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("scene.drawn.round === 3")
    shown = drawn(page)
    assert slider.get_attribute("aria-valuetext") == "round 3 of 6"
    assert shown["plane"]["FedLSA"]["average"] == [0.25, 0.125]
    assert shown["error"]["FedLSA"] == {"x": 3, "value": pytest.approx(0.078125), "floor": 0.01}
    assert "Round 3 of 6. FedLSA is 0.28 from θ⋆" in page.locator(".fs-words").inner_text()


def test_a_touch_on_the_error_moves_the_agents_too(page):
    page.locator(".fs-error canvas").click(position={"x": 53, "y": 100})
    page.wait_for_function("scene.drawn.round < 0.1")
    assert drawn(page)["plane"]["SCAFFLSA"]["average"] == [2, 1]


def test_the_axis_of_the_error_has_powers_of_ten_alone(page):
    texts = page.evaluate("""() => {
      const seen = [], brush = CanvasRenderingContext2D.prototype, real = brush.fillText;
      brush.fillText = function (text, ...rest) {
        if (this.textAlign === "right") seen.push(text);
        real.call(this, text, ...rest);
      };
      scene.show(made(4));
      brush.fillText = real;
      return seen;
    }""")
    ticks = [float(text) for text in texts if re.fullmatch(r"[0-9.]+", text)]
    assert len(ticks) >= 2
    assert len(set(ticks)) == len(ticks)
    assert all(math.log10(tick) == pytest.approx(round(math.log10(tick)), abs=1e-12) for tick in ticks)


def test_new_data_replace_the_old_while_it_plays(page):
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("scene.drawn.round > 0.001")
    shown = page.evaluate("() => { scene.show(made(4)); return [scene.drawn, scene.playing]; }")
    assert shown[0]["title"] == page.locator(".fs-title").inner_text() == "4 rounds"
    assert (shown[0]["round"], shown[0]["rounds"], shown[1]) == (0, 4, True)
    page.get_by_role("button", name="Pause").click()
    assert not page.evaluate("scene.playing")


def test_arrows_move_an_own_solution_and_so_does_the_mouse(page):
    handle = page.get_by_role("button", name="north").first
    handle.focus()
    page.keyboard.press("ArrowRight")
    (agent, (x, y), phase) = page.evaluate("pulled.at(-1)")
    assert (agent, x > 0, y, phase) == (0, True, 1, "end")
    box = handle.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 20, box["y"] + 80, steps=3)
    page.mouse.up()
    assert page.evaluate("pulled.at(-2)")[1][1] < 1


def test_zoom_and_fit(page):
    where = "(() => { const r = document.querySelectorAll('.fs-handle')[1].style; return [r.left, r.top]; })()"
    before = page.evaluate(where)
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_function(f"{where}[0] !== '{before[0]}'")
    page.get_by_role("button", name="Fit everything into the picture").click()
    page.wait_for_function(f"{where}[0] === '{before[0]}'")

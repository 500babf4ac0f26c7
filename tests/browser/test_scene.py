"""The picture of play and explorer (pages/static/scene.js and its parts), alone in a browser."""

import math
import re

import pytest

from fedlsa.pages import COLOURS, scripts, static_text

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


# a scene of its own whose frames come when they are asked for: frames(milliseconds of each, ...)
BY_HAND = """data => {
  const real = requestAnimationFrame, room = document.body.appendChild(document.createElement("div"));
  let asked = null, now = 1;
  window.requestAnimationFrame = f => { asked = f; return 1; };
  const scene = FedLSAScene.create(room, {});
  scene.show(data);
  scene.play();
  return {scene, frames: (...lengths) => lengths.forEach(ms => { const f = asked; asked = null; if (f) f(now += ms); }),
          end() { window.requestAnimationFrame = real; room.remove(); }};
}"""


@pytest.fixture(scope="module")
def page(browser):
    page = browser.new_page(viewport={"width": 1000, "height": 700}, reduced_motion="reduce")  # views jump, never glide
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.set_default_timeout(180_000)
    page.set_content(f"<style>{static_text(COLOURS)}</style><body><div id=here></div></body>")
    for text in scripts("scene").values():
        page.add_script_tag(content=text)
    page.evaluate(f"""() => {{
      window.made = {DATA};
      window.byHand = {BY_HAND};
      window.pulled = [];
      window.scene = FedLSAScene.create(here, {{onDrag: (...pull) => pulled.push(pull)}});
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
    assert slider.get_attribute("aria-valuetext") == "round 6 of 6"  # a reader who wants no motion sees the end first
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("scene.drawn.round === 3")
    shown = drawn(page)
    assert slider.get_attribute("aria-valuetext") == "round 3 of 6"
    assert shown["plane"]["FedLSA"]["average"] == [0.25, 0.125]
    assert shown["error"]["FedLSA"] == {"x": 3, "value": pytest.approx(0.078125), "floor": 0.01}
    said = page.locator(".fs-words").inner_text()
    assert said == "Round 3 of 6. FedLSA: error 0.078, start and drift. SCAFFLSA: error 1.3."


def test_a_touch_on_the_error_moves_the_agents_too(page):
    page.locator(".fs-error").click(position={"x": 53, "y": 100})
    page.wait_for_function("scene.drawn.round < 0.1")
    assert drawn(page)["plane"]["SCAFFLSA"]["average"] == [2, 1]


def table(page):
    return page.evaluate("[...document.querySelectorAll('.fs-tip tr')].map(r => [...r.cells].map(c => c.textContent))")


def test_the_values_under_the_pointer_are_shown_with_what_they_are_made_of(page):
    wanted = [["error", "start", "drift", "noise"], ["0.078", "0.039", "0.02", "0.02"], ["1.3", "", "", ""]]
    view = page.locator(".fs-error").bounding_box()
    at, y = view["x"] + 52 + (view["width"] - 66) / 2 + 3, view["y"] + view["height"] / 2  # near round 3 of 6
    page.evaluate("scene.setRound(0)")
    page.mouse.move(at, y)
    page.locator(".fs-tip").wait_for()
    assert [row[1:] for row in table(page)] == wanted
    assert [row[0] for row in table(page)] == ["round 3", "FedLSA", "SCAFFLSA"]
    assert page.evaluate("scene.round") == 0  # to look is not to move
    page.mouse.move(5, 5)
    page.locator(".fs-tip").wait_for(state="hidden")
    page.get_by_role("slider", name="Round").press("ArrowRight")
    page.locator(".fs-tip").wait_for()
    assert table(page)[0][0] == "round 1"
    page.get_by_role("button", name="All rounds").focus()
    page.locator(".fs-tip").wait_for(state="hidden")


def test_where_methods_have_an_x_of_their_own_values_clicks_and_cursors_are_those_of_their_curves(page):
    """FedLSA ends at x = 6, SCAFFLSA, ten times as dear, at 60."""
    page.evaluate("""() => {
      const data = made(6), {error} = data;
      error.methods[1].x = error.x.map(t => 10 * t);
      scene.show({...data, error: {...error, rounds: error.x}});
      scene.setRound(0);
    }""")
    view = page.locator(".fs-error").bounding_box()

    def at(x):
        return view["x"] + 52 + (view["width"] - 66) * x / 60

    y = view["y"] + view["height"] / 2
    page.mouse.move(at(4), y)
    page.locator(".fs-tip").wait_for()
    assert [row[1:3] for row in table(page)] == [["round", "error"], ["4", "0.02"], ["0", "5"]]
    page.mouse.move(at(49.3), y)  # FedLSA's curve has ended
    page.locator(".fs-tip", has_text="at 49").wait_for()
    assert [row[1:3] for row in table(page)[1:]] == [["ended", ""], ["5", "0.54"]]
    assert page.evaluate("scene.round") == 0
    page.mouse.click(at(50), y)
    assert page.evaluate("scene.round") == pytest.approx(5, abs=0.1)
    page.mouse.move(5, 5)
    page.wait_for_function("scene.drawn.round === scene.round")
    ink = """x => { const c = document.querySelectorAll('.fs-error canvas')[1], k = c.width / c.clientWidth;
      return c.getContext('2d').getImageData(k * (x - 3), k * 120, k * 6, 1).data.some(v => v); }"""
    inked = [page.evaluate(ink, at(x) - view["x"]) for x in (5, 50, 25)]
    assert inked == [True, True, False]  # a line where each method's round is
    page.get_by_role("slider", name="Round").press("Home")
    page.locator(".fs-tip").wait_for()
    assert [row[:2] for row in table(page)] == [["round 0", "error"], ["FedLSA", "5"], ["SCAFFLSA", "5"]]
    page.get_by_role("button", name="All rounds").focus()
    page.evaluate("() => { scene.show(made(6)); scene.setRound(0); }")


def test_bands_keep_their_names_when_the_error_is_looked_at_closely(page):
    named = """() => {
      const seen = [], brush = CanvasRenderingContext2D.prototype, real = brush.fillText;
      brush.fillText = function (text, ...rest) { seen.push(text); real.call(this, text, ...rest); };
      const data = made(100), [fedlsa, other] = data.error.methods, flat = v => fedlsa.total.map(() => v);
      Object.assign(fedlsa, {total: flat(1), parts: {noise: flat(0.001), drift: flat(0.999)}, floor: null});
      other.total = other.total.map((_, t) => t < 70 ? 2 : 0.04);  // far from what is seen about round 20
      scene.show(data, {keep: true});
      brush.fillText = real;
      return seen.includes("drift");
    }"""
    page.evaluate("() => { scene.show(made(100)); scene.setRound(20); }")
    assert page.evaluate(named)
    for _ in range(6):
        page.get_by_role("button", name="Fewer rounds").click()
    assert page.evaluate(named)
    page.get_by_role("button", name="All rounds").click()
    page.evaluate("() => { scene.show(made(6)); scene.setRound(0); }")


def test_the_cursor_does_not_strike_the_name_of_a_band(page):
    """FedLSA's error is level, and so is its only band; the cursor goes through the band's name."""
    on_name, beside = page.evaluate("""async () => {
      const brush = CanvasRenderingContext2D.prototype, real = brush.fillText, data = made(100), {error} = data;
      let at;
      brush.fillText = function (text, x, y) { if (text === "noise") at = [x, y]; real.call(this, text, x, y); };
      const level = error.x.map((_, t) => t ? 1 : 100), [{name}] = error.methods;
      scene.show({...data, error: {...error, methods: [{name, total: level, parts: {noise: level}}]}});
      brush.fillText = real;
      const canvas = document.querySelectorAll(".fs-error canvas")[1], r = canvas.getBoundingClientRect();
      const [l, w] = [52, r.width - 66], k = canvas.width / r.width;
      scene.setRound(100 * (at[0] + 2 - l) / w);
      await new Promise(requestAnimationFrame);
      const g = canvas.getContext("2d"), x = k * (at[0] - 2);
      const ink = y => g.getImageData(x, k * (y - 4), k * 8, k * 8).data.some(v => v);
      return [ink(at[1]), ink(at[1] + 20)];
    }""")
    assert (on_name, beside) == (False, True)
    page.evaluate("() => { scene.show(made(6)); scene.setRound(0); }")


def test_the_error_can_be_looked_at_more_closely_about_the_cursor(page):
    axis = """() => {
      const seen = [], brush = CanvasRenderingContext2D.prototype, real = brush.fillText;
      brush.fillText = function (text, ...rest) {
        if (this.textAlign === "center" && /^[0-9.]+$/.test(text)) seen.push(+text);
        real.call(this, text, ...rest);
      };
      scene.show(made(24), {keep: true});
      brush.fillText = real;
      return seen;
    }"""
    page.evaluate("() => { scene.show(made(24)); scene.setRound(10); }")
    assert page.evaluate(axis)[-1] >= 20
    for _ in range(3):
        page.get_by_role("button", name="Fewer rounds").click()
    ticks = page.evaluate(axis)
    assert (ticks[0] >= 7, ticks[-1] <= 13) == (True, True)
    page.evaluate("scene.setRound(20)")  # the picture goes along
    page.wait_for_function("scene.drawn.round === 20")
    ticks = page.evaluate(axis)
    assert (ticks[0] >= 17, ticks[-1] <= 23) == (True, True)
    page.get_by_role("button", name="All rounds").click()
    assert page.evaluate(axis)[-1] >= 20
    page.evaluate("() => { scene.show(made(6)); scene.setRound(0); }")


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


def test_an_axis_of_rounds_has_no_tenths(page):
    ticks = page.evaluate("""() => {
      const seen = [], brush = CanvasRenderingContext2D.prototype, real = brush.fillText;
      brush.fillText = function (text, ...rest) {
        if (this.textAlign === "center" && Number.isFinite(+text)) seen.push(+text);
        real.call(this, text, ...rest);
      };
      scene.show(made(2));
      brush.fillText = real;
      scene.show(made(6));
      return seen;
    }""")
    assert ticks == [0, 1, 2]


def test_new_data_replace_the_old_while_it_plays(page):
    shown, playing, paused = page.evaluate("""async () => {
      const button = document.querySelector(".fs-play");
      button.click();
      for (const before = scene.round; scene.round === before;) await new Promise(requestAnimationFrame);
      scene.show(made(4));
      const seen = [scene.drawn, scene.playing];
      button.click();
      return [...seen, scene.playing];
    }""")
    assert shown["title"] == page.locator(".fs-title").inner_text() == "4 rounds"
    assert (shown["round"], shown["rounds"], playing, paused) == (0, 4, True, False)


def test_a_slow_machine_drops_frames_but_rounds_take_as_long_as_ever(page):
    fast, slow = page.evaluate("""() => [Array(601).fill(1000 / 60), [1, ...Array(25).fill(400)]].map(lengths => {
      const {scene, frames, end} = byHand(made(12));
      frames(...lengths);
      end();
      return scene.round;
    })""")
    assert 8 < fast < 9
    hidden = page.evaluate("""() => {
      const {scene, frames, end} = byHand(made(12));
      frames(1, 3_600_000);
      end();
      return scene.round;
    }""")
    assert 0 < hidden < 2  # an hour in another tab is a second here
    assert slow == pytest.approx(fast, rel=1e-9)


def test_a_frame_draws_only_what_moves(page):
    """With 200 agents: no words, no axes, no style is asked for, and of each walk only its last piece."""
    calls = page.evaluate("""() => {
      const data = made(6), {plane} = data, {walks} = plane.methods[0];
      plane.agents = Array.from({length: 200}, (_, c) => ({name: `agent ${c}`, own: [Math.cos(c), Math.sin(c)]}));
      const many = point => Array.from({length: 25}, (_, k) => [point + k / 50, k / 25]).flat();
      for (const m of plane.methods) m.walks = m.walks.map(() => plane.agents.map((_, c) => many(c / 200)));
      const {scene, frames, end} = byHand(data), brush = CanvasRenderingContext2D.prototype, counts = {};
      frames(1, ...Array(60).fill(1000 / 60));
      const real = {}, style = window.getComputedStyle;
      counts.style = 0;
      for (const name of ["fillText", "measureText", "lineTo", "stroke", "arc"]) {
        real[name] = brush[name];
        counts[name] = 0;
        brush[name] = function (...args) { counts[name] += 1; return real[name].apply(this, args); };
      }
      window.getComputedStyle = (...args) => { counts.style += 1; return style(...args); };
      const before = scene.round;
      frames(1000 / 60);
      Object.assign(brush, real);
      window.getComputedStyle = style;
      end();
      return [Math.floor(before) === Math.floor(scene.round) && before < scene.round, counts];
    }""")
    moved, counts = calls
    assert moved
    assert counts["fillText"] == counts["measureText"] == counts["style"] == 0
    assert counts["arc"] < 2 * (200 + 10)
    assert counts["stroke"] < 2 * 24 + 20  # agents of one colour at one stroke
    assert counts["lineTo"] < 2 * 2 * 200 + 50  # of 2 x 25 x 200


def test_new_data_are_drawn_once_and_what_they_leave_as_it_was_is_not_written_again(page):
    drawings, writings = page.evaluate("""() => {
      const {scene, frames, end} = byHand(made(6)), brush = CanvasRenderingContext2D.prototype, real = brush.clearRect;
      scene.pause();
      frames(1, 16, 16);
      let drawings = 0;
      const watch = new MutationObserver(() => {});
      watch.observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
      brush.clearRect = function (...args) { drawings += 1; real.apply(this, args); };
      scene.show(made(6), {keep: true});
      frames(16, 16, 16);
      brush.clearRect = real;
      const changed = watch.takeRecords().filter(r => r.attributeName !== "hidden").map(r => r.attributeName || r.type);
      end();
      return [drawings, changed];
    }""")
    assert drawings == 5  # each canvas once
    assert set(writings) <= {"style"}


def test_a_finer_screen_is_used_and_a_slow_machine_spares_its_pixels_while_it_plays(page):
    slow, fast = page.evaluate("""() => [40, 16].map(ms => {
      const media = window.matchMedia, told = {};
      window.matchMedia = query => ({matches: true, addEventListener: (_, f) => { told[query] = f; }});
      const {scene, frames, end} = byHand(made(60)), room = document.body.lastElementChild, seen = [];
      const look = () => seen.push([...room.querySelectorAll(".fs-plane canvas")].map(c => c.width / c.clientWidth));
      window.matchMedia = media;
      look();
      Object.defineProperty(window, "devicePixelRatio", {value: 2, configurable: true});
      told["(min-resolution: 1.5dppx)"]();
      look();
      frames(1, 2000, ...Array(30).fill(ms));  // a page that was hidden for two seconds is not slow
      look();
      scene.pause();
      look();
      end();
      Object.defineProperty(window, "devicePixelRatio", {value: 1, configurable: true});
      return seen;
    })""")
    assert slow == [[1, 1, 1], [2, 2, 2], [2, 1, 1], [2, 2, 2]]
    assert fast == [[1, 1, 1], [2, 2, 2], [2, 2, 2], [2, 2, 2]]


def test_what_is_beyond_all_bounds_or_beyond_the_walks_is_said_and_shown(page):
    lines, filled = page.evaluate("""() => {
      const data = made(6), [fedlsa] = data.error.methods, gone = list => list.map((v, t) => t < 4 ? v : null);
      Object.assign(fedlsa, {total: gone(fedlsa.total), parts: {...fedlsa.parts, noise: gone(fedlsa.parts.noise)}});
      fedlsa.parts.noise.fill(NaN, 5);
      Object.assign(data.plane.methods[0], {end: null, end_reason: "far too long a reason for one line ".repeat(3)});
      Object.assign(data, {rounds: 100}).error.x[6] = 100;
      const seen = [], brush = CanvasRenderingContext2D.prototype, real = brush.fillText;
      brush.fillText = function (text, ...rest) {
        if (this.canvas.closest(".fs-plane")) seen.push([text, this.measureText(text).width]);
        real.call(this, text, ...rest);
      };
      scene.show(data);
      scene.setRound(100);
      brush.fillText = real;
      const canvas = document.querySelector(".fs-error canvas"), [x, y] = [0.9 * canvas.width, 0.3 * canvas.height];
      return [seen, canvas.getContext("2d").getImageData(x, y, 1, 1).data[3]];
    }""")
    assert filled > 0  # the noise has run off the top: its band does too
    reason = [(words, width) for words, width in lines if "far" in words or "reason" in words or "line" in words]
    half = page.locator(".fs-plane").bounding_box()["width"] / 2
    assert len(reason) > 1
    assert all(width < half - 10 for _, width in reason)
    said = page.locator(".fs-words").inner_text()
    assert said.startswith("Round 100 of 100. Agents are shown up to round 6. FedLSA: error beyond all bounds.")
    page.evaluate("() => { scene.show(made(4)); scene.setRound(0); }")


def test_arrows_move_an_own_solution_and_so_does_the_mouse(page):
    handle = page.get_by_role("button", name="north").first
    handle.focus()
    page.keyboard.press("ArrowRight")
    (agent, (x, y), first) = page.evaluate("pulled.at(-1)")
    assert (agent, x > 0, y, first) == (0, True, 1, True)
    box, known = handle.bounding_box(), page.evaluate("pulled.length")
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 20, box["y"] + 80, steps=3)
    page.mouse.up()
    page.wait_for_function("pulled.at(-1)[1][1] < 0.8")
    firsts = [first for _, _, first in page.evaluate("known => pulled.slice(known)", known)]
    assert firsts == [True] + [False] * (len(firsts) - 1)
    known = page.evaluate("pulled.length")
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down(button="right")  # which asks for a menu
    page.mouse.move(box["x"] + 20, box["y"] + 90, steps=3)
    page.mouse.up(button="right")
    assert page.evaluate("pulled.length") == known


def test_the_mark_of_the_last_round_is_whole(page):
    page.evaluate("() => { scene.show(made(6)); scene.setRound(6); }")
    page.wait_for_function("scene.drawn.round === 6")
    outside = """() => { const c = document.querySelectorAll('.fs-error canvas')[1], x = c.width - 14 + 4;
      return c.getContext('2d').getImageData(x, 0, 1, c.height).data.some(v => v); }"""
    assert page.evaluate(outside)
    page.evaluate("() => { scene.show(made(4)); scene.setRound(0); }")


def test_zoom_and_fit(page):
    where = "(() => { const r = document.querySelectorAll('.fs-handle')[1].style; return [r.left, r.top]; })()"
    before = page.evaluate(where)
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_function(f"{where}[0] !== '{before[0]}'")
    page.get_by_role("button", name="Fit everything into the picture").click()
    page.wait_for_function(f"{where}[0] === '{before[0]}'")

"""The static page docs/play, opened from the disk: its mathematics against the library, its story, its laboratory."""

import re
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from legible import illegible
from scipy.optimize import minimize

import fedlsa as fl
from fedlsa.engine.paths import round_paths
from fedlsa.pages import SCRIPTS

HOME = (Path(__file__).parents[2] / "docs" / "play" / "index.html").as_uri()
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
STATES = [  # agents, local steps, step size, rounds, noise, weights
    (1, 5, 0.3, 6, 0.2, [1]),
    (3, 20, 0.15, 12, 0.3, [1, 1, 1]),
    (5, 7, 0.5, 15, 0.7, [1, 2, 0.5, 3, 0.1]),
    (4, 1, 0.7, 9, 0.0, [1, 1, 5, 1]),
]


def opened(browser, **more):
    page = browser.new_page(**{"viewport": {"width": 1280, "height": 800}, **more})
    page.set_default_timeout(180_000)
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda said: page.faults.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: page.faults.append(asked.url) if asked.url.startswith("http") else None)
    page.goto(HOME)
    return page


@pytest.fixture(scope="module")
def still(browser):
    """A desk's page for a reader who wants no motion."""
    page = opened(browser, reduced_motion="reduce")
    yield page
    page.close()
    assert page.faults == []


def visit(page, hash):
    page.evaluate("hash => { location.hash = hash; }", hash)
    page.wait_for_function("hash => location.hash === '#' + hash", arg=hash)
    step = "Lab" if "lab" in hash else f"Step {hash[-1]}"
    page.locator(f"#steps [aria-current=step]:is(:text('{step}'), [aria-label^='{step}'])").wait_for()


def drawn(page):
    """Whatever has been asked for is on the screen."""
    page.evaluate("""() => new Promise((done, fail) => {
      setTimeout(() => fail(Error("the page has drawn nothing for a minute")), 60_000);
      requestAnimationFrame(() => requestAnimationFrame(done));
    })""")


def link(page):
    """What follows the # in the link that the page gives away."""
    page.evaluate("document.getElementById('link').click()")
    return page.evaluate("location.hash.slice(1)")


def touch(page, *path):
    """A finger goes along points of the screen."""
    finger = page.context.new_cdp_session(page)
    for kind, at in [("Start", path[0]), *[("Move", at) for at in path[1:]], ("End", None)]:
        points = [{"x": at[0], "y": at[1]}] if at else []
        finger.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})
    drawn(page)


def middle(handle):
    box = handle.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_page_takes_the_scripts_of_a_scene_in_their_order():
    text = (Path(__file__).parents[2] / "docs" / "play" / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<script src="(.*?)">', text) == [*(f"drawing/{name}" for name in SCRIPTS["scene"]), "play.js"]


NAMED = "e => e.getAttribute('aria-label') || (e.labels && e.labels.length ? e.labels[0] : e).innerText.trim()"
FOCUS = f"""() => {{
  const e = document.activeElement, r = e.getBoundingClientRect(), style = getComputedStyle(e);
  const above = document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2);
  const seen = e.contains(above) || !!above?.closest(".fs-handles");
  const ringed = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return [({NAMED})(e).split("\\n")[0].split(":")[0], ringed,
          seen && r.top >= 0 && r.left >= 0 && r.bottom <= innerHeight && r.right <= innerWidth];
}}"""


def focused(page):
    """The name of what has the focus, which has a ring about it and nothing above it, once the page has scrolled."""
    for _ in range(100):
        name, ringed, seen = page.evaluate(FOCUS)
        if ringed and seen:
            return name
        page.wait_for_timeout(100)
    pytest.fail(f"{name} has the focus: ring {ringed}, in sight {seen}")


def press_until(page, key, name):
    """Tab, or Shift+Tab, until something has the focus; everything on the way is seen too."""
    on_the_way = []
    for _ in range(60):
        page.keyboard.press(key)
        if page.evaluate("document.activeElement === document.body"):
            continue  # the browser's own buttons
        on_the_way.append(focused(page))
        if on_the_way[-1].startswith(name):
            return
    pytest.fail(f"{key} does not lead to {name}; it leads to {on_the_way}")


def the_same_problem(agents, noise):
    """Additive noise of covariance noise^2 I: b is moved by noise sqrt(2) along an axis, either way."""
    moves = noise * np.sqrt(2) * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    systems = [(np.full(4, 0.25), np.tile(a["A"], (4, 1, 1)), np.array(a["b"]) + moves) for a in agents]
    return fl.problems.from_observations(systems, weights=[a["weight"] for a in agents])


@pytest.mark.parametrize(("agents", "steps", "eta", "rounds", "noise", "weights"), STATES)
def test_its_numbers_are_those_of_the_library(still, agents, steps, eta, rounds, noise, weights):
    state = {"agents": agents, "H": steps, "eta": eta, "rounds": rounds, "noise": noise, "weights": weights}
    made, start, shown = still.evaluate(
        """state => {
          const all = {...state, differ: 0.8, shape: FedLSAPlay.ring(state.agents), methods: ["FedLSA", "SCAFFLSA"]};
          return [FedLSAPlay.problem(all), FedLSAPlay.START, FedLSAPlay.picture(all)];
        }""",
        state,
    )
    p = the_same_problem(made["agents"], noise)
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(made["theta_star"], p.theta_star, **close)
    np.testing.assert_allclose([a["own"] for a in made["agents"]], p.theta_star_local, **close)
    for method, plane, error in zip(
        (fl.FedLSA(eta, steps), fl.SCAFFLSA(eta, steps)),
        shown["plane"]["methods"],
        shown["error"]["methods"],
        strict=True,
    ):
        points = min(steps, 24)
        paths = round_paths(p, method, rounds=rounds, theta_0=start, points=points)
        np.testing.assert_allclose(plane["average"], paths.theta, **close)
        walks = np.reshape(plane["walks"], (rounds, agents, points + 1, 2))
        np.testing.assert_allclose(walks, paths.local, **close)
        exact = fl.theory.exact(p, method, rounds=rounds, theta_0=start, record=range(rounds + 1))
        np.testing.assert_allclose(error["total"], exact["mse"], **close)
        for part in ("start", "drift", "noise"):
            np.testing.assert_allclose(error["parts"][part], exact[part], **close)
        np.testing.assert_allclose(error["floor"] or 0, fl.theory.stationary(p, method).mse, **close)
    bias = fl.theory.bias(p, eta, steps)
    np.testing.assert_allclose(shown["plane"]["methods"][0]["end"], p.theta_star + bias, **close)


WEIGHTS_FOR = """([from, p, low]) => {
  const all = {agents: from.length, differ: 1, shape: FedLSAPlay.ring(from.length), weights: from};
  const {agents} = FedLSAPlay.problem(all);
  return [agents, FedLSAPlay.weightsFor(agents, from, p, low)];
}"""


def theta_star(agents, weights):
    return the_same_problem([{**a, "weight": w} for a, w in zip(agents, weights, strict=True)], 0).theta_star


@pytest.mark.parametrize("within", [[0.5, 0.3, 0.2], [0.05, 0.5, 0.1, 0.25, 0.1], [0.3, *[0.02] * 6, 0.58]])
def test_a_pulled_theta_star_is_where_the_finger_is_with_the_least_change_of_weights(still, within):
    n = len(within)
    start, low = np.arange(1, n + 1) / (n * (n + 1) / 2), 0.1 / n
    agents, _ = still.evaluate(WEIGHTS_FOR, [start.tolist(), [0, 0], low])
    target = theta_star(agents, within)
    _, w = still.evaluate(WEIGHTS_FOR, [start.tolist(), target.tolist(), low])
    np.testing.assert_allclose(theta_star(agents, w), target, atol=1e-6)
    pulls = np.array([np.array(a["A"]) @ (target - a["own"]) for a in agents]).T  # sum w_c pull_c = 0 at theta_star
    least = minimize(
        lambda v: (v - start) @ (v - start), start, jac=lambda v: 2 * (v - start), bounds=[(low, 1)] * n,
        constraints=[{"type": "eq", "fun": lambda v: pulls @ v, "jac": lambda v: pulls},
                     {"type": "eq", "fun": lambda v: v.sum() - 1, "jac": np.ones_like}],
        method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert least.success
    np.testing.assert_allclose(w, least.x, atol=1e-5)
    assert (sum(w), min(w) > low - 1e-9) == (pytest.approx(1, abs=1e-12), True)


@pytest.mark.parametrize("target", [[0, 0], [5, 0], [-3, 3], [1000, -1000]])
def test_a_theta_star_that_cannot_reach_the_finger_comes_as_near_as_it_can(still, target):
    low = 0.1 / 3
    agents, w = still.evaluate(WEIGHTS_FOR, [[1 / 3] * 3, target, low])
    fine = [(i, j) for i in range(101) for j in range(101 - i)]
    grid = [low + (1 - 3 * low) * np.array([i, j, 100 - i - j]) / 100 for i, j in fine]
    A, b = np.array([a["A"] for a in agents]), np.array([a["b"] for a in agents])
    away = [np.linalg.norm(np.linalg.solve(np.tensordot(v, A, 1), v @ b) - target) for v in grid]
    far = np.linalg.norm(theta_star(agents, w) - target)
    assert min(away) - 0.02 < far < min(away) + 1e-6
    assert (sum(w), min(w) > low - 1e-9) == (pytest.approx(1, abs=1e-12), True)


def test_without_difference_no_drift_and_without_noise_no_noise_floor(still):
    visit(still, "lab=1&differ=0")
    parts = still.evaluate("fedlsaPlay.shown.error.methods.map(m => m.parts)")
    assert max(max(p["drift"]) for p in parts) < 1e-25
    assert min(p["noise"][-1] for p in parts) > 1e-4
    visit(still, "lab=1&noise=0")
    parts = still.evaluate("fedlsaPlay.shown.error.methods.map(m => m.parts)")
    assert max(max(p["noise"]) for p in parts) == 0
    assert parts[0]["drift"][-1] > 0.1


def test_steps_that_are_too_long_have_no_end_and_say_so(still):
    visit(still, "lab=1&eta=2.2")
    fedlsa = still.evaluate("fedlsaPlay.shown.plane.methods[0]")
    assert (fedlsa["end"], fedlsa["end_reason"]) == (None, "No end: these steps are too long.")
    assert still.evaluate("fedlsaPlay.shown.error.methods[0].unstable_from") > 0
    still.get_by_role("slider", name="Round", exact=True).press("End")
    still.locator(".fs-words", has_text="FedLSA: error beyond all bounds").wait_for()


def test_where_a_method_is_unstable_no_band_fills_the_picture_and_the_values_leave_its_name_free(still):
    visit(still, "lab=1&eta=2.2")
    still.evaluate("fedlsaPlay.scene.setRound(Infinity)")
    high, gone = still.evaluate("""() => {
      const c = document.querySelector(".fs-error canvas"), g = c.getContext("2d"), k = c.width / c.clientWidth;
      const [l, r, t, b] = [52, c.clientWidth - 14, 34, c.clientHeight - 40], {error} = fedlsaPlay.shown;
      const last = Math.max(...error.methods.map(m => m.unstable_from)), x = l + (r - l) * (last + 0.5) / 15;
      const heights = Array.from({length: 40}, (_, i) => t + (i + 0.4) * (b - t) / 40);
      const filled = y => [...g.getImageData(k * x, k * y, 1, 1).data].some(v => v);
      return [error.methods[0].unstable_from, heights.filter(filled)];
    }""")
    assert 0 < high < 15
    assert len(gone) <= 2  # a grid's line may be met
    view = still.locator(".fs-error").bounding_box()
    still.mouse.move(view["x"] + view["width"] / 2, view["y"] + view["height"] / 2)
    still.locator(".fs-tip").wait_for()
    assert still.locator(".fs-tip").bounding_box()["y"] >= view["y"] + 34 + 10 + 17 + 8  # below both names
    still.mouse.move(5, 5)


def test_a_wrong_guess_is_shown_beside_the_right_one(still):
    words = """() => {
      const seen = [], brush = CanvasRenderingContext2D.prototype, real = brush.fillText;
      brush.fillText = function (text, ...rest) { seen.push(text); real.call(this, text, ...rest); };
      document.getElementById("restore").click();
      brush.fillText = real;
      return seen;
    }"""
    visit(still, "step=2")
    still.locator("#guesses button").first.click()
    assert [t.split("\n")[-1] for t in still.locator("#guesses button").all_inner_texts()] == [
        "your guess", "so it is", "With one of the agents"]  # fmt: skip
    a, b = (np.array(agent["own"]) for agent in still.evaluate("fedlsaPlay.shown.plane.agents"))
    assert still.evaluate("fedlsaPlay.shown.plane.methods[0].guess") == pytest.approx((a + b) / 2)
    assert {"your guess", "FedLSA ends here"} <= set(still.evaluate(words))
    still.locator("#guesses button").nth(1).click()
    assert "your guess, and so it is" in still.locator("#guesses button").nth(1).inner_text()
    assert "your guess" not in still.evaluate(words)


def test_back_goes_through_steps_and_settled_sliders_and_never_leaves_the_page(browser):
    page = opened(browser, reduced_motion="reduce")
    page.locator("#next").click()
    page.get_by_role("button", name="Lab", exact=True).click()
    slider, been = page.get_by_role("slider", name="noise", exact=True), ["", "#step=1"]
    for value in (0, 0.05, 0.1):
        page.wait_for_function("value => (location.hash.match(/noise=([^&]*)/) || [])[1] === String(value)", arg=value)
        been.append(page.evaluate("location.hash"))
        slider.press("ArrowRight")
    page.wait_for_function("location.hash.includes('noise=0.2')")
    for hash, noise in zip(been[::-1], (0.1, 0.05, 0, 0, 0.3), strict=True):
        page.go_back()
        page.wait_for_function("hash => location.hash === hash", arg=hash)
        page.wait_for_function("noise => fedlsaPlay.state.noise === noise", arg=noise)
    page.go_forward()
    page.wait_for_function("location.hash === '#step=1' && fedlsaPlay.state.agents === 1")
    page.close()
    assert page.faults == []


def test_the_beginning_takes_six_seconds_and_without_motion_shows_its_end(browser, still):
    visit(still, "step=1")
    still.evaluate("() => { location.hash = ''; }")
    still.wait_for_function("fedlsaPlay.scene.round === 15 && fedlsaPlay.scene.drawn.round === 15")
    page = opened(browser)
    rounds = page.evaluate("""async () => {
      const {scene} = fedlsaPlay, real = requestAnimationFrame;
      scene.pause();
      await new Promise(done => real(() => real(done)));
      let asked = null, now = 1;
      window.requestAnimationFrame = f => { asked = f; return 1; };
      const frames = (many, ms) => { while (many--) { const f = asked; asked = null; f?.(now += ms); } };
      scene.setRound(0);
      scene.play();
      frames(1, 0);
      frames(290, 20);
      const before = scene.round;
      frames(15, 20);
      return [before, scene.round];
    }""")
    page.close()
    assert rounds[0] < 15 == rounds[1]


def test_paper_shows_the_round_that_its_words_speak_of(browser):
    page = opened(browser)
    page.wait_for_function("fedlsaPlay.scene.round > 0.3")
    page.emulate_media(media="print")
    page.wait_for_function("fedlsaPlay.scene.drawn.round === Math.round(fedlsaPlay.scene.drawn.round)")
    shown = page.evaluate("fedlsaPlay.scene.drawn.round")
    assert page.locator(".fs-words").inner_text().startswith(f"Round {shown:.0f} of 15.")
    assert not page.evaluate("fedlsaPlay.scene.playing")
    page.close()


@pytest.mark.parametrize("step", range(1, 6))
def test_a_step_of_the_story_shows_its_answer_only_after_a_guess(still, step):
    visit(still, f"step={step}")
    before = still.evaluate("fedlsaPlay.shown")
    assert all(m["end"] is None for m in before["plane"]["methods"])
    assert all(m["floor"] is None for m in before["error"]["methods"])
    assert not still.locator("#answer").inner_text()
    assert not still.locator("#next").is_visible()
    still.get_by_role("button", name="agent 1").first.press("Shift+ArrowLeft")
    still.locator("#restore").wait_for()  # the words are about the picture as it was, which comes back with the answer
    still.locator("#guesses button").last.click()
    still.locator("#restore").wait_for(state="hidden")
    after = still.evaluate("fedlsaPlay.shown")
    assert after["plane"]["agents"] == before["plane"]["agents"]
    assert after["rounds"] > before["rounds"]
    assert still.locator(".fs-key[aria-pressed=true]").inner_text() == ("SCAFFLSA" if step == 5 else "FedLSA")
    said = still.locator("#answer").inner_text()
    right = {1: "Not so.", 2: "Not so.", 3: "Not so.", 4: "Right.", 5: "Right."}[step]
    assert said.startswith(right)
    end = after["plane"]["theta_star"] if step in (1, 2) else None
    if end:
        assert after["plane"]["methods"][0]["end"] == pytest.approx(end, abs=1e-9)
    else:
        error = after["error"]["methods"][0]
        assert error["parts"]["drift"][-1] > 0.9 * error["floor"]
        assert min(error["total"]) > 0.99 * error["floor"]  # it comes down to its floor, never below
    if step == 5:
        last = after["error"]["methods"][1]
        assert last["parts"]["noise"][-1] > 0.9 * last["total"][-1]
    still.locator("#next").click()
    still.locator("#steps [aria-current=step]", has_text=str(step + 1) if step < 5 else "Lab").wait_for()


def test_what_the_story_says_is_true_by_the_library(still):
    of, start = {}, still.evaluate("FedLSAPlay.START")
    for step in range(1, 6):
        visit(still, f"step={step}")
        state, agents = still.evaluate("[fedlsaPlay.state, FedLSAPlay.problem(fedlsaPlay.state).agents]")
        of[step] = the_same_problem(agents, state["noise"]), fl.FedLSA(state["eta"], state["H"])
    mse = {step: fl.theory.exact(*of[step], rounds=15, theta_0=start, record=range(16))["mse"].values for step in of}
    bias = {step: np.linalg.norm(fl.theory.bias(p, m.step_size, m.local_steps)) for step, (p, m) in of.items()}
    share = mse[1][1:] / mse[1][:-1]
    assert (share[4:] == pytest.approx(share[-1], rel=0.01), bias[1] < 1e-12) == (
        True,
        True,
    )  # a straight line to theta_star
    two = of[2][0]
    assert (bias[2] < 1e-12, np.linalg.norm(two.theta_star - two.theta_star_local.mean(axis=0)) > 0.5) == (True, True)
    assert (mse[3][1] < mse[2][1] / 2, bias[3] > 0.3) == (True, True)  # faster at first, and then it misses
    noisy, fedlsa = of[4]
    assert bias[4] ** 2 > 10 * (fl.theory.stationary(noisy, fedlsa).mse - bias[4] ** 2)  # the noise lies far below it
    p, method = of[5][0], fl.SCAFFLSA(0.15, 20)
    ends = fl.theory.stationary(p, method)
    walks = round_paths(p, method, rounds=15, theta_0=start, points=1).local
    gone = np.linalg.norm(walks[:, :, 1] - walks[:, :, 0], axis=-1).max(axis=1)
    assert (np.linalg.norm(ends.bias) < 1e-12, gone[-1] < gone[0] / 100) == (
        True,
        True,
    )  # only noise is left, walks shrink
    six = "FedLSAPlay.problem({...fedlsaPlay.state, agents: 6, shape: FedLSAPlay.ring(6)}).agents"
    more = the_same_problem(still.evaluate(six), 0.3)
    shorter = fl.theory.stationary(p, fl.SCAFFLSA(0.05, 20)).mse
    assert max(shorter, fl.theory.stationary(more, method).mse) < ends.mse


def test_a_dragged_solution_moves_everything_and_the_link_carries_it(still):
    visit(still, "lab=1")
    before = still.evaluate("fedlsaPlay.shown")
    box = still.get_by_role("button", name="agent 1").first.bounding_box()
    x, y = box["x"] + 20, box["y"] + 20
    still.mouse.move(x, y)
    still.mouse.down()
    still.mouse.move(x - 30, y + 50, steps=4)
    still.mouse.up()
    still.wait_for_function("location.hash.includes('own=')")
    drawn(still)
    after = still.evaluate("fedlsaPlay.shown")
    own = after["plane"]["agents"][0]["own"]
    assert own[0] < before["plane"]["agents"][0]["own"][0]
    assert own[1] < before["plane"]["agents"][0]["own"][1]
    assert after["plane"]["theta_star"] != before["plane"]["theta_star"]
    assert after["error"]["methods"][0]["total"] != before["error"]["methods"][0]["total"]
    address = still.evaluate("location.hash.slice(1)")
    visit(still, "step=1")
    visit(still, address)
    again = still.evaluate("fedlsaPlay.shown.plane.theta_star")
    assert again == pytest.approx(after["plane"]["theta_star"], abs=1e-3)


def test_stable_is_what_has_a_limit_however_it_starts_and_without_noise_too(still):
    visit(still, "lab=1&agents=1&own=-1.4,-2.4")  # the start is the solution
    assert still.evaluate("fedlsaPlay.shown.error.methods.map(m => m.unstable_from)") == [None, None]
    assert still.evaluate("fedlsaPlay.shown.plane.methods.map(m => m.end_reason)") == ["", ""]
    visit(still, "lab=1&own=100000,100000,-100000,100000,0,0")
    still.get_by_role("slider", name="Round", exact=True).press("End")
    still.locator(".fs-words", has_text="Round 15").wait_for()
    assert "beyond" not in still.locator(".fs-words").inner_text()
    for hash in ("lab=1&agents=1&H=2&eta=2.2&noise=0", "lab=1&agents=1&H=1&eta=2&noise=0"):
        visit(still, hash)
        reasons = still.evaluate("fedlsaPlay.shown.plane.methods.map(m => m.end_reason)")
        assert reasons == ["No end: these steps are too long."] * 2
    visit(still, "lab=1&H=30")
    parts = still.evaluate("fedlsaPlay.shown.error.methods[0].parts")
    said = still.evaluate(
        "() => { fedlsaPlay.scene.setRound(2); return document.querySelector('.fs-words').innerText; }"
    )
    total, share = sum(p[2] for p in parts.values()), max(p[2] for p in parts.values())
    assert ("mostly" in said.split("SCAFFLSA")[0]) == (0.5 < share / total <= 0.9)


def test_what_the_reader_has_moved_is_kept_and_a_mere_click_moves_nothing(still):
    visit(still, "lab=1")
    still.get_by_role("button", name="agent 1").first.press("ArrowRight")
    still.wait_for_function("location.hash.includes('own=')")
    moved, agents = still.evaluate("location.hash"), still.get_by_role("slider", name="agents", exact=True)
    agents.press("ArrowRight")
    still.wait_for_function("fedlsaPlay.shown.plane.agents.length === 4")
    agents.press("ArrowLeft")
    still.wait_for_function("moved => location.hash === moved", arg=moved)
    visit(still, "lab=1&differ=0")
    box = still.get_by_role("button", name="agent 3").first.bounding_box()
    still.mouse.click(box["x"] + 20, box["y"] + 20)
    plane = still.locator(".fs-plane").bounding_box()  # and a press that ends outside the picture is over
    still.mouse.move(plane["x"] + 9, plane["y"] + plane["height"] - 60)
    still.mouse.down()
    still.mouse.move(plane["x"] + 40, plane["y"] + plane["height"] + 60)
    still.mouse.up()
    still.get_by_role("button", name="Zoom in").click()
    where = "document.querySelector('.fs-handle').style.left"
    drawn(still)
    before = still.evaluate(where)
    still.mouse.move(plane["x"] + 9, plane["y"] + plane["height"] - 60)
    still.mouse.move(plane["x"] + 99, plane["y"] + plane["height"] - 90, steps=3)
    drawn(still)
    assert still.evaluate(where) == before
    assert (still.evaluate("location.hash"), still.evaluate("fedlsaPlay.state.differ")) == ("#lab=1&differ=0", 0)
    visit(still, "step=2")  # another step is seen whole
    assert still.evaluate("document.querySelector('.fs-plane canvas').style.touchAction") == "pan-y"


def test_theta_star_is_a_handle_of_its_weights(still):
    visit(still, "lab=1&agents=12")  # own solutions are so near that their handles overlap it
    drawn(still)
    star = still.locator(".fs-star").first
    box = star.bounding_box()
    x, y = box["x"] + 20, box["y"] + 20
    still.mouse.move(x, y)
    still.mouse.down()
    still.mouse.move(x + 10, y + 8, steps=3)
    still.wait_for_function(
        "([x, y]) => { const r = document.querySelector('.fs-star').getBoundingClientRect();"
        "return Math.abs(r.left + 20 - x) < 0.5 && Math.abs(r.top + 20 - y) < 0.5; }",
        arg=[x + 10, y + 8],
    )
    still.mouse.up()
    weights = still.evaluate("fedlsaPlay.state.weights")
    assert sum(weights) == pytest.approx(12)
    told = still.evaluate("[...document.querySelectorAll('#weights input')].map(e => e.getAttribute('aria-valuetext'))")
    assert [float(text) for text in told] == pytest.approx(weights, rel=0.006)
    still.wait_for_function("location.hash.includes('weights=')")
    at = still.evaluate("fedlsaPlay.shown.plane.theta_star[0]")
    star.press("ArrowLeft")
    still.wait_for_function(f"fedlsaPlay.shown.plane.theta_star[0] < {at} - 0.01")
    address = link(still)
    at = still.evaluate("fedlsaPlay.shown.plane.theta_star")
    visit(still, "step=1")
    assert still.locator(".fs-star").count() == 0  # one agent has nothing to weigh
    visit(still, address)
    still.wait_for_function("fedlsaPlay.shown.plane.agents.length === 12")
    assert still.evaluate("fedlsaPlay.shown.plane.theta_star") == pytest.approx(at, abs=1e-3)


@pytest.mark.parametrize("weights", ["10,0.1,0.1", "10,0.1,10", "1,1,2"])
def test_weights_of_a_pulled_theta_star_stay_where_sliders_and_links_can_be(still, weights):
    star, at = still.locator(".fs-star").first, "fedlsaPlay.shown.plane.theta_star"
    visit(still, f"lab=1&weights={weights}")
    drawn(still)
    before, box = still.evaluate(at), star.bounding_box()
    x, y = box["x"] + 20, box["y"] + 20
    for far in [(4, 0), (300, -150), (-300, 100)]:  # a little is a little; then beyond its reach, either way
        still.mouse.move(x, y)
        still.mouse.down()
        still.mouse.move(x + far[0], y + far[1], steps=2)
        drawn(still)
        still.mouse.up()
        drawn(still)
        now, given = still.evaluate(f"[{at}, fedlsaPlay.state.weights.slice(0, 3)]")
        assert (min(given) >= 0.1, max(given) <= 10) == (True, True)
        if far == (4, 0):
            assert np.linalg.norm(np.subtract(now, before)) < 0.2
        address = link(still)
        visit(still, "step=1")
        visit(still, address)
        drawn(still)
        assert still.evaluate("fedlsaPlay.state.weights.slice(0, 3)") == pytest.approx(given, rel=1e-3)
        assert still.evaluate(at) == pytest.approx(now, abs=5e-3)
        box = star.bounding_box()
        x, y = box["x"] + 20, box["y"] + 20


def test_keys_reach_a_solution_a_slider_and_a_weight(still):
    visit(still, "lab=1")
    at = "fedlsaPlay.shown.plane.agents[1].own[0]"
    before = still.evaluate(at)
    still.get_by_role("button", name="agent 2").first.focus()
    still.keyboard.press("ArrowRight")
    still.wait_for_function(f"{at} > {before}")
    still.get_by_role("slider", name="local steps in a round").press("ArrowRight")
    still.wait_for_function("fedlsaPlay.shown.plane.methods[0].walks[0][0].length === 50")  # 24 moments of 30 steps
    assert still.get_by_role("slider", name="local steps in a round").get_attribute("aria-valuetext") == "30"
    still.evaluate("document.querySelector('details').open = false")
    still.locator("summary").press("Enter")
    still.get_by_role("slider", name="weight of agent 3").press("End")
    still.wait_for_function("fedlsaPlay.shown.plane.agents[2].weight > 0.8")
    still.get_by_role("checkbox", name="FedLSA", exact=True).uncheck()
    still.wait_for_function("fedlsaPlay.shown.plane.methods.length === 1")
    still.get_by_role("button", name="Reset").click()
    still.wait_for_function("location.hash === '#lab=1' && fedlsaPlay.shown.plane.methods.length === 2")


def test_tab_goes_through_story_agents_picture_and_sliders_and_all_have_names(still):
    visit(still, "lab=1")
    controls = "[...document.querySelectorAll('button, input, summary')]"
    still.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    seen = f"{controls}.filter(e => e.checkVisibility())"
    assert still.evaluate(f"{seen}.length") > 20
    assert still.evaluate(f"{seen}.filter(e => !({NAMED})(e)).length") == 0
    still.evaluate("document.querySelectorAll('details').forEach(part => { part.open = false; })")
    still.evaluate("scrollTo(0, 0); document.activeElement.blur(); getSelection().removeAllRanges();")
    still.get_by_role("button", name="Start", exact=True).focus()
    order = []
    for _ in range(40):
        order.append(still.evaluate(FOCUS)[0])
        still.keyboard.press("Tab")
    wanted = ["Start", "Step 5", "Lab", "agent 1", "agent 3", "Zoom in", "Play", "Round", "agents", "noise", "Reset"]
    places = [order.index(name) for name in wanted]
    assert places == sorted(places)


@pytest.mark.parametrize("look", [{"reduced_motion": "reduce"}, {"color_scheme": "dark", **PHONE}])
def test_keys_alone_lead_through_the_story_and_the_laboratory(browser, look):
    page = opened(browser, **look)
    press_until(page, "Tab", "Begin the story")
    page.keyboard.press("Enter")
    right = ["All the way to θ⋆", "At θ⋆, which is elsewhere", "Faster at first, but it misses θ⋆",
             "No, it ends at a floor", "At θ⋆, up to noise"]  # fmt: skip
    for step, guess in enumerate(right, 1):
        page.wait_for_function(f"document.activeElement.innerText.startsWith('{step}. ')")
        assert focused(page).startswith(f"{step}. ")
        press_until(page, "Tab", guess)
        page.keyboard.press("Space")
        page.locator("#answer", has_text="Right.").wait_for()
        press_until(page, "Tab", "Next" if step < 5 else "To the laboratory")
        page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.innerText === 'Laboratory'")
    assert focused(page) == "Laboratory"
    press_until(page, "Shift+Tab", "Round")
    page.keyboard.press("Home")
    page.wait_for_function("fedlsaPlay.scene.round === 0 && !fedlsaPlay.scene.playing")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("fedlsaPlay.scene.drawn.round === 3")
    press_until(page, "Shift+Tab", "Play")
    page.keyboard.press("Space")
    page.wait_for_function("fedlsaPlay.scene.playing && fedlsaPlay.scene.round > 3")
    page.keyboard.press("Space")
    page.wait_for_function("!fedlsaPlay.scene.playing")
    for name, place in (("θ⋆ at", "theta_star"), ("agent 2", "agents[1].own")):
        at = f"fedlsaPlay.shown.plane.{place}[0]"
        before = page.evaluate(at)
        press_until(page, "Shift+Tab", name)
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"{at} > {before}")
        assert focused(page).startswith(name)
    press_until(page, "Tab", "step size")
    page.keyboard.press("End")
    page.wait_for_function("fedlsaPlay.shown.plane.methods[0].end_reason")
    page.keyboard.press("Home")
    page.wait_for_function("!fedlsaPlay.shown.plane.methods[0].end_reason")
    press_until(page, "Tab", "Reset")
    page.keyboard.press("Enter")
    page.wait_for_function("location.hash === '#lab=1'")
    assert focused(page) == "Reset"
    page.close()
    assert page.faults == []


@pytest.mark.parametrize(
    "hash",
    [
        "lab=1&agents=99&H=x&eta=-1&weights=0,0,0&own=1,2",
        "lab=1&agents=NaN&H=Infinity&eta=1e999&rounds=-5&differ=-0.1&noise=1e9&weights=NaN,1,1&own=NaN,1,1,1,1,1",
        "lab=1&agents=&H=&eta=&rounds=&differ=&noise=%20&weights=,,&own=,,,,,",
        "lab=1&agents=2.5&H=0.5&rounds=5.5&own=" + "1," * 20_000,
        f"lab=1&methods={quote('<b>')}&__proto__=1&%E0%A4%A&" + "x=1&" * 2000,
        "lab=1&lab=0&own=1000001,0,0,0,0,0",
    ],
)
def test_a_broken_address_opens_the_laboratory_as_it_begins(still, hash):
    visit(still, "lab=1&agents=2")
    still.evaluate("hash => { location.hash = hash; }", hash)
    still.wait_for_function("location.hash === '#lab=1'")
    state = still.evaluate("fedlsaPlay.state")
    home = {"agents": 3, "H": 20, "eta": 0.15, "rounds": 15, "differ": 1, "noise": 0.3, "weights": [1] * 12}
    assert {key: state[key] for key in home} == home
    assert state["shape"] == still.evaluate("FedLSAPlay.ring(3)")
    assert state["methods"] == ["FedLSA", "SCAFFLSA"]


def test_of_what_is_given_twice_the_first_counts_and_a_far_step_is_the_last(still):
    for hash, where, agents in (("step=77", "step=5", 3), ("lab=1&agents=4&agents=x", "lab=1&agents=4", 4)):
        still.evaluate("hash => { location.hash = hash; }", hash)
        still.wait_for_function("where => location.hash === '#' + where", arg=where)
        assert still.evaluate("fedlsaPlay.state.agents") == agents


def test_the_farthest_solution_is_one_that_a_link_can_carry(still):
    visit(still, "lab=1&differ=0.1")
    still.evaluate("() => { for (let i = 0; i < 60; i++) scene.querySelector('[aria-label=\"Zoom out\"]').click(); }")
    drawn(still)
    still.get_by_role("button", name="agent 1").first.press("Shift+ArrowLeft")
    drawn(still)
    assert still.evaluate("fedlsaPlay.state.shape[0][0]") == -1e6
    address = link(still)
    visit(still, "step=1")
    visit(still, address)
    assert still.evaluate("fedlsaPlay.state.shape[0][0]") == -1e6


def test_a_slider_that_is_moved_back_and_forth_writes_the_address_when_it_rests(still):
    """Browsers stop a page that changes its address too often, and the link would be an old one."""
    visit(still, "lab=1")
    written, took = still.evaluate("""async () => {
      const real = history.pushState, from = performance.now(), slider = document.querySelector("#sliders input");
      let written = 0;
      history.pushState = function (...args) { written += 1; real.apply(this, args); };
      for (let i = 0; i < 60; i++) {
        slider.value = 1 + i % 8;
        slider.oninput();
        await new Promise(requestAnimationFrame);
      }
      const count = written, took = performance.now() - from;
      delete history.pushState;
      return [count, took];
    }""")
    assert written <= took / 200
    still.wait_for_function("location.hash === '#lab=1&agents=5'")  # 1 + 1 + 59 % 8


def test_a_page_whose_size_changes_while_it_plays_goes_on(browser):
    page = opened(browser)
    for size in ((844, 390), (320, 640), (1280, 800)):
        page.evaluate("() => { fedlsaPlay.scene.setRound(0); fedlsaPlay.scene.play(); }")
        page.set_viewport_size({"width": size[0], "height": size[1]})
        fits = "c => c.height === c.clientHeight && Math.abs(c.width - c.clientWidth) <= 1 && c.clientWidth"
        page.wait_for_function(f"innerWidth === {size[0]} && [...document.querySelectorAll('canvas')].every({fits})")
        page.wait_for_function("fedlsaPlay.scene.drawn.round > 0")
    page.close()
    assert page.faults == []


def test_dark_and_light_come_at_once_and_paper_has_the_words_without_the_buttons(still):
    visit(still, "lab=1&agents=12")
    picture = "document.querySelector('.fs-plane canvas').toDataURL()"
    light = still.evaluate(picture)
    still.emulate_media(color_scheme="dark")
    still.wait_for_function(f"light => {picture} !== light", arg=light)
    assert still.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(28, 30, 34)"
    still.emulate_media(color_scheme="light")
    still.wait_for_function(f"light => {picture} === light", arg=light)
    still.locator("details").evaluate("e => { e.open = true; }")  # longer than the screen
    still.emulate_media(media="print")
    assert not still.get_by_role("button", name="Play", exact=True).is_visible()
    assert still.locator("#card").evaluate("e => e.scrollHeight <= e.clientHeight")
    still.emulate_media(media="screen")
    assert still.get_by_role("button", name="Play", exact=True).is_visible()
    still.locator("details").evaluate("e => { e.open = false; }")


def test_every_word_can_be_read_by_day_and_by_night(still):
    for scheme in ("light", "dark"):
        still.emulate_media(color_scheme=scheme)
        for hash in ("step=1", "step=5", "lab=1"):
            visit(still, hash)
            if "step" in hash:
                still.locator("#guesses button").first.click()
            assert illegible(still) == []
    still.emulate_media(color_scheme="light")


# the words on the picture of the agents, each with its box, as they are drawn from now on
BOXES = """() => {
  const brush = CanvasRenderingContext2D.prototype, real = brush.fillText;
  const ground = document.querySelector(".fs-plane canvas");
  window.boxes = {};
  brush.fillText = function (text, x, y, ...rest) {
    const {width} = this.measureText(text), tall = parseFloat(this.font.match(/([\\d.]+)px/)[1]);
    const left = this.textAlign === "center" ? x - width / 2 : x;
    if (this.canvas === ground) boxes[`${text} ${Math.round(left)}`] = [left, y - tall / 2, left + width, y + tall / 2];
    real.call(this, text, x, y, ...rest);
  };
}"""


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("hash", ["step=2", "step=4", "step=5", "lab=1", *(f"lab=1&agents={n}" for n in (2, 5, 8))])
def test_no_name_lies_on_another(browser, width, hash):
    page = opened(browser, viewport={"width": width, "height": 844}, reduced_motion="reduce")
    visit(page, hash)
    page.evaluate(BOXES)
    if "step" in hash:
        page.locator("#guesses button").first.click()
    page.evaluate("() => { boxes = {}; fedlsaPlay.scene.show(fedlsaPlay.shown, {keep: 1}); }")
    drawn(page)
    boxes = page.evaluate("boxes")
    assert any("ends here" in words for words in boxes)
    names = [(words, *box) for words, box in boxes.items() if "★" not in words]
    for i, (words, left, top, right, bottom) in enumerate(names):
        for other, *box in names[:i]:
            free = left >= box[2] or box[0] >= right or top >= box[3] or box[1] >= bottom
            assert free, f"{words} lies on {other}"
    page.close()
    assert page.faults == []


def test_an_address_wins_over_an_answer_that_comes_at_the_same_moment(still):
    visit(still, "lab=1")
    still.evaluate("() => { location.hash = 'step=2'; document.getElementById('reset').click(); }")
    still.locator("#steps [aria-label^='Step 2'][aria-current=step]").wait_for()
    assert still.evaluate("location.hash") == "#step=2"


def test_nothing_moves_for_a_reader_who_wants_no_motion(still):
    visit(still, "step=4")
    still.locator("#guesses button").first.click()
    assert still.evaluate("[fedlsaPlay.scene.playing, fedlsaPlay.scene.round]") == [False, 30]  # the answer at once
    live = still.locator(".fs-words")
    assert live.get_attribute("aria-live") == "polite"


def test_on_a_phone_it_plays_at_once_and_everything_can_be_reached(browser):
    page = opened(browser, color_scheme="dark", **PHONE)
    page.wait_for_function("fedlsaPlay.scene.round > 0")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(28, 30, 34)"
    for name in (".fs-plane", ".fs-error", "input[aria-label=Round]"):
        box = page.locator(name).bounding_box()
        assert box["y"] + box["height"] <= 844
    x, y = middle(page.get_by_role("button", name="agent 3").first)
    touch(page, (x, y), (x, y - 20), (x, y - 40))
    page.wait_for_function("fedlsaPlay.shown.plane.agents[2].own[1] > -1.2")  # from -1.3
    page.evaluate("fedlsaPlay.scene.pause()")
    page.wait_for_function("!fedlsaPlay.scene.playing")
    star, before = page.locator(".fs-star").first, page.evaluate("fedlsaPlay.state.weights.slice(0, 3)")
    drawn(page)
    x, y = middle(star)
    touch(page, (x, y), (x + 6, y + 8), (x + 9, y + 12))
    weights = page.evaluate("fedlsaPlay.state.weights.slice(0, 3)")
    assert (weights != before, sum(weights)) == (True, pytest.approx(3))
    finger, own = page.context.new_cdp_session(page), "fedlsaPlay.shown.plane.agents.map(a => a.own[1])"
    places = [middle(page.get_by_role("button", name=f"agent {c}").first) for c in (2, 3)]
    before = page.evaluate(own)
    (x, y), other = places
    for kind, at in (
        ("Start", [(x, y), other]),
        ("Move", [(x, y), (other[0], other[1] - 9)]),  # a second finger waits for the first
        ("Move", [(x, y), (other[0], other[1] - 18)]),
        ("Move", [(x, y)]),  # it leaves, and the first goes on
        ("Move", [(x, y + 9)]),
        ("Move", [(x, y + 18)]),
        ("End", []),
    ):
        points = [{"x": px, "y": py, "id": i} for i, (px, py) in enumerate(at)]
        finger.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})
    drawn(page)
    now = page.evaluate(own)
    assert (now[1] < before[1], now[::2]) == (True, before[::2])
    assert page.evaluate("scrollY") == 0
    visit(page, "step=4")
    page.locator("#guesses button").last.tap()  # the answer comes into sight, and what comes next
    seen = "e => { const r = e.getBoundingClientRect(); return r.top > 0 && r.bottom <= innerHeight; }"
    page.wait_for_function(f"['answer', 'next'].every(id => ({seen})(document.getElementById(id)))")
    page.evaluate("scrollTo(0, 0)")
    view = page.locator(".fs-error").bounding_box()
    x, y = view["x"] + 200, view["y"] + 110
    page.evaluate("() => { fedlsaPlay.scene.pause(); fedlsaPlay.scene.setRound(3); }")
    touch(page, (x, y), (x, y - 10), (x, y - 40), (x, y - 80))  # a finger that scrolls
    assert page.evaluate("fedlsaPlay.scene.round") == 3
    for hash in ("step=2", "step=5", "lab=1"):
        visit(page, hash)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Copy link").focus()
    for _ in range(9):  # back through the sliders: what has the focus is not under the picture
        page.keyboard.press("Shift+Tab")
    page.wait_for_function(
        "document.activeElement.getBoundingClientRect().top >= scene.getBoundingClientRect().bottom - 1"
    )
    page.evaluate("""() => {
      const brush = CanvasRenderingContext2D.prototype, real = brush.fillText;
      window.texts = {};
      brush.fillText = function (text, x, ...rest) {
        texts[text] = x + this.measureText(text).width;
        real.call(this, text, x, ...rest);
      };
    }""")
    for width in (320, 390):  # the right method's name is not under the buttons, and no solution lies outside
        page.evaluate("texts = {}")
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_function(f"innerWidth === {width} && texts.SCAFFLSA")
        box, zoom = (page.locator(f".fs-{part}").first.bounding_box() for part in ("plane", "zoom"))
        texts = page.evaluate("texts")
        assert box["x"] + texts["SCAFFLSA"] < zoom["x"]
        assert not [text for text in texts if "away" in text]
    page.set_viewport_size({"width": 844, "height": 390})  # on its side: curve, Play and round on the first screen
    page.evaluate("scrollTo(0, 0)")
    for name in (".fs-error", "input[aria-label=Round]"):
        page.wait_for_function(f"document.querySelector('{name}').getBoundingClientRect().bottom <= 390")
    page.set_viewport_size(PHONE["viewport"])
    assert page.get_by_role("button", name="Copy link").is_visible()
    page.close()
    assert page.faults == []

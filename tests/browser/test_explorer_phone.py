"""The explorer in a real browser at the width of a telephone."""

from dataclasses import replace

from fedlsa.explore.page_settings import PageSettings

TOO_WIDE = """() => [...document.querySelectorAll('body *')].filter(
  e => e.getBoundingClientRect().right > innerWidth + 2 && !e.closest('table, pre, code, svg')
).map(e => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 40))"""


def test_it_opens_nothing_sticks_out_and_sliders_work(phone):
    s = PageSettings()
    phone.open().answers(s)
    phone.until(lambda: "Stable below" in phone.words(), "all is drawn")
    assert phone.page.evaluate(TOO_WIDE) == []
    phone.press("local steps H")
    phone.answers(replace(s, local_steps=70))
    phone.follows(replace(s, local_steps=70))


def test_sliders_and_curve_fit_one_screen(phone):
    phone.agents()
    top = phone.slider("step size η").bounding_box()["y"]
    curve = phone.page.locator(".fs-error").bounding_box()
    assert curve["y"] + curve["height"] - top < 844
    assert curve["y"] + curve["height"] < 844 + 60


def test_the_problem_is_folded_away(phone):
    assert not phone.slider("agents N").is_visible()
    phone.page.get_by_text("The problem").click()
    phone.slider("agents N").focus()
    phone.page.keyboard.press("ArrowRight")
    phone.answers(replace(phone.settings(), agents=6))


NAMES = """() => {
  const brush = CanvasRenderingContext2D.prototype, {fillText, arc} = brush, names = [], marks = [];
  brush.fillText = function (text, x, y) {
    const w = this.measureText(text).width;
    if (/agent|ends|start/.test(text)) names.push([text, x, y - 7, w, 14]);
    fillText.apply(this, arguments);
  };
  brush.arc = function (x, y, r) {
    if (r === 10) marks.push(["circle", x - r - 1, y - r - 1, 2 * r + 2, 2 * r + 2]);
    arc.apply(this, arguments);
  };
  const {scene} = document.getElementById("scene");
  scene.show(scene.data, {keep: true});
  Object.assign(brush, {fillText, arc});
  return [names, marks];
}"""


def test_names_in_the_plane_touch_no_circle_and_no_other_name(phone):
    phone.open().answers(PageSettings())
    phone.agents()
    names, marks = phone.page.evaluate(NAMES)
    assert {name for name, *_ in names} == {*(f"agent {c}" for c in range(1, 6)), "ends here", "start"}
    assert len(marks) == 2 * 5
    for i, (name, *a) in enumerate(names):
        for other, *b in [*names[i + 1 :], *marks]:
            apart = any(a[k] + a[k + 2] <= b[k] or b[k] + b[k + 2] <= a[k] for k in (0, 1))
            assert apart, f"{name} touches {other}"

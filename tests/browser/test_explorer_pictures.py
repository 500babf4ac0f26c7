"""The explorer's picture in a real browser: agents beside the error, one question at a time, for every reader."""

from dataclasses import replace

import numpy as np
import pytest
from legible import illegible

import fedlsa as fl
from fedlsa.engine.paths import round_paths
from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import PageSettings
from fedlsa.figures.agent_plane import plane_of

# what lies outside the window, of what can be seen
OUTSIDE = """selector => [...document.querySelectorAll(selector)].filter(e => {
  const r = e.getBoundingClientRect();
  return r.width && (r.right > innerWidth + 1 || r.left < -1 || r.bottom > innerHeight + 1 || r.top < -1);
}).map(e => e.tagName + '.' + e.className)"""
TOO_WIDE = """() => [...document.querySelectorAll('body *')].filter(
  e => e.getBoundingClientRect().right > innerWidth + 2 && !e.closest('table, pre, code, svg')
).map(e => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 40))"""


def average(s, name, t):
    """Where theory has the average of a method after t rounds, in the plane."""
    p = Question.of(s).problem()
    run = round_paths(p, s.method(name), rounds=t)
    return plane_of(p, [run.theta[0]]).project(run.theta[t])


def test_agents_and_error_stand_beside_each_other_on_the_first_screen(wide_page):
    wide_page.page.set_viewport_size({"width": 1280, "height": 800})
    s = PageSettings()
    wide_page.open(s).answers(s)
    wide_page.agents()
    assert wide_page.page.evaluate(OUTSIDE, "h1, .fs-view, .fs-play, .fs-bar input") == []
    for label in ("step size η", "local steps H", "rounds T"):
        slider = wide_page.slider(label).bounding_box()
        assert slider["x"] + slider["width"] < 1280
        assert slider["y"] < 300
    plane, error = (wide_page.page.locator(f".fs-{view}").bounding_box() for view in ("plane", "error"))
    assert plane["y"] == error["y"]
    assert min(plane["width"], error["width"]) > 350


def test_one_cursor_moves_both_to_the_numbers_of_theory_by_keyboard(wide_page):
    s = PageSettings()
    wide_page.page.get_by_role("slider", name="Round", exact=True).focus()
    wide_page.page.keyboard.press("ArrowRight")
    wide_page.until(lambda: wide_page.scene()["drawn"]["round"] == 4, "the cursor has moved")
    exact = fl.theory.exact(Question.of(s).problem(), s.method("FedLSA"), s.rounds)["mse"].values
    drawn = wide_page.scene()["drawn"]
    assert drawn["error"]["FedLSA"]["value"] == pytest.approx(exact[4], rel=1e-9)
    for name in ("FedLSA", "SCAFFLSA"):
        np.testing.assert_allclose(drawn["plane"][name]["average"], average(s, name, 4), atol=1e-9)
    said = wide_page.page.locator(".fs-words")
    wide_page.until(lambda: "Round 4 of 50" in said.inner_text(), "words say the round")
    assert "means" in wide_page.page.locator(".fs-caption").inner_text()
    wide_page.follows(replace(s, round=4))  # a link opens with the round that is shown


def test_a_slider_that_moves_while_it_plays_leaves_nothing_of_the_old_question(wide_page):
    """Title, frames and numbers are of one setting, also when the problem becomes another."""
    s = PageSettings()
    for other in (replace(s, local_steps=70), replace(PageSettings.start("garnet"), local_steps=70)):
        wide_page.page.evaluate("document.querySelector('.fs-play').focus()")
        wide_page.page.keyboard.press("Enter")
        wide_page.until(lambda: wide_page.scene()["playing"], "it plays")
        if other.problem == s.problem:
            wide_page.press("local steps H")
        else:
            wide_page.choose("problem", "Garnet worlds")
        wide_page.answers(other)
        wide_page.agents()
        wide_page.frames(20)  # for whatever might still be on its way from the old ones
        wide_page.page.get_by_role("slider", name="Round", exact=True).fill("5")
        wide_page.until(lambda: wide_page.scene()["drawn"]["round"] == 5, "the cursor is there")
        drawn = wide_page.scene()["drawn"]
        for name in ("FedLSA", "SCAFFLSA"):
            np.testing.assert_allclose(drawn["plane"][name]["average"], average(other, name, 5), atol=1e-9)
        assert f"{other.local_steps} local steps" in drawn["title"]


def test_at_an_unstable_step_size_no_end_is_shown_but_the_reason(wide_page):
    s = replace(PageSettings(), step_size=0.3)  # means have a limit, second moments have none
    p = Question.of(s).problem()
    assert np.linalg.norm(fl.theory.bias(p, s.step_size, s.local_steps)) < 10
    assert not fl.theory.stationary(p, s.method("FedLSA")).stable
    wide_page.go(s)
    wide_page.until(lambda: "step size 0.3" in wide_page.scene()["drawn"]["title"], "it is drawn")
    assert wide_page.agents()["FedLSA"]["end"] is None
    assert "unstable" in wide_page.scene()["data"]["plane"]["methods"][0]["end_reason"]
    wide_page.until(lambda: "SCAFFLSA" in wide_page.scene()["data"]["unstable"], "its curve says so too")


def test_the_reader_can_zoom_in_and_come_back_and_every_button_has_a_name(wide_page):
    wide_page.go().answers(PageSettings())
    wide_page.agents()

    def ink():
        return wide_page.page.evaluate("document.querySelector('.fs-plane canvas').toDataURL()")

    def still():
        first = ink()
        wide_page.frames(5)
        return first if ink() == first else None

    wide_page.until(lambda: "Stable below" in wide_page.words(), "all is there that would be drawn anew")
    before = wide_page.until(still, "nothing moves")
    wide_page.button("Zoom in").click()
    wide_page.until(lambda: ink() != before, "it is larger")
    wide_page.button("Fit everything into the picture").click()
    wide_page.until(lambda: ink() == before, "it is as before")


@pytest.mark.parametrize("width", [640, 800, 1024])
def test_nothing_is_off_the_screen_in_narrow_windows_or_at_twice_the_size(wide_page, width):
    wide_page.page.set_viewport_size({"width": width, "height": width * 5 // 8})
    wide_page.until(lambda: wide_page.page.evaluate("innerWidth") == width, "the window has changed")
    wide_page.frames(5)  # in which the picture learns of its new width
    wide_page.until(lambda: wide_page.page.evaluate(TOO_WIDE) == [], "nothing sticks out")
    wide_page.page.set_viewport_size({"width": 1280, "height": 800})


def test_the_page_is_dark_for_whoever_wants_it(wide_page):
    page = wide_page.page
    page.emulate_media(color_scheme="dark")
    wide_page.open().answers(PageSettings())
    shade = "e => Number(getComputedStyle(e).backgroundColor.match(/[0-9.]+/g).slice(0, 3).reduce((a, b) => +a + +b))"
    assert page.locator("body").evaluate(shade) < 150
    assert page.locator(".fs").evaluate("e => getComputedStyle(e).color") == "rgb(236, 236, 236)"
    page.emulate_media(color_scheme="light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_type_has_twelve_pixels_and_a_contrast_of_four_and_a_half(wide_page, scheme):
    page = wide_page.page
    page.emulate_media(color_scheme=scheme)
    wide_page.go().answers(PageSettings())
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    page.locator(".code:visible").first.wait_for()
    assert illegible(page) == []
    page.emulate_media(color_scheme="light")


def test_paper_is_light_and_shows_the_round_of_its_words(wide_page):
    page = wide_page.page
    page.emulate_media(color_scheme="dark")
    wide_page.go().answers(PageSettings())
    page.evaluate("document.getElementById('scene').scene.setRound(7.4)")
    page.emulate_media(media="print", color_scheme="dark")
    wide_page.until(lambda: wide_page.scene()["drawn"]["round"] == 7, "the picture is that of round 7")
    assert page.locator(".fs-words").text_content().startswith("Round 7 of 50.")
    assert page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
    assert not wide_page.button("Play").is_visible()
    assert illegible(page) == []
    page.emulate_media(media="screen", color_scheme="light")


def test_nothing_moves_by_itself_and_least_of_all_for_who_wants_no_motion(wide_page):
    page = wide_page.page
    page.emulate_media(reduced_motion="reduce")
    wide_page.open().answers(PageSettings())
    before = wide_page.scene()["drawn"]["round"]
    wide_page.frames(30)
    assert wide_page.scene()["drawn"]["round"] == before == PageSettings().round
    page.emulate_media(reduced_motion="no-preference")


def test_each_block_of_code_can_be_copied_by_one_button(wide_page):
    wide_page.page.locator(".code:visible").first.wait_for()
    copies = wide_page.page.locator(".code:visible").get_by_role("button")
    assert copies.count() == wide_page.page.get_by_role("button", name="Copy").count()  # nobody adds others
    assert copies.count() == wide_page.page.locator(".code:visible").count() == 4
    wide_page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copies.first.click()
    wide_page.button("Copied").wait_for()
    assert "fl.problems.ring" in wide_page.page.evaluate("navigator.clipboard.readText()")

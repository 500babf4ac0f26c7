"""The explorer in a real browser at the width of a telephone."""

from dataclasses import replace

from fedlsa.explore.page_settings import PageSettings

TOO_WIDE = """() => [...document.querySelectorAll('#App *')].filter(
  e => e.getBoundingClientRect().right > innerWidth + 2 && !e.closest('.explore-picture, table, pre, code, svg')
).map(e => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 40))"""


def test_it_opens_nothing_sticks_out_and_sliders_work(phone):
    s = PageSettings()
    phone.open().answers(s)
    phone.until(lambda: "Stable below" in phone.words(), "all is drawn")
    assert phone.page.evaluate(TOO_WIDE) == []
    phone.press("local steps H")
    phone.answers(replace(s, local_steps=70))


def test_panels_of_the_agents_stand_one_below_the_other(phone):
    width = phone.page.evaluate(
        "Math.max(...[...document.querySelectorAll('.explore-picture')].map(e => e.scrollWidth))"
    )
    assert width <= 390


def test_the_problem_is_behind_the_menu(phone):
    phone.page.locator("button:has(svg.lucide-menu)").click()
    phone.slider("agents N").last.focus()
    phone.page.keyboard.press("ArrowRight")
    phone.answers(replace(phone.settings(), agents=6))

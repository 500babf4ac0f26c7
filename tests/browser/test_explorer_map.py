"""What the explorer says of errors, and its map, in a real browser."""

import re
from dataclasses import replace

from fedlsa.explore.page_settings import METHODS, PageSettings

S = PageSettings(agents=2, rounds=5)


def test_words_split_each_error_and_say_when_more_rounds_help(wide_page):
    wide_page.go()
    wide_page.until(lambda: "its noise floor: more rounds do not help" in wide_page.words(), "the floors are named")
    assert re.search(r"FedLSA ends at \S+ after 50 rounds: drift \S+ \+ noise \S+\.", wide_page.words())
    assert "which more rounds remove" not in wide_page.words()


def test_agents_who_do_not_differ_do_not_drift_and_without_noise_there_is_no_floor(wide_page):
    wide_page.go("spread=0.0")
    line = re.compile(r"FedLSA ends at \S+ after 50 rounds, all of it noise\.")
    wide_page.until(lambda: line.search(wide_page.words()), "FedLSA does not drift")
    wide_page.go("noise=0.0")
    wide_page.until(lambda: wide_page.words().count("There is no floor: more rounds lead to 0.") == 2, "no floors")
    assert re.search(r"FedLSA ends at \S+ after 50 rounds, all of it drift\.", wide_page.words())


def test_an_unstable_method_is_said_to_be_shown_by_means(wide_page):
    wide_page.go("step_size=1.2")
    wide_page.until(lambda: "FedLSA is unstable" in wide_page.words(), "it is called unstable")
    assert "The agents' paths are means" in wide_page.words()


def test_the_map_appears_and_a_chosen_cell_moves_the_sliders(wide_page):
    wide_page.go(S).answers(S)
    wide_page.button("Draw the map").click()
    wide_page.until(lambda: "After 5 rounds of independent observations." in wide_page.words(), "the map is whole")
    cells = wide_page.page.locator("#map button")
    shown = cells.evaluate_all("all => all.map(one => one.className)")
    assert len(shown) == 9 * 16
    assert {*METHODS[:2], "unstable"} <= set(shown) <= {*METHODS, "unstable"}
    assert wide_page.page.locator("#map td.edge").count() > 0
    place = wide_page.page.get_by_role("button", name=re.compile(r"^Step size 0\.072, 30 local steps: \w+ is best"))
    place.click()
    wide_page.follows(replace(S, step_size=0.072, local_steps=30))
    steps = wide_page.slider("local steps H")
    wide_page.until(lambda: steps.get_attribute("aria-valuetext") == "30 local steps", "the slider has moved")
    wide_page.until(lambda: re.search(r"FedLSA ends at \S+ after 5 rounds", wide_page.words()), "curves follow")
    place.focus()
    for key in ("ArrowRight", "ArrowDown", "Enter"):
        wide_page.page.keyboard.press(key)
    wide_page.follows(replace(S, step_size=0.12, local_steps=10))

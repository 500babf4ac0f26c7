"""The site in a real browser, opened from the disk, at the width of a desktop and of a telephone."""

import re
from pathlib import Path

import pytest

PAGES = (
    "index",
    "tutorial",
    "data",
    "network",
    "explore",
    "theory",
    "error-bars",
    "paper-map",
    "notation",
    "performance",
    "api/theory",
)
WIDE = "[...document.querySelectorAll('article *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
WIDE += " && !e.closest('.md-typeset__scrollwrap, pre, .formula')).map(e => e.outerHTML.slice(0, 80))"
AT_ONCE = "(input, words) => { input.value = words; input.dispatchEvent(new Event('keyup')) }"  # one query
COARSE = "[...document.querySelectorAll('article img')].filter(i => i.naturalWidth < 2 * i.width - 2).map(i => i.src)"
BROKEN = "[...document.images].filter(i => !i.complete || !i.naturalWidth || !i.alt).map(i => i.src)"


@pytest.fixture
def page(browser):
    page = browser.new_page()
    page.set_default_timeout(180_000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: page.complaints.append(asked.url) if asked.url.startswith("http") else None)
    yield page
    page.close()


def test_pages_fit_have_their_pictures_and_ask_no_other_host(site, page):
    for name in PAGES:
        page.set_viewport_size({"width": 1280, "height": 844})
        page.goto(f"{site.as_uri()}/{name}.html")
        assert page.evaluate(BROKEN) == [], name
        assert page.evaluate(COARSE) == [], name
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 844})
            assert page.evaluate("document.scrollingElement.scrollWidth") <= width, name
            assert page.evaluate(WIDE) == [], name
    assert page.complaints == []


def test_search_finds_a_page_from_the_disk(site, page):
    page.set_viewport_size({"width": 1280, "height": 844})
    page.goto(f"{site.as_uri()}/index.html")
    page.click("input.md-search__input")
    page.keyboard.type("stability_limit")
    found = page.locator(".md-search-result__link").first
    found.wait_for()
    assert "api/theory.html" in found.get_attribute("href")
    assert page.complaints == []


def test_search_forgives_a_typo_and_only_in_words_that_no_page_has(site, page):
    page.set_viewport_size({"width": 1280, "height": 844})
    page.goto(f"{site.as_uri()}/index.html")
    page.click("input.md-search__input")
    for typed, wanted in (("hetrogeneity", "heterogeneity"), ("stablity limit", "stability"), ("scaflsa", "scafflsa")):
        page.eval_on_selector("input.md-search__input", AT_ONCE, typed)
        page.locator(".md-search-result__link mark", has_text=re.compile(wanted, re.I)).first.wait_for()
    page.eval_on_selector("input.md-search__input", AT_ONCE, "drift")
    page.locator(".md-search-result__link mark", has_text=re.compile("^drift", re.I)).first.wait_for()
    marked = page.locator(".md-search-result__link mark").all_inner_texts()
    assert {word.lower()[:5] for word in marked if word} == {"drift"}
    assert page.complaints == []


def test_a_table_that_is_too_wide_says_that_it_scrolls(site, page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.as_uri()}/paper-map.html")
    wide = page.get_by_role("region", name="Table: Main text. Scrolls sideways.")
    wide.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0")
    assert "gradient" in wide.evaluate("box => getComputedStyle(box).backgroundImage")
    page.goto(f"{site.as_uri()}/theory.html")
    page.set_viewport_size({"width": 1280, "height": 844})
    fits = page.locator(".md-typeset__scrollwrap", has_text="averaged iterates")
    page.wait_for_function("box => !box.hasAttribute('tabindex')", arg=fits.element_handle())
    assert fits.get_attribute("role") is None
    assert page.complaints == []


def test_a_formula_is_drawn_as_one(site, page):
    page.set_viewport_size({"width": 1280, "height": 844})
    page.goto(f"{site.as_uri()}/theory.html")
    every = "[...document.querySelectorAll('.formula math')]"
    source = (Path(__file__).parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")
    formulas = re.findall(r"^\$\$(.*?)\$\$$", source, re.S | re.M)
    assert page.evaluate(f"{every}.length") == len(formulas) > 0
    fractions = f"{every}.filter(m => m.querySelector('mfrac'))"
    drawn = page.evaluate(f"{fractions}.map(m => m.getBoundingClientRect().height)")
    line = page.evaluate("parseFloat(getComputedStyle(document.querySelector('article p')).lineHeight)")
    assert len(drawn) == sum(r"\frac" in formula for formula in formulas) > 0
    assert min(drawn) > 1.3 * line  # fractions stand above one another


def test_the_front_page_plays_the_agents_and_leads_to_their_page_and_back(site, page):
    page.set_viewport_size({"width": 1280, "height": 844})
    page.goto(f"{site.as_uri()}/index.html")
    frame = page.frame_locator("iframe.play")
    frame.locator(".fs-plane").wait_for()
    page.frames[1].wait_for_function("window.fedlsaPlay && fedlsaPlay.scene.round > 0")
    assert not frame.locator("#card").is_visible()
    page.get_by_role("link", name="Drag an agent and see client drift").click()
    page.locator("#story h2").wait_for()
    page.get_by_role("link", name="fedlsa").click()
    page.locator("iframe.play").wait_for()
    assert page.complaints == []
